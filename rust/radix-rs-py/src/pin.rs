//! Prefixes that stay for a while, and the clock that says how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use pyo3::prelude::*;
use radix_rs::Clock;

use crate::atoms::{Atoms, each, each_of};
use crate::detach::detached;
use crate::error::{IntoPy, invalid};
use crate::input::{Ints, count};
use crate::namespace::namespace as encode;
use crate::tree::RadixTree;

/// A prefix that is kept from eviction until its time is over.
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct Pin {
    pin: radix_rs::Pin,
    tree: Atoms<radix_rs::RadixTree<u32>, radix_rs::RadixTree<u64>>,
}

impl Pin {
    fn new(pin: radix_rs::Pin, tree: Atoms<radix_rs::RadixTree<u32>, radix_rs::RadixTree<u64>>) -> Self {
        Pin { pin, tree }
    }
}

#[pymethods]
impl Pin {
    /// Tokens it keeps, from the start.
    #[getter]
    fn length(&self) -> usize {
        self.pin.length()
    }

    /// When its time is over, in seconds of the tree's clock.
    #[getter]
    fn deadline_s(&self) -> f64 {
        self.pin.deadline().as_secs_f64()
    }

    /// End it before its time. False if it has ended already.
    fn release(&self) -> bool {
        each!(&self.tree, tree => tree.unpin(&self.pin))
    }

    fn __repr__(&self) -> String {
        format!("Pin(length={}, deadline_s={:?})", self.pin.length(), self.pin.deadline().as_secs_f64())
    }
}

/// A positive or zero number of seconds.
fn seconds(name: &str, given: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(given)
        .map_err(|_| invalid(format!("{name} is {given}; it must be a number of seconds, not negative and finite")))
}

/// A Python callable that returns seconds as the clock of a tree. Where it raises or returns no time, time stands still and
/// the error is reported as one that nobody can catch.
pub(crate) fn clock(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Clock>> {
    let Some(given) = given else { return Ok(None) };
    if !given.is_callable() {
        return Err(invalid(format!("clock must be callable, not {}", given.get_type().name()?)));
    }
    let callable = given.clone().unbind();
    let latest = AtomicU64::new(0);
    Ok(Some(Arc::new(move || {
        let now = Python::attach(|py| {
            let seen = callable.call0(py).and_then(|now| seconds("the time of the clock", now.extract(py)?));
            seen.map_err(|error| error.write_unraisable(py, Some(callable.bind(py)))).unwrap_or_default()
        });
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(latest.fetch_max(now, SeqCst).max(now))
    })))
}

#[pymethods]
impl RadixTree {
    /// Keep the longest cached prefix from eviction for a while, although no request uses it.
    ///
    /// All pins together keep no more than ``budget`` tokens; what several keep counts once. No thread watches the time:
    /// what is due goes when somebody evicts, pins or asks. A reset ends all pins. Pinning again prolongs: each pin has a
    /// time of its own.
    ///
    /// Parameters
    /// ----------
    /// tokens : array
    ///     Token ids, ``[num_tokens]``.
    /// ttl_s : float
    ///     Seconds until it ends, by the clock of the tree.
    /// budget : int
    ///     Tokens that all pins may keep together.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens.
    ///
    /// Returns
    /// -------
    /// Pin
    ///     ``length`` tokens in whole pages, 0 if nothing is cached.
    ///
    /// Raises
    /// ------
    /// PinBudgetError
    ///     It would keep more; nothing is pinned then.
    /// InvalidInputError
    ///     As for `match_prefix`, or the time is negative or not finite.
    #[pyo3(signature = (tokens, ttl_s, budget, namespace=None))]
    fn pin(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        ttl_s: f64,
        budget: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pin> {
        let namespace = encode(namespace)?;
        let ttl = seconds("ttl_s", ttl_s)?;
        let budget = count("budget", budget)?;
        let tokens = Ints::new("tokens", tokens)?;
        let pin =
            detached(py, tokens.len(), || each!(&self.0, tree => tree.pin(&tokens, &namespace, ttl, budget))).py()?;
        Ok(Pin::new(pin, each_of!(&self.0, tree => tree.clone())))
    }

    /// Tokens that pins keep now, each counted once. O(nodes that are pinned).
    #[getter]
    fn pinned_tokens(&self) -> usize {
        each!(&self.0, tree => tree.pinned_tokens())
    }
}
