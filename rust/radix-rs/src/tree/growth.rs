//! How the tree grows: new leaves, cut edges, leaves that get longer.

use crate::sync::atomic::Ordering::*;

use super::lock::{NO_USE, Path};
use super::{Core, Found, TableChange};
use crate::buffer::Buffer;
use crate::children::{self, Children, Entry};
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::key::{Atom, Value};
use crate::namespace::Namespace;
use crate::node::{BodyData, Fix, Node, PIN_LIMIT, Part, Repair, Usage, empty};
use crate::protocol::Birth;
use crate::sync::broken;

/// What a walk that may insert starts from.
pub(crate) struct Supply<'a, V> {
    /// Values for positions `base..`.
    pub(crate) values: &'a [V],
    pub(crate) base: usize,
    pub(crate) priority: i32,
    /// When its pages count as born; `None`: now. A lease puts its own birth here.
    pub(crate) born: Option<u64>,
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
        above: &Node,
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
            usage: Usage { stamp: now, base: self.inflation(), hits: 1 },
            created: supply.born.unwrap_or(now),
            era: above.era.load(Relaxed),
            space: above.space.load(Relaxed),
            priority: supply.priority,
            deepest: key.len() as u32,
        };
        let node = self.new_node(&birth, self.new_body(data), pins, pins == 0);
        Sprout { node, key: page_key, len: atoms.len() }
    }

    fn stored(&self, id: u32, seq: u64, ns: &Namespace, key: &[A], start: usize, supply: &Supply<'_, V>) {
        self.inserted.fetch_add(key.len() - start, Relaxed);
        if self.has_events() && !self.is_left_over(id) {
            let values = &supply.values[start - supply.base..];
            self.emit(Event::Stored { seq, namespace: ns.as_bytes(), tokens: key, start, values });
        }
        self.stored_one();
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
        let leaf = self.sprout(key, at, branch, pins, owner, now, supply);
        let change = self.with_child(body, leaf.key, leaf.node, dead);
        let mut data = body.again();
        data.children = change.table();
        data.out = branch;
        if dead.is_some_and(|d| d == body.tail) {
            data.tail = 0;
        }
        let new_body = self.new_body(data);
        self.count_in(node, leaf.len as isize, 0);
        let seq = self.next_event();
        let old = if broken("a leaf is attached to the word it was made for") { owner.load() } else { word };
        if owner.swap(old, old.with_body(new_body)) {
            self.retire_body(word.body(), self.settle(change), guard);
            if let Some(old) = dead {
                self.retire_node(old, guard);
            }
            self.stored(node, seq, ns, key, at, supply);
            if pins == 0 {
                self.enqueue(leaf.node, true, guard);
            }
            return Some(leaf.node);
        }
        self.count_in(node, if broken("a loser takes its count back") { 0 } else { -(leaf.len as isize) }, 0);
        self.bodies.free(new_body);
        change.discard();
        self.discard_node(leaf.node, guard);
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
        let own = node.usage();
        let parts = body.parts(own);
        let below: Vec<_> = parts.iter().copied().filter(|part| part.end > end).collect();
        let low_own = below[below.len() - 1].usage;
        let mut low = body.again();
        (low.buffer, low.start, low.len) = (Some(lower), lower_start, body.len - common as u32);
        self.set_parts(&mut low, below, low_own);
        let low_key = self.page_key(&low.atoms()[..self.page()]);
        let queued = word.pins() == 0 && body.is_leaf();
        let birth = Birth::of(node, branch, low_key, low_own);
        let pins = if broken("a lower half inherits the pins") { 0 } else { word.pins() };
        let low = self.new_node(&birth, self.new_body(low), pins, queued);
        let leaf = rest.map(|(key, supply)| {
            let pins = u32::from(pin);
            self.sprout(key, at + common, branch, pins, node, now, supply)
        });
        let low_entry = Entry { key: low_key, node: low };
        let table = match &leaf {
            Some(leaf) => children::two(low_entry, Entry { key: leaf.key, node: leaf.node }),
            None => children::one(low_entry.key, low_entry.node),
        };
        let fixing = body.out != 0 && !broken("a split sets the fixing bit");
        let crossing = parts.iter().position(|part| part.end >= end).expect("the last part ends the edge");
        let above = parts[..=crossing].iter().map(|part| Part { end: part.end.min(end), ..*part }).collect();
        let mut up = BodyData {
            buffer: Some(upper),
            start: upper_start,
            len: common as u32,
            end,
            tail: low,
            out: branch,
            children: table,
            ages: None,
            fix: if fixing { Repair::new(Fix::Split, body.out, id, low) } else { None },
        };
        self.set_parts(&mut up, above, own);
        let up = self.new_body(up);
        let grown = leaf.as_ref().map_or(0, |l| l.len) as isize;
        self.count_in(id, grown, 0);
        let seq = self.next_event();
        let mut new = word.with_body(up).with_fixing(fixing);
        if pin {
            new = new.pinned();
        }
        if !node.swap(word, new) {
            self.count_in(id, -grown, 0);
            self.bodies.free(up);
            // SAFETY: never published.
            unsafe { Children::free_all(table) };
            // its children are still the old body's; a body does not free them
            self.discard_node(low, guard);
            if let Some(leaf) = leaf {
                self.discard_node(leaf.node, guard);
            }
            self.branches.free(branch);
            return Ok(None);
        }
        if now != NO_USE {
            node.mark(now, self.inflation(), 1);
        }
        self.retire_body(word.body(), self.settle(TableChange::First(table)), guard);
        if pin && word.pins() == 0 {
            self.count_in(id, 0, common as isize);
        }
        if queued {
            self.enqueue(low, true, guard);
        }
        if fixing {
            self.load(id, guard);
        }
        if let Some((key, supply)) = rest {
            self.stored(id, seq, ns, key, at + common, supply);
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

    /// Whether pages of a supply are like those of a leaf in everything that the policy looks at.
    fn same_kind(&self, node: &Node, body: &BodyData<A, V>, supply: &Supply<'_, V>) -> bool {
        let origin = supply.born == Some(node.created.load(Relaxed)) && supply.priority == node.priority.load(Relaxed);
        let unused = || body.parts(node.usage()).iter().all(|part| part.usage.hits == 1);
        (!self.policy.tells_origin() || origin) && (!self.policy.counts() || unused())
    }

    /// A leaf that only this path pins grows in place.
    #[expect(clippy::too_many_arguments, reason = "one step of the walk, with its whole state")]
    pub(super) fn grow(
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
        if word.pins() != 1 || !body.is_leaf() || body.len == 0 || body.end < self.nodes.get(id).deepest() {
            return false;
        }
        if !self.same_kind(self.nodes.get(id), body, supply) {
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
        self.count_in(id, atoms.len() as isize, 0);
        let seq = self.next_event();
        if !self.nodes.get(id).swap(word, word.with_body(new_body)) {
            self.count_in(id, -(atoms.len() as isize), 0);
            self.bodies.free(new_body);
            return false;
        }
        self.nodes.get(id).mark(now, self.inflation(), 0);
        self.nodes.get(id).deepen(key.len() as u32);
        last.end = key.len() as u32;
        self.count_in(id, 0, atoms.len() as isize);
        self.stored(id, seq, ns, key, at, supply);
        self.retire_body(word.body(), None, guard);
        self.retire_branch(body.out, guard);
        true
    }
}
