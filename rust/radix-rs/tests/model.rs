//! Random lives of tree, pool and cache against a plain reference, with `check()` after every step.
//!
//! `PROPTEST_CASES` sets how many lives are tried.

mod reference;

use proptest::prelude::*;
use radix_rs::{
    CacheConfig, EvictionPolicy, Fence, Handle, Lease, Match, Namespace, PageHash, PageUse, Policy, PrefixCache,
    RadixTree, Sequence, SlotPool, TreeConfig,
};
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

/// Mostly the hash in use, sometimes one under which all pages collide.
fn page_hash() -> impl Strategy<Value = PageHash> {
    prop_oneof![3 => Just(PageHash::Mix), 1 => Just(PageHash::Constant)]
}

/// An order of nobody's making, whose scores jump from page to page.
#[derive(Debug)]
struct Odd;

impl EvictionPolicy for Odd {
    fn name(&self) -> &str {
        "odd"
    }
    fn score(&self, page: &PageUse) -> u64 {
        page.inflation + u64::from(3 * page.hits + page.depth % 5) + (page.priority + 1) as u64
    }
    fn inflates(&self) -> bool {
        true
    }
}

fn policy() -> impl Strategy<Value = Policy> {
    let built_in: Vec<_> = Policy::names().map(|name| Just(Policy::from_name(name).unwrap())).collect();
    prop_oneof![3 => Just(Policy::Lru), 6 => prop::strategy::Union::new(built_in), 1 => Just(Policy::custom(Odd))]
}

fn model_of(page_size: usize, policy: &Policy) -> reference::Tree {
    match policy.name() {
        "odd" => reference::Tree::new(
            page_size,
            |page| page.base + 3 * page.hits + page.depth as u64 % 5 + (page.priority + 1) as u64,
            true,
        ),
        name => reference::Tree::new(page_size, reference::score_of(name), ["lfu-ageing", "gdsf"].contains(&name)),
    }
}

/// Some priority that both sides agree on.
fn priority(tokens: &[u32]) -> i32 {
    (tokens.len() % 3) as i32 - 1
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
    fn new(size: usize, num_pages: usize, page_hash: PageHash, policy: Policy) -> Self {
        TreeRun {
            size,
            num_pages,
            free: (0..num_pages).collect(),
            names: namespaces(),
            model: model_of(size, &policy),
            real: RadixTree::new(TreeConfig { page_size: size, page_hash, policy, ..Default::default() }).unwrap(),
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
        for slot in slots.iter().copied().filter(|&slot| (slot as usize).is_multiple_of(self.size)) {
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
        let priority = priority(tokens);
        let (real, model) = match lease {
            None => (
                self.real.insert_prioritized(tokens, given, &self.names[space], priority),
                self.model.insert(tokens, given, space, None, priority),
            ),
            Some(i) => {
                let (real, model) = &mut self.leases[i];
                (
                    self.real.insert_with(real, tokens, given, priority),
                    self.model.insert(tokens, given, space, Some(model), priority),
                )
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
                let mut same = [-1; 40];
                assert_eq!(self.real.match_into(&tokens[..], ns, *start, &mut same), slots.len());
                assert_eq!(same, row);
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

// PrefixCache

/// No fence, or which one.
type Fenced = Option<usize>;

#[derive(Debug, Clone)]
enum CacheOp {
    Begin { text: Text, space: usize, compute: bool },
    NextTurn { turn: usize, more: Text, compute: bool },
    Twins { text: Text, more: Text, space: usize, fence: Fenced },
    Live { text: Text, space: usize, steps: usize },
    Reserve { index: usize, count: usize },
    Append { index: usize, text: Text },
    Commit { index: usize, share: usize, fence: Fenced },
    Prefill { index: usize, share: usize, fence: Fenced },
    Decode { index: usize, steps: usize },
    Truncate { index: usize, share: usize },
    TruncateBack { index: usize, back: usize },
    Fork { index: usize, count: usize, share: Option<usize>, compute: bool },
    Finish { index: usize, fence: Fenced },
    Abort { index: usize, fence: Fenced },
    Drop { index: usize },
    Touch { text: Text, space: usize },
    Match { text: Text, space: usize },
    Evict { tokens: (usize, usize) },
    EvictLeaves { tokens: (usize, usize) },
    Reset,
    Signal { fence: usize, keep: bool },
    DropFence { fence: usize },
}

fn cache_op() -> impl Strategy<Value = CacheOp> {
    use CacheOp::*;
    let index = 0usize..64;
    let fence = || prop_oneof![2 => Just(None), 1 => (0usize..3).prop_map(Some)];
    let compute = any::<bool>();
    prop_oneof![
        4 => (text(6), space(), compute).prop_map(|(text, space, compute)| Begin { text, space, compute }),
        3 => (index.clone(), text(2), compute).prop_map(|(turn, more, compute)| NextTurn { turn, more, compute }),
        3 => (text(5), text(2), space(), fence())
            .prop_map(|(text, more, space, fence)| Twins { text, more, space, fence }),
        4 => (text(6), space(), 0usize..20).prop_map(|(text, space, steps)| Live { text, space, steps }),
        2 => (index.clone(), 0usize..40).prop_map(|(index, count)| Reserve { index, count }),
        2 => (index.clone(), text(2)).prop_map(|(index, text)| Append { index, text }),
        3 => (index.clone(), 0usize..18, fence()).prop_map(|(index, share, fence)| Commit { index, share, fence }),
        4 => (index.clone(), prop_oneof![2 => Just(16usize), 1 => Just(8), 1 => Just(4)], fence())
            .prop_map(|(index, share, fence)| Prefill { index, share, fence }),
        3 => (index.clone(), 1usize..8).prop_map(|(index, steps)| Decode { index, steps }),
        2 => (index.clone(), 0usize..18).prop_map(|(index, share)| Truncate { index, share }),
        2 => (index.clone(), 0usize..20).prop_map(|(index, back)| TruncateBack { index, back }),
        4 => (index.clone(), 0usize..4, prop::option::of(0usize..18), compute)
            .prop_map(|(index, count, share, compute)| Fork { index, count, share, compute }),
        3 => (index.clone(), fence()).prop_map(|(index, fence)| Finish { index, fence }),
        2 => (index.clone(), fence()).prop_map(|(index, fence)| Abort { index, fence }),
        1 => index.clone().prop_map(|index| Drop { index }),
        1 => (text(6), space()).prop_map(|(text, space)| Touch { text, space }),
        1 => (text(6), space()).prop_map(|(text, space)| Match { text, space }),
        2 => eviction().prop_map(|tokens| Evict { tokens }),
        1 => eviction().prop_map(|tokens| EvictLeaves { tokens }),
        1 => Just(Reset),
        1 => (index.clone(), any::<bool>()).prop_map(|(fence, keep)| Signal { fence, keep }),
        1 => index.prop_map(|fence| DropFence { fence }),
    ]
}

/// The cache and its reference.
struct CacheRun {
    size: usize,
    names: [Namespace; 2],
    real: PrefixCache,
    model: reference::Cache,
    live: Vec<(Sequence, reference::Sequence)>,
    fences: Vec<(Fence, reference::Fence)>,
    spoken: Vec<(Vec<u32>, usize)>,
}

impl CacheRun {
    fn new(size: usize, num_pages: usize, enabled: bool, page_hash: PageHash, policy: Policy) -> Self {
        let num_slots = num_pages * size;
        let model = reference::Cache::new(num_slots, model_of(size, &policy), enabled);
        let config = CacheConfig { num_slots, page_size: size, enabled, page_hash, policy, ..Default::default() };
        CacheRun {
            size,
            names: namespaces(),
            real: PrefixCache::new(config).unwrap(),
            model,
            live: Vec::new(),
            fences: Vec::new(),
            spoken: Vec::new(),
        }
    }

    fn fence(&mut self, which: Fenced) -> Option<usize> {
        let which = which?;
        if which >= self.fences.len() && self.fences.len() < 3 {
            self.fences.push((self.real.fence(), reference::Fence::default()));
        }
        Some(which % self.fences.len())
    }

    fn begin(&mut self, tokens: &[u32], space: usize) -> usize {
        let priority = priority(tokens);
        let real = self.real.begin_with(tokens, &self.names[space], None, priority).unwrap();
        self.live.push((real, self.model.begin(tokens, space, priority)));
        self.live.len() - 1
    }

    fn reserve(&mut self, i: usize, count: usize) -> bool {
        let (real, model) = &mut self.live[i];
        let before = model.lease.pages.len() + model.own.len();
        let end = model.num_reserved + count;
        let outcome = real.reserve(count).map_err(Refusal::from);
        let row = real.row().to_vec();
        let size = self.size;
        let chosen: Option<Vec<usize>> = outcome
            .is_ok()
            .then(|| (before..end.div_ceil(size)).map(|page| row[page * size] as usize / size).collect());
        let expected = self.model.reserve(model, count, chosen.as_deref());
        match outcome {
            Ok(view) => {
                assert_eq!(expected, Ok(()));
                assert_eq!(view.to_vec(), row[end - count..]);
                true
            }
            Err(refusal) => {
                assert_eq!(expected, Err(refusal));
                false
            }
        }
    }

    fn commit(&mut self, i: usize, num_computed: usize, fence: Fenced) {
        let fence = self.fence(fence);
        let (real, model) = &mut self.live[i];
        let before = real.row().to_vec();
        let (real_fence, model_fence) = match fence.map(|f| &mut self.fences[f]) {
            Some((real, model)) => (Some(&*real), Some(model)),
            None => (None, None),
        };
        let outcome = real.commit_after(num_computed, real_fence).map_err(Refusal::from);
        let expected = self.model.commit(model, num_computed, model_fence);
        assert_eq!(outcome.clone().map(|range| (range.start, range.end)), expected);
        if let Ok(range) = outcome {
            // The range is the smallest that holds every change, or empty.
            let row = real.row().to_vec();
            let changed: Vec<usize> = (0..row.len()).filter(|&at| row[at] != before[at]).collect();
            assert_eq!(changed.is_empty(), range.is_empty());
            if let (Some(first), Some(last)) = (changed.first(), changed.last()) {
                assert_eq!(*first..last + 1, range);
            }
        }
    }

    fn prefill(&mut self, i: usize, share: usize, fence: Fenced) -> bool {
        let model = &self.live[i].1;
        if !self.reserve(i, model.tokens.len().saturating_sub(model.num_reserved)) {
            return false;
        }
        self.commit(i, self.live[i].1.num_reserved * share / 16, fence);
        true
    }

    fn append(&mut self, i: usize, tokens: &[u32]) {
        let (real, model) = &mut self.live[i];
        real.append(tokens).unwrap();
        model.tokens.extend(tokens);
    }

    fn decode(&mut self, i: usize, steps: usize) {
        for step in 0..steps {
            if !self.reserve(i, 1) {
                return;
            }
            self.commit(i, self.live[i].1.num_reserved, None);
            self.append(i, &[LETTERS[step % 2]]);
        }
    }

    fn truncate(&mut self, i: usize, length: usize) {
        let (real, model) = &mut self.live[i];
        let outcome = real.truncate(length).map_err(Refusal::from);
        assert_eq!(outcome, self.model.truncate(model, length));
    }

    fn fork(&mut self, i: usize, count: usize, at: Option<usize>) {
        let (real, model) = &mut self.live[i];
        let outcome = real.fork(count, at).map_err(Refusal::from);
        let size = self.size;
        let pages = |child: &Sequence| -> Vec<usize> {
            let row = child.row().to_vec();
            row[child.num_published()..].iter().step_by(size).map(|&slot| slot as usize / size).collect()
        };
        let chosen: Option<Vec<usize>> =
            outcome.as_ref().ok().map(|children| children.iter().flat_map(pages).collect());
        let at = at.unwrap_or(model.tokens.len());
        match (outcome, self.model.fork(model, count, at, chosen.as_deref())) {
            (Ok(real), Ok(forked)) => {
                assert_eq!(real.len(), count);
                for (child, (model, copies)) in real.into_iter().zip(forked) {
                    assert_eq!(child.copies().iter().map(|&(from, to)| [from, to]).collect::<Vec<_>>(), copies);
                    self.live.push((child, model));
                }
            }
            (real, model) => assert_eq!(real.map(|children| children.len()), model.map(|children| children.len())),
        }
    }

    fn end(&mut self, i: usize, fence: Fenced, publish: bool) {
        let fence = self.fence(fence);
        let (real, model) = self.live.remove(i);
        self.spoken.push((model.tokens.clone(), model.lease.space));
        let (real_fence, model_fence) = match fence.map(|f| &mut self.fences[f]) {
            Some((real, model)) => (Some(&*real), Some(model)),
            None => (None, None),
        };
        if publish {
            real.finish_after(real_fence).unwrap();
            self.model.finish(model, model_fence);
        } else {
            real.abort_after(real_fence).unwrap();
            self.model.abort(model, model_fence);
        }
    }

    fn step(&mut self, op: &CacheOp) {
        let room = self.live.len() < 6;
        let pick = |index: &usize| index % self.live.len().max(1);
        let some = !self.live.is_empty();
        match op {
            CacheOp::Begin { text, space, compute } if room => {
                let i = self.begin(&text.tokens(self.size), *space);
                if *compute {
                    self.prefill(i, 16, None);
                }
            }
            CacheOp::NextTurn { turn, more, compute } if room && !self.spoken.is_empty() => {
                let (mut tokens, space) = self.spoken[turn % self.spoken.len()].clone();
                tokens.extend(more.tokens(self.size));
                let i = self.begin(&tokens, space);
                if *compute {
                    self.prefill(i, 16, None);
                }
            }
            CacheOp::Twins { text, more, space, fence } if room => {
                let tokens = text.tokens(self.size);
                let longer = [tokens.clone(), more.tokens(self.size)].concat();
                let twins = [self.begin(&longer, *space), self.begin(&tokens, *space)];
                for i in twins {
                    let model = &self.live[i].1;
                    self.reserve(i, model.tokens.len() - model.num_reserved);
                }
                for i in twins {
                    self.commit(i, self.live[i].1.num_reserved, *fence);
                }
            }
            CacheOp::Live { text, space, steps } => {
                let i = self.begin(&text.tokens(self.size), *space);
                if self.prefill(i, 16, None) {
                    self.decode(i, *steps);
                }
                self.end(i, None, true);
            }
            CacheOp::Reserve { index, count } if some => drop(self.reserve(pick(index), *count)),
            CacheOp::Append { index, text } if some => self.append(pick(index), &text.tokens(self.size)),
            CacheOp::Commit { index, share, fence } if some => {
                let i = pick(index);
                self.commit(i, self.live[i].1.num_reserved * share / 16, *fence);
            }
            CacheOp::Prefill { index, share, fence } if some => drop(self.prefill(pick(index), *share, *fence)),
            CacheOp::Decode { index, steps } if some => self.decode(pick(index), *steps),
            CacheOp::Truncate { index, share } if some => {
                let i = pick(index);
                let model = &self.live[i].1;
                self.truncate(i, model.tokens.len().max(model.num_reserved) * share / 16);
            }
            CacheOp::TruncateBack { index, back } if some => {
                let i = pick(index);
                self.truncate(i, self.live[i].1.tokens.len().saturating_sub(*back));
            }
            CacheOp::Fork { index, count, share, compute } if some && room => {
                let i = pick(index);
                if *compute {
                    self.prefill(i, 16, None);
                }
                self.fork(i, *count, share.map(|share| self.live[i].1.tokens.len() * share / 16));
            }
            CacheOp::Finish { index, fence } if some => self.end(pick(index), *fence, true),
            CacheOp::Abort { index, fence } if some => self.end(pick(index), *fence, false),
            CacheOp::Drop { index } if some => {
                let (real, model) = self.live.remove(pick(index));
                drop(real);
                self.model.abort(model, None);
            }
            CacheOp::Touch { text, space } => {
                let tokens = text.tokens(self.size);
                self.real.tree().touch(&tokens, &self.names[*space]);
                self.model.tree.touch(&tokens, *space);
            }
            CacheOp::Match { text, space } => {
                let tokens = text.tokens(self.size);
                let found = self.real.tree().match_prefix(&tokens, &self.names[*space]);
                assert_eq!(values(&found), self.model.tree.match_prefix(&tokens, *space));
            }
            CacheOp::Evict { tokens } => {
                let (count, mut out) = (tokens_to_evict(*tokens, self.size), Vec::new());
                self.real.tree().evict(count, &mut out);
                let expected = self.model.tree.evict(count.div_ceil(self.size), Some(&out));
                assert_eq!(sorted(out.clone()), sorted(expected));
                self.real.pool().free(&out).unwrap();
                self.model.pool.free(&out).unwrap();
            }
            CacheOp::EvictLeaves { tokens } => {
                let (count, mut out) = (tokens_to_evict(*tokens, self.size), Vec::new());
                self.real.tree().evict_leaves(count, &mut out);
                self.model.tree.evict_leaves(count.div_ceil(self.size), &out);
                self.real.pool().free(&out).unwrap();
                self.model.pool.free(&out).unwrap();
            }
            CacheOp::Reset => {
                self.real.reset();
                self.model.reset();
            }
            CacheOp::Signal { fence, keep } if !self.fences.is_empty() => {
                let i = fence % self.fences.len();
                self.real.signal(&self.fences[i].0);
                self.model.signal(&mut self.fences[i].1);
                if !keep {
                    self.fences.remove(i);
                }
            }
            CacheOp::DropFence { fence } if !self.fences.is_empty() => {
                let (real, mut model) = self.fences.remove(fence % self.fences.len());
                drop(real);
                self.model.signal(&mut model);
            }
            _ => {}
        }
        self.agree();
    }

    fn agree(&self) {
        self.real.check().unwrap();
        let stats = self.real.stats();
        let model = &self.model;
        let held: usize = self.live.iter().map(|(_, s)| s.own.len() * self.size).sum();
        let waiting: usize = self.fences.iter().map(|(_, fence)| fence.slots.len()).sum();
        assert_eq!(stats.num_free, model.pool.num_free(), "free");
        assert_eq!(stats.cached_tokens, model.tree.cached(), "cached");
        assert_eq!(stats.protected_tokens, model.tree.protected(), "protected");
        assert_eq!(stats.evictable_tokens, model.tree.evictable(), "evictable");
        assert_eq!(stats.held_tokens, held, "held");
        assert_eq!(stats.waiting_tokens, waiting, "waiting");
        assert_eq!(stats.num_sequences, self.live.len(), "sequences");
        assert_eq!((stats.queried_tokens, stats.hit_tokens), (model.queried, model.hits), "queried and hit");
        assert_eq!(stats.inserted_tokens, model.tree.inserted, "inserted");
        assert_eq!(stats.evicted_tokens, model.tree.evicted, "evicted");
        assert_eq!(stats.num_free + stats.cached_tokens + held + waiting, stats.num_slots);
        for (real, s) in &self.live {
            assert_eq!(real.tokens(), s.tokens);
            assert_eq!(real.cached_len(), s.cached_len, "cached_len");
            assert_eq!(real.num_computed(), s.num_computed, "num_computed");
            assert_eq!(real.num_reserved(), s.num_reserved, "num_reserved");
            assert_eq!(real.num_published(), model.published(s), "num_published");
            assert_eq!(real.row().to_vec(), model.row(s));
            assert_eq!(real.page_table().to_vec(), model.page_table(s));
        }
        let mut owned: Vec<Vec<i32>> = self.real.audit().into_iter().map(|owned| owned.slots).collect();
        let mut expected: Vec<Vec<i32>> = Vec::new();
        for (_, s) in &self.live {
            expected.push(sorted(s.own.iter().flat_map(|&page| model.pool.page_slots(page)).collect()));
        }
        owned.retain(|slots| !slots.is_empty());
        expected.retain(|slots| !slots.is_empty());
        owned.sort();
        expected.sort();
        assert_eq!(owned, expected);
    }

    /// However a life ends, letting go of everything leaves only what is cached.
    fn finish(mut self) {
        self.live.clear();
        self.fences.clear();
        self.real.check().unwrap();
        let stats = self.real.stats();
        assert_eq!((stats.protected_tokens, stats.held_tokens, stats.waiting_tokens), (0, 0, 0));
        assert_eq!(stats.num_free + stats.cached_tokens, stats.num_slots);
        self.real.evict(stats.num_slots);
        assert_eq!(self.real.pool().num_free(), stats.num_slots);
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
        page_hash in page_hash(),
        policy in policy(),
        ops in prop::collection::vec(tree_op(), 1..60),
    ) {
        let mut run = TreeRun::new(size, num_pages, page_hash, policy);
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

    #[test]
    fn every_step_of_a_cache_agrees_with_the_reference(
        size in page_size(),
        num_pages in prop_oneof![1usize..12, Just(16), Just(24), Just(40)],
        enabled in prop_oneof![7 => Just(true), 1 => Just(false)],
        page_hash in page_hash(),
        policy in policy(),
        ops in prop::collection::vec(cache_op(), 1..50),
    ) {
        let mut run = CacheRun::new(size, num_pages, enabled, page_hash, policy);
        for op in &ops {
            run.step(op);
        }
        run.finish();
    }
}

// Fuzzing: lives out of bytes, as many operations as there are bytes for. A byte changed changes one thing.

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn below(&mut self, end: usize) -> usize {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(first) % end
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn text(&mut self, max_pages: usize) -> Text {
        let pages = (0..self.below(max_pages + 1)).map(|_| [0, 0, 0, 1, 1, 2][self.below(6)]).collect();
        Text { pages, tail: (self.below(2) as u8, self.below(16)) }
    }

    fn space(&mut self) -> usize {
        self.below(6) / 5
    }

    fn fence(&mut self) -> Fenced {
        self.below(9).checked_sub(6)
    }

    fn eviction(&mut self) -> (usize, usize) {
        ([0, 1, 1, 2, 3, 99][self.below(6)], self.below(4))
    }

    /// Page size, number of pages, hash and policy.
    fn setup(&mut self) -> (usize, usize, PageHash, Policy) {
        let page = [1, 4, 16][self.below(3)];
        let num_pages = 1 + self.below(40);
        let hash = if self.below(4) == 0 { PageHash::Constant } else { PageHash::Mix };
        let names: Vec<_> = Policy::names().collect();
        let policy = match names.get(self.below(2 * names.len())) {
            Some(name) => Policy::from_name(name).expect("its own name"),
            None if self.below(4) == 0 => Policy::custom(Odd),
            None => Policy::Lru,
        };
        (page, num_pages, hash, policy)
    }

    fn tree_op(&mut self) -> TreeOp {
        match self.below(20) {
            0..=3 => TreeOp::Insert { text: self.text(6), space: self.space() },
            4 | 5 => TreeOp::InsertWith { lease: self.below(64), more: self.text(3) },
            6 => TreeOp::InsertOther { lease: self.below(64), text: self.text(6) },
            7 => TreeOp::InsertWrongly { text: self.text(3), fault: self.below(4) as u8 },
            8 => TreeOp::Match { text: self.text(6), space: self.space(), start: self.below(30) },
            9 | 10 => TreeOp::Lock { text: self.text(6), space: self.space() },
            11 => TreeOp::Touch { text: self.text(6), space: self.space() },
            12 | 13 => TreeOp::Release { lease: self.below(64) },
            14 => TreeOp::Shrink { lease: self.below(64), length: self.below(100) },
            15 => TreeOp::Evict { tokens: self.eviction() },
            16 => TreeOp::EvictLeaves { tokens: self.eviction() },
            17 => TreeOp::UseHandle { handle: self.below(64) },
            18 => TreeOp::LockHandle { handle: self.below(64) },
            _ if self.flag() => TreeOp::Reset,
            _ => TreeOp::Compact { max_work: self.below(100) },
        }
    }

    fn cache_op(&mut self) -> CacheOp {
        match self.below(28) {
            0 | 1 => CacheOp::Begin { text: self.text(6), space: self.space(), compute: self.flag() },
            2 | 3 => CacheOp::NextTurn { turn: self.below(64), more: self.text(2), compute: self.flag() },
            4 | 5 => {
                CacheOp::Twins { text: self.text(5), more: self.text(2), space: self.space(), fence: self.fence() }
            }
            6 | 7 => CacheOp::Live { text: self.text(6), space: self.space(), steps: self.below(20) },
            8 => CacheOp::Reserve { index: self.below(64), count: self.below(40) },
            9 => CacheOp::Append { index: self.below(64), text: self.text(2) },
            10 | 11 => CacheOp::Commit { index: self.below(64), share: self.below(18), fence: self.fence() },
            12 | 13 => {
                CacheOp::Prefill { index: self.below(64), share: [16, 8, 4][self.below(3)], fence: self.fence() }
            }
            14 => CacheOp::Decode { index: self.below(64), steps: 1 + self.below(7) },
            15 => CacheOp::Truncate { index: self.below(64), share: self.below(18) },
            16 => CacheOp::TruncateBack { index: self.below(64), back: self.below(20) },
            17 | 18 => {
                let (index, count, share) = (self.below(64), self.below(4), self.below(36));
                CacheOp::Fork { index, count, share: (share < 18).then_some(share), compute: self.flag() }
            }
            19 | 20 => CacheOp::Finish { index: self.below(64), fence: self.fence() },
            21 => CacheOp::Abort { index: self.below(64), fence: self.fence() },
            22 => CacheOp::Drop { index: self.below(64) },
            23 if self.flag() => CacheOp::Touch { text: self.text(6), space: self.space() },
            23 => CacheOp::Match { text: self.text(6), space: self.space() },
            24 => CacheOp::Evict { tokens: self.eviction() },
            25 => CacheOp::EvictLeaves { tokens: self.eviction() },
            26 if self.flag() => CacheOp::Reset,
            26 => CacheOp::DropFence { fence: self.below(64) },
            _ => CacheOp::Signal { fence: self.below(64), keep: self.flag() },
        }
    }
}

/// One life of a tree.
pub fn life_of_a_tree(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let (size, num_pages, page_hash, policy) = bytes.setup();
    let mut run = TreeRun::new(size, num_pages, page_hash, policy);
    while !bytes.0.is_empty() {
        run.step(&bytes.tree_op());
    }
    run.end();
}

/// One life of a cache.
pub fn life_of_a_cache(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let (size, num_pages, page_hash, policy) = bytes.setup();
    let mut run = CacheRun::new(size, num_pages, bytes.below(9) > 0, page_hash, policy);
    while !bytes.0.is_empty() {
        run.step(&bytes.cache_op());
    }
    run.finish();
}

#[test]
fn lives_out_of_any_bytes_agree_with_the_reference() {
    let mut state = 7u64;
    for length in 0..400 {
        let byte = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        let bytes: Vec<u8> = (0..length).map(byte).collect();
        life_of_a_tree(&bytes);
        life_of_a_cache(&bytes);
    }
}
