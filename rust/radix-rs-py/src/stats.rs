//! Counters as dictionaries.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use radix_rs::{CacheStats, TreeStats};

macro_rules! dict {
    ($py:expr, $stats:expr, $($name:ident),*) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(pyo3::intern!($py, stringify!($name)), $stats.$name)?;)*
        Ok(dict)
    }};
}

pub(crate) fn tree<'py>(py: Python<'py>, stats: &TreeStats) -> PyResult<Bound<'py, PyDict>> {
    dict!(
        py,
        stats,
        cached_tokens,
        evictable_tokens,
        protected_tokens,
        num_nodes,
        size_bytes,
        copied_tokens,
        num_candidates,
        num_retired
    )
}

pub(crate) fn cache<'py>(py: Python<'py>, stats: &CacheStats) -> PyResult<Bound<'py, PyDict>> {
    dict!(
        py,
        stats,
        num_slots,
        num_free,
        cached_tokens,
        evictable_tokens,
        protected_tokens,
        held_tokens,
        waiting_tokens,
        num_sequences,
        num_nodes,
        queried_tokens,
        hit_tokens,
        evicted_tokens,
        inserted_tokens
    )
}
