//! The forms of bytes that a journal is read from, for those who test decoders.

use super::mark;
use super::record::{Draft, HEAD_BYTES, HEADER_BYTES, Header, Record, Salt, checksum};
use crate::kv::Writes;
use bytes::Bytes;
use strake_types::form::{Form, Outcome, again};

/// Everything that is read from a segment of the journal.
pub const FORMS: &[Form] = &[
    Form { name: "header of a segment", samples: headers, seal: seal_header, check: check_header },
    Form { name: "record", samples: records, seal: seal_record, check: check_record },
    Form { name: "mark", samples: marks, seal: seal_mark, check: check_mark },
];

const SALT: Salt = Salt(*b"a secret");

fn headers() -> Vec<Vec<u8>> {
    vec![Header { number: 3, base: 1 << 33, synced: 70, salt: SALT }.encode().to_vec()]
}

fn seal_header(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_BYTES {
        let sum = checksum(&[&bytes[8..12], &bytes[16..HEADER_BYTES]]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }
}

fn check_header(bytes: &[u8]) -> Outcome {
    again(bytes, |bytes| Header::decode(bytes).ok().flatten(), |header| header.encode().to_vec())
}

fn records() -> Vec<Vec<u8>> {
    let value = |bytes: &'static [u8]| Some(Bytes::from_static(bytes));
    let writes: Writes =
        [(b"k".to_vec(), value(b"value")), (b"gone".to_vec(), None), (Vec::new(), value(b""))]
            .into();
    let commit = Draft::new(&writes).map(|mut draft| draft.finish(SALT, 9, 8, 5).to_vec());
    commit.into_iter().chain([Draft::note().finish(SALT, 9, 9, 9).to_vec()]).collect()
}

fn seal_record(bytes: &mut [u8]) {
    if let Some(writes) = bytes.get(HEAD_BYTES..) {
        let (length, sum) = (writes.len() as u32, checksum(&[writes]));
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        let sum = checksum(&[&bytes[..8], &bytes[12..HEAD_BYTES]]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }
}

fn check_record(bytes: &[u8]) -> Outcome {
    let Some(salt) = Record::salt(bytes) else { return Outcome::Refused };
    let first = Record::decode(bytes, salt).map(|record| record.synced);
    if Record::highest_synced(bytes, salt) < first {
        return Outcome::Different;
    }
    let decode = |bytes: &[u8]| {
        Record::decode(bytes, salt).map(|r| (r.version, r.previous, r.synced, r.writes))
    };
    again(bytes, decode, |(version, previous, synced, writes)| {
        let draft = Draft::new(writes);
        draft.map_or_else(Vec::new, |mut d| d.finish(salt, *version, *previous, *synced).to_vec())
    })
}

fn marks() -> Vec<Vec<u8>> {
    vec![mark::encode(1 << 33 | 70).to_vec()]
}

fn seal_mark(bytes: &mut [u8]) {
    if let Some((body, sum)) = bytes.split_last_chunk_mut() {
        *sum = checksum(&[&*body]).to_le_bytes();
    }
}

fn check_mark(bytes: &[u8]) -> Outcome {
    again(bytes, mark::decode, |synced| mark::encode(*synced).to_vec())
}
