//! Scrubs that are jobs: targets of this server that the manager wants verified, each by a walk of its own
//! that can be paused, slowed and ended at any time.
//!
//! How far each is, and what it has found, is kept in `scrubs.json` in the first data directory after every
//! step, so that a restart goes on; a file that cannot be read only means that walks begin anew. What the
//! manager gives no order for any more is forgotten.

use crate::soundness::{self, Comparison, Finding};
use metrics::counter;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use strake_base::disk::Disk;
use strake_base::task;
use strake_types::{Error, ErrorKind, GroupId, Result, TargetId};
use strake_wire::map::MapView;
use strake_wire::message::scrubs::{ScrubFate, ScrubOrder, ScrubProgress, ScrubTally};
use strake_wire::message::storage::Chunk;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Name of the file.
const NAME: &str = "scrubs.json";
/// The same while it is written.
const NEW: &str = "scrubs.new";
/// Version of the file that this release writes.
const FORMAT: u32 = 1;
/// Bytes verified at a time.
const STEP_BYTES_MAX: u64 = 64 << 20;
/// The least, however slow it is to go.
const STEP_BYTES_MIN: u64 = 64 << 10;
/// Findings that are remembered of a target; all are counted.
const FINDINGS_MAX: usize = 200;
/// Findings that all targets tell together.
const TOLD_MAX: usize = 2_000;
/// Reasons of a target that are told why something was not looked at.
const SKIPPED_TOLD_MAX: usize = 20;
/// How often a step is tried, whatever was waited for in between.
const TRIES_MAX: u32 = 10;
/// What may be there again is waited for as long as the manager waits for a target.
const AWAY_MAX: Duration = Duration::from_secs(3600);
/// Pause after one that failed.
const TROUBLE_PAUSE: Duration = Duration::from_secs(2);

/// A chunk as the file has it: volume, inode, index.
type Place = (u32, u64, u64);
/// Job and target.
type Key = (u64, u32);

fn place(chunk: Chunk) -> Place {
    (chunk.volume, chunk.ino, chunk.index)
}

fn chunk((volume, ino, index): Place) -> Chunk {
    Chunk { volume, ino, index }
}

/// The file.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// Version of the file.
    format: u32,
    scrubs: Vec<Entry>,
}

/// One target's scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    job: u64,
    target: u32,
    /// The last chunk verified.
    after: Option<Place>,
    /// All of the target was verified.
    verified: bool,
    /// Groups of which all chunks were compared.
    groups_done: usize,
    /// The last chunk compared of the next group.
    compared: Option<Place>,
    tally: Tally,
    findings: Vec<Found>,
    skipped: Vec<String>,
    ended: bool,
    /// Why it does not get on now; empty: it does.
    #[serde(skip)]
    trouble: String,
}

/// See [`ScrubTally`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tally {
    chunks: u64,
    bytes: u64,
    repaired: u64,
    left: u64,
    compared: u64,
}

impl Tally {
    fn told(self) -> ScrubTally {
        let Tally { chunks, bytes, repaired, left, compared } = self;
        ScrubTally { chunks, bytes, repaired, left, compared }
    }
}

/// A [`Finding`] without what is looked up for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Found {
    target: u32,
    group: u32,
    chunk: Place,
    #[serde(serialize_with = "soundness::as_word", deserialize_with = "soundness::from_word")]
    fate: ScrubFate,
    different: bool,
    detail: String,
}

impl Found {
    fn of(finding: Finding) -> Self {
        let Finding { target, group, fate, different, detail, .. } = finding;
        Self { target, group, chunk: place(finding.chunk.into()), fate, different, detail }
    }

    fn finding(&self) -> Finding {
        Finding {
            target: self.target,
            group: self.group,
            chunk: chunk(self.chunk).into(),
            fate: self.fate,
            different: self.different,
            detail: self.detail.clone(),
            paths: Vec::new(),
        }
    }
}

impl Entry {
    fn new(job: u64, target: u32) -> Self {
        Self { job, target, ..Self::default() }
    }

    fn key(&self) -> Key {
        (self.job, self.target)
    }

    /// Counts a finding, and remembers it as long as there is room: for what is damaged still, what was
    /// repaired makes some.
    fn note(&mut self, finding: Finding) {
        let fate = finding.fate;
        match fate {
            ScrubFate::Repaired => self.tally.repaired += 1,
            ScrubFate::Left | ScrubFate::Lost | ScrubFate::Unknown => self.tally.left += 1,
        }
        if self.findings.len() >= FINDINGS_MAX {
            let repaired = self.findings.iter().position(|found| found.fate == ScrubFate::Repaired);
            match repaired.filter(|_| fate != ScrubFate::Repaired) {
                Some(at) => self.findings.remove(at),
                None => return,
            };
        }
        self.findings.push(Found::of(finding));
    }

    fn progress(&self, findings_max: usize) -> ScrubProgress {
        // What is damaged still, before what was repaired.
        let (repaired, left): (Vec<_>, Vec<_>) =
            self.findings.iter().partition(|found| found.fate == ScrubFate::Repaired);
        let told = left.into_iter().chain(repaired).take(findings_max);
        ScrubProgress {
            job: self.job,
            target: self.target,
            tally: self.tally.told(),
            at: self.after.filter(|_| !self.ended).map(chunk),
            findings: told.map(|found| found.finding().told()).collect(),
            skipped: self.skipped.iter().take(SKIPPED_TOLD_MAX).cloned().collect(),
            ended: self.ended,
            trouble: self.trouble.clone(),
        }
    }
}

/// Where the progress is kept.
struct Book {
    disk: Arc<dyn Disk>,
    entries: Mutex<BTreeMap<Key, Entry>>,
    /// Held while the file is written: the last to write knows of all others.
    writing: Mutex<()>,
}

impl Book {
    fn open(disk: Arc<dyn Disk>) -> Book {
        let stored = read(&*disk).and_then(|bytes| serde_json::from_slice::<Stored>(&bytes).ok());
        let known = stored.filter(|stored| stored.format == FORMAT);
        let scrubs = known.map(|stored| stored.scrubs).unwrap_or_default();
        let entries = scrubs.into_iter().map(|entry| (entry.key(), entry)).collect();
        Book { disk, entries: Mutex::new(entries), writing: Mutex::default() }
    }

    fn of(&self, (job, target): Key) -> Entry {
        let known = self.entries.lock().get(&(job, target)).cloned();
        known.unwrap_or_else(|| Entry::new(job, target))
    }

    /// Shows an entry, without making it outlive a restart.
    fn show(&self, entry: &Entry) {
        self.entries.lock().insert(entry.key(), entry.clone());
    }

    /// Shows an entry that outlives a restart.
    async fn keep(self: &Arc<Self>, entry: &Entry) {
        self.show(entry);
        let _abandoned = self.write_behind().await;
    }

    /// True if there was something to forget.
    fn forget_others(&self, wanted: impl Fn(&Key) -> bool) -> bool {
        let mut entries = self.entries.lock();
        let before = entries.len();
        entries.retain(|key, _| wanted(key));
        entries.len() < before
    }

    /// Writes all entries as they are by then, on a thread that may wait for the disk.
    fn write_behind(self: &Arc<Self>) -> JoinHandle<()> {
        let book = self.clone();
        task::blocking(move || {
            if let Err(error) = book.write() {
                tracing::warn!("{NAME} in {} is not kept: {error}", book.disk.path());
            }
        })
    }

    fn write(&self) -> io::Result<()> {
        let _turn = self.writing.lock();
        let scrubs = self.entries.lock().values().cloned().collect();
        let text = serde_json::to_vec_pretty(&Stored { format: FORMAT, scrubs })?;
        let file = self.disk.open(NEW, true)?;
        file.set_len(0)?;
        file.write_all_at(&text, 0)?;
        // A loss of power leaves the old one or the new one, not parts of both.
        file.sync()?;
        self.disk.rename(NEW, NAME)
    }
}

fn read(disk: &dyn Disk) -> Option<Vec<u8>> {
    let file = disk.open(NAME, false).ok()?;
    let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

/// The server whose targets are verified.
pub trait Scrubbed: Send + Sync + 'static {
    /// True if it has this target.
    fn has(&self, target: TargetId) -> bool;
    /// All of a target was verified, and nothing was passed over.
    fn note_verified(&self, target: TargetId, tally: ScrubTally);
}

/// A walk that is under way, or has ended.
struct Walking {
    order: watch::Sender<ScrubOrder>,
    task: JoinHandle<()>,
}

/// The scrubs of a server.
pub struct Scrubs {
    server: Arc<dyn Scrubbed>,
    map: Arc<MapView>,
    book: Arc<Book>,
    walks: Mutex<HashMap<Key, Walking>>,
}

impl Scrubs {
    /// Those of which `home`, the server's own directory, says that they were under way go on when the
    /// manager says so.
    pub fn new(home: Arc<dyn Disk>, server: Arc<dyn Scrubbed>, map: &Arc<MapView>) -> Scrubs {
        let book = Arc::new(Book::open(home));
        Scrubs { server, map: map.clone(), book, walks: Mutex::default() }
    }

    /// Does what these orders say, and nothing else.
    pub fn obey(&self, orders: &[ScrubOrder]) {
        let wanted = |key: &Key| orders.iter().any(|order| (order.job, order.target) == *key);
        let mut walks = self.walks.lock();
        walks.retain(|key, walk| {
            let stays = wanted(key);
            if !stays {
                walk.task.abort();
            }
            stays
        });
        if self.book.forget_others(wanted) {
            self.book.write_behind();
        }
        for order in orders {
            let key = (order.job, order.target);
            if let Some(walk) = walks.get(&key) {
                let changed = |known: &mut ScrubOrder| {
                    let differs = known != order;
                    known.clone_from(order);
                    differs
                };
                walk.order.send_if_modified(changed);
            } else if self.server.has(TargetId(order.target)) {
                walks.insert(key, self.begin(order));
            }
        }
    }

    fn begin(&self, order: &ScrubOrder) -> Walking {
        let entry = self.book.of((order.job, order.target));
        self.book.show(&entry);
        let (sender, receiver) = watch::channel(order.clone());
        let walk = Walk {
            server: self.server.clone(),
            map: self.map.clone(),
            book: self.book.clone(),
            order: receiver,
            entry,
        };
        Walking { order: sender, task: task::spawn(walk.run()) }
    }

    /// How far each is.
    pub fn progress(&self) -> Vec<ScrubProgress> {
        let entries = self.book.entries.lock();
        let findings_max = TOLD_MAX / entries.len().max(1);
        entries.values().map(|entry| entry.progress(findings_max)).collect()
    }

    /// Stops them where they are.
    pub fn stop(&self) {
        self.walks.lock().values().for_each(|walk| walk.task.abort());
    }
}

/// Steps that have failed one after the other.
#[derive(Default)]
struct Failed {
    /// With what does not pass, or may never.
    lasting: u32,
    /// With what may be there again.
    passing: u32,
    /// How long what may be there again was waited for. The groups that are compared share it, one after the other.
    waited: Duration,
}

impl Failed {
    /// One more has, which took so long. True: what it was to look at is passed over.
    fn is_enough(&mut self, error: &Error, took: Duration) -> bool {
        // A group that the map does not have may never come.
        let may_pass = error.is_passing() && error.kind != ErrorKind::StaleMap;
        let enough = if may_pass {
            self.passing += 1;
            self.waited += took + TROUBLE_PAUSE;
            self.passing >= TRIES_MAX && self.waited >= AWAY_MAX
        } else {
            self.lasting += 1;
            self.lasting >= TRIES_MAX
        };
        if enough {
            (self.lasting, self.passing) = (0, 0);
        }
        enough
    }

    /// One has not.
    fn ends(&mut self, compares: bool) {
        (self.lasting, self.passing) = (0, 0);
        if !compares {
            self.waited = Duration::ZERO;
        }
    }
}

/// The scrub of one target.
struct Walk {
    server: Arc<dyn Scrubbed>,
    map: Arc<MapView>,
    book: Arc<Book>,
    order: watch::Receiver<ScrubOrder>,
    entry: Entry,
}

impl Walk {
    async fn run(mut self) {
        let mut failed = Failed::default();
        while !self.entry.ended {
            self.pay(0).await;
            let (began, compares) = (Instant::now(), self.entry.verified);
            match self.step().await {
                Ok(bytes) => {
                    failed.ends(compares);
                    self.entry.trouble.clear();
                    self.book.keep(&self.entry).await;
                    self.pay(bytes).await;
                }
                Err(error) => {
                    tracing::debug!("target {}: {error}", self.entry.target);
                    self.entry.trouble = error.to_string();
                    if failed.is_enough(&error, began.elapsed()) {
                        self.pass_over();
                    }
                    self.book.show(&self.entry);
                    tokio::time::sleep(TROUBLE_PAUSE).await;
                }
            }
        }
    }

    /// One step of what is next; how many bytes it has read.
    async fn step(&mut self) -> Result<u64> {
        if !self.entry.verified {
            return self.verify().await;
        }
        let group = self.order.borrow().compare.get(self.entry.groups_done).copied();
        match group {
            Some(group) => self.compare(group).await?,
            None => self.end(),
        }
        Ok(0)
    }

    async fn verify(&mut self) -> Result<u64> {
        let (rate, repair) = {
            let order = self.order.borrow();
            (order.rate, order.repair)
        };
        let after = self.entry.after.map(chunk);
        let step = step_bytes(rate);
        let (report, findings) =
            soundness::verify(&self.map, self.entry.target, after, step).await?;
        for mut finding in findings {
            if repair {
                soundness::repair(&self.map, &mut finding).await;
            }
            self.note(finding);
        }
        let target = self.entry.target.to_string();
        counter!("strake_storage_scrubbed_bytes_total", "target" => target).increment(report.bytes);
        self.entry.tally.chunks += report.chunks;
        self.entry.tally.bytes += report.bytes;
        self.entry.after = report.next.map(place).or(self.entry.after);
        self.entry.verified = report.next.is_none() || strake_base::is_broken("scrubs-see-all");
        if self.entry.verified && repair {
            self.repair_again().await;
        }
        Ok(report.bytes)
    }

    fn note(&mut self, finding: Finding) {
        soundness::count(&finding);
        self.entry.note(finding);
    }

    /// A copy that was away when damage was found may be back.
    async fn repair_again(&mut self) {
        for at in 0..self.entry.findings.len() {
            let found = &self.entry.findings[at];
            let has_others = GroupId(found.group).copies() > 1;
            if !has_others || !matches!(found.fate, ScrubFate::Lost | ScrubFate::Unknown) {
                continue;
            }
            let mut finding = found.finding();
            soundness::repair(&self.map, &mut finding).await;
            if finding.fate == ScrubFate::Repaired {
                soundness::count(&finding);
                self.entry.tally.left -= 1;
                self.entry.tally.repaired += 1;
            }
            self.entry.findings[at] = Found::of(finding);
        }
    }

    /// A page of a group.
    async fn compare(&mut self, group: u32) -> Result<()> {
        let repair = self.order.borrow().repair;
        let after = self.entry.compared.map(chunk);
        let mut comparison = Comparison::after(group, repair, after);
        if let Some((chunks, findings)) = comparison.next(&self.map).await? {
            self.entry.tally.compared += chunks;
            findings.into_iter().for_each(|finding| self.note(finding));
        }
        self.entry.compared = comparison.cursor().map(place);
        self.entry.groups_done += usize::from(self.entry.compared.is_none());
        Ok(())
    }

    /// What cannot be looked at is told at the end; the rest goes on.
    fn pass_over(&mut self) {
        let reason = std::mem::take(&mut self.entry.trouble);
        let target = self.entry.target;
        if !self.entry.verified {
            self.entry.verified = true;
            self.entry.skipped.push(format!("target {target}: {reason}"));
            return;
        }
        let group = self.order.borrow().compare.get(self.entry.groups_done).copied();
        if let Some(group) = group {
            self.entry.skipped.push(format!("copies of group {group}: {reason}"));
        }
        self.entry.compared = None;
        self.entry.groups_done += 1;
    }

    fn end(&mut self) {
        self.entry.ended = true;
        let (target, tally) = (self.entry.target, self.entry.tally);
        if self.entry.skipped.is_empty() {
            self.server.note_verified(TargetId(target), tally.told());
        }
        tracing::info!(
            "job {}: all {} bytes of target {target} were verified; {} chunks were repaired, {} are \
             damaged still",
            self.entry.job,
            tally.bytes,
            tally.repaired,
            tally.left
        );
    }

    /// Waits until bytes that were read are paid for at the rate of the job, whatever that is by then, and
    /// as long as it is paused.
    async fn pay(&mut self, bytes: u64) {
        let mut owed = bytes as f64;
        loop {
            let (rate, paused) = {
                let order = self.order.borrow_and_update();
                (order.rate as f64, order.paused)
            };
            // Less than a byte is what rounding leaves: no timer is as short as that.
            if !paused && (rate == 0.0 || owed < 1.0) {
                return;
            }
            let cost = match paused {
                true => Duration::MAX,
                false => Duration::from_secs_f64(owed / rate),
            };
            let began = Instant::now();
            if let Ok(Err(_)) = tokio::time::timeout(cost, self.order.changed()).await {
                // Nobody wants it any more: the task is about to be ended.
                return std::future::pending().await;
            }
            if !paused {
                owed -= began.elapsed().as_secs_f64() * rate;
            }
        }
    }
}

/// Small steps where little may be read, so that a change of the rate shows soon.
fn step_bytes(rate: u64) -> u64 {
    if rate == 0 { STEP_BYTES_MAX } else { (rate / 4).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX) }
}

#[cfg(test)]
mod tests;
