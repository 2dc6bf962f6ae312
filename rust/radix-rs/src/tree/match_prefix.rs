//! Looking a prefix up: pure loads under one guard.

use smallvec::SmallVec;

use super::{Core, Handle, RadixTree};
use crate::buffer::Buffer;
use crate::epoch::Guard;
use crate::key::{Atom, Source, Value};
use crate::namespace::Namespace;
use crate::node::BodyData;

/// A part of a path inside one edge: a view of memory in the tree, which it keeps alive even after the part is evicted or
/// the tree is gone.
pub struct Segment<A = u32, V = i32> {
    buffer: Buffer<A, V>,
    start: u32,
    len: u32,
}

impl<A, V> Clone for Segment<A, V> {
    fn clone(&self) -> Self {
        Segment { buffer: self.buffer.clone(), start: self.start, len: self.len }
    }
}

impl<A: Atom, V: Value> Segment<A, V> {
    pub(crate) fn of(body: &BodyData<A, V>, from: usize, upto: usize) -> Option<Self> {
        let buffer = body.buffer.clone()?;
        (upto > from).then(|| Segment { buffer, start: body.start + from as u32, len: (upto - from) as u32 })
    }

    /// The values, in place.
    pub fn as_slice(&self) -> &[V] {
        self.buffer.values(self.start, self.len)
    }

    /// The atoms, in place.
    pub fn atoms(&self) -> &[A] {
        self.buffer.atoms(self.start, self.len)
    }
}

impl<A: Atom, V: Value> std::fmt::Debug for Segment<A, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Where a lookup ended. Its values are a hint: only a [`Lease`](crate::Lease) keeps slots from being reused.
pub struct Match<A = u32, V = i32> {
    pub(crate) length: usize,
    pub(crate) segments: SmallVec<[Segment<A, V>; 2]>,
    pub(crate) handle: Handle,
}

impl<A: Atom, V: Value> std::fmt::Debug for Match<A, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Match").field("length", &self.length).field("segments", &self.segments).finish()
    }
}

impl<A: Atom, V: Value> Match<A, V> {
    /// Atoms found, in whole pages.
    pub fn length(&self) -> usize {
        self.length
    }

    /// One view for each edge on the path.
    pub fn segments(&self) -> &[Segment<A, V>] {
        &self.segments
    }

    /// The end of the match, weakly.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Copies the values from position `start` on into `out`, as many as fit; returns how many.
    pub fn write_values(&self, out: &mut [V], start: usize) -> usize {
        write_segments(&self.segments, out, start)
    }
}

pub(crate) fn write_segments<A: Atom, V: Value>(segments: &[Segment<A, V>], out: &mut [V], start: usize) -> usize {
    let (mut skip, mut done) = (start, 0);
    for segment in segments {
        let values = segment.as_slice();
        let part = &values[skip.min(values.len())..];
        skip = skip.saturating_sub(values.len());
        let n = part.len().min(out.len() - done);
        out[done..done + n].copy_from_slice(&part[..n]);
        done += n;
    }
    done
}

impl<A: Atom, V: Value> Core<A, V> {
    pub(crate) fn match_prefix<S: Source<A> + ?Sized>(&self, key: &S, ns: &Namespace) -> Match<A, V> {
        let guard = self.guard();
        let root = self.root();
        let mut found = Match { length: 0, segments: SmallVec::new(), handle: self.handle(root, 0) };
        let Some(space) = self.find_space(ns, &guard) else { return found };
        found.handle = self.handle(space, 0);
        found.length = self.follow_key(key, self.floor(key.len()), space, &guard, |node, at, edge, common| {
            found.segments.extend(Segment::of(edge, 0, common));
            found.handle = self.handle(node, at + common);
        });
        found
    }

    /// Calls `visit` for every edge that a key goes along from the node of its namespace, from the top: with its node, where it
    /// begins, and how many of its atoms match. Returns where that ends. Loads only; nobody's memory is written, not even
    /// a count of who looks.
    fn follow_key<S: Source<A> + ?Sized>(
        &self,
        key: &S,
        upto: usize,
        space: u32,
        guard: &Guard<'_>,
        mut visit: impl FnMut(u32, usize, &BodyData<A, V>, usize),
    ) -> usize {
        let word = self.nodes.get(space).load();
        if word.dead() {
            return 0;
        }
        let (mut at, mut body) = (0, self.body(word, guard));
        while at < upto
            && let Some((node, child, common)) = self.child(body, key, at, upto, guard)
        {
            visit(node, at, child, common);
            at += common;
            if common < child.len as usize {
                break;
            }
            body = child;
            if crate::sync::broken("a match reads a child once") {
                let again = self.nodes.get(node).load();
                body = if again.dead() { body } else { self.body(again, guard) };
            }
        }
        at
    }

    /// How far a key is cached.
    pub(super) fn reach<S: Source<A> + ?Sized>(
        &self,
        key: &S,
        upto: usize,
        ns: &Namespace,
        guard: &Guard<'_>,
    ) -> usize {
        self.find_space(ns, guard).map_or(0, |space| self.follow_key(key, upto, space, guard, |_, _, _, _| {}))
    }

    /// How many atoms of an edge a key goes on with from `at` on, in whole pages; `None` if not one page.
    #[inline]
    pub(super) fn shares<S: Source<A> + ?Sized>(
        &self,
        child: &BodyData<A, V>,
        key: &S,
        at: usize,
        upto: usize,
    ) -> Option<usize> {
        let edge = child.atoms();
        let common = self.floor(key.common_prefix(at, &edge[..edge.len().min(upto - at)]));
        (common > 0).then_some(common)
    }

    /// The child that a key goes on to, for a reader.
    #[inline]
    pub(super) fn child<'g, S: Source<A> + ?Sized>(
        &'g self,
        body: &BodyData<A, V>,
        key: &S,
        at: usize,
        upto: usize,
        guard: &'g Guard<'_>,
    ) -> Option<(u32, &'g BodyData<A, V>, usize)> {
        let table = body.children()?;
        let hash = self.hash.key(key, at, self.page())?;
        table.with_key(hash).find_map(|node| {
            // A reader goes through what is frozen or half repaired: the content of a path never changes.
            let word = self.nodes.get(node).load();
            if word.dead() {
                return None;
            }
            let child = self.body(word, guard);
            Some((node, child, self.shares(child, key, at, upto)?))
        })
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// The longest cached prefix of `tokens`, in whole pages.
    ///
    /// Changes nothing: no split, no stamp, no pin.
    ///
    /// # Concurrency
    /// Loads only; never retries. The result was cached at one moment during the call.
    pub fn match_prefix<S: Source<A> + ?Sized>(&self, tokens: &S, ns: &Namespace) -> Match<A, V> {
        self.core.match_prefix(tokens, ns)
    }

    /// Finds the longest cached prefix of `tokens` and writes its values from position `start` on into `out`, as many as fit.
    /// Returns the length of the prefix. As [`match_prefix`](Self::match_prefix) and
    /// [`write_values`](Match::write_values) in one, but readers of the same prefix share nothing that any of them writes.
    ///
    /// # Concurrency
    /// As for [`match_prefix`](Self::match_prefix): the values are a hint.
    ///
    /// # Examples
    /// ```
    /// # use radix_rs::{Namespace, RadixTree, TreeConfig};
    /// # let tree: RadixTree = RadixTree::new(TreeConfig::default())?;
    /// let ns = Namespace::default();
    /// tree.insert(&[1, 2, 3][..], &[10, 11, 12], &ns)?;
    /// let mut row = [-1; 8];
    /// assert_eq!(tree.match_into(&[1, 2, 9][..], &ns, 0, &mut row), 2);
    /// assert_eq!(row[..3], [10, 11, -1]);
    /// # Ok::<(), radix_rs::Error>(())
    /// ```
    pub fn match_into<S: Source<A> + ?Sized>(&self, tokens: &S, ns: &Namespace, start: usize, out: &mut [V]) -> usize {
        let mut done = 0;
        self.match_with(tokens, ns, |at, values| {
            let values = &values[start.saturating_sub(at).min(values.len())..];
            let count = values.len().min(out.len() - done);
            out[done..done + count].copy_from_slice(&values[..count]);
            done += count;
        })
    }

    /// As [`match_into`](Self::match_into), for callers whose memory is no slice: `visit` gets the values of each part of the
    /// prefix in turn, with the position of the first. It should be quick, since memory that others give up waits for it.
    pub fn match_with<S: Source<A> + ?Sized>(
        &self,
        tokens: &S,
        ns: &Namespace,
        mut visit: impl FnMut(usize, &[V]),
    ) -> usize {
        let guard = self.core.guard();
        let upto = self.core.floor(tokens.len());
        let Some(space) = self.core.find_space(ns, &guard) else { return 0 };
        self.core.follow_key(tokens, upto, space, &guard, |_, at, edge, common| visit(at, &edge.values()[..common]))
    }
}
