//! Files of several names: one copy, and as many names for it.

use super::like::Like;
use super::{Job, Task};
use crate::info::Info;
use crate::mounts::Identity;
use crate::place::Name;
use futures::StreamExt;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_types::{ErrorKind, FileKind, Result};

/// The files that have several names: of no others is anything remembered.
#[derive(Default)]
pub(super) struct Links(HashMap<Identity, Names>);

struct Names {
    /// The one that is copied.
    first: Name,
    /// Further ones, which the copy is to get.
    further: Vec<Task>,
}

impl Links {
    /// True for a further name of a file that is being copied: it is made when all files are there.
    pub fn take(&mut self, job: &Job, task: &Task) -> bool {
        let Some(identity) = job.shared_identity(task) else { return false };
        match self.0.entry(identity) {
            Entry::Vacant(new) => {
                new.insert(Names { first: task.to.clone(), further: Vec::new() });
                return false;
            }
            Entry::Occupied(mut names) => names.get_mut().further.push(task.clone()),
        }
        if task.info.kind == FileKind::File {
            job.counters.bytes_total.fetch_sub(task.info.length, Ordering::Relaxed);
        }
        true
    }

    /// The further names of a file whose first one was not copied: another one is to be the first. What has the name of that
    /// copy, if anything, is an older one.
    pub fn give_back(&mut self, job: &Job, task: &Task) -> Vec<Task> {
        let names = job.shared_identity(task).and_then(|identity| self.0.remove(&identity));
        let further = names.map(|names| names.further).unwrap_or_default();
        for file in further.iter().filter(|task| task.info.kind == FileKind::File) {
            job.counters.bytes_total.fetch_add(file.info.length, Ordering::Relaxed);
        }
        further
    }

    /// Makes the further names.
    pub async fn make(self, job: &Arc<Job>) -> Result<()> {
        let making = self.0.into_values().flat_map(move |Names { first, further }| {
            further.into_iter().map(move |task| job.clone().linked(task, first.clone()))
        });
        let mut making = futures::stream::iter(making).buffer_unordered(job.options.streams.max(1));
        while let Some(made) = making.next().await {
            if let Err(error) = made {
                job.failed(error)?;
            }
        }
        Ok(())
    }
}

impl Job {
    /// Which file it is, if its copy may get several names.
    fn shared_identity(&self, task: &Task) -> Option<Identity> {
        let counts = task.info.nlink > 1 && task.info.kind != FileKind::Directory;
        let is_shared = self.options.archive && counts;
        is_shared.then(|| self.mounts.identity(&task.from.directory, &task.info))
    }

    async fn linked(self: Arc<Self>, task: Task, first: Name) -> Result<()> {
        self.link(&task, &first).await
    }

    async fn link(&self, task: &Task, first: &Name) -> Result<()> {
        self.go_on()?;
        let Some(info) = first.info().await? else {
            return Err(first.about(ErrorKind::NotFound.into()));
        };
        let identity = |name: &Name, info: &Info| self.mounts.identity(&name.directory, info);
        let there = task.to.info().await?;
        let same = there.map(|there| identity(&task.to, &there) == identity(first, &info));
        if same != Some(true) {
            self.make(task, &Like::Same(first.clone(), info)).await?;
        }
        self.counters.entries_done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
