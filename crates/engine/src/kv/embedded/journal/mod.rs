//! The journal: every commit, in order, before it goes into the store.
//!
//! It lies in segments, files named `journal-` and a number in 16 hexadecimal digits. A commit is
//! acknowledged when its record has been handed to the kernel, so it survives the death of the
//! process; what a sync covers survives the loss of power. When the store has made everything up
//! to the end of a segment durable, the segment is removed.
//!
//! Each record carries the version up to which everything was known to be synced when it was
//! written. That tells two kinds of damage apart when the journal is read back: an end that a loss
//! of power left incomplete is cut off, but a damaged record that some later record calls synced
//! is corruption, and is never silently dropped. For the last records, which no later one speaks of, the [`mark`]
//! beside the journal says so. What a commit writes was chosen by users, and may
//! look like records; a random salt at the head of each true one tells them apart.

mod forms;
mod mark;
mod record;
mod recovery;

pub use forms::FORMS;
pub use mark::FILE as MARK_FILE;
pub use record::{Draft, FORMAT, RECORD_BYTES_MAX, Salt};
pub use recovery::{RecoveryError, recover};

use super::super::step;
use crate::reserve::is_full;
use record::{HEADER_BYTES, Header};
use std::io;
use std::sync::Arc;
use strake_base::disk::{Disk, DiskFile};

/// What names of segments begin with.
pub const PREFIX: &str = "journal-";

fn segment_name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The journal, open for appending.
pub struct Journal {
    disk: Arc<dyn Disk>,
    number: u64,
    /// Of every segment that this process makes.
    salt: Salt,
    file: Arc<dyn DiskFile>,
    len: u64,
    /// Numbers of the segments before the current one that have not been removed.
    older: Vec<u64>,
    unsynced: Unsynced,
    synced: u64,
    /// Where that is said beside the journal, if it can be: it only sharpens the diagnosis of later damage.
    mark: Option<Arc<dyn DiskFile>>,
}

/// What a sync has to flush.
#[derive(Default)]
pub struct Unsynced {
    files: Vec<Arc<dyn DiskFile>>,
    /// A segment was made whose name may not be on disk.
    names: bool,
}

impl Unsynced {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.names
    }

    /// Flushes it. Called without the commit lock.
    pub fn flush(&self, disk: &dyn Disk) -> io::Result<()> {
        for file in &self.files {
            file.sync()?;
        }
        if self.names { disk.sync_directory() } else { Ok(()) }
    }
}

/// Why a record was not appended.
pub enum AppendError {
    /// The disk is full; the journal is as before.
    Full,
    /// It is not known what the journal ends with.
    Broken(io::Error),
}

impl Journal {
    /// Begins segment `number` on disk, all of it synced. `base` is the newest version, and synced;
    /// nobody can guess the `salt`.
    pub fn create(disk: Arc<dyn Disk>, number: u64, base: u64, salt: Salt) -> io::Result<Self> {
        let file = make_segment(&*disk, Header { number, base, synced: base, salt })?;
        file.sync()?;
        let mark = mark::create(&*disk);
        disk.sync_directory()?;
        Ok(Self {
            disk,
            number,
            salt,
            file,
            len: HEADER_BYTES as u64,
            older: Vec::new(),
            unsynced: Unsynced::default(),
            synced: base,
            mark,
        })
    }

    /// Bytes of the current segment.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Appends a record and hands it to the kernel.
    pub fn append(
        &mut self,
        draft: &mut Draft,
        version: u64,
        previous: u64,
    ) -> Result<(), AppendError> {
        let record = draft.finish(self.salt, version, previous, self.synced);
        if step::is_last("append torn") {
            let _dying = self.file.write_all_at(&record[..record.len() / 2], self.len);
            step::die();
        }
        if let Err(error) = self.file.write_all_at(record, self.len) {
            // What was written of the record must not be taken for one later.
            let cut = self.file.set_len(self.len);
            return Err(match cut {
                Ok(()) if is_full(&error) => AppendError::Full,
                _ => AppendError::Broken(error),
            });
        }
        self.len += record.len() as u64;
        if !self.unsynced.files.iter().any(|file| Arc::ptr_eq(file, &self.file)) {
            self.unsynced.files.push(self.file.clone());
        }
        Ok(())
    }

    /// Begins the next segment; `base` is the newest version. Returns its number and its file.
    pub fn rotate(&mut self, base: u64) -> io::Result<(u64, Arc<dyn DiskFile>)> {
        let (number, salt) = (self.number + 1, self.salt);
        let header = Header { number, base, synced: self.synced, salt };
        let file = make_segment(&*self.disk, header)?;
        self.older.push(self.number);
        self.number = number;
        self.file = file.clone();
        self.len = HEADER_BYTES as u64;
        self.unsynced.files.push(file.clone());
        self.unsynced.names = true;
        Ok((number, file))
    }

    /// Takes what is to be flushed; whoever takes it flushes it or poisons the store.
    pub fn take_unsynced(&mut self) -> Unsynced {
        std::mem::take(&mut self.unsynced)
    }

    /// Notes, in memory, in the journal and beside it, that everything up to `synced` is on disk.
    pub fn note_synced(&mut self, synced: u64, newest: u64) -> Result<(), AppendError> {
        self.synced = self.synced.max(synced);
        let unsynced = std::mem::take(&mut self.unsynced);
        let noted = self.append(&mut Draft::note(), newest, newest);
        // A note alone is no reason to sync again.
        self.unsynced = unsynced;
        noted?;
        let marked = self.mark.as_ref().map(|m| m.write_all_at(&mark::encode(self.synced), 0));
        // A full disk may have room again.
        if let Some(Err(error)) = marked
            && !is_full(&error)
        {
            mark::warn(&*self.disk, &error);
            self.mark = None;
        }
        Ok(())
    }

    /// The mark of what is synced, which survives the loss of power when it is synced itself, without the commit lock.
    pub fn mark(&self) -> Option<Arc<dyn DiskFile>> {
        self.mark.clone()
    }

    /// Forgets the segments before `number` and returns their names, which can be removed.
    pub fn forget_before(&mut self, number: u64) -> Vec<String> {
        let (gone, kept) = self.older.iter().partition(|older| **older < number);
        self.older = kept;
        let gone: Vec<u64> = gone;
        gone.into_iter().map(segment_name).collect()
    }
}

fn make_segment(disk: &dyn Disk, header: Header) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(&segment_name(header.number), true)?;
    // A segment of this number can be left over from an attempt that failed.
    file.set_len(0)?;
    step::step("segment empty");
    file.write_all_at(&header.encode(), 0)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
