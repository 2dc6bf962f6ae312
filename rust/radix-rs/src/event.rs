//! What a tree tells an index elsewhere: stored, removed, dropped, cleared.

use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::namespace::Namespace;

/// Receives the events of a tree, on the thread that made the change and right after it.
///
/// # Concurrency
/// Sequence numbers are taken before the change is tried, so a parent is stored before its children, removed after
/// them, and stored before it is removed, in the order of the numbers; calls from several threads may arrive in another
/// order. Numbers may have gaps.
pub trait EventSink<A, V>: Send + Sync {
    /// Takes one event. It should be quick: the operation waits for it.
    fn emit(&self, event: Event<'_, A, V>);
}

/// One change of what is cached.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a, A, V> {
    /// `tokens[start..]` became cached below `tokens[..start]`.
    Stored {
        /// Order of the event.
        seq: u64,
        /// Bytes of the namespace, `None` for the default one.
        namespace: Option<&'a [u8]>,
        /// The whole path.
        tokens: &'a [A],
        /// Where the new part starts, in atoms.
        start: usize,
        /// Values of the new part.
        values: &'a [V],
    },
    /// `tokens[start..]` is no longer cached.
    Removed {
        /// Order of the event.
        seq: u64,
        /// Bytes of the namespace, `None` for the default one.
        namespace: Option<&'a [u8]>,
        /// The whole path.
        tokens: &'a [A],
        /// Where the removed part starts, in atoms.
        start: usize,
        /// Values of the removed part.
        values: &'a [V],
    },
    /// Everything that was stored in one namespace with a smaller number is gone for readers.
    Dropped {
        /// Order of the event.
        seq: u64,
        /// Bytes of the namespace.
        namespace: &'a [u8],
    },
    /// Everything that was stored with a smaller number is gone for readers.
    Cleared {
        /// Order of the event.
        seq: u64,
    },
}

/// An event with its own copies of everything, as an [`EventLog`] keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEvent<A, V> {
    /// Order of the event.
    pub seq: u64,
    /// What happened.
    pub kind: EventKind,
    /// The namespace.
    pub namespace: Namespace,
    /// The whole path; empty for `Dropped` and `Cleared`.
    pub tokens: Vec<A>,
    /// Where the stored or removed part starts, in atoms.
    pub start: usize,
    /// Values of that part.
    pub values: Vec<V>,
}

/// The kinds of [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// See [`Event::Stored`].
    Stored,
    /// See [`Event::Removed`].
    Removed,
    /// See [`Event::Dropped`].
    Dropped,
    /// See [`Event::Cleared`].
    Cleared,
}

struct Link<A, V> {
    event: LoggedEvent<A, V>,
    next: *mut Link<A, V>,
}

/// A sink that keeps events until somebody drains them. Lock-free.
///
/// # Examples
/// ```
/// use radix_rs::{EventKind, EventLog, Namespace, RadixTree, TreeConfig};
/// use std::sync::Arc;
///
/// let log = Arc::new(EventLog::new());
/// let tree: RadixTree = RadixTree::new(TreeConfig { events: Some(log.clone()), ..Default::default() })?;
/// tree.insert(&[1, 2, 3][..], &[7, 8, 9], &Namespace::default())?;
/// let events = log.drain();
/// assert_eq!(events[0].kind, EventKind::Stored);
/// assert_eq!(events[0].values, [7, 8, 9]);
/// # Ok::<(), radix_rs::Error>(())
/// ```
pub struct EventLog<A, V> {
    head: AtomicPtr<Link<A, V>>,
}

impl<A, V> Default for EventLog<A, V> {
    fn default() -> Self {
        EventLog { head: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

impl<A, V> EventLog<A, V> {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what was logged, in the order of the sequence numbers.
    ///
    /// # Concurrency
    /// An event whose thread had not logged it yet comes with the next drain, with its smaller number.
    pub fn drain(&self) -> Vec<LoggedEvent<A, V>> {
        let mut at = self.head.swap(std::ptr::null_mut(), AcqRel);
        let mut events = Vec::new();
        while !at.is_null() {
            // SAFETY: links come from `Box::into_raw` in `emit`; the swap made the list ours alone.
            let link = unsafe { Box::from_raw(at) };
            events.push(link.event);
            at = link.next;
        }
        events.sort_by_key(|e| e.seq);
        events
    }
}

impl<A, V> Drop for EventLog<A, V> {
    fn drop(&mut self) {
        self.drain();
    }
}

impl<A: Copy + Send + Sync, V: Copy + Send + Sync> EventSink<A, V> for EventLog<A, V> {
    fn emit(&self, event: Event<'_, A, V>) {
        let own = |kind, seq, namespace: Option<&[u8]>, tokens: &[A], start, values: &[V]| LoggedEvent {
            seq,
            kind,
            namespace: namespace.map_or_else(Namespace::default, Namespace::from_bytes),
            tokens: tokens.to_vec(),
            start,
            values: values.to_vec(),
        };
        let event = match event {
            Event::Stored { seq, namespace, tokens, start, values } => {
                own(EventKind::Stored, seq, namespace, tokens, start, values)
            }
            Event::Removed { seq, namespace, tokens, start, values } => {
                own(EventKind::Removed, seq, namespace, tokens, start, values)
            }
            Event::Dropped { seq, namespace } => own(EventKind::Dropped, seq, Some(namespace), &[], 0, &[]),
            Event::Cleared { seq } => own(EventKind::Cleared, seq, None, &[], 0, &[]),
        };
        let link = Box::into_raw(Box::new(Link { event, next: self.head.load(Relaxed) }));
        loop {
            // SAFETY: not published yet.
            let next = unsafe { (*link).next };
            match self.head.compare_exchange_weak(next, link, AcqRel, Relaxed) {
                Ok(_) => return,
                // SAFETY: not published yet.
                Err(now) => unsafe { (*link).next = now },
            }
        }
    }
}

// SAFETY: links are reached through the atomic head only, and taken whole.
unsafe impl<A: Send, V: Send> Send for EventLog<A, V> {}
// SAFETY: as above.
unsafe impl<A: Send, V: Send> Sync for EventLog<A, V> {}
