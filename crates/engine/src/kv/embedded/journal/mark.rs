//! Up to where the journal was synced, in a file beside it.
//!
//! A note in the journal says so too, but notes are its last records: what damages its end takes them along, and what is
//! left would look as if nothing had been synced after it. The mark is written in place, after the flush that it speaks of, so it
//! never says too much; what it says may be too little, and a file that is not whole says nothing.
//!
//! | mark | bytes | |
//! |---|---|---|
//! | 0 | 8 | `STRKSYNC` |
//! | 8 | 4 | format of the mark, 1 |
//! | 12 | 8 | synced: everything up to this version survives the loss of power |
//! | 20 | 4 | CRC32C of bytes 0..20 |

use super::record::checksum;
use std::io;
use std::sync::Arc;
use strake_base::disk::{Disk, DiskFile};

/// The file's name.
pub const FILE: &str = "synced";
/// Bytes of a mark: within one sector, so that it is not torn.
pub const MARK_BYTES: usize = 24;

const MAGIC: &[u8; 8] = b"STRKSYNC";
const FORMAT: u32 = 1;

/// Begins the mark of a journal that holds nothing yet. What was in the file before is needed no more, also where the disk does not
/// read it. `None` where that fails: what the file says then is of before, and too little.
pub fn create(disk: &dyn Disk) -> Option<Arc<dyn DiskFile>> {
    let file = disk.open(FILE, true).and_then(|file| file.set_len(0).map(|()| file));
    file.inspect_err(|error| warn(disk, error)).ok()
}

/// Says that there is no mark from now on.
pub fn warn(disk: &dyn Disk, error: &io::Error) {
    tracing::warn!(store = disk.path(), %error, "up to where the journal is synced is not stored");
}

/// Up to which version everything was synced at least; 0 if nothing says so.
pub fn read(disk: &dyn Disk) -> u64 {
    let mut bytes = [0; MARK_BYTES];
    let read = disk.open(FILE, false).and_then(|file| file.read_exact_at(&mut bytes, 0));
    match read {
        Ok(()) => decode(&bytes).unwrap_or(0),
        Err(error) => {
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) {
                tracing::warn!(store = disk.path(), %error, "up to where the journal was synced cannot be read");
            }
            0
        }
    }
}

pub fn encode(synced: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[12..20].copy_from_slice(&synced.to_le_bytes());
    let crc = checksum(&[&bytes[..20]]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// `None` if the bytes are no whole mark, or one of a newer format.
pub fn decode(bytes: &[u8]) -> Option<u64> {
    let (body, sum) = bytes.first_chunk::<MARK_BYTES>()?.split_last_chunk::<4>()?;
    let synced = body.strip_prefix(MAGIC)?.strip_prefix(&FORMAT.to_le_bytes())?;
    let synced = u64::from_le_bytes(synced.try_into().ok()?);
    (checksum(&[body]) == u32::from_le_bytes(*sum)).then_some(synced)
}
