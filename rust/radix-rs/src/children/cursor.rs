//! A place in a child table, with the way down to it.

use smallvec::SmallVec;

use super::page::{Entry, View};

/// The inner pages on the way down, each with the place that was taken there.
pub(super) type Way<'a> = SmallVec<[(View<'a>, usize); 4]>;

/// An entry of a leaf page, or the end of one.
pub(super) struct Cursor<'a> {
    pub(super) way: Way<'a>,
    pub(super) leaf: View<'a>,
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    /// Before the first entry whose key is not below `key`.
    #[inline]
    pub(super) fn before(root: View<'a>, key: u32) -> Self {
        // An equal key may stand at the end of the page before the first one that begins with it.
        Self::descend(root, |keys| keys.partition_point(|&first| first < key).saturating_sub(1))
            .at(|entries| entries.partition_point(|entry| entry.key < key))
    }

    /// Behind the last entry whose key is not above `key`.
    pub(super) fn behind(root: View<'a>, key: u32) -> Self {
        Self::descend(root, |keys| keys.partition_point(|&first| first <= key).saturating_sub(1))
            .at(|entries| entries.partition_point(|entry| entry.key <= key))
    }

    /// Before everything.
    pub(super) fn first(root: View<'a>) -> Self {
        Self::descend(root, |_| 0)
    }

    #[inline]
    fn descend(root: View<'a>, choose: impl Fn(&[u32]) -> usize) -> Self {
        let (mut way, mut leaf) = (Way::new(), root);
        while !leaf.is_leaf() {
            let at = choose(leaf.keys());
            way.push((leaf, at));
            leaf = leaf.child(at);
        }
        Cursor { way, leaf, at: 0 }
    }

    #[inline]
    fn at(mut self, choose: impl Fn(&[Entry]) -> usize) -> Self {
        self.at = choose(self.leaf.entries());
        self
    }

    /// No page comes after this one.
    pub(super) fn on_last_page(&self) -> bool {
        self.way.iter().all(|&(inner, at)| at + 1 == inner.len())
    }

    /// Goes to the beginning of the next leaf page, if there is one.
    fn turn(&mut self) -> bool {
        let Some(up) = self.way.iter().rposition(|&(inner, at)| at + 1 < inner.len()) else { return false };
        self.way.truncate(up + 1);
        self.way[up].1 += 1;
        let (inner, at) = self.way[up];
        let mut leaf = inner.child(at);
        while !leaf.is_leaf() {
            self.way.push((leaf, 0));
            leaf = leaf.child(0);
        }
        (self.leaf, self.at) = (leaf, 0);
        true
    }

    /// The entry here, or the first one of the next page where this one is at its end.
    #[inline]
    pub(super) fn entry(&mut self) -> Option<Entry> {
        if self.at == self.leaf.len() && !self.turn() {
            return None;
        }
        Some(self.leaf.entries()[self.at])
    }
}

impl Iterator for Cursor<'_> {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        let entry = self.entry()?;
        self.at += 1;
        Some(entry)
    }
}
