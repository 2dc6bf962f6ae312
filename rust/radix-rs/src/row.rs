//! The slots of one sequence, in memory that does not move.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::*};

/// Memory for the slots of a sequence: its own, or the caller's (a row of a block table).
pub struct Row {
    base: *mut i32,
    capacity: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: elements are only touched as atomics, and the owner keeps the memory.
unsafe impl Send for Row {}
// SAFETY: as above.
unsafe impl Sync for Row {}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("capacity", &self.capacity).finish()
    }
}

impl Row {
    /// A row of its own with room for `capacity` slots. Memory that is never written is never touched.
    pub(crate) fn owned(capacity: usize) -> Self {
        let mut memory: Vec<AtomicI32> = Vec::with_capacity(capacity);
        let base = memory.as_mut_ptr().cast();
        Row { base, capacity, owner: Arc::new(memory) }
    }

    /// A row in foreign memory, kept alive by `owner`.
    ///
    /// # Safety
    /// `base` must be valid for reads and writes of `capacity` aligned `i32` for as long as `owner` lives. Others may read it,
    /// and may write positions that they do not want to keep.
    pub unsafe fn foreign(base: *mut i32, capacity: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Row { base, capacity, owner }
    }

    /// How many slots fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn cell(&self, at: usize) -> &AtomicI32 {
        assert!(at < self.capacity, "position {at} of a row of {}", self.capacity);
        // SAFETY: in bounds by the assertion, valid and aligned by the contract of the constructors.
        unsafe { AtomicI32::from_ptr(self.base.add(at)) }
    }

    pub(crate) fn get(&self, at: usize) -> i32 {
        self.cell(at).load(Relaxed)
    }

    pub(crate) fn set(&self, at: usize, value: i32) {
        self.cell(at).store(value, Relaxed);
    }

    /// Writes several entries from position `at` on.
    pub(crate) fn set_all(&self, at: usize, values: &[i32]) {
        assert!(at + values.len() <= self.capacity);
        // SAFETY: in bounds by the assertion. Readers of a live view may see the old or the new entry.
        unsafe { self.base.add(at).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    /// The first `len` entries, which have been written.
    pub(crate) fn view(&self, len: usize) -> RowView {
        assert!(len <= self.capacity);
        RowView { base: self.base, len, owner: self.owner.clone() }
    }
}

/// A live view of a row: it shows later changes, and stays valid after the sequence has ended.
#[derive(Clone)]
pub struct RowView {
    base: *mut i32,
    len: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: as for `Row`.
unsafe impl Send for RowView {}
// SAFETY: as for `Row`.
unsafe impl Sync for RowView {}

impl fmt::Debug for RowView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.to_vec()).finish()
    }
}

impl RowView {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The entry at `at`.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&self, at: usize) -> i32 {
        assert!(at < self.len);
        // SAFETY: in bounds; valid and aligned by the contract of `Row`.
        unsafe { AtomicI32::from_ptr(self.base.add(at)) }.load(Relaxed)
    }
    /// A copy of all entries.
    pub fn to_vec(&self) -> Vec<i32> {
        (0..self.len).map(|at| self.get(at)).collect()
    }
    /// The address of the first entry, for zero-copy bindings. The memory lives as long as a view does.
    pub fn as_ptr(&self) -> *mut i32 {
        self.base
    }
    /// Entries `range` as a view of their own.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn slice(&self, range: std::ops::Range<usize>) -> RowView {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds.
        RowView { base: unsafe { self.base.add(range.start) }, len: range.len(), owner: self.owner.clone() }
    }
}
