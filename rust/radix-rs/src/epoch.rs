//! When memory that a reader may still look at is handed out again.
//!
//! One domain per tree. An operation holds a [`Guard`] for as long as it runs; what is retired while a guard is
//! held is recycled only after that guard is gone. Readers never free anything, writers collect.
//!
//! # The argument
//! 1. A record shows the epoch its guard was taken in. The global epoch goes from `g` to `g + 1` only when every
//!    record in use shows `g`. So while a guard that shows `p` is held the epoch is at most `p + 1`, or it stood
//!    beyond `p` already when the guard became visible and then does not move at all.
//! 2. An object retired in epoch `r` goes into list `r % 3` and leaves it when the epoch becomes `r + 2`. A guard
//!    that could have read a pointer to it was held when it was unlinked, hence shows at most `r`; if that guard is
//!    still held the epoch has not passed `r + 1`. If the guard is newer, the object was unlinked before and is not
//!    reachable from it.
//! 3. A collector that moved the epoch from `g` to `g + 1` empties list `(g + 2) % 3` while it still holds a guard
//!    that shows `g`, so the epoch stays at `g + 1` and others retire only into `g % 3` and `(g + 1) % 3`.
//!
//! Epoch loads and the claim of a record are sequentially consistent read-modify-writes or loads: either the
//! claim comes first and the collector sees it, or the collector's move comes first and the claimer's re-read of
//! the epoch sees that.

use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use crate::sync::{Line, Tally, broken};
use std::ptr::null_mut;

const RECORDS: usize = if cfg!(radix_loom) { 4 } else { 64 };

/// Weight of retired objects after which somebody tries to collect.
const COLLECT_EVERY: usize = if cfg!(radix_shuttle) { 2 } else { 32 };

/// One cache line per record, so that readers on two cores do not share one.
#[repr(align(128))]
struct Record(AtomicU64);

struct Block {
    records: [Record; RECORDS],
    next: AtomicPtr<Block>,
}

impl Block {
    fn new() -> Self {
        Block { records: std::array::from_fn(|_| Record(AtomicU64::new(0))), next: AtomicPtr::new(null_mut()) }
    }
}

/// The epochs of one tree.
pub(crate) struct Domain {
    epoch: Line<AtomicU64>,
    first: Block,
    retired: Line<Tally>,
}

/// Keeps everything that was reachable when it was taken from being recycled.
pub(crate) struct Guard<'a> {
    domain: &'a Domain,
    record: &'a Record,
}

/// Where a thread begins to look for a record.
#[cfg(not(any(radix_loom, radix_shuttle)))]
fn thread_number() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;

    static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static THREAD: Cell<usize> = Cell::new(NEXT_THREAD.fetch_add(1, Relaxed));
    }
    // a thread whose locals are gone already (its exit hooks run) takes any record
    THREAD.try_with(Cell::get).unwrap_or(0)
}
#[cfg(any(radix_loom, radix_shuttle))]
use crate::sync::checked::thread_number;

impl Domain {
    pub(crate) fn new() -> Self {
        Domain { epoch: Line(AtomicU64::new(3)), first: Block::new(), retired: Line(Tally::new(0)) }
    }

    /// Takes a guard: one compare-and-swap on a record that is normally this thread's alone.
    pub(crate) fn pin(&self) -> Guard<'_> {
        let hint = thread_number();
        let mut block = &self.first;
        loop {
            for i in 0..RECORDS {
                let record = &block.records[(hint + i) % RECORDS];
                let mut epoch = self.epoch.load(SeqCst);
                if record.0.compare_exchange(0, epoch << 1 | 1, SeqCst, Relaxed).is_ok() {
                    // at most once more: from here on the epoch can move by one step only
                    let now = self.epoch.load(SeqCst);
                    if now != epoch {
                        epoch = now;
                        record.0.swap(epoch << 1 | 1, SeqCst);
                    }
                    return Guard { domain: self, record };
                }
            }
            let mut next = block.next.load(Acquire);
            if next.is_null() {
                let fresh = Box::into_raw(Box::new(Block::new()));
                match block.next.compare_exchange(null_mut(), fresh, AcqRel, Acquire) {
                    Ok(_) => next = fresh,
                    Err(other) => {
                        // SAFETY: `fresh` was never published, this thread still owns it.
                        drop(unsafe { Box::from_raw(fresh) });
                        next = other;
                    }
                }
            }
            // SAFETY: blocks are only freed when the domain is dropped.
            block = unsafe { &*next };
        }
    }

    fn all_at(&self, epoch: u64) -> bool {
        let mut block = &self.first;
        loop {
            for record in &block.records {
                let state = record.0.load(SeqCst);
                if state & 1 == 1 && state >> 1 != epoch && !broken("every guard holds the epoch back") {
                    return false;
                }
            }
            let next = block.next.load(Acquire);
            if next.is_null() {
                return true;
            }
            // SAFETY: blocks are only freed when the domain is dropped.
            block = unsafe { &*next };
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let mut next = self.first.next.load(Relaxed);
        while !next.is_null() {
            // SAFETY: `&mut self`: no guard is held, the list is ours alone.
            let block = unsafe { Box::from_raw(next) };
            next = block.next.load(Relaxed);
        }
    }
}

impl Guard<'_> {
    /// The list (0, 1 or 2) that an object unlinked under this guard is retired into.
    pub(crate) fn list(&self) -> usize {
        (self.domain.epoch.load(SeqCst) % 3) as usize
    }

    /// Counts a retired object of some weight; now and then tells the caller to try to collect.
    pub(crate) fn retired(&self, weight: usize) -> bool {
        let before = self.domain.retired.fetch_add(weight, Relaxed);
        before / COLLECT_EVERY != (before + weight) / COLLECT_EVERY
    }

    /// Moves the epoch on if every guard allows it; returns the list that may be recycled now.
    pub(crate) fn advance(&self) -> Option<usize> {
        let epoch = self.domain.epoch.load(SeqCst);
        if self.record.0.load(SeqCst) >> 1 != epoch || !self.domain.all_at(epoch) {
            return None;
        }
        self.domain.epoch.compare_exchange(epoch, epoch + 1, SeqCst, SeqCst).ok()?;
        Some(((epoch + if broken("what is retired waits for two epochs") { 0 } else { 2 }) % 3) as usize)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.record.0.store(0, Release);
    }
}
