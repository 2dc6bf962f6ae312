//! The protocol: how nodes change while everybody looks.
//!
//! Every decision is one compare-and-swap on the word of one node. What is left to do after it is written in the new
//! body or follows from it, and whoever meets it may do it: nobody ever waits.
//!
//! # Why it holds
//! 1. **A node's path never changes content.** A split leaves the upper half in the node and gives the lower half to a
//!    new one; a join gives the node what hung below it. So whoever holds a node id under a guard is at the right
//!    place, and only the length of the edge is to be checked.
//! 2. **Pin against evict.** Both swap the same word. If the pin comes first, the evictor's swap expects no pins and
//!    fails; if the eviction comes first, the word is final and the pin fails.
//! 3. **Split against everything below.** The new lower node takes children, branch and tail of the old body in the same
//!    swap that shortens the node. The branch at the old end still names the upper node until somebody has helped: the
//!    `fixing` bit is set in that very swap. If a reader of the branch comes first it finds the upper node, sees the bit,
//!    and helps; if the helper comes first it finds the lower node.
//! 4. **Owner cells move once.** `help` reads the cell, then the word again. If the word still carries the bit, the cell
//!    it read is the state before this fix or after it; the version in the cell makes the swap fail in any other
//!    case. The thread that clears the bit, and only that one, buries what was merged away.
//! 5. **Merge.** A fragment is frozen by its `moved` bit, final; from then on nobody pins or changes it. One swap on
//!    the owner of its branch decides: the joined body, or the same content in a fresh node. Both retire the frozen
//!    node once, by whoever wins that swap (or clears its bit). Nothing that was retired is ever linked again. Between that
//!    swap and the burial the node is frozen and out of the tree; whoever still knows it goes on without it, and does not
//!    wait for the burial: `resolve` says that it is out, not that it is dead.
//! 6. **Queue.** `queued` is set in the swap that makes an unpinned leaf, by the thread that then pushes the entry. An
//!    evictor that finds a pinned node or an inner one clears the bit on the very word it judged: if a release comes
//!    first, that swap fails and it judges again; if the clearing comes first, the release sees no bit and pushes.
//! 7. **Entries and reuse.** The thread that pushes an entry looks at the word afterwards; the thread that buries a node
//!    makes it dead first and removes the entry afterwards. One of the two sees the other. A third one may take the entry
//!    out in between; it reads the word first and the generation afterwards, so if that is still the entry's, the word was
//!    of the same life, and a live word under a guard stays in that life.
//! 8. **Use and push.** Whoever uses a queued node marks the use first and looks for the entry afterwards; whoever pushes the
//!    entry writes it first and looks at the use afterwards. One of the two sees the other and moves the entry. This
//!    argument and the last one are "each writes one thing and then reads the other's": they hold in the total order of
//!    sequentially consistent accesses only, so uses, ranks, words and links are read and written in it. With acquire and
//!    release both may read what was there before.
//! 9. **Any word may be followed.** A node loses its body by a swap of its word and only then hands it to the epochs, a node
//!    that was never published too. So a body whose id was read under a guard from any node of the arena is still
//!    there, which is what lets a compaction go over the arena without a path.

use crate::sync::atomic::Ordering::*;

use crate::children::{Children, Scrap};
use crate::epoch::Guard;
use crate::evictable::{Candidate, Rank};
use crate::key::{Atom, Value};
use crate::node::{BodyData, DEAD, Fix, Node, Part, Repair, Usage, Word};
use crate::policy::PageUse;
use crate::sync::broken;
use crate::tree::{Core, TableChange};

/// What a new node takes over or starts with.
pub(crate) struct Birth {
    pub(crate) anchor: u32,
    pub(crate) key: u32,
    pub(crate) usage: Usage,
    pub(crate) created: u64,
    pub(crate) era: u32,
    pub(crate) space: u32,
    pub(crate) priority: i32,
    pub(crate) deepest: u32,
}

impl Birth {
    /// A fragment or a replacement of `node`.
    pub(crate) fn of(node: &Node, anchor: u32, key: u32, usage: Usage) -> Self {
        Birth {
            anchor,
            key,
            usage,
            created: node.created.load(Relaxed),
            era: node.era.load(Relaxed),
            space: node.space.load(Relaxed),
            priority: node.priority.load(Relaxed),
            deepest: node.deepest(),
        }
    }
}

impl<A: Atom, V: Value> Core<A, V> {
    /// The body a word names.
    #[inline]
    pub(crate) fn body<'g>(&'g self, word: Word, _guard: &'g Guard<'_>) -> &'g BodyData<A, V> {
        // SAFETY: the word was read under this guard.
        unsafe { self.bodies.get(word.body()).data() }
    }

    pub(crate) fn new_body(&self, data: BodyData<A, V>) -> u32 {
        let id = self.bodies.alloc();
        // SAFETY: just allocated.
        unsafe { self.bodies.get(id).fill(data) };
        id
    }

    pub(crate) fn new_node(&self, birth: &Birth, body: u32, pins: u32, queued: bool) -> u32 {
        let id = self.nodes.alloc();
        let node = self.nodes.get(id);
        node.generation.fetch_add(1, AcqRel);
        node.anchor.store(birth.anchor, Relaxed);
        node.key.store(birth.key, Relaxed);
        node.stamp.store(birth.usage.stamp, Relaxed);
        node.base.store(birth.usage.base, Relaxed);
        node.hits.store(birth.usage.hits, Relaxed);
        node.created.store(birth.created, Relaxed);
        node.era.store(birth.era, Relaxed);
        node.space.store(birth.space, Relaxed);
        node.priority.store(birth.priority, Relaxed);
        node.set_deepest(birth.deepest);
        node.word.store(Word::new(body, pins, queued).0, Release);
        self.num_nodes.fetch_add(1, Relaxed);
        if birth.space != 0 {
            self.records.get(birth.space).num_nodes.fetch_add(1, Relaxed);
        }
        id
    }

    pub(crate) fn new_branch(&self, owner: u32) -> u32 {
        let id = self.branches.alloc();
        self.branches.get(id).owner.store(u64::from(owner), SeqCst);
        id
    }

    /// Takes a node back that was never published, with its body. Through the epochs: a compaction may be looking at it.
    pub(crate) fn discard_node(&self, id: u32, guard: &Guard<'_>) {
        let word = Word(self.nodes.get(id).word.swap(DEAD.0, SeqCst));
        self.retire_body(word.body(), None, guard);
        self.retire_node(id, guard);
    }

    fn uncount_node(&self, id: u32) -> u32 {
        self.num_nodes.fetch_sub(1, Relaxed);
        let space = self.nodes.get(id).space.load(Relaxed);
        if space != 0 {
            self.records.get(space).num_nodes.fetch_sub(1, Relaxed);
        }
        space
    }

    /// Hands a replaced body to the epochs, with what its successor does not share.
    pub(crate) fn retire_body(&self, id: u32, scrap: Option<Scrap>, guard: &Guard<'_>) {
        if let Some(scrap) = scrap {
            // SAFETY: the caller replaced it and has not retired it yet.
            unsafe { self.bodies.get(id).leave(scrap) };
        }
        // SAFETY: the id was in a word under this guard.
        let atoms = unsafe { self.bodies.get(id).data() }.len as usize;
        if broken("bodies wait for the epochs") {
            return self.bodies.free(id);
        }
        self.bodies.retire(id, guard);
        if guard.retired(1 + atoms / 512) {
            self.collect(guard);
        }
    }

    /// Recycles what no guard can reach any more, if the epoch can move on.
    pub(crate) fn collect(&self, guard: &Guard<'_>) {
        if let Some(list) = guard.advance() {
            self.meter.fetch_sub(self.bodies.collect(list), Relaxed);
            self.nodes.collect(list);
            self.branches.collect(list);
            self.records.collect(list);
            self.index.collect(list);
            self.pins.collect(list);
        }
    }

    /// Recycles everything that was retired and that no other thread can reach: a guard allows one step of the epoch.
    pub(crate) fn collect_all(&self) {
        for _ in 0..3 {
            self.collect(&self.guard());
        }
    }

    pub(crate) fn retire_node(&self, id: u32, guard: &Guard<'_>) {
        if self.nodes.get(id).retire_once() {
            let space = self.uncount_node(id);
            if space != 0 && self.records.get(space).node.load(Relaxed) == id {
                self.records.retire(space, guard);
            }
            if broken("nodes wait for the epochs") {
                self.nodes.free(id);
            } else {
                self.nodes.retire(id, guard);
            }
        }
    }

    pub(crate) fn retire_branch(&self, id: u32, guard: &Guard<'_>) {
        if id != 0 {
            self.branches.retire(id, guard);
        }
    }

    /// The word of a node, after helping whatever its branch waits for.
    #[inline]
    pub(crate) fn load(&self, id: u32, guard: &Guard<'_>) -> Word {
        loop {
            let word = self.nodes.get(id).load();
            if !word.fixing() {
                return word;
            }
            self.help(id, word, guard);
        }
    }

    /// Tells the branch who ends there now, then clears the bit.
    fn help(&self, id: u32, word: Word, guard: &Guard<'_>) {
        let node = self.nodes.get(id);
        let repair = self.body(word, guard).fix.expect("a fixing word has something to fix");
        let (fix, branch, from, to) = (repair.fix(), repair.branch(), repair.from(), repair.to());
        let branch = self.branches.get(branch);
        let (owner, cell) = branch.owner();
        if node.load() != word && !broken("a helper reads the word after the owner") {
            return;
        }
        if owner == from {
            branch.hand_over(cell, to);
        }
        let mine = node.swap(word, word.with_fixing(false)) || broken("who clears the bit buries");
        if mine && fix != Fix::Split {
            self.bury(from, fix == Fix::Join, guard);
        }
    }

    /// The node was merged away and nothing links to it: a final tombstone, no index entry, then the epochs.
    fn bury(&self, id: u32, dissolve: bool, guard: &Guard<'_>) {
        let node = self.nodes.get(id);
        let word = Word(node.word.swap(DEAD.0, SeqCst));
        debug_assert!(word.moved());
        if word.queued() {
            self.index.remove(self.candidate(id, self.ranked(id)), guard);
        }
        self.retire_body(word.body(), None, guard);
        self.retire_node(id, guard);
        if dissolve {
            self.retire_branch(node.anchor.load(Relaxed), guard);
        }
    }

    /// The live node whose edge ends in this branch, with its word; `None` if the branch is gone.
    pub(crate) fn locate(&self, branch: u32, guard: &Guard<'_>) -> Option<(u32, Word)> {
        loop {
            let (owner, cell) = self.branches.get(branch).owner();
            let word = self.load(owner, guard);
            // In this order: a frozen node that never ended here, or no longer does, may be out of the tree already and not
            // yet buried by the thread that joined it. Who waited for that would wait for this thread.
            if !word.dead() && self.body(word, guard).out == branch {
                if word.live() {
                    return Some((owner, word));
                }
                self.resolve(owner, guard); // hands the branch over
                continue;
            }
            if self.branches.get(branch).owner().1 == cell {
                return None;
            }
        }
    }

    /// Finishes the merge of a frozen node: one swap on the owner of its branch decides. Anybody may do it.
    pub(crate) fn resolve(&self, id: u32, guard: &Guard<'_>) {
        let frozen = self.nodes.get(id);
        let (anchor, key) = (frozen.anchor.load(Relaxed), frozen.key.load(Relaxed));
        loop {
            let Some((parent, word)) = self.locate(anchor, guard) else { return };
            let above = self.body(word, guard);
            if !above.children().is_some_and(|c| c.contains(key, id)) {
                return;
            }
            let frozen_word = frozen.load();
            if frozen_word.dead() {
                return;
            }
            let below = self.body(frozen_word, guard);
            let only = above.children().and_then(Children::only) == Some(id);
            let free = word.pins() == 0 || broken("what is pinned is not joined");
            let joins = free && only && self.nodes.get(parent).anchor.load(Relaxed) != 0;
            let done = if joins {
                self.join(parent, word, above, id, below, guard)
            } else {
                self.rehang(parent, word, above, id, below, guard)
            };
            if done {
                return;
            }
        }
    }

    fn join(
        &self,
        parent: u32,
        word: Word,
        above: &BodyData<A, V>,
        id: u32,
        below: &BodyData<A, V>,
        guard: &Guard<'_>,
    ) -> bool {
        let (node, frozen) = (self.nodes.get(parent), self.nodes.get(id));
        let mut data = self.joined(above, below, guard);
        let own = node.usage();
        let mut parts = above.parts(own);
        parts.extend(below.parts(frozen.usage()));
        self.set_parts(&mut data, parts, own);
        data.children = below.children;
        data.tail = below.tail;
        data.out = below.out;
        data.fix = Repair::new(Fix::Join, below.out, id, parent);
        let fixing = data.fix.is_some();
        let leaf = below.is_leaf();
        let body = self.new_body(data);
        let new = Word::new(body, 0, leaf || word.queued()).with_fixing(fixing);
        let expected = if broken("a join expects the word it judged") { node.load() } else { word };
        if !node.swap(expected, new) {
            self.bodies.free(body);
            return false;
        }
        node.deepen(frozen.deepest());
        self.retire_body(word.body(), Scrap::whole(above.children), guard);
        if fixing {
            self.load(parent, guard);
        } else {
            self.bury(id, true, guard);
        }
        if leaf {
            self.enqueue(parent, !word.queued(), guard);
        }
        true
    }

    fn rehang(
        &self,
        parent: u32,
        word: Word,
        above: &BodyData<A, V>,
        id: u32,
        below: &BodyData<A, V>,
        guard: &Guard<'_>,
    ) -> bool {
        let frozen = self.nodes.get(id);
        let (anchor, key) = (frozen.anchor.load(Relaxed), frozen.key.load(Relaxed));
        let leaf = below.is_leaf();
        let fixing = below.out != 0;
        let birth = Birth::of(frozen, anchor, key, frozen.usage());
        let fresh = self.new_node(&birth, self.new_body(below.again()), 0, leaf);
        let change = above.children().and_then(|c| c.replace(key, id, Some(fresh))).expect("checked by resolve");
        let mut data = above.again();
        data.children = change.new;
        data.tail = if above.tail == id { fresh } else { above.tail };
        data.fix = Repair::new(Fix::Rehang, below.out, id, fresh);
        let body = self.new_body(data);
        if !self.nodes.get(parent).swap(word, word.with_body(body).with_fixing(fixing)) {
            self.bodies.free(body);
            change.discard();
            self.discard_node(fresh, guard);
            return false;
        }
        self.retire_body(word.body(), self.settle(TableChange::Changed(change)), guard);
        if fixing {
            self.load(parent, guard);
        } else {
            self.bury(id, false, guard);
        }
        if leaf {
            self.enqueue(fresh, true, guard);
        }
        if below.children().is_some_and(|c| c.len() == 1) {
            self.try_merge(fresh, guard);
        }
        true
    }

    /// Makes fragments of one edge whole again, as far down as nobody pins them.
    pub(crate) fn try_merge(&self, id: u32, guard: &Guard<'_>) {
        loop {
            if self.nodes.get(id).anchor.load(Relaxed) == 0 {
                return;
            }
            let word = self.load(id, guard);
            if word.pins() > 0 || !word.live() {
                return;
            }
            let body = self.body(word, guard);
            let Some(child) = body.children().and_then(Children::only) else { return };
            if body.tail != child {
                return;
            }
            let child_word = self.load(child, guard);
            if child_word.moved() {
                self.resolve(child, guard);
                continue;
            }
            if child_word.dead() || child_word.pins() > 0 && !broken("what is pinned is not frozen") {
                return;
            }
            if self.nodes.get(child).swap(child_word, child_word.with_moved()) {
                self.resolve(child, guard);
            }
        }
    }

    /// Takes an evicted node out of its parent and retires it.
    pub(crate) fn unlink(&self, id: u32, last_use: u64, guard: &Guard<'_>) {
        let root = self.nodes.get(id).anchor.load(Relaxed) == 0;
        // A namespace that was dropped may be out of the table long since.
        if root || self.detach(id, last_use, guard) || self.is_dropped_space(id) {
            self.retire_node(id, guard);
        }
    }

    pub(crate) fn is_dropped_space(&self, id: u32) -> bool {
        let space = self.nodes.get(id).space.load(Relaxed);
        self.is_dropped(id) && self.records.get(space).node.load(Relaxed) == id
    }

    /// Takes a node out of its parent; whether it was there. An emptied parent becomes a candidate in the same swap.
    pub(crate) fn detach(&self, id: u32, last_use: u64, guard: &Guard<'_>) -> bool {
        let node = self.nodes.get(id);
        let (anchor, key) = (node.anchor.load(Relaxed), node.key.load(Relaxed));
        loop {
            let Some((parent, word)) = self.locate(anchor, guard) else { return false };
            let body = self.body(word, guard);
            let Some(change) = body.children().and_then(|c| c.replace(key, id, None)) else { return false };
            let above = self.nodes.get(parent);
            let empty = change.new.is_null() && !broken("an emptied parent is queued");
            let queue = empty && word.pins() == 0 && !self.is_root(parent);
            let left = if empty { 0 } else { body.children().map_or(0, Children::len) - 1 };
            let mut data = body.again();
            data.children = change.new;
            data.tail = if body.tail == id && !broken("an unlink clears the tail") { 0 } else { body.tail };
            let new_body = self.new_body(data);
            if !above.swap(word, word.with_body(new_body).with_queued(word.queued() || queue)) {
                self.bodies.free(new_body);
                change.discard();
                continue;
            }
            self.retire_body(word.body(), self.settle(TableChange::Changed(change)), guard);
            above.stamp.fetch_max(last_use, SeqCst);
            if queue {
                self.enqueue(parent, !word.queued(), guard);
            } else if empty && !self.is_root(parent) && !broken("a root that was replaced is queued") {
                self.queue_if_idle(parent, guard);
            }
            if left == 1 && !broken("a last sibling is joined") {
                self.try_merge(parent, guard);
            }
            return true;
        }
    }

    /// Queues a node that may have become an unpinned leaf without anybody noticing (a root that was replaced).
    pub(crate) fn queue_if_idle(&self, id: u32, guard: &Guard<'_>) {
        loop {
            let word = self.load(id, guard);
            if !word.live() || word.pins() > 0 || word.queued() || !self.body(word, guard).is_leaf() {
                return;
            }
            if self.nodes.get(id).swap(word, word.with_queued(true)) {
                self.enqueue(id, true, guard);
                return;
            }
        }
    }

    pub(crate) fn candidate(&self, id: u32, rank: Rank) -> Candidate {
        let node = self.nodes.get(id);
        Candidate { rank, created: node.created.load(Relaxed), node: id, generation: node.generation.load(Acquire) }
    }

    /// The rank of the node's entry. While its owner is at work the halves may not belong together: then no entry is
    /// found under it, as if the owner still had the entry in hand.
    pub(crate) fn ranked(&self, id: u32) -> Rank {
        let node = self.nodes.get(id);
        let order = if broken("ranks are read in the total order") { Acquire } else { SeqCst };
        Rank { score: node.score.load(order), last_use: node.scored_use.load(order) }
    }

    /// Puts the node's entry where the policy wants it. `fresh`: the caller set the `queued` bit and pushes first;
    /// otherwise the entry is moved, unless somebody else has it in hand.
    pub(crate) fn enqueue(&self, id: u32, fresh: bool, guard: &Guard<'_>) {
        let word = self.nodes.get(id).load();
        if !word.live() {
            return;
        }
        let rank = self.rank(id, word, guard);
        if !fresh {
            let old = self.ranked(id);
            if old == rank || !self.index.remove(self.candidate(id, old), guard) {
                return;
            }
        }
        self.push(id, rank, guard);
    }

    /// How the end of a node was used.
    pub(crate) fn page_use(&self, id: u32, word: Word, guard: &Guard<'_>) -> PageUse {
        let node = self.nodes.get(id);
        let body = self.body(word, guard);
        node.page_use(body.end_usage(node.usage()), body.end)
    }

    /// Where the policy wants a node in the order of eviction; what a reset left over goes first.
    pub(crate) fn rank(&self, id: u32, word: Word, guard: &Guard<'_>) -> Rank {
        if self.is_left_over(id) {
            return Rank::LEFT_OVER;
        }
        let page = self.page_use(id, word, guard);
        Rank { score: self.policy.score(&page), last_use: page.last_use }
    }

    /// Sets when the parts of an edge were used, telling apart how often only if the policy asks for it.
    pub(crate) fn set_parts(&self, data: &mut BodyData<A, V>, mut parts: Vec<Part>, own: Usage) {
        if !self.policy.counts() {
            parts.iter_mut().for_each(|part| part.usage.hits = own.hits);
        }
        data.set_parts(parts, own);
    }

    /// Pushes an entry that the caller owns. Whoever used the node meanwhile and did not find the entry to move has marked it
    /// before; so it is looked at once more.
    pub(crate) fn push(&self, id: u32, mut rank: Rank, guard: &Guard<'_>) {
        // An entry that is pushed is one that the epochs get some day. Hits move entries and retire nothing else, so if only
        // bodies counted, hits alone would pile up old entries, and who collects them at last would pay for all of them.
        if guard.retired(1) {
            self.collect(guard);
        }
        let node = self.nodes.get(id);
        loop {
            node.score.store(rank.score, SeqCst);
            node.scored_use.store(rank.last_use, SeqCst);
            let candidate = self.candidate(id, rank);
            self.index.push(candidate, guard);
            let word = node.load();
            if !word.live() && !broken("a pusher looks at the word again") {
                self.index.remove(candidate, guard);
                return;
            }
            let now = if broken("a pusher looks at the rank again") { rank } else { self.rank(id, word, guard) };
            if now == rank || word.pins() > 0 || !self.index.remove(candidate, guard) {
                return;
            }
            rank = now;
        }
    }
}
