//! Bytes in frames with a checksum, so that nothing is believed before it was checked and nothing is held twice.
//!
//! A stream begins with a magic and a version. Frames follow: `{ length u32 | bytes | checksum u32 }`, little-endian; one of
//! length 0 ends it, and nothing comes after. Each checksum is the CRC-32 of everything before it, so that a frame that is
//! changed, lost, repeated or out of place is noticed where it stands.

use std::io::{ErrorKind, Read, Write};

use crc32fast::Hasher;

use crate::error::{Error, Result};

const MAGIC: [u8; 8] = *b"radix-rs";
const VERSION: u32 = 1;
/// Bytes of a frame, at most.
const FRAME: usize = 1 << 16;

pub(crate) struct FrameWriter<'a> {
    out: &'a mut dyn Write,
    sum: Hasher,
    frame: Vec<u8>,
}

impl<'a> FrameWriter<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Result<Self> {
        let mut writer = FrameWriter { out, sum: Hasher::new(), frame: Vec::with_capacity(FRAME) };
        writer.write(&MAGIC)?;
        writer.write(&VERSION.to_le_bytes())?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes).map_err(|error| Error::io(&error))
    }

    fn flush(&mut self) -> Result<()> {
        let frame = std::mem::take(&mut self.frame);
        self.write(&(frame.len() as u32).to_le_bytes())?;
        self.write(&frame)?;
        let sum = self.sum.clone().finalize();
        self.write(&sum.to_le_bytes())?;
        self.frame = frame;
        self.frame.clear();
        Ok(())
    }

    pub(crate) fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(FRAME - self.frame.len()));
            self.frame.extend_from_slice(now);
            bytes = later;
            if self.frame.len() == FRAME {
                self.flush()?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        if !self.frame.is_empty() {
            self.flush()?;
        }
        self.flush()?;
        self.out.flush().map_err(|error| Error::io(&error))
    }
}

pub(crate) struct FrameReader<'a> {
    input: &'a mut dyn Read,
    sum: Hasher,
    frame: Vec<u8>,
    /// How far the frame is used.
    used: usize,
    /// Bytes of the stream read so far.
    offset: u64,
}

impl<'a> FrameReader<'a> {
    pub(crate) fn new(input: &'a mut dyn Read) -> Result<Self> {
        let mut reader = FrameReader { input, sum: Hasher::new(), frame: Vec::new(), used: 0, offset: 0 };
        let mut magic = [0; MAGIC.len()];
        let mut version = [0; 4];
        if reader.read(&mut magic).is_err_and(|error| !matches!(error, Error::Io { .. })) || magic != MAGIC {
            return Err(Error::Snapshot("this is no snapshot of radix-rs: it begins otherwise".into()));
        }
        reader.read(&mut version)?;
        match u32::from_le_bytes(version) {
            VERSION => Ok(reader),
            newer if newer > VERSION => Err(Error::Snapshot(format!(
                "the snapshot has format {newer}, which is newer than {VERSION}, the newest that is known here"
            ))),
            other => Err(Error::Snapshot(format!("the snapshot has format {other}, which never was one"))),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                self.sum.update(bytes);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(Error::Snapshot(format!(
                "the snapshot is cut off: {} bytes were expected at byte {}",
                bytes.len(),
                self.offset
            ))),
            Err(error) => Err(Error::io(&error)),
        }
    }

    /// The next frame, checked; `false` at the end.
    fn next(&mut self) -> Result<bool> {
        let start = self.offset;
        let mut four = [0; 4];
        self.read(&mut four)?;
        let len = u32::from_le_bytes(four) as usize;
        if len > FRAME {
            return Err(Error::Snapshot(format!("the snapshot is damaged at byte {start}: no frame is so long")));
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(len, 0);
        self.read(&mut frame)?;
        let sum = self.sum.clone().finalize();
        self.read(&mut four)?;
        if u32::from_le_bytes(four) != sum {
            return Err(Error::Snapshot(format!(
                "the snapshot is damaged between byte {start} and byte {}: the checksum is another one",
                self.offset
            )));
        }
        (self.frame, self.used) = (frame, 0);
        Ok(len > 0)
    }

    /// Bytes read so far, for messages.
    pub(crate) fn offset(&self) -> u64 {
        self.offset - (self.frame.len() - self.used) as u64
    }

    pub(crate) fn take(&mut self, bytes: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            if self.used == self.frame.len() && !self.next()? {
                return Err(Error::Snapshot(format!("the snapshot ends too early, at byte {}", self.offset)));
            }
            let n = (bytes.len() - done).min(self.frame.len() - self.used);
            bytes[done..done + n].copy_from_slice(&self.frame[self.used..self.used + n]);
            self.used += n;
            done += n;
        }
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.take(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Everything was used, and the stream ends here.
    pub(crate) fn finish(mut self) -> Result<()> {
        let more = self.used < self.frame.len() || self.next()?;
        let mut one = [0];
        let after = loop {
            match self.input.read(&mut one) {
                Ok(n) => break n > 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(&error)),
            }
        };
        if more || after {
            return Err(Error::Snapshot(format!("the snapshot goes on after its end, at byte {}", self.offset)));
        }
        Ok(())
    }
}
