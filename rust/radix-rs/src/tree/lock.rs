//! Pinning a path and letting it go: the walk that leases and commits share.

use crate::sync::atomic::Ordering::*;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Below, Core, Found, Lease, RadixTree, Segment, Supply};
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::key::{Atom, Source, Value};
use crate::namespace::Namespace;
use crate::node::{BodyData, PIN_LIMIT};
use crate::sync::broken;

/// A pinned node and the depth at which it ended when it was pinned. Splits may have moved its lower part since: then
/// the rest up to `end` hangs below as its tails, which inherited the pin.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) node: u32,
    pub(crate) end: u32,
}

/// The time of a pin that is no use of the prefix: newer than nothing.
pub(crate) const NO_USE: u64 = 0;

/// The nodes of a lease from the top down.
pub(crate) type Path = SmallVec<[Held; 8]>;

impl<A: Atom, V: Value> Core<A, V> {
    /// Walks from the end of `path` (or from the top) along `key[..upto]`, pinning what is there, and with `supply` adding
    /// the rest, born pinned. Everything it pinned is in `path` afterwards, also after an error. Returns how far the path
    /// existed already; `seen` gets the views of that part.
    #[expect(clippy::too_many_arguments, reason = "the one walk behind lock, commit and insert with a lease")]
    pub(crate) fn climb<S: Source<A> + ?Sized>(
        &self,
        path: &mut Path,
        key: &S,
        upto: usize,
        supply: Option<(&[A], &Supply<'_, V>)>,
        now: u64,
        ns: &Namespace,
        mut seen: Option<&mut Vec<Segment<A, V>>>,
        guard: &Guard<'_>,
    ) -> Result<usize> {
        let (mut node, mut at) = match path.last() {
            Some(last) => (last.node, last.end as usize),
            None => match self.enter(path, ns, supply.is_some(), now, guard)? {
                Some(node) => (node, 0),
                None => return Ok(0),
            },
        };
        while at < upto {
            let word = self.load(node, guard);
            if word.dead() {
                // only a root that a reset replaced and that was drained meanwhile
                assert!(path.is_empty(), "a pinned node died");
                node = self.root();
                continue;
            }
            let body = self.body(word, guard);
            if (body.end as usize) < at {
                node = body.tail;
                continue;
            }
            debug_assert_eq!(body.end as usize, at, "a pinned node grew");
            match self.below(body, key, at, upto, guard) {
                Below::Again => {}
                Below::Nothing(dead) => {
                    let Some((key, supply)) = supply else {
                        if self.load(node, guard) == word {
                            return Ok(at);
                        }
                        continue;
                    };
                    self.check_supply(supply, at)?;
                    if self.grow(path, node, word, key, at, now, supply, ns, guard) {
                        return Ok(at);
                    }
                    if let Some(leaf) = self.attach(node, word, dead, key, at, 1, now, supply, ns, guard) {
                        self.count_in(leaf, 0, (upto - at) as isize);
                        path.push(Held { node: leaf, end: upto as u32 });
                        return Ok(at);
                    }
                }
                Below::Child(found) if found.common == self.body(found.word, guard).len as usize => {
                    if found.word.pins() == PIN_LIMIT {
                        return Err(Error::PinOverflow);
                    }
                    let child = self.nodes.get(found.node);
                    let old = if broken("a pin expects the word it read") { child.load() } else { found.word };
                    if child.swap(old, old.pinned()) {
                        child.mark(now, self.inflation(), 1);
                        at += found.common;
                        path.push(Held { node: found.node, end: at as u32 });
                        if found.word.pins() == 0 {
                            self.count_in(found.node, 0, found.common as isize);
                        }
                        if let Some(seen) = seen.as_deref_mut() {
                            seen.extend(Segment::of(self.body(found.word, guard), 0, found.common));
                        }
                        node = found.node;
                    }
                }
                Below::Child(found) => {
                    let stop = at + found.common;
                    let rest = if stop < upto { supply } else { None };
                    if let Some((_, supply)) = rest {
                        self.check_supply(supply, stop)?;
                    }
                    if let Some(leaf) = self.split(&found, true, rest, at, now, ns, guard)? {
                        path.push(Held { node: found.node, end: stop as u32 });
                        if let Some(seen) = seen.as_deref_mut() {
                            seen.extend(Segment::of(self.body(found.word, guard), 0, found.common));
                        }
                        if let Some(leaf) = leaf {
                            self.count_in(leaf, 0, (upto - stop) as isize);
                            path.push(Held { node: leaf, end: upto as u32 });
                        }
                        return Ok(stop);
                    }
                }
            }
        }
        Ok(at)
    }

    /// Pins the node of a namespace as the first of a path. The root needs no pin.
    fn enter(&self, path: &mut Path, ns: &Namespace, make: bool, now: u64, guard: &Guard<'_>) -> Result<Option<u32>> {
        loop {
            let found = if make { Some(self.make_space(ns, guard)) } else { self.find_space(ns, guard) };
            let Some(node) = found else { return Ok(None) };
            if ns.is_default() {
                return Ok(Some(node));
            }
            let word = self.load(node, guard);
            if word.pins() == PIN_LIMIT {
                return Err(Error::PinOverflow);
            }
            if word.live() && self.nodes.get(node).swap(word, word.pinned()) {
                self.nodes.get(node).stamp.fetch_max(now, SeqCst);
                path.push(Held { node, end: 0 });
                return Ok(Some(node));
            }
        }
    }

    /// Calls `visit` for every node a path holds, from the top, with the tails of nodes that were split since. Of a path that
    /// somebody lets go meanwhile, for what is left of it: its nodes may be dead, or shorter than they were, without a tail.
    pub(crate) fn each_held(&self, path: &[Held], guard: &Guard<'_>, mut visit: impl FnMut(u32, &BodyData<A, V>)) {
        for held in path {
            let mut node = held.node;
            loop {
                let word = self.load(node, guard);
                if word.dead() {
                    break;
                }
                let body = self.body(word, guard);
                visit(node, body);
                if body.end >= held.end || body.tail == 0 {
                    break;
                }
                node = body.tail;
            }
        }
    }

    /// The views of what a path covers.
    pub(crate) fn held_segments(&self, path: &[Held], guard: &Guard<'_>) -> SmallVec<[Segment<A, V>; 2]> {
        let mut segments = SmallVec::new();
        self.each_held(path, guard, |_, body| segments.extend(Segment::of(body, 0, body.len as usize)));
        segments
    }

    /// Marks everything a path holds as used now, `hits` times more.
    pub(crate) fn stamp_held(&self, path: &[Held], now: u64, hits: u32, guard: &Guard<'_>) {
        let base = self.inflation();
        self.each_held(path, guard, |node, _| self.nodes.get(node).mark(now, base, hits));
    }

    /// Pins once more what a path holds, as a path of its own.
    pub(crate) fn pin_again(&self, path: &[Held], guard: &Guard<'_>) -> Result<Path> {
        let mut copy = Path::new();
        for held in path {
            let mut node = held.node;
            loop {
                let word = self.load(node, guard);
                if word.pins() == PIN_LIMIT {
                    self.unpin(&copy, guard);
                    return Err(Error::PinOverflow);
                }
                if !self.nodes.get(node).swap(word, word.pinned()) {
                    continue;
                }
                let body = self.body(word, guard);
                copy.push(Held { node, end: body.end });
                if body.end >= held.end {
                    break;
                }
                node = body.tail;
            }
        }
        Ok(copy)
    }

    /// Pins what a held node and its tails cover up to depth `upto`, cutting there. No use of the prefix.
    pub(crate) fn pin_upper(
        &self,
        path: &mut Path,
        held: Held,
        upto: usize,
        ns: &Namespace,
        guard: &Guard<'_>,
    ) -> Result<()> {
        let mut id = held.node;
        loop {
            let word = self.load(id, guard);
            let body = self.body(word, guard);
            let (begin, end) = (body.begin() as usize, body.end as usize);
            if end > upto {
                let found = Found { node: id, word, common: upto - begin };
                if self.split(&found, true, None, begin, NO_USE, ns, guard)?.is_some() {
                    path.push(Held { node: id, end: upto as u32 });
                    return Ok(());
                }
                continue;
            }
            if word.pins() == PIN_LIMIT {
                return Err(Error::PinOverflow);
            }
            if self.nodes.get(id).swap(word, word.pinned()) {
                path.push(Held { node: id, end: body.end });
                if end == upto {
                    return Ok(());
                }
                id = body.tail;
            }
        }
    }

    /// Lets a path go, deepest node first, and makes whole again what was only split for it.
    pub(crate) fn unpin(&self, path: &[Held], guard: &Guard<'_>) {
        // from the bottom up, each with whether it is a tail
        let mut released: SmallVec<[(u32, bool); 8]> = SmallVec::new();
        for held in path.iter().rev() {
            let first = released.len();
            let mut id = held.node;
            loop {
                let node = self.nodes.get(id);
                let word = self.load(id, guard);
                assert!(word.pins() > 0 && word.live(), "a lease held a node that nobody pins");
                let body = self.body(word, guard);
                let last = word.pins() == 1;
                let candidate = last && body.is_leaf();
                if last {
                    self.count_in(id, 0, -(body.len as isize));
                }
                let new = crate::node::Word::new(word.body(), word.pins() - 1, word.queued() || candidate);
                if !node.swap(word, new) {
                    if last {
                        self.count_in(id, 0, body.len as isize);
                    }
                    continue;
                }
                if candidate {
                    self.enqueue(id, !word.queued(), guard);
                }
                released.push((id, released.len() > first));
                if body.end >= held.end || broken("a release goes on to the tails") {
                    break;
                }
                id = body.tail;
            }
            released[first..].reverse();
        }
        // From the top down, so that the first join makes room for all that follow.
        for &(id, is_tail) in released.iter().rev() {
            if is_tail && !broken("a release tries the fragments above") {
                let anchor = self.nodes.get(id).anchor.load(Relaxed);
                if let Some((parent, _)) = self.locate(anchor, guard) {
                    self.try_merge(parent, guard);
                }
            }
            self.try_merge(id, guard);
        }
    }
}

impl<A: Atom, V: Value> Core<A, V> {
    /// The atoms of the first `length` positions of a path.
    pub(crate) fn held_atoms(&self, path: &[Held], length: usize, guard: &Guard<'_>) -> Vec<A> {
        let mut atoms = Vec::with_capacity(length);
        self.each_held(path, guard, |_, body| {
            let rest = length - atoms.len();
            atoms.extend_from_slice(&body.atoms()[..rest.min(body.len as usize)]);
        });
        atoms
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// Pins the longest cached prefix of `tokens` in whole pages, and marks it (and nothing else) as used now.
    ///
    /// A lock that ends inside an edge splits the edge there; the release makes it whole again.
    ///
    /// # Errors
    /// [`Error::PinOverflow`] if a node on the path has 2^28 - 1 users already.
    ///
    /// # Examples
    /// ```
    /// # use radix_rs::{Namespace, RadixTree, TreeConfig};
    /// let tree: RadixTree = RadixTree::new(TreeConfig::default())?;
    /// let ns = Namespace::default();
    /// tree.insert(&[1, 2, 3][..], &[10, 11, 12], &ns)?;
    /// let lease = tree.lock_prefix(&[1, 2][..], &ns)?;
    /// let mut freed = Vec::new();
    /// tree.evict(3, &mut freed);
    /// assert_eq!(freed, [12]);
    /// lease.release();
    /// assert_eq!(tree.evictable_tokens(), 2);
    /// # Ok::<(), radix_rs::Error>(())
    /// ```
    pub fn lock_prefix<S: Source<A> + ?Sized>(&self, tokens: &S, ns: &Namespace) -> Result<Lease<A, V>> {
        self.core.lock_upto(tokens, self.core.floor(tokens.len()), ns)
    }
}

impl<A: Atom, V: Value> Core<A, V> {
    /// As `lock_prefix`, for at most `upto` atoms (whole pages).
    pub(crate) fn lock_upto<S: Source<A> + ?Sized>(
        self: &Arc<Self>,
        tokens: &S,
        upto: usize,
        ns: &Namespace,
    ) -> Result<Lease<A, V>> {
        let guard = self.guard();
        let now = self.tick();
        let mut lease = Lease { core: self.clone(), path: Path::new(), length: 0, ns: ns.clone(), born: now };
        lease.length = self.climb(&mut lease.path, tokens, upto, None, now, ns, None, &guard)?;
        Ok(lease)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Namespace, RadixTree, TreeConfig};

    /// Whoever adds up what pins keep looks at the path of a pin that another thread is ending.
    #[test]
    fn a_path_that_was_let_go_is_visited_as_far_as_it_is_there() {
        for evicted in [1, 3, 4] {
            let tree: RadixTree = RadixTree::new(TreeConfig::default()).unwrap();
            let ns = Namespace::default();
            tree.insert(&[1, 2, 3, 4][..], &[1, 2, 3, 4], &ns).unwrap();
            let guard = tree.core.guard();
            let lease = tree.lock_prefix(&[1, 2, 3, 4][..], &ns).unwrap();
            let path = lease.path.clone();
            drop(lease);
            tree.evict(evicted, &mut Vec::new());
            let mut atoms = 0;
            tree.core.each_held(&path, &guard, |_, body| atoms += body.len as usize);
            assert_eq!(atoms, 4 - evicted);
        }
    }
}
