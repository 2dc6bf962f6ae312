//! Numbers for operators.

/// Size of a tree. All `*_tokens` are atoms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStats {
    /// Atoms in the tree.
    pub cached_tokens: usize,
    /// Of these, what no lease covers.
    pub evictable_tokens: usize,
    /// Of these, what leases cover.
    pub protected_tokens: usize,
    /// Nodes, the roots included.
    pub num_nodes: usize,
    /// Memory of the tree in bytes.
    pub size_bytes: usize,
    /// Atoms copied so far to make edges whole again.
    pub copied_tokens: usize,
    /// Leaves waiting in the order of eviction (with entries that are out of date).
    pub num_candidates: usize,
    /// Retired objects that a reader may still look at.
    pub num_retired: usize,
}

/// Where the slots of a cache are and what it did so far. All `*_tokens` are slots or tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Slots in all: free + cached + held + waiting.
    pub num_slots: usize,
    /// Slots nobody has.
    pub num_free: usize,
    /// Slots the tree has.
    pub cached_tokens: usize,
    /// Of these, what no sequence uses.
    pub evictable_tokens: usize,
    /// Of these, what sequences use.
    pub protected_tokens: usize,
    /// Slots that live sequences own, whole pages.
    pub held_tokens: usize,
    /// Slots given back that wait for a fence.
    pub waiting_tokens: usize,
    /// Live sequences.
    pub num_sequences: usize,
    /// Nodes of the tree.
    pub num_nodes: usize,
    /// Prompt tokens of all sequences begun.
    pub queried_tokens: usize,
    /// Of these, tokens found in the cache.
    pub hit_tokens: usize,
    /// Tokens evicted for somebody.
    pub evicted_tokens: usize,
    /// Tokens published.
    pub inserted_tokens: usize,
}

/// The slots one owner has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnedSlots {
    /// Serial number of the sequence that owns them, in order of birth. `None`: nobody the cache knows of. They were taken from
    /// the pool or evicted from the tree past the cache, and are neither free nor cached.
    pub sequence: Option<u32>,
    /// Its age: how many sequences have begun since. 0 where there is no owner.
    pub begun_since: u32,
    /// The slots, ascending.
    pub slots: Vec<i32>,
}
