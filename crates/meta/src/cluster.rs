//! What the metadata server needs to know of the cluster.

use strake_types::layout::{GroupTables, LayoutTemplate};
use strake_types::limits::{INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX};
use strake_types::{Epoch, Result, Shares};
use strake_wire::message::manager::{ClusterMap, Volume};

/// Settings of a volume, taken from the map.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Epoch of the map they were taken from.
    pub epoch: Epoch,
    /// Epoch in which this server became the one that serves it.
    pub owned_since: Epoch,
    /// Layout that files inherit where nothing else is said.
    pub template: LayoutTemplate,
    /// Files up to this many bytes lie inside their inode.
    pub inline_bytes_max: u64,
    /// Every change is on disk before it is acknowledged.
    pub sync_always: bool,
    /// Groups there are.
    pub tables: GroupTables,
    /// The volume is being deleted.
    pub deleting: bool,
    /// What it is a share of.
    pub shares: Shares,
}

impl Settings {
    /// The settings of a volume of the map, which has these groups.
    pub fn of(map: &ClusterMap, volume: &Volume, tables: GroupTables) -> Result<Settings> {
        let spec = &volume.spec;
        let template = match spec.template.clone().map(LayoutTemplate::try_from).transpose() {
            // Nothing is made in it any more.
            Err(_) if volume.deleting => None,
            template => template?,
        };
        Ok(Settings {
            epoch: Epoch(map.epoch),
            owned_since: Epoch(volume.owned_since),
            template: template.unwrap_or_default(),
            inline_bytes_max: spec
                .inline_bytes_max
                .unwrap_or(INLINE_BYTES_DEFAULT)
                .min(INLINE_BYTES_MAX)
                .into(),
            sync_always: spec.sync_always.unwrap_or(false),
            tables,
            deleting: volume.deleting,
            shares: volume.shares(),
        })
    }
}
