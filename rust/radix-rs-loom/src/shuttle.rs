//! Running whole workloads under shuttle: schedules drawn at random, and such with few but well placed switches (PCT).

use std::sync::Mutex;
use std::time::Instant;

use radix_rs::{PrefixCache, RadixTree, Sequence};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

pub use shuttle::thread;

use crate::{is_control, ns};

/// A schedule to run again, as a failing run prints it.
pub const REPLAY: &str = "RADIX_REPLAY";

/// Runs half of the schedules at random and half by PCT, from fixed seeds (`SHUTTLE_RANDOM_SEED` is another), and prints how
/// many that were. `RADIX_SCHEDULES` multiplies their number, but not for a control. A failing schedule is printed; with it in `RADIX_REPLAY` the
/// same test runs that one alone.
pub fn explore(name: &str, schedules: usize, workload: impl Fn() + Send + Sync + Clone + 'static) {
    if let Ok(schedule) = std::env::var(REPLAY) {
        return shuttle::replay(workload, &schedule);
    }
    let times = std::env::var("RADIX_SCHEDULES").ok().filter(|_| !is_control());
    let times: f64 = times.map_or(1.0, |n| n.parse().expect("RADIX_SCHEDULES is a number"));
    let half = (schedules as f64 * times / 2.0).ceil() as usize;
    let start = Instant::now();
    run(RandomScheduler::new_from_seed(1, half), workload.clone());
    run(PctScheduler::new_from_seed(2, 3, half), workload);
    println!("{name}: {} schedules, {:.1} s", 2 * half, start.elapsed().as_secs_f32());
}

fn run(scheduler: impl Scheduler + 'static, workload: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    Runner::new(scheduler, config).run(workload);
}

fn below(end: usize) -> usize {
    thread_rng().gen_range(0..end)
}

/// Texts that share prefixes and repeat themselves.
fn text(longest: usize) -> Vec<u32> {
    let length = 1 + below(longest);
    (0..length).map(|_| if below(4) == 0 { 2 } else { 1 }).collect()
}

/// What each value of the tree stands for: the whole prefix that ends there. Values are never used twice.
#[derive(Default)]
pub struct Meanings(Mutex<Vec<Vec<u32>>>);

impl Meanings {
    fn new_values(&self, tokens: &[u32]) -> Vec<i32> {
        let mut known = self.0.lock().expect("nobody fails while he holds it");
        let first = known.len() as i32;
        known.extend((1..=tokens.len()).map(|end| tokens[..end].to_vec()));
        (first..).take(tokens.len()).collect()
    }
    fn expect(&self, values: &[i32], tokens: &[u32]) {
        let known = self.0.lock().expect("nobody fails while he holds it");
        for (at, &value) in values.iter().enumerate() {
            assert_eq!(known[value as usize], tokens[..=at], "value {value} was found under another prefix");
        }
    }
}

/// A few operations on one tree. Returns how many values it put in and took out.
pub fn work_on_tree(tree: &RadixTree, meanings: &Meanings, steps: usize, resets: bool) -> (usize, usize) {
    let (mut put, mut took) = (0, 0);
    let mut leases = Vec::new();
    for _ in 0..steps {
        let tokens = text(4);
        match below(if resets { 11 } else { 10 }) {
            0..=2 => {
                let done = tree.insert(&tokens, &meanings.new_values(&tokens), &ns()).unwrap();
                put += done.length - done.cached_len;
            }
            3 | 4 => {
                let found = tree.match_prefix(&tokens, &ns());
                let values: Vec<i32> = found.segments().iter().flat_map(|part| part.as_slice().to_vec()).collect();
                meanings.expect(&values, &tokens);
            }
            5 | 6 => {
                let mut lease = tree.lock_prefix(&tokens, &ns()).unwrap();
                if below(2) == 0 {
                    let done = tree.insert_with(&mut lease, &tokens, &meanings.new_values(&tokens), 0).unwrap();
                    put += done.length - done.cached_len;
                }
                leases.push((lease, tokens));
            }
            7 if !leases.is_empty() => drop(leases.swap_remove(below(leases.len()))),
            7 => tree.touch(&tokens, &ns()),
            8 | 9 => {
                let mut out = Vec::new();
                took += tree.evict(1 + below(3), &mut out);
            }
            _ => {
                let mut out = Vec::new();
                tree.reset(&mut out);
                took += out.len();
            }
        }
        for (lease, tokens) in &leases {
            let mut values = vec![0; lease.length()];
            assert_eq!(lease.write_values(&mut values, 0), lease.length());
            meanings.expect(&values, tokens);
        }
    }
    (put, took)
}

/// What the slots of a cache hold: the prefix that their K and V were computed for.
pub struct Memory(Mutex<Vec<Vec<u32>>>);

impl Memory {
    /// Memory for `num_slots`.
    pub fn new(num_slots: usize) -> Self {
        Memory(Mutex::new(vec![Vec::new(); num_slots]))
    }
    fn compute(&self, sequence: &mut Sequence) {
        let upto = sequence.num_tokens().min(sequence.num_reserved());
        let row = sequence.row().to_vec();
        let mut slots = self.0.lock().expect("nobody fails while he holds it");
        for at in sequence.num_computed()..upto {
            slots[row[at] as usize] = sequence.tokens()[..=at].to_vec();
        }
        drop(slots);
        sequence.commit(upto).unwrap();
    }
    fn expect(&self, sequence: &Sequence) {
        let row = sequence.row().to_vec();
        let slots = self.0.lock().expect("nobody fails while he holds it");
        let known = sequence.num_computed().min(sequence.num_tokens());
        for (at, &slot) in row[..known].iter().enumerate() {
            let held = &slots[slot as usize];
            assert_eq!(held, &sequence.tokens()[..=at], "slot {slot} at position {at} holds something else");
        }
    }
}

/// A few steps of the lives of a few requests on one cache.
pub fn work_on_cache(cache: &PrefixCache, memory: &Memory, steps: usize) {
    let mut live: Vec<Sequence> = Vec::new();
    for _ in 0..steps {
        if live.is_empty() || (live.len() < 2 && below(4) == 0) {
            live.push(cache.begin(&text(4)[..], &ns()).unwrap());
        }
        let i = below(live.len());
        match below(10) {
            0..=3 => {
                let missing = live[i].num_tokens().saturating_sub(live[i].num_reserved());
                if live[i].reserve(missing).is_ok() {
                    memory.compute(&mut live[i]);
                } else {
                    live.swap_remove(i).abort();
                }
            }
            4 => live[i].append(&text(2)[..]).unwrap(),
            5 => {
                let length = below(live[i].num_tokens() + 1);
                live[i].truncate(length).unwrap();
            }
            6 => drop(cache.evict(1 + below(2))),
            7 if below(4) == 0 => cache.reset(),
            8 => live.swap_remove(i).abort(),
            _ => live.swap_remove(i).finish(),
        }
        live.iter().for_each(|sequence| memory.expect(sequence));
    }
}
