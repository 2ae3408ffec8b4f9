//! The slow round of a server over its own targets: everything is verified again and again, steadily and
//! so slowly that nobody notices, and what is damaged is repaired where another copy is.
//!
//! Where a round has come to is kept in `patrol.json` in the first data directory, so that a restart
//! goes on; a file that cannot be read only means that it begins anew.

use super::stores::Target;
use metrics::{counter, gauge};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::clock::wall_time;
use strake_storage::soundness::{self, Comparison, Finding};
use strake_types::{Result, TargetId};
use strake_wire::map::MapView;
use strake_wire::message::manager::ScrubWord;
use strake_wire::message::scrubs::ScrubFate;
use strake_wire::message::storage::Chunk;
use tokio::task::JoinHandle;

/// Name of the file.
const NAME: &str = "patrol.json";
/// Version of the file that this release writes.
const FORMAT: u32 = 1;
/// Bytes verified at a time.
const STEP_BYTES: u64 = 4 << 20;
/// Shortest pause between two steps.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest one, however little there is to verify.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Pause after an error.
const TROUBLE_PAUSE: Duration = Duration::from_secs(60);
/// Of so many errors in a row one is told.
const TROUBLE_TOLD_EVERY: u32 = 10;

/// How far the rounds have come, by target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Progress {
    /// Version of the file.
    format: u32,
    rounds: BTreeMap<u32, Round>,
}

/// The round of one target, and the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Round {
    began_unix_s: u64,
    /// The last chunk verified: volume, inode, index.
    after: Option<(u32, u64, u64)>,
    tally: Tally,
    /// Absent: none has ended yet.
    last: Option<Ended>,
}

/// A round that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Ended {
    ended_unix_s: u64,
    tally: Tally,
}

/// What a round has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tally {
    bytes: u64,
    repaired: u64,
    left: u64,
}

impl Tally {
    fn count(&mut self, finding: &Finding) {
        match finding.fate {
            ScrubFate::Repaired => self.repaired += 1,
            ScrubFate::Left | ScrubFate::Lost | ScrubFate::Unknown => self.left += 1,
        }
    }
}

/// Where the progress of a server's rounds is kept.
struct Book {
    path: PathBuf,
    progress: Mutex<Progress>,
    /// How often somebody wanted it written since the write that is under way began, itself included; 0: none is.
    wanted: AtomicU64,
}

impl Book {
    fn open(home: &Path) -> Book {
        let path = home.join(NAME);
        let read = std::fs::read(&path).ok();
        let progress = read.and_then(|bytes| serde_json::from_slice::<Progress>(&bytes).ok());
        let known = progress.filter(|progress| progress.format == FORMAT);
        let progress = known.unwrap_or(Progress { format: FORMAT, ..Progress::default() });
        Book { path, progress: Mutex::new(progress), wanted: AtomicU64::new(0) }
    }

    fn round(&self, target: u32) -> Round {
        self.progress.lock().rounds.get(&target).cloned().unwrap_or_default()
    }

    /// Notes it, and has it written. Nobody waits for the disk, which may hang.
    fn keep(self: &Arc<Self>, target: u32, round: &Round) {
        self.note(target, round);
        if self.wanted.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let book = self.clone();
        tokio::task::spawn_blocking(move || {
            loop {
                let wanted = book.wanted.load(Ordering::Acquire);
                book.write();
                let end =
                    book.wanted.compare_exchange(wanted, 0, Ordering::AcqRel, Ordering::Acquire);
                if end.is_ok() {
                    break;
                }
            }
        });
    }

    fn note(&self, target: u32, round: &Round) {
        let mut progress = self.progress.lock();
        let known = progress.rounds.get(&target).and_then(|known| known.last.clone());
        let mut round = round.clone();
        // A scrub may have ended since this round knew of the last one. What a clock that was ahead has dated counts least.
        let now = now_unix_s();
        let when = |last: &Ended| Some(last.ended_unix_s).filter(|ended| *ended <= now);
        round.last = known.into_iter().chain(round.last).max_by_key(when);
        progress.rounds.insert(target, round);
    }

    /// Writes all of it, as it is by now. One at a time.
    fn write(&self) {
        let text = serde_json::to_vec_pretty(&*self.progress.lock());
        let written = text.map_err(std::io::Error::from);
        let new = self.path.with_extension("new");
        let written = written.and_then(|text| std::fs::write(&new, text));
        if let Err(error) = written.and_then(|()| std::fs::rename(&new, &self.path)) {
            tracing::warn!("{} is not kept: {error}", self.path.display());
        }
    }
}

/// What walks.
pub struct Patrol {
    map: Arc<MapView>,
    book: Arc<Book>,
    /// How long a round takes; `None`: there is none.
    every: Option<Duration>,
    tasks: Mutex<HashMap<TargetId, JoinHandle<()>>>,
}

impl Patrol {
    /// Begins, or goes on.
    pub fn start(
        home: &Path,
        targets: &[Arc<Target>],
        map: &Arc<MapView>,
        every: Option<Duration>,
    ) -> Patrol {
        let (book, map) = (Arc::new(Book::open(home)), map.clone());
        let patrol = Patrol { map, book, every, tasks: Mutex::default() };
        targets.iter().for_each(|target| patrol.watch_over(target));
        patrol
    }

    /// Sees to one more target.
    pub fn watch_over(&self, target: &Arc<Target>) {
        target.note_scrub(word_of(&self.book.round(target.id.0)));
        if let Some(every) = self.every {
            let (target, map, book) = (target.clone(), self.map.clone(), self.book.clone());
            let (id, walk) = (target.id, Walk { target, map, book, every });
            self.tasks.lock().insert(id, tokio::spawn(walk.rounds()));
        }
    }

    /// Sees to a target no more.
    pub fn leave(&self, target: TargetId) {
        self.tasks.lock().remove(&target).iter().for_each(JoinHandle::abort);
    }

    /// A scrub has verified all of a target, which counts like a round.
    pub fn note_ended(&self, target: &Target, bytes: u64, repaired: u64, left: u64) {
        let ended = Ended { ended_unix_s: now_unix_s(), tally: Tally { bytes, repaired, left } };
        let mut round = self.book.round(target.id.0);
        round.last = Some(ended);
        self.book.keep(target.id.0, &round);
        tell(target, &round);
    }

    /// Stops.
    pub fn stop(&self) {
        self.tasks.lock().values().for_each(JoinHandle::abort);
    }
}

/// Tells of the last round that has ended.
fn tell(target: &Target, round: &Round) {
    target.note_scrub(word_of(round));
    if let Some(last) = &round.last {
        let id = target.id.0.to_string();
        gauge!("strake_storage_scrub_ended_seconds", "target" => id).set(last.ended_unix_s as f64);
    }
}

fn word_of(round: &Round) -> Option<ScrubWord> {
    let last = round.last.as_ref()?;
    let Tally { repaired, left, .. } = last.tally;
    Some(ScrubWord { ended_unix_s: last.ended_unix_s, repaired, left })
}

fn now_unix_s() -> u64 {
    wall_time().as_secs()
}

/// How long until the next round; of one that a clock which was ahead has dated, as if it had just begun.
fn left(began_unix_s: u64, now_unix_s: u64, every: Duration) -> Duration {
    let since = now_unix_s.saturating_sub(began_unix_s);
    Duration::from_secs(every.as_secs().saturating_sub(since)).max(PAUSE_MIN)
}

/// The rounds over one target.
struct Walk {
    target: Arc<Target>,
    map: Arc<MapView>,
    book: Arc<Book>,
    every: Duration,
}

impl Walk {
    async fn rounds(self) {
        let mut failed = 0u32;
        loop {
            let id = self.target.id.0;
            let mut round = self.book.round(id);
            if round.began_unix_s == 0 {
                round.began_unix_s = now_unix_s();
            }
            if let Err(error) = self.round(&mut round).await {
                failed = failed.wrapping_add(1);
                match failed.is_multiple_of(TROUBLE_TOLD_EVERY) {
                    true => {
                        tracing::warn!("target {id} is not verified, tried {failed} times: {error}")
                    }
                    false => tracing::debug!("target {id} is not verified now: {error}"),
                }
                tokio::time::sleep(TROUBLE_PAUSE.min(self.every)).await;
                continue;
            }
            failed = 0;
            tokio::time::sleep(left(round.began_unix_s, now_unix_s(), self.every)).await;
            round.began_unix_s = now_unix_s();
            self.book.keep(id, &round);
        }
    }

    /// Goes on to the end of the target, then compares the groups that it leads.
    async fn round(&self, round: &mut Round) -> Result<()> {
        let id = self.target.id.0;
        loop {
            let after = round.after.map(|(volume, ino, index)| Chunk { volume, ino, index });
            let (report, findings) = soundness::verify(&self.map, id, after, STEP_BYTES).await?;
            counter!("strake_storage_scrubbed_bytes_total", "target" => id.to_string())
                .increment(report.bytes);
            round.tally.bytes += report.bytes;
            self.see_to(round, findings, true).await;
            round.after = report.next.map(|next| (next.volume, next.ino, next.index));
            if report.next.is_none() {
                break;
            }
            self.book.keep(id, round);
            tokio::time::sleep(self.pause(report.bytes)).await;
        }
        self.compare(round).await?;
        let tally = std::mem::take(&mut round.tally);
        let ended_unix_s = now_unix_s();
        round.last = Some(Ended { ended_unix_s, tally });
        self.book.keep(id, round);
        tell(&self.target, round);
        tracing::info!(
            "target {id}: all {} bytes were verified; {} chunks were repaired, {} are damaged still",
            tally.bytes,
            tally.repaired,
            tally.left
        );
        Ok(())
    }

    /// Counts findings; repairs them first if they are not yet.
    async fn see_to(&self, round: &mut Round, findings: Vec<Finding>, repair: bool) {
        for mut finding in findings {
            if repair {
                soundness::repair(&self.map, &mut finding).await;
            }
            soundness::count(&finding);
            round.tally.count(&finding);
        }
    }

    /// What cannot be compared, and not just now, holds up no other group: it is told, and tried again in the next round.
    async fn compare(&self, round: &mut Round) -> Result<()> {
        let id = self.target.id.0;
        let groups = self.map.current().groups.clone();
        let leads =
            groups.iter().filter(|g| g.members.len() > 1 && g.in_sync().first() == Some(&id));
        for group in leads {
            match self.compare_group(round, group.id).await {
                Err(error) if !error.is_passing() => {
                    tracing::warn!("the copies of group {} are not compared: {error}", group.id);
                }
                compared => compared?,
            }
        }
        Ok(())
    }

    async fn compare_group(&self, round: &mut Round, group: u32) -> Result<()> {
        let mut comparison = Comparison::of(group, true);
        while let Some((_, found)) = comparison.next(&self.map).await? {
            self.see_to(round, found, false).await;
            tokio::time::sleep(PAUSE_MIN).await;
        }
        Ok(())
    }

    /// So long that a round takes its time.
    fn pause(&self, bytes: u64) -> Duration {
        let spec = self.target.spec();
        let used = spec.total_bytes.saturating_sub(spec.free_bytes).max(bytes).max(1);
        let share = bytes as f64 / used as f64;
        self.every.mul_f64(share.min(1.0)).clamp(PAUSE_MIN, PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_goes_on_where_it_was_and_a_damaged_file_is_a_new_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let tally = Tally { bytes: 7, repaired: 2, left: 1 };
        let last = Some(Ended { ended_unix_s: 99, tally });
        let round = Round { began_unix_s: 5, after: Some((1, 2, 3)), tally, last };
        let book = Book::open(dir.path());
        book.note(4, &round);
        book.write();
        assert_eq!(Book::open(dir.path()).round(4), round);
        assert_eq!(word_of(&round), Some(ScrubWord { ended_unix_s: 99, repaired: 2, left: 1 }));
        assert_eq!(word_of(&Book::open(dir.path()).round(5)), None, "never");
        for other in ["{", r#"{"format":2,"rounds":{}}"#] {
            std::fs::write(dir.path().join(NAME), other).unwrap();
            assert_eq!(Book::open(dir.path()).round(4), Round::default());
        }
        let version_1 = r#"{"format":1,"rounds":{"4":{"began_unix_s":5,"after":[1,2,3],
            "tally":{"bytes":7,"repaired":2,"left":1},
            "last":{"ended_unix_s":99,"tally":{"bytes":7,"repaired":2,"left":1}}}}}"#;
        std::fs::write(dir.path().join(NAME), version_1).unwrap();
        assert_eq!(Book::open(dir.path()).round(4), round);
    }

    /// A clock that had been a year ahead: no round began before that year was over, and no later one counted.
    #[test]
    fn a_clock_that_was_ahead_holds_up_no_round() {
        let (now, every) = (now_unix_s(), Duration::from_secs(7 * 86_400));
        let year = 365 * 86_400;
        assert_eq!(left(now + year, now, every), every);
        assert_eq!(left(now - 86_400, now, every), Duration::from_secs(6 * 86_400));
        assert_eq!(left(now - year, now, every), PAUSE_MIN);

        let dir = tempfile::tempdir().unwrap();
        let book = Book::open(dir.path());
        let round_until = |ended_unix_s| Round {
            last: Some(Ended { ended_unix_s, tally: Tally::default() }),
            ..Round::default()
        };
        book.note(4, &round_until(now + year));
        book.note(4, &round_until(now));
        assert_eq!(book.round(4), round_until(now), "that of the future has gone");
        book.note(4, &round_until(now + year));
        book.note(4, &round_until(now - 5));
        assert_eq!(book.round(4), round_until(now), "the last one of them");
    }

    /// Each walk waited for the first disk of its server with a thread of the runtime.
    #[tokio::test]
    async fn nobody_waits_for_a_disk_that_does_not_take_what_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join(NAME).with_extension("new");
        rustix::fs::mknodat(rustix::fs::CWD, &new, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let book = Arc::new(Book::open(dir.path()));
        let round = Round { began_unix_s: 5, ..Round::default() };
        (1..=3).for_each(|target| book.keep(target, &round));
        assert_eq!(book.round(3), round);
        // Now it is taken.
        tokio::task::spawn_blocking(|| std::fs::read(new).unwrap()).await.unwrap();
        let is_written = async || {
            while book.wanted.load(Ordering::Acquire) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        is_written().await;
        // The pipe has the name of the file now, unless something was noted while it was written to.
        book.keep(4, &round);
        is_written().await;
        assert_eq!(Book::open(dir.path()).progress.lock().rounds.len(), 4);
    }
}
