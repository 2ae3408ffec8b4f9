//! What callers of a chunk store give and get.

use strake_base::disk::Place;
use strake_types::{ChunkId, ChunkIndex};

/// How a target is opened.
#[derive(Clone, Debug)]
pub struct ChunkOptions {
    /// Bytes of data it may hold; `None`: as much as its disk has room for.
    pub capacity_bytes: Option<u64>,
    /// Bytes of the disk kept back for the store's own map, so that a full target can still delete: at least, while
    /// much has changed more.
    pub reserve_bytes: u64,
    /// The cluster that the target must belong to, if the caller knows.
    pub cluster: Option<String>,
    /// Makes acknowledged data durable in the background, without being asked. Off in simulations,
    /// where nothing may happen by itself.
    pub background: bool,
    /// Longest time that acknowledged data stays volatile when nobody asks for a sync.
    pub checkpoint_ms_max: u64,
    /// A checkpoint begins in the background when this many bytes are not durable yet.
    pub unsynced_bytes_max: u64,
    /// Size at which the intent log is folded into the map. Room for twice this is reserved.
    pub log_bytes_max: u64,
    /// Memory for chunk maps that are not being changed, and as much again for the map's pages.
    pub map_cache_bytes: u64,
}

impl Default for ChunkOptions {
    fn default() -> Self {
        Self {
            capacity_bytes: None,
            reserve_bytes: 32 << 20,
            cluster: None,
            background: true,
            checkpoint_ms_max: 2_000,
            unsynced_bytes_max: 512 << 20,
            log_bytes_max: 8 << 20,
            map_cache_bytes: 32 << 20,
        }
    }
}

/// What is stored of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkStat {
    /// Its place in the file.
    pub index: ChunkIndex,
    /// End of the last stored byte.
    pub len: u64,
    /// Bytes of disk it occupies.
    pub occupied: u64,
    /// Those of them that are reserved and hold nothing.
    pub reserved: u64,
}

/// A chunk, as it is compared with its copies on other targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkDigest {
    /// The chunk.
    pub id: ChunkId,
    /// End of the last stored byte.
    pub len: u64,
    /// See [`super::BlockSums::digest`].
    pub digest: u64,
    /// See [`super::BlockSums::reserved_digest`].
    pub reserved: u64,
}

/// Some of a target's chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkPage {
    /// In the order of their ids.
    pub chunks: Vec<ChunkDigest>,
    /// Where to go on; `None`: the end was reached.
    pub next: Option<ChunkId>,
}

/// State of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStat {
    /// Bytes of data it may hold.
    pub total_bytes: u64,
    /// Bytes still free for new data.
    pub free_bytes: u64,
    /// Chunks stored.
    pub chunks: u64,
    /// Checksum mismatches found since it was opened.
    pub corrupt: u64,
    /// Why it takes no writes, if it does not.
    pub poisoned: Option<String>,
    /// Where its directory is.
    pub place: Place,
    /// Bytes acknowledged that a power loss would take back.
    pub unsynced_bytes: u64,
}

impl StoreStat {
    /// The same for one of so many targets that share a disk: what it holds is its own, and of what is free it
    /// has its part.
    pub fn of_one_in(self, targets: u64) -> Self {
        let free_bytes = self.free_bytes / targets.max(1);
        let used_bytes = self.total_bytes.saturating_sub(self.free_bytes);
        Self { total_bytes: used_bytes + free_bytes, free_bytes, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What targets on one disk hold was counted by its part, like what is free there.
    #[test]
    fn targets_on_one_disk_share_what_is_free_and_not_what_they_hold() {
        let alone = StoreStat { total_bytes: 1_000, free_bytes: 400, ..StoreStat::default() };
        let one = alone.clone().of_one_in(4);
        assert_eq!((one.total_bytes, one.free_bytes), (700, 100));
        assert_eq!(alone.clone().of_one_in(1), alone);
    }
}

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Where to go on; `None`: the end was reached.
    pub next: Option<ChunkId>,
    /// Bytes verified.
    pub bytes: u64,
    /// Chunks verified.
    pub chunks: u64,
    /// Chunks with a mismatch, or whose map is damaged.
    pub corrupt: Vec<ChunkId>,
}
