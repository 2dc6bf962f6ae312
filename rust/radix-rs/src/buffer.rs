//! Tokens and slots of edges, side by side in memory that never moves and whose written part never changes.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sync::Tally;
use crate::sync::atomic::{AtomicU32, Ordering::*};

/// A shared buffer of `cap` atoms and `cap` values, or a name: one allocation, freed with its last handle. Bodies refer to
/// ranges of it; a leaf that grows writes behind what is filled.
pub(crate) struct Buffer<A, V> {
    head: NonNull<Head>,
    holds: PhantomData<(A, V)>,
}

/// Behind it lie the atoms, then the values; in a buffer without room for any, a name.
struct Head {
    /// Handles. As with [`Arc`], not an atomic of the checkers: no decision hangs on it.
    handles: std::sync::atomic::AtomicU32,
    cap: u32,
    /// How far it is claimed for writing. Never goes back: room that was claimed for a change that did not happen is lost.
    filled: AtomicU32,
    /// How far it is written.
    written: AtomicU32,
    meter: Arc<Tally>,
}

// SAFETY: the written part is immutable, and the right to write a part is won through `filled`.
unsafe impl<A: Send + Sync, V: Send + Sync> Send for Buffer<A, V> {}
// SAFETY: as above.
unsafe impl<A: Send + Sync, V: Send + Sync> Sync for Buffer<A, V> {}

/// More handles than fit any memory, unless they are leaked; one more would soon be one too many.
const MOST_HANDLES: u32 = u32::MAX / 2;

const FITS: &str = "an edge fits the address space";

/// Where the values of a buffer are. Its layout was checked when it was made.
#[inline]
const fn values_offset<A, V>(cap: u32) -> usize {
    (atoms_offset::<A>() + cap as usize * size_of::<A>()).next_multiple_of(align_of::<V>())
}

const fn atoms_offset<A>() -> usize {
    size_of::<Head>().next_multiple_of(align_of::<A>())
}

fn layout<A, V>(cap: u32) -> Layout {
    let (layout, atoms) = Layout::new::<Head>().extend(Layout::array::<A>(cap as usize).expect(FITS)).expect(FITS);
    let (layout, values) = layout.extend(Layout::array::<V>(cap as usize).expect(FITS)).expect(FITS);
    debug_assert!(atoms == atoms_offset::<A>() && values == values_offset::<A, V>(cap));
    layout
}

/// The layout of a buffer with a name, and where its bytes are: behind their number.
fn name_layout(len: usize) -> (Layout, usize) {
    let (layout, _) = Layout::new::<Head>().extend(Layout::new::<usize>()).expect(FITS);
    layout.extend(Layout::array::<u8>(len).expect(FITS)).expect(FITS)
}

impl<A, V> Buffer<A, V> {
    fn allocate(layout: Layout, cap: u32, filled: u32, meter: &Arc<Tally>) -> Self {
        // SAFETY: a head is not empty.
        let Some(head) = NonNull::new(unsafe { alloc(layout) }.cast::<Head>()) else { handle_alloc_error(layout) };
        let content = Head {
            handles: std::sync::atomic::AtomicU32::new(1),
            cap,
            filled: AtomicU32::new(filled),
            written: AtomicU32::new(filled),
            meter: meter.clone(),
        };
        // SAFETY: every layout begins with a head.
        unsafe { head.write(content) };
        meter.fetch_add(layout.size(), Relaxed);
        Buffer { head, holds: PhantomData }
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: written in `allocate`, freed with the last handle.
        unsafe { self.head.as_ref() }
    }

    /// What lies `offset` bytes behind the beginning of the allocation.
    #[inline]
    fn at<T>(&self, offset: usize) -> NonNull<T> {
        // SAFETY: callers take the offset from the layout of this buffer.
        unsafe { self.head.byte_add(offset).cast() }
    }

    fn layout(&self) -> Layout {
        match self.name() {
            Some(name) => name_layout(name.len()).0,
            None => layout::<A, V>(self.head().cap),
        }
    }

    /// The name, where this is the (empty) edge of a namespace.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        if self.head().cap > 0 {
            return None;
        }
        let (_, bytes) = name_layout(0);
        // SAFETY: `named` wrote the number and as many bytes, for good.
        unsafe {
            let len = self.at::<usize>(bytes - size_of::<usize>()).read();
            Some(std::slice::from_raw_parts(self.at(bytes).as_ptr(), len))
        }
    }
}

impl<A, V> Clone for Buffer<A, V> {
    #[inline]
    fn clone(&self) -> Self {
        if self.head().handles.fetch_add(1, Relaxed) > MOST_HANDLES {
            std::process::abort();
        }
        Buffer { head: self.head, holds: PhantomData }
    }
}

impl<A, V> Drop for Buffer<A, V> {
    #[inline]
    fn drop(&mut self) {
        // Each handle is done before it goes, and the last one sees that of all others.
        if self.head().handles.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        let layout = self.layout();
        self.head().meter.fetch_sub(layout.size(), Relaxed);
        // SAFETY: allocated in `allocate` with this layout; the last handle is going. Atoms and values are `Copy`.
        unsafe {
            self.head.drop_in_place();
            dealloc(self.head.as_ptr().cast(), layout);
        }
    }
}

impl<A: Copy, V: Copy> Buffer<A, V> {
    /// A buffer with room for `cap`, filled with what the parts hold, in order: at least one atom.
    pub(crate) fn new(cap: usize, parts: &[(&[A], &[V])], meter: &Arc<Tally>) -> Self {
        let filled: usize = parts.iter().map(|(atoms, _)| atoms.len()).sum();
        assert!(filled > 0, "an edge has atoms or a name");
        let cap = u32::try_from(cap.max(filled)).expect("an edge holds less than 2^32 tokens");
        let buffer = Self::allocate(layout::<A, V>(cap), cap, filled as u32, meter);
        let mut at = 0;
        for (atoms, values) in parts {
            // SAFETY: the sum of the parts is `filled <= cap`, and nobody else knows the buffer yet.
            unsafe { buffer.write(at, atoms, values) };
            at += atoms.len();
        }
        buffer
    }

    /// The empty edge of a namespace.
    pub(crate) fn named(name: &[u8], meter: &Arc<Tally>) -> Self {
        let (layout, bytes) = name_layout(name.len());
        let buffer = Self::allocate(layout, 0, 0, meter);
        // SAFETY: the layout has room for the number and the bytes behind it, and nobody else knows the buffer yet.
        unsafe {
            buffer.at::<usize>(bytes - size_of::<usize>()).write(name.len());
            buffer.at(bytes).copy_from_nonoverlapping(NonNull::from(name).cast::<u8>(), name.len());
        }
        buffer
    }

    #[inline]
    fn atoms_at(&self) -> NonNull<A> {
        self.at(atoms_offset::<A>())
    }

    #[inline]
    fn values_at(&self) -> NonNull<V> {
        self.at(values_offset::<A, V>(self.head().cap))
    }

    /// # Safety
    /// `at..at + atoms.len()` is inside the buffer and the caller alone may write it.
    unsafe fn write(&self, at: usize, atoms: &[A], values: &[V]) {
        debug_assert_eq!(atoms.len(), values.len());
        // SAFETY: by contract in bounds and not aliased; the slices are elsewhere.
        unsafe {
            self.atoms_at().add(at).copy_from_nonoverlapping(NonNull::from(atoms).cast(), atoms.len());
            self.values_at().add(at).copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
        }
    }

    /// Writes behind position `end` if that is where the buffer is filled to and there is room. The loser of a race
    /// for the place changes nothing.
    pub(crate) fn append(&self, end: u32, atoms: &[A], values: &[V]) -> bool {
        let Some(new_end) = end.checked_add(atoms.len() as u32).filter(|&e| e <= self.head().cap) else { return false };
        if self.head().filled.compare_exchange(end, new_end, AcqRel, Relaxed).is_err() {
            return false;
        }
        // SAFETY: the swap above made this range ours; nobody reads it before it is written.
        unsafe { self.write(end as usize, atoms, values) };
        // In order: to claim the next range somebody must have seen a body that ends where this one does.
        self.head().written.store(new_end, Release);
        true
    }

    /// The atoms of a published range.
    #[inline]
    pub(crate) fn atoms(&self, start: u32, len: u32) -> &[A] {
        assert!(start + len <= self.head().cap);
        // SAFETY: in bounds; callers only ask for ranges of published bodies, which are written and final.
        unsafe { std::slice::from_raw_parts(self.atoms_at().add(start as usize).as_ptr(), len as usize) }
    }

    /// The values of a published range.
    #[inline]
    pub(crate) fn values(&self, start: u32, len: u32) -> &[V] {
        assert!(start + len <= self.head().cap);
        // SAFETY: as for `atoms`.
        unsafe { std::slice::from_raw_parts(self.values_at().add(start as usize).as_ptr(), len as usize) }
    }

    pub(crate) fn cap(&self) -> u32 {
        self.head().cap
    }

    /// How far it is written, for good.
    pub(crate) fn written(&self) -> u32 {
        self.head().written.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled<A: Copy + PartialEq + std::fmt::Debug, V: Copy + PartialEq + std::fmt::Debug>(atoms: &[A], values: &[V]) {
        let meter = Arc::new(Tally::new(0));
        for n in 1..atoms.len() {
            let parts = [(&atoms[..1], &values[..1]), (&atoms[1..n], &values[1..n])];
            let buffer = Buffer::new(n + 1, &parts, &meter);
            let again = buffer.clone();
            assert_eq!(
                meter.load(Relaxed),
                size_of::<Head>() + (n + 1) * size_of::<A>() + {
                    let gap = (size_of::<Head>() + (n + 1) * size_of::<A>()) % align_of::<V>();
                    (n + 1) * size_of::<V>() + (align_of::<V>() - gap) % align_of::<V>()
                }
            );
            assert!(buffer.append(n as u32, &atoms[n..=n], &values[n..=n]));
            assert!(!again.append(n as u32, &atoms[n..=n], &values[n..=n]), "a place is won once");
            drop(buffer);
            assert_eq!(again.atoms(0, n as u32 + 1), &atoms[..=n]);
            assert_eq!(again.values(1, n as u32), &values[1..=n]);
            assert_eq!((again.name(), again.written()), (None, n as u32 + 1));
            drop(again);
            assert_eq!(meter.load(Relaxed), 0, "the last handle frees it");
        }
    }

    #[test]
    fn atoms_and_values_of_any_width_lie_side_by_side() {
        let small: Vec<u32> = (0..20).collect();
        let wide: Vec<u64> = (0..20).map(|i| i << 40).collect();
        filled(&small, &small);
        filled(&small, &wide);
        filled(&wide, &small);
        filled(&wide, &wide);
    }

    #[test]
    fn a_name_may_be_anything() {
        let meter = Arc::new(Tally::new(0));
        for name in [&b""[..], b"a", b"a name of some length"] {
            let buffer = Buffer::<u32, i32>::named(name, &meter);
            assert_eq!(buffer.clone().name(), Some(name));
            assert_eq!(buffer.atoms(0, 0), &[] as &[u32]);
        }
        assert_eq!(meter.load(Relaxed), 0);
    }
}
