//! A group of two members in the fake cluster: members that are dead, slow, behind or lose answers, and
//! a manager that hands out new maps.

use super::described::describe_data;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::manager::{
    ClusterMap, Group, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest, MapAnswer, Server,
};
use strake_wire::message::storage::{Attempt, Done, StorageAnswer, StorageOp, StorageRequest};
use strake_wire::service::ManagerService;

/// The group: its members are the targets 0 and 1.
pub(crate) const PAIR: u32 = 1 << 20;

/// How long a target lets a change wait that is to be durable.
const DURABLE_WAIT: Duration = Duration::from_secs(10);

/// How a target answers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mood {
    /// Never.
    Silent,
    /// After this time.
    Slow(Duration),
    /// To what is to be synced: after this time, that it is still at work. A change that is to be durable waits for that for a
    /// while.
    Works(Duration),
    /// With an error.
    Says(ErrorKind),
    /// It carries the next request out, and the answer is lost.
    LosesAnswer,
    /// Reads come with a wrong checksum.
    Garbles,
}

/// A request as a target got it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) target: u32,
    pub(crate) epoch: u64,
    pub(crate) attempt: Option<Attempt>,
    pub(crate) line: String,
    /// What it asks of the copies.
    pub(crate) ack_primary: bool,
    pub(crate) min_copies: u32,
    /// Of a copy.
    pub(crate) from_target: Option<u32>,
}

/// Empty: the cluster has only groups of one member.
#[derive(Default)]
pub(crate) struct Pairs(Mutex<State>);

#[derive(Default)]
struct State {
    map: ClusterMap,
    moods: HashMap<u32, Mood>,
    asked: Vec<Asked>,
    /// Changes carried out, by client and number.
    done: HashSet<(u64, u64)>,
    fetches: usize,
}

impl Pairs {
    pub(crate) fn start(&self, mut map: ClusterMap) {
        map.groups.push(Group { id: PAIR, epoch: 1, members: vec![0, 1], ..Group::default() });
        self.0.lock().map = map;
    }

    /// The manager makes a new epoch of the group.
    pub(crate) fn move_to(&self, in_sync: &[u32], losses: u64) {
        let mut state = self.0.lock();
        state.map.epoch += 1;
        let group = state.map.groups.last_mut().expect("the pair was made");
        group.epoch += 1;
        group.in_sync = in_sync.to_vec();
        group.losses = losses;
    }

    /// A target is on a server of its own, at this address.
    pub(crate) fn place(&self, target: u32, address: String) {
        let mut state = self.0.lock();
        state.map.epoch += 1;
        let id = state.map.servers.len() as u32 + 1;
        state.map.servers.push(Server { id, address, up: true, ..Server::default() });
        let known = state.map.targets.iter_mut().filter(|known| known.id == target);
        known.for_each(|known| known.server = id);
    }

    /// The manager hears nothing of the server of a target any more.
    pub(crate) fn lose(&self, target: u32) {
        self.set_up(target, false);
    }

    /// It is heard of again, and answers.
    pub(crate) fn find(&self, target: u32) {
        self.heal(target);
        self.set_up(target, true);
    }

    fn set_up(&self, target: u32, up: bool) {
        let mut state = self.0.lock();
        state.map.epoch += 1;
        let known = state.map.targets.iter_mut().filter(|known| known.id == target);
        known.for_each(|known| known.up = up);
    }

    pub(crate) fn set(&self, target: u32, mood: Mood) {
        self.0.lock().moods.insert(target, mood);
    }

    pub(crate) fn heal(&self, target: u32) {
        self.0.lock().moods.remove(&target);
    }

    /// What targets were asked since the last call.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.lock().asked)
    }

    /// How often the map was fetched since the last call.
    pub(crate) fn take_fetches(&self) -> usize {
        std::mem::take(&mut self.0.lock().fetches)
    }

    /// What a target thinks of a request before it does anything.
    pub(super) async fn meet(&self, request: &StorageRequest, len: usize) -> Result<Option<Mood>> {
        let mood = {
            let mut state = self.0.lock();
            let Some(group) = state.map.groups.last().cloned() else { return Ok(None) };
            let op = request.op.as_ref().expect("clients ask for something");
            state.asked.push(Asked {
                target: request.target,
                epoch: request.epoch,
                attempt: request.attempt,
                line: describe_data(op, len),
                ack_primary: request.ack_primary,
                min_copies: request.min_copies,
                from_target: if let StorageOp::Copy(c) = op { Some(c.from_target) } else { None },
            });
            let mood = state.moods.get(&request.target).copied();
            if mood == Some(Mood::LosesAnswer) {
                state.moods.remove(&request.target);
            }
            if mood != Some(Mood::Silent) && request.group == PAIR {
                check(&group, request)?;
            }
            mood
        };
        match mood {
            Some(Mood::Silent) => std::future::pending().await,
            Some(Mood::Slow(time)) => tokio::time::sleep(time).await,
            Some(Mood::Works(time)) if matches!(request.op, Some(StorageOp::Sync(_))) => {
                tokio::time::sleep(time).await;
                return Err(ErrorKind::NotCurrent.into());
            }
            Some(Mood::Works(_)) if request.op.as_ref().is_some_and(StorageOp::is_durable) => {
                tokio::time::sleep(DURABLE_WAIT).await;
            }
            Some(Mood::Says(kind)) => return Err(kind.into()),
            _ => {}
        }
        Ok(mood)
    }

    /// An answer of the pair, which tells its losses instead of a boot.
    pub(super) fn vouch(&self, group: u32, answer: StorageAnswer) -> StorageAnswer {
        let state = self.0.lock();
        match (answer, state.map.groups.last()) {
            (StorageAnswer::Done(_), Some(pair)) if group == pair.id => {
                StorageAnswer::Done(Done { boot: pair.losses + 1, ..Done::default() })
            }
            (answer, _) => answer,
        }
    }

    /// True if this change was carried out before.
    pub(super) fn is_repeated(&self, attempt: Option<Attempt>) -> bool {
        let mut state = self.0.lock();
        let numbered = attempt.filter(|_| !state.map.groups.is_empty());
        numbered.is_some_and(|attempt| !state.done.insert((attempt.client, attempt.seq)))
    }
}

fn check(group: &Group, request: &StorageRequest) -> Result<()> {
    let first = group.in_sync().first() == Some(&request.target);
    if request.epoch != group.epoch || (request.attempt.is_some() && !first) {
        return Err(ErrorKind::StaleMap.into());
    }
    match group.in_sync().contains(&request.target) {
        true => Ok(()),
        false => Err(ErrorKind::NotCurrent.into()),
    }
}

/// What becomes of an answer on its way.
pub(super) fn spoil(mood: Option<Mood>, answer: StorageAnswer) -> Result<StorageAnswer> {
    match (mood, answer) {
        (Some(Mood::LosesAnswer), _) => Err(Error::with(ErrorKind::Unavailable, "lost")),
        (Some(Mood::Garbles), StorageAnswer::Data(mut data)) => {
            data.crc ^= 1;
            Ok(StorageAnswer::Data(data))
        }
        (_, answer) => Ok(answer),
    }
}

pub(super) struct FakeManager(pub(super) Arc<super::Fake>);

#[async_trait]
impl ManagerService for FakeManager {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        let Some(ManagerOp::GetMap(get)) = request.op else {
            return Err(ErrorKind::NotSupported.into());
        };
        let mut state = self.0.pairs.0.lock();
        state.fetches += 1;
        let is_newer = state.map.epoch > get.known_epoch;
        let answer = if is_newer { MapAnswer::of(&state.map) } else { MapAnswer::default() };
        Ok(ManagerAnswer::Map(answer).into())
    }
}
