//! The pool of slots.

use pyo3::prelude::*;

use crate::detach::detached;
use crate::error::IntoPy;
use crate::input::{Ints, Memory, count, count_or};
use crate::output;

/// The free slots of a KV pool, handed out in whole pages.
///
/// Lock-free: may be used from any thread.
///
/// Parameters
/// ----------
/// num_slots : int
///     Slots in all, numbered from 0: a positive multiple of ``page_size``.
/// page_size : int
///     Slots per page: a power of two from 1 to 1024.
///
/// Raises
/// ------
/// InvalidInputError
///     A size is not one of those.
///
/// Examples
/// --------
/// >>> pool = SlotPool(64, page_size=16)
/// >>> slots = pool.alloc(20)
/// >>> len(slots), pool.num_free
/// (32, 32)
/// >>> pool.free(slots)
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct SlotPool(pub(crate) radix_rs::SlotPool);

#[pymethods]
impl SlotPool {
    #[new]
    #[pyo3(signature = (num_slots, page_size=None), text_signature = "(num_slots, page_size=1)")]
    fn new(num_slots: &Bound<'_, PyAny>, page_size: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let num_slots = count("num_slots", num_slots)?;
        let page_size = count_or("page_size", page_size, 1)?;
        Ok(SlotPool(radix_rs::SlotPool::new(num_slots, page_size).py()?))
    }

    /// Take slots: whole pages for at least ``num_tokens``, the lowest free ones at rest.
    ///
    /// Parameters
    /// ----------
    /// num_tokens : int
    ///     Rounded up to whole pages; 0 gives none.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray
    ///     int32, consecutive within a page.
    ///
    /// Raises
    /// ------
    /// CapacityError
    ///     Fewer are free; nothing was taken.
    fn alloc<'py>(&self, py: Python<'py>, num_tokens: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let num_tokens = count("num_tokens", num_tokens)?;
        let slots = detached(py, num_tokens, || self.0.alloc(num_tokens)).py()?;
        output::array(py, slots)
    }

    /// Take slots and write them to a caller's memory, without an array in between.
    ///
    /// Parameters
    /// ----------
    /// out : array
    ///     int32 ``[num_tokens]``, contiguous, writable, whole pages. Every element is written.
    ///
    /// Raises
    /// ------
    /// CapacityError
    ///     Fewer are free; nothing was taken or written.
    /// InvalidInputError
    ///     ``out`` is something else.
    fn alloc_into(&self, py: Python<'_>, out: &Bound<'_, PyAny>) -> PyResult<()> {
        let memory = Memory::writable("out", out)?;
        // The pool writes into its own memory and hands over only what is complete: `out` may be shared with others.
        let slots = detached(py, memory.len(), || {
            let mut slots = vec![0; memory.len()];
            self.0.alloc_into(&mut slots).map(|()| slots)
        });
        memory.write(0, &slots.py()?);
        Ok(())
    }

    /// Give slots back.
    ///
    /// Parameters
    /// ----------
    /// slots : array
    ///     Whole pages in any order, the slots of a page side by side.
    ///
    /// Raises
    /// ------
    /// DoubleFreeError
    ///     A slot is free already, or named twice; nothing was given back.
    /// InvalidInputError
    ///     Not whole pages, or not slots of this pool; nothing was given back.
    fn free(&self, py: Python<'_>, slots: &Bound<'_, PyAny>) -> PyResult<()> {
        let slots = Ints::new("slots", slots)?.slots()?;
        detached(py, slots.len(), || self.0.free(&slots)).py()
    }

    /// Free slots.
    #[getter]
    fn num_free(&self) -> usize {
        self.0.num_free()
    }

    /// Slots in all.
    #[getter]
    fn num_slots(&self) -> usize {
        self.0.num_slots()
    }

    /// Slots per page.
    #[getter]
    fn page_size(&self) -> usize {
        self.0.page_size()
    }

    /// Audit the pool at rest.
    ///
    /// Raises
    /// ------
    /// IntegrityError
    ///     Names the first broken invariant.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.check()).py()
    }

    fn __repr__(&self) -> String {
        let pool = &self.0;
        format!(
            "SlotPool(num_slots={}, page_size={}, num_free={})",
            pool.num_slots(),
            pool.page_size(),
            pool.num_free()
        )
    }
}
