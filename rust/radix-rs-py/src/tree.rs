//! The radix tree.

use std::sync::Arc;

use pyo3::prelude::*;
use radix_rs::{Atom, Clock, EventSink, Policy, TreeConfig};

use crate::atoms::{Atoms, each, each_of};
use crate::detach::detached;
use crate::error::{IntoPy, invalid, lease as lease_error};
use crate::event::EventLog;
use crate::found::{Handle, InsertResult, Lease, Match, NodeInfo, released};
use crate::input::{Ints, Memory, count, count_or};
use crate::namespace::namespace as encode;
use crate::output;
use crate::pin::clock;
use crate::policy::policy;
use crate::stats;

type Tree = Atoms<radix_rs::RadixTree<u32>, radix_rs::RadixTree<u64>>;

/// A lock-free radix tree from token ids to KV slots, for engines that own their slots.
///
/// Only whole pages are cached and found. All methods may be called from any thread; none waits for another one.
///
/// Token ids are one-dimensional int32, int64, uint32 or uint64 arrays (NumPy, tensors on the host by DLPack,
/// ``array.array``, ``memoryview``), read where they lie, or lists, tuples and ranges, which are converted first. Ids
/// must be at least 0 and below 2**31 (2**63 for ``atom="u64"``).
///
/// A namespace is what must be equal besides the tokens for KV to be shared: None (the default one), a str, bytes, a pair
/// ``(kind, value)`` of str, bytes or int, or a tuple of such pairs. Different values are different namespaces, their types
/// included.
///
/// Parameters
/// ----------
/// page_size : int
///     Tokens per page: a power of two from 1 to 1024.
/// policy : str or WeightedPolicy
///     What is evicted first, page by page: "lru" (used least recently), "lfu" (least often), "lfu-ageing" (least often,
///     what was popular long ago fades), "fifo" (born first), "mru", "filo", "slru" (used once, then the rest),
///     "priority" (lowest), "gdsf" (least uses times cost to compute again, fading); ties by last use. Or one of your own.
/// atom : {"u32", "u64"}
///     Width of a token id; "u64" is for pairs of tokens and content hashes.
/// events : EventLog, optional
///     Is told what is stored and removed; nothing is spent on it when absent.
/// clock : callable, optional
///     Returns the time in seconds by which pins end; by default the system's.
/// compact_every : int
///     After so many inserts as many nodes are looked at for halves that a race left apart; 0: never.
///
/// Raises
/// ------
/// InvalidInputError
///     A parameter is not one of those.
///
/// Examples
/// --------
/// >>> tree = RadixTree()
/// >>> tree.insert([1, 2, 3], [7, 8, 9]).cached_len
/// 0
/// >>> tree.match_prefix([1, 2, 5]).slots.tolist()
/// [7, 8]
///
/// All that an engine with slots of its own does for a request; one token is left out of the lock, since its logits are
/// what the engine is after:
///
/// >>> import numpy as np
/// >>> tree, pool = RadixTree(page_size=4), SlotPool(64, page_size=4)
/// >>> tokens = list(range(10))
/// >>> lease = tree.lock_prefix(tokens[:-1])  # found, and safe from eviction
/// >>> start = lease.length
/// >>> own = pool.alloc(len(tokens) - start)  # after pool.free(tree.evict(...)) where too few are free
/// >>> row = np.concatenate([lease.slots, own])[: len(tokens)]
/// >>> # ... K and V of tokens[start:] are computed into row[start:] ...
/// >>> done = tree.insert(tokens, row, lease=lease)
/// >>> row[: lease.length] = lease.slots  # where somebody else was faster these are not the own ones
/// >>> pool.free(own[: done.cached_len - start])  # duplicates, once nothing reads them
/// >>> # ... the request goes on and ends ...
/// >>> pool.free(own[done.length - start :])  # the tail that fills no page
/// >>> lease.release()
/// >>> tree.cached_tokens + pool.num_free
/// 64
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct RadixTree(pub(crate) Tree);

fn made<A: Atom>(
    page_size: usize,
    policy: Policy,
    events: Option<Arc<dyn EventSink<A, i32>>>,
    clock: Option<Clock>,
    compact_every: usize,
) -> PyResult<radix_rs::RadixTree<A>> {
    let config = TreeConfig { page_size, policy, events, clock, compact_every, ..Default::default() };
    radix_rs::RadixTree::new(config).py()
}

impl RadixTree {
    pub(crate) fn of(tree: &radix_rs::RadixTree<u32>) -> Self {
        RadixTree(Atoms::U32(tree.clone()))
    }
}

#[pymethods]
impl RadixTree {
    #[new]
    #[pyo3(
        signature = (page_size=None, policy=None, *, atom="u32", events=None, clock=None, compact_every=None),
        text_signature = "(page_size=1, policy='lru', *, atom='u32', events=None, clock=None, compact_every=1000)"
    )]
    fn new(
        page_size: Option<&Bound<'_, PyAny>>,
        policy: Option<&Bound<'_, PyAny>>,
        atom: &str,
        events: Option<&Bound<'_, EventLog>>,
        clock: Option<&Bound<'_, PyAny>>,
        compact_every: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let page_size = count_or("page_size", page_size, 1)?;
        let policy = policy.map_or(Ok(Policy::Lru), self::policy)?;
        let clock = self::clock(clock)?;
        let compact_every = count_or("compact_every", compact_every, 1000)?;
        let log = events.map(Bound::get);
        // The log is a sink of the core's own: an event reaches it without the interpreter.
        Ok(RadixTree(match atom {
            "u32" => Atoms::U32(made(page_size, policy, log.map(|log| log.narrow.clone() as _), clock, compact_every)?),
            "u64" => Atoms::U64(made(page_size, policy, log.map(|log| log.wide.clone() as _), clock, compact_every)?),
            _ => return Err(invalid(format!("atom must be 'u32' or 'u64', not '{atom}'"))),
        }))
    }

    /// Find the longest cached prefix. Changes nothing: no split, no stamp, no pin.
    ///
    /// Parameters
    /// ----------
    /// tokens : array
    ///     Token ids, ``[num_tokens]``. An id that no token can have matches nothing.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens.
    ///
    /// Returns
    /// -------
    /// Match
    ///     In whole pages; a hint, see `lock_prefix`.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     ``tokens`` is no one-dimensional array of integers, or the namespace is no namespace.
    #[pyo3(signature = (tokens, namespace=None))]
    fn match_prefix(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Match> {
        let namespace = encode(namespace)?;
        let tokens = Ints::new("tokens", tokens)?;
        let found = detached(py, tokens.len(), || each_of!(&self.0, tree => tree.match_prefix(&tokens, &namespace)));
        Ok(Match(found))
    }

    /// Find the longest cached prefix and write its slots into ``out``: `match_prefix` and `Match.write_slots` in one.
    ///
    /// Readers of the same prefix share nothing that any of them writes, so this is the call for many threads.
    ///
    /// Parameters
    /// ----------
    /// tokens : array
    ///     Token ids, ``[num_tokens]``. An id that no token can have matches nothing.
    /// out : array
    ///     int32, contiguous, writable: a row of a block table, a tensor on the host. As many slots as fit are written to
    ///     its front.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens.
    /// start : int
    ///     Tokens of the prefix to skip.
    ///
    /// Returns
    /// -------
    /// int
    ///     Length of the prefix, in whole pages; its slots are a hint, see `lock_prefix`.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     As for `match_prefix`, ``out`` is something else, or ``start`` is negative.
    #[pyo3(
        signature = (tokens, out, namespace=None, *, start=None),
        text_signature = "($self, tokens, out, namespace=None, *, start=0)"
    )]
    fn match_into(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let namespace = encode(namespace)?;
        let start = count_or("start", start, 0)?;
        let out = Memory::writable("out", out)?;
        let tokens = Ints::new("tokens", tokens)?;
        let mut done = 0;
        let mut write = |at: usize, slots: &[i32]| {
            done += out.write(done, &slots[start.saturating_sub(at).min(slots.len())..]);
        };
        Ok(detached(py, tokens.len(), || each!(&self.0, tree => tree.match_with(&tokens, &namespace, &mut write))))
    }

    /// Protect the longest cached prefix until the lease is released, and mark it, and nothing else, as used now.
    ///
    /// Parameters
    /// ----------
    /// tokens : array
    ///     Token ids, ``[num_tokens]``.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens.
    ///
    /// Returns
    /// -------
    /// Lease
    ///     In whole pages; its slots are safe from reuse.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     As for `match_prefix`.
    /// LeaseError
    ///     A node has more users than can be counted.
    #[pyo3(signature = (tokens, namespace=None))]
    fn lock_prefix(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Lease> {
        let namespace = encode(namespace)?;
        let tokens = Ints::new("tokens", tokens)?;
        let held = detached(py, tokens.len(), || Ok(each_of!(&self.0, tree => tree.lock_prefix(&tokens, &namespace)?)));
        Ok(Lease::new(held.py()?))
    }

    /// Mark the longest cached prefix as used now, without a lease.
    ///
    /// Parameters
    /// ----------
    /// tokens : array
    ///     Token ids, ``[num_tokens]``.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     As for `match_prefix`.
    #[pyo3(signature = (tokens, namespace=None))]
    fn touch(&self, py: Python<'_>, tokens: &Bound<'_, PyAny>, namespace: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let namespace = encode(namespace)?;
        let tokens = Ints::new("tokens", tokens)?;
        detached(py, tokens.len(), || each!(&self.0, tree => tree.touch(&tokens, &namespace)));
        Ok(())
    }

    /// Cache tokens with their slots; what is cached already keeps its own slots.
    ///
    /// Yours remain the slots before ``cached_len`` that were not the lease's already, and those from ``length`` on. So
    /// ``lease.slots`` may differ from what was passed: read it again.
    ///
    /// Parameters
    /// ----------
    /// tokens : array
    ///     Token ids, ``[num_tokens]``. An unaligned tail is dropped.
    /// slots : array
    ///     One slot per token. Those at positions that are cached already are ignored; the others must not be in the
    ///     tree, and those of a page must be consecutive and start at a multiple of ``page_size``. A slot the tree holds
    ///     already is not checked here: `check` names it.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens. Ignored with ``lease``: the lease's counts.
    /// lease : Lease, optional
    ///     Covers a leading part of ``tokens``; the walk starts at its end, and it grows over what was inserted.
    /// priority : int
    ///     Kept with the nodes that are made, for policies that look at it.
    ///
    /// Returns
    /// -------
    /// InsertResult
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     The lengths differ, a token id is out of range, or the slots of a new page are no page. Nothing has changed.
    /// LeaseError
    ///     The lease is released, in use by another thread, of another tree, or covers something else.
    #[pyo3(
        signature = (tokens, slots, namespace=None, *, lease=None, priority=0),
        text_signature = "($self, tokens, slots, namespace=None, *, lease=None, priority=0)"
    )]
    fn insert(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        slots: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        lease: Option<&Bound<'_, Lease>>,
        priority: i32,
    ) -> PyResult<InsertResult> {
        // The tokens last: reading the others may run Python code, which could move memory that is only pointed at.
        let slots = Ints::new("slots", slots)?.slots()?;
        let namespace = encode(namespace)?;
        let tokens = Ints::new("tokens", tokens)?;
        let Some(lease) = lease else {
            let done = detached(
                py,
                tokens.len(),
                || each!(&self.0, tree => tree.insert_prioritized(&tokens, &slots, &namespace, priority)),
            );
            return Ok(done.py()?.into());
        };
        let mut used = lease.get().used()?;
        let held = used.as_mut().ok_or_else(released)?;
        let done = match (&self.0, held) {
            (Atoms::U32(tree), Atoms::U32(held)) => {
                detached(py, tokens.len(), || tree.insert_with(held, &tokens, &slots, priority))
            }
            (Atoms::U64(tree), Atoms::U64(held)) => {
                detached(py, tokens.len(), || tree.insert_with(held, &tokens, &slots, priority))
            }
            _ => return Err(lease_error("the lease belongs to another tree")),
        };
        Ok(done.py()?.into())
    }

    /// Free cached tokens that no lease protects, those that the policy puts first.
    ///
    /// Parameters
    /// ----------
    /// num_tokens : int
    ///     Tokens to free, rounded up to whole pages, from the tail of each victim.
    /// whole_leaves : bool
    ///     Take whole edges, so that more than asked may go.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray
    ///     The freed slots, int32: fewer than asked where everything else is protected. They are yours.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     ``num_tokens`` is negative.
    #[pyo3(signature = (num_tokens, *, whole_leaves=false))]
    fn evict<'py>(
        &self,
        py: Python<'py>,
        num_tokens: &Bound<'py, PyAny>,
        whole_leaves: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let num_tokens = count("num_tokens", num_tokens)?;
        // A victim costs much more than a token that is compared.
        let slots = detached(py, num_tokens.saturating_mul(64), || {
            let mut slots = Vec::new();
            each!(&self.0, tree => match whole_leaves {
                true => tree.evict_leaves(num_tokens, &mut slots),
                false => tree.evict(num_tokens, &mut slots),
            });
            slots
        });
        output::array(py, slots)
    }

    /// Protect the path to a place and mark it as used now. No token is compared.
    ///
    /// Parameters
    /// ----------
    /// handle : Handle
    ///     From a match, a lease, an insert or a node of this tree.
    ///
    /// Returns
    /// -------
    /// Lease
    ///     Of ``handle.end_depth`` tokens.
    ///
    /// Raises
    /// ------
    /// StaleHandleError
    ///     The place is gone.
    /// LeaseError
    ///     A node has more users than can be counted.
    fn lock(&self, handle: &Bound<'_, Handle>) -> PyResult<Lease> {
        Ok(Lease::new(each_of!(&self.0, tree => tree.lock(&handle.get().0).py()?)))
    }

    /// The slots from the root to a place.
    ///
    /// Parameters
    /// ----------
    /// handle : Handle
    ///     Of this tree.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray
    ///     int32 ``[handle.end_depth]``: a read-only view where the path is one edge, else a copy.
    ///
    /// Raises
    /// ------
    /// StaleHandleError
    ///     The place is gone.
    fn slots<'py>(&self, py: Python<'py>, handle: &Bound<'py, Handle>) -> PyResult<Bound<'py, PyAny>> {
        let found = Match(each_of!(&self.0, tree => tree.values(&handle.get().0).py()?));
        Match::slots(&Bound::new(py, found)?)
    }

    /// The place where the edge above ends, None above the first edge.
    ///
    /// Parameters
    /// ----------
    /// handle : Handle
    ///     Of this tree.
    ///
    /// Raises
    /// ------
    /// StaleHandleError
    ///     The place is gone.
    fn parent(&self, handle: &Bound<'_, Handle>) -> PyResult<Option<Handle>> {
        Ok(each!(&self.0, tree => tree.parent(&handle.get().0)).py()?.map(Handle))
    }

    /// What can be said about the node at a place.
    ///
    /// Parameters
    /// ----------
    /// handle : Handle
    ///     Of this tree.
    ///
    /// Raises
    /// ------
    /// StaleHandleError
    ///     The place is gone.
    fn node(&self, handle: &Bound<'_, Handle>) -> PyResult<NodeInfo> {
        Ok(each!(&self.0, tree => tree.node(&handle.get().0)).py()?.into())
    }

    /// All nodes from the roots down, parents before children.
    ///
    /// Returns
    /// -------
    /// list of NodeInfo
    ///     Exact at rest.
    fn nodes(&self, py: Python<'_>) -> Vec<NodeInfo> {
        let infos = py.detach(|| each!(&self.0, tree => tree.nodes()));
        infos.into_iter().map(NodeInfo::from).collect()
    }

    /// Make whole what was left split, looking at no more than ``max_work`` nodes.
    ///
    /// Parameters
    /// ----------
    /// max_work : int
    ///     Nodes to look at.
    ///
    /// Returns
    /// -------
    /// int
    ///     Nodes saved.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     ``max_work`` is negative.
    fn compact(&self, py: Python<'_>, max_work: &Bound<'_, PyAny>) -> PyResult<usize> {
        let max_work = count("max_work", max_work)?;
        Ok(py.detach(|| each!(&self.0, tree => tree.compact(max_work))))
    }

    /// Forget everything. What a lease holds stays protected until the lease goes, and is the first to be evicted then.
    ///
    /// Handles from before are stale.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray
    ///     The slots that no lease holds, int32. They are yours.
    fn reset<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let slots = py.detach(|| {
            let mut slots = Vec::new();
            each!(&self.0, tree => tree.reset(&mut slots));
            slots
        });
        output::array(py, slots)
    }

    /// Audit the whole tree. Meaningful while no other thread changes it.
    ///
    /// Raises
    /// ------
    /// IntegrityError
    ///     Names the first broken invariant.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| each!(&self.0, tree => tree.check())).py()
    }

    /// The counters, in tokens and nodes.
    ///
    /// - ``cached_tokens``: tokens in the tree;
    /// - ``evictable_tokens``: of these, what no lease protects;
    /// - ``protected_tokens``: of these, what leases protect;
    /// - ``num_nodes``: nodes, the roots included;
    /// - ``size_bytes``: memory of the tree;
    /// - ``copied_tokens``: tokens copied so far to make edges whole again;
    /// - ``num_candidates``: leaves in the order of eviction, entries that are out of date included;
    /// - ``num_retired``: retired objects that a reader may still look at.
    ///
    /// Returns
    /// -------
    /// dict of str to int
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
        stats::tree(py, &each!(&self.0, tree => tree.stats()))
    }

    /// Tokens per page.
    #[getter]
    fn page_size(&self) -> usize {
        each!(&self.0, tree => tree.page_size())
    }

    /// Tokens in the tree. Exact at rest.
    #[getter]
    fn cached_tokens(&self) -> usize {
        each!(&self.0, tree => tree.cached_tokens())
    }

    /// Cached tokens that no lease protects: what `evict` can free.
    #[getter]
    fn evictable_tokens(&self) -> usize {
        each!(&self.0, tree => tree.evictable_tokens())
    }

    /// Cached tokens that a lease protects.
    #[getter]
    fn protected_tokens(&self) -> usize {
        each!(&self.0, tree => tree.protected_tokens())
    }

    /// Nodes in use, roots included.
    #[getter]
    fn num_nodes(&self) -> usize {
        each!(&self.0, tree => tree.num_nodes())
    }

    /// Memory held for the tree, in bytes.
    #[getter]
    fn size_bytes(&self) -> usize {
        each!(&self.0, tree => tree.size_bytes())
    }

    fn __repr__(&self) -> String {
        let (page_size, cached, protected) = (self.page_size(), self.cached_tokens(), self.protected_tokens());
        format!("RadixTree(page_size={page_size}, cached_tokens={cached}, protected_tokens={protected})")
    }
}
