//! The order in which leaves go: one entry for each queued node, sorted by rank. A lock-free skip list in an arena.
//!
//! Whoever takes an entry out owns it, and with it the right to push the node again or to evict it. An entry carries the
//! generation of its node: one that was pushed while its node was being merged away is taken back by its pusher, and who
//! takes it out in between sees that it is of an earlier life.
//!
//! # Why it holds
//! 1. **One taker.** An entry is out when the mark of its lowest link is set, and exactly one thread sets it. The links
//!    above are marked before, from the top, so nobody links anything behind an entry that is out.
//! 2. **Linked once a level.** Only its pusher links an entry, from the bottom up, each level by one swap of the link
//!    before it. A marked link before it makes that swap fail, as does anything that was linked or unlinked there since the
//!    search; then it searches again. Its own link it sets by a swap too, so that a mark is never lost.
//! 3. **Retired when unlinked.** Pusher and taker each hold an entry. The last of them to let go knows that it is
//!    marked and that nobody links it any more; a walk over its key takes it out at every level, and only then the epochs
//!    get it. A walk goes past everything that is not greater, so an equal key does not hide it.
//! 4. **Links are not mistaken.** Whoever compares a link holds a guard, and within it no entry begins a second life.

use crate::sync::Tally;
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use crate::arena::{Arena, Item};
use crate::epoch::Guard;
use crate::sync::broken;

/// What the policy says of a node, then its last use. Smaller goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    pub(crate) score: u64,
    pub(crate) last_use: u64,
}

impl Rank {
    /// Of nodes that a reset left over; no policy gives it.
    pub(crate) const LEFT_OVER: Rank = Rank { score: 0, last_use: 0 };
}

/// Rank first, then age, then the node. No address and no hash decides anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Candidate {
    pub(crate) rank: Rank,
    pub(crate) created: u64,
    pub(crate) node: u32,
    pub(crate) generation: u32,
}

/// Levels of the list: each holds a quarter of the entries of the one below.
const LEVELS: usize = if cfg!(any(radix_loom, radix_shuttle)) { 3 } else { 14 };
/// Levels of a short entry: fifteen of sixteen need no more.
const SHORT: usize = 2;

/// A link: `{ id in its arena 30 | tall 1 | mark 1 }`. 0 is the end, and as a predecessor the list itself.
const MARK: u32 = 1;
const TALL: u32 = 2;

struct Entry<const N: usize> {
    head: Head,
    next: [AtomicU32; N],
}

struct Head {
    score: AtomicU64,
    last_use: AtomicU64,
    created: AtomicU64,
    node: AtomicU32,
    generation: AtomicU32,
    height: AtomicU32,
    /// Pusher and taker; the last to let go unlinks.
    holders: AtomicU32,
    link: AtomicU32,
}

// SAFETY: only atomics: all zero is valid and owns nothing.
unsafe impl<const N: usize> Item for Entry<N> {
    fn link(&self) -> &AtomicU32 {
        &self.head.link
    }
    unsafe fn recycle(&self) -> usize {
        0
    }
    #[cfg(any(radix_loom, radix_shuttle))]
    fn vacant() -> Self {
        let head = Head {
            score: AtomicU64::new(0),
            last_use: AtomicU64::new(0),
            created: AtomicU64::new(0),
            node: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            height: AtomicU32::new(0),
            holders: AtomicU32::new(0),
            link: AtomicU32::new(0),
        };
        Entry { head, next: std::array::from_fn(|_| AtomicU32::new(0)) }
    }
}

impl Head {
    fn candidate(&self) -> Candidate {
        Candidate {
            rank: Rank { score: self.score.load(Relaxed), last_use: self.last_use.load(Relaxed) },
            created: self.created.load(Relaxed),
            node: self.node.load(Relaxed),
            generation: self.generation.load(Relaxed),
        }
    }
}

/// Where a key belongs: on each level the last entry before it and the first one not before it.
struct Window {
    before: [u32; LEVELS],
    after: [u32; LEVELS],
}

pub(crate) struct Evictable {
    first: [AtomicU32; LEVELS],
    /// Levels in use so far.
    levels: AtomicUsize,
    len: Tally,
    short: Arena<Entry<SHORT>>,
    tall: Arena<Entry<LEVELS>>,
}

impl Evictable {
    pub(crate) fn new() -> Self {
        Evictable {
            first: std::array::from_fn(|_| AtomicU32::new(0)),
            levels: AtomicUsize::new(1),
            len: Tally::new(0),
            short: Arena::new(),
            tall: Arena::new(),
        }
    }

    #[inline]
    fn entry(&self, link: u32) -> (&Head, &[AtomicU32]) {
        if link & TALL == 0 {
            let entry = self.short.get(link >> 2);
            (&entry.head, &entry.next)
        } else {
            let entry = self.tall.get(link >> 2);
            (&entry.head, &entry.next)
        }
    }

    #[inline]
    fn next(&self, link: u32, level: usize) -> &AtomicU32 {
        if link == 0 { &self.first[level] } else { &self.entry(link).1[level] }
    }

    /// Walks to where `key` belongs (with `past`: behind everything equal to it), unlinking on the way what is marked.
    fn search(&self, key: &Candidate, past: bool, _guard: &Guard<'_>) -> Window {
        'again: loop {
            let mut window = Window { before: [0; LEVELS], after: [0; LEVELS] };
            let mut before = 0;
            for level in (0..self.levels.load(Acquire)).rev() {
                let mut cell = self.next(before, level);
                let mut after = cell.load(SeqCst);
                loop {
                    if after & MARK != 0 {
                        continue 'again; // what we stand on was taken out
                    }
                    if after == 0 {
                        break;
                    }
                    let (head, links) = self.entry(after);
                    let next = links[level].load(SeqCst);
                    if next & MARK != 0 {
                        if cell.compare_exchange(after, next & !MARK, SeqCst, Relaxed).is_err() {
                            continue 'again;
                        }
                        after = next & !MARK;
                        continue;
                    }
                    let here = head.candidate();
                    if here > *key || (here == *key && !past) {
                        break;
                    }
                    (before, cell, after) = (after, &links[level], next);
                }
                window.before[level] = before;
                window.after[level] = after;
            }
            return window;
        }
    }

    /// The height of an entry, from its content, so that no thread shares a generator with another.
    fn height(candidate: &Candidate) -> usize {
        let mut x = candidate.rank.score
            ^ candidate.rank.last_use << 7
            ^ u64::from(candidate.node) << 32
            ^ u64::from(candidate.generation) << 20;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        (1 + x.trailing_zeros() as usize / 2).min(LEVELS)
    }

    /// Puts an entry in. No equal one is in: a node has one entry, and the caller owns it.
    pub(crate) fn push(&self, candidate: Candidate, guard: &Guard<'_>) {
        let height = Self::height(&candidate);
        let link = if height <= SHORT { self.short.alloc() << 2 } else { self.tall.alloc() << 2 | TALL };
        assert!(link >> 2 != 0 && link >> 2 < 1 << 29, "more than half a billion entries");
        let (head, links) = self.entry(link);
        head.score.store(candidate.rank.score, Relaxed);
        head.last_use.store(candidate.rank.last_use, Relaxed);
        head.created.store(candidate.created, Relaxed);
        head.node.store(candidate.node, Relaxed);
        head.generation.store(candidate.generation, Relaxed);
        head.height.store(height as u32, Relaxed);
        head.holders.store(2, Relaxed);
        for cell in links {
            cell.store(0, Relaxed);
        }
        self.levels.fetch_max(height, AcqRel);
        self.len.fetch_add(1, Relaxed);
        let mut window = loop {
            let window = self.search(&candidate, false, guard);
            links[0].store(window.after[0], Relaxed);
            let cell = self.next(window.before[0], 0);
            if cell.compare_exchange(window.after[0], link, SeqCst, Relaxed).is_ok() {
                break window;
            }
        };
        'build: for (level, own) in links.iter().enumerate().take(height).skip(1) {
            loop {
                let old = own.load(SeqCst);
                let after = window.after[level];
                if old & MARK != 0 || own.compare_exchange(old, after, SeqCst, Relaxed).is_err() {
                    break 'build; // taken out already
                }
                if self.next(window.before[level], level).compare_exchange(after, link, SeqCst, Relaxed).is_ok() {
                    break;
                }
                window = self.search(&candidate, false, guard);
            }
        }
        self.let_go(link, guard);
    }

    fn let_go(&self, link: u32, guard: &Guard<'_>) {
        let (head, _) = self.entry(link);
        if head.holders.fetch_sub(1, AcqRel) == if broken("the last holder unlinks") { 2 } else { 1 } {
            self.search(&head.candidate(), true, guard);
            if link & TALL == 0 { self.short.retire(link >> 2, guard) } else { self.tall.retire(link >> 2, guard) }
        }
    }

    /// Takes an entry out; `false` if somebody else has.
    fn take(&self, link: u32, guard: &Guard<'_>) -> bool {
        let (head, links) = self.entry(link);
        for cell in links[..head.height.load(Relaxed) as usize].iter().skip(1).rev() {
            cell.fetch_or(MARK, SeqCst);
        }
        if links[0].fetch_or(MARK, SeqCst) & MARK != 0 && !broken("one taker") {
            return false;
        }
        self.len.fetch_sub(1, Relaxed);
        self.let_go(link, guard);
        true
    }

    /// Whether the entry was there; then the caller owns it now.
    pub(crate) fn remove(&self, candidate: Candidate, guard: &Guard<'_>) -> bool {
        let found = self.search(&candidate, false, guard).after[0];
        found != 0 && self.entry(found).0.candidate() == candidate && self.take(found, guard)
    }

    /// Takes the first entry out if it is wanted; the caller owns it now.
    pub(crate) fn pop_if(&self, wanted: impl Fn(&Candidate) -> bool, guard: &Guard<'_>) -> Option<Candidate> {
        loop {
            let (link, candidate) = self.foremost()?;
            if !wanted(&candidate) {
                return None;
            }
            if self.take(link, guard) {
                return Some(candidate);
            }
        }
    }

    fn foremost(&self) -> Option<(u32, Candidate)> {
        loop {
            let link = self.first[0].load(SeqCst);
            if link == 0 {
                return None;
            }
            let (head, links) = self.entry(link);
            let next = links[0].load(SeqCst);
            if next & MARK == 0 {
                return Some((link, head.candidate()));
            }
            let _ = self.first[0].compare_exchange(link, next & !MARK, SeqCst, Relaxed);
        }
    }

    /// Entries that are in.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// All entries in their order. Exact at rest.
    pub(crate) fn snapshot(&self, _guard: &Guard<'_>) -> Vec<Candidate> {
        let mut all = Vec::new();
        let mut link = self.first[0].load(SeqCst);
        while link & !MARK != 0 {
            let (head, links) = self.entry(link);
            link = links[0].load(SeqCst);
            if link & MARK == 0 {
                all.push(head.candidate());
            }
            link &= !MARK;
        }
        all
    }

    pub(crate) fn collect(&self, list: usize) {
        self.short.collect(list);
        self.tall.collect(list);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.short.waiting() + self.tall.waiting()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.short.size_bytes() + self.tall.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::atomic::AtomicI32;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::epoch::Domain;

    fn collect(index: &Evictable, domain: &Domain) {
        if let Some(list) = domain.pin().advance() {
            index.collect(list);
        }
    }

    proptest! {
        #[test]
        fn alone_it_is_an_ordered_set(steps in proptest::collection::vec((0..4u8, 0..8u64, 0..8u32), 0..400)) {
            let (index, domain) = (Evictable::new(), Domain::new());
            let mut reference = BTreeSet::new();
            for (what, rank, node) in steps {
                let guard = domain.pin();
                let candidate = Candidate { rank: Rank { score: rank / 3, last_use: rank % 3 }, created: 7, node, generation: 1 };
                match what {
                    0 | 1 => if reference.insert(candidate) {
                        index.push(candidate, &guard);
                    },
                    2 => prop_assert_eq!(index.remove(candidate, &guard), reference.remove(&candidate)),
                    _ => prop_assert_eq!(index.pop_if(|_| true, &guard), reference.pop_first()),
                }
                prop_assert_eq!(index.snapshot(&guard), reference.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(index.len(), reference.len());
                drop(guard);
                collect(&index, &domain);
            }
            for _ in 0..3 {
                collect(&index, &domain);
            }
            prop_assert_eq!(index.waiting(), 0);
        }
    }

    /// The list of `crossbeam-skiplist` 0.1.3 fails this in one run of seven: it gives an entry to two takers.
    #[test]
    fn what_is_pushed_once_is_taken_once() {
        const NODES: usize = 64;
        for round in 0..200u64 {
            let (index, domain) = (Evictable::new(), Domain::new());
            let balance = [const { AtomicI32::new(0) }; NODES];
            let ranks = AtomicU64::new(1);
            let take = |candidate: Candidate| {
                let before = balance[candidate.node as usize].fetch_sub(1, SeqCst);
                assert!(before > 0, "{candidate:?} was taken twice");
            };
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (index, domain, balance, ranks) = (&index, &domain, &balance, &ranks);
                    scope.spawn(move || {
                        let mut state = round * 977 + thread * 7919 + 1;
                        let mut next = |n: usize| {
                            state ^= state << 13;
                            state ^= state >> 7;
                            state ^= state << 17;
                            state as usize % n
                        };
                        let mut own = Vec::new();
                        for _ in 0..500 {
                            let guard = domain.pin();
                            match next(4) {
                                0 | 1 => {
                                    let rank = Rank { score: ranks.fetch_add(1, SeqCst), last_use: 0 };
                                    let node = next(NODES) as u32;
                                    balance[node as usize].fetch_add(1, SeqCst);
                                    let candidate = Candidate { rank, created: 0, node, generation: 1 };
                                    index.push(candidate, &guard);
                                    own.push(candidate);
                                }
                                2 => index.pop_if(|_| true, &guard).into_iter().for_each(take),
                                _ if !own.is_empty() => {
                                    let candidate = own.swap_remove(next(own.len()));
                                    if index.remove(candidate, &guard) {
                                        take(candidate);
                                    }
                                }
                                _ => {}
                            }
                            drop(guard);
                            collect(index, domain);
                        }
                    });
                }
            });
            let guard = domain.pin();
            let left = index.snapshot(&guard);
            assert!(left.is_sorted());
            assert_eq!(index.len(), left.len());
            while let Some(candidate) = index.pop_if(|_| true, &guard) {
                take(candidate);
            }
            assert!(balance.iter().all(|count| count.load(SeqCst) == 0), "an entry was lost");
        }
    }

    /// Four threads push equal keys again and again, as the owners of one node do one after the other.
    #[test]
    fn an_equal_key_may_follow_at_once() {
        for _ in 0..100 {
            let (index, domain) = (Evictable::new(), Domain::new());
            let keys: Vec<_> = (0..3)
                .map(|node| Candidate { rank: Rank { score: 5, last_use: 0 }, created: 0, node, generation: 1 })
                .collect();
            keys.iter().for_each(|&key| index.push(key, &domain.pin()));
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (index, domain, keys) = (&index, &domain, &keys);
                    scope.spawn(move || {
                        for step in 0..500 {
                            let guard = domain.pin();
                            let owned = match (thread + step) % 2 {
                                0 => Some(keys[step % 3]).filter(|&key| index.remove(key, &guard)),
                                _ => index.pop_if(|_| true, &guard),
                            };
                            if let Some(key) = owned {
                                index.push(key, &guard);
                            }
                            drop(guard);
                            collect(index, domain);
                        }
                    });
                }
            });
            assert_eq!(index.snapshot(&domain.pin()), keys);
        }
    }
}
