//! What the events of a tree say is what the tree holds, in an order that an index elsewhere can follow.

use std::collections::HashMap;
use std::sync::Arc;

use radix_rs::{EventKind, EventLog, LoggedEvent, Namespace, RadixTree, TreeConfig};

type Path = (Namespace, Vec<u32>);

/// An index that follows the events and refuses what could not have happened.
#[derive(Default)]
struct Follower {
    slots: HashMap<Path, i32>,
    seq: Option<u64>,
}

impl Follower {
    fn follow(&mut self, events: &[LoggedEvent<u32, i32>]) {
        for event in events {
            assert!(self.seq.is_none_or(|seq| seq < event.seq), "events come in the order of their numbers");
            self.seq = Some(event.seq);
            let path = |end: usize| (event.namespace.clone(), event.tokens[..end].to_vec());
            match event.kind {
                EventKind::Stored => {
                    assert!(
                        event.start == 0 || self.slots.contains_key(&path(event.start)),
                        "a child before its parent"
                    );
                    for (i, &slot) in event.values.iter().enumerate() {
                        let known = self.slots.insert(path(event.start + i + 1), slot);
                        assert_eq!(known, None, "stored twice");
                    }
                }
                EventKind::Removed => {
                    for (i, slot) in event.values.iter().enumerate() {
                        let known = self.slots.remove(&path(event.start + i + 1));
                        assert_eq!(known.as_ref(), Some(slot), "removed what was not stored");
                    }
                    let gone = &event.tokens[..=event.start];
                    let orphan = self.slots.keys().find(|(ns, path)| *ns == event.namespace && path.starts_with(gone));
                    assert_eq!(orphan, None, "a parent removed before its child");
                }
                EventKind::Cleared => self.slots.clear(),
                EventKind::Dropped => self.slots.retain(|(ns, _), _| *ns != event.namespace),
            }
        }
    }

    fn agrees_with(&self, tree: &RadixTree) {
        assert_eq!(self.slots.len(), tree.cached_tokens());
        for ((ns, path), &slot) in &self.slots {
            let found = tree.match_prefix(path, ns);
            assert_eq!(found.length(), path.len());
            assert_eq!(found.segments().last().and_then(|segment| segment.as_slice().last()), Some(&slot));
        }
    }
}

fn tree() -> (RadixTree, Arc<EventLog<u32, i32>>) {
    let log = Arc::new(EventLog::new());
    let tree = RadixTree::new(TreeConfig { events: Some(log.clone()), ..Default::default() }).unwrap();
    (tree, log)
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn work(tree: &RadixTree, seed: u64, rounds: usize, resets: bool, first_slot: i32) {
    let mut state = seed;
    let mut slot = first_slot;
    let namespaces = [Namespace::default(), Namespace::from("other")];
    let mut out = Vec::new();
    for _ in 0..rounds {
        let ns = &namespaces[next(&mut state) as usize % 2];
        let tokens: Vec<u32> = (0..next(&mut state) % 8).map(|_| next(&mut state) as u32 % 3).collect();
        match next(&mut state) % 8 {
            0..=2 => {
                let slots: Vec<i32> = (slot..).take(tokens.len()).collect();
                slot += tokens.len() as i32;
                tree.insert(&tokens, &slots, ns).unwrap();
            }
            3 | 4 => {
                let mut lease = tree.lock_prefix(&tokens, ns).unwrap();
                let more: Vec<u32> = tokens[..lease.length()].iter().copied().chain([7, 7]).collect();
                let slots: Vec<i32> = (slot..).take(more.len()).collect();
                slot += more.len() as i32;
                tree.insert_with(&mut lease, &more, &slots, 0).unwrap();
            }
            5 if resets => tree.reset(&mut out),
            _ => drop(tree.evict(next(&mut state) as usize % 6, &mut out)),
        }
    }
}

#[test]
fn an_index_that_follows_the_events_holds_what_the_tree_holds() {
    for seed in 1..200 {
        let (tree, log) = tree();
        let mut follower = Follower::default();
        for step in 0..20 {
            work(&tree, seed * 977 + step, 10, true, (step * 1000) as i32);
            follower.follow(&log.drain());
            follower.agrees_with(&tree);
        }
    }
}

#[test]
fn events_of_four_threads_sorted_by_their_numbers_are_a_history_that_could_have_happened() {
    for round in 0..30 {
        let (tree, log) = tree();
        std::thread::scope(|scope| {
            let spawn = |thread: u64| {
                let tree = &tree;
                let seed = 1 + round * 4 + thread;
                scope.spawn(move || work(tree, seed * 7919, 300, false, thread as i32 * 1_000_000))
            };
            let threads: Vec<_> = (0..4).map(spawn).collect();
            // A scope waits for its threads as well, but in a way that ThreadSanitizer does not see.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        tree.check().unwrap();
        let mut follower = Follower::default();
        follower.follow(&log.drain());
        follower.agrees_with(&tree);
    }
}
