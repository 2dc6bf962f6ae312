//! Weak references to nodes.

use crate::sync::atomic::Ordering::*;
use std::hash::Hash;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::lock::Path;
use super::{Core, Held, Lease, Match, RadixTree, Segment};
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::key::{Atom, Value};
use crate::namespace::Namespace;
use crate::node::PIN_LIMIT;

/// A place in the tree, held weakly: it keeps nothing alive, and using it after its node is gone is an
/// [`Error::StaleHandle`], never another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    tree: u32,
    node: u32,
    generation: u32,
    era: u32,
    end: u32,
}

impl Handle {
    /// Depth of the place, in atoms from the root.
    pub fn end_depth(&self) -> usize {
        self.end as usize
    }

    /// A number that no other node of the tree has at the same time.
    pub fn id(&self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.node)
    }
}

/// What can be said about a node.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// The node, at its full depth.
    pub handle: Handle,
    /// The node above, `None` for a root.
    pub parent: Option<Handle>,
    /// Where its edge starts, in atoms from the root.
    pub start: usize,
    /// Where its edge ends.
    pub end: usize,
    /// Number of children.
    pub num_children: usize,
    /// How many leases pin it.
    pub pins: usize,
    /// How often a lease took its whole edge.
    pub hits: usize,
    /// Logical time of the last use of its end.
    pub last_use: u64,
    /// Logical time at which it was made.
    pub created: u64,
    /// The priority it was inserted with.
    pub priority: i32,
}

impl<A: Atom, V: Value> Core<A, V> {
    pub(crate) fn handle(&self, node: u32, end: usize) -> Handle {
        let slot = self.nodes.get(node);
        Handle {
            tree: self.serial,
            node,
            generation: slot.generation.load(Acquire),
            era: slot.era.load(Relaxed),
            end: end as u32,
        }
    }

    /// The live node that holds the place now: the node itself or, after splits, a tail of it.
    fn follow(&self, handle: &Handle, guard: &Guard<'_>) -> Result<(u32, crate::node::Word)> {
        let stale = Error::StaleHandle { end_depth: handle.end_depth() };
        if handle.tree != self.serial
            || handle.era != self.era()
            || handle.node == 0
            || handle.node >= self.nodes.bound()
        {
            return Err(stale);
        }
        let mut id = handle.node;
        loop {
            let word = self.load(id, guard);
            // After the word: then a live word was of the same life, and the guard keeps it there.
            if id == handle.node && self.nodes.get(id).generation.load(Acquire) != handle.generation {
                return Err(stale);
            }
            if word.moved() {
                // Out of the tree afterwards, but perhaps not buried yet: no reason to look at it again.
                self.resolve(id, guard);
                if id == handle.node {
                    return Err(stale);
                }
                id = handle.node;
                continue;
            }
            if word.dead() || self.is_dropped(id) {
                return Err(stale);
            }
            let body = self.body(word, guard);
            if body.end >= handle.end {
                return if handle.end > body.begin() || handle.end == body.end { Ok((id, word)) } else { Err(stale) };
            }
            if body.tail == 0 {
                return Err(stale);
            }
            id = body.tail;
        }
    }

    /// The nodes from below the root to `id`, top first; `None` if one of them is gone.
    fn ancestry(&self, id: u32, guard: &Guard<'_>) -> Option<SmallVec<[u32; 16]>> {
        let mut nodes: SmallVec<[u32; 16]> = smallvec![id];
        let mut anchor = self.nodes.get(id).anchor.load(Relaxed);
        while anchor != 0 {
            let (parent, _) = self.locate(anchor, guard)?;
            nodes.push(parent);
            anchor = self.nodes.get(parent).anchor.load(Relaxed);
        }
        nodes.pop(); // the root
        nodes.reverse();
        Some(nodes)
    }

    /// Pins the nodes of an ancestry from the top, each while it still hangs below the one before.
    fn pin_ancestry(&self, nodes: &[u32], guard: &Guard<'_>) -> Result<Option<Path>> {
        let mut path = Path::new();
        let mut depth = 0;
        for &id in nodes {
            let node = self.nodes.get(id);
            let pinned = loop {
                let word = self.load(id, guard);
                if !word.live() {
                    break None;
                }
                let body = self.body(word, guard);
                if body.begin() != depth {
                    break None;
                }
                if word.pins() == PIN_LIMIT {
                    self.unpin(&path, guard);
                    return Err(Error::PinOverflow);
                }
                // A parent that is pinned keeps its live children; the first one hangs from a root.
                if node.swap(word, word.pinned()) {
                    if word.pins() == 0 {
                        self.count_in(id, 0, body.len as isize);
                    }
                    break Some(body.end);
                }
            };
            let Some(end) = pinned else {
                self.unpin(&path, guard);
                return Ok(None);
            };
            path.push(Held { node: id, end });
            depth = end;
        }
        Ok(Some(path))
    }

    pub(crate) fn info(&self, id: u32, guard: &Guard<'_>) -> Option<NodeInfo> {
        let node = self.nodes.get(id);
        let word = self.load(id, guard);
        if !word.live() {
            return None;
        }
        let body = self.body(word, guard);
        let page = self.page_use(id, word, guard);
        let anchor = node.anchor.load(Relaxed);
        let parent = if anchor == 0 { None } else { self.locate(anchor, guard) };
        Some(NodeInfo {
            handle: self.handle(id, body.end as usize),
            parent: parent.map(|(parent, word)| self.handle(parent, self.body(word, guard).end as usize)),
            start: body.begin() as usize,
            end: body.end as usize,
            num_children: body.children().map_or(0, |c| c.len()),
            pins: word.pins() as usize,
            hits: page.hits as usize,
            last_use: page.last_use,
            created: page.created,
            priority: page.priority,
        })
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// Pins the path to a place and marks it as used now. O(depth); no token is compared.
    ///
    /// # Errors
    /// [`Error::StaleHandle`] if the place is gone, [`Error::PinOverflow`].
    pub fn lock(&self, handle: &Handle) -> Result<Lease<A, V>> {
        let core = &self.core;
        let guard = core.guard();
        loop {
            let (id, _) = core.follow(handle, &guard)?;
            let Some(nodes) = core.ancestry(id, &guard) else { continue };
            let Some(path) = core.pin_ancestry(&nodes, &guard)? else { continue };
            let name = match nodes.first() {
                Some(&first) => core.body(core.load(first, &guard), &guard).name().map(Box::<[u8]>::from),
                None => None,
            };
            let ns = name.map_or_else(Namespace::default, Namespace::from_bytes);
            let length = path.last().map_or(0, |held| held.end as usize);
            let mut lease = Lease { core: Arc::clone(core), path, length, ns, born: core.tick() };
            if length < handle.end_depth() {
                continue; // cut by somebody before it was pinned: the place is in a tail now
            }
            lease.shrink(handle.end_depth())?;
            core.stamp_held(&lease.path, core.tick(), 1, &guard);
            return Ok(lease);
        }
    }

    /// The values from the root to a place.
    ///
    /// # Errors
    /// [`Error::StaleHandle`] if the place is gone.
    pub fn values(&self, handle: &Handle) -> Result<Match<A, V>> {
        let core = &self.core;
        let guard = core.guard();
        loop {
            let (id, _) = core.follow(handle, &guard)?;
            let Some(nodes) = core.ancestry(id, &guard) else { continue };
            let mut found = Match { length: 0, segments: Default::default(), handle: *handle };
            for id in nodes {
                let word = core.load(id, &guard);
                if !word.live() || core.body(word, &guard).begin() as usize != found.length {
                    break;
                }
                let body = core.body(word, &guard);
                let part = (handle.end_depth() - found.length).min(body.len as usize);
                found.segments.extend(Segment::of(body, 0, part));
                found.length += part;
            }
            if found.length == handle.end_depth() {
                return Ok(found);
            }
        }
    }

    /// The place where the edge above this one ends; `None` above the first edge.
    ///
    /// # Errors
    /// [`Error::StaleHandle`] if the place is gone.
    pub fn parent(&self, handle: &Handle) -> Result<Option<Handle>> {
        Ok(self.node(handle)?.parent)
    }

    /// What can be said about the node at a place.
    ///
    /// # Errors
    /// [`Error::StaleHandle`] if the place is gone.
    pub fn node(&self, handle: &Handle) -> Result<NodeInfo> {
        let guard = self.core.guard();
        let (id, _) = self.core.follow(handle, &guard)?;
        self.core.info(id, &guard).ok_or(Error::StaleHandle { end_depth: handle.end_depth() })
    }

    /// All nodes from the roots down, parents before children.
    ///
    /// # Concurrency
    /// Each node is as it was at one moment; the list as a whole only at rest.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.iter_nodes().collect()
    }
}
