//! How the map is sent: the whole of it, or what differs from one that the caller has.

use super::{ClusterMap, Fenced};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use strake_types::{Error, ErrorKind, Result};

/// Which map somebody has. Its epoch alone does not say so: who is up may be shown in an epoch in more than one way.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MapVersion {
    /// Whose numbers these are: every life of a manager has its own. 0: nobody's.
    #[prost(fixed64, tag = "1")]
    pub manager: u64,
    /// A number that grows.
    #[prost(uint64, tag = "2")]
    pub number: u64,
}

/// What makes one map another.
#[derive(Clone, PartialEq, Message)]
pub struct MapChanges {
    /// That other, but of its servers, targets, groups, volumes and fenced sessions only those that are new or differ.
    #[prost(message, required, tag = "1")]
    pub map: ClusterMap,
    /// Servers that are gone,
    #[prost(uint32, repeated, tag = "2")]
    pub servers: Vec<u32>,
    /// targets,
    #[prost(uint32, repeated, tag = "3")]
    pub targets: Vec<u32>,
    /// groups,
    #[prost(uint32, repeated, tag = "4")]
    pub groups: Vec<u32>,
    /// volumes,
    #[prost(uint32, repeated, tag = "5")]
    pub volumes: Vec<u32>,
    /// and sessions that are fenced no more; their epochs say nothing.
    #[prost(message, repeated, tag = "6")]
    pub fenced: Vec<Fenced>,
    /// The number of the map of which they make the other: [`MapVersion::number`].
    #[prost(uint64, tag = "7")]
    pub since: u64,
}

impl Fenced {
    /// What it is found by.
    pub fn key(&self) -> (u32, u64) {
        (self.volume, self.session)
    }
}

impl ClusterMap {
    /// The map that these changes make of this one.
    pub fn with(&self, changes: MapChanges) -> ClusterMap {
        let MapChanges { map, servers, targets, groups, volumes, fenced, since: _ } = changes;
        let fenced = fenced.iter().map(Fenced::key).collect();
        ClusterMap {
            servers: merged(&self.servers, map.servers, servers, |one| one.id),
            targets: merged(&self.targets, map.targets, targets, |one| one.id),
            groups: merged(&self.groups, map.groups, groups, |one| one.id),
            volumes: merged(&self.volumes, map.volumes, volumes, |one| one.id),
            fenced: merged(&self.fenced, map.fenced, fenced, Fenced::key),
            cluster: map.cluster,
            epoch: map.epoch,
            leader: map.leader,
            next_target: map.next_target,
            missed: map.missed,
        }
    }
}

/// What is there without what is gone and with what is new, by key.
fn merged<K: Ord, T: Clone>(old: &[T], new: Vec<T>, gone: Vec<K>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut all: BTreeMap<K, T> = old.iter().map(|one| (key(one), one.clone())).collect();
    for key in &gone {
        all.remove(key);
    }
    all.extend(new.into_iter().map(|one| (key(&one), one)));
    all.into_values().collect()
}

/// See [`ManagerAnswer::Map`](super::ManagerAnswer::Map).
#[derive(Clone, PartialEq, Message)]
pub struct MapAnswer {
    /// The map, as it is sent: it is large, and many are given the same one. [`MapAnswer::decoded`] reads it.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub map: Option<Bytes>,
    /// In its place, to who has said which one he has: [`MapChanges`], as they are sent. [`MapAnswer::after`] reads both.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub changes: Option<Bytes>,
    /// Which one it is. Absent: the manager sends no changes, or not of this one.
    #[prost(message, optional, tag = "3")]
    pub version: Option<MapVersion>,
}

impl MapAnswer {
    /// With this map.
    pub fn of(map: &ClusterMap) -> Self {
        Self { map: Some(map.encode_to_vec().into()), ..Self::default() }
    }

    /// The map, of an answer to who takes no changes; `None`: he has the newest.
    pub fn decoded(self) -> Result<Option<ClusterMap>> {
        self.map.map(ClusterMap::decode).transpose().map_err(malformed)
    }

    /// The map, of an answer to who has this one, of this number; `None`: that is the newest. Fails if what it tells differs from another
    /// one.
    pub fn after(self, known: &ClusterMap, number: u64) -> Result<Option<ClusterMap>> {
        let Some(changes) = self.changes else { return self.decoded() };
        let changes = MapChanges::decode(changes).map_err(malformed)?;
        if changes.since != number {
            let detail = format!(
                "a manager's map: what has changed since number {}, and {number} is known",
                changes.since
            );
            return Err(Error::with(ErrorKind::Malformed, detail));
        }
        Ok(Some(known.with(changes)))
    }
}

fn malformed(error: prost::DecodeError) -> Error {
    Error::with(ErrorKind::Malformed, format!("a manager's map: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::Server;
    use super::*;

    fn server(id: u32, address: &str) -> Server {
        Server { id, address: address.into(), ..Server::default() }
    }

    #[test]
    fn changes_take_out_put_in_and_replace_and_the_order_stays() {
        let fenced = |session, epoch| Fenced { volume: 1, session, epoch };
        let known = ClusterMap {
            cluster: "c".into(),
            epoch: 4,
            servers: vec![server(1, "a"), server(3, "c"), server(5, "e")],
            fenced: vec![fenced(7, 2), fenced(9, 3)],
            leader: 1,
            ..ClusterMap::default()
        };
        let map = ClusterMap {
            cluster: "c".into(),
            epoch: 6,
            servers: vec![server(2, "b"), server(5, "f")],
            fenced: vec![fenced(8, 6)],
            leader: 3,
            next_target: 7,
            ..ClusterMap::default()
        };
        let changes = MapChanges {
            map,
            servers: vec![1],
            fenced: vec![fenced(7, 0)],
            since: 5,
            ..Default::default()
        };
        let bytes = Bytes::from(changes.encode_to_vec());
        let answer = MapAnswer { changes: Some(bytes), ..MapAnswer::default() };
        let wanted = ClusterMap {
            epoch: 6,
            servers: vec![server(2, "b"), server(3, "c"), server(5, "f")],
            fenced: vec![fenced(8, 6), fenced(9, 3)],
            leader: 3,
            next_target: 7,
            ..known.clone()
        };
        assert_eq!(answer.clone().after(&known, 5).unwrap(), Some(wanted.clone()));
        assert_eq!(answer.after(&known, 4).unwrap_err().kind, ErrorKind::Malformed, "of another");
        assert_eq!(MapAnswer::of(&wanted).after(&known, 5).unwrap(), Some(wanted));
        assert_eq!(MapAnswer::default().after(&known, 5).unwrap(), None);
    }

    #[test]
    fn changes_that_cannot_be_read_are_an_error() {
        let answer =
            MapAnswer { changes: Some(Bytes::from_static(&[10, 99])), ..Default::default() };
        assert_eq!(answer.after(&ClusterMap::default(), 0).unwrap_err().kind, ErrorKind::Malformed);
    }
}
