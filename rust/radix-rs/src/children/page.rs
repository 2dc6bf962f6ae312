//! The pages of a child table: immutable, each one allocation of exactly its size.
//!
//! A leaf page is `{ head, entries }`, an inner page `{ head, dead, pages, keys }`. A page of one or two entries takes the
//! smallest piece of memory that allocators hand out.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// A child: the key of its first page (or name), and its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: u32,
    pub(crate) node: u32,
}

/// Most entries of a leaf page. Small in our own tests, so that a few entries make a deep table.
pub(super) const LEAF: usize = if cfg!(test) { 8 } else { 128 };
/// Most pages below an inner page.
pub(super) const INNER: usize = if cfg!(test) { 8 } else { 64 };

/// The head of every page; what follows lies behind it in the same allocation.
#[repr(C)]
pub(crate) struct Page {
    /// Entries of a leaf page, pages below an inner one. Never 0.
    len: u32,
    /// Entries below an inner page; 0 for a leaf page.
    below: u32,
}

#[repr(C)]
struct Inner {
    head: Page,
    /// See [`View::bequeath`]. Readers never look at it.
    dead: UnsafeCell<[*mut Page; 2]>,
}

fn leaf_layout(len: usize) -> Layout {
    Layout::from_size_align(size_of::<Page>() + len * size_of::<Entry>(), align_of::<Page>()).expect("a page is small")
}

fn inner_layout(len: usize) -> Layout {
    let size = size_of::<Inner>() + len * (size_of::<*mut Page>() + size_of::<u32>());
    Layout::from_size_align(size, align_of::<Inner>()).expect("a page is small")
}

fn allocate(layout: Layout) -> NonNull<Page> {
    // SAFETY: no page is empty.
    let base = unsafe { alloc(layout) };
    let Some(page) = NonNull::new(base.cast::<Page>()) else { handle_alloc_error(layout) };
    #[cfg(test)]
    super::tests::made(page, layout.size());
    page
}

/// A leaf page with what the parts hold, in order.
pub(super) fn leaf(parts: &[&[Entry]]) -> NonNull<Page> {
    let len = parts.iter().map(|part| part.len()).sum();
    debug_assert!((1..=LEAF).contains(&len));
    let page = allocate(leaf_layout(len));
    // SAFETY: the layout has room for a head and `len` entries, and nobody else knows the page yet.
    unsafe {
        page.write(Page { len: len as u32, below: 0 });
        let mut to = page.add(1).cast::<Entry>();
        for part in parts {
            to.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
            to = to.add(part.len());
        }
    }
    page
}

/// An inner page above `below` entries with the pages and their lower bounds that the parts hold, in order.
pub(super) fn inner(pages: &[&[NonNull<Page>]], keys: &[&[u32]], below: u32) -> NonNull<Page> {
    let len = pages.iter().map(|part| part.len()).sum();
    debug_assert!((1..=INNER).contains(&len) && len == keys.iter().map(|part| part.len()).sum::<usize>());
    let page = allocate(inner_layout(len));
    // SAFETY: the layout has room for the head, `len` pages and `len` keys, in the order of their alignment, and nobody
    // else knows the page yet.
    unsafe {
        let head = Page { len: len as u32, below };
        page.cast::<Inner>().write(Inner { head, dead: UnsafeCell::new([null_mut(); 2]) });
        let mut to = page.cast::<Inner>().add(1).cast::<NonNull<Page>>();
        for part in pages {
            to.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
            to = to.add(part.len());
        }
        let mut to = to.cast::<u32>();
        for part in keys {
            to.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
            to = to.add(part.len());
        }
    }
    page
}

/// A page that may be read for `'a`.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    page: NonNull<Page>,
    life: PhantomData<&'a Page>,
}

impl<'a> View<'a> {
    /// # Safety
    /// The page and all below it stay for `'a`.
    pub(super) unsafe fn new(page: NonNull<Page>) -> Self {
        View { page, life: PhantomData }
    }

    pub(super) fn page(self) -> NonNull<Page> {
        self.page
    }

    fn head(self) -> &'a Page {
        // SAFETY: by the contract of `new`; heads are never written after the page was made.
        unsafe { self.page.as_ref() }
    }

    pub(super) fn is_leaf(self) -> bool {
        self.head().below == 0
    }

    /// Entries of a leaf page, pages below an inner one.
    pub(super) fn len(self) -> usize {
        self.head().len as usize
    }

    /// Entries in or below the page.
    pub(super) fn total(self) -> u32 {
        if self.is_leaf() { self.head().len } else { self.head().below }
    }

    /// No entry in or below the page has a smaller key.
    pub(super) fn first(self) -> u32 {
        if self.is_leaf() { self.entries()[0].key } else { self.keys()[0] }
    }

    /// So little is left that a neighbour should take it in.
    pub(super) fn is_small(self) -> bool {
        self.len() < self.most() / 4
    }

    /// As many as there may be.
    pub(super) fn most(self) -> usize {
        if self.is_leaf() { LEAF } else { INNER }
    }

    /// The entries of a leaf page.
    #[inline]
    pub(super) fn entries(self) -> &'a [Entry] {
        debug_assert!(self.is_leaf());
        // SAFETY: `leaf` wrote `len` of them behind the head, for good.
        unsafe { std::slice::from_raw_parts(self.page.add(1).cast().as_ptr(), self.len()) }
    }

    fn pages_at(self) -> NonNull<NonNull<Page>> {
        debug_assert!(!self.is_leaf());
        // SAFETY: inside the allocation of an inner page.
        unsafe { self.page.cast::<Inner>().add(1).cast() }
    }

    /// The pages below an inner page.
    #[inline]
    pub(super) fn pages(self) -> &'a [NonNull<Page>] {
        // SAFETY: `inner` wrote `len` of them, for good.
        unsafe { std::slice::from_raw_parts(self.pages_at().as_ptr(), self.len()) }
    }

    /// Their lower bounds.
    #[inline]
    pub(super) fn keys(self) -> &'a [u32] {
        // SAFETY: `inner` wrote `len` of them behind the pages, for good.
        unsafe { std::slice::from_raw_parts(self.pages_at().add(self.len()).cast().as_ptr(), self.len()) }
    }

    #[inline]
    pub(super) fn child(self, at: usize) -> View<'a> {
        // SAFETY: what is below a page stays as long as it.
        unsafe { View::new(self.pages()[at]) }
    }

    /// Leaves with an inner page that was replaced what went with it: at most one inner page, as the first of the two.
    ///
    /// # Safety
    /// The caller alone replaced the page, and it was not freed yet.
    pub(super) unsafe fn bequeath(self, dead: [*mut Page; 2]) {
        debug_assert!(!self.is_leaf());
        // SAFETY: by contract nobody else writes the cell, and readers never look at it.
        unsafe { self.page.cast::<Inner>().as_ref().dead.get().write(dead) };
    }

    fn layout(self) -> Layout {
        if self.is_leaf() { leaf_layout(self.len()) } else { inner_layout(self.len()) }
    }

    pub(super) fn size_bytes(self) -> usize {
        self.layout().size()
    }
}

/// Frees one page. Returns its size and what it was left, see [`View::bequeath`].
///
/// # Safety
/// Nobody may use the page any more.
pub(super) unsafe fn free(page: NonNull<Page>) -> (usize, [*mut Page; 2]) {
    // SAFETY: by contract it is still there.
    let view = unsafe { View::new(page) };
    let layout = view.layout();
    // SAFETY: an inner page has this cell, and it is ours alone now.
    let dead = if view.is_leaf() { [null_mut(); 2] } else { unsafe { *page.cast::<Inner>().as_ref().dead.get() } };
    #[cfg(test)]
    super::tests::freed(page, layout.size());
    // SAFETY: allocated in `allocate` with this layout.
    unsafe { dealloc(page.as_ptr().cast(), layout) };
    (layout.size(), dead)
}
