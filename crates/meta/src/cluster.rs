//! What the metadata server needs to know of the cluster.

use strake_types::layout::LayoutTemplate;
use strake_types::limits::{INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX};
use strake_types::{Epoch, GroupId, Result, VolumeId};
use strake_wire::message::manager::ClusterMap;

/// Settings of a volume, taken from the map.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Epoch of the map they were taken from.
    pub epoch: Epoch,
    /// Layout that files inherit where nothing else is said.
    pub template: LayoutTemplate,
    /// Files up to this many bytes lie inside their inode.
    pub inline_bytes_max: u64,
    /// Every change is on disk before it is acknowledged.
    pub sync_always: bool,
    /// Groups in the table.
    pub table_size: u32,
    /// The volume is being deleted.
    pub deleting: bool,
}

impl Settings {
    /// The settings of a volume, if the map has it.
    pub fn of(map: &ClusterMap, volume: VolumeId) -> Option<Result<Settings>> {
        let found = map.volumes.iter().find(|v| v.id == volume.0)?;
        let spec = &found.spec;
        let template = match spec.template.clone().map(LayoutTemplate::try_from).transpose() {
            Ok(template) => template.unwrap_or_default(),
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Settings {
            epoch: Epoch(map.epoch),
            template,
            inline_bytes_max: spec
                .inline_bytes_max
                .unwrap_or(INLINE_BYTES_DEFAULT)
                .min(INLINE_BYTES_MAX)
                .into(),
            sync_always: spec.sync_always.unwrap_or(false),
            table_size: map.groups.len().max(1) as u32,
            deleting: found.deleting,
        }))
    }
}

/// Targets that hold a group's chunks, the primary first, and the group's epoch.
pub(crate) fn members(map: &ClusterMap, group: GroupId) -> Option<(&[u32], u64)> {
    let group = map.groups.get(group.0 as usize)?;
    Some((&group.members, group.epoch))
}
