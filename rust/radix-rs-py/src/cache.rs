//! Tree and pool with the life of requests on top.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use radix_rs::{CacheConfig, Policy, Row};

use crate::detach::detached;
use crate::error::IntoPy;
use crate::event::EventLog;
use crate::input::{Ints, Memory, count, count_or, own_view};
use crate::namespace::namespace as encode;
use crate::output;
use crate::pin::clock as clock_of;
use crate::policy::policy;
use crate::pool::SlotPool;
use crate::sequence::Sequence;
use crate::stats;
use crate::tree::RadixTree;

/// A radix tree and a slot pool with the life of requests on top.
///
/// Leaks are impossible by construction: a `Sequence` gives back all that is its own when it ends or is dropped. All
/// methods may be called from any thread; none waits for another one.
///
/// Parameters
/// ----------
/// num_slots : int
///     Slots of the KV pool: a positive multiple of ``page_size``.
/// page_size : int
///     Tokens per page: a power of two from 1 to 1024.
/// policy : str or WeightedPolicy
///     What is evicted first, page by page: "lru" (used least recently), "lfu" (least often), "lfu-ageing" (least often,
///     what was popular long ago fades), "fifo" (born first), "mru", "filo", "slru" (used once, then the rest),
///     "priority" (lowest), "gdsf" (least uses times cost to compute again, fading); ties by last use. Or one of your own.
/// enabled : bool
///     False: nothing is found and nothing is published; sequences still get their slots. The baseline.
/// events : EventLog, optional
///     Is told what is stored and removed; nothing is spent on it when absent.
/// clock : callable, optional
///     Returns the time in seconds by which pins (``cache.tree.pin``) end; by default the system's.
///
/// Raises
/// ------
/// InvalidInputError
///     A parameter is not one of those.
///
/// Examples
/// --------
/// >>> cache = PrefixCache(num_slots=1024)
/// >>> with cache.begin([1, 2, 3, 4]) as first:
/// ...     slots = first.reserve(4)  # K and V of the four tokens are computed into these
/// ...     _ = first.commit(4)  # from here on everybody may use them
/// ...     first.finish()
/// >>> cache.begin([1, 2, 3, 9]).cached_len
/// 3
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct PrefixCache(radix_rs::PrefixCache);

#[pymethods]
impl PrefixCache {
    #[new]
    #[pyo3(
        signature = (num_slots, page_size=None, policy=None, *, enabled=true, events=None, clock=None),
        text_signature = "(num_slots, page_size=1, policy='lru', *, enabled=True, events=None, clock=None)"
    )]
    fn new(
        num_slots: &Bound<'_, PyAny>,
        page_size: Option<&Bound<'_, PyAny>>,
        policy: Option<&Bound<'_, PyAny>>,
        enabled: bool,
        events: Option<&Bound<'_, EventLog>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let num_slots = count("num_slots", num_slots)?;
        let page_size = count_or("page_size", page_size, 1)?;
        let policy = policy.map_or(Ok(Policy::Lru), self::policy)?;
        let events = events.map(|log| log.get().narrow.clone() as _);
        let config = CacheConfig {
            num_slots,
            page_size,
            policy,
            enabled,
            events,
            clock: clock_of(clock)?,
            ..Default::default()
        };
        Ok(PrefixCache(radix_rs::PrefixCache::new(config).py()?))
    }

    /// Begin a sequence for a prompt.
    ///
    /// It takes the longest cached prefix in whole pages, but leaves at least one token to compute, since its logits are
    /// what the caller is after.
    ///
    /// Parameters
    /// ----------
    /// tokens : array
    ///     Token ids of the prompt, ``[num_tokens]``, at least 0 and below 2**31; as for `RadixTree`. May be empty.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens for KV to be shared: adapter, salt, version. A tuple is one
    ///     ``(kind, value)`` pair or several such pairs; see `RadixTree`.
    /// priority : int
    ///     Kept with what the sequence publishes, for policies that look at it.
    /// out : array, optional
    ///     The row that the sequence keeps its slots in: int32, contiguous, writable, on the host, long enough for all
    ///     tokens to come. It is held until the sequence and all views of it are gone; PyTorch refuses to resize the
    ///     storage of a tensor from then on. None: memory of its own.
    ///
    /// Returns
    /// -------
    /// Sequence
    ///     With ``cached_len`` tokens that need not be computed.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     A token id is out of range, the namespace is no namespace, ``out`` is no row or too short.
    /// LeaseError
    ///     A node has more users than can be counted.
    #[pyo3(
        signature = (tokens, namespace=None, *, priority=0, out=None),
        text_signature = "($self, tokens, namespace=None, *, priority=0, out=None)"
    )]
    fn begin(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        priority: i32,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Sequence> {
        // The tokens last: reading the others may run Python code, which could move memory that is only pointed at.
        let namespace = encode(namespace)?;
        let row = out.map(row).transpose()?;
        let tokens = Ints::new("tokens", tokens)?;
        let begun = detached(py, tokens.len(), || self.0.begin_with(&tokens, &namespace, row, priority));
        Ok(Sequence::new(begun.py()?))
    }

    /// A fence for slots that a running computation may still read.
    ///
    /// Returns
    /// -------
    /// Fence
    ///     For ``after=``; dropping it signals it.
    fn fence(&self) -> Fence {
        Fence(self.0.fence())
    }

    /// Let the slots that wait for a fence be handed out again. A second time does nothing.
    ///
    /// Parameters
    /// ----------
    /// fence : Fence
    ///     Of this cache.
    fn signal(&self, fence: &Bound<'_, Fence>) {
        self.0.signal(&fence.get().0);
    }

    /// The tree.
    ///
    /// Slots that its methods hand out are no longer the cache's: give them back by ``pool.free``.
    #[getter]
    fn tree(&self) -> RadixTree {
        RadixTree::of(self.0.tree())
    }

    /// The pool.
    #[getter]
    fn pool(&self) -> SlotPool {
        SlotPool(self.0.pool().clone())
    }

    /// Tokens per page.
    #[getter]
    fn page_size(&self) -> usize {
        self.0.page_size()
    }

    /// Whether prefixes are reused at all.
    #[getter]
    fn enabled(&self) -> bool {
        self.0.is_enabled()
    }

    /// Evict cached tokens that no sequence uses; their slots are free afterwards.
    ///
    /// Parameters
    /// ----------
    /// num_tokens : int
    ///     Tokens to evict, rounded up to whole pages.
    ///
    /// Returns
    /// -------
    /// int
    ///     How many went: fewer than asked where everything else is in use.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     ``num_tokens`` is negative.
    fn evict(&self, py: Python<'_>, num_tokens: &Bound<'_, PyAny>) -> PyResult<usize> {
        let num_tokens = count("num_tokens", num_tokens)?;
        Ok(detached(py, num_tokens.saturating_mul(64), || self.0.evict(num_tokens)))
    }

    /// Where the slots are and what happened so far, in tokens.
    ///
    /// ``num_slots = num_free + cached_tokens + held_tokens + waiting_tokens`` at rest, and
    /// ``cached_tokens = evictable_tokens + protected_tokens``.
    ///
    /// - ``num_slots``: slots in all;
    /// - ``num_free``: slots nobody has;
    /// - ``cached_tokens``: slots the tree has;
    /// - ``evictable_tokens``: of these, what no sequence uses;
    /// - ``protected_tokens``: of these, what sequences use;
    /// - ``held_tokens``: slots that live sequences own, whole pages;
    /// - ``waiting_tokens``: slots given back that wait for a fence;
    /// - ``num_sequences``: live sequences;
    /// - ``num_nodes``: nodes of the tree;
    /// - ``queried_tokens``: prompt tokens of all sequences begun;
    /// - ``hit_tokens``: of these, what was found in the cache;
    /// - ``evicted_tokens``: tokens evicted so far;
    /// - ``inserted_tokens``: tokens published so far.
    ///
    /// Returns
    /// -------
    /// dict of str to int
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::cache(py, &self.0.stats())
    }

    /// Which slots are neither free, cached nor waiting for a fence. Meaningful while no other thread works on the cache.
    ///
    /// Returns
    /// -------
    /// list of dict
    ///     For each sequence that owns slots, the oldest first, its number in order of birth, "sequence", how many have begun
    ///     since, "begun_since", and its "slots", int32. Before them, with "sequence" None, what nobody owns any more: taken
    ///     from ``pool`` or evicted from ``tree`` directly.
    fn audit<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let owned = py.detach(|| self.0.audit());
        let each = |owner: radix_rs::OwnedSlots| {
            let dict = PyDict::new(py);
            dict.set_item("sequence", owner.sequence)?;
            dict.set_item("begun_since", owner.begun_since)?;
            dict.set_item("slots", output::array(py, owner.slots)?)?;
            Ok(dict)
        };
        owned.into_iter().map(each).collect()
    }

    /// Forget everything that no sequence uses; those slots are free afterwards. Live sequences keep what they have.
    fn reset(&self, py: Python<'_>) {
        py.detach(|| self.0.reset());
    }

    /// Audit tree, pool, and that every slot has exactly one owner. Meaningful while no other thread works on the cache.
    ///
    /// Pages taken directly from ``tree`` or ``pool`` are not counted.
    ///
    /// Raises
    /// ------
    /// IntegrityError
    ///     Names the first broken invariant.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.check()).py()
    }

    fn __repr__(&self) -> String {
        let radix_rs::CacheStats { num_slots, num_free, cached_tokens, num_sequences, .. } = self.0.stats();
        format!(
            "PrefixCache(num_slots={num_slots}, page_size={}, num_free={num_free}, cached_tokens={cached_tokens}, \
             num_sequences={num_sequences})",
            self.0.page_size()
        )
    }
}

/// A caller's row, held by whatever looks into it.
fn row(out: &Bound<'_, PyAny>) -> PyResult<Row> {
    let view = own_view("out", out)?;
    let memory = Memory::writable("out", &view)?;
    let (base, len) = (memory.as_ptr(), memory.len());
    let owner = Arc::new((memory, view.unbind()));
    // SAFETY: `writable` found that many aligned, writable int32 there, and the view that keeps them is held.
    Ok(unsafe { Row::foreign(base, len, owner) })
}

/// A point in time of the caller's device.
///
/// Slots that a sequence gives back ``after`` a fence are handed out again once `PrefixCache.signal` was called with it,
/// or once it is dropped.
///
/// Examples
/// --------
/// >>> cache = PrefixCache(num_slots=16)
/// >>> fence = cache.fence()
/// >>> request = cache.begin([1, 2, 3])
/// >>> slots = request.reserve(3)
/// >>> request.abort(after=fence)  # the device may still write to these slots
/// >>> cache.stats()["waiting_tokens"]
/// 3
/// >>> cache.signal(fence)
/// >>> cache.stats()["waiting_tokens"]
/// 0
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct Fence(pub(crate) radix_rs::Fence);

#[pymethods]
impl Fence {
    /// Whether it was signalled.
    #[getter]
    fn signalled(&self) -> bool {
        self.0.is_signalled()
    }

    fn __repr__(&self) -> String {
        format!("Fence(signalled={})", if self.0.is_signalled() { "True" } else { "False" })
    }
}
