//! Arrays for Python that are views of memory on this side: nothing is copied, and the base object of each array keeps
//! that memory.

use std::ptr::null_mut;

use numpy::npyffi::{self, NPY_TYPES, NpyTypes, PY_ARRAY_API};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A read-only int32 array over `len` numbers at `data`, kept alive by `base`.
///
/// # Safety
/// The numbers must stay readable as long as `base` lives. Others may write to them: NumPy reads them as Python asks.
#[inline]
pub(crate) unsafe fn view<'py>(base: Bound<'py, PyAny>, data: *const i32, len: usize) -> PyResult<Bound<'py, PyAny>> {
    let flags = npyffi::NPY_ARRAY_C_CONTIGUOUS | npyffi::NPY_ARRAY_ALIGNED;
    // SAFETY: the caller's promise.
    unsafe { flagged(base, data, len, flags) }
}

/// # Safety
/// As for [`view`]; with `NPY_ARRAY_WRITEABLE` among the flags nobody else may use the numbers.
unsafe fn flagged<'py>(
    base: Bound<'py, PyAny>,
    data: *const i32,
    len: usize,
    flags: i32,
) -> PyResult<Bound<'py, PyAny>> {
    let py = base.py();
    let mut dims = [len as isize];
    // SAFETY: NumPy's constructor with one dimension and memory that is not its own; it takes the reference on `descr`.
    let array = unsafe {
        let descr = PY_ARRAY_API.PyArray_DescrFromType(py, NPY_TYPES::NPY_INT as i32);
        let kind = npyffi::get_type_object(py, NpyTypes::PyArray_Type);
        let data = data.cast_mut().cast();
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            kind,
            descr,
            1,
            dims.as_mut_ptr(),
            null_mut(),
            data,
            flags,
            null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)?
    };
    // SAFETY: just made; the call takes the reference on `base`.
    match unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base.into_ptr()) } {
        0 => Ok(array),
        _ => Err(PyErr::fetch(py)),
    }
}

/// Holds a value of this side for the arrays that look into it.
#[pyclass(frozen, module = "radix_rs._core")]
#[expect(dead_code, reason = "held, never looked at")]
pub(crate) struct Owner(Box<dyn Send + Sync>);

/// An object that keeps `value`, to be the base of arrays.
pub(crate) fn owner<T: Send + Sync + 'static>(py: Python<'_>, value: T) -> PyResult<Bound<'_, PyAny>> {
    Ok(Bound::new(py, Owner(Box::new(value)))?.into_any())
}

/// A view of what `owner` keeps alive.
///
/// # Safety
/// As for [`view`], with `owner` as the base.
pub(crate) unsafe fn owned_view<'py, T: Send + Sync + 'static>(
    py: Python<'py>,
    owner: T,
    data: *const i32,
    len: usize,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the caller's promise.
    unsafe { view(self::owner(py, owner)?, data, len) }
}

/// An array of slots that belong to whoever holds it: writable.
pub(crate) fn array(py: Python<'_>, slots: Vec<i32>) -> PyResult<Bound<'_, PyAny>> {
    let slots = slots.into_boxed_slice();
    let (data, len) = (slots.as_ptr(), slots.len());
    let base = owner(py, slots)?;
    // SAFETY: the numbers moved with the box into the owner, which nobody else has; a box's contents stay in place.
    unsafe { flagged(base, data, len, npyffi::NPY_ARRAY_CARRAY) }
}

/// One view for each piece, over memory that `base` keeps.
///
/// # Safety
/// As for [`view`], for each piece.
pub(crate) unsafe fn views<'a, 'py>(
    base: &Bound<'py, PyAny>,
    pieces: impl ExactSizeIterator<Item = &'a [i32]>,
) -> PyResult<Bound<'py, PyTuple>> {
    let mut made = Vec::with_capacity(pieces.len());
    for piece in pieces {
        // SAFETY: the caller's promise.
        made.push(unsafe { view(base.clone(), piece.as_ptr(), piece.len()) }?);
    }
    PyTuple::new(base.py(), made)
}
