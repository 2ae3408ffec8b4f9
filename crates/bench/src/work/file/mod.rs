//! One pass over a file: its records are written or read, in some order, by some system calls.
//!
//! [`Order`] says which record comes when, a [`transfer::Transfer`] moves one: every pair of them
//! is a test that somebody has a name for.

mod mapped;
mod plain;
mod ring;
mod stdio;
mod transfer;
mod vectored;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::watch::Watch;
use crate::work::{Amount, Order, Prepared};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use strake_base::aligned::ALIGNMENT;
use transfer::{Transfer, Trouble};

/// One pass of one worker over a region of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// The file's name in the directory of the cell.
    pub file: String,
    /// What is done with each record.
    pub direction: Direction,
    /// Where the region begins.
    pub start: u64,
    /// Bytes of a record.
    pub record: u64,
    /// Records in the region.
    pub records: u64,
    /// In which order they are visited.
    pub order: Order,
    /// By which calls.
    pub calls: Calls,
    /// How the file is opened.
    pub open: Open,
    /// What belongs to the timing beside the records.
    pub ending: Ending,
    /// What the records hold; for [`Direction::Change`], what they hold afterwards.
    pub content: Content,
}

/// What is done with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// It is written.
    Write,
    /// It is read.
    Read,
    /// It is read, changed and written back; it held the generation before.
    Change,
    /// It is read, and each tenth is written back as it was.
    Seek,
}

/// By which calls records move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calls {
    /// `read` and `write`, with `lseek` before where the order demands it.
    Plain,
    /// `pread` and `pwrite`.
    Positioned,
    /// `preadv` and `pwritev` of up to 16 records that follow each other.
    Vectored,
    /// `fread` and `fwrite`: through a buffer of the size of a record, or of a page if that is more.
    Stdio,
    /// `getc` and `putc`: byte by byte through a buffer of a page.
    Characters,
    /// Copies from and to a mapping of the region.
    Mapped,
    /// `io_uring`, with up to `depth` records in flight.
    Ring {
        /// Most records in flight.
        depth: u32,
    },
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Made if it is missing.
    pub create: bool,
    /// Another file of the name is removed before: what is written is written to a new one.
    pub fresh: bool,
    /// Past the page cache: `O_DIRECT`.
    pub direct: bool,
    /// Each write returns when its bytes are on disk: `O_SYNC`.
    pub synced: bool,
}

/// What belongs to the timing beside the records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// `fsync` (of a mapping `msync` before) of what was written.
    pub flush: bool,
    /// `close`.
    pub close: bool,
}

impl Pass {
    /// Bytes that move.
    pub fn bytes(&self) -> u64 {
        self.order.visits(self.records).saturating_mul(self.record)
    }

    /// Bytes of its buffers.
    pub fn memory(&self) -> u64 {
        let records = match self.calls {
            Calls::Vectored => vectored::records_at_once(self.record),
            Calls::Ring { depth } => u64::from(depth),
            // One in the program, and one in its stdio.
            Calls::Stdio => 2,
            _ => 1,
        };
        let pool = match self.calls {
            Calls::Ring { depth } => self.share_of_pool(depth) * u64::from(depth),
            _ => self.pool(),
        };
        self.record.saturating_mul(records).saturating_add(pool)
    }

    /// Bytes of its region.
    fn region(&self) -> u64 {
        self.records.saturating_mul(self.record)
    }

    /// Random bytes that it cuts its records from.
    fn pool(&self) -> u64 {
        match self.direction {
            Direction::Write => self.content.pool(self.region()),
            _ => 0,
        }
    }

    /// The share of each of several buffers: whole pages, as `O_DIRECT` demands.
    fn share_of_pool(&self, buffers: u32) -> u64 {
        self.pool().div_ceil(u64::from(buffers.max(1))).next_multiple_of(ALIGNMENT as u64)
    }

    fn writes(&self) -> bool {
        self.direction != Direction::Read
    }

    fn end(&self) -> u64 {
        self.start + self.records * self.record
    }

    /// What can be said to be wrong before anything is opened.
    fn refuse_nonsense(&self) -> Result<()> {
        let moves_straight = matches!(self.calls, Calls::Stdio | Calls::Characters);
        if self.record == 0 || self.records == 0 {
            return Err(Error::usage("a pass over a file needs records, and bytes in them"));
        }
        if moves_straight && (self.order != Order::Forward || self.direction == Direction::Change) {
            return Err(Error::usage("stdio reads or writes from the beginning to the end only"));
        }
        let changes = matches!(self.direction, Direction::Change | Direction::Seek);
        if changes && !matches!(self.calls, Calls::Plain) {
            return Err(Error::usage("records are changed by plain reads and writes only"));
        }
        let aligned = [self.start, self.record].iter().all(|n| n.is_multiple_of(ALIGNMENT as u64));
        if (self.open.direct || self.calls == Calls::Mapped) && !aligned {
            let what = if self.open.direct { "O_DIRECT" } else { "mmap" };
            return Err(Error::usage(format!("{what} needs records of a multiple of 4 KiB"))
                .next("choose another record size"));
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        // A writable mapping must be readable too: that is how processors work.
        let reads = self.direction != Direction::Write || self.calls == Calls::Mapped;
        let mut options = OpenOptions::new();
        options.read(reads).write(self.writes()).create(self.open.create && self.writes());
        let direct = if self.open.direct { libc::O_DIRECT } else { 0 };
        let synced = if self.open.synced { libc::O_SYNC } else { 0 };
        options.custom_flags(direct | synced);
        options.open(path)
    }
}

/// Opens the file and fills the buffers.
pub fn prepare(pass: &Pass, directory: &Path) -> Result<Box<dyn Prepared>> {
    pass.refuse_nonsense()?;
    let path = directory.join(&pass.file);
    if pass.open.fresh
        && pass.direction == Direction::Write
        && let Err(error) = std::fs::remove_file(&path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(Error::io("removing", &path, &error));
    }
    let file = pass.open(&path).map_err(|error| {
        let told = Error::io("opening", &path, &error);
        match pass.open.direct && error.raw_os_error() == Some(libc::EINVAL) {
            true => told.next("this file system has no O_DIRECT: measure without -I"),
            false => told,
        }
    })?;
    let transfer = transfer(pass, file).map_err(|error| not_ready(pass, &path, &error))?;
    Ok(Box::new(Opened { pass: pass.clone(), path, transfer: Some(transfer) }))
}

fn transfer(pass: &Pass, file: File) -> io::Result<Box<dyn Transfer>> {
    Ok(match pass.calls {
        Calls::Plain => Box::new(plain::Plain::new(pass, file)?),
        Calls::Positioned => Box::new(plain::Positioned::new(pass, file)?),
        Calls::Vectored => Box::new(vectored::Vectored::new(pass, file)?),
        Calls::Stdio => stdio::blocks(pass, file)?,
        Calls::Characters => stdio::characters(pass, file)?,
        Calls::Mapped => Box::new(mapped::Copies::new(pass, file)?),
        Calls::Ring { depth } => Box::new(ring::Flight::new(pass, file, depth)?),
    })
}

/// Why the records of an open file cannot be moved by some calls.
fn not_ready(pass: &Pass, path: &Path, error: &io::Error) -> Error {
    let refused = matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::ENOMEM));
    match pass.calls {
        _ if error.kind() == io::ErrorKind::UnexpectedEof => Error::cut_short(path, pass.end()),
        Calls::Ring { .. } if refused => {
            Error::failed(format!("io_uring cannot be used on this machine: {error}")).next(
                "measure without -H, or allow it: sysctl kernel.io_uring_disabled=0, or in the \
                 seccomp profile of the container",
            )
        }
        _ => Error::io("opening", path, error),
    }
}

/// A pass whose file is open.
struct Opened {
    pass: Pass,
    path: PathBuf,
    /// `None` when the file has been closed.
    transfer: Option<Box<dyn Transfer>>,
}

impl Opened {
    fn told(&self, trouble: Trouble) -> Error {
        match trouble {
            Trouble::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Error::cut_short(&self.path, self.pass.end())
            }
            Trouble::Io(error) => {
                let doing = if self.pass.writes() { "writing" } else { "reading" };
                Error::io(doing, &self.path, &error)
            }
            Trouble::Differs(offset) => Error::lost(format!(
                "{}: the byte at offset {offset} is not what was written",
                self.path.display()
            )),
        }
    }

    fn passes(&mut self, watch: &Watch) -> Result<(), Trouble> {
        let Some(mut transfer) = self.transfer.take() else { return Ok(()) };
        let Pass { start, record, ending, .. } = self.pass;
        for index in self.pass.order.indices(self.pass.records) {
            if watch.check().is_err() {
                break;
            }
            transfer.record(start + index * record)?;
            watch.advance(record);
        }
        transfer.complete()?;
        // Who is to stop does not wait for what a disk has still to write.
        if ending.flush && self.pass.writes() && watch.check().is_ok() {
            transfer.sync()?;
        }
        match ending.close {
            true => transfer.close()?,
            false => self.transfer = Some(transfer),
        }
        Ok(())
    }
}

impl Prepared for Opened {
    fn run(&mut self, watch: &Watch) -> Result<Amount> {
        self.passes(watch).map_err(|trouble| self.told(trouble))?;
        watch.check()?;
        let operations = self.pass.order.visits(self.pass.records);
        Ok(Amount { bytes: self.pass.bytes(), operations })
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        match self.transfer.take() {
            Some(transfer) => transfer.close().map_err(|trouble| self.told(trouble)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
