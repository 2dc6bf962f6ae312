//! Slots that go back only once a computation that may still read them is over.

use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::cache::NOBODY;
use crate::slots::SlotPool;

struct Waiting {
    pages: Vec<u32>,
    next: *mut Waiting,
}

pub(crate) struct Gate {
    pool: SlotPool,
    owners: Arc<[AtomicU32]>,
    waiting_pages: Arc<AtomicUsize>,
    open: AtomicBool,
    head: AtomicPtr<Waiting>,
}

/// A point in time of the caller's device. Slots given back `after` a fence are handed out again once it is signalled;
/// dropping the last handle signals it as well.
///
/// # Concurrency
/// Lock-free. Either the give-back comes first and the signal finds the pages, or the signal comes first and the give-back sees
/// the open gate and passes them on itself.
#[derive(Clone)]
pub struct Fence {
    pub(crate) gate: Arc<Gate>,
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fence").field("signalled", &self.is_signalled()).finish()
    }
}

impl Fence {
    pub(crate) fn new(pool: SlotPool, owners: Arc<[AtomicU32]>, waiting_pages: Arc<AtomicUsize>) -> Self {
        let gate = Gate { pool, owners, waiting_pages, open: AtomicBool::new(false), head: AtomicPtr::new(null_mut()) };
        Fence { gate: Arc::new(gate) }
    }

    /// Whether it was signalled.
    pub fn is_signalled(&self) -> bool {
        self.gate.open.load(SeqCst)
    }

    pub(crate) fn is_of(&self, pool: &SlotPool) -> bool {
        self.gate.pool.is(pool)
    }

    pub(crate) fn signal(&self) {
        self.gate.open.store(true, SeqCst);
        self.gate.pass();
    }

    pub(crate) fn hold(&self, pages: Vec<u32>) {
        self.gate.hold(pages);
    }
}

impl Gate {
    fn hold(&self, pages: Vec<u32>) {
        self.waiting_pages.fetch_add(pages.len(), AcqRel);
        let link = Box::into_raw(Box::new(Waiting { pages, next: self.head.load(Relaxed) }));
        loop {
            // SAFETY: not published yet.
            let next = unsafe { (*link).next };
            match self.head.compare_exchange_weak(next, link, SeqCst, Relaxed) {
                Ok(_) => break,
                // SAFETY: not published yet.
                Err(now) => unsafe { (*link).next = now },
            }
        }
        if self.open.load(SeqCst) {
            self.pass();
        }
    }

    fn pass(&self) {
        let mut at = self.head.swap(null_mut(), SeqCst);
        while !at.is_null() {
            // SAFETY: links come from `Box::into_raw` in `hold`; the swap made the list ours alone.
            let link = unsafe { Box::from_raw(at) };
            for &page in &link.pages {
                self.owners[page as usize].store(NOBODY, Relaxed);
                self.pool.give(page as usize);
            }
            self.waiting_pages.fetch_sub(link.pages.len(), AcqRel);
            at = link.next;
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.pass();
    }
}

// SAFETY: links are reached through the atomic head only, and taken whole.
unsafe impl Send for Gate {}
// SAFETY: as above.
unsafe impl Sync for Gate {}
