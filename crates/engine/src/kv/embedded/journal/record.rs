//! The bytes of the journal.
//!
//! A segment is a header and records, each directly after the other; all numbers little-endian.
//!
//! | header | bytes | |
//! |---|---|---|
//! | 0 | 8 | `STRKJRNL` |
//! | 8 | 4 | format of the segment, 1 |
//! | 12 | 4 | CRC32C of bytes 8..12 and 16..40 |
//! | 16 | 8 | number of the segment |
//! | 24 | 8 | base: the version before the first record |
//! | 32 | 8 | synced: everything up to this version was known to survive the loss of power |
//!
//! | record | bytes | |
//! |---|---|---|
//! | 0 | 4 | `SKR1` |
//! | 4 | 4 | bytes after the first 12 |
//! | 8 | 4 | CRC32C of bytes 4..8 and of everything from 12 |
//! | 12 | 8 | version of the commit |
//! | 20 | 8 | version of the commit before it; the same number in a note, which writes nothing |
//! | 28 | 8 | synced, as above, when the record was written |
//! | 36 | 4 | number of writes |
//! | 40 | | each: 4 bytes key length, 4 bytes value length (all ones: a deletion), key, value |

use super::super::super::Writes;
use bytes::Bytes;

/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 40;
/// Bytes of a record before its writes.
pub const RECORD_BYTES_MIN: usize = 40;
/// The longest record. A transaction that needs more is refused.
pub const RECORD_BYTES_MAX: usize = 256 << 20;
/// The newest format of a segment.
pub const FORMAT: u32 = 1;

const SEGMENT_MAGIC: &[u8; 8] = b"STRKJRNL";
const RECORD_MAGIC: &[u8; 4] = b"SKR1";
const DELETION: u32 = u32::MAX;

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    pub base: u64,
    pub synced: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.synced.to_le_bytes());
        let crc = checksum(&bytes[8..12], &bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not a whole header. `Err` is the format of a newer release.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, u32> {
        let Some(bytes) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
        let whole = bytes.starts_with(SEGMENT_MAGIC)
            && checksum(&bytes[8..12], &bytes[16..]) == u32_at(bytes, 12);
        match u32_at(bytes, 8) {
            _ if !whole => Ok(None),
            newer if newer > FORMAT => Err(newer),
            _ => Ok(Some(Self {
                number: u64_at(bytes, 16),
                base: u64_at(bytes, 24),
                synced: u64_at(bytes, 32),
            })),
        }
    }
}

/// A record in the making. What does not depend on the version is encoded before the commit lock
/// is taken.
pub struct Draft(Vec<u8>);

impl Draft {
    /// `None` if the writes do not fit in a record.
    pub fn new(writes: &Writes) -> Option<Self> {
        let payload: usize =
            writes.iter().map(|(k, v)| 8 + k.len() + v.as_ref().map_or(0, Bytes::len)).sum();
        if payload > RECORD_BYTES_MAX - RECORD_BYTES_MIN {
            return None;
        }
        let mut bytes = Vec::with_capacity(RECORD_BYTES_MIN + payload);
        bytes.extend_from_slice(RECORD_MAGIC);
        bytes.resize(RECORD_BYTES_MIN - 4, 0);
        put_u32(&mut bytes, writes.len() as u32);
        for (key, value) in writes {
            put_u32(&mut bytes, key.len() as u32);
            put_u32(&mut bytes, value.as_ref().map_or(DELETION, |value| value.len() as u32));
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value.as_deref().unwrap_or_default());
        }
        let after = (bytes.len() - 12) as u32;
        bytes[4..8].copy_from_slice(&after.to_le_bytes());
        Some(Self(bytes))
    }

    /// A record that writes nothing.
    pub fn note() -> Self {
        Self::new(&Writes::new()).expect("a record without writes is the shortest there is")
    }

    /// The finished record.
    pub fn finish(mut self, version: u64, previous: u64, synced: u64) -> Vec<u8> {
        self.0[12..20].copy_from_slice(&version.to_le_bytes());
        self.0[20..28].copy_from_slice(&previous.to_le_bytes());
        self.0[28..36].copy_from_slice(&synced.to_le_bytes());
        let crc = checksum(&self.0[4..8], &self.0[12..]);
        self.0[8..12].copy_from_slice(&crc.to_le_bytes());
        self.0
    }
}

/// A record as read.
#[derive(Debug)]
pub struct Record {
    pub version: u64,
    pub previous: u64,
    pub synced: u64,
    pub writes: Writes,
    /// Bytes it takes.
    pub len: usize,
}

impl Record {
    /// The record at the start of `bytes`; `None` if there is no whole one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(RECORD_MAGIC) || bytes.len() < RECORD_BYTES_MIN {
            return None;
        }
        let len = (u32_at(bytes, 4) as usize).checked_add(12)?;
        let bytes = bytes.get(..len).filter(|_| len >= RECORD_BYTES_MIN)?;
        if checksum(&bytes[4..8], &bytes[12..]) != u32_at(bytes, 8) {
            return None;
        }
        let mut writes = Writes::new();
        let mut rest = &bytes[RECORD_BYTES_MIN..];
        for _ in 0..u32_at(bytes, 36) {
            let (lengths, after) = rest.split_at_checked(8)?;
            let (key, after) = after.split_at_checked(u32_at(lengths, 0) as usize)?;
            let length = u32_at(lengths, 4);
            let (value, after) = match length {
                DELETION => (None, after),
                _ => {
                    let (value, after) = after.split_at_checked(length as usize)?;
                    (Some(Bytes::copy_from_slice(value)), after)
                }
            };
            writes.insert(key.to_vec(), value);
            rest = after;
        }
        rest.is_empty().then(|| Self {
            version: u64_at(bytes, 12),
            previous: u64_at(bytes, 20),
            synced: u64_at(bytes, 28),
            writes,
            len,
        })
    }

    /// The highest `synced` of all whole records that begin anywhere in `bytes`.
    pub fn highest_synced(bytes: &[u8]) -> Option<u64> {
        let mut highest = None;
        let mut at = 0;
        while let Some(found) = find(&bytes[at..], RECORD_MAGIC) {
            at += found;
            match Self::decode(&bytes[at..]) {
                Some(record) => {
                    highest = highest.max(Some(record.synced));
                    at += record.len;
                }
                None => at += 1,
            }
        }
        highest
    }
}

fn find(bytes: &[u8], pattern: &[u8; 4]) -> Option<usize> {
    bytes.windows(4).position(|window| window == pattern)
}

/// CRC32C of two parts.
pub fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(body);
    digest.finalize() as u32
}

fn put_u32(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
