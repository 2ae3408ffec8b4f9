//! Walking through what is to be copied, and the workers that copy it.

use super::attributes::Copied;
use super::like::Like;
use super::links::Links;
use super::{Entered, Job, Task, into_itself};
use crate::mounts::Identity;
use crate::place::{Directory, Listing};
use crate::tree::listed;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_base::task::spawn_owned;
use strake_types::{Error, ErrorKind, FileKind, Ino, Result};

/// Copies everything. Directories are made as they are found, files by workers; further names of files
/// come when all are there, attributes of directories last and from the deepest up, because filling one
/// changes its times.
pub(super) async fn copy_all(job: &Arc<Job>, tasks: Vec<Task>) -> Result<()> {
    tasks.iter().for_each(|task| job.found(task));
    // All that is named goes into one directory.
    let top = tasks.first().map(|task| task.to.directory.clone());
    let named: Vec<_> = tasks.iter().map(|task| task.to.clone()).collect();
    let mut directories = Vec::new();
    job.gather_lost(top.as_ref());
    let copied = copy_tasks(job, tasks, top.as_ref(), &mut directories).await;
    // Also where something has ended it: the next copy relies on what there is.
    let settled = job.settle(top.as_ref(), &named, &directories).await;
    copied.and(settled)
}

async fn copy_tasks(
    job: &Arc<Job>,
    tasks: Vec<Task>,
    top: Option<&Directory>,
    directories: &mut Vec<Entered>,
) -> Result<()> {
    let is_directory = |task: &&Task| task.named && task.info.kind == FileKind::Directory;
    let named: Vec<_> = tasks.iter().filter(is_directory).cloned().collect();
    let links = copy_found(job, tasks, directories).await?;
    job.check_uncut()?;
    links.make(job).await?;
    job.check_uncut()?;
    job.remove_stale().await;
    job.finish_directories(directories).await?;
    if let Some(top) = top.filter(|_| job.options.sync) {
        job.sync_names(top, directories).await?;
    }
    job.check_named(&named).await
}

/// Makes the directories, which come to those `made`, each before those in it, and copies the files: the names that files are
/// still to get.
async fn copy_found(job: &Arc<Job>, mut left: Vec<Task>, made: &mut Vec<Entered>) -> Result<Links> {
    let mut links = Links::default();
    let mut working = FuturesUnordered::new();
    // What ends all lets those under way come to their end: half a copy of each would stay.
    let mut ended: Option<Error> = None;
    loop {
        while working.len() < job.options.streams.max(1)
            && !(job.is_stopped() || ended.is_some())
            && let Some(task) = left.pop()
        {
            if task.info.kind == FileKind::Directory {
                match job.enter(&task).await {
                    Ok(Some((identity, tasks))) => {
                        left.extend(tasks);
                        made.push(Entered { task, identity });
                    }
                    Ok(None) => {}
                    Err(error) => ended = job.failed(error).err(),
                }
            } else if !links.take(job, &task) {
                working.push(spawn_owned(job.clone().copied(task)));
            }
        }
        job.counters.complete.store(left.is_empty(), Ordering::Relaxed);
        let (task, copied) = match working.next().await {
            None if ended.is_none() && !left.is_empty() => {
                return Err(ErrorKind::Interrupted.into());
            }
            None => return ended.map_or(Ok(links), Err),
            Some(Ok(done)) => done,
            Some(Err(_)) => return Err(Error::with(ErrorKind::Io, "copying a file panicked")),
        };
        match copied {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => match (job.failed(error), &ended) {
                (Ok(()), _) => {}
                (Err(error), None) => ended = Some(error),
                (Err(error), Some(_)) => job.failures.lock().push(error),
            },
        }
        left.extend(links.give_back(job, &task));
    }
}

impl Job {
    /// Notes that an entry could not be copied, and the others go on; what they would meet as well is passed on. One that was
    /// stopped is no failure: the others under way are to end in order, too.
    pub(super) fn failed(&self, error: Error) -> Result<()> {
        match self.is_stopped() && error.kind == ErrorKind::Interrupted {
            true => {
                self.is_cut.store(true, Ordering::Relaxed);
                Ok(())
            }
            false => self.failures.lock().note(error),
        }
    }

    /// An error if anything is not copied because the copy was to end early: what was under way may have been all.
    fn check_uncut(&self) -> Result<()> {
        match self.is_cut.load(Ordering::Relaxed) {
            true => Err(ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }

    /// Counts an entry that is gone from a tree that was named, and is false, if that is why it cannot be read. To be asked only
    /// before anything is made of it: of what is gone then there is half a copy.
    pub(super) async fn pass_over(&self, task: &Task, error: Error) -> Result<bool> {
        let may_be_gone = !task.named && error.kind.is_gone();
        if !may_be_gone || !matches!(task.from.info().await, Ok(None)) {
            return Err(error);
        }
        if task.info.kind == FileKind::Directory
            && let Directory::Remote(r) = &task.from.directory
            && r.volume.getattr(Ino(task.info.ino)).await.is_ok_and(|attr| attr.nlink > 0)
        {
            let detail = "it was given another name while the tree was copied";
            return Err(task.from.about(Error::with(ErrorKind::Stale, detail)));
        }
        self.counters.entries_gone.fetch_add(1, Ordering::Relaxed);
        Ok(false)
    }

    /// Where entries were gone, what was named is to be there still: else all of a tree was moved away, or its file system was.
    pub(super) async fn check_named(&self, directories: &[Task]) -> Result<()> {
        if self.counters.entries_gone.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        for task in directories {
            match self.is_there_still(task).await {
                Ok(true) => {}
                Ok(false) => {
                    let detail = "another directory has taken its place while it was copied";
                    self.failed(task.from.about(Error::with(ErrorKind::Stale, detail)))?;
                }
                Err(error) => self.failed(error)?,
            }
        }
        Ok(())
    }

    /// True if the name of a directory is that of the same one.
    async fn is_there_still(&self, task: &Task) -> Result<bool> {
        let now = self.mounts.identity_of(&task.from.enter().await?).await;
        let now = now.map_err(|error| task.from.about(error))?;
        Ok(now == self.mounts.identity(&task.from.directory, &task.info))
    }

    /// Gives directories the attributes that are asked for.
    async fn finish_directories(&self, directories: &[Entered]) -> Result<()> {
        for Entered { task, identity } in directories.iter().rev() {
            if self.is_stopped() {
                let detail =
                    "all files are copied, and not all directories have their modes and times yet";
                return Err(Error::with(ErrorKind::Interrupted, detail));
            }
            match self.finish_attributes(task, &task.to, Copied::Made(Some(identity))).await {
                Ok(()) => {
                    self.counters.entries_done.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.failed(error)?,
            }
        }
        Ok(())
    }

    /// Makes durable what the files have not: names, directories, and in a volume attributes. A sync of one
    /// journal there is all that it takes; here it is one of each directory.
    async fn sync_names(&self, top: &Directory, directories: &[Entered]) -> Result<()> {
        top.sync().await?;
        if let Directory::Local(_) = top {
            for Entered { task, .. } in directories {
                let directory = task.to.enter_made().await?;
                if let Err(error) = directory.sync().await {
                    self.failed(error)?;
                }
            }
        }
        Ok(())
    }

    fn found(&self, task: &Task) {
        self.counters.entries_total.fetch_add(1, Ordering::Relaxed);
        self.note_alike(&task.to);
        if task.info.kind == FileKind::File {
            self.counters.bytes_total.fetch_add(task.info.length, Ordering::Relaxed);
        }
    }

    /// Makes the copy of a directory, or finds it; which one it is, and what is to be copied into it. None: it is passed over.
    async fn enter(&self, task: &Task) -> Result<Option<(Identity, Vec<Task>)>> {
        if self.targets.lock().contains(&self.mounts.identity(&task.from.directory, &task.info)) {
            return Err(into_itself(&task.from.shown()));
        }
        if task.to.info().await?.is_some_and(|there| there.kind != FileKind::Directory) {
            // What a link leads to is none of the copy, and would, as a file would, get the owner and the mode of the source.
            return Err(task.to.about(ErrorKind::NotDirectory.into()));
        }
        // Of what cannot be read nothing is made.
        let Listing { entries, failed } = match listed(&task.from).await {
            Ok(listing) => listing,
            Err(error) => return self.pass_over(task, error).await.map(|_| None),
        };
        // Its owner must be able to fill it, whatever its mode will be.
        let to = task.to.make_directory(task.info.mode & 0o777 | 0o700).await?;
        let identity = self.mounts.identity_of(&to).await.map_err(|error| task.to.about(error))?;
        if task.named {
            self.targets.lock().insert(identity.clone());
        }
        // One entry's, whatever its kind: the others could be looked at.
        failed.into_iter().for_each(|error| self.failures.lock().push(error));
        let tasks = entries.into_iter().map(|(name, info)| {
            let to = to.name(name.name.clone());
            Task { from: name, info, to, named: false }
        });
        let tasks: Vec<_> = tasks.collect();
        tasks.iter().for_each(|task| self.found(task));
        Ok(Some((identity, tasks)))
    }

    /// Copies what is no directory, and says of what that is the result. False: it is passed over.
    async fn copied(self: Arc<Self>, task: Task) -> (Task, Result<bool>) {
        let copied = self.copy_one(&task).await;
        (task, copied)
    }

    async fn copy_one(self: &Arc<Self>, task: &Task) -> Result<bool> {
        self.go_on()?;
        let copied = match task.info.kind {
            FileKind::File => self.copy_file(task).await?,
            // What a link leads to was named. In a tree there is nothing to be read from other files.
            FileKind::Symlink => match task.from.read_link().await {
                Ok(target) => self.copy_other(task, &Like::Link(target)).await?,
                Err(error) => self.pass_over(task, error).await?,
            },
            _ if task.named && !self.options.recursive => self.copy_stream(task).await?,
            _ => self.copy_other(task, &Like::Node).await?,
        };
        if copied {
            self.counters.entries_done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(copied)
    }

    /// Makes a link, a pipe, a socket's name or a device like that of the source.
    async fn copy_other(&self, task: &Task, like: &Like) -> Result<bool> {
        self.make(task, like).await?;
        if self.options.preserve {
            self.finish_attributes(task, &task.to, Copied::Made(None)).await?;
        }
        Ok(true)
    }
}
