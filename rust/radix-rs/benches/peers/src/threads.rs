//! Two threads: do readers disturb each other, does a writer disturb a reader.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::inputs::{OWN, Prompts, SHARED};
use crate::table::{Line, median};
use crate::trees::{Ours, Shared, TokenTree, Tree};

const LEAVES: usize = 1000;
const STEP: Duration = Duration::from_millis(100);

fn filled<T: Shared>(prompts: &Prompts) -> T {
    let mut tree = T::new(1);
    for number in 0..LEAVES {
        tree.insert(&prompts.tokens(number), &prompts.slots(number));
    }
    tree
}

/// Calls per second of one thread until `stop`.
fn read<T: Shared>(tree: &T, prompts: &[Vec<u32>], stop: &AtomicBool) -> f64 {
    let start = Instant::now();
    let mut count = 0u64;
    while !stop.load(Ordering::Relaxed) {
        for prompt in prompts.iter().take(16) {
            std::hint::black_box(tree.read(prompt));
        }
        count += 16;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

/// Two readers for a while; calls per second of both.
fn two<T: Shared>(trees: [&T; 2], prompts: [&[Vec<u32>]; 2]) -> f64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| read(trees[1], prompts[1], &stop));
        let one = scope.spawn(|| read(trees[0], prompts[0], &stop));
        thread::sleep(STEP);
        stop.store(true, Ordering::Relaxed);
        one.join().expect("a reader") + other.join().expect("a reader")
    })
}

/// A reader of one tree beside a writer of another or of the same; the reader's calls per second. The writer starts at
/// request `next` and says where it stopped.
fn beside<T: Shared>(read_from: &T, write_to: &T, prompts: &[Vec<u32>], work: &Prompts, next: &mut usize) -> f64 {
    let stop = AtomicBool::new(false);
    let first = *next;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = first;
            let size = SHARED + LEAVES * OWN;
            let fresh: Vec<_> = (first..first + 512).map(|n| (work.tokens(n), work.slots(n))).collect();
            while !stop.load(Ordering::Relaxed) {
                let (tokens, slots) = &fresh[number % fresh.len()];
                write_to.churn(tokens, slots, size);
                number += 1;
            }
            number
        });
        let reader = scope.spawn(|| {
            // The writer has made its requests by then.
            thread::sleep(Duration::from_millis(5));
            read(read_from, prompts, &stop)
        });
        thread::sleep(STEP);
        stop.store(true, Ordering::Relaxed);
        *next = first + 512;
        writer.join().expect("the writer");
        reader.join().expect("a reader")
    })
}

fn kind<T: Shared>(rounds: usize, lines: &mut Vec<Line>) {
    let ours = T::NAME == Ours::NAME;
    let mut report = |measure: &str, shares: &[f64], limit: f64| {
        let share = median(shares);
        let required = ours.then_some((">=", limit));
        let line = Line {
            measure: measure.to_owned(),
            leaves: LEAVES,
            who: T::NAME,
            value: share,
            unit: "share",
            ratio: Some(share),
            required,
        };
        line.print();
        lines.push(line);
    };
    let work = Prompts::new(SHARED, OWN);
    let (mut one, mut other): (T, T) = (filled(&work), filled(&work));
    let near: Vec<_> = (0..16).map(|number| work.tokens(number)).collect();
    let far: Vec<_> = (500..516).map(|number| work.tokens(number)).collect();
    // Prompts that share not even a system prompt tell what readers share besides: edges, or the tree itself.
    let apart_work = Prompts::seeded(11, SHARED, OWN);
    for number in 0..16 {
        one.insert(&apart_work.tokens(number), &work.slots(LEAVES + 20 + number));
        other.insert(&apart_work.tokens(number), &work.slots(LEAVES + 20 + number));
    }
    let apart: Vec<_> = (0..16).map(|number| apart_work.tokens(number)).collect();
    for (name, second) in [("same prompts", &near), ("other prompts", &far), ("no edge shared", &apart)] {
        let mut shares = Vec::new();
        for _ in 0..rounds {
            let apart = two([&one, &other], [&near, second]);
            shares.push(two([&one, &one], [&near, second]) / apart);
        }
        report(&format!("two readers of 2,208, {name}"), &shares, 0.95);
    }
    let long = Prompts::new(131_072 - OWN, OWN);
    let (mut a, mut b) = (T::new(1), T::new(1));
    for number in 0..2 {
        a.insert(&long.tokens(number), &long.slots(number));
        b.insert(&long.tokens(number), &long.slots(number));
    }
    let prompt = [long.tokens(0)];
    let mut shares = Vec::new();
    for _ in 0..rounds {
        let apart = two([&a, &b], [&prompt, &prompt]);
        shares.push(two([&a, &a], [&prompt, &prompt]) / apart);
    }
    report("two readers of 131,072", &shares, 0.95);
    let mut shares = Vec::new();
    let mut next = 10_000;
    let _kept: Vec<_> = [&one, &other].iter().flat_map(|tree| near.iter().map(|prompt| tree.keep(prompt))).collect();
    for _ in 0..rounds {
        let apart = beside(&one, &other, &near, &work, &mut next);
        shares.push(beside(&one, &one, &near, &work, &mut next) / apart);
    }
    report("a reader of 2,208 and a writer", &shares, 0.9);
}

pub fn measure(rounds: usize, lines: &mut Vec<Line>) {
    kind::<Ours>(rounds, lines);
    kind::<TokenTree>(rounds, lines);
}
