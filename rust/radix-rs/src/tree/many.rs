//! Many prompts in one call: what they share is walked once.
//!
//! The order of the prompts is found by the tree, and none has to be given: where prompts went on from a node is known to
//! those that come after, and prompts that are stored go down together, position by position.

use crate::sync::atomic::Ordering::*;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

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

    /// As [`descend`](Self::descend), with what is known of the way already.
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
    fn check_many<S: Source<A> + ?Sized>(&self, keys: &[Vec<A>], prompts: &[NewPrompt<'_, S, V>]) -> Result<()> {
        let named: Vec<_> = keys.iter().zip(prompts).map(|(key, prompt)| (&key[..], prompt.namespace)).collect();
        let lengths: Vec<_> = keys.iter().map(Vec::len).collect();
        let sharing = Sharing::of::<A, [A]>(&named, &lengths, self.page(), self.hash);
        for (i, prompt) in prompts.iter().enumerate() {
            let values = &prompt.values[..keys[i].len()];
            let supply = Supply { values, base: 0, priority: prompt.priority, born: None, checked: false };
            let shared = sharing.shared()[i];
            if self.check_supply(&supply, shared).is_err() {
                let there = self.match_prefix(&keys[i][..], prompt.namespace).length.max(shared);
                self.check_supply(&supply, there).map_err(|error| error.in_prompt(i))?;
            }
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
                let supply = Supply { values: &values[..keys[i].len()], base: 0, priority, born: None, checked: false };
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
