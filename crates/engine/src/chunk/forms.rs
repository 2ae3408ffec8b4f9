//! The forms of bytes that a target is read from, for those who test decoders.

use super::boot::{BootRecord, State, decode_boot, encode_boot};
use super::identity::{Identity, decode_identity, encode_identity};
use super::leaf::{Block, Leaf};
use super::record::{
    Edit, FRAME_BYTES, LOG_HEAD_BYTES, Mark, Note, Record, decode_key, decode_leaf,
    decode_log_head, decode_record, encode_edit, encode_key, encode_leaf, encode_log_head,
    encode_mark, encode_note, leaf_sum, record_sum,
};
use super::{BLOCK_BYTES, crc};
use strake_types::form::{Form, Outcome, again, unsealed};
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

/// Everything that is read from the files of a target.
pub const FORMS: &[Form] = &[
    Form { name: "identity", samples: identities, seal: seal_identity, check: check_identity },
    Form { name: "key of a leaf", samples: keys, seal: unsealed, check: check_key },
    Form { name: "leaf", samples: leaves, seal: seal_leaf, check: check_leaf },
    Form { name: "head of a log", samples: heads, seal: seal_head, check: check_head },
    Form { name: "record of a log", samples: records, seal: seal_record, check: check_record },
    Form { name: "boot", samples: boots, seal: seal_identity, check: check_boot },
];

/// Checksum of the log that the records of this module belong to.
const LOG: u32 = 0;
/// Key of the leaves of this module.
const KEY: &[u8] = b"key";

fn chunk() -> ChunkId {
    ChunkId { volume: VolumeId(1), ino: Ino(1 << 40 | 7), index: ChunkIndex(3) }
}

/// Blocks of every kind, with a gap.
fn blocks() -> impl Iterator<Item = (u64, Block)> {
    let data = (0..3).map(|nth| (nth, Block::Data(1000 + nth, 0x1234_5678 + nth as u32)));
    data.chain([(3, Block::Hole), (5, Block::Reserved(77)), (6, Block::Data(1 << 47, 9))])
}

fn identities() -> Vec<Vec<u8>> {
    let uuid = "0a".repeat(16);
    let alone = Identity { cluster: String::new(), uuid: uuid.clone(), target: 0 };
    let member = Identity { cluster: "f1".repeat(16), uuid, target: 7 };
    [alone, member].iter().filter_map(encode_identity).map(Vec::from).collect()
}

fn seal_identity(bytes: &mut [u8]) {
    if let Some((rest, sum)) = bytes.split_last_chunk_mut() {
        *sum = crc::of(rest).to_le_bytes();
    }
}

fn check_identity(bytes: &[u8]) -> Outcome {
    let encode = |identity: &Identity| encode_identity(identity).map_or_else(Vec::new, Vec::from);
    again(bytes, |bytes| decode_identity(bytes).ok(), encode)
}

fn boots() -> Vec<Vec<u8>> {
    let kernel = *b"6f2d4d4e-0d0a-4a5b-9c43-1d2a3b4c5d6e";
    let record = |state| BootRecord { state, number: 1 << 63 | 9, birth: 77, kernel };
    let states = [State::Open, State::Closed, State::Ended];
    states.map(|state| encode_boot(&record(state)).to_vec()).to_vec()
}

fn check_boot(bytes: &[u8]) -> Outcome {
    again(bytes, decode_boot, |record| encode_boot(record).to_vec())
}

fn keys() -> Vec<Vec<u8>> {
    vec![encode_key(chunk(), 0).to_vec(), encode_key(chunk(), 63).to_vec()]
}

fn check_key(bytes: &[u8]) -> Outcome {
    again(bytes, |bytes| decode_key(bytes).ok(), |(chunk, leaf)| encode_key(*chunk, *leaf).into())
}

fn leaves() -> Vec<Vec<u8>> {
    let mut leaf = Leaf::default();
    let empty = encode_leaf(KEY, &leaf, 0);
    blocks().for_each(|(nth, block)| leaf.set(nth, block));
    vec![empty, encode_leaf(KEY, &leaf, 20_000)]
}

fn seal_leaf(bytes: &mut [u8]) {
    if let Some((body, sum)) = bytes.split_last_chunk_mut() {
        *sum = leaf_sum(KEY, body).to_le_bytes();
    }
}

fn check_leaf(bytes: &[u8]) -> Outcome {
    // Different runs may mean the same blocks: the blocks count.
    let decode = |bytes: &[u8]| {
        let record = decode_leaf(KEY, bytes).ok()?;
        let (len, mut leaf) = (record.len, record.into_leaf());
        leaf.trim();
        Some((len, leaf.iter().collect::<Vec<_>>()))
    };
    again(bytes, decode, |(len, blocks)| {
        let mut leaf = Leaf::default();
        (0..).zip(blocks).for_each(|(nth, block)| leaf.set(nth, *block));
        encode_leaf(KEY, &leaf, *len)
    })
}

fn heads() -> Vec<Vec<u8>> {
    vec![encode_log_head(77, b"6f2d4d4e-0d0a-4a5b-9c43-1d2a3b4c5d6e", b"0salt-7").0.to_vec()]
}

fn seal_head(bytes: &mut [u8]) {
    let head = bytes.get_mut(..LOG_HEAD_BYTES).and_then(|head| head.split_last_chunk_mut());
    if let Some((rest, sum)) = head {
        *sum = crc::of(rest).to_le_bytes();
    }
}

fn check_head(bytes: &[u8]) -> Outcome {
    // Of an earlier version, the checksum differs.
    let decode = |bytes: &[u8]| {
        decode_log_head(bytes).ok().map(|head| (head.generation, head.boot, head.salt))
    };
    again(bytes, decode, |(generation, boot, salt)| {
        encode_log_head(*generation, boot, salt).0.to_vec()
    })
}

fn records() -> Vec<Vec<u8>> {
    let mut change = Edit::new(chunk(), 20_000);
    blocks().for_each(|(nth, block)| change.push(nth, block));
    let mark = Mark { places: vec![(1 << 40, 1)], blocks: vec![7; BLOCK_BYTES as usize] };
    let note = Note { salt: *b"0salt-7", synced: 1 << 20 };
    let records = [
        Record::Edit(change),
        Record::Edit(Edit::removal(chunk())),
        Record::Mark(mark),
        Record::Note(note),
    ];
    records.iter().map(encode).collect()
}

fn encode(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    match record {
        Record::Edit(edit) => encode_edit(edit, LOG, &mut out),
        Record::Mark(mark) => encode_mark(mark, LOG, &mut out),
        Record::Note(note) => encode_note(note, LOG, &mut out),
    }
    out
}

fn seal_record(bytes: &mut [u8]) {
    let Some((frame, body)) = bytes.split_at_mut_checked(FRAME_BYTES) else { return };
    frame[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    frame[4..].copy_from_slice(&record_sum(LOG, body).to_le_bytes());
}

fn check_record(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| decode_record(bytes, LOG).ok()?.map(|(record, _)| record);
    again(bytes, decode, encode)
}
