//! Files of several names: one copy, and as many names for it.

use super::{Job, Task, onto_itself};
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
pub(super) struct Links {
    /// The name that the copy of each gets.
    first: HashMap<Identity, Name>,
    /// Further names, each with the first.
    further: Vec<(Task, Name)>,
}

impl Links {
    /// True for a further name of a file that is being copied: it is made when all files are there.
    pub fn take(&mut self, job: &Job, task: &Task) -> bool {
        let counts = task.info.nlink > 1 && task.info.kind != FileKind::Directory;
        if !job.options.archive || !counts {
            return false;
        }
        match self.first.entry(job.mounts.identity(&task.from.directory, &task.info)) {
            Entry::Vacant(new) => {
                new.insert(task.to.clone());
                return false;
            }
            Entry::Occupied(first) => self.further.push((task.clone(), first.get().clone())),
        }
        if task.info.kind == FileKind::File {
            job.counters.bytes_total.fetch_sub(task.info.length, Ordering::Relaxed);
        }
        true
    }

    /// Makes the further names.
    pub async fn make(self, job: &Arc<Job>) -> Result<()> {
        let making = self.further.into_iter().map(|(task, first)| job.clone().link(task, first));
        let mut making = futures::stream::iter(making).buffer_unordered(job.options.streams.max(1));
        while let Some(made) = making.next().await {
            made?;
        }
        Ok(())
    }
}

impl Job {
    async fn link(self: Arc<Self>, task: Task, first: Name) -> Result<()> {
        self.go_on()?;
        let Some(info) = first.info().await? else {
            return Err(first.about(ErrorKind::NotFound.into()));
        };
        let identity = |name: &Name, info: &Info| self.mounts.identity(&name.directory, info);
        let there = task.to.info().await?;
        let same = there.as_ref().map(|there| identity(&task.to, there) == identity(&first, &info));
        if let Some(there) = there.filter(|_| same == Some(false)) {
            if identity(&task.to, &there) == identity(&task.from, &task.info) {
                return Err(onto_itself(&task.to));
            }
            task.to.remove(false).await?;
        }
        if same != Some(true) {
            task.to.link_to(&first, &info).await?;
        }
        self.counters.entries_done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
