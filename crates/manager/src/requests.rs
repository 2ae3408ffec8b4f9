//! What a job is asked to be about, and what of that is refused whatever it would move.

use crate::owners;
use crate::plan::{Facts, name_of, refuse};
use crate::records::{Job, Server, Volume};
use crate::state::State;
use std::collections::BTreeSet;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::jobs::{JobKind, Plan};

/// The targets that a request is about.
pub(crate) fn targets_of(state: &State, request: &Plan) -> Result<BTreeSet<u32>> {
    let mut targets: BTreeSet<u32> = request.targets.iter().copied().collect();
    for &id in targets.iter().chain(Some(&request.to).filter(|to| **to != 0)) {
        if !state.targets.contains_key(&id) {
            let detail = format!("target {id} is not in the cluster; strake target list shows all");
            return Err(Error::with(ErrorKind::NotFound, detail));
        }
    }
    for &id in &request.servers {
        let Some(server) = state.servers.get(&id) else {
            let detail = format!("server {id} is not in the cluster; strake server list shows all");
            return Err(Error::with(ErrorKind::NotFound, detail));
        };
        if request.remove {
            check_removable(state, id, server)?;
        }
        targets.extend(state.targets.iter().filter(|(_, t)| t.server == id).map(|(&id, _)| id));
    }
    Ok(targets)
}

/// Refuses to take a server out that has more than chunks.
pub(crate) fn check_removable(state: &State, id: u32, server: &Server) -> Result<()> {
    let leader = state.cluster.leader;
    if server.manager && (leader == 0 || leader == id) {
        let others = state.servers.iter().any(|(&other, server)| other != id && server.manager);
        let so =
            if others { "; stop it, so that another one leads, or" } else { ", the only one;" };
        return Err(refuse(format!(
            "server {id} ({}) is the manager that leads the cluster{so} drain it (strake server drain {id}) to take only \
             its data away",
            server.name
        )));
    }
    let bound = |v: &&Volume| !v.deleting && v.meta_server == id && !owners::can_move(state, v);
    let own = state.volumes.values().filter(bound);
    let names: Vec<&str> = own.map(|volume| volume.spec.name.as_str()).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(refuse(format!(
            "server {id} ({}) keeps the names of volume {}, which no other server can serve; drain it (strake server \
             drain {id}) to take only its data away",
            server.name,
            names.join(", ")
        ))),
    }
}

/// Refuses targets of which another job takes the groups, or which it fills by name.
pub(crate) fn check_free(state: &State, targets: &BTreeSet<u32>) -> Result<()> {
    let heals = JobKind::Heal as u32;
    let empties =
        |job: &Job| job.kind != heals && job.targets.iter().any(|id| targets.contains(id));
    let fills = |job: &Job| {
        job.items.iter().any(|item| item.lasts() && item.fixed && targets.contains(&item.to))
    };
    let busy = state.jobs.iter().find(|(_, job)| job.lasts() && (empties(job) || fills(job)));
    let Some((id, job)) = busy else { return Ok(()) };
    let detail = format!(
        "job {id} moves the data of {} already; wait for it (strake job watch {id}) or end it \
         (strake job cancel {id})",
        job.about
    );
    Err(Error::with(ErrorKind::Busy, detail))
}

/// Refuses a target for the place of others that is one of them, or cannot take it.
pub(crate) fn check_replacement(state: &State, facts: &Facts, request: &Plan) -> Result<()> {
    let to = request.to;
    if to == 0 || request.targets.contains(&to) {
        return Err(refuse("name the target to replace, and another one for its place".into()));
    }
    let drains = state.targets.get(&to).is_some_and(|target| target.drains);
    match (drains, facts.is_gone(to)) {
        (true, _) => Err(refuse(format!(
            "{} is being drained itself; name another target",
            name_of(state, to)
        ))),
        (_, true) => Err(refuse(format!(
            "{} does not answer; start its server, then try again",
            name_of(state, to)
        ))),
        _ => Ok(()),
    }
}

/// What a job is about, for people.
pub(crate) fn about(state: &State, request: &Plan, targets: &BTreeSet<u32>) -> String {
    let servers: Vec<String> = request
        .servers
        .iter()
        .map(|id| format!("server {id} ({})", state.servers.get(id).map_or("?", |s| &s.name)))
        .collect();
    let names: Vec<String> = targets.iter().map(|&id| name_of(state, id)).collect();
    match (servers.is_empty(), targets.is_empty(), request.to) {
        (false, ..) => servers.join(", "),
        (_, true, _) => "all targets".to_owned(),
        (_, _, 0) => names.join(", "),
        (_, _, to) => format!("{}, by {}", names.join(", "), name_of(state, to)),
    }
}
