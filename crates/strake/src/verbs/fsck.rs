//! `strake fsck`: whether a volume fits together, while it is in use: names, inodes, and the chunks on
//! targets.

use crate::cluster::{self, ClusterFlags};
use crate::failure::{Failure, Outcome};
use crate::soundness::{self, path_in};
use crate::{output, servers};
use bytes::Bytes;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;
use strake_client::{NewFile, Volume};
use strake_storage::soundness::{Comparison, Finding};
use strake_types::{Credentials, ErrorKind, FileKind, GroupId, Ino, Result, Shares};
use strake_wire::map::MapView;
use strake_wire::message::meta::{Check, CheckPart, Checked, Problem};
use strake_wire::message::scrubs::ScrubFate;
use strake_wire::message::storage::Chunk;

/// Exit code: something was broken, and all of it is mended.
const MENDED: u8 = 1;
/// Exit code: something is broken still.
const LEFT: u8 = 4;
/// Exit code: it could not be found out, or not of everything.
pub const FAILED: u8 = 8;
/// Problems kept and shown; beyond, they are only counted.
const SHOWN_MAX: usize = 100_000;
/// An inode without a name gets one here, below the root.
const LOST_FOUND: &str = "lost+found";
/// The word of a check for it.
const NAMELESS: &str = "inode-without-name";
/// A directory that gets a name there, too.
const BELOW_ITSELF: &str = "directory-below-itself";
/// A wrong word of an inode on where it lies makes it look like one without a name.
const WRONG_PARENT: &str = "wrong-parent";

/// What helps where something was not looked at.
const NEXT: &str =
    "strake status shows which servers are away; start them, then run strake fsck again";

/// Flags of `strake fsck`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit code: 0 nothing is broken; 1 something was, and is mended; 4 something is broken still; \
8 it could not be found out, or not of everything, or not be written: what was not looked at is named, and nothing is known to be broken in the rest."
)]
pub struct FsckFlags {
    /// Volumes [default: all]
    #[arg(value_name = "VOLUME")]
    pub volumes: Vec<String>,

    /// Mend what can be mended; inodes without a name get one in /lost+found
    #[arg(long)]
    pub repair: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The report, as `--json` prints it.
#[derive(Serialize, Default)]
struct Report {
    /// Entries, inodes, records and chunks looked at.
    looked_at: u64,
    mended: u64,
    left: u64,
    problems: Vec<Row>,
    /// Everything was looked at.
    complete: bool,
    /// What was not looked at, and why.
    skipped: Vec<String>,
    /// The command that helps on with that.
    next: Option<&'static str>,
}

impl Report {
    /// True if there is something to tell beside the failure that has ended it, which is the last thing not looked at.
    fn says_more(&self) -> bool {
        self.looked_at > 0 || self.skipped.len() > 1
    }

    /// The exit code, also of what was found before a failure, which is itself something that was not looked at.
    fn ended(&self, looked: Outcome) -> Outcome<u8> {
        let code = match (self.left, self.complete, self.mended) {
            (0, true, 0) => 0,
            (0, true, _) => MENDED,
            (0, false, _) => FAILED,
            _ => LEFT,
        };
        looked.map(|()| code).map_err(|failure| Failure { code, ..failure })
    }

    fn count(&mut self, mended: bool) {
        match mended {
            true => self.mended += 1,
            false => self.left += 1,
        }
    }

    /// Adds those of which there is room to show to `kept`; the others are only counted.
    fn keep(&mut self, found: impl Iterator<Item = Finding>, kept: &mut Vec<Finding>) {
        for finding in found {
            match self.problems.len() + kept.len() < SHOWN_MAX {
                true => kept.push(finding),
                false => self.count(finding.fate == ScrubFate::Repaired),
            }
        }
    }
}

#[derive(Serialize)]
struct Row {
    volume: String,
    what: String,
    inode: u64,
    path: Option<String>,
    detail: String,
    mended: bool,
}

/// Of which chunks copies are compared: those of one volume, or all.
#[derive(Clone, Copy)]
struct Part(Option<Shares>);

impl Part {
    /// The volumes that were named, those there are; all, if none was.
    fn named(map: &MapView, names: &[String]) -> Vec<Self> {
        if names.is_empty() {
            return vec![Self(None)];
        }
        let volumes = names.iter().filter_map(|name| map.volume_named(name).ok());
        volumes.map(|volume| Self(Some(volume.shares()))).collect()
    }

    /// What is before it.
    fn begin(self) -> Option<Chunk> {
        let before = |shares: Shares| shares.first.0.saturating_sub(1);
        self.0.map(|shares| Chunk { volume: before(shares), ino: u64::MAX, index: u64::MAX })
    }

    fn has(self, volume: u32) -> bool {
        self.0.is_none_or(|shares| shares.all().any(|share| share.0 == volume))
    }

    /// Nothing of it comes after a chunk.
    fn is_over(self, at: Chunk) -> bool {
        self.0.is_some_and(|shares| at.volume >= shares.first.0.saturating_add(shares.count))
    }
}

/// Runs the verb. Where it fails half-way what was found before is told nevertheless.
pub async fn run(flags: &FsckFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let failed = |failure: Failure| Failure { code: FAILED, ..failure };
    let (mut run, names) = begin(flags, cluster).await.map_err(failed)?;
    let looked = run.all(&names).await;
    let report = run.end(looked.as_ref().err());
    if looked.is_ok() || report.says_more() {
        match flags.json {
            true => output::json(&report).map_err(failed)?,
            false => show(&report),
        }
    }
    report.ended(looked)
}

/// A run, and the volumes that it is to look at.
async fn begin(flags: &FsckFlags, cluster: &ClusterFlags) -> Outcome<(Run, Vec<String>)> {
    let map = cluster.connect().await?;
    map.refresh().await?;
    let names = cluster::named_or_all(&map.current(), &flags.volumes);
    let style = ProgressStyle::with_template("{msg}: {pos} of about {len}, {per_sec}, {eta} left");
    let bar = ProgressBar::new(0);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let parts = Part::named(&map, &flags.volumes);
    Ok((Run { map, repair: flags.repair, parts, bar, report: Report::default() }, names))
}

/// One run.
struct Run {
    map: Arc<MapView>,
    repair: bool,
    /// Of which chunks copies are compared.
    parts: Vec<Part>,
    bar: ProgressBar,
    report: Report,
}

impl Run {
    async fn all(&mut self, names: &[String]) -> Outcome {
        self.away();
        for name in names {
            match self.open(name).await {
                Err(failure) if names.len() == 1 => return Err(failure),
                Err(failure) => self.skip(format!("volume {name}: {}", failure.cause)),
                Ok(()) => {}
            }
        }
        self.copies().await
    }

    /// The report of all that was found until the end, or until a failure.
    fn end(mut self, failure: Option<&Failure>) -> Report {
        self.bar.finish_and_clear();
        if let Some(failure) = failure {
            self.skip(format!("the rest: {}", failure.cause));
        }
        let mut report = self.report;
        report.complete = report.skipped.is_empty();
        report.next = (!report.complete).then_some(NEXT);
        report
    }

    fn skip(&mut self, what: String) {
        self.report.skipped.push(what);
    }

    /// Targets that nobody can ask now.
    fn away(&mut self) {
        let map = self.map.current();
        for target in map.targets.iter().filter(|target| !target.up) {
            let server = servers::name(&map, target.server);
            let (id, path) = (target.id, &target.spec.path);
            self.skip(format!("chunks of target {id} ({path} on server {server}): it is away"));
        }
    }

    async fn open(&mut self, name: &str) -> Outcome {
        let volume = cluster::open_volume(self.map.clone(), name, "fsck").await?;
        let done = self.volume(&volume).await;
        volume.close().await?;
        done
    }

    async fn volume(&mut self, volume: &Arc<Volume>) -> Outcome {
        let inodes = volume.statfs().await?.inodes;
        let mut moved = HashSet::new();
        let parts = [
            (CheckPart::Entries, "names"),
            (CheckPart::Inodes, "inodes"),
            (CheckPart::Leftovers, "other records"),
        ];
        for (part, what) in parts {
            self.begin(volume, what, inodes);
            self.part(volume, part, 0, &mut moved).await?;
        }
        let map = self.map.current();
        for target in map.targets.iter().filter(|target| target.up) {
            let what = format!("chunks of target {}", target.id);
            self.begin(volume, &what, inodes);
            if let Err(failure) = self.part(volume, CheckPart::Chunks, target.id, &mut moved).await
            {
                self.skip(format!("{what}, of volume {}: {}", volume.name(), failure.cause));
            }
        }
        self.begin(volume, "totals", 1);
        if let Err(failure) = self.part(volume, CheckPart::Totals, 0, &mut moved).await {
            self.skip(format!("totals of volume {}: {}", volume.name(), failure.cause));
        }
        Ok(())
    }

    fn begin(&self, volume: &Volume, what: &str, about: u64) {
        self.bar.reset();
        self.bar.set_length(about);
        self.bar.set_message(format!("volume {}, {what}", volume.name()));
    }

    /// Looks through a part from its beginning to its end. `moved`: inodes that only did not know
    /// where they lie.
    async fn part(
        &mut self,
        volume: &Arc<Volume>,
        part: CheckPart,
        target: u32,
        moved: &mut HashSet<u64>,
    ) -> Outcome {
        let mut check =
            Check { part: part as u32, repair: self.repair, target, ..Check::default() };
        loop {
            let mut page = self.ask(volume, &check).await?;
            let lacks_name = |problem: &Problem| {
                !problem.mended && [NAMELESS, BELOW_ITSELF].contains(&problem.what.as_str())
            };
            let lacks = page.problems.iter().any(lacks_name);
            let asked = match self.repair && check.lost_found == 0 && lacks {
                true => self.ask_again(volume, &mut check, &mut page).await,
                false => Ok(()),
            };
            self.report.looked_at += page.looked_at;
            self.bar.inc(page.looked_at);
            for problem in page.problems {
                if problem.what == WRONG_PARENT {
                    moved.insert(problem.ino);
                }
                if problem.what != NAMELESS || !moved.contains(&problem.ino) {
                    self.note(volume.name(), problem);
                }
            }
            asked?;
            if page.next.is_empty() {
                return Ok(());
            }
            check.after = page.next;
        }
    }

    /// The same once more, now that what has no name can get one. If that fails, the page is what it was.
    async fn ask_again(
        &self,
        volume: &Arc<Volume>,
        check: &mut Check,
        page: &mut Checked,
    ) -> Outcome {
        check.lost_found = lost_found(volume).await?.0;
        let again = self.ask(volume, check).await?;
        // What is mended already is not found again, and the rest is.
        page.problems.retain(|problem| problem.mended);
        page.problems.extend(again.problems);
        (page.next, page.looked_at) = (again.next, again.looked_at);
        Ok(())
    }

    async fn ask(&self, volume: &Arc<Volume>, check: &Check) -> Outcome<Checked> {
        Ok(volume.check(&Credentials::root(), check.clone()).await?)
    }

    fn note(&mut self, volume: &str, problem: Problem) {
        let Problem { what, ino, path, detail, mended } = problem;
        let path = (!path.is_empty()).then(|| path_in(volume, &path));
        let volume = volume.to_owned();
        self.add(Row { volume, what, inode: ino, path, detail, mended });
    }

    fn add(&mut self, row: Row) {
        self.report.count(row.mended);
        if self.report.problems.len() < SHOWN_MAX {
            self.report.problems.push(row);
        }
    }

    /// Compares the copies of all groups that have several.
    async fn copies(&mut self) -> Outcome {
        let (map, parts) = (self.map.current(), self.parts.clone());
        let mut findings = Vec::new();
        for group in map.groups.iter().filter(|group| GroupId(group.id).copies() > 1) {
            let up = |id: &u32| map.targets.iter().any(|target| target.id == *id && target.up);
            if !group.in_sync().iter().any(up) {
                self.skip(format!(
                    "copies of group {}: all who have everything are away",
                    group.id
                ));
                continue;
            }
            self.bar.set_message(format!("copies of group {}", group.id));
            for part in &parts {
                if let Err(error) = self.compare(group.id, *part, &mut findings).await {
                    self.skip(format!("copies of group {}: {error}", group.id));
                    break;
                }
            }
        }
        // What was found is told without names rather than not at all.
        let named = soundness::name_files(&self.map, &mut findings).await;
        for finding in findings {
            let volumes = self.map.current();
            let volume = volumes.living_with(finding.chunk.volume);
            let (chunk, target) = (finding.chunk.index, finding.target);
            self.add(Row {
                volume: volume.map(|v| v.spec.name.clone()).unwrap_or_default(),
                what: "copies-differ".into(),
                inode: finding.chunk.ino.0,
                path: finding.paths.into_iter().next(),
                detail: format!("chunk {chunk} on target {target} is {}", finding.detail),
                mended: finding.fate == ScrubFate::Repaired,
            });
        }
        named
    }

    /// Compares the copies of chunks of a group. A page goes on with the volumes behind it: of those it is told what was
    /// changed, and the rest is theirs to tell.
    async fn compare(&mut self, group: u32, part: Part, kept: &mut Vec<Finding>) -> Result<()> {
        let mut comparison = Comparison::after(group, self.repair, part.begin());
        while let Some((compared, found)) = comparison.next(&self.map).await? {
            self.report.looked_at += compared;
            let is_told = |finding: &Finding| {
                part.has(finding.chunk.volume.0) || finding.fate == ScrubFate::Repaired
            };
            self.report.keep(found.into_iter().filter(is_told), kept);
            if comparison.cursor().is_some_and(|at| part.is_over(at)) {
                break;
            }
        }
        Ok(())
    }
}

/// The directory for what has no name; made if it is not there.
async fn lost_found(volume: &Arc<Volume>) -> Outcome<Ino> {
    let (root, name) = (Credentials::root(), Bytes::from_static(LOST_FOUND.as_bytes()));
    match volume.lookup(&root, Ino::ROOT, name.clone()).await {
        Ok(attr) if attr.kind == FileKind::Directory => return Ok(attr.ino),
        Ok(_) => {
            return Err(Failure::new(format!("/{LOST_FOUND} is no directory"))
                .next("rename it; what has no name is to get one there"));
        }
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let new =
        NewFile { kind: FileKind::Directory, mode: 0o700, umask: 0, rdev: 0, target: Bytes::new() };
    Ok(volume.make(&root, Ino::ROOT, name, new).await?.ino)
}

fn show(report: &Report) {
    for row in &report.problems {
        let state = if row.mended { "mended" } else { "broken" };
        let about = match (&row.path, row.inode) {
            (Some(path), _) => path.clone(),
            (None, 0) => format!("volume {}", row.volume),
            (None, ino) => format!("inode {ino} of volume {}", row.volume),
        };
        output::line(&format!("{state}: {}: {about}: {}", row.what, row.detail));
    }
    for skipped in &report.skipped {
        output::line(&format!("not looked at: {skipped}"));
    }
    let verdict = match (report.left, report.mended) {
        (0, 0) => "nothing is broken".to_owned(),
        (0, mended) => {
            let (one, many) =
                ("thing was broken, and is mended", "things were broken, and are mended");
            output::count(mended, one, many)
        }
        (left, mended) => {
            let left = output::count(left, "thing is broken still", "things are broken still");
            let mended = output::count(mended, "is mended", "are mended");
            format!("{left}, {mended}")
        }
    };
    let looked_at = output::count(report.looked_at, "thing looked at", "things looked at");
    let skipped = report.skipped.len() as u64;
    match report.next {
        None => output::line(&format!("{looked_at}: {verdict}")),
        Some(next) => {
            let parts = output::count(skipped, "part was", "parts were");
            let rest = format!("{verdict} among them, but {parts} not looked at (above)");
            output::line(&format!("{looked_at}: {rest}"));
            output::advice(&format!("  next: {next}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use strake_types::{ChunkId, ServerId, VolumeId};
    use strake_wire::caller::{CallerOptions, Callers};
    use strake_wire::message::manager::{ClusterMap, Group, Server, Target, TargetSpec};
    use strake_wire::message::storage::{
        Compared, StorageAnswer, StorageOp, StorageReply, StorageRequest,
    };
    use strake_wire::service::{Services, StorageService};

    /// A primary at which a chunk of each of the volumes 1 to 5 differs, each in a page of its own. After what it was asked.
    #[derive(Default)]
    struct Primary(Mutex<Vec<Option<Chunk>>>);

    #[async_trait::async_trait]
    impl StorageService for Primary {
        async fn call(
            &self,
            request: StorageRequest,
            _payload: Bytes,
        ) -> Result<(StorageReply, Bytes)> {
            let Some(StorageOp::Compare(compare)) = &request.op else { panic!("{request:?}") };
            self.0.lock().push(compare.after);
            let volume = compare.after.map_or(1, |after| after.volume + 1);
            let chunk = Chunk { volume, ino: 7, index: 0 };
            let page = Compared {
                next: (volume < 5).then_some(chunk),
                chunks: 1,
                different: vec![chunk],
                members: vec![2],
                left: vec![false],
            };
            Ok((StorageReply { answer: Some(StorageAnswer::Compared(page)) }, Bytes::new()))
        }
    }

    fn run_over(primary: Arc<Primary>, parts: Vec<Part>) -> Run {
        let callers = Callers::new(CallerOptions::default());
        let services = Services { storage: Some(primary), ..Services::default() };
        callers.register_local(ServerId(1), services);
        let target = |id| Target {
            id,
            server: 1,
            spec: TargetSpec { target: id, ..TargetSpec::default() },
            up: true,
            drains: false,
        };
        let id = GroupId::of_class(2, 0).0;
        let map = MapView::fixed(
            callers,
            ClusterMap {
                epoch: 1,
                servers: vec![Server { id: 1, up: true, ..Server::default() }],
                targets: vec![target(1), target(2)],
                groups: vec![Group { id, epoch: 1, members: vec![1, 2], ..Group::default() }],
                ..ClusterMap::default()
            },
        );
        let bar = ProgressBar::hidden();
        Run { map, repair: true, parts, bar, report: Report::default() }
    }

    /// The copies of all volumes were compared, and made equal.
    #[tokio::test]
    async fn only_copies_of_the_volumes_that_were_named_are_compared() {
        let primary = Arc::new(Primary::default());
        let shares = Shares { first: VolumeId(2), count: 2 };
        let mut run = run_over(primary.clone(), vec![Part(Some(shares))]);
        run.copies().await.unwrap();
        assert_eq!((run.report.mended, run.report.left), (3, 0), "nothing is changed untold");
        let at = |volume, ino, index| Some(Chunk { volume, ino, index });
        let asked = [at(1, u64::MAX, u64::MAX), at(2, 7, 0), at(3, 7, 0)];
        assert_eq!(*primary.0.lock(), asked, "the last page begins where the volume may go on");

        let mut run = run_over(primary.clone(), vec![Part(Some(shares))]);
        run.repair = false;
        run.copies().await.unwrap();
        assert_eq!((run.report.mended, run.report.left), (0, 2));

        let mut run = run_over(primary, vec![Part(None)]);
        run.copies().await.unwrap();
        assert_eq!((run.report.mended, run.report.looked_at), (5, 5));
    }

    /// Each difference was kept, and its file asked for, of millions.
    #[test]
    fn differences_that_there_is_no_room_to_show_are_only_counted() {
        let finding = Finding {
            target: 1,
            group: 1,
            chunk: ChunkId { volume: VolumeId(1), ino: Ino(7), index: 0.into() },
            fate: ScrubFate::Left,
            different: true,
            detail: String::new(),
            paths: Vec::new(),
        };
        let (mut report, mut kept) = (Report::default(), vec![finding.clone(); SHOWN_MAX - 1]);
        let repaired = Finding { fate: ScrubFate::Repaired, ..finding.clone() };
        report.keep([finding.clone(), finding, repaired].into_iter(), &mut kept);
        assert_eq!((kept.len(), report.left, report.mended), (SHOWN_MAX, 1, 1));
    }

    /// Where everything was away it said only why it had ended.
    #[test]
    fn what_was_skipped_before_a_failure_is_told_even_if_nothing_was_looked_at() {
        let report = |looked_at, skipped: &[&str]| Report {
            looked_at,
            skipped: skipped.iter().map(|what| (*what).to_owned()).collect(),
            ..Report::default()
        };
        assert!(report(0, &["copies of group 1", "the rest"]).says_more());
        assert!(report(1, &["the rest"]).says_more());
        assert!(!report(0, &["the rest"]).says_more(), "the failure says that");
    }

    /// With a failure it was 8, which says that nothing is known to be broken.
    #[test]
    fn what_is_broken_still_is_the_exit_code_also_where_the_rest_could_not_be_looked_at() {
        let report = |left| Report { left, mended: 1, ..Report::default() };
        let with_failure = |left| report(left).ended(Err(Failure::new("away"))).unwrap_err().code;
        assert_eq!((with_failure(1), with_failure(0)), (LEFT, FAILED));
        assert_eq!(report(1).ended(Ok(())).unwrap(), LEFT);
        let whole = Report { complete: true, ..report(0) };
        assert_eq!(whole.ended(Ok(())).unwrap(), MENDED);
    }
}
