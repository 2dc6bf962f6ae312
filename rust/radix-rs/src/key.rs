//! What the tree is generic over: atoms (token ids), values (slots), and where a caller's atoms are read from.

use std::marker::PhantomData;
use std::ops::Range;

use crate::error::{Error, Result};

/// One unit of a key: a `u32` token id, or a `u64` for pairs of tokens and content hashes.
pub trait Atom: Copy + Default + Eq + Send + Sync + std::fmt::Debug + 'static {
    /// The atom as 64 bits; different atoms give different bits.
    fn bits(self) -> u64;
    /// The atom for `bits`, if this type has one.
    fn from_bits(bits: u64) -> Option<Self>;
}

impl Atom for u32 {
    #[inline]
    fn bits(self) -> u64 {
        u64::from(self)
    }
    #[inline]
    fn from_bits(bits: u64) -> Option<Self> {
        u32::try_from(bits).ok()
    }
}

impl Atom for u64 {
    #[inline]
    fn bits(self) -> u64 {
        self
    }
    #[inline]
    fn from_bits(bits: u64) -> Option<Self> {
        Some(bits)
    }
}

/// What the tree stores for each atom: a KV slot for an engine, the holders of a block for a router.
pub trait Value: Copy + PartialEq + Send + Sync + std::fmt::Debug + 'static {
    /// The slot number, where the value is one: slots must be consecutive and aligned within a page, and no two
    /// atoms may share one.
    fn slot(self) -> Option<i64> {
        None
    }
}

impl Value for i32 {
    fn slot(self) -> Option<i64> {
        Some(i64::from(self))
    }
}
impl Value for u64 {}
impl Value for u128 {}

/// Where the atoms of a key come from. Each element is read at most once for each use, so memory that somebody
/// changes meanwhile gives some answer and never undefined behaviour.
///
/// # Safety
/// `common_prefix` must not return more than `edge.len()` or than `len() - at`, and `copy_to` must append exactly
/// the elements of the range or fail.
pub unsafe trait Source<A: Atom> {
    /// Number of atoms.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The atom at `at`, or `None` if the element is no atom (a negative id, say). `at < len()`.
    fn get(&self, at: usize) -> Option<A>;
    /// How many atoms from `at` on equal those of `edge`.
    fn common_prefix(&self, at: usize, edge: &[A]) -> usize {
        let most = edge.len().min(self.len() - at);
        (0..most).find(|&i| self.get(at + i) != Some(edge[i])).unwrap_or(most)
    }
    /// Appends the atoms of `range`.
    ///
    /// # Errors
    /// [`Error::InvalidToken`] with the position of the first element that is no atom.
    fn copy_to(&self, range: Range<usize>, out: &mut Vec<A>) -> Result<()>;
}

/// Compares by blocks, so that the loop becomes vector instructions.
#[inline]
fn common<A: Atom>(a: &[A], b: &[A]) -> usize {
    const BLOCK: usize = 32;
    let most = a.len().min(b.len());
    let (a, b) = (&a[..most], &b[..most]);
    let mut at = 0;
    while at + BLOCK <= most {
        let differs = (0..BLOCK).fold(false, |d, i| d | (a[at + i] != b[at + i]));
        if differs {
            break;
        }
        at += BLOCK;
    }
    (at..most).find(|&i| a[i] != b[i]).unwrap_or(most)
}

// SAFETY: both methods follow the slice's own length.
unsafe impl<A: Atom> Source<A> for [A] {
    fn len(&self) -> usize {
        <[A]>::len(self)
    }
    fn get(&self, at: usize) -> Option<A> {
        Some(self[at])
    }
    fn common_prefix(&self, at: usize, edge: &[A]) -> usize {
        common(&self[at..], edge)
    }
    fn copy_to(&self, range: Range<usize>, out: &mut Vec<A>) -> Result<()> {
        out.extend_from_slice(&self[range]);
        Ok(())
    }
}

/// What derefs to a slice is read as one.
macro_rules! as_slice {
    ($([$($generic:tt)+] $t:ty),*) => {$(
        // SAFETY: as for slices.
        unsafe impl<$($generic)+> Source<A> for $t {
            fn len(&self) -> usize {
                <[A]>::len(self)
            }
            fn get(&self, at: usize) -> Option<A> {
                Some(self[at])
            }
            fn common_prefix(&self, at: usize, edge: &[A]) -> usize {
                common(&self[at..], edge)
            }
            fn copy_to(&self, range: Range<usize>, out: &mut Vec<A>) -> Result<()> {
                self[..].copy_to(range, out)
            }
        }
    )*};
}
as_slice!([A: Atom] Vec<A>, [A: Atom, const N: usize] [A; N]);

/// Element types a foreign array may have.
pub trait Element: Copy + Default + 'static {
    /// The non-negative value as bits, or `None` for a negative one.
    fn bits(self) -> Option<u64>;
    /// The value for messages.
    fn wide(self) -> i128;
}

macro_rules! element {
    ($($t:ty),*) => {$(
        impl Element for $t {
            #[inline]
            fn bits(self) -> Option<u64> {
                u64::try_from(self).ok()
            }
            fn wide(self) -> i128 {
                self as i128
            }
        }
    )*};
}
element!(i32, u32, i64, u64);

/// A foreign array of integers read through a raw pointer: NumPy, torch or anything else that somebody may write to
/// while we read. Ids must be below `limit`.
pub struct RawSource<'a, T> {
    base: *const T,
    len: usize,
    limit: u64,
    owner: PhantomData<&'a ()>,
}

/// Elements that are read and looked at together.
const BLOCK: usize = 16;

impl<T> RawSource<'_, T> {
    /// A source over `len` elements at `base`; atoms at or above `limit` are refused.
    ///
    /// # Safety
    /// The memory must stay mapped and aligned for `T` while the source lives. Its contents may change.
    pub unsafe fn new(base: *const T, len: usize, limit: u64) -> Self {
        RawSource { base, len, limit, owner: PhantomData }
    }
}

impl<T: Element> RawSource<'_, T> {
    #[inline]
    fn read(&self, at: usize) -> T {
        assert!(at < self.len);
        // SAFETY: in bounds by the assertion, mapped and aligned by the contract of `new`. Volatile: the value is
        // taken once, whatever another thread does to it.
        unsafe { self.base.add(at).read_volatile() }
    }

    /// The next [`BLOCK`] elements, each taken once.
    #[inline]
    fn read_block(&self, at: usize) -> [T; BLOCK] {
        assert!(at + BLOCK <= self.len);
        let mut block = [T::default(); BLOCK];
        #[cfg(target_arch = "x86_64")]
        for part in 0..size_of::<[T; BLOCK]>() / 16 {
            use std::arch::x86_64::{__m128i, _mm_storeu_si128};
            let value: __m128i;
            // SAFETY: inside the block, which is in bounds by the assertion. The instruction takes the sixteen bytes once
            // and assumes nothing of them; for the compiler it is opaque, as a volatile load would be.
            unsafe {
                let from = self.base.add(at).cast::<__m128i>().add(part);
                std::arch::asm!("movdqu {}, [{}]", out(xmm_reg) value, in(reg) from, options(nostack, preserves_flags, readonly));
                _mm_storeu_si128(block.as_mut_ptr().cast::<__m128i>().add(part), value);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        for (i, element) in block.iter_mut().enumerate() {
            *element = self.read(at + i);
        }
        block
    }

    #[inline]
    fn atom<A: Atom>(&self, element: T) -> Option<A> {
        element.bits().filter(|&bits| bits < self.limit).and_then(A::from_bits)
    }
}

/// Whether two elements mean the same; a negative one is no atom.
#[inline]
fn same<A: Atom, T: Element>(element: T, atom: A) -> bool {
    element.bits() == Some(atom.bits())
}

// SAFETY: bounds come from `len`, and every element goes through `read` or `read_block`.
unsafe impl<A: Atom, T: Element> Source<A> for RawSource<'_, T> {
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, at: usize) -> Option<A> {
        self.atom(self.read(at))
    }
    fn common_prefix(&self, at: usize, edge: &[A]) -> usize {
        let most = edge.len().min(self.len - at);
        let mut done = 0;
        for atoms in edge[..most].chunks_exact(BLOCK) {
            let block = self.read_block(at + done);
            // no early exit inside a block: this is what becomes vector instructions
            let differs = block.iter().zip(atoms).fold(false, |d, (&element, &atom)| d | !same(element, atom));
            if differs {
                break;
            }
            done += BLOCK;
        }
        (done..most).find(|&i| !same(self.read(at + i), edge[i])).unwrap_or(most)
    }
    fn copy_to(&self, range: Range<usize>, out: &mut Vec<A>) -> Result<()> {
        out.reserve(range.len());
        let mut at = range.start;
        while at + BLOCK <= range.end {
            let block = self.read_block(at);
            let fine = block.iter().fold(true, |fine, &element| fine & self.atom::<A>(element).is_some());
            if !fine {
                break;
            }
            let atoms: [A; BLOCK] = std::array::from_fn(|i| self.atom(block[i]).unwrap_or_default());
            out.extend_from_slice(&atoms);
            at += BLOCK;
        }
        for position in at..range.end {
            let element = self.read(position);
            match self.atom(element) {
                Some(atom) => out.push(atom),
                None => return Err(Error::InvalidToken { position, value: element.wide() }),
            }
        }
        Ok(())
    }
}

/// How a page becomes the 32-bit key that children are sorted by. Keys only order and pre-select; tokens are always
/// compared as well, so a bad hash costs time and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PageHash {
    /// Multiplicative mixing of all atoms of the page; the atom itself for pages of one 32-bit atom.
    #[default]
    Mix,
    /// The same key for every page. For tests: everything stays right, only slower.
    Constant,
}

impl PageHash {
    /// The key of the page at `at`, or `None` if the page holds something that is no atom.
    pub(crate) fn key<A: Atom, S: Source<A> + ?Sized>(self, source: &S, at: usize, page: usize) -> Option<u32> {
        if self == PageHash::Constant {
            return Some(0);
        }
        let first = source.get(at)?.bits();
        if page == 1 && size_of::<A>() == 4 {
            return Some(first as u32);
        }
        let mut hash = mix(first);
        for i in 1..page {
            hash = mix(hash ^ source.get(at + i)?.bits());
        }
        Some((hash >> 32) as u32)
    }

    pub(crate) fn name(self, name: &[u8]) -> u32 {
        if self == PageHash::Constant {
            return 0;
        }
        let hash = name.iter().fold(name.len() as u64, |h, &b| mix(h ^ u64::from(b)));
        (hash >> 32) as u32
    }
}

#[inline]
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 29)
}
