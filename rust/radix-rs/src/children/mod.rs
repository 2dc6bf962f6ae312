//! The children of a branch point: an immutable table sorted by key. Up to 128 of them are one page; more are the leaves
//! of a tree of pages, so that a change costs about the same however many there are.
//!
//! Changing one child makes new pages on the way down to it and shares all others with the old table. There is no
//! reference count: a table belongs to the newest body of its node. Whoever publishes a changed table owes the
//! [`Scrap`] of the old one to the epochs; whoever fails to publish it frees what it made.

mod cursor;
mod page;
#[cfg(test)]
mod tests;

use std::ptr::{NonNull, null_mut};

use smallvec::SmallVec;

use cursor::Cursor;
pub(crate) use page::{Entry, Page};
use page::{INNER, LEAF, View};

type Pages = SmallVec<[NonNull<Page>; 6]>;

/// A table that may be read for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Children<'a>(View<'a>);

/// What a table that was replaced no longer shares with its successor: a page, with all that it was left.
pub(crate) struct Scrap(NonNull<Page>);

/// A changed table, not yet published.
pub(crate) struct Change {
    pub(crate) new: *mut Page,
    /// The pages of the new table that the old one does not share.
    fresh: Pages,
    /// The pages of the old table that the new one does not share.
    stale: Pages,
}

/// A table of one child.
pub(crate) fn one(key: u32, node: u32) -> *mut Page {
    page::leaf(&[&[Entry { key, node }]]).as_ptr()
}

/// A table of two children.
pub(crate) fn two(a: Entry, b: Entry) -> *mut Page {
    let pair = if a.key <= b.key { [a, b] } else { [b, a] };
    page::leaf(&[&pair]).as_ptr()
}

/// A table of any number of children, sorted by key, and its size in bytes. Its pages are half full, so that the next
/// children find room.
pub(crate) fn many(entries: &[Entry]) -> (*mut Page, usize) {
    debug_assert!(entries.is_sorted_by_key(|entry| entry.key));
    let part = if entries.len() <= LEAF { LEAF } else { LEAF / 2 };
    let mut pages: Vec<_> = entries.chunks(part).map(|entries| page::leaf(&[entries])).collect();
    let mut bytes = 0;
    loop {
        // SAFETY: just made, and nobody else knows them yet.
        let views: Vec<_> = pages.iter().map(|&page| unsafe { View::new(page) }).collect();
        bytes += views.iter().map(|view| view.size_bytes()).sum::<usize>();
        if pages.len() < 2 {
            return (pages.first().map_or(null_mut(), |page| page.as_ptr()), bytes);
        }
        let above = views.chunks(INNER / 2).zip(pages.chunks(INNER / 2)).map(|(views, pages)| {
            let firsts: SmallVec<[u32; INNER]> = views.iter().map(|view| view.first()).collect();
            page::inner(&[pages], &[&firsts], views.iter().map(|view| view.total()).sum())
        });
        pages = above.collect();
    }
}

impl<'a> Children<'a> {
    /// # Safety
    /// The table stays for `'a`, and so do all pages that it shares with others.
    #[inline]
    pub(crate) unsafe fn new(table: *mut Page) -> Option<Self> {
        // SAFETY: by contract.
        NonNull::new(table).map(|root| Children(unsafe { View::new(root) }))
    }

    pub(crate) fn len(self) -> usize {
        self.0.total() as usize
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Entry> + 'a {
        Cursor::first(self.0)
    }

    /// The node of the only child.
    pub(crate) fn only(self) -> Option<u32> {
        if self.len() == 1 { Some(self.0.entries()[0].node) } else { None }
    }

    /// All children with this key: usually none or one.
    #[inline]
    pub(crate) fn with_key(self, key: u32) -> impl Iterator<Item = u32> + 'a {
        Cursor::before(self.0, key).take_while(move |entry| entry.key == key).map(|entry| entry.node)
    }

    fn place(self, key: u32, node: u32) -> Option<Cursor<'a>> {
        let mut cursor = Cursor::before(self.0, key);
        loop {
            let entry = cursor.entry().filter(|entry| entry.key == key)?;
            if entry.node == node {
                return Some(cursor);
            }
            cursor.at += 1;
        }
    }

    pub(crate) fn contains(self, key: u32, node: u32) -> bool {
        self.place(key, node).is_some()
    }

    /// The table with one more child.
    pub(crate) fn with(self, key: u32, node: u32) -> Change {
        let cursor = Cursor::behind(self.0, key);
        let (low, high) = cursor.leaf.entries().split_at(cursor.at);
        let parts = [low, &[Entry { key, node }], high];
        let mut made = Pages::new();
        if low.len() + high.len() < LEAF {
            made.push(page::leaf(&parts));
        } else {
            let all = parts.concat();
            // Where keys come in ascending order, pages stay full.
            let cut = if high.is_empty() && cursor.on_last_page() { low.len() } else { all.len() / 2 };
            made.extend([page::leaf(&[&all[..cut]]), page::leaf(&[&all[cut..]])]);
        }
        rebuild(cursor, made)
    }

    /// The table without this child, or with `node` in its place; `None` if it is not there.
    pub(crate) fn replace(self, key: u32, old: u32, node: Option<u32>) -> Option<Change> {
        let cursor = self.place(key, old)?;
        let entries = cursor.leaf.entries();
        let (low, high) = (&entries[..cursor.at], &entries[cursor.at + 1..]);
        let mut made = Pages::new();
        match node {
            Some(node) => made.push(page::leaf(&[low, &[Entry { key, node }], high])),
            None if entries.len() > 1 => made.push(page::leaf(&[low, high])),
            None => {}
        }
        Some(rebuild(cursor, made))
    }

    pub(crate) fn size_bytes(self) -> usize {
        self.0.size_bytes()
    }

    /// Frees a table that nobody shares, with all its pages.
    ///
    /// # Safety
    /// Nobody may use the table or its pages any more.
    pub(crate) unsafe fn free_all(table: *mut Page) {
        let mut todo: Pages = NonNull::new(table).into_iter().collect();
        while let Some(page) = todo.pop() {
            // SAFETY: by contract still there, each page hangs below one other.
            unsafe {
                let view = View::new(page);
                if !view.is_leaf() {
                    todo.extend_from_slice(view.pages());
                }
                page::free(page);
            }
        }
    }
}

/// Puts the pages `made` in the place of the leaf page under the cursor: makes anew what is above it, up to the root.
fn rebuild(cursor: Cursor<'_>, made: Pages) -> Change {
    let last = cursor.on_last_page();
    let Cursor { mut way, leaf, .. } = cursor;
    let mut change = Change { new: null_mut(), fresh: made.clone(), stale: Pages::new() };
    change.stale.push(leaf.page());
    let (mut old, mut made) = (leaf, made);
    while let Some((above, at)) = way.pop() {
        let mut range = at..at + 1;
        if let [page] = made[..] {
            // SAFETY: it was made by this change.
            let page = unsafe { View::new(page) };
            if page.is_small()
                && page.len() < old.len()
                && let Some(beside) = neighbour(above, at, page)
            {
                let united = unite(above.child(beside), page, beside < at);
                change.unmake(page.page());
                change.fresh.push(united);
                change.stale.push(above.child(beside).page());
                made[0] = united;
                range = at.min(beside)..at.max(beside) + 1;
            }
        }
        made = splice(above, range, &made, last);
        change.fresh.extend_from_slice(&made);
        change.stale.push(above.page());
        old = above;
    }
    change.crown(&made);
    change
}

/// The place beside `at` of a page that has room for what is left of a small one.
fn neighbour(above: View<'_>, at: usize, small: View<'_>) -> Option<usize> {
    let room = |&beside: &usize| above.child(beside).len() + small.len() <= small.most() / 4 * 3;
    let right = Some(at + 1).filter(|&beside| beside < above.len());
    at.checked_sub(1).filter(room).or(right.filter(room))
}

/// One page with what two neighbours hold.
fn unite(kept: View<'_>, small: View<'_>, kept_first: bool) -> NonNull<Page> {
    let [a, b] = if kept_first { [kept, small] } else { [small, kept] };
    if a.is_leaf() {
        page::leaf(&[a.entries(), b.entries()])
    } else {
        page::inner(&[a.pages(), b.pages()], &[a.keys(), b.keys()], a.total() + b.total())
    }
}

/// The inner page with other pages in the place of those in `range`: none if that leaves nothing, two if it is too much.
fn splice(old: View<'_>, range: std::ops::Range<usize>, made: &[NonNull<Page>], last: bool) -> Pages {
    // SAFETY: they were made by this change, and what is below them stays as long as the old table.
    let views: SmallVec<[View<'_>; 2]> = made.iter().map(|&page| unsafe { View::new(page) }).collect();
    let firsts: SmallVec<[u32; 2]> = views.iter().map(|view| view.first()).collect();
    let gone: u32 = range.clone().map(|at| old.child(at).total()).sum();
    let below = old.total() - gone + views.iter().map(|view| view.total()).sum::<u32>();
    let pages = [&old.pages()[..range.start], made, &old.pages()[range.end..]];
    let keys = [&old.keys()[..range.start], &firsts[..], &old.keys()[range.end..]];
    let len = old.len() - range.len() + made.len();
    let mut new = Pages::new();
    if len > INNER {
        let (pages, keys) = (pages.concat(), keys.concat());
        let cut = if last { len - 1 } else { len / 2 };
        // SAFETY: as above.
        let upper: u32 = pages[cut..].iter().map(|&page| unsafe { View::new(page) }.total()).sum();
        new.push(page::inner(&[&pages[..cut]], &[&keys[..cut]], below - upper));
        new.push(page::inner(&[&pages[cut..]], &[&keys[cut..]], upper));
    } else if len > 0 {
        new.push(page::inner(&pages, &keys, below));
    }
    new
}

impl Change {
    /// Makes the root from what took the place of the old one.
    fn crown(&mut self, made: &[NonNull<Page>]) {
        // SAFETY: made by this change, or below such a page and shared with the old table.
        let view = |page: NonNull<Page>| unsafe { View::new(page) };
        let mut root = match *made {
            [] => return,
            [page] => page,
            [low, high] => {
                let below = view(low).total() + view(high).total();
                let root = page::inner(&[made], &[&[view(low).first(), view(high).first()]], below);
                self.fresh.push(root);
                root
            }
            _ => unreachable!("a page gives way to two at most"),
        };
        while !view(root).is_leaf() && view(root).len() == 1 {
            let only = view(root).child(0).page();
            if self.fresh.contains(&root) {
                self.unmake(root);
            } else {
                // neighbours take in such a page before it comes to this, as things are
                self.stale.push(root);
            }
            root = only;
        }
        self.new = root.as_ptr();
    }

    /// Frees a page that this change has made and no longer needs.
    fn unmake(&mut self, page: NonNull<Page>) {
        self.fresh.retain(|fresh| *fresh != page);
        // SAFETY: never published.
        unsafe { page::free(page) };
    }

    /// Bytes of the new table that the old one does not share.
    pub(crate) fn size_bytes(&self) -> usize {
        // SAFETY: made by this change and not published yet, or published under a guard that is still held.
        self.fresh.iter().map(|&page| unsafe { View::new(page) }.size_bytes()).sum()
    }

    /// The change was published: what the old table does not share is the epochs' now.
    pub(crate) fn published(self) -> Scrap {
        // At most two leaf pages, which go with the first inner one; each other inner page is left the one before.
        // SAFETY: the old table is still there: the guard under which it was replaced is held.
        let views = self.stale.iter().map(|&page| unsafe { View::new(page) });
        let mut dead = [null_mut(); 2];
        for (cell, leaf) in dead.iter_mut().zip(views.clone().filter(|view| view.is_leaf())) {
            *cell = leaf.page().as_ptr();
        }
        for inner in views.filter(|view| !view.is_leaf()) {
            // SAFETY: the caller alone replaced the table.
            unsafe { inner.bequeath(dead) };
            dead = [inner.page().as_ptr(), null_mut()];
        }
        Scrap(NonNull::new(dead[0]).expect("every change replaces a page"))
    }

    /// The change was not published: frees what it made.
    pub(crate) fn discard(self) {
        for page in self.fresh {
            // SAFETY: never published, made by this change; the other pages of its table belong to the old one.
            unsafe { page::free(page) };
        }
    }
}

impl Scrap {
    /// A table of one child, of which the successor shares nothing.
    pub(crate) fn whole(table: *mut Page) -> Option<Self> {
        NonNull::new(table).map(Scrap)
    }

    /// Returns the bytes that were freed.
    ///
    /// # Safety
    /// No guard may still reach the old table.
    pub(crate) unsafe fn free(self) -> usize {
        let mut bytes = 0;
        let mut todo = [self.0.as_ptr(), null_mut()];
        loop {
            let [next, leaf] = todo.map(NonNull::new);
            if let Some(leaf) = leaf {
                // SAFETY: by contract.
                bytes += unsafe { page::free(leaf) }.0;
            }
            let Some(next) = next else { return bytes };
            // SAFETY: by contract.
            let (size, dead) = unsafe { page::free(next) };
            bytes += size;
            todo = dead;
        }
    }
}
