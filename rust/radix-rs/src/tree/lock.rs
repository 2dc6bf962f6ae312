//! Pinning a path, letting it go, and growing it: the walk that leases and commits share.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use smallvec::SmallVec;

use super::{Below, Core, Found, Lease, RadixTree, Segment};
use crate::buffer::Buffer;
use crate::children::{self, Children, Entry};
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::key::{Atom, Source, Value};
use crate::namespace::Namespace;
use crate::node::{BodyData, Fix, PIN_LIMIT, empty};
use crate::protocol::Birth;

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
pub(crate) type Path = SmallVec<[Held; 4]>;

/// What a walk that may insert starts from.
pub(crate) struct Supply<'a, V> {
    /// Values for positions `base..`.
    pub(crate) values: &'a [V],
    pub(crate) base: usize,
    pub(crate) priority: i32,
    /// The values come from the pool, in whole pages.
    pub(crate) checked: bool,
}

/// A new leaf, not yet published.
struct Sprout {
    node: u32,
    key: u32,
    len: usize,
}

impl<A: Atom, V: Value> Core<A, V> {
    #[expect(clippy::too_many_arguments, reason = "one step of two walks, with their whole state")]
    fn sprout(
        &self,
        key: &[A],
        at: usize,
        anchor: u32,
        pins: u32,
        era: u32,
        now: u64,
        supply: &Supply<'_, V>,
    ) -> Sprout {
        let atoms = &key[at..];
        let values = &supply.values[at - supply.base..];
        let page_key = self.page_key(&atoms[..self.page()]);
        let buffer = Buffer::new(atoms.len(), &[(atoms, values)], &self.meter);
        let data = BodyData { buffer: Some(buffer), len: atoms.len() as u32, end: key.len() as u32, ..empty() };
        let birth = Birth {
            anchor,
            key: page_key,
            stamp: now,
            created: now,
            era,
            hits: 0,
            priority: supply.priority,
            deepest: key.len() as u32,
        };
        let node = self.new_node(&birth, self.new_body(data), pins, pins == 0);
        Sprout { node, key: page_key, len: atoms.len() }
    }

    fn stored(&self, seq: u64, ns: &Namespace, key: &[A], start: usize, supply: &Supply<'_, V>) {
        self.inserted.fetch_add(key.len() - start, Relaxed);
        if self.has_events() {
            let values = &supply.values[start - supply.base..];
            self.emit(Event::Stored { seq, namespace: ns.as_bytes(), tokens: key, start, values });
        }
    }

    /// Attaches a leaf for the rest of `key` below `node`. `None`: somebody was faster, load again.
    #[expect(clippy::too_many_arguments, reason = "one step of two walks, with their whole state")]
    pub(crate) fn attach(
        &self,
        node: u32,
        word: crate::node::Word,
        dead: Option<u32>,
        key: &[A],
        at: usize,
        pins: u32,
        now: u64,
        supply: &Supply<'_, V>,
        ns: &Namespace,
        guard: &Guard<'_>,
    ) -> Option<u32> {
        let owner = self.nodes.get(node);
        let body = self.body(word, guard);
        let branch = if body.out != 0 { body.out } else { self.new_branch(node) };
        let era = owner.era.load(Relaxed);
        let leaf = self.sprout(key, at, branch, pins, era, now, supply);
        let change = self.with_child(body, leaf.key, leaf.node, dead);
        let mut data = body.again();
        data.children = change.table();
        data.out = branch;
        if dead.is_some_and(|d| d == body.tail) {
            data.tail = 0;
        }
        let new_body = self.new_body(data);
        self.count(leaf.len as isize, 0);
        let seq = self.next_event();
        if owner.swap(word, word.with_body(new_body)) {
            self.retire_body(word.body(), change.published(), guard);
            if let Some(old) = dead {
                self.retire_node(old, guard);
            }
            self.stored(seq, ns, key, at, supply);
            if pins == 0 {
                self.enqueue(leaf.node, true, guard);
            }
            return Some(leaf.node);
        }
        self.count(-(leaf.len as isize), 0);
        self.bodies.free(new_body);
        change.discard();
        self.discard_node(leaf.node);
        if body.out == 0 {
            self.branches.free(branch);
        }
        None
    }

    /// Cuts the edge of `found` after what matches, pins the upper half if `pin`, and hangs a leaf for the rest of `key`
    /// beside the lower half if there is a supply. `Ok(None)`: load again. `Ok(Some(leaf))`: done, with the leaf.
    #[expect(clippy::too_many_arguments, reason = "one step of two walks, with their whole state")]
    pub(crate) fn split(
        &self,
        found: &Found,
        pin: bool,
        rest: Option<(&[A], &Supply<'_, V>)>,
        at: usize,
        now: u64,
        ns: &Namespace,
        guard: &Guard<'_>,
    ) -> Result<Option<Option<u32>>> {
        let Found { node: id, word, common } = *found;
        let node = self.nodes.get(id);
        let body = self.body(word, guard);
        if pin && word.pins() == PIN_LIMIT {
            return Err(Error::PinOverflow);
        }
        let [(upper, upper_start), (lower, lower_start)] = self.cut(body, common);
        let branch = self.new_branch(id);
        let end = (at + common) as u32;
        // The lower half keeps its own times of use.
        let own = node.stamp.load(Acquire);
        let parts = body.parts(own);
        let below: Vec<_> = parts.iter().copied().filter(|part| part.0 > end).collect();
        let stamp = below[below.len() - 1].1;
        let mut low = body.again();
        (low.buffer, low.start, low.len) = (Some(lower), lower_start, body.len - common as u32);
        low.set_parts(below, stamp);
        let low_key = self.page_key(&low.atoms()[..self.page()]);
        let queued = word.pins() == 0 && body.is_leaf();
        let birth = Birth::of(node, branch, low_key, stamp);
        let low = self.new_node(&birth, self.new_body(low), word.pins(), queued);
        let leaf = rest.map(|(key, supply)| {
            let pins = u32::from(pin);
            let era = node.era.load(Relaxed);
            self.sprout(key, at + common, branch, pins, era, now, supply)
        });
        let low_entry = Entry { key: low_key, node: low };
        let table = match &leaf {
            Some(leaf) => children::two(low_entry, Entry { key: leaf.key, node: leaf.node }),
            None => children::one(low_entry.key, low_entry.node),
        };
        let fixing = body.out != 0;
        let crossing = parts.iter().position(|part| part.0 >= end).expect("the last part ends the edge");
        let above = parts[..=crossing].iter().map(|part| (part.0.min(end), part.1)).collect();
        let mut up = BodyData {
            buffer: Some(upper),
            start: upper_start,
            len: common as u32,
            end,
            tail: low,
            out: branch,
            children: table,
            ages: None,
            fix: fixing.then_some((Fix::Split, body.out, id, low)),
        };
        up.set_parts(above, own);
        let up = self.new_body(up);
        let grown = leaf.as_ref().map_or(0, |l| l.len) as isize;
        self.count(grown, 0);
        let seq = self.next_event();
        let mut new = word.with_body(up).with_fixing(fixing);
        if pin {
            new = new.pinned();
        }
        if !node.swap(word, new) {
            self.count(-grown, 0);
            self.bodies.free(up);
            // SAFETY: never published.
            unsafe { Children::free_all(table) };
            // its children are still the old body's; a body does not free them
            self.discard_node(low);
            if let Some(leaf) = leaf {
                self.discard_node(leaf.node);
            }
            self.branches.free(branch);
            return Ok(None);
        }
        node.stamp.fetch_max(now, AcqRel);
        self.retire_body(word.body(), None, guard);
        if pin && word.pins() == 0 {
            self.count(0, common as isize);
        }
        if queued {
            self.enqueue(low, true, guard);
        }
        if fixing {
            self.load(id, guard);
        }
        if let Some((key, supply)) = rest {
            self.stored(seq, ns, key, at + common, supply);
        }
        let leaf = leaf.map(|leaf| leaf.node);
        if let Some(leaf) = leaf
            && !pin
        {
            self.enqueue(leaf, true, guard);
        }
        if word.pins() == 0 && body.children().is_some_and(|c| c.len() == 1) {
            self.try_merge(low, guard);
        }
        Ok(Some(leaf))
    }

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
                        self.count(0, (upto - at) as isize);
                        path.push(Held { node: leaf, end: upto as u32 });
                        return Ok(at);
                    }
                }
                Below::Child(found) if found.common == self.body(found.word, guard).len as usize => {
                    if found.word.pins() == PIN_LIMIT {
                        return Err(Error::PinOverflow);
                    }
                    let child = self.nodes.get(found.node);
                    if child.swap(found.word, found.word.pinned()) {
                        child.stamp.fetch_max(now, AcqRel);
                        child.hits.fetch_add(1, Relaxed);
                        at += found.common;
                        path.push(Held { node: found.node, end: at as u32 });
                        if found.word.pins() == 0 {
                            self.count(0, found.common as isize);
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
                        self.nodes.get(found.node).hits.fetch_add(1, Relaxed);
                        path.push(Held { node: found.node, end: stop as u32 });
                        if let Some(seen) = seen.as_deref_mut() {
                            seen.extend(Segment::of(self.body(found.word, guard), 0, found.common));
                        }
                        if let Some(leaf) = leaf {
                            self.count(0, (upto - stop) as isize);
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
                self.nodes.get(node).stamp.fetch_max(now, AcqRel);
                path.push(Held { node, end: 0 });
                return Ok(Some(node));
            }
        }
    }

    /// A leaf that only this path pins grows in place.
    #[expect(clippy::too_many_arguments, reason = "one step of the walk, with its whole state")]
    fn grow(
        &self,
        path: &mut Path,
        id: u32,
        word: crate::node::Word,
        key: &[A],
        at: usize,
        now: u64,
        supply: &Supply<'_, V>,
        ns: &Namespace,
        guard: &Guard<'_>,
    ) -> bool {
        let Some(last) = path.last_mut().filter(|last| last.node == id && last.end as usize == at) else {
            return false;
        };
        let body = self.body(word, guard);
        if word.pins() != 1 || !body.is_leaf() || body.len == 0 || body.end < self.nodes.get(id).deepest.load(Relaxed) {
            return false;
        }
        let (atoms, values) = (&key[at..], &supply.values[at - supply.base..]);
        let buffer = body.buffer.as_ref().expect("an edge with atoms has a buffer");
        let stop = body.start + body.len;
        let mut data = body.again();
        data.len += atoms.len() as u32;
        data.end = key.len() as u32;
        data.out = 0;
        data.ages = None; // the whole path is stamped with `now` below
        let appended = buffer.append(stop, atoms, values);
        if !appended {
            let room = data.len as usize + (data.len as usize / 8).max(16);
            let parts = [(body.atoms(), body.values()), (atoms, values)];
            data.buffer = Some(Buffer::new(room, &parts, &self.meter));
            data.start = 0;
        }
        let new_body = self.new_body(data);
        self.count(atoms.len() as isize, 0);
        let seq = self.next_event();
        if !self.nodes.get(id).swap(word, word.with_body(new_body)) {
            self.count(-(atoms.len() as isize), 0);
            self.bodies.free(new_body);
            return false;
        }
        self.nodes.get(id).stamp.fetch_max(now, AcqRel);
        self.nodes.get(id).deepest.fetch_max(key.len() as u32, Relaxed);
        last.end = key.len() as u32;
        self.count(0, atoms.len() as isize);
        self.stored(seq, ns, key, at, supply);
        self.retire_body(word.body(), None, guard);
        self.retire_branch(body.out, guard);
        true
    }

    /// Calls `visit` for every node a path holds, from the top, with the tails of nodes that were split since.
    pub(crate) fn each_held(&self, path: &[Held], guard: &Guard<'_>, mut visit: impl FnMut(u32, &BodyData<A, V>)) {
        for held in path {
            let mut node = held.node;
            loop {
                let body = self.body(self.load(node, guard), guard);
                visit(node, body);
                if body.end >= held.end {
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

    /// Marks everything a path holds as used now.
    pub(crate) fn stamp_held(&self, path: &[Held], now: u64, guard: &Guard<'_>) {
        self.each_held(path, guard, |node, _| {
            self.nodes.get(node).stamp.fetch_max(now, AcqRel);
        });
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
        let mut fragments: SmallVec<[u32; 4]> = SmallVec::new();
        for held in path.iter().rev() {
            fragments.clear();
            let mut id = held.node;
            loop {
                let node = self.nodes.get(id);
                let word = self.load(id, guard);
                assert!(word.pins() > 0 && word.live(), "a lease held a node that nobody pins");
                let body = self.body(word, guard);
                let last = word.pins() == 1;
                let candidate = last && body.is_leaf();
                if last {
                    self.count(0, -(body.len as isize));
                }
                let new = crate::node::Word::new(word.body(), word.pins() - 1, word.queued() || candidate);
                if !node.swap(word, new) {
                    if last {
                        self.count(0, body.len as isize);
                    }
                    continue;
                }
                if candidate {
                    self.enqueue(id, !word.queued(), guard);
                }
                fragments.push(id);
                if body.end >= held.end {
                    break;
                }
                id = body.tail;
            }
            for (i, &fragment) in fragments.iter().enumerate() {
                if i > 0 {
                    let anchor = self.nodes.get(fragment).anchor.load(Relaxed);
                    if let Some((parent, _)) = self.locate(anchor, guard) {
                        self.try_merge(parent, guard);
                    }
                }
                self.try_merge(fragment, guard);
            }
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
        let mut lease = Lease { core: self.clone(), path: Path::new(), length: 0, ns: ns.clone() };
        lease.length = self.climb(&mut lease.path, tokens, upto, None, self.tick(), ns, None, &guard)?;
        Ok(lease)
    }
}
