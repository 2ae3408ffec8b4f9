//! Servers that may have to work on an operation for long: who they are, and whether the manager hears of them.

use std::time::Duration;
use strake_types::{GroupId, VolumeId};
use strake_wire::map::MapView;
use strake_wire::message::meta::MetaOp;
use strake_wire::message::storage::StorageOp;

/// How often the map is fetched while one is waited for.
const FETCH: Duration = Duration::from_millis(500);

/// Who may have to work on an operation for long.
#[derive(Clone, Copy)]
pub(crate) enum Worker {
    /// The target to which a group's changes go.
    Target(GroupId),
    /// The same, which is to sync: the more was written, the longer that takes.
    Syncs(GroupId),
    /// The metadata server of a share.
    Metadata(VolumeId),
}

impl Worker {
    /// Who has to change or sync what lies in a group, which waits for a disk.
    pub(crate) fn of_group(group: GroupId, op: &StorageOp) -> Option<Self> {
        match op {
            StorageOp::Sync(_) => Some(Self::Syncs(group)),
            op => op.is_change().then_some(Self::Target(group)),
        }
    }

    /// Who has to answer when something of a share is on disk, or when all of a directory has been looked through.
    pub(crate) fn of_share(share: VolumeId, op: &MetaOp) -> Option<Self> {
        let works = match op {
            MetaOp::Sync(_) | MetaOp::Check(_) => true,
            MetaOp::Publish(publish) => publish.sync,
            MetaOp::WriteInline(write) => write.sync,
            _ => false,
        };
        works.then_some(Self::Metadata(share))
    }

    /// True if the map shows that somebody is heard of.
    pub(crate) fn is_heard_of(self, map: &MapView) -> bool {
        let current = map.current();
        match self {
            Self::Target(group) | Self::Syncs(group) => {
                map.primary_of(group).is_ok_and(|(primary, _)| {
                    current.targets.iter().any(|target| target.id == primary.0 && target.up)
                })
            }
            Self::Metadata(share) => current.volume(share).is_some_and(|share| {
                current.servers.iter().any(|server| server.id == share.meta_server && server.up)
            }),
        }
    }

    /// Waits until the map shows that somebody is heard of (`heard`) or is not, and has it fetched meanwhile.
    pub(crate) async fn until_heard_of(self, map: &MapView, heard: bool) {
        let mut maps = map.watch();
        while self.is_heard_of(map) != heard {
            map.hurry();
            let again = tokio::time::timeout(FETCH, maps.changed()).await;
            debug_assert!(!matches!(again, Ok(Err(_))), "the map is there as long as the volume");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::meta::Check;

    /// A directory that took longer than 30 s was never looked through, however often that was asked for.
    #[test]
    fn a_page_of_a_check_is_waited_for_while_its_server_is_heard_of() {
        let works = |op| Worker::of_share(VolumeId(1), &op).is_some();
        assert!(works(MetaOp::Check(Check::default())));
        assert!(!works(MetaOp::VolumeStat(Default::default())));
    }
}
