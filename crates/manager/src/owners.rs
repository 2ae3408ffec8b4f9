//! Which metadata server serves a volume.
//!
//! A volume whose names are in an embedded store is served where that is. One in a database can be served by any
//! server on the same database, and is by the one that rendezvous hashing gives it of those that live (highest
//! random weight, Thaler and Ravishankar 1998): when one goes, its volumes are spread over all others, and no other
//! volume moves. The shares of one volume are dealt out evenly: rendezvous decides among the servers that have the fewest
//! of them. A server serves what the map says is its own while its tenure holds, which each heartbeat renews.
//! So a volume is given to another when the tenure of its server is over, or, where the two agree on it, when the one
//! that leaves says that it serves the volume no more: until then the other waits ([`Volume::leaving`]). Who says that it
//! does not reach the database loses its volumes to one that has reached it for long, if there is one.
//!
//! That no two write is not decided here: whoever opens a part of the database shuts out the one before him.

use crate::records::{Server, Volume};
use crate::state::State;
use std::cmp::Reverse;
use strake_base::random::mixed;
use strake_types::{Shares, VolumeId};

/// What is known of a server now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tenure {
    /// It may still serve what it has served.
    pub lasts: bool,
    /// It is well, so that volumes may be given to it.
    pub well: bool,
    /// It has been well for so long that it is worth while to take a volume from another for it.
    pub steady: bool,
    /// It does not reach the database.
    pub cut_off: bool,
}

/// Volumes get the servers that are to serve them. `released` says whether a server has said, going by a map of
/// this epoch or a later one, that it does not serve a volume.
pub(crate) fn settle(
    state: &mut State,
    tenure: impl Fn(u32) -> Tenure,
    released: impl Fn(u32, u32, u64) -> bool,
) {
    let epoch = state.cluster.epoch + 1;
    let ids: Vec<u32> = state.volumes.keys().copied().collect();
    for id in ids {
        let Some(mut volume) = state.volumes.get(&id).cloned() else { continue };
        if has_left(id, &volume, &tenure, &released) {
            volume.leaving = 0;
        }
        if let Some(server) = next(state, id, &volume, &tenure) {
            // Whoever waits for a third to leave does not serve it yet.
            if volume.leaving == 0 && tenure(volume.meta_server).lasts {
                volume.leaving = volume.meta_server;
            } else if volume.leaving == server {
                volume.leaving = 0;
            }
            tracing::info!(
                volume = id,
                from = volume.meta_server,
                to = server,
                "gets another metadata server"
            );
            if volume.meta_server != 0 {
                strake_base::count_case("volume-taken-over");
            }
            (volume.meta_server, volume.owned_since) = (server, epoch);
        }
        state.volumes.insert(id, volume);
    }
}

/// True if there is nothing to do for [`settle`].
pub(crate) fn is_settled(
    state: &State,
    tenure: impl Fn(u32) -> Tenure,
    released: impl Fn(u32, u32, u64) -> bool,
) -> bool {
    state.volumes.iter().all(|(&id, volume)| {
        !has_left(id, volume, &tenure, &released) && next(state, id, volume, &tenure).is_none()
    })
}

/// True if nobody need be waited for any more that was.
fn has_left(
    id: u32,
    volume: &Volume,
    tenure: &impl Fn(u32) -> Tenure,
    released: &impl Fn(u32, u32, u64) -> bool,
) -> bool {
    let leaving = volume.leaving;
    leaving != 0 && (!tenure(leaving).lasts || released(leaving, id, volume.owned_since))
}

/// The server that a volume is to have instead of the one that it has.
fn next(state: &State, id: u32, volume: &Volume, tenure: &impl Fn(u32) -> Tenure) -> Option<u32> {
    let owner = state.servers.get(&volume.meta_server)?;
    if owner.store.is_empty() || volume.leaving != 0 && tenure(volume.meta_server).lasts {
        return None;
    }
    let lasts = tenure(volume.meta_server).lasts && !goes(state, volume.meta_server);
    let may_stay = lasts && !tenure(volume.meta_server).cut_off;
    let can = |&(&other, server): &(&u32, &Server)| {
        let is_well = || {
            let known = tenure(other);
            if lasts { known.steady } else { known.well }
        };
        could_serve(volume, owner, server)
            && !goes(state, other)
            && (other == volume.meta_server || is_well())
    };
    let shares = volume.shares(id);
    // It settles: each move leaves the shares dealt out more evenly, or as evenly and with more weight.
    let rank = |other: u32| (others_served(state, shares, id, other), Reverse(weight(id, other)));
    let best = state.servers.iter().filter(can).map(|(&other, _)| other);
    let best = best.filter(|&other| may_stay || other != volume.meta_server);
    best.min_by_key(|&other| rank(other)).filter(|&other| other != volume.meta_server)
}

impl Volume {
    /// The shares of the volume that this one, of this id, is a share of.
    pub fn shares(&self, id: u32) -> Shares {
        Shares { first: VolumeId(id - self.share), count: self.spec.shares.unwrap_or(1) }
    }
}

/// How many shares of a volume, this one not counted, the server has.
fn others_served(state: &State, shares: Shares, share: u32, server: u32) -> usize {
    let range = shares.first.0..shares.first.0 + shares.count;
    let others = state.volumes.range(range).filter(|(id, _)| **id != share);
    others.filter(|(_, other)| other.meta_server == server).count()
}

/// True if another server could serve the volume.
pub(crate) fn can_move(state: &State, volume: &Volume) -> bool {
    let Some(owner) = state.servers.get(&volume.meta_server) else { return false };
    let others = state.servers.iter().filter(|(id, _)| **id != volume.meta_server);
    let mut others = others.filter(|(id, _)| !goes(state, **id));
    !owner.store.is_empty() && others.any(|(_, other)| could_serve(volume, owner, other))
}

/// True while servers that are to go serve volumes that others will. Deleted ones, too: nobody else would empty them.
pub(crate) fn hands_over(state: &State, servers: &[u32]) -> bool {
    state.volumes.values().any(|volume| {
        servers.contains(&volume.leaving)
            || servers.contains(&volume.meta_server) && can_move(state, volume)
    })
}

/// The metadata server for a share that is being made, after those before it: one that stays before one that goes, one
/// that `is_up` before one that is not, and then the one that it would have anyway, or, of those with stores of their
/// own, the one with the fewest volumes. Only of those that `fit`.
pub(crate) fn choose(
    state: &State,
    shares: Shares,
    share: u32,
    is_up: impl Fn(u32) -> bool,
    fit: impl Fn(&Server) -> bool,
) -> Option<u32> {
    let load =
        |id: u32| state.volumes.values().filter(|v| !v.deleting && v.meta_server == id).count();
    let rank = |id: u32, server: &Server| match server.store.is_empty() {
        true => (load(id), Reverse(0)),
        false => (others_served(state, shares, share, id), Reverse(weight(share, id))),
    };
    let metas = state.servers.iter().filter(|(_, s)| s.meta && fit(s));
    let best = metas.min_by_key(|&(&id, s)| (goes(state, id), !is_up(id), rank(id, s), id));
    best.map(|(id, _)| *id)
}

/// True while a job is about to take a server out of the cluster.
pub(crate) fn goes(state: &State, id: u32) -> bool {
    state.jobs.values().any(|job| job.lasts() && job.remove && job.servers.contains(&id))
}

/// True of a server that finds the volume in its store, as its owner does. One of a release before shares would serve a
/// share as a volume by itself.
fn could_serve(volume: &Volume, owner: &Server, other: &Server) -> bool {
    other.meta && other.store == owner.store && (volume.spec.shares.is_none() || other.shares)
}

fn weight(volume: u32, server: u32) -> u64 {
    mixed(u64::from(volume) << 32 | u64::from(server))
}

#[cfg(test)]
mod tests;
