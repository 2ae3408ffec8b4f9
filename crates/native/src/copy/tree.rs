//! Walking through what is to be copied, and the workers that copy it.

use super::links::Links;
use super::partial::partial_name;
use super::{Job, Task, into_itself, onto_itself};
use crate::info::Info;
use crate::place::{Directory, Name};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_base::task::spawn_owned;
use strake_types::{Error, ErrorKind, FileKind, Result};

/// Copies everything. Directories are made as they are found, files by workers; further names of files
/// come when all are there, attributes of directories last and from the deepest up, because filling one
/// changes its times.
pub(super) async fn copy_all(job: &Arc<Job>, tasks: Vec<Task>) -> Result<()> {
    tasks.iter().for_each(|task| job.found(task));
    // All that is named goes into one directory.
    let top = tasks.first().map(|task| task.to.directory.clone());
    let mut left = tasks;
    let mut directories = Vec::new();
    let mut links = Links::default();
    let mut working = FuturesUnordered::new();
    while !job.is_stopped()
        && let Some(task) = left.pop()
    {
        if task.info.kind == FileKind::Directory {
            left.extend(job.enter(&task).await?);
            directories.push(task);
        } else if !links.take(job, &task) {
            let job = job.clone();
            working.push(spawn_owned(async move { job.copy_one(&task).await }));
        }
        if working.len() >= job.options.streams.max(1) {
            job.finished(working.next().await)?;
        }
    }
    job.counters.complete.store(true, Ordering::Relaxed);
    while let Some(done) = working.next().await {
        job.finished(Some(done))?;
    }
    job.go_on()?;
    links.make(job).await?;
    job.remove_stale().await;
    for task in directories.iter().rev() {
        job.go_on()?;
        job.finish_attributes(task, &task.to, None).await?;
        job.counters.entries_done.fetch_add(1, Ordering::Relaxed);
    }
    match top {
        Some(top) if job.options.sync => sync_names(&top, &directories).await,
        _ => Ok(()),
    }
}

/// Makes durable what the files have not: names, directories, and in a volume attributes. A sync of one
/// journal there is all that it takes; here it is one of each directory.
async fn sync_names(top: &Directory, directories: &[Task]) -> Result<()> {
    top.sync().await?;
    if let Directory::Local(_) = top {
        for task in directories {
            task.to.enter().await?.sync().await?;
        }
    }
    Ok(())
}

type Joined = Result<Result<()>, tokio::task::JoinError>;

impl Job {
    /// Passes on what became of a file. One that was stopped is no failure yet: the others under way are to end in order, too.
    fn finished(&self, done: Option<Joined>) -> Result<()> {
        match done {
            Some(Ok(Err(error))) if self.is_stopped() && error.kind == ErrorKind::Interrupted => {
                Ok(())
            }
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::with(ErrorKind::Io, "copying a file panicked")),
            None => Ok(()),
        }
    }

    fn found(&self, task: &Task) {
        self.counters.entries_total.fetch_add(1, Ordering::Relaxed);
        if task.info.kind == FileKind::File {
            self.counters.bytes_total.fetch_add(task.info.length, Ordering::Relaxed);
        }
    }

    /// Makes the copy of a directory; what is to be copied into it.
    async fn enter(&self, task: &Task) -> Result<Vec<Task>> {
        let from = task.from.enter().await?;
        if self.targets.lock().contains(&self.mounts.identity(&task.from.directory, &task.info)) {
            return Err(into_itself(&task.from.shown()));
        }
        if task.to.info().await?.is_some_and(|there| there.kind == FileKind::Symlink) {
            // What it leads to is none of the copy, and would get the owner and the mode of the source.
            return Err(task.to.about(ErrorKind::NotDirectory.into()));
        }
        // Its owner must be able to fill it, whatever its mode will be.
        let to = task.to.make_directory(task.info.mode & 0o777 | 0o700).await?;
        if task.named {
            let target = self.mounts.identity_of(&to).await?;
            self.targets.lock().insert(target);
        }
        let entries = from.list().await.map_err(|error| task.from.about(error))?;
        let tasks = entries.into_iter().map(|(name, info)| {
            let to = to.name(name.name.clone());
            Task { from: name, info, to, named: false }
        });
        let tasks: Vec<_> = tasks.collect();
        tasks.iter().for_each(|task| self.found(task));
        Ok(tasks)
    }

    async fn copy_one(self: &Arc<Self>, task: &Task) -> Result<()> {
        self.go_on()?;
        match task.info.kind {
            FileKind::File => self.copy_file(task).await?,
            FileKind::Directory => {}
            // What a link leads to was named. In a tree there is nothing to be read from such files.
            FileKind::Symlink => self.copy_other(task).await?,
            _ if task.named && !self.options.recursive => self.copy_stream(task).await?,
            _ => self.copy_other(task).await?,
        }
        self.counters.entries_done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a link, a pipe, a socket's name or a device like that of the source.
    async fn copy_other(&self, task: &Task) -> Result<()> {
        match make_like(task, &task.to).await {
            Err(error) if error.kind == ErrorKind::Exists => self.replace(task).await?,
            made => made?,
        }
        match self.options.preserve {
            true => self.finish_attributes(task, &task.to, None).await,
            false => Ok(()),
        }
    }

    /// The same where something has that name. It goes when the new one is there.
    async fn replace(&self, task: &Task) -> Result<()> {
        // Not what it leads to: the link itself is replaced.
        let same = |there: &Info| {
            let from = self.mounts.identity(&task.from.directory, &task.info);
            self.mounts.identity(&task.to.directory, there) == from
        };
        if task.to.info().await?.as_ref().is_some_and(same) {
            return Err(onto_itself(&task.to));
        }
        let fresh = task.to.directory.name(partial_name(&task.to.name, &task.info));
        match make_like(task, &fresh).await {
            // Of a copy that was interrupted.
            Err(error) if error.kind == ErrorKind::Exists => {
                fresh.remove(false).await?;
                make_like(task, &fresh).await?;
            }
            made => made?,
        }
        let placed = fresh.rename(&task.to.name).await;
        if placed.is_err() {
            // The first error is the one to be told.
            let _left = fresh.remove(false).await;
        }
        placed
    }
}

async fn make_like(task: &Task, name: &Name) -> Result<()> {
    match task.info.kind {
        FileKind::Symlink => name.make_link(task.from.read_link().await?).await,
        _ => name.make_node(&task.info).await,
    }
}
