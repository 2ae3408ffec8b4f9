//! Everything that the manager stores, as it is in memory.

use crate::records::{self, Cluster, Fence, Group, Job, Kind, Server, Target, Volume};
use prost::Message;
use std::collections::BTreeMap;
use std::ops::Bound;
use strake_engine::kv::{KvError, Snapshot, Transaction};
use strake_types::{Error, ErrorKind, Result};

/// More records than this in the control plane means a damaged store.
const RECORDS_MAX: usize = 1_000_000;

/// The truth about the cluster. Copied, changed and compared as a whole.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct State {
    pub cluster: Cluster,
    pub servers: BTreeMap<u32, Server>,
    pub targets: BTreeMap<u32, Target>,
    /// Those of each number of copies are numbered without gaps, so their ids ascend in the map.
    pub groups: BTreeMap<u32, Group>,
    pub volumes: BTreeMap<u32, Volume>,
    pub jobs: BTreeMap<u32, Job>,
    pub fences: BTreeMap<u32, Fence>,
}

/// The names of volumes of several shares in a store, also of those that are being deleted: whoever is to keep them
/// has to bear several writers of one volume.
pub async fn volumes_of_shares(snapshot: &dyn Snapshot) -> Result<Vec<String>> {
    let volumes = State::load(snapshot).await?.unwrap_or_default().volumes.into_values();
    let of_shares = |volume: &Volume| volume.share == 0 && volume.spec.shares.is_some();
    Ok(volumes.filter(of_shares).map(|volume| volume.spec.name).collect())
}

/// An error of the store in POSIX vocabulary.
pub(crate) fn stored(error: &KvError) -> Error {
    let kind = match error {
        KvError::Corrupt { .. } => ErrorKind::Corrupt,
        KvError::Full { .. } => ErrorKind::NoSpace,
        KvError::InUse { .. } => ErrorKind::Busy,
        KvError::Newer { .. }
        | KvError::Older { .. }
        | KvError::OtherEngine { .. }
        | KvError::Moved { .. } => ErrorKind::WrongPeer,
        KvError::Poisoned { .. } => ErrorKind::Poisoned,
        KvError::Unreachable { .. }
        | KvError::Refused { .. }
        | KvError::Expired { .. }
        | KvError::OtherOwner { .. }
        | KvError::TakenOver { .. } => ErrorKind::Unavailable,
        _ => ErrorKind::Io,
    };
    Error::with(kind, error.to_string())
}

impl State {
    /// The server of a target.
    pub fn server_of(&self, target: u32) -> Option<u32> {
        self.targets.get(&target).map(|target| target.server)
    }

    /// What a store holds; `None` if it holds no cluster.
    pub async fn load(snapshot: &dyn Snapshot) -> Result<Option<State>> {
        let mut end = records::PREFIX.to_vec();
        end.push(u8::MAX);
        let (from, to) = (Bound::Included(records::PREFIX), Bound::Excluded(end.as_slice()));
        let pairs = snapshot.scan(from, to, RECORDS_MAX).await.map_err(|e| stored(&e))?;
        let mut state = State::default();
        let mut found = false;
        for (key, value) in &pairs {
            let Some((kind, id)) = records::parse_key(key) else { continue };
            match kind {
                k if k == Kind::Cluster as u8 => {
                    state.cluster = records::decode(key, value)?;
                    found = true;
                }
                k if k == Kind::Server as u8 => insert(&mut state.servers, id, key, value)?,
                k if k == Kind::Target as u8 => insert(&mut state.targets, id, key, value)?,
                k if k == Kind::Group as u8 => {
                    insert(&mut state.groups, id, key, value)?;
                    state.groups.entry(id).and_modify(complete);
                }
                k if k == Kind::Fence as u8 => insert(&mut state.fences, id, key, value)?,
                k if k == Kind::Job as u8 => insert(&mut state.jobs, id, key, value)?,
                k if k == Kind::Volume as u8 => {
                    insert(&mut state.volumes, id, key, value)?;
                    state.volumes.entry(id).and_modify(strip);
                }
                _ => {}
            }
        }
        Ok(found.then_some(state))
    }

    /// Puts what differs from `old` into a transaction.
    pub fn write(&self, old: &State, transaction: &mut Transaction) {
        if self.cluster != old.cluster {
            let value = records::encode(&self.cluster);
            transaction.put(records::key(Kind::Cluster, 0), value);
        }
        write_changed(Kind::Server, &self.servers, &old.servers, transaction);
        write_changed(Kind::Target, &self.targets, &old.targets, transaction);
        write_changed(Kind::Group, &self.groups, &old.groups, transaction);
        write_changed(Kind::Job, &self.jobs, &old.jobs, transaction);
        write_changed(Kind::Fence, &self.fences, &old.fences, transaction);
        write_changed(Kind::Volume, &self.volumes, &old.volumes, transaction);
    }

    /// The volume of this name, with its id.
    pub fn volume_named(&self, name: &str) -> Option<(u32, &Volume)> {
        let mut living = self.volumes.iter().filter(|(_, v)| !v.deleting && v.share == 0);
        living.find(|(_, v)| v.spec.name == name).map(|(id, v)| (*id, v))
    }
}

/// Releases that knew one copy only did not say who is in sync.
fn complete(group: &mut Group) {
    if group.in_sync.is_empty() {
        group.in_sync = group.members.clone();
    }
}

/// Earlier releases left a deleted volume its settings.
fn strip(volume: &mut Volume) {
    if volume.deleting {
        volume.delete();
    }
}

fn insert<M: Message + Default>(
    map: &mut BTreeMap<u32, M>,
    id: u32,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    map.insert(id, records::decode(key, value)?);
    Ok(())
}

fn write_changed<M: Message + PartialEq>(
    kind: Kind,
    new: &BTreeMap<u32, M>,
    old: &BTreeMap<u32, M>,
    transaction: &mut Transaction,
) {
    for (&id, record) in new.iter().filter(|(id, record)| old.get(id) != Some(record)) {
        transaction.put(records::key(kind, id), records::encode(record));
    }
    for &id in old.keys().filter(|id| !new.contains_key(id)) {
        transaction.delete(records::key(kind, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_engine::kv::Kv;
    use strake_engine::kv::Outcome;
    use strake_engine::kv::memory::MemoryKv;
    use strake_wire::message::common::Template;
    use strake_wire::message::manager::VolumeSpec;

    #[tokio::test]
    async fn a_volume_that_an_earlier_release_deleted_has_no_settings_any_more() {
        let template = Some(Template { list: vec![1; 1_024], ..Template::default() });
        let spec = VolumeSpec { template, shares: Some(2), ..VolumeSpec::default() };
        let volume = |deleting| Volume { spec: spec.clone(), deleting, ..Volume::default() };
        let volumes = [(1, volume(true)), (2, volume(false))].into();
        let stored = State { volumes, ..State::default() };
        let kv = MemoryKv::new();
        let mut transaction = Transaction::begin(&kv).await.unwrap();
        let cluster = records::encode(&Cluster::default());
        transaction.put(records::key(Kind::Cluster, 0), cluster);
        stored.write(&State::default(), &mut transaction);
        assert_eq!(transaction.commit(&kv).await.unwrap(), Outcome::Committed);
        let found = State::load(&*kv.snapshot().await.unwrap()).await.unwrap().unwrap();
        let bare = VolumeSpec { shares: Some(2), ..VolumeSpec::default() };
        assert_eq!((&found.volumes[&1].spec, &found.volumes[&2].spec), (&bare, &spec));
    }
}
