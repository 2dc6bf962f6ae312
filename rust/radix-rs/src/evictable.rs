//! The order in which leaves go: one entry for each queued node, sorted by rank.
//!
//! Whoever removes an entry owns it, and with it the right to push the node again or to evict it. An entry carries the
//! generation of its node: one that was pushed while its node was being merged away is taken back by its pusher, and who
//! takes it out in between sees that it is of an earlier life.

use crossbeam_skiplist::SkipSet;

/// Rank first (from the policy), then age, then the node. No address and no hash decides anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Candidate {
    pub(crate) rank: u64,
    pub(crate) created: u64,
    pub(crate) node: u32,
    pub(crate) generation: u32,
}

#[derive(Default)]
pub(crate) struct Evictable(SkipSet<Candidate>);

impl Evictable {
    pub(crate) fn push(&self, candidate: Candidate) {
        self.0.insert(candidate);
    }

    /// Whether the entry was there; then the caller owns it now.
    pub(crate) fn remove(&self, candidate: Candidate) -> bool {
        self.0.remove(&candidate).is_some()
    }

    pub(crate) fn pop(&self) -> Option<Candidate> {
        self.0.pop_front().map(|entry| *entry.value())
    }

    pub(crate) fn first(&self) -> Option<Candidate> {
        self.0.front().map(|entry| *entry.value())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn snapshot(&self) -> Vec<Candidate> {
        self.0.iter().map(|entry| *entry.value()).collect()
    }
}
