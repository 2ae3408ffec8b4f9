//! What a change of contents takes away from a file, as local file systems of Linux do it: setuid and setgid, if an ordinary
//! user makes it, and what a program may do beyond who runs it (`security.capability`), whoever makes it.
//!
//! What the file has, as far as this mount was told, goes first: nobody is to run what is new with the rights of what was
//! there before. Nobody is asked whether it has anything: what others may have given to it since, where nothing that is leased
//! would tell of that, goes when the metadata server is told of the change ([`super::state::Unpublished::drop_setid`]).

use super::open::OpenFile;
use super::state::{Core, FileState};
use crate::volume::Volume;
use bytes::Bytes;
use std::sync::atomic::Ordering;
use strake_types::access::{CAPABILITY, written_by_user};
use strake_types::{ErrorKind, Ino, Result};
use strake_wire::message::meta::{self, MetaOp};

impl Core {
    /// True if the file has bits that a write by an ordinary user takes away, as the server said last.
    fn has_setid(&self) -> bool {
        written_by_user(self.attr.mode) != self.attr.mode
    }
}

impl OpenFile {
    /// Somebody is about to write through it, perhaps an ordinary user (`by_user`), whoever has opened it. True if
    /// [`Volume::drop_privileges`] comes first.
    pub fn has_privileges(&self, by_user: bool) -> bool {
        if by_user {
            self.drops_setid.store(true, Ordering::Relaxed);
        }
        let core = self.state.core();
        !core.no_capability || (by_user && core.has_setid())
    }

    /// True if what is written through it is, perhaps, an ordinary user's.
    pub(super) fn drops_setid(&self) -> bool {
        self.drops_setid.load(Ordering::Relaxed)
    }
}

impl Volume {
    /// Before something is written: takes away what the file is known to have, and is not to keep. True if that may have changed
    /// its mode, which nobody tells a kernel.
    pub async fn drop_privileges(&self, file: &OpenFile, by_user: bool) -> Result<bool> {
        let state = &file.state;
        let setid = by_user && state.core().has_setid();
        if setid {
            Box::pin(self.take_setid(state)).await?;
        }
        Box::pin(self.take_capability(state)).await?;
        Ok(setid)
    }

    /// After an ordinary user has changed contents otherwise than by writing: takes setuid and setgid away, unless it is known
    /// that there is nothing to take away. As above, true if the mode may have changed.
    pub async fn drop_setid(&self, file: &OpenFile) -> Result<bool> {
        let state = &file.state;
        let privileged = self.may_be_privileged(state.ino(), &state.core());
        if privileged {
            Box::pin(self.take_setid(state)).await?;
        }
        Ok(privileged)
    }

    /// True unless it is known that an ordinary user's write takes nothing away.
    pub(super) fn may_be_privileged(&self, ino: Ino, core: &Core) -> bool {
        let attr = &core.attr;
        let known = || self.leases(ino).covers(ino, attr.version, self.now());
        core.has_setid() || !attr.no_xattrs || !known()
    }

    /// Has the server take them away, whatever the mode is now: who only sets another one would undo what others do meanwhile.
    async fn take_setid(&self, file: &FileState) -> Result<()> {
        let life = file.life();
        // Each change is one step of the version: answers to two at once could look like somebody else's.
        let _order = self.in_order(file).await?;
        let publish = meta::Publish { ino: file.ino().0, drop_setid: true, ..Default::default() };
        let answer = self.mutate_in(life, &self.root_cred(), MetaOp::Publish(publish)).await;
        file.core().told_in_vain.note(self.now(), answer.as_ref().err());
        life.check()?;
        let attr = self.own_entry(file, answer?, "publish")?;
        self.inodes().learn(&attr, self.now());
        Ok(())
    }

    /// Once in the life of a file's state, unless it may have got one since: see [`Core::no_capability`].
    async fn take_capability(&self, file: &FileState) -> Result<()> {
        if file.core().no_capability {
            return Ok(());
        }
        // In turn with who sets one here.
        let _order = self.in_order(file).await?;
        let (cred, ino, name) = (self.root_cred(), file.ino(), Bytes::from_static(CAPABILITY));
        let taken = match self.getxattr(&cred, ino, name.clone()).await {
            Ok(_) => self.removexattr(&cred, ino, name).await,
            Err(error) => Err(error),
        };
        match taken {
            Err(error) if error.kind != ErrorKind::NoAttribute => Err(error),
            _ => {
                file.core().no_capability = true;
                Ok(())
            }
        }
    }
}
