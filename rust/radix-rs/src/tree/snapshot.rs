//! A tree as a stream of bytes, and back.
//!
//! After the [frame](crate::frame)'s head come `{ page size u32 | bytes of an atom u8 | bytes of a value u8 }` and a record for
//! each node, parents before children, first those of the default namespace: `{ kind u8 | depth in nodes u32 | created u64 |
//! hits u32 | priority i32 | uses }`, then what the kind has. The last record counts what came before it. All numbers are
//! little-endian.
//!
//! Both ways hold one edge and, for each node above it, its siblings that are still to come; never a second tree.

use crate::sync::atomic::Ordering::*;
use std::collections::HashMap;
use std::io::{Read, Write};

use super::{Core, RadixTree, Supply};
use crate::buffer::Buffer;
use crate::children::{self, Children, Entry};
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::frame::{FrameReader, FrameWriter};
use crate::key::{Atom, Value};
use crate::node::{BodyData, empty};
use crate::protocol::Birth;

/// A value that a snapshot can hold.
pub trait SnapshotValue: Value {
    /// Bytes of one; part of the format, so no two types of values should share it.
    const WIDTH: usize;
    /// The value as bytes, little-endian, in the first [`WIDTH`](Self::WIDTH).
    fn to_bytes(self) -> [u8; 16];
    /// The value of such bytes.
    fn from_bytes(bytes: [u8; 16]) -> Self;
}

macro_rules! snapshot_value {
    ($($t:ty),*) => {$(
        impl SnapshotValue for $t {
            const WIDTH: usize = size_of::<$t>();
            fn to_bytes(self) -> [u8; 16] {
                let mut bytes = [0; 16];
                bytes[..size_of::<$t>()].copy_from_slice(&self.to_le_bytes());
                bytes
            }
            fn from_bytes(bytes: [u8; 16]) -> Self {
                let mut own = [0; size_of::<$t>()];
                own.copy_from_slice(&bytes[..size_of::<$t>()]);
                <$t>::from_le_bytes(own)
            }
        }
    )*};
}
snapshot_value!(i32, u64, u128);

const END: u8 = 0;
const SPACE: u8 = 1;
const EDGE: u8 = 2;
/// The lower half of an edge that was cut for a sibling: one edge again when that goes.
const TAIL: u8 = 3;

/// Edges are read and written by so many bytes at a time.
const PIECE: usize = 1 << 12;

/// The pages of slots met so far: a bit for each, in blocks as they are needed.
struct Pages {
    page: i64,
    blocks: HashMap<u32, Box<[u64; 64]>>,
}

impl Pages {
    fn new(page: usize) -> Self {
        Pages { page: page as i64, blocks: HashMap::new() }
    }

    /// Notes the pages of these values; the slot of one that was noted before.
    fn add<V: Value>(&mut self, values: &[V]) -> std::result::Result<(), i64> {
        for first in values.chunks_exact(self.page as usize).filter_map(|page| page[0].slot()) {
            let number = (first / self.page) as u64;
            let block = self.blocks.entry((number >> 12) as u32).or_insert_with(|| Box::new([0; 64]));
            let (word, bit) = (&mut block[(number >> 6) as usize & 63], 1 << (number & 63));
            if *word & bit != 0 {
                return Err(first);
            }
            *word |= bit;
        }
        Ok(())
    }
}

/// When the parts of an edge were used: `{ count u32 | { end u32 | last use u64 }.. }`, ends ascending, uses never. All that is
/// known of single parts of an edge goes through here and [`take_uses`].
fn put_uses(to: &mut FrameWriter<'_>, parts: &[(u32, u64)]) -> Result<()> {
    to.put(&(parts.len() as u32).to_le_bytes())?;
    for (end, stamp) in parts {
        to.put(&end.to_le_bytes())?;
        to.put(&stamp.to_le_bytes())?;
    }
    Ok(())
}

fn take_uses(from: &mut FrameReader<'_>) -> Result<Vec<(u32, u64)>> {
    let count = from.u32()?;
    let mut parts: Vec<(u32, u64)> = Vec::new();
    for _ in 0..count {
        let part = (from.u32()?, from.u64()?);
        if parts.last().is_some_and(|last| last.0 >= part.0 || last.1 < part.1) {
            return Err(malformed(from, "the parts of an edge are not in order"));
        }
        parts.push(part);
    }
    Ok(parts)
}

#[cold]
fn malformed(from: &FrameReader<'_>, what: &str) -> Error {
    Error::Snapshot(format!("the snapshot says what no tree says: {what}, before byte {}", from.offset()))
}

/// A node that is still to be written, as it was when its parent was.
struct Pending<'g, A, V> {
    node: u32,
    body: &'g BodyData<A, V>,
    depth: u32,
    tail: bool,
}

impl<A: Atom, V: SnapshotValue> Core<A, V> {
    fn snapshot(&self, out: &mut dyn Write) -> Result<()> {
        let mut to = FrameWriter::new(out)?;
        to.put(&(self.page() as u32).to_le_bytes())?;
        to.put(&[size_of::<A>() as u8, V::WIDTH as u8])?;
        let guard = self.guard();
        let mut pages = Pages::new(self.page());
        let (mut num_nodes, mut num_atoms) = (0u64, 0u64);
        let mut todo = Vec::new();
        for root in [self.root(), self.spaces()] {
            let word = self.nodes.get(root).load();
            if word.dead() {
                continue; // a reset replaced it
            }
            self.pend(self.body(word, &guard), 0, &mut todo, &guard);
            while let Some(next) = todo.pop() {
                num_nodes += 1;
                num_atoms += self.put_node(&mut to, next, &mut pages, &mut todo, &guard)?;
            }
        }
        to.put(&[END])?;
        to.put(&num_nodes.to_le_bytes())?;
        to.put(&num_atoms.to_le_bytes())?;
        to.put(&self.clock.load(SeqCst).to_le_bytes())?;
        to.finish()
    }

    /// The live children of a body, to be written in their order.
    fn pend<'g>(&'g self, body: &BodyData<A, V>, depth: u32, todo: &mut Vec<Pending<'g, A, V>>, guard: &'g Guard<'_>) {
        let at = todo.len();
        for entry in body.children().into_iter().flat_map(Children::iter) {
            let word = self.nodes.get(entry.node).load();
            if !word.dead() {
                let tail = entry.node == body.tail;
                todo.push(Pending { node: entry.node, body: self.body(word, guard), depth, tail });
            }
        }
        if let [only] = &todo[at..]
            && only.tail
        {
            todo[at].tail = false; // what was beside it has just gone
        }
        todo[at..].reverse();
    }

    /// Writes a node and pends what hangs below it. What is apart only because a lease ends there is one edge.
    fn put_node<'g>(
        &'g self,
        to: &mut FrameWriter<'_>,
        next: Pending<'g, A, V>,
        pages: &mut Pages,
        todo: &mut Vec<Pending<'g, A, V>>,
        guard: &'g Guard<'_>,
    ) -> Result<u64> {
        let node = self.nodes.get(next.node);
        let (mut hits, mut parts) = (0, Vec::new());
        let mut pieces = vec![next.body];
        let mut id = next.node;
        loop {
            let (fragment, last) = (self.nodes.get(id), pieces[pieces.len() - 1]);
            hits = hits.max(fragment.hits.load(Relaxed));
            parts.extend(last.parts(fragment.stamp.load(Acquire)));
            let tail = last.children().and_then(Children::only).filter(|&only| only == last.tail);
            let Some(tail) = tail else { break };
            let word = self.nodes.get(tail).load();
            if word.dead() {
                break;
            }
            pieces.push(self.body(word, guard));
            id = tail;
        }
        let last = pieces[pieces.len() - 1];
        self.pend(last, next.depth + 1, todo, guard);
        let mut whole = BodyData { end: last.end, ..empty::<A, V>() };
        let stamp = parts[parts.len() - 1].1;
        whole.set_parts(parts, stamp);

        let kind = match (next.body.name(), next.tail) {
            (Some(_), _) => SPACE,
            (None, true) => TAIL,
            (None, false) => EDGE,
        };
        to.put(&[kind])?;
        to.put(&next.depth.to_le_bytes())?;
        to.put(&node.created.load(Relaxed).to_le_bytes())?;
        to.put(&hits.to_le_bytes())?;
        to.put(&node.priority.load(Relaxed).to_le_bytes())?;
        put_uses(to, &whole.parts(stamp))?;
        if let Some(name) = next.body.name() {
            to.put(&(name.len() as u32).to_le_bytes())?;
            to.put(name)?;
            return Ok(0);
        }
        let len: usize = pieces.iter().map(|piece| piece.len as usize).sum();
        to.put(&(len as u32).to_le_bytes())?;
        let mut bytes = Vec::with_capacity(PIECE);
        for atoms in pieces.iter().flat_map(|piece| piece.atoms().chunks(PIECE / size_of::<A>())) {
            bytes.clear();
            atoms.iter().for_each(|atom| bytes.extend_from_slice(&atom.bits().to_le_bytes()[..size_of::<A>()]));
            to.put(&bytes)?;
        }
        for values in pieces.iter().flat_map(|piece| piece.values().chunks(PIECE / V::WIDTH)) {
            bytes.clear();
            values.iter().for_each(|value| bytes.extend_from_slice(&value.to_bytes()[..V::WIDTH]));
            to.put(&bytes)?;
        }
        for piece in &pieces {
            pages.add(piece.values()).map_err(|slot| {
                Error::Snapshot(format!("slot {slot} was met twice: the tree was changed while it was written"))
            })?;
        }
        Ok(len as u64)
    }

    fn restore(&self, input: &mut dyn Read, out: &mut Vec<V>) -> Result<()> {
        self.check_empty()?;
        let mut plant = Plant::new(self);
        plant.read(FrameReader::new(input)?)?;
        self.check_empty()?;
        plant.publish(out);
        Ok(())
    }

    fn check_empty(&self) -> Result<()> {
        match self.counts().0 {
            0 => Ok(()),
            n => Err(Error::Snapshot(format!(
                "the tree holds {n} tokens; a snapshot is restored into an empty one: reset it and release its leases"
            ))),
        }
    }
}

/// A node whose children are still being read.
struct Open<A, V> {
    data: BodyData<A, V>,
    key: u32,
    stamp: u64,
    created: u64,
    hits: u32,
    priority: i32,
    children: Vec<Entry>,
    is_tail: bool,
    tail: u32,
}

/// A tree that nobody knows yet. Dropped, it leaves nothing behind.
struct Plant<'a, A: Atom, V: Value> {
    core: &'a Core<A, V>,
    /// The nodes above what is read next, a root first.
    open: Vec<Open<A, V>>,
    /// Finished nodes, children before parents.
    nodes: Vec<u32>,
    /// Of these, the root and the root of the namespaces.
    roots: Vec<u32>,
    pages: Pages,
    num_atoms: u64,
    latest: u64,
}

impl<'a, A: Atom, V: SnapshotValue> Plant<'a, A, V> {
    fn new(core: &'a Core<A, V>) -> Self {
        let pages = Pages::new(core.page());
        let mut plant =
            Plant { core, open: Vec::new(), nodes: Vec::new(), roots: Vec::new(), pages, num_atoms: 0, latest: 0 };
        plant.open_root();
        plant
    }

    fn open_root(&mut self) {
        let data = BodyData { out: self.core.new_branch(0), ..empty() };
        let (key, stamp, created, hits, priority) = (0, 0, 0, 0, 0);
        self.open.push(Open {
            data,
            key,
            stamp,
            created,
            hits,
            priority,
            children: Vec::new(),
            is_tail: false,
            tail: 0,
        });
    }

    fn read(&mut self, mut from: FrameReader<'_>) -> Result<()> {
        let page = from.u32()? as usize;
        let [atom, value] = from.array()?.map(usize::from);
        let own = (self.core.page(), size_of::<A>(), V::WIDTH);
        if (page, atom, value) != own {
            return Err(Error::Snapshot(format!(
                "the snapshot is of a tree with pages of {page} tokens, {atom} bytes a token and {value} bytes a slot; this \
                 one has {}, {} and {}",
                own.0, own.1, own.2
            )));
        }
        let mut in_spaces = false;
        let mut num_nodes = 0;
        loop {
            let [kind] = from.array()?;
            match kind {
                END => break,
                SPACE | EDGE | TAIL => {}
                _ => return Err(malformed(&from, "a kind of node that is none")),
            }
            num_nodes += 1;
            let depth = from.u32()? as usize;
            if depth >= self.open.len() {
                return Err(malformed(&from, "a node below none"));
            }
            self.close_to(depth + 1).map_err(|what| malformed(&from, what))?;
            if (kind == SPACE) != (depth == 0 && (in_spaces || kind == SPACE)) {
                return Err(malformed(&from, "a namespace that stands elsewhere"));
            }
            if kind == SPACE && !in_spaces {
                self.close_to(0).map_err(|what| malformed(&from, what))?;
                self.open_root();
                in_spaces = true;
            }
            self.take_node(&mut from, kind)?;
        }
        let counted = (from.u64()?, from.u64()?, from.u64()?);
        let fits = counted.0 == num_nodes && counted.1 == self.num_atoms && counted.2 >= self.latest;
        if !fits {
            return Err(malformed(&from, "another number of nodes, tokens or uses than there are"));
        }
        self.latest = counted.2;
        from.finish()?;
        let last = |what| Error::Snapshot(format!("the snapshot says what no tree says: {what}"));
        self.close_to(0).map_err(last)?;
        if !in_spaces {
            self.open_root();
            self.close_to(0).map_err(last)?;
        }
        Ok(())
    }

    fn take_node(&mut self, from: &mut FrameReader<'_>, kind: u8) -> Result<()> {
        let created = from.u64()?;
        let hits = from.u32()?;
        let priority = i32::from_le_bytes(from.array()?);
        let parts = take_uses(from)?;
        let above = self.open.last().expect("the root is open").data.end;
        let mut data = empty();
        let key = if kind == SPACE {
            let len = from.u32()? as usize;
            let mut name = Vec::new();
            while name.len() < len {
                let at = name.len();
                name.resize(len.min(at + PIECE), 0);
                from.take(&mut name[at..])?;
            }
            data.buffer = Some(Buffer::named(&name, &self.core.meter));
            self.core.hash.name(&name)
        } else {
            let len = from.u32()?;
            let page = self.core.page();
            if len == 0 || !(len as usize).is_multiple_of(page) || len >= u32::MAX / 2 - above {
                return Err(malformed(from, "an edge that is no pages"));
            }
            let (atoms, values) = self.take_edge(from, len as usize)?;
            (data.len, data.end) = (len, above + len);
            self.num_atoms += u64::from(len);
            let key = self.core.page_key(&atoms[..page]);
            data.buffer = Some(Buffer::new(atoms.len(), &[(&atoms, &values)], &self.core.meter));
            key
        };
        let ends = parts.first().is_some_and(|first| first.0 > above || kind == SPACE)
            && parts.last().is_some_and(|last| last.0 == data.end);
        if !ends {
            return Err(malformed(from, "the parts of an edge are not its own"));
        }
        self.latest = self.latest.max(parts[0].1).max(created);
        let stamp = parts[parts.len() - 1].1;
        data.set_parts(parts, stamp);
        let is_tail = kind == TAIL;
        self.open.push(Open { data, key, stamp, created, hits, priority, children: Vec::new(), is_tail, tail: 0 });
        Ok(())
    }

    fn take_edge(&mut self, from: &mut FrameReader<'_>, len: usize) -> Result<(Vec<A>, Vec<V>)> {
        let (mut atoms, mut values) = (Vec::new(), Vec::new());
        let mut piece = [0; PIECE];
        while atoms.len() < len {
            let bytes = &mut piece[..PIECE.min((len - atoms.len()) * size_of::<A>())];
            from.take(bytes)?;
            for bytes in bytes.chunks_exact(size_of::<A>()) {
                let mut bits = [0; 8];
                bits[..size_of::<A>()].copy_from_slice(bytes);
                let atom = A::from_bits(u64::from_le_bytes(bits));
                atoms.push(atom.ok_or_else(|| malformed(from, "a token that is none"))?);
            }
        }
        while values.len() < len {
            let bytes = &mut piece[..PIECE.min((len - values.len()) * V::WIDTH)];
            from.take(bytes)?;
            for bytes in bytes.chunks_exact(V::WIDTH) {
                let mut all = [0; 16];
                all[..V::WIDTH].copy_from_slice(bytes);
                values.push(V::from_bytes(all));
            }
        }
        let supply = Supply { values: &values, base: 0, priority: 0, checked: false };
        self.core.check_supply(&supply, 0).map_err(|_| malformed(from, "slots that are no pages"))?;
        self.pages.add(&values).map_err(|_| malformed(from, "a slot that two tokens have"))?;
        Ok((atoms, values))
    }

    /// Finishes open nodes until `left` are open.
    fn close_to(&mut self, left: usize) -> std::result::Result<(), &'static str> {
        while self.open.len() > left {
            let mut own = self.open.pop().expect("more are open than shall be left");
            if let Err(what) = self.link(&mut own) {
                self.open.push(own); // to be dropped with the others
                return Err(what);
            }
        }
        Ok(())
    }

    fn link(&mut self, own: &mut Open<A, V>) -> std::result::Result<(), &'static str> {
        own.children.sort_by_key(|entry| entry.key);
        let twins = own.children.chunk_by(|a, b| a.key == b.key).filter(|same| same.len() > 1);
        for same in twins {
            let guard = self.core.guard();
            let page = self.core.page();
            let mut firsts: Vec<_> = same
                .iter()
                .map(|entry| {
                    let body = self.core.body(self.core.nodes.get(entry.node).load(), &guard);
                    let bits: Vec<u64> = body.atoms().iter().take(page).map(|atom| atom.bits()).collect();
                    (body.name(), bits)
                })
                .collect();
            firsts.sort_unstable();
            if firsts.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err("two children with the same page");
            }
        }
        if own.tail != 0 && own.children.len() == 1 {
            return Err("an edge in two parts");
        }
        let mut data = std::mem::replace(&mut own.data, empty());
        let root = self.open.is_empty();
        let anchor = match self.open.last_mut() {
            None => 0,
            Some(parent) => {
                if parent.data.out == 0 {
                    parent.data.out = self.core.new_branch(0);
                }
                parent.data.out
            }
        };
        let (out, deepest, leaf) = (data.out, data.end, own.children.is_empty());
        data.tail = own.tail;
        data.children = children::many(&own.children);
        let Open { key, stamp, created, hits, priority, .. } = *own;
        let birth = Birth { anchor, key, stamp, created, era: 0, hits, priority, deepest };
        let node = self.core.new_node(&birth, self.core.new_body(data), 0, leaf && !root);
        if out != 0 {
            self.core.branches.get(out).owner.store(u64::from(node), SeqCst);
        }
        self.nodes.push(node);
        if root {
            self.roots.push(node);
        }
        if let Some(parent) = self.open.last_mut() {
            parent.children.push(Entry { key, node });
            if own.is_tail {
                if parent.tail != 0 || parent.data.len == 0 {
                    return Err("a lower half of nothing");
                }
                parent.tail = node;
            }
        }
        Ok(())
    }

    /// Puts the plant in the place of what is there, as a reset puts nothing there: with roots of a new era.
    fn publish(mut self, out: &mut Vec<V>) {
        let (core, nodes) = (self.core, std::mem::take(&mut self.nodes));
        let leaves: Vec<u32> = nodes.iter().copied().filter(|&id| core.nodes.get(id).load().queued()).collect();
        let seq = core.next_event();
        let era = core.resets.fetch_add(1, SeqCst) + 1;
        for &id in &nodes {
            core.nodes.get(id).era.store(era, Relaxed);
        }
        core.clock.fetch_max(self.latest, SeqCst);
        core.count(self.num_atoms as isize, 0);
        let guard = core.guard();
        core.emit(Event::Cleared { seq });
        self.tell(&nodes, &guard);
        let old = core.swap_roots(u64::from(self.roots[0]) << 32 | u64::from(self.roots[1]), &guard);
        // Not before: an evictor that empties a root puts it in line, unless the tree has it as a root.
        for id in leaves {
            core.enqueue(id, true, &guard);
        }
        drop(guard);
        core.drain(old, out);
    }

    /// Tells of every edge, parents first.
    fn tell(&self, nodes: &[u32], guard: &Guard<'_>) {
        let core = self.core;
        if !core.has_events() {
            return;
        }
        for &id in nodes.iter().rev() {
            let body = core.body(core.nodes.get(id).load(), guard);
            let seq = core.next_event();
            if body.len > 0
                && let Some((tokens, name)) = core.path_of(id, body, guard)
            {
                let (start, values) = (body.begin() as usize, body.values());
                core.emit(Event::Stored { seq, namespace: name.as_deref(), tokens: &tokens, start, values });
            }
        }
    }
}

impl<A: Atom, V: Value> Drop for Plant<'_, A, V> {
    fn drop(&mut self) {
        for open in &self.open {
            if open.data.out != 0 {
                self.core.branches.free(open.data.out);
            }
        }
        for &id in &self.nodes {
            let body = self.core.nodes.get(id).load().body();
            // SAFETY: nobody else ever knew the node, so its body is filled and stays, and it alone owns its table.
            unsafe {
                let data = self.core.bodies.get(body).data();
                if data.out != 0 {
                    self.core.branches.free(data.out);
                }
                Children::free_all(data.children);
            }
            self.core.discard_node(id);
        }
    }
}

impl<A: Atom, V: SnapshotValue> RadixTree<A, V> {
    /// Writes the tree to a stream: its prefixes with their values, namespaces, times of use, hits and priorities, checked by
    /// checksums. Leases are no part of it. The format does not depend on the machine.
    ///
    /// # Errors
    /// [`Error::Io`] if the stream fails. [`Error::Snapshot`] if a slot was met twice because others evicted and inserted
    /// meanwhile; then take it again.
    ///
    /// # Concurrency
    /// Each node is written as it was at one moment; the snapshot is of one moment only if nobody else changes the tree. Memory
    /// of what others evict is held until it is done.
    ///
    /// # Examples
    /// ```
    /// # use radix_rs::{Namespace, RadixTree, TreeConfig};
    /// let (tree, ns): (RadixTree, _) = (RadixTree::new(TreeConfig::default())?, Namespace::default());
    /// tree.insert(&[1, 2, 3][..], &[10, 11, 12], &ns)?;
    /// let mut bytes = Vec::new();
    /// tree.snapshot(&mut bytes)?;
    /// let again: RadixTree = RadixTree::new(TreeConfig::default())?;
    /// again.restore(&mut &bytes[..])?;
    /// assert_eq!(again.match_prefix(&[1, 2, 9][..], &ns).length(), 2);
    /// # Ok::<(), radix_rs::Error>(())
    /// ```
    pub fn snapshot(&self, out: &mut impl Write) -> Result<()> {
        self.core.snapshot(out)
    }

    /// Puts the content of a snapshot into this tree, which must hold no tokens. The stream must end with the snapshot. The
    /// order of eviction goes on where it was; hits from before it are as old as they were. Handles from before are stale.
    ///
    /// The values are the tree's from now on: an engine takes them out of its pool first.
    ///
    /// Returns the values that others inserted while the snapshot was read and that no lease holds, as
    /// [`reset`](Self::reset) does; none if nobody did.
    ///
    /// # Errors
    /// [`Error::Snapshot`] if the stream is no snapshot, damaged, cut off, of a newer format or of a tree with other pages, or
    /// if this tree is not empty; [`Error::Io`]. The tree is as before then.
    ///
    /// # Concurrency
    /// Readers see the tree before or after. What another thread is inserting at this moment may go, as with a reset.
    pub fn restore(&self, input: &mut impl Read) -> Result<Vec<V>> {
        let mut out = Vec::new();
        self.core.restore(input, &mut out)?;
        Ok(out)
    }
}
