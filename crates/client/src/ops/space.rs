//! Room in the cluster.

use super::unexpected;
use crate::api::VolumeSpace;
use crate::file::OrderInVain;
use crate::metrics::Op;
use crate::volume::Volume;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use std::time::Duration;
use strake_types::Result;
use strake_wire::message::manager::Target;
use strake_wire::message::meta::{MetaAnswer, MetaOp, Nothing};
use strake_wire::message::storage::{StorageAnswer, StorageOp, StorageRequest, TargetStatRequest};

/// How old an answer may be.
const AGE_MAX: Duration = Duration::from_secs(1);
/// A target that does not answer within this time counts as it was last heard of.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Targets asked at the same time.
const PARALLEL: usize = 64;

/// What the targets said last about their room, and when the last of them was heard.
#[derive(Default)]
pub(crate) struct SpaceCache {
    last: Mutex<Option<(VolumeSpace, Duration)>>,
    /// Held by the one who asks them: how that has ended.
    asking: tokio::sync::Mutex<OrderInVain>,
}

impl Volume {
    /// Room of the whole cluster and counts of the volume, as heard at most a second ago.
    pub async fn statfs(&self) -> Result<VolumeSpace> {
        let _timer = self.count(Op::Space);
        if let Some(space) = self.known_space() {
            return Ok(space);
        }
        let began = self.now();
        // All others wait for the same answers.
        let mut in_vain = self.space.asking.lock().await;
        if let Some(space) = self.known_space() {
            return Ok(space);
        }
        if self.has_waited(began) {
            in_vain.check(began)?;
        }
        let heard = Box::pin(self.ask_for_space()).await;
        in_vain.note(self.now(), heard.as_ref().err());
        let space = heard?;
        // The time of before would be too old where a target was waited for, and others would wait for it again.
        *self.space.last.lock() = Some((space, self.clock().monotonic()));
        Ok(space)
    }

    /// As all say it now.
    async fn ask_for_space(&self) -> Result<VolumeSpace> {
        let (mut contents_bytes, mut inodes, mut inodes_free) = (0, 0, 0);
        for answer in self.ask_all(&self.root_cred(), &MetaOp::VolumeStat(Nothing {})).await? {
            let MetaAnswer::VolumeStat(stat) = answer else {
                return Err(unexpected("volume stat"));
            };
            contents_bytes += stat.bytes;
            (inodes, inodes_free) = (inodes + stat.inodes, inodes_free + stat.inodes_free);
        }
        let map = self.map().current();
        let rooms: Vec<_> = map.targets.iter().map(|target| self.room_of(target)).collect();
        let add = |(all, all_free), (total, free)| async move { (all + total, all_free + free) };
        let rooms = stream::iter(rooms).buffer_unordered(PARALLEL);
        let (total_bytes, free_bytes) = rooms.fold((0, 0), add).await;
        Ok(VolumeSpace { total_bytes, free_bytes, contents_bytes, inodes, inodes_free })
    }

    /// What was last heard, unless that is too old.
    fn known_space(&self) -> Option<VolumeSpace> {
        let now = self.clock().monotonic();
        let (space, when) = (*self.space.last.lock())?;
        (now.saturating_sub(when) < AGE_MAX).then_some(space)
    }

    /// Total and free bytes of a target, by its own word or else by the map's.
    async fn room_of(&self, target: &Target) -> (u64, u64) {
        let known = (target.spec.total_bytes, target.spec.free_bytes);
        if !target.up {
            return known;
        }
        let op = Some(StorageOp::Stat(TargetStatRequest {}));
        let request = StorageRequest { target: target.id, op, ..StorageRequest::default() };
        let asked = self.target_once(request, Bytes::new());
        match tokio::time::timeout(ANSWER_WAIT, asked).await {
            Ok(Ok((StorageAnswer::Stat(stat), _))) => (stat.total_bytes, stat.free_bytes),
            _ => known,
        }
    }
}
