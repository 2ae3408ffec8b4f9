//! Bits that change on disks and sectors that are not read any more, and the jobs that find them.
//!
//! A scrub may only find what was damaged: of each chunk that a bit has changed in it is noted where that
//! was, by the engine's own word at that moment, and no scrub may ever name another one. When trouble is
//! over bits of one more disk change, and a scrub has to find all of it: what has another copy is sound
//! afterwards, and counted; what has none is told, and stays as it is.

use super::Cluster;
use super::end::{INDEX_BITS, WHOLE_BOUND};
use super::host::{Drive, Host};
use super::plan::Trouble;
use super::world::Power;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_engine::chunk::ChunkStore;
use strake_types::{ChunkId, Error, ErrorKind, GroupId, Result};
use strake_wire::message::jobs::{Job, JobKind, JobState, ListJobs, Plan, SteerJob};
use strake_wire::message::manager::{ClusterMap, ManagerOp};
use strake_wire::message::scrubs::{JobScrub, ScrubFate, ScrubFinding};

/// Longest time of a scrub once nothing goes wrong any more.
const SCRUB_BOUND: Duration = Duration::from_secs(240);
/// Until what a client has sent last has arrived, however late.
const LATE: Duration = Duration::from_secs(10);
/// Between two looks at a job.
const LOOK: Duration = Duration::from_millis(500);
/// So little per second that a scrub takes several steps.
const SLOW: u64 = 256 << 10;
/// Bits that change when a run is over.
const BITS: usize = 6;
/// How many of them are bad sectors.
const SPOILED_PERCENT: u64 = 30;
/// How often that is tried.
const TRIES_MAX: u32 = 20;
/// Findings that a server remembers of a target.
const FINDINGS_MAX: u64 = 200;

/// A copy of a chunk: target, group, volume, inode, index in the file.
type Copy = (u32, u32, u32, u64, u64);

/// What is known of bits that have changed, and of what scrubs have found.
#[derive(Default)]
pub(super) struct Rot {
    /// Every copy that was ever damaged.
    hit: BTreeSet<Copy>,
    /// Jobs that have ended, and were judged.
    judged: BTreeSet<u64>,
}

fn copy_of(target: u32, chunk: ChunkId) -> Copy {
    let index = chunk.index.0 & ((1 << INDEX_BITS) - 1);
    let group = match chunk.index.0 >> INDEX_BITS {
        0 => target - 1,
        tag => tag as u32 - 1,
    };
    (target, group, chunk.volume.0, chunk.ino.0, index)
}

fn found_at(found: &ScrubFinding) -> Copy {
    let chunk = found.chunk.unwrap_or_default();
    (found.target, found.group, chunk.volume, chunk.ino, chunk.index)
}

fn damaged_in(target: u32, store: &ChunkStore) -> Result<BTreeSet<Copy>> {
    let corrupt = store.scrub(None, u64::MAX)?.corrupt;
    Ok(corrupt.into_iter().map(|chunk| copy_of(target, chunk)).collect())
}

impl Cluster {
    /// Bits of what a running machine's disk holds change. False: nothing is damaged by that, as most of what
    /// was ever written may be free again.
    pub(super) fn change_bits(
        &self,
        host: &Host,
        drive: &Drive,
        bits: usize,
        random: &mut SplitMix64,
    ) -> Result<bool> {
        let names = drive.disk.process().list().unwrap_or_default();
        for name in names.iter().filter(|name| name.starts_with("data-")) {
            let pages = drive.disk.written(name);
            for _ in 0..bits.min(pages.len()) {
                let page = pages[random.below(pages.len() as u64) as usize];
                let (at, bit) = (page + random.below(4096), random.below(8) as u8);
                let number = host.number;
                if random.percent(SPOILED_PERCENT) {
                    self.world
                        .note(format_args!("server {number}: byte {at} is not read any more"));
                    drive.disk.spoil(name, at);
                } else {
                    self.world
                        .note(format_args!("server {number}: bit {bit} of byte {at} changes"));
                    drive.disk.flip_bit(name, at, bit);
                }
            }
        }
        let stores = host.stores();
        let own = stores.iter().find(|(target, _)| *target == drive.target());
        let Some((target, store)) = own else { return Ok(false) };
        let damaged = damaged_in(*target, store)?;
        let any = !damaged.is_empty();
        self.rot.lock().hit.extend(damaged);
        Ok(any)
    }

    /// One order of an administrator about scrubs, which may be refused.
    pub(super) async fn scrub_about(&self, random: &mut SplitMix64) {
        let _silent = self.judge_scrubs().await;
        let Ok(map) = self.map().await else { return };
        let op = if random.percent(60) {
            ManagerOp::Plan(scrub_of(&map, random))
        } else {
            let Ok(jobs) = self.jobs_left().await else { return };
            let mut scrubs = jobs.iter().filter(|job| job.kind == JobKind::Scrub as u32);
            let Some(id) = scrubs.next().map(|job| job.id) else { return };
            let steer = SteerJob { id, ..SteerJob::default() };
            ManagerOp::SteerJob(match random.below(5) {
                0 => SteerJob { pause: true, ..steer },
                1 | 2 => SteerJob { resume: true, ..steer },
                3 => SteerJob { cancel: true, ..steer },
                _ => SteerJob { rate: Some([0, SLOW][random.below(2) as usize]), ..steer },
            })
        };
        if self.order(op).await.is_ok() {
            strake_base::count_case("fault-scrub");
        }
    }

    /// Judges the scrubs that have ended since, and what others say of themselves.
    pub(super) async fn judge_scrubs(&self) -> Result<()> {
        let jobs = self.jobs(ManagerOp::ListJobs(ListJobs { id: 0 })).await?;
        for job in jobs.iter().filter(|job| job.kind == JobKind::Scrub as u32) {
            self.judge_words(job);
            let ended = job.state >= JobState::Done as u32;
            if ended && !self.rot.lock().judged.contains(&job.id) {
                let whole = self.scrub(job.id).await?;
                self.judge(&whole);
            }
        }
        Ok(())
    }

    /// A job with everything that it has found.
    async fn scrub(&self, id: u64) -> Result<Job> {
        let shown = self.jobs(ManagerOp::ListJobs(ListJobs { id })).await?;
        let gone = || Error::with(ErrorKind::NotFound, format!("job {id} is forgotten"));
        shown.into_iter().next().ok_or_else(gone)
    }

    /// What waits or has failed says why, and nothing is called done that is not.
    fn judge_words(&self, job: &Job) {
        let wrong = |one: &&JobScrub| {
            let is = |state: JobState| one.state == state as u32;
            let silent = one.reason.is_empty() && (is(JobState::Waiting) || is(JobState::Failed));
            let lies = is(JobState::Done) && (one.tally.left > 0 || !one.skipped.is_empty());
            silent || lies
        };
        if let Some(one) = job.scrubs.iter().find(wrong) {
            self.world.fail(format!("scrub {} says of target {}: {one:?}", job.id, one.target));
        }
    }

    /// A scrub that has ended has found nothing but what was damaged.
    fn judge(&self, job: &Job) {
        let hit = {
            let mut rot = self.rot.lock();
            rot.judged.insert(job.id);
            rot.hit.clone()
        };
        self.judge_words(job);
        for one in &job.scrubs {
            let (repaired, left) = (one.tally.repaired, one.tally.left);
            let fate = |found: &ScrubFinding| ScrubFate::of(found.fate);
            let told_repaired =
                one.findings.iter().filter(|f| fate(f) == ScrubFate::Repaired).count() as u64;
            let told = one.findings.len() as u64;
            let adds_up = repaired + left > FINDINGS_MAX
                || (told_repaired == repaired && told == repaired + left);
            let hands_off = !job.no_repair || repaired == 0;
            if !adds_up || !hands_off {
                self.world.fail(format!("scrub {}: it does not add up: {one:?}", job.id));
            }
            for found in &one.findings {
                let sound = found.different || !hit.contains(&found_at(found));
                let lone = GroupId(found.group).copies() == 1 && fate(found) == ScrubFate::Repaired;
                if sound || lone {
                    let what = if sound { "is sound" } else { "has no other copy" };
                    self.world.fail(format!("scrub {}: {what}: {found:?}", job.id));
                }
            }
        }
    }

    /// Everything that is damaged now, at those that are members of the groups.
    async fn damaged(&self) -> Result<BTreeSet<Copy>> {
        let map = self.map().await?;
        let mut all = BTreeSet::new();
        for (target, store) in self.hosts.iter().flat_map(|host| host.stores()) {
            all.extend(damaged_in(target, &store)?);
        }
        all.retain(|copy| is_member(&map, copy));
        Ok(all)
    }

    /// Bits of one disk change, and a scrub sees to all of it.
    pub(super) async fn check_rot(self: &Arc<Self>) -> Result<()> {
        tokio::time::sleep(LATE).await;
        let mut random = self.world.stream(3);
        let random = &mut random;
        let members: Vec<_> = self.members().cloned().collect();
        // What changed before, and was not found yet, is on the first disk of the last one: copies elsewhere
        // must stay.
        let fixed = self.plan.troubles.contains(&Trouble::Flip).then_some((members.len() - 1, 0));
        for _ in 0..TRIES_MAX {
            let any = (random.below(members.len() as u64) as usize, random.below(3) as usize);
            let (host, nth) = fixed.unwrap_or(any);
            let drives = members[host].drives();
            if self.change_bits(&members[host], &drives[nth % drives.len()], BITS, random)? {
                break;
            }
        }
        if self.plan.copies > 1 && random.percent(30) {
            self.scrub_under_trouble(&members, random).await?;
        }
        let damaged = self.damaged().await?;
        self.world.note(format_args!("{} chunks are damaged", damaged.len()));
        let rate = [0, 0, SLOW][random.below(3) as usize];
        let job = self.scrub_all(rate, async || {}).await?;
        self.judge_last(&job, &damaged).await
    }

    /// Verifies all targets, while something happens.
    async fn scrub_all(&self, rate: u64, meanwhile: impl AsyncFnOnce()) -> Result<Job> {
        let (kind, rate) = (JobKind::Scrub as u32, Some(rate));
        let begun = self.order(ManagerOp::Plan(Plan { kind, rate, ..Plan::default() })).await?;
        let id = begun.first().map_or(0, |job| job.id);
        meanwhile().await;
        let began = self.world.now();
        loop {
            let job = self.scrub(id).await;
            if let Ok(job) = &job
                && job.state >= JobState::Done as u32
            {
                self.world.note(format_args!("scrub {id}: {:?}", JobState::of(job.state)));
                self.judge(job);
                return Ok(job.clone());
            }
            if self.world.now() - began > SCRUB_BOUND {
                let detail = format!("a scrub has no end: {job:?}");
                return Err(Error::with(ErrorKind::TimedOut, detail));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Servers die and the job is paused while it goes on: some of what is damaged it may not have reached.
    async fn scrub_under_trouble(
        self: &Arc<Self>,
        members: &[Arc<Host>],
        random: &mut SplitMix64,
    ) -> Result<()> {
        let meanwhile = async || {
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_millis(random.below(4_000))).await;
                let host = &members[random.below(members.len() as u64) as usize];
                host.crash(Power::On).await;
                tokio::time::sleep(Duration::from_millis(random.below(6_000))).await;
                self.start(host).await;
            }
        };
        self.scrub_all(SLOW, meanwhile).await?;
        self.wait(WHOLE_BOUND, "all copies are equal after a scrub", async |cluster| {
            cluster.is_whole().await
        })
        .await
    }

    /// The last scrub has met no trouble. Chunks of a file without a name may have been deleted meanwhile.
    async fn judge_last(&self, job: &Job, damaged: &BTreeSet<Copy>) -> Result<()> {
        let sum = |of: fn(&JobScrub) -> u64| job.scrubs.iter().map(of).sum::<u64>();
        let (repaired, left) = (sum(|one| one.tally.repaired), sum(|one| one.tally.left));
        let (still, held) = (self.damaged().await?, self.held()?);
        let there: BTreeSet<Copy> = damaged.intersection(&held).copied().collect();
        let (expected, found, other) = match self.plan.copies {
            1 => (there.clone(), left, repaired),
            _ => (BTreeSet::new(), repaired, left),
        };
        let counted = (there.len() as u64..=damaged.len() as u64).contains(&found) && other == 0;
        let state = if left == 0 { JobState::Done } else { JobState::Failed };
        if still != expected || !counted || job.state != state as u32 {
            let what = format!("scrub {}: of {damaged:?} {still:?} is damaged still", job.id);
            self.world.fail(format!("{what}; {repaired} repaired, {left} left: {job:?}"));
        }
        Ok(())
    }

    /// Everything that is stored.
    fn held(&self) -> Result<BTreeSet<Copy>> {
        let mut held = BTreeSet::new();
        for (target, store) in self.hosts.iter().flat_map(|host| host.stores()) {
            let mut after = None;
            loop {
                let page = store.chunks_after(after, |_| true, 1_000)?;
                held.extend(page.chunks.iter().map(|chunk| copy_of(target, chunk.id)));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(held)
    }
}

/// True if a copy's target is a member of its group.
fn is_member(map: &ClusterMap, (target, id, ..): &Copy) -> bool {
    map.groups.iter().any(|group| group.id == *id && group.members.contains(target))
}

/// A scrub of all targets, or of some.
fn scrub_of(map: &ClusterMap, random: &mut SplitMix64) -> Plan {
    let some = random.percent(50);
    let targets = map.targets.iter().map(|target| target.id);
    let targets = targets.filter(|_| some && random.percent(40)).collect();
    let rate = Some([0, 0, SLOW][random.below(3) as usize]);
    let no_repair = random.percent(15);
    Plan { kind: JobKind::Scrub as u32, targets, rate, no_repair, ..Plan::default() }
}
