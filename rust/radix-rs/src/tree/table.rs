//! Tables of children on their way into a body.

use crate::sync::atomic::Ordering::*;

use super::Core;
use crate::children::{self, Change, Children, Page, Scrap};
use crate::key::{Atom, Value};
use crate::node::BodyData;

/// A table that is about to be published.
pub(crate) enum TableChange {
    First(*mut Page),
    Changed(Change),
}

impl TableChange {
    pub(crate) fn table(&self) -> *mut Page {
        match self {
            TableChange::First(table) => *table,
            TableChange::Changed(change) => change.new,
        }
    }

    fn size_bytes(&self) -> usize {
        match self {
            // SAFETY: not published yet, or under a guard that is still held.
            TableChange::First(table) => unsafe { Children::new(*table) }.map_or(0, Children::size_bytes),
            TableChange::Changed(change) => change.size_bytes(),
        }
    }

    fn published(self) -> Option<Scrap> {
        match self {
            TableChange::First(_) => None,
            TableChange::Changed(change) => Some(change.published()),
        }
    }

    pub(crate) fn discard(self) {
        match self {
            // SAFETY: never published.
            TableChange::First(table) => unsafe { Children::free_all(table) },
            TableChange::Changed(change) => change.discard(),
        }
    }
}

impl<A: Atom, V: Value> Core<A, V> {
    /// A table was published: counts what it does not share with the old one. That is still held, and taken off when the
    /// epochs give it back: not before the guard goes that the caller has, so the meter never falls below what it counts.
    pub(crate) fn settle(&self, change: TableChange) -> Option<Scrap> {
        self.meter.fetch_add(change.size_bytes(), Relaxed);
        change.published()
    }

    /// The table of `body` with one more child, in the place of `dead` if there is one.
    pub(crate) fn with_child(&self, body: &BodyData<A, V>, key: u32, node: u32, dead: Option<u32>) -> TableChange {
        match (body.children(), dead) {
            (Some(table), Some(old)) => match table.replace(key, old, Some(node)) {
                Some(change) => TableChange::Changed(change),
                None => TableChange::Changed(table.with(key, node)),
            },
            (Some(table), None) => TableChange::Changed(table.with(key, node)),
            (None, _) => TableChange::First(children::one(key, node)),
        }
    }
}
