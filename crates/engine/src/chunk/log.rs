//! The intent log: edits that are acknowledged and not yet in the durable map.
//!
//! Records go to the page cache and are not synced, so they survive the death of the process and
//! nothing more. That is all they are for: after a power loss their data may be lost, so logs of
//! another boot are ignored. Two files take turns: while a checkpoint brings the edits of one into
//! the map, new ones go to the other.

use super::record::{
    Edit, LOG_HEAD_BYTES, RECORD_BYTES_MAX, decode_edit, decode_log_head, encode_edit,
    encode_log_head,
};
use std::io;
use std::sync::Arc;
use strake_base::disk::{Disk, DiskFile};

/// The files' names.
pub(super) const FILES: [&str; 2] = ["log-0", "log-1"];

/// The two log files; one of them is being written.
pub(super) struct Log {
    files: [Arc<dyn DiskFile>; 2],
    boot: [u8; 36],
    /// Room in each file.
    bytes_max: u64,
    /// Number of the log being written; it lies in file `generation % 2`.
    pub(super) generation: u64,
    /// Checksum of its head.
    sum: u32,
    /// Where its next record goes.
    end: u64,
    buffer: Vec<u8>,
}

impl Log {
    /// Makes the files, with room set aside, so that appending cannot fail for lack of it.
    pub(super) fn format(disk: &dyn Disk, bytes_max: u64) -> io::Result<()> {
        for name in FILES {
            let file = disk.open(name, true)?;
            file.set_len(0)?;
            file.allocate(0, room(bytes_max))?;
            file.sync()?;
        }
        Ok(())
    }

    /// Opens the files. The log cannot be appended to before [`Log::begin`]. Returns the edits of
    /// this boot's logs later than `durable`, in order.
    pub(super) fn open(
        disk: &dyn Disk,
        bytes_max: u64,
        durable: u64,
    ) -> io::Result<(Self, Vec<Edit>)> {
        let files = [disk.open(FILES[0], false)?, disk.open(FILES[1], false)?];
        let boot = boot_bytes(&disk.boot_id()?);
        let mut found = Vec::new();
        for file in &files {
            file.allocate(0, room(bytes_max))?;
            let mut bytes = vec![0; file.len()? as usize];
            file.read_exact_at(&mut bytes, 0)?;
            match decode_log_head(&bytes) {
                Ok(head) if head.boot == boot && head.generation > durable => {
                    found.push((head.generation, replay(&bytes, head.sum)));
                }
                _ => {}
            }
        }
        found.sort_by_key(|(generation, _)| *generation);
        let generation = found.last().map_or(durable, |(generation, _)| *generation);
        let edits = found.into_iter().flat_map(|(_, edits)| edits).collect();
        let (sum, end, buffer) = (0, u64::MAX, Vec::new());
        Ok((Self { files, boot, bytes_max, generation, sum, end, buffer }, edits))
    }

    /// Begins the next log in the other file, whose edits must be in the durable map.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let generation = self.generation + 1;
        let (head, sum) = encode_log_head(generation, &self.boot);
        self.files[(generation % 2) as usize].write_all_at(&head, 0)?;
        (self.generation, self.sum, self.end) = (generation, sum, LOG_HEAD_BYTES as u64);
        Ok(())
    }

    /// True if no edit has been appended since the log began.
    pub(super) fn is_empty(&self) -> bool {
        self.end <= LOG_HEAD_BYTES as u64
    }

    /// True if nothing more should be appended before a checkpoint.
    pub(super) fn is_full(&self) -> bool {
        self.end >= self.bytes_max
    }

    /// How full it is, in percent.
    pub(super) fn percent(&self) -> u64 {
        self.end * 100 / self.bytes_max
    }

    /// Appends an edit. When this fails, the edit is not in the log or at its unreadable end.
    pub(super) fn append(&mut self, edit: &Edit) -> io::Result<()> {
        self.buffer.clear();
        encode_edit(edit, self.sum, &mut self.buffer);
        let file = &self.files[(self.generation % 2) as usize];
        file.write_all_at(&self.buffer, self.end)?;
        self.end += self.buffer.len() as u64;
        Ok(())
    }
}

/// Room in a file: a record may begin anywhere before the end.
fn room(bytes_max: u64) -> u64 {
    bytes_max + RECORD_BYTES_MAX as u64
}

/// The boot id, cut or filled to its usual length.
fn boot_bytes(boot_id: &str) -> [u8; 36] {
    let mut bytes = [0; 36];
    for (byte, from) in bytes.iter_mut().zip(boot_id.bytes()) {
        *byte = from;
    }
    bytes
}

/// The edits of a log, up to the first record that is not whole: the process died writing it.
fn replay(bytes: &[u8], sum: u32) -> Vec<Edit> {
    let (mut edits, mut at) = (Vec::new(), LOG_HEAD_BYTES);
    while let Ok(Some((edit, len))) = decode_edit(&bytes[at..], sum) {
        edits.push(edit);
        at += len;
    }
    edits
}
