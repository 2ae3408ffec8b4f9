//! Which files have parts in some groups: all volumes are gone through, since only a file's layout says it.

use crate::cluster;
use crate::failure::{FAILED, Outcome};
use crate::groups::GroupRow;
use crate::jobs::lasts;
use crate::output;
use crate::soundness::path_in;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use strake_client::Volume;
use strake_types::layout::Placement;
use strake_types::{Attr, ChunkIndex, Credentials, ErrorKind, FileKind, Ino, Result};
use strake_wire::map::MapView;
use strake_wire::message::jobs::Job;
use strake_wire::message::manager::{ClusterMap, Group};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Pages of directories listed at once.
const WIDTH: usize = 16;
/// Entries asked for at once.
const PAGE_ENTRIES: u32 = 1024;
/// How long files are looked for where only some are to be named,
pub const SAMPLE_WAIT: Duration = Duration::from_secs(2);
/// how much longer once only files are looked for of which there may be none (most ask for no `--min-copies`),
const RARE_WAIT: Duration = Duration::from_millis(300);
/// and how many.
const SAMPLE_FILES: usize = 3;
/// Chunks of a file that are looked at; of one with more, whose groups do not repeat, it is said that it has a part.
const CHUNKS_LOOKED_MAX: u64 = 1 << 16;
/// How much later than by the manager's clock something may have been made, in milliseconds.
const CLOCKS_DIFFER_MS: u64 = 60_000;

/// Which parts that targets have, or ought to have, are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// All.
    All,
    /// Those that are in sync nowhere else.
    OnlyCopies,
    /// Those that are not in sync there.
    Lacking,
}

/// What is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Files with a part in one of these groups, which ask for so many copies in sync at least (`--min-copies`; 0: all do),
    groups: BTreeMap<u32, u32>,
    /// and made before this, in milliseconds since 1970; none: whenever.
    made_before_ms: Option<u64>,
}

impl Wanted {
    /// Files with a part in one of these groups. In those that were never used no file has anything.
    pub fn among(map: &ClusterMap, is_meant: impl Fn(&Group) -> bool) -> Self {
        let groups = map.groups.iter().filter(|group| !group.never_used && is_meant(group));
        Self { groups: groups.map(|group| (group.id, 0)).collect(), made_before_ms: None }
    }

    /// Files whose writes wait, since they ask for more copies than are in sync there.
    pub fn writes_that_wait(rows: &[GroupRow]) -> Self {
        let short = rows.iter().filter_map(|row| Some((row.id(), row.too_few_for()?)));
        Self { groups: short.collect(), made_before_ms: None }
    }

    /// Files with a part on one of these targets.
    pub fn on(map: &ClusterMap, targets: &[u32], parts: Parts) -> Self {
        let on = |id: &u32| targets.contains(id);
        Self::among(map, |group| {
            let in_sync = group.in_sync();
            let mut members = group.members.iter();
            match parts {
                Parts::All => members.any(on),
                Parts::OnlyCopies => in_sync.iter().all(on),
                Parts::Lacking => members.any(|id| on(id) && !in_sync.contains(id)),
            }
        })
    }

    /// What a job has given up, or will; none if that is nothing.
    pub fn lost_by(job: &Job) -> Option<Self> {
        let lost = job.items.iter().filter(|item| item.lost);
        let groups: BTreeMap<u32, u32> = lost.map(|item| (item.group, 0)).collect();
        // What is made after its end has its parts with who took the place. Clocks differ.
        let made_before_ms = (job.ended_ms > 0).then_some(job.ended_ms + CLOCKS_DIFFER_MS);
        (!groups.is_empty()).then_some(Self { groups, made_before_ms })
    }

    /// True if only files that ask for several copies in sync are meant. Whether any do is known to nobody but their metadata server.
    fn is_rare(&self) -> bool {
        self.groups.values().all(|least| *least > 0)
    }

    fn holds(&self, attr: &Attr) -> bool {
        let made_ms = u64::try_from(attr.btime.seconds).unwrap_or(0).saturating_mul(1000);
        let in_time = self.made_before_ms.is_none_or(|before| made_ms < before);
        let asks = attr.layout.as_ref().map_or(1, |layout| layout.safety.min_copies);
        let is_meant = |group: u32| self.groups.get(&group).is_some_and(|least| asks >= *least);
        in_time && has_part_in(attr, is_meant)
    }
}

/// True if some byte of a file may lie in one of the groups. Holes count as bytes: nobody but the groups knows them.
fn has_part_in(attr: &Attr, is_meant: impl Fn(u32) -> bool) -> bool {
    let Some(layout) = attr.layout.clone().filter(|_| attr.kind == FileKind::File) else {
        return false;
    };
    if attr.inline || attr.length == 0 {
        return false;
    }
    let placement = Placement::new(layout);
    if !placement.slots().iter().any(|group| is_meant(group.0)) {
        return false;
    }
    let layout = placement.layout();
    let chunks = (layout.chunk_at(attr.length - 1).0 + 1).min(layout.period().unwrap_or(u64::MAX));
    let looked_at = chunks.min(CHUNKS_LOOKED_MAX);
    let is_in = |index| is_meant(placement.group_of(ChunkIndex(index)).0);
    (0..looked_at).any(is_in) || looked_at < chunks
}

/// Some of the files that were looked for, as `--json` prints them.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// As `:/VOLUME/PATH`.
    pub files: Vec<String>,
    /// There may be more.
    pub more: bool,
}

impl Sample {
    /// Looks for a few in volumes whose server is up, and not for long.
    pub async fn find(view: &Arc<MapView>, wanted: &Wanted) -> Self {
        Self::find_each(view, std::slice::from_ref(wanted)).await.pop().unwrap_or_default()
    }

    /// A few of each of these, in one look that takes no longer than for one of them.
    pub async fn find_each(view: &Arc<MapView>, wanted: &[Wanted]) -> Vec<Self> {
        let mut samples = Samples::of(wanted);
        if samples.are_full() {
            return samples.found;
        }
        let map = view.current();
        let served = cluster::served_volume_names(&map);
        // Said by the first file that leaves only those: the volume is open by then. Who looks for nothing else has all the time.
        let nearly_full = Notify::new();
        let note = |nth, path: &str| {
            let flow = samples.note(nth, path);
            if samples.lack_only_rare() {
                nearly_full.notify_one();
            }
            flow
        };
        let looked = in_time(find(view, &served, wanted, note), &nearly_full).await;
        let whole = matches!(looked, Some(Looked { unread, ended: true }) if unread.is_empty());
        samples.end(whole && served.len() == map.living().count())
    }

    /// As much as is shown of these.
    pub fn of(files: impl IntoIterator<Item = String>) -> Self {
        let mut sample = Self::default();
        files.into_iter().for_each(|file| sample.note(&file));
        sample
    }

    fn note(&mut self, file: &str) {
        match self.files.len() < SAMPLE_FILES {
            true => self.files.push(file.to_owned()),
            false => self.more = true,
        }
    }

    /// True if nothing was looked for, or surely nothing is there.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.more
    }

    /// In words: the files, and how all of them are listed.
    pub fn line(&self, verb: &str) -> String {
        match (self.files.is_empty(), self.more) {
            (true, true) => format!("{verb} lists their files"),
            (true, false) => "no file has anything there".to_owned(),
            (false, true) => format!("among others {} ({verb} lists all)", self.files.join(", ")),
            (false, false) => self.files.join(", "),
        }
    }
}

/// Samples that are being taken.
struct Samples<'a> {
    wanted: &'a [Wanted],
    found: Vec<Sample>,
}

impl<'a> Samples<'a> {
    fn of(wanted: &'a [Wanted]) -> Self {
        Self { wanted, found: wanted.iter().map(|_| Sample::default()).collect() }
    }

    /// True if no other file would change them.
    fn are_full(&self) -> bool {
        self.lack().next().is_none()
    }

    /// True if only [rare](Wanted::is_rare) ones would.
    fn lack_only_rare(&self) -> bool {
        self.lack().all(Wanted::is_rare)
    }

    /// What is looked for still.
    fn lack(&self) -> impl Iterator<Item = &Wanted> {
        let each = self.wanted.iter().zip(&self.found);
        let lack = each.filter(|(wanted, sample)| !wanted.groups.is_empty() && !sample.more);
        lack.map(|(wanted, _)| wanted)
    }

    fn note(&mut self, nth: usize, file: &str) -> ControlFlow<()> {
        if let Some(sample) = self.found.get_mut(nth) {
            sample.note(file);
        }
        if self.are_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Them; `whole`: everything was looked at.
    fn end(mut self, whole: bool) -> Vec<Sample> {
        let each = self.wanted.iter().zip(&mut self.found);
        each.for_each(|(wanted, sample)| sample.more |= !whole && !wanted.groups.is_empty());
        self.found
    }
}

/// What a look finds within the time that it has, of which little is left once it is nearly done.
async fn in_time(look: impl Future<Output = Looked>, nearly_done: &Notify) -> Option<Looked> {
    let rest = async {
        nearly_done.notified().await;
        sleep(RARE_WAIT).await;
    };
    tokio::select! {
        biased;
        looked = timeout(SAMPLE_WAIT, look) => looked.ok(),
        () = rest => None,
    }
}

/// How far a look went.
#[derive(Debug, Default)]
pub struct Looked {
    /// What could not be looked at, and why.
    pub unread: Vec<String>,
    /// All the rest was.
    pub ended: bool,
}

/// Prints all files that are wanted, each as it is found; exit code 1 if something could not be looked at.
pub async fn print(map: &Arc<MapView>, wanted: &Wanted, json: bool) -> Outcome<u8> {
    let mut files = Vec::new();
    let mut note = |path: &str| match json {
        true => files.push(path.to_owned()),
        false => output::line(path),
    };
    let tell = |_, path: &str| {
        note(path);
        ControlFlow::Continue(())
    };
    let volumes = cluster::volume_names(&map.current());
    let wanted = std::slice::from_ref(wanted);
    let Looked { unread, .. } = find(map, &volumes, wanted, tell).await;
    let code = if unread.is_empty() { 0 } else { FAILED };
    match json {
        true => output::json(&Listing { files, unread })?,
        false => unread.iter().for_each(|what| output::aside(&format!("not looked at: {what}"))),
    }
    Ok(code)
}

/// How all files are listed of which only these targets have a part.
pub fn files_verb(targets: &BTreeSet<u32>) -> String {
    let numbers: Vec<String> = targets.iter().map(u32::to_string).collect();
    format!("strake target files {} --only-copy", numbers.join(" "))
}

/// Says of which files a job gives something up, if it does.
pub async fn show_lost(map: &Arc<MapView>, job: &Job) {
    let Some(wanted) = Wanted::lost_by(job) else { return };
    let sample = Sample::find(map, &wanted).await;
    let (does, all) = match job.id {
        0 => {
            let lost = job.items.iter().filter(|item| item.lost);
            ("would give up", files_verb(&lost.map(|item| item.from).collect()))
        }
        id if lasts(job) => ("gives up", format!("strake job files {id}")),
        id => ("gave up", format!("strake job files {id}")),
    };
    output::advice(&format!("  ! {does} what files have in these groups: {}", sample.line(&all)));
}

#[derive(Serialize)]
struct Listing {
    files: Vec<String>,
    /// What could not be looked at, and why.
    unread: Vec<String>,
}

/// Tells of every file that is wanted in some volumes, for which it is wanted and as `:/VOLUME/PATH`, in no order; a
/// file with several names by each. What cannot be looked at hides nothing else.
pub async fn find(
    map: &Arc<MapView>,
    volumes: &[String],
    wanted: &[Wanted],
    mut tell: impl FnMut(usize, &str) -> ControlFlow<()>,
) -> Looked {
    let mut looked = Looked::default();
    for name in volumes {
        let volume = match cluster::open_volume(map.clone(), name, "files").await {
            Ok(volume) => volume,
            Err(failure) => {
                looked.unread.push(format!("volume {name}: {}", failure.cause));
                continue;
            }
        };
        let mut within = |nth, path: &[u8]| tell(nth, &path_in(name, path));
        let enough = walk(&volume, wanted, &mut within, &mut looked.unread).await;
        cluster::leave_volume(&volume).await;
        if enough.is_break() {
            return looked;
        }
    }
    looked.ended = true;
    looked
}

/// A page of a directory.
struct Piece {
    ino: Ino,
    path: Vec<u8>,
    /// Where it begins.
    after: u64,
}

async fn walk(
    volume: &Arc<Volume>,
    wanted: &[Wanted],
    tell: &mut impl FnMut(usize, &[u8]) -> ControlFlow<()>,
    unread: &mut Vec<String>,
) -> ControlFlow<()> {
    let mut left = vec![Piece { ino: Ino::ROOT, path: Vec::new(), after: 0 }];
    let (mut listing, mut seen) = (FuturesUnordered::new(), HashSet::new());
    loop {
        while listing.len() < WIDTH {
            let Some(piece) = left.pop() else { break };
            // One that is moved meanwhile may be met twice.
            if piece.after > 0 || seen.insert(piece.ino) {
                listing.push(async move { (page_of(volume, &piece).await, piece) });
            }
        }
        let Some((page, piece)) = listing.next().await else { return ControlFlow::Continue(()) };
        let (entries, next) = match page {
            Ok(page) => page,
            // Removed meanwhile.
            Err(error) if error.kind.is_gone() => continue,
            Err(error) => {
                unread.push(format!("{}: {error}", path_in(volume.name(), &piece.path)));
                match error.kind {
                    // Nor would it give the others.
                    ErrorKind::Unavailable | ErrorKind::TimedOut => {
                        return ControlFlow::Continue(());
                    }
                    _ => continue,
                }
            }
        };
        for (name, attr) in entries {
            let path = [&piece.path[..], b"/", &name[..]].concat();
            match attr {
                Ok(attr) if attr.kind == FileKind::Directory => {
                    left.push(Piece { ino: attr.ino, path, after: 0 });
                }
                Ok(attr) => {
                    let held = wanted.iter().enumerate().filter(|(_, one)| one.holds(&attr));
                    held.map(|(nth, _)| nth).try_for_each(|nth| tell(nth, &path))?;
                }
                Err(error) => unread.push(format!("{}: {error}", path_in(volume.name(), &path))),
            }
        }
        left.extend(next.map(|after| Piece { after, ..piece }));
    }
}

type Entry = (Bytes, Result<Attr>);

/// The entries of a page, and where the next one begins.
async fn page_of(volume: &Arc<Volume>, piece: &Piece) -> Result<(Vec<Entry>, Option<u64>)> {
    let root = Credentials::root();
    let page = volume.readdir(&root, piece.ino, piece.after, PAGE_ENTRIES, true).await?;
    let next = page.entries.last().filter(|_| !page.end).map(|last| last.cookie);
    let mut entries = Vec::new();
    for entry in page.entries {
        let attr = match entry.attr {
            Some(attr) => Ok(attr),
            None => volume.lookup(&root, piece.ino, entry.name.clone()).await,
        };
        entries.push((entry.name, attr));
    }
    Ok((entries, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::layout::{GroupTables, LayoutTemplate};
    use strake_types::{Distribution, GroupId};
    use strake_wire::message::common::Attributes;

    fn file(distribution: Distribution, length: u64) -> Attr {
        let template = LayoutTemplate {
            chunk_size: Some(1 << 16),
            distribution: Some(distribution),
            width: Some(4),
            ..LayoutTemplate::default()
        };
        let tables = GroupTables::of([GroupId::of_class(1, 3)]);
        let layout = Some(template.resolve(42, &tables));
        let attributes = Attributes { ino: 7, kind: 1, ..Attributes::default() };
        Attr { layout, length, ..attributes.try_into().unwrap() }
    }

    #[test]
    fn several_samples_end_when_each_has_enough_and_nothing_is_looked_for_in_no_groups() {
        let some = Wanted { groups: BTreeMap::from([(7, 0)]), ..Wanted::default() };
        let wanted = [some.clone(), Wanted::default(), some];
        let mut samples = Samples::of(&wanted);
        for nth in 0..9 {
            assert!(samples.note(0, &format!("f{nth}")).is_continue());
        }
        assert!((0..3).all(|_| samples.note(2, "g").is_continue()));
        assert!(samples.note(2, "g").is_break());
        let more =
            |found: &[Sample]| found.iter().map(|s| (s.files.len(), s.more)).collect::<Vec<_>>();
        assert_eq!(more(&samples.end(false)), [(3, true), (0, false), (3, true)]);
        assert!(Samples::of(&wanted[1..2]).are_full());
        let mut short = Samples::of(&wanted);
        let _ = short.note(2, "g");
        assert_eq!(more(&short.end(true)), [(0, false), (0, false), (1, false)]);
        assert_eq!(more(&Samples::of(&wanted).end(false)), [(0, true), (0, false), (0, true)]);
    }

    /// Mostly there is none, and each status of a cluster that lacked copies went through the tree for as long as it may.
    #[tokio::test(start_paused = true)]
    async fn files_of_which_there_may_be_none_are_looked_for_a_moment_longer_than_others() {
        let asking = |least| Wanted { groups: BTreeMap::from([(7, least)]), ..Wanted::default() };
        let wanted = [asking(0), asking(2)];
        assert!(Samples::of(&wanted[1..]).lack_only_rare());
        let mut samples = Samples::of(&wanted);
        for _ in 0..=SAMPLE_FILES {
            assert!(!samples.lack_only_rare() && samples.note(0, "f").is_continue());
        }
        assert!(samples.lack_only_rare() && !samples.are_full());
        let nearly_done = Notify::new();
        nearly_done.notify_one();
        let began = tokio::time::Instant::now();
        assert!(in_time(std::future::pending(), &nearly_done).await.is_none());
        assert!(began.elapsed() < SAMPLE_WAIT);
    }

    #[test]
    fn which_parts_of_a_target_are_meant_is_a_matter_of_its_groups() {
        let group = |id, in_sync: &[u32]| Group {
            id,
            members: vec![1, 2],
            in_sync: in_sync.to_vec(),
            ..Group::default()
        };
        let unused = Group { never_used: true, ..group(4, &[2]) };
        let groups = vec![group(1, &[1, 2]), group(2, &[1]), group(3, &[2]), unused];
        let map = ClusterMap { groups, ..ClusterMap::default() };
        let on = |parts| Wanted::on(&map, &[1], parts).groups.into_keys().collect::<Vec<_>>();
        assert_eq!(on(Parts::All), [1, 2, 3]);
        assert_eq!(on(Parts::OnlyCopies), [2]);
        assert_eq!(on(Parts::Lacking), [3]);
    }

    #[test]
    fn a_file_has_parts_where_its_chunks_are_however_long_it_is() {
        let place = |attr: &Attr, slot: usize| {
            let placement = Placement::new(attr.layout.clone().unwrap());
            has_part_in(attr, |group| group == placement.slots()[slot].0)
        };
        let slots = |attr: &Attr| (0..4).map(|slot| place(attr, slot)).collect::<Vec<_>>();
        let simple = |length| slots(&file(Distribution::SimpleStripe, length));
        assert_eq!(simple(0), [false; 4]);
        assert_eq!(simple(1), [true, false, false, false]);
        assert_eq!(simple((2 << 16) + 1), [true, true, true, false]);
        assert_eq!(simple(1 << 60), [true; 4]);
        let basic = slots(&file(Distribution::Basic, 1 << 60));
        assert_eq!(basic, [true, false, false, false]);
        let inline = Attr { inline: true, ..file(Distribution::SimpleStripe, 100) };
        assert_eq!(slots(&inline), [false; 4]);
        let other = GroupId::of_class(2, 0).0;
        let progressive = file(Distribution::Progressive, 1 << 60);
        assert!(!has_part_in(&progressive, |group| group == other));
    }

    /// A directory may ask for as many copies as its volume does not.
    #[test]
    fn of_files_in_a_group_those_that_ask_for_more_copies_are_meant() {
        let mut attr = file(Distribution::SimpleStripe, 1);
        let group = Placement::new(attr.layout.clone().unwrap()).slots()[0].0;
        let wanted = Wanted { groups: BTreeMap::from([(group, 2)]), ..Wanted::default() };
        assert!(!wanted.holds(&attr));
        attr.layout.as_mut().unwrap().safety.min_copies = 2;
        assert!(wanted.holds(&attr));
    }
}
