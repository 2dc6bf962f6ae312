//! Which leaf goes first.

use std::fmt::Debug;
use std::sync::Arc;

/// How a page was used: what an order of eviction may look at. Of an edge its last page counts, since eviction takes pages
/// from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageUse {
    /// Logical time of the last use: an insert, a lock, a touch, a commit.
    pub last_use: u64,
    /// Logical time of its birth; what a lease publishes is as old as the lease.
    pub created: u64,
    /// Number of uses, the first being its insertion. What a lease goes on using counts once.
    pub hits: u32,
    /// The priority it was inserted with.
    pub priority: i32,
    /// Tokens from the root to its end: what computing it again would have to look at.
    pub depth: u32,
    /// The inflation when it was used last, see [`EvictionPolicy::inflates`].
    pub inflation: u64,
}

/// An order of eviction of one's own.
///
/// The score is asked for when a page becomes a candidate and again after each use; the smallest goes first, and of
/// equal ones the one that was used least recently. It must depend on the page alone, so that the order is the same in every
/// process.
///
/// # Examples
/// ```
/// use radix_rs::{EvictionPolicy, Namespace, PageUse, Policy, RadixTree, TreeConfig};
///
/// /// Long prefixes stay, since they are dear to compute.
/// #[derive(Debug)]
/// struct ShallowFirst;
///
/// impl EvictionPolicy for ShallowFirst {
///     fn name(&self) -> &str {
///         "shallow-first"
///     }
///     fn score(&self, page: &PageUse) -> u64 {
///         page.depth.into()
///     }
/// }
///
/// let tree: RadixTree = RadixTree::new(TreeConfig { policy: Policy::custom(ShallowFirst), ..Default::default() })?;
/// let ns = Namespace::default();
/// tree.insert(&[1, 2, 3][..], &[11, 12, 13], &ns)?;
/// tree.insert(&[4][..], &[14], &ns)?;
/// let mut freed = Vec::new();
/// tree.evict(1, &mut freed);
/// assert_eq!(freed, [14]);
/// # Ok::<(), radix_rs::Error>(())
/// ```
pub trait EvictionPolicy: Debug + Send + Sync {
    /// Its name, for reports.
    fn name(&self) -> &str;

    /// Smaller goes first. `u64::MAX` counts as one less.
    fn score(&self, page: &PageUse) -> u64;

    /// Whether the score of what is evicted becomes the [`inflation`](PageUse::inflation) that later uses start from. This is
    /// how what was popular once ages without anybody walking over the cache.
    fn inflates(&self) -> bool {
        false
    }
}

/// The order of eviction. Of equal pages the one that was used least recently goes first, then the older one.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The page that was used least recently.
    #[default]
    Lru,
    /// The page that was used least often.
    Lfu,
    /// As [`Lfu`](Policy::Lfu), but what was evicted lifts everything used from then on, so that popularity of long ago
    /// counts for nothing in the end (LFU with dynamic ageing; Arlitt et al., Evaluating Content Management Techniques for Web
    /// Proxy Caches, 2000).
    LfuAgeing,
    /// The page that was born first.
    Fifo,
    /// The page that was used most recently.
    Mru,
    /// The page that was born last.
    Filo,
    /// Pages that were used only once, then the others (segmented LRU; Karedla et al., 1994, with segments told apart by the
    /// number of uses).
    Slru,
    /// The page of lowest priority.
    Priority,
    /// Greedy dual size frequency (Cherkasova, 1998): inflation plus uses times what the page costs to compute again. All pages
    /// have one size; the cost of one at depth `d` is `1 + d / 4096`, in 1,024ths.
    Gdsf,
    /// One's own.
    Custom(Arc<dyn EvictionPolicy>),
}

/// Depth at which attention over the prefix costs about as much as the linear layers of a token.
const DEPTH_UNIT: u64 = 4096;

impl Policy {
    const BUILT_IN: [Policy; 9] = [
        Policy::Lru,
        Policy::Lfu,
        Policy::LfuAgeing,
        Policy::Fifo,
        Policy::Mru,
        Policy::Filo,
        Policy::Slru,
        Policy::Priority,
        Policy::Gdsf,
    ];

    /// A policy of one's own.
    pub fn custom(policy: impl EvictionPolicy + 'static) -> Self {
        Policy::Custom(Arc::new(policy))
    }

    /// The name by which bindings and command lines ask for it.
    pub fn name(&self) -> &str {
        match self {
            Policy::Lru => "lru",
            Policy::Lfu => "lfu",
            Policy::LfuAgeing => "lfu-ageing",
            Policy::Fifo => "fifo",
            Policy::Mru => "mru",
            Policy::Filo => "filo",
            Policy::Slru => "slru",
            Policy::Priority => "priority",
            Policy::Gdsf => "gdsf",
            Policy::Custom(policy) => policy.name(),
        }
    }

    /// The built-in policy of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::BUILT_IN.into_iter().find(|policy| policy.name() == name)
    }

    /// The names of all built-in policies.
    pub fn names() -> impl Iterator<Item = &'static str> {
        const BUILT_IN: &[Policy] = &Policy::BUILT_IN;
        BUILT_IN.iter().map(Policy::name)
    }

    /// Smaller goes first. 0 is kept for what a reset left over.
    pub(crate) fn score(&self, page: &PageUse) -> u64 {
        let score = match self {
            Policy::Lru => page.last_use,
            Policy::Lfu => page.hits.into(),
            Policy::LfuAgeing => page.inflation.saturating_add(page.hits.into()),
            Policy::Fifo => page.created,
            Policy::Mru => u64::MAX - page.last_use,
            Policy::Filo => u64::MAX - page.created,
            Policy::Slru => u64::from(page.hits > 1),
            Policy::Priority => (i64::from(page.priority) - i64::from(i32::MIN)) as u64,
            Policy::Gdsf => {
                let cost = 1024 + u64::from(page.depth) * 1024 / DEPTH_UNIT;
                page.inflation.saturating_add(u64::from(page.hits).saturating_mul(cost))
            }
            Policy::Custom(policy) => policy.score(page),
        };
        score.saturating_add(1)
    }

    pub(crate) fn inflates(&self) -> bool {
        match self {
            Policy::LfuAgeing | Policy::Gdsf => true,
            Policy::Custom(policy) => policy.inflates(),
            _ => false,
        }
    }

    /// Whether pages of one edge that were used a different number of times must be told apart.
    pub(crate) fn counts(&self) -> bool {
        matches!(self, Policy::Lfu | Policy::LfuAgeing | Policy::Slru | Policy::Gdsf | Policy::Custom(_))
    }

    /// Whether a leaf may grow only by pages of its own birth and priority.
    pub(crate) fn tells_origin(&self) -> bool {
        matches!(self, Policy::Fifo | Policy::Filo | Policy::Priority | Policy::Custom(_))
    }
}

/// A policy put together from weights: the score of a page is the weighted sum of what is known of it.
///
/// # Examples
/// ```
/// use radix_rs::{Policy, WeightedPolicy};
/// // a use counts as much as a thousand operations of recency
/// let policy = Policy::custom(WeightedPolicy { last_use: 1.0, hits: 1000.0, ..WeightedPolicy::named("recent-or-popular") });
/// assert_eq!(policy.name(), "recent-or-popular");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedPolicy {
    /// Its name, for reports.
    pub name: String,
    /// Weight of the logical time of the last use; each operation is one unit.
    pub last_use: f64,
    /// Weight of the logical time of birth.
    pub created: f64,
    /// Weight of a use.
    pub hits: f64,
    /// Weight of a step of priority.
    pub priority: f64,
    /// Weight of a token of depth.
    pub depth: f64,
    /// Whether what is evicted lifts what is used from then on; sums below zero count as zero then.
    pub ageing: bool,
}

impl WeightedPolicy {
    /// A policy to which nothing counts yet: the page that was used least recently goes first.
    pub fn named(name: impl Into<String>) -> Self {
        let (last_use, created, hits, priority, depth) = (0.0, 0.0, 0.0, 0.0, 0.0);
        WeightedPolicy { name: name.into(), last_use, created, hits, priority, depth, ageing: false }
    }
}

impl EvictionPolicy for WeightedPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn score(&self, page: &PageUse) -> u64 {
        let sum = self.last_use * page.last_use as f64
            + self.created * page.created as f64
            + self.hits * f64::from(page.hits)
            + self.priority * f64::from(page.priority)
            + self.depth * f64::from(page.depth);
        if self.ageing {
            return page.inflation.saturating_add((sum * 1024.0) as u64);
        }
        // the order of floats as an order of integers
        let bits = sum.to_bits();
        bits ^ if bits >> 63 == 1 { u64::MAX } else { 1 << 63 }
    }

    fn inflates(&self) -> bool {
        self.ageing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_weights_are_in_the_order_of_their_sums() {
        let page = |last_use| PageUse { last_use, created: 0, hits: 1, priority: 0, depth: 1, inflation: 0 };
        for weight in [-1.5, 1e-9, 1.0, 1e9] {
            let policy = WeightedPolicy { last_use: weight, depth: -3.0, ..WeightedPolicy::named("w") };
            let scores: Vec<u64> = [0, 1, 2, 1000, 1 << 40].map(|at| policy.score(&page(at))).into();
            assert!(scores.is_sorted_by(|a, b| if weight > 0.0 { a <= b } else { a >= b }), "{weight}: {scores:?}");
        }
    }
}
