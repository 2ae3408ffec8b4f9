//! Which boot a target speaks from: a number that changes exactly when something that was
//! acknowledged and not synced may be lost.
//!
//! Who was told that a write is done, and not yet that it is on disk, remembers the number that came
//! with the answer; when a sync is answered with another one, the write may be gone.
//!
//! The number is random and rests in a file of the target, with what it holds for: the boot
//! ([`Disk::boot_id`]; the death of a process loses nothing, a power loss does, and so may an unmount) and the birth of the target's files (who
//! restores a copy makes new ones). A target that was closed in good order has lost nothing whatever
//! boots follow, so the file says that too: an orderly restart of the host changes no number. A disk
//! that failed may have dropped what the kernel held for it, so that ends the boot for all processes to
//! come.
//!
//! Whatever goes wrong with the file makes the number a new one: that is a false alarm at worst.

use super::{ChunkError, Result, crc, log};
use std::io;
use std::sync::Arc;
use strake_base::disk::{Disk, DiskFile};
use strake_base::random::SystemRandom;

/// The file's name.
const FILE: &str = "boot";
const MAGIC: &[u8; 8] = b"STRAKEBT";
const VERSION: u32 = 1;
/// Length of the encoded form: within one sector, so that it is not torn.
const BYTES: usize = 72;

/// What the file says of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A process has it open, or died with it.
    Open = 0,
    /// It was closed when everything was on disk.
    Closed = 1,
    /// Its disk has failed.
    Ended = 2,
}

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BootRecord {
    pub(super) state: State,
    pub(super) number: u64,
    /// Of a file that is there as long as the target.
    pub(super) birth: u64,
    /// See [`Disk::boot_id`].
    pub(super) kernel: [u8; 36],
}

/// The boot of an open target.
pub(super) struct Boot {
    file: Arc<dyn DiskFile>,
    record: BootRecord,
}

impl Boot {
    /// Finds out whether anything may have been lost since the last process, and stores what was found
    /// before anything is acknowledged. The logs must be there.
    pub(super) fn open(disk: &dyn Disk) -> Result<Self> {
        let target = disk.path();
        let io = |error: io::Error| ChunkError::io(&target, &error);
        let file = disk.open(FILE, true).map_err(io)?;
        let kernel = log::boot_bytes(&disk.boot_id().map_err(io)?);
        let birth = disk.birth(log::FILES[0]).map_err(io)?;
        let found = read(&*file);
        let lost_nothing = |found: &&BootRecord| {
            let same_host = found.state == State::Open && found.kernel == kernel;
            found.birth == birth && (same_host || found.state == State::Closed)
        };
        let number = match found.as_ref().filter(lost_nothing) {
            Some(found) => found.number,
            None => new_number().map_err(io)?,
        };
        // It stays ended until what the disk has is brought in order.
        let ended = found.as_ref().is_some_and(|found| found.state == State::Ended);
        let state = if ended { State::Ended } else { State::Open };
        let mut record = BootRecord { state, number, birth, kernel };
        if found.as_ref() == Some(&record) {
            return Ok(Self { file, record });
        }
        if let Err(error) = store(disk, &*file, &record) {
            // What the file says now may be as good as before for a process to come: it must not
            // be what this one says.
            tracing::warn!(target_dir = %target, %error, "cannot store which boot this is");
            record.number = new_number().map_err(io)?;
        }
        Ok(Self { file, record })
    }

    /// The disk failed under an earlier process, and that is over: nothing of that time is read any more.
    pub(super) fn begin_anew(&mut self) -> io::Result<()> {
        self.record.state = State::Open;
        self.write(State::Open)?;
        self.file.sync()
    }

    pub(super) fn number(&self) -> u64 {
        self.record.number
    }

    /// Everything is on disk and nothing follows.
    pub(super) fn close(&self, target: &str) {
        let closed = self.write(State::Closed).and_then(|()| self.file.sync());
        if let Err(error) = closed {
            tracing::warn!(target_dir = %target, %error, "cannot store that the target is closed");
        }
    }

    /// What was acknowledged may be lost: another process is to speak from another boot. Not synced:
    /// what takes that from the kernel is another boot as well.
    pub(super) fn end(&self, target: &str) {
        if let Err(error) = self.write(State::Ended) {
            tracing::warn!(target_dir = %target, %error, "cannot store that the disk has failed");
        }
    }

    fn write(&self, state: State) -> io::Result<()> {
        let record = BootRecord { state, ..self.record.clone() };
        self.file.write_all_at(&encode_boot(&record), 0)
    }
}

/// True if the disk failed under an earlier process, and no other has begun since.
pub(super) fn has_ended(disk: &dyn Disk) -> bool {
    let found = disk.open(FILE, false).ok().and_then(|file| read(&*file));
    found.is_some_and(|found| found.state == State::Ended)
}

fn read(file: &dyn DiskFile) -> Option<BootRecord> {
    let mut bytes = [0; BYTES];
    file.read_exact_at(&mut bytes, 0).ok()?;
    decode_boot(&bytes)
}

fn store(disk: &dyn Disk, file: &dyn DiskFile, record: &BootRecord) -> io::Result<()> {
    file.write_all_at(&encode_boot(record), 0)?;
    file.sync()?;
    disk.sync_directory()
}

/// Any but 0, which stands for a target that says nothing.
fn new_number() -> io::Result<u64> {
    Ok(SystemRandom.number()?.max(1))
}

/// Decodes the contents of the file; `None` if they are not whole, or of a later version.
pub(super) fn decode_boot(bytes: &[u8]) -> Option<BootRecord> {
    let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    if !bytes.starts_with(MAGIC) || word(8)? != VERSION || word(68)? != crc::of(&bytes[..68]) {
        return None;
    }
    let state = match word(12)? {
        0 => State::Open,
        1 => State::Closed,
        2 => State::Ended,
        _ => return None,
    };
    let number = long(16).filter(|number| *number != 0)?;
    let kernel = *bytes.get(32..)?.first_chunk()?;
    Some(BootRecord { state, number, birth: long(24)?, kernel })
}

/// The contents of the file.
pub(super) fn encode_boot(record: &BootRecord) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(record.state as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&record.number.to_le_bytes());
    bytes[24..32].copy_from_slice(&record.birth.to_le_bytes());
    bytes[32..68].copy_from_slice(&record.kernel);
    let sum = crc::of(&bytes[..68]);
    bytes[68..].copy_from_slice(&sum.to_le_bytes());
    bytes
}
