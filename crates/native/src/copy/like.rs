//! Making what is not written: links, pipes, sockets' names, devices, and further names.

use super::partial::partial_name;
use super::{Job, Task, onto_itself};
use crate::info::Info;
use crate::place::Name;
use bytes::Bytes;
use strake_types::{ErrorKind, Result};

/// What is made, and not written.
pub(super) enum Like {
    /// A symbolic link that leads there.
    Link(Bytes),
    /// Something of the kind of the source.
    Node,
    /// A further name of this copy.
    Same(Name, Info),
}

impl Job {
    /// Makes it, in place of what has that name.
    pub(super) async fn make(&self, task: &Task, like: &Like) -> Result<()> {
        match make_like(task, like, &task.to).await {
            Err(error) if error.kind == ErrorKind::Exists => self.replace(task, like).await,
            made => made,
        }
    }

    /// The same where something has that name. It goes when the new one is there.
    async fn replace(&self, task: &Task, like: &Like) -> Result<()> {
        // Not what it leads to: the link itself is replaced.
        let same = |there: &Info| {
            let from = self.mounts.identity(&task.from.directory, &task.info);
            self.mounts.identity(&task.to.directory, there) == from
        };
        if task.to.info().await?.as_ref().is_some_and(same) {
            return Err(onto_itself(&task.to));
        }
        let fresh = task.to.directory.name(partial_name(&task.to.name, &task.info));
        match make_like(task, like, &fresh).await {
            // Of a copy that was interrupted.
            Err(error) if error.kind == ErrorKind::Exists => {
                fresh.remove(false).await?;
                make_like(task, like, &fresh).await?;
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

async fn make_like(task: &Task, like: &Like, name: &Name) -> Result<()> {
    match like {
        Like::Link(target) => name.make_link(target.clone()).await,
        Like::Same(first, info) => name.link_to(first, info).await,
        Like::Node => name.make_node(&task.info).await,
    }
}
