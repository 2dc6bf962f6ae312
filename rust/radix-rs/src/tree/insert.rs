//! Adding what is not there yet, and marking what is as used.

use crate::sync::atomic::Ordering::*;

use super::{Below, Core, Found, Handle, Lease, RadixTree, Segment, Supply};
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::key::{Atom, Source, Value};
use crate::namespace::Namespace;
use crate::node::{Part, Usage};

/// What an insert found and did.
#[derive(Debug, Clone, Copy)]
pub struct Inserted {
    /// Leading atoms that were cached before. The caller's values for these were not taken.
    pub cached_len: usize,
    /// Atoms cached now: the input without its unaligned tail.
    pub length: usize,
    /// The end of what is cached now.
    pub handle: Handle,
}

impl<A: Atom, V: Value> Core<A, V> {
    /// Values of a page must be consecutive slots that start at a multiple of the page size.
    pub(crate) fn check_supply(&self, supply: &Supply<'_, V>, from: usize) -> Result<()> {
        if supply.checked {
            return Ok(());
        }
        let page = self.page();
        for (i, group) in supply.values[from - supply.base..].chunks_exact(page).enumerate() {
            let at = from + i * page;
            let Some(first) = group[0].slot() else { return Ok(()) };
            let wrong = if first < 0 || first % page as i64 != 0 {
                Some((0, first))
            } else {
                group
                    .iter()
                    .enumerate()
                    .find_map(|(j, v)| v.slot().filter(|&slot| slot != first + j as i64).map(|slot| (j, slot)))
            };
            if let Some((j, slot)) = wrong {
                return Err(Error::InvalidInput(format!(
                    "slot {slot} at position {}: the slots of a page must be consecutive, not negative, and start at a \
                     multiple of page_size {page}",
                    at + j
                )));
            }
        }
        Ok(())
    }

    /// Marks the first `common` atoms of an edge as used now, without splitting it.
    fn mark(&self, found: &Found, at: usize, now: u64, guard: &Guard<'_>) -> bool {
        let node = self.nodes.get(found.node);
        let body = self.body(found.word, guard);
        let end = (at + found.common) as u32;
        let own = node.usage();
        let parts = body.parts(own);
        let crossing = parts.iter().position(|part| part.end >= end).expect("the last part ends the edge");
        let base = self.inflation();
        let used = |part: &Part| {
            let usage = Usage { stamp: now, base, hits: part.usage.hits.saturating_add(1) };
            Part { end: part.end.min(end), usage }
        };
        let used =
            parts[..=crossing].iter().map(used).chain(parts.iter().copied().filter(|part| part.end > end)).collect();
        let mut data = body.again();
        self.set_parts(&mut data, used, own);
        let new_body = self.new_body(data);
        if node.swap(found.word, found.word.with_body(new_body)) {
            self.retire_body(found.word.body(), None, guard);
            // no change for the end of the edge, unless somebody used all of it since its stamp was read above
            self.requeue(found.node, guard);
            return true;
        }
        self.bodies.free(new_body);
        false
    }

    /// Marks a whole node as used now; a queued leaf moves in the order.
    fn stamp(&self, id: u32, now: u64, guard: &Guard<'_>) {
        self.nodes.get(id).mark(now, self.inflation(), 1);
        self.requeue(id, guard);
    }

    /// Moves the entry of a queued leaf to where its last use puts it.
    fn requeue(&self, id: u32, guard: &Guard<'_>) {
        let word = self.nodes.get(id).load();
        if word.live() && word.queued() && word.pins() == 0 && self.body(word, guard).is_leaf() {
            self.enqueue(id, false, guard);
        }
    }

    /// Walks along `key[..upto]` from the top, marking it as used; with a supply adds what is missing. Returns how much was
    /// there and the node where the path ends now.
    fn walk<S: Source<A> + ?Sized>(
        &self,
        key: &S,
        upto: usize,
        supply: Option<(&[A], &Supply<'_, V>)>,
        ns: &Namespace,
        guard: &Guard<'_>,
    ) -> Result<(usize, u32)> {
        let now = self.tick();
        'top: loop {
            let found = if supply.is_some() { Some(self.make_space(ns, guard)) } else { self.find_space(ns, guard) };
            let Some(mut node) = found else { return Ok((0, self.root())) };
            let mut at = 0;
            // a namespace is used with what is in it
            if !ns.is_default() {
                self.nodes.get(node).stamp.fetch_max(now, SeqCst);
                self.requeue(node, guard);
            }
            loop {
                let word = self.load(node, guard);
                if word.moved() {
                    self.resolve(node, guard);
                    continue 'top;
                }
                if word.dead() || self.body(word, guard).end as usize != at {
                    continue 'top; // changed under us
                }
                if at == upto {
                    if at > 0 {
                        self.stamp(node, now, guard);
                    }
                    return Ok((at, node));
                }
                match self.below(self.body(word, guard), key, at, upto, guard) {
                    Below::Again => {}
                    Below::Nothing(dead) => {
                        let Some((key, supply)) = supply else {
                            if at > 0 {
                                self.stamp(node, now, guard);
                            }
                            return Ok((at, node));
                        };
                        self.check_supply(supply, at)?;
                        if let Some(leaf) = self.attach(node, word, dead, key, at, 0, now, supply, ns, guard) {
                            self.stamp(node, now, guard);
                            return Ok((at, leaf));
                        }
                    }
                    Below::Child(found) if found.common == self.body(found.word, guard).len as usize => {
                        self.stamp(node, now, guard);
                        at += found.common;
                        node = found.node;
                    }
                    Below::Child(found) => {
                        let stop = at + found.common;
                        match supply {
                            Some((key, supply)) if stop < upto => {
                                self.check_supply(supply, stop)?;
                                let rest = Some((key, supply));
                                if let Some(leaf) = self.split(&found, false, rest, at, now, ns, guard)? {
                                    self.stamp(node, now, guard);
                                    return Ok((stop, leaf.expect("a split with a rest gives a leaf")));
                                }
                            }
                            _ => {
                                if self.mark(&found, at, now, guard) {
                                    self.stamp(node, now, guard);
                                    return Ok((stop, found.node));
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Grows a lease over `key` (whole pages, the lease's own atoms leading). Returns how far the path existed already;
    /// `seen` gets the views from the lease's old end to there.
    pub(crate) fn extend_lease(
        &self,
        lease: &mut Lease<A, V>,
        key: &[A],
        supply: &Supply<'_, V>,
        seen: Option<&mut Vec<Segment<A, V>>>,
    ) -> Result<usize> {
        let guard = self.guard();
        if lease.length == 0 && lease.path.first().is_some_and(|held| self.is_left_over(held.node)) {
            // It holds nothing but a namespace that a reset left behind: begin in the new tree.
            let path = std::mem::take(&mut lease.path);
            self.unpin(&path, &guard);
        }
        let before = lease.path.len();
        let now = self.tick();
        let rest = Some((key, &Supply { born: Some(lease.born), ..*supply }));
        match self.climb(&mut lease.path, key, key.len(), rest, now, &lease.ns, seen, &guard) {
            Ok(existed) => {
                self.stamp_held(&lease.path, now, 0, &guard);
                lease.length = key.len();
                Ok(existed)
            }
            Err(error) => {
                let extra: Vec<_> = lease.path.drain(before..).collect();
                self.unpin(&extra, &guard);
                Err(error)
            }
        }
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// Caches `tokens` with their `values`; what is cached already keeps its own values. An unaligned tail is dropped.
    ///
    /// Positions that are new need values that the tree does not hold elsewhere: this is the caller's side of "every slot
    /// has one owner" (`check` names a slot that is held twice).
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the lengths differ or new slots are not whole aligned pages, [`Error::InvalidToken`];
    /// nothing has changed then.
    pub fn insert<S: Source<A> + ?Sized>(&self, tokens: &S, values: &[V], ns: &Namespace) -> Result<Inserted> {
        self.insert_prioritized(tokens, values, ns, 0)
    }

    /// As [`insert`](Self::insert), with a priority for the nodes it makes.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_prioritized<S: Source<A> + ?Sized>(
        &self,
        tokens: &S,
        values: &[V],
        ns: &Namespace,
        priority: i32,
    ) -> Result<Inserted> {
        let guard = self.core.guard();
        // Most of what is inserted is there already: then nothing is copied.
        let upto = self.core.floor(tokens.len());
        if tokens.len() == values.len() && upto > 0 && self.core.reach(tokens, upto, ns, &guard) == upto {
            let (cached_len, node) = self.core.walk(tokens, upto, None, ns, &guard)?;
            if cached_len == upto {
                return Ok(Inserted { cached_len, length: upto, handle: self.core.handle(node, upto) });
            }
        }
        let key = self.whole_pages(tokens, values.len())?;
        let supply = Supply { values: &values[..key.len()], base: 0, priority, born: None, checked: false };
        if key.is_empty() {
            return Ok(Inserted { cached_len: 0, length: 0, handle: self.core.handle(self.core.root(), 0) });
        }
        if self.core.find_space(ns, &guard).is_none() {
            self.core.check_supply(&supply, 0)?; // before the namespace is made for it
        }
        let (cached_len, node) = self.core.walk(&key[..], key.len(), Some((&key, &supply)), ns, &guard)?;
        Ok(Inserted { cached_len, length: key.len(), handle: self.core.handle(node, key.len()) })
    }

    /// As [`insert`](Self::insert), starting at the end of `lease`, which must cover a leading part of `tokens` and covers
    /// all of them (in whole pages) afterwards. What another request inserted meanwhile keeps its values: read them from the
    /// lease.
    ///
    /// # Errors
    /// [`Error::Lease`] if the lease is of another tree or covers something else, and as [`insert`](Self::insert).
    pub fn insert_with<S: Source<A> + ?Sized>(
        &self,
        lease: &mut Lease<A, V>,
        tokens: &S,
        values: &[V],
        priority: i32,
    ) -> Result<Inserted> {
        if !std::sync::Arc::ptr_eq(&self.core, &lease.core) {
            return Err(Error::Lease("the lease belongs to another tree".into()));
        }
        let key = self.whole_pages(tokens, values.len())?;
        let guard = self.core.guard();
        let own = self.core.held_atoms(&lease.path, lease.length, &guard);
        if !key.starts_with(&own) {
            return Err(Error::Lease(format!(
                "the lease covers {} tokens that are not the first of these {}",
                lease.length,
                key.len()
            )));
        }
        drop(guard);
        let start = lease.length;
        let supply = Supply { values: &values[start..key.len()], base: start, priority, born: None, checked: false };
        let cached_len = self.core.extend_lease(lease, &key, &supply, None)?;
        Ok(Inserted { cached_len, length: key.len(), handle: lease.handle() })
    }

    /// Marks the cached prefix of `tokens` as used now, without a lease. Splits nothing.
    pub fn touch<S: Source<A> + ?Sized>(&self, tokens: &S, ns: &Namespace) {
        let guard = self.core.guard();
        let upto = self.core.floor(tokens.len());
        self.core.walk(tokens, upto, None, ns, &guard).expect("a walk without values has nothing to refuse");
    }

    pub(super) fn check_lengths<S: Source<A> + ?Sized>(&self, tokens: &S, num_values: usize) -> Result<()> {
        if tokens.len() != num_values {
            return Err(Error::InvalidInput(format!("{} tokens, but {num_values} slots", tokens.len())));
        }
        if tokens.len() >= u32::MAX as usize / 2 {
            return Err(Error::InvalidInput(format!("{} tokens are more than a path can hold", tokens.len())));
        }
        Ok(())
    }

    fn whole_pages<S: Source<A> + ?Sized>(&self, tokens: &S, num_values: usize) -> Result<Vec<A>> {
        self.check_lengths(tokens, num_values)?;
        let mut key = Vec::with_capacity(tokens.len());
        tokens.copy_to(0..tokens.len(), &mut key)?;
        key.truncate(self.core.floor(key.len()));
        Ok(key)
    }
}
