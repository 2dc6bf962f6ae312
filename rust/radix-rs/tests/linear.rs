//! Linearizability: short histories of a few threads, each explained by some order of their operations.
//!
//! Every operation notes when it began and when it ended. A search (Wing and Gong) looks for an order that respects these
//! times and in which a plain reference gives the same answers. A match may be shorter than the reference's, never longer.
//! Evicting several pages is as many operations of one page each, in any order of leaves (which leaf is next depends on
//! times of use that race), and may give up early beside somebody who is about to lock.
//!
//! In a build with pause points each thread is stopped once, before a random step, and goes on when others are through: on
//! few cores that meets far more than luck does. `LINEAR_ROUNDS` sets how many histories.

mod work;

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use radix_rs::{Lease, Namespace, RadixTree, TreeConfig};
use work::{Random, lease_values, values};

fn rounds(count: usize) -> usize {
    std::env::var("LINEAR_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(count)
}

/// What a thread asks for. Texts are short words over two letters; a slot is one page.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ask {
    Match(Vec<u32>),
    /// With slots nobody else has.
    Insert(Vec<u32>, Vec<i32>),
    /// Takes the longest prefix and keeps it until the same thread unlocks.
    Lock(Vec<u32>),
    Unlock,
    Evict(usize),
}

/// What it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Values(Vec<i32>),
    Cached(usize),
    Done,
}

#[derive(Debug, Clone)]
struct Event {
    thread: usize,
    ask: Ask,
    answer: Answer,
    began: usize,
    ended: usize,
}

/// The system under test, or one with a planted fault.
trait System: Sync {
    fn matched(&self, text: &[u32]) -> Vec<i32>;
    fn insert(&self, text: &[u32], slots: &[i32]) -> usize;
    fn lock(&self, text: &[u32]) -> Lease;
    fn evict(&self, count: usize) -> Vec<i32>;
}

fn ns() -> Namespace {
    Namespace::default()
}

struct Real(RadixTree);

impl Real {
    fn new() -> Self {
        Real(RadixTree::new(TreeConfig::default()).unwrap())
    }
}

impl System for Real {
    fn matched(&self, text: &[u32]) -> Vec<i32> {
        values(&self.0.match_prefix(text, &ns()))
    }
    fn insert(&self, text: &[u32], slots: &[i32]) -> usize {
        self.0.insert(text, slots, &ns()).unwrap().cached_len
    }
    fn lock(&self, text: &[u32]) -> Lease {
        self.0.lock_prefix(text, &ns()).unwrap()
    }
    fn evict(&self, count: usize) -> Vec<i32> {
        let mut out = Vec::new();
        self.0.evict(count, &mut out);
        out
    }
}

// The reference

/// A trie of single tokens. Only what answers depend on; small enough to be a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct State {
    /// Slot and pins of each cached path.
    pages: BTreeMap<Vec<u32>, (i32, u32)>,
    /// How much of which text each thread holds.
    held: BTreeMap<usize, Vec<u32>>,
}

impl State {
    fn prefix(&self, text: &[u32]) -> usize {
        (1..=text.len()).take_while(|&n| self.pages.contains_key(&text[..n])).count()
    }

    fn values(&self, text: &[u32]) -> Vec<i32> {
        (1..=text.len()).map(|n| self.pages[&text[..n]].0).collect()
    }

    fn pin(&mut self, text: &[u32], by: i64) {
        for n in 1..=text.len() {
            let pins = &mut self.pages.get_mut(&text[..n]).expect("pinned pages are cached").1;
            *pins = u32::try_from(i64::from(*pins) + by).expect("pins are not negative");
        }
    }

    /// The state after `event`, if its answer is possible here.
    fn after(&self, event: &Event) -> Option<State> {
        let mut next = self.clone();
        match (&event.ask, &event.answer) {
            (Ask::Match(text), Answer::Values(found)) => {
                // shorter is allowed, longer or different is not
                let most = self.prefix(text);
                (found.len() <= most && self.values(&text[..found.len()]) == *found).then_some(next)
            }
            (Ask::Insert(text, slots), Answer::Cached(cached)) => {
                if self.prefix(text) != *cached {
                    return None;
                }
                for n in cached + 1..=text.len() {
                    next.pages.insert(text[..n].to_vec(), (slots[n - 1], 0));
                }
                Some(next)
            }
            (Ask::Lock(text), Answer::Values(found)) => {
                let prefix = &text[..self.prefix(text)];
                if self.values(prefix) != *found {
                    return None;
                }
                next.pin(prefix, 1);
                next.held.insert(event.thread, prefix.to_vec());
                Some(next)
            }
            (Ask::Unlock, Answer::Done) => {
                let held = next.held.remove(&event.thread).expect("a thread unlocks what it locked");
                next.pin(&held, -1);
                Some(next)
            }
            (Ask::Evict(_), Answer::Values(freed)) => {
                let leaf = self.leaves().into_iter().find(|path| self.pages[path].0 == freed[0])?;
                next.pages.remove(&leaf);
                Some(next)
            }
            other => panic!("{other:?} do not belong together"),
        }
    }

    fn leaves(&self) -> Vec<Vec<u32>> {
        let inner =
            |path: &Vec<u32>| self.pages.keys().any(|other| other.len() > path.len() && other.starts_with(path));
        self.pages.iter().filter(|(path, page)| page.1 == 0 && !inner(path)).map(|(path, _)| path.clone()).collect()
    }
}

/// What was recorded, and what a match found at rest.
struct History {
    running: Vec<Event>,
    at_rest: Vec<(Vec<u32>, Vec<i32>)>,
}

impl History {
    /// Whether some order, within the times, explains all answers.
    fn is_explained(&self) -> bool {
        assert!(self.running.len() <= 64);
        self.search(0, &State::default(), &mut HashSet::new())
    }

    fn search(&self, done: u64, state: &State, seen: &mut HashSet<(u64, State)>) -> bool {
        if done.count_ones() as usize == self.running.len() {
            // Nobody is left, so a match is exact.
            return self.at_rest.iter().all(|(text, found)| state.values(&text[..state.prefix(text)]) == *found);
        }
        if !seen.insert((done, state.clone())) {
            return false;
        }
        let open: Vec<usize> = (0..self.running.len()).filter(|i| done & (1 << i) == 0).collect();
        // Nobody may come before an operation that had ended when it began.
        let first_end = open.iter().map(|&i| self.running[i].ended).min().expect("not all are done");
        let mut next = open.into_iter().filter(|&i| self.running[i].began < first_end);
        next.any(|i| {
            let after = state.after(&self.running[i]);
            after.is_some_and(|after| self.search(done | 1 << i, &after, seen))
        })
    }
}

// Histories

const LONGEST: usize = 4;

fn word(random: &mut Random) -> Vec<u32> {
    (0..1 + random.below(LONGEST)).map(|_| 7 + random.below(2) as u32).collect()
}

/// What each of the threads will ask, and what one asks before they start.
fn program(random: &mut Random) -> Vec<Vec<Ask>> {
    let mut slot = 0;
    let mut insert = |random: &mut Random| {
        let text = word(random);
        let slots = (slot..).take(text.len()).collect();
        slot += text.len() as i32;
        Ask::Insert(text, slots)
    };
    let before: Vec<Ask> = (0..random.below(3)).map(|_| insert(random)).collect();
    let threads = 2 + random.below(3);
    let most = if threads == 4 { 4 } else { 6 };
    let mut all = vec![before];
    for _ in 0..threads {
        let (mut asks, mut locked) = (Vec::new(), false);
        for _ in 0..3 + random.below(most - 2) {
            asks.push(match random.below(9) {
                0..=2 => insert(random),
                3 | 4 => Ask::Match(word(random)),
                5 | 6 if locked => Ask::Unlock,
                5 | 6 => Ask::Lock(word(random)),
                _ => Ask::Evict(1 + random.below(3)),
            });
            match asks.last() {
                Some(Ask::Lock(_)) => locked = true,
                Some(Ask::Unlock) => locked = false,
                _ => {}
            }
        }
        all.push(asks);
    }
    all
}

fn ask(system: &dyn System, ask: &Ask, lease: &mut Option<Lease>) -> Answer {
    match ask {
        Ask::Match(text) => Answer::Values(system.matched(text)),
        Ask::Insert(text, slots) => Answer::Cached(system.insert(text, slots)),
        Ask::Lock(text) => {
            let taken = system.lock(text);
            let values = lease_values(&taken);
            assert_eq!(values.len(), taken.length());
            *lease = Some(taken);
            Answer::Values(values)
        }
        Ask::Unlock => {
            lease.take().expect("locked before").release();
            Answer::Done
        }
        Ask::Evict(count) => Answer::Values(system.evict(*count)),
    }
}

/// Runs each of the threads; in a build with pause points each stops once.
#[cfg(not(radix_pause))]
fn side_by_side<T: Send>(threads: usize, _random: &mut Random, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        let spawn = |thread| {
            let (run, start) = (&run, &start);
            scope.spawn(move || {
                start.wait();
                run(thread)
            })
        };
        let threads: Vec<_> = (0..threads).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[cfg(radix_pause)]
fn side_by_side<T: Send>(threads: usize, random: &mut Random, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    use radix_rs::Pause;
    let pauses: Vec<Pause> = (0..threads).map(|_| Pause::before(random.below(400))).collect();
    std::thread::scope(|scope| {
        let spawn = |thread: usize| {
            let (run, pause) = (&run, &pauses[thread]);
            scope.spawn(move || {
                let mut out = None;
                pause.run(|| out = Some(run(thread)));
                out.expect("it ran")
            })
        };
        let mut waiting: Vec<usize> = (0..threads).collect();
        // Some begin when others stand already.
        let mut handles = Vec::new();
        for (thread, pause) in pauses.iter().enumerate() {
            handles.push(spawn(thread));
            if random.below(2) == 0 {
                pause.wait_for(std::time::Duration::from_secs(30)).expect("a thread hangs");
            }
        }
        while !waiting.is_empty() {
            let thread = waiting.swap_remove(random.below(waiting.len()));
            pauses[thread].wait_for(std::time::Duration::from_secs(30)).expect("a thread hangs");
            pauses[thread].open();
        }
        handles.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn record(system: &dyn System, program: &[Vec<Ask>], random: &mut Random) -> History {
    let clock = AtomicUsize::new(0);
    let running = Mutex::new(Vec::new());
    let run = |thread: usize| {
        let (mut lease, mut own) = (None, Vec::new());
        for what in &program[thread] {
            let began = clock.fetch_add(1, SeqCst);
            let answer = ask(system, what, &mut lease);
            let ended = clock.fetch_add(1, SeqCst);
            let event = |answer| Event { thread, ask: what.clone(), answer, began, ended };
            match &answer {
                Answer::Values(freed) if matches!(what, Ask::Evict(_)) => {
                    own.extend(freed.iter().map(|&slot| event(Answer::Values(vec![slot]))));
                }
                _ => own.push(event(answer)),
            }
        }
        running.lock().unwrap().extend(own);
        // A lease that is left over goes when nobody records any more.
        lease
    };
    drop(run(0));
    let leases = side_by_side(program.len() - 1, random, |thread| run(thread + 1));
    // What everybody sees in the end belongs to the history.
    let texts = (0..16u32).map(|bits| (0..LONGEST).map(|bit| 7 + (bits >> bit & 1)).collect::<Vec<u32>>());
    let at_rest = texts.map(|text| (system.matched(&text), text)).map(|(found, text)| (text, found)).collect();
    drop(leases);
    History { running: running.into_inner().unwrap(), at_rest }
}

/// The first history of a kind of system that nothing explains.
fn unexplained<S: System>(rounds: usize, make: impl Fn() -> S, end: impl Fn(&S)) -> Option<String> {
    for seed in 0..rounds as u64 {
        let mut random = Random::new(seed);
        let program = program(&mut random);
        let system = make();
        let history = record(&system, &program, &mut random);
        end(&system);
        if !history.is_explained() {
            let mut events = history.running;
            events.sort_by_key(|event| event.began);
            let lines: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            return Some(format!("seed {seed}\n{}\nat rest {:?}", lines.join("\n"), history.at_rest));
        }
    }
    None
}

#[test]
fn every_history_of_a_tree_is_explained_by_some_order() {
    let end = |tree: &Real| tree.0.check().unwrap();
    if let Some(history) = unexplained(rounds(4000), Real::new, end) {
        panic!("nothing explains this: {history}");
    }
}

/// A tree with a fault, once it has done so many inserts.
struct Planted {
    tree: Real,
    inserts: AtomicUsize,
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// One insert does nothing.
    LostInsert,
    /// A match answers one page too much.
    OnePageTooMuch,
    /// A match answers another slot.
    WrongSlot,
    /// A lock is let go at once.
    LostLock,
    /// An insert says that less was there.
    WrongCount,
}

impl Planted {
    fn new(fault: Fault) -> Self {
        Planted { tree: Real::new(), inserts: AtomicUsize::new(0), fault }
    }
}

impl System for Planted {
    fn matched(&self, text: &[u32]) -> Vec<i32> {
        let mut found = self.tree.matched(text);
        match self.fault {
            Fault::OnePageTooMuch if !found.is_empty() && found.len() < text.len() => found.push(found[0] + 1),
            Fault::WrongSlot if found.len() == 3 => found[1] += 1,
            _ => {}
        }
        found
    }
    fn insert(&self, text: &[u32], slots: &[i32]) -> usize {
        let third = self.inserts.fetch_add(1, SeqCst) == 2;
        if third && self.fault == Fault::LostInsert {
            return self.tree.matched(text).len();
        }
        let cached = self.tree.insert(text, slots);
        if third && self.fault == Fault::WrongCount { cached.saturating_sub(1) } else { cached }
    }
    fn lock(&self, text: &[u32]) -> Lease {
        let lease = self.tree.lock(text);
        if self.fault == Fault::LostLock {
            // What is evicted now is not the lease's business any more, so its values are kept by a twin.
            let twin = Real::new();
            let slots = lease_values(&lease);
            twin.insert(&text[..slots.len()], &slots);
            return twin.lock(text);
        }
        lease
    }
    fn evict(&self, count: usize) -> Vec<i32> {
        self.tree.evict(count)
    }
}

#[test]
fn planted_faults_are_found() {
    for fault in [Fault::LostInsert, Fault::OnePageTooMuch, Fault::WrongSlot, Fault::LostLock, Fault::WrongCount] {
        let found = unexplained(rounds(4000), || Planted::new(fault), |_| ());
        assert!(found.is_some(), "{fault:?} was not found");
    }
}

#[test]
fn a_history_that_cannot_be_is_told_from_one_that_can() {
    let event = |thread, ask, answer, began, ended| Event { thread, ask, answer, began, ended };
    let insert = event(1, Ask::Insert(vec![7], vec![0]), Answer::Cached(0), 0, 3);
    let found = |began, ended, values| event(2, Ask::Match(vec![7]), Answer::Values(values), began, ended);
    let at_rest = vec![(vec![7], vec![0])];
    let explained = |running: Vec<Event>| History { running, at_rest: at_rest.clone() }.is_explained();
    // Beside the insert it may be found; before it began it may not; afterwards it may be missed by a match only.
    assert!(explained(vec![insert.clone(), found(1, 2, vec![0])]));
    assert!(explained(vec![insert.clone(), found(1, 2, vec![])]));
    assert!(explained(vec![insert.clone(), found(4, 5, vec![])]));
    let late = event(1, Ask::Insert(vec![7], vec![0]), Answer::Cached(0), 4, 5);
    assert!(!explained(vec![late, found(1, 2, vec![0])]));
    let lock = |values| event(2, Ask::Lock(vec![7]), Answer::Values(values), 4, 5);
    assert!(explained(vec![insert.clone(), lock(vec![0])]));
    assert!(!explained(vec![insert.clone(), lock(vec![])]));
    assert!(!explained(vec![insert.clone(), found(4, 5, vec![1])]));
    assert!(!explained(vec![insert.clone(), insert]));
}
