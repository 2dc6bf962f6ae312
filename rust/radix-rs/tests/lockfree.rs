//! Lock-freedom shown: one thread stands for ever before each step of each operation, all others finish.
//!
//! Only in a build with pause points: `RUSTFLAGS="--cfg radix_pause" cargo test -p radix-rs --test lockfree` (or `make
//! lockfree`). `PAUSE_EVERY` tries every n-th step only.
#![cfg(radix_pause)]

#[path = "lockfree/operations.rs"]
mod operations;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use operations::{NUM_PAGES, OPERATIONS, Operation, PAGE};
use radix_rs::{Handle, Pause, step};
use work::{Done, Random, Worker, World, values};

/// A workload takes milliseconds: only a hang takes this long, on any machine.
const HANG: Duration = Duration::from_secs(30);
const WORKERS: u64 = 2;

/// Slots that one stopped thread may keep from everybody else: the longest path of the workload (that of the leaf it is
/// about to queue, with all above it) and what its own requests and its own call have in hand.
const KEPT_SLOTS: usize = 24 * PAGE;
/// Objects that an operation of somebody else retires at most, on average. They wait while the stopped thread may look.
const KEPT_PER_OPERATION: usize = 8;

fn every() -> usize {
    std::env::var("PAUSE_EVERY").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// A thread that stands before a step of an operation, or went through without reaching it.
struct Stopped {
    pause: Arc<Pause>,
    through: Receiver<()>,
    reached: bool,
    /// Places that somebody knew before it began.
    handles: Vec<Handle>,
}

impl Stopped {
    fn at(world: &Arc<World>, operation: &Operation, step: usize) -> Self {
        let work = (operation.prepare)(world.clone());
        let handles = world.cache.tree().nodes().iter().map(|node| node.handle).collect();
        let pause = Arc::new(Pause::before(step));
        let inside = pause.clone();
        let (say, through) = channel();
        thread::spawn(move || {
            let mut rest = None;
            inside.run(|| rest = Some(work()));
            drop(rest);
            let _ = say.send(());
        });
        // The second of two may hang because of the first.
        let reached = pause.wait_for(HANG).expect("an operation hangs");
        Stopped { pause, through, reached, handles }
    }

    fn go_on(self) -> usize {
        self.pause.open();
        match self.through.recv_timeout(HANG) {
            Ok(()) => self.pause.steps(),
            Err(RecvTimeoutError::Timeout) => panic!("an operation hangs after it was stopped for a while"),
            Err(RecvTimeoutError::Disconnected) => panic!("the operation itself went wrong"),
        }
    }
}

/// What the others did while a thread stood, or that they hang.
fn others_finish(world: &Arc<World>, handles: &[Handle], seed: u64, steps: usize) -> Option<Done> {
    let (say, hear) = channel();
    for worker in 0..WORKERS {
        let (world, handles, say) = (world.clone(), handles.to_vec(), say.clone());
        thread::spawn(move || {
            let done = Worker::new(&world, seed * WORKERS + worker).knowing(handles).run(steps);
            let _ = say.send(done);
        });
    }
    drop(say);
    let deadline = Instant::now() + HANG;
    let mut all = Done::default();
    for _ in 0..WORKERS {
        match hear.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(done) => all += done,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => panic!("a worker found something wrong"),
        }
    }
    Some(all)
}

/// What is true of everybody else's part while a thread stands. Returns the slots it keeps back.
fn audit(world: &World) -> usize {
    let cache = &world.cache;
    let (tree, pool) = (cache.tree(), cache.pool());
    world.expect_counts();
    // No slot twice: in the tree, with a sequence, or free.
    let mut owner = vec![None; world.num_slots()];
    let mut own = |slots: &[i32], who: &'static str| {
        for &slot in slots {
            let before = owner[slot as usize].replace(who);
            assert_eq!(before, None, "slot {slot} is {who} as well");
        }
    };
    for node in tree.nodes() {
        if let Ok(path) = tree.values(&node.handle) {
            own(&values(&path)[node.start..], "cached");
        }
    }
    cache.audit().iter().filter(|owned| owned.sequence.is_some()).for_each(|owned| own(&owned.slots, "held"));
    let free = pool.alloc(pool.num_free()).expect("what is counted as free can be had");
    own(&free, "free");
    pool.free(&free).unwrap();
    // Nobody changes anything now, so a match is exact, and its K and V are true.
    for (space, name) in world.names.iter().enumerate() {
        for letters in 0..32u32 {
            let letters: Vec<u32> = (0..5).map(|bit| 7 + (letters >> bit & 1)).collect();
            let tokens = work::pages(&letters, PAGE);
            let found = tree.match_prefix(&tokens, name);
            world.expect_match(&found, &tokens);
            world.expect(&values(&found), &tokens, space);
            let lease = tree.lock_prefix(&tokens, name).unwrap();
            assert_eq!(lease.length(), found.length(), "a match beside nobody is exact");
            world.expect_lease(&lease, &tokens[..found.length()], space);
        }
    }
    // Everything that the stopped thread does not hold comes back at once, and can be had.
    cache.evict(world.num_slots());
    let free = pool.num_free();
    let mut sequence = cache.begin(&[99][..], &world.names[0]).unwrap();
    assert_eq!(sequence.reserve(free).map(|view| view.len()), Ok(free), "free slots can be had");
    sequence.abort();
    assert_eq!(pool.num_free(), free);
    world.num_slots() - free
}

/// The thread went on, everything was released: exact again.
fn at_rest(world: &World) {
    let cache = &world.cache;
    assert_eq!(cache.tree().pinned_tokens(), 0); // lets go what is due
    cache.check().unwrap();
    let stats = cache.stats();
    let gone = (stats.protected_tokens, stats.held_tokens, stats.waiting_tokens, stats.num_sequences);
    assert_eq!(gone, (0, 0, 0, 0));
    assert_eq!(stats.num_free + stats.cached_tokens, stats.num_slots);
    cache.evict(world.num_slots());
    assert_eq!(cache.stats().num_free, world.num_slots());
    cache.tree().compact(0);
    assert_eq!(cache.tree().stats().num_retired, 0, "nobody stands in the way of collecting any more");
    cache.check().unwrap();
    let tokens = work::pages(&[7, 8, 7], PAGE);
    world.computed(&tokens, 0).finish();
    let found = cache.tree().match_prefix(&tokens, &world.names[0]);
    assert_eq!(found.length(), tokens.len());
    cache.tree().lock(&found.handle()).expect("a place that was just found, and nobody else is here");
}

/// What one operation showed.
#[derive(Default)]
struct Shown {
    steps: usize,
    stops: usize,
    kept_slots: usize,
    kept_objects: usize,
    done: Done,
}

fn stop_everywhere(operation: &Operation, first: usize, every: usize) -> Shown {
    let mut shown = Shown::default();
    for step in (first..).step_by(every) {
        let world = Arc::new(World::new(NUM_PAGES, PAGE));
        let stopped = Stopped::at(&world, operation, step);
        if !stopped.reached {
            shown.steps = stopped.go_on();
            at_rest(&world);
            return shown;
        }
        let place = format!("`{}` before step {step}", operation.name);
        let done = others_finish(&world, &stopped.handles, step as u64, 60);
        let Some(done) = done else { panic!("all others hang while a thread stands in {place}") };
        let retired = world.cache.tree().stats().num_retired;
        assert!(retired <= 100 + KEPT_PER_OPERATION * done.operations, "{place} keeps {retired} objects back");
        let kept = audit(&world);
        assert!(kept <= KEPT_SLOTS, "{place} keeps {kept} slots back");
        stopped.go_on();
        at_rest(&world);
        shown.stops += 1;
        shown.kept_slots = shown.kept_slots.max(kept);
        shown.kept_objects = shown.kept_objects.max(retired);
        shown.done += done;
    }
    unreachable!("an operation ends")
}

#[test]
fn with_a_thread_stopped_before_any_step_of_any_operation_all_others_finish() {
    let every = every();
    let mut done = Done::default();
    println!("{:34} {:>6} {:>6} {:>11} {:>13}", "operation", "steps", "stops", "kept slots", "kept objects");
    for (i, operation) in OPERATIONS.iter().enumerate() {
        let shown = stop_everywhere(operation, i % every, every);
        println!(
            "{:34} {:6} {:6} {:11} {:13}",
            operation.name, shown.steps, shown.stops, shown.kept_slots, shown.kept_objects
        );
        // An operation without pause points would pass unseen.
        assert!(shown.steps >= operation.least, "`{}` has {} steps only", operation.name, shown.steps);
        done += shown.done;
    }
    println!("meanwhile: {done:?}");
    // ... and so would others that do nothing.
    let kinds =
        [done.published, done.forked, done.evicted, done.inserted, done.locked, done.waited, done.reset, done.refused];
    assert!(kinds.iter().all(|&count| count > 0), "{done:?}");
}

#[test]
fn with_two_threads_stopped_anywhere_the_others_finish_and_the_first_does_beside_the_second() {
    // The second one meets what the first one left half done, and the first one comes back to a tree that has changed.
    let mut random = Random::new(5);
    let merging: Vec<&Operation> = OPERATIONS.iter().filter(|operation| operation.merges()).collect();
    // The one that fills the pool first leaves nothing to prepare another with.
    let any: Vec<&Operation> = OPERATIONS.iter().filter(|operation| !operation.fills()).collect();
    for round in 0..4000 / every() {
        let world = Arc::new(World::new(2 * NUM_PAGES, PAGE));
        let kind = if round % 2 == 0 { &any } else { &merging };
        let [first, second] = [(); 2].map(|()| kind[random.below(kind.len())]);
        let steps = [first, second].map(|operation| random.below(operation.least.max(1) * 2));
        let stopped = [Stopped::at(&world, first, steps[0]), Stopped::at(&world, second, steps[1])];
        let place = format!("`{}` before step {} and `{}` before step {}", first.name, steps[0], second.name, steps[1]);
        let handles = [&stopped[0].handles[..], &stopped[1].handles].concat();
        if random.below(3) > 0 {
            let done = others_finish(&world, &handles, round as u64, 40);
            assert!(done.is_some(), "all others hang while threads stand in {place}");
            let kept = audit(&world);
            assert!(kept <= 2 * KEPT_SLOTS, "{place} keep {kept} slots back");
        }
        let [first, second] = stopped;
        let (sooner, later) = if random.below(2) == 0 { (first, second) } else { (second, first) };
        sooner.go_on();
        assert!(others_finish(&world, &handles, round as u64, 10).is_some(), "all others hang after {place}");
        later.go_on();
        at_rest(&world);
    }
}

#[test]
fn what_a_stopped_reader_keeps_back_is_memory_in_proportion_to_the_work_of_others_and_no_slot() {
    // Epochs promise no more: as long as it may look, what was retired since waits.
    println!("{:>10} {:>10} {:>14} {:>12} {:>10}", "operations", "retired", "per operation", "bytes", "kept slots");
    for steps in [250, 500, 1000, 2000] {
        let bytes = |stop: bool| {
            let world = Arc::new(World::new(NUM_PAGES, PAGE));
            let reader = OPERATIONS.iter().find(|operation| operation.name == "match").unwrap();
            let stopped = Stopped::at(&world, reader, if stop { reader.least } else { usize::MAX });
            assert_eq!(stopped.reached, stop);
            let done = others_finish(&world, &[], 1, steps).expect("a reader stops nobody");
            let stats = world.cache.tree().stats();
            let kept = audit(&world);
            stopped.go_on();
            at_rest(&world);
            (done.operations, stats.num_retired, stats.size_bytes, kept)
        };
        let (operations, retired, with, kept) = bytes(true);
        let (_, free_retired, without, _) = bytes(false);
        let each = retired as f64 / operations as f64;
        println!("{operations:10} {retired:10} {each:14.2} {:12} {kept:10}", with.saturating_sub(without));
        assert_eq!(kept, 0, "a reader keeps no slot back");
        assert!(retired <= 100 + KEPT_PER_OPERATION * operations);
        assert!(free_retired < 2000, "{free_retired} objects wait though no reader stands");
    }
}

#[test]
fn every_operation_has_its_pause_points() {
    for operation in OPERATIONS {
        let world = Arc::new(World::new(NUM_PAGES, PAGE));
        let stopped = Stopped::at(&world, operation, usize::MAX);
        assert!(!stopped.reached);
        let steps = stopped.go_on();
        assert!(steps >= operation.least, "`{}` has {steps} steps, not {} or more", operation.name, operation.least);
        at_rest(&world);
    }
}

/// The control's lock, as somebody might put it into the tree: a flag that others spin on.
static FLAG: AtomicBool = AtomicBool::new(false);
static CONTROL_IS_OVER: AtomicBool = AtomicBool::new(false);

fn behind_a_flag(work: impl FnOnce()) {
    loop {
        step();
        if !FLAG.swap(true, SeqCst) {
            break;
        }
        if CONTROL_IS_OVER.load(SeqCst) {
            return;
        }
        thread::yield_now();
    }
    step();
    work();
    step();
    FLAG.store(false, SeqCst);
}

#[test]
fn a_flag_that_others_spin_on_is_caught() {
    let spinning = Operation {
        name: "a touch behind a flag",
        least: 10,
        prepare: |world| {
            let tokens = work::pages(&[7, 8], PAGE);
            world.computed(&tokens, 0).finish();
            Box::new(move || {
                behind_a_flag(|| world.cache.tree().touch(&tokens, &world.names[0]));
                Box::new(())
            })
        },
    };
    let mut hangs = 0;
    for step in [0, 1, 2, 5, 10] {
        let world = Arc::new(World::new(NUM_PAGES, PAGE));
        let stopped = Stopped::at(&world, &spinning, step);
        assert!(stopped.reached);
        let (say, hear) = channel();
        let other = world.clone();
        let other = thread::spawn(move || {
            behind_a_flag(|| other.cache.tree().touch(&[7u32; 2][..], &other.names[0]));
            let _ = say.send(());
        });
        let hangs_here = hear.recv_timeout(Duration::from_millis(200)).is_err();
        // Before the first step it has not taken the flag yet: nobody waits.
        assert_eq!(hangs_here, step > 0, "before step {step}");
        hangs += usize::from(hangs_here);
        CONTROL_IS_OVER.store(true, SeqCst);
        other.join().unwrap();
        stopped.go_on();
        CONTROL_IS_OVER.store(false, SeqCst);
    }
    assert_eq!(hangs, 4);
}
