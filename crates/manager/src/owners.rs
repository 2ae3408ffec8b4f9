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

use crate::records::{Job, Server, Volume};
use crate::state::State;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
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
    #[cfg(test)]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
    let epoch = state.cluster.epoch + 1;
    let peers = Peers::of(state, &tenure);
    let ids: Vec<u32> = state.volumes.keys().copied().collect();
    for id in ids {
        let Some(volume) = state.volumes.get(&id) else { continue };
        let left = has_left(id, volume, &tenure, &released);
        let leaving = if left { 0 } else { volume.leaving };
        let next = peers.next(state, id, volume, leaving);
        let changes = left || next.is_some();
        let Some(volume) = state.volumes.get_mut(&id).filter(|_| changes) else { continue };
        volume.leaving = leaving;
        let Some(server) = next else { continue };
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
}

/// A server joins, which serves its volumes from then on in another life than before: what it has sent in the earlier one, and is still on
/// its way, is refused. One that asks again, because the answer was lost, is in the same life.
pub(crate) fn begin_life(state: &mut State, server: u32, life: u64) {
    let known = state.servers.get(&server).map(|known| known.life);
    if life == 0 || known == Some(life) {
        return;
    }
    let epoch = state.cluster.epoch + 1;
    for volume in state.volumes.values_mut().filter(|volume| volume.meta_server == server) {
        volume.owned_since = epoch;
    }
}

/// Whether there is nothing to do for [`settle`]. That was found of a state and of these tenures: while both are the same
/// nobody goes through all volumes again. Each state has a new one.
#[derive(Default)]
pub(crate) struct Look(Option<BTreeMap<u32, Tenure>>);

impl Look {
    /// True if there is nothing to do.
    pub fn is_settled(
        &mut self,
        state: &State,
        tenure: impl Fn(u32) -> Tenure,
        released: impl Fn(u32, u32, u64) -> bool,
    ) -> bool {
        let of_databases = state.servers.iter().filter(|(_, server)| !server.store.is_empty());
        let tenures: BTreeMap<u32, Tenure> =
            of_databases.map(|(&id, _)| (id, tenure(id))).collect();
        if self.0.as_ref() == Some(&tenures) {
            return true;
        }
        #[cfg(test)]
        LOOKS.with(|looks| looks.set(looks.get() + 1));
        let settled = is_settled(state, tenure, released);
        // Who is to let go of a volume may do so at any time.
        let waits = || state.volumes.values().any(|volume| volume.leaving != 0);
        self.0 = (settled && !waits()).then_some(tenures);
        settled
    }
}

#[cfg(test)]
thread_local! {
    /// How often all volumes were gone through.
    pub(crate) static LOOKS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// True if there is nothing to do for [`settle`].
fn is_settled(
    state: &State,
    tenure: impl Fn(u32) -> Tenure,
    released: impl Fn(u32, u32, u64) -> bool,
) -> bool {
    let peers = Peers::of(state, &tenure);
    state.volumes.iter().all(|(&id, volume)| {
        let has_left = has_left(id, volume, &tenure, &released);
        !has_left && peers.next(state, id, volume, volume.leaving).is_none()
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

/// A server as it is now.
#[derive(Clone, Copy)]
struct Peer {
    id: u32,
    tenure: Tenure,
    /// A job is about to take it out.
    goes: bool,
    /// It serves shares of volumes.
    shares: bool,
}

/// What is known of all servers, found once for all volumes.
struct Peers {
    all: HashMap<u32, Peer>,
    /// Metadata servers that may serve what is in a database, by number.
    on_store: HashMap<String, Vec<Peer>>,
}

impl Peers {
    fn of(state: &State, tenure: &impl Fn(u32) -> Tenure) -> Self {
        let going = going(state);
        let mut peers = Self { all: HashMap::new(), on_store: HashMap::new() };
        for (&id, server) in state.servers.iter().filter(|(_, server)| !server.store.is_empty()) {
            let (tenure, goes) = (tenure(id), going.contains(&id));
            let peer = Peer { id, tenure, goes, shares: server.shares };
            peers.all.insert(id, peer);
            if server.meta {
                peers.on_store.entry(server.store.clone()).or_default().push(peer);
            }
        }
        peers
    }

    /// The server that a volume is to have instead of the one that it has, while this one, if any, is to let go of it.
    fn next(&self, state: &State, id: u32, volume: &Volume, leaving: u32) -> Option<u32> {
        let owner = self.all.get(&volume.meta_server)?;
        if leaving != 0 && owner.tenure.lasts {
            return None;
        }
        let peers = self.on_store.get(&state.servers.get(&owner.id)?.store)?;
        let lasts = owner.tenure.lasts && !owner.goes;
        let may_stay = lasts && !owner.tenure.cut_off;
        let can = |peer: &&Peer| {
            let is_fit = match peer.id == owner.id {
                true => may_stay,
                false if lasts => peer.tenure.steady,
                false => peer.tenure.well,
            };
            is_fit && !peer.goes && (volume.spec.shares.is_none() || peer.shares)
        };
        let served = others_served(state, volume.shares(id), id);
        let count = |server: u32| served.get(&server).copied().unwrap_or(0);
        // It settles: each move leaves the shares dealt out more evenly, or as evenly and with more weight.
        let rank = |peer: &&Peer| (count(peer.id), Reverse(weight(id, peer.id)));
        let best = peers.iter().filter(can).min_by_key(rank).map(|peer| peer.id);
        best.filter(|&best| best != owner.id)
    }
}

impl Volume {
    /// The shares of the volume that this one, of this id, is a share of.
    pub fn shares(&self, id: u32) -> Shares {
        Shares { first: VolumeId(id - self.share), count: self.spec.shares.unwrap_or(1) }
    }
}

/// How many shares of a volume, this one not counted, each server has; those that have some.
fn others_served(state: &State, shares: Shares, share: u32) -> HashMap<u32, usize> {
    let mut served = HashMap::new();
    let range = shares.first.0..shares.first.0 + shares.count;
    for (_, other) in state.volumes.range(range).filter(|(id, _)| **id != share) {
        *served.entry(other.meta_server).or_default() += 1;
    }
    served
}

/// True if another server could serve the volume.
pub(crate) fn can_move(state: &State, volume: &Volume) -> bool {
    let Some(owner) = state.servers.get(&volume.meta_server) else { return false };
    if owner.store.is_empty() {
        return false;
    }
    let going = going(state);
    let stays = |id: &u32| *id != volume.meta_server && !going.contains(id);
    let mut others = state.servers.iter().filter(|(id, _)| stays(id));
    others.any(|(_, other)| could_serve(volume, owner, other))
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
    let (served, going) = (others_served(state, shares, share), going(state));
    let rank = |id: u32, server: &Server| match server.store.is_empty() {
        true => (load(id), Reverse(0)),
        false => (served.get(&id).copied().unwrap_or(0), Reverse(weight(share, id))),
    };
    let metas = state.servers.iter().filter(|(_, s)| s.meta && fit(s));
    let best = metas.min_by_key(|&(&id, s)| (going.contains(&id), !is_up(id), rank(id, s), id));
    best.map(|(id, _)| *id)
}

/// True while a job is about to take a server out of the cluster.
pub(crate) fn goes(state: &State, id: u32) -> bool {
    going(state).contains(&id)
}

/// Servers that a job is about to take out of the cluster.
fn going(state: &State) -> HashSet<u32> {
    let removes = |job: &&Job| job.lasts() && job.remove;
    state.jobs.values().filter(removes).flat_map(|job| &job.servers).copied().collect()
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
