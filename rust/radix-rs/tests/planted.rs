//! Faults that the sanitizers must report, in the style of the crate: `tools/sanitize` runs each and fails if nothing is
//! said. Only in its builds (`--cfg radix_planted`), and each only when it is asked for by name.
#![cfg(radix_planted)]

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

use radix_rs::{Namespace, RadixTree, Segment, TreeConfig};

/// An object of an arena whose content is written before it is published.
struct Body {
    content: UnsafeCell<u64>,
}

// SAFETY: it is not, that is the point: the tests below publish it wrongly.
unsafe impl Sync for Body {}

/// Two threads: what one of them publishes the other reads.
fn publish_and_read(write: std::sync::atomic::Ordering, read: std::sync::atomic::Ordering) -> u64 {
    let bodies: Vec<Body> = (0..1000).map(|_| Body { content: UnsafeCell::new(0) }).collect();
    let word = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for (i, body) in bodies.iter().enumerate() {
                // SAFETY: not published yet.
                unsafe { *body.content.get() = 7 };
                word.store(i as u64 + 1, write);
            }
        });
        let reader = scope.spawn(|| {
            let mut sum = 0;
            let mut at = 0;
            while at < 1000 {
                at = word.load(read) as usize;
                if at > 0 {
                    // SAFETY: published, if `write` and `read` are what they have to be.
                    sum += unsafe { *bodies[at - 1].content.get() };
                }
            }
            sum
        });
        writer.join().unwrap();
        reader.join().unwrap()
    })
}

#[test]
#[ignore = "a race that ThreadSanitizer must report"]
fn a_body_published_without_release_is_a_race() {
    black_box(publish_and_read(Relaxed, Acquire));
}

#[test]
#[ignore = "a race that ThreadSanitizer must report"]
fn a_body_read_without_acquire_is_a_race() {
    black_box(publish_and_read(Release, Relaxed));
}

#[test]
#[ignore = "the same without the fault: ThreadSanitizer must be silent"]
fn a_body_published_and_read_in_order_is_none() {
    black_box(publish_and_read(Release, Acquire));
}

#[test]
#[ignore = "a use after free that AddressSanitizer must report"]
fn an_object_recycled_under_a_reader_is_a_use_after_free() {
    let layout = Layout::new::<u64>();
    // SAFETY: the layout is not empty.
    let object = AtomicPtr::new(unsafe { alloc(layout) }.cast::<u64>());
    let reader = object.load(Acquire);
    // SAFETY: allocated above with this layout.
    unsafe { dealloc(object.swap(std::ptr::null_mut(), AcqRel).cast(), layout) };
    // SAFETY: it is not, that is the point.
    black_box(unsafe { reader.read_volatile() });
}

#[test]
#[ignore = "a leak that LeakSanitizer must report"]
fn an_edge_that_is_never_dropped_is_a_leak() {
    let tree: RadixTree = RadixTree::new(TreeConfig::default()).unwrap();
    tree.insert(&[1, 2, 3][..], &[4, 5, 6], &Namespace::default()).unwrap();
    let mut found: Vec<Segment> = tree.match_prefix(&[1, 2, 3][..], &Namespace::default()).segments().to_vec();
    std::mem::forget(found.pop());
}
