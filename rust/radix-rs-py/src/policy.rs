//! Orders of eviction.

use pyo3::prelude::*;
use radix_rs::Policy;

use crate::error::invalid;

/// An order of eviction put together from weights.
///
/// The score of a page is the weighted sum of what is known of it; the smallest goes first, and of equal ones the one that
/// was used least recently. Times are logical: each operation on the tree is one unit. Of an edge its last page counts.
///
/// Parameters
/// ----------
/// name : str
///     For reports.
/// last_use, created : float
///     Weights of the times of last use and of birth.
/// hits : float
///     Weight of a use; the insertion is the first one.
/// priority : float
///     Weight of a step of the priority that it was inserted with.
/// depth : float
///     Weight of a token of depth, from the root to the end of the page.
/// ageing : bool
///     Whether the score of what is evicted is added to what is used from then on, so that what was popular long ago goes
///     in the end. Sums below zero count as zero then.
///
/// Raises
/// ------
/// InvalidInputError
///     A weight is not finite.
///
/// Examples
/// --------
/// >>> policy = WeightedPolicy("recent-or-popular", last_use=1.0, hits=1000.0)
/// >>> tree = RadixTree(policy=policy)
/// >>> for tokens in ([1], [2], [1]):
/// ...     _ = tree.insert(tokens, tokens)
/// >>> tree.evict(1).tolist()
/// [2]
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct WeightedPolicy(radix_rs::WeightedPolicy);

#[pymethods]
impl WeightedPolicy {
    #[new]
    #[pyo3(signature = (name, *, last_use=0.0, created=0.0, hits=0.0, priority=0.0, depth=0.0, ageing=false))]
    fn new(
        name: String,
        last_use: f64,
        created: f64,
        hits: f64,
        priority: f64,
        depth: f64,
        ageing: bool,
    ) -> PyResult<Self> {
        let weights = [last_use, created, hits, priority, depth];
        if let Some(weight) = weights.into_iter().find(|weight| !weight.is_finite()) {
            return Err(invalid(format!("a weight is {weight}; weights are finite")));
        }
        Ok(WeightedPolicy(radix_rs::WeightedPolicy { name, last_use, created, hits, priority, depth, ageing }))
    }

    /// The name it was given.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    fn __repr__(&self) -> String {
        let radix_rs::WeightedPolicy { name, last_use, created, hits, priority, depth, ageing } = &self.0;
        let ageing = if *ageing { "True" } else { "False" };
        format!(
            "WeightedPolicy({name:?}, last_use={last_use:?}, created={created:?}, hits={hits:?}, priority={priority:?}, \
             depth={depth:?}, ageing={ageing})"
        )
    }
}

/// A policy by its name, or one put together from weights.
pub(crate) fn policy(given: &Bound<'_, PyAny>) -> PyResult<Policy> {
    if let Ok(weighted) = given.cast::<WeightedPolicy>() {
        return Ok(Policy::custom(weighted.get().0.clone()));
    }
    let Ok(name) = given.extract::<String>() else {
        let kind = given.get_type().name()?;
        return Err(invalid(format!("policy must be a name or a WeightedPolicy, not {kind}")));
    };
    Policy::from_name(&name).ok_or_else(|| {
        let known: Vec<_> = Policy::names().map(|name| format!("'{name}'")).collect();
        invalid(format!("policy '{name}' is not known; known: {}", known.join(", ")))
    })
}
