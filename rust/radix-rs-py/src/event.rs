//! What a tree tells: stored, removed, dropped, cleared.

use std::sync::Arc;

use numpy::ToPyArray;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use radix_rs::{EventKind, LoggedEvent};

use crate::output;

type Log<A> = radix_rs::EventLog<A, i32>;

/// Keeps the events of a tree until they are drained. Lock-free.
///
/// Pass it as ``events=`` to `RadixTree` or `PrefixCache`; give each tree a log of its own.
///
/// Examples
/// --------
/// >>> log = EventLog()
/// >>> tree = RadixTree(events=log)
/// >>> _ = tree.insert([1, 2, 3], [7, 8, 9])
/// >>> [event.kind for event in log.drain()]
/// ['stored']
#[pyclass(frozen, module = "radix_rs._core")]
pub(crate) struct EventLog {
    pub(crate) narrow: Arc<Log<u32>>,
    pub(crate) wide: Arc<Log<u64>>,
}

#[pymethods]
impl EventLog {
    #[new]
    fn new() -> Self {
        EventLog { narrow: Arc::new(Log::new()), wide: Arc::new(Log::new()) }
    }

    /// Take what was logged since the last call, oldest first.
    ///
    /// Returns
    /// -------
    /// list of Event
    ///     A parent is stored before its children and removed after them.
    fn drain(&self, py: Python<'_>) -> PyResult<Vec<Event>> {
        let (narrow, wide) = py.detach(|| (self.narrow.drain(), self.wide.drain()));
        let mut events = Vec::with_capacity(narrow.len() + wide.len());
        for event in narrow {
            let tokens = event.tokens.to_pyarray(py).into_any();
            events.push(Event::new(py, event, tokens)?);
        }
        for event in wide {
            let tokens = event.tokens.to_pyarray(py).into_any();
            events.push(Event::new(py, event, tokens)?);
        }
        Ok(events)
    }
}

/// One change of what is cached.
#[pyclass(frozen, get_all, module = "radix_rs._core")]
pub(crate) struct Event {
    /// Order of the event among those of its tree. Numbers may have gaps.
    seq: u64,
    /// "stored", "removed", "dropped" (everything stored before in its namespace is gone) or "cleared" (everything is).
    kind: &'static str,
    /// The encoded namespace, None for the default one: a part is b"s" (str), b"b" (bytes) or b"i" (int), its length in 8
    /// bytes and its value (UTF-8; int: 16 bytes), little-endian; b"q" goes before a pair's two parts, b"p" before several
    /// pairs'.
    namespace: Option<Py<PyBytes>>,
    /// Token ids of the whole path, uint32 or uint64 ``[num_tokens]``; empty for "dropped" and "cleared".
    tokens: Py<PyAny>,
    /// Where the stored or removed part of ``tokens`` starts.
    start: usize,
    /// Slots of that part, int32 ``[num_tokens - start]``.
    slots: Py<PyAny>,
}

impl Event {
    fn new<A>(py: Python<'_>, event: LoggedEvent<A, i32>, tokens: Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Event {
            seq: event.seq,
            kind: match event.kind {
                EventKind::Stored => "stored",
                EventKind::Removed => "removed",
                EventKind::Dropped => "dropped",
                EventKind::Cleared => "cleared",
            },
            namespace: event.namespace.as_bytes().map(|bytes| PyBytes::new(py, bytes).unbind()),
            tokens: tokens.unbind(),
            start: event.start,
            slots: output::array(py, event.values)?.unbind(),
        })
    }
}

#[pymethods]
impl Event {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let len = self.tokens.bind(py).len()?;
        Ok(format!("Event(seq={}, kind='{}', start={}, num_tokens={len})", self.seq, self.kind, self.start))
    }
}
