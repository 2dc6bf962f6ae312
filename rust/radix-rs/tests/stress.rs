//! Threads that hammer one tree, one pool and one cache; at rest every slot is accounted for.
//!
//! What a slot holds is written down beside the pool (a hash of the whole prefix that its K and V would stand for), so that
//! a slot that is reused too early, or found under a wrong prefix, is seen by its reader. `STRESS_ROUNDS` multiplies the
//! number of rounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;

use radix_rs::{CacheConfig, Fence, Lease, Match, Namespace, PrefixCache, RadixTree, Sequence, SlotPool, TreeConfig};

const THREADS: usize = 4;

fn rounds(count: usize) -> usize {
    let times = std::env::var("STRESS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    count * times
}

/// xorshift64*: reproducible per thread, no dependency.
struct Random(u64);

impl Random {
    fn new(seed: usize) -> Self {
        Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed as u64 + 1))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    /// Pages that repeat, and a part of one.
    fn text(&mut self, page: usize, max_pages: usize) -> Vec<u32> {
        let mut tokens = Vec::new();
        for _ in 0..self.below(max_pages + 1) {
            tokens.extend(vec![7 + self.below(2) as u32; page]);
        }
        let (letter, rest) = (7 + self.below(2) as u32, self.below(page));
        tokens.extend(vec![letter; rest]);
        tokens
    }
}

fn ns() -> Namespace {
    Namespace::default()
}

fn tree(page_size: usize) -> RadixTree {
    RadixTree::new(TreeConfig { page_size, compact_every: 5, ..Default::default() }).unwrap()
}

fn values(found: &Match) -> Vec<i32> {
    found.segments().iter().flat_map(|segment| segment.as_slice().to_vec()).collect()
}

fn lease_values(lease: &Lease) -> Vec<i32> {
    lease.segments().iter().flat_map(|segment| segment.as_slice().to_vec()).collect()
}

/// What each position of a text stands for: a hash of everything up to it.
fn meanings(tokens: &[u32]) -> Vec<u64> {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    tokens
        .iter()
        .map(|&token| {
            hash = (hash ^ u64::from(token)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
            hash | 1
        })
        .collect()
}

/// The K and V that a pool would hold, and who has each slot.
struct Memory {
    content: Vec<AtomicU64>,
    taken: Vec<AtomicBool>,
}

impl Memory {
    fn new(num_slots: usize) -> Self {
        Memory {
            content: (0..num_slots).map(|_| AtomicU64::new(0)).collect(),
            taken: (0..num_slots).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    fn write(&self, slot: i32, meaning: u64) {
        self.content[slot as usize].store(meaning, SeqCst);
    }

    fn read(&self, slot: i32) -> u64 {
        self.content[slot as usize].load(SeqCst)
    }

    fn take(&self, slots: &[i32]) {
        for &slot in slots {
            assert!(!self.taken[slot as usize].swap(true, SeqCst), "slot {slot} was handed out twice");
        }
    }

    fn leave(&self, slots: &[i32]) {
        for &slot in slots {
            assert!(self.taken[slot as usize].swap(false, SeqCst), "slot {slot} was given back twice");
        }
    }

    #[track_caller]
    fn expect(&self, row: &[i32], tokens: &[u32]) {
        for (at, (&slot, meaning)) in row.iter().zip(meanings(tokens)).enumerate() {
            assert_eq!(self.read(slot), meaning, "slot {slot} at position {at} of {row:?} holds something else");
        }
    }
}

/// Runs the same work on several threads that start together; the first panic is passed on.
fn together(threads: usize, work: impl Fn(usize) + Sync) {
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let spawn = |me| {
            let (work, start) = (&work, &start);
            scope.spawn(move || {
                start.wait();
                work(me);
            })
        };
        let threads: Vec<_> = (0..threads).map(spawn).collect();
        // A scope waits for its threads as well, but in a way that ThreadSanitizer does not see.
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// Tells the others to stop, also when its thread fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

// Over-match

#[test]
fn a_match_of_a_nested_self_similar_prefix_is_exactly_as_long_as_what_its_thread_inserted() {
    const LONGEST: usize = 64;
    for page in [1usize, 4] {
        let barrier = Barrier::new(8);
        let trees: Vec<RadixTree> = (0..rounds(if page == 1 { 3000 } else { 500 })).map(|_| tree(page)).collect();
        together(8, |me| {
            let mut random = Random::new(me);
            for tree in &trees {
                barrier.wait();
                let length = (me + 1 + 8 * random.below(LONGEST / page / 8)).min(LONGEST / page) * page;
                let text = vec![7u32; length];
                // The value says which position it belongs to.
                let slots: Vec<i32> = (0..length as i32).map(|at| (me * LONGEST) as i32 + at).collect();
                let done = tree.insert(&text, &slots, &ns()).unwrap();
                assert!(done.cached_len <= length);
                assert_eq!(done.length, length);
                // Beside a writer a match may be shorter, but never longer and never wrong.
                let lease = tree.lock_prefix(&text, &ns()).unwrap();
                let beside = tree.match_prefix(&text, &ns());
                assert!(lease.length() <= length && beside.length() <= length);
                // At rest it is exact.
                barrier.wait();
                let found = tree.match_prefix(&text, &ns());
                assert_eq!(found.length(), length);
                let more = tree.match_prefix(&[7u32; 2 * LONGEST][..], &ns());
                assert!((length..=LONGEST).contains(&more.length()));
                for row in [values(&found), values(&beside), values(&more), lease_values(&lease)] {
                    assert!(row.iter().enumerate().all(|(at, slot)| *slot as usize % LONGEST == at), "{row:?}");
                }
                assert_eq!((values(&found).len(), values(&more).len()), (length, more.length()));
                barrier.wait();
            }
        });
        for tree in &trees {
            tree.check().unwrap();
            assert_eq!(tree.protected_tokens(), 0);
        }
    }
}

#[test]
fn a_reader_of_an_edge_that_is_being_split_and_made_whole_answers_a_true_length() {
    let tree = tree(1);
    let slots: Vec<i32> = (0..32).collect();
    tree.insert(&[7; 32][..], &slots, &ns()).unwrap();
    for _ in 0..rounds(60) {
        let stop = AtomicBool::new(false);
        together(THREADS, |me| match me {
            0 => {
                let _stops = Stops(&stop);
                for round in 0..100 {
                    drop(tree.lock_prefix(&vec![7; 1 + round % 31], &ns()).unwrap());
                }
            }
            1 => {
                while !stop.load(SeqCst) {
                    drop(tree.lock_prefix(&[7; 16][..], &ns()).unwrap());
                    tree.touch(&[7; 8][..], &ns());
                }
            }
            _ => {
                while !stop.load(SeqCst) {
                    // A reader that meets a split may stop there, but never goes on in what it has read already.
                    let found = tree.match_prefix(&[7; 48][..], &ns());
                    assert!((1..=32).contains(&found.length()), "{}", found.length());
                    assert_eq!(values(&found), slots[..found.length()]);
                }
            }
        });
        tree.check().unwrap();
        tree.compact(usize::MAX);
        tree.check().unwrap();
        assert_eq!(tree.match_prefix(&[7; 48][..], &ns()).segments().len(), 1);
    }
}

#[test]
fn locking_a_handle_beside_splits_and_evictions_gives_its_whole_path_or_says_that_it_is_stale() {
    let slots: Vec<i32> = (0..64).collect();
    for _ in 0..rounds(40) {
        let tree = tree(1);
        tree.insert(&[7; 64][..], &slots, &ns()).unwrap();
        let stop = AtomicBool::new(false);
        together(THREADS, |me| match me {
            0 => {
                let _stops = Stops(&stop);
                for round in 0..400 {
                    drop(tree.lock_prefix(&vec![7; 1 + round * 5 % 63], &ns()).unwrap());
                    if round % 8 == 7 {
                        tree.evict(1 + round % 3, &mut Vec::new());
                        tree.insert(&[7; 64][..], &slots, &ns()).unwrap();
                    }
                }
            }
            _ => {
                let mut random = Random::new(me);
                while !stop.load(SeqCst) {
                    let handle = tree.match_prefix(&vec![7; 1 + random.below(64)], &ns()).handle();
                    if let Ok(lease) = tree.lock(&handle) {
                        assert_eq!(lease.length(), handle.end_depth());
                        assert_eq!(lease_values(&lease), slots[..handle.end_depth()]);
                    }
                }
            }
        });
        tree.check().unwrap();
        assert_eq!(tree.protected_tokens(), 0);
    }
}

// The tree and the pool

#[test]
fn a_tree_under_mixed_work_keeps_every_lease_true_and_loses_no_slot() {
    for page in [1usize, 4] {
        let num_slots = 96 * page;
        let (tree, pool) = (tree(page), SlotPool::new(num_slots, page).unwrap());
        let memory = Memory::new(num_slots);
        // At rest after each of many short sessions, everything must hold.
        for session in 0..rounds(60) {
            together(THREADS, |me| {
                let mut random = Random::new(me + THREADS * session);
                let mut leases: Vec<(Lease, Vec<u32>)> = Vec::new();
                for _ in 0..100 {
                    let text = random.text(page, 12);
                    match random.below(8) {
                        0..=2 => {
                            let with = (random.below(2) == 0 && !leases.is_empty()).then(|| random.below(leases.len()));
                            let text = match with {
                                Some(i) => [leases[i].1.clone(), random.text(page, 3)].concat(),
                                None => text,
                            };
                            let whole = text.len() / page * page;
                            let slots = match pool.alloc(whole) {
                                Ok(slots) => slots,
                                Err(_) => {
                                    let mut out = Vec::new();
                                    tree.evict(whole, &mut out);
                                    memory.leave(&out);
                                    pool.free(&out).unwrap();
                                    continue;
                                }
                            };
                            memory.take(&slots);
                            for (&slot, meaning) in slots.iter().zip(meanings(&text)) {
                                memory.write(slot, meaning);
                            }
                            let text = &text[..whole];
                            let cached = match with {
                                Some(i) => {
                                    let (lease, known) = &mut leases[i];
                                    let done = tree.insert_with(lease, text, &slots, 0).unwrap();
                                    *known = text.to_vec();
                                    assert_eq!(lease.length(), whole);
                                    done.cached_len
                                }
                                None => tree.insert(text, &slots, &ns()).unwrap().cached_len,
                            };
                            memory.leave(&slots[..cached]);
                            pool.free(&slots[..cached]).unwrap();
                        }
                        3 | 4 if leases.len() < 5 => {
                            let lease = tree.lock_prefix(&text, &ns()).unwrap();
                            let length = lease.length();
                            assert_eq!(length % page, 0);
                            leases.push((lease, text[..length].to_vec()));
                        }
                        5 => {
                            let mut out = Vec::new();
                            let count = (1 + random.below(6)) * page;
                            if random.below(2) == 0 {
                                tree.evict(count, &mut out);
                                assert!(out.len() <= count);
                            } else {
                                tree.evict_leaves(count, &mut out);
                            }
                            memory.leave(&out);
                            pool.free(&out).unwrap();
                        }
                        6 => {
                            let found = tree.match_prefix(&text, &ns());
                            assert!(found.length() <= text.len());
                            assert_eq!(values(&found).len(), found.length());
                            tree.touch(&text, &ns());
                            if let Ok(lease) = tree.lock(&found.handle()) {
                                let known = text[..found.length()].to_vec();
                                assert_eq!(lease.length(), known.len());
                                memory.expect(&lease_values(&lease), &known);
                            }
                        }
                        _ => {
                            if let Some((lease, known)) = leases.pop() {
                                memory.expect(&lease_values(&lease), &known);
                                lease.release();
                            }
                        }
                    }
                    for (lease, known) in &leases {
                        assert_eq!(lease.length(), known.len());
                        memory.expect(&lease_values(lease), known);
                    }
                    let (protected, cached) = (tree.protected_tokens(), tree.cached_tokens());
                    assert!(protected <= num_slots && cached <= num_slots, "{protected} of {cached}");
                }
            });
            tree.check().unwrap();
            pool.check().unwrap();
            assert_eq!(tree.protected_tokens(), 0);
            assert_eq!(pool.num_free() + tree.cached_tokens(), num_slots);
        }
        let mut out = Vec::new();
        tree.evict(num_slots, &mut out);
        memory.leave(&out);
        pool.free(&out).unwrap();
        assert_eq!(pool.num_free(), num_slots);
        tree.check().unwrap();
    }
}

#[test]
fn a_pool_under_load_hands_every_slot_out_once_and_refuses_only_what_it_cannot_find() {
    for page in [1usize, 16] {
        let num_slots = 640 * page;
        let pool = SlotPool::new(num_slots, page).unwrap();
        let memory = Memory::new(num_slots);
        together(THREADS, |me| {
            let mut random = Random::new(me);
            let mut held: Vec<Vec<i32>> = Vec::new();
            for _ in 0..rounds(5000) {
                // A quarter of the pool each is promised: never refused.
                let mine: usize = held.iter().map(Vec::len).sum();
                let count = random.below(24) * page;
                if mine + count <= num_slots / THREADS {
                    let slots = pool.alloc(count).unwrap();
                    assert_eq!(slots.len(), count);
                    memory.take(&slots);
                    held.push(slots);
                } else {
                    let slots = held.swap_remove(random.below(held.len()));
                    memory.leave(&slots);
                    pool.free(&slots).unwrap();
                }
            }
            for slots in held {
                memory.leave(&slots);
                pool.free(&slots).unwrap();
            }
        });
        pool.check().unwrap();
        assert_eq!(pool.alloc(num_slots).unwrap(), (0..num_slots as i32).collect::<Vec<_>>());
    }
}

#[test]
fn of_threads_that_free_the_same_pages_exactly_one_succeeds() {
    let pool = SlotPool::new(64, 4).unwrap();
    for _ in 0..rounds(300) {
        let slots = pool.alloc(64).unwrap();
        let wins = AtomicU64::new(0);
        together(THREADS, |_| {
            if pool.free(&slots).is_ok() {
                wins.fetch_add(1, SeqCst);
            }
        });
        assert_eq!(wins.load(SeqCst), 1);
        assert_eq!(pool.num_free(), 64);
        pool.check().unwrap();
    }
}

// The cache

/// One thread's requests, checked against what the slots hold.
struct Worker<'a> {
    cache: &'a PrefixCache,
    memory: &'a Memory,
    live: Vec<Sequence>,
    fences: Vec<Fence>,
}

impl Worker<'_> {
    fn verify(&self, sequence: &Sequence) {
        let (row, computed) = (sequence.row().to_vec(), sequence.num_computed());
        assert!(sequence.num_published() <= computed && computed <= sequence.num_reserved());
        let known = computed.min(sequence.num_tokens());
        self.memory.expect(&row[..known], &sequence.tokens()[..known]);
    }

    /// Computes what is known and reserved, up to `upto`.
    fn compute(&mut self, i: usize, upto: usize, after: bool) {
        let fence = after.then(|| self.cache.fence());
        let sequence = &mut self.live[i];
        let upto = upto.min(sequence.num_tokens()).min(sequence.num_reserved());
        let row = sequence.row().to_vec();
        for (at, meaning) in meanings(&sequence.tokens()[..upto]).into_iter().enumerate() {
            if at >= sequence.num_computed() {
                self.memory.write(row[at], meaning);
            }
        }
        sequence.commit_after(upto, fence.as_ref()).unwrap();
        self.fences.extend(fence);
    }

    fn step(&mut self, random: &mut Random) {
        let page = self.cache.page_size();
        if self.live.is_empty() || (self.live.len() < 4 && random.below(4) == 0) {
            let sequence = self.cache.begin(&random.text(page, 10), &ns()).unwrap();
            self.verify(&sequence);
            self.live.push(sequence);
        }
        let i = random.below(self.live.len());
        match random.below(12) {
            0..=4 => {
                let sequence = &mut self.live[i];
                let missing = (sequence.num_tokens() + random.below(3)).saturating_sub(sequence.num_reserved());
                if sequence.reserve(missing).is_ok() {
                    let upto = if random.below(3) == 0 { random.below(40) } else { usize::MAX };
                    self.compute(i, upto, random.below(4) == 0);
                } else {
                    self.live.swap_remove(i).abort();
                    return;
                }
            }
            5 => self.live[i].append(&random.text(page, 2)).unwrap(),
            6 => {
                let length = random.below(self.live[i].num_tokens() + 1);
                self.live[i].truncate(length).unwrap();
            }
            7 if self.live.len() < 6 => {
                let at = random.below(self.live[i].num_tokens() + 1);
                if let Ok(children) = self.live[i].fork(1 + random.below(2), Some(at)) {
                    for child in children {
                        for &(from, to) in child.copies() {
                            self.memory.write(to, self.memory.read(from));
                        }
                        self.verify(&child);
                        self.live.push(child);
                    }
                }
            }
            8 => drop(self.cache.evict(random.below(4 * page))),
            9 => {
                let fence = self.fences.pop();
                if random.below(2) == 0
                    && let Some(fence) = fence
                {
                    self.cache.signal(&fence);
                }
            }
            10 => {
                self.verify(&self.live[i]);
                let fence = self.cache.fence();
                self.live.swap_remove(i).finish_after(Some(&fence)).unwrap();
                self.fences.push(fence);
                return;
            }
            _ => {
                self.verify(&self.live[i]);
                let sequence = self.live.swap_remove(i);
                if random.below(3) == 0 {
                    drop(sequence)
                } else {
                    sequence.finish()
                }
                return;
            }
        }
        self.verify(&self.live[i]);
        self.fences.truncate(3);
    }
}

fn hammer_a_cache(page: usize, num_pages: usize, resets: bool) {
    let num_slots = num_pages * page;
    let config = CacheConfig { num_slots, page_size: page, ..Default::default() };
    let cache: PrefixCache = PrefixCache::new(config).unwrap();
    let memory = Memory::new(num_slots);
    for session in 0..rounds(40) {
        together(THREADS, |me| {
            let mut random = Random::new(me + THREADS * session + 1000 * num_pages);
            let mut worker = Worker { cache: &cache, memory: &memory, live: Vec::new(), fences: Vec::new() };
            for round in 0..100 {
                worker.step(&mut random);
                if resets && me == 0 && round % 64 == 63 {
                    cache.reset();
                }
                let stats = cache.stats();
                assert!(stats.protected_tokens <= num_slots && stats.num_free <= num_slots);
            }
        });
        cache.check().unwrap();
        let stats = cache.stats();
        assert_eq!(
            (stats.held_tokens, stats.waiting_tokens, stats.protected_tokens, stats.num_sequences),
            (0, 0, 0, 0)
        );
        assert_eq!(stats.num_free + stats.cached_tokens, num_slots);
    }
    cache.evict(num_slots);
    assert_eq!(cache.pool().num_free(), num_slots);
    cache.check().unwrap();
}

#[test]
fn a_cache_under_mixed_work_never_reuses_a_slot_that_somebody_reads() {
    hammer_a_cache(1, 200, false);
    hammer_a_cache(4, 80, false);
}

#[test]
fn a_cache_too_small_for_its_users_stays_right() {
    hammer_a_cache(4, 16, false);
}

#[test]
fn a_cache_that_is_reset_under_its_users_stays_right() {
    hammer_a_cache(4, 60, true);
}

#[test]
fn sequences_held_at_rest_are_accounted_for() {
    let config = CacheConfig { num_slots: 400, page_size: 4, ..Default::default() };
    let cache: PrefixCache = PrefixCache::new(config).unwrap();
    let memory = Memory::new(400);
    for round in 0..rounds(20) {
        let kept: Vec<(Vec<Sequence>, Vec<Fence>)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|me| {
                    let (cache, memory) = (&cache, &memory);
                    scope.spawn(move || {
                        let mut random = Random::new(me + 100 * round);
                        let mut worker = Worker { cache, memory, live: Vec::new(), fences: Vec::new() };
                        (0..150).for_each(|_| worker.step(&mut random));
                        (std::mem::take(&mut worker.live), std::mem::take(&mut worker.fences))
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        cache.check().unwrap();
        let stats = cache.stats();
        let held = kept.iter().flat_map(|(live, _)| live);
        let held: usize = held.map(|s| s.num_reserved().next_multiple_of(4) - s.num_published()).sum();
        assert_eq!(stats.held_tokens, held);
        assert_eq!(stats.num_free + stats.cached_tokens + held + stats.waiting_tokens, 400);
        let mut owners = vec![0; 400];
        for owned in cache.audit() {
            owned.slots.iter().for_each(|&slot| owners[slot as usize] += 1);
        }
        assert!(owners.iter().all(|&count| count <= 1));
        assert_eq!(owners.iter().sum::<usize>(), held);
    }
    assert_eq!(cache.stats().num_sequences, 0);
    cache.check().unwrap();
}

#[test]
fn the_last_handle_of_a_fence_lets_go_whoever_drops_it() {
    for _ in 0..rounds(500) {
        let cache: PrefixCache = PrefixCache::new(CacheConfig { num_slots: 8, ..Default::default() }).unwrap();
        let fence = cache.fence();
        let handles: Vec<Arc<std::sync::Mutex<Option<Fence>>>> =
            (0..THREADS).map(|_| Arc::new(std::sync::Mutex::new(Some(fence.clone())))).collect();
        drop(fence);
        together(THREADS, |me| {
            let fence = handles[me].lock().unwrap().take().unwrap();
            let mut sequence = cache.begin(&[1][..], &ns()).unwrap();
            if sequence.reserve(1 + me % 2).is_ok() {
                sequence.abort_after(Some(&fence)).unwrap();
            }
            if me == 1 {
                cache.signal(&fence);
            }
            drop(fence);
        });
        assert_eq!(cache.stats().num_free, 8);
        cache.check().unwrap();
    }
}
