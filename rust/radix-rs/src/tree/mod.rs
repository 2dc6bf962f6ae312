//! The radix tree: what it is made of and what every operation shares.

mod audit;
mod evict;
mod growth;
mod handle;
mod insert;
mod iterate;
mod lease;
mod lock;
mod many;
mod match_prefix;
mod namespaces;
mod pin;
mod plant;
mod reset;
mod sharing;
mod snapshot;
mod table;

use crate::sync::atomic::{AtomicU64, Ordering::*};
use crate::sync::{Line, Tally};
use std::fmt;
use std::sync::Arc;

use crate::arena::Arena;
use crate::buffer::Buffer;
use crate::children::Children;
use crate::epoch::{Domain, Guard};
use crate::error::{Error, Result};
use crate::event::{Event, EventSink};
use crate::evictable::Evictable;
use crate::key::{Atom, PageHash, Source, Value};
use crate::namespace::Namespace;
use crate::node::{BodyData, Branch, Node, Usage, Word, empty};
use crate::policy::Policy;
use crate::protocol::Birth;
use crate::space::Space;

pub(crate) use growth::Supply;
pub use handle::{Handle, NodeInfo};
pub use insert::Inserted;
pub use iterate::Nodes;
pub use lease::Lease;
pub(crate) use lock::Held;
pub use many::NewPrompt;
pub use match_prefix::{Match, Segment};
pub use namespaces::NamespaceStats;
use pin::Pins;
pub use pin::{Clock, Pin};
pub use snapshot::SnapshotValue;
pub(crate) use table::TableChange;

/// How a tree is set up.
///
/// # Examples
/// ```
/// use radix_rs::{RadixTree, TreeConfig};
/// let tree: RadixTree = RadixTree::new(TreeConfig { page_size: 16, ..Default::default() })?;
/// assert_eq!(tree.page_size(), 16);
/// # Ok::<(), radix_rs::Error>(())
/// ```
pub struct TreeConfig<A = u32, V = i32> {
    /// Atoms per page: a power of two from 1 to 1024. Only whole pages are cached.
    pub page_size: usize,
    /// Which leaf is evicted first.
    pub policy: Policy,
    /// Who is told what is stored and removed; nothing is spent on it when absent.
    pub events: Option<Arc<dyn EventSink<A, V>>>,
    /// How pages become keys of child tables.
    pub page_hash: PageHash,
    /// After so many inserts as many nodes are looked at for halves that a race left apart; 0: never.
    pub compact_every: usize,
    /// The time by which pins end; by default that of the system.
    pub clock: Option<Clock>,
}

impl<A, V> Default for TreeConfig<A, V> {
    fn default() -> Self {
        TreeConfig {
            page_size: 1,
            policy: Policy::Lru,
            events: None,
            page_hash: PageHash::Mix,
            compact_every: 1000,
            clock: None,
        }
    }
}

/// The use of a root.
const NEVER: Usage = Usage { stamp: 0, base: 0, hits: 0 };

/// Numbers the trees of a process, so that a handle names its own.
static SERIAL: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// The tree behind all its handles.
pub(crate) struct Core<A, V> {
    pub(crate) nodes: Arena<Node>,
    pub(crate) bodies: Arena<crate::node::Body<A, V>>,
    pub(crate) branches: Arena<Branch>,
    pub(crate) records: Arena<Space>,
    pub(crate) index: Evictable,
    pub(crate) policy: Policy,
    pub(crate) num_nodes: Line<Tally>,
    /// Bytes of edges and child tables.
    pub(crate) meter: Arc<Tally>,
    pub(crate) inserted: Line<Tally>,
    pub(crate) evicted: Line<Tally>,
    pub(crate) copied: Line<Tally>,
    pub(crate) serial: u32,
    domain: Domain,
    /// `{ root 32 | root of the namespaces 32 }`, exchanged whole by a reset.
    roots: AtomicU64,
    /// Only for the checker's control that counts the era apart from the roots.
    #[cfg(any(radix_loom, radix_shuttle))]
    counted_resets: crate::sync::atomic::AtomicU32,
    /// `{ cached 32 | protected 32 }`: one word, so that no reader ever sees more protected than cached.
    counts: Line<AtomicU64>,
    clock: Line<AtomicU64>,
    /// What the policy adds to whatever is used from now on.
    pub(crate) inflation: AtomicU64,
    event_seq: Line<AtomicU64>,
    events: Option<Arc<dyn EventSink<A, V>>>,
    page: usize,
    hash: PageHash,
    pub(crate) pins: Pins,
    compact_every: usize,
    /// Where the next compaction goes on.
    pub(crate) compacted: Line<Tally>,
    stores: Line<Tally>,
}

/// A lock-free radix tree that maps sequences of atoms (token ids) to values (KV slots), one value per atom.
///
/// Cheap to clone: clones are the same tree. It is `Send + Sync`; every method takes `&self`.
///
/// # Concurrency
/// With any one thread stopped at any instruction, all others finish their operations. [`match_prefix`] takes no lock
/// and changes nothing. Under races a match may be shorter than a serial run would give, never longer or wrong.
///
/// # Examples
/// ```
/// use radix_rs::{Namespace, RadixTree, TreeConfig};
///
/// let tree: RadixTree = RadixTree::new(TreeConfig::default())?;
/// let ns = Namespace::default();
/// tree.insert(&[1, 2, 3, 4][..], &[10, 11, 12, 13], &ns)?;
/// let hit = tree.match_prefix(&[1, 2, 3, 9][..], &ns);
/// assert_eq!(hit.length(), 3);
/// assert_eq!(hit.segments()[0].as_slice(), [10, 11, 12]);
/// # Ok::<(), radix_rs::Error>(())
/// ```
///
/// [`match_prefix`]: RadixTree::match_prefix
pub struct RadixTree<A: Atom = u32, V: Value = i32> {
    pub(crate) core: Arc<Core<A, V>>,
}

impl<A: Atom, V: Value> Clone for RadixTree<A, V> {
    fn clone(&self) -> Self {
        RadixTree { core: self.core.clone() }
    }
}

impl<A: Atom, V: Value> fmt::Debug for RadixTree<A, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RadixTree")
            .field("page_size", &self.page_size())
            .field("cached_tokens", &self.cached_tokens())
            .field("protected_tokens", &self.protected_tokens())
            .field("num_nodes", &self.num_nodes())
            .finish()
    }
}

/// A child that a walk may go on to.
pub(crate) struct Found {
    pub(crate) node: u32,
    pub(crate) word: Word,
    /// Atoms of its edge that match, in whole pages.
    pub(crate) common: usize,
}

/// What a walk finds below a node.
pub(crate) enum Below {
    Child(Found),
    /// No child with this page; a tombstone that a new child may replace.
    Nothing(Option<u32>),
    /// A merge was finished meanwhile: load the node again.
    Again,
}

impl<A: Atom, V: Value> Core<A, V> {
    fn new(config: TreeConfig<A, V>) -> Result<Self> {
        let page = config.page_size;
        if !page.is_power_of_two() || page > 1024 {
            return Err(Error::InvalidInput(format!("page_size is {page}; it must be a power of two from 1 to 1024")));
        }
        let core = Core {
            nodes: Arena::new(),
            bodies: Arena::new(),
            branches: Arena::new(),
            records: Arena::new(),
            index: Evictable::new(),
            policy: config.policy,
            num_nodes: Line(Tally::new(0)),
            meter: Arc::new(Tally::new(0)),
            inserted: Line(Tally::new(0)),
            evicted: Line(Tally::new(0)),
            copied: Line(Tally::new(0)),
            serial: SERIAL.fetch_add(1, Relaxed),
            domain: Domain::new(),
            roots: AtomicU64::new(0),
            #[cfg(any(radix_loom, radix_shuttle))]
            counted_resets: crate::sync::atomic::AtomicU32::new(0),
            counts: Line(AtomicU64::new(0)),
            clock: Line(AtomicU64::new(1)),
            inflation: AtomicU64::new(0),
            event_seq: Line(AtomicU64::new(0)),
            events: config.events,
            page,
            hash: config.page_hash,
            pins: Pins::new(config.clock),
            compact_every: config.compact_every,
            compacted: Line(Tally::new(0)),
            stores: Line(Tally::new(0)),
        };
        core.roots.store(core.new_roots(0), SeqCst);
        Ok(core)
    }

    /// A fresh root and a fresh root of the namespaces.
    fn new_roots(&self, era: u32) -> u64 {
        let root = || {
            let birth = Birth { anchor: 0, key: 0, usage: NEVER, created: 0, era, space: 0, priority: 0, deepest: 0 };
            let node = self.new_node(&birth, 0, 0, false);
            let branch = self.new_branch(node);
            let body = self.new_body(BodyData { out: branch, ..empty() });
            self.nodes.get(node).word.store(Word::new(body, 0, false).0, SeqCst);
            node
        };
        u64::from(root()) << 32 | u64::from(root())
    }

    pub(crate) fn guard(&self) -> Guard<'_> {
        self.domain.pin()
    }
    pub(crate) fn root(&self) -> u32 {
        (self.roots.load(SeqCst) >> 32) as u32
    }
    pub(crate) fn spaces(&self) -> u32 {
        self.roots.load(SeqCst) as u32
    }
    pub(crate) fn is_root(&self, id: u32) -> bool {
        let roots = self.roots.load(SeqCst);
        id == roots as u32 || id == (roots >> 32) as u32
    }
    /// The reset that the roots were made by; nodes of another era are on their way out. It changes with the roots, in one
    /// swap, whatever the order in which resets that run side by side get there. The caller holds a guard.
    pub(crate) fn era(&self) -> u32 {
        #[cfg(any(radix_loom, radix_shuttle))]
        if crate::sync::broken("the era changes with the roots") {
            return self.counted_resets.load(SeqCst);
        }
        self.nodes.get(self.root()).era.load(Relaxed)
    }
    /// Whether a node was left behind by a reset or with a namespace that was dropped.
    pub(crate) fn is_left_over(&self, id: u32) -> bool {
        self.nodes.get(id).era.load(Relaxed) != self.era() || self.is_dropped(id)
    }
    /// The next logical time.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }
    /// What the policy adds to whatever is used now.
    pub(crate) fn inflation(&self) -> u64 {
        self.inflation.load(Acquire)
    }
    /// Counts an insert; now and then the one that counts compacts a little, so that each pays for one node.
    pub(crate) fn stored_one(&self) {
        let every = self.compact_every;
        if every > 0 && self.stores.fetch_add(1, Relaxed) % every == every - 1 {
            self.compact(every);
        }
    }
    pub(crate) fn floor(&self, n: usize) -> usize {
        n & !(self.page - 1)
    }
    pub(crate) fn page(&self) -> usize {
        self.page
    }

    /// Cached and protected atoms, from one moment.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let counts = self.counts.load(Acquire);
        ((counts >> 32) as usize, counts as u32 as usize)
    }

    /// Looks for the child whose edge starts with the page of `key` at `at`, for a writer: finishes merges it meets.
    pub(crate) fn below<S: Source<A> + ?Sized>(
        &self,
        body: &BodyData<A, V>,
        key: &S,
        at: usize,
        upto: usize,
        guard: &Guard<'_>,
    ) -> Below {
        let Some(table) = body.children() else { return Below::Nothing(None) };
        let Some(hash) = self.hash.key(key, at, self.page) else { return Below::Nothing(None) };
        let mut dead = None;
        for node in table.with_key(hash) {
            let word = self.load(node, guard);
            if word.moved() {
                self.resolve(node, guard);
                return Below::Again;
            }
            if word.dead() {
                dead = Some(node);
                continue;
            }
            let edge = self.body(word, guard).atoms();
            let edge = &edge[..edge.len().min(upto - at)];
            let common = self.floor(key.common_prefix(at, edge));
            if common > 0 {
                return Below::Child(Found { node, word, common });
            }
        }
        Below::Nothing(dead)
    }

    pub(crate) fn page_key(&self, atoms: &[A]) -> u32 {
        self.hash.key(atoms, 0, self.page).expect("atoms of an edge are atoms")
    }

    /// The node of a namespace, if there is one. Loads only. The default namespace is the root itself.
    pub(crate) fn find_space(&self, ns: &Namespace, guard: &Guard<'_>) -> Option<u32> {
        let Some(name) = ns.as_bytes() else { return Some(self.root()) };
        let word = self.nodes.get(self.spaces()).load();
        if word.dead() {
            return None; // a reset replaced it between the two loads
        }
        let table = self.body(word, guard).children()?;
        table.with_key(self.hash.name(name)).find(|&node| {
            let word = self.nodes.get(node).load();
            !word.dead() && self.body(word, guard).name() == Some(name) && !self.is_dropped(node)
        })
    }

    /// The node of a namespace, found or made. It is never split or merged, only evicted when it is empty.
    pub(crate) fn make_space(&self, ns: &Namespace, guard: &Guard<'_>) -> u32 {
        let Some(name) = ns.as_bytes() else { return self.root() };
        let key = self.hash.name(name);
        loop {
            if let Some(node) = self.find_space(ns, guard) {
                return node;
            }
            let spaces = self.spaces();
            let word = self.load(spaces, guard);
            if word.dead() {
                continue;
            }
            let body = self.body(word, guard);
            let mut dead = None;
            let mut twin = false;
            for node in body.children().into_iter().flat_map(|table| table.with_key(key)) {
                let child = self.nodes.get(node).load();
                if child.dead() || self.is_dropped(node) {
                    dead = Some(node);
                } else {
                    twin |= self.body(child, guard).name() == Some(name);
                }
            }
            if twin {
                continue; // made by somebody since we looked
            }
            let era = self.nodes.get(spaces).era.load(Relaxed);
            let now = self.tick();
            let space = self.records.alloc();
            let usage = Usage { stamp: now, base: self.inflation(), hits: 0 };
            let birth = Birth { anchor: body.out, key, usage, created: now, era, space, priority: 0, deepest: 0 };
            let edge = BodyData { buffer: Some(Buffer::named(name, &self.meter)), ..empty() };
            let node = self.new_node(&birth, self.new_body(edge), 0, true);
            self.records.get(space).node.store(node, Relaxed);
            let change = self.with_child(body, key, node, dead);
            let new_body = self.new_body(BodyData { children: change.table(), ..body.again() });
            if self.nodes.get(spaces).swap(word, word.with_body(new_body)) {
                self.retire_body(word.body(), self.settle(change), guard);
                // one that was dropped and lives on is retired by whoever evicts it
                if let Some(old) = dead.filter(|&old| self.nodes.get(old).load().dead()) {
                    self.retire_node(old, guard);
                }
                self.enqueue(node, true, guard);
                return node;
            }
            self.bodies.free(new_body);
            change.discard();
            self.discard_node(node, guard);
        }
    }

    /// Both halves of an edge cut after `at` atoms: ranges of buffers. The smaller half gets a buffer of its own, and
    /// both do when they would keep alive a buffer that is mostly empty.
    pub(crate) fn cut(&self, body: &BodyData<A, V>, at: usize) -> [(Buffer<A, V>, u32); 2] {
        let buffer = body.buffer.as_ref().expect("an edge that can be cut has atoms");
        let at = at as u32;
        let copy = |start: u32, len: u32| {
            let part = (buffer.atoms(body.start + start, len), buffer.values(body.start + start, len));
            (Buffer::new(len as usize, &[part], &self.meter), 0)
        };
        let rest = body.len - at;
        let wasteful = at.max(rest) < buffer.cap() / 2;
        let upper = if at < rest || wasteful { copy(0, at) } else { (buffer.clone(), body.start) };
        let lower = if at >= rest || wasteful { copy(at, rest) } else { (buffer.clone(), body.start + at) };
        [upper, lower]
    }

    /// The content of two fragments as one edge.
    pub(crate) fn joined(&self, above: &BodyData<A, V>, below: &BodyData<A, V>, guard: &Guard<'_>) -> BodyData<A, V> {
        let mut data = above.again();
        data.end = below.end;
        data.len = above.len + below.len;
        let (Some(buffer), end) = (&above.buffer, above.start + above.len) else { return data };
        // Often the lower half is a copy of what still stands behind the upper one.
        let still_there = buffer.written() >= end + below.len
            && buffer.atoms(end, below.len) == below.atoms()
            && buffer.values(end, below.len) == below.values();
        if still_there {
            return data;
        }
        if buffer.append(end, below.atoms(), below.values()) {
            self.copied.fetch_add(below.len as usize, Relaxed);
            return data;
        }
        self.copied.fetch_add(data.len as usize, Relaxed);
        let parts = [(above.atoms(), above.values()), (below.atoms(), below.values())];
        let room = data.len + self.fragments_below(below, guard);
        data.buffer = Some(Buffer::new(room as usize, &parts, &self.meter));
        data.start = 0;
        data
    }

    /// Length of the fragments below that will be joined next, so that a chain of them is copied once.
    fn fragments_below(&self, body: &BodyData<A, V>, guard: &Guard<'_>) -> u32 {
        let (mut length, mut body) = (0, body);
        while body.tail != 0 && body.children().and_then(Children::only) == Some(body.tail) {
            let word = self.load(body.tail, guard);
            if !word.live() || word.pins() > 0 {
                break;
            }
            body = self.body(word, guard);
            length += body.len;
        }
        length
    }

    pub(crate) fn has_events(&self) -> bool {
        self.events.is_some()
    }

    pub(crate) fn next_event(&self) -> u64 {
        if self.has_events() { self.event_seq.fetch_add(1, SeqCst) } else { 0 }
    }

    pub(crate) fn emit(&self, event: Event<'_, A, V>) {
        if let Some(sink) = &self.events {
            sink.emit(event);
        }
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// An empty tree.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the page size is not a power of two from 1 to 1024.
    pub fn new(config: TreeConfig<A, V>) -> Result<Self> {
        Ok(RadixTree { core: Arc::new(Core::new(config)?) })
    }

    /// Atoms per page.
    pub fn page_size(&self) -> usize {
        self.core.page
    }

    /// Atoms in the tree. O(1).
    ///
    /// # Concurrency
    /// Exact at rest. While others work it may count what is about to be published or was just taken away.
    pub fn cached_tokens(&self) -> usize {
        self.core.counts().0
    }

    /// Cached atoms that at least one lease covers. O(1).
    pub fn protected_tokens(&self) -> usize {
        self.core.counts().1
    }

    /// Cached atoms that no lease covers: what `evict` can give back. O(1).
    pub fn evictable_tokens(&self) -> usize {
        let (cached, protected) = self.core.counts();
        cached - protected
    }

    /// Nodes in use, the two roots included.
    pub fn num_nodes(&self) -> usize {
        self.core.num_nodes.load(Relaxed)
    }

    /// Memory held for the tree: nodes, bodies, branches, child tables and edges, in bytes, without the allocator's own.
    pub fn size_bytes(&self) -> usize {
        let core = &self.core;
        core.nodes.size_bytes()
            + core.bodies.size_bytes()
            + core.branches.size_bytes()
            + core.records.size_bytes()
            + core.meter.load(Relaxed)
            + core.index.size_bytes()
    }
}

impl<A, V> Drop for Core<A, V> {
    fn drop(&mut self) {
        // Nobody holds a guard. Every slot that was handed out is looked at once: no recursion, whatever the depth.
        let bound = self.nodes.bound();
        for id in 1..bound {
            let node = self.nodes.get(id);
            let word = node.load();
            if word.dead() || node.is_retired() {
                continue;
            }
            // SAFETY: `&mut self`: the body of a live node is filled and nobody else looks.
            let data = unsafe { self.bodies.get(word.body()).data() };
            // SAFETY: the newest body owns its table, and each live node is visited once.
            unsafe { crate::children::Children::free_all(data.children) };
        }
        for id in 1..self.bodies.bound() {
            // SAFETY: `&mut self`; recycling an empty slot does nothing.
            unsafe { crate::arena::Item::recycle(self.bodies.get(id)) };
        }
    }
}
