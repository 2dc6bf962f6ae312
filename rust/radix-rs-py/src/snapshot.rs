//! Snapshots in files.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use radix_rs::Error;

use crate::atoms::each;
use crate::error::from_core;
use crate::output;
use crate::tree::RadixTree;

/// `OSError` with its number, which makes it one of the subclasses, and the file.
fn os_error(code: Option<i32>, text: &str, path: &Path) -> PyErr {
    match code {
        Some(code) => {
            let text = text.split(" (os error").next().unwrap_or(text).to_owned();
            PyOSError::new_err((code, text, path.as_os_str().to_owned()))
        }
        None => PyOSError::new_err(format!("{}: {text}", path.display())),
    }
}

fn failed(error: &io::Error, path: &Path) -> PyErr {
    os_error(error.raw_os_error(), &error.to_string(), path)
}

fn refused(error: Error, path: &Path) -> PyErr {
    match error {
        Error::Io { code, text } => os_error(code, &text, path),
        other => from_core(other),
    }
}

/// A name beside `path` that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{}.part", std::process::id(), NEXT.fetch_add(1, Relaxed)));
    path.with_file_name(name)
}

/// Has `write` fill a new file, which takes the place of `path` only when it is whole and on the disk.
fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> radix_rs::Result<()>) -> PyResult<()> {
    let part = beside(path);
    let file = File::options().write(true).create_new(true).open(&part).map_err(|error| failed(&error, path))?;
    let mut out = BufWriter::new(file);
    let done = write(&mut out)
        .map_err(|error| refused(error, path))
        .and_then(|()| out.get_ref().sync_all().map_err(|error| failed(&error, path)))
        .and_then(|()| fs::rename(&part, path).map_err(|error| failed(&error, path)));
    if done.is_err() {
        drop(out.into_parts());
        let _ = fs::remove_file(&part);
    }
    done
}

#[pymethods]
impl RadixTree {
    /// Write the tree to a file: prefixes with their slots, namespaces, times of use, hits and priorities.
    ///
    /// A new file is written and takes the place of the old one when it is whole: if that fails, the old one is as it was.
    /// Leases are no part of it. Take it while no other thread changes the tree: then it is of one moment.
    ///
    /// Parameters
    /// ----------
    /// path : str or os.PathLike
    ///     The file.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     The file cannot be written.
    /// SnapshotError
    ///     Others changed the tree meanwhile so that a slot was met twice; take it again.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile, pathlib
    /// >>> path = pathlib.Path(tempfile.mkdtemp()) / "tree"
    /// >>> tree = RadixTree()
    /// >>> _ = tree.insert([1, 2, 3], [7, 8, 9])
    /// >>> tree.snapshot(path)
    /// >>> again = RadixTree()
    /// >>> again.restore(path).tolist()
    /// []
    /// >>> again.match_prefix([1, 2, 5]).slots.tolist()
    /// [7, 8]
    fn snapshot(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| replace(&path, |out| each!(&self.0, tree => tree.snapshot(out))))
    }

    /// Put the content of a snapshot into this tree, which must be empty.
    ///
    /// The order of eviction goes on where it was. Handles from before are stale. The slots are the tree's from now on:
    /// take them out of your pool first. Not for the tree of a `PrefixCache`, whose pool would hand them out again.
    ///
    /// Parameters
    /// ----------
    /// path : str or os.PathLike
    ///     A file from `snapshot`, of a tree with the same ``page_size`` and ``atom``.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray
    ///     int32: slots that other threads inserted meanwhile and that are yours again, as from `reset`. Mostly none.
    ///
    /// Raises
    /// ------
    /// SnapshotError
    ///     The file is damaged, cut off, no snapshot, of a newer format or another kind of tree, or this tree is not empty.
    ///     The message says what and where; the tree is as before.
    /// OSError
    ///     The file cannot be read.
    fn restore<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
        let slots = py.detach(|| {
            let file = File::open(&path).map_err(|error| failed(&error, &path))?;
            let mut input = BufReader::new(file);
            each!(&self.0, tree => tree.restore(&mut input)).map_err(|error| refused(error, &path))
        });
        output::array(py, slots?)
    }
}
