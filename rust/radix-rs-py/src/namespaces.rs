//! Namespaces as wholes.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::atoms::each;
use crate::error::IntoPy;
use crate::namespace::namespace as encode;
use crate::output;
use crate::tree::RadixTree;

/// Encoded name, cached tokens, protected tokens, nodes.
type Stats = (Option<Py<PyBytes>>, usize, usize, usize);

#[pymethods]
impl RadixTree {
    /// How much is in each namespace, from counters: the cost does not depend on what is in them.
    ///
    /// Returns
    /// -------
    /// list of tuple
    ///     ``(namespace, cached_tokens, protected_tokens, num_nodes)``, the default namespace first. The namespace is encoded as
    ///     in `Event.namespace`: bytes, None for the default one. Exact at rest.
    ///
    /// Examples
    /// --------
    /// >>> tree = RadixTree()
    /// >>> _ = tree.insert([1, 2, 3], [7, 8, 9])
    /// >>> tree.namespace_stats()
    /// [(None, 3, 0, 2)]
    fn namespace_stats(&self, py: Python<'_>) -> Vec<Stats> {
        let stats = each!(&self.0, tree => tree.namespace_stats());
        let name = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
        stats
            .into_iter()
            .map(|one| (one.namespace.as_bytes().map(name), one.cached_tokens, one.protected_tokens, one.num_nodes))
            .collect()
    }

    /// Forget a namespace at once: from one moment on nobody finds anything in it. It can be used anew right away.
    ///
    /// What a lease holds stays protected until the lease goes, and is the first to be evicted then. Handles into it are
    /// stale. Not for the tree of a `PrefixCache`, whose pool would not know of the slots.
    ///
    /// Parameters
    /// ----------
    /// namespace : str, bytes or tuple
    ///     Which one; the default one is only forgotten by `reset`.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray
    ///     The slots in it that no lease holds, int32. They are yours. Empty if there is no such namespace.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     It is no namespace, or the default one.
    ///
    /// Examples
    /// --------
    /// >>> tree = RadixTree()
    /// >>> _ = tree.insert([1, 2], [7, 8], ("weights", 1))
    /// >>> tree.drop_namespace(("weights", 1)).tolist()
    /// [7, 8]
    fn drop_namespace<'py>(&self, py: Python<'py>, namespace: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let namespace = encode(Some(namespace).filter(|namespace| !namespace.is_none()))?;
        let slots = py.detach(|| {
            let mut slots = Vec::new();
            each!(&self.0, tree => tree.drop_namespace(&namespace, &mut slots)).map(|_| slots)
        });
        output::array(py, slots.py()?)
    }
}
