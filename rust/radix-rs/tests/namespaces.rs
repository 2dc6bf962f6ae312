//! Namespaces as wholes: how much is in each, and dropping one while others work.

use std::sync::{Arc, Mutex};
use std::thread;

use radix_rs::{Error, EventKind, EventLog, Namespace, RadixTree, TreeConfig};

fn tree(page_size: usize) -> RadixTree {
    RadixTree::new(TreeConfig { page_size, ..Default::default() }).unwrap()
}

/// Name, cached and protected tokens, nodes.
fn stats(tree: &RadixTree) -> Vec<(Namespace, usize, usize, usize)> {
    let stats = tree.namespace_stats();
    stats.into_iter().map(|one| (one.namespace, one.cached_tokens, one.protected_tokens, one.num_nodes)).collect()
}

fn named(name: &str) -> Namespace {
    Namespace::from(name)
}

#[test]
fn each_namespace_counts_its_own() {
    let (tree, default) = (tree(1), Namespace::default());
    assert_eq!(stats(&tree), [(default.clone(), 0, 0, 1)]);
    tree.insert(&[1, 2, 3][..], &[0, 1, 2], &default).unwrap();
    tree.insert(&[1, 2, 3, 4][..], &[10, 11, 12, 13], &named("a")).unwrap();
    tree.insert(&[1, 9][..], &[20, 21], &named("a")).unwrap();
    let lease = tree.lock_prefix(&[1, 2][..], &named("a")).unwrap();
    // the namespace's node, [1], [2], [3 4] and [9]
    assert_eq!(stats(&tree), [(default.clone(), 3, 0, 2), (named("a"), 5, 2, 5)]);
    lease.release();
    assert_eq!(stats(&tree)[1], (named("a"), 5, 0, 4));
    tree.evict(usize::MAX, &mut Vec::new());
    assert_eq!(stats(&tree)[0], (default, 0, 0, 1));
    tree.check().unwrap();
}

#[test]
fn a_dropped_namespace_is_gone_at_once_and_nothing_else_is() {
    let (tree, default) = (tree(1), Namespace::default());
    tree.insert(&[1, 2, 3][..], &[0, 1, 2], &default).unwrap();
    tree.insert(&[1, 2, 3][..], &[10, 11, 12], &named("a")).unwrap();
    let handle = tree.insert(&[1, 9][..], &[13, 14], &named("a")).unwrap().handle;
    tree.insert(&[1][..], &[20], &named("b")).unwrap();
    let mut out = Vec::new();
    assert!(tree.drop_namespace(&named("a"), &mut out).unwrap());
    out.sort_unstable();
    assert_eq!(out, [10, 11, 12, 14]);
    assert_eq!(tree.match_prefix(&[1, 2][..], &named("a")).length(), 0);
    assert_eq!(tree.match_prefix(&[1, 2][..], &default).length(), 2);
    assert_eq!(tree.match_prefix(&[1][..], &named("b")).length(), 1);
    assert!(matches!(tree.values(&handle), Err(Error::StaleHandle { .. })));
    assert!(!tree.drop_namespace(&named("a"), &mut out).unwrap());
    assert!(!tree.drop_namespace(&named("none"), &mut out).unwrap());
    assert!(matches!(tree.drop_namespace(&default, &mut out), Err(Error::InvalidInput(_))));
    assert_eq!(stats(&tree).len(), 2);
    tree.check().unwrap();
}

#[test]
fn leases_on_a_dropped_namespace_stay_true_and_it_can_be_used_anew() {
    let (tree, a) = (tree(1), named("a"));
    tree.insert(&[1, 2, 3][..], &[10, 11, 12], &a).unwrap();
    tree.insert(&[5][..], &[0], &Namespace::default()).unwrap();
    let mut lease = tree.lock_prefix(&[1, 2][..], &a).unwrap();
    let handle = lease.handle();
    let mut out = Vec::new();
    assert!(tree.drop_namespace(&a, &mut out).unwrap());
    assert_eq!(out, [12]);
    tree.check().unwrap();
    assert!(matches!(tree.lock(&handle), Err(Error::StaleHandle { .. })));
    tree.insert(&[1, 7][..], &[20, 21], &a).unwrap();
    tree.check().unwrap();
    assert_eq!(stats(&tree)[1].1, 2);
    let views: Vec<i32> = lease.segments().iter().flat_map(|segment| segment.as_slice().to_vec()).collect();
    assert_eq!(views, [10, 11]);
    // it grows where it is, and what it adds is found by nobody
    tree.insert_with(&mut lease, &[1, 2, 8][..], &[10, 11, 30], 0).unwrap();
    assert_eq!(tree.match_prefix(&[1, 2, 8][..], &a).length(), 1);
    tree.check().unwrap();
    lease.release();
    tree.check().unwrap();
    // what was dropped goes before what is older
    let mut out = Vec::new();
    tree.evict(3, &mut out);
    assert_eq!(out, [30, 10, 11]);
    tree.check().unwrap();
    assert!(tree.drop_namespace(&a, &mut Vec::new()).unwrap());
    tree.check().unwrap();
    assert_eq!(stats(&tree), [(Namespace::default(), 1, 0, 2)]);
}

#[test]
fn a_reset_after_a_drop_and_a_drop_after_a_reset_leave_nothing() {
    let (tree, a) = (tree(1), named("a"));
    for resets_first in [false, true] {
        tree.insert(&[1, 2][..], &[0, 1], &a).unwrap();
        let lease = tree.lock_prefix(&[1][..], &a).unwrap();
        let mut out = Vec::new();
        if resets_first {
            tree.reset(&mut out);
            assert!(!tree.drop_namespace(&a, &mut out).unwrap());
        } else {
            assert!(tree.drop_namespace(&a, &mut out).unwrap());
            tree.reset(&mut out);
        }
        assert_eq!(out, [1]);
        tree.check().unwrap();
        lease.release();
        tree.reset(&mut out);
        assert_eq!(out, [1, 0]);
        tree.check().unwrap();
        assert_eq!((tree.cached_tokens(), tree.num_nodes()), (0, 2));
    }
}

#[test]
fn a_follower_of_the_events_hears_of_a_drop_once() {
    let log = Arc::new(EventLog::new());
    let tree: RadixTree = RadixTree::new(TreeConfig { events: Some(log.clone() as _), ..Default::default() }).unwrap();
    let a = named("a");
    tree.insert(&[1, 2][..], &[0, 1], &a).unwrap();
    let mut lease = tree.lock_prefix(&[1][..], &a).unwrap();
    tree.drop_namespace(&a, &mut Vec::new()).unwrap();
    tree.insert(&[1][..], &[5], &a).unwrap();
    tree.insert_with(&mut lease, &[1, 9][..], &[0, 6], 0).unwrap(); // of leftovers nobody is told
    drop(lease);
    tree.evict(2, &mut Vec::new());
    let kinds: Vec<_> = log.drain().into_iter().map(|event| (event.kind, event.namespace)).collect();
    let told = [EventKind::Stored, EventKind::Dropped, EventKind::Stored];
    assert_eq!(kinds, told.map(|kind| (kind, a.clone())));
    assert_eq!(tree.match_prefix(&[1][..], &a).length(), 1);
}

/// Four threads insert into two namespaces, lock, evict and drop them: every slot has one owner all the time.
#[test]
fn dropping_beside_inserts_locks_and_evictions_loses_no_slot() {
    const PAGE: usize = 4;
    const NUM_PAGES: i32 = 96;
    let rounds = std::env::var("STRESS_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for round in 0..20 * rounds {
        let tree = tree(PAGE);
        let names = [named("a"), named("b"), Namespace::default()];
        let free = Mutex::new((0..NUM_PAGES).collect::<Vec<i32>>());
        let give = |slots: &[i32]| {
            free.lock().unwrap().extend(slots.chunks_exact(PAGE).map(|page| page[0] / PAGE as i32));
        };
        thread::scope(|scope| {
            for me in 0..4u32 {
                let (tree, names, free, give) = (&tree, &names, &free, &give);
                scope.spawn(move || {
                    let mut state = 9_176 * (round + 1) + me * 77 + 1;
                    let mut next = |n: u32| {
                        state ^= state << 13;
                        state ^= state >> 17;
                        state ^= state << 5;
                        state % n
                    };
                    let mut leases = Vec::new();
                    for _ in 0..250 {
                        let text: Vec<u32> = (0..1 + next(5)).flat_map(|_| [next(2); PAGE]).collect();
                        let ns = &names[next(3) as usize];
                        match next(8) {
                            0..=3 => {
                                let pages = {
                                    let mut free = free.lock().unwrap();
                                    let at = free.len().saturating_sub(text.len() / PAGE);
                                    free.split_off(at)
                                };
                                let own: Vec<i32> = pages
                                    .iter()
                                    .flat_map(|&page| (0..PAGE as i32).map(move |i| page * PAGE as i32 + i))
                                    .collect();
                                if own.len() < text.len() {
                                    give(&own);
                                    let mut out = Vec::new();
                                    tree.evict(text.len(), &mut out);
                                    give(&out);
                                    continue;
                                }
                                let done = tree.insert(&text, &own, ns).unwrap();
                                give(&own[..done.cached_len]);
                            }
                            4 | 5 => {
                                let lease = tree.lock_prefix(&text, ns).unwrap();
                                let atoms: Vec<u32> =
                                    lease.segments().iter().flat_map(|segment| segment.atoms().to_vec()).collect();
                                assert_eq!(atoms, text[..lease.length()]);
                                leases.push(lease);
                                if leases.len() > 3 {
                                    leases.remove(next(4) as usize).release();
                                }
                            }
                            6 => {
                                let mut out = Vec::new();
                                tree.evict(PAGE * next(4) as usize, &mut out);
                                give(&out);
                            }
                            _ => {
                                let mut out = Vec::new();
                                match (next(12), ns.is_default()) {
                                    (0, _) => tree.reset(&mut out),
                                    (_, true) => {}
                                    (_, false) => drop(tree.drop_namespace(ns, &mut out).unwrap()),
                                }
                                give(&out);
                            }
                        }
                    }
                });
            }
        });
        tree.check().unwrap();
        assert_eq!(tree.protected_tokens(), 0);
        assert_eq!(free.lock().unwrap().len() * PAGE + tree.cached_tokens(), NUM_PAGES as usize * PAGE);
        let mut out = Vec::new();
        tree.evict(usize::MAX, &mut out);
        give(&out);
        tree.check().unwrap();
        let mut left = free.into_inner().unwrap();
        left.sort_unstable();
        assert_eq!(left, (0..NUM_PAGES).collect::<Vec<_>>());
        // empty namespaces are evictable leaves of no tokens
        tree.reset(&mut out);
        assert_eq!(tree.num_nodes(), 2);
    }
}
