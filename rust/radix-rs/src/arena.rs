//! Objects by 32-bit id in memory that keeps its type for as long as the tree lives.
//!
//! Ids are handed out by a lock-free free list (its head carries a tag against reuse between load and swap) and
//! come back through three retire lists, one per epoch. Id 0 means "none" everywhere.

use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use crate::sync::{Line, Tally};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::null_mut;

use crate::epoch::Guard;

/// What can live in an [`Arena`].
///
/// # Safety
/// The all-zero bit pattern must be a valid value that owns nothing.
pub(crate) unsafe trait Item {
    /// A value as good as zeroed memory, for checkers whose atomics are more than their bits.
    #[cfg(any(radix_loom, radix_shuttle))]
    fn vacant() -> Self;
    /// Link for the free list and the retire lists.
    fn link(&self) -> &AtomicU32;
    /// Gives up what the object owns and makes it as good as new. Returns the bytes of it that keep no account of
    /// themselves.
    ///
    /// # Safety
    /// Nobody else may look at the object any more.
    unsafe fn recycle(&self) -> usize;
}

const FIRST_BITS: u32 = if cfg!(any(radix_loom, radix_shuttle)) { 3 } else { 6 };
const CHUNKS: usize = 27;

/// See the module.
pub(crate) struct Arena<T> {
    chunks: [AtomicPtr<T>; CHUNKS],
    // what writers write is apart from the chunks, which readers read
    free: Line<AtomicU64>,
    next: Line<AtomicU32>,
    retired: Line<[AtomicU32; 3]>,
    waiting: Line<Tally>,
}

fn place(id: u32) -> (usize, usize) {
    let at = id + (1 << FIRST_BITS);
    let chunk = at.ilog2() - FIRST_BITS;
    (chunk as usize, (at - (1 << (chunk + FIRST_BITS))) as usize)
}

fn layout<T>(chunk: usize) -> Layout {
    Layout::array::<T>(1 << (chunk + FIRST_BITS as usize)).expect("a chunk fits the address space")
}

impl<T: Item> Arena<T> {
    pub(crate) fn new() -> Self {
        Arena {
            chunks: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
            free: Line(AtomicU64::new(0)),
            next: Line(AtomicU32::new(1)),
            retired: Line(std::array::from_fn(|_| AtomicU32::new(0))),
            waiting: Line(Tally::new(0)),
        }
    }

    /// The object with this id. Ids come from `alloc` of the same arena.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> &T {
        let (chunk, at) = place(id);
        let base = self.chunks[chunk].load(Acquire);
        debug_assert!(!base.is_null(), "id {id} was never handed out");
        // SAFETY: `alloc` published the chunk before it returned the id, and chunks live as long as the arena.
        unsafe { &*base.add(at) }
    }

    /// Ids below this one were handed out at least once.
    pub(crate) fn bound(&self) -> u32 {
        self.next.load(Acquire)
    }

    pub(crate) fn alloc(&self) -> u32 {
        let mut head = self.free.load(Acquire);
        while head as u32 != 0 {
            let id = head as u32;
            // The object may be taken by another thread meanwhile; then the tag has moved and the swap fails.
            let next = self.get(id).link().load(Relaxed);
            let tagged = ((head >> 32) + 1) << 32 | u64::from(next);
            match self.free.compare_exchange_weak(head, tagged, AcqRel, Acquire) {
                Ok(_) => return id,
                Err(now) => head = now,
            }
        }
        let id = self.next.fetch_add(1, AcqRel);
        assert!(id < u32::MAX / 2, "more than two billion nodes");
        self.ensure(place(id).0);
        id
    }

    fn ensure(&self, chunk: usize) {
        let cell = &self.chunks[chunk];
        if !cell.load(Acquire).is_null() {
            return;
        }
        // SAFETY: the layout is not empty.
        let fresh = unsafe { alloc_zeroed(layout::<T>(chunk)) }.cast::<T>();
        if fresh.is_null() {
            handle_alloc_error(layout::<T>(chunk));
        }
        #[cfg(any(radix_loom, radix_shuttle))]
        for at in 0..1 << (chunk + FIRST_BITS as usize) {
            // SAFETY: inside the chunk, which nobody else knows yet.
            unsafe { fresh.add(at).write(T::vacant()) };
        }
        if cell.compare_exchange(null_mut(), fresh, AcqRel, Acquire).is_err() {
            // SAFETY: never published, allocated with this layout just above.
            unsafe { dealloc(fresh.cast(), layout::<T>(chunk)) };
        }
    }

    /// Puts an object back that nobody else ever saw, or that nobody can see any more.
    pub(crate) fn free(&self, id: u32) {
        // SAFETY: the caller is the only one who knows the id.
        unsafe { self.get(id).recycle() };
        self.push(id, id);
    }

    fn push(&self, first: u32, last: u32) {
        let mut head = self.free.load(Acquire);
        loop {
            self.get(last).link().store(head as u32, Relaxed);
            let tagged = ((head >> 32) + 1) << 32 | u64::from(first);
            match self.free.compare_exchange_weak(head, tagged, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Hands an unlinked object to the epochs; `guard` was held when it was unlinked.
    pub(crate) fn retire(&self, id: u32, guard: &Guard<'_>) {
        let list = &self.retired[guard.list()];
        self.waiting.fetch_add(1, Relaxed);
        let mut head = list.load(Acquire);
        loop {
            // a list is only ever taken whole, so an equal head means an unchanged list
            self.get(id).link().store(head, Relaxed);
            match list.compare_exchange_weak(head, id, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Recycles a whole retire list; `list` comes from [`Guard::advance`], whose guard is still held. Returns the bytes that
    /// keep no account of themselves.
    pub(crate) fn collect(&self, list: usize) -> usize {
        let first = self.retired[list].swap(0, AcqRel);
        let (mut id, mut last, mut count, mut bytes) = (first, 0, 0, 0);
        while id != 0 {
            let next = self.get(id).link().load(Relaxed);
            // SAFETY: two epochs have passed since it was unlinked: no guard can reach it.
            bytes += unsafe { self.get(id).recycle() };
            (last, id, count) = (id, next, count + 1);
        }
        if last != 0 {
            self.push(first, last);
            self.waiting.fetch_sub(count, Relaxed);
        }
        bytes
    }

    /// Objects retired and not yet recycled.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Bytes of all objects handed out so far (chunks are touched as they are used).
    pub(crate) fn size_bytes(&self) -> usize {
        self.bound() as usize * size_of::<T>()
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        // Contents are given up by the tree, which knows what they own; here only the memory goes.
        for (chunk, cell) in self.chunks.iter().enumerate() {
            let base = cell.load(Relaxed);
            if !base.is_null() {
                // SAFETY: allocated in `ensure` with this layout; `&mut self`.
                unsafe { dealloc(base.cast(), layout::<T>(chunk)) };
            }
        }
    }
}
