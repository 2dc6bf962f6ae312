//! Who may use which slot: a bitmap of free pages.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::Arc;

use crate::error::{Error, Result};

struct Bits {
    /// One bit for each free page.
    words: Box<[AtomicU64]>,
    /// One bit for each word that may have a free page. A hint: when it finds nothing, all words are looked at.
    summary: Box<[AtomicU64]>,
    /// One bit for each page that somebody has. Clearing it is the right to give the page back, so of two who try one
    /// fails before anything else has changed.
    taken: Box<[AtomicU64]>,
    /// Free pages that no allocation has claimed yet. Never more than there are bits.
    free: AtomicUsize,
    num_pages: usize,
    page: usize,
}

/// The slots of a KV pool, handed out in aligned pages, lowest free pages first while nobody else works.
///
/// Cheap to clone: clones are the same pool.
///
/// # Concurrency
/// Lock-free. An allocation claims its number on a counter first and takes pages afterwards, so it either gets all of them or
/// changes nothing.
///
/// # Examples
/// ```
/// use radix_rs::{Error, SlotPool};
/// let pool = SlotPool::new(8, 4)?;
/// let slots = pool.alloc(5)?; // rounded up to two pages
/// assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7]);
/// assert!(matches!(pool.alloc(1), Err(Error::Capacity { needed: 4, free: 0, .. })));
/// pool.free(&slots[4..])?;
/// assert_eq!(pool.free(&slots[4..]), Err(Error::DoubleFree { slot: 4 }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct SlotPool {
    bits: Arc<Bits>,
}

impl std::fmt::Debug for SlotPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotPool").field("num_slots", &self.num_slots()).field("num_free", &self.num_free()).finish()
    }
}

fn filled(num_bits: usize) -> Box<[AtomicU64]> {
    (0..num_bits.div_ceil(64))
        .map(|i| {
            let bits = (num_bits - i * 64).min(64);
            AtomicU64::new(if bits == 64 { u64::MAX } else { (1 << bits) - 1 })
        })
        .collect()
}

impl Bits {
    /// Claims `n` pages on the counter.
    fn reserve(&self, n: usize) -> Result<()> {
        self.free.fetch_update(AcqRel, Acquire, |free| free.checked_sub(n)).map(drop).map_err(|free| Error::Capacity {
            needed: n * self.page,
            free: free * self.page,
            evictable: 0,
            protected: 0,
        })
    }

    /// Takes up to `most` of the lowest bits of a word.
    fn take(&self, word: usize, most: usize, mut take: impl FnMut(usize)) -> usize {
        let cell = &self.words[word];
        let mut have = cell.load(Acquire);
        loop {
            let mut chosen = have;
            if (have.count_ones() as usize) > most {
                chosen = 0;
                let mut rest = have;
                for _ in 0..most {
                    chosen |= rest & rest.wrapping_neg();
                    rest &= rest - 1;
                }
            }
            if chosen == 0 {
                return 0;
            }
            match cell.compare_exchange_weak(have, have & !chosen, AcqRel, Acquire) {
                Ok(_) => {
                    if have == chosen {
                        self.emptied(word);
                    }
                    self.taken[word].fetch_or(chosen, AcqRel);
                    let mut bits = chosen;
                    while bits != 0 {
                        take(word * 64 + bits.trailing_zeros() as usize);
                        bits &= bits - 1;
                    }
                    return chosen.count_ones() as usize;
                }
                Err(now) => have = now,
            }
        }
    }

    /// Clears the summary bit of a word that was just emptied. If a free came first, the second look finds its bits; if it
    /// comes later, it sets the summary bit itself.
    fn emptied(&self, word: usize) {
        let (cell, bit) = (&self.summary[word / 64], 1 << (word % 64));
        cell.fetch_and(!bit, SeqCst);
        if self.words[word].load(SeqCst) != 0 && !crate::sync::broken("an emptied word is looked at again") {
            cell.fetch_or(bit, SeqCst);
        }
    }

    /// Finds pages for a claim of `n`. There are at least as many bits as claims, so this ends; a scan that comes up short
    /// lost its bits to others, who have finished by that.
    fn claim(&self, mut n: usize, mut take: impl FnMut(usize)) {
        while n > 0 {
            for (i, cell) in self.summary.iter().enumerate() {
                let mut hints = cell.load(Acquire);
                while hints != 0 && n > 0 {
                    n -= self.take(i * 64 + hints.trailing_zeros() as usize, n, &mut take);
                    hints &= hints - 1;
                }
            }
            for word in 0..self.words.len() {
                if n == 0 {
                    return;
                }
                n -= self.take(word, n, &mut take);
            }
        }
    }

    /// Wins the right to give a page back.
    fn release(&self, page: usize) -> bool {
        let bit = 1 << (page % 64);
        self.taken[page / 64].fetch_and(!bit, AcqRel) & bit != 0
    }

    /// Marks a released page as free, before the counter says so.
    fn set(&self, page: usize) {
        let word = page / 64;
        self.words[word].fetch_or(1 << (page % 64), SeqCst);
        self.summary[word / 64].fetch_or(1 << (word % 64), SeqCst);
    }
}

impl SlotPool {
    /// A pool of `num_slots` free slots.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if `page_size` is not a power of two from 1 to 1024, or `num_slots` is not a positive multiple of
    /// it below 2^31.
    pub fn new(num_slots: usize, page_size: usize) -> Result<Self> {
        if !page_size.is_power_of_two() || page_size > 1024 {
            return Err(Error::InvalidInput(format!(
                "page_size is {page_size}; it must be a power of two from 1 to 1024"
            )));
        }
        if num_slots == 0 || !num_slots.is_multiple_of(page_size) || num_slots > i32::MAX as usize {
            return Err(Error::InvalidInput(format!(
                "num_slots is {num_slots}; it must be a positive multiple of page_size {page_size} below 2^31"
            )));
        }
        let num_pages = num_slots / page_size;
        let words = filled(num_pages);
        let summary = filled(words.len());
        let taken = words.iter().map(|_| AtomicU64::new(0)).collect();
        let free = AtomicUsize::new(num_pages);
        Ok(SlotPool { bits: Arc::new(Bits { words, summary, taken, free, num_pages, page: page_size }) })
    }

    /// Slots in all.
    pub fn num_slots(&self) -> usize {
        self.bits.num_pages * self.bits.page
    }

    /// Slots that an allocation may take now.
    pub fn num_free(&self) -> usize {
        self.bits.free.load(Acquire) * self.bits.page
    }

    /// Slots per page.
    pub fn page_size(&self) -> usize {
        self.bits.page
    }

    /// Takes slots for `num_tokens`, rounded up to whole pages.
    ///
    /// # Errors
    /// [`Error::Capacity`]; then nothing was taken.
    pub fn alloc(&self, num_tokens: usize) -> Result<Vec<i32>> {
        let page = self.bits.page;
        let pages = num_tokens.div_ceil(page);
        self.bits.reserve(pages)?;
        let mut slots = Vec::with_capacity(pages * page);
        self.bits.claim(pages, |p| slots.extend((p * page..(p + 1) * page).map(|slot| slot as i32)));
        Ok(slots)
    }

    /// As [`alloc`](Self::alloc), into the caller's memory, whose length must be a multiple of the page size.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a length that is not, [`Error::Capacity`].
    pub fn alloc_into(&self, out: &mut [i32]) -> Result<()> {
        let page = self.bits.page;
        if !out.len().is_multiple_of(page) {
            return Err(Error::InvalidInput(format!("{} slots are not whole pages of {page}", out.len())));
        }
        self.bits.reserve(out.len() / page)?;
        let mut groups = out.chunks_exact_mut(page);
        self.bits.claim(groups.len(), |p| {
            let group = groups.next().expect("as many groups as pages");
            group.iter_mut().enumerate().for_each(|(i, slot)| *slot = (p * page + i) as i32);
        });
        Ok(())
    }

    /// Gives whole pages back: the slots of a page one after the other, pages in any order.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for slots outside the pool or a torn page, [`Error::DoubleFree`] for a page that is free already or
    /// stands twice in the input; then nothing was given back.
    pub fn free(&self, slots: &[i32]) -> Result<()> {
        let page = self.bits.page;
        if !slots.len().is_multiple_of(page) {
            return Err(Error::InvalidInput(format!("{} slots are not whole pages of {page}", slots.len())));
        }
        for (i, group) in slots.chunks_exact(page).enumerate() {
            let first = group[0];
            let wrong = first < 0
                || first as usize >= self.num_slots()
                || !(first as usize).is_multiple_of(page)
                || group.iter().enumerate().any(|(j, &slot)| slot != first + j as i32);
            if wrong {
                return Err(Error::InvalidInput(format!(
                    "slot {first} and the {} after it at position {} are not a page of {page} slots of a pool of {}",
                    page - 1,
                    i * page,
                    self.num_slots()
                )));
            }
        }
        let pages = || slots.chunks_exact(page).map(|group| group[0] as usize / page);
        for (i, p) in pages().enumerate() {
            if !self.bits.release(p) {
                for q in pages().take(i) {
                    self.bits.taken[q / 64].fetch_or(1 << (q % 64), AcqRel);
                }
                return Err(Error::DoubleFree { slot: (p * page) as i32 });
            }
        }
        pages().for_each(|p| self.bits.set(p));
        self.bits.free.fetch_add(slots.len() / page, AcqRel);
        Ok(())
    }

    /// Whether the other one is a clone of this.
    pub(crate) fn is(&self, other: &SlotPool) -> bool {
        Arc::ptr_eq(&self.bits, &other.bits)
    }

    /// Whether a page is free.
    pub(crate) fn is_free(&self, page: usize) -> bool {
        self.bits.words[page / 64].load(Acquire) & (1 << (page % 64)) != 0
    }

    /// Takes `n` pages if there are as many; returns how many there were otherwise.
    pub(crate) fn take_pages(&self, n: usize, take: impl FnMut(usize)) -> std::result::Result<(), usize> {
        self.bits.free.fetch_update(AcqRel, Acquire, |free| free.checked_sub(n)).map(drop)?;
        self.bits.claim(n, take);
        Ok(())
    }

    /// Takes as many pages as there are, up to `n`.
    pub(crate) fn take_some(&self, n: usize, take: impl FnMut(usize)) -> usize {
        let mut got = 0;
        let _ = self.bits.free.fetch_update(AcqRel, Acquire, |free| {
            got = free.min(n);
            Some(free - got)
        });
        self.bits.claim(got, take);
        got
    }

    /// Gives a page back that the caller owns.
    pub(crate) fn give(&self, page: usize) {
        assert!(self.bits.release(page), "page {page} was given back twice");
        self.bits.set(page);
        self.bits.free.fetch_add(1, AcqRel);
    }

    /// Checks that the counter and the bitmap agree.
    ///
    /// # Errors
    /// [`Error::Integrity`].
    ///
    /// # Concurrency
    /// Only meaningful at rest.
    pub fn check(&self) -> Result<()> {
        let bits: usize = self.bits.words.iter().map(|w| w.load(Acquire).count_ones() as usize).sum();
        let free = self.bits.free.load(Acquire);
        if bits != free {
            return Err(Error::Integrity(format!("{bits} pages are marked free, but {free} are counted")));
        }
        for (word, cell) in self.bits.words.iter().enumerate() {
            let hint = self.bits.summary[word / 64].load(Acquire) & (1 << (word % 64)) != 0;
            if cell.load(Acquire) != 0 && !hint {
                return Err(Error::Integrity(format!("pages of word {word} are free, but the summary hides them")));
            }
        }
        Ok(())
    }
}
