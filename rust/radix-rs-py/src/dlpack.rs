//! DLPack: tensors of other libraries, without importing any of them.
//!
//! Two ways in. Types that offer `__dlpack_c_exchange_api__` (PyTorch 2.10 and later) describe a tensor by one C
//! call into a structure on our stack; everyone else gives a capsule by `__dlpack__()`, which is read and held, never
//! consumed: its destructor gives the tensor back.
//! Layouts: DLPack 1.3, <https://dmlc.github.io/dlpack/latest/c_api.html>.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyType};

const MAJOR: u32 = 1;
const READ_ONLY: u64 = 1;
const TENSOR: &CStr = c"dltensor";
const TENSOR_VERSIONED: &CStr = c"dltensor_versioned";
const EXCHANGE_API: &CStr = c"dlpack_exchange_api";

/// Codes of `DLDataType` that we tell apart.
pub(crate) const INT: u8 = 0;
pub(crate) const UINT: u8 = 1;
const CPU: i32 = 1;
/// Host memory that CUDA or ROCm pinned; the processor reads it like any other.
const PINNED: [i32; 2] = [3, 11];

#[repr(C)]
#[derive(Clone, Copy)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct TensorVersioned {
    version: Version,
    manager: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

#[repr(C)]
struct ExchangeApi {
    version: Version,
    older: *mut ExchangeApi,
    allocate: *mut c_void,
    managed_from_object: *mut c_void,
    managed_to_object: *mut c_void,
    tensor_from_object: Option<Describe>,
    current_stream: *mut c_void,
}

/// A one-dimensional view as a tensor describes it, or why it is none.
pub(crate) struct View {
    pub(crate) data: *mut u8,
    pub(crate) len: usize,
    /// In bytes.
    pub(crate) stride: isize,
    pub(crate) ndim: usize,
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) on_host: bool,
    pub(crate) read_only: bool,
    /// Whether `__dlpack__` made it: then this must live as long as the view.
    pub(crate) owner: Option<Py<PyAny>>,
}

/// Describes `object` if it speaks DLPack.
pub(crate) fn view(object: &Bound<'_, PyAny>) -> PyResult<Option<View>> {
    let py = object.py();
    if let Some(describe) = describer(object)? {
        return by_exchange(object, describe).map(Some);
    }
    let Some(method) = object.getattr_opt(intern!(py, "__dlpack__"))? else { return Ok(None) };
    let capsule = method.call0()?.cast_into::<PyCapsule>()?;
    by_capsule(&capsule).map(Some)
}

type Describe = unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int;

/// The C function of the object's type that describes it, if there is one.
fn describer(object: &Bound<'_, PyAny>) -> PyResult<Option<Describe>> {
    // The first type that has one, found without a look-up from then on: in practice there is one, PyTorch's.
    static FIRST: PyOnceLock<(Py<PyType>, Describe)> = PyOnceLock::new();
    let py = object.py();
    if let Some((kind, describe)) = FIRST.get(py)
        && object.get_type_ptr().cast() == kind.as_ptr()
    {
        return Ok(Some(*describe));
    }
    let kind = object.get_type();
    let Some(capsule) = kind.getattr_opt(intern!(py, "__dlpack_c_exchange_api__"))? else { return Ok(None) };
    let Ok(capsule) = capsule.cast::<PyCapsule>() else { return Ok(None) };
    let mut api = capsule.pointer_checked(Some(EXCHANGE_API))?.cast::<ExchangeApi>();
    // SAFETY: the protocol keeps the table alive as long as the process, and its first fields never change.
    while unsafe { (*api.as_ptr()).version.major } != MAJOR {
        // SAFETY: as above.
        let Some(older) = NonNull::new(unsafe { (*api.as_ptr()).older }) else { return Ok(None) };
        api = older;
    }
    // SAFETY: as above, and the version says that the layout is the one declared here.
    let describe = unsafe { (*api.as_ptr()).tensor_from_object };
    if let Some(describe) = describe {
        let _ = FIRST.set(py, (kind.unbind(), describe));
    }
    Ok(describe)
}

fn by_exchange(object: &Bound<'_, PyAny>, describe: Describe) -> PyResult<View> {
    let mut tensor = Tensor {
        data: null_mut(),
        device_type: 0,
        device_id: 0,
        ndim: 0,
        code: 0,
        bits: 0,
        lanes: 0,
        shape: null_mut(),
        strides: null_mut(),
        byte_offset: 0,
    };
    // SAFETY: the function was found on the object's own type, as the call demands; `tensor` is ours.
    if unsafe { describe(object.as_ptr().cast(), &mut tensor) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    // SAFETY: just filled in; its shape lives as long as the object, which the caller holds.
    Ok(unsafe { describe_view(&tensor, false, None) })
}

fn by_capsule(capsule: &Bound<'_, PyCapsule>) -> PyResult<View> {
    let owner = Some(capsule.clone().into_any().unbind());
    if capsule.is_valid_checked(Some(TENSOR_VERSIONED)) {
        let managed = capsule.pointer_checked(Some(TENSOR_VERSIONED))?.cast::<TensorVersioned>();
        // SAFETY: a capsule of that name holds that structure, and `version` stands first in every version of it.
        let managed = unsafe { &*managed.as_ptr() };
        if managed.version.major != MAJOR {
            return Err(PyBufferError::new_err(format!("DLPack version {} is not known", managed.version.major)));
        }
        // SAFETY: the capsule is held as `owner`, hence the tensor lives.
        return Ok(unsafe { describe_view(&managed.tensor, managed.flags & READ_ONLY != 0, owner) });
    }
    let managed = capsule.pointer_checked(Some(TENSOR))?.cast::<Tensor>();
    // SAFETY: a capsule of that name begins with a tensor and is held as `owner`.
    Ok(unsafe { describe_view(managed.as_ref(), false, owner) })
}

/// # Safety
/// Shape and strides of the tensor must be readable: `ndim` numbers each, strides none where contiguous.
unsafe fn describe_view(tensor: &Tensor, read_only: bool, owner: Option<Py<PyAny>>) -> View {
    let item = isize::from(tensor.bits / 8);
    let (len, stride) = if tensor.ndim == 1 {
        // SAFETY: by contract there is one number.
        let len = unsafe { *tensor.shape };
        // SAFETY: likewise, unless it is null.
        let stride = if tensor.strides.is_null() { 1 } else { unsafe { *tensor.strides } };
        (usize::try_from(len).unwrap_or(0), stride as isize * item)
    } else {
        (0, item)
    };
    View {
        data: tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize),
        len,
        stride,
        ndim: usize::try_from(tensor.ndim).unwrap_or(0),
        code: tensor.code,
        // More than one lane is a vector type: no integer of ours.
        bits: if tensor.lanes == 1 { tensor.bits } else { 0 },
        on_host: tensor.device_type == CPU || PINNED.contains(&tensor.device_type),
        read_only,
        owner,
    }
}
