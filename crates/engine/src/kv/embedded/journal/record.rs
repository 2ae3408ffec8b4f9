//! The bytes of the journal.
//!
//! A segment is a header and records, each directly after the other; all numbers little-endian.
//!
//! | header | bytes | |
//! |---|---|---|
//! | 0 | 8 | `STRKJRNL` |
//! | 8 | 4 | format of the segment, 2 |
//! | 12 | 4 | CRC32C of bytes 8..12 and 16..48 |
//! | 16 | 8 | number of the segment |
//! | 24 | 8 | base: the version before the first record |
//! | 32 | 8 | synced: everything up to this version was known to survive the loss of power |
//! | 40 | 8 | salt: random, chosen anew whenever the store is opened |
//!
//! | record | bytes | |
//! |---|---|---|
//! | 0 | 8 | salt, as in the header of the segment |
//! | 8 | 4 | CRC32C of bytes 0..8 and 12..48 |
//! | 12 | 4 | bytes of the writes |
//! | 16 | 4 | CRC32C of the writes |
//! | 20 | 8 | version of the commit |
//! | 28 | 8 | version of the commit before it; the same number in a note, which writes nothing |
//! | 36 | 8 | synced, as above, when the record was written |
//! | 44 | 4 | number of writes |
//! | 48 | | each: 4 bytes key length, 4 bytes value length (all ones: a deletion), key, value |
//!
//! Keys and values hold names and contents that users chose. They cannot know the salt, so nothing
//! that they write is ever taken for a record, wherever reading begins.

use super::super::super::Writes;
use bytes::Bytes;

/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 48;
/// Bytes of a record before its writes.
pub const HEAD_BYTES: usize = 48;
/// The longest record. A transaction that needs more is refused.
pub const RECORD_BYTES_MAX: usize = 256 << 20;
/// The newest format of a segment.
pub const FORMAT: u32 = 2;

const SEGMENT_MAGIC: &[u8; 8] = b"STRKJRNL";
const DELETION: u32 = u32::MAX;

/// What the records of a segment begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub [u8; 8]);

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    pub base: u64,
    pub synced: u64,
    pub salt: Salt,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.synced.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.salt.0);
        let crc = checksum(&[&bytes[8..12], &bytes[16..]]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not a whole header. `Err` is the format of a newer release.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, u32> {
        let Some(bytes) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
        let whole = bytes.starts_with(SEGMENT_MAGIC)
            && checksum(&[&bytes[8..12], &bytes[16..]]) == u32_at(bytes, 12);
        match u32_at(bytes, 8) {
            _ if !whole => Ok(None),
            newer if newer > FORMAT => Err(newer),
            _ => Ok(Some(Self {
                number: u64_at(bytes, 16),
                base: u64_at(bytes, 24),
                synced: u64_at(bytes, 32),
                salt: Salt(array_at(bytes, 40)),
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
        if payload > RECORD_BYTES_MAX - HEAD_BYTES {
            return None;
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + payload);
        bytes.resize(HEAD_BYTES - 4, 0);
        put_u32(&mut bytes, writes.len() as u32);
        for (key, value) in writes {
            put_u32(&mut bytes, key.len() as u32);
            put_u32(&mut bytes, value.as_ref().map_or(DELETION, |value| value.len() as u32));
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value.as_deref().unwrap_or_default());
        }
        let crc = checksum(&[&bytes[HEAD_BYTES..]]);
        bytes[12..16].copy_from_slice(&(payload as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        Some(Self(bytes))
    }

    /// A record that writes nothing.
    pub fn note() -> Self {
        Self::new(&Writes::new()).expect("a record without writes is the shortest there is")
    }

    /// The finished record, for a segment with this salt.
    pub fn finish(&mut self, salt: Salt, version: u64, previous: u64, synced: u64) -> &[u8] {
        self.0[..8].copy_from_slice(&salt.0);
        self.0[20..28].copy_from_slice(&version.to_le_bytes());
        self.0[28..36].copy_from_slice(&previous.to_le_bytes());
        self.0[36..44].copy_from_slice(&synced.to_le_bytes());
        let crc = checksum(&[&self.0[..8], &self.0[12..HEAD_BYTES]]);
        self.0[8..12].copy_from_slice(&crc.to_le_bytes());
        &self.0
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
    /// The record at the start of `bytes`; `None` if there is no whole one of this salt.
    pub fn decode(bytes: &[u8], salt: Salt) -> Option<Self> {
        let (head, body) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let body = body.get(..u32_at(head, 12) as usize).filter(|_| is_head(head, salt))?;
        if checksum(&[body]) != u32_at(head, 16) {
            return None;
        }
        let mut writes = Writes::new();
        let mut rest = body;
        for _ in 0..u32_at(head, 44) {
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
            version: u64_at(head, 20),
            previous: u64_at(head, 28),
            synced: u64_at(head, 36),
            writes,
            len: HEAD_BYTES + body.len(),
        })
    }

    /// The salt of the record at the start of `bytes`, if its head is whole.
    pub fn salt(bytes: &[u8]) -> Option<Salt> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        let salt = Salt(array_at(head, 0));
        is_head(head, salt).then_some(salt)
    }

    /// The highest `synced` of all records of this salt whose heads lie anywhere in `bytes`.
    ///
    /// Only heads are looked at, so the work grows with the length alone, whatever the bytes are;
    /// and a head speaks the truth also when the writes behind it did not reach the disk.
    pub fn highest_synced(bytes: &[u8], salt: Salt) -> Option<u64> {
        let heads = bytes.array_windows::<HEAD_BYTES>().filter(|head| is_head(head, salt));
        heads.map(|head| u64_at(head, 36)).max()
    }
}

/// True if this is the head of a record of a segment with this salt.
fn is_head(head: &[u8; HEAD_BYTES], salt: Salt) -> bool {
    head.starts_with(&salt.0) && checksum(&[&head[..8], &head[12..]]) == u32_at(head, 8)
}

/// CRC32C of parts, one after the other.
pub fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

fn put_u32(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}
