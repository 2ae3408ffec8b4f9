//! Each invariant of the store by name.

#[path = "../../../../tests/src/lines.rs"]
mod lines;

mod boot;
mod census;
mod crash;
mod damage;
mod format;
mod place;
mod process;
mod space;
mod store;

use super::record::encode_key;
use super::*;
use lines::Lines;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use strake_base::disk::sim::SimDisk;
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

pub(super) fn identity() -> Identity {
    Identity { cluster: "ab".repeat(16), uuid: "cd".repeat(16), target: 1 }
}

pub(super) fn options() -> ChunkOptions {
    ChunkOptions {
        background: false,
        reserve_bytes: 1 << 20,
        log_bytes_max: 64 << 10,
        map_cache_bytes: 1 << 20,
        ..ChunkOptions::default()
    }
}

pub(super) fn chunk(ino: u64, index: u64) -> ChunkId {
    ChunkId { volume: VolumeId(1), ino: Ino(ino), index: ChunkIndex(index) }
}

/// All indices from one on.
pub(super) fn from(first: u64) -> RangeInclusive<ChunkIndex> {
    ChunkIndex(first)..=ChunkIndex(u64::MAX)
}

/// Three chunks of a file; the map of the second is damaged, and none is in memory.
fn with_a_damaged_map(seed: u64) -> ChunkStore {
    let disk = formatted(seed, 64 << 20);
    let store = open(&disk);
    (0..3).for_each(|index| put(&store, chunk(1, index), 0, vec![7; 5000]).unwrap());
    drop(store);
    let store = open(&disk);
    let durable = store.flushes.lock().durable;
    let damaged = vec![(encode_key(chunk(1, 1), 0), Some(vec![0]))];
    store.table.commit(&damaged, durable).unwrap();
    store
}

pub(super) fn formatted(seed: u64, capacity_bytes: u64) -> SimDisk {
    let disk = SimDisk::new(seed, capacity_bytes);
    ChunkStore::format(&disk.process(), &identity(), &options()).unwrap();
    disk
}

pub(super) fn open(disk: &SimDisk) -> ChunkStore {
    ChunkStore::open(disk.process(), options()).unwrap()
}

pub(super) fn put(store: &ChunkStore, chunk: ChunkId, offset: u64, data: Vec<u8>) -> Result<()> {
    let sum = crc_fast::crc32_iscsi(&data);
    store.write(chunk, offset, &data.into(), sum)
}

/// Everything a chunk holds; checks the checksum that comes along.
pub(super) fn contents(store: &ChunkStore, chunk: ChunkId) -> Vec<u8> {
    let (bytes, sum) = store.read(chunk, 0, u64::MAX).unwrap();
    assert_eq!(sum, crc_fast::crc32_iscsi(&bytes));
    bytes.to_vec()
}

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub(super) fn bytes(&mut self, len: u64) -> Vec<u8> {
        let first = self.below(255);
        (0..len).map(|i| (first + i * 7 + i / 97) as u8).collect()
    }
}

/// An operation, and what it means.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Write(ChunkId, u64, Vec<u8>),
    Truncate(ChunkId, u64),
    Punch(ChunkId, u64, u64),
    Allocate(ChunkId, u64, u64),
    SetLen(ChunkId, u64),
    /// The first and the last index.
    Delete(u64, u64, u64),
    Clone(ChunkId, u64, ChunkId, u64, u64),
    Sync,
}

/// What the store should hold.
pub(super) type Model = BTreeMap<ChunkId, Vec<u8>>;

const INODES: u64 = 3;
/// Small, and with its upper bits in use.
const INDICES: [u64; 2] = [0, 0xff_ffff << 40 | 1];

impl Op {
    pub(super) fn random(random: &mut Random) -> Op {
        let id = chunk(1 + random.below(INODES), INDICES[random.below(2) as usize]);
        let offset = match random.below(3) {
            0 => random.below(16) * BLOCK_BYTES,
            _ => random.below(16 * BLOCK_BYTES),
        };
        let len = match random.below(3) {
            0 => 1 + random.below(300),
            1 => BLOCK_BYTES * (1 + random.below(5)),
            _ => 1 + random.below(30_000),
        };
        match random.below(16) {
            0..=6 => Op::Write(id, offset, random.bytes(len)),
            7 => Op::Truncate(id, offset),
            8 => Op::Punch(id, offset, len),
            9 => Op::Allocate(id, offset, len),
            10 => {
                let last = [id.index.0, u64::MAX][random.below(2) as usize];
                Op::Delete(id.ino.0, id.index.0, last)
            }
            11 | 12 => {
                let to = chunk(1 + random.below(INODES), INDICES[random.below(2) as usize]);
                let to_offset = offset % BLOCK_BYTES + random.below(8) * BLOCK_BYTES;
                Op::Clone(id, offset, to, to_offset + random.below(8) / 7, len)
            }
            13 => Op::SetLen(id, offset),
            _ => Op::Sync,
        }
    }

    pub(super) fn run(&self, store: &ChunkStore) -> Result<()> {
        match self {
            Op::Write(id, offset, data) => put(store, *id, *offset, data.clone()),
            Op::Truncate(id, len) => store.truncate(*id, *len),
            Op::Punch(id, offset, len) => store.punch(*id, *offset, *len),
            Op::Allocate(id, offset, len) => store.allocate(*id, *offset, *len),
            Op::SetLen(id, len) => store.set_len(*id, *len),
            Op::Delete(ino, first, last) => {
                let indices = ChunkIndex(*first)..=ChunkIndex(*last);
                store.delete_range(VolumeId(1), Ino(*ino), indices)
            }
            Op::Clone(from, from_offset, to, to_offset, len) => {
                store.clone_range(*from, *from_offset, *to, *to_offset, *len)
            }
            Op::Sync => store.sync(),
        }
    }

    pub(super) fn apply(&self, model: &mut Model) {
        match self {
            Op::Write(id, offset, data) => overwrite(model, *id, *offset, data),
            Op::Truncate(id, len) => {
                if let Some(bytes) = model.get_mut(id) {
                    bytes.truncate(*len as usize);
                }
            }
            Op::Punch(id, offset, len) => {
                if let Some(bytes) = model.get_mut(id) {
                    let end = bytes.len().min((offset + len) as usize);
                    let start = end.min(*offset as usize);
                    bytes[start..end].fill(0);
                }
            }
            Op::Allocate(id, ..) => drop(model.entry(*id).or_default()),
            Op::SetLen(id, len) => model.entry(*id).or_default().resize(*len as usize, 0),
            Op::Delete(ino, first, last) => {
                model.retain(|id, _| id.ino.0 != *ino || !(*first..=*last).contains(&id.index.0));
            }
            Op::Clone(from, from_offset, to, to_offset, len) => {
                if from == to && from_offset == to_offset {
                    return;
                }
                let source = model.get(from).map(Vec::as_slice).unwrap_or_default();
                let mut data: Vec<u8> = source
                    .iter()
                    .skip(*from_offset as usize)
                    .take(*len as usize)
                    .copied()
                    .collect();
                data.resize(*len as usize, 0);
                overwrite(model, *to, *to_offset, &data);
            }
            Op::Sync => {}
        }
    }
}

fn overwrite(model: &mut Model, id: ChunkId, offset: u64, data: &[u8]) {
    let bytes = model.entry(id).or_default();
    let end = offset as usize + data.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset as usize..end].copy_from_slice(data);
}

/// What the store does hold.
pub(super) fn state_of(store: &ChunkStore) -> Model {
    let mut state = Model::new();
    for ino in 1..=INODES {
        for stat in store.chunks_of(VolumeId(1), Ino(ino), from(0), usize::MAX).unwrap().0 {
            let id = chunk(ino, stat.index.0);
            let bytes = contents(store, id);
            assert_eq!(bytes.len() as u64, stat.len);
            state.insert(id, bytes);
        }
    }
    assert_eq!(store.stat().chunks, state.len() as u64);
    assert_eq!(store.stat().corrupt, 0, "a false checksum error");
    state
}
