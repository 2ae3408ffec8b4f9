//! Reading a log back: its records, and whether it ended where they end.
//!
//! The first bytes that are no whole record end a log: a process died there, or the power failed before
//! the log was synced. If a note behind them says that the log was on disk beyond, they were damaged
//! since, and what was acknowledged is lost; of which chunks is not known, so the log is refused. So
//! it is where the disk does not read what may be a record.

use super::data::is_unreadable;
use super::record::{
    CONTENT_AT, LOG_HEAD_BYTES, LogHead, Record, claimed_len, decode_log_head, decode_record,
};
use std::io;
use strake_base::disk::DiskFile;

/// What a disk does not read is found by pages.
const PAGE_BYTES: usize = 4096;

/// A log's file, as the disk reads it.
pub(super) struct LogFile {
    name: &'static str,
    bytes: Vec<u8>,
    /// Where pages begin that the disk does not read; they are zeros in `bytes`.
    unreadable: Vec<usize>,
}

impl LogFile {
    pub(super) fn read(name: &'static str, file: &dyn DiskFile) -> io::Result<Self> {
        let (mut bytes, mut unreadable) = (vec![0; file.len()? as usize], Vec::new());
        match file.read_exact_at(&mut bytes, 0) {
            Err(error) if is_unreadable(&error) => {}
            read => {
                read?;
                return Ok(Self { name, bytes, unreadable });
            }
        }
        for (nth, page) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
            let at = nth * PAGE_BYTES;
            match file.read_exact_at(page, at as u64) {
                Err(error) if is_unreadable(&error) => {
                    tracing::warn!(file = name, at, %error, "a part of a log cannot be read");
                    page.fill(0);
                    unreadable.push(at);
                }
                read => read?,
            }
        }
        Ok(Self { name, bytes, unreadable })
    }

    /// The head of the log in it, or its copy where the head is damaged. `None`: there is no log. Where the disk does not read
    /// the head and there is no copy, that is not known, however empty the rest is: the log of an earlier release has no copy,
    /// and may end in its first page.
    pub(super) fn head(&self, copy_at: u64) -> io::Result<Option<LogHead>> {
        let head_at = |at: usize| decode_log_head(self.bytes.get(at..)?).ok();
        let head = head_at(0).or_else(|| head_at(copy_at as usize));
        match (head, self.unreadable.first()) {
            (None, Some(0)) => Err(self.refusal(0, "the disk does not read its head")),
            (head, _) => Ok(head),
        }
    }

    /// The records of the log with this head. `is_of_boot`: all that was written is there.
    pub(super) fn records(&self, head: &LogHead, is_of_boot: bool) -> io::Result<Vec<Record>> {
        let (mut at, mut records) = (LOG_HEAD_BYTES, Vec::new());
        while let Some((record, len)) = self.record(head, at)? {
            records.push(record);
            at += len;
        }
        match self.noted(head, at) {
            Some(synced) if is_of_boot || synced > at as u64 => {
                Err(self.refusal(at, "it is damaged in front of changes that were on disk"))
            }
            _ => Ok(records),
        }
    }

    /// The record that begins at a byte, and its length; `None`: the log ends here. One that is whole and
    /// cannot be understood is an error: what it says was acknowledged.
    fn record(&self, head: &LogHead, at: usize) -> io::Result<Option<(Record, usize)>> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let end = at + claimed_len(rest).unwrap_or(CONTENT_AT);
        if self.unreadable.iter().any(|page| *page < end && at < page + PAGE_BYTES) {
            return Err(self.refusal(at, "the disk does not read what may be changes"));
        }
        decode_record(rest, head.sum).map_err(|error| {
            let cause = format!("{} at byte {at} (log {}): {error}", self.name, head.generation);
            io::Error::new(io::ErrorKind::InvalidData, cause)
        })
    }

    /// Up to where the log was on disk, by the notes behind a byte.
    fn noted(&self, head: &LogHead, from: usize) -> Option<u64> {
        // In version 1 there is neither a salt nor a note.
        let first = *head.salt.first().filter(|_| head.salt.iter().any(|byte| *byte != 0))?;
        let rest = self.bytes.get(from..)?;
        let synced = |salt_at: usize| {
            if !rest.get(salt_at..)?.starts_with(&head.salt) {
                return None;
            }
            match decode_record(rest.get(salt_at - CONTENT_AT..)?, head.sum) {
                Ok(Some((Record::Note(note), _))) => Some(note.synced),
                _ => None,
            }
        };
        let bytes = rest.iter().enumerate().skip(CONTENT_AT);
        bytes.filter(|(_, byte)| **byte == first).filter_map(|(at, _)| synced(at)).max()
    }

    /// Writes zeros over what the disk does not read, so that it can be written in parts again. Nothing in
    /// it is needed: else its log was refused. Whole pages, also the last one: of others the rest would be read.
    pub(super) fn mend(&self, file: &dyn DiskFile) {
        for at in &self.unreadable {
            if let Err(error) = file.write_all_at(&[0; PAGE_BYTES], *at as u64) {
                tracing::warn!(file = self.name, at, %error, "a part of a log cannot be written");
            }
        }
    }

    /// Why the target is not opened, and what to do.
    pub(super) fn refusal(&self, at: usize, why: &str) -> io::Error {
        let cause = format!(
            "{}, its log, cannot be followed from byte {at} on: {why}. What was acknowledged may be lost, \
             and of which files is not known. Start the server without this target, then have \
             another one take its place from the other copies: strake target replace OLD NEW",
            self.name
        );
        io::Error::new(io::ErrorKind::InvalidData, cause)
    }
}
