//! Copying files and trees between this machine and volumes, with many streams.
//!
//! A walk finds what is to be copied and makes the directories; a number of workers copy files, each
//! large one in blocks of which several are under way at once. A large file is written under a name
//! of its own and renamed when it is whole, so that a copy that was interrupted is continued where it
//! was and never taken for a whole one. What cannot be copied is noted, and the others go on. Who asks a copy to stop gets
//! what is under way finished and closed, and loses none of it.

mod attributes;
mod file;
mod growing;
mod like;
mod links;
mod losses;
mod partial;
mod progress;
mod stale;
mod stream;
mod tree;

pub use progress::{Incomplete, NotKept, Progress, Summary};

use crate::clients::{Clients, Spot};
use crate::contents::Pool;
use crate::failures::Failures;
use crate::info::Info;
use crate::location::Location;
use crate::mounts::{Identity, Mounts};
use crate::place::{Directory, Name};
use parking_lot::Mutex;
use progress::Counters;
use stale::Placed;
use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use strake_types::{Error, ErrorKind, FileKind, Result};
use tokio::sync::{Semaphore, watch};

/// Files copied at once, where nothing else is said.
pub const STREAMS_DEFAULT: usize = 16;
/// Length of a block, where nothing else is said.
pub const BLOCK_BYTES_DEFAULT: usize = 4 << 20;
/// Bytes under way in all, where nothing else is said.
pub const WINDOW_BYTES_DEFAULT: usize = 128 << 20;

/// How to copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Keep mode, owner (as far as allowed) and times.
    pub preserve: bool,
    /// Copy trees as they are: `recursive` and `preserve`, and also hard links among what is copied, extended attributes
    /// and ACLs; a symbolic link that is named is copied itself. What cannot be kept is in [`Summary::not_kept`], or in
    /// [`Incomplete::not_kept`].
    pub archive: bool,
    /// Leave files alone that are there already with the same length and time of change, and go on
    /// with partial ones. Implies that times are kept.
    pub resume: bool,
    /// Do not copy holes.
    pub sparse: bool,
    /// Return only when everything is on disk: contents, names, attributes and directories.
    pub sync: bool,
    /// Files copied at once.
    pub streams: usize,
    /// Length of a block of a large file.
    pub block_bytes: usize,
    /// Bytes under way in all.
    pub window_bytes: usize,
    /// Becomes true when the copy is to end early, with [`ErrorKind::Interrupted`]: no large file's block is begun any more, and
    /// those under way are finished. The next copy goes on where this one ended.
    pub stop: Option<watch::Receiver<bool>>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            preserve: false,
            archive: false,
            resume: true,
            sparse: true,
            sync: false,
            streams: STREAMS_DEFAULT,
            block_bytes: BLOCK_BYTES_DEFAULT,
            window_bytes: WINDOW_BYTES_DEFAULT,
            stop: None,
        }
    }
}

/// What all workers of one copy share.
pub(crate) struct Job {
    options: CopyOptions,
    counters: Counters,
    pool: Arc<Pool>,
    /// Room for blocks under way, in KiB.
    room: Arc<Semaphore>,
    mounts: Mounts,
    /// The directories that were named become these: who finds one of them in what is copied copies the copy.
    targets: Mutex<HashSet<Identity>>,
    not_kept: Mutex<NotKept>,
    failures: Mutex<Failures>,
    /// Something is not copied because the copy was to end early.
    is_cut: AtomicBool,
    placed: Mutex<Placed>,
    /// Who copies: root may give files away.
    uid: u32,
}

/// One thing to be copied.
#[derive(Clone)]
struct Task {
    from: Name,
    info: Info,
    to: Name,
    /// It was named, and not found in something that was.
    named: bool,
}

/// A directory that was made, or found, where a copy of another one goes.
struct Entered {
    task: Task,
    /// Which one it is, whatever has its name later.
    identity: Identity,
}

/// Copies `sources` into the directory `target`, or the only source to `target` itself. Where an entry cannot be copied the
/// others go on, but for what they would meet as well; what is gone from a tree since it was listed is counted. `progress` is
/// called a few times a second and once at the end. What a volume has lost meanwhile is gathered once for all who have it open:
/// of two copies into it at the same time, with the same [`Clients`], only one hears of it.
pub async fn copy(
    clients: &Clients,
    sources: &[Location],
    target: &Location,
    options: &CopyOptions,
    progress: impl Fn(&Progress) + Send + Sync,
) -> Result<Summary, Incomplete> {
    let mut options = options.clone();
    options.recursive |= options.archive;
    options.preserve |= options.archive;
    let planning = plan(clients, sources, target, &options);
    let tasks = unless_stopped(options.stop.clone(), planning).await?;
    let job = Job::new(options, clients.mounts(), clients.cred().uid);
    // All goes into one directory.
    let into = tasks.first().and_then(|task| match &task.to.directory {
        Directory::Local(_) => None,
        Directory::Remote(remote) => Some(remote.volume.clone()),
    });
    let unsent = || into.as_ref().map_or(0, |volume| volume.unsent_bytes() as u64);
    let copying = tree::copy_all(&job, tasks);
    let result = progress::report(&job.counters, unsent, copying, &progress).await;
    progress(&job.counters.now());
    let not_kept = std::mem::take(&mut *job.not_kept.lock());
    let mut failures = std::mem::take(&mut *job.failures.lock());
    let summary = Summary { not_kept, ..job.counters.summary() };
    match result.err().or_else(|| failures.take_first()) {
        None => Ok(summary),
        Some(error) => {
            let Summary { gone, not_kept, .. } = summary;
            Err(Incomplete { error, failures, gone, not_kept })
        }
    }
}

impl Job {
    fn new(options: CopyOptions, mounts: Mounts, uid: u32) -> Arc<Self> {
        Arc::new(Self {
            counters: Counters::default(),
            pool: Arc::default(),
            room: Arc::new(Semaphore::new((options.window_bytes >> 10).max(1 << 10))),
            mounts,
            targets: Mutex::default(),
            not_kept: Mutex::default(),
            failures: Mutex::default(),
            is_cut: AtomicBool::default(),
            placed: Mutex::default(),
            uid,
            options,
        })
    }

    /// True if the copy is to end early.
    fn is_stopped(&self) -> bool {
        self.options.stop.as_ref().is_some_and(|stop| *stop.borrow())
    }

    /// An error if the copy is to end early.
    fn go_on(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }
}

/// The result of what may wait for long and leaves nothing half done, unless the copy is to end before.
async fn unless_stopped<T>(
    stop: Option<watch::Receiver<bool>>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        done = work => done,
        () = stopped(stop) => Err(ErrorKind::Interrupted.into()),
    }
}

/// Returns when the copy is to end early.
async fn stopped(stop: Option<watch::Receiver<bool>>) {
    let Some(mut stop) = stop else { return pending().await };
    let nobody_asks = stop.wait_for(|stop| *stop).await.is_err();
    if nobody_asks {
        pending::<()>().await;
    }
}

/// What is copied where, before anything is changed.
async fn plan(
    clients: &Clients,
    sources: &[Location],
    target: &Location,
    options: &CopyOptions,
) -> Result<Vec<Task>> {
    let to = clients.find(target).await?;
    let into = match &to.info {
        Some(info) if info.kind == FileKind::Directory => Some(to.name.enter().await?),
        _ => None,
    };
    if sources.len() != 1 && into.is_none() {
        let detail = format!("{target}, where {} sources are to go", sources.len());
        return Err(Error::with(ErrorKind::NotDirectory, detail));
    }
    let mounts = clients.mounts();
    let mut tasks = Vec::with_capacity(sources.len());
    let mut names = HashSet::new();
    for source in sources {
        let (spot, info) = named(clients, source, options).await?;
        if info.kind == FileKind::Directory && !options.recursive {
            let detail = format!("{source}: give -r to copy a directory with all that is in it");
            return Err(Error::with(ErrorKind::IsDirectory, detail));
        }
        let ends_with_slash = into.is_none() && target.to_string().ends_with('/');
        if ends_with_slash && (to.info.is_some() || info.kind != FileKind::Directory) {
            return Err(Error::with(ErrorKind::NotDirectory, target.to_string()));
        }
        let Spot { name, base, info: led_to } = spot;
        let to = match &into {
            Some(directory) => directory.name(base),
            None => to.name.clone(),
        };
        if info.kind == FileKind::Symlink
            && let (Some(led_to), Some(there)) = (&led_to, to.info().await?)
            && mounts.are_same((&to, &there), (&name, led_to)).await?
        {
            return Err(onto_itself(&to));
        }
        if !names.insert(to.name.clone()) {
            let detail =
                format!("{source} has the name of another source, and both would become one");
            return Err(Error::with(ErrorKind::Invalid, detail));
        }
        if info.kind == FileKind::Directory && ends_in(&mounts, &name, &to).await? {
            return Err(into_itself(&source.to_string()));
        }
        tasks.push(Task { from: name, info, to, named: true });
    }
    Ok(tasks)
}

/// What a source is: with `archive` a link itself, unless it is named as a directory, else what it leads to.
async fn named(
    clients: &Clients,
    source: &Location,
    options: &CopyOptions,
) -> Result<(Spot, Info)> {
    if !options.archive || source.to_string().ends_with('/') {
        return clients.existing(source).await;
    }
    let spot = clients.find_itself(source).await?;
    match spot.info.clone() {
        Some(info) => Ok((spot, info)),
        None => Err(Error::with(ErrorKind::NotFound, source.to_string())),
    }
}

/// True if a copy of the directory `from` to `to` would come to lie in `from`: it would find itself
/// there, and never end.
async fn ends_in(mounts: &Mounts, from: &Name, to: &Name) -> Result<bool> {
    let directory = match to.info().await? {
        Some(info) if info.kind == FileKind::Directory => to.enter().await?,
        _ => to.directory.clone(),
    };
    mounts.is_within(&directory, &from.enter().await?).await
}

fn onto_itself(name: &Name) -> Error {
    let detail = format!("{} would be copied onto itself; nothing was changed", name.shown());
    Error::with(ErrorKind::Invalid, detail)
}

fn into_itself(shown: &str) -> Error {
    let detail =
        format!("{shown} would be copied into itself; choose a target that does not lie in it");
    Error::with(ErrorKind::Invalid, detail)
}

#[cfg(test)]
mod tests;
