//! A snapshot gives the same tree back, or nothing.
//!
//! `PROPTEST_CASES` sets how many trees are tried.

use std::io::{self, Read, Write};
use std::sync::Arc;

use proptest::prelude::*;
use radix_rs::{Error, EventKind, EventLog, Namespace, PageHash, Policy, RadixTree, TreeConfig};

fn spaces() -> [Namespace; 3] {
    [Namespace::default(), Namespace::from("a"), Namespace::from("b")]
}

fn tree(page_size: usize, page_hash: PageHash) -> RadixTree {
    tree_with(page_size, page_hash, "lru")
}

fn tree_with(page_size: usize, page_hash: PageHash, policy: &str) -> RadixTree {
    let policy = Policy::from_name(policy).unwrap();
    RadixTree::new(TreeConfig { page_size, page_hash, policy, ..Default::default() }).unwrap()
}

fn bytes(tree: &RadixTree) -> Vec<u8> {
    let mut bytes = Vec::new();
    tree.snapshot(&mut bytes).unwrap();
    bytes
}

fn tokens(pages: &[u8], size: usize) -> Vec<u32> {
    pages.iter().flat_map(|&page| vec![7 + u32::from(page); size]).collect()
}

/// What can be seen of every node: it must not change. Ends of leases are no part of it.
fn shape(tree: &RadixTree) -> Vec<(usize, usize, usize, usize, u64, u64, i32)> {
    let mut shape: Vec<_> = tree
        .nodes()
        .into_iter()
        .filter(|node| node.parent.is_some())
        .map(|node| (node.start, node.end, node.num_children, node.hits, node.last_use, node.created, node.priority))
        .collect();
    shape.sort_unstable();
    shape
}

fn one_by_one(tree: &RadixTree) -> Vec<Vec<i32>> {
    let mut steps = Vec::new();
    while tree.cached_tokens() > 0 {
        let mut out = Vec::new();
        tree.evict(1, &mut out);
        assert!(!out.is_empty(), "something is held");
        steps.push(out);
    }
    steps
}

#[derive(Debug, Clone)]
enum Op {
    Insert(Vec<u8>, usize, i32),
    Touch(Vec<u8>, usize),
    Lock(Vec<u8>, usize),
    Evict(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let pages = || prop::collection::vec(0u8..2, 0..7);
    let space = || prop_oneof![3 => Just(0usize), 1 => Just(1), 1 => Just(2)];
    prop_oneof![
        5 => (pages(), space(), -2i32..3).prop_map(|(pages, space, priority)| Op::Insert(pages, space, priority)),
        2 => (pages(), space()).prop_map(|(pages, space)| Op::Touch(pages, space)),
        2 => (pages(), space()).prop_map(|(pages, space)| Op::Lock(pages, space)),
        1 => (0usize..4).prop_map(Op::Evict),
    ]
}

proptest! {
    #[test]
    fn a_restored_tree_is_the_tree_without_its_leases(
        size in prop_oneof![Just(1usize), Just(4), Just(16)],
        page_hash in prop_oneof![3 => Just(PageHash::Mix), 1 => Just(PageHash::Constant)],
        policy in prop::sample::select(Policy::names().collect::<Vec<_>>()),
        ops in prop::collection::vec(op(), 0..30),
    ) {
        let (tree, names) = (tree_with(size, page_hash, policy), spaces());
        let mut leases = Vec::new();
        for (i, op) in ops.iter().enumerate() {
            match op {
                Op::Insert(pages, space, priority) => {
                    let tokens = tokens(pages, size);
                    let slots: Vec<i32> = (0..tokens.len() as i32).map(|at| i as i32 * 1024 + at).collect();
                    tree.insert_prioritized(&tokens, &slots, &names[*space], *priority).unwrap();
                }
                Op::Touch(pages, space) => tree.touch(&tokens(pages, size), &names[*space]),
                Op::Lock(pages, space) => leases.push(tree.lock_prefix(&tokens(pages, size), &names[*space]).unwrap()),
                Op::Evict(pages) => drop(tree.evict(pages * size, &mut Vec::new())),
            }
        }
        let with_leases = bytes(&tree);
        drop(leases);
        let without = bytes(&tree);
        for bytes in [with_leases, without] {
            let again = tree_with(size, page_hash, policy);
            prop_assert_eq!(again.restore(&mut &bytes[..]).unwrap(), Vec::<i32>::new());
            again.check().unwrap();
            prop_assert_eq!(shape(&again), shape(&tree));
            prop_assert_eq!((again.cached_tokens(), again.protected_tokens()), (tree.cached_tokens(), 0));
            prop_assert_eq!(&self::bytes(&again), &self::bytes(&tree), "the snapshot of a restored tree differs");
            // and it goes on
            let more = tokens(&[1, 0, 1, 1], size);
            let slots: Vec<i32> = (0..more.len() as i32).map(|at| 99 * 1024 + at).collect();
            again.insert(&more, &slots, &names[0]).unwrap();
            again.check().unwrap();
            again.evict(3 * size, &mut Vec::new());
            again.check().unwrap();
        }
        let again = tree_with(size, page_hash, policy);
        again.restore(&mut &bytes(&tree)[..]).unwrap();
        prop_assert_eq!(one_by_one(&again), one_by_one(&tree), "the order of eviction differs");
        again.check().unwrap();
    }
}

/// A tree with a cut edge, a sibling, two namespaces, parts of different age and an empty namespace.
fn sample() -> RadixTree {
    let (tree, [a, b, c]) = (tree(4, PageHash::Mix), spaces());
    let slots = |from: i32, n: usize| (from..from + n as i32).collect::<Vec<_>>();
    tree.insert(&tokens(&[0, 1, 0, 1], 4), &slots(0, 16), &a).unwrap();
    tree.insert(&tokens(&[0, 1, 1], 4), &slots(16, 12), &a).unwrap();
    tree.insert_prioritized(&tokens(&[1, 1], 4), &slots(28, 8), &b, -3).unwrap();
    tree.touch(&tokens(&[1], 4), &b);
    tree.insert(&tokens(&[1], 4), &slots(36, 4), &c).unwrap();
    tree
}

#[track_caller]
fn refused(bytes: &[u8]) -> String {
    let tree = tree(4, PageHash::Mix);
    let before = tree.stats();
    let text = match tree.restore(&mut &bytes[..]) {
        Err(Error::Snapshot(text)) => text,
        other => panic!("{other:?}"),
    };
    let after = tree.stats();
    assert_eq!((after.cached_tokens, after.num_nodes, after.num_candidates), (0, before.num_nodes, 0));
    tree.check().unwrap();
    tree.insert(&[1; 4][..], &[0, 1, 2, 3], &Namespace::default()).unwrap();
    tree.check().unwrap();
    text
}

#[test]
fn every_flipped_bit_is_refused() {
    let bytes = bytes(&sample());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            assert!(!refused(&bad).is_empty());
        }
    }
}

#[test]
fn every_truncation_is_refused_and_so_is_more_after_the_end() {
    let bytes = bytes(&sample());
    for len in 0..bytes.len() {
        refused(&bytes[..len]);
    }
    let text = refused(&[&bytes[..], &[0]].concat());
    assert!(text.contains("after its end"), "{text}");
}

#[test]
fn what_is_wrong_is_said() {
    let bytes = bytes(&sample());
    assert!(refused(b"PK\x03\x04 something else").contains("no snapshot"));
    assert!(refused(b"").contains("no snapshot"));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert!(refused(&newer).contains("format 2, which is newer"));
    assert!(refused(&bytes[..bytes.len() - 1]).contains("cut off"));
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    let text = refused(&damaged);
    assert!(text.contains("damaged between byte 12"), "{text}");
    let other: RadixTree = tree(8, PageHash::Mix);
    let text = other.restore(&mut &bytes[..]).unwrap_err().to_string();
    assert!(text.contains("pages of 4 tokens") && text.contains("has 8"), "{text}");
    let wide: RadixTree<u64, i32> = RadixTree::new(TreeConfig { page_size: 4, ..Default::default() }).unwrap();
    assert!(matches!(wide.restore(&mut &bytes[..]), Err(Error::Snapshot(_))));
    let holders: RadixTree<u32, u64> = RadixTree::new(TreeConfig { page_size: 4, ..Default::default() }).unwrap();
    assert!(matches!(holders.restore(&mut &bytes[..]), Err(Error::Snapshot(_))));
}

#[test]
fn trees_of_other_atoms_and_values_come_back_too() {
    let tree: RadixTree<u64, u128> = RadixTree::new(TreeConfig::default()).unwrap();
    let ns = Namespace::default();
    tree.insert(&[u64::MAX, 2][..], &[u128::MAX, 5], &ns).unwrap();
    let mut bytes = Vec::new();
    tree.snapshot(&mut bytes).unwrap();
    let again: RadixTree<u64, u128> = RadixTree::new(TreeConfig::default()).unwrap();
    again.restore(&mut &bytes[..]).unwrap();
    let found = again.match_prefix(&[u64::MAX, 2][..], &ns);
    assert_eq!(found.segments()[0].as_slice(), [u128::MAX, 5]);
}

#[test]
fn a_tree_that_holds_something_is_left_alone() {
    let (bytes, ns) = (bytes(&sample()), Namespace::default());
    let tree = tree(4, PageHash::Mix);
    tree.insert(&[9; 4][..], &[0, 1, 2, 3], &ns).unwrap();
    let lease = tree.lock_prefix(&[9; 4][..], &ns).unwrap();
    assert!(tree.restore(&mut &bytes[..]).unwrap_err().to_string().contains("holds 4 tokens"));
    tree.reset(&mut Vec::new());
    // slots of a lease may be in the snapshot as well
    assert!(tree.restore(&mut &bytes[..]).is_err());
    lease.release();
    tree.reset(&mut Vec::new());
    tree.restore(&mut &bytes[..]).unwrap();
    assert_eq!(tree.match_prefix(&tokens(&[0, 1, 0], 4), &ns).length(), 12);
    tree.check().unwrap();
}

#[test]
fn an_edge_that_was_cut_for_a_sibling_is_whole_again_after_a_restore_too() {
    let ns = Namespace::default();
    let tree = tree(1, PageHash::Mix);
    tree.insert(&[1, 2, 3][..], &[0, 1, 2], &ns).unwrap();
    tree.insert(&[1, 9][..], &[3, 4], &ns).unwrap();
    tree.touch(&[1, 2, 3][..], &ns);
    let again = self::tree(1, PageHash::Mix);
    again.restore(&mut &bytes(&tree)[..]).unwrap();
    let mut out = Vec::new();
    again.evict(1, &mut out);
    assert_eq!(out, [4]);
    assert_eq!(again.match_prefix(&[1, 2, 3][..], &ns).segments().len(), 1);
    again.check().unwrap();
}

#[test]
fn handles_from_before_a_restore_are_stale_and_time_goes_on() {
    let ns = Namespace::default();
    let tree = tree(4, PageHash::Mix);
    let handle = tree.insert(&[9; 4][..], &[0, 1, 2, 3], &ns).unwrap().handle;
    tree.evict(4, &mut Vec::new());
    tree.restore(&mut &bytes(&sample())[..]).unwrap();
    assert!(matches!(tree.values(&handle), Err(Error::StaleHandle { .. })));
    let latest = tree.nodes().iter().map(|node| node.last_use).max().unwrap();
    tree.touch(&tokens(&[0, 1, 0, 1], 4), &ns);
    assert!(tree.nodes().iter().any(|node| node.last_use > latest));
    let handle = tree.match_prefix(&tokens(&[0, 1], 4), &ns).handle();
    assert_eq!(tree.lock(&handle).unwrap().length(), 8);
}

#[test]
fn a_follower_of_the_events_knows_what_was_restored() {
    let log = Arc::new(EventLog::new());
    let tree: RadixTree =
        RadixTree::new(TreeConfig { page_size: 4, events: Some(log.clone() as _), ..Default::default() }).unwrap();
    tree.restore(&mut &bytes(&sample())[..]).unwrap();
    let events = log.drain();
    assert_eq!(events[0].kind, EventKind::Cleared);
    let stored: usize = events[1..].iter().map(|event| event.values.len()).sum();
    assert!(events[1..].iter().all(|event| event.kind == EventKind::Stored));
    assert_eq!(stored, tree.cached_tokens());
    for event in &events[1..] {
        assert_eq!(tree.match_prefix(&event.tokens, &event.namespace).length(), event.tokens.len());
    }
    assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq));
}

/// A stream that gives or takes a few bytes at a time and then fails.
struct Weak<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl Read for Weak<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other("the disk is gone"));
        }
        let n = out.len().min(7).min(self.left).min(self.bytes.len());
        out[..n].copy_from_slice(&self.bytes[..n]);
        self.bytes = &self.bytes[n..];
        self.left -= n;
        Ok(n)
    }
}

impl Write for Weak<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::from_raw_os_error(28));
        }
        let n = bytes.len().min(7).min(self.left);
        self.left -= n;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_that_fails_is_an_error_with_its_number() {
    let (tree, bytes) = (sample(), bytes(&sample()));
    let full = tree.snapshot(&mut Weak { bytes: &[], left: 100 }).unwrap_err();
    assert!(matches!(full, Error::Io { code: Some(28), .. }), "{full:?}");
    tree.check().unwrap();
    let empty = self::tree(4, PageHash::Mix);
    let error = empty.restore(&mut Weak { bytes: &bytes, left: bytes.len() / 2 }).unwrap_err();
    assert!(matches!(&error, Error::Io { code: None, text } if text == "the disk is gone"), "{error:?}");
    empty.restore(&mut Weak { bytes: &bytes, left: usize::MAX }).unwrap();
    empty.check().unwrap();
}

/// Others insert and evict while snapshots are taken: each is refused as a whole or gives a tree that holds together.
#[test]
fn a_snapshot_beside_others_is_restorable_or_refused() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let (tree, ns) = (tree(4, PageHash::Mix), Namespace::default());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2i32 {
            let (tree, ns, stop) = (&tree, &ns, &stop);
            scope.spawn(move || {
                let mut state = 77_u32 + thread as u32;
                let mut free: Vec<i32> = (0..40).map(|page| (page * 2 + thread) * 4).collect();
                while !stop.load(SeqCst) {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    let text = tokens(&[(state & 1) as u8, (state >> 1 & 1) as u8, (state >> 2 & 1) as u8], 4);
                    if free.len() < 3 {
                        let mut out = Vec::new();
                        tree.evict(12, &mut out);
                        free.extend(out.chunks(4).map(|page| page[0]));
                        continue;
                    }
                    let slots: Vec<i32> = free.drain(free.len() - 3..).flat_map(|first| first..first + 4).collect();
                    let done = tree.insert(&text, &slots, ns).unwrap();
                    free.extend(slots[..done.cached_len].chunks(4).map(|page| page[0]));
                    drop(tree.lock_prefix(&text[..8], ns).unwrap());
                }
            });
        }
        for _ in 0..300 {
            let mut bytes = Vec::new();
            match tree.snapshot(&mut bytes) {
                Ok(()) => {
                    let again = self::tree(4, PageHash::Mix);
                    again.restore(&mut &bytes[..]).unwrap();
                    again.check().unwrap();
                }
                Err(Error::Snapshot(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        stop.store(true, SeqCst);
    });
    tree.check().unwrap();
}

/// Resets, restores and inserts from four threads: no slot is lost, and the tree is of its last era.
#[test]
fn resets_and_restores_at_the_same_time_leave_a_tree_of_one_era() {
    let bytes = bytes(&sample());
    let ns = Namespace::default();
    for _ in 0..200 {
        let tree = tree(4, PageHash::Mix);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (tree, bytes) = (&tree, &bytes);
                scope.spawn(move || {
                    if thread % 2 == 0 {
                        tree.reset(&mut Vec::new());
                    } else {
                        let _ = tree.restore(&mut &bytes[..]);
                    }
                });
            }
        });
        tree.reset(&mut Vec::new());
        let handle = tree.insert(&[9; 4][..], &[400, 401, 402, 403], &ns).unwrap().handle;
        assert_eq!(tree.values(&handle).unwrap().length(), 4);
        assert_eq!(tree.cached_tokens(), 4);
        tree.check().unwrap();
    }
}
