//! Single operations for callgrind to look into, each under a name that it can be told to collect:
//! `valgrind --tool=callgrind --toggle-collect='*measured*' radix-rs-peers profile lock`, then `callgrind_annotate`.

use radix_rs::{Handle, RadixTree};

use crate::inputs::{OWN, Prompts, SHARED};
use crate::trees::{Ours, Tree};

const CALLS: usize = 256;
const LEAVES: usize = 10_000;

#[inline(never)]
fn hit_measured(tree: &Ours, prompts: &[Vec<u32>]) {
    for prompt in prompts {
        std::hint::black_box(tree.0.match_prefix(&prompt[..], &tree.1));
    }
}

#[inline(never)]
fn lock_measured(tree: &RadixTree, places: &[Handle]) {
    for place in places {
        tree.lock(place).expect("a place that is there").release();
    }
}

#[inline(never)]
fn insert_measured(tree: &Ours, requests: &[(Vec<u32>, Vec<i32>)]) {
    for (tokens, slots) in requests {
        tree.0.insert(&tokens[..], slots, &tree.1).expect("slots of whole pages");
    }
}

/// Conversations with an edge for every turn: each turn was answered twice. Returns their ends.
fn talks(tree: &mut Ours, count: usize) -> Vec<Handle> {
    const TURN: usize = 96;
    const TURNS: usize = 7;
    let work = Prompts::new(496, TURN * TURNS);
    let mut spare = 1 << 28;
    (0..count)
        .map(|number| {
            let (tokens, slots) = (work.tokens(number), work.slots(number));
            for turn in 1..TURNS {
                let end = 496 + turn * TURN;
                let mut other = (tokens[..end].to_vec(), slots[..end].to_vec());
                other.0.extend([200_000 + number as u32; 16]);
                other.1.extend(spare..spare + 16);
                spare += 16;
                tree.insert(&other.0, &other.1);
            }
            tree.0.insert(&tokens[..], &slots, &tree.1).expect("slots of whole pages").handle
        })
        .collect()
}

/// Runs one of them; says how many calls there were.
pub fn run(what: &str) -> Option<usize> {
    let mut tree = Ours::new(1);
    if what == "lock" {
        let places = talks(&mut tree, CALLS);
        lock_measured(&tree.0, &places);
        return Some(CALLS);
    }
    let work = Prompts::new(SHARED, OWN);
    (0..LEAVES).for_each(|number| tree.insert(&work.tokens(number), &work.slots(number)));
    match what {
        "hit" => hit_measured(&tree, &(0..CALLS).map(|number| work.tokens(number)).collect::<Vec<_>>()),
        "new" | "again" => {
            let first = if what == "new" { LEAVES } else { 0 };
            let of = |number| (work.tokens(number), work.slots(number));
            insert_measured(&tree, &(first..first + CALLS).map(of).collect::<Vec<_>>());
        }
        _ => return None,
    }
    Some(CALLS)
}
