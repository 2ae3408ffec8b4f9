//! The map as it is shown to those who follow it, and what differs from what they were shown before.
//!
//! Everybody who follows fetches every map. That is megabytes in a large cluster, of which a change touches some hundred bytes. So each
//! record is kept with the number of the map in which it has changed last, and who says which map he has is sent the records that
//! are newer. What changes all the time (how full a target is, since when a server is silent) is taken from an earlier map
//! until something else of the record has changed: the whole map and what is made of changes are the same.

use crate::show::Sight;
use bytes::Bytes;
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use strake_wire::message::manager::{
    ClusterMap, Fenced, Group, MapAnswer, MapChanges, MapVersion, Server, Target, Volume,
};

/// Records that are gone are remembered for those who have them still; of more than so many that is forgotten.
const GONE_MAX: usize = 4_096;
/// For so many different maps that others have the changes are kept in their encoding, as long as all of them are no longer than the whole.
const KEPT_MAX: usize = 64;
/// Part of a target that is filled or freed before how full it is is worth telling by itself.
const FULLER_PART: u64 = 16;

/// A record of the map.
trait Record: Clone + PartialEq {
    type Key: Ord + Copy;

    fn key(&self) -> Self::Key;

    /// True if something has changed since an earlier one that others have to be told.
    fn is_news(&mut self, before: &Self) -> bool {
        self != before
    }
}

impl Record for Server {
    type Key = u32;

    fn key(&self) -> u32 {
        self.id
    }

    fn is_news(&mut self, before: &Self) -> bool {
        let now = std::mem::replace(&mut self.silent_ms, before.silent_ms);
        let is_news = self != before;
        self.silent_ms = now;
        is_news
    }
}

impl Record for Target {
    type Key = u32;

    fn key(&self) -> u32 {
        self.id
    }

    fn is_news(&mut self, before: &Self) -> bool {
        let (spec, old) = (&mut self.spec, &before.spec);
        let part = spec.total_bytes / FULLER_PART;
        let is_near = |now: u64, before: u64| now.abs_diff(before) <= part;
        let is_as_full = is_near(spec.free_bytes, old.free_bytes)
            && is_near(spec.total_bytes, old.total_bytes)
            && spec.silent_ms.is_some() == old.silent_ms.is_some()
            && spec.is_nearly_full(old.is_nearly_full(false)) == old.is_nearly_full(false);
        if !is_as_full {
            return true;
        }
        let now = (spec.free_bytes, spec.total_bytes, spec.silent_ms);
        (spec.free_bytes, spec.total_bytes, spec.silent_ms) =
            (old.free_bytes, old.total_bytes, old.silent_ms);
        let is_news = self != before;
        (self.spec.free_bytes, self.spec.total_bytes, self.spec.silent_ms) = now;
        is_news
    }
}

impl Record for Group {
    type Key = u32;

    fn key(&self) -> u32 {
        self.id
    }
}

impl Record for Volume {
    type Key = u32;

    fn key(&self) -> u32 {
        self.id
    }
}

impl Record for Fenced {
    type Key = (u32, u64);

    fn key(&self) -> (u32, u64) {
        Fenced::key(self)
    }
}

/// The records of one kind, each with the number of the map in which it has changed last; `None`: in that one it went.
struct Kept<R: Record> {
    records: BTreeMap<R::Key, (u64, Option<R>)>,
    /// How many of them are gone.
    gone: usize,
}

impl<R: Record> Default for Kept<R> {
    fn default() -> Self {
        Self { records: BTreeMap::new(), gone: 0 }
    }
}

/// Of one kind, what is newer than a map: what there is, and keys of what is gone.
type Newer<R> = (Vec<R>, Vec<<R as Record>::Key>);

impl<R: Record> Kept<R> {
    /// These are the records in the map of this number.
    fn take(&mut self, now: Vec<R>, number: u64) {
        let mut before = std::mem::take(&mut self.records);
        for mut record in now {
            let key = record.key();
            let as_it_was = before
                .remove(&key)
                .filter(|(_, shown)| shown.as_ref().is_some_and(|shown| !record.is_news(shown)));
            self.records.insert(key, as_it_was.unwrap_or((number, Some(record))));
        }
        self.gone = before.len();
        let went = |at, shown: Option<R>| if shown.is_some() { number } else { at };
        let gone = before.into_iter().map(|(key, (at, shown))| (key, (went(at, shown), None)));
        self.records.extend(gone);
    }

    fn forget_gone(&mut self) {
        self.records.retain(|_, (_, record)| record.is_some());
        self.gone = 0;
    }

    fn all(&self) -> Vec<R> {
        self.records.values().filter_map(|(_, record)| record.clone()).collect()
    }

    fn newer(&self, number: u64) -> Newer<R> {
        let (mut records, mut gone) = (Vec::new(), Vec::new());
        for (key, (_, record)) in self.records.iter().filter(|(_, (at, _))| *at > number) {
            match record {
                Some(record) => records.push(record.clone()),
                None => gone.push(*key),
            }
        }
        (records, gone)
    }
}

/// The newest map that was shown to those who follow.
pub(crate) struct Shown {
    /// Which map it is, by the numbers of this life of the manager.
    version: MapVersion,
    /// What differs is known for who has the map of this number or a later one.
    oldest: u64,
    /// Of what it was made, by the count of changes of what it shows; `None`: there is none yet.
    of: Option<u64>,
    /// Its cluster, epoch and leader.
    head: ClusterMap,
    servers: Kept<Server>,
    targets: Kept<Target>,
    groups: Kept<Group>,
    volumes: Kept<Volume>,
    fenced: Kept<Fenced>,
    /// How long the whole of it is, encoded; about, for how full targets are may be shown as it was before.
    bytes: usize,
    /// The whole of it, encoded, once somebody has asked for that.
    whole: Option<Bytes>,
    /// What makes it of the maps of these numbers, encoded; `None`: most of it, so that the whole is sent.
    changes: HashMap<u64, Option<Bytes>>,
}

impl Shown {
    /// Nothing yet. The number is this life's of the manager, and no other's.
    pub fn new(manager: u64) -> Self {
        Self {
            version: MapVersion { manager, number: 0 },
            oldest: 1,
            of: None,
            head: ClusterMap::default(),
            servers: Kept::default(),
            targets: Kept::default(),
            groups: Kept::default(),
            volumes: Kept::default(),
            fenced: Kept::default(),
            bytes: 0,
            whole: None,
            changes: HashMap::new(),
        }
    }

    /// True if nothing that it shows has changed since.
    pub fn is_of(&self, count: u64) -> bool {
        self.of == Some(count)
    }

    /// Shows what is seen, after so many changes of it.
    pub fn take(&mut self, sight: &Sight, count: u64) {
        self.take_map(sight.map());
        self.of = Some(count);
    }

    fn take_map(&mut self, map: ClusterMap) {
        self.version.number += 1;
        let number = self.version.number;
        self.bytes = map.encoded_len();
        let ClusterMap {
            cluster,
            epoch,
            servers,
            targets,
            groups,
            volumes,
            fenced,
            leader,
            next_target,
            missed: _,
        } = map;
        self.servers.take(servers, number);
        self.targets.take(targets, number);
        self.groups.take(groups, number);
        self.volumes.take(volumes, number);
        self.fenced.take(fenced, number);
        self.head = ClusterMap { cluster, epoch, leader, next_target, ..ClusterMap::default() };
        (self.whole, self.changes) = (None, HashMap::new());
        if self.gone() > GONE_MAX {
            self.servers.forget_gone();
            self.targets.forget_gone();
            self.groups.forget_gone();
            self.volumes.forget_gone();
            self.fenced.forget_gone();
            self.oldest = number;
        }
    }

    fn gone(&self) -> usize {
        let Self { servers, targets, groups, volumes, fenced, .. } = self;
        servers.gone + targets.gone + groups.gone + volumes.gone + fenced.gone
    }

    fn len(&self) -> usize {
        let Self { servers, targets, groups, volumes, fenced, .. } = self;
        let others = groups.records.len() + volumes.records.len() + fenced.records.len();
        servers.records.len() + targets.records.len() + others - self.gone()
    }

    /// For who has that one; `None`: he takes no changes.
    pub fn answer(&mut self, known: Option<MapVersion>) -> MapAnswer {
        let version = Some(self.version);
        let remembered = known.filter(|known| self.remembers(*known));
        if let Some(changes) = remembered.and_then(|known| self.changes_since(known.number)) {
            return MapAnswer { version, changes: Some(changes), map: None };
        }
        MapAnswer { version, map: Some(self.whole()), changes: None }
    }

    fn remembers(&self, known: MapVersion) -> bool {
        let numbers = self.oldest..=self.version.number;
        known.manager == self.version.manager && numbers.contains(&known.number)
    }

    fn whole(&mut self) -> Bytes {
        let encode = || {
            let map = ClusterMap {
                servers: self.servers.all(),
                targets: self.targets.all(),
                groups: self.groups.all(),
                volumes: self.volumes.all(),
                fenced: self.fenced.all(),
                ..self.head.clone()
            };
            Bytes::from(map.encode_to_vec())
        };
        self.whole.get_or_insert_with(encode).clone()
    }

    /// `None`: it is most of the map.
    fn changes_since(&mut self, number: u64) -> Option<Bytes> {
        if let Some(changes) = self.changes.get(&number) {
            return changes.clone();
        }
        let changes = self.encode_since(number);
        let bytes = |changes: &Option<Bytes>| changes.as_ref().map_or(0, Bytes::len);
        let kept: usize = self.changes.values().map(bytes).sum();
        if self.changes.len() < KEPT_MAX && kept + bytes(&changes) <= self.bytes {
            self.changes.insert(number, changes.clone());
        }
        changes
    }

    fn encode_since(&self, number: u64) -> Option<Bytes> {
        let (servers, gone_servers) = self.servers.newer(number);
        let (targets, gone_targets) = self.targets.newer(number);
        let (groups, gone_groups) = self.groups.newer(number);
        let (volumes, gone_volumes) = self.volumes.newer(number);
        let (fenced, gone_fenced) = self.fenced.newer(number);
        let there = servers.len() + targets.len() + groups.len() + volumes.len() + fenced.len();
        if there > self.len() / 2 + 1 {
            return None;
        }
        let unfenced = |(volume, session)| Fenced { volume, session, epoch: 0 };
        let changes = MapChanges {
            map: ClusterMap { servers, targets, groups, volumes, fenced, ..self.head.clone() },
            servers: gone_servers,
            targets: gone_targets,
            groups: gone_groups,
            volumes: gone_volumes,
            fenced: gone_fenced.into_iter().map(unfenced).collect(),
            since: number,
        };
        Some(changes.encode_to_vec().into())
    }
}

#[cfg(test)]
mod tests;
