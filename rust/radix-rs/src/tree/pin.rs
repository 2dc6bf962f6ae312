//! Prefixes that stay for a while although no request uses them.
//!
//! A pin holds its path as a lease does, and stands in an order of its own by the end of its time. Nobody waits for that
//! end: whoever needs room, sets a pin or asks looks at the clock and lets go what is due. Whoever takes a pin out of the
//! order lets its path go, so that happens once.

use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::lock::Path;
use super::{Core, RadixTree};
use crate::arena::{Arena, Item};
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::evictable::{Candidate, Evictable, Rank};
use crate::key::{Atom, Source, Value};
use crate::namespace::Namespace;

/// The time since some fixed moment; never goes back.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A prefix that is kept until its time is over, see [`RadixTree::pin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pin {
    tree: u32,
    slot: u32,
    serial: u64,
    deadline: Duration,
    length: usize,
}

impl Pin {
    /// Atoms it keeps, from the start.
    pub fn length(&self) -> usize {
        self.length
    }

    /// When its time is over, by the clock of the tree.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    fn candidate(&self) -> Candidate {
        let rank = Rank { score: micros(self.deadline), last_use: 0 };
        Candidate { rank, created: self.serial, node: self.slot, generation: 0 }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What a pin holds. Written before the pin is in the order, and again only after no guard can reach it.
struct Hold {
    path: UnsafeCell<Path>,
    link: AtomicU32,
}

// SAFETY: zeroed memory is never read as a path: `recycle` and readers come after `fill`, see `Pins::hold`.
unsafe impl Item for Hold {
    #[cfg(any(radix_loom, radix_shuttle))]
    fn vacant() -> Self {
        Hold { path: UnsafeCell::new(Path::new()), link: AtomicU32::new(0) }
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
    unsafe fn recycle(&self) -> usize {
        // SAFETY: by contract nobody looks; every slot that is recycled was filled.
        self.path.with_mut(|path| drop(unsafe { std::mem::take(&mut *path) }));
        0
    }
}

pub(crate) struct Pins {
    clock: Clock,
    order: Evictable,
    holds: Arena<Hold>,
    serial: AtomicU64,
}

// SAFETY: a path is written by the one thread that made the pin and read under a guard afterwards.
unsafe impl Send for Pins {}
// SAFETY: as above.
unsafe impl Sync for Pins {}

impl Pins {
    pub(crate) fn new(clock: Option<Clock>) -> Self {
        let start = Instant::now();
        Pins {
            clock: clock.unwrap_or_else(|| Arc::new(move || start.elapsed())),
            order: Evictable::new(),
            holds: Arena::new(),
            serial: AtomicU64::new(0),
        }
    }

    pub(crate) fn collect(&self, list: usize) {
        self.order.collect(list);
        self.holds.collect(list);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.order.waiting() + self.holds.waiting()
    }

    fn hold(&self, path: Path) -> u32 {
        let slot = self.holds.alloc();
        // The slot may be zeroed memory: nothing is dropped here.
        // SAFETY: just allocated, nobody else looks.
        self.holds.get(slot).path.with_mut(|cell| unsafe { cell.write(path) });
        slot
    }

    fn path(&self, slot: u32, _guard: &Guard<'_>) -> &Path {
        // SAFETY: the slot was in the order under this guard, so it was filled and is not recycled yet.
        self.holds.get(slot).path.with(|path| unsafe { &*path })
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let domain = crate::epoch::Domain::new();
        for candidate in self.order.snapshot(&domain.pin()) {
            // SAFETY: `&mut self`; what is in the order is filled.
            unsafe { self.holds.get(candidate.node).recycle() };
        }
        // What was retired and not recycled yet.
        for list in 0..3 {
            self.holds.collect(list);
        }
    }
}

impl<A: Atom, V: Value> Core<A, V> {
    /// Lets go what is due. Returns how many pins ended.
    pub(crate) fn expire(&self) -> usize {
        if self.pins.order.len() == 0 {
            return 0;
        }
        let now = micros((self.pins.clock)());
        self.end_pins(|candidate| candidate.rank.score <= now)
    }

    /// Ends pins from the first on while they are due.
    pub(crate) fn end_pins(&self, due: impl Fn(&Candidate) -> bool) -> usize {
        let mut ended = 0;
        loop {
            let guard = self.guard();
            let Some(candidate) = self.pins.order.pop_if(&due, &guard) else { return ended };
            self.let_go(candidate, &guard);
            ended += 1;
        }
    }

    /// Ends a pin that the caller took out of the order.
    fn let_go(&self, candidate: Candidate, guard: &Guard<'_>) {
        self.unpin(self.pins.path(candidate.node, guard), guard);
        self.pins.holds.retire(candidate.node, guard);
        if guard.retired(1) {
            self.collect(guard);
        }
    }

    /// Atoms that all pins keep together, each counted once.
    fn pinned(&self, guard: &Guard<'_>) -> usize {
        let (mut seen, mut sum) = (HashSet::new(), 0);
        for candidate in self.pins.order.snapshot(guard) {
            self.each_held(self.pins.path(candidate.node, guard), guard, |node, body| {
                if seen.insert(node) {
                    sum += body.len as usize;
                }
            });
        }
        sum
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// Keeps the longest cached prefix of `tokens` (whole pages) from eviction for `ttl`, as long as all pins together keep no
    /// more than `budget` atoms; what several keep counts once. A use of the prefix.
    ///
    /// No thread watches the time: what is due goes when somebody evicts, pins or asks. A reset ends all pins. Pinning again
    /// before the end prolongs: each pin has a time of its own.
    ///
    /// # Errors
    /// [`Error::PinBudget`], [`Error::PinOverflow`]; then nothing is pinned.
    ///
    /// # Concurrency
    /// The budget is never exceeded. Of several that come at once more may be refused than one after the other would be.
    ///
    /// # Examples
    /// ```
    /// # use radix_rs::{Error, Namespace, RadixTree, TreeConfig};
    /// # use std::time::Duration;
    /// let tree: RadixTree = RadixTree::new(TreeConfig::default())?;
    /// let ns = Namespace::default();
    /// tree.insert(&[1, 2, 3][..], &[11, 12, 13], &ns)?;
    /// let pin = tree.pin(&[1, 2][..], &ns, Duration::from_secs(60), 2)?;
    /// assert_eq!(pin.length(), 2);
    /// let mut freed = Vec::new();
    /// tree.evict(3, &mut freed);
    /// assert_eq!(freed, [13]);
    /// assert!(tree.unpin(&pin));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn pin<S: Source<A> + ?Sized>(&self, tokens: &S, ns: &Namespace, ttl: Duration, budget: usize) -> Result<Pin> {
        let core = &self.core;
        core.expire();
        let deadline = (core.pins.clock)().saturating_add(ttl);
        let mut lease = self.lock_prefix(tokens, ns)?;
        let length = lease.length;
        let guard = core.guard();
        let slot = core.pins.hold(std::mem::replace(&mut lease.path, SmallVec::new()));
        let pin = Pin { tree: core.serial, slot, serial: core.pins.serial.fetch_add(1, Relaxed), deadline, length };
        // Published first and counted afterwards: of two that together are too much at least one sees the other.
        core.pins.order.push(pin.candidate(), &guard);
        let pinned = core.pinned(&guard);
        if pinned > budget && core.pins.order.remove(pin.candidate(), &guard) {
            let before = core.pinned(&guard);
            core.let_go(pin.candidate(), &guard);
            return Err(Error::PinBudget { needed: pinned.saturating_sub(before), pinned: before, budget });
        }
        Ok(pin)
    }

    /// Ends a pin before its time; `false` if it has ended already.
    pub fn unpin(&self, pin: &Pin) -> bool {
        let core = &self.core;
        if pin.tree != core.serial {
            return false;
        }
        let guard = core.guard();
        let ours = core.pins.order.remove(pin.candidate(), &guard);
        if ours {
            core.let_go(pin.candidate(), &guard);
        }
        ours
    }

    /// Atoms that pins keep now, each counted once, after letting go what is due. O(nodes that are pinned).
    pub fn pinned_tokens(&self) -> usize {
        self.core.expire();
        self.core.pinned(&self.core.guard())
    }
}
