//! The life of one request: its tokens, the prefix it shares, and the slots that are its own.

use crate::sync::atomic::Ordering::*;
use std::ops::Range;

use crate::cache::{PrefixCache, TREE};
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::key::{Atom, Source};
use crate::namespace::Namespace;
use crate::row::{Row, RowView};
use crate::tree::{Lease, Segment};

/// Rows of pools up to this many slots never move, so that every view of one stays live.
const ROW_CAPACITY: usize = 1 << 20;

/// Branches of one fork: a bound on what one call may allocate.
const MAX_BRANCHES: usize = 1 << 16;

/// A request in progress. Dropping it gives back everything that is its own; what it published stays cached.
///
/// Positions `0..num_published` of its row are slots of the tree, kept by a lease; the rest are its own.
///
/// # Concurrency
/// `Send`: it may move between threads, but one thread uses it at a time (`&mut self`). Sequences of the same cache work side
/// by side.
///
/// # Examples
/// ```
/// use radix_rs::{CacheConfig, Namespace, PrefixCache};
/// let cache: PrefixCache = PrefixCache::new(CacheConfig { num_slots: 64, page_size: 4, ..Default::default() })?;
/// let mut sequence = cache.begin(&[1, 2, 3, 4, 5][..], &Namespace::default())?;
/// sequence.reserve(5)?;
/// sequence.commit(5)?; // the first page is shared from now on, the fifth token is not a whole page yet
/// assert_eq!(sequence.num_published(), 4);
/// let mut branches = sequence.fork(2, None)?;
/// assert_eq!(branches[0].copies(), [(4, 8)]); // the K and V of the fifth token have to be copied
/// # Ok::<(), radix_rs::Error>(())
/// ```
pub struct Sequence<A: Atom = u32> {
    cache: PrefixCache<A>,
    ns: Namespace,
    priority: i32,
    serial: u32,
    tokens: Vec<A>,
    row: Row,
    own_row: bool,
    /// One entry for each page of the row; only for pages of more than one slot.
    table: Option<Row>,
    lease: Option<Lease<A, i32>>,
    /// Its own pages, for positions from `num_published` on. The row only shows them: a caller may write to it at will.
    own: Vec<u32>,
    cached_len: usize,
    computed: usize,
    reserved: usize,
    copies: Vec<(i32, i32)>,
}

impl<A: Atom> std::fmt::Debug for Sequence<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence")
            .field("num_tokens", &self.tokens.len())
            .field("cached_len", &self.cached_len)
            .field("num_computed", &self.computed)
            .field("num_reserved", &self.reserved)
            .field("num_published", &self.num_published())
            .finish()
    }
}

impl<A: Atom> Sequence<A> {
    pub(crate) fn begin<S: Source<A> + ?Sized>(
        cache: &PrefixCache<A>,
        source: &S,
        ns: &Namespace,
        row: Option<Row>,
        priority: i32,
    ) -> Result<Self> {
        let shared = &cache.shared;
        let mut tokens = Vec::with_capacity(source.len());
        source.copy_to(0..source.len(), &mut tokens)?;
        let upto = tokens.len().saturating_sub(1) & !(shared.page() - 1);
        let upto = if shared.enabled { upto } else { 0 };
        let fits = |length: usize| match &row {
            Some(row) if length > row.capacity() => Err(Error::InvalidInput(format!(
                "the row has room for {} slots, but {length} tokens are cached",
                row.capacity()
            ))),
            _ => Ok(()),
        };
        if row.is_some() {
            // before anything is stamped
            fits(shared.tree.match_prefix(&tokens[..upto], ns).length())?;
        }
        let lease = shared.tree.core.lock_upto(&tokens[..], upto, ns)?;
        fits(lease.length())?;
        let own_row = row.is_none();
        let capacity = shared.pool.num_slots().min(ROW_CAPACITY.max(2 * tokens.len()));
        let row = row.unwrap_or_else(|| Row::owned(capacity));
        let page = shared.page();
        let table = (page > 1).then(|| Row::owned(row.capacity().div_ceil(page)));
        shared.sequences.fetch_add(1, AcqRel);
        shared.queried.fetch_add(tokens.len(), Relaxed);
        shared.hit.fetch_add(lease.length(), Relaxed);
        let length = lease.length();
        let mut sequence = Sequence {
            cache: cache.clone(),
            ns: ns.clone(),
            priority,
            serial: shared.next_serial(),
            tokens,
            row,
            own_row,
            table,
            lease: None,
            own: Vec::new(),
            cached_len: length,
            computed: length,
            reserved: 0, // the row is written first
            copies: Vec::new(),
        };
        sequence.show(0, &lease.segments());
        sequence.reserved = length;
        sequence.lease = Some(lease);
        Ok(sequence)
    }

    /// Writes views of the tree into the row from `at` on; returns the range of positions that changed.
    fn show(&mut self, at: usize, segments: &[Segment<A, i32>]) -> Range<usize> {
        let (mut position, mut changed) = (at, usize::MAX..at);
        for segment in segments {
            let slots = segment.as_slice();
            let known = self.reserved.saturating_sub(position).min(slots.len());
            for (i, &slot) in slots[..known].iter().enumerate() {
                if self.row.get(position + i) != slot {
                    changed.start = changed.start.min(position + i);
                    changed.end = position + i + 1;
                    self.write(position + i, slot);
                }
            }
            if known < slots.len() {
                self.write_all(position + known, &slots[known..]);
                changed = changed.start.min(position + known)..position + slots.len();
            }
            position += slots.len();
        }
        if changed.start == usize::MAX { position..position } else { changed }
    }

    /// Writes whole pages from a page boundary on.
    fn write_all(&self, position: usize, slots: &[i32]) {
        self.row.set_all(position, slots);
        let page = self.page();
        if let Some(table) = &self.table {
            for (i, slot) in slots.iter().step_by(page).enumerate() {
                table.set(position / page + i, slot / page as i32);
            }
        }
    }

    fn write(&self, position: usize, slot: i32) {
        self.row.set(position, slot);
        let page = self.page();
        if let Some(table) = &self.table
            && position.is_multiple_of(page)
        {
            table.set(position / page, slot / page as i32);
        }
    }

    fn page(&self) -> usize {
        self.cache.page_size()
    }

    fn floor(&self, n: usize) -> usize {
        n & !(self.page() - 1)
    }

    fn live(&self) -> Result<()> {
        match self.lease {
            Some(_) => Ok(()),
            None => Err(Error::Lease("the sequence is finished".into())),
        }
    }

    /// Tokens known: the prompt and what was appended.
    pub fn num_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens.
    pub fn tokens(&self) -> &[A] {
        &self.tokens
    }

    /// Prompt tokens that were found in the cache at the beginning.
    pub fn cached_len(&self) -> usize {
        self.cached_len
    }

    /// Tokens whose K and V exist.
    pub fn num_computed(&self) -> usize {
        self.computed
    }

    /// Tokens that have a slot.
    pub fn num_reserved(&self) -> usize {
        self.reserved
    }

    /// Leading tokens whose slots are the tree's.
    pub fn num_published(&self) -> usize {
        self.lease.as_ref().map_or(0, Lease::length)
    }

    /// What isolates the sequence.
    pub fn namespace(&self) -> &Namespace {
        &self.ns
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.lease.is_none()
    }

    /// For a forked sequence: `(source, destination)` slots whose K and V have to be copied before it is used.
    pub fn copies(&self) -> &[(i32, i32)] {
        &self.copies
    }

    /// The slots of tokens `0..num_reserved`, live: later changes show. A view stays valid after the sequence has ended. Beyond
    /// 2^20 slots a row of its own may have to move as it grows; a view taken before then no longer follows.
    pub fn row(&self) -> RowView {
        self.row.view(self.reserved)
    }

    /// `slot / page_size` of each page of the row, live like [`row`](Self::row).
    pub fn page_table(&self) -> RowView {
        match &self.table {
            Some(table) => table.view(self.reserved.div_ceil(self.page())),
            None => self.row(),
        }
    }

    /// The own slot of a position from `num_published` on.
    fn own_slot(&self, position: usize) -> i32 {
        let page = self.page();
        let own = self.own[(position - self.num_published()) / page] as usize;
        (own * page + position % page) as i32
    }

    fn give(&self, pages: Vec<u32>, after: Option<&Fence>) {
        let shared = &self.cache.shared;
        shared.held_pages.fetch_sub(pages.len(), AcqRel);
        if !pages.is_empty() {
            shared.give(pages, after);
        }
    }

    fn make_room(&mut self, length: usize) -> Result<()> {
        if length <= self.row.capacity() {
            return Ok(());
        }
        if !self.own_row {
            return Err(Error::InvalidInput(format!(
                "the row has room for {} slots, not for {length}",
                self.row.capacity()
            )));
        }
        let page = self.page();
        let room = (self.row.capacity() * 2).max(length).next_multiple_of(page);
        let (old, old_table) = (self.row.view(self.reserved), self.page_table());
        self.row = Row::owned(room);
        old.to_vec().into_iter().enumerate().for_each(|(at, slot)| self.row.set(at, slot));
        if page > 1 {
            let table = Row::owned(room / page);
            old_table.to_vec().into_iter().enumerate().for_each(|(at, p)| table.set(at, p));
            self.table = Some(table);
        }
        Ok(())
    }

    /// Finds slots for `num_tokens` more tokens; returns a view of exactly these. Free slots first, then what evicting gives,
    /// no more than the shortfall. What is left of a page serves the next call.
    ///
    /// # Errors
    /// [`Error::Capacity`], [`Error::InvalidInput`] if the caller's row is too short, [`Error::Lease`] after the end; nothing has
    /// changed then.
    pub fn reserve(&mut self, num_tokens: usize) -> Result<RowView> {
        self.live()?;
        let page = self.page();
        let (start, stop) = (self.reserved, self.reserved.saturating_add(num_tokens));
        if stop > i32::MAX as usize {
            return Err(Error::InvalidInput(format!("{num_tokens} more tokens are more than any pool holds")));
        }
        let needed = stop.saturating_sub(start.next_multiple_of(page)).div_ceil(page);
        self.check_room(stop)?;
        let mut pages = Vec::with_capacity(needed.min(self.cache.shared.pool.num_slots() / page));
        self.cache.shared.find_pages(needed, |p| pages.push(p as u32))?;
        self.make_room(stop)?;
        self.cache.shared.held_pages.fetch_add(pages.len(), AcqRel);
        for &p in &pages {
            self.cache.shared.set_owner(p as usize, self.serial);
        }
        self.own.extend(pages);
        for at in start..stop {
            self.write(at, self.own_slot(at));
        }
        self.reserved = stop;
        Ok(self.row.view(stop).slice(start..stop))
    }

    fn check_room(&self, length: usize) -> Result<()> {
        if self.own_row || length <= self.row.capacity() {
            return Ok(());
        }
        Err(Error::InvalidInput(format!("the row has room for {} slots, not for {length}", self.row.capacity())))
    }

    /// Records tokens that were sampled or received. May run ahead of slots or behind them.
    ///
    /// # Errors
    /// [`Error::InvalidToken`], [`Error::Lease`] after the end; nothing has changed then.
    pub fn append<S: Source<A> + ?Sized>(&mut self, tokens: &S) -> Result<()> {
        self.live()?;
        let before = self.tokens.len();
        if let Err(error) = tokens.copy_to(0..tokens.len(), &mut self.tokens) {
            self.tokens.truncate(before);
            return Err(error);
        }
        Ok(())
    }

    /// K and V exist for the first `num_computed` tokens: publishes the whole pages of these. Where the tree has a page already
    /// the row is repointed to the tree's slots and the own ones go back. Returns the range of the row that changed.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if that is more than is reserved, [`Error::PinOverflow`], [`Error::Lease`] after the end; nothing has
    /// changed then.
    pub fn commit(&mut self, num_computed: usize) -> Result<Range<usize>> {
        self.commit_after(num_computed, None)
    }

    /// As [`commit`](Self::commit); own slots that go back wait for a fence.
    ///
    /// # Errors
    /// As [`commit`](Self::commit), and [`Error::InvalidInput`] for a fence of another cache.
    pub fn commit_after(&mut self, num_computed: usize, after: Option<&Fence>) -> Result<Range<usize>> {
        self.live()?;
        self.check_fence(after)?;
        if num_computed > self.reserved {
            return Err(Error::InvalidInput(format!(
                "{num_computed} tokens computed, but only {} have slots",
                self.reserved
            )));
        }
        let before = self.computed;
        self.computed = self.computed.max(num_computed);
        self.publish(after).inspect_err(|_| self.computed = before)
    }

    fn publish(&mut self, after: Option<&Fence>) -> Result<Range<usize>> {
        let shared = self.cache.shared.clone();
        let start = self.num_published();
        let stop = self.floor(self.computed.min(self.tokens.len()));
        if stop <= start || !shared.enabled {
            return Ok(start..start);
        }
        let page = self.page();
        let own: Vec<i32> = (start..stop).map(|at| self.own_slot(at)).collect();
        let supply =
            crate::tree::Supply { values: &own, base: start, priority: self.priority, born: None, checked: true };
        let lease = self.lease.as_mut().expect("checked by live");
        let mut seen = Vec::new();
        // The tree owns the pages from the moment they are published: say so first.
        let num_pages = (stop - start) / page;
        self.own[..num_pages].iter().for_each(|&p| shared.set_owner(p as usize, TREE));
        let existed = match shared.tree.core.extend_lease(lease, &self.tokens[..stop], &supply, Some(&mut seen)) {
            Ok(existed) => existed,
            Err(error) => {
                self.own[..num_pages].iter().for_each(|&p| shared.set_owner(p as usize, self.serial));
                return Err(error);
            }
        };
        let shown: &[_] = if crate::sync::broken("a row shows what the tree has") { &[] } else { &seen };
        let changed = self.show(start, shown);
        let mut duplicates: Vec<u32> = self.own.drain(..num_pages).collect();
        duplicates.truncate((existed - start) / page);
        shared.held_pages.fetch_sub(num_pages - duplicates.len(), AcqRel);
        self.give(duplicates, after);
        Ok(if changed.is_empty() { stop..stop } else { changed })
    }

    /// Rolls back to the first `num_tokens` tokens: rejected drafts, edited streams. Own pages beyond them go back; published pages
    /// stay cached, and are no longer held by this sequence. A cut inside a published page goes back to where that page starts,
    /// since its slots are shared: the tokens up to the cut are known, and have to be computed again.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there are fewer tokens and slots, [`Error::PinOverflow`], [`Error::Lease`] after the end; nothing
    /// has changed then.
    pub fn truncate(&mut self, num_tokens: usize) -> Result<()> {
        self.truncate_after(num_tokens, None)
    }

    /// As [`truncate`](Self::truncate); slots that go back wait for a fence.
    ///
    /// # Errors
    /// As [`truncate`](Self::truncate), and [`Error::InvalidInput`] for a fence of another cache.
    pub fn truncate_after(&mut self, num_tokens: usize, after: Option<&Fence>) -> Result<()> {
        self.live()?;
        self.check_fence(after)?;
        let most = self.tokens.len().max(self.reserved);
        if num_tokens > most {
            return Err(Error::InvalidInput(format!("cannot keep {num_tokens} tokens of {most}")));
        }
        let published = self.num_published();
        let keep = if num_tokens < published { self.floor(num_tokens) } else { num_tokens };
        if let Some(lease) = &mut self.lease {
            lease.shrink(keep)?;
        }
        let kept = keep.saturating_sub(published).div_ceil(self.page());
        let pages = self.own.split_off(kept.min(self.own.len()));
        self.give(pages, after);
        self.tokens.truncate(num_tokens);
        self.reserved = self.reserved.min(keep);
        self.computed = self.computed.min(keep);
        self.cached_len = self.cached_len.min(self.num_published());
        Ok(())
    }

    /// Branches that share everything before `at` (default: all tokens). Published pages are shared; computed tokens behind them
    /// get slots of their own, and [`copies`](Self::copies) of the branch says what has to be copied there. All branches or none.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if `at` is beyond the tokens or `count` above 2^16, [`Error::Capacity`], [`Error::PinOverflow`], [`Error::Lease`] after the
    /// end. Publishing what can be published is all that may have changed then.
    pub fn fork(&mut self, count: usize, at: Option<usize>) -> Result<Vec<Sequence<A>>> {
        self.live()?;
        let at = at.unwrap_or(self.tokens.len());
        if at > self.tokens.len() {
            return Err(Error::InvalidInput(format!("cannot fork at {at}: there are {} tokens", self.tokens.len())));
        }
        if count > MAX_BRANCHES {
            return Err(Error::InvalidInput(format!(
                "cannot fork into {count} branches, at most {MAX_BRANCHES} at once"
            )));
        }
        self.publish(None)?;
        let shared = self.cache.shared.clone();
        let page = self.page();
        let length = self.floor(at.min(self.num_published()));
        let computed = at.min(length.max(self.computed));
        let pages_each = (computed - length).div_ceil(page);
        let mut leases = Vec::with_capacity(count);
        for _ in 0..count {
            leases.push(self.share(length)?);
        }
        let mut pages = Vec::new();
        shared.find_pages(pages_each * count, |p| pages.push(p))?;
        let mut held = vec![0; self.num_published()];
        self.lease.as_ref().expect("checked by live").write_values(&mut held, 0);
        let mut pages = pages.into_iter();
        let mut branches = Vec::with_capacity(leases.len());
        for lease in leases {
            let capacity = shared.pool.num_slots().min(ROW_CAPACITY.max(2 * at));
            let mut branch = Sequence {
                cache: self.cache.clone(),
                ns: self.ns.clone(),
                priority: self.priority,
                serial: shared.next_serial(),
                tokens: self.tokens[..at].to_vec(),
                row: Row::owned(capacity),
                own_row: true,
                table: (page > 1).then(|| Row::owned(capacity.div_ceil(page))),
                lease: None,
                own: Vec::with_capacity(pages_each),
                cached_len: length,
                computed,
                reserved: computed,
                copies: Vec::with_capacity(computed - length),
            };
            branch.write_all(0, &held[..length]);
            for first in (length..computed).step_by(page) {
                let p = pages.next().expect("as many pages as branches need");
                shared.set_owner(p, branch.serial);
                branch.own.push(p as u32);
                for position in first..computed.min(first + page) {
                    let slot = (p * page + position - first) as i32;
                    branch.write(position, slot);
                    let from = held.get(position).copied().unwrap_or_else(|| self.own_slot(position));
                    branch.copies.push((from, slot));
                }
            }
            shared.held_pages.fetch_add(pages_each, AcqRel);
            shared.sequences.fetch_add(1, AcqRel);
            lease.mark_used();
            branch.lease = Some(lease);
            branches.push(branch);
        }
        Ok(branches)
    }

    /// A lease of its own over the first `length` published tokens.
    fn share(&self, length: usize) -> Result<Lease<A, i32>> {
        let own = self.lease.as_ref().expect("checked by live");
        let mut lease = own.duplicate()?;
        lease.shrink(length)?;
        Ok(lease)
    }

    /// Ends the sequence: publishes the whole pages of what is computed, lets the prefix go and gives its own slots back.
    pub fn finish(mut self) {
        let closed = self.close(true, None);
        debug_assert!(closed.is_ok(), "only a foreign fence is refused");
    }

    /// As [`finish`](Self::finish); slots that go back wait for a fence.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a fence of another cache; then nothing is published and its slots go back at once.
    pub fn finish_after(mut self, after: Option<&Fence>) -> Result<()> {
        self.close(true, after)
    }

    /// Ends the sequence without publishing anything more. The same as dropping it.
    pub fn abort(self) {}

    /// As [`abort`](Self::abort); slots that go back wait for a fence.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a fence of another cache; then its slots go back at once.
    pub fn abort_after(mut self, after: Option<&Fence>) -> Result<()> {
        self.close(false, after)
    }

    /// Ends the sequence in place, for bindings that cannot give it up. Twice is harmless.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a fence of another cache; nothing has changed then.
    pub fn close(&mut self, publish: bool, after: Option<&Fence>) -> Result<()> {
        if self.lease.is_none() {
            return Ok(());
        }
        self.check_fence(after)?;
        if publish {
            // refused only if two hundred million sequences share a node; then the pages are simply not published
            let _ = self.publish(after);
        }
        let pages = std::mem::take(&mut self.own);
        self.lease = None;
        self.give(pages, after);
        self.reserved = 0;
        self.cache.shared.sequences.fetch_sub(1, AcqRel);
        Ok(())
    }

    fn check_fence(&self, after: Option<&Fence>) -> Result<()> {
        if after.is_none_or(|fence| fence.is_of(&self.cache.shared.pool)) {
            return Ok(());
        }
        Err(Error::InvalidInput("the fence is of another cache".into()))
    }
}

impl<A: Atom> Drop for Sequence<A> {
    fn drop(&mut self) {
        let closed = self.close(false, None);
        debug_assert!(closed.is_ok(), "only a foreign fence is refused");
    }
}
