//! Many prompts in one call. Where prompts went on from a node is known to those that come after.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use smallvec::SmallVec;

use super::sharing::Sharing;
use super::{Core, Inserted, Match, RadixTree, Segment, Supply};
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::key::{Atom, Source, Value};
use crate::namespace::Namespace;
use crate::node::BodyData;

/// One of the prompts of [`insert_many`](RadixTree::insert_many).
#[derive(Debug)]
pub struct NewPrompt<'a, S: ?Sized, V = i32> {
    /// Its atoms.
    pub tokens: &'a S,
    /// One value for each.
    pub values: &'a [V],
    /// What must be equal besides the tokens.
    pub namespace: &'a Namespace,
    /// Kept with the nodes that are made for it.
    pub priority: i32,
}

impl<S: ?Sized, V> Clone for NewPrompt<'_, S, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: ?Sized, V> Copy for NewPrompt<'_, S, V> {}

/// The child that a prompt went on to from each node.
type Ways<'g, A, V> = HashMap<u32, (u32, &'g BodyData<A, V>), BuildHasherDefault<IdHasher>>;

/// Spreads node ids over a table: they are small and nobody chooses them.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }
    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl<A: Atom, V: Value> Core<A, V> {
    /// One prompt after the other, each to its end, so that its memory is read in one go. Where one went on is remembered for
    /// every node: the next one tries that child first, which it has to be compared with anyway if it shares the prefix.
    fn match_many<S: Source<A> + ?Sized>(&self, prompts: &[(&S, &Namespace)]) -> Vec<Match<A, V>> {
        let guard = self.guard();
        let top = self.handle(self.root(), 0);
        let mut ways: Ways<'_, A, V> = HashMap::default();
        let mut space = None;
        let mut all = Vec::with_capacity(prompts.len());
        for (i, &(key, ns)) in prompts.iter().enumerate() {
            let mut found = Match { length: 0, segments: SmallVec::new(), handle: top };
            if i == 0 || prompts[i - 1].1 != ns {
                space = self.find_space(ns, &guard);
            }
            if let Some(space) = space {
                found.handle = self.handle(space, 0);
                let word = self.nodes.get(space).load();
                if !word.dead() {
                    self.descend_by(&mut ways, space, key, self.body(word, &guard), &mut found, &guard);
                }
            }
            all.push(found);
        }
        all
    }

    /// As [`follow_key`](Self::follow_key), with what is known of the way already.
    fn descend_by<'g, S: Source<A> + ?Sized>(
        &'g self,
        ways: &mut Ways<'g, A, V>,
        mut node: u32,
        key: &S,
        mut body: &'g BodyData<A, V>,
        found: &mut Match<A, V>,
        guard: &'g Guard<'_>,
    ) {
        let upto = self.floor(key.len());
        while found.length < upto {
            let at = found.length;
            let known = ways
                .get(&node)
                .filter(|(_, child)| child.begin() as usize == at)
                .and_then(|&(next, child)| Some((next, child, self.shares(child, key, at, upto)?)));
            let (next, child, common) = match known {
                Some(known) => known,
                None => {
                    let Some(below) = self.child(body, key, at, upto, guard) else { return };
                    ways.insert(node, (below.0, below.1));
                    below
                }
            };
            found.segments.extend(Segment::of(child, 0, common));
            found.length += common;
            found.handle = self.handle(next, found.length);
            if common < child.len as usize {
                return;
            }
            (node, body) = (next, child);
        }
    }

    /// Values at new positions must be pages. Which positions are new is looked up beforehand, so that a refusal changes
    /// nothing: what a prompt shares with one before it is not, and what is cached is not.
    fn check_many<S: Source<A> + ?Sized>(&self, prompts: &[NewPrompt<'_, S, V>]) -> Result<()> {
        let named: Vec<_> = prompts.iter().map(|prompt| (prompt.tokens, prompt.namespace)).collect();
        let lengths: Vec<_> = prompts.iter().map(|prompt| self.floor(prompt.tokens.len())).collect();
        let sharing = Sharing::of::<A, S>(&named, &lengths, self.page(), self.hash);
        for (i, prompt) in prompts.iter().enumerate() {
            let values = &prompt.values[..lengths[i]];
            let supply = Supply { values, base: 0, priority: prompt.priority, born: None, checked: false };
            let shared = sharing.shared()[i];
            if self.check_supply(&supply, shared).is_err() {
                let there = self.match_prefix(prompt.tokens, prompt.namespace).length.max(shared);
                self.check_supply(&supply, there).map_err(|error| error.in_prompt(i))?;
            }
        }
        Ok(())
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// The longest cached prefix of each prompt, as [`match_prefix`](Self::match_prefix) would find it, in the order of the
    /// prompts. A node that many of them pass through is looked up once.
    ///
    /// # Concurrency
    /// As for [`match_prefix`](Self::match_prefix). One guard is held for all, so memory of what others evict is held until
    /// the last prompt is through.
    ///
    /// # Examples
    /// ```
    /// # use radix_rs::{Namespace, RadixTree, TreeConfig};
    /// let tree: RadixTree = RadixTree::new(TreeConfig::default())?;
    /// let ns = Namespace::default();
    /// tree.insert(&[1, 2, 3][..], &[10, 11, 12], &ns)?;
    /// let found = tree.match_many(&[(&[1, 2, 9][..], &ns), (&[4][..], &ns), (&[1, 2, 3][..], &ns)]);
    /// assert_eq!(found.iter().map(|one| one.length()).collect::<Vec<_>>(), [2, 0, 3]);
    /// # Ok::<(), radix_rs::Error>(())
    /// ```
    pub fn match_many<S: Source<A> + ?Sized>(&self, prompts: &[(&S, &Namespace)]) -> Vec<Match<A, V>> {
        self.core.match_many(prompts)
    }

    /// Caches many prompts: the tree afterwards, its order of eviction included, and each result are what inserting one
    /// after the other in the order of the list gives. So of prompts that share something the first one's values are kept
    /// for it, and the later ones report it as there before.
    ///
    /// # Errors
    /// [`Error::InPrompt`] with the first prompt that [`insert`](Self::insert) would refuse; nothing has changed then.
    ///
    /// # Concurrency
    /// Values at positions that are cached are not looked at. If somebody evicts such a prefix between the check and the
    /// insert, and the values given for it are no pages, then that prompt is cached as far as the prefix is still there:
    /// [`Inserted::length`] says how far.
    ///
    /// # Examples
    /// ```
    /// # use radix_rs::{Namespace, NewPrompt, RadixTree, TreeConfig};
    /// let tree: RadixTree = RadixTree::new(TreeConfig::default())?;
    /// let ns = Namespace::default();
    /// let prompt = |tokens, values| NewPrompt { tokens, values, namespace: &ns, priority: 0 };
    /// let done = tree.insert_many(&[prompt(&[1, 2, 3][..], &[10, 11, 12]), prompt(&[1, 2, 9][..], &[20, 21, 22])])?;
    /// assert_eq!(done[1].cached_len, 2);
    /// assert_eq!(tree.cached_tokens(), 4);
    /// # Ok::<(), radix_rs::Error>(())
    /// ```
    pub fn insert_many<S: Source<A> + ?Sized>(&self, prompts: &[NewPrompt<'_, S, V>]) -> Result<Vec<Inserted>> {
        // All are looked at before any is stored. Most values are pages throughout; where some are not, what they are for may
        // be there already.
        let mut pages = true;
        let mut atoms = Vec::new();
        for (i, prompt) in prompts.iter().enumerate() {
            atoms.clear();
            self.check_lengths(prompt.tokens, prompt.values.len())
                .and_then(|()| prompt.tokens.copy_to(0..prompt.tokens.len(), &mut atoms))
                .map_err(|error| error.in_prompt(i))?;
            let values = &prompt.values[..self.core.floor(atoms.len())];
            let supply = Supply { values, base: 0, priority: 0, born: None, checked: false };
            pages &= self.core.check_supply(&supply, 0).is_ok();
        }
        if !pages {
            self.core.check_many(prompts)?;
        }
        let insert = |prompt: &NewPrompt<'_, S, V>| {
            let NewPrompt { tokens, values, namespace, priority } = *prompt;
            self.insert_prioritized(tokens, values, namespace, priority).unwrap_or_else(|_| {
                // What stood in for values that are no pages was evicted since they were looked at.
                let there = self.match_prefix(tokens, namespace);
                Inserted { cached_len: there.length, length: there.length, handle: there.handle }
            })
        };
        Ok(prompts.iter().map(insert).collect())
    }

    /// The order in which prompts that wait share most: depth first by the prefixes they share, heavier branches first, so
    /// that what a prompt leaves in the cache is used before it can be evicted. Of what weighs the same the first prompt
    /// decides, and prompts with the same pages stay in their order. A prompt that others go on from comes before them.
    ///
    /// Returns a permutation of `0..prompts.len()`. What prompts share counts whether or not it is cached yet: the first of
    /// them will bring it. [`cached_prefix_order`](Self::cached_prefix_order) counts what is cached only. Each prompt weighs
    /// 1, or what `weights` says.
    ///
    /// Reads each prompt once as far as it is shared, and costs O(n log n) besides.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there are not as many weights as prompts, or one is negative or not finite.
    ///
    /// # Examples
    /// ```
    /// # use radix_rs::{Namespace, RadixTree, TreeConfig};
    /// let tree: RadixTree = RadixTree::new(TreeConfig::default())?;
    /// let ns = Namespace::default();
    /// let prompts = [(&[1, 2][..], &ns), (&[7, 1], &ns), (&[1, 3], &ns), (&[7, 2], &ns), (&[7, 1, 5], &ns)];
    /// assert_eq!(tree.prefix_order(&prompts, None)?, [1, 4, 3, 0, 2]);
    /// # Ok::<(), radix_rs::Error>(())
    /// ```
    pub fn prefix_order<S: Source<A> + ?Sized>(
        &self,
        prompts: &[(&S, &Namespace)],
        weights: Option<&[f64]>,
    ) -> Result<Vec<usize>> {
        let lengths: Vec<_> = prompts.iter().map(|(tokens, _)| self.core.floor(tokens.len())).collect();
        self.order(prompts, &lengths, weights)
    }

    /// As [`prefix_order`](Self::prefix_order), but only the cached prefix of each prompt counts, as if the rest were not
    /// there: prompts that share nothing with the tree keep their order.
    ///
    /// # Errors
    /// As [`prefix_order`](Self::prefix_order).
    pub fn cached_prefix_order<S: Source<A> + ?Sized>(
        &self,
        prompts: &[(&S, &Namespace)],
        weights: Option<&[f64]>,
    ) -> Result<Vec<usize>> {
        let lengths: Vec<_> = self.match_many(prompts).iter().map(Match::length).collect();
        self.order(prompts, &lengths, weights)
    }

    fn order<S: Source<A> + ?Sized>(
        &self,
        prompts: &[(&S, &Namespace)],
        lengths: &[usize],
        weights: Option<&[f64]>,
    ) -> Result<Vec<usize>> {
        if let Some(weights) = weights {
            if weights.len() != prompts.len() {
                let text = format!("{} prompts, but {} weights", prompts.len(), weights.len());
                return Err(Error::InvalidInput(text));
            }
            if let Some(i) = weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
                return Err(Error::InvalidInput(format!("weights[{i}] is {}", weights[i])));
            }
        }
        let sharing = Sharing::of::<A, S>(prompts, lengths, self.core.page(), self.core.hash);
        Ok(sharing.depth_first(weights))
    }
}
