//! The atomics of the tree and the pool. One door, so that the checkers can put theirs in: loom and shuttle run every
//! operation under schedules of their own, and a build with pause points can stop a thread before any of its steps.
//!
//! What a checker needs beside its atomics stands here too: cells that tell it who looks at what they hold, counters
//! that it need not look at, and the switch that breaks one rule of the protocol, so that a checker can show that it
//! finds the fault.

#[cfg(not(any(radix_loom, radix_shuttle, radix_pause)))]
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

#[cfg(radix_loom)]
#[path = "sync/loom.rs"]
pub(crate) mod atomic;

#[cfg(radix_shuttle)]
pub(crate) mod atomic {
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
}

#[cfg(radix_pause)]
pub(crate) use crate::pause as atomic;

/// A counter that only reports read: nothing is decided by it and nothing is published through it. The checkers do not look at
/// it, since every access that they look at doubles what they have to explore.
#[cfg(not(any(radix_loom, radix_shuttle)))]
pub(crate) use atomic::AtomicUsize as Tally;
#[cfg(any(radix_loom, radix_shuttle))]
pub(crate) use std::sync::atomic::AtomicUsize as Tally;

#[cfg(radix_loom)]
pub(crate) use loom::cell::UnsafeCell;

/// As loom's cell, which checks that whoever writes comes after all who looked.
#[cfg(not(radix_loom))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(radix_loom))]
impl<T> UnsafeCell<T> {
    #[cfg(radix_shuttle)]
    pub(crate) fn new(data: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(data))
    }
    #[inline(always)]
    pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.0.get())
    }
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}

/// Something that some threads write while others read what is beside it: on cache lines of its own (two, which processors
/// fetch together). Not under checkers, whose threads have small stacks.
#[cfg_attr(not(any(radix_loom, radix_shuttle)), repr(align(128)))]
pub(crate) struct Line<T>(pub(crate) T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Whether a checker has broken this rule of the protocol. Never, outside of checkers.
#[cfg(not(any(radix_loom, radix_shuttle)))]
#[inline(always)]
pub(crate) const fn broken(_rule: &str) -> bool {
    false
}

#[cfg(any(radix_loom, radix_shuttle))]
pub(crate) use checked::broken;

#[cfg(any(radix_loom, radix_shuttle))]
pub(crate) mod checked {
    use std::cell::Cell;

    thread_local! {
        // both checkers run all threads of a model on one thread of the system
        static BROKEN: Cell<&'static str> = const { Cell::new("") };
    }

    /// From here on the crate breaks this rule, on this thread of the system.
    pub fn break_rule(rule: &'static str) {
        BROKEN.set(rule);
    }

    pub(crate) fn broken(rule: &str) -> bool {
        BROKEN.get() == rule
    }

    /// The number of a thread of the model, the same in every run of a schedule.
    pub(crate) fn thread_number() -> usize {
        #[cfg(radix_shuttle)]
        return shuttle::current::me().into();
        #[cfg(radix_loom)]
        return format!("{:?}", loom::thread::current().id())
            .chars()
            .filter_map(|c| c.to_digit(10))
            .fold(0, |number, digit| number * 10 + digit as usize);
    }
}
