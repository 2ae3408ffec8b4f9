//! Who is heard from, and what targets said of themselves last. Never stored.

mod apart;
mod heard;
mod knocks;
mod leads;
mod looks;
mod pauses;
mod refusals;
mod room;
mod said;
mod seen;
mod waits;

use crate::beats::Bequest;
use crate::groups::{Life, Since};
use crate::owners::Tenure;
use crate::plan::Wait;
use crate::state::State;
use apart::Apart;
use heard::Heard;
use knocks::Knock;
use looks::Looks;
use pauses::Pause;
use seen::{Seen, SeenRecopy, SeenScrub, smoothed};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use strake_wire::lease::given_ms;
use strake_wire::member::tenure_ms;
use strake_wire::message::jobs::{Held, Progress};
use strake_wire::message::manager::TargetSpec;
use strake_wire::message::recopies::RecopyProgress;
use strake_wire::message::scrubs::ScrubProgress;

pub(crate) use apart::Silences;
pub(crate) use seen::copied;
#[cfg(test)]
pub(crate) use waits::waiting;

/// How a server speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// It has joined, and is about to serve.
    Join,
    /// It serves.
    Beat,
}

/// Who has served for so many leases is bound by nothing that it promised in an earlier life.
const STEADY_LEASES: u32 = 2;

/// How long a new manager waits at least for a word of the server whose manager has led before. That is said every 0.2 s, to
/// whoever leads, and has been asked for since before: the own lead was over earlier.
const HEARD_WITHIN: Duration = Duration::from_millis(200);

/// A manager that has not looked for this part of a lease stood still, or may not have led: it looks more often.
const ABSENT_PART: u32 = 10;

/// Who is heard from. Times are those of a monotonic clock.
pub(crate) struct Liveness {
    lease: Duration,
    /// When this manager started.
    start: Duration,
    /// When it looked last, if it does so by itself.
    watched: Option<Duration>,
    servers: HashMap<u32, Heard>,
    targets: HashMap<u32, Arc<TargetSpec>>,
    /// When somebody last said that he, or a target of his, is no more. Nobody is taken for the one to go on
    /// who was not heard since: he may be dead, too.
    denied: Duration,
    /// Servers up when somebody looked last: a difference is a new epoch of the map.
    shown_up: HashSet<u32>,
    /// The targets that were nearly full at the last look.
    nearly_full: HashSet<u32>,
    /// Who is reached of those that are heard.
    looks: Looks,
    /// Who waits to join, by number and address.
    knocks: HashMap<(u32, String), Knock>,
    /// By group and member.
    pauses: HashMap<(u32, u32), Pause>,
    /// Which servers do not reach each other.
    apart: Apart,
    /// In which epoch of a group its primary has said that another member may lead, and for which reign it vouches.
    yielded: HashMap<u32, (u64, u64)>,
    /// What targets hold, by target and then by group.
    held: HashMap<u32, HashMap<u32, Held>>,
    /// How far primaries are, by group and member.
    progress: HashMap<(u32, u32), Seen>,
    /// How far servers are with what they verify, by job and target.
    scrubs: HashMap<(u64, u32), SeenScrub>,
    /// How far metadata servers are with files that get another number of copies, by job and share.
    recopies: BTreeMap<(u64, u32), SeenRecopy>,
    /// Since when parts of jobs wait for servers.
    waits: HashMap<Wait, Duration>,
}

/// How long a metadata server may serve volumes after a heartbeat at most.
fn tenure(lease: Duration) -> Duration {
    Duration::from_millis(tenure_ms(in_ms(lease)))
}

fn in_ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

impl Liveness {
    /// At the start nobody has spoken, and everybody known has one lease of time to do so.
    pub fn new(lease: Duration, now: Duration, servers: impl Iterator<Item = u32>) -> Self {
        let heard = Heard::not_yet(lease, tenure(lease), now);
        let servers: HashMap<_, _> = servers.map(|id| (id, heard.clone())).collect();
        Self {
            lease,
            start: now,
            watched: None,
            shown_up: servers.keys().copied().collect(),
            nearly_full: HashSet::new(),
            servers,
            targets: HashMap::new(),
            denied: Duration::ZERO,
            looks: Looks::default(),
            knocks: HashMap::new(),
            pauses: HashMap::new(),
            apart: Apart::default(),
            yielded: HashMap::new(),
            held: HashMap::new(),
            progress: HashMap::new(),
            scrubs: HashMap::new(),
            recopies: BTreeMap::new(),
            waits: HashMap::new(),
        }
    }

    /// Whoever has not been heard yet could not be before.
    pub fn begin(&mut self, now: Duration) {
        let gap = now.saturating_sub(self.start);
        self.start += gap;
        for heard in self.servers.values_mut().filter(|heard| !heard.spoke) {
            heard.pass_over(gap, now);
        }
    }

    /// True for one lease after this manager started.
    pub fn is_new(&self, now: Duration) -> bool {
        now.saturating_sub(self.start) <= self.lease
    }

    /// Nobody waits longer for what managers before have given than it may last. What they allowed their own servers is over:
    /// those are given a moment to be heard, since they may be well.
    pub fn inherit(&mut self, left: &Bequest) {
        for (id, heard) in &mut self.servers {
            let led = left.lasts(*id);
            let lease = led.map_or(left.longest, |lasts| lasts.min(left.longest));
            heard.lease_end = heard.lease_end.min(self.start + lease);
            if let Some(lasts) = led {
                let end = self.start + lasts.max(HEARD_WITHIN);
                heard.tenure_end = heard.tenure_end.min(end);
            }
        }
    }

    /// When somebody's time is over next who says nothing more.
    pub fn next_end(&self, now: Duration) -> Option<Duration> {
        let ends = |heard: &Heard| [heard.tenure_end, heard.kept_until, heard.at + self.lease];
        let ends = self.servers.values().filter(|heard| !heard.left).flat_map(ends);
        ends.chain([self.start + self.lease]).filter(|end| *end >= now).min()
    }

    /// The manager looks by itself now, and will again soon.
    pub fn watch(&mut self, now: Duration) {
        self.notice(now);
        self.watched = Some(now);
    }

    /// Notices that the manager stood still (its process was stopped, its host slept): what was said to it
    /// meanwhile it has not heard yet, so that time counts against nobody. Else the first heartbeat
    /// that it reads would make all others gone.
    pub fn notice(&mut self, now: Duration) {
        let Some(last) = self.watched else { return };
        let gap = now.saturating_sub(last);
        if gap <= self.lease / ABSENT_PART {
            return;
        }
        tracing::warn!("the manager stood still for {} ms", gap.as_millis());
        self.watched = Some(now);
        self.looks.pass_over(now);
        self.apart.pass_over(gap);
        let lease = self.lease;
        let lasted = |at: Duration| last.saturating_sub(at) <= lease;
        for heard in self.servers.values_mut().filter(|heard| lasted(heard.at)) {
            heard.pass_over(gap, now);
        }
        for knock in self.knocks.values_mut().filter(|knock| lasted(knock.last)) {
            knock.first += gap;
            knock.last += gap;
        }
        for since in self.waits.values_mut() {
            *since = (*since + gap).min(now);
        }
        if lasted(self.start) {
            self.start += gap;
        }
        if lasted(self.denied) {
            self.denied += gap;
        }
    }

    /// A server speaks, with its targets. True if it says something new.
    pub fn hear(&mut self, server: u32, now: Duration, word: Word, specs: Vec<TargetSpec>) -> bool {
        let targets = specs.iter().map(|spec| spec.target).collect();
        let serves = word == Word::Beat;
        if !serves {
            self.pauses.retain(|(_, member), _| !specs.iter().any(|spec| spec.target == *member));
            self.looks.begin_anew(server, now);
            self.apart.begin_anew(server);
        }
        let known = self.servers.get(&server);
        let on =
            |h: &&Heard| serves && h.serves && !h.left && now.saturating_sub(h.at) <= self.lease;
        let (since, kept_since) = known.filter(on).map_or((now, now), |h| (h.since, h.kept_since));
        let volumes = known.map(|h| h.volumes.clone()).unwrap_or_default();
        let cut_off = known.is_some_and(|h| h.cut_off);
        let release = known.filter(|_| serves).and_then(|h| h.release.clone());
        let mut full = known.map(|h| h.full.clone()).unwrap_or_default();
        if !serves {
            full.said.clear();
        }
        let lease_end = known.map_or(now, |h| h.lease_end);
        let kept_until = now + tenure(self.lease);
        // Who joins is about to have one.
        let tenure_end = known.filter(|_| serves).map_or(kept_until, |h| h.tenure_end);
        let heard = Heard {
            at: now,
            lease_end,
            tenure_end,
            kept_until,
            kept_since,
            missed: false,
            given_up: false,
            spoke: true,
            serves,
            since,
            left: false,
            targets,
            cut_off,
            release,
            full,
            volumes,
        };
        let mut news = known.is_none_or(|h| {
            (h.spoke, h.serves, h.left) != (true, serves, false) || h.targets != heard.targets
        });
        // What was denied before may be done now.
        news |= known.is_some_and(|h| h.at < self.denied);
        if known.is_some_and(|h| h.spoke && !h.targets.is_subset(&heard.targets)) {
            self.denied = now;
        }
        self.servers.insert(server, heard);
        for spec in specs {
            let shown = |spec: &TargetSpec| (spec.silent_ms.is_some(), spec.displaced);
            let (sound, now_shown) = (spec.poisoned.is_empty(), shown(&spec));
            let before = self.targets.insert(spec.target, Arc::new(spec));
            let other = before.as_ref().is_none_or(|b| b.poisoned.is_empty() != sound);
            if other && !sound {
                self.denied = now;
            }
            news |= other || before.is_some_and(|b| shown(&b) != now_shown);
        }
        news
    }

    /// A server that is heard now will answer for groups for so many ms, 0: for a whole lease.
    pub fn hear_lease(&mut self, server: u32, lease_ms: u64, now: Duration) {
        let length = Duration::from_millis(given_ms(lease_ms, in_ms(self.lease)));
        if let Some(heard) = self.servers.get_mut(&server) {
            heard.lease_end = heard.lease_end.max(now + length);
        }
    }

    /// A server that says something now will serve volumes for so many ms, 0: as long as any may. True if its time was over.
    pub fn hear_tenure(&mut self, server: u32, tenure_ms: u64, now: Duration) -> bool {
        let length = Duration::from_millis(given_ms(tenure_ms, in_ms(tenure(self.lease))));
        let Some(heard) = self.servers.get_mut(&server) else { return false };
        let was_over = heard.tenure_end < now;
        heard.serve_until(now + length, now);
        was_over
    }

    /// Somebody waits for a server as a metadata server: its volumes are given to others as soon as its tenure is over, if it
    /// is not heard before. True if nobody did yet.
    pub fn miss(&mut self, server: u32) -> bool {
        let heard = self.servers.get_mut(&server);
        heard.is_some_and(|heard| !std::mem::replace(&mut heard.missed, true))
    }

    /// A server says which volumes it serves, going by the map of this epoch or a later one. True if that is news.
    pub fn hear_volumes(&mut self, server: u32, epoch: u64, volumes: Vec<u32>) -> bool {
        let said = (epoch, volumes.into_iter().collect());
        let heard = self.servers.get_mut(&server);
        heard.is_some_and(|heard| std::mem::replace(&mut heard.volumes, said.clone()) != said)
    }

    /// A server says whether it does not reach the database with its metadata. True if that is news.
    pub fn hear_cut_off(&mut self, server: u32, cut_off: bool, now: Duration) -> bool {
        let Some(heard) = self.servers.get_mut(&server).filter(|h| h.cut_off != cut_off) else {
            return false;
        };
        tracing::warn!(
            server,
            "{}",
            match cut_off {
                true => "does not reach the metadata database",
                false => "reaches the metadata database again",
            }
        );
        (heard.cut_off, heard.since, heard.kept_since) = (cut_off, now, now);
        true
    }

    /// What it said last of whether it does not reach the database with its metadata.
    pub fn is_cut_off(&self, server: u32) -> bool {
        self.servers.get(&server).is_some_and(|heard| heard.cut_off)
    }

    /// True if a server has said, going by the map of this epoch or a later one, that it does not serve a volume.
    pub fn has_released(&self, server: u32, volume: u32, epoch: u64) -> bool {
        let said = self.servers.get(&server).map(|heard| &heard.volumes);
        said.is_some_and(|(known, volumes)| *known >= epoch && !volumes.contains(&volume))
    }

    /// Whether a metadata server may serve volumes.
    pub fn tenure(&self, server: u32, now: Duration) -> Tenure {
        let Some(heard) = self.servers.get(&server).filter(|heard| !heard.left) else {
            return Tenure::default();
        };
        let lasts = heard.may_serve(now);
        // Who is late gets nothing from others that are.
        let well = heard.serves && !heard.cut_off && now <= heard.tenure_end;
        let steady = well && now.saturating_sub(heard.kept_since) > self.lease * STEADY_LEASES;
        Tenure { lasts, well, steady, cut_off: heard.cut_off }
    }

    /// A server that serves has one more target, which serves too.
    pub fn hear_of(&mut self, server: u32, spec: TargetSpec) {
        if let Some(heard) = self.servers.get_mut(&server) {
            heard.targets.insert(spec.target);
        }
        self.targets.insert(spec.target, Arc::new(spec));
    }

    /// A server says what its targets hold, all of it.
    pub fn hear_held(&mut self, targets: &HashSet<u32>, held: &[Held]) {
        targets.iter().for_each(|target| drop(self.held.remove(target)));
        for held in held.iter().filter(|held| targets.contains(&held.target)) {
            self.held.entry(held.target).or_default().insert(held.group, *held);
        }
    }

    /// Forgets how far jobs are where nobody has told of it for a lease.
    pub fn forget_old(&mut self, now: Duration) {
        let lasts = |at: Duration| now.saturating_sub(at) <= self.lease;
        self.progress.retain(|_, seen| lasts(seen.at));
        self.scrubs.retain(|_, seen| lasts(seen.at));
        self.recopies.retain(|_, seen| lasts(seen.at));
    }

    /// A primary's server says how far it is. Nothing but that is gone through: many tell, and often.
    pub fn hear_progress(&mut self, progress: &[Progress], now: Duration) {
        for &said in progress {
            let key = (said.group, said.member);
            let before = self.progress.get(&key).copied();
            let rate = before.map_or(0.0, |before| before.rate_with(&said, now));
            self.progress.insert(key, Seen { progress: said, at: now, rate });
        }
    }

    /// What targets hold.
    pub fn held(&self) -> impl Iterator<Item = &Held> {
        self.held.values().flat_map(HashMap::values)
    }

    /// Bytes that a target holds.
    pub fn bytes_held(&self, target: u32) -> u64 {
        self.held.get(&target).into_iter().flat_map(HashMap::values).map(|held| held.bytes).sum()
    }

    /// Bytes of a group, as far as those that have everything have said.
    pub fn bytes_of(&self, state: &State, id: u32) -> u64 {
        let in_sync = state.groups.get(&id).into_iter().flat_map(|group| &group.in_sync);
        let held = in_sync.filter_map(|target| self.held.get(target)?.get(&id));
        held.map(|held| held.bytes).max().unwrap_or(0)
    }

    /// How far the primary of a group is with a member.
    pub fn progress(&self, group: u32, member: u32) -> Option<&Seen> {
        self.progress.get(&(group, member))
    }

    /// A server says how far it is with what it verifies, as [`Liveness::hear_progress`].
    pub fn hear_scrubs(&mut self, scrubs: Vec<ScrubProgress>, now: Duration) {
        for said in scrubs {
            let key = (said.job, said.target);
            let rate = self.scrubs.get(&key).map_or(0.0, |before| {
                let done = said.tally.bytes.saturating_sub(before.progress.tally.bytes);
                smoothed(before.rate, done, now.saturating_sub(before.at))
            });
            self.scrubs.insert(key, SeenScrub { progress: Arc::new(said), at: now, rate });
        }
    }

    /// What all servers said of that last.
    pub fn scrubs(&self) -> HashMap<(u64, u32), Arc<ScrubProgress>> {
        self.scrubs.iter().map(|(key, seen)| (*key, seen.progress.clone())).collect()
    }

    /// How far the server of a target is with a job.
    pub fn scrub(&self, job: u64, target: u32) -> Option<&SeenScrub> {
        self.scrubs.get(&(job, target))
    }

    /// A metadata server says how far it is with its jobs, as [`Liveness::hear_progress`].
    pub fn hear_recopies(&mut self, recopies: Vec<RecopyProgress>, now: Duration) {
        for said in recopies {
            let key = (said.job, said.volume);
            let rate = self.recopies.get(&key).map_or(0.0, |before| {
                let of = |said: &RecopyProgress| copied(&said.tally, &said.under_way);
                let done = of(&said).saturating_sub(of(&before.progress));
                smoothed(before.rate, done, now.saturating_sub(before.at))
            });
            let seen = SeenRecopy { at: now, rate, progress: Arc::new(said) };
            self.recopies.insert(key, seen);
        }
    }

    /// What all metadata servers said of that last.
    pub fn recopies(&self) -> BTreeMap<(u64, u32), Arc<RecopyProgress>> {
        self.recopies.iter().map(|(key, seen)| (*key, seen.progress.clone())).collect()
    }

    /// How far the metadata server of a share is with a job.
    pub fn recopy(&self, job: u64, share: u32) -> Option<&SeenRecopy> {
        self.recopies.get(&(job, share))
    }

    /// How far all of them are with a job.
    pub fn recopies_of(&self, job: u64) -> impl Iterator<Item = &SeenRecopy> {
        self.recopies.range((job, 0)..=(job, u32::MAX)).map(|(_, seen)| seen)
    }

    /// A server leaves in good order.
    pub fn leave(&mut self, server: u32, now: Duration) {
        let Some(heard) = self.servers.get_mut(&server) else { return };
        heard.left = true;
        self.denied = now;
    }

    /// How long a server may be silent.
    fn patience(&self) -> Duration {
        let hasty = strake_base::is_broken("manager-waits-a-lease");
        if hasty { self.lease / 10 } else { self.lease }
    }

    /// True while a server's lease lasts, unless it is cut.
    pub fn is_up(&self, server: u32, now: Duration) -> bool {
        let within = |h: &Heard| !h.left && now.saturating_sub(h.at) <= self.patience();
        self.servers.get(&server).is_some_and(within) && !self.is_cut(server)
    }

    /// True if a server has itself said, within the lease, that it lives.
    pub fn has_spoken(&self, server: u32, now: Duration) -> bool {
        self.is_up(server, now) && self.servers.get(&server).is_some_and(|h| h.spoke)
    }

    /// True if a server has joined or sent a heartbeat since this manager started.
    pub fn has_said(&self, server: u32) -> bool {
        self.servers.get(&server).is_some_and(|h| h.spoke)
    }

    /// True unless a server that has spoken did not name this target.
    pub fn has(&self, server: u32, target: u32) -> bool {
        self.servers.get(&server).is_none_or(|h| !h.spoke || h.targets.contains(&target))
    }

    /// True if a server itself says that it has a target no more, or that nothing can be written there.
    fn is_denied(&self, target: u32, heard: &Heard) -> bool {
        let poisoned = self.targets.get(&target).is_some_and(|spec| !spec.poisoned.is_empty());
        heard.left || heard.spoke && (poisoned || !heard.targets.contains(&target))
    }

    /// True if a server itself says that the disk of a target does not answer. That alone takes nobody out, for it may come
    /// late; but nobody goes on with such a target in place of another one.
    fn is_silent(&self, target: u32) -> bool {
        self.targets.get(&target).is_some_and(|spec| spec.silent_ms.is_some())
    }

    /// What is known of a target of a server.
    pub fn life(&self, target: u32, server: u32, now: Duration) -> Life {
        let silent = |since: Duration| now.saturating_sub(since);
        let heard = self.servers.get(&server);
        let here = heard.filter(|h| !self.is_denied(target, h) && silent(h.at) <= self.patience());
        match here.filter(|_| !self.is_cut(server)) {
            Some(_) if self.is_silent(target) => Life::Quiet,
            Some(h) if h.serves && h.at >= self.denied && silent(h.at) <= self.lease / 2 => {
                match now.saturating_sub(h.since) > self.lease * STEADY_LEASES {
                    true => Life::Steady,
                    false => Life::Serves,
                }
            }
            Some(_) => Life::Quiet,
            // Leases that an earlier life of this manager gave may last.
            None if self.is_new(now) => Life::Quiet,
            None => Life::Gone,
        }
    }

    /// The same for its groups of several copies: who is given up is gone there.
    pub fn life_in_groups(&self, target: u32, server: u32, now: Duration) -> Life {
        match self.servers.get(&server).is_some_and(|heard| heard.given_up) {
            true => Life::Gone,
            false => self.life(target, server, now),
        }
    }

    /// What is known of a target of a server since then.
    pub fn since(&self, target: u32, server: u32, then: Duration, now: Duration) -> Since {
        let heard = self.servers.get(&server);
        match heard {
            Some(h) if self.is_denied(target, h) => Since::Gone,
            Some(h) if h.spoke && h.at > then => Since::Lives,
            // What the one that asks had promised another before it stopped is over later, too.
            _ if now.saturating_sub(then) <= self.lease => Since::Unknown,
            _ if self.refused_at(server).is_some_and(|at| at > then) => Since::Refused,
            _ => Since::Gone,
        }
    }

    /// Milliseconds since a server was heard.
    pub fn silent_ms(&self, server: u32, now: Duration) -> u64 {
        let silent = self.servers.get(&server).map(|h| now.saturating_sub(h.at));
        silent.map_or(u64::MAX, in_ms)
    }

    /// What a target said of itself last.
    pub fn target(&self, target: u32) -> Option<&Arc<TargetSpec>> {
        self.targets.get(&target)
    }

    /// Those that have said something of themselves.
    pub fn targets_where(&self, says: impl Fn(&TargetSpec) -> bool) -> BTreeSet<u32> {
        self.targets.iter().filter(|(_, spec)| says(spec)).map(|(&id, _)| id).collect()
    }

    /// True if a server has sent this manager a heartbeat since it joined: with it came what its targets hold.
    pub fn has_beaten(&self, server: u32) -> bool {
        self.servers.get(&server).is_some_and(|heard| heard.spoke && heard.serves)
    }

    /// True if the set of servers that are up is another than at the last call, or that of targets that are nearly full.
    pub fn changed(&mut self, now: Duration) -> bool {
        let up: HashSet<u32> =
            self.servers.keys().copied().filter(|&id| self.is_up(id, now)).collect();
        let changed = up != self.shown_up;
        self.shown_up = up;
        self.room_has_changed() || changed
    }
}
