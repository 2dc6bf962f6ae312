//! A tree that is read from a snapshot and that nobody knows until it is whole.

use crate::sync::atomic::Ordering::*;

use super::snapshot::{EDGE, END, PIECE, Pages, SPACE, SnapshotValue, TAIL};
use super::{Core, NEVER, Supply};
use crate::buffer::Buffer;
use crate::children::{self, Children, Entry};
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::frame::FrameReader;
use crate::key::{Atom, Value};
use crate::node::{BodyData, Part, Usage, empty};
use crate::protocol::Birth;

/// What `put_uses` wrote.
fn take_uses(from: &mut FrameReader<'_>) -> Result<Vec<Part>> {
    let count = from.u32()?;
    let mut parts: Vec<Part> = Vec::new();
    for _ in 0..count {
        let end = from.u32()?;
        let part = Part { end, usage: Usage { stamp: from.u64()?, base: from.u64()?, hits: from.u32()? } };
        if parts.last().is_some_and(|last| last.end >= end || last.usage.at_least(part.usage) != last.usage) {
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

/// A node whose children are still being read.
struct Open<A, V> {
    data: BodyData<A, V>,
    key: u32,
    usage: Usage,
    created: u64,
    priority: i32,
    children: Vec<Entry>,
    is_tail: bool,
    tail: u32,
    /// The record of its namespace, and whether it is the namespace itself.
    space: u32,
    is_space: bool,
}

/// A tree that nobody knows yet. Dropped, it leaves nothing behind.
pub(super) struct Plant<'a, A: Atom, V: Value> {
    core: &'a Core<A, V>,
    /// The nodes above what is read next, a root first.
    open: Vec<Open<A, V>>,
    /// Finished nodes, children before parents.
    nodes: Vec<u32>,
    anchors: Vec<u32>,
    table_bytes: usize,
    inflation: u64,
    /// Of these, the root and the root of the namespaces.
    roots: Vec<u32>,
    /// Records of namespaces.
    records: Vec<u32>,
    pages: Pages,
    num_atoms: u64,
    latest: u64,
}

impl<'a, A: Atom, V: SnapshotValue> Plant<'a, A, V> {
    pub(super) fn new(core: &'a Core<A, V>) -> Self {
        let pages = Pages::new(core.page());
        let mut plant = Plant {
            core,
            open: Vec::new(),
            nodes: Vec::new(),
            anchors: Vec::new(),
            table_bytes: 0,
            inflation: 0,
            roots: Vec::new(),
            records: Vec::new(),
            pages,
            num_atoms: 0,
            latest: 0,
        };
        plant.open_root();
        plant
    }

    fn open_root(&mut self) {
        let data = BodyData { out: self.core.new_branch(0), ..empty() };
        let (key, usage, created, priority) = (0, NEVER, 0, 0);
        let (children, space) = (Vec::new(), 0);
        let (is_tail, is_space) = (false, false);
        self.open.push(Open { data, key, usage, created, priority, children, is_tail, tail: 0, space, is_space });
    }

    pub(super) fn read(&mut self, mut from: FrameReader<'_>) -> Result<()> {
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
        self.inflation = from.u64()?;
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
        let ends = parts.first().is_some_and(|first| first.end > above || kind == SPACE)
            && parts.last().is_some_and(|last| last.end == data.end);
        if !ends {
            return Err(malformed(from, "the parts of an edge are not its own"));
        }
        self.latest = self.latest.max(parts[0].usage.stamp).max(created);
        let usage = parts[parts.len() - 1].usage;
        self.core.set_parts(&mut data, parts, usage);
        let (is_tail, is_space) = (kind == TAIL, kind == SPACE);
        let space = if is_space {
            self.records.push(self.core.records.alloc());
            self.records[self.records.len() - 1]
        } else {
            self.open.last().expect("the root is open").space
        };
        let children = Vec::new();
        self.open.push(Open { data, key, usage, created, priority, children, is_tail, tail: 0, space, is_space });
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
        let supply = Supply { values: &values, base: 0, priority: 0, born: None, checked: false };
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
        let (table, bytes) = children::many(&own.children);
        data.children = table;
        self.core.meter.fetch_add(bytes, Relaxed);
        self.table_bytes += bytes;
        let Open { key, usage, created, priority, .. } = *own;
        // Its anchor comes when it is published: a node without one is nobody's business, a compaction's least of all.
        let birth = Birth { anchor: 0, key, usage, created, era: 0, space: own.space, priority, deepest };
        let node = self.core.new_node(&birth, self.core.new_body(data), 0, leaf && !root);
        if out != 0 {
            self.core.branches.get(out).owner.store(u64::from(node), SeqCst);
        }
        self.nodes.push(node);
        self.anchors.push(anchor);
        if own.is_space {
            self.core.records.get(own.space).node.store(node, Relaxed);
        }
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
    pub(super) fn publish(mut self, out: &mut Vec<V>) {
        let (core, nodes) = (self.core, std::mem::take(&mut self.nodes));
        self.records.clear(); // they are the nodes' now
        let leaves: Vec<u32> = nodes.iter().copied().filter(|&id| core.nodes.get(id).load().queued()).collect();
        let seq = core.next_event();
        for (&id, &anchor) in nodes.iter().zip(&self.anchors) {
            core.nodes.get(id).anchor.store(anchor, Relaxed);
        }
        core.inflation.fetch_max(self.inflation, SeqCst);
        core.clock.fetch_max(self.latest, SeqCst);
        for &id in &nodes {
            let word = core.nodes.get(id).load();
            // SAFETY: nobody else knows the node yet, so its body is filled and stays.
            let len = unsafe { core.bodies.get(word.body()).data() }.len;
            core.count_in(id, len as isize, 0);
        }
        let guard = core.guard();
        core.emit(Event::Cleared { seq });
        self.tell(&nodes, &guard);
        let old = core.swap_roots(u64::from(self.roots[0]) << 32 | u64::from(self.roots[1]), &nodes, &guard);
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
        self.core.meter.fetch_sub(if self.nodes.is_empty() { 0 } else { self.table_bytes }, Relaxed);
        let guard = self.core.guard();
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
            self.core.discard_node(id, &guard);
        }
        // Those whose nodes were made went with them.
        for &record in self.records.iter().filter(|&&record| self.core.records.get(record).node.load(Relaxed) == 0) {
            self.core.records.free(record);
        }
    }
}
