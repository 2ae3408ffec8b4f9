//! What others see of the manager's state: the map, jobs, and orders to those who carry them out.

use crate::liveness::{Liveness, copied};
use crate::recopies;
use crate::records::{Item, Job, Scrub, Server, Target};
use crate::scrubs;
use crate::state::State;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use strake_types::limits::BODY_BYTES_MAX;
use strake_wire::message::jobs::{self, JobItem, JobState, Order, Progress};
use strake_wire::message::manager::{self as message, ClusterMap, TargetSpec};
use strake_wire::message::recopies::{JobRecopy, RecopyProgress};
use strake_wire::message::scrubs::{JobScrub, ScrubOrder};

/// What a list of jobs takes at most of a message, but for those that have not ended.
const JOBS_BYTES_MAX: usize = BODY_BYTES_MAX / 2;

/// Of jobs, which come the last one first, those that a message has room for, the first one first; and how many others have
/// ended.
pub(crate) fn fitting(jobs: impl Iterator<Item = jobs::Job>) -> (Vec<jobs::Job>, u32) {
    let (mut kept, mut left_out, mut bytes) = (Vec::new(), 0, 0);
    for job in jobs {
        let more = job.encoded_len();
        if job.ended_ms > 0 && bytes + more > JOBS_BYTES_MAX {
            left_out += 1;
            continue;
        }
        bytes += more;
        kept.push(job);
    }
    kept.reverse();
    (kept, left_out)
}

/// A volume, as others see it.
pub(crate) fn volume(id: u32, volume: &crate::records::Volume) -> message::Volume {
    message::Volume {
        id,
        spec: volume.spec.clone(),
        deleting: volume.deleting,
        meta_server: volume.meta_server,
        owned_since: volume.owned_since,
        leaving: volume.leaving,
        share: volume.share,
    }
}

fn fenced(fence: &crate::records::Fence) -> message::Fenced {
    message::Fenced { volume: fence.volume, session: fence.session, epoch: fence.epoch }
}

/// What the map shows, as of one moment: taken while nobody else is heard, and made a map of while everybody is.
pub(crate) struct Sight {
    state: Arc<State>,
    /// In the order of the state's,
    servers: Vec<SeenServer>,
    /// as are these: what they said last, and whether they are up.
    targets: Vec<(Option<Arc<TargetSpec>>, bool)>,
}

/// What is seen of a server.
struct SeenServer {
    up: bool,
    silent_ms: u64,
    cut_off: bool,
    release: Option<String>,
    unreached: String,
    full: String,
    rival: String,
}

impl Sight {
    /// What is to be seen now.
    pub fn of(state: &Arc<State>, live: &Liveness, now: Duration) -> Self {
        let server = |(&id, known): (&u32, &Server)| SeenServer {
            up: live.is_up(id, now),
            silent_ms: live.silent_ms(id, now),
            cut_off: live.is_cut_off(id),
            release: live.release(id).map(str::to_owned),
            unreached: live.why_unreached(id).to_owned(),
            full: live.full(id).to_owned(),
            rival: live.rival(id, &known.address, now).to_owned(),
        };
        let target = |(&id, target): (&u32, &Target)| {
            let up = live.is_up(target.server, now) && live.has(target.server, id);
            (live.target(id).cloned(), up)
        };
        Self {
            servers: state.servers.iter().map(server).collect(),
            targets: state.targets.iter().map(target).collect(),
            state: state.clone(),
        }
    }

    /// The map.
    pub fn map(&self) -> ClusterMap {
        let state = &self.state;
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
            never_used: group.never_used,
            lost_ms: group.lost_ms,
            hand_over: group.hand_over,
            handed_in: group.handed_in,
            stands_for: group.stands_for,
        });
        ClusterMap {
            cluster: state.cluster.uuid.clone(),
            epoch: state.cluster.epoch,
            servers: self.servers(),
            targets: self.targets(),
            groups: groups.collect(),
            volumes: state.volumes.iter().map(|(&id, v)| volume(id, v)).collect(),
            fenced: state.fences.values().map(fenced).collect(),
            leader: state.cluster.leader,
            next_target: state.cluster.next_target,
            // That is for people, who do not follow the map.
            missed: Vec::new(),
        }
    }

    fn servers(&self) -> Vec<message::Server> {
        let show = |((&id, server), seen): ((&u32, &Server), &SeenServer)| message::Server {
            id,
            address: server.address.clone(),
            manager: server.manager,
            meta: server.meta,
            up: seen.up,
            name: server.name.clone(),
            silent_ms: seen.silent_ms,
            store: server.store.clone(),
            cut_off: seen.cut_off,
            release: seen.release.clone(),
            unreached: seen.unreached.clone(),
            full: seen.full.clone(),
            rival: seen.rival.clone(),
            ahead: server.ahead,
        };
        self.state.servers.iter().zip(&self.servers).map(show).collect()
    }

    fn targets(&self) -> Vec<message::Target> {
        let with_seen = self.state.targets.iter().zip(&self.targets);
        let shown = with_seen.map(|((&id, target), (said, up))| {
            let stored = || TargetSpec {
                target: id,
                uuid: target.uuid.clone(),
                path: target.path.clone(),
                // How large it is counts only with how full it is.
                ..TargetSpec::default()
            };
            let spec = said.as_deref().cloned().unwrap_or_else(stored);
            message::Target { id, server: target.server, spec, up: *up, drains: target.drains }
        });
        shown.collect()
    }
}

/// How much of a job is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Everything.
    All,
    /// Without what a scrub has found, and which files wait.
    Short,
}

/// A job as it is now.
pub(crate) fn job(state: &State, live: &Liveness, id: u32, job: &Job, detail: Detail) -> jobs::Job {
    let items: Vec<JobItem> = job.items.iter().map(|one| item(state, live, one)).collect();
    let running = job.items.iter().filter(|item| item.is(JobState::Running));
    let rates = running.filter_map(|item| live.progress(item.group, item.to));
    let mut scrubs: Vec<JobScrub> =
        job.scrubs.iter().map(|one| scrub(live, id.into(), one, detail)).collect();
    scrubs::bound(scrubs.iter_mut().map(|one| &mut one.findings));
    let reading = job.scrubs.iter().filter(|one| one.is(JobState::Running));
    let read_rates = reading.filter_map(|one| live.scrub(id.into(), one.target));
    let read_rate = read_rates.map(|seen| seen.rate as u64).sum::<u64>();
    let recopy = recopy(state, live, id, job, detail);
    let (copied, to_copy) = recopy.as_ref().map_or((0, 0), copied_of);
    let copying = live.recopies_of(id.into()).filter(|_| job.is(JobState::Running));
    let copy_rate = copying.map(|seen| seen.rate as u64).sum::<u64>();
    jobs::Job {
        id: id.into(),
        kind: job.kind,
        state: job.state,
        about: job.about.clone(),
        begun_ms: job.begun_ms,
        ended_ms: job.ended_ms,
        rate_max: job.rate.unwrap_or(state.cluster.job_rate),
        bytes: items.iter().map(|item| item.bytes).sum::<u64>()
            + scrubs.iter().map(|one| one.bytes).sum::<u64>()
            + to_copy,
        bytes_done: items.iter().map(|item| item.bytes_done).sum::<u64>()
            + scrubs.iter().map(|one| one.tally.bytes).sum::<u64>()
            + copied,
        bytes_sent: items.iter().map(|item| item.bytes_sent).sum::<u64>() + copied,
        rate: rates.map(|seen| seen.rate as u64).sum::<u64>() + read_rate + copy_rate,
        items,
        reason: job.reason.clone(),
        scrubs,
        no_repair: job.no_repair,
        recopy,
    }
}

/// What the metadata servers of a job say now, or what was stored when it ended.
fn recopy(state: &State, live: &Liveness, id: u32, job: &Job, detail: Detail) -> Option<JobRecopy> {
    let one = job.recopy.as_ref()?;
    let said = || live.recopies_of(id.into()).filter(|_| job.lasts()).map(|seen| &*seen.progress);
    let stored = || RecopyProgress {
        tally: one.tally,
        left: one.left,
        waiting: one.waiting.clone(),
        ..RecopyProgress::default()
    };
    let now = recopies::together(said()).unwrap_or_else(stored);
    Some(JobRecopy {
        wish: one.wish.clone(),
        reason: if one.reason.is_empty() { now.trouble } else { one.reason.clone() },
        tally: now.tally,
        under_way: now.under_way,
        left: now.left,
        waiting: if detail == Detail::All { now.waiting } else { Vec::new() },
        ahead: recopies::ahead(state, &one.wish, said().count(), now.ahead),
    })
}

/// Bytes that are copied, and that are or will be: by all files, or by those under way where no more is known.
fn copied_of(one: &JobRecopy) -> (u64, u64) {
    let bytes: u64 = one.under_way.iter().map(|file| file.bytes.max(file.copied)).sum();
    let copied = copied(&one.tally, &one.under_way);
    (copied, one.ahead.map_or(one.tally.bytes + bytes, |ahead| copied + ahead.bytes))
}

/// A target's part: what its server says now, or what was stored when it ended.
fn scrub(live: &Liveness, job: u64, one: &Scrub, detail: Detail) -> JobScrub {
    let seen = live.scrub(job, one.target).filter(|_| one.lasts()).map(|seen| &*seen.progress);
    let tally = seen.map_or(one.tally, |said| said.tally);
    let trouble = seen.map(|said| &said.trouble).filter(|_| one.reason.is_empty());
    let findings = seen.map_or(&one.findings, |said| &said.findings);
    // Files come and go meanwhile, and what was written last is counted late.
    let bytes = one.bytes.max(live.bytes_held(one.target)).max(tally.bytes);
    JobScrub {
        target: one.target,
        state: one.state,
        reason: trouble.unwrap_or(&one.reason).clone(),
        bytes: if one.is(JobState::Done) { tally.bytes } else { bytes },
        tally,
        at: seen.and_then(|said| said.at),
        findings: if detail == Detail::All { findings.clone() } else { Vec::new() },
        skipped: seen.map_or(&one.skipped, |said| &said.skipped).clone(),
    }
}

fn item(state: &State, live: &Liveness, item: &Item) -> JobItem {
    let seen = live.progress(item.group, item.to).filter(|_| item.is(JobState::Running));
    let Progress { compared, sent, total, .. } = seen.map(|s| s.progress).unwrap_or_default();
    // It may have grown since.
    let bytes = item.bytes.max(total).max(compared);
    // What was reported counts as sent already; its server says it still, for a moment. All of it stays done while others are
    // waited for, when nobody says that any more.
    let group = state.groups.get(&item.group).filter(|_| item.is(JobState::Running));
    let is_equal = group.is_some_and(|group| group.in_sync.contains(&item.to));
    let is_done = is_equal || item.is(JobState::Done);
    JobItem {
        group: item.group,
        from: item.from,
        to: item.to,
        state: item.state,
        reason: item.reason.clone(),
        bytes,
        bytes_done: if is_done { bytes } else { compared },
        bytes_sent: item.sent + if is_equal { 0 } else { sent },
        at: seen.and_then(|seen| seen.progress.at),
        lost: item.lost,
        uncounted: item.uncounted && bytes == 0 && item.lasts() && !is_equal,
    }
}

/// What the servers are told with their heartbeats of jobs, as far as it follows from the state alone.
#[derive(Default)]
pub(crate) struct Orders {
    pub moves: HashMap<u32, Vec<Order>>,
    pub scrubs: HashMap<u32, Vec<ScrubOrder>>,
}

impl Orders {
    /// For all servers.
    pub fn of(state: &State) -> Self {
        Self { moves: moves(state), scrubs: scrubs::orders(state) }
    }

    /// For one.
    pub fn to(&self, server: u32) -> (Vec<Order>, Vec<ScrubOrder>) {
        let moves = self.moves.get(&server).cloned().unwrap_or_default();
        (moves, self.scrubs.get(&server).cloned().unwrap_or_default())
    }
}

/// What holds for the members that primaries of each server make equal: each of a job's has its share of
/// the job's rate.
fn moves(state: &State) -> HashMap<u32, Vec<Order>> {
    let mut orders: HashMap<u32, Vec<Order>> = HashMap::new();
    for job in state.jobs.values().filter(|job| job.lasts()) {
        let running = || job.items.iter().filter(|item| item.is(JobState::Running));
        let share = job.share_of_rate(state.cluster.job_rate, running().count());
        let paused = job.is(JobState::Paused);
        for item in running() {
            let group = state.groups.get(&item.group);
            let primary = group.and_then(|group| group.in_sync.first());
            let Some(server) = primary.and_then(|id| state.server_of(*id)) else { continue };
            let order = Order { group: item.group, member: item.to, paused, rate: share };
            orders.entry(server).or_default().push(order);
        }
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cluster;

    /// It counted twice between its report and the end of the move, and then the figure went back.
    #[test]
    fn what_a_member_was_sent_counts_once_when_it_is_equal() {
        let mut state = cluster(&[1, 1]);
        let mut live = Liveness::new(Duration::from_secs(3), Duration::ZERO, std::iter::empty());
        let said = Progress { group: 0, member: 2, compared: 9, sent: 7, ..Progress::default() };
        live.hear_progress(&[said], Duration::ZERO);
        let running = JobState::Running as u32;
        let mut moved = Item { group: 0, from: 1, to: 2, state: running, ..Item::default() };
        assert_eq!(item(&state, &live, &moved).bytes_sent, 7);
        moved.sent = 7;
        let group = state.groups.get_mut(&0).unwrap();
        (group.members, group.in_sync) = (vec![1, 2], vec![1, 2]);
        assert_eq!(item(&state, &live, &moved).bytes_sent, 7);
    }

    /// As long as another one was awaited for the end of the move, all of it was told to be left.
    #[test]
    fn what_is_equal_is_done_although_its_move_is_not() {
        let mut state = cluster(&[1, 1]);
        let live = Liveness::new(Duration::from_secs(3), Duration::ZERO, std::iter::empty());
        let running = JobState::Running as u32;
        let mut moved =
            Item { group: 0, from: 1, to: 2, state: running, bytes: 9, ..Item::default() };
        assert_eq!(item(&state, &live, &moved).bytes_done, 0);
        let group = state.groups.get_mut(&0).unwrap();
        (group.members, group.in_sync) = (vec![1, 2], vec![1, 2]);
        assert_eq!(item(&state, &live, &moved).bytes_done, 9);
        (moved.bytes, moved.uncounted) = (0, true);
        assert!(!item(&state, &live, &moved).uncounted);
        // What is given up has nothing left to be sent.
        moved.to = 3;
        assert!(item(&state, &live, &moved).uncounted);
        moved.set(JobState::Failed, "it is full");
        assert!(!item(&state, &live, &moved).uncounted);
    }

    #[test]
    fn a_list_of_jobs_leaves_out_what_has_ended_first_where_it_would_not_fit_into_a_message() {
        let job = |id: u64, ended_ms, bytes| {
            let about = "x".repeat(bytes);
            jobs::Job { id, ended_ms, about, ..jobs::Job::default() }
        };
        let large = JOBS_BYTES_MAX / 2;
        let newest_first = [job(4, 9, 10), job(3, 8, large), job(2, 7, large), job(1, 0, large)];
        let (kept, left_out) = fitting(newest_first.into_iter());
        let kept: Vec<_> = kept.iter().map(|job| job.id).collect();
        assert_eq!((kept, left_out), (vec![1, 3, 4], 1), "the first has not ended");
    }
}
