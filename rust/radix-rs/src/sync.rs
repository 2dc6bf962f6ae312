//! The atomics of the tree and the pool. One door, so that the checkers can put theirs in: loom and shuttle run every
//! operation under schedules of their own, and a build with pause points can stop a thread before any of its steps.

#[cfg(not(any(radix_loom, radix_shuttle, radix_pause)))]
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

#[cfg(radix_loom)]
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
}

#[cfg(radix_shuttle)]
pub(crate) mod atomic {
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
}

#[cfg(radix_pause)]
pub(crate) use crate::pause as atomic;
