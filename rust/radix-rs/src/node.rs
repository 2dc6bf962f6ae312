//! The pieces the protocol works on: the word, the node, its immutable body, and when parts of an edge were used.

use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::ptr::null_mut;

use crate::arena::Item;
use crate::buffer::Buffer;
use crate::children::{Children, Page, Scrap};
use crate::policy::PageUse;

/// Everything about a node that must change together: `{ body id 32 | pins 28 | queued | fixing | moved }`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word(pub(crate) u64);

pub(crate) const PIN_LIMIT: u32 = (1 << 28) - 1;
const QUEUED: u64 = 1 << 60;
const FIXING: u64 = 1 << 61;
const MOVED: u64 = 1 << 62;

/// The word of an evicted or merged node, final: no body.
pub(crate) const DEAD: Word = Word(0);

impl Word {
    #[inline]
    pub(crate) fn new(body: u32, pins: u32, queued: bool) -> Self {
        Word(u64::from(body) | u64::from(pins) << 32 | if queued { QUEUED } else { 0 })
    }
    #[inline]
    pub(crate) fn body(self) -> u32 {
        self.0 as u32
    }
    #[inline]
    pub(crate) fn pins(self) -> u32 {
        (self.0 >> 32) as u32 & PIN_LIMIT
    }
    /// The index has exactly one entry for the node (or its pusher is on the way).
    #[inline]
    pub(crate) fn queued(self) -> bool {
        self.0 & QUEUED != 0
    }
    /// The branch below still names the node that ended there before; whoever meets this helps.
    #[inline]
    pub(crate) fn fixing(self) -> bool {
        self.0 & FIXING != 0
    }
    /// Frozen by a merge: the owner of its branch decides what becomes of it.
    #[inline]
    pub(crate) fn moved(self) -> bool {
        self.0 & MOVED != 0
    }
    #[inline]
    pub(crate) fn dead(self) -> bool {
        self.body() == 0
    }
    #[inline]
    pub(crate) fn live(self) -> bool {
        !self.dead() && !self.moved()
    }
    #[inline]
    pub(crate) fn pinned(self) -> Word {
        Word(self.0 + (1 << 32))
    }
    pub(crate) fn with_queued(self, on: bool) -> Word {
        Word(if on { self.0 | QUEUED } else { self.0 & !QUEUED })
    }
    pub(crate) fn with_fixing(self, on: bool) -> Word {
        Word(if on { self.0 | FIXING } else { self.0 & !FIXING })
    }
    pub(crate) fn with_moved(self) -> Word {
        Word(self.0 | MOVED)
    }
    pub(crate) fn with_body(self, body: u32) -> Word {
        Word(self.0 & !0xffff_ffff | u64::from(body))
    }
}

/// In a node's `deepest`: handed to the epochs. Paths are shorter.
const RETIRED: u32 = 1 << 31;

/// A node: an identity that keeps the upper end of an edge for life. One cache line.
pub(crate) struct Node {
    pub(crate) word: AtomicU64,
    /// Last use of the whole edge; parts of it may have been used later, see [`Ages`].
    pub(crate) stamp: AtomicU64,
    pub(crate) created: AtomicU64,
    /// The policy's inflation at the last use of the whole edge.
    pub(crate) base: AtomicU64,
    /// Rank under which the index knows the node, in two halves; written by whoever owns the entry.
    pub(crate) score: AtomicU64,
    pub(crate) scored_use: AtomicU64,
    /// The branch it hangs from; 0 for a root. Final.
    pub(crate) anchor: AtomicU32,
    /// Key of its first page or name. Final.
    pub(crate) key: AtomicU32,
    /// Odd while the slot is in use; a handle remembers it.
    pub(crate) generation: AtomicU32,
    /// The reset that the node was born after.
    pub(crate) era: AtomicU32,
    /// The record of its namespace; 0 for the default one. Final.
    pub(crate) space: AtomicU32,
    /// Uses of the whole edge; parts of it may have more, see [`Ages`].
    pub(crate) hits: AtomicU32,
    pub(crate) priority: AtomicI32,
    /// The deepest end its edge ever had, with what became its tails. A node that ends above this does not grow in place,
    /// so that a handle to what was lost stays stale. Its top bit says that the node was handed to the epochs.
    deepest: AtomicU32,
    link: AtomicU32,
}

impl Node {
    #[inline]
    pub(crate) fn load(&self) -> Word {
        Word(self.word.load(SeqCst))
    }
    #[inline]
    pub(crate) fn swap(&self, old: Word, new: Word) -> bool {
        self.word.compare_exchange(old.0, new.0, SeqCst, Relaxed).is_ok()
    }
    /// True for the first caller only.
    pub(crate) fn retire_once(&self) -> bool {
        self.deepest.fetch_or(RETIRED, AcqRel) & RETIRED == 0
    }
    pub(crate) fn is_retired(&self) -> bool {
        self.deepest.load(Acquire) & RETIRED != 0
    }
    /// The deepest end its edge ever had.
    pub(crate) fn deepest(&self) -> u32 {
        self.deepest.load(Relaxed) & !RETIRED
    }
    pub(crate) fn set_deepest(&self, deepest: u32) {
        self.deepest.store(deepest, Relaxed);
    }
    pub(crate) fn deepen(&self, end: u32) {
        self.deepest.fetch_max(end, Relaxed);
    }
    /// What uses of the whole edge left behind.
    pub(crate) fn usage(&self) -> Usage {
        let order = if crate::sync::broken("uses are read in the total order") { Acquire } else { SeqCst };
        Usage { stamp: self.stamp.load(order), base: self.base.load(order), hits: self.hits.load(order) }
    }
    /// What a policy may look at in a page of the edge.
    pub(crate) fn page_use(&self, usage: Usage, depth: u32) -> PageUse {
        PageUse {
            last_use: usage.stamp,
            created: self.created.load(Relaxed),
            hits: usage.hits,
            priority: self.priority.load(Relaxed),
            depth,
            inflation: usage.base,
        }
    }
    /// Marks the whole edge as used.
    pub(crate) fn mark(&self, now: u64, base: u64, hits: u32) {
        // most policies never inflate, and what goes on being used has no new use: no need for locked accesses then
        if base > 0 {
            self.base.fetch_max(base, SeqCst);
        }
        if hits > 0 {
            self.hits.fetch_add(hits, SeqCst);
        }
        self.stamp.fetch_max(now, SeqCst);
    }
}

// SAFETY: only atomics: all zero is valid and owns nothing.
unsafe impl Item for Node {
    #[cfg(any(radix_loom, radix_shuttle))]
    fn vacant() -> Self {
        Node {
            word: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
            created: AtomicU64::new(0),
            base: AtomicU64::new(0),
            score: AtomicU64::new(0),
            scored_use: AtomicU64::new(0),
            anchor: AtomicU32::new(0),
            key: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            era: AtomicU32::new(0),
            space: AtomicU32::new(0),
            hits: AtomicU32::new(0),
            priority: AtomicI32::new(0),
            deepest: AtomicU32::new(0),
            link: AtomicU32::new(0),
        }
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
    unsafe fn recycle(&self) -> usize {
        self.generation.fetch_add(1, AcqRel);
        self.word.store(DEAD.0, Release);
        self.hits.store(0, Relaxed);
        self.deepest.store(0, Release);
        0
    }
}

/// A point on a path with an identity for life: whose edge ends here. There are no parent pointers.
pub(crate) struct Branch {
    /// `{ node 32 | version 32 }`.
    pub(crate) owner: AtomicU64,
    link: AtomicU32,
}

impl Branch {
    pub(crate) fn owner(&self) -> (u32, u64) {
        let cell = self.owner.load(SeqCst);
        (cell as u32, cell)
    }
    /// Moves the ownership on from exactly this state.
    pub(crate) fn hand_over(&self, cell: u64, to: u32) {
        let new = ((cell >> 32) + 1) << 32 | u64::from(to);
        let cell = if crate::sync::broken("an owner moves once") { self.owner.load(SeqCst) } else { cell };
        let _ = self.owner.compare_exchange(cell, new, SeqCst, Relaxed);
    }
}

// SAFETY: only atomics.
unsafe impl Item for Branch {
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
    unsafe fn recycle(&self) -> usize {
        0
    }
    #[cfg(any(radix_loom, radix_shuttle))]
    fn vacant() -> Self {
        Branch { owner: AtomicU64::new(0), link: AtomicU32::new(0) }
    }
}

/// How a page was used: what the order of eviction is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    /// Logical time of the last use.
    pub(crate) stamp: u64,
    /// The policy's inflation then.
    pub(crate) base: u64,
    /// Number of uses.
    pub(crate) hits: u32,
}

impl Usage {
    /// Used at least as much as what hangs below.
    pub(crate) fn at_least(self, below: Usage) -> Usage {
        Usage { stamp: self.stamp.max(below.stamp), base: self.base.max(below.base), hits: self.hits.max(below.hits) }
    }
}

/// The pages of an edge up to depth `end` that were used in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) end: u32,
    pub(crate) usage: Usage,
}

/// How the parts of an edge were used, where that differs: ends ascending, use never ascending, the last end is the
/// edge's. Hits count on top of the node's. Times hold only while the node's own stamp is not newer than the first of these.
///
/// This keeps the eviction order exact on pages although edges are split and joined: a join of two fragments forgets
/// nothing, and a use that ends inside an edge needs no split.
///
/// Thin, since few edges have any.
pub(crate) type Ages = Box<Box<[Part]>>;

/// What put other nodes where a branch still names an old one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fix {
    Split,
    Join,
    Rehang,
}

/// What the branch below a node has to be told, see `protocol::help`: `branch` goes from one owner to another. Ids leave
/// their top bit free; there the kind is.
#[derive(Clone, Copy)]
pub(crate) struct Repair {
    branch: NonZeroU32,
    from: u32,
    to: u32,
}

const KIND: u32 = 1 << 31;

impl Repair {
    /// `None` if there is no branch to be told.
    pub(crate) fn new(fix: Fix, branch: u32, from: u32, to: u32) -> Option<Self> {
        let mark = |id: u32, kind: Fix| if fix == kind { id | KIND } else { id };
        Some(Repair { branch: NonZeroU32::new(branch)?, from: mark(from, Fix::Join), to: mark(to, Fix::Rehang) })
    }
    pub(crate) fn fix(self) -> Fix {
        match (self.from & KIND != 0, self.to & KIND != 0) {
            (true, _) => Fix::Join,
            (_, true) => Fix::Rehang,
            _ => Fix::Split,
        }
    }
    pub(crate) fn branch(self) -> u32 {
        self.branch.get()
    }
    pub(crate) fn from(self) -> u32 {
        self.from & !KIND
    }
    pub(crate) fn to(self) -> u32 {
        self.to & !KIND
    }
}

/// The immutable content of a node. A change makes a new body; only the word says which one counts.
pub(crate) struct BodyData<A, V> {
    pub(crate) buffer: Option<Buffer<A, V>>,
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// Depth of the end of the edge, in atoms from the root.
    pub(crate) end: u32,
    /// The lower half of an own split, while it is a child.
    pub(crate) tail: u32,
    /// The branch at the end of the edge, if anything ever hung there.
    pub(crate) out: u32,
    pub(crate) children: *mut Page,
    pub(crate) ages: Option<Ages>,
    pub(crate) fix: Option<Repair>,
}

impl<A: Copy, V: Copy> BodyData<A, V> {
    #[inline]
    pub(crate) fn atoms(&self) -> &[A] {
        self.buffer.as_ref().map_or(&[], |b| b.atoms(self.start, self.len))
    }
    #[inline]
    pub(crate) fn values(&self) -> &[V] {
        self.buffer.as_ref().map_or(&[], |b| b.values(self.start, self.len))
    }
    pub(crate) fn name(&self) -> Option<&[u8]> {
        self.buffer.as_ref().and_then(|b| b.name())
    }
    #[inline]
    pub(crate) fn children(&self) -> Option<Children<'_>> {
        // SAFETY: the table is freed only when no guard can reach a body that names it.
        unsafe { Children::new(self.children) }
    }
    #[inline]
    pub(crate) fn is_leaf(&self) -> bool {
        self.children.is_null()
    }
    pub(crate) fn begin(&self) -> u32 {
        self.end - self.len
    }
    /// The same content, to be changed; nothing to fix.
    pub(crate) fn again(&self) -> Self {
        BodyData { buffer: self.buffer.clone(), ages: self.ages.clone(), fix: None, ..*self }
    }
    /// The parts of the edge with their use, given what the node itself says.
    pub(crate) fn parts(&self, own: Usage) -> Vec<Part> {
        match &self.ages {
            Some(ages) => ages.iter().map(|part| Part { end: part.end, usage: part.used(ages, own) }).collect(),
            None => vec![Part { end: self.end, usage: own }],
        }
    }
    /// The use of the end of the edge.
    pub(crate) fn end_usage(&self, own: Usage) -> Usage {
        match &self.ages {
            Some(ages) => ages[ages.len() - 1].used(ages, own),
            None => own,
        }
    }
    /// Sets `ages` from parts, in the shortest form for a node with this use of its own.
    pub(crate) fn set_parts(&mut self, mut parts: Vec<Part>, own: Usage) {
        debug_assert!(parts.is_sorted_by(|a, b| a.end < b.end), "a part of no pages");
        for i in (1..parts.len()).rev() {
            parts[i - 1].usage = parts[i - 1].usage.at_least(parts[i].usage);
        }
        let mut kept: Vec<Part> = Vec::with_capacity(parts.len());
        for part in parts {
            match kept.last_mut() {
                Some(last) if last.usage == part.usage => last.end = part.end,
                _ => kept.push(part),
            }
        }
        let plain = match &kept[..] {
            [] => true,
            [one] => one.usage.stamp <= own.stamp && one.usage.hits == own.hits,
            _ => false,
        };
        for part in &mut kept {
            part.usage.hits = part.usage.hits.wrapping_sub(own.hits);
        }
        self.ages = if plain { None } else { Some(Box::new(kept.into())) };
    }
}

impl Part {
    /// The use of a part as stored, given what the node itself says.
    fn used(&self, ages: &Ages, own: Usage) -> Usage {
        let time = if own.stamp > ages[0].usage.stamp { own } else { self.usage };
        Usage { hits: own.hits.wrapping_add(self.usage.hits), ..time }
    }
}

/// A [`BodyData`] in its arena slot.
pub(crate) struct Body<A, V> {
    data: UnsafeCell<MaybeUninit<BodyData<A, V>>>,
    /// What its successor no longer shares, written once by the thread that replaced it.
    scrap: UnsafeCell<Option<Scrap>>,
    link: AtomicU32,
    filled: AtomicBool,
}

impl<A, V> Body<A, V> {
    /// # Safety
    /// The caller allocated the slot and has not published it.
    pub(crate) unsafe fn fill(&self, data: BodyData<A, V>) {
        // The slot may be zeroed memory, for which `None` is not promised: nothing is dropped here.
        // SAFETY: by contract nobody else looks.
        unsafe {
            self.data.with_mut(|cell| cell.write(MaybeUninit::new(data)));
            self.scrap.with_mut(|cell| cell.write(None));
        }
        self.filled.store(true, Release);
    }

    /// # Safety
    /// The id was read from a word under a guard that is still held.
    #[inline]
    pub(crate) unsafe fn data(&self) -> &BodyData<A, V> {
        debug_assert!(self.filled.load(Relaxed), "a published body is filled");
        // SAFETY: filled before it was published, changed only after no guard can reach it.
        self.data.with(|cell| unsafe { (*cell).assume_init_ref() })
    }

    /// # Safety
    /// The caller is the one that replaced the body in its node's word and has not retired it yet.
    pub(crate) unsafe fn leave(&self, scrap: Scrap) {
        // SAFETY: by contract; readers never look at this field.
        unsafe { self.scrap.with_mut(|cell| cell.write(Some(scrap))) };
    }
}

// SAFETY: zeroed memory is only read through `filled`, which is false then; `fill` writes without dropping.
unsafe impl<A, V> Item for Body<A, V> {
    #[cfg(any(radix_loom, radix_shuttle))]
    fn vacant() -> Self {
        Body {
            data: UnsafeCell::new(MaybeUninit::uninit()),
            scrap: UnsafeCell::new(None),
            link: AtomicU32::new(0),
            filled: AtomicBool::new(false),
        }
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
    unsafe fn recycle(&self) -> usize {
        if !self.filled.swap(false, AcqRel) {
            return 0;
        }
        // SAFETY: by contract nobody looks; filled means both cells were written.
        unsafe {
            self.data.with_mut(|cell| (*cell).assume_init_drop());
            self.scrap.with_mut(|cell| (*cell).take()).map_or(0, |scrap| scrap.free())
        }
    }
}

/// An empty body.
pub(crate) fn empty<A, V>() -> BodyData<A, V> {
    BodyData { buffer: None, start: 0, len: 0, end: 0, tail: 0, out: 0, children: null_mut(), ages: None, fix: None }
}

#[cfg(all(test, not(any(radix_loom, radix_shuttle))))]
mod tests {
    use super::*;

    /// What every leaf costs beside its tokens and slots, its place in a table and in the order.
    #[test]
    fn a_node_and_its_body_take_no_more_than_160_bytes() {
        assert!(size_of::<Node>() + size_of::<Body<u32, i32>>() <= 160);
    }
}
