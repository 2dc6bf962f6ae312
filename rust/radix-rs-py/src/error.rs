//! Errors of the core as the typed exceptions of `radix_rs.errors`: the only place where one becomes the other.

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use radix_rs::Error;

struct Classes {
    invalid_input: Py<PyType>,
    capacity: Py<PyType>,
    stale_handle: Py<PyType>,
    double_free: Py<PyType>,
    lease: Py<PyType>,
    snapshot: Py<PyType>,
    integrity: Py<PyType>,
    pin_budget: Py<PyType>,
}

impl Classes {
    fn import(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("radix_rs.errors")?;
        let class = |name: &str| Ok::<_, PyErr>(module.getattr(name)?.cast_into::<PyType>()?.unbind());
        Ok(Classes {
            invalid_input: class("InvalidInputError")?,
            capacity: class("CapacityError")?,
            stale_handle: class("StaleHandleError")?,
            double_free: class("DoubleFreeError")?,
            lease: class("LeaseError")?,
            snapshot: class("SnapshotError")?,
            integrity: class("IntegrityError")?,
            pin_budget: class("PinBudgetError")?,
        })
    }
}

/// Makes an exception of one of the classes from its arguments.
fn raise<A>(class: fn(&Classes) -> &Py<PyType>, arguments: A) -> PyErr
where
    A: for<'py> pyo3::call::PyCallArgs<'py>,
{
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    Python::attach(|py| {
        let made = CLASSES.get_or_try_init(py, || Classes::import(py)).and_then(|c| class(c).bind(py).call1(arguments));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// What the core refused, as Python sees it. Exhaustive on purpose as far as the core's enum allows: a new kind of
/// error must find its class here.
#[cold]
pub(crate) fn from_core(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::InvalidInput(_) => invalid(text),
        Error::InvalidToken { position, value } => invalid_at(text, Some(position), Some(value)),
        Error::Capacity { needed, free, evictable, protected } => {
            raise(|c| &c.capacity, (needed, free, evictable, protected))
        }
        Error::StaleHandle { .. } => raise(|c| &c.stale_handle, (text,)),
        Error::DoubleFree { slot } => raise(|c| &c.double_free, (slot,)),
        Error::Lease(_) | Error::PinOverflow => raise(|c| &c.lease, (text,)),
        Error::PinBudget { needed, pinned, budget } => raise(|c| &c.pin_budget, (needed, pinned, budget)),
        Error::InPrompt { prompt, error } => Python::attach(|py| in_prompt(py, prompt, from_core(*error))),
        Error::Snapshot(_) => raise(|c| &c.snapshot, (text,)),
        Error::Io { .. } => PyOSError::new_err(text),
        Error::Integrity(_) => raise(|c| &c.integrity, (text,)),
        _ => PyRuntimeError::new_err(text),
    }
}

/// `InvalidInputError` where no single element is to blame.
#[cold]
pub(crate) fn invalid(text: String) -> PyErr {
    invalid_at(text, None, None)
}

/// `InvalidInputError` that names the element.
#[cold]
pub(crate) fn invalid_at(text: String, position: Option<usize>, value: Option<i128>) -> PyErr {
    raise(|c| &c.invalid_input, (text, position, value))
}

/// An `InvalidInputError` about one of many prompts, naming it; anything else as it is.
#[cold]
pub(crate) fn in_prompt(py: Python<'_>, prompt: usize, error: PyErr) -> PyErr {
    let value = error.value(py);
    let Ok(position) = value.getattr("position").map(Bound::unbind) else { return error };
    let Ok(element) = value.getattr("value").map(Bound::unbind) else { return error };
    let named = raise(|c| &c.invalid_input, (format!("prompt {prompt}: {value}"), position, element, prompt));
    named.set_cause(py, error.cause(py));
    named
}

/// `LeaseError`: released, finished, or in use by another thread.
#[cold]
pub(crate) fn lease(text: &str) -> PyErr {
    raise(|c| &c.lease, (text,))
}

/// The core's results as Python's.
pub(crate) trait IntoPy<T> {
    fn py(self) -> PyResult<T>;
}

impl<T> IntoPy<T> for radix_rs::Result<T> {
    #[inline]
    fn py(self) -> PyResult<T> {
        self.map_err(from_core)
    }
}
