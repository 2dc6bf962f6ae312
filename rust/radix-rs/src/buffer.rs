//! Tokens and slots of edges, side by side in memory that never moves and whose written part never changes.

use crate::sync::Tally;
use crate::sync::atomic::{AtomicU32, Ordering::*};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::sync::Arc;

/// `cap` atoms and `cap` values. Bodies refer to ranges of it; a leaf that grows writes behind what is filled.
pub(crate) struct Buffer<A, V> {
    atoms: *mut A,
    values: *mut V,
    cap: u32,
    /// How far it is claimed for writing. Never goes back: room that was claimed for a change that did not happen is lost.
    filled: AtomicU32,
    /// How far it is written.
    written: AtomicU32,
    /// The name, where this is the (empty) edge of a namespace.
    name: Option<Box<[u8]>>,
    meter: Arc<Tally>,
}

// SAFETY: the written part is immutable, and the right to write a part is won through `filled`.
unsafe impl<A: Send + Sync, V: Send + Sync> Send for Buffer<A, V> {}
// SAFETY: as above.
unsafe impl<A: Send + Sync, V: Send + Sync> Sync for Buffer<A, V> {}

fn allocate<T>(n: u32) -> *mut T {
    if n == 0 {
        return std::ptr::NonNull::dangling().as_ptr();
    }
    let layout = Layout::array::<T>(n as usize).expect("an edge fits the address space");
    // SAFETY: the layout is not empty.
    let base = unsafe { alloc(layout) }.cast::<T>();
    if base.is_null() {
        handle_alloc_error(layout);
    }
    base
}

impl<A: Copy, V: Copy> Buffer<A, V> {
    /// A buffer with room for `cap`, filled with what the parts hold, in order.
    pub(crate) fn new(cap: usize, parts: &[(&[A], &[V])], meter: &Arc<Tally>) -> Arc<Self> {
        let filled: usize = parts.iter().map(|(atoms, _)| atoms.len()).sum();
        let cap = u32::try_from(cap.max(filled)).expect("an edge holds less than 2^32 tokens");
        let buffer = Buffer {
            atoms: allocate(cap),
            values: allocate(cap),
            cap,
            filled: AtomicU32::new(filled as u32),
            written: AtomicU32::new(filled as u32),
            name: None,
            meter: meter.clone(),
        };
        let mut at = 0;
        for (atoms, values) in parts {
            // SAFETY: the sum of the parts is `filled <= cap`, and nobody else knows the buffer yet.
            unsafe { buffer.write(at, atoms, values) };
            at += atoms.len();
        }
        meter.fetch_add(buffer.size_bytes(), Relaxed);
        Arc::new(buffer)
    }

    /// The empty edge of a namespace.
    pub(crate) fn named(name: &[u8], meter: &Arc<Tally>) -> Arc<Self> {
        let buffer = Buffer {
            atoms: allocate(0),
            values: allocate(0),
            cap: 0,
            filled: AtomicU32::new(0),
            written: AtomicU32::new(0),
            name: Some(name.into()),
            meter: meter.clone(),
        };
        meter.fetch_add(buffer.size_bytes(), Relaxed);
        Arc::new(buffer)
    }

    /// # Safety
    /// `at..at + atoms.len()` is inside the buffer and the caller alone may write it.
    unsafe fn write(&self, at: usize, atoms: &[A], values: &[V]) {
        debug_assert_eq!(atoms.len(), values.len());
        // SAFETY: by contract in bounds and not aliased; the slices are elsewhere.
        unsafe {
            self.atoms.add(at).copy_from_nonoverlapping(atoms.as_ptr(), atoms.len());
            self.values.add(at).copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
    }

    /// Writes behind position `end` if that is where the buffer is filled to and there is room. The loser of a race
    /// for the place changes nothing.
    pub(crate) fn append(&self, end: u32, atoms: &[A], values: &[V]) -> bool {
        let Some(new_end) = end.checked_add(atoms.len() as u32).filter(|&e| e <= self.cap) else { return false };
        if self.filled.compare_exchange(end, new_end, AcqRel, Relaxed).is_err() {
            return false;
        }
        // SAFETY: the swap above made this range ours; nobody reads it before it is written.
        unsafe { self.write(end as usize, atoms, values) };
        // In order: to claim the next range somebody must have seen a body that ends where this one does.
        self.written.store(new_end, Release);
        true
    }

    /// The atoms of a published range.
    #[inline]
    pub(crate) fn atoms(&self, start: u32, len: u32) -> &[A] {
        assert!(start + len <= self.cap);
        // SAFETY: in bounds; callers only ask for ranges of published bodies, which are written and final.
        unsafe { std::slice::from_raw_parts(self.atoms.add(start as usize), len as usize) }
    }

    /// The values of a published range.
    #[inline]
    pub(crate) fn values(&self, start: u32, len: u32) -> &[V] {
        assert!(start + len <= self.cap);
        // SAFETY: as for `atoms`.
        unsafe { std::slice::from_raw_parts(self.values.add(start as usize), len as usize) }
    }

    pub(crate) fn cap(&self) -> u32 {
        self.cap
    }

    /// How far it is written, for good.
    pub(crate) fn written(&self) -> u32 {
        self.written.load(Acquire)
    }

    pub(crate) fn name(&self) -> Option<&[u8]> {
        self.name.as_deref()
    }
}

impl<A, V> Buffer<A, V> {
    fn size_bytes(&self) -> usize {
        let name = self.name.as_ref().map_or(0, |n| n.len());
        self.cap as usize * (size_of::<A>() + size_of::<V>()) + size_of::<Self>() + 16 + name
    }
}

impl<A, V> Drop for Buffer<A, V> {
    fn drop(&mut self) {
        self.meter.fetch_sub(self.size_bytes(), Relaxed);
        if self.cap > 0 {
            // SAFETY: allocated in `allocate` with these layouts; the last reference is going.
            unsafe {
                dealloc(self.atoms.cast(), Layout::array::<A>(self.cap as usize).expect("was allocated"));
                dealloc(self.values.cast(), Layout::array::<V>(self.cap as usize).expect("was allocated"));
            }
        }
    }
}
