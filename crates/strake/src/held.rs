//! Which files have parts in some groups: all volumes are gone through, since only a file's layout says it.

use crate::cluster;
use crate::failure::{FAILED, Outcome};
use crate::output;
use crate::soundness::path_in;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use strake_client::Volume;
use strake_types::layout::Placement;
use strake_types::{Attr, ChunkIndex, Credentials, ErrorKind, FileKind, Ino, Result};
use strake_wire::map::MapView;
use strake_wire::message::jobs::Job;
use strake_wire::message::manager::{ClusterMap, Group};
use tokio::time::timeout;

/// Directories listed at once.
const WIDTH: usize = 16;
/// Entries asked for at once.
const PAGE_ENTRIES: u32 = 1024;
/// How long files are looked for where only some are to be named,
const SAMPLE_WAIT: Duration = Duration::from_secs(2);
/// and how many.
const SAMPLE_FILES: usize = 3;

/// What is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Files with a part in one of these groups,
    pub groups: BTreeSet<u32>,
    /// and made before this, in milliseconds since 1970; none: whenever.
    pub made_before_ms: Option<u64>,
}

impl Wanted {
    /// Files with a part on one of these targets; `only_copy`: and nowhere else in sync.
    pub fn on(map: &ClusterMap, targets: &[u32], only_copy: bool) -> Self {
        let on = |id: &u32| targets.contains(id);
        let is_meant = |group: &&Group| match only_copy {
            true => group.in_sync().iter().all(on),
            false => group.members.iter().any(on),
        };
        let groups = map.groups.iter().filter(|group| !group.never_used).filter(is_meant);
        Self { groups: groups.map(|group| group.id).collect(), made_before_ms: None }
    }

    /// What a job has given up, or will; none if that is nothing.
    pub fn lost_by(map: &MapView, job: &Job) -> Option<Self> {
        let map = map.current();
        let unused = |id: u32| map.groups.iter().any(|g| g.id == id && g.never_used);
        let lost = job.items.iter().filter(|item| item.lost && !unused(item.group));
        let groups: BTreeSet<u32> = lost.map(|item| item.group).collect();
        // What is made later has its parts with who took the place.
        (!groups.is_empty()).then_some(Self { groups, made_before_ms: Some(job.begun_ms) })
    }

    fn holds(&self, attr: &Attr) -> bool {
        let made_ms = u64::try_from(attr.btime.seconds).unwrap_or(0).saturating_mul(1000);
        let in_time = self.made_before_ms.is_none_or(|before| made_ms < before);
        in_time && has_part_in(attr, &self.groups)
    }
}

/// True if some byte of a file lies in one of the groups. Holes count as bytes: nobody but the groups knows them.
fn has_part_in(attr: &Attr, groups: &BTreeSet<u32>) -> bool {
    let Some(layout) = attr.layout.clone().filter(|_| attr.kind == FileKind::File) else {
        return false;
    };
    if attr.inline || attr.length == 0 {
        return false;
    }
    let placement = Placement::new(layout);
    if !placement.groups().iter().any(|group| groups.contains(&group.0)) {
        return false;
    }
    let last = placement.layout().chunk_at(attr.length - 1).0;
    (0..=last).any(|index| groups.contains(&placement.group_of(ChunkIndex(index)).0))
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
    /// Looks for a few, and not for long. What cannot be listed now is left out.
    pub async fn find(map: &Arc<MapView>, wanted: &Wanted) -> Self {
        let mut sample = Self::default();
        let note = |path: &str| {
            if sample.files.len() == SAMPLE_FILES {
                return ControlFlow::Break(());
            }
            sample.files.push(path.to_owned());
            ControlFlow::Continue(())
        };
        let whole = timeout(SAMPLE_WAIT, find(map, wanted, note)).await;
        sample.more = !matches!(whole, Ok(Ok(Looked { unread, ended: true })) if unread.is_empty());
        sample
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
    let tell = |path: &str| {
        note(path);
        ControlFlow::Continue(())
    };
    let Looked { unread, .. } = find(map, wanted, tell).await?;
    let code = if unread.is_empty() { 0 } else { FAILED };
    match json {
        true => output::json(&Listing { files, unread })?,
        false => unread.iter().for_each(|what| eprintln!("not looked at: {what}")),
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
    let Some(wanted) = Wanted::lost_by(map, job) else { return };
    let sample = Sample::find(map, &wanted).await;
    let (does, all) = match job.id {
        0 => {
            let lost = job.items.iter().filter(|item| item.lost);
            ("would give up", files_verb(&lost.map(|item| item.from).collect()))
        }
        id => ("gives up", format!("strake job files {id}")),
    };
    output::line(&format!("  ! {does} what files have in these groups: {}", sample.line(&all)));
}

#[derive(Serialize)]
struct Listing {
    files: Vec<String>,
    /// What could not be looked at, and why.
    unread: Vec<String>,
}

/// Tells of every file that is wanted, as `:/VOLUME/PATH`, in no order; a file with several names by each.
pub async fn find(
    map: &Arc<MapView>,
    wanted: &Wanted,
    mut tell: impl FnMut(&str) -> ControlFlow<()>,
) -> Outcome<Looked> {
    let mut looked = Looked::default();
    for name in cluster::volume_names(&map.current()) {
        let volume = cluster::open_volume(map.clone(), &name, "files").await?;
        let mut within = |path: &[u8]| tell(&path_in(&name, path));
        let enough = walk(&volume, wanted, &mut within, &mut looked.unread).await;
        volume.close().await?;
        if enough.is_break() {
            return Ok(looked);
        }
    }
    looked.ended = true;
    Ok(looked)
}

async fn walk(
    volume: &Arc<Volume>,
    wanted: &Wanted,
    tell: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    unread: &mut Vec<String>,
) -> ControlFlow<()> {
    let mut left = vec![(Ino::ROOT, Vec::new())];
    let (mut listing, mut seen) = (FuturesUnordered::new(), HashSet::new());
    loop {
        while listing.len() < WIDTH {
            let Some((ino, path)) = left.pop() else { break };
            // One that is moved meanwhile may be met twice.
            if seen.insert(ino) {
                listing.push(async move { (list(volume, ino).await, path) });
            }
        }
        let Some((entries, path)) = listing.next().await else { return ControlFlow::Continue(()) };
        let entries = match entries {
            Ok(entries) => entries,
            // Removed meanwhile.
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Stale) => continue,
            Err(error) => {
                unread.push(format!("{}: {error}", path_in(volume.name(), &path)));
                continue;
            }
        };
        for (name, attr) in entries {
            let path = [&path[..], b"/", &name[..]].concat();
            if attr.kind == FileKind::Directory {
                left.push((attr.ino, path));
            } else if wanted.holds(&attr) {
                tell(&path)?;
            }
        }
    }
}

/// The entries of a directory.
async fn list(volume: &Arc<Volume>, ino: Ino) -> Result<Vec<(Bytes, Attr)>> {
    let (root, mut entries, mut after) = (Credentials::root(), Vec::new(), 0);
    loop {
        let page = volume.readdir(&root, ino, after, PAGE_ENTRIES, true).await?;
        let Some(last) = page.entries.last() else { return Ok(entries) };
        after = last.cookie;
        for entry in page.entries {
            let attr = match entry.attr {
                Some(attr) => attr,
                None => volume.lookup(&root, ino, entry.name.clone()).await?,
            };
            entries.push((entry.name, attr));
        }
        if page.end {
            return Ok(entries);
        }
    }
}
