//! When the interpreter is let go.

use pyo3::prelude::*;

/// Tokens from which on a call lets other Python threads run meanwhile. Letting go and coming back costs about as much
/// as comparing a few hundred tokens, and much more when another thread takes over: below a few microseconds of work it
/// only makes everybody slower.
pub(crate) const WORTH_IT: usize = 8192;

/// Does `work` over about `num_tokens` tokens.
#[inline]
pub(crate) fn detached<T: Send>(py: Python<'_>, num_tokens: usize, work: impl FnOnce() -> T + Send) -> T {
    if num_tokens < WORTH_IT { work() } else { py.detach(work) }
}
