//! The file that a large copy grows as. One copy at a time has it, and it becomes the copy of nobody else.

use super::partial::{aside_name, partial_name};
use super::{Job, Task, unless_stopped};
use crate::attributes::Inode;
use crate::contents::{Contents, Written};
use crate::failures::is_denied;
use crate::info::Info;
use crate::place::Name;
use std::pin::pin;
use std::time::Duration;
use strake_types::{Error, ErrorKind, FileKind, Result};

/// How long another copy is waited for in a volume, which may have been killed: its session ends after half of this.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// After so long it is said that one is waited for.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// How often it is opened anew when another copy has given it its final name meanwhile.
const OPENED_MAX: u32 = 3;

/// What a copy grows as.
pub(super) struct Growing {
    /// Until it is whole.
    pub name: Name,
    /// The file.
    pub contents: Contents,
    /// See [`is_in_order`].
    pub in_order: bool,
    /// The next copy goes on with it.
    pub is_kept: bool,
}

impl Job {
    /// Opens what an earlier copy has left, or begins it. Where another copy is at it, or it is somebody else's, or a file of this
    /// name is to be copied as well, this copy has a name of its own, with which nobody goes on.
    pub(super) async fn grow(&self, task: &Task) -> Result<Growing> {
        let name = task.to.directory.name(partial_name(&task.to.name, &task.info));
        let opened_max = if self.is_alike(&name) { 0 } else { OPENED_MAX };
        for _ in 0..opened_max {
            let (contents, is_new) = match self.open_left(task, &name).await {
                // It is somebody else's, or no file, or another copy is at it.
                Err(error) if is_denied(error.kind) => break,
                opened => opened?,
            };
            let taken = self.take(task, &name, &contents, is_new).await;
            if let Ok(Some(there)) = &taken {
                let in_order = is_in_order(there, &task.info);
                return Ok(Growing { name, contents, in_order, is_kept: true });
            }
            let closed = contents.close().await.map_err(|error| name.about(error));
            match taken {
                Err(error) if is_denied(error.kind) => {
                    closed?;
                    break;
                }
                // The first error is the one to be told.
                taken => taken.and(closed)?,
            }
        }
        let name = task.to.directory.name(aside_name(&task.to.name));
        let contents = self.open_growing(task, &name, Written::New).await?;
        // It has its source's time of change before it has its name: to a copy that ends then, only the lock says that one is at
        // it. Where there are no locks it goes on without.
        let _locked = contents.lock(Duration::ZERO).await;
        Ok(Growing { name, contents, in_order: false, is_kept: false })
    }

    /// Opens what was left under this name; or makes it, and it is new.
    async fn open_left(&self, task: &Task, name: &Name) -> Result<(Contents, bool)> {
        match self.open_growing(task, name, Written::New).await {
            Err(error) if error.kind == ErrorKind::Exists => {}
            made => return made.map(|contents| (contents, true)),
        }
        // No copy has left that; it would keep each copy from its end.
        if name.info().await?.is_some_and(|there| there.kind != FileKind::File) {
            return Err(name.about(ErrorKind::AccessDenied.into()));
        }
        let mut opened = self.open_growing(task, name, Written::Left).await;
        let is_refused = opened.as_ref().is_err_and(|error| is_denied(error.kind));
        if is_refused && self.give_rights(name).await? {
            opened = self.open_growing(task, name, Written::Left).await;
        }
        opened.map(|contents| (contents, false))
    }

    /// Keeps other copies from what was opened under this name. What is known of it; nothing if it has got its final name meanwhile, and
    /// that it is denied if another copy is at it, or others may have it open.
    async fn take(
        &self,
        task: &Task,
        name: &Name,
        contents: &Contents,
        is_new: bool,
    ) -> Result<Option<Info>> {
        let locked = unless_stopped(self.options.stop.clone(), locked(name, contents)).await;
        if !locked.map_err(|error| name.about(error))? {
            return Err(name.about(ErrorKind::AccessDenied.into()));
        }
        let taken = match contents.found_as(name).await {
            Ok(Some(there)) if !is_new => self.check_own(task, there).await.map(Some),
            found => found,
        };
        if !matches!(taken, Ok(Some(_))) {
            contents.unlock().await;
        }
        taken
    }

    /// Refuses to go on with what others may have open, or have given this name: they would read what is copied, and write to it,
    /// also when it has its final name and mode.
    async fn check_own(&self, task: &Task, there: Info) -> Result<Info> {
        let source = &task.info;
        // With the owner of its source it was whole already, or is what he has made himself.
        let is_given = self.options.preserve && self.uid == 0 && there.uid == source.uid;
        let is_own = is_own(&there, if is_given { source.uid } else { self.uid }, source.mode);
        if is_own || self.is_like_new(task, &there).await? {
            return Ok(there);
        }
        Err(task.to.about(ErrorKind::AccessDenied.into()))
    }

    /// True if what this copy makes has no other owner and no fewer rights: not every file system gives it those that are asked for
    /// (NFS another owner where root asks, CIFS and FAT the same to all).
    async fn is_like_new(&self, task: &Task, there: &Info) -> Result<bool> {
        let name = task.to.directory.name(aside_name(&task.to.name));
        let new = self.open_growing(task, &name, Written::New).await?;
        let found = new.found_as(&name).await;
        let closed = new.close().await.map_err(|error| name.about(error));
        let removed = name.remove(false).await;
        let found = found?;
        closed.and(removed)?;
        Ok(found.is_some_and(|new| is_own(there, new.uid, new.mode | task.info.mode)))
    }

    async fn open_growing(&self, task: &Task, name: &Name, what: Written) -> Result<Contents> {
        Contents::create(name, self.growing_mode(&task.info), what, &self.pool).await
    }

    /// Its owner is to open it again if it stays, whatever the mode of the source.
    fn growing_mode(&self, source: &Info) -> u32 {
        self.mode(source) | 0o600
    }

    /// Lets its owner open what was left under this name when it had the mode of its source already, and not its final name: a sync
    /// between the two may take minutes. False: it is somebody else's, or another copy is at it.
    async fn give_rights(&self, name: &Name) -> Result<bool> {
        let Some(there) = name.info().await?.filter(|there| there.kind == FileKind::File) else {
            return Ok(false);
        };
        let Ok(left) = Contents::open(name, &there, &self.pool).await else { return Ok(false) };
        let locked = unless_stopped(self.options.stop.clone(), locked(name, &left)).await;
        let given = match locked {
            Ok(true) => give_owner_rights(name, &left).await,
            _ => Ok(()),
        };
        if let Ok(true) = locked {
            left.unlock().await;
        }
        let closed = left.close().await;
        let is_mine = locked.and_then(|locked| closed.map(|()| locked));
        is_mine.map(|is_mine| is_mine && given.is_ok()).map_err(|error| name.about(error))
    }

    /// Takes from what was written under this name the rights that its owner had only while it grew.
    pub(super) async fn take_back_rights(
        &self,
        task: &Task,
        name: &Name,
        to: &Contents,
    ) -> Result<()> {
        let rights = self.growing_mode(&task.info) & !self.mode(&task.info);
        // What is written in its place has not grown.
        if rights == 0 || name.name == task.to.name {
            return Ok(());
        }
        let grown = Inode::of_contents(to).await.map_err(|error| name.about(error))?;
        match grown.change_rights(0, rights).await {
            // Only its owner may, who can have them whenever he likes: the file system says that it is somebody else's.
            Err(error) if is_denied(error.kind) => Ok(()),
            taken => taken.map_err(|error| name.about(error)),
        }
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
        if self.contents.found_as(&self.name).await?.is_some() {
            return self.name.rename(&to.name).await;
        }
        let detail = "another file has taken its place while it was copied";
        Err(self.name.about(Error::with(ErrorKind::Stale, detail)))
    }
}

/// True if it is a file of this owner under no other name, and others may do no more with it than this mode allows.
fn is_own(there: &Info, uid: u32, mode: u32) -> bool {
    let is_plain = there.kind == FileKind::File && there.nlink <= 1;
    is_plain && there.uid == uid && there.mode & 0o077 & !mode == 0
}

/// True if it has the time of change of its source and is shorter: it was stopped when all of it was on disk. A whole one has that
/// time as well, just before it gets its final name, and nobody may have synced it.
fn is_in_order(there: &Info, source: &Info) -> bool {
    there.mtime == source.mtime && there.length < source.length
}

/// Waits for the lock of what has this name. False: another copy has it still.
async fn locked(name: &Name, contents: &Contents) -> Result<bool> {
    let mut locking = pin!(contents.lock(WAIT_MAX));
    if let Ok(locked) = tokio::time::timeout(QUIET_MAX, &mut locking).await {
        return locked;
    }
    let (shown, wait_s) = (name.shown(), WAIT_MAX.as_secs());
    tracing::warn!("{shown}: another copy is at it, or was killed; waiting up to {wait_s} s");
    locking.await
}

/// Lets the owner of what was left under this name open it, unless it has got its final name meanwhile, with the mode that it is to
/// have there.
async fn give_owner_rights(name: &Name, left: &Contents) -> Result<()> {
    match left.found_as(name).await? {
        Some(_) => Inode::of_contents(left).await?.change_rights(0o600, 0).await,
        None => Ok(()),
    }
}
