//! Random lives of tree, pool and cache against a plain reference, with `check()` after every step.
//!
//! `PROPTEST_CASES` sets how many lives are tried.

mod reference;

use proptest::prelude::*;
use radix_rs::{Handle, Lease, Match, Namespace, RadixTree, SlotPool, TreeConfig};
use reference::Refusal;

const LETTERS: [u32; 3] = [7, 8, 9];

/// Some pages and a part of one. Pages often repeat what was said before.
#[derive(Debug, Clone)]
struct Text {
    pages: Vec<u8>,
    tail: (u8, usize),
}

impl Text {
    /// Pages 0 and 1 are constant; page 2 is page 0 except for its last token.
    fn tokens(&self, page_size: usize) -> Vec<u32> {
        let mut tokens = Vec::new();
        for &page in &self.pages {
            tokens.extend(vec![LETTERS[page as usize % 2]; page_size]);
            if page == 2 {
                *tokens.last_mut().unwrap() = LETTERS[2];
            }
        }
        tokens.extend(vec![LETTERS[self.tail.0 as usize]; self.tail.1 * page_size / 16]);
        tokens
    }
}

fn text(max_pages: usize) -> impl Strategy<Value = Text> {
    let page = prop_oneof![3 => Just(0u8), 2 => Just(1), 1 => Just(2)];
    (prop::collection::vec(page, 0..=max_pages), (0u8..2, 0usize..16)).prop_map(|(pages, tail)| Text { pages, tail })
}

fn page_size() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1usize), Just(4), Just(16)]
}

fn space() -> impl Strategy<Value = usize> {
    prop_oneof![5 => Just(0usize), 1 => Just(1)]
}

fn namespaces() -> [Namespace; 2] {
    [Namespace::default(), Namespace::from_parts([("adapter", "x")])]
}

/// How many tokens to evict: a few pages, rounded up by the system, or everything.
fn eviction() -> impl Strategy<Value = (usize, usize)> {
    let pages = prop_oneof![1 => Just(0usize), 3 => Just(1), 2 => Just(2), 1 => Just(3), 1 => Just(99)];
    (pages, 0usize..4)
}

fn tokens_to_evict((pages, rest): (usize, usize), page_size: usize) -> usize {
    (pages * page_size).saturating_sub(rest * page_size / 4)
}

fn sorted(mut slots: Vec<i32>) -> Vec<i32> {
    slots.sort_unstable();
    slots
}

fn values(found: &Match) -> Vec<i32> {
    found.segments().iter().flat_map(|segment| segment.as_slice().to_vec()).collect()
}

fn lease_values(lease: &Lease) -> Vec<i32> {
    lease.segments().iter().flat_map(|segment| segment.as_slice().to_vec()).collect()
}

// RadixTree

#[derive(Debug, Clone)]
enum TreeOp {
    Insert { text: Text, space: usize },
    InsertWith { lease: usize, more: Text },
    InsertOther { lease: usize, text: Text },
    InsertWrongly { text: Text, fault: u8 },
    Match { text: Text, space: usize, start: usize },
    Lock { text: Text, space: usize },
    Touch { text: Text, space: usize },
    Release { lease: usize },
    Shrink { lease: usize, length: usize },
    Evict { tokens: (usize, usize) },
    EvictLeaves { tokens: (usize, usize) },
    Reset,
    UseHandle { handle: usize },
    LockHandle { handle: usize },
    Compact { max_work: usize },
}

fn tree_op() -> impl Strategy<Value = TreeOp> {
    let index = 0usize..64;
    prop_oneof![
        6 => (text(6), space()).prop_map(|(text, space)| TreeOp::Insert { text, space }),
        3 => (index.clone(), text(3)).prop_map(|(lease, more)| TreeOp::InsertWith { lease, more }),
        1 => (index.clone(), text(6)).prop_map(|(lease, text)| TreeOp::InsertOther { lease, text }),
        1 => (text(3), 0u8..4).prop_map(|(text, fault)| TreeOp::InsertWrongly { text, fault }),
        2 => (text(6), space(), 0usize..30).prop_map(|(text, space, start)| TreeOp::Match { text, space, start }),
        4 => (text(6), space()).prop_map(|(text, space)| TreeOp::Lock { text, space }),
        2 => (text(6), space()).prop_map(|(text, space)| TreeOp::Touch { text, space }),
        4 => index.clone().prop_map(|lease| TreeOp::Release { lease }),
        1 => (index.clone(), 0usize..100).prop_map(|(lease, length)| TreeOp::Shrink { lease, length }),
        3 => eviction().prop_map(|tokens| TreeOp::Evict { tokens }),
        2 => eviction().prop_map(|tokens| TreeOp::EvictLeaves { tokens }),
        1 => Just(TreeOp::Reset),
        2 => index.clone().prop_map(|handle| TreeOp::UseHandle { handle }),
        2 => index.prop_map(|handle| TreeOp::LockHandle { handle }),
        1 => (0usize..100).prop_map(|max_work| TreeOp::Compact { max_work }),
    ]
}

/// The tree, its reference, and an engine that owns the slots.
struct TreeRun {
    size: usize,
    num_pages: usize,
    free: Vec<usize>,
    names: [Namespace; 2],
    real: RadixTree,
    model: reference::Tree,
    leases: Vec<(Lease, reference::Lease)>,
    handles: Vec<(Handle, usize)>,
}

impl TreeRun {
    fn new(size: usize, num_pages: usize) -> Self {
        TreeRun {
            size,
            num_pages,
            free: (0..num_pages).collect(),
            names: namespaces(),
            real: RadixTree::new(TreeConfig { page_size: size, ..Default::default() }).unwrap(),
            model: reference::Tree::new(size),
            leases: Vec::new(),
            handles: Vec::new(),
        }
    }

    fn slots_for(&mut self, num_tokens: usize) -> Option<Vec<i32>> {
        let num_pages = num_tokens.div_ceil(self.size);
        let at = self.free.len().checked_sub(num_pages)?;
        let pages = self.free.split_off(at);
        Some(pages.into_iter().flat_map(|page| page * self.size..(page + 1) * self.size).map(|s| s as i32).collect())
    }

    fn give(&mut self, slots: &[i32]) {
        for slot in slots.iter().copied().filter(|&slot| slot as usize % self.size == 0) {
            assert!(!self.free.contains(&(slot as usize / self.size)), "slot {slot} comes back twice");
            self.free.push(slot as usize / self.size);
        }
        assert_eq!(slots.len() % self.size, 0);
    }

    /// A handle just taken at rest works; remember it.
    fn fresh(&mut self, handle: Handle, path: &[usize]) {
        assert_eq!(handle.end_depth(), path.len() * self.size);
        let Some(&page) = path.last() else { return };
        if self.model.pages[page].old {
            return;
        }
        assert_eq!(values(&self.real.values(&handle).unwrap()), self.model.slots(path));
        assert!(self.real.node(&handle).unwrap().end >= handle.end_depth());
        if self.handles.len() < 8 {
            self.handles.push((handle, page));
        }
    }

    fn insert(&mut self, tokens: &[u32], space: usize, lease: Option<usize>) {
        let Some(slots) = self.slots_for(tokens.len()) else { return };
        let given = &slots[..tokens.len()];
        let (real, model) = match lease {
            None => {
                (self.real.insert(tokens, given, &self.names[space]), self.model.insert(tokens, given, space, None))
            }
            Some(i) => {
                let (real, model) = &mut self.leases[i];
                (self.real.insert_with(real, tokens, given, 0), self.model.insert(tokens, given, space, Some(model)))
            }
        };
        match (real, model) {
            (Ok(real), Ok((cached_len, path))) => {
                assert_eq!(real.cached_len, cached_len);
                let whole = path.len() * self.size;
                assert_eq!(real.length, whole);
                self.give(&slots[..cached_len]);
                self.give(&slots[whole..]);
                self.fresh(real.handle, &path);
            }
            (Err(real), Err(model)) => {
                assert_eq!(Refusal::from(real), model);
                self.give(&slots);
            }
            (real, model) => panic!("{real:?} but {model:?}"),
        }
    }

    fn insert_wrongly(&mut self, text: &Text, fault: u8) {
        let mut tokens = text.tokens(self.size);
        tokens.resize((tokens.len() / self.size + 1) * self.size, LETTERS[2]);
        let base = (self.num_pages * self.size) as i32;
        let mut slots: Vec<i32> = (base..).take(tokens.len()).collect();
        match fault {
            0 => drop(slots.pop()),
            1 => slots.iter_mut().for_each(|slot| *slot -= base + 1024),
            2 if self.size > 1 => *slots.last_mut().unwrap() += 1,
            3 if self.size > 1 => slots.iter_mut().for_each(|slot| *slot += 1),
            _ => return,
        }
        // Nothing else uses this namespace: every page is new there.
        let ns = Namespace::from("wrong");
        let outcome = self.real.insert(&tokens[..], &slots, &ns).unwrap_err();
        assert_eq!(Refusal::from(outcome), Refusal::Invalid);
        assert_eq!(self.real.match_prefix(&tokens[..], &ns).length(), 0);
    }

    fn step(&mut self, op: &TreeOp) {
        match op {
            TreeOp::Insert { text, space } => self.insert(&text.tokens(self.size), *space, None),
            TreeOp::InsertWith { lease, more } if !self.leases.is_empty() => {
                let i = lease % self.leases.len();
                let lease = &self.leases[i].1;
                let mut tokens: Vec<u32> =
                    lease.pages.iter().flat_map(|&page| self.model.pages[page].key.clone()).collect();
                tokens.extend(more.tokens(self.size));
                self.insert(&tokens, lease.space, Some(i));
            }
            TreeOp::InsertOther { lease, text } if !self.leases.is_empty() => {
                let i = lease % self.leases.len();
                self.insert(&text.tokens(self.size), self.leases[i].1.space, Some(i));
            }
            TreeOp::InsertWrongly { text, fault } => self.insert_wrongly(text, *fault),
            TreeOp::Match { text, space, start } => {
                let (tokens, ns) = (text.tokens(self.size), &self.names[*space]);
                let nodes = self.real.num_nodes();
                let found = self.real.match_prefix(&tokens[..], ns);
                let path = self.model.walk(&tokens, *space);
                let slots = self.model.slots(&path);
                assert_eq!(found.length(), slots.len());
                assert_eq!(values(&found), slots);
                let mut row = [-1; 40];
                let count = found.write_values(&mut row, *start);
                let expected = &slots[(*start).min(slots.len())..];
                assert_eq!(count, expected.len().min(40));
                assert_eq!(row[..count], expected[..count]);
                assert!(row[count..].iter().all(|&slot| slot == -1));
                assert_eq!(self.real.num_nodes(), nodes);
                self.fresh(found.handle(), &path);
            }
            TreeOp::Lock { text, space } if self.leases.len() < 8 => {
                let tokens = text.tokens(self.size);
                let real = self.real.lock_prefix(&tokens[..], &self.names[*space]).unwrap();
                let model = self.model.lock_prefix(&tokens, *space);
                self.fresh(real.handle(), &model.pages);
                self.leases.push((real, model));
            }
            TreeOp::Touch { text, space } => {
                let tokens = text.tokens(self.size);
                self.real.touch(&tokens[..], &self.names[*space]);
                self.model.touch(&tokens, *space);
            }
            TreeOp::Release { lease } if !self.leases.is_empty() => {
                let (real, model) = self.leases.remove(lease % self.leases.len());
                real.release();
                self.model.release(model);
            }
            TreeOp::Shrink { lease, length } if !self.leases.is_empty() => {
                let i = lease % self.leases.len();
                let (real, model) = &mut self.leases[i];
                real.shrink(*length).unwrap();
                let num_pages = (length / self.size).min(model.pages.len());
                self.model.shrink(model, num_pages);
            }
            TreeOp::Evict { tokens } => {
                let (count, mut out) = (tokens_to_evict(*tokens, self.size), Vec::new());
                let evicted = self.real.evict(count, &mut out);
                assert_eq!(evicted, out.len());
                let expected = self.model.evict(count.div_ceil(self.size), Some(&out));
                assert_eq!(sorted(out.clone()), sorted(expected));
                self.give(&out);
            }
            TreeOp::EvictLeaves { tokens } => {
                let (count, mut out) = (tokens_to_evict(*tokens, self.size), Vec::new());
                let evicted = self.real.evict_leaves(count, &mut out);
                assert_eq!(evicted, out.len());
                self.model.evict_leaves(count.div_ceil(self.size), &out);
                self.give(&out);
            }
            TreeOp::Reset => {
                let mut out = Vec::new();
                self.real.reset(&mut out);
                assert_eq!(sorted(out.clone()), sorted(self.model.reset()));
                self.give(&out);
            }
            TreeOp::UseHandle { handle } if !self.handles.is_empty() => {
                let (handle, page) = self.handles[handle % self.handles.len()];
                match (self.real.values(&handle).map_err(Refusal::from), self.model.resolve(page)) {
                    (Ok(found), Ok(path)) => assert_eq!(values(&found), self.model.slots(&path)),
                    // Splits and merges may end the node that a handle names before its pages go.
                    (Err(Refusal::Stale), _) => {}
                    (real, model) => panic!("{real:?} but {model:?}"),
                }
            }
            TreeOp::LockHandle { handle } if !self.handles.is_empty() && self.leases.len() < 8 => {
                let (handle, page) = self.handles.remove(handle % self.handles.len());
                match self.real.lock(&handle).map_err(Refusal::from) {
                    Ok(real) => {
                        let model = self.model.lock_page(page).expect("a lease on a page that is gone");
                        self.leases.push((real, model));
                    }
                    Err(refusal) => assert_eq!(refusal, Refusal::Stale),
                }
            }
            TreeOp::Compact { max_work } => drop(self.real.compact(*max_work)),
            _ => {}
        }
        self.agree();
    }

    fn agree(&self) {
        self.real.check().unwrap();
        assert_eq!(self.real.cached_tokens(), self.model.cached());
        assert_eq!(self.real.protected_tokens(), self.model.protected());
        assert_eq!(self.real.evictable_tokens(), self.model.evictable());
        assert_eq!(self.free.len() * self.size + self.real.cached_tokens(), self.num_pages * self.size);
        for (real, model) in &self.leases {
            assert_eq!(real.length(), model.pages.len() * self.size);
            assert_eq!(lease_values(real), self.model.slots(&model.pages));
        }
    }

    fn end(mut self) {
        self.leases.clear();
        assert_eq!(self.real.protected_tokens(), 0);
        let mut out = Vec::new();
        self.real.evict(self.num_pages * self.size, &mut out);
        self.give(&out);
        assert_eq!(self.real.cached_tokens(), 0);
        assert_eq!(self.free.len(), self.num_pages);
        self.real.check().unwrap();
    }
}

// SlotPool

#[derive(Debug, Clone)]
enum PoolOp {
    Alloc { tokens: usize },
    AllocInto { pages: usize },
    Free { picks: Vec<usize> },
    FreeWrongly { pick: usize, fault: u8 },
}

fn pool_op() -> impl Strategy<Value = PoolOp> {
    prop_oneof![
        4 => (0usize..100).prop_map(|tokens| PoolOp::Alloc { tokens }),
        2 => (0usize..20).prop_map(|pages| PoolOp::AllocInto { pages }),
        4 => prop::collection::vec(0usize..256, 0..8).prop_map(|picks| PoolOp::Free { picks }),
        2 => (0usize..256, 0u8..6).prop_map(|(pick, fault)| PoolOp::FreeWrongly { pick, fault }),
    ]
}

struct PoolRun {
    size: usize,
    real: SlotPool,
    model: reference::Pool,
    held: Vec<usize>,
}

impl PoolRun {
    fn free(&mut self, slots: &[i32]) -> bool {
        let (real, model) = (self.real.free(slots), self.model.free(slots));
        assert_eq!(real.map_err(Refusal::from), model);
        model.is_ok()
    }

    fn hold(&mut self, slots: &[i32]) {
        self.held.extend(slots.iter().step_by(self.size).map(|&slot| slot as usize / self.size));
    }

    fn step(&mut self, op: &PoolOp) {
        match op {
            PoolOp::Alloc { tokens } => {
                let (real, model) = (self.real.alloc(*tokens).map_err(Refusal::from), self.model.alloc(*tokens));
                assert_eq!(real, model);
                self.hold(&model.unwrap_or_default());
            }
            PoolOp::AllocInto { pages } => {
                let mut row = vec![-1; pages * self.size];
                let real = self.real.alloc_into(&mut row).map_err(Refusal::from);
                match self.model.alloc(row.len()) {
                    Ok(model) => assert_eq!((real, &row), (Ok(()), &model)),
                    Err(model) => {
                        assert_eq!(real, Err(model));
                        assert!(row.iter().all(|&slot| slot == -1));
                        return;
                    }
                }
                self.hold(&row);
            }
            PoolOp::Free { picks } => {
                let mut slots = Vec::new();
                for pick in picks {
                    if !self.held.is_empty() {
                        let page = self.held.remove(pick % self.held.len());
                        slots.extend(self.model.page_slots(page));
                    }
                }
                assert!(self.free(&slots));
            }
            PoolOp::FreeWrongly { pick, fault } => {
                let page = |pages: &[usize]| pages.get(pick % pages.len().max(1)).map(|&p| self.model.page_slots(p));
                let unheld: Vec<usize> = self.model.free.iter().copied().collect();
                let held = page(&self.held).unwrap_or_default();
                let mut wrong = held.clone();
                match fault {
                    0 if !unheld.is_empty() => wrong.extend(page(&unheld).unwrap()),
                    1 if !held.is_empty() => wrong.extend(held),
                    2 if !held.is_empty() && self.size > 1 => drop(wrong.pop()),
                    3 => wrong.extend(self.model.page_slots(self.model.num_pages)),
                    4 => wrong.extend((-(self.size as i32))..0),
                    5 if !held.is_empty() && self.size > 1 => wrong.reverse(),
                    _ => return,
                }
                assert!(!self.free(&wrong));
            }
        }
        self.real.check().unwrap();
        assert_eq!(self.real.num_free(), self.model.num_free());
    }
}

fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn every_step_of_a_tree_agrees_with_the_reference(
        size in page_size(),
        num_pages in 4usize..40,
        ops in prop::collection::vec(tree_op(), 1..60),
    ) {
        let mut run = TreeRun::new(size, num_pages);
        for op in &ops {
            run.step(op);
        }
        run.end();
    }

    #[test]
    fn every_step_of_a_pool_agrees_with_the_reference(
        size in page_size(),
        num_pages in 1usize..200,
        ops in prop::collection::vec(pool_op(), 1..60),
    ) {
        let real = SlotPool::new(num_pages * size, size).unwrap();
        let model = reference::Pool::new(num_pages * size, size);
        let mut run = PoolRun { size, real, model, held: Vec::new() };
        for op in &ops {
            run.step(op);
        }
    }
}
