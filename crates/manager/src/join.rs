//! A server enters or returns: who is it, and are these its targets? And one that runs gets a new target.

use crate::groups::{self, Return, Since};
use crate::liveness::Liveness;
use crate::owners;
use crate::records::{Server, Target};
use crate::state::State;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use strake_types::limits::ALL_TARGETS_MAX;
use strake_types::{Error, ErrorKind, GroupId, Result, Shares, VolumeId};
use strake_wire::message::manager::{AddTarget, Join, TargetSpec};

const _: () = assert!(ALL_TARGETS_MAX <= GroupId::ORDINALS_MAX as usize);
/// Most targets of one server.
const TARGETS_MAX: usize = 1024;

/// Who a server is.
pub(crate) struct Accepted {
    /// Its id.
    pub server: u32,
    /// Ids of its targets, in the order it gave them.
    pub targets: Vec<u32>,
    /// Their generations, in the same order.
    pub generations: Vec<u64>,
}

/// What is known of the servers there are when one asks to join.
pub(crate) struct Others<'a> {
    pub live: &'a Liveness,
    pub now: Duration,
    /// Since when that one asks.
    pub asks_since: Duration,
    /// A server that is alive nowhere else, as far as it was not heard.
    pub own: Option<u32>,
}

impl Others<'_> {
    /// True if a server has spoken within its lease, or may have before this manager could hear it. One that is refused lives, and
    /// answers others.
    fn is_alive(&self, server: u32) -> bool {
        let may_be_up = self.live.is_up(server, self.now) && self.own != Some(server);
        self.live.is_heard(server, self.now) || may_be_up
    }

    /// What is known of a target of a server since this one asks to join.
    fn since(&self, target: u32, server: u32) -> Since {
        self.live.since(target, server, self.asks_since, self.now)
    }

    /// By whom a target is used that a server had, if that may be alive, and was not heard without it.
    fn using(&self, state: &State, server: u32, target: u32) -> Option<String> {
        if !self.is_alive(server) || !self.live.has(server, target) {
            return None;
        }
        let name = state.servers.get(&server).map_or("", |server| &server.name);
        let said = match self.live.has_said(server) {
            true => {
                let ms = self.live.silent_ms(server, self.now);
                format!("which was heard with it {}.{} s ago", ms / 1000, ms % 1000 / 100)
            }
            false => "as far as is known: that was not heard since this manager began".into(),
        };
        Some(format!("in use by server {server} ({name}), {said}"))
    }
}

fn refuse(kind: ErrorKind, detail: String) -> Error {
    Error::with(kind, detail)
}

/// Decides on a join and changes the state accordingly. `now_ms` is the wall clock's time.
pub(crate) fn join(
    state: &mut State,
    request: &Join,
    others: &Others<'_>,
    now_ms: u64,
) -> Result<Accepted> {
    check_request(state, request)?;
    let server = identify(state, request, others)?;
    check_address(state, request, server, others)?;
    check_targets(state, request, server, others)?;
    owners::begin_life(state, server, request.life);
    let record = Server {
        address: request.address.clone(),
        manager: request.manager,
        meta: request.meta,
        name: request.name.clone(),
        store: request.store.clone(),
        shares: request.shares,
        life: request.life,
        // It has forgotten the epochs that it knew.
        ahead: false,
    };
    state.servers.insert(server, record);
    state.cluster.next_server = state.cluster.next_server.max(server + 1);
    let known = |spec| with_uuid(state, spec).filter(|(_, known)| is_older(spec, known));
    let old = request.targets.iter().filter_map(known).map(|(id, _)| id).collect::<Vec<u32>>();
    let same =
        |spec| with_uuid(state, spec).filter(|(_, known)| goes_on(known, spec, &request.boot));
    let went_on: HashSet<u32> = request.targets.iter().filter_map(same).map(|(id, _)| id).collect();
    let enter = |spec| enter(state, server, spec, &request.boot);
    let targets: Vec<u32> = request.targets.iter().map(enter).collect();
    let entered = request.targets.iter().zip(&targets);
    let generations = entered.map(|(spec, id)| give_generation(state, spec, *id)).collect();
    if !strake_base::is_broken("old-disks-have-less") {
        groups::have_less(state, &old, now_ms);
    }
    let servers: BTreeMap<u32, u32> = state.targets.iter().map(|(&id, t)| (id, t.server)).collect();
    let back = Return {
        targets: &targets,
        own: servers.iter().filter(|(_, at)| **at == server).map(|(&id, _)| id).collect(),
        rebooted: targets.iter().copied().filter(|id| !went_on.contains(id)).collect(),
    };
    let since = |target| servers.get(&target).map_or(Since::Gone, |&at| others.since(target, at));
    groups::returned(state, &back, since)?;
    groups::extend(state);
    adopt_orphan_volumes(state);
    Ok(Accepted { server, targets, generations })
}

/// Another server that has the name of this one.
pub(crate) fn namesake(state: &State, server: u32) -> Option<u32> {
    let name = &state.servers.get(&server)?.name;
    let mut others = state.servers.iter().filter(|(id, _)| **id != server);
    others.find(|(_, other)| other.name == *name).map(|(&id, _)| id)
}

/// The target that comes, if it is known.
fn with_uuid<'a>(state: &'a State, spec: &TargetSpec) -> Option<(u32, &'a Target)> {
    let mut targets = state.targets.iter();
    targets.find(|(_, target)| target.uuid == spec.uuid).map(|(&id, target)| (id, target))
}

/// True for an old copy of a target's disk: it has not what the target had when it last joined.
fn is_older(spec: &TargetSpec, known: &Target) -> bool {
    spec.generation.is_some_and(|generation| generation < known.generation)
}

/// True if a target has all that it had acknowledged when it was last heard of: by its own word, else if its host was not
/// started anew. A boot that nobody can name may be another one.
fn goes_on(known: &Target, spec: &TargetSpec, host_boot: &str) -> bool {
    match (known.own_boot, spec.boot) {
        (0, _) | (_, 0) => !host_boot.is_empty() && known.boot == host_boot,
        (then, now) => then == now,
    }
}

/// The next generation of a target, for its disk; 0 for one whose release writes none.
fn give_generation(state: &mut State, spec: &TargetSpec, id: u32) -> u64 {
    let writes = spec.generation.is_some();
    let Some(target) = state.targets.get_mut(&id).filter(|_| writes) else { return 0 };
    target.given = target.given.max(target.generation) + 1;
    target.given
}

/// A server tells what is written on its targets: those of which that is news, as they are by it. Of one that it has made after
/// its Join the boot is.
pub(crate) fn grown(state: &State, server: u32, specs: &[TargetSpec]) -> Vec<(u32, Target)> {
    let news = specs.iter().filter_map(|spec| {
        let known = state.targets.get(&spec.target).filter(|known| known.server == server)?;
        let generation = spec.generation.unwrap_or_default().max(known.generation);
        let own_boot = if known.own_boot == 0 { spec.boot } else { known.own_boot };
        let is_news = (generation, own_boot) != (known.generation, known.own_boot);
        is_news.then(|| (spec.target, Target { generation, own_boot, ..known.clone() }))
    });
    news.collect()
}

/// A server that runs gets a target; its number. Without a number the target gets one, of which no group
/// and no map knows; with that number it enters. So nobody is sent to a target that is not open yet, and
/// one that could not be made leaves nothing but a number that nobody uses.
pub(crate) fn add_target(state: &mut State, request: &AddTarget) -> Result<u32> {
    let AddTarget { server, spec, boot } = request;
    if !state.servers.contains_key(server) {
        let detail = format!("server {server} has not joined");
        return Err(Error::with(ErrorKind::NoSession, detail));
    }
    if spec.uuid.is_empty() {
        return Err(refuse(ErrorKind::Invalid, format!("target {} has no uuid", spec.path)));
    }
    if let Some((id, known)) = with_uuid(state, spec) {
        return match known.server == *server && [0, id].contains(&spec.target) {
            // Asked again, because the answer was lost.
            true => Ok(id),
            false => Err(cloned(spec, &format!("known as target {id} of server {}", known.server))),
        };
    }
    check_number(state, std::slice::from_ref(spec))?;
    match spec.target {
        0 => {
            let own = state.targets.values().filter(|target| target.server == *server).count();
            if own >= TARGETS_MAX {
                return Err(refuse(ErrorKind::Invalid, format!("more than {TARGETS_MAX} targets")));
            }
            if owners::goes(state, *server) {
                let detail = format!(
                    "server {server} is being taken out of the cluster; is it to stay? End that first (strake job list, \
                     strake job cancel N)"
                );
                return Err(refuse(ErrorKind::Invalid, detail));
            }
            Ok(next_target(state))
        }
        id if id < state.cluster.next_target && !state.targets.contains_key(&id) => {
            note(state, *server, id, spec, boot);
            groups::extend(state);
            Ok(id)
        }
        _ => Err(foreign(spec, "has a number that it was not given")),
    }
}

fn check_request(state: &State, request: &Join) -> Result<()> {
    let cluster = &state.cluster.uuid;
    if !request.cluster.is_empty() && request.cluster != *cluster {
        return Err(refuse(
            ErrorKind::WrongPeer,
            format!(
                "the data of server {} belongs to cluster {}, this manager serves cluster {cluster}; \
                 give --join the address of its own cluster, or, if this was its manager and has lost its metadata, {RESTORE}",
                request.name, request.cluster
            ),
        ));
    }
    if request.address.is_empty() {
        return Err(refuse(ErrorKind::Invalid, "a server must say its address".into()));
    }
    if request.targets.len() > TARGETS_MAX {
        return Err(refuse(ErrorKind::Invalid, format!("more than {TARGETS_MAX} targets")));
    }
    check_number(state, &request.targets)?;
    let mut seen = HashSet::new();
    match request.targets.iter().find(|spec| !seen.insert(&spec.uuid)) {
        Some(twice) => Err(cloned(twice, "given twice by the same server")),
        None => Ok(()),
    }
}

/// The map has no room for more; those that are known come back.
fn check_number(state: &State, coming: &[TargetSpec]) -> Result<()> {
    let (here, most) = (state.targets.len(), ALL_TARGETS_MAX);
    if here + coming.len() <= most {
        return Ok(());
    }
    let new = coming.iter().filter(|spec| with_uuid(state, spec).is_none()).count();
    if new > 0 && here + new > most {
        let detail = format!(
            "a cluster has at most {most} targets; give fewer --data, each of several disks (LVM, RAID)"
        );
        return Err(refuse(ErrorKind::Invalid, detail));
    }
    Ok(())
}

/// The id of the server: the one it was given before, the one its targets belong to, or a new one.
fn identify(state: &State, request: &Join, others: &Others<'_>) -> Result<u32> {
    if request.server != 0 {
        let Some(known) = state.servers.get(&request.server) else {
            return Err(unknown(state, request.server));
        };
        if others.is_alive(request.server) && known.address != request.address {
            return Err(alive_at(request.server, &known.address));
        }
        return Ok(request.server);
    }
    // By the number of a target, or by its uuid alone: a server that died, or whose disk was full, after
    // its first Join had been answered has not written down any number.
    for spec in &request.targets {
        let by_number = state.targets.get(&spec.target).map(|target| (spec.target, target));
        let Some((id, known)) = by_number.or_else(|| with_uuid(state, spec)) else { continue };
        let Some(server) = state.servers.get(&known.server) else { continue };
        if server.address == request.address || !others.is_alive(known.server) {
            return Ok(known.server);
        }
        // One that has come from a server which runs without it says nothing of whose it is now.
        if let Some(why) = others.using(state, known.server, id) {
            return Err(cloned(spec, &why));
        }
    }
    Ok(state.cluster.next_server.max(1))
}

/// What to do where a manager has lost its metadata: servers that began anew would complete the loss.
const RESTORE: &str = "leave all --data as they are, and restore the manager's node.json and meta/ from a backup (recover.md)";

/// Why a server is not let in that is not in the cluster. Numbers are given in order, and never twice: one that was not given yet is of
/// a time that the manager does not know.
fn unknown(state: &State, server: u32) -> Error {
    let detail = match server < state.cluster.next_server {
        true => format!("server {server} was removed from the cluster; give it an empty --data"),
        false => format!(
            "server {server} is unknown to this manager, which has given no such number: the manager's metadata was lost, or is \
             older than the server; {RESTORE}"
        ),
    };
    refuse(ErrorKind::WrongPeer, detail)
}

/// Why a server is not let in that may be alive elsewhere.
pub(crate) fn alive_at(server: u32, address: &str) -> Error {
    let detail = format!(
        "server {server} is alive at {address}, or was a moment ago (strake server list); is this --data a copy of its \
         directory? Stop that server first, or give an empty --data"
    );
    refuse(ErrorKind::Busy, detail)
}

/// What a process is told whose number another one has by now. Which of them has the copy cannot be seen from here, nor if neither
/// has, where the manager's data are older than this process.
pub(crate) fn overtaken(server: u32, address: &str) -> Error {
    let detail = format!(
        "another process runs as server {server} at {address} now: one of the two has a copy of the other's --data; \
         if that one has, stop it and start this server again, if this one has, give its --data to no server, and if the \
         cluster's metadata was restored, start this server again (strake server list shows where server {server} is)"
    );
    refuse(ErrorKind::Overtaken, detail)
}

fn check_address(
    state: &mut State,
    request: &Join,
    server: u32,
    others: &Others<'_>,
) -> Result<()> {
    for (&id, other) in &mut state.servers {
        if id == server || other.address != request.address {
            continue;
        }
        if others.is_alive(id) {
            return Err(refuse(
                ErrorKind::Busy,
                format!(
                    "address {} is in use by server {id} ({}), or was a moment ago; strake server list shows which are \
                     taken, choose another --listen or --advertise",
                    request.address, other.name
                ),
            ));
        }
        // The one that was there is gone: nobody may take this server for it.
        other.address.clear();
    }
    Ok(())
}

fn cloned(spec: &TargetSpec, why: &str) -> Error {
    let detail = format!(
        "target {} (uuid {}) is {why}: a copied disk? Then give the copy's directory to no server; strake target list shows on \
         which server each target is",
        spec.path, spec.uuid
    );
    Error::with(ErrorKind::Busy, detail)
}

fn check_targets(state: &State, request: &Join, server: u32, others: &Others<'_>) -> Result<()> {
    for spec in &request.targets {
        if spec.uuid.is_empty() {
            return Err(refuse(ErrorKind::Invalid, format!("target {} has no uuid", spec.path)));
        }
        match with_uuid(state, spec) {
            Some((id, _)) if spec.target != 0 && spec.target != id => {
                return Err(foreign(spec, "is known under another number"));
            }
            Some((id, t)) => {
                let elsewhere = Some(t.server).filter(|&at| at != server);
                if let Some(why) = elsewhere.and_then(|at| others.using(state, at, id)) {
                    return Err(cloned(spec, &why));
                }
                if is_older(spec, t) {
                    check_old(request, spec, id, others.since(id, t.server))?;
                }
            }
            None if spec.target != 0 => {
                let why = "is not known to this cluster, or was removed from it (if nothing else is left of its \
                           server: strake server remove NAME)";
                return Err(foreign(spec, why));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A target comes with a smaller generation than was heard of: with an old copy of its disk, or in a late copy of a Join
/// that was answered long ago. The server that has sent such a one serves by now, and goes on: an old disk is let in, by
/// order, once nobody serves the newer one.
fn check_old(request: &Join, spec: &TargetSpec, id: u32, since: Since) -> Result<()> {
    if strake_base::is_broken("joins-count-once") && since != Since::Gone {
        return Ok(());
    }
    match since {
        _ if !request.old_disks => Err(outdated(spec, id)),
        Since::Gone => Ok(()),
        Since::Lives | Since::Unknown | Since::Refused => {
            let detail = format!(
                "target {} (number {id}) was served with newer contents a moment ago; ask again, it is known within a \
                 lease whether it still is",
                spec.path
            );
            Err(refuse(ErrorKind::Busy, detail))
        }
    }
}

fn outdated(spec: &TargetSpec, id: u32) -> Error {
    let detail = format!(
        "target {} (number {id}) is older than when its server last started: an old copy of its disk, or a snapshot? Give \
         the server the disk that it had. Is that lost? Start it with `strake server --old-disks`: what this one lacks \
         comes from other copies, and files that have none are as old as it is",
        spec.path
    );
    refuse(ErrorKind::WrongPeer, detail)
}

fn foreign(spec: &TargetSpec, why: &str) -> Error {
    let detail = format!(
        "target {} (number {}, uuid {}) {why}; give a target of this cluster or an empty directory",
        spec.path, spec.target, spec.uuid
    );
    Error::with(ErrorKind::WrongPeer, detail)
}

/// Enters a target that has passed the checks.
fn enter(state: &mut State, server: u32, spec: &TargetSpec, boot: &str) -> u32 {
    let known = with_uuid(state, spec).map(|(id, _)| id);
    let id = known.unwrap_or_else(|| next_target(state));
    note(state, server, id, spec, boot);
    id
}

/// The number of a new target.
fn next_target(state: &mut State) -> u32 {
    let id = state.cluster.next_target.max(1);
    state.cluster.next_target = id + 1;
    id
}

/// Writes down what a target is.
fn note(state: &mut State, server: u32, id: u32, spec: &TargetSpec, boot: &str) {
    let target = state.targets.entry(id).or_default();
    target.server = server;
    target.uuid = spec.uuid.clone();
    target.path = spec.path.clone();
    target.total_bytes = spec.total_bytes;
    target.boot = boot.to_owned();
    target.own_boot = spec.boot;
    // Of an old copy that was let in, too: should the next number not come to its disk, it is not refused once more.
    target.generation = spec.generation.unwrap_or(target.generation);
}

/// Volumes without a metadata server (the first one, made before any server came) get one.
fn adopt_orphan_volumes(state: &mut State) {
    let orphans: Vec<u32> = state
        .volumes
        .iter()
        .filter(|(_, v)| !v.deleting && v.meta_server == 0)
        .map(|(id, _)| *id)
        .collect();
    for id in orphans {
        let shares = Shares::one(VolumeId(id));
        let Some(server) = owners::choose(state, shares, id, |_| true, |_| true) else { return };
        if let Some(volume) = state.volumes.get_mut(&id) {
            volume.meta_server = server;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Job;
    use crate::testing::cluster;
    use strake_wire::message::jobs::JobState;

    /// A full cluster refused each server that came back.
    #[test]
    fn who_brings_targets_that_are_known_is_let_into_a_full_cluster() {
        let mut state = State::default();
        let uuid = |id: u32| format!("{id:032x}");
        for id in 1..=ALL_TARGETS_MAX as u32 {
            state.targets.insert(id, Target { uuid: uuid(id), ..Target::default() });
        }
        let specs =
            |ids: [u32; 2]| ids.map(|id| TargetSpec { uuid: uuid(id), ..TargetSpec::default() });
        assert_eq!(check_number(&state, &specs([1, 2])), Ok(()));
        let refused = check_number(&state, &specs([1, ALL_TARGETS_MAX as u32 + 1])).unwrap_err();
        assert!(refused.detail.contains("at most 8000 targets"), "{refused}");
    }

    /// It was to get an empty --data although the manager's metadata was lost, which would have completed the loss.
    #[test]
    fn only_a_server_that_was_removed_is_to_begin_with_an_empty_directory() {
        let mut state = cluster(&[1, 1]);
        state.cluster.next_server = 4;
        let advice = |server| unknown(&state, server).detail;
        assert!(advice(3).contains("empty --data"), "{}", advice(3));
        let lost = advice(4);
        assert!(lost.contains("from a backup") && !lost.contains("empty"), "{lost}");
        // All of it was lost, and the manager began another cluster.
        let request = Join { cluster: "of before".into(), ..Join::default() };
        let lost = check_request(&state, &request).unwrap_err().detail;
        assert!(lost.contains("from a backup") && !lost.contains("empty"), "{lost}");
    }

    /// It entered, and its server stayed although the job was done that took it out.
    #[test]
    fn a_server_that_is_being_taken_out_gets_no_target() {
        let mut state = cluster(&[1, 1]);
        let running = JobState::Running as u32;
        let job = Job { state: running, servers: vec![2], remove: true, ..Job::default() };
        state.jobs.insert(1, job);
        let ask = |state: &mut State, server| {
            let spec = TargetSpec { uuid: "x".into(), ..TargetSpec::default() };
            add_target(state, &AddTarget { server, spec, boot: String::new() })
        };
        let refused = ask(&mut state, 2).unwrap_err();
        assert!(refused.detail.contains("is being taken out"), "{refused}");
        assert_eq!(ask(&mut state, 1), Ok(3));
        state.jobs.clear();
        assert_eq!(ask(&mut state, 2), Ok(4));
    }
}
