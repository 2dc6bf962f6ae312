//! The life of one request.

use pyo3::prelude::*;
use pyo3::types::PyType;
use radix_rs::RowView;

use crate::cache::Fence;
use crate::detach::detached;
use crate::error::{IntoPy, lease};
use crate::input::{Ints, count, count_or};
use crate::output;
use crate::try_cell::{TryCell, Used};

/// A request in progress: its tokens, the prefix it shares, and the slots that are its own.
///
/// Made by `PrefixCache.begin` and by `fork`. A context manager: leaving the block is `abort`, and so is dropping it; what
/// it published stays cached. Positions ``[0, num_published)`` of its row are slots of the tree, the rest are its own.
///
/// One thread uses it at a time; a second one gets a `LeaseError` instead of waiting. Every method but `finish` and
/// `abort` raises `LeaseError` once it is finished; the numbers stay readable.
///
/// Examples
/// --------
/// >>> cache = PrefixCache(num_slots=64, page_size=4)
/// >>> with cache.begin([1, 2, 3, 4, 5]) as request:
/// ...     slots = request.reserve(5)  # K and V of the five tokens are computed into these
/// ...     changed = request.commit(5)  # whole pages are shared from here on
/// ...     request.append([6])  # sampled; it is computed in the next step
/// ...     request.num_tokens, request.num_computed, request.num_published
/// (6, 5, 4)
/// >>> request.finished, cache.begin([1, 2, 3, 4, 9]).cached_len
/// (True, 4)
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct Sequence(TryCell<radix_rs::Sequence>);

impl Sequence {
    pub(crate) fn new(sequence: radix_rs::Sequence) -> Self {
        Sequence(TryCell::new(sequence))
    }

    fn used(&self) -> PyResult<Used<'_, radix_rs::Sequence>> {
        self.0.get().ok_or_else(|| lease("the sequence is in use by another thread"))
    }

    fn close(&self, py: Python<'_>, publish: bool, after: Option<&Bound<'_, Fence>>) -> PyResult<()> {
        let mut sequence = self.used()?;
        let after = after.map(|fence| &fence.get().0);
        detached(py, sequence.num_tokens(), || sequence.close(publish, after)).py()
    }
}

/// A live array over a row: its memory is kept by the view, whoever owns it.
fn live<'py>(py: Python<'py>, row: RowView) -> PyResult<Bound<'py, PyAny>> {
    let (data, len) = (row.as_ptr(), row.len());
    // SAFETY: the view moves into the owner and keeps the row's memory.
    unsafe { output::owned_view(py, row, data, len) }
}

#[pymethods]
impl Sequence {
    /// Tokens known: the prompt and what was appended.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn num_tokens(&self) -> PyResult<usize> {
        Ok(self.used()?.num_tokens())
    }

    /// Prompt tokens that were found in the cache at the beginning and need not be computed.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn cached_len(&self) -> PyResult<usize> {
        Ok(self.used()?.cached_len())
    }

    /// Tokens whose K and V exist.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn num_computed(&self) -> PyResult<usize> {
        Ok(self.used()?.num_computed())
    }

    /// Tokens that have a slot.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn num_reserved(&self) -> PyResult<usize> {
        Ok(self.used()?.num_reserved())
    }

    /// Leading tokens whose slots are the tree's.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn num_published(&self) -> PyResult<usize> {
        Ok(self.used()?.num_published())
    }

    /// Whether it has ended.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn finished(&self) -> PyResult<bool> {
        Ok(self.used()?.is_finished())
    }

    /// The slots as a live read-only view of the row, int32 ``[num_reserved]``: later changes show, nothing is copied.
    ///
    /// Its length is that of when it was taken. With ``out=`` it lies in the caller's row. The view stays valid after the
    /// sequence has ended.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let row = self.used()?.row();
        live(py, row)
    }

    /// ``slot // page_size`` for each page of the row, int32 ``[ceil(num_reserved / page_size)]``: a live read-only view.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn page_table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let table = self.used()?.page_table();
        live(py, table)
    }

    /// What has to be copied before a forked sequence is used, int32 ``[num_copies, 2]``: (source, destination) slots.
    ///
    /// Raises
    /// ------
    /// LeaseError
    ///     It is in use by another thread.
    #[getter]
    fn copies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let flat: Vec<i32> = self.used()?.copies().iter().flat_map(|&(from, to)| [from, to]).collect();
        let pairs = flat.len() / 2;
        output::array(py, flat)?.call_method1(pyo3::intern!(py, "reshape"), (pairs, 2))
    }

    /// Find slots for more tokens: free ones first, then by evicting no more than the shortfall.
    ///
    /// Parameters
    /// ----------
    /// num_tokens : int
    ///     Tokens to find slots for, beyond ``num_reserved``. What is left of a page serves the next call.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray
    ///     A live read-only view of exactly these slots, int32 ``[num_tokens]``.
    ///
    /// Raises
    /// ------
    /// CapacityError
    ///     Free and evictable slots are not enough; nothing has changed.
    /// InvalidInputError
    ///     ``num_tokens`` is negative, or the caller's row is too short; nothing has changed.
    /// LeaseError
    ///     It is finished, or in use by another thread.
    fn reserve<'py>(&self, py: Python<'py>, num_tokens: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let num_tokens = count("num_tokens", num_tokens)?;
        let mut sequence = self.used()?;
        let row = detached(py, num_tokens.saturating_mul(16), || sequence.reserve(num_tokens)).py()?;
        live(py, row)
    }

    /// Record tokens that were sampled or received. May run ahead of `reserve` or behind it.
    ///
    /// Parameters
    /// ----------
    /// tokens : array
    ///     Token ids, ``[num_tokens]``, at least 0 and below 2**31.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     A token id is out of range, or ``tokens`` is no array of integers; nothing has changed.
    /// LeaseError
    ///     It is finished, or in use by another thread.
    fn append(&self, py: Python<'_>, tokens: &Bound<'_, PyAny>) -> PyResult<()> {
        let tokens = Ints::new("tokens", tokens)?;
        let mut sequence = self.used()?;
        detached(py, tokens.len(), || sequence.append(&tokens)).py()
    }

    /// Say that K and V exist for the first ``num_computed`` tokens, and publish the whole pages of these.
    ///
    /// Where the tree has a page already the row is repointed to the tree's slots, and the own ones go back.
    ///
    /// Parameters
    /// ----------
    /// num_computed : int
    ///     At most ``num_reserved``; fewer than before changes nothing.
    /// after : Fence, optional
    ///     Slots that go back wait for it.
    ///
    /// Returns
    /// -------
    /// (start, stop) : tuple of int
    ///     The range of the row that changed; ``start == stop == num_published`` where nothing did.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     More than is reserved, or a fence of another cache; nothing has changed.
    /// LeaseError
    ///     It is finished, in use by another thread, or a node has more users than can be counted.
    #[pyo3(signature = (num_computed, after=None))]
    fn commit(
        &self,
        py: Python<'_>,
        num_computed: &Bound<'_, PyAny>,
        after: Option<&Bound<'_, Fence>>,
    ) -> PyResult<(usize, usize)> {
        let num_computed = count("num_computed", num_computed)?;
        let mut sequence = self.used()?;
        let after = after.map(|fence| &fence.get().0);
        let new = num_computed.saturating_sub(sequence.num_published());
        let changed = detached(py, new, || sequence.commit_after(num_computed, after)).py()?;
        Ok((changed.start, changed.end))
    }

    /// Roll back to the first ``num_tokens`` tokens: rejected drafts, edited streams.
    ///
    /// Own pages beyond them go back. Published pages stay cached; a cut inside one goes back to where that page starts,
    /// since its slots are shared: the tokens up to the cut stay known and have to be computed again.
    ///
    /// Parameters
    /// ----------
    /// num_tokens : int
    ///     Tokens to keep.
    /// after : Fence, optional
    ///     Slots that go back wait for it.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     There are fewer tokens and slots, or a fence of another cache; nothing has changed.
    /// LeaseError
    ///     It is finished, or in use by another thread.
    #[pyo3(signature = (num_tokens, after=None))]
    fn truncate(
        &self,
        py: Python<'_>,
        num_tokens: &Bound<'_, PyAny>,
        after: Option<&Bound<'_, Fence>>,
    ) -> PyResult<()> {
        let num_tokens = count("num_tokens", num_tokens)?;
        let mut sequence = self.used()?;
        let after = after.map(|fence| &fence.get().0);
        detached(py, sequence.num_reserved(), || sequence.truncate_after(num_tokens, after)).py()
    }

    /// Branch: the new sequences share everything before ``at``.
    ///
    /// Published pages are shared. Computed tokens behind them get slots of their own in each branch, and its ``copies``
    /// says what has to be copied there before it is used. Slots reserved but not computed are not shared.
    ///
    /// Parameters
    /// ----------
    /// count : int
    ///     How many.
    /// at : int, optional
    ///     Tokens to share; all of them by default.
    ///
    /// Returns
    /// -------
    /// list of Sequence
    ///     All ``count`` of them.
    ///
    /// Raises
    /// ------
    /// CapacityError
    ///     There are not enough slots for all branches; there are none then.
    /// InvalidInputError
    ///     ``at`` is beyond the tokens, or ``count`` is negative.
    /// LeaseError
    ///     It is finished, or in use by another thread.
    #[pyo3(signature = (count=None, at=None), text_signature = "($self, count=1, at=None)")]
    fn fork(
        &self,
        py: Python<'_>,
        count: Option<&Bound<'_, PyAny>>,
        at: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Sequence>> {
        let count = count_or("count", count, 1)?;
        let at = at.map(|at| self::count("at", at)).transpose()?;
        let mut sequence = self.used()?;
        let work = sequence.num_tokens().saturating_mul(count);
        let branches = detached(py, work, || sequence.fork(count, at)).py()?;
        Ok(branches.into_iter().map(Sequence::new).collect())
    }

    /// End it: publish the whole pages of what is computed, let the prefix go, give its own slots back.
    ///
    /// A second time does nothing.
    ///
    /// Parameters
    /// ----------
    /// after : Fence, optional
    ///     Slots that go back wait for it.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     A fence of another cache; nothing has changed.
    /// LeaseError
    ///     It is in use by another thread.
    #[pyo3(signature = (after=None))]
    fn finish(&self, py: Python<'_>, after: Option<&Bound<'_, Fence>>) -> PyResult<()> {
        self.close(py, true, after)
    }

    /// End it without publishing anything more. A second time does nothing.
    ///
    /// Parameters
    /// ----------
    /// after : Fence, optional
    ///     Slots that go back wait for it.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     A fence of another cache; nothing has changed.
    /// LeaseError
    ///     It is in use by another thread.
    #[pyo3(signature = (after=None))]
    fn abort(&self, py: Python<'_>, after: Option<&Bound<'_, Fence>>) -> PyResult<()> {
        self.close(py, false, after)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Option<&Bound<'_, PyType>>,
        _error: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.close(py, false, None)
    }

    fn __repr__(&self) -> String {
        let Some(sequence) = self.0.get() else { return "Sequence(in use by another thread)".to_owned() };
        if sequence.is_finished() {
            return format!("Sequence(finished, num_tokens={})", sequence.num_tokens());
        }
        format!(
            "Sequence(num_tokens={}, cached_len={}, num_computed={}, num_reserved={}, num_published={})",
            sequence.num_tokens(),
            sequence.cached_len(),
            sequence.num_computed(),
            sequence.num_reserved(),
            sequence.num_published()
        )
    }
}
