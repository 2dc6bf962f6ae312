//! Python bindings of the crate `radix-rs`: the module `radix_rs._core`.
//!
//! They check, let go of the interpreter, call and convert; what they call is in the crate. Inputs are read in [`input`],
//! namespaces in [`namespace`], errors become exceptions in [`error`], and nowhere else. Classes are frozen: what changes
//! is in the core or behind a [`try_cell`]. No Python object holds a guard of the core's epochs.

use pyo3::prelude::*;

mod atoms;
mod cache;
mod detach;
mod dlpack;
mod error;
mod event;
mod found;
mod input;
mod many;
mod namespace;
mod namespaces;
mod output;
mod pin;
mod policy;
mod pool;
mod sequence;
mod snapshot;
mod stats;
mod tree;
mod try_cell;

/// The Rust core: the tree, the pool, the cache and the life of a request.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::cache::{Fence, PrefixCache};
    #[pymodule_export]
    use crate::event::{Event, EventLog};
    #[pymodule_export]
    use crate::found::{Handle, InsertResult, Lease, Match, NodeInfo};
    #[pymodule_export]
    use crate::pin::Pin;
    #[pymodule_export]
    use crate::policy::WeightedPolicy;
    #[pymodule_export]
    use crate::pool::SlotPool;
    #[pymodule_export]
    use crate::sequence::Sequence;
    #[pymodule_export]
    use crate::tree::RadixTree;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // NumPy's C interface is looked up at the first array; a NumPy that is missing should be said here.
        module.py().import("numpy")?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
