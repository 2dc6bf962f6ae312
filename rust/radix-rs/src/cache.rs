//! Tree and pool together: where sequences begin and where their slots come from.

use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::event::EventSink;
use crate::fence::Fence;
use crate::key::{Atom, PageHash, Source};
use crate::namespace::Namespace;
use crate::policy::Policy;
use crate::row::Row;
use crate::sequence::Sequence;
use crate::slots::SlotPool;
use crate::stats::{CacheStats, OwnedSlots};
use crate::tree::{Clock, RadixTree, TreeConfig};

/// How a cache is set up.
pub struct CacheConfig<A = u32> {
    /// Slots of the KV pool: a positive multiple of the page size. The default, 0, is refused: say how many there are.
    pub num_slots: usize,
    /// Tokens per page: a power of two from 1 to 1024.
    pub page_size: usize,
    /// Which leaf is evicted first.
    pub policy: Policy,
    /// `false`: nothing is found and nothing is published; sequences still get their slots. The baseline.
    pub enabled: bool,
    /// Who is told what is stored and removed.
    pub events: Option<Arc<dyn EventSink<A, i32>>>,
    /// How pages become keys of child tables.
    pub page_hash: PageHash,
    /// As for [`TreeConfig`].
    pub compact_every: usize,
    /// The time by which pins end; by default that of the system.
    pub clock: Option<Clock>,
}

impl<A> Default for CacheConfig<A> {
    fn default() -> Self {
        CacheConfig {
            num_slots: 0,
            page_size: 1,
            policy: Policy::Lru,
            enabled: true,
            events: None,
            page_hash: PageHash::Mix,
            compact_every: 1000,
            clock: None,
        }
    }
}

/// Who took a page last, as far as the cache itself knows, beside the sequences (numbered from [`FIRST`]).
pub(crate) const NOBODY: u32 = 0;
pub(crate) const TREE: u32 = 1;
pub(crate) const WAITING: u32 = 2;
const FIRST: u32 = 3;

pub(crate) struct Shared<A: Atom> {
    pub(crate) tree: RadixTree<A, i32>,
    pub(crate) pool: SlotPool,
    pub(crate) enabled: bool,
    pub(crate) held_pages: AtomicUsize,
    pub(crate) sequences: AtomicUsize,
    pub(crate) queried: AtomicUsize,
    pub(crate) hit: AtomicUsize,
    waiting_pages: Arc<AtomicUsize>,
    serial: AtomicU32,
    /// Owner of each page: what `audit` reports and `check` compares.
    owners: Arc<[AtomicU32]>,
}

/// A radix tree and a slot pool with the life of requests on top.
///
/// Cheap to clone: clones are the same cache. Leaks are impossible by construction: a [`Sequence`] gives back all that is its
/// own when it ends or is dropped.
///
/// # Concurrency
/// `Send + Sync`; sequences of many threads work side by side without waiting for each other.
pub struct PrefixCache<A: Atom = u32> {
    pub(crate) shared: Arc<Shared<A>>,
}

impl<A: Atom> Clone for PrefixCache<A> {
    fn clone(&self) -> Self {
        PrefixCache { shared: self.shared.clone() }
    }
}

impl<A: Atom> fmt::Debug for PrefixCache<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixCache").field("stats", &self.stats()).finish()
    }
}

impl<A: Atom> Shared<A> {
    pub(crate) fn page(&self) -> usize {
        self.pool.page_size()
    }

    pub(crate) fn set_owner(&self, page: usize, owner: u32) {
        self.owners[page].store(owner, Relaxed);
    }

    pub(crate) fn next_serial(&self) -> u32 {
        // after four billion sequences numbers come again; they only label reports
        self.serial.fetch_add(1, Relaxed).max(FIRST)
    }

    /// Gives pages back to the pool, at once or after a fence.
    pub(crate) fn give(&self, pages: Vec<u32>, after: Option<&Fence>) {
        let owner = if after.is_some() { WAITING } else { NOBODY };
        pages.iter().for_each(|&page| self.set_owner(page as usize, owner));
        match after {
            Some(fence) => fence.hold(pages),
            None => pages.iter().for_each(|&page| self.pool.give(page as usize)),
        }
    }

    /// Finds `n` pages: free ones first, then by evicting no more than the shortfall.
    pub(crate) fn find_pages(&self, n: usize, mut take: impl FnMut(usize)) -> Result<()> {
        let page = self.page();
        if n == 0 || self.pool.take_pages(n, &mut take).is_ok() {
            return Ok(());
        }
        self.tree.core.expire(); // what is due counts as evictable
        let mut found: Vec<usize> = Vec::with_capacity(n);
        let refuse = |found: Vec<usize>, n: usize| {
            found.into_iter().for_each(|p| self.pool.give(p));
            let (cached, protected) = self.tree.core.counts();
            Err(Error::Capacity {
                needed: n * page,
                free: self.pool.num_free(),
                evictable: cached - protected,
                protected,
            })
        };
        // Refused before anything is evicted for nothing.
        if (self.pool.num_free() + self.tree.evictable_tokens()) / page < n {
            return refuse(found, n);
        }
        let mut slots = Vec::new();
        while found.len() < n {
            self.pool.take_some(n - found.len(), |p| found.push(p));
            let missing = n - found.len();
            if missing == 0 {
                break;
            }
            slots.clear();
            let freed = self.tree.core.evict(missing * page, false, &mut slots);
            found.extend(slots.chunks_exact(page).map(|group| group[0] as usize / page));
            if freed == 0 && self.pool.num_free() == 0 {
                found.iter().for_each(|&p| self.set_owner(p, NOBODY));
                return refuse(found, n);
            }
        }
        // one victim may give more than was missing only if somebody freed slots meanwhile
        for extra in found.split_off(n) {
            self.set_owner(extra, NOBODY);
            self.pool.give(extra);
        }
        found.into_iter().for_each(take);
        Ok(())
    }
}

impl<A: Atom> PrefixCache<A> {
    /// An empty cache over a pool of free slots.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a page size or number of slots that [`SlotPool::new`] refuses.
    pub fn new(config: CacheConfig<A>) -> Result<Self> {
        let pool = SlotPool::new(config.num_slots, config.page_size)?;
        let tree = RadixTree::new(TreeConfig {
            page_size: config.page_size,
            policy: config.policy,
            events: config.events,
            page_hash: config.page_hash,
            compact_every: config.compact_every,
            clock: config.clock,
        })?;
        let shared = Shared {
            owners: (0..config.num_slots / config.page_size).map(|_| AtomicU32::new(NOBODY)).collect(),
            tree,
            pool,
            enabled: config.enabled,
            held_pages: AtomicUsize::new(0),
            sequences: AtomicUsize::new(0),
            queried: AtomicUsize::new(0),
            hit: AtomicUsize::new(0),
            waiting_pages: Arc::new(AtomicUsize::new(0)),
            serial: AtomicU32::new(FIRST),
        };
        Ok(PrefixCache { shared: Arc::new(shared) })
    }

    /// Begins a sequence for a prompt. It takes the longest cached prefix in whole pages, but leaves at least one token to
    /// compute, since its logits are what the caller is after.
    ///
    /// # Errors
    /// [`Error::InvalidToken`], [`Error::PinOverflow`]; nothing has changed then.
    pub fn begin<S: Source<A> + ?Sized>(&self, tokens: &S, ns: &Namespace) -> Result<Sequence<A>> {
        Sequence::begin(self, tokens, ns, None, 0)
    }

    /// As [`begin`](Self::begin), with the slots in the caller's row and a priority for what it publishes.
    ///
    /// # Errors
    /// As [`begin`](Self::begin), and [`Error::InvalidInput`] if the cached prefix does not fit the row.
    pub fn begin_with<S: Source<A> + ?Sized>(
        &self,
        tokens: &S,
        ns: &Namespace,
        row: Option<Row>,
        priority: i32,
    ) -> Result<Sequence<A>> {
        Sequence::begin(self, tokens, ns, row, priority)
    }

    /// A fence for slots that a running computation may still read.
    pub fn fence(&self) -> Fence {
        Fence::new(self.shared.pool.clone(), self.shared.owners.clone(), self.shared.waiting_pages.clone())
    }

    /// Signals a fence: what waits for it may be handed out again. Twice is harmless. The fence knows whose slots wait.
    pub fn signal(&self, fence: &Fence) {
        fence.signal();
    }

    /// The tree.
    pub fn tree(&self) -> &RadixTree<A, i32> {
        &self.shared.tree
    }

    /// The pool.
    pub fn pool(&self) -> &SlotPool {
        &self.shared.pool
    }

    /// Whether prefixes are reused at all.
    pub fn is_enabled(&self) -> bool {
        self.shared.enabled
    }

    /// Tokens per page.
    pub fn page_size(&self) -> usize {
        self.shared.page()
    }

    /// Evicts at least `num_tokens` cached tokens (rounded up to pages) into the pool; returns how many went.
    pub fn evict(&self, num_tokens: usize) -> usize {
        let mut slots = Vec::new();
        let freed = self.shared.tree.evict(num_tokens, &mut slots);
        self.take_back(&slots);
        freed
    }

    /// Forgets everything that no sequence uses; the slots are free afterwards. Live sequences go on with what they have.
    pub fn reset(&self) {
        let mut slots = Vec::new();
        self.shared.tree.reset(&mut slots);
        self.take_back(&slots);
    }

    fn take_back(&self, slots: &[i32]) {
        let page = self.page_size();
        self.shared.give(slots.chunks_exact(page).map(|group| (group[0] as usize / page) as u32).collect(), None);
    }

    /// Where the slots are and what happened so far. O(1).
    ///
    /// # Concurrency
    /// Each number is right for some moment; they add up at rest.
    pub fn stats(&self) -> CacheStats {
        let shared = &self.shared;
        let (cached, protected) = shared.tree.core.counts();
        let page = self.page_size();
        CacheStats {
            num_slots: shared.pool.num_slots(),
            num_free: shared.pool.num_free(),
            cached_tokens: cached,
            evictable_tokens: cached - protected,
            protected_tokens: protected,
            held_tokens: shared.held_pages.load(Acquire) * page,
            waiting_tokens: shared.waiting_pages.load(Acquire) * page,
            num_sequences: shared.sequences.load(Acquire),
            num_nodes: shared.tree.num_nodes(),
            queried_tokens: shared.queried.load(Relaxed),
            hit_tokens: shared.hit.load(Relaxed),
            evicted_tokens: shared.tree.core.evicted.load(Relaxed),
            inserted_tokens: shared.tree.core.inserted.load(Relaxed),
        }
    }

    /// Which slots are neither free, cached nor waiting for a fence: what live sequences own, the oldest first, and before them
    /// what nobody owns any more.
    ///
    /// # Concurrency
    /// Only meaningful at rest.
    pub fn audit(&self) -> Vec<OwnedSlots> {
        let shared = &self.shared;
        let page = self.page_size();
        let next = shared.serial.load(Relaxed).max(FIRST);
        let (in_tree, _) = self.pages_in_tree();
        let mut owned: std::collections::BTreeMap<Option<u32>, Vec<i32>> = Default::default();
        for (p, owner) in shared.owners.iter().enumerate() {
            let owner = owner.load(Relaxed);
            let key = match owner {
                FIRST.. => Some(owner),
                WAITING => continue,
                _ if in_tree[p] || shared.pool.is_free(p) => continue,
                _ => None,
            };
            owned.entry(key).or_default().extend((p * page..(p + 1) * page).map(|slot| slot as i32));
        }
        let entry = |(owner, slots): (Option<u32>, Vec<i32>)| OwnedSlots {
            sequence: owner.map(|owner| owner - FIRST),
            begun_since: owner.map_or(0, |owner| next.wrapping_sub(owner + 1)),
            slots,
        };
        owned.into_iter().map(entry).collect()
    }

    /// Which pages the tree has, and a slot of it that the pool does not have, if there is one.
    fn pages_in_tree(&self) -> (Vec<bool>, Option<i32>) {
        let mut in_tree = vec![false; self.shared.owners.len()];
        let mut outside = None;
        let page = self.page_size();
        self.shared.tree.core.each_value(|values| {
            for group in values.chunks_exact(page) {
                match in_tree.get_mut(group[0] as usize / page) {
                    Some(seen) => *seen = true,
                    None => outside = Some(group[0]),
                }
            }
        });
        (in_tree, outside)
    }

    /// Checks tree and pool, and that every slot has exactly one owner.
    ///
    /// # Errors
    /// [`Error::Integrity`] that names the first broken invariant.
    ///
    /// # Concurrency
    /// Only meaningful while no other thread works on the cache.
    pub fn check(&self) -> Result<()> {
        let shared = &self.shared;
        shared.tree.check()?;
        shared.pool.check()?;
        let page = self.page_size();
        let (in_tree, outside) = self.pages_in_tree();
        let broken = |text: String| Err(Error::Integrity(text));
        if let Some(slot) = outside {
            return broken(format!("the tree holds slot {slot}, which the pool does not have"));
        }
        let (mut held, mut waiting) = (0, 0);
        for (p, owner) in shared.owners.iter().enumerate() {
            let owner = owner.load(Acquire);
            let (free, cached) = (shared.pool.is_free(p), in_tree[p]);
            let slot = p * page;
            if free && cached {
                return broken(format!("the page at slot {slot} is cached and free"));
            }
            // Pages of somebody who uses tree and pool directly keep the mark of their last owner here.
            if owner >= WAITING && (free || cached) {
                return broken(format!(
                    "the page at slot {slot} has owner {owner}, but free is {free} and cached is {cached}"
                ));
            }
            held += usize::from(owner >= FIRST);
            waiting += usize::from(owner == WAITING);
        }
        if held != shared.held_pages.load(Acquire) {
            return broken(format!("sequences own {held} pages, but {} are counted", shared.held_pages.load(Acquire)));
        }
        if waiting != shared.waiting_pages.load(Acquire) {
            let counted = shared.waiting_pages.load(Acquire);
            return broken(format!("{waiting} pages wait for fences, but {counted} are counted"));
        }
        Ok(())
    }
}
