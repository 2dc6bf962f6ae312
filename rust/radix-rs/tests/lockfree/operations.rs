//! Every operation in a state that leads it down a path of its own. What is prepared is the same each time, so that a step
//! is the same step each time.

use std::any::Any;
use std::sync::Arc;

use radix_rs::{NewPrompt, Pin, RadixTree, Sequence, TreeConfig};

use crate::work::{World, pages};

pub const PAGE: usize = 2;
/// Small enough that requests are refused now and then.
pub const NUM_PAGES: usize = 32;

/// What is left when an operation is through; dropped where nobody counts steps any more.
pub type Rest = Box<dyn Any + Send>;
pub type Work = Box<dyn FnOnce() -> Rest + Send>;

pub struct Operation {
    pub name: &'static str,
    /// It has at least as many steps.
    pub least: usize,
    pub prepare: fn(Arc<World>) -> Work,
}

impl Operation {
    /// It makes a split edge whole again.
    pub fn merges(&self) -> bool {
        let words = ["merge", "unlock", "leaves one child", "abort", "begin", "inside an edge", "up a path"];
        words.iter().any(|word| self.name.contains(word))
    }

    /// It needs a full pool to begin with.
    pub fn fills(&self) -> bool {
        self.name == "reserve that evicts"
    }
}

fn work<T: Any + Send>(run: impl FnOnce() -> T + Send + 'static) -> Work {
    Box::new(move || Box::new(run()))
}

fn text(letters: &[u32]) -> Vec<u32> {
    pages(letters, PAGE)
}

fn cached(world: &World, letters: &[u32]) {
    world.computed(&text(letters), 0).finish();
}

/// A request with everything reserved and its K and V written, not yet committed.
fn ready(world: &World, letters: &[u32]) -> Sequence {
    let tokens = text(letters);
    let mut sequence = world.cache.begin(&tokens, &world.names[0]).unwrap();
    sequence.reserve(tokens.len() - sequence.num_reserved()).unwrap();
    world.write(&sequence.row().to_vec(), &tokens, sequence.num_computed(), 0);
    sequence
}

/// An insert of `letters` into a namespace, with slots of the pool.
fn insert(world: Arc<World>, letters: &[u32], space: usize) -> Work {
    let tokens = text(letters);
    let slots = world.filled(&tokens, space).unwrap();
    work(move || {
        let done = world.cache.tree().insert(&tokens, &slots, &world.names[space]).unwrap();
        Duplicates { slots: slots[..done.cached_len].to_vec(), world }
    })
}

fn insert_with(world: Arc<World>, held: &[u32], letters: &[u32]) -> Work {
    let tokens = text(letters);
    let mut lease = world.cache.tree().lock_prefix(&text(held), &world.names[0]).unwrap();
    assert_eq!(lease.length(), held.len() * PAGE);
    let slots = world.filled(&tokens, 0).unwrap();
    work(move || {
        let done = world.cache.tree().insert_with(&mut lease, &tokens, &slots, 0).unwrap();
        (Duplicates { slots: slots[..done.cached_len].to_vec(), world: world.clone() }, lease)
    })
}

/// Slots that go back to the pool when they are dropped.
struct Duplicates {
    slots: Vec<i32>,
    world: Arc<World>,
}

impl Drop for Duplicates {
    fn drop(&mut self) {
        self.world.cache.pool().free(&self.slots).unwrap();
    }
}

const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

/// A pin that ends when it is dropped.
struct Pinned {
    pin: Pin,
    world: Arc<World>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.world.cache.tree().unpin(&self.pin);
    }
}

fn evict(world: Arc<World>, num_pages: usize, whole: bool) -> Work {
    work(move || {
        let (tree, mut slots) = (world.cache.tree(), Vec::new());
        let count = num_pages * PAGE;
        let freed = if whole { tree.evict_leaves(count, &mut slots) } else { tree.evict(count, &mut slots) };
        assert_eq!(freed, slots.len());
        Duplicates { slots, world }
    })
}

/// A request that waits, computed and not committed, while the same text is published by another.
fn twins(world: &World) -> Sequence {
    let late = ready(world, &[7, 7, 8]);
    cached(world, &[7, 7, 8]);
    late
}

pub const OPERATIONS: &[Operation] = &[
    Operation {
        name: "match",
        least: 8,
        prepare: |world| {
            cached(&world, &[7, 7, 8]);
            cached(&world, &[7, 7, 7]);
            work(move || world.cache.tree().match_prefix(&text(&[7, 7, 7, 8]), &world.names[0]).length())
        },
    },
    Operation {
        name: "match in a namespace",
        least: 8,
        prepare: |world| {
            world.computed(&text(&[7, 8]), 1).finish();
            work(move || world.cache.tree().match_prefix(&text(&[7, 8]), &world.names[1]).length())
        },
    },
    Operation {
        name: "lock of whole edges",
        least: 12,
        prepare: |world| {
            cached(&world, &[7, 7, 8]);
            cached(&world, &[7, 7, 7]);
            work(move || world.cache.tree().lock_prefix(&text(&[7, 7, 7]), &world.names[0]).unwrap())
        },
    },
    Operation {
        name: "lock inside an edge",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 7, 8, 8]);
            work(move || world.cache.tree().lock_prefix(&text(&[7, 7]), &world.names[0]).unwrap())
        },
    },
    Operation {
        name: "lock in a namespace",
        least: 12,
        prepare: |world| {
            world.computed(&text(&[7, 8]), 1).finish();
            work(move || world.cache.tree().lock_prefix(&text(&[7, 8]), &world.names[1]).unwrap())
        },
    },
    Operation {
        name: "unlock",
        least: 12,
        prepare: |world| {
            cached(&world, &[7, 7, 8]);
            let lease = world.cache.tree().lock_prefix(&text(&[7, 7, 8]), &world.names[0]).unwrap();
            work(move || lease.release())
        },
    },
    Operation {
        name: "merge of two leaves by unlock",
        least: 25,
        prepare: |world| {
            cached(&world, &[7, 7, 8, 8]);
            let lease = world.cache.tree().lock_prefix(&text(&[7, 7]), &world.names[0]).unwrap();
            work(move || lease.release())
        },
    },
    Operation {
        name: "merge above children by unlock",
        least: 25,
        prepare: |world| {
            cached(&world, &[7, 7, 8, 8, 7]);
            cached(&world, &[7, 7, 8, 8, 8]);
            let lease = world.cache.tree().lock_prefix(&text(&[7, 7]), &world.names[0]).unwrap();
            work(move || lease.release())
        },
    },
    Operation {
        name: "merge of three fragments by unlock",
        least: 40,
        prepare: |world| {
            cached(&world, &[7, 7, 8, 8, 7, 7]);
            let tree = world.cache.tree();
            let long = tree.lock_prefix(&text(&[7, 7, 8, 8]), &world.names[0]).unwrap();
            let short = tree.lock_prefix(&text(&[7, 7]), &world.names[0]).unwrap();
            short.release();
            work(move || long.release())
        },
    },
    Operation {
        name: "shrink of a lease",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 7, 8, 8]);
            let mut lease = world.cache.tree().lock_prefix(&text(&[7, 7, 8, 8]), &world.names[0]).unwrap();
            work(move || {
                lease.shrink(2 * PAGE).unwrap();
                lease
            })
        },
    },
    Operation {
        name: "duplicate of a lease",
        least: 5,
        prepare: |world| {
            cached(&world, &[7, 7, 8]);
            let lease = world.cache.tree().lock_prefix(&text(&[7, 7, 8]), &world.names[0]).unwrap();
            work(move || (lease.duplicate().unwrap(), lease))
        },
    },
    Operation {
        name: "touch",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 7, 8]);
            cached(&world, &[8, 8]);
            work(move || world.cache.tree().touch(&text(&[7, 7, 8]), &world.names[0]))
        },
    },
    Operation {
        name: "touch inside an edge",
        least: 15,
        prepare: |world| {
            cached(&world, &[7, 7, 8, 8]);
            work(move || world.cache.tree().touch(&text(&[7, 7]), &world.names[0]))
        },
    },
    Operation { name: "insert of a new text", least: 30, prepare: |world| insert(world, &[7, 8, 7], 0) },
    Operation {
        name: "insert below a leaf",
        least: 40,
        prepare: |world| {
            cached(&world, &[7, 8]);
            insert(world, &[7, 8, 7], 0)
        },
    },
    Operation {
        name: "insert of the same again",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            insert(world, &[7, 8, 7], 0)
        },
    },
    Operation {
        name: "insert that splits",
        least: 50,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7]);
            insert(world, &[7, 8, 8, 8], 0)
        },
    },
    Operation {
        name: "insert that makes a namespace",
        least: 60,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7]);
            insert(world, &[7, 8, 8, 8], 1)
        },
    },
    Operation {
        name: "insert with a lease that grows",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 8]);
            insert_with(world, &[7, 8], &[7, 8, 7, 7])
        },
    },
    Operation {
        name: "insert with a lease that splits",
        least: 40,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7, 7]);
            insert_with(world, &[7, 8], &[7, 8, 7, 8])
        },
    },
    Operation {
        name: "evict of a leaf",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            evict(world, 3, false)
        },
    },
    Operation {
        name: "evict that trims",
        least: 25,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7, 7]);
            evict(world, 2, false)
        },
    },
    Operation {
        name: "evict that leaves one child",
        least: 50,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7]);
            cached(&world, &[7, 8, 8, 8]);
            evict(world, 2, false)
        },
    },
    Operation {
        name: "evict up a path",
        least: 60,
        prepare: |world| {
            cached(&world, &[7, 8]);
            insert(world.clone(), &[7, 8, 7], 0)();
            insert(world.clone(), &[7, 8, 7, 7], 0)();
            evict(world, 4, false)
        },
    },
    Operation {
        name: "evict of whole leaves",
        least: 40,
        prepare: |world| {
            cached(&world, &[7, 8]);
            cached(&world, &[8, 8]);
            evict(world, 3, true)
        },
    },
    Operation {
        name: "evict of a namespace",
        least: 30,
        prepare: |world| {
            world.computed(&text(&[7]), 1).finish();
            work(move || {
                let mut slots = Vec::new();
                world.cache.tree().evict(2 * PAGE, &mut slots);
                Duplicates { slots, world }
            })
        },
    },
    Operation {
        name: "reset",
        least: 60,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            cached(&world, &[7, 7]);
            world.computed(&text(&[7]), 1).finish();
            work(move || world.cache.reset())
        },
    },
    Operation {
        name: "reset beside a lease",
        least: 60,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            cached(&world, &[7, 7]);
            let lease = world.cache.tree().lock_prefix(&text(&[7, 8]), &world.names[0]).unwrap();
            work(move || {
                world.cache.reset();
                lease
            })
        },
    },
    Operation {
        name: "compact",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            cached(&world, &[7, 7]);
            work(move || world.cache.tree().compact(usize::MAX))
        },
    },
    Operation {
        name: "lock of a handle",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            cached(&world, &[7, 7]);
            let handle = world.cache.tree().match_prefix(&text(&[7, 8, 7]), &world.names[0]).handle();
            work(move || world.cache.tree().lock(&handle).ok())
        },
    },
    Operation {
        name: "values and node of a handle",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            cached(&world, &[7, 7]);
            let handle = world.cache.tree().match_prefix(&text(&[7, 8, 7]), &world.names[0]).handle();
            work(move || {
                let tree = world.cache.tree();
                (tree.values(&handle).is_ok(), tree.node(&handle).is_ok(), tree.parent(&handle).is_ok())
            })
        },
    },
    Operation {
        name: "nodes",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            cached(&world, &[7, 7]);
            work(move || world.cache.tree().nodes().len())
        },
    },
    Operation {
        name: "match of many",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            cached(&world, &[7, 7]);
            work(move || {
                let texts = [text(&[7, 8, 7]), text(&[7, 8, 8]), text(&[7, 7])];
                let prompts: Vec<_> = texts.iter().map(|text| (text, &world.names[0])).collect();
                world.cache.tree().match_many(&prompts).len()
            })
        },
    },
    Operation {
        name: "insert of many",
        least: 60,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7]);
            let texts = [text(&[7, 8, 8]), text(&[7, 8, 7, 7]), text(&[7, 8, 8, 8])];
            let slots = texts.each_ref().map(|text| world.filled(text, 0).unwrap());
            work(move || {
                let namespace = &world.names[0];
                let prompts: Vec<NewPrompt<'_, Vec<u32>>> = texts
                    .iter()
                    .zip(&slots)
                    .map(|(tokens, values)| NewPrompt { tokens, values, namespace, priority: 0 })
                    .collect();
                let done = world.cache.tree().insert_many(&prompts).unwrap();
                let again =
                    done.iter().zip(&slots).flat_map(|(done, slots)| slots[..done.cached_len].to_vec()).collect();
                Duplicates { slots: again, world: world.clone() }
            })
        },
    },
    Operation {
        name: "pin",
        least: 30,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7]);
            work(move || {
                let pin = world.cache.tree().pin(&text(&[7, 8]), &world.names[0], HOUR, usize::MAX).unwrap();
                Pinned { pin, world }
            })
        },
    },
    Operation {
        name: "pin beyond the budget",
        least: 40,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7]);
            work(move || world.cache.tree().pin(&text(&[7, 8]), &world.names[0], HOUR, 1).is_err())
        },
    },
    Operation {
        name: "unlock by the end of a pin",
        least: 30,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7]);
            let pin = world.cache.tree().pin(&text(&[7, 8]), &world.names[0], HOUR, usize::MAX).unwrap();
            work(move || world.cache.tree().unpin(&pin))
        },
    },
    Operation {
        name: "evict that ends a pin",
        least: 60,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 7]);
            let none = std::time::Duration::ZERO;
            world.cache.tree().pin(&text(&[7, 8]), &world.names[0], none, usize::MAX).unwrap();
            evict(world, 4, false)
        },
    },
    Operation {
        name: "snapshot",
        least: 20,
        prepare: |world| {
            cached(&world, &[7, 8, 7]);
            cached(&world, &[7, 7]);
            work(move || world.cache.tree().snapshot(&mut Vec::new()).is_ok())
        },
    },
    Operation {
        name: "restore",
        least: 40,
        prepare: |world| {
            let tokens = text(&[7, 8, 7]);
            let slots = world.filled(&tokens, 0).unwrap();
            let other: RadixTree = RadixTree::new(TreeConfig { page_size: PAGE, ..Default::default() }).unwrap();
            other.insert(&tokens, &slots, &world.names[0]).unwrap();
            let mut bytes = Vec::new();
            other.snapshot(&mut bytes).unwrap();
            work(move || {
                // Refused if the others have cached something meanwhile.
                let slots = world.cache.tree().restore(&mut &bytes[..]).unwrap_or(slots);
                Duplicates { slots, world }
            })
        },
    },
    Operation {
        name: "alloc",
        least: 5,
        prepare: |world| {
            work(move || {
                let slots = world.cache.pool().alloc(3 * PAGE).unwrap_or_default();
                Duplicates { slots, world }
            })
        },
    },
    Operation {
        name: "free",
        least: 8,
        prepare: |world| {
            let slots = world.cache.pool().alloc(3 * PAGE).unwrap();
            work(move || world.cache.pool().free(&slots).unwrap())
        },
    },
    Operation {
        name: "begin",
        least: 25,
        prepare: |world| {
            cached(&world, &[7, 8, 7, 8]);
            work(move || world.cache.begin(&text(&[7, 8, 7, 7]), &world.names[0]).unwrap())
        },
    },
    Operation {
        name: "reserve",
        least: 8,
        prepare: |world| {
            let mut sequence = world.cache.begin(&text(&[7, 8, 7]), &world.names[0]).unwrap();
            work(move || {
                let _ = sequence.reserve(3 * PAGE); // the others may have taken them
                sequence
            })
        },
    },
    Operation {
        name: "reserve that evicts",
        least: 30,
        prepare: |world| {
            for first in 1.. {
                let free = world.cache.stats().num_free / PAGE;
                if free <= 2 {
                    break;
                }
                cached(&world, &[&[first][..], &vec![7; (free - 3).min(6)]].concat());
            }
            let mut sequence = world.cache.begin(&[9][..], &world.names[0]).unwrap();
            work(move || {
                let _ = sequence.reserve(5 * PAGE);
                sequence
            })
        },
    },
    Operation {
        // It touches nothing that is shared: no step at all.
        name: "append",
        least: 0,
        prepare: |world| {
            let mut sequence = ready(&world, &[7, 8]);
            work(move || {
                sequence.append(&[7][..]).unwrap();
                sequence
            })
        },
    },
    Operation {
        name: "commit",
        least: 40,
        prepare: |world| {
            let mut sequence = ready(&world, &[7, 8, 7]);
            work(move || {
                sequence.commit(3 * PAGE).unwrap();
                sequence
            })
        },
    },
    Operation {
        name: "commit of the next pages",
        least: 20,
        prepare: |world| {
            let mut sequence = ready(&world, &[7, 8, 7]);
            sequence.commit(2 * PAGE).unwrap();
            work(move || {
                sequence.commit(3 * PAGE).unwrap();
                sequence
            })
        },
    },
    Operation {
        name: "commit of what another published",
        least: 40,
        prepare: |world| {
            let mut late = twins(&world);
            work(move || {
                late.commit(3 * PAGE).unwrap();
                late
            })
        },
    },
    Operation {
        name: "commit that diverges",
        least: 50,
        prepare: |world| {
            let mut late = ready(&world, &[7, 7, 7]);
            cached(&world, &[7, 7, 8]);
            work(move || {
                late.commit(3 * PAGE).unwrap();
                late
            })
        },
    },
    Operation {
        name: "truncate",
        least: 20,
        prepare: |world| {
            let mut sequence = world.computed(&text(&[7, 8, 7]), 0);
            sequence.reserve(PAGE).unwrap();
            work(move || {
                sequence.truncate(PAGE).unwrap();
                sequence
            })
        },
    },
    Operation {
        name: "fork",
        least: 50,
        prepare: |world| {
            let mut tokens = text(&[7, 8, 7]);
            tokens.push(9);
            let mut sequence = world.computed(&tokens, 0);
            work(move || (sequence.fork(2, None).ok(), sequence))
        },
    },
    Operation {
        name: "finish",
        least: 40,
        prepare: |world| {
            let sequence = world.computed(&text(&[7, 8, 7]), 0);
            work(move || sequence.finish())
        },
    },
    Operation {
        name: "finish after a fence",
        least: 40,
        prepare: |world| {
            let mut sequence = world.computed(&text(&[7, 8, 7]), 0);
            sequence.reserve(2 * PAGE).unwrap();
            let fence = world.cache.fence();
            work(move || {
                sequence.finish_after(Some(&fence)).unwrap();
                fence
            })
        },
    },
    Operation {
        name: "abort",
        least: 10,
        prepare: |world| {
            let sequence = ready(&world, &[7, 8, 7]);
            work(move || sequence.abort())
        },
    },
    Operation {
        name: "signal",
        least: 10,
        prepare: |world| {
            let (sequence, fence) = (ready(&world, &[7, 8, 7]), world.cache.fence());
            sequence.abort_after(Some(&fence)).unwrap();
            work(move || {
                world.cache.signal(&fence);
                fence
            })
        },
    },
    Operation {
        name: "drop of a fence",
        least: 10,
        prepare: |world| {
            let (sequence, fence) = (ready(&world, &[7, 8, 7]), world.cache.fence());
            sequence.abort_after(Some(&fence)).unwrap();
            work(move || drop(fence))
        },
    },
    Operation {
        name: "stats",
        least: 8,
        prepare: |world| work(move || (world.cache.stats(), world.cache.tree().stats())),
    },
];
