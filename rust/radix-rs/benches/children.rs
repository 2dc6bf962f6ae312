//! What a node with many children costs: adding one, taking one away, finding one, and the bytes of each.
//!
//! `cargo bench -p radix-rs --bench children [-- LARGEST]` prints a table; ratios are to 100 of them. A large
//! tree is slower than a small one by itself, since it does not fit the caches; `net` is the ratio over that of a tree with
//! as many leaves below nodes of 100.
//! Each figure is the median of batches on trees that stay at that size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::time::Instant;

use radix_rs::{Namespace, RadixTree, TreeConfig};

/// Counts live bytes as glibc rounds them: 8 bytes of its own, multiples of 16, at least 32.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

fn chunk(layout: Layout) -> isize {
    ((layout.size() + 8).next_multiple_of(16)).max(32) as isize
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // one thread only
        LIVE.store(LIVE.load(Relaxed) + chunk(layout), Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.store(LIVE.load(Relaxed) - chunk(layout), Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Arenas ask for this; what they hand out is counted by `size_bytes`, not what they reserve.
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }
}

// Zeroed memory is not counted when it comes, so it must not be when it goes: trees live until the end of their round, and
// differences are only taken while one lives.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What there are many of.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Children of one node.
    Children,
    /// As many leaves, but never more than a hundred below one node: what the size of the tree costs by itself.
    Spread,
    Namespaces,
}

/// Distinct for distinct `i`, in no order.
fn scrambled(i: u32) -> u32 {
    (i ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b1)
}

struct Bench {
    tree: RadixTree,
    kind: Kind,
    size: u32,
    parents: u32,
}

impl Bench {
    fn new(kind: Kind, size: u32) -> Self {
        let tree = RadixTree::new(TreeConfig::default()).expect("a page of one token is valid");
        Bench { tree, kind, size: 0, parents: size / 100 }
    }

    fn space(i: u32) -> Namespace {
        Namespace::from_bytes(&scrambled(i).to_le_bytes()[..])
    }

    fn key(&self, i: u32) -> [u32; 2] {
        [if self.kind == Kind::Spread { i % self.parents } else { 7 }, scrambled(i)]
    }

    fn fill(&mut self, size: u32) {
        self.add(size - self.size);
    }

    /// Nanoseconds for each of `count` more.
    fn add(&mut self, count: u32) -> f64 {
        let range = self.size..self.size + count;
        self.size += count;
        match self.kind {
            Kind::Children | Kind::Spread => {
                let ns = Namespace::default();
                let begin = Instant::now();
                for i in range {
                    self.tree.insert(&self.key(i)[..], &[0, i as i32 + 1], &ns).expect("valid");
                }
                begin.elapsed().as_nanos() as f64 / f64::from(count)
            }
            Kind::Namespaces => {
                let spaces: Vec<_> = range.clone().map(Self::space).collect();
                let begin = Instant::now();
                for (ns, i) in spaces.iter().zip(range) {
                    self.tree.insert(&[7][..], &[i as i32], ns).expect("valid");
                }
                begin.elapsed().as_nanos() as f64 / f64::from(count)
            }
        }
    }

    /// Nanoseconds for each of `count` that go, oldest first; a namespace goes with its only token.
    fn remove(&mut self, count: u32) -> f64 {
        let mut out = Vec::with_capacity(count as usize);
        let begin = Instant::now();
        for _ in 0..count {
            self.tree.evict(1, &mut out);
        }
        let spent = begin.elapsed().as_nanos() as f64 / f64::from(count);
        assert_eq!(out.len(), count as usize);
        spent
    }

    /// Nanoseconds for each of `count` lookups, in no order.
    fn find(&self, count: u32) -> f64 {
        let default = Namespace::default();
        let wanted: Vec<u32> = (0..count).map(|i| scrambled(i.wrapping_mul(7919)) % self.size).collect();
        let spaces: Vec<_> = wanted.iter().map(|&i| Self::space(i)).collect();
        let begin = Instant::now();
        for (&i, ns) in wanted.iter().zip(&spaces) {
            let found = match self.kind {
                Kind::Children | Kind::Spread => self.tree.match_prefix(&self.key(i)[..], &default).length() == 2,
                Kind::Namespaces => self.tree.match_prefix(&[7][..], ns).length() == 1,
            };
            assert!(black_box(found), "{i} is there");
        }
        begin.elapsed().as_nanos() as f64 / f64::from(count)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Figures {
    add: f64,
    remove: f64,
    find: f64,
    /// Heap besides the arenas, and everything the tree counts, for each child.
    heap: f64,
    counted: f64,
}

/// At a steady size: what is added is taken away again, so that memory is used for a second time as in a cache that is full.
fn measure(kind: Kind, size: u32) -> Figures {
    let batch = (size / 16).clamp(8, 4096);
    let (trees, rounds) = if size < 1_000 { (20, 20) } else { (1, 40) };
    let (mut add, mut remove, mut find) = (Vec::new(), Vec::new(), Vec::new());
    let (mut heap, mut counted) = (0.0, 0.0);
    for _ in 0..trees {
        let mut bench = Bench::new(kind, size);
        bench.fill(1);
        let (live, known) = (LIVE.load(Relaxed), bench.tree.size_bytes());
        bench.fill(size);
        bench.tree.compact(0);
        heap = (LIVE.load(Relaxed) - live) as f64 / f64::from(size);
        counted = (bench.tree.size_bytes() - known) as f64 / f64::from(size);
        find.push(bench.find(batch.max(1000)));
        for round in 0..rounds {
            let (came, went) = (bench.add(batch), bench.remove(batch));
            if round > 1 {
                add.push(came);
                remove.push(went);
            }
        }
    }
    Figures { add: median(add), remove: median(remove), find: median(find), heap, counted }
}

fn main() {
    let largest = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    measure(Kind::Children, 100); // warm
    let mut spread = Vec::new();
    for (kind, name) in [
        (Kind::Spread, "nodes of 100, leaves"),
        (Kind::Children, "children of one node"),
        (Kind::Namespaces, "namespaces"),
    ] {
        println!("{name:>22} |  add ns  ratio  net | remove ns  ratio  net | find ns | heap B/child | counted B/child");
        let mut base = None;
        for (i, size) in
            [100, 1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|&size| size <= largest).enumerate()
        {
            let now = measure(kind, size);
            let (add, remove) = *base.get_or_insert((now.add, now.remove));
            if kind == Kind::Spread {
                spread.push((now.add / add, now.remove / remove));
            }
            println!(
                "{size:>22} | {:>7.0}  {:>5.2} {:>4.2} | {:>9.0}  {:>5.2} {:>4.2} | {:>7.0} | {:>12.1} | {:>15.1}",
                now.add,
                now.add / add,
                now.add / add / spread[i].0,
                now.remove,
                now.remove / remove,
                now.remove / remove / spread[i].1,
                now.find,
                now.heap,
                now.counted
            );
        }
    }
}
