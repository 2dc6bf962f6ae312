//! Every refusal of the crate, with the numbers that explain it.

use std::fmt;

/// Short for a result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was refused. After an error the tree, the pool and the sequence are as they were before, unless the
/// operation says what else has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An argument that no state could accept; the text says which one and why.
    InvalidInput(String),
    /// A token id that the atom type cannot hold.
    InvalidToken {
        /// Where in the input it stands.
        position: usize,
        /// The id as given.
        value: i128,
    },
    /// Not enough slots. All numbers are in tokens.
    Capacity {
        /// Slots that had to be found.
        needed: usize,
        /// Slots free in the pool.
        free: usize,
        /// Cached tokens that could be evicted.
        evictable: usize,
        /// Cached tokens that leases hold.
        protected: usize,
    },
    /// The node behind a handle is gone.
    StaleHandle {
        /// Depth at which the handle ended, in tokens.
        end_depth: usize,
    },
    /// A slot was given back that is free already.
    DoubleFree {
        /// The slot.
        slot: i32,
    },
    /// A lease or a sequence was used in a way it does not allow.
    Lease(String),
    /// More users at once than a node can count (2^28 - 1).
    PinOverflow,
    /// A pin would keep more than all pins together may. All numbers are in tokens.
    PinBudget {
        /// What it would keep that no other pin does.
        needed: usize,
        /// What the others keep.
        pinned: usize,
        /// What they may keep together.
        budget: usize,
    },
    /// One of many prompts was refused.
    InPrompt {
        /// Which one.
        prompt: usize,
        /// Why.
        error: Box<Error>,
    },
    /// A snapshot cannot be read or does not fit the tree; the text says what and where.
    Snapshot(String),
    /// Reading or writing a stream failed.
    Io {
        /// The number of the operating system, if the error is one of its own.
        code: Option<i32>,
        /// What it says.
        text: String,
    },
    /// An invariant does not hold; the text names the first one found broken.
    Integrity(String),
}

impl Error {
    pub(crate) fn io(error: &std::io::Error) -> Self {
        Error::Io { code: error.raw_os_error(), text: error.to_string() }
    }

    pub(crate) fn in_prompt(self, prompt: usize) -> Self {
        Error::InPrompt { prompt, error: Box::new(self) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidInput(text) => f.write_str(text),
            Error::InvalidToken { position, value } => {
                write!(f, "token {value} at position {position} is out of range")
            }
            Error::Capacity { needed, free, evictable, protected } => write!(
                f,
                "needs {needed} slots, but {free} are free and {evictable} cached tokens can be evicted \
                 ({protected} are protected by leases)"
            ),
            Error::StaleHandle { end_depth } => {
                write!(f, "the node of this handle (ending at depth {end_depth}) is gone")
            }
            Error::DoubleFree { slot } => write!(f, "slot {slot} is free already"),
            Error::Lease(text) => f.write_str(text),
            Error::PinOverflow => f.write_str("a node is pinned by 268435455 users, its limit"),
            Error::PinBudget { needed, pinned, budget } => {
                write!(
                    f,
                    "would pin {needed} tokens more, but {pinned} of {budget} that pins may keep are pinned already"
                )
            }
            Error::InPrompt { prompt, error } => write!(f, "prompt {prompt}: {error}"),
            Error::Snapshot(text) => f.write_str(text),
            Error::Io { text, .. } => f.write_str(text),
            Error::Integrity(text) => write!(f, "broken invariant: {text}"),
        }
    }
}

impl std::error::Error for Error {}
