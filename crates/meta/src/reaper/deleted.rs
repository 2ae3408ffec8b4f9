//! Volumes that are being deleted are emptied: on all targets, and in the store. That it is done is remembered there, in place of
//! the counts of the volume, so that a server which starts finds it.
//!
//! Several are emptied at the same time: each waits for targets of which one may say nothing.

use crate::cluster::Settings;
use crate::contents;
use crate::core::Core;
use crate::keys::{self, Kind};
use crate::ops::sessions::delete_prefix;
use crate::records::{self, Stat};
use crate::stop::Stop;
use crate::stored::{decoded, store_error};
use crate::volume::Volume;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_types::{Result, VolumeId};

/// Volumes emptied at the same time.
const PARALLEL: usize = 16;
/// Volumes of which it is looked up in one go whether they were emptied.
const LOOKED_UP_MAX: usize = 256;

/// A volume that is being deleted.
#[derive(Default)]
struct Deleted {
    /// What was in use of it, as long as somebody goes on with that, perhaps waiting for a storage server.
    in_use: Weak<Volume>,
    /// It is to be emptied, or is being emptied.
    begun: bool,
    /// It was emptied,
    emptied: bool,
    /// and again when nobody went on any more: that finds what was under way at the first time.
    done: bool,
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
                note(&mut known, &one, emptied);
            }
            () = tokio::time::sleep(tick), if due.is_empty() => {
                due = find(core, &mut known).await;
            }
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

/// Those that are to be emptied.
async fn find(core: &Arc<Core>, known: &mut HashMap<VolumeId, Deleted>) -> VecDeque<Due> {
    let map = core.map.current();
    let deleting = map.volumes.iter().filter(|volume| volume.deleting && core.serves(volume));
    let deleting: Vec<VolumeId> = deleting.map(|volume| VolumeId(volume.id)).collect();
    if let Err(error) = recall(core, known, &deleting).await {
        tracing::warn!("which volumes were emptied is not known: {error}; trying again");
        return VecDeque::new();
    }
    let mut due = VecDeque::new();
    for id in deleting {
        let deleted = known.entry(id).or_default();
        if let Some(volume) = core.forget_volume(id) {
            let begun = deleted.begun;
            *deleted = Deleted { in_use: Arc::downgrade(&volume), begun, ..Deleted::default() };
        }
        let goes_on = deleted.in_use.strong_count() > 0;
        if deleted.done || deleted.begun || deleted.emptied && goes_on {
            continue;
        }
        deleted.begun = true;
        due.push_back(Due { id, last: deleted.emptied && !goes_on });
    }
    due
}

/// Finds those in the store that were emptied by an earlier process.
async fn recall(
    core: &Core,
    known: &mut HashMap<VolumeId, Deleted>,
    deleting: &[VolumeId],
) -> Result<()> {
    let fresh: Vec<VolumeId> =
        deleting.iter().copied().filter(|id| !known.contains_key(id)).collect();
    for some in fresh.chunks(LOOKED_UP_MAX) {
        let keys: Vec<_> = some.iter().map(|id| keys::volume_stat(*id)).collect();
        let found = core.store.look(&keys).await.map_err(store_error)?;
        for ((id, key), value) in some.iter().zip(&keys).zip(found) {
            // A damaged one goes with the rest.
            let stat: Option<Stat> = decoded(key, value).unwrap_or_default();
            let done = stat.is_some_and(|stat| stat.emptied);
            known.insert(*id, Deleted { done, ..Deleted::default() });
        }
    }
    Ok(())
}

fn note(known: &mut HashMap<VolumeId, Deleted>, one: &Due, emptied: Result<bool>) {
    let deleted = known.entry(one.id).or_default();
    deleted.begun = false;
    match emptied {
        Ok(true) => {
            deleted.emptied = true;
            deleted.done = one.last;
        }
        Ok(false) => {}
        Err(error) => tracing::warn!("deleting volume {}: {error}; trying again", one.id),
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
    if one.last {
        let stat = Stat { emptied: true, ..Stat::default() };
        part.put(keys::volume_stat(one.id), records::encode(&stat)).await?;
    }
    Ok(true)
}
