//! Loom's atomics, with sequentially consistent loads that mean it.
//!
//! The epochs need a total order over the loads and swaps of words, links, owners and records (see `epoch`): all of them
//! are `SeqCst`. Loom takes `SeqCst` for `AcqRel`, and lets such a load return a value that was replaced long ago. In the total
//! order of the language it cannot: where all that touch a cell are `SeqCst`, a load returns what was stored last in that
//! order. So here a `SeqCst` load is a swap that changes nothing, for only a swap reads the newest value. It acquires and does
//! not release, as a load.
//!
//! It also makes two loads of a cell depend on each other. That is needed: loom remembers one access of a cell, the last,
//! and a load by the thread that is about to swap would hide the load of the thread it races with.
//!
//! Stores that release are swaps too: loom has no order between a store and a swap that do not know of each other, and
//! would let the store be older than the value that such a load has put back.

use std::ops::Deref;

pub(crate) use loom::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

macro_rules! newest {
    ($name:ident, $value:ty, $same:ident, $nothing:expr) => {
        pub(crate) struct $name(loom::sync::atomic::$name);

        impl Deref for $name {
            type Target = loom::sync::atomic::$name;
            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }

        #[allow(dead_code, reason = "not every type needs every step")]
        impl $name {
            #[track_caller]
            pub(crate) fn new(value: $value) -> Self {
                $name(loom::sync::atomic::$name::new(value))
            }
            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                match order {
                    Ordering::SeqCst => self.0.$same($nothing, Ordering::Acquire),
                    weaker => self.0.load(weaker),
                }
            }
            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                match order {
                    Ordering::Relaxed => self.0.store(value, order),
                    _ => drop(self.0.swap(value, Ordering::Release)),
                }
            }
        }
    };
}

newest!(AtomicBool, bool, fetch_or, false);
newest!(AtomicU32, u32, fetch_or, 0);
newest!(AtomicU64, u64, fetch_or, 0);
newest!(AtomicUsize, usize, fetch_or, 0);
