//! Integers from Python: the only place where token ids and slots are read from a caller's memory.
//!
//! Nothing is copied from NumPy arrays, tensors on the host (by DLPack), `array.array`, `memoryview` and whatever
//! else has a buffer; lists, tuples and ranges are the slow path, and so is memory that is not contiguous. The core
//! gets a pointer and reads each element once by a volatile load: a caller who writes to the array during the call
//! gets some answer, never undefined behaviour.
//!
//! PyTorch may give a tensor other memory at any time; where that could happen while we look, an own NumPy view holds
//! the storage, which PyTorch then refuses to resize. NumPy's `resize(refcheck=False)` frees memory that others look at
//! without asking: nobody can guard against it, so it must not be called on an array during a call or while it is a row.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ops::Range;

use numpy::npyffi::{self, NPY_TYPES, PyArrayObject};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyException, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PyMemoryView, PyRange, PySlice, PyTuple};
use pyo3::{ffi, intern};
use radix_rs::{Atom, Error, RawSource, Source};

use crate::detach::WORTH_IT;
use crate::dlpack;
use crate::error::{from_core, invalid, invalid_at};

/// The four types that are read in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    I32,
    U32,
    I64,
    U64,
}

impl Kind {
    fn of(signed: bool, bytes: usize) -> Option<Kind> {
        match (signed, bytes) {
            (true, 4) => Some(Kind::I32),
            (false, 4) => Some(Kind::U32),
            (true, 8) => Some(Kind::I64),
            (false, 8) => Some(Kind::U64),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Kind::I32 | Kind::U32 => 4,
            Kind::I64 | Kind::U64 => 8,
        }
    }
}

/// A number of things, the argument called `name`.
pub(crate) fn count(name: &'static str, object: &Bound<'_, PyAny>) -> PyResult<usize> {
    match object.extract::<isize>() {
        Ok(number) => usize::try_from(number).map_err(|_| negative(name, object)),
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => Err(negative(name, object)),
        Err(error) if !error.is_instance_of::<PyException>(object.py()) => Err(error),
        Err(_) => {
            let kind = object.get_type().name()?;
            Err(PyTypeError::new_err(format!("{name} must be an integer, not {kind}")))
        }
    }
}

/// As [`count`], with a default.
pub(crate) fn count_or(name: &'static str, object: Option<&Bound<'_, PyAny>>, default: usize) -> PyResult<usize> {
    object.map_or(Ok(default), |object| count(name, object))
}

/// Integers of an argument, readable as long as the argument is held.
pub(crate) struct Ints<'a> {
    memory: Memory,
    argument: PhantomData<&'a ()>,
}

/// What keeps the memory where it is besides the argument itself.
#[expect(dead_code, reason = "what is in it is held, never looked at")]
enum Keep {
    Argument,
    Buffer(PyUntypedBuffer),
    Object(Py<PyAny>),
    Copied(Vec<i64>),
}

/// One-dimensional memory of a Python object.
pub(crate) struct Memory {
    kind: Kind,
    data: *mut u8,
    len: usize,
    /// In bytes.
    stride: isize,
    read_only: bool,
    keep: Keep,
}

// SAFETY: a pointer, plain numbers and handles on Python objects, which may move between threads; whoever reads or
// writes through the pointer says why that is sound.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl<'a> Ints<'a> {
    /// Reads `object`, the argument called `name`.
    #[inline]
    pub(crate) fn new(name: &'static str, object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = match array(name, object)? {
            Some(memory) => memory,
            None => other(name, object)?,
        };
        let memory = if memory.is_plain() { memory } else { memory.gathered() };
        Ok(Ints { memory, argument: PhantomData })
    }

    /// As [`new`](Self::new), for one argument of many: reading the others may run Python code, and then other threads run. What
    /// could be given other memory in place meanwhile, a tensor, is copied.
    pub(crate) fn one_of_many(name: &'static str, object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = match array(name, object)? {
            Some(memory) if memory.is_plain() => memory,
            Some(memory) => memory.gathered(),
            None => match other(name, object)? {
                memory if memory.is_plain() && !matches!(memory.keep, Keep::Argument) => memory,
                memory => memory.gathered(),
            },
        };
        Ok(Ints { memory, argument: PhantomData })
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.memory.len
    }

    /// The integers as slots of our own.
    pub(crate) fn slots(&self) -> PyResult<Vec<i32>> {
        let mut slots = Vec::new();
        self.add_slots(&mut slots)?;
        Ok(slots.into_iter().map(|slot| slot as i32).collect())
    }

    /// Adds the integers, which are slots, to others.
    pub(crate) fn add_slots(&self, slots: &mut Vec<u32>) -> PyResult<()> {
        match self.copy_to(0..self.len(), slots) {
            Ok(()) => Ok(()),
            Err(Error::InvalidToken { position, value }) => Err(invalid_at(
                format!("slot {value} at position {position} is out of range"),
                Some(position),
                Some(value),
            )),
            Err(error) => Err(from_core(error)),
        }
    }
}

/// Ids that a token may have, by the width of the tree's atoms: what fits into the signed integer of that width.
fn limit<A>() -> u64 {
    1_u64 << (size_of::<A>() * 8 - 1)
}

/// Calls the core's reader of the right type.
macro_rules! read {
    ($ints:expr, $atom:ty, $source:ident => $call:expr) => {{
        let (data, len, limit) = ($ints.memory.data.cast_const(), $ints.memory.len, limit::<$atom>());
        match $ints.memory.kind {
            Kind::I32 => {
                // SAFETY: `len` elements of that type lie at `data`, aligned (`is_plain`), for as long as the argument
                // and `keep` are held, hence for the borrow of `$ints`.
                let $source = unsafe { RawSource::<i32>::new(data.cast(), len, limit) };
                $call
            }
            Kind::U32 => {
                // SAFETY: as above.
                let $source = unsafe { RawSource::<u32>::new(data.cast(), len, limit) };
                $call
            }
            Kind::I64 => {
                // SAFETY: as above.
                let $source = unsafe { RawSource::<i64>::new(data.cast(), len, limit) };
                $call
            }
            Kind::U64 => {
                // SAFETY: as above.
                let $source = unsafe { RawSource::<u64>::new(data.cast(), len, limit) };
                $call
            }
        }
    }};
}

// SAFETY: every method is the core's own reader of the same memory.
unsafe impl<A: Atom> Source<A> for Ints<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.memory.len
    }

    #[inline]
    fn get(&self, at: usize) -> Option<A> {
        read!(self, A, source => source.get(at))
    }

    #[inline]
    fn common_prefix(&self, at: usize, edge: &[A]) -> usize {
        read!(self, A, source => source.common_prefix(at, edge))
    }

    fn copy_to(&self, range: Range<usize>, out: &mut Vec<A>) -> radix_rs::Result<()> {
        read!(self, A, source => source.copy_to(range, out))
    }
}

impl Memory {
    /// Writable, contiguous int32 memory of `object`, the argument called `name`: nothing else can be written to.
    pub(crate) fn writable(name: &'static str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = match array(name, object)? {
            Some(memory) => memory,
            None => described(name, object)?.ok_or_else(|| unreadable(name, object))?,
        };
        if memory.kind != Kind::I32 {
            return Err(invalid(format!("{name} must be int32")));
        }
        if !memory.is_plain() {
            return Err(invalid(format!("{name} must be contiguous and aligned")));
        }
        if memory.read_only {
            return Err(invalid(format!("{name} is read-only")));
        }
        Ok(memory)
    }

    /// Of memory that is [`writable`](Self::writable).
    pub(crate) fn as_ptr(&self) -> *mut i32 {
        assert!(self.kind == Kind::I32);
        self.data.cast()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes as much of `slots` as fits at position `start`; returns how much.
    pub(crate) fn write(&self, start: usize, slots: &[i32]) -> usize {
        let n = slots.len().min(self.len.saturating_sub(start));
        // SAFETY: `n` elements from `start` on lie inside the memory, which `writable` found aligned and writable. No
        // reference to it is made: its owner may look at it or write to it at any time.
        unsafe { self.as_ptr().add(start.min(self.len)).copy_from(slots.as_ptr(), n) };
        n
    }

    fn is_plain(&self) -> bool {
        let size = self.kind.size();
        (self.stride == size as isize || self.len < 2) && (self.data as usize).is_multiple_of(size)
    }

    /// The same integers side by side.
    fn gathered(self) -> Self {
        let mut copied = Vec::with_capacity(self.len);
        for i in 0..self.len {
            let at = self.data.wrapping_offset(self.stride * i as isize);
            // Byte by byte: a volatile load must be aligned, and this memory may not be.
            let mut bytes = [0u8; 8];
            for (k, byte) in bytes[..self.kind.size()].iter_mut().enumerate() {
                // SAFETY: element `i` of the object's own description of its memory.
                *byte = unsafe { at.add(k).read_volatile() };
            }
            let low = [bytes[0], bytes[1], bytes[2], bytes[3]];
            copied.push(match self.kind {
                Kind::I32 => i64::from(i32::from_ne_bytes(low)),
                Kind::U32 => i64::from(u32::from_ne_bytes(low)),
                Kind::I64 | Kind::U64 => i64::from_ne_bytes(bytes),
            });
        }
        let kind = if self.kind == Kind::U64 { Kind::U64 } else { Kind::I64 };
        Memory::copied(kind, copied)
    }

    fn copied(kind: Kind, mut copied: Vec<i64>) -> Self {
        let (data, len) = (copied.as_mut_ptr().cast(), copied.len());
        Memory { kind, data, len, stride: 8, read_only: true, keep: Keep::Copied(copied) }
    }
}

/// An object over the same memory that nobody else has: a tensor or array can be given other memory in place, and whoever
/// keeps its address would not notice. Buffers cannot: their owner refuses while they are held.
pub(crate) fn own_view<'py>(name: &'static str, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let refuse = |error| refused(name, object, error);
    if !object.hasattr(intern!(py, "__dlpack__")).map_err(refuse)? {
        return Ok(object.clone());
    }
    let view = object.get_item(PySlice::full(py)).map_err(refuse)?;
    // SAFETY: we are attached and `view` is alive.
    if unsafe { npyffi::PyArray_Check(py, view.as_ptr()) } != 0 {
        return Ok(view);
    }
    match dlpack::view(&view).map_err(refuse)? {
        Some(described) => Ok(pinned(name, &view, &described)?.unwrap_or(view)),
        None => Ok(view),
    }
}

/// A NumPy array over the memory of a PyTorch tensor on the host. It holds the storage, as any view does, and from then
/// on PyTorch refuses to resize the storage, which a view alone would not prevent. None if it is no such tensor.
fn pinned<'py>(
    name: &'static str,
    object: &Bound<'py, PyAny>,
    view: &dlpack::View,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let is_ours = view.on_host && view.ndim == 1 && [dlpack::INT, dlpack::UINT].contains(&view.code);
    if !is_ours || view.read_only || !object.hasattr(intern!(py, "untyped_storage"))? {
        return Ok(None);
    }
    object.call_method0(intern!(py, "numpy")).map(Some).map_err(|error| refused(name, object, error))
}

/// The fast path: a NumPy array, by its fields. None if it is something else.
#[inline]
fn array(name: &'static str, object: &Bound<'_, PyAny>) -> PyResult<Option<Memory>> {
    let py = object.py();
    // SAFETY: we are attached and `object` is alive.
    if unsafe { npyffi::PyArray_Check(py, object.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: it is an array, so its fields may be read; `dimensions` and `strides` hold `nd` numbers each.
    unsafe {
        let array = &(*object.as_ptr().cast::<PyArrayObject>()).fields;
        let descr = &(*array.descr).fields;
        if array.nd != 1 {
            return Err(wrong_ndim(name, array.nd as usize));
        }
        // '=' is native; a type that was made with an explicit order keeps that.
        let native =
            matches!((descr.byteorder as u8, cfg!(target_endian = "little")), (b'=', _) | (b'<', true) | (b'>', false));
        let Some(kind) = numpy_kind(descr.type_num).filter(|_| native) else {
            let dtype = object.getattr(intern!(py, "dtype"))?;
            return Err(wrong_dtype(name, &dtype.str()?.to_string_lossy(), native || descr.byteorder as u8 == b'|'));
        };
        Ok(Some(Memory {
            kind,
            data: array.data.cast(),
            len: *array.dimensions as usize,
            stride: *array.strides,
            read_only: array.flags & npyffi::NPY_ARRAY_WRITEABLE == 0,
            keep: Keep::Argument,
        }))
    }
}

fn numpy_kind(type_num: i32) -> Option<Kind> {
    use std::ffi::{c_long, c_ulong};
    const I32: i32 = NPY_TYPES::NPY_INT as i32;
    const U32: i32 = NPY_TYPES::NPY_UINT as i32;
    const LONG: i32 = NPY_TYPES::NPY_LONG as i32;
    const ULONG: i32 = NPY_TYPES::NPY_ULONG as i32;
    const I64: i32 = NPY_TYPES::NPY_LONGLONG as i32;
    const U64: i32 = NPY_TYPES::NPY_ULONGLONG as i32;
    match type_num {
        I32 => Some(Kind::I32),
        U32 => Some(Kind::U32),
        LONG => Kind::of(true, size_of::<c_long>()),
        ULONG => Kind::of(false, size_of::<c_ulong>()),
        I64 => Some(Kind::I64),
        U64 => Some(Kind::U64),
        _ => None,
    }
}

/// Everything that is not a NumPy array.
#[inline(never)]
fn other(name: &'static str, object: &Bound<'_, PyAny>) -> PyResult<Memory> {
    if let Ok(list) = object.cast::<PyList>() {
        return listed(name, list.len(), |i| list.get_item(i).ok());
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return listed(name, tuple.len(), |i| tuple.get_item(i).ok());
    }
    if let Some(memory) = described(name, object)? {
        return Ok(memory);
    }
    if object.is_instance_of::<PyRange>() {
        return listed(name, object.len()?, |i| object.get_item(i).ok());
    }
    Err(unreadable(name, object))
}

/// Objects that say where their memory is: buffers, tensors, arrays of other libraries.
fn described(name: &'static str, object: &Bound<'_, PyAny>) -> PyResult<Option<Memory>> {
    let py = object.py();
    // SAFETY: we are attached and `object` is alive.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0 {
        let memory = match PyUntypedBuffer::get(object) {
            Ok(buffer) => self::buffer(name, buffer)?,
            // Arrays of ctypes leave out the strides, which a memoryview adds. They can be resized under a buffer, so
            // they are copied.
            Err(error) if error.is_instance_of::<PyBufferError>(py) => {
                let view = PyMemoryView::from(object).map_err(|_| refused(name, object, error))?;
                let buffer = PyUntypedBuffer::get(&view).map_err(|error| refused(name, object, error))?;
                self::buffer(name, buffer)?.gathered()
            }
            Err(error) => return Err(refused(name, object, error)),
        };
        return Ok(Some(memory));
    }
    if let Some(view) = dlpack::view(object).map_err(|error| refused(name, object, error))? {
        // From so many tokens on other threads run meanwhile.
        if view.len >= WORTH_IT
            && let Some(held) = pinned(name, object, &view)?
            && let Some(memory) = array(name, &held)?
        {
            return Ok(Some(Memory { keep: Keep::Object(held.unbind()), ..memory }));
        }
        return tensor(name, view).map(Some);
    }
    if object.hasattr(intern!(py, "__array_interface__")).map_err(|error| refused(name, object, error))? {
        // NumPy reads the dictionary, without a copy, and keeps the object alive.
        let view = py
            .import(intern!(py, "numpy"))?
            .call_method1(intern!(py, "asarray"), (object,))
            .map_err(|error| refused(name, object, error))?;
        if let Some(memory) = array(name, &view)? {
            return Ok(Some(Memory { keep: Keep::Object(view.unbind()), ..memory }));
        }
    }
    Ok(None)
}

fn buffer(name: &'static str, buffer: PyUntypedBuffer) -> PyResult<Memory> {
    if buffer.dimensions() != 1 {
        return Err(wrong_ndim(name, buffer.dimensions()));
    }
    if buffer.suboffsets().is_some() {
        return Err(invalid(format!("{name} must not be an indirect buffer")));
    }
    let Some(kind) = struct_kind(buffer.format(), buffer.item_size()) else {
        let format = buffer.format().to_string_lossy();
        let foreign = format.starts_with(if cfg!(target_endian = "little") { ['>', '!'] } else { ['<', '<'] });
        return Err(wrong_dtype(name, &format!("buffer format '{format}'"), !foreign));
    };
    Ok(Memory {
        kind,
        data: buffer.buf_ptr().cast(),
        len: buffer.item_count(),
        stride: buffer.strides()[0],
        read_only: buffer.readonly(),
        keep: Keep::Buffer(buffer),
    })
}

/// The kind of a format of the `struct` module in the byte order of this machine.
fn struct_kind(format: &CStr, size: usize) -> Option<Kind> {
    let code = match format.to_bytes() {
        [code] | [b'@' | b'=', code] => *code,
        [b'<', code] if cfg!(target_endian = "little") => *code,
        [b'>' | b'!', code] if cfg!(target_endian = "big") => *code,
        _ => return None,
    };
    match code {
        b'i' | b'l' | b'q' | b'n' => Kind::of(true, size),
        b'I' | b'L' | b'Q' | b'N' => Kind::of(false, size),
        _ => None,
    }
}

fn tensor(name: &'static str, view: dlpack::View) -> PyResult<Memory> {
    if !view.on_host {
        return Err(invalid(format!("{name} lies on a device; copy it to the host first")));
    }
    if view.ndim != 1 {
        return Err(wrong_ndim(name, view.ndim));
    }
    let kind = match view.code {
        dlpack::INT => Kind::of(true, usize::from(view.bits / 8)),
        dlpack::UINT => Kind::of(false, usize::from(view.bits / 8)),
        _ => None,
    };
    let Some(kind) = kind else {
        return Err(wrong_dtype(name, &format!("DLPack type {} of {} bits", view.code, view.bits), true));
    };
    let keep = view.owner.map_or(Keep::Argument, Keep::Object);
    Ok(Memory { kind, data: view.data, len: view.len, stride: view.stride, read_only: view.read_only, keep })
}

/// Python integers one by one. `item` gives none beyond the end: an element's `__index__` may shorten a list.
fn listed<'py>(name: &'static str, len: usize, item: impl Fn(usize) -> Option<Bound<'py, PyAny>>) -> PyResult<Memory> {
    let mut copied = Vec::with_capacity(len);
    for i in 0..len {
        let Some(object) = item(i) else { break };
        copied.push(integer(name, i, &object)?);
    }
    Ok(Memory::copied(Kind::I64, copied))
}

fn integer(name: &'static str, at: usize, object: &Bound<'_, PyAny>) -> PyResult<i64> {
    let py = object.py();
    let index;
    let mut number = object;
    if !object.is_exact_instance_of::<PyInt>() {
        // A bool is an int to Python, but never a token or a slot.
        let made = if object.is_instance_of::<PyBool>() {
            None
        } else {
            match object.call_method0(intern!(py, "__index__")) {
                Err(error) if !error.is_instance_of::<PyException>(py) => return Err(error), // an interrupt, say
                made => made.ok().filter(|made| made.is_instance_of::<PyInt>()),
            }
        };
        index = made.ok_or_else(|| {
            let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
            invalid_at(format!("{name}[{at}] must be an integer, not {kind}"), Some(at), None)
        })?;
        number = &index;
    }
    let mut overflow = 0;
    // SAFETY: we are attached and `number` is an int, for which the call sets no error.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(number.as_ptr(), &mut overflow) };
    match overflow {
        0 => Ok(value),
        _ => Err(invalid_at(format!("{name}[{at}] = {number} does not fit into 64 bits"), Some(at), None)),
    }
}

#[cold]
fn negative(name: &str, object: &Bound<'_, PyAny>) -> PyErr {
    invalid_at(format!("{name} must be a count that fits into memory, got {object}"), None, object.extract().ok())
}

#[cold]
fn wrong_ndim(name: &str, ndim: usize) -> PyErr {
    invalid(format!("{name} must be one-dimensional, got {ndim} dimensions"))
}

#[cold]
fn wrong_dtype(name: &str, dtype: &str, native: bool) -> PyErr {
    let order = if native { "" } else { ", in foreign byte order" };
    invalid(format!("{name} must be int32, int64, uint32 or uint64, got {dtype}{order}"))
}

/// An object that has a protocol but refused to describe its memory by it: a tensor without storage, a scalar.
#[cold]
fn refused(name: &str, object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    if !error.is_instance_of::<PyException>(py) {
        return error; // an interrupt, say: not about the object
    }
    let text = error.value(py).to_string();
    let outer = invalid(format!("{name} gives no readable memory: {}", text.lines().next().unwrap_or("")));
    outer.set_cause(py, Some(error));
    outer
}

#[cold]
fn unreadable(name: &str, object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    invalid(format!(
        "{name} must be a one-dimensional array of integers (NumPy, DLPack, a buffer) or a list, not {kind}"
    ))
}
