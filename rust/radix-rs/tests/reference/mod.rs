//! A plain, slow and obviously right reference of tree, pool and cache.
//!
//! The cache is written here as a trie whose edges are single pages. A page knows its slots, how many leases cover it and
//! when it was last used; everything observable follows from that. There are no splits, no merges and no cleverness.
//!
//! Arguments called `chosen` and `hint` bind the reference to decisions of the system under test that its contract leaves
//! open (which free pages are handed out, which page left over from before a reset goes first), after checking that the
//! decision was an allowed one.
#![allow(dead_code)] // every test crate uses its own part

use std::collections::BTreeSet;

use radix_rs::Error;

/// Why an operation was refused, with the numbers that both sides must agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// An argument that cannot be.
    Invalid,
    /// Not enough slots.
    Capacity { needed: usize, free: usize, evictable: usize, protected: usize },
    /// The node of a handle is gone.
    Stale,
    /// A slot is free already.
    DoubleFree(i32),
    /// A lease or sequence used in a way it does not allow.
    Lease,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidInput(_) | Error::InvalidToken { .. } => Refusal::Invalid,
            Error::Capacity { needed, free, evictable, protected } => {
                Refusal::Capacity { needed, free, evictable, protected }
            }
            Error::StaleHandle { .. } => Refusal::Stale,
            Error::DoubleFree { slot } => Refusal::DoubleFree(slot),
            Error::Lease(_) => Refusal::Lease,
            other => panic!("not an answer to any input of these tests: {other}"),
        }
    }
}

/// One page of the trie. Its index in [`Tree::pages`] is its identity for life.
#[derive(Debug, Clone)]
pub struct Page {
    pub key: Vec<u32>,
    pub slots: Vec<i32>,
    pub parent: Option<usize>,
    pub space: usize,
    pub pins: usize,
    pub depth: usize,
    pub stamp: u64,
    pub hits: u64,
    pub created: u64,
    pub priority: i32,
    /// The inflation of its last use.
    pub base: u64,
    /// Evicted or dropped by a reset.
    pub gone: bool,
    /// From before a reset.
    pub old: bool,
}

/// What a lock returned; the test must give it to [`Tree::release`].
#[derive(Debug, Clone)]
pub struct Lease {
    pub pages: Vec<usize>,
    pub space: usize,
    /// What it publishes is as old as this.
    pub born: u64,
}

/// What the order of eviction looks at first; the smaller goes.
pub type Score = fn(&Page) -> u64;

/// The score of a built-in policy.
pub fn score_of(policy: &str) -> Score {
    match policy {
        "lru" => |page| page.stamp,
        "lfu" => |page| page.hits,
        "lfu-ageing" => |page| page.base + page.hits,
        "fifo" => |page| page.created,
        "mru" => |page| 1_000_000 - page.stamp,
        "filo" => |page| 1_000_000 - page.created,
        "slru" => |page| page.hits.min(2),
        "priority" => |page| (1_000 + page.priority) as u64,
        "gdsf" => |page| page.base + page.hits * (1024 + page.depth as u64 / 4),
        other => panic!("{other} is not a policy"),
    }
}

/// The trie.
#[derive(Debug, Clone)]
pub struct Tree {
    pub page_size: usize,
    pub pages: Vec<Page>,
    pub time: u64,
    pub inserted: usize,
    pub evicted: usize,
    score: Score,
    /// Whether what goes lifts what is used from then on.
    inflates: bool,
    inflation: u64,
}

impl Tree {
    pub fn new(page_size: usize, score: Score, inflates: bool) -> Self {
        Tree { page_size, pages: Vec::new(), time: 0, inserted: 0, evicted: 0, score, inflates, inflation: 0 }
    }

    fn keys<'a>(&self, tokens: &'a [u32]) -> Vec<&'a [u32]> {
        tokens.chunks_exact(self.page_size).collect()
    }

    fn child(&self, parent: Option<usize>, space: usize, key: &[u32]) -> Option<usize> {
        (0..self.pages.len()).find(|&i| {
            let page = &self.pages[i];
            let reachable = parent.is_some() || (page.space == space && !page.old);
            !page.gone && page.parent == parent && reachable && page.key == key
        })
    }

    /// Pages from `path` on that continue `tokens`.
    fn walk_from(&self, mut path: Vec<usize>, tokens: &[u32], space: usize) -> Vec<usize> {
        for key in self.keys(tokens).into_iter().skip(path.len()) {
            match self.child(path.last().copied(), space, key) {
                Some(page) => path.push(page),
                None => break,
            }
        }
        path
    }

    pub fn walk(&self, tokens: &[u32], space: usize) -> Vec<usize> {
        self.walk_from(Vec::new(), tokens, space)
    }

    pub fn slots(&self, path: &[usize]) -> Vec<i32> {
        path.iter().flat_map(|&page| self.pages[page].slots.clone()).collect()
    }

    pub fn match_prefix(&self, tokens: &[u32], space: usize) -> Vec<i32> {
        self.slots(&self.walk(tokens, space))
    }

    /// All of the path is used now; what lies behind its first `known` pages counts as one more use.
    fn stamp(&mut self, path: &[usize], known: usize) {
        self.time += 1;
        for (i, &page) in path.iter().enumerate() {
            let page = &mut self.pages[page];
            (page.stamp, page.base) = (self.time, self.inflation);
            page.hits += u64::from(i >= known);
        }
    }

    pub fn touch(&mut self, tokens: &[u32], space: usize) {
        let path = self.walk(tokens, space);
        self.stamp(&path, 0);
    }

    fn lock_path(&mut self, path: Vec<usize>, space: usize) -> Lease {
        self.stamp(&path, 0);
        for &page in &path {
            self.pages[page].pins += 1;
        }
        Lease { pages: path, space, born: self.time }
    }

    pub fn lock_prefix(&mut self, tokens: &[u32], space: usize) -> Lease {
        self.lock_path(self.walk(tokens, space), space)
    }

    pub fn release(&mut self, mut lease: Lease) {
        self.shrink(&mut lease, 0);
    }

    pub fn shrink(&mut self, lease: &mut Lease, num_pages: usize) {
        for page in lease.pages.drain(num_pages..) {
            self.pages[page].pins -= 1;
        }
    }

    fn add(
        &mut self,
        path: &mut Vec<usize>,
        space: usize,
        key: &[u32],
        slots: &[i32],
        born: Option<u64>,
        priority: i32,
    ) {
        let parent = path.last().copied();
        let old = parent.is_some_and(|page| self.pages[page].old);
        path.push(self.pages.len());
        let (key, slots) = (key.to_vec(), slots.to_vec());
        let depth = path.len() * self.page_size;
        let created = born.unwrap_or(self.time + 1);
        self.pages.push(Page {
            key,
            slots,
            parent,
            space,
            pins: 0,
            depth,
            stamp: 0,
            hits: 0,
            created,
            priority,
            base: 0,
            gone: false,
            old,
        });
        self.inserted += self.page_size;
    }

    fn extend(&mut self, lease: &mut Lease, path: &[usize]) {
        for &page in &path[lease.pages.len()..] {
            self.pages[page].pins += 1;
            lease.pages.push(page);
        }
    }

    /// The cached length, and the path.
    pub fn insert(
        &mut self,
        tokens: &[u32],
        slots: &[i32],
        space: usize,
        lease: Option<&mut Lease>,
        priority: i32,
    ) -> Result<(usize, Vec<usize>), Refusal> {
        let size = self.page_size;
        if tokens.len() != slots.len() || slots.iter().any(|&slot| slot < 0) {
            return Err(Refusal::Invalid);
        }
        let keys = self.keys(tokens);
        let mut path = Vec::new();
        if let Some(lease) = &lease {
            let covered = lease.pages.len() <= keys.len()
                && lease.pages.iter().zip(&keys).all(|(&page, key)| self.pages[page].key == *key);
            if !covered {
                return Err(Refusal::Lease);
            }
            path.clone_from(&lease.pages);
        }
        let mut path = self.walk_from(path, tokens, space);
        let (cached, born) = (path.len(), lease.as_ref().map(|lease| lease.born));
        let known = lease.as_ref().map_or(0, |lease| lease.pages.len());
        for chunk in slots.chunks_exact(size).skip(cached) {
            let aligned = (chunk[0] as usize).is_multiple_of(size);
            if !aligned || chunk.iter().zip(chunk[0]..).any(|(&slot, next)| slot != next) {
                return Err(Refusal::Invalid);
            }
        }
        for (i, key) in keys.iter().enumerate().skip(cached) {
            self.add(&mut path, space, key, &slots[i * size..(i + 1) * size], born, priority);
        }
        if let Some(lease) = lease {
            self.extend(lease, &path);
        }
        self.stamp(&path, known);
        Ok((cached * size, path))
    }

    pub fn live(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.pages.len()).filter(|&page| !self.pages[page].gone)
    }

    /// Unpinned pages without children, but for those in `taken`.
    fn leaves(&self, taken: &[usize]) -> Vec<usize> {
        let leaf = |page: usize| {
            let childless = self.live().all(|i| self.pages[i].parent != Some(page) || taken.contains(&i));
            self.pages[page].pins == 0 && !taken.contains(&page) && childless
        };
        self.live().filter(|&page| leaf(page)).collect()
    }

    /// Which leaves may go now: the one that the policy puts first, or any that is left over from before a reset.
    fn victims(&self, taken: &[usize]) -> Vec<usize> {
        let leaves = self.leaves(taken);
        let old: Vec<usize> = leaves.iter().copied().filter(|&page| self.pages[page].old).collect();
        if !old.is_empty() {
            return old;
        }
        leaves
            .into_iter()
            .min_by_key(|&page| ((self.score)(&self.pages[page]), self.pages[page].stamp))
            .into_iter()
            .collect()
    }

    pub fn evict(&mut self, num_pages: usize, hint: Option<&[i32]>) -> Vec<i32> {
        let mut slots = Vec::new();
        for _ in 0..num_pages {
            let victims = self.victims(&[]);
            let hinted = |page: &&usize| hint.is_some_and(|h| h.contains(&self.pages[**page].slots[0]));
            let Some(&page) = victims.iter().find(hinted).or(victims.first()) else { break };
            self.pages[page].gone = true;
            self.inflate(page);
            self.evicted += self.page_size;
            slots.extend(&self.pages[page].slots);
        }
        slots
    }

    /// Takes what whole-leaf eviction took, after checking that taking edges from leaves in order, until there was enough,
    /// can take exactly that.
    pub fn evict_leaves(&mut self, num_pages: usize, evicted: &[i32]) {
        let chosen: Vec<usize> = self.live().filter(|&page| evicted.contains(&self.pages[page].slots[0])).collect();
        assert_eq!(chosen.len() * self.page_size, evicted.len(), "evicted something that is no cached page");
        assert!(self.explains(num_pages, &chosen, &mut Vec::new()), "no order of whole leaves explains {evicted:?}");
        for page in chosen {
            self.pages[page].gone = true;
            self.inflate(page);
            self.evicted += self.page_size;
        }
    }

    fn inflate(&mut self, page: usize) {
        if self.inflates && !self.pages[page].old {
            self.inflation = self.inflation.max((self.score)(&self.pages[page]));
        }
    }

    fn explains(&self, num_pages: usize, chosen: &[usize], taken: &mut Vec<usize>) -> bool {
        let victims = self.victims(taken);
        if taken.len() >= num_pages || victims.is_empty() {
            return taken.len() == chosen.len();
        }
        let before = taken.len();
        for victim in victims {
            let mut next = Some(victim);
            // Where the edge begins depends on history: every beginning is tried.
            while let Some(page) = next {
                if !chosen.contains(&page) || !self.leaves(taken).contains(&page) {
                    break;
                }
                taken.push(page);
                if self.explains(num_pages, chosen, taken) {
                    return true;
                }
                next = self.pages[page].parent;
            }
            taken.truncate(before);
        }
        false
    }

    /// The path of a page, or stale.
    pub fn resolve(&self, page: usize) -> Result<Vec<usize>, Refusal> {
        if self.pages[page].gone || self.pages[page].old {
            return Err(Refusal::Stale);
        }
        let mut path = vec![page];
        while let Some(parent) = self.pages[path[path.len() - 1]].parent {
            path.push(parent);
        }
        path.reverse();
        Ok(path)
    }

    pub fn lock_page(&mut self, page: usize) -> Result<Lease, Refusal> {
        let path = self.resolve(page)?;
        Ok(self.lock_path(path, self.pages[page].space))
    }

    pub fn reset(&mut self) -> Vec<i32> {
        let mut freed = Vec::new();
        for page in self.pages.iter_mut().filter(|page| !page.gone) {
            page.old = true;
            if page.pins == 0 {
                page.gone = true;
                freed.extend(&page.slots);
            }
        }
        freed
    }

    pub fn cached(&self) -> usize {
        self.live().count() * self.page_size
    }

    pub fn protected(&self) -> usize {
        self.live().filter(|&page| self.pages[page].pins > 0).count() * self.page_size
    }

    pub fn evictable(&self) -> usize {
        self.cached() - self.protected()
    }
}

/// The free pages.
#[derive(Debug, Clone)]
pub struct Pool {
    pub page_size: usize,
    pub num_pages: usize,
    pub free: BTreeSet<usize>,
}

impl Pool {
    pub fn new(num_slots: usize, page_size: usize) -> Self {
        let num_pages = num_slots / page_size;
        Pool { page_size, num_pages, free: (0..num_pages).collect() }
    }

    pub fn num_free(&self) -> usize {
        self.free.len() * self.page_size
    }

    pub fn page_slots(&self, page: usize) -> Vec<i32> {
        (page * self.page_size..(page + 1) * self.page_size).map(|slot| slot as i32).collect()
    }

    /// Takes pages that someone chose, if they are free.
    pub fn take(&mut self, pages: &[usize]) {
        for page in pages {
            assert!(self.free.remove(page), "page {page} is handed out, but is not free");
        }
    }

    /// The lowest free pages.
    pub fn alloc(&mut self, num_tokens: usize) -> Result<Vec<i32>, Refusal> {
        let num_pages = num_tokens.div_ceil(self.page_size);
        if num_pages > self.free.len() {
            let (needed, free) = (num_pages * self.page_size, self.num_free());
            return Err(Refusal::Capacity { needed, free, evictable: 0, protected: 0 });
        }
        let pages: Vec<usize> = self.free.iter().copied().take(num_pages).collect();
        self.take(&pages);
        Ok(pages.into_iter().flat_map(|page| self.page_slots(page)).collect())
    }

    pub fn free(&mut self, slots: &[i32]) -> Result<(), Refusal> {
        let mut pages = Vec::new();
        if !slots.len().is_multiple_of(self.page_size) {
            return Err(Refusal::Invalid);
        }
        for chunk in slots.chunks(self.page_size) {
            let page = chunk[0].max(0) as usize / self.page_size;
            if chunk != self.page_slots(page) || page >= self.num_pages {
                return Err(Refusal::Invalid);
            }
            pages.push(page);
        }
        for (i, page) in pages.iter().enumerate() {
            if self.free.contains(page) || pages[..i].contains(page) {
                return Err(Refusal::DoubleFree((page * self.page_size) as i32));
            }
        }
        self.free.extend(pages);
        Ok(())
    }
}

/// One request's tokens, lease and own pages.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub tokens: Vec<u32>,
    pub lease: Lease,
    /// Own pages of the pool, after those of the lease.
    pub own: Vec<usize>,
    pub cached_len: usize,
    pub num_computed: usize,
    pub num_reserved: usize,
    pub priority: i32,
}

/// Slots that wait, or none any more once it was signalled.
#[derive(Debug, Clone, Default)]
pub struct Fence {
    pub slots: Vec<i32>,
    pub signalled: bool,
}

/// What a fork made: the child and its copies.
pub type Forked = (Sequence, Vec<[i32; 2]>);

/// Tree, pool and the life of requests. Sequences and fences are owned by the test.
#[derive(Debug, Clone)]
pub struct Cache {
    pub tree: Tree,
    pub pool: Pool,
    pub enabled: bool,
    pub queried: usize,
    pub hits: usize,
}

impl Cache {
    pub fn new(num_slots: usize, tree: Tree, enabled: bool) -> Self {
        let pool = Pool::new(num_slots, tree.page_size);
        Cache { tree, pool, enabled, queried: 0, hits: 0 }
    }

    fn size(&self) -> usize {
        self.pool.page_size
    }

    pub fn begin(&mut self, tokens: &[u32], space: usize, priority: i32) -> Sequence {
        let prefix = if self.enabled { &tokens[..tokens.len().saturating_sub(1)] } else { &[] };
        let lease = self.tree.lock_prefix(prefix, space);
        let length = lease.pages.len() * self.size();
        self.queried += tokens.len();
        self.hits += length;
        Sequence {
            tokens: tokens.to_vec(),
            lease,
            own: Vec::new(),
            cached_len: length,
            num_computed: length,
            num_reserved: length,
            priority,
        }
    }

    /// All slots up to the end of the last page.
    pub fn full_row(&self, sequence: &Sequence) -> Vec<i32> {
        let mut row = self.tree.slots(&sequence.lease.pages);
        row.extend(sequence.own.iter().flat_map(|&page| self.pool.page_slots(page)));
        row
    }

    pub fn row(&self, sequence: &Sequence) -> Vec<i32> {
        self.full_row(sequence)[..sequence.num_reserved].to_vec()
    }

    pub fn page_table(&self, sequence: &Sequence) -> Vec<i32> {
        self.row(sequence).iter().step_by(self.size()).map(|slot| slot / self.size() as i32).collect()
    }

    pub fn published(&self, sequence: &Sequence) -> usize {
        sequence.lease.pages.len() * self.size()
    }

    /// Free pages first, then only the shortfall is evicted; `chosen` is what the system found, if it found anything.
    fn find(&mut self, num_pages: usize, chosen: Option<&[usize]>) -> Result<Vec<usize>, Refusal> {
        let (free, evictable) = (self.pool.num_free(), self.tree.evictable());
        let needed = num_pages * self.size();
        if needed > free + evictable {
            return Err(Refusal::Capacity { needed, free, evictable, protected: self.tree.protected() });
        }
        let chosen = chosen.expect("the system found too little where there was enough");
        let hint: Vec<i32> = chosen.iter().flat_map(|&page| self.pool.page_slots(page)).collect();
        let shortfall = num_pages.saturating_sub(free / self.size());
        let evicted = self.tree.evict(shortfall, Some(&hint));
        self.pool.free(&evicted).expect("what is evicted was not free");
        assert_eq!(chosen.len(), num_pages);
        self.pool.take(chosen);
        Ok(chosen.to_vec())
    }

    pub fn reserve(&mut self, s: &mut Sequence, count: usize, chosen: Option<&[usize]>) -> Result<(), Refusal> {
        let end = s.num_reserved + count;
        let have = s.lease.pages.len() + s.own.len();
        let missing = end.div_ceil(self.size()).saturating_sub(have);
        if missing > 0 {
            let found = self.find(missing, chosen)?;
            s.own.extend(found);
        }
        s.num_reserved = end;
        Ok(())
    }

    fn give_back(&mut self, slots: &[i32], after: Option<&mut Fence>) {
        match after {
            Some(fence) if !fence.signalled => fence.slots.extend(slots),
            _ => self.pool.free(slots).expect("what a sequence owns is not free"),
        }
    }

    fn give_back_pages(&mut self, pages: &[usize], after: Option<&mut Fence>) {
        let slots: Vec<i32> = pages.iter().flat_map(|&page| self.pool.page_slots(page)).collect();
        self.give_back(&slots, after);
    }

    pub fn signal(&mut self, fence: &mut Fence) {
        fence.signalled = true;
        let slots = std::mem::take(&mut fence.slots);
        self.pool.free(&slots).expect("what waits is not free");
    }

    fn publish(&mut self, s: &mut Sequence, after: Option<&mut Fence>) -> (usize, usize) {
        let size = self.size();
        let target = s.num_computed.min(s.tokens.len()) / size;
        let first = s.lease.pages.len();
        let mut changed = Vec::new();
        let mut duplicates = Vec::new();
        if self.enabled && target > first {
            let mut path = s.lease.pages.clone();
            for i in first..target {
                let own = s.own.remove(0);
                let key = &s.tokens[i * size..(i + 1) * size];
                if let Some(page) = self.tree.child(path.last().copied(), s.lease.space, key) {
                    path.push(page);
                    changed.push(i);
                    duplicates.push(own);
                } else {
                    let slots = self.pool.page_slots(own);
                    self.tree.add(&mut path, s.lease.space, key, &slots, Some(s.lease.born), s.priority);
                }
            }
            self.tree.extend(&mut s.lease, &path);
            self.tree.stamp(&path, first);
            self.give_back_pages(&duplicates, after);
        }
        match (changed.first(), changed.last()) {
            (Some(first), Some(last)) => (first * size, (last + 1) * size),
            _ => (self.published(s), self.published(s)),
        }
    }

    pub fn commit(
        &mut self,
        s: &mut Sequence,
        num_computed: usize,
        after: Option<&mut Fence>,
    ) -> Result<(usize, usize), Refusal> {
        if num_computed > s.num_reserved {
            return Err(Refusal::Invalid);
        }
        s.num_computed = s.num_computed.max(num_computed);
        Ok(self.publish(s, after))
    }

    pub fn truncate(&mut self, s: &mut Sequence, length: usize) -> Result<(), Refusal> {
        let size = self.size();
        if length > s.tokens.len().max(s.num_reserved) {
            return Err(Refusal::Invalid);
        }
        let mut keep = length;
        if length < self.published(s) {
            // The page that is cut belongs to the tree: its slots cannot be written again.
            keep = length / size * size;
            self.tree.shrink(&mut s.lease, length / size);
        }
        s.tokens.truncate(length);
        s.num_computed = s.num_computed.min(keep);
        s.num_reserved = s.num_reserved.min(keep);
        s.cached_len = s.cached_len.min(self.published(s));
        let left = keep.div_ceil(size).saturating_sub(s.lease.pages.len()).min(s.own.len());
        let gone = s.own.split_off(left);
        self.give_back_pages(&gone, None);
        Ok(())
    }

    pub fn fork(
        &mut self,
        s: &mut Sequence,
        count: usize,
        at: usize,
        chosen: Option<&[usize]>,
    ) -> Result<Vec<Forked>, Refusal> {
        let size = self.size();
        if at > s.tokens.len() {
            return Err(Refusal::Invalid);
        }
        self.publish(s, None);
        let shared = s.lease.pages[..at.min(self.published(s)) / size].to_vec();
        let computed = at.min(s.num_computed.max(shared.len() * size));
        let num_pages = computed.div_ceil(size) - shared.len();
        let found = self.find(num_pages * count, chosen)?;
        let mut children = Vec::new();
        for i in 0..count {
            let lease = self.tree.lock_path(shared.clone(), s.lease.space);
            let start = shared.len() * size;
            let child = Sequence {
                tokens: s.tokens[..at].to_vec(),
                lease,
                own: found[i * num_pages..(i + 1) * num_pages].to_vec(),
                cached_len: start,
                num_computed: computed,
                num_reserved: computed,
                priority: s.priority,
            };
            let (from, to) = (self.full_row(s), self.full_row(&child));
            let copies = (start..computed).map(|i| [from[i], to[i]]).collect();
            children.push((child, copies));
        }
        Ok(children)
    }

    pub fn finish(&mut self, mut s: Sequence, mut after: Option<&mut Fence>) {
        self.publish(&mut s, after.as_deref_mut());
        self.abort(s, after);
    }

    pub fn abort(&mut self, s: Sequence, after: Option<&mut Fence>) {
        self.tree.release(s.lease);
        self.give_back_pages(&s.own, after);
    }

    pub fn reset(&mut self) {
        let freed = self.tree.reset();
        self.pool.free(&freed).expect("what was cached is not free");
    }
}
