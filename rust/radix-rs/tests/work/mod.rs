//! What tests of many threads share: a random source, the memory that slots stand for, and a thread's full mixed work on
//! a cache, which checks everything that it is told.
#![allow(dead_code)] // every test crate uses its own part

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use radix_rs::{CacheConfig, Fence, Handle, Lease, Match, Namespace, NewPrompt, PrefixCache, Sequence};

/// xorshift64*: reproducible per thread, no dependency.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed + 1));
        random.below(2);
        random
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    /// Pages that repeat, and a part of one.
    pub fn text(&mut self, page: usize, max_pages: usize) -> Vec<u32> {
        let letters: Vec<u32> = (0..self.below(max_pages + 1)).map(|_| 7 + self.below(2) as u32).collect();
        let mut tokens = pages(&letters, page);
        let (letter, rest) = (7 + self.below(2) as u32, self.below(page));
        tokens.extend(vec![letter; rest]);
        tokens
    }
}

/// One page of each letter.
pub fn pages(letters: &[u32], page: usize) -> Vec<u32> {
    letters.iter().flat_map(|&letter| vec![letter; page]).collect()
}

pub fn values(found: &Match) -> Vec<i32> {
    found.segments().iter().flat_map(|segment| segment.as_slice().to_vec()).collect()
}

pub fn atoms(found: &Match) -> Vec<u32> {
    found.segments().iter().flat_map(|segment| segment.atoms().to_vec()).collect()
}

pub fn lease_values(lease: &Lease) -> Vec<i32> {
    lease.segments().iter().flat_map(|segment| segment.as_slice().to_vec()).collect()
}

/// A cache, the K and V that its slots would hold, and two namespaces.
pub struct World {
    pub cache: PrefixCache,
    pub names: [Namespace; 2],
    content: Vec<AtomicU64>,
}

impl World {
    pub fn new(num_pages: usize, page_size: usize) -> Self {
        let num_slots = num_pages * page_size;
        World {
            cache: PrefixCache::new(CacheConfig { num_slots, page_size, ..Default::default() }).unwrap(),
            names: [Namespace::default(), Namespace::from("other")],
            content: (0..num_slots).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub fn page(&self) -> usize {
        self.cache.page_size()
    }

    pub fn num_slots(&self) -> usize {
        self.content.len()
    }

    /// What each position of a text stands for: a hash of the namespace and of everything up to it.
    fn meanings(tokens: &[u32], space: usize) -> Vec<u64> {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64 + space as u64;
        tokens
            .iter()
            .map(|&token| {
                hash = (hash ^ u64::from(token)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
                hash | 1
            })
            .collect()
    }

    /// Computes K and V of positions from `from` on.
    pub fn write(&self, row: &[i32], tokens: &[u32], from: usize, space: usize) {
        for (at, meaning) in Self::meanings(tokens, space).into_iter().enumerate().skip(from) {
            self.content[row[at] as usize].store(meaning, SeqCst);
        }
    }

    fn copy(&self, from: i32, to: i32) {
        self.content[to as usize].store(self.content[from as usize].load(SeqCst), SeqCst);
    }

    #[track_caller]
    pub fn expect(&self, row: &[i32], tokens: &[u32], space: usize) {
        for (at, (&slot, meaning)) in row.iter().zip(Self::meanings(tokens, space)).enumerate() {
            let found = self.content[slot as usize].load(SeqCst);
            assert_eq!(found, meaning, "slot {slot} at position {at} of {row:?} holds something else");
        }
    }

    fn space(&self, name: &Namespace) -> usize {
        self.names.iter().position(|known| known == name).expect("one of the two")
    }

    /// A request that has computed all of its text.
    pub fn computed(&self, tokens: &[u32], space: usize) -> Sequence {
        let mut sequence = self.cache.begin(tokens, &self.names[space]).unwrap();
        sequence.reserve(tokens.len() - sequence.num_reserved()).unwrap();
        self.write(&sequence.row().to_vec(), tokens, sequence.num_computed(), space);
        sequence.commit(tokens.len()).unwrap();
        sequence
    }

    /// Slots with their K and V, for somebody who uses tree and pool directly.
    pub fn filled(&self, tokens: &[u32], space: usize) -> Option<Vec<i32>> {
        let slots = self.cache.pool().alloc(tokens.len()).ok()?;
        self.write(&slots, tokens, 0, space);
        Some(slots)
    }

    /// A match names the text that was asked for and no other. (Its slots are a hint: they may be somebody else's by now.)
    #[track_caller]
    pub fn expect_match(&self, found: &Match, tokens: &[u32]) {
        assert!(found.length() <= tokens.len() && found.length().is_multiple_of(self.page()));
        assert_eq!(atoms(found), tokens[..found.length()], "a match of another text");
        assert_eq!(values(found).len(), found.length());
    }

    #[track_caller]
    pub fn expect_lease(&self, lease: &Lease, tokens: &[u32], space: usize) {
        let row = lease_values(lease);
        assert_eq!((row.len(), lease.length()), (lease.length(), tokens.len()));
        self.expect(&row, tokens, space);
    }

    /// Numbers that hold at every moment.
    #[track_caller]
    pub fn expect_counts(&self) {
        let (stats, most) = (self.cache.stats(), self.num_slots());
        let tree = self.cache.tree().stats();
        for (protected, cached) in
            [(stats.protected_tokens, stats.cached_tokens), (tree.protected_tokens, tree.cached_tokens)]
        {
            assert!(protected <= cached && cached <= most, "{protected} of {cached} cached slots are protected");
        }
        assert!(stats.num_free <= most && stats.held_tokens <= most && stats.waiting_tokens <= most);
    }
}

/// How often each kind of work went through.
#[derive(Debug, Default, Clone, Copy)]
pub struct Done {
    pub operations: usize,
    pub published: usize,
    pub refused: usize,
    pub forked: usize,
    pub evicted: usize,
    pub inserted: usize,
    pub locked: usize,
    pub waited: usize,
    pub reset: usize,
}

impl std::ops::AddAssign for Done {
    fn add_assign(&mut self, other: Done) {
        self.operations += other.operations;
        self.published += other.published;
        self.refused += other.refused;
        self.forked += other.forked;
        self.evicted += other.evicted;
        self.inserted += other.inserted;
        self.locked += other.locked;
        self.waited += other.waited;
        self.reset += other.reset;
    }
}

/// One thread's mixed work: requests, and somebody who uses the tree and the pool directly.
pub struct Worker<'a> {
    world: &'a World,
    random: Random,
    live: Vec<Sequence>,
    leases: Vec<(Lease, Vec<u32>, usize)>,
    fences: Vec<Fence>,
    handles: Vec<Handle>,
    done: Done,
}

impl<'a> Worker<'a> {
    pub fn new(world: &'a World, seed: u64) -> Self {
        let random = Random::new(seed);
        Worker {
            world,
            random,
            live: Vec::new(),
            leases: Vec::new(),
            fences: Vec::new(),
            handles: Vec::new(),
            done: Done::default(),
        }
    }

    /// With places from earlier, which may be gone.
    pub fn knowing(mut self, handles: Vec<Handle>) -> Self {
        self.handles = handles;
        self
    }

    /// Works, then ends everything it holds.
    pub fn run(mut self, steps: usize) -> Done {
        for handle in std::mem::take(&mut self.handles) {
            self.follow(&handle);
        }
        for _ in 0..steps {
            if self.random.below(2) == 0 {
                self.request()
            } else {
                self.direct()
            }
            self.world.expect_counts();
            self.done.operations += 1;
        }
        for (lease, tokens, space) in self.leases.drain(..) {
            self.world.expect_lease(&lease, &tokens, space);
        }
        self.done
    }

    fn verify(&self, sequence: &Sequence) {
        let (row, computed) = (sequence.row().to_vec(), sequence.num_computed());
        assert!(sequence.num_published() <= computed && computed <= sequence.num_reserved());
        let known = computed.min(sequence.num_tokens());
        self.world.expect(&row[..known], &sequence.tokens()[..known], self.world.space(sequence.namespace()));
    }

    /// Computes what is known and reserved, or a part of it.
    fn compute(&mut self, i: usize) {
        let upto = if self.random.below(3) == 0 { self.random.below(20) } else { usize::MAX };
        let fence = (self.random.below(4) == 0).then(|| self.world.cache.fence());
        let sequence = &mut self.live[i];
        let upto = upto.min(sequence.num_tokens()).min(sequence.num_reserved());
        let space = self.world.space(sequence.namespace());
        self.world.write(&sequence.row().to_vec(), &sequence.tokens()[..upto], sequence.num_computed(), space);
        sequence.commit_after(upto, fence.as_ref()).unwrap();
        self.done.published += sequence.num_published();
        self.fences.extend(fence);
    }

    /// A place is whole, or an error says that it is gone.
    fn follow(&self, handle: &Handle) {
        let (tree, end) = (self.world.cache.tree(), handle.end_depth());
        assert!(tree.values(handle).map_or(true, |found| found.length() == end));
        assert!(tree.node(handle).map_or(true, |node| node.start <= end));
        if let Ok(lease) = tree.lock(handle) {
            assert_eq!(lease.length(), end);
        }
    }

    fn request(&mut self) {
        let (world, page) = (self.world, self.world.page());
        if self.live.is_empty() || (self.live.len() < 3 && self.random.below(3) == 0) {
            let (tokens, space) = (self.random.text(page, 8), self.random.below(4) / 3);
            let sequence = world.cache.begin(&tokens, &world.names[space]).unwrap();
            self.verify(&sequence);
            self.live.push(sequence);
        }
        let i = self.random.below(self.live.len());
        match self.random.below(12) {
            0..=4 => {
                let more = self.random.below(3);
                let sequence = &mut self.live[i];
                let missing = (sequence.num_tokens() + more).saturating_sub(sequence.num_reserved());
                if sequence.reserve(missing).is_err() {
                    self.done.refused += 1;
                    return self.live.swap_remove(i).abort();
                }
                self.compute(i);
            }
            5 => self.live[i].append(&self.random.text(page, 2)).unwrap(),
            6 => {
                let length = self.random.below(self.live[i].num_tokens() + 1);
                self.live[i].truncate(length).unwrap();
            }
            7 if self.live.len() < 4 => {
                let at = self.random.below(self.live[i].num_tokens() + 1);
                if let Ok(children) = self.live[i].fork(1 + self.random.below(2), Some(at)) {
                    for child in children {
                        child.copies().iter().for_each(|&(from, to)| world.copy(from, to));
                        self.verify(&child);
                        self.live.push(child);
                        self.done.forked += 1;
                    }
                }
            }
            8 | 9 => {
                self.verify(&self.live[i]);
                let fence = world.cache.fence();
                self.live.swap_remove(i).finish_after(Some(&fence)).unwrap();
                self.fences.push(fence);
                self.done.waited += 1;
                if self.random.below(2) == 0 {
                    world.cache.signal(&self.fences[0]);
                }
                return self.fences.truncate(2);
            }
            _ => {
                self.verify(&self.live[i]);
                let sequence = self.live.swap_remove(i);
                return if self.random.below(3) == 0 { drop(sequence) } else { sequence.finish() };
            }
        }
        self.verify(&self.live[i]);
    }

    fn direct(&mut self) {
        let (world, page) = (self.world, self.world.page());
        let (tree, pool) = (world.cache.tree(), world.cache.pool());
        let (tokens, space) = (self.random.text(page, 8), self.random.below(4) / 3);
        let ns = &world.names[space];
        match self.random.below(14) {
            12 => {
                let ttl = Duration::from_secs(3600 * self.random.below(2) as u64);
                if let Ok(pin) = tree.pin(&tokens, ns, ttl, world.num_slots() / 4) {
                    assert!(pin.length() <= tokens.len());
                    tree.unpin(&pin); // or it was due, or a reset ended it
                }
            }
            13 => {
                let whole = tokens.len() / page * page;
                let texts = [tokens[..whole].to_vec(), tokens[..whole / 2 / page * page].to_vec()];
                let slots = texts.each_ref().map(|text| world.filled(text, space));
                if let [Some(first), Some(second)] = &slots {
                    let prompt = |tokens, values| NewPrompt { tokens, values, namespace: ns, priority: 0 };
                    let prompts = [prompt(&texts[0][..], first), prompt(&texts[1][..], second)];
                    for (done, slots) in tree.insert_many(&prompts).unwrap().iter().zip([first, second]) {
                        pool.free(&slots[..done.cached_len]).unwrap();
                    }
                    for found in tree.match_many(&texts.each_ref().map(|text| (text, ns))) {
                        world.expect_match(&found, &tokens);
                    }
                    self.done.inserted += 2;
                } else {
                    slots.into_iter().flatten().for_each(|slots| pool.free(&slots).unwrap());
                }
            }
            0..=2 => {
                let whole = tokens.len() / page * page;
                let Some(slots) = world.filled(&tokens[..whole], space) else {
                    self.done.evicted += world.cache.evict(whole);
                    return;
                };
                let done = tree.insert(&tokens[..whole], &slots, ns).unwrap();
                pool.free(&slots[..done.cached_len]).unwrap();
                self.done.inserted += 1;
            }
            3 if !self.leases.is_empty() => {
                let more = self.random.text(page, 3);
                let i = self.random.below(self.leases.len());
                let (lease, known, space) = &mut self.leases[i];
                let mut tokens = [&known[..], &more].concat();
                tokens.truncate(tokens.len() / page * page);
                let Some(slots) = world.filled(&tokens, *space) else { return };
                let done = tree.insert_with(lease, &tokens, &slots, 0).unwrap();
                pool.free(&slots[..done.cached_len]).unwrap();
                *known = tokens;
                world.expect_lease(lease, known, *space);
                self.done.inserted += 1;
            }
            4 | 5 if self.leases.len() < 3 => {
                let lease = tree.lock_prefix(&tokens, ns).unwrap();
                let known = tokens[..lease.length()].to_vec();
                world.expect_lease(&lease, &known, space);
                self.leases.push((lease, known, space));
                self.done.locked += 1;
            }
            6 => {
                let found = tree.match_prefix(&tokens, ns);
                world.expect_match(&found, &tokens);
                if let Ok(lease) = tree.lock(&found.handle()) {
                    world.expect_lease(&lease, &tokens[..found.length()], space);
                }
            }
            7 => tree.touch(&tokens, ns),
            8 => self.done.evicted += world.cache.evict(self.random.below(4) * page),
            9 => {
                let mut out = Vec::new();
                self.done.evicted += tree.evict_leaves(page, &mut out);
                pool.free(&out).unwrap();
            }
            10 if self.random.below(8) == 0 => {
                world.cache.reset();
                self.done.reset += 1;
            }
            10 => drop(tree.compact(4)),
            _ => {
                if let Some((mut lease, known, space)) = self.leases.pop() {
                    world.expect_lease(&lease, &known, space);
                    let cut = self.random.below(known.len() + 1) / page * page;
                    lease.shrink(cut).unwrap();
                    world.expect_lease(&lease, &known[..cut], space);
                    lease.release();
                }
            }
        }
    }
}
