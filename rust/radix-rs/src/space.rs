//! What is known of a namespace besides its nodes: how much is in it, and whether it was dropped.

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use crate::arena::Item;

/// The record of a namespace; every node in it names it, from birth on. It goes with the namespace's own node, which outlives
/// all others.
pub(crate) struct Space {
    /// `{ cached 32 | protected 32 }`, moved with the counters of the tree, before or after the same swaps.
    pub(crate) counts: AtomicU64,
    pub(crate) num_nodes: AtomicU32,
    /// The namespace's own node.
    pub(crate) node: AtomicU32,
    /// Final. From then on nobody finds the namespace, and its nodes are leftovers.
    pub(crate) dropped: AtomicBool,
    link: AtomicU32,
}

// SAFETY: only atomics: all zero is valid and owns nothing.
unsafe impl Item for Space {
    #[cfg(any(radix_loom, radix_shuttle))]
    fn vacant() -> Self {
        Space {
            counts: AtomicU64::new(0),
            num_nodes: AtomicU32::new(0),
            node: AtomicU32::new(0),
            dropped: AtomicBool::new(false),
            link: AtomicU32::new(0),
        }
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
    unsafe fn recycle(&self) -> usize {
        self.counts.store(0, Relaxed);
        self.num_nodes.store(0, Relaxed);
        self.node.store(0, Relaxed);
        self.dropped.store(false, Release);
        0
    }
}
