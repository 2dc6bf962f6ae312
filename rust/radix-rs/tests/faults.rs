//! Classes of faults that real prefix caches had, each as the promise that rules it out.

use std::collections::HashSet;

use radix_rs::{
    CacheConfig, Error, Match, Namespace, PageHash, PrefixCache, RadixTree, Sequence, SlotPool, TreeConfig,
};

fn tree(page_size: usize) -> RadixTree {
    RadixTree::new(TreeConfig { page_size, ..Default::default() }).unwrap()
}

fn cache(num_slots: usize, page_size: usize) -> PrefixCache {
    PrefixCache::new(CacheConfig { num_slots, page_size, ..Default::default() }).unwrap()
}

fn ns() -> Namespace {
    Namespace::default()
}

/// Inserts with consecutive slots from `first` on.
fn insert(tree: &RadixTree, tokens: &[u32], first: i32) -> usize {
    let slots: Vec<i32> = (first..).take(tokens.len()).collect();
    tree.insert(tokens, &slots, &ns()).unwrap().cached_len
}

fn values(found: &Match) -> Vec<i32> {
    found.segments().iter().flat_map(|segment| segment.as_slice().to_vec()).collect()
}

fn find(tree: &RadixTree, tokens: &[u32]) -> Vec<i32> {
    values(&tree.match_prefix(tokens, &ns()))
}

fn evict(tree: &RadixTree, num_tokens: usize) -> Vec<i32> {
    let mut out = Vec::new();
    assert_eq!(tree.evict(num_tokens, &mut out), out.len());
    out.sort_unstable();
    out
}

fn range(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

fn begin(cache: &PrefixCache, tokens: &[u32]) -> Sequence {
    cache.begin(tokens, &ns()).unwrap()
}

/// Begins and computes all of a prompt.
fn prefill(cache: &PrefixCache, tokens: &[u32]) -> Sequence {
    let mut sequence = begin(cache, tokens);
    sequence.reserve(tokens.len() - sequence.num_reserved()).unwrap();
    sequence.commit(tokens.len()).unwrap();
    sequence
}

fn serve(cache: &PrefixCache, tokens: &[u32]) {
    prefill(cache, tokens).finish();
}

fn row(sequence: &Sequence) -> Vec<i32> {
    sequence.row().to_vec()
}

fn conserved(cache: &PrefixCache) {
    cache.check().unwrap();
    let stats = cache.stats();
    let owned = stats.num_free + stats.cached_tokens + stats.held_tokens + stats.waiting_tokens;
    assert_eq!(owned, stats.num_slots);
}

// Structure, split, merge

#[test]
fn a_match_of_a_self_similar_prefix_is_as_long_as_the_prefix_however_the_edge_is_cut() {
    for page in [1usize, 4] {
        let tree = tree(page);
        for pages in [8usize, 3, 5, 1, 7, 2, 6, 4] {
            insert(&tree, &vec![7; pages * page], 0);
            let held = tree.lock_prefix(&vec![7; pages * page], &ns()).unwrap();
            for other in 0..=12 {
                let expected = (other.min(8) * page) as i32;
                assert_eq!(find(&tree, &vec![7; other * page]), (0..expected).collect::<Vec<_>>());
            }
            tree.check().unwrap();
            drop(held);
        }
    }
}

#[test]
fn an_edge_split_in_the_middle_of_equal_tokens_never_answers_more_than_it_holds() {
    let tree = tree(1);
    insert(&tree, &[7; 32], 0);
    let lease = tree.lock_prefix(&[7; 16][..], &ns()).unwrap();
    assert_eq!(find(&tree, &[7; 48]), (0..32).collect::<Vec<_>>());
    drop(lease);
    assert_eq!(find(&tree, &[7; 48]), (0..32).collect::<Vec<_>>());
}

#[test]
fn an_insert_with_a_lease_lands_at_the_end_of_the_lease_though_its_edge_was_cut_meanwhile() {
    let tree = tree(2);
    insert(&tree, &[1, 1, 2, 2], 0);
    let mut lease = tree.lock_prefix(&[1, 1, 2, 2][..], &ns()).unwrap();
    // The edge is cut above the end of the lease, twice.
    insert(&tree, &[1, 1, 3, 3], 4 - 2);
    let upper = tree.lock_prefix(&[1, 1][..], &ns()).unwrap();
    let done = tree.insert_with(&mut lease, &[1, 1, 2, 2, 4, 4][..], &[0, 1, 2, 3, 8, 9], 0).unwrap();
    assert_eq!((done.cached_len, done.length, lease.length()), (4, 6, 6));
    assert_eq!(find(&tree, &[1, 1, 2, 2, 4, 4]), [0, 1, 2, 3, 8, 9]);
    assert_eq!(tree.match_prefix(&[1, 1, 4, 4][..], &ns()).length(), 2);
    drop(upper);
    tree.check().unwrap();
}

#[test]
fn every_child_is_found_under_its_first_page_after_any_split() {
    let tree = tree(1);
    let long = range(0..64);
    insert(&tree, &long, 0);
    for (i, cut) in [32u32, 16, 48, 8, 8, 56, 1, 63].into_iter().enumerate() {
        let mut text = range(0..cut);
        text.push(1000 + i as u32);
        insert(&tree, &text, 64 - cut as i32 + i as i32);
        assert_eq!(find(&tree, &long), (0..64).collect::<Vec<_>>());
        assert_eq!(find(&tree, &text).last(), Some(&(64 + i as i32)));
        tree.check().unwrap();
    }
    assert_eq!(evict(&tree, 1000).len(), 72);
    assert_eq!(find(&tree, &long), []);
}

#[test]
fn a_lock_pins_exactly_what_it_matched_and_unlock_unpins_it_whatever_was_inserted_between() {
    let tree = tree(2);
    insert(&tree, &[1, 1, 2, 2], 0);
    let lease = tree.lock_prefix(&[1, 1][..], &ns()).unwrap();
    assert_eq!(tree.protected_tokens(), 2);
    tree.insert(&[1, 1, 3, 3][..], &[0, 1, 4, 5], &ns()).unwrap();
    assert_eq!((tree.protected_tokens(), tree.evictable_tokens()), (2, 4));
    lease.release();
    assert_eq!((tree.protected_tokens(), tree.evictable_tokens()), (0, 6));
    assert!(tree.nodes().iter().all(|node| node.pins == 0));
    assert_eq!(evict(&tree, 6), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn memory_of_evicted_parts_is_given_back_though_they_once_shared_a_buffer() {
    const LENGTH: usize = 1_000_000;
    let tree = tree(1);
    let text: Vec<u32> = (0..LENGTH as u32).collect();
    insert(&tree, &text, 0);
    let full = tree.size_bytes();
    assert!(full >= LENGTH * 8);
    // A thousand cuts, all of them kept apart by a sibling.
    for cut in (1..=1000).rev() {
        let at = cut * 20;
        let mut sibling = text[..at].to_vec();
        sibling.push(u32::MAX >> 1);
        let mut slots: Vec<i32> = (0..at as i32).collect();
        slots.push((LENGTH + cut) as i32);
        tree.insert(&sibling, &slots, &ns()).unwrap();
    }
    tree.check().unwrap();
    let lease = tree.lock_prefix(&text[..1], &ns()).unwrap();
    assert_eq!(evict(&tree, 2 * LENGTH).len(), LENGTH + 999);
    tree.compact(usize::MAX);
    assert_eq!(tree.cached_tokens(), 1);
    // What may stay is the memory of two thousand nodes, which is used again.
    assert!(tree.size_bytes() < full / 10, "{} of {full} bytes are left for one token", tree.size_bytes());
    drop(lease);
}

#[test]
fn a_chain_of_many_pieces_becomes_whole_with_each_token_copied_once() {
    const PIECES: usize = if cfg!(debug_assertions) { 500 } else { 2_000 };
    let tree = tree(1);
    let text = range(0..PIECES as u32);
    insert(&tree, &text, 0);
    let long = tree.lock_prefix(&text[..], &ns()).unwrap();
    let leases: Vec<_> = (1..PIECES).map(|at| tree.lock_prefix(&text[..at], &ns()).unwrap()).collect();
    drop(leases);
    assert_eq!(tree.num_nodes(), PIECES + 2);
    let before = tree.stats().copied_tokens;
    drop(long);
    assert_eq!(tree.num_nodes(), 3);
    assert!(tree.stats().copied_tokens - before <= PIECES);
    assert_eq!(find(&tree, &text), (0..PIECES as i32).collect::<Vec<_>>());
    tree.check().unwrap();
}

#[test]
fn the_order_of_eviction_takes_no_memory_for_uses_that_are_over() {
    let tree = tree(1);
    let texts: Vec<[u32; 4]> = (0..100).map(|number| [number, 1, 2, 3]).collect();
    for (number, text) in texts.iter().enumerate() {
        insert(&tree, text, 4 * number as i32);
    }
    let round = || {
        for text in &texts {
            tree.touch(&text[..], &ns());
            tree.lock_prefix(&text[..], &ns()).unwrap().release();
        }
    };
    round();
    let before = tree.size_bytes();
    (0..500).for_each(|_| round());
    let now = tree.size_bytes();
    assert!(now <= 2 * before, "{before} bytes became {now} without a token more");
    tree.check().unwrap();
}

#[test]
fn the_memory_of_a_large_edge_goes_once_less_than_half_of_it_is_used() {
    const LENGTH: usize = 1 << 18;
    let tree = tree(1);
    insert(&tree, &range(0..LENGTH as u32), 0);
    let full = tree.size_bytes();
    evict(&tree, LENGTH - 16);
    tree.compact(usize::MAX);
    assert_eq!(find(&tree, &range(0..LENGTH as u32)), (0..16).collect::<Vec<_>>());
    assert!(tree.size_bytes() < full / 10, "{} of {full} bytes are left", tree.size_bytes());
}

#[test]
fn lengths_around_a_page_give_whole_pages_only_and_never_an_index_error() {
    for page in [1usize, 4, 16, 1024] {
        let tree = tree(page);
        let text = vec![7u32; 2 * page + 1];
        for length in [0, 1, page - 1, page, page + 1, 2 * page - 1, 2 * page, 2 * page + 1] {
            insert(&tree, &text[..length], 0);
            let whole = length / page * page;
            assert_eq!(tree.match_prefix(&text[..length], &ns()).length(), whole);
            assert_eq!(tree.lock_prefix(&text[..length], &ns()).unwrap().length(), whole);
            tree.touch(&text[..length], &ns());
            tree.check().unwrap();
        }
        assert_eq!(evict(&tree, 1).len(), page);
    }
}

// Long enough for any recursion to overflow the small stack below; longer where cutting it is quick.
const DEPTH: u32 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
const TWIG: u32 = u32::MAX >> 1;

/// One node a token, all on one path, each kept apart from the next by a twig of one token.
fn chain() -> (RadixTree, Vec<u32>) {
    let tree = tree(1);
    let text = range(0..DEPTH);
    insert(&tree, &text, 0);
    for at in (1..DEPTH).rev() {
        let twig = [&text[..at as usize], &[TWIG]].concat();
        let mut slots: Vec<i32> = (0..at as i32).collect();
        slots.push((DEPTH + at) as i32);
        tree.insert(&twig, &slots, &ns()).unwrap();
    }
    assert!(tree.num_nodes() >= 2 * DEPTH as usize - 1);
    (tree, text)
}

/// Runs with a stack that no recursion over the depth of a chain could live on.
fn with_a_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(256 << 10).spawn(work).unwrap().join().unwrap();
}

#[test]
fn nothing_recurses_on_the_depth_of_a_chain_that_is_used_and_evicted() {
    with_a_small_stack(|| {
        let (tree, text) = chain();
        let lease = tree.lock_prefix(&text, &ns()).unwrap();
        assert_eq!(find(&tree, &text), (0..DEPTH as i32).collect::<Vec<_>>());
        assert_eq!(tree.protected_tokens(), DEPTH as usize);
        tree.check().unwrap();
        lease.release();
        assert_eq!(tree.protected_tokens(), 0);
        assert_eq!(evict(&tree, usize::MAX >> 1).len(), 2 * DEPTH as usize - 1);
        tree.check().unwrap();
    });
}

#[test]
fn nothing_recurses_on_the_depth_of_a_chain_that_is_dropped_or_reset() {
    with_a_small_stack(|| {
        let (tree, text) = chain();
        let lease = tree.lock_prefix(&text[..DEPTH as usize / 2], &ns()).unwrap();
        let mut out = Vec::new();
        tree.reset(&mut out);
        assert_eq!(out.len(), 2 * DEPTH as usize - 1 - DEPTH as usize / 2);
        insert(&tree, &text, 0);
        drop(lease);
        assert_eq!(evict(&tree, DEPTH as usize / 2).len(), DEPTH as usize / 2);
    });
    // The tree first, with every node still there, and the lease after it.
    with_a_small_stack(|| {
        let (tree, text) = chain();
        let lease = tree.lock_prefix(&text, &ns()).unwrap();
        drop(tree);
        drop(lease);
    });
}

// Locks, counts, eviction, slots

#[test]
fn a_lock_covers_the_last_node_itself() {
    let tree = tree(1);
    insert(&tree, &[1, 2, 3], 0);
    let lease = tree.lock_prefix(&[1, 2, 3][..], &ns()).unwrap();
    assert_eq!(tree.protected_tokens(), 3);
    assert_eq!(evict(&tree, 3), []);
    assert_eq!(find(&tree, &[1, 2, 3]), [0, 1, 2]);
    drop(lease);
}

#[test]
fn evictable_and_protected_stay_exact_when_a_pinned_edge_is_split() {
    let tree = tree(1);
    insert(&tree, &[1, 2, 3, 4], 0);
    let whole = tree.lock_prefix(&[1, 2, 3, 4][..], &ns()).unwrap();
    tree.insert(&[1, 2, 9][..], &[0, 1, 4], &ns()).unwrap();
    assert_eq!((tree.protected_tokens(), tree.evictable_tokens()), (4, 1));
    let half = tree.lock_prefix(&[1, 2][..], &ns()).unwrap();
    let again = tree.lock_prefix(&[1, 2, 3, 4][..], &ns()).unwrap();
    // A page with three users is protected once.
    assert_eq!((tree.protected_tokens(), tree.evictable_tokens()), (4, 1));
    drop(whole);
    assert_eq!((tree.protected_tokens(), tree.evictable_tokens()), (4, 1));
    drop(again);
    assert_eq!((tree.protected_tokens(), tree.evictable_tokens()), (2, 3));
    drop(half);
    assert_eq!((tree.protected_tokens(), tree.evictable_tokens()), (0, 5));
    tree.check().unwrap();
}

#[test]
fn an_idle_cache_whose_requests_shared_pages_has_nothing_protected() {
    let cache = cache(64, 4);
    serve(&cache, &range(0..17));
    let users: Vec<Sequence> = (0..3).map(|_| prefill(&cache, &range(0..17))).collect();
    assert_eq!(cache.stats().protected_tokens, 16);
    conserved(&cache);
    users.into_iter().for_each(|user| user.finish());
    assert_eq!(cache.stats().protected_tokens, 0);
    conserved(&cache);
}

#[test]
fn a_reserve_evicts_the_shortfall_only() {
    let cache = cache(180, 1);
    serve(&cache, &range(0..100));
    assert_eq!((cache.pool().num_free(), cache.tree().cached_tokens()), (80, 100));
    let mut next = begin(&cache, &[1000]);
    next.reserve(100).unwrap();
    assert_eq!((cache.pool().num_free(), cache.tree().cached_tokens()), (0, 80));
    assert_eq!(cache.stats().evicted_tokens, 20);
    conserved(&cache);
}

#[test]
fn a_second_free_is_an_error_that_names_the_slot_and_changes_nothing() {
    for page in [1usize, 4, 64] {
        let pool = SlotPool::new(8 * page, page).unwrap();
        let slots = pool.alloc(8 * page).unwrap();
        pool.free(&slots[2 * page..3 * page]).unwrap();
        let slot = 2 * page as i32;
        assert_eq!(pool.free(&slots), Err(Error::DoubleFree { slot }));
        let twice = [&slots[..page], &slots[..page]].concat();
        assert_eq!(pool.free(&twice), Err(Error::DoubleFree { slot: 0 }));
        assert_eq!(pool.num_free(), page);
        assert_eq!(pool.alloc(page).unwrap(), &slots[2 * page..3 * page]);
        pool.check().unwrap();
    }
}

#[test]
fn finding_slots_for_a_request_never_evicts_its_own_hit() {
    let cache = cache(12, 1);
    serve(&cache, &range(0..5)); // the oldest: first to go but for the lease
    serve(&cache, &range(100..104));
    let mut user = begin(&cache, &range(0..9));
    assert_eq!(user.cached_len(), 5);
    user.reserve(7).unwrap();
    assert_eq!(find(cache.tree(), &range(0..5)), row(&user)[..5]);
    assert_eq!(cache.tree().cached_tokens(), 5);
    let refused = user.reserve(1).map(drop);
    assert_eq!(refused, Err(Error::Capacity { needed: 1, free: 0, evictable: 0, protected: 5 }));
    conserved(&cache);
}

#[test]
fn a_request_that_ends_in_the_middle_of_a_chunked_prefill_leaks_nothing() {
    for ending in 0..4 {
        let cache = cache(64, 4);
        let mut user = begin(&cache, &range(0..40));
        user.reserve(18).unwrap();
        user.commit(10).unwrap();
        match ending {
            0 => user.abort(),
            1 => user.finish(),
            2 => drop(user),
            _ => {
                user.truncate(0).unwrap();
                drop(user);
            }
        }
        let stats = cache.stats();
        assert_eq!((stats.cached_tokens, stats.protected_tokens, stats.held_tokens), (8, 0, 0));
        assert_eq!((stats.num_free, stats.num_sequences), (56, 0));
        conserved(&cache);
    }
}

#[test]
fn a_request_that_finds_no_room_leaks_nothing() {
    let cache = cache(16, 4);
    let mut user = begin(&cache, &range(0..40));
    user.reserve(8).unwrap();
    assert!(user.reserve(9).is_err());
    assert_eq!((user.num_reserved(), cache.pool().num_free()), (8, 8));
    drop(user);
    assert_eq!(cache.pool().num_free(), 16);
    conserved(&cache);
}

#[test]
fn a_fork_that_finds_no_room_makes_no_child_and_leaves_the_order_of_eviction() {
    let cache = cache(12, 4);
    let mut parent = prefill(&cache, &range(0..5)); // one page in the tree, one of its own
    serve(&cache, &range(100..104)); // younger than the page of the parent
    let refused = parent.fork(2, None).map(|children| children.len());
    assert_eq!(refused, Err(Error::Capacity { needed: 8, free: 0, evictable: 4, protected: 4 }));
    assert_eq!((cache.stats().num_sequences, cache.stats().held_tokens), (1, 4));
    parent.finish();
    let mut next = begin(&cache, &[200]);
    next.reserve(8).unwrap();
    assert_eq!(find(cache.tree(), &range(0..4)), [], "a fork that failed counts as a use");
    assert_eq!(find(cache.tree(), &range(100..104)).len(), 4);
    conserved(&cache);
}

// Keys and isolation

#[test]
fn parts_of_a_namespace_never_run_into_each_other() {
    let names = [
        Namespace::default(),
        Namespace::from("x"),
        Namespace::from(""),
        Namespace::from_parts([]),
        Namespace::from_parts([("adapter", "x")]),
        Namespace::from_parts([("salt", "x")]),
        Namespace::from_parts([("adapter", "bc"), ("salt", "a")]),
        Namespace::from_parts([("adapter", "c"), ("salt", "ab")]),
        Namespace::from_parts([("adapter", "a"), ("adapter", "b")]),
        Namespace::from_parts([("adapter", "ab")]),
        Namespace::from_parts([("version", "1"), ("adapter", "x")]),
        Namespace::from_parts([("version", "2"), ("adapter", "x")]),
    ];
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    let tree = tree(1);
    for (i, name) in names.iter().enumerate() {
        assert_eq!(tree.match_prefix(&[1, 2][..], name).length(), 0, "{name:?}");
        tree.insert(&[1, 2][..], &[2 * i as i32, 2 * i as i32 + 1], name).unwrap();
    }
    for (i, name) in names.iter().enumerate() {
        assert_eq!(values(&tree.match_prefix(&[1, 2][..], name)), [2 * i as i32, 2 * i as i32 + 1]);
    }
    tree.check().unwrap();
}

#[test]
fn pages_whose_hashes_collide_are_told_apart_by_their_tokens() {
    let config = TreeConfig { page_size: 2, page_hash: PageHash::Constant, ..Default::default() };
    let tree: RadixTree = RadixTree::new(config).unwrap();
    for first in 0..50u32 {
        insert(&tree, &[first, 1, first, 2], 4 * first as i32);
    }
    for first in 0..50u32 {
        let slot = 4 * first as i32;
        assert_eq!(find(&tree, &[first, 1, first, 2]), [slot, slot + 1, slot + 2, slot + 3]);
        assert_eq!(find(&tree, &[first, 2]), []);
    }
    assert_eq!(evict(&tree, 4), [0, 1, 2, 3]);
    assert_eq!(find(&tree, &[0, 1]), []);
    assert_eq!(find(&tree, &[1, 1]), [4, 5]);
    tree.check().unwrap();
}

#[test]
fn pages_computed_for_one_continuation_are_not_found_under_another() {
    let cache = cache(64, 4);
    let mut session = prefill(&cache, &[1, 1, 1, 1, 2, 2]);
    session.append(&[3, 3][..]).unwrap();
    session.reserve(2).unwrap();
    session.commit(7).unwrap(); // the last token of the page is not computed
    session.truncate(6).unwrap();
    session.append(&[4, 4][..]).unwrap();
    session.reserve(2).unwrap();
    assert_eq!(session.num_computed(), 6);
    session.commit(6).unwrap();
    assert_eq!(session.num_published(), 4);
    session.commit(8).unwrap();
    assert_eq!(find(cache.tree(), &[1, 1, 1, 1, 2, 2, 3, 3]).len(), 4);
    assert_eq!(find(cache.tree(), &[1, 1, 1, 1, 2, 2, 4, 4]), row(&session));
    // A page that was published already keeps its own tokens when the session goes another way.
    session.truncate(5).unwrap();
    session.append(&[9, 9, 9][..]).unwrap();
    assert_eq!((session.num_tokens(), session.num_computed(), session.num_reserved()), (8, 4, 4));
    session.reserve(4).unwrap();
    session.commit(8).unwrap();
    let (old, new) = (find(cache.tree(), &[1, 1, 1, 1, 2, 2, 4, 4]), find(cache.tree(), &[1, 1, 1, 1, 2, 9, 9, 9]));
    assert_eq!((old.len(), new.len(), &old[..4]), (8, 8, &new[..4]));
    assert_ne!(old[4..], new[4..]);
    conserved(&cache);
}

// The boundary

#[test]
fn a_stale_handle_is_a_typed_error_and_the_tree_goes_on() {
    let tree = tree(1);
    let slots = [0, 1, 2];
    let handle = tree.insert(&[1, 2, 3][..], &slots, &ns()).unwrap().handle;
    assert_eq!(evict(&tree, 3), slots);
    // The node's memory is used again, for the same and for other tokens.
    insert(&tree, &[1, 2, 3], 10);
    insert(&tree, &[4, 5, 6], 20);
    assert!(matches!(tree.lock(&handle).map(drop), Err(Error::StaleHandle { end_depth: 3 })));
    assert!(matches!(tree.values(&handle).map(drop), Err(Error::StaleHandle { .. })));
    assert!(matches!(tree.parent(&handle).map(drop), Err(Error::StaleHandle { .. })));
    assert!(matches!(tree.node(&handle).map(drop), Err(Error::StaleHandle { .. })));
    assert_eq!(find(&tree, &[1, 2, 3]), [10, 11, 12]);
    tree.check().unwrap();
}

#[test]
fn a_handle_whose_end_was_evicted_never_answers_with_less() {
    let tree = tree(1);
    let handle = tree.insert(&[1, 2, 3, 4][..], &[0, 1, 2, 3], &ns()).unwrap().handle;
    let _lease = tree.lock_prefix(&[1, 2][..], &ns()).unwrap();
    assert_eq!(evict(&tree, 1), [3]);
    assert!(matches!(tree.values(&handle).map(drop), Err(Error::StaleHandle { end_depth: 4 })));
    // Other tokens in the place of what went are no answer either.
    insert(&tree, &[1, 2, 3, 9], 7);
    assert!(matches!(tree.lock(&handle).map(drop), Err(Error::StaleHandle { end_depth: 4 })));
}

#[test]
fn a_handle_outlives_what_happens_elsewhere() {
    let tree = tree(1);
    let handle = tree.insert(&[1, 2, 3][..], &[0, 1, 2], &ns()).unwrap().handle;
    insert(&tree, &[4, 5], 3);
    tree.touch(&[1, 2, 3][..], &ns());
    assert_eq!(evict(&tree, 2), [3, 4]);
    assert_eq!(values(&tree.values(&handle).unwrap()), [0, 1, 2]);
    let lease = tree.lock(&handle).unwrap();
    assert_eq!((lease.length(), tree.protected_tokens()), (3, 3));
    assert_eq!(tree.node(&handle).unwrap().end, 3);
}

#[test]
fn handles_from_before_a_reset_are_stale() {
    let tree = tree(1);
    let handle = tree.insert(&[1, 2][..], &[0, 1], &ns()).unwrap().handle;
    let lease = tree.lock(&handle).unwrap();
    let (at_lease, at_root) = (lease.handle(), tree.match_prefix(&[9][..], &ns()).handle());
    let mut out = Vec::new();
    tree.reset(&mut out);
    assert_eq!(out, []);
    for old in [handle, at_lease, at_root] {
        assert!(matches!(tree.values(&old).map(drop), Err(Error::StaleHandle { .. })), "{old:?}");
    }
    insert(&tree, &[1, 2], 5);
    assert!(tree.lock(&handle).is_err());
    drop(lease);
    assert_eq!(evict(&tree, 2), [0, 1]);
    assert_eq!(find(&tree, &[1, 2]), [5, 6]);
}

#[test]
fn a_lease_of_another_tree_is_refused() {
    let (one, other) = (tree(1), tree(1));
    insert(&one, &[1], 0);
    insert(&other, &[1], 0);
    let mut lease = other.lock_prefix(&[1][..], &ns()).unwrap();
    let refused = one.insert_with(&mut lease, &[1, 2][..], &[0, 1], 0);
    assert!(matches!(refused, Err(Error::Lease(_))));
    assert_eq!((one.cached_tokens(), other.cached_tokens(), lease.length()), (1, 1, 1));
}

#[test]
fn wrong_slots_are_refused_after_a_reset_too_when_the_new_tree_already_has_the_tokens() {
    let tree = tree(4);
    insert(&tree, &[1; 4], 0);
    let mut lease = tree.lock_prefix(&[1; 4][..], &ns()).unwrap();
    tree.reset(&mut Vec::new());
    insert(&tree, &[1; 8], 8);
    // The lease is of the old tree, where the second page is new: its slots are no page.
    let refused = tree.insert_with(&mut lease, &[1; 8][..], &[0, 1, 2, 3, 21, 22, 23, 24], 0);
    assert!(matches!(refused, Err(Error::InvalidInput(_))), "{refused:?}");
    assert_eq!(lease.length(), 4);
    tree.check().unwrap();
}

#[test]
fn sizes_and_ranges_that_cannot_be_are_refused() {
    for page_size in [0, 3, 2048] {
        assert!(matches!(
            RadixTree::<u32, i32>::new(TreeConfig { page_size, ..Default::default() }).map(drop),
            Err(Error::InvalidInput(_))
        ));
        assert!(matches!(SlotPool::new(6144, page_size).map(drop), Err(Error::InvalidInput(_))));
    }
    for (num_slots, page_size) in [(0, 1), (10, 4), (1 << 31, 1)] {
        assert!(matches!(SlotPool::new(num_slots, page_size).map(drop), Err(Error::InvalidInput(_))));
    }
    let cache = cache(16, 4);
    let mut user = prefill(&cache, &range(0..6));
    let before = (user.num_tokens(), user.num_computed(), user.num_reserved(), row(&user));
    assert!(matches!(user.commit(7).map(drop), Err(Error::InvalidInput(_))));
    assert!(matches!(user.truncate(7), Err(Error::InvalidInput(_))));
    assert!(matches!(user.fork(1, Some(7)).map(drop), Err(Error::InvalidInput(_))));
    assert!(matches!(user.reserve(usize::MAX).map(drop), Err(Error::Capacity { .. } | Error::InvalidInput(_))));
    assert_eq!((user.num_tokens(), user.num_computed(), user.num_reserved(), row(&user)), before);
    conserved(&cache);
}

// From the history of engines

#[test]
fn a_split_leaves_the_half_that_was_not_matched_as_old_as_it_was() {
    let tree = tree(1);
    insert(&tree, &[1, 2, 3, 4], 0);
    insert(&tree, &[5, 6], 4);
    tree.touch(&[1, 2][..], &ns());
    assert_eq!(evict(&tree, 2), [2, 3]);
    // The same where a lease cuts the edge.
    insert(&tree, &[7, 8, 9], 10);
    insert(&tree, &[10], 20);
    drop(tree.lock_prefix(&[7][..], &ns()).unwrap());
    drop(tree.lock_prefix(&[5, 6][..], &ns()).unwrap());
    drop(tree.lock_prefix(&[1, 2][..], &ns()).unwrap());
    assert_eq!(evict(&tree, 2), [11, 12]);
    assert_eq!(evict(&tree, 1), [20]);
}

#[test]
fn a_parent_that_becomes_a_leaf_counts_as_used_when_its_last_child_was() {
    let tree = tree(1);
    insert(&tree, &[1, 2], 0);
    insert(&tree, &[5], 10);
    tree.insert(&[1, 2, 3][..], &[0, 1, 2], &ns()).unwrap();
    insert(&tree, &[6], 11);
    assert_eq!(evict(&tree, 1), [10]);
    assert_eq!(evict(&tree, 1), [2]);
    assert_eq!(evict(&tree, 2), [0, 1]);
    assert_eq!(evict(&tree, 1), [11]);
}

#[test]
fn duplicates_go_back_only_after_the_row_names_the_copy_of_the_tree() {
    let cache = cache(16, 1);
    let (mut first, mut second) = (begin(&cache, &[1, 2, 3, 4]), begin(&cache, &[1, 2, 3, 5]));
    first.reserve(4).unwrap();
    second.reserve(4).unwrap();
    let own = row(&second);
    assert_eq!(first.commit(4).unwrap(), 4..4);
    assert_eq!(second.commit(4).unwrap(), 0..3);
    assert_eq!(row(&second)[..3], row(&first)[..3]);
    assert_eq!(row(&second)[3], own[3]);
    assert_eq!(cache.pool().num_free(), 16 - 5);
    conserved(&cache);
    // What was given back is handed out again without a clash.
    let mut third = begin(&cache, &[9]);
    third.reserve(11).unwrap();
    conserved(&cache);
}

#[test]
fn publishing_twice_or_with_less_changes_nothing() {
    let cache = cache(32, 4);
    let mut user = prefill(&cache, &range(0..10));
    let (before, rows) = (format!("{:?}", cache.stats()), row(&user));
    for again in [10, 8, 3, 0, 10] {
        assert_eq!(user.commit(again).unwrap(), 8..8);
        assert_eq!((user.num_computed(), user.num_published()), (10, 8));
    }
    assert_eq!((format!("{:?}", cache.stats()), row(&user)), (before, rows));
}

#[test]
fn a_cache_that_is_off_still_counts_progress() {
    let config = CacheConfig { num_slots: 32, page_size: 4, enabled: false, ..Default::default() };
    let cache = PrefixCache::new(config).unwrap();
    let mut user = prefill(&cache, &range(0..10));
    assert_eq!((user.num_computed(), user.num_published(), cache.tree().cached_tokens()), (10, 0, 0));
    let child = user.fork(1, Some(9)).unwrap().remove(0);
    assert_eq!((child.num_computed(), child.cached_len(), child.copies().len()), (9, 0, 9));
    user.finish();
    assert_eq!(begin(&cache, &range(0..10)).cached_len(), 0);
    conserved(&cache);
}

#[test]
fn chunks_that_a_running_prefill_published_belong_to_the_tree() {
    let cache = cache(64, 4);
    let mut user = begin(&cache, &range(0..30));
    user.reserve(30).unwrap();
    user.commit(13).unwrap();
    let slots = row(&user)[..12].to_vec();
    user.abort();
    assert_eq!(cache.pool().num_free(), 64 - 12);
    assert_eq!(find(cache.tree(), &range(0..30)), slots);
    assert_eq!(begin(&cache, &range(0..30)).cached_len(), 12);
    conserved(&cache);
}

#[test]
fn the_next_turn_hits_prompt_and_answer() {
    let cache = cache(512, 1);
    let mut user = prefill(&cache, &range(0..100));
    for token in 100..150 {
        user.append(&[token][..]).unwrap();
        user.reserve(1).unwrap();
        user.commit(user.num_reserved()).unwrap();
    }
    user.finish();
    assert_eq!(begin(&cache, &range(0..200)).cached_len(), 150);
}

#[test]
fn nothing_is_shared_before_it_is_computed() {
    let cache = cache(64, 4);
    let mut user = begin(&cache, &range(0..20));
    user.reserve(20).unwrap();
    assert_eq!(begin(&cache, &range(0..20)).cached_len(), 0);
    user.commit(7).unwrap();
    assert_eq!(begin(&cache, &range(0..20)).cached_len(), 4);
    // Computed beyond what is known: only known tokens are published.
    user.truncate(10).unwrap();
    user.reserve(6).unwrap();
    user.commit(16).unwrap();
    assert_eq!((user.num_published(), user.num_computed()), (8, 16));
    user.append(&[10, 11][..]).unwrap();
    user.commit(0).unwrap();
    assert_eq!(user.num_published(), 12);
    conserved(&cache);
}

#[test]
fn queried_and_hit_tokens_are_counted_once_where_a_request_takes_its_prefix() {
    let cache = cache(64, 4);
    serve(&cache, &range(0..12));
    for _ in 0..5 {
        cache.tree().match_prefix(&range(0..12), &ns());
    }
    let mut user = begin(&cache, &range(0..12));
    user.reserve(4).unwrap();
    user.commit(12).unwrap();
    let _children = user.fork(2, Some(12)).unwrap();
    let stats = cache.stats();
    assert_eq!((stats.queried_tokens, stats.hit_tokens), (24, 8));
}

#[test]
fn a_match_leaves_no_trace() {
    let tree = tree(1);
    insert(&tree, &range(0..10), 0);
    insert(&tree, &range(100..110), 10);
    let before = format!("{:?}", tree.nodes());
    let (nodes, bytes) = (tree.num_nodes(), tree.size_bytes());
    for length in 0..10 {
        tree.match_prefix(&range(0..length), &ns());
        tree.match_prefix(&range(0..length), &Namespace::from("never used"));
    }
    assert_eq!((tree.num_nodes(), tree.size_bytes()), (nodes, bytes));
    assert_eq!(format!("{:?}", tree.nodes()), before);
    // The order of eviction is that of the inserts.
    assert_eq!(evict(&tree, 10), (0..10).collect::<Vec<_>>());
}

#[test]
fn an_edge_is_whole_again_when_the_last_lease_or_sibling_goes() {
    let tree = tree(1);
    insert(&tree, &range(0..100), 0);
    let whole = tree.num_nodes();
    let leases: Vec<_> = [50u32, 20, 80].map(|n| tree.lock_prefix(&range(0..n), &ns()).unwrap()).into();
    assert_eq!(tree.num_nodes(), whole + 3);
    drop(leases);
    assert_eq!(tree.num_nodes(), whole);
    let mut sibling = range(0..40);
    sibling.push(777);
    insert(&tree, &sibling, 60);
    assert_eq!(tree.num_nodes(), whole + 2);
    tree.touch(&range(0..100), &ns());
    assert_eq!(evict(&tree, 1), [100]);
    assert_eq!(tree.num_nodes(), whole);
    assert_eq!(tree.match_prefix(&range(0..100), &ns()).segments().len(), 1);
    tree.check().unwrap();
}

#[test]
fn the_lowest_free_pages_are_handed_out_first_at_rest() {
    let pool = SlotPool::new(1 << 14, 2).unwrap();
    let all = pool.alloc(1 << 14).unwrap();
    assert_eq!(all, (0..1 << 14).collect::<Vec<_>>());
    for page in [8000usize, 3, 4097, 64, 63, 127] {
        pool.free(&all[2 * page..2 * page + 2]).unwrap();
    }
    assert_eq!(pool.alloc(7).unwrap(), [6, 7, 126, 127, 128, 129, 254, 255]);
    assert_eq!(pool.alloc(3).unwrap(), [8194, 8195, 16000, 16001]);
    assert_eq!(pool.alloc(1), Err(Error::Capacity { needed: 2, free: 0, evictable: 0, protected: 0 }));
}
