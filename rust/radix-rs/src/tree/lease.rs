//! The right to a prefix.

use std::sync::Arc;

use super::lock::Path;
use super::match_prefix::write_segments;
use super::{Core, Handle, Segment};
use crate::error::Result;
use crate::key::{Atom, Value};
use crate::namespace::Namespace;

/// Keeps a prefix and its values from eviction until it is released or dropped.
///
/// # Concurrency
/// May be sent to another thread. Releasing never waits.
pub struct Lease<A: Atom = u32, V: Value = i32> {
    pub(crate) core: Arc<Core<A, V>>,
    pub(crate) path: Path,
    pub(crate) length: usize,
    pub(crate) ns: Namespace,
    /// What it publishes is as old as the lease.
    pub(crate) born: u64,
}

impl<A: Atom, V: Value> std::fmt::Debug for Lease<A, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("length", &self.length).finish()
    }
}

impl<A: Atom, V: Value> Lease<A, V> {
    /// Atoms it protects, from the start.
    pub fn length(&self) -> usize {
        self.length
    }

    /// One view for each node on the path.
    pub fn segments(&self) -> Vec<Segment<A, V>> {
        self.core.held_segments(&self.path, &self.core.guard()).into_vec()
    }

    /// Copies the values from position `start` on into `out`, as many as fit; returns how many.
    pub fn write_values(&self, out: &mut [V], start: usize) -> usize {
        let segments = self.core.held_segments(&self.path, &self.core.guard());
        write_segments(&segments, out, start)
    }

    /// The end of the lease.
    pub fn handle(&self) -> Handle {
        match self.path.last() {
            Some(last) => self.core.handle(last.node, self.length),
            None => self.core.handle(self.core.root(), 0),
        }
    }

    /// Another lease over the same prefix.
    ///
    /// # Errors
    /// [`Error::PinOverflow`](crate::Error::PinOverflow).
    pub fn duplicate(&self) -> Result<Self> {
        let path = self.core.pin_again(&self.path, &self.core.guard())?;
        Ok(Lease { core: self.core.clone(), path, length: self.length, ns: self.ns.clone(), born: self.core.tick() })
    }

    /// Marks the prefix as used now.
    pub fn mark_used(&self) {
        let now = self.core.tick();
        self.core.stamp_held(&self.path, now, 1, &self.core.guard());
    }

    /// Lets the prefix go. The same as dropping the lease.
    pub fn release(self) {}

    /// Protects only the first `length` atoms (floored to pages) from now on; longer than it is changes nothing.
    ///
    /// # Errors
    /// [`Error::PinOverflow`](crate::Error::PinOverflow); then nothing has changed.
    pub fn shrink(&mut self, length: usize) -> Result<()> {
        let length = self.core.floor(length);
        if length >= self.length {
            return Ok(());
        }
        let guard = self.core.guard();
        let whole = self.path.iter().take_while(|held| held.end as usize <= length).count();
        let mut keep: Path = self.path[..whole].iter().copied().collect();
        if keep.last().map_or(0, |held| held.end as usize) < length {
            // The cut is inside the first node that goes: take the part above it as a pin of its own.
            if let Err(error) = self.core.pin_upper(&mut keep, self.path[whole], length, &self.ns, &guard) {
                self.core.unpin(&keep[whole..], &guard);
                return Err(error);
            }
        }
        self.core.unpin(&self.path[whole..], &guard);
        self.path = keep;
        self.length = length;
        Ok(())
    }
}

impl<A: Atom, V: Value> Drop for Lease<A, V> {
    fn drop(&mut self) {
        if !self.path.is_empty() {
            let guard = self.core.guard();
            self.core.unpin(&self.path, &guard);
        }
    }
}
