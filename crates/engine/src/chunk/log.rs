//! The intent log: edits that are acknowledged and not yet in the durable map.
//!
//! Records go to the page cache, so they survive the death of the process. After a power loss the data
//! they name may be lost, so of a log of another boot only what comes before its last *mark* counts: a
//! small sync writes a mark, which holds that data, and syncs the log. A *note* after it says so: damage
//! in front of the mark is then not taken for the end that a power loss leaves. Two files take turns:
//! while a checkpoint brings the edits of one into the map, new ones go to the other.

use super::record::{
    Edit, LOG_HEAD_BYTES, Mark, Note, RECORD_BYTES_MAX, Record, SALT_BYTES, encode_edit,
    encode_log_head, encode_mark, encode_note,
};
use super::replay::LogFile;
use std::io;
use std::sync::Arc;
use strake_base::descriptor::told;
use strake_base::disk::{Disk, DiskFile};
use strake_base::random::SystemRandom;

/// The files' names.
pub(super) const FILES: [&str; 2] = ["log-0", "log-1"];

/// Written at once when the files are made.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// How far into which log: its number, and a place in its file. Later ones are greater.
pub(super) type Position = (u64, u64);

/// What the logs add to the durable map.
#[derive(Default)]
pub(super) struct Found {
    /// In order.
    pub(super) edits: Vec<Edit>,
    /// Contents of places that a power loss may have taken, in order: later ones count.
    pub(super) marks: Vec<Mark>,
    /// No power was lost since: all that the edits name was written, and is there unless its file system was unmounted by force.
    pub(super) is_of_boot: bool,
}

/// The two log files; one of them is being written.
pub(super) struct Log {
    files: [Arc<dyn DiskFile>; 2],
    boot: [u8; 36],
    /// Room in each file.
    bytes_max: u64,
    salt: [u8; SALT_BYTES],
    /// Number of the log being written; it lies in file `generation % 2`.
    pub(super) generation: u64,
    /// Checksum of its head.
    sum: u32,
    /// Where its next record goes.
    end: u64,
    buffer: Vec<u8>,
}

impl Log {
    /// Makes the files, full of zeros: appending cannot fail for lack of room, and syncing what was
    /// appended costs the disk's file system no record of its own.
    pub(super) fn format(disk: &dyn Disk, bytes_max: u64) -> io::Result<()> {
        for name in FILES {
            let file = disk.open(name, true)?;
            file.set_len(0)?;
            let room = room(bytes_max);
            for at in (0..room).step_by(ZEROS.len()) {
                file.write_all_at(&ZEROS[..ZEROS.len().min((room - at) as usize)], at)?;
            }
            file.sync()?;
        }
        Ok(())
    }

    /// Opens the files. The log cannot be appended to before [`Log::begin`]. Returns what the logs later
    /// than `durable` add: all of those of the boot `trusted`; of another one's the next, up to its last mark.
    pub(super) fn open(
        disk: &dyn Disk,
        bytes_max: u64,
        durable: u64,
        trusted: &str,
    ) -> io::Result<(Self, Found)> {
        let open = |name| disk.open(name, false).map_err(|error| about(name, &error));
        let files = [open(FILES[0])?, open(FILES[1])?];
        let (boot, trusted) = (boot_bytes(&disk.boot_id()?), boot_bytes(trusted));
        for file in &files {
            file.allocate(0, room(bytes_max))?;
        }
        let [first, second] = &files;
        let read = [LogFile::read(FILES[0], &**first)?, LogFile::read(FILES[1], &**second)?];
        let mut logs = Vec::new();
        for log in &read {
            logs.extend(log.head(copy_at(bytes_max))?.map(|head| (head, log)));
        }
        logs.sort_by_key(|(head, _)| head.generation);
        // One begins only when the last but one is in the map.
        if let Some((head, _)) = logs.last().filter(|(head, _)| head.generation > durable + 2) {
            return Err(damaged(format!(
                "the extent map is of an earlier time ({durable}) than the log ({})",
                head.generation
            )));
        }
        let (mut generation, mut found) = (durable, Found::default());
        for (head, log) in logs.iter().filter(|(head, _)| head.generation > durable) {
            if head.boot == trusted {
                if head.generation > generation + 1 {
                    let missing = &read[((generation + 1) % 2) as usize];
                    return Err(missing.refusal(0, "its head is damaged, and a later log is there"));
                }
                found.edits.extend(edits(log.records(head, true)?));
                found.is_of_boot = true;
                generation = head.generation;
            } else if head.generation == durable + 1 && found.read_marked(log.records(head, false)?)
            {
                generation = head.generation;
            }
        }
        for (log, file) in read.iter().zip(&files) {
            log.mend(&**file);
        }
        let (sum, end, buffer, salt) = (0, u64::MAX, Vec::new(), [0; SALT_BYTES]);
        Ok((Self { files, boot, bytes_max, salt, generation, sum, end, buffer }, found))
    }

    /// Begins the next log in the other file, whose edits must be in the durable map.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let generation = self.generation + 1;
        SystemRandom.fill(&mut self.salt)?;
        let (head, sum) = encode_log_head(generation, &self.boot, &self.salt);
        let file = &self.files[(generation % 2) as usize];
        // The copy first: it is never of an earlier log than the head.
        file.write_all_at(&head, copy_at(self.bytes_max))?;
        file.write_all_at(&head, 0)?;
        (self.generation, self.sum, self.end) = (generation, sum, LOG_HEAD_BYTES as u64);
        Ok(())
    }

    /// Nobody reads the log in the other file any more, which must not be that of a checkpoint under way.
    pub(super) fn forget_other(&self) -> io::Result<()> {
        let other = &self.files[((self.generation + 1) % 2) as usize];
        other.write_all_at(&[0; LOG_HEAD_BYTES], copy_at(self.bytes_max))?;
        other.write_all_at(&[0; LOG_HEAD_BYTES], 0)?;
        other.sync()
    }

    /// True if nothing has been appended since the log began.
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
        self.append_buffer()
    }

    /// Appends a mark; see [`Log::append`]. It counts when the file is synced.
    pub(super) fn append_mark(&mut self, mark: &Mark) -> io::Result<()> {
        self.buffer.clear();
        encode_mark(mark, self.sum, &mut self.buffer);
        self.append_buffer()
    }

    /// Appends a note that everything before the byte `synced` is on disk; see [`Log::append`].
    pub(super) fn append_note(&mut self, synced: u64) -> io::Result<()> {
        self.buffer.clear();
        encode_note(&Note { salt: self.salt, synced }, self.sum, &mut self.buffer);
        self.append_buffer()
    }

    fn append_buffer(&mut self) -> io::Result<()> {
        self.file().write_all_at(&self.buffer, self.end)?;
        self.end += self.buffer.len() as u64;
        Ok(())
    }

    /// The file being written.
    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.files[(self.generation % 2) as usize]
    }

    /// Where the log ends: everything appended so far lies before it.
    pub(super) fn position(&self) -> Position {
        (self.generation, self.end)
    }
}

impl Found {
    /// Takes what a log of another boot holds up to its last mark; false if it has none.
    fn read_marked(&mut self, records: Vec<Record>) -> bool {
        let (mut edits, mut found) = (Vec::new(), false);
        for record in records {
            match record {
                Record::Edit(edit) => edits.push(edit),
                Record::Mark(mark) => {
                    self.edits.append(&mut edits);
                    self.marks.push(mark);
                    found = true;
                }
                Record::Note(_) => {}
            }
        }
        found
    }
}

/// Where the copy of a log's head lies: behind all records, of which one may begin anywhere before
/// `bytes_max`.
fn copy_at(bytes_max: u64) -> u64 {
    bytes_max + RECORD_BYTES_MAX as u64
}

/// Room in a file.
fn room(bytes_max: u64) -> u64 {
    copy_at(bytes_max) + LOG_HEAD_BYTES as u64
}

/// The boot id, cut or filled to its usual length.
pub(super) fn boot_bytes(boot_id: &str) -> [u8; 36] {
    let mut bytes = [0; 36];
    for (byte, from) in bytes.iter_mut().zip(boot_id.bytes()) {
        *byte = from;
    }
    bytes
}

/// The edits among the records of a log.
fn edits(records: Vec<Record>) -> impl Iterator<Item = Edit> {
    records.into_iter().filter_map(|record| match record {
        Record::Edit(edit) => Some(edit),
        Record::Mark(_) | Record::Note(_) => None,
    })
}

/// The same with the file that it is about, which the system does not name.
fn about(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {}", told(error)))
}

fn damaged(cause: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}
