//! What a copy has of its source beside the contents.

use super::{Job, Task};
use crate::attributes::{ACLS, Inode, is_acl};
use crate::contents::{Contents, replaced};
use crate::failures::is_denied;
use crate::info::Info;
use crate::mounts::Identity;
use crate::place::Name;
use bytes::Bytes;
use strake_types::{Error, ErrorKind, FileKind, Result};

/// What is to get the attributes of its source.
pub(super) enum Copied<'a> {
    /// A file that was just written, from one to the other: the names may be other files' by now, or nobody's.
    Written(&'a Contents, &'a Contents),
    /// A file that an earlier copy has brought, as it was found.
    Kept(&'a Info),
    /// What was made under its name. A directory is this one, also where it was found there.
    Made(Option<&'a Identity>),
}

/// Something that a copy is without, in words, and whether that is a failure.
type Lack = (String, bool);

/// True where an attribute cannot be set, and all else goes on.
fn is_refusal(error: &Error) -> bool {
    use ErrorKind::*;
    let refusals =
        [AccessDenied, NotPermitted, NotSupported, Invalid, TooBig, Range, NoSpace, Quota];
    refusals.contains(&error.kind)
}

impl Job {
    /// Gives what lies under `name`, the copy or what becomes it, the attributes that are asked for. The times come
    /// last: who finds them finds the others as well.
    pub(super) async fn finish_attributes(
        &self,
        task: &Task,
        name: &Name,
        copied: Copied<'_>,
    ) -> Result<()> {
        let info = &task.info;
        if !self.options.preserve && !self.options.resume {
            return Ok(());
        }
        let to = match copied {
            Copied::Written(_, to) => {
                Inode::of_contents(to).await.map_err(|error| name.about(error))?
            }
            Copied::Kept(there) => Inode::found(name, there).await?,
            Copied::Made(which) => self.made(task, name, which).await?,
        };
        let from = match copied {
            _ if !self.options.archive => None,
            Copied::Written(from, _) if from.is_local() => {
                let from = Inode::of_contents(from).await;
                Some(from.map_err(|error| task.from.about(error))?)
            }
            _ => Some(Inode::source(&task.from, info).await?),
        };
        let mode = match self.options.preserve {
            true => self.preserve(task, from, &to).await.map_err(|error| name.about(error))?,
            false => None,
        };
        match to.set_mode_and_times(mode, info.atime, info.mtime).await {
            // Only its owner may set the times of a file. They were not asked for: a later copy does not find it done.
            Err(error) if !self.options.preserve && is_denied(error.kind) => Ok(()),
            set => set.map_err(|error| name.about(error)),
        }
    }

    /// What was made under a name. An error if something else has it by now: somebody else may write to the directory, and would be given
    /// what that is.
    async fn made(&self, task: &Task, name: &Name, which: Option<&Identity>) -> Result<Inode> {
        let (inode, now) = Inode::named(name).await?;
        let is_it = match which {
            Some(which) => {
                let found = self.mounts.identity(&name.directory, &now);
                // Where numbers do not last that long, a directory is all that it can be known by.
                found == *which
                    || now.kind == FileKind::Directory
                        && found.lies_beside(which)
                        && !inode.keeps_number().await.map_err(|error| name.about(error))?
            }
            None => is_like(&now, &task.info),
        };
        match is_it {
            true => Ok(inode),
            false => Err(name.about(replaced())),
        }
    }

    /// Owner and, of a source whose are asked for, extended attributes, in this order: another owner takes some of them away.
    /// The mode that is to follow.
    async fn preserve(&self, task: &Task, from: Option<Inode>, to: &Inode) -> Result<Option<u32>> {
        let info = &task.info;
        let owned = to.set_owner(info.uid, info.gid).await?;
        if let Some(from) = from {
            let mut lacks = copy_xattrs(&from, to).await?;
            if !owned {
                lacks.insert(0, ("its owner".into(), self.uid == 0));
            }
            self.tell_lacks(task, &lacks);
        }
        // Setuid is for the owner that it was meant for.
        let bits = if owned { 0o7777 } else { 0o777 };
        Ok((info.kind != FileKind::Symlink).then_some(info.mode & bits))
    }

    fn tell_lacks(&self, task: &Task, lacks: &[Lack]) {
        if lacks.is_empty() {
            return;
        }
        let words: Vec<_> = lacks.iter().map(|(what, _)| what.as_str()).collect();
        // The path of this machine says more than the name in a volume.
        let copy = match task.to.local() {
            Some(_) => task.to.shown(),
            None => format!("the copy of {}", task.from.shown()),
        };
        let line = format!("{copy} does not keep {}", words.join(", "));
        self.not_kept.lock().add(line, lacks.iter().any(|(_, failed)| *failed));
    }

    /// Leaves a copy as it is that an earlier one has brought, and brings what that one was not asked for. False: it is passed over.
    pub(super) async fn keep(&self, task: &Task, there: &Info) -> Result<bool> {
        let complete = match self.options.preserve {
            true => self.has_attributes(task, there).await,
            false => Ok(true),
        };
        match complete {
            Ok(true) => {}
            Ok(false) => self.finish_attributes(task, &task.to, Copied::Kept(there)).await?,
            Err(error) => return self.pass_over(task, error).await,
        }
        self.counters.keep(task.info.length);
        if !self.options.sync {
            return Ok(true);
        }
        let to = Contents::open(&task.to, there, &self.pool).await?;
        let synced = to.sync().await;
        synced.and(to.close().await).map_err(|error| task.to.about(error))?;
        Ok(true)
    }

    async fn has_attributes(&self, task: &Task, there: &Info) -> Result<bool> {
        let rights = |info: &Info| (info.mode, info.uid, info.gid);
        if rights(there) != rights(&task.info) {
            return Ok(false);
        }
        if !self.options.archive {
            return Ok(true);
        }
        let from = Inode::source(&task.from, &task.info).await?;
        let to = Inode::found(&task.to, there).await?;
        match has_xattrs(&from, &to).await {
            // It is told when it is tried.
            Err(error) if is_refusal(&error) => Ok(false),
            has => has.map_err(|error| task.to.about(error)),
        }
    }
}

/// True for what may have been made like this source: no link, no other device, and no further name of what somebody else has.
pub(super) fn is_like(now: &Info, source: &Info) -> bool {
    let is_device = matches!(source.kind, FileKind::CharDevice | FileKind::BlockDevice);
    now.kind == source.kind && now.nlink <= 1 && (!is_device || now.rdev == source.rdev)
}

/// True if a copy has the extended attributes and ACLs of its source, and no other ACLs.
async fn has_xattrs(from: &Inode, to: &Inode) -> Result<bool> {
    let (names, there) = futures::try_join!(from.xattr_names(), to.xattr_names())?;
    if there.iter().any(|name| is_acl(name) && !names.contains(name)) {
        return Ok(false);
    }
    for name in &names {
        if !there.contains(name) {
            return Ok(false);
        }
        let (ours, theirs) = futures::try_join!(from.xattr(name), to.xattr(name))?;
        if ours != theirs {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives a copy the extended attributes and ACLs of its source. What could not be set.
async fn copy_xattrs(from: &Inode, to: &Inode) -> Result<Vec<Lack>> {
    let (names, there) = futures::try_join!(from.xattr_names(), to.xattr_names())?;
    // What the directory has given it.
    for acl in there.iter().filter(|name| is_acl(name) && !names.contains(name)) {
        to.remove_xattr(acl).await?;
    }
    let mut lacks = Vec::new();
    for name in &names {
        match copy_xattr(from, to, name, there.contains(name)).await {
            Err(error) if is_refusal(&error) => {
                lacks.push((format!("{} ({error})", shown(name)), is_acl(name)));
            }
            copied => copied?,
        }
    }
    Ok(lacks)
}

async fn copy_xattr(from: &Inode, to: &Inode, name: &Bytes, is_there: bool) -> Result<()> {
    // Gone since it was listed.
    let Some(value) = from.xattr(name).await? else { return Ok(()) };
    // Set once more it may be refused: its mode may keep its own owner from that.
    if is_there && to.xattr(name).await.is_ok_and(|there| there.as_ref() == Some(&value)) {
        return Ok(());
    }
    to.set_xattr(name, value).await
}

/// An extended attribute in words.
fn shown(name: &[u8]) -> String {
    match ACLS.iter().position(|acl| *acl == name) {
        Some(0) => "its ACL".into(),
        Some(_) => "its default ACL".into(),
        None => String::from_utf8_lossy(name).into_owned(),
    }
}
