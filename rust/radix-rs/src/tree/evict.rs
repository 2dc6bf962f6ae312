//! Giving values back, in the order of the policy.

use crate::sync::atomic::Ordering::*;

use super::{Core, RadixTree};
use crate::epoch::Guard;
use crate::event::Event;
use crate::evictable::{Candidate, Rank};
use crate::key::{Atom, Value};
use crate::node::{BodyData, DEAD, Node, Part, Usage, Word};
use crate::policy::Policy;
use crate::sync::broken;

/// Atoms freed in one call from which on their memory is given back at once.
const LARGE: usize = 1 << 14;

/// The atoms from a root down, and the bytes of the namespace.
pub(crate) type FullPath<A> = (Vec<A>, Option<Box<[u8]>>);

/// What came of one candidate.
enum Outcome {
    /// This many atoms were freed.
    Freed(usize),
    /// The entry was out of date.
    Stale,
}

impl<A: Atom, V: Value> Core<A, V> {
    /// Frees at least `want` atoms if it can, whole pages from the tail of each victim; with `whole` whole edges.
    pub(crate) fn evict(&self, want: usize, whole: bool, out: &mut Vec<V>) -> usize {
        let mut freed = 0;
        self.expire();
        while freed < want {
            let guard = self.guard();
            let Some(candidate) = self.index.pop_if(|_| true, &guard) else { break };
            if let Outcome::Freed(n) = self.evict_from(candidate, want - freed, whole, out, &guard) {
                freed += n;
            }
        }
        self.evicted.fetch_add(freed, Relaxed);
        if freed >= LARGE {
            self.collect_all();
        }
        freed
    }

    /// Frees what resets left over and nobody holds.
    pub(crate) fn drain_leftovers(&self, out: &mut Vec<V>) {
        loop {
            let guard = self.guard();
            let Some(candidate) = self.index.pop_if(|candidate| candidate.rank == Rank::LEFT_OVER, &guard) else {
                return;
            };
            self.evict_from(candidate, 0, true, out, &guard);
        }
    }

    /// Judges a candidate whose entry this thread owns.
    fn evict_from(
        &self,
        candidate: Candidate,
        want: usize,
        whole: bool,
        out: &mut Vec<V>,
        guard: &Guard<'_>,
    ) -> Outcome {
        let id = candidate.node;
        let node = self.nodes.get(id);
        loop {
            let word = self.load(id, guard);
            // in this order, see the seventh argument of the protocol
            if node.generation.load(Acquire) != candidate.generation || !word.live() {
                return Outcome::Stale;
            }
            let body = self.body(word, guard);
            debug_assert!(word.queued(), "an entry without its bit");
            if word.pins() > 0 || !body.is_leaf() || self.is_root(id) {
                let blind = broken("the bit is cleared on the word that was judged");
                if node.swap(if blind { node.load() } else { word }, word.with_queued(false)) {
                    return Outcome::Stale;
                }
                continue;
            }
            let own = node.usage();
            let parts = body.parts(own);
            // Only the last part was used as the rank says.
            let from = if whole || parts.len() < 2 { body.begin() } else { parts[parts.len() - 2].end };
            let from = if whole { from } else { self.first_to_go(id, word, from, candidate.rank, guard) };
            let most = (body.end - from) as usize;
            let take = if whole { most } else { want.min(most).next_multiple_of(self.page()) };
            let keep = body.len as usize - take;
            // of what is left over nobody is told, and its way up may be gone
            let told = self.has_events() && !self.is_left_over(id);
            let path = if told { self.path_of(id, body, guard) } else { None };
            if path.is_none() && told {
                continue; // an ancestor was joined to its own meanwhile
            }
            let seq = self.next_event();
            let expected = if broken("an eviction expects the word it judged") { node.load() } else { word };
            let done = if keep == 0 { node.swap(expected, DEAD) } else { self.trim(id, word, body, keep, parts, own) };
            if !done {
                continue;
            }
            out.extend_from_slice(&body.values()[keep..]);
            self.count_in(id, -(take as isize), 0);
            if let Some((tokens, space)) = path
                && !self.is_left_over(id)
                && take > 0
            {
                let start = tokens.len() - take;
                let values = &body.values()[keep..];
                self.emit(Event::Removed { seq, namespace: space.as_deref(), tokens: &tokens, start, values });
            }
            if self.policy.inflates() && candidate.rank != Rank::LEFT_OVER {
                let score = if whole { self.highest(node, body, own) } else { candidate.rank.score };
                self.inflation.fetch_max(score - 1, AcqRel);
            }
            self.retire_body(word.body(), None, guard);
            self.retire_branch(body.out, guard);
            if keep == 0 {
                self.unlink(id, body.end_usage(own).stamp, guard);
            } else {
                self.enqueue(id, true, guard); // the entry is ours, so this is its first push
            }
            return Outcome::Freed(take);
        }
    }

    /// Where the pages begin that go before anything else once the last one of a leaf goes. For a policy of one's own each is
    /// asked for; the scores of the others do not grow towards the root within pages that were used in the same way.
    fn first_to_go(&self, id: u32, word: Word, from: u32, rank: Rank, guard: &Guard<'_>) -> u32 {
        if !matches!(self.policy, Policy::Custom(_)) || rank == Rank::LEFT_OVER {
            return from;
        }
        let mut page = self.page_use(id, word, guard);
        let size = self.page() as u32;
        while page.depth > from {
            page.depth -= size;
            if self.policy.score(&page) > rank.score {
                break;
            }
        }
        page.depth
    }

    /// The highest score of all pages of an edge.
    fn highest(&self, node: &Node, body: &BodyData<A, V>, own: Usage) -> u64 {
        let mut highest = 1;
        let mut depth = body.begin();
        for part in body.parts(own) {
            while depth < part.end {
                depth += self.page() as u32;
                highest = highest.max(self.policy.score(&node.page_use(part.usage, depth)));
            }
        }
        highest
    }

    /// Shortens a leaf to its first `keep` atoms. The caller owns its entry.
    fn trim(&self, id: u32, word: Word, body: &BodyData<A, V>, keep: usize, mut parts: Vec<Part>, own: Usage) -> bool {
        let mut data = body.again();
        data.len = keep as u32;
        data.end = body.begin() + keep as u32;
        data.out = 0;
        let rest = parts.iter().position(|part| part.end >= data.end).expect("the last part ends the edge");
        parts.truncate(rest + 1);
        parts[rest].end = data.end;
        self.set_parts(&mut data, parts, own);
        let buffer = body.buffer.as_ref().expect("a leaf with atoms has a buffer");
        if data.len < buffer.cap() / 2 {
            let part = (&body.atoms()[..keep], &body.values()[..keep]);
            data.buffer = Some(crate::buffer::Buffer::new(keep, &[part], &self.meter));
            data.start = 0;
        }
        let new_body = self.new_body(data);
        if self.nodes.get(id).swap(word, word.with_body(new_body)) {
            return true;
        }
        self.bodies.free(new_body);
        false
    }

    /// Where the edge of a node ends; `None` if the way up changed meanwhile.
    pub(crate) fn path_of(&self, id: u32, body: &BodyData<A, V>, guard: &Guard<'_>) -> Option<FullPath<A>> {
        let mut edges = vec![body];
        let mut anchor = self.nodes.get(id).anchor.load(Relaxed);
        while anchor != 0 {
            let (parent, word) = self.locate(anchor, guard)?;
            edges.push(self.body(word, guard));
            anchor = self.nodes.get(parent).anchor.load(Relaxed);
        }
        let name = edges.iter().rev().find_map(|edge| edge.name()).map(Box::from);
        let atoms = edges.iter().rev().flat_map(|edge| edge.atoms().iter().copied()).collect();
        Some((atoms, name))
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// Frees at least `num_tokens` atoms, rounded up to pages, or all that no lease covers; appends their values to `out` and
    /// returns how many. Victims go in the order of the policy, from the tail of each.
    ///
    /// # Concurrency
    /// A value is handed to exactly one caller. The order is exact while nobody else works.
    pub fn evict(&self, num_tokens: usize, out: &mut Vec<V>) -> usize {
        self.core.evict(num_tokens, false, out)
    }

    /// As [`evict`](Self::evict), but takes whole edges, so it may free more than asked.
    pub fn evict_leaves(&self, num_tokens: usize, out: &mut Vec<V>) -> usize {
        self.core.evict(num_tokens, true, out)
    }
}
