//! Programs out of seeds, run by one, two and four threads; at rest compared with a plain reference on everything that does
//! not depend on who came first. A program that fails is cut down to what is needed.
//!
//! `DIFFERENTIAL_SEEDS` sets how many programs are tried.

mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

use radix_rs::{Lease, Namespace, Policy, RadixTree, SlotPool, TreeConfig};
use work::{Random, lease_values, pages, values};

const PAGE: usize = 2;
const NUM_PAGES: usize = 400;
const SPACES: usize = 2;

fn seeds(count: u64) -> u64 {
    std::env::var("DIFFERENTIAL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(count)
}

/// One line of a program. Words are letters, one page each.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Op {
    Insert(usize, Vec<u32>),
    /// Locks what is there of the first word, and publishes the second behind it.
    Publish(usize, Vec<u32>, Vec<u32>),
    Lock(usize, Vec<u32>),
    /// Lets the oldest lease of the thread go.
    Unlock,
    Touch(usize, Vec<u32>),
    Match(usize, Vec<u32>),
    Evict(usize),
    Compact,
}

/// Cached texts with their namespaces.
type Paths = BTreeSet<(usize, Vec<u32>)>;

/// What each thread does, one after the other.
type Program = Vec<Vec<Op>>;

fn word(random: &mut Random) -> Vec<u32> {
    (0..1 + random.below(5)).map(|_| 7 + random.below(3) as u32 / 2).collect()
}

fn program(seed: u64, threads: usize, evicts: bool) -> Program {
    let mut random = Random::new(seed);
    let mut op = || {
        let (space, text) = (random.below(3) / 2, word(&mut random));
        match random.below(12) {
            0..=2 => Op::Insert(space, text),
            3 | 4 => Op::Publish(space, text, word(&mut random)),
            5 | 6 => Op::Lock(space, text),
            7 | 8 => Op::Unlock,
            9 => Op::Touch(space, text),
            10 if evicts => Op::Evict(1 + random.below(4)),
            11 => Op::Compact,
            _ => Op::Match(space, text),
        }
    };
    (0..threads).map(|_| (0..24).map(|_| op()).collect()).collect()
}

/// The tree under test, with or without a planted fault.
struct System {
    tree: RadixTree,
    pool: SlotPool,
    names: [Namespace; SPACES],
    fault: Option<Fault>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// A word whose third letter is the other one is not inserted.
    NoInsert,
    /// Duplicates of words of four letters do not go back.
    SlotsKept,
    /// A lease of the second namespace is never released.
    LeaseKept,
}

impl System {
    fn new(fault: Option<Fault>) -> Self {
        let config = TreeConfig { page_size: PAGE, policy: Policy::Lru, ..Default::default() };
        System {
            tree: RadixTree::new(config).unwrap(),
            pool: SlotPool::new(NUM_PAGES * PAGE, PAGE).unwrap(),
            names: [Namespace::default(), Namespace::from("other")],
            fault,
        }
    }

    fn give(&self, slots: &[i32]) {
        self.pool.free(slots).expect("what comes back was taken");
    }

    fn run(&self, ops: &[Op]) {
        let mut leases: Vec<Lease> = Vec::new();
        for op in ops {
            match op {
                Op::Insert(space, text) => {
                    if self.fault == Some(Fault::NoInsert) && text.get(2) == Some(&8) {
                        continue;
                    }
                    let tokens = pages(text, PAGE);
                    let slots = self.pool.alloc(tokens.len()).expect("enough for everything");
                    let done = self.tree.insert(&tokens, &slots, &self.names[*space]).unwrap();
                    assert_eq!(done.length, tokens.len());
                    if self.fault != Some(Fault::SlotsKept) || text.len() != 4 {
                        self.give(&slots[..done.cached_len]);
                    }
                }
                Op::Publish(space, text, more) => {
                    let tokens = pages(text, PAGE);
                    let mut lease = self.tree.lock_prefix(&tokens, &self.names[*space]).unwrap();
                    let tokens = [&tokens[..lease.length()], &pages(more, PAGE)].concat();
                    let slots = self.pool.alloc(tokens.len()).expect("enough for everything");
                    let done = self.tree.insert_with(&mut lease, &tokens, &slots, 0).unwrap();
                    self.give(&slots[..done.cached_len]);
                    assert_eq!(lease_values(&lease).len(), tokens.len());
                    leases.push(lease);
                }
                Op::Lock(space, text) => {
                    leases.push(self.tree.lock_prefix(&pages(text, PAGE), &self.names[*space]).unwrap());
                }
                Op::Unlock if !leases.is_empty() => drop(leases.remove(0)),
                Op::Unlock => {}
                Op::Touch(space, text) => self.tree.touch(&pages(text, PAGE), &self.names[*space]),
                Op::Match(space, text) => {
                    let tokens = pages(text, PAGE);
                    let found = self.tree.match_prefix(&tokens, &self.names[*space]);
                    assert_eq!(work::atoms(&found), tokens[..found.length()]);
                }
                Op::Evict(count) => {
                    let mut out = Vec::new();
                    self.tree.evict(count * PAGE, &mut out);
                    self.give(&out);
                }
                Op::Compact => drop(self.tree.compact(8)),
            }
            if self.fault == Some(Fault::LeaseKept) && matches!(op, Op::Lock(1, _)) {
                std::mem::forget(leases.pop());
            }
        }
    }

    /// Every cached path with its slots, page by page.
    fn content(&self) -> BTreeMap<(usize, Vec<u32>), Vec<i32>> {
        let mut content = BTreeMap::new();
        for (space, name) in self.names.iter().enumerate() {
            let mut todo = vec![Vec::new()];
            while let Some(text) = todo.pop() {
                for letter in [7, 8] {
                    let longer = [&text[..], &[letter]].concat();
                    let found = self.tree.match_prefix(&pages(&longer, PAGE), name);
                    if found.length() == longer.len() * PAGE {
                        let slots = values(&found)[text.len() * PAGE..].to_vec();
                        content.insert((space, longer.clone()), slots);
                        todo.push(longer);
                    }
                }
            }
        }
        content
    }
}

/// Paths that must be there at rest if nobody evicts: every word that is inserted, with all that leads there. What `Publish`
/// adds depends on what was there when it came, so those words only may be there.
fn expected(program: &Program) -> (Paths, Paths) {
    let prefixes =
        |space: usize, text: &[u32]| (1..=text.len()).map(move |n| (space, text[..n].to_vec())).collect::<Vec<_>>();
    let (mut must, mut may) = (BTreeSet::new(), BTreeSet::new());
    for op in program.iter().flatten() {
        match op {
            Op::Insert(space, text) => must.extend(prefixes(*space, text)),
            Op::Publish(space, text, more) => {
                for n in 0..=text.len() {
                    may.extend(prefixes(*space, &[&text[..n], more].concat()));
                }
            }
            _ => {}
        }
    }
    may.extend(must.clone());
    (must, may)
}

/// What one thread alone leaves behind, exactly: a plain trie, no eviction.
fn alone(ops: &[Op]) -> Paths {
    let mut trie = BTreeSet::new();
    let add = |trie: &mut Paths, space: usize, text: &[u32]| {
        trie.extend((1..=text.len()).map(|n| (space, text[..n].to_vec())));
    };
    for op in ops {
        match op {
            Op::Insert(space, text) => add(&mut trie, *space, text),
            Op::Publish(space, text, more) => {
                let known = (1..=text.len()).take_while(|&n| trie.contains(&(*space, text[..n].to_vec()))).count();
                add(&mut trie, *space, &[&text[..known], more].concat());
            }
            _ => {}
        }
    }
    trie
}

/// Runs a program and compares what is left.
fn judge(program: &Program, fault: Option<Fault>) {
    let system = System::new(fault);
    let start = Barrier::new(program.len());
    std::thread::scope(|scope| {
        let spawn = |ops: &'_ Vec<Op>| {
            let (system, start, ops) = (&system, &start, ops.clone());
            scope.spawn(move || {
                start.wait();
                system.run(&ops);
            })
        };
        let threads: Vec<_> = program.iter().map(spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
    system.tree.check().unwrap();
    system.pool.check().unwrap();
    assert_eq!(system.tree.protected_tokens(), 0, "every lease went");
    // Conservation: a slot is free or cached, once.
    let content = system.content();
    let slots: BTreeSet<i32> = content.values().flatten().copied().collect();
    assert_eq!(slots.len(), content.len() * PAGE, "a slot stands twice");
    assert_eq!(slots.len(), system.tree.cached_tokens(), "the counter and the content");
    assert_eq!(slots.len() + system.pool.num_free(), NUM_PAGES * PAGE, "slots are lost");
    // The union of what was stored.
    let paths: BTreeSet<_> = content.keys().cloned().collect();
    let (must, may) = expected(program);
    assert!(paths.is_subset(&may), "nobody stored {:?}", paths.difference(&may).next());
    if !program.iter().flatten().any(|op| matches!(op, Op::Evict(_))) {
        assert!(must.is_subset(&paths), "{:?} is lost", must.difference(&paths).next());
        if let [ops] = &program[..] {
            assert_eq!(paths, alone(ops));
        }
    }
    // Everything can go, and comes back once.
    let mut out = Vec::new();
    system.tree.evict(usize::MAX / 2, &mut out);
    system.give(&out);
    assert_eq!((system.tree.cached_tokens(), system.pool.num_free()), (0, NUM_PAGES * PAGE));
    system.tree.check().unwrap();
}

/// Whether a program fails in one of some runs: what threads do is not the same every time.
fn fails(program: &Program, fault: Option<Fault>) -> bool {
    let runs = if program.len() == 1 { 1 } else { 20 };
    (0..runs).any(|_| catch_unwind(AssertUnwindSafe(|| judge(program, fault))).is_err())
}

/// Cuts a failing program down, for as long as it still fails: all in one thread, whole threads away, then halves, quarters
/// and single lines.
fn shrink(mut program: Program, fails: impl Fn(&Program) -> bool) -> Program {
    loop {
        let before = program.clone();
        for order in [program.concat(), program.iter().rev().flatten().cloned().collect()] {
            if program.len() > 1 && fails(&vec![order.clone()]) {
                program = vec![order];
            }
        }
        for thread in (0..program.len()).rev() {
            if program.len() > 1 {
                let mut fewer = program.clone();
                fewer.remove(thread);
                if fails(&fewer) {
                    program = fewer;
                    continue;
                }
            }
            let mut size = program[thread].len().div_ceil(2);
            while size > 0 {
                let mut at = 0;
                while at < program[thread].len() {
                    let mut shorter = program.clone();
                    let end = (at + size).min(shorter[thread].len());
                    shorter[thread].drain(at..end);
                    if fails(&shorter) { program = shorter } else { at += size }
                }
                size = if size == 1 { 0 } else { size / 2 };
            }
        }
        if program == before {
            return program;
        }
    }
}

fn agree(threads: usize, evicts: bool, count: u64) {
    for seed in 0..seeds(count) {
        let program = program(seed * 10 + threads as u64, threads, evicts);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| judge(&program, None))) {
            let small = shrink(program, |program| fails(program, None));
            let text = small.iter().map(|ops| format!("{ops:?}")).collect::<Vec<_>>().join("\n");
            eprintln!("seed {seed}, {threads} threads, cut down to:\n{text}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn programs_of_one_thread_leave_what_the_reference_says() {
    agree(1, false, 400);
    agree(1, true, 400);
}

#[test]
fn programs_of_two_threads_leave_what_does_not_depend_on_their_order() {
    agree(2, false, 300);
    agree(2, true, 300);
}

#[test]
fn programs_of_four_threads_leave_what_does_not_depend_on_their_order() {
    agree(4, false, 200);
    agree(4, true, 200);
}

#[test]
fn a_planted_fault_is_found_and_cut_down_to_the_lines_that_show_it() {
    for (fault, most) in [(Fault::NoInsert, 1), (Fault::SlotsKept, 2), (Fault::LeaseKept, 2)] {
        for threads in [1, 2, 4] {
            let found = (0..50).map(|seed| program(seed, threads, false)).find(|program| fails(program, Some(fault)));
            let found = found.unwrap_or_else(|| panic!("{fault:?} was not found with {threads} threads"));
            let small = shrink(found, |program| fails(program, Some(fault)));
            let lines: usize = small.iter().map(Vec::len).sum();
            assert!(lines <= most && small.len() == 1, "{fault:?} was cut down to {small:?} only");
        }
    }
}

#[test]
fn resets_side_by_side_leave_a_tree_whose_places_can_be_used() {
    for _ in 0..seeds(300) {
        let system = System::new(None);
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            let reset = || {
                start.wait();
                let mut out = Vec::new();
                system.tree.reset(&mut out);
                system.give(&out);
            };
            let threads = [scope.spawn(reset), scope.spawn(reset)];
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        system.run(&[Op::Insert(0, vec![7, 8])]);
        let found = system.tree.match_prefix(&pages(&[7, 8], PAGE), &system.names[0]);
        assert_eq!(system.tree.lock(&found.handle()).map(|lease| lease.length()), Ok(2 * PAGE));
    }
}
