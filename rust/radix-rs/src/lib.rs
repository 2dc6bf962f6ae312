//! The prefix cache of language-model engines: a lock-free radix tree from token ids to KV slots.
//!
//! Three levels, each usable without the next: [`RadixTree`] for engines that own their slots, [`SlotPool`] for the slots,
//! and [`PrefixCache`] for both with the life of a request as a [`Sequence`].
//!
//! # Examples
//! ```
//! use radix_rs::{CacheConfig, Namespace, PrefixCache};
//!
//! let cache: PrefixCache = PrefixCache::new(CacheConfig { num_slots: 1024, ..Default::default() })?;
//! let ns = Namespace::default();
//!
//! let mut first = cache.begin(&[1, 2, 3, 4][..], &ns)?;
//! assert_eq!(first.cached_len(), 0);
//! first.reserve(4)?; // slots for the four tokens; the engine computes their K and V
//! first.commit(4)?; // from here on everybody may use them
//! first.finish();
//!
//! let second = cache.begin(&[1, 2, 3, 9][..], &ns)?;
//! assert_eq!(second.cached_len(), 3);
//! # Ok::<(), radix_rs::Error>(())
//! ```
//!
//! # What a reader may observe
//! A match is never longer than what was cached at one moment during the call, and compares tokens, not hashes. Beside a
//! writer it may be shorter than a serial run would give. The values of a match are a hint; those of a lease are safe.
//!
//! # When memory is freed
//! Values go back to their owner at the compare-and-swap that evicts them. Nodes are recycled two epochs later, and edges
//! when the last view of them is dropped. Everything is freed with the tree.

mod arena;
mod buffer;
mod cache;
#[cfg(any(radix_loom, radix_shuttle))]
pub mod checking;
mod children;
mod epoch;
mod error;
mod event;
mod evictable;
mod fence;
mod frame;
mod key;
mod namespace;
mod node;
#[cfg(radix_pause)]
mod pause;
mod policy;
mod protocol;
mod row;
mod sequence;
mod slots;
mod space;
mod stats;
mod sync;
mod tree;

pub use cache::{CacheConfig, PrefixCache};
pub use error::{Error, Result};
pub use event::{Event, EventKind, EventLog, EventSink, LoggedEvent};
pub use fence::Fence;
pub use key::{Atom, Element, PageHash, RawSource, Source, Value};
pub use namespace::Namespace;
#[cfg(radix_pause)]
pub use pause::{Pause, step};
pub use policy::{EvictionPolicy, PageUse, Policy, WeightedPolicy};
pub use row::{Row, RowView};
pub use sequence::Sequence;
pub use slots::SlotPool;
pub use stats::{CacheStats, OwnedSlots, TreeStats};
pub use tree::{
    Clock, Handle, Inserted, Lease, Match, NamespaceStats, NewPrompt, NodeInfo, Nodes, Pin, RadixTree, Segment,
    SnapshotValue, TreeConfig,
};
