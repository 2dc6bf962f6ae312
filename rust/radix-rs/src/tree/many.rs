//! Many prompts in one call: what they share is walked once.
//!
//! All prompts go down the tree together. At a node they part by the child each goes on to, so a node is looked at once
//! for all prompts that pass through it, and the order in which prompts are looked at is the tree's own.

use crate::sync::atomic::Ordering::*;
use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use super::sharing::Sharing;
use super::{Below, Core, Inserted, Match, RadixTree, Segment, Supply};
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

/// Prompts by namespace, namespaces in the order of their first prompts.
fn by_namespace<'a>(spaces: impl Iterator<Item = &'a Namespace>) -> Vec<(&'a Namespace, Vec<u32>)> {
    let mut groups: Vec<(&Namespace, Vec<u32>)> = Vec::new();
    let mut places: HashMap<Option<&[u8]>, usize> = HashMap::new();
    let mut last: Option<usize> = None;
    for (prompt, ns) in spaces.enumerate() {
        let place = match last {
            Some(place) if groups[place].0 == ns => place,
            _ => *places.entry(ns.as_bytes()).or_insert_with(|| {
                groups.push((ns, Vec::new()));
                groups.len() - 1
            }),
        };
        groups[place].1.push(prompt as u32);
        last = Some(place);
    }
    groups
}

/// What became of a prompt at a node.
enum Step {
    /// It goes on below this child, which ends at this depth.
    On(u32, usize),
    /// This much was there, and it ends at this node now.
    Done(usize, u32),
    /// The new values are no pages, and what stood in for some of them was evicted meanwhile: it ends here.
    Short,
    /// The node changed under it.
    Lost,
}

impl<A: Atom, V: Value> Core<A, V> {
    fn match_many<S: Source<A> + ?Sized>(&self, prompts: &[(&S, &Namespace)]) -> Vec<Match<A, V>> {
        let guard = self.guard();
        let top = self.handle(self.root(), 0);
        let nothing = || Match { length: 0, segments: SmallVec::new(), handle: top };
        let mut found: Vec<_> = prompts.iter().map(|_| nothing()).collect();
        // Groups are ranges of `order`.
        let mut order = Vec::with_capacity(prompts.len());
        let mut todo = Vec::new();
        for (ns, members) in by_namespace(prompts.iter().map(|prompt| prompt.1)) {
            let Some(space) = self.find_space(ns, &guard) else { continue };
            for &prompt in &members {
                found[prompt as usize].handle = self.handle(space, 0);
            }
            let word = self.nodes.get(space).load();
            if !word.dead() {
                let start = order.len();
                order.extend(members);
                todo.push((self.body(word, &guard), 0, start..order.len()));
            }
        }
        let mut onward: Vec<(u32, &BodyData<A, V>, u32)> = Vec::new();
        while let Some((body, at, range)) = todo.pop() {
            if let [alone] = order[range.clone()] {
                self.descend(prompts[alone as usize].0, body, &mut found[alone as usize], &guard);
                continue;
            }
            onward.clear();
            let mut last = None;
            for &prompt in &order[range.clone()] {
                let key = prompts[prompt as usize].0;
                let upto = self.floor(key.len());
                if at == upto {
                    continue;
                }
                // Mostly it goes where the one before it went: then there is nothing to look up.
                let again = last.and_then(|(node, child)| Some((node, child, self.shares(child, key, at, upto)?)));
                let Some((node, child, common)) = again.or_else(|| self.child(body, key, at, upto, &guard)) else {
                    continue;
                };
                last = Some((node, child));
                let found = &mut found[prompt as usize];
                found.segments.extend(Segment::of(child, 0, common));
                found.length += common;
                found.handle = self.handle(node, found.length);
                if common == child.len as usize {
                    onward.push((node, child, prompt));
                }
            }
            // A child that was cut between two looks counts as two.
            onward.sort_by_key(|&(node, child, _)| (node, std::ptr::from_ref(child) as usize));
            let mut start = range.start;
            for group in onward.chunk_by(|a, b| a.0 == b.0 && std::ptr::eq(a.1, b.1)) {
                let stop = start + group.len();
                for (place, &(_, _, prompt)) in order[start..stop].iter_mut().zip(group) {
                    *place = prompt;
                }
                todo.push((group[0].1, at + group[0].1.len as usize, start..stop));
                start = stop;
            }
        }
        found
    }

    /// Values at new positions must be pages; which positions are new is looked up beforehand, so that a refusal changes
    /// nothing.
    fn check_many<S: Source<A> + ?Sized>(&self, keys: &[Vec<A>], prompts: &[NewPrompt<'_, S, V>]) -> Result<()> {
        let named: Vec<_> = keys.iter().zip(prompts).map(|(key, prompt)| (&key[..], prompt.namespace)).collect();
        let lengths: Vec<_> = keys.iter().map(Vec::len).collect();
        let sharing = Sharing::of::<A, [A]>(&named, &lengths, self.page(), self.hash);
        let found = self.match_many(&named);
        for (i, prompt) in prompts.iter().enumerate() {
            let there = found[i].length.max(sharing.shared()[i]);
            let values = &prompt.values[..keys[i].len()];
            let supply = Supply { values, base: 0, priority: prompt.priority, checked: false };
            self.check_supply(&supply, there).map_err(|error| error.in_prompt(i))?;
        }
        Ok(())
    }

    /// Every position of the tree sees the prompts that pass through it in the caller's order; so what they leave behind is
    /// what one insert after the other would leave. `waiting` has the prompts by the depth they have come to, the shallowest
    /// first: then nobody comes to a position after it was left.
    fn insert_many<S: Source<A> + ?Sized>(&self, keys: &[Vec<A>], prompts: &[NewPrompt<'_, S, V>]) -> Vec<Inserted> {
        let guard = self.guard();
        let now = self.clock.fetch_add(prompts.len() as u64, Relaxed);
        let nothing = Inserted { cached_len: 0, length: 0, handle: self.handle(self.root(), 0) };
        let mut done = vec![nothing; prompts.len()];
        let mut waiting: BTreeMap<usize, Vec<(u32, u32)>> = BTreeMap::new();
        for (ns, mut members) in by_namespace(prompts.iter().map(|prompt| prompt.namespace)) {
            members.retain(|&prompt| !keys[prompt as usize].is_empty());
            if let Some(&last) = members.last() {
                let space = self.make_space(ns, &guard);
                if !ns.is_default() {
                    self.stamp(space, now + u64::from(last), &guard);
                }
                waiting.entry(0).or_default().extend(members.into_iter().map(|prompt| (space, prompt)));
            }
        }
        let mut lost = Vec::new();
        while let Some((at, mut here)) = waiting.pop_first() {
            // Who waits at a node that was cut since waits at its lower half.
            here.retain_mut(|(node, prompt)| match self.ending_at(*node, at, &guard) {
                Some(end) => {
                    *node = end;
                    true
                }
                None => {
                    lost.push(*prompt);
                    false
                }
            });
            here.sort_unstable();
            for (node, prompt) in here {
                let i = prompt as usize;
                let NewPrompt { values, namespace, priority, .. } = prompts[i];
                let supply = Supply { values: &values[..keys[i].len()], base: 0, priority, checked: false };
                match self.step(node, at, &keys[i], now + u64::from(prompt), &supply, namespace, &guard) {
                    Step::On(child, end) => waiting.entry(end).or_default().push((child, prompt)),
                    Step::Done(cached_len, node) => {
                        let length = keys[i].len();
                        done[i] = Inserted { cached_len, length, handle: self.handle(node, length) };
                    }
                    Step::Short => {
                        done[i] = Inserted { cached_len: at, length: at, handle: self.handle(node, at) };
                    }
                    Step::Lost => lost.push(prompt),
                }
            }
            for prompt in lost.drain(..) {
                let space = self.make_space(prompts[prompt as usize].namespace, &guard);
                waiting.entry(0).or_default().push((space, prompt));
            }
        }
        done
    }
}

impl<A: Atom, V: Value> Core<A, V> {
    /// The live node that ends at depth `at`: `node`, or the tail of it that does after cuts.
    fn ending_at(&self, mut node: u32, at: usize, guard: &Guard<'_>) -> Option<u32> {
        loop {
            let word = self.load(node, guard);
            if !word.live() {
                if word.moved() {
                    self.resolve(node, guard);
                }
                return None;
            }
            let body = self.body(word, guard);
            match (body.end as usize).cmp(&at) {
                std::cmp::Ordering::Equal => return Some(node),
                std::cmp::Ordering::Greater => return None,
                std::cmp::Ordering::Less if body.tail == 0 => return None,
                std::cmp::Ordering::Less => node = body.tail,
            }
        }
    }

    /// One prompt at the end of one node: what [`insert`](RadixTree::insert) does there.
    #[expect(clippy::too_many_arguments, reason = "one step of the walk, with its whole state")]
    fn step(
        &self,
        node: u32,
        at: usize,
        key: &[A],
        now: u64,
        supply: &Supply<'_, V>,
        ns: &Namespace,
        guard: &Guard<'_>,
    ) -> Step {
        if at == key.len() {
            return Step::Done(at, node);
        }
        loop {
            let word = self.load(node, guard);
            if !word.live() || self.body(word, guard).end as usize != at {
                return Step::Lost;
            }
            match self.below(self.body(word, guard), key, at, key.len(), guard) {
                Below::Again => {}
                Below::Nothing(dead) => {
                    if self.check_supply(supply, at).is_err() {
                        return Step::Short;
                    }
                    if let Some(leaf) = self.attach(node, word, dead, key, at, 0, now, supply, ns, guard) {
                        return Step::Done(at, leaf);
                    }
                }
                Below::Child(found) if found.common == self.body(found.word, guard).len as usize => {
                    self.stamp(found.node, now, guard);
                    return Step::On(found.node, at + found.common);
                }
                Below::Child(found) => {
                    let stop = at + found.common;
                    if stop == key.len() {
                        if self.mark(&found, at, now, guard) {
                            return Step::Done(stop, found.node);
                        }
                    } else if self.check_supply(supply, stop).is_err() {
                        // What there is of it is there; its use is not marked.
                        return Step::Short;
                    } else if let Ok(Some(leaf)) = self.split(&found, false, Some((key, supply)), at, now, ns, guard) {
                        return Step::Done(stop, leaf.expect("a split with a rest gives a leaf"));
                    }
                }
            }
        }
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// The longest cached prefix of each prompt, as [`match_prefix`](Self::match_prefix) would find it, in the order of the
    /// prompts. A node that many of them pass through is looked up once.
    ///
    /// # Concurrency
    /// As for [`match_prefix`](Self::match_prefix); every prompt that passes through an edge sees the same state of it.
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
        let key = |(i, prompt): (usize, &NewPrompt<'_, S, V>)| {
            self.whole_pages(prompt.tokens, prompt.values.len()).map_err(|error| error.in_prompt(i))
        };
        let keys: Vec<Vec<A>> = prompts.iter().enumerate().map(key).collect::<Result<_>>()?;
        self.core.check_many(&keys, prompts)?;
        Ok(self.core.insert_many(&keys, prompts))
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
