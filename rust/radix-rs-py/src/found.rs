//! What the tree gives back: matches, leases, handles, facts about nodes.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use radix_rs::{Inserted, Segment};

use crate::atoms::{Atoms, each};
use crate::error::lease;
use crate::input::{Memory, count_or};
use crate::output;
use crate::try_cell::{TryCell, Used};

/// Writes the slots of segments from position `start` on to the front of `out`.
fn write<A: radix_rs::Atom>(segments: &[Segment<A>], out: &Bound<'_, PyAny>, start: usize) -> PyResult<usize> {
    let memory = Memory::writable("out", out)?;
    let (mut skip, mut done) = (start, 0);
    for segment in segments {
        let slots = segment.as_slice();
        done += memory.write(done, &slots[skip.min(slots.len())..]);
        skip = skip.saturating_sub(slots.len());
    }
    Ok(done)
}

/// One array over all segments: a view where there is one, else a copy.
fn joined<'py, A: radix_rs::Atom>(owner: &Bound<'py, PyAny>, segments: &[Segment<A>]) -> PyResult<Bound<'py, PyAny>> {
    match segments {
        // SAFETY: `owner` holds the segments, and segments keep their memory.
        [only] => unsafe { output::view(owner.clone(), only.as_slice().as_ptr(), only.as_slice().len()) },
        many => {
            let slots: Vec<&[i32]> = many.iter().map(Segment::as_slice).collect();
            output::array(owner.py(), slots.concat())
        }
    }
}

/// One view for each segment, which the arrays keep.
fn kept<A: radix_rs::Atom>(py: Python<'_>, segments: Vec<Segment<A>>) -> PyResult<Bound<'_, PyTuple>> {
    let owner = output::owner(py, segments.clone())?;
    // SAFETY: the owner holds clones of the segments, which keep the same memory.
    unsafe { output::views(&owner, segments.iter().map(Segment::as_slice)) }
}

/// One array over all segments, which keeps them where it is a view.
fn kept_joined<A: radix_rs::Atom>(py: Python<'_>, segments: Vec<Segment<A>>) -> PyResult<Bound<'_, PyAny>> {
    let owner = output::owner(py, segments.clone())?;
    joined(&owner, &segments)
}

/// The longest cached prefix of some tokens, in whole pages.
///
/// A hint: it pins nothing, so its slots may be reused while you look at them. The arrays stay readable whatever happens
/// to the tree.
///
/// Examples
/// --------
/// >>> tree = RadixTree()
/// >>> _ = tree.insert([1, 2, 3], [7, 8, 9])
/// >>> found = tree.match_prefix([1, 2, 5])
/// >>> found.length, found.slots.tolist()
/// (2, [7, 8])
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct Match(pub(crate) Atoms<radix_rs::Match<u32>, radix_rs::Match<u64>>);

#[pymethods]
impl Match {
    /// Tokens found.
    #[getter]
    fn length(&self) -> usize {
        each!(&self.0, found => found.length())
    }

    /// The slots as read-only views of the tree's memory, one int32 array per edge of the path.
    ///
    /// Nothing is copied. The views are made anew each time: keep the tuple.
    #[getter]
    fn segments<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        // SAFETY: the match is the base of the arrays and holds the segments, which keep their memory.
        each!(&slf.get().0, found => unsafe {
            output::views(slf.as_any(), found.segments().iter().map(Segment::as_slice))
        })
    }

    /// The slots in one array, int32 ``[length]``: a read-only view where the path is one edge, else a copy.
    #[getter]
    pub(crate) fn slots<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        each!(&slf.get().0, found => joined(slf.as_any(), found.segments()))
    }

    /// Write the slots from position ``start`` on to the front of ``out``, as many as fit.
    ///
    /// Parameters
    /// ----------
    /// out : array
    ///     int32, contiguous, writable: a row of a block table, a tensor on the host.
    /// start : int
    ///     Tokens of the match to skip.
    ///
    /// Returns
    /// -------
    /// int
    ///     How many were written.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     ``out`` is something else, or ``start`` is negative.
    #[pyo3(signature = (out, start=None), text_signature = "($self, out, start=0)")]
    fn write_slots(&self, out: &Bound<'_, PyAny>, start: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let start = count_or("start", start, 0)?;
        each!(&self.0, found => write(found.segments(), out, start))
    }

    /// The end of the match, held weakly.
    #[getter]
    fn handle(&self) -> Handle {
        Handle(each!(&self.0, found => found.handle()))
    }

    fn __len__(&self) -> usize {
        self.length()
    }

    fn __repr__(&self) -> String {
        format!("Match(length={})", self.length())
    }
}

type CoreLease = Atoms<radix_rs::Lease<u32>, radix_rs::Lease<u64>>;

/// Protects a prefix and its slots from eviction until it is released.
///
/// A context manager: leaving the block releases it. Dropping it does as well. While one thread uses a lease another one
/// gets a `LeaseError` instead of waiting.
///
/// Examples
/// --------
/// >>> tree = RadixTree()
/// >>> _ = tree.insert([1, 2, 3], [7, 8, 9])
/// >>> with tree.lock_prefix([1, 2, 5]) as lease:
/// ...     lease.slots.tolist(), tree.evictable_tokens
/// ([7, 8], 1)
/// >>> tree.evictable_tokens
/// 3
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct Lease(TryCell<Option<CoreLease>>);

impl Lease {
    pub(crate) fn new(lease: CoreLease) -> Self {
        Lease(TryCell::new(Some(lease)))
    }

    pub(crate) fn used(&self) -> PyResult<Used<'_, Option<CoreLease>>> {
        self.0.get().ok_or_else(|| lease("the lease is in use by another thread"))
    }

    fn with<T>(&self, look: impl FnOnce(&CoreLease) -> PyResult<T>) -> PyResult<T> {
        match &*self.used()? {
            Some(held) => look(held),
            None => Err(released()),
        }
    }
}

#[cold]
pub(crate) fn released() -> PyErr {
    lease("the lease is released")
}

#[pymethods]
impl Lease {
    /// Tokens it protects, from the first one on.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is released, or in use by another thread.
    #[getter]
    fn length(&self) -> PyResult<usize> {
        self.with(|held| Ok(each!(held, held => held.length())))
    }

    /// The slots as read-only views of the tree's memory, one int32 array per edge of the path.
    ///
    /// Nothing is copied, and the arrays do not keep the lease. They are made anew each time: keep the tuple.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is released, or in use by another thread.
    #[getter]
    fn segments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.with(|held| each!(held, held => kept(py, held.segments())))
    }

    /// The slots in one array, int32 ``[length]``: a read-only view where the path is one edge, else a copy.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is released, or in use by another thread.
    #[getter]
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.with(|held| each!(held, held => kept_joined(py, held.segments())))
    }

    /// Write the slots from position ``start`` on to the front of ``out``, as many as fit.
    ///
    /// Parameters
    /// ----------
    /// out : array
    ///     int32, contiguous, writable: a row of a block table, a tensor on the host.
    /// start : int
    ///     Tokens of the lease to skip.
    ///
    /// Returns
    /// -------
    /// int
    ///     How many were written.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     ``out`` is something else, or ``start`` is negative.
    /// LeaseError
    ///     It is released, or in use by another thread.
    #[pyo3(signature = (out, start=None), text_signature = "($self, out, start=0)")]
    fn write_slots(&self, out: &Bound<'_, PyAny>, start: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let start = count_or("start", start, 0)?;
        self.with(|held| each!(held, held => write(&held.segments(), out, start)))
    }

    /// The end of the lease, held weakly.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is released, or in use by another thread.
    #[getter]
    fn handle(&self) -> PyResult<Handle> {
        self.with(|held| Ok(Handle(each!(held, held => held.handle()))))
    }

    /// Whether it was released.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn released(&self) -> PyResult<bool> {
        Ok(self.used()?.is_none())
    }

    /// Let the prefix go. A second time does nothing.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    fn release(&self) -> PyResult<()> {
        self.used()?.take();
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        _kind: Option<&Bound<'_, PyType>>,
        _error: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.release()
    }

    fn __repr__(&self) -> String {
        match self.with(|held| Ok(each!(held, held => held.length()))) {
            Ok(length) => format!("Lease(length={length})"),
            Err(_) => "Lease(released or in use)".to_owned(),
        }
    }
}

/// A place in a tree, held weakly: it keeps nothing alive.
///
/// Using it after its node is gone raises `StaleHandleError`; it never stands for another node. Hashable and comparable.
///
/// Examples
/// --------
/// >>> tree = RadixTree()
/// >>> handle = tree.insert([1, 2, 3], [7, 8, 9]).handle
/// >>> handle.end_depth, tree.slots(handle).tolist()
/// (3, [7, 8, 9])
/// >>> tree.lock(handle).length  # no token is compared
/// 3
#[pyclass(frozen, eq, hash, module = "radix_rs._core")]
#[derive(PartialEq, Eq, Hash, Clone)]
pub(crate) struct Handle(pub(crate) radix_rs::Handle);

#[pymethods]
impl Handle {
    /// Depth of the place in tokens, from the root.
    #[getter]
    fn end_depth(&self) -> usize {
        self.0.end_depth()
    }

    fn __repr__(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        format!("<Handle end_depth={} {:08x}>", self.0.end_depth(), hasher.finish() as u32)
    }
}

/// What an insert found and did.
#[pyclass(frozen, get_all, module = "radix_rs._core")]
pub(crate) struct InsertResult {
    /// Leading tokens that were cached before. Your slots for these were not taken.
    cached_len: usize,
    /// Tokens cached now: the input without its unaligned tail.
    length: usize,
    /// The end of what is cached now, held weakly.
    handle: Handle,
}

impl From<Inserted> for InsertResult {
    fn from(done: Inserted) -> Self {
        InsertResult { cached_len: done.cached_len, length: done.length, handle: Handle(done.handle) }
    }
}

#[pymethods]
impl InsertResult {
    fn __repr__(&self) -> String {
        format!("InsertResult(cached_len={}, length={})", self.cached_len, self.length)
    }
}

/// What can be said about a node of the tree.
#[pyclass(frozen, get_all, module = "radix_rs._core")]
pub(crate) struct NodeInfo {
    /// The node at its full depth.
    handle: Handle,
    /// The node above, None for a root.
    parent: Option<Handle>,
    /// Where its edge starts, in tokens from the root.
    start: usize,
    /// Where its edge ends, in tokens from the root.
    end: usize,
    /// Number of children.
    num_children: usize,
    /// How many leases protect it.
    pins: usize,
    /// How often ``lock_prefix`` or ``begin`` took its whole edge.
    hits: usize,
    /// Logical time of the last use of its end.
    last_use: u64,
    /// Logical time at which it was made.
    created: u64,
    /// The priority it was inserted with.
    priority: i32,
}

impl From<radix_rs::NodeInfo> for NodeInfo {
    fn from(info: radix_rs::NodeInfo) -> Self {
        let radix_rs::NodeInfo { handle, parent, start, end, num_children, pins, hits, last_use, created, priority } =
            info;
        let (handle, parent) = (Handle(handle), parent.map(Handle));
        NodeInfo { handle, parent, start, end, num_children, pins, hits, last_use, created, priority }
    }
}

#[pymethods]
impl NodeInfo {
    fn __repr__(&self) -> String {
        let NodeInfo { start, end, num_children, pins, .. } = self;
        format!("NodeInfo(start={start}, end={end}, num_children={num_children}, pins={pins})")
    }
}
