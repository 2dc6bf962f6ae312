//! The table against a sorted list, and every page freed exactly once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr::{NonNull, null_mut};

use proptest::prelude::*;

use super::page::{LEAF, View};
use super::{Change, Children, Entry, Page, Scrap, one, two};

thread_local! {
    /// The pages that are there, with their sizes.
    static PAGES: RefCell<HashMap<NonNull<Page>, usize>> = RefCell::default();
}

pub(super) fn made(page: NonNull<Page>, size: usize) {
    PAGES.with_borrow_mut(|pages| assert!(pages.insert(page, size).is_none()));
}

pub(super) fn freed(page: NonNull<Page>, size: usize) {
    PAGES.with_borrow_mut(|pages| assert_eq!(pages.remove(&page), Some(size), "a page that is not there was freed"));
}

fn held_bytes() -> usize {
    PAGES.with_borrow(|pages| pages.values().sum())
}

/// The sum of what is reachable, and the order and fill of every page on the way.
fn audit(table: *mut Page) -> usize {
    let Some(root) = NonNull::new(table) else { return 0 };
    let mut bytes = 0;
    let mut todo = vec![(root, 0, u32::MAX, None)];
    let mut leaf_depth = None;
    while let Some((page, low, high, depth)) = todo.pop() {
        assert!(PAGES.with_borrow(|pages| pages.contains_key(&page)), "a table names a page that was freed");
        let view = view(page);
        let depth = depth.map_or(0, |depth: usize| depth + 1);
        bytes += view.size_bytes();
        assert!((1..=view.most()).contains(&view.len()));
        assert!(view.first() >= low);
        if view.is_leaf() {
            assert!(view.entries().iter().all(|entry| (low..=high).contains(&entry.key)));
            assert_eq!(*leaf_depth.get_or_insert(depth), depth, "all leaf pages are equally deep");
            continue;
        }
        assert!(depth > 0 || view.len() > 1, "a root above one page");
        let mut total = 0;
        for at in 0..view.len() {
            let below = view.child(at);
            let bound = view.keys().get(at + 1).copied().unwrap_or(high);
            todo.push((below.page(), view.keys()[at], bound, Some(depth)));
            total += below.total();
        }
        assert_eq!(total, view.total());
    }
    bytes
}

fn view(page: NonNull<Page>) -> View<'static> {
    // SAFETY: the tests free a page only when they are done with it; `audit` looks whether it is there.
    unsafe { View::new(page) }
}

fn children(table: *mut Page) -> Option<Children<'static>> {
    // SAFETY: as for `view`.
    unsafe { Children::new(table) }
}

fn free(scrap: Scrap) -> usize {
    // SAFETY: no reader of the test looks at the old table any more.
    unsafe { scrap.free() }
}

fn free_all(table: *mut Page) {
    // SAFETY: as for `free`.
    unsafe { Children::free_all(table) }
}

fn entries(table: *mut Page) -> Vec<Entry> {
    children(table).into_iter().flat_map(|table| table.iter()).collect()
}

fn sorted(mut entries: Vec<Entry>) -> Vec<(u32, u32)> {
    entries.sort_by_key(|entry| (entry.key, entry.node));
    entries.iter().map(|entry| (entry.key, entry.node)).collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add {
        key: u32,
    },
    Remove {
        at: usize,
    },
    Replace {
        at: usize,
    },
    /// Remove all from one place to another.
    Clear {
        from: usize,
        count: usize,
    },
    /// A reader takes a guard, or lets go of one.
    Hold,
    Release,
}

fn steps() -> impl Strategy<Value = Vec<(Step, bool)>> {
    let wide = any::<u32>().prop_map(|key| Step::Add { key });
    let narrow = (0..6u32).prop_map(|key| Step::Add { key });
    let step = prop_oneof![
        10 => wide,
        6 => narrow,
        6 => any::<usize>().prop_map(|at| Step::Remove { at }),
        2 => any::<usize>().prop_map(|at| Step::Replace { at }),
        1 => (any::<usize>(), 0..60usize).prop_map(|(from, count)| Step::Clear { from, count }),
        1 => Just(Step::Hold),
        1 => Just(Step::Release),
    ];
    proptest::collection::vec((step, proptest::bool::weighted(0.8)), 0..300)
}

/// Who still looks at an earlier table.
struct Reader {
    table: *mut Page,
    seen: Vec<(u32, u32)>,
    /// How many tables had been replaced when it came.
    since: usize,
}

/// A table with readers of earlier states, as the epochs would keep them.
#[derive(Default)]
struct World {
    table: Option<NonNull<Page>>,
    reference: Vec<Entry>,
    /// What was replaced, oldest first, numbered from `freed`.
    scraps: std::collections::VecDeque<Scrap>,
    freed: usize,
    readers: Vec<Reader>,
    scrap_bytes: usize,
    next_node: u32,
}

impl World {
    fn root(&self) -> *mut Page {
        self.table.map_or(null_mut(), NonNull::as_ptr)
    }

    fn children(&self) -> Option<Children<'static>> {
        children(self.root())
    }

    /// Publishes a change or takes it back; `true` if it counts.
    fn settle(&mut self, change: Change, publish: bool) -> bool {
        let before = held_bytes();
        assert_eq!(
            audit(change.new),
            audit(self.root()) + change.size_bytes()
                - change.stale.iter().map(|&p| view(p).size_bytes()).sum::<usize>(),
            "a change says what it made"
        );
        if publish {
            self.table = NonNull::new(change.new);
            self.scraps.push_back(change.published());
        } else {
            let made = change.size_bytes();
            change.discard();
            assert_eq!(held_bytes(), before - made);
        }
        publish
    }

    fn add(&mut self, key: u32, publish: bool) {
        self.next_node += 1;
        let node = self.next_node;
        let Some(table) = self.children() else {
            let first = one(key, node);
            if publish {
                self.table = NonNull::new(first);
                self.reference.push(Entry { key, node });
            } else {
                free_all(first);
            }
            return;
        };
        let change = table.with(key, node);
        if self.settle(change, publish) {
            let at = self.reference.partition_point(|entry| entry.key <= key);
            self.reference.insert(at, Entry { key, node });
        }
    }

    fn replace(&mut self, at: usize, new: Option<u32>, publish: bool) {
        if self.reference.is_empty() {
            return;
        }
        let at = at % self.reference.len();
        let Entry { key, node } = self.reference[at];
        let table = self.children().expect("not empty");
        assert!(table.replace(key, u32::MAX, None).is_none());
        let change = table.replace(key, node, new).expect("it is there");
        if self.settle(change, publish) {
            match new {
                Some(new) => self.reference[at].node = new,
                None => drop(self.reference.remove(at)),
            }
        }
    }

    fn step(&mut self, step: Step, publish: bool) {
        match step {
            Step::Add { key } => self.add(key, publish),
            Step::Remove { at } => self.replace(at, None, publish),
            Step::Replace { at } => {
                self.next_node += 1;
                self.replace(at, Some(self.next_node), publish);
            }
            Step::Clear { from, count } => {
                let from = from % self.reference.len().max(1);
                for _ in 0..count.min(self.reference.len() - from) {
                    self.replace(from, None, true);
                }
            }
            Step::Hold => {
                let seen = sorted(entries(self.root()));
                let since = self.freed + self.scraps.len();
                self.readers.push(Reader { table: self.root(), seen, since });
            }
            Step::Release => {
                if !self.readers.is_empty() {
                    let Reader { table, seen, .. } = self.readers.remove(self.readers.len() / 2);
                    audit(table);
                    assert_eq!(sorted(entries(table)), seen, "a reader's table never changes");
                }
            }
        }
        // what was replaced after the oldest reader came stays
        let oldest = self.readers.iter().map(|reader| reader.since).min().unwrap_or(usize::MAX);
        while self.freed < oldest
            && let Some(scrap) = self.scraps.pop_front()
        {
            let before = held_bytes();
            let bytes = free(scrap);
            assert_eq!(held_bytes(), before - bytes);
            self.scrap_bytes += bytes;
            self.freed += 1;
        }
    }

    fn check(&self) {
        let bytes = audit(self.root());
        let seen = entries(self.root());
        assert!(seen.is_sorted_by_key(|entry| entry.key));
        assert_eq!(sorted(seen), sorted(self.reference.clone()));
        let table = self.children();
        assert_eq!(table.map_or(0, Children::len), self.reference.len());
        let only = if self.reference.len() == 1 { Some(self.reference[0].node) } else { None };
        assert_eq!(table.and_then(Children::only), only);
        if self.scraps.is_empty() && self.readers.is_empty() {
            assert_eq!(held_bytes(), bytes, "at rest the table is all there is");
        }
        let Some(table) = table else { return };
        for key in (0..6).chain(self.reference.iter().map(|entry| entry.key)) {
            let wanted = self.reference.iter().filter(|entry| entry.key == key);
            let mut wanted: Vec<_> = wanted.map(|entry| entry.node).collect();
            let mut found: Vec<_> = table.with_key(key).collect();
            wanted.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, wanted);
            assert!(!table.contains(key, u32::MAX));
            assert!(found.iter().all(|&node| table.contains(key, node)));
        }
    }

    fn end(mut self) {
        while !self.readers.is_empty() {
            self.step(Step::Release, true);
        }
        self.check();
        free_all(self.root());
        assert_eq!(held_bytes(), 0, "every page was freed");
    }
}

proptest! {
    #[test]
    fn a_table_agrees_with_a_sorted_list_and_frees_every_page_once(steps in steps()) {
        let mut world = World::default();
        for (i, &(step, publish)) in steps.iter().enumerate() {
            world.step(step, publish);
            if i % 16 == 0 {
                world.check();
            }
        }
        world.end();
    }
}

#[test]
fn ascending_keys_fill_their_pages_and_any_order_takes_them_away() {
    for stride in [1, 7, 299] {
        let mut world = World::default();
        for key in 0..300 {
            world.add(key, true);
            world.step(Step::Release, true);
        }
        let full = 300 * size_of::<Entry>();
        assert!(audit(world.root()) < full * 3 / 2, "{} bytes for 300 entries in a row", audit(world.root()));
        for i in 0..300 {
            world.replace(i * stride, None, true);
            world.step(Step::Release, true);
            world.check();
        }
        world.end();
    }
}

#[test]
fn a_table_that_was_large_shrinks_with_its_children() {
    let mut world = World::default();
    for i in 0..2000u32 {
        world.add(i.wrapping_mul(0x9e37_79b1), true);
        world.step(Step::Release, true);
    }
    for i in 0..1900 {
        world.replace(i * 31, None, true);
        world.step(Step::Release, true);
    }
    let bytes = audit(world.root());
    let least = 100 * size_of::<Entry>();
    assert!(bytes < 4 * least, "{bytes} bytes for 100 entries");
    world.end();
}

#[test]
fn a_small_table_is_one_page_of_exactly_its_size() {
    let table = one(5, 1);
    assert_eq!(held_bytes(), 16);
    let pair = two(Entry { key: 9, node: 2 }, Entry { key: 4, node: 3 });
    assert_eq!(held_bytes(), 16 + 24);
    assert_eq!(entries(pair)[0], Entry { key: 4, node: 3 });
    assert_eq!(free(Scrap::whole(table).unwrap()), 16);
    free_all(pair);
    let mut world = World::default();
    for key in 0..LEAF as u32 {
        world.add(key, true);
        world.step(Step::Release, true);
        assert_eq!(held_bytes(), 8 + (key as usize + 1) * 8);
    }
    world.end();
}

/// All keys equal, as under a hash that is constant: found by walking, across any number of pages.
#[test]
fn equal_keys_are_all_found_across_pages() {
    let mut world = World::default();
    for i in 0..500 {
        world.add(if i % 50 == 0 { i } else { 7 }, true);
        world.step(Step::Release, true);
    }
    world.check();
    for i in 0..480 {
        world.replace(i * 13, None, i % 5 > 0);
        world.step(Step::Release, true);
    }
    world.end();
}

/// The meter of a tree counts tables and edges; edges of one token are all of one size.
#[test]
fn a_tree_counts_the_bytes_of_its_tables_and_gives_them_all_back() {
    let tree: crate::RadixTree = crate::RadixTree::new(crate::TreeConfig::default()).unwrap();
    let ns = crate::Namespace::default();
    let counted = || tree.core.meter.load(std::sync::atomic::Ordering::Relaxed);
    tree.insert(&[0][..], &[0], &ns).unwrap();
    tree.core.collect_all();
    assert_eq!(held_bytes(), 16);
    let edge = counted() - 16;
    for i in 1..500u32 {
        tree.insert(&[i.wrapping_mul(0x9e37_79b1)][..], &[i as i32], &ns).unwrap();
    }
    tree.core.collect_all();
    assert_eq!(counted(), held_bytes() + 500 * edge);
    assert!(held_bytes() > 500 * size_of::<Entry>());
    tree.evict(200, &mut Vec::new());
    tree.core.collect_all();
    assert_eq!(counted(), held_bytes() + 300 * edge);
    tree.evict(300, &mut Vec::new());
    tree.core.collect_all();
    assert_eq!((counted(), held_bytes()), (0, 0));
    tree.insert(&[1, 2, 3][..], &[1, 2, 3], &ns).unwrap();
    tree.insert(&[1, 2, 4][..], &[1, 2, 4], &ns).unwrap();
    drop(tree);
    assert_eq!(held_bytes(), 0);
}
