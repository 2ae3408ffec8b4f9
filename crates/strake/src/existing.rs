//! Another number of copies for the files below a directory that are there: a job of the manager that
//! metadata servers carry out.

use crate::cluster;
use crate::failure::{Context, Outcome};
use crate::jobs::{self, state_word};
use crate::place::{Found, Place};
use crate::plan_flags::{follow_to_its_end, tell_begun};
use crate::recopy_view::RecopyView;
use crate::soundness::path_in;
use crate::{output, size};
use clap::Args;
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;
use strake_client::{Entry, Volume};
use strake_types::{Attr, FileKind, Ino, Result};
use strake_wire::message::jobs::{Job, JobKind, Plan};
use strake_wire::message::recopies::RecopyWish;

/// Entries of a directory read at once.
const PAGE: u32 = 1024;

/// Flags about files that are there already.
#[derive(Args, Debug)]
pub struct ExistingFlags {
    /// Give the files that are there, below the directory too, so many copies as well, while they are in use
    ///
    /// The work is a job of the cluster, which goes on when this command is stopped (Ctrl-C), and when servers restart:
    /// strake job list, show, watch, pause, resume, throttle and cancel are for it. Files are copied one by one. One that
    /// is open, or was changed meanwhile, is tried again and named; after an hour in which none got ready the job ends.
    /// Exit code: 0 all have so many copies; 1 some are as they were; 130 after Ctrl-C.
    #[arg(long, requires = "copies", conflicts_with_all = ["chunk_size", "stripe_width", "distribution", "ack", "min_copies", "consistency", "targets", "clear"])]
    pub existing: bool,

    /// Only say how many files and bytes would be copied
    #[arg(long, requires = "existing", conflicts_with_all = ["throttle", "no_wait"])]
    dry_run: bool,

    /// Copy at most so much in a second, as 50M; 0: no limit (may be changed: strake job throttle)
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "existing")]
    throttle: Option<u64>,

    /// Begin, and do not wait for the end
    #[arg(long, requires = "existing")]
    no_wait: bool,

    /// Print JSON
    #[arg(long, requires = "existing")]
    json: bool,
}

/// What was done, as `--json` prints it.
#[derive(Serialize)]
struct Report {
    job: u64,
    state: &'static str,
    reason: String,
    #[serde(flatten)]
    done: Option<RecopyView>,
}

/// What would be done, as `--json` prints it.
#[derive(Default, Serialize)]
struct Count {
    /// Files that have another number of copies.
    files: u64,
    /// Their lengths added up.
    bytes: u64,
}

/// Does it for a file, or everything below a directory; the exit code.
pub async fn run(
    Found { place, attr }: Found,
    path: &str,
    copies: u32,
    flags: &ExistingFlags,
) -> Outcome<u8> {
    let volume = &place.volume;
    // Whoever may not do it is not told how much it would be: it would end where he may not read.
    let name = name_of(&place, attr.ino, path).await;
    if flags.dry_run && name.is_ok() {
        let count = count(&place, &attr, copies).await.context(|| path.into());
        cluster::leave_volume(volume).await;
        show_count(&count?, copies, flags.json)?;
        return Ok(0);
    }
    cluster::leave_volume(volume).await;
    let wish = RecopyWish { volume: volume.id().0, ino: attr.ino.0, copies, path: name? };
    let map = volume.map().clone();
    let (kind, rate) = (JobKind::Recopy as u32, flags.throttle);
    let job = jobs::plan(&map, Plan { kind, recopy: Some(wish), rate, ..Plan::default() }).await?;
    if flags.no_wait {
        match flags.json {
            true => output::json(&report(&job))?,
            false => tell_begun(job.id, &job.about),
        }
        return Ok(0);
    }
    follow_to_its_end(&map, job.id, async |job: &Job| show(job, flags.json)).await
}

fn report(job: &Job) -> Report {
    let done = job.recopy.as_ref().map(RecopyView::new);
    Report { job: job.id, state: state_word(job.state), reason: job.reason.clone(), done }
}

fn show(job: &Job, json: bool) -> Outcome {
    let report = report(job);
    if json {
        return output::json(&report);
    }
    let Some(done) = &report.done else { return Ok(()) };
    done.lines().iter().for_each(|line| output::line(line));
    let (id, about, state) = (job.id, &job.about, report.state);
    output::line(&format!("job {id} ({about}) is {state}: {}", done.progress(0, None)));
    if !report.reason.is_empty() {
        output::line(&format!("  ! {}", report.reason));
    }
    Ok(())
}

/// What a file or directory is called whichever way it was given. Only who may change files of everybody is told.
async fn name_of(place: &Place, ino: Ino, path: &str) -> Outcome<String> {
    let paths = place.describe(ino, path).await?.paths;
    Ok(path_in(place.volume.name(), paths.first().map(|name| &name[..]).unwrap_or_default()))
}

fn show_count(count: &Count, copies: u32, json: bool) -> Outcome {
    if json {
        return output::json(count);
    }
    let files = output::count(count.files, "file", "files");
    let copies = output::count(copies.into(), "copy", "copies");
    output::line(&format!("{files} ({}) would get {copies}", size::show(count.bytes)));
    Ok(())
}

/// Counts what has another number of copies.
async fn count(place: &Place, attr: &Attr, copies: u32) -> Result<Count> {
    let Place { volume, cred, .. } = place;
    let mut count = Count::default();
    // Files of several names that were met already.
    let mut seen = HashSet::new();
    let mut meet = |attr: &Attr| {
        let other = attr.layout.as_ref().is_some_and(|layout| layout.copies() != copies);
        if other && (attr.nlink <= 1 || seen.insert(attr.ino)) {
            count.files += 1;
            count.bytes += attr.length;
        }
    };
    let mut directories = match attr.kind {
        FileKind::Directory => vec![attr.ino],
        _ => {
            meet(attr);
            Vec::new()
        }
    };
    while let Some(dir) = directories.pop() {
        let (mut after, mut end) = (0, false);
        while !end {
            let page = match volume.readdir(cred, dir, after, PAGE, true).await {
                Ok(page) => page,
                Err(error) if error.kind.is_gone() => break,
                Err(error) => return Err(error),
            };
            end = page.end;
            for entry in page.entries {
                after = entry.cookie;
                match entry.kind {
                    FileKind::Directory => directories.push(entry.ino),
                    FileKind::File => attr_of(volume, entry).await?.iter().for_each(&mut meet),
                    _ => {}
                }
            }
        }
    }
    Ok(count)
}

/// The attributes of an entry, unless it is gone.
async fn attr_of(volume: &Arc<Volume>, entry: Entry) -> Result<Option<Attr>> {
    match entry.attr {
        Some(attr) => Ok(Some(attr)),
        None => match volume.getattr(entry.ino).await {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.kind.is_gone() => Ok(None),
            Err(error) => Err(error),
        },
    }
}
