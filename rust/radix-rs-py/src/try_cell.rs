//! A value that one thread uses at a time; a second one is told so at once instead of waiting.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Guards what a frozen Python class changes. Never blocks: [`TryCell::get`] says "in use" instead.
pub(crate) struct TryCell<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through `Used`, and `busy` lets one of those exist at a time; its release store
// and the acquiring exchange order one user's accesses before the next one's. The value moves between threads that
// way, hence `T: Send`.
unsafe impl<T: Send> Sync for TryCell<T> {}

impl<T> TryCell<T> {
    pub(crate) fn new(value: T) -> Self {
        TryCell { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, or none while somebody else uses it.
    #[inline]
    pub(crate) fn get(&self) -> Option<Used<'_, T>> {
        let taken = self.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| Used { cell: self, value: PhantomData })
    }
}

/// Exclusive use of the value of a [`TryCell`].
pub(crate) struct Used<'a, T> {
    cell: &'a TryCell<T>,
    // A guard may be shared or sent exactly where a `&mut T` may.
    value: PhantomData<&'a mut T>,
}

impl<T> Deref for Used<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `busy` is ours until this is dropped, so nobody else has a reference.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for Used<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes it the only reference through this guard.
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<T> Drop for Used<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell.busy.store(false, Ordering::Release);
    }
}
