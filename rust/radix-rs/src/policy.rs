//! Which leaf goes first.

/// The order of eviction. All ties go by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The leaf that was used least recently goes first, exact on pages.
    #[default]
    Lru,
}

impl Policy {
    /// The name by which bindings and command lines ask for it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Lru => "lru",
        }
    }

    /// The policy of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Policy::Lru].into_iter().find(|p| p.name() == name)
    }

    /// Smaller goes first. 0 is kept for what a reset left over.
    pub(crate) fn rank(self, last_use: u64) -> u64 {
        match self {
            Policy::Lru => last_use,
        }
    }
}
