//! The children of a branch point: an immutable two-level table sorted by key.
//!
//! Changing one child makes a new top and one or two new chunks and shares all others with the old table. There is no
//! reference count: a table belongs to the newest body of its node. Whoever publishes a changed table owes the
//! [`Scrap`] of the old one to the epochs; whoever fails to publish it frees what it made.

#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) key: u32,
    pub(crate) node: u32,
}

const FULL: usize = 128;

#[derive(Clone, Copy)]
struct Chunk {
    first: u32,
    len: u32,
    base: *mut Entry,
}

pub(crate) struct Children {
    len: usize,
    chunks: Box<[Chunk]>,
}

/// What a table that was replaced no longer shares with its successor.
pub(crate) struct Scrap {
    top: *mut Children,
    chunk: Option<Chunk>,
}

/// A changed table, not yet published.
pub(crate) struct Change {
    pub(crate) new: *mut Children,
    fresh: [Option<Chunk>; 2],
    scrap: Scrap,
}

fn chunk(entries: &[Entry]) -> Chunk {
    Chunk {
        first: entries[0].key,
        len: entries.len() as u32,
        base: Box::into_raw(Box::<[Entry]>::from(entries)).cast(),
    }
}

impl Chunk {
    fn entries(&self) -> &[Entry] {
        // SAFETY: made by `chunk` from a boxed slice of this length, freed only by `free`.
        unsafe { std::slice::from_raw_parts(self.base, self.len as usize) }
    }

    /// # Safety
    /// Nobody may use the chunk any more.
    unsafe fn free(self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.base, self.len as usize);
        // SAFETY: made by `chunk` from exactly this boxed slice.
        drop(unsafe { Box::from_raw(slice) });
    }
}

fn top(len: usize, chunks: Vec<Chunk>) -> *mut Children {
    if len == 0 {
        return std::ptr::null_mut();
    }
    Box::into_raw(Box::new(Children { len, chunks: chunks.into_boxed_slice() }))
}

/// A table of one child.
pub(crate) fn one(key: u32, node: u32) -> *mut Children {
    top(1, vec![chunk(&[Entry { key, node }])])
}

/// A table of two children.
pub(crate) fn two(a: Entry, b: Entry) -> *mut Children {
    let pair = if a.key <= b.key { [a, b] } else { [b, a] };
    top(2, vec![chunk(&pair)])
}

/// A table of any number of children, sorted by key.
pub(crate) fn many(entries: &[Entry]) -> *mut Children {
    debug_assert!(entries.is_sorted_by_key(|e| e.key));
    // half full: the next child finds room
    top(entries.len(), entries.chunks(FULL / 2).map(chunk).collect())
}

impl Children {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.chunks.iter().flat_map(|c| c.entries().iter().copied())
    }

    /// The node of the only child.
    pub(crate) fn only(&self) -> Option<u32> {
        if self.len == 1 { Some(self.chunks[0].entries()[0].node) } else { None }
    }

    /// The chunk in which the first child with this key stands, if there is one, and its place there.
    fn seek(&self, key: u32) -> (usize, usize) {
        // the last chunk that begins below the key, or the first one
        let at = self.chunks.partition_point(|c| c.first < key).saturating_sub(1);
        (at, self.chunks[at].entries().partition_point(|e| e.key < key))
    }

    /// All children with this key: usually none or one.
    pub(crate) fn with_key(&self, key: u32) -> impl Iterator<Item = u32> + '_ {
        let (at, start) = self.seek(key);
        let rest = self.chunks[at + 1..].iter().flat_map(|c| c.entries().iter());
        self.chunks[at].entries()[start..].iter().chain(rest).take_while(move |e| e.key == key).map(|e| e.node)
    }

    fn place(&self, key: u32, node: u32) -> Option<(usize, usize)> {
        let (mut at, mut start) = self.seek(key);
        while at < self.chunks.len() {
            for (i, e) in self.chunks[at].entries().iter().enumerate().skip(start) {
                if e.key != key {
                    return None;
                }
                if e.node == node {
                    return Some((at, i));
                }
            }
            (at, start) = (at + 1, 0);
        }
        None
    }

    pub(crate) fn contains(&self, key: u32, node: u32) -> bool {
        self.place(key, node).is_some()
    }

    fn rewrite(&self, at: usize, entries: &[Entry]) -> Change {
        let mut fresh = [None, None];
        if entries.len() > FULL {
            let (low, high) = entries.split_at(entries.len() / 2);
            fresh = [Some(chunk(low)), Some(chunk(high))];
        } else if !entries.is_empty() {
            fresh[0] = Some(chunk(entries));
        }
        let mut chunks = Vec::with_capacity(self.chunks.len() + 1);
        chunks.extend_from_slice(&self.chunks[..at]);
        chunks.extend(fresh.iter().flatten());
        chunks.extend_from_slice(&self.chunks[at + 1..]);
        let old = &self.chunks[at];
        let new = top(self.len + entries.len() - old.len as usize, chunks);
        let scrap = Scrap { top: std::ptr::from_ref(self).cast_mut(), chunk: Some(*old) };
        Change { new, fresh, scrap }
    }

    pub(crate) fn with(&self, key: u32, node: u32) -> Change {
        let (at, _) = self.seek(key);
        let old = self.chunks[at].entries();
        let i = old.partition_point(|e| e.key <= key);
        let mut entries = Vec::with_capacity(old.len() + 1);
        entries.extend_from_slice(&old[..i]);
        entries.push(Entry { key, node });
        entries.extend_from_slice(&old[i..]);
        self.rewrite(at, &entries)
    }

    /// The table without this child, or with `node` in its place; `None` if it is not there.
    pub(crate) fn replace(&self, key: u32, old: u32, node: Option<u32>) -> Option<Change> {
        let (at, i) = self.place(key, old)?;
        let mut entries = self.chunks[at].entries().to_vec();
        match node {
            Some(node) => entries[i].node = node,
            None => drop(entries.remove(i)),
        }
        Some(self.rewrite(at, &entries))
    }

    /// Frees a table that nobody shares, with all its chunks.
    ///
    /// # Safety
    /// Nobody may use the table or its chunks any more.
    pub(crate) unsafe fn free_all(table: *mut Children) {
        if table.is_null() {
            return;
        }
        // SAFETY: every top comes from `Box::into_raw`, and the caller owns it.
        let table = unsafe { Box::from_raw(table) };
        for c in &table.chunks {
            // SAFETY: as above.
            unsafe { c.free() };
        }
    }
}

impl Change {
    /// The change was published: what the old table does not share is the epochs' now.
    pub(crate) fn published(self) -> Scrap {
        self.scrap
    }

    /// The change was not published: frees what it made.
    pub(crate) fn discard(self) {
        for c in self.fresh.into_iter().flatten() {
            // SAFETY: never published, made by this change.
            unsafe { c.free() };
        }
        if !self.new.is_null() {
            // SAFETY: as above; its other chunks belong to the old table.
            drop(unsafe { Box::from_raw(self.new) });
        }
    }
}

impl Scrap {
    /// A table of one child, of which the successor shares nothing.
    pub(crate) fn whole(table: *mut Children) -> Self {
        // SAFETY: the caller has just replaced the body that owns the table.
        let chunk = unsafe { table.as_ref() }.map(|t| t.chunks[0]);
        Scrap { top: table, chunk }
    }

    /// # Safety
    /// No guard may still reach the old table.
    pub(crate) unsafe fn free(self) {
        if let Some(c) = self.chunk {
            // SAFETY: by contract.
            unsafe { c.free() };
        }
        if !self.top.is_null() {
            // SAFETY: by contract; tops come from `Box::into_raw`.
            drop(unsafe { Box::from_raw(self.top) });
        }
    }
}
