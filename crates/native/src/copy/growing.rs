//! The file that a large copy grows as. One copy at a time has it, and it becomes the copy of nobody else.

use super::partial::{aside_name, partial_name};
use super::{Job, Task, unless_stopped};
use crate::contents::Contents;
use crate::place::Name;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};

/// How long another copy is waited for in a volume, which may have been killed: its session ends after half of this.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How often it is opened anew when another copy has given it its final name meanwhile.
const OPENED_MAX: u32 = 3;

/// What a copy grows as.
pub(super) struct Growing {
    /// Until it is whole.
    pub name: Name,
    /// The file.
    pub contents: Contents,
    /// It has the time of change of its source: it was stopped when all of it was on disk.
    pub in_order: bool,
    /// The next copy goes on with it.
    is_kept: bool,
}

impl Job {
    /// Opens what an earlier copy has left, or begins it. Where another copy is at it, or a file of this name is to be copied as
    /// well, this copy has a name of its own, with which nobody goes on.
    pub(super) async fn grow(&self, task: &Task) -> Result<Growing> {
        let name = task.to.directory.name(partial_name(&task.to.name, &task.info));
        let source = task.from.directory.name(name.name.clone());
        // A tree is not copied into itself: what has this name beside the source is no part of this copy.
        let is_source = !task.named && matches!(source.info().await, Ok(Some(_)));
        let opened_max = if is_source { 0 } else { OPENED_MAX };
        for _ in 0..opened_max {
            let contents = self.open_growing(task, &name, false).await?;
            let stop = self.options.stop.clone();
            match unless_stopped(stop, contents.lock(WAIT_MAX)).await {
                Ok(true) => {}
                Ok(false) => {
                    contents.close().await.map_err(|error| name.about(error))?;
                    break;
                }
                Err(error) => {
                    let _closed = contents.close().await;
                    return Err(name.about(error));
                }
            }
            if let Some(there) = name.info().await?
                && contents.is_of(&there).await?
            {
                let in_order = there.mtime == task.info.mtime;
                return Ok(Growing { name, contents, in_order, is_kept: true });
            }
            contents.unlock().await;
            contents.close().await.map_err(|error| name.about(error))?;
        }
        let name = task.to.directory.name(aside_name(&task.to.name));
        let contents = self.open_growing(task, &name, true).await?;
        Ok(Growing { name, contents, in_order: false, is_kept: false })
    }

    async fn open_growing(&self, task: &Task, name: &Name, fresh: bool) -> Result<Contents> {
        Contents::create(name, self.mode(&task.info), fresh, false, &self.pool).await
    }

    /// Gives it its final name if it was `copied` whole, and lets others have it.
    pub(super) async fn grown(
        &self,
        task: &Task,
        growing: Growing,
        copied: Result<()>,
    ) -> Result<()> {
        let placed = match copied {
            Ok(()) => growing.place(&task.to).await,
            failed => failed,
        };
        match &placed {
            Ok(()) => self.place(&task.to),
            // The first error is the one to be told.
            Err(_) if !growing.is_kept => drop(growing.name.remove(false).await),
            Err(_) => {}
        }
        growing.contents.unlock().await;
        placed
    }
}

impl Growing {
    async fn place(&self, to: &Name) -> Result<()> {
        if let Some(there) = self.name.info().await?
            && self.contents.is_of(&there).await?
        {
            return self.name.rename(&to.name).await;
        }
        let detail = "another file has taken its place while it was copied";
        Err(self.name.about(Error::with(ErrorKind::Stale, detail)))
    }
}
