//! Volumes that are being deleted are emptied: on all targets, and in the store. That it is done is remembered there, in place of
//! the counts of the volume, so that a server which starts finds it.
//!
//! A volume is emptied twice. After the first time who has a capability may still write, and copies that are under way may come: the
//! second time is when no capability that was given before holds any more. A process that starts in between goes by the time that is
//! stored with the first. What comes later still nobody looks for: a target that was out of the map until then keeps what it has of
//! the volume in groups of which it is the only member; in others it is made equal, or they are not its own any more.
//!
//! Several are emptied at the same time: each waits for targets of which one may say nothing. While one is away all others are
//! asked again, too, so one that could not be emptied is tried again ever later.

use crate::cluster::Settings;
use crate::contents;
use crate::core::Core;
use crate::keys::{self, Kind};
use crate::ops::sessions::delete_prefix;
use crate::records::{self, Stat};
use crate::stop::Stop;
use crate::stored::{decoded, store_error};
use crate::volume::Volume;
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_engine::kv::Transaction;
use strake_types::{Result, VolumeId};

/// Volumes emptied at the same time.
const PARALLEL: usize = 8;
/// Volumes of which it is looked up in one go whether they were emptied.
const LOOKED_UP_MAX: usize = 256;
/// After how long one that could not be emptied is tried again: the first time, and at most.
const PAUSE_MS: u64 = 1_000;
const PAUSE_MS_MAX: u64 = 60_000;

/// A volume that is being deleted.
#[derive(Default)]
struct Deleted {
    /// What was in use of it, as long as somebody goes on with that, perhaps waiting for a storage server.
    in_use: Weak<Volume>,
    /// It is to be emptied, or is being emptied.
    begun: bool,
    /// It was emptied, and is to be for the last time from then on (monotonic milliseconds).
    again_ms: Option<u64>,
    /// That was done, too.
    done: bool,
    /// How often in a row it could not be emptied,
    failures: u32,
    /// and until when that is not tried again (monotonic milliseconds).
    pauses_until_ms: u64,
}

impl Deleted {
    /// As earlier processes have left it.
    fn found(stat: &Stat, core: &Core) -> Self {
        let left_ms = left_ms(stat, core.wall_ms(), core.options.capability_ms);
        let again_ms = left_ms.map(|left_ms| core.monotonic_ms() + left_ms);
        Self { again_ms, done: stat.emptied, ..Self::default() }
    }

    /// If one is to begin now: whether it is the last one.
    fn due(&self, now_ms: u64) -> Option<bool> {
        if self.done || self.begun || now_ms < self.pauses_until_ms {
            return None;
        }
        match self.again_ms {
            None => Some(false),
            Some(again_ms) if again_ms <= now_ms && self.in_use.strong_count() == 0 => Some(true),
            Some(_) => None,
        }
    }

    /// One has ended.
    fn emptied(&mut self, last: bool, again_ms: u64) {
        // Where it was taken into use since the last one began, that was the first one.
        self.done = last && self.again_ms.is_some();
        self.again_ms.get_or_insert(again_ms);
        (self.failures, self.pauses_until_ms) = (0, 0);
    }

    /// One has failed. True if that is worth saying: ever more seldom.
    fn failed(&mut self, now_ms: u64) -> bool {
        let pause_ms = (PAUSE_MS << self.failures.min(6)).min(PAUSE_MS_MAX);
        self.pauses_until_ms = now_ms + pause_ms;
        self.failures = self.failures.saturating_add(1);
        self.failures.is_power_of_two()
    }
}

/// How long until one that was emptied is to be for the last time. `None`: it was not, or a clock that was ahead has dated that, for
/// which nobody should wait.
fn left_ms(stat: &Stat, wall_ms: u64, capability_ms: u64) -> Option<u64> {
    let once_ms = Some(stat.emptied_once_ms).filter(|once_ms| *once_ms > 0)?;
    let since_ms = wall_ms.checked_sub(once_ms)?;
    Some(capability_ms.saturating_sub(since_ms))
}

/// One that is to be emptied now.
struct Due {
    id: VolumeId,
    /// For the last time.
    last: bool,
}

/// The background task.
pub(super) async fn run(core: &Arc<Core>, stop: &Stop) {
    let tick = Duration::from_millis(core.options.tick_ms);
    let mut known: HashMap<VolumeId, Deleted> = HashMap::new();
    let mut due: VecDeque<Due> = VecDeque::new();
    let mut under_way = FuturesUnordered::new();
    while !stop.is_told() {
        tokio::select! {
            biased;
            () = stop.told() => {}
            Some((one, emptied)) = under_way.next(), if !under_way.is_empty() => {
                note(core, &mut known, &one, emptied);
            }
            looked_up = look_up(core, &known, tick), if due.is_empty() => match looked_up {
                Ok(fresh) => due = find(core, &mut known, fresh),
                Err(error) => {
                    tracing::warn!("which volumes were emptied is not known: {error}; trying again");
                }
            },
        }
        while under_way.len() < PARALLEL
            && let Some(one) = due.pop_front()
        {
            under_way.push(empty(core, one, stop));
        }
    }
    // Each of them hears of the stop, too.
    while under_way.next().await.is_some() {}
}

/// Those that are being deleted.
fn deleting(core: &Core) -> Vec<VolumeId> {
    let map = core.map.current();
    let deleting = map.volumes.iter().filter(|volume| volume.deleting && core.serves(volume));
    deleting.map(|volume| VolumeId(volume.id)).collect()
}

/// Finds out of those that are new, after a while, how far earlier processes have emptied them.
async fn look_up(
    core: &Core,
    known: &HashMap<VolumeId, Deleted>,
    wait: Duration,
) -> Result<Vec<(VolumeId, Deleted)>> {
    tokio::time::sleep(wait).await;
    let mut fresh = deleting(core);
    fresh.retain(|id| !known.contains_key(id));
    let mut looked_up = Vec::with_capacity(fresh.len());
    for some in fresh.chunks(LOOKED_UP_MAX) {
        let keys: Vec<_> = some.iter().map(|id| keys::volume_stat(*id)).collect();
        let found = core.store.look(&keys).await.map_err(store_error)?;
        for ((id, key), value) in some.iter().zip(&keys).zip(found) {
            // A damaged one goes with the rest.
            let stat: Option<Stat> = decoded(key, value).unwrap_or_default();
            looked_up.push((*id, Deleted::found(&stat.unwrap_or_default(), core)));
        }
    }
    Ok(looked_up)
}

/// Those that are to be emptied.
fn find(
    core: &Core,
    known: &mut HashMap<VolumeId, Deleted>,
    fresh: Vec<(VolumeId, Deleted)>,
) -> VecDeque<Due> {
    known.extend(fresh);
    let mut due = VecDeque::new();
    for id in deleting(core) {
        // One that has come since is looked up the next time.
        let Some(deleted) = known.get_mut(&id) else { continue };
        if let Some(volume) = core.forget_volume(id) {
            let begun = deleted.begun;
            *deleted = Deleted { in_use: Arc::downgrade(&volume), begun, ..Deleted::default() };
        }
        if let Some(last) = deleted.due(core.monotonic_ms()) {
            deleted.begun = true;
            due.push_back(Due { id, last });
        }
    }
    due
}

fn note(core: &Core, known: &mut HashMap<VolumeId, Deleted>, one: &Due, emptied: Result<bool>) {
    let deleted = known.entry(one.id).or_default();
    deleted.begun = false;
    match emptied {
        Ok(true) => {
            deleted.emptied(one.last, core.monotonic_ms() + core.options.capability_ms);
        }
        Ok(false) => {}
        Err(error) if deleted.failed(core.monotonic_ms()) => {
            tracing::warn!("deleting volume {}: {error}; trying again", one.id);
        }
        Err(_) => {}
    }
}

async fn empty(core: &Arc<Core>, one: Due, stop: &Stop) -> (Due, Result<bool>) {
    let map = core.map.current();
    let found = map.volume(one.id).filter(|volume| volume.deleting && core.serves(volume));
    let Some(settings) = found.map(|volume| core.settings_of(&map, volume)) else {
        return (one, Ok(false));
    };
    let emptied = carry_out(core, &one, settings, stop).await;
    (one, emptied)
}

/// False: it is to end before that.
async fn carry_out(
    core: &Arc<Core>,
    one: &Due,
    settings: Result<Settings>,
    stop: &Stop,
) -> Result<bool> {
    let part = core.part(one.id, settings?).await?;
    tokio::select! {
        dropped = contents::drop_volume(core, part.reign()) => dropped?,
        () = stop.told() => return Ok(false),
    }
    for kind in Kind::ALL {
        if stop.is_told() {
            return Ok(false);
        }
        delete_prefix(&part, &keys::prefix(kind, one.id)).await?;
    }
    let key = keys::volume_stat(one.id);
    let stat = match one.last {
        true => Stat { emptied: true, ..Stat::default() },
        false => Stat { emptied_once_ms: core.wall_ms(), ..Stat::default() },
    };
    let body = |found: Option<Bytes>, tx: &mut Transaction| {
        // Who has taken it into use meanwhile counts there.
        if found.is_none() {
            tx.put(key.clone(), records::encode(&stat));
        }
        Ok(())
    };
    part.own_transaction(Some(&key), body).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_emptied_again_after_a_time_and_then_no_more() {
        let mut deleted = Deleted::default();
        assert_eq!(deleted.due(0), Some(false));
        deleted.begun = true;
        assert_eq!(deleted.due(0), None);
        deleted.begun = false;
        deleted.emptied(false, 100);
        assert_eq!((deleted.due(99), deleted.due(100)), (None, Some(true)));
        deleted.emptied(true, 200);
        assert_eq!((deleted.done, deleted.due(300)), (true, None));
    }

    /// It was at once, each second, on all targets that were there, with a line in the log for each.
    #[test]
    fn one_that_cannot_be_emptied_is_tried_again_ever_later_and_said_to_be_ever_more_seldom() {
        let mut deleted = Deleted::default();
        let mut pauses = Vec::new();
        let said: Vec<bool> = (0..8)
            .map(|_| {
                let said = deleted.failed(100);
                pauses.push(deleted.pauses_until_ms - 100);
                assert_eq!(deleted.due(deleted.pauses_until_ms - 1), None);
                assert_eq!(deleted.due(deleted.pauses_until_ms), Some(false));
                said
            })
            .collect();
        assert_eq!(pauses[..4], [1_000, 2_000, 4_000, 8_000]);
        assert_eq!(pauses[6..], [PAUSE_MS_MAX; 2]);
        assert_eq!(said, [true, true, false, true, false, false, false, true]);
        deleted.emptied(false, 0);
        deleted.failed(100);
        assert_eq!(deleted.pauses_until_ms, 100 + PAUSE_MS, "it begins anew");
    }

    #[test]
    fn a_clock_that_was_ahead_puts_off_no_last_emptying() {
        let left = |emptied_once_ms, wall_ms| {
            left_ms(&Stat { emptied_once_ms, ..Stat::default() }, wall_ms, 100)
        };
        assert_eq!(left(0, 1_000), None, "it was not emptied");
        assert_eq!([left(1_000, 1_000), left(1_000, 1_060)], [Some(100), Some(40)]);
        assert_eq!(left(1_000, 9_000), Some(0));
        assert_eq!(left(9_000, 1_000), None, "it is emptied, and dated, anew");
    }

    /// It was taken to be empty for good though it had been in use since.
    #[test]
    fn one_that_was_in_use_since_its_last_emptying_began_is_emptied_once_more() {
        // What was known of it went when it was taken into use.
        let mut deleted = Deleted::default();
        deleted.emptied(true, 100);
        assert!(!deleted.done);
        assert_eq!((deleted.due(99), deleted.due(100)), (None, Some(true)));
    }
}
