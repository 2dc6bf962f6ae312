//! The models that loom explores, each with the rules that it would miss.
//!
//! A model is a tiny tree, two or three threads with an operation or two each, and what must hold afterwards. Numbers of
//! executions are printed with `--nocapture`.
#![cfg(radix_loom)]

use radix_rs::checking::{Index, Published, collect};
use radix_rs::{CacheConfig, Lease, PrefixCache, RadixTree, SlotPool};
use radix_rs_loom::loom::{beside, explore, thread};
use radix_rs_loom::*;

/// A model that holds, and fails whenever one of the rules is broken.
macro_rules! model {
    ($(#[$doc:meta])* $name:ident, $preemptions:literal, $model:expr, $($control:ident: $rule:literal),+ $(,)?) => {
        $(#[$doc])*
        mod $name {
            use super::*;

            fn explored() {
                explore(stringify!($name), $preemptions, $model);
            }
            #[test]
            fn holds() {
                explored();
            }
            $(#[test]
            fn $control() {
                control(concat!(stringify!($name), "::", stringify!($control)), $rule, explored);
            })+
        }
    };
}

fn lock(tree: &RadixTree, tokens: &[u32]) -> Lease {
    tree.lock_prefix(tokens, &ns()).expect("a model has few leases")
}

fn held(lease: &Lease) -> Vec<i32> {
    let mut values = vec![0; lease.length()];
    assert_eq!(lease.write_values(&mut values, 0), lease.length());
    values
}

// The pool and the epochs

model!(
    alloc_beside_free,
    3,
    || {
        let pool = SlotPool::new(2, 1).unwrap();
        let mine = pool.alloc(1).unwrap();
        let other = pool.clone();
        let (theirs, _) = beside(move || other.alloc(1).unwrap(), || pool.free(&mine).unwrap());
        pool.check().unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(pool.num_free(), 1);
        pool.free(&theirs).unwrap();
        assert_eq!(pool.alloc(2).unwrap(), [0, 1]);
    },
    fails_if_the_summary_is_cleared_for_good: "an emptied word is looked at again",
);

model!(
    read_beside_replace_and_recycle,
    2,
    || {
        let published = std::sync::Arc::new(Published::default());
        let other = published.clone();
        let collector = published.clone();
        let collector = thread::spawn(move || collector.collect());
        let (_, value) = beside(
            move || {
                other.replace(1);
                other.collect();
                other.collect();
            },
            || published.read(),
        );
        collector.join().unwrap();
        assert!(value <= 1, "what was read was recycled");
        published.collect();
    },
    fails_if_a_guard_does_not_hold_the_epoch_back: "every guard holds the epoch back",
    fails_if_one_epoch_is_enough: "what is retired waits for two epochs",
);

// The order of eviction

model!(
    push_beside_remove_and_pop,
    2,
    || {
        let index = std::sync::Arc::new(Index::default());
        index.push(2, 2);
        let (removes, pops) = (index.clone(), index.clone());
        let remover = thread::spawn(move || removes.remove(2, 2));
        let (popped, ()) = beside(move || pops.pop(), || index.push(1, 1));
        let removed = remover.join().unwrap();
        let mut out: Vec<u32> = popped.iter().map(|entry| entry.1).collect();
        out.extend(removed.then_some(2));
        let left = index.entries();
        assert_eq!(left.len(), index.len());
        out.extend(left.iter().map(|entry| entry.1));
        out.sort_unstable();
        assert_eq!(out, [1, 2], "an entry was lost or taken twice");
    },
    fails_if_a_mark_may_be_set_twice: "one taker",
);

model!(
    taken_entries_come_again,
    2,
    || {
        let index = std::sync::Arc::new(Index::default());
        let other = index.clone();
        let again = move || {
            let popped = other.pop();
            (0..3).for_each(|_| other.collect());
            other.push(5, 5);
            popped
        };
        let (popped, ()) = beside(again, || index.push(1, 1));
        let expected: Vec<u32> = [(popped.is_none()).then_some(1), Some(5)].into_iter().flatten().collect();
        assert_eq!(index.entries().iter().map(|entry| entry.1).collect::<Vec<_>>(), expected);
        assert_eq!(index.len(), expected.len());
    },
    // a walk that never ends, which loom notices by the number of its steps
    fails_if_an_entry_is_retired_by_the_first_who_lets_go: "the last holder unlinks",
);

// Match

model!(
    match_beside_split,
    3,
    || {
        let tree = tree();
        insert(&tree, &[1, 1, 1, 1], 10);
        let other = tree.clone();
        let (took, found) = beside(move || insert(&other, &[1, 1, 2], 20), || matched(&tree, &[1; 6]));
        assert_eq!(took, 1);
        assert_eq!(found, [10, 11, 12, 13]);
        rest(&tree, 5);
    },
    fails_if_length_and_children_are_read_from_two_bodies: "a match reads a child once",
);

model!(
    match_beside_evict,
    3,
    || {
        let tree = tree();
        insert(&tree, &[1, 2], 10);
        let other = tree.clone();
        let evicts = move || {
            let freed = evict(&other, 2);
            collect(&other);
            freed
        };
        let (freed, found) = beside(evicts, || matched(&tree, &[1, 2, 3]));
        assert_eq!(freed, 2);
        assert_eq!(found, [10, 11][..found.len()]);
        rest(&tree, 0);
    },
    fails_if_a_body_is_recycled_at_once: "bodies wait for the epochs",
);

/// A cut edge with two leaves below: its release makes it whole.
fn cut() -> (RadixTree, Lease) {
    let tree = tree();
    insert(&tree, &[1, 1, 1, 1, 1], 10);
    insert(&tree, &[1, 1, 1, 1, 2], 20);
    let lease = lock(&tree, &[1, 1]);
    (tree, lease)
}

model!(
    match_beside_merge,
    2,
    || {
        let (tree, lease) = cut();
        let (_, found) = beside(move || drop(lease), || matched(&tree, &[1; 6]));
        assert!(found.len() >= 2);
        assert_eq!(found, [10, 11, 12, 13, 14][..found.len()]);
        rest(&tree, 6);
    },
    fails_if_length_and_children_are_read_from_two_bodies: "a match reads a child once",
    fails_if_a_body_is_recycled_at_once: "bodies wait for the epochs",
);

model!(
    /// The slot of a node is used again, by an edge that would fit in the old place.
    match_beside_reuse,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2], 10);
        insert(&tree, &[1, 9], 20);
        let other = tree.clone();
        let reuses = move || {
            let freed = evict(&other, 1);
            collect(&other);
            insert(&other, &[2, 3], 30);
            freed
        };
        let (freed, found) = beside(reuses, || matched(&tree, &[1, 2, 3]));
        assert_eq!(freed, 1);
        assert_eq!(found, [10, 11][..found.len()]);
        rest(&tree, 4);
    },
    fails_if_a_node_is_recycled_at_once: "nodes wait for the epochs",
);

// Lock and release

model!(
    lock_beside_split,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2, 3, 4], 10);
        let other = tree.clone();
        let (_, lease) = beside(move || insert(&other, &[1, 2, 9], 20), || lock(&tree, &[1, 2, 3, 4]));
        assert_eq!(evict(&tree, 9), 1, "only the leaf beside the lease may go");
        assert_eq!(held(&lease), [10, 11, 12, 13]);
        drop(lease);
        rest(&tree, 4);
    },
    fails_if_the_lower_half_is_born_without_pins: "a lower half inherits the pins",
);

model!(
    lock_beside_evict,
    3,
    || {
        let tree = tree();
        insert(&tree, &[1, 2], 10);
        let other = tree.clone();
        let (freed, ()) = beside(
            move || evict(&other, 1),
            || {
                let lease = lock(&tree, &[1, 2]);
                assert_eq!(held(&lease), [10, 11][..lease.length()]);
            },
        );
        rest(&tree, 2 - freed);
    },
    fails_if_a_pin_takes_any_word: "a pin expects the word it read",
);

model!(
    lock_beside_evict_of_the_whole_edge,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2], 10);
        let other = tree.clone();
        let (freed, lease) = beside(move || evict(&other, 2), || lock(&tree, &[1, 2]));
        assert_eq!(held(&lease), [10, 11][..lease.length()]);
        assert_eq!(freed + lease.length(), 2);
        drop(lease);
        rest(&tree, 2 - freed);
    },
    fails_if_a_pin_takes_any_word: "a pin expects the word it read",
    fails_if_an_eviction_takes_any_word: "an eviction expects the word it judged",
);

model!(
    lock_beside_merge,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2, 3, 4], 10);
        let cut = lock(&tree, &[1, 2]);
        let (_, lease) = beside(move || drop(cut), || lock(&tree, &[1, 2, 3, 4]));
        assert_eq!(evict(&tree, 9), 0);
        assert_eq!(held(&lease), [10, 11, 12, 13]);
        drop(lease);
        rest(&tree, 4);
    },
    fails_if_a_pinned_fragment_is_frozen: "what is pinned is not frozen",
    fails_if_a_pinned_owner_is_joined: "what is pinned is not joined",
);

model!(
    unlock_beside_split,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2, 3, 4], 10);
        let lease = lock(&tree, &[1, 2, 3, 4]);
        let other = tree.clone();
        beside(move || insert(&other, &[1, 2, 9], 20), || drop(lease));
        rest(&tree, 5);
    },
    fails_if_a_release_stops_at_the_upper_half: "a release goes on to the tails",
);

model!(
    unlock_beside_merge,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2, 3, 4], 10);
        let (upper, whole) = (lock(&tree, &[1, 2]), lock(&tree, &[1, 2, 3, 4]));
        beside(move || drop(upper), || drop(whole));
        assert_eq!(tree.num_nodes(), 3, "the edge is whole again");
        rest(&tree, 4);
    },
    fails_if_a_join_takes_any_word: "a join expects the word it judged",
);

model!(
    /// The lease is older than the cut, so its release goes from the upper half to the lower one, which the other merges.
    unlock_of_fragments_beside_merge,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2, 3, 4], 10);
        let whole = lock(&tree, &[1, 2, 3, 4]);
        let upper = lock(&tree, &[1, 2]);
        beside(move || drop(upper), || drop(whole));
        assert_eq!(tree.num_nodes(), 3, "the edge is whole again");
        rest(&tree, 4);
    },
    fails_if_a_merged_node_keeps_its_entry: "a pusher looks at the word again",
    fails_if_the_rank_of_an_entry_is_read_too_early: "ranks are read in the total order",
);

model!(
    unlock_of_fragments_beside_unlock_and_split,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2, 3, 4], 10);
        let whole = lock(&tree, &[1, 2, 3, 4]);
        let cut = lock(&tree, &[1, 2, 3]);
        let other = tree.clone();
        let cuts_again = move || {
            drop(cut);
            lock(&other, &[1])
        };
        let (top, ()) = beside(cuts_again, || drop(whole));
        tree.check().unwrap_or_else(|broken| panic!("{broken}"));
        drop(top);
        rest(&tree, 4);
    },
    fails_if_a_release_does_not_try_the_fragments_above: "a release tries the fragments above",
);

model!(
    merge_beside_insert_below,
    2,
    || {
        let (tree, lease) = cut();
        let other = tree.clone();
        beside(move || drop(lease), || insert(&other, &[1, 1, 1, 1, 3], 30));
        rest(&tree, 7);
    },
    fails_if_every_helper_buries: "who clears the bit buries",
);

model!(
    /// The owner of the branch goes down with the cut and comes back with the merge, while a helper looks away.
    cut_and_merge_beside_insert_below,
    2,
    || {
        let (tree, lease) = cut();
        drop(lease);
        let other = tree.clone();
        beside(move || insert(&other, &[1, 1, 1, 1, 3], 30), || drop(lock(&tree, &[1, 1])));
        rest(&tree, 7);
    },
    fails_if_a_helper_does_not_look_at_the_word_again: "a helper reads the word after the owner",
);

// Insert

model!(
    insert_beside_insert_at_one_node,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1], 10);
        let other = tree.clone();
        let took = beside(move || insert(&other, &[1, 2], 20), || insert(&tree, &[1, 3], 30));
        assert_eq!(took, (1, 1));
        rest(&tree, 3);
    },
    fails_if_a_leaf_is_attached_to_any_word: "a leaf is attached to the word it was made for",
);

model!(
    insert_beside_insert_of_one_key,
    2,
    || {
        let tree = tree();
        let other = tree.clone();
        let (theirs, mine) = beside(move || insert(&other, &[1, 2], 20), || insert(&tree, &[1, 2], 30));
        assert_eq!(theirs + mine, 2, "one of them gets its values back");
        assert_eq!(matched(&tree, &[1, 2]), if mine == 2 { [30, 31] } else { [20, 21] });
        rest(&tree, 2);
    },
    fails_if_a_loser_stays_counted: "a loser takes its count back",
    fails_if_a_use_is_read_too_early: "uses are read in the total order",
    fails_if_a_leaf_is_attached_to_any_word: "a leaf is attached to the word it was made for",
);

model!(
    insert_beside_insert_nested,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 1, 1, 1, 5], 10);
        insert(&tree, &[1, 1, 1, 1, 6], 20);
        let other = tree.clone();
        let took = beside(move || insert(&other, &[1, 1, 1, 7], 30), || insert(&tree, &[1, 8], 40));
        assert_eq!(took, (1, 1));
        rest(&tree, 8);
    },
    fails_if_a_split_forgets_its_branch: "a split sets the fixing bit",
    fails_if_an_owner_moves_from_any_state: "an owner moves once",
);

model!(
    insert_beside_evict_of_the_parent,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2], 10);
        let other = tree.clone();
        let (freed, took) = beside(move || evict(&other, 2), || insert(&tree, &[1, 2, 3], 20));
        rest(&tree, 2 + took - freed);
    },
    fails_if_an_eviction_takes_any_word: "an eviction expects the word it judged",
    fails_if_a_leaf_is_attached_to_any_word: "a leaf is attached to the word it was made for",
);

// Evict

model!(
    evict_beside_evict_up_a_path,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1], 10);
        insert(&tree, &[1, 2], 20);
        let other = tree.clone();
        let (theirs, mine) = beside(move || evict(&other, 1), || evict(&tree, 1));
        assert!(theirs + mine > 0);
        rest(&tree, 2 - theirs - mine);
    },
    fails_if_an_emptied_parent_is_forgotten: "an emptied parent is queued",
);

model!(
    evict_beside_unlock,
    3,
    || {
        let tree = tree();
        insert(&tree, &[1], 10);
        let lease = lock(&tree, &[1]);
        let other = tree.clone();
        let (freed, ()) = beside(move || evict(&other, 1), || drop(lease));
        rest(&tree, 1 - freed);
    },
    fails_if_the_bit_is_cleared_on_any_word: "the bit is cleared on the word that was judged",
);

model!(
    evict_of_a_tail_beside_unlock,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 2, 3, 4], 10);
        let lease = lock(&tree, &[1, 2]);
        let other = tree.clone();
        let (freed, ()) = beside(move || evict(&other, 2), || drop(lease));
        rest(&tree, 4 - freed);
    },
    fails_if_the_tail_is_still_named: "an unlink clears the tail",
);

model!(
    evict_of_a_sibling_beside_unlock,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1, 9], 20);
        insert(&tree, &[1, 2], 10);
        let lease = lock(&tree, &[1, 9]);
        let other = tree.clone();
        let (freed, ()) = beside(move || evict(&other, 1), || drop(lease));
        rest(&tree, 3 - freed);
    },
    fails_if_the_last_sibling_stays_alone: "a last sibling is joined",
);

// Commit

model!(
    commit_beside_commit,
    2,
    || {
        let cache: PrefixCache = PrefixCache::new(CacheConfig { num_slots: 4, ..Default::default() }).unwrap();
        let begin = || {
            let mut sequence = cache.begin(&[1, 2][..], &ns()).unwrap();
            sequence.reserve(2).unwrap();
            sequence
        };
        let (mut mine, mut theirs) = (begin(), begin());
        let commits = move || {
            theirs.commit(2).unwrap();
            theirs
        };
        let (theirs, _) = beside(commits, || mine.commit(2).unwrap());
        assert_eq!(mine.row().to_vec(), theirs.row().to_vec(), "both read the one copy");
        assert_eq!(mine.row().to_vec(), matched(cache.tree(), &[1, 2]));
        assert_eq!(cache.pool().num_free(), 2, "the duplicates went back");
        mine.finish();
        theirs.finish();
        cache.check().unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(cache.evict(2), 2);
        assert_eq!(cache.pool().num_free(), 4);
    },
    fails_if_the_row_keeps_the_own_slots: "a row shows what the tree has",
    fails_if_a_leaf_is_attached_to_any_word: "a leaf is attached to the word it was made for",
);

// Reset

fn reset(tree: &RadixTree) -> usize {
    let mut out = Vec::new();
    tree.reset(&mut out);
    out.len()
}

model!(
    reset_beside_match,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1], 10);
        let other = tree.clone();
        let (freed, found) = beside(move || reset(&other), || matched(&tree, &[1, 2]));
        assert_eq!(freed, 1);
        assert_eq!(found, [10][..found.len()]);
        rest(&tree, 0);
    },
    fails_if_a_body_is_recycled_at_once: "bodies wait for the epochs",
);

model!(
    reset_beside_lock,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1], 10);
        let other = tree.clone();
        let (freed, lease) = beside(move || reset(&other), || lock(&tree, &[1]));
        assert_eq!(freed, 1 - lease.length());
        assert_eq!(held(&lease), [10][..lease.length()]);
        assert!(matched(&tree, &[1]).is_empty());
        drop(lease);
        rest(&tree, 1 - freed);
    },
    fails_if_a_pin_takes_any_word: "a pin expects the word it read",
);

model!(
    reset_beside_insert,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1], 10);
        let other = tree.clone();
        let (freed, took) = beside(move || reset(&other), || insert(&tree, &[1, 2], 20));
        rest(&tree, 1 + took - freed);
    },
    fails_if_a_leaf_is_queued_with_the_rank_of_before: "a pusher looks at the rank again",
);

model!(
    reset_beside_evict,
    2,
    || {
        let tree = tree();
        insert(&tree, &[1], 10);
        let other = tree.clone();
        let (theirs, mine) = beside(move || reset(&other), || evict(&tree, 1));
        assert_eq!(theirs + mine, 1);
        rest(&tree, 0);
    },
    fails_if_the_replaced_root_is_forgotten: "a root that was replaced is queued",
);

model!(
    reset_beside_merge,
    1,
    || {
        let (tree, lease) = cut();
        beside(move || drop(lease), || assert!(reset(&tree) <= 6));
        tree.check().unwrap_or_else(|broken| panic!("{broken}"));
        let (left, mut out) = (tree.cached_tokens(), Vec::new());
        insert(&tree, &[7], 70);
        tree.evict(left, &mut out);
        assert!(!out.contains(&70), "what a reset left over goes first");
        rest(&tree, 1);
    },
    fails_if_a_reset_misses_what_was_merged: "a reset looks again at what was merged",
);

model!(
    reset_beside_reset,
    1,
    || {
        let tree = tree();
        insert(&tree, &[1], 10);
        let other = tree.clone();
        let (theirs, mine) = beside(move || reset(&other), || reset(&tree));
        assert_eq!(theirs + mine, 1);
        insert(&tree, &[1], 20);
        insert(&tree, &[2], 30);
        tree.touch(&[1][..], &ns());
        let mut out = Vec::new();
        tree.evict(1, &mut out);
        assert_eq!(out, [30], "nothing here was left over");
        rest(&tree, 1);
    },
    fails_if_the_era_is_counted_apart_from_the_roots: "the era changes with the roots",
);
