//! Namespaces from Python, encoded so that no two different ones give the same bytes.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString, PyTuple};
use radix_rs::Namespace;

use crate::error::invalid;

// One letter for the type of each part, then its length. `"x"`, `b"x"`, `("adapter", "x")` and `(("adapter", "x"),)` are
// told apart by their first letter.
const TEXT: u8 = b's';
const BYTES: u8 = b'b';
const INTEGER: u8 = b'i';
const PARTS: u8 = b'p';
const PAIR: u8 = b'q';

/// None, bytes, str, a (kind, value) pair or a tuple of such pairs.
#[inline]
pub(crate) fn namespace(object: Option<&Bound<'_, PyAny>>) -> PyResult<Namespace> {
    match object {
        None => Ok(Namespace::default()),
        Some(object) => encoded(object),
    }
}

fn encoded(object: &Bound<'_, PyAny>) -> PyResult<Namespace> {
    let mut bytes = Vec::with_capacity(64);
    if let Ok(parts) = object.cast::<PyTuple>() {
        if parts.len() == 2 && parts.iter().all(|part| !part.is_instance_of::<PyTuple>()) {
            bytes.push(PAIR);
            pair(parts, &mut bytes)?;
        } else {
            bytes.push(PARTS);
            for part in parts.iter() {
                match part.cast::<PyTuple>() {
                    Ok(part) if part.len() == 2 => pair(part, &mut bytes)?,
                    _ => return Err(invalid(format!("namespace: {part} is not a pair of kind and value"))),
                }
            }
        }
    } else if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        part(object, &mut bytes)?;
    } else {
        let kind = object.get_type().name()?;
        return Err(invalid(format!("namespace must be None, str, bytes or a tuple of pairs, not {kind}")));
    }
    Ok(Namespace::from_bytes(bytes))
}

fn pair(pair: &Bound<'_, PyTuple>, bytes: &mut Vec<u8>) -> PyResult<()> {
    part(&pair.get_item(0)?, bytes)?;
    part(&pair.get_item(1)?, bytes)
}

fn part(object: &Bound<'_, PyAny>, bytes: &mut Vec<u8>) -> PyResult<()> {
    let mut push = |tag: u8, value: &[u8]| {
        bytes.push(tag);
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(value);
    };
    if let Ok(text) = object.cast::<PyString>() {
        let text = text.to_cow().map_err(|_| invalid("namespace: a text with lone surrogates".to_owned()))?;
        push(TEXT, text.as_bytes());
    } else if let Ok(value) = object.cast::<PyBytes>() {
        push(BYTES, value.as_bytes());
    } else if object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>() {
        let value: i128 = object.extract().map_err(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(object.py()) {
                return invalid(format!("namespace: {object} does not fit into 128 bits"));
            }
            error
        })?;
        push(INTEGER, &value.to_le_bytes());
    } else {
        let kind = object.get_type().name()?;
        return Err(invalid(format!("namespace: a part must be str, bytes or int, not {kind}")));
    }
    Ok(())
}
