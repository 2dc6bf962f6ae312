//! Pins: prefixes that stay for a while, within a budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use radix_rs::{CacheConfig, Error, Namespace, PrefixCache, RadixTree, TreeConfig};

const MINUTE: Duration = Duration::from_secs(60);
const PLENTY: usize = usize::MAX;

/// A tree whose seconds are counted by the test.
fn tree() -> (RadixTree, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(0));
    let hand = seconds.clone();
    let clock = Arc::new(move || Duration::from_secs(hand.load(SeqCst)));
    (RadixTree::new(TreeConfig { clock: Some(clock), ..Default::default() }).unwrap(), seconds)
}

fn insert(tree: &RadixTree, tokens: &[u32], first: i32) {
    let slots: Vec<i32> = (first..).take(tokens.len()).collect();
    tree.insert(tokens, &slots, &Namespace::default()).unwrap();
}

fn evict_all(tree: &RadixTree) -> usize {
    let freed = tree.evict(PLENTY, &mut Vec::new());
    tree.check().unwrap();
    freed
}

#[test]
fn a_pin_keeps_its_prefix_until_its_time_is_over_and_nobody_has_to_watch() {
    let (tree, seconds) = tree();
    let ns = Namespace::default();
    insert(&tree, &[1, 2, 3, 4], 0);
    let pin = tree.pin(&[1, 2, 9][..], &ns, MINUTE, PLENTY).unwrap();
    assert_eq!((pin.length(), pin.deadline()), (2, MINUTE));
    seconds.store(59, SeqCst);
    assert_eq!(evict_all(&tree), 2);
    assert_eq!((tree.protected_tokens(), tree.pinned_tokens()), (2, 2));
    seconds.store(60, SeqCst);
    assert_eq!(evict_all(&tree), 2);
    assert_eq!(tree.cached_tokens(), 0);
    assert!(!tree.unpin(&pin), "it has ended by itself");
}

#[test]
fn of_many_pins_those_end_that_are_due() {
    let (tree, seconds) = tree();
    let ns = Namespace::from("tenant");
    for token in (0..50).rev() {
        tree.insert(&[token][..], &[token as i32], &ns).unwrap();
        tree.pin(&[token][..], &ns, Duration::from_secs(u64::from(token) + 1), PLENTY).unwrap();
    }
    for now in 0..=50 {
        seconds.store(now, SeqCst);
        assert_eq!(tree.pinned_tokens(), 50 - now as usize);
    }
    assert_eq!(tree.evictable_tokens(), 50);
    tree.check().unwrap();
}

#[test]
fn the_budget_counts_what_several_pins_keep_once_and_is_never_exceeded() {
    let (tree, _) = tree();
    let ns = Namespace::default();
    insert(&tree, &[1, 2, 3, 4], 0);
    insert(&tree, &[1, 2, 5, 6], 10);
    tree.pin(&[1, 2, 3, 4][..], &ns, MINUTE, 6).unwrap();
    let pin = tree.pin(&[1, 2, 5, 6][..], &ns, MINUTE, 6).unwrap();
    assert_eq!(tree.pinned_tokens(), 6);
    insert(&tree, &[7, 8], 20);
    let refused = tree.pin(&[7, 8][..], &ns, MINUTE, 7).unwrap_err();
    assert_eq!(refused, Error::PinBudget { needed: 2, pinned: 6, budget: 7 });
    assert_eq!(tree.protected_tokens(), 6, "a pin that is refused keeps nothing");
    assert!(tree.unpin(&pin) && !tree.unpin(&pin));
    tree.pin(&[7, 8][..], &ns, MINUTE, 7).unwrap();
    assert_eq!(evict_all(&tree), 2);
    assert_eq!(tree.match_prefix(&[1, 2, 5, 6][..], &ns).length(), 2);
}

#[test]
fn a_pin_survives_what_is_split_and_grown_around_it() {
    let (tree, seconds) = tree();
    let ns = Namespace::default();
    insert(&tree, &(0..100).collect::<Vec<_>>(), 0);
    tree.pin(&(0..90).collect::<Vec<_>>()[..], &ns, MINUTE, 90).unwrap();
    for at in [10u32, 40, 70] {
        let other: Vec<u32> = (0..at).chain([1000]).collect();
        let slots: Vec<i32> = (0..at as i32).chain([1000 + at as i32]).collect();
        tree.insert(&other[..], &slots, &ns).unwrap();
    }
    assert_eq!(evict_all(&tree), 13);
    assert_eq!(tree.pinned_tokens(), 90);
    seconds.store(61, SeqCst);
    assert_eq!(evict_all(&tree), 90);
}

#[test]
fn a_reset_ends_all_pins_and_a_pin_of_another_tree_is_nobodys() {
    let (tree, _) = tree();
    let (other, _) = self::tree();
    let ns = Namespace::default();
    for tree in [&tree, &other] {
        insert(tree, &[1, 2], 0);
    }
    let pin = tree.pin(&[1, 2][..], &ns, MINUTE, PLENTY).unwrap();
    let theirs = other.pin(&[1, 2][..], &ns, MINUTE, PLENTY).unwrap();
    assert!(!tree.unpin(&theirs) && !other.unpin(&pin));
    let mut freed = Vec::new();
    tree.reset(&mut freed);
    assert_eq!(freed.len(), 2);
    assert!(!tree.unpin(&pin));
    tree.check().unwrap();
}

#[test]
fn room_that_a_pin_gives_back_is_there_for_the_request_that_needs_it() {
    let seconds = Arc::new(AtomicU64::new(0));
    let hand = seconds.clone();
    let clock = Arc::new(move || Duration::from_secs(hand.load(SeqCst)));
    let config = CacheConfig { num_slots: 4, clock: Some(clock), ..Default::default() };
    let cache: PrefixCache = PrefixCache::new(config).unwrap();
    let ns = Namespace::default();
    let mut first = cache.begin(&[1, 2, 3, 4][..], &ns).unwrap();
    first.reserve(4).unwrap();
    first.commit(4).unwrap();
    first.finish();
    cache.tree().pin(&[1, 2, 3][..], &ns, MINUTE, 4).unwrap();
    let mut second = cache.begin(&[8, 9][..], &ns).unwrap();
    let refused = second.reserve(2).map(drop).unwrap_err();
    assert_eq!(refused, Error::Capacity { needed: 2, free: 0, evictable: 1, protected: 3 });
    seconds.store(60, SeqCst);
    second.reserve(2).unwrap();
    drop(second);
    cache.check().unwrap();
}

#[test]
fn pins_of_four_threads_end_once_and_stay_within_the_budget() {
    for round in 0..40u64 {
        let (tree, seconds) = tree();
        let ns = Namespace::default();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (tree, seconds, ns) = (&tree, &seconds, &ns);
                scope.spawn(move || {
                    let mut state = round * 31 + thread * 7919 + 1;
                    let mut next = |n: u64| {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        state % n
                    };
                    let mut pins = Vec::new();
                    let mut slot = thread as i32 * 1_000_000;
                    for _ in 0..200 {
                        let tokens: Vec<u32> = (0..next(6)).map(|_| next(2) as u32).collect();
                        match next(6) {
                            0 | 1 => {
                                insert(tree, &tokens, slot);
                                slot += tokens.len() as i32;
                            }
                            2 => pins.extend(tree.pin(&tokens, ns, Duration::from_secs(next(3)), 12)),
                            3 if !pins.is_empty() => {
                                tree.unpin(&pins.swap_remove(next(pins.len() as u64) as usize));
                            }
                            4 => {
                                seconds.fetch_add(1, SeqCst);
                            }
                            _ => {
                                tree.evict(next(8) as usize, &mut Vec::new());
                            }
                        }
                    }
                });
            }
        });
        tree.check().unwrap();
        assert!(tree.pinned_tokens() <= 12);
        assert_eq!(tree.protected_tokens(), tree.pinned_tokens());
        seconds.fetch_add(10, SeqCst);
        evict_all(&tree);
        assert_eq!((tree.cached_tokens(), tree.protected_tokens()), (0, 0));
    }
}
