//! What others see of the manager's state: the map, jobs, and orders to those who carry them out.

use crate::liveness::Liveness;
use crate::records::{Item, Job};
use crate::state::State;
use std::time::Duration;
use strake_wire::message::jobs::{self, JobItem, JobState, Order};
use strake_wire::message::manager::{self as message, ClusterMap, TargetSpec};

/// A volume, as others see it.
pub(crate) fn volume(id: u32, volume: &crate::records::Volume) -> message::Volume {
    message::Volume {
        id,
        spec: volume.spec.clone(),
        deleting: volume.deleting,
        meta_server: volume.meta_server,
    }
}

/// The map that everybody sees.
pub(crate) fn map(state: &State, live: &Liveness, now: Duration) -> ClusterMap {
    let servers = state.servers.iter().map(|(&id, server)| message::Server {
        id,
        address: server.address.clone(),
        manager: server.manager,
        meta: server.meta,
        up: live.is_up(id, now),
        name: server.name.clone(),
        silent_ms: live.silent_ms(id, now),
    });
    let targets = state.targets.iter().map(|(&id, target)| {
        let stored = TargetSpec {
            target: id,
            uuid: target.uuid.clone(),
            path: target.path.clone(),
            total_bytes: target.total_bytes,
            ..TargetSpec::default()
        };
        let said = live.target(id).cloned();
        let up = live.is_up(target.server, now);
        let (server, drains) = (target.server, target.drains);
        message::Target { id, server, spec: said.unwrap_or(stored), up, drains }
    });
    let groups = state.groups.iter().map(|(&id, group)| message::Group {
        id,
        epoch: group.epoch,
        members: group.members.clone(),
        in_sync: group.in_sync.clone(),
        joining: group.joining.clone(),
        losses: group.losses,
        leaving: group.leaving.clone(),
        word: group.word,
        vouchers: group.vouchers.clone(),
    });
    ClusterMap {
        cluster: state.cluster.uuid.clone(),
        epoch: state.cluster.epoch,
        servers: servers.collect(),
        targets: targets.collect(),
        groups: groups.collect(),
        volumes: state.volumes.iter().map(|(&id, v)| volume(id, v)).collect(),
    }
}

/// A job as it is now.
pub(crate) fn job(state: &State, live: &Liveness, id: u32, job: &Job) -> jobs::Job {
    let items: Vec<JobItem> = job.items.iter().map(|one| item(live, one)).collect();
    let running = job.items.iter().filter(|item| item.is(JobState::Running));
    let rates = running.filter_map(|item| live.progress(item.group, item.to));
    jobs::Job {
        id: id.into(),
        kind: job.kind,
        state: job.state,
        about: job.about.clone(),
        begun_ms: job.begun_ms,
        ended_ms: job.ended_ms,
        rate_max: job.rate.unwrap_or(state.cluster.job_rate),
        bytes: items.iter().map(|item| item.bytes).sum(),
        bytes_done: items.iter().map(|item| item.bytes_done).sum(),
        bytes_sent: items.iter().map(|item| item.bytes_sent).sum(),
        rate: rates.map(|seen| seen.rate as u64).sum(),
        items,
        reason: job.reason.clone(),
    }
}

fn item(live: &Liveness, item: &Item) -> JobItem {
    let seen = live.progress(item.group, item.to).filter(|_| item.is(JobState::Running));
    let (compared, sent) = seen.map_or((0, 0), |s| (s.progress.compared, s.progress.sent));
    // It may have grown since.
    let bytes = item.bytes.max(compared);
    JobItem {
        group: item.group,
        from: item.from,
        to: item.to,
        state: item.state,
        reason: item.reason.clone(),
        bytes,
        bytes_done: if item.is(JobState::Done) { bytes } else { compared },
        bytes_sent: item.sent + sent,
        at: seen.and_then(|seen| seen.progress.at),
        lost: item.lost,
    }
}

/// What holds for the members that primaries of a server make equal: each of a job's has its share of
/// the job's rate.
pub(crate) fn orders(state: &State, server: u32) -> Vec<Order> {
    let mut orders = Vec::new();
    for job in state.jobs.values().filter(|job| job.lasts()) {
        let running = || job.items.iter().filter(|item| item.is(JobState::Running));
        let rate = job.rate.unwrap_or(state.cluster.job_rate);
        let share = if rate == 0 { 0 } else { (rate / running().count().max(1) as u64).max(1) };
        let paused = job.is(JobState::Paused);
        let here = |item: &&Item| {
            let group = state.groups.get(&item.group);
            let primary = group.and_then(|group| group.in_sync.first());
            primary.and_then(|id| state.targets.get(id)).is_some_and(|t| t.server == server)
        };
        orders.extend(running().filter(here).map(|item| Order {
            group: item.group,
            member: item.to,
            paused,
            rate: share,
        }));
    }
    orders
}
