//! What is told of blocks that were repaired.

use super::Replica;
use super::errand::MetBy;
use metrics::counter;
use std::collections::BTreeMap;
use strake_engine::chunk::BLOCK_BYTES;
use strake_types::{ChunkId, TargetId};

/// What was repaired of a chunk: told when it is over, also if it ends half-way.
pub(super) struct Tale<'a> {
    replica: &'a Replica,
    chunk: ChunkId,
    met_by: MetBy,
    /// By where, and from where.
    blocks: BTreeMap<(TargetId, TargetId), Vec<u32>>,
}

impl<'a> Tale<'a> {
    pub fn new(replica: &'a Replica, chunk: ChunkId, met_by: MetBy) -> Self {
        Self { replica, chunk, met_by, blocks: BTreeMap::new() }
    }

    /// A block of one was repaired from another.
    pub fn note(&mut self, at: TargetId, from: TargetId, block: u32) {
        self.blocks.entry((at, from)).or_default().push(block);
    }
}

impl Drop for Tale<'_> {
    fn drop(&mut self) {
        let (group, chunk, met_by) = (self.replica.group, self.chunk, self.met_by.name());
        for ((at, from), blocks) in &self.blocks {
            let (target, count) = (at.to_string(), blocks.len());
            counter!("strake_storage_repaired_blocks_total", "target" => target, "met_by" => met_by)
                .increment(count as u64);
            let first = blocks.first().map_or(0, |block| u64::from(*block) * BLOCK_BYTES);
            tracing::warn!(
                "group {group}: {chunk} was damaged on target {at}, in {count} blocks from byte {first} on, \
                 met by a {met_by}: repaired from target {from}"
            );
        }
    }
}
