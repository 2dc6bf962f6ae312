//! A tree as a stream of bytes, and back.
//!
//! After the [frame](crate::frame)'s head come `{ page size u32 | bytes of an atom u8 | bytes of a value u8 }` and a record for
//! each node, parents before children, first those of the default namespace: `{ kind u8 | depth in nodes u32 | created u64 |
//! priority i32 | uses }`, then what the kind has. The last record counts what came before it. All numbers are
//! little-endian.
//!
//! Both ways hold one edge and, for each node above it, its siblings that are still to come; never a second tree.

use crate::sync::atomic::Ordering::*;
use std::collections::HashMap;
use std::io::{Read, Write};

use super::plant::Plant;
use super::{Core, RadixTree};
use crate::children::Children;
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::frame::{FrameReader, FrameWriter};
use crate::key::{Atom, Value};
use crate::node::{BodyData, Part, Usage, empty};

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

pub(super) const END: u8 = 0;
pub(super) const SPACE: u8 = 1;
pub(super) const EDGE: u8 = 2;
/// The lower half of an edge that was cut for a sibling: one edge again when that goes.
pub(super) const TAIL: u8 = 3;

/// Edges are read and written by so many bytes at a time.
pub(super) const PIECE: usize = 1 << 12;

/// The pages of slots met so far: a bit for each, in blocks as they are needed.
pub(super) struct Pages {
    page: i64,
    blocks: HashMap<u32, Box<[u64; 64]>>,
}

impl Pages {
    pub(super) fn new(page: usize) -> Self {
        Pages { page: page as i64, blocks: HashMap::new() }
    }

    /// Notes the pages of these values; the slot of one that was noted before.
    pub(super) fn add<V: Value>(&mut self, values: &[V]) -> std::result::Result<(), i64> {
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

/// How the parts of an edge were used: `{ count u32 | { end u32 | last use u64 | inflation u64 | hits u32 }.. }`, ends ascending,
/// uses never. All that is known of single parts of an edge goes through here and through `take_uses`.
fn put_uses(to: &mut FrameWriter<'_>, parts: &[Part]) -> Result<()> {
    to.put(&(parts.len() as u32).to_le_bytes())?;
    for Part { end, usage } in parts {
        to.put(&end.to_le_bytes())?;
        to.put(&usage.stamp.to_le_bytes())?;
        to.put(&usage.base.to_le_bytes())?;
        to.put(&usage.hits.to_le_bytes())?;
    }
    Ok(())
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
        to.put(&self.inflation().to_le_bytes())?;
        to.finish()
    }

    /// The live children of a body, to be written in their order.
    fn pend<'g>(&'g self, body: &BodyData<A, V>, depth: u32, todo: &mut Vec<Pending<'g, A, V>>, guard: &'g Guard<'_>) {
        let at = todo.len();
        for entry in body.children().into_iter().flat_map(Children::iter) {
            let word = self.nodes.get(entry.node).load();
            if !word.dead() && !self.is_dropped_space(entry.node) {
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
        let mut parts = Vec::new();
        let mut pieces = vec![next.body];
        let mut id = next.node;
        loop {
            let (fragment, last) = (self.nodes.get(id), pieces[pieces.len() - 1]);
            parts.extend(last.parts(fragment.usage()));
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
        // As a join would have it.
        let own = Usage { hits: node.usage().hits, ..parts[parts.len() - 1].usage };
        self.set_parts(&mut whole, parts, own);

        let kind = match (next.body.name(), next.tail) {
            (Some(_), _) => SPACE,
            (None, true) => TAIL,
            (None, false) => EDGE,
        };
        to.put(&[kind])?;
        to.put(&next.depth.to_le_bytes())?;
        to.put(&node.created.load(Relaxed).to_le_bytes())?;
        to.put(&node.priority.load(Relaxed).to_le_bytes())?;
        put_uses(to, &whole.parts(own))?;
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
