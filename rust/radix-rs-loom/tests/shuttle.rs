//! Whole trees and caches under many schedules, each workload with rules that it would miss.
#![cfg(radix_shuttle)]

use std::sync::Arc;

use radix_rs::{CacheConfig, PrefixCache};
use radix_rs_loom::shuttle::{Meanings, Memory, REPLAY, explore, thread, work_on_cache, work_on_tree};
use radix_rs_loom::{control, control_text, rest, tree};

fn threads_on_a_tree(threads: usize, steps: usize, resets: bool) {
    let (tree, meanings) = (tree(), Arc::new(Meanings::default()));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (tree, meanings) = (tree.clone(), meanings.clone());
            thread::spawn(move || work_on_tree(&tree, &meanings, steps, resets))
        })
        .collect();
    let (mut put, mut took) = (0, 0);
    for worker in workers {
        let (more, less) = worker.join().unwrap();
        (put, took) = (put + more, took + less);
    }
    rest(&tree, put - took);
}

fn tree_of_three() {
    explore("tree_of_three", 12_000, || threads_on_a_tree(3, 4, false));
}

fn tree_of_four_with_resets() {
    explore("tree_of_four_with_resets", 5_000, || threads_on_a_tree(4, 3, true));
}

fn cache_of_three() {
    explore("cache_of_three", 5_000, || {
        const SLOTS: usize = 8;
        let cache: PrefixCache = PrefixCache::new(CacheConfig { num_slots: SLOTS, ..Default::default() }).unwrap();
        let memory = Arc::new(Memory::new(SLOTS));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (cache, memory) = (cache.clone(), memory.clone());
                thread::spawn(move || work_on_cache(&cache, &memory, 4))
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        cache.check().unwrap_or_else(|broken| panic!("{broken}"));
        let stats = cache.stats();
        assert_eq!((stats.held_tokens, stats.protected_tokens, stats.num_sequences), (0, 0, 0));
        assert_eq!(stats.num_free + stats.cached_tokens, SLOTS);
        cache.evict(SLOTS);
        assert_eq!(cache.pool().num_free(), SLOTS, "a slot was lost");
    });
}

macro_rules! workload {
    ($name:ident, $($control:ident: $rule:literal),+ $(,)?) => {
        mod $name {
            #[test]
            fn holds() {
                super::$name();
            }
            $(#[test]
            fn $control() {
                super::control(concat!(stringify!($name), "::", stringify!($control)), $rule, super::$name);
            })+
        }
    };
}

workload!(
    tree_of_three,
    fails_if_a_pin_takes_any_word: "a pin expects the word it read",
    fails_if_an_eviction_takes_any_word: "an eviction expects the word it judged",
    fails_if_the_lower_half_is_born_without_pins: "a lower half inherits the pins",
    fails_if_a_pinned_owner_is_joined: "what is pinned is not joined",
    fails_if_a_split_forgets_its_branch: "a split sets the fixing bit",
    fails_if_a_merged_node_keeps_its_entry: "a pusher looks at the word again",
    fails_if_a_release_stops_at_the_upper_half: "a release goes on to the tails",
    fails_if_the_bit_is_cleared_on_any_word: "the bit is cleared on the word that was judged",
    fails_if_length_and_children_are_read_from_two_bodies: "a match reads a child once",
    fails_if_a_mark_may_be_set_twice: "one taker",
);

workload!(
    tree_of_four_with_resets,
    fails_if_a_leaf_is_queued_with_the_rank_of_before: "a pusher looks at the rank again",
    fails_if_the_era_is_counted_apart_from_the_roots: "the era changes with the roots",
);

workload!(
    cache_of_three,
    fails_if_the_row_keeps_the_own_slots: "a row shows what the tree has",
    fails_if_a_leaf_is_attached_to_any_word: "a leaf is attached to the word it was made for",
);

#[test]
fn a_schedule_that_failed_fails_again_when_it_is_replayed() {
    let test = "a_schedule_that_failed_fails_again_when_it_is_replayed";
    let rule = "a pin expects the word it read";
    let found = control_text(test, rule, &[], tree_of_three);
    let (_, schedule) = found.split_once("failing schedule:\n\"\n").expect("the schedule is printed");
    let (schedule, _) = schedule.split_once("\n\"").expect("the schedule is printed to its end");
    let again = control_text(test, rule, &[(REPLAY, schedule)], tree_of_three);
    let fault = |text: &str| text.lines().find(|line| line.contains("panicked at")).map(String::from);
    assert!(fault(&found).is_some());
    assert_eq!(fault(&found), fault(&again));
}
