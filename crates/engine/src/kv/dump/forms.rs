//! The form of these files, for the tests that hold all decoders to one rule.

use super::file::{Blocks, block, end, head};
use super::{Dump, Pair};
use crate::kv::Moved;
use bytes::{Buf, Bytes};
use crc_fast::crc32_iscsi;
use std::io::Cursor;
use std::path::Path;
use strake_types::form::{Form, Outcome, again, unsealed};

/// A whole file, and what a store that was moved says of that.
pub const FORMS: &[Form] = &[
    Form { name: "export", samples: files, seal: seal_file, check: check_file },
    Form { name: "moved", samples: moves, seal: unsealed, check: check_move },
];

/// Where the number is in the head, and what follows the text in it.
const NUMBER: std::ops::Range<usize> = 12..28;
const HEAD_BYTES: usize = 32;

/// What a file holds, block by block.
type Read = (Dump, Vec<Vec<Pair>>);

fn read(bytes: &[u8]) -> Option<Read> {
    let file = Box::new(Cursor::new(bytes.to_vec()));
    let mut blocks = Blocks::begin(Path::new("file"), file, bytes.len() as u64).ok()?;
    let mut read = Vec::new();
    while let Some(pairs) = blocks.next_block().ok()? {
        read.push(pairs);
    }
    Some((blocks.end().ok()?, read))
}

fn written((dump, blocks): &Read) -> Vec<u8> {
    let blocks = blocks.iter().flat_map(|pairs| block(pairs));
    head(&dump.id, &dump.about).into_iter().chain(blocks).chain(end(dump)).collect()
}

fn files() -> Vec<Vec<u8>> {
    let pair = |key: &'static str, value: &'static str| (Bytes::from(key), Bytes::from(value));
    let blocks = vec![vec![pair("a", ""), pair("b", "value")], vec![pair("c!", "x")]];
    let full = Dump { id: [7; 16], about: "whose".into(), pairs: 3, bytes: 10 };
    let empty = Dump { id: [8; 16], about: String::new(), pairs: 0, bytes: 0 };
    vec![written(&(empty, Vec::new())), written(&(full, blocks))]
}

fn check_file(bytes: &[u8]) -> Outcome {
    again(bytes, read, written)
}

fn moves() -> Vec<Vec<u8>> {
    let to_database = Moved {
        export: [7; 16],
        at_ms: 1_700_000_000_000,
        to: "etcd://h:2379/n".into(),
        host: "host1".into(),
    };
    let to_home = Moved { to: String::new(), ..to_database.clone() };
    vec![to_database.encode(), to_home.encode()]
}

fn check_move(bytes: &[u8]) -> Outcome {
    again(bytes, Moved::decode, Moved::encode)
}

/// As far as its parts follow each other.
fn seal_file(bytes: &mut [u8]) {
    let Some(len) = bytes.get(NUMBER.end..).and_then(|mut rest| rest.try_get_u32_le().ok()) else {
        return;
    };
    let number = bytes[NUMBER].to_vec();
    let mut at = HEAD_BYTES.saturating_add(len as usize);
    if !put_sum(bytes, 0..at, at, &[]) {
        return;
    }
    at += 4;
    while let Some(mut part) = bytes.get(at..).filter(|part| part.len() >= 12) {
        let len = part.get_u32_le() as usize;
        if len == 0 {
            put_sum(bytes, at + 12..at + 28, at + 28, &number);
            return;
        }
        let payload = at + 12..(at + 12).saturating_add(len);
        let end = payload.end;
        if !put_sum(bytes, payload, at + 8, &[]) {
            return;
        }
        at = end;
    }
}

/// Puts the checksum of something before a range, and of the range, where it belongs; false if that is not there.
fn put_sum(bytes: &mut [u8], range: std::ops::Range<usize>, at: usize, before: &[u8]) -> bool {
    let Some(part) = bytes.get(range) else { return false };
    let sum = crc32_iscsi(&[before, part].concat());
    match bytes.get_mut(at..at.saturating_add(4)) {
        Some(place) => place.copy_from_slice(&sum.to_le_bytes()),
        None => return false,
    }
    true
}
