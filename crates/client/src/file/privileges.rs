//! What a change of contents takes away from a file, as local file systems of Linux do it: setuid and setgid, if an ordinary
//! user makes it, and what a program may do beyond who runs it (`security.capability`), whoever makes it.
//!
//! What the file has, as far as this mount was told, goes first: nobody is to run what is new with the rights of what was
//! there before. So does what others may have given to it where a lease on it has gone: that is all that a mount hears of
//! that. Nobody is asked whether it has anything: what others may have given to it where nothing would tell of that goes when
//! the metadata server is told of the change ([`super::unpublished::Unpublished::drop_setid`]).

use super::open::OpenFile;
use super::state::{Core, FileState};
use crate::volume::Volume;
use bytes::Bytes;
use std::sync::atomic::Ordering;
use strake_types::access::{CAPABILITY, written_by_user};
use strake_types::{Attr, ErrorKind, Ino, Result};
use strake_wire::message::meta::{self, MetaOp};

impl Core {
    /// True if the file has bits that a write by an ordinary user takes away, as the server said last.
    fn has_setid(&self) -> bool {
        written_by_user(self.attr.mode) != self.attr.mode
    }

    /// True if it is leased, or could be: who keeps leases hears when others give something to it.
    fn is_watched(&self) -> bool {
        self.is_leasable() && !self.shared
    }

    /// True unless it has no `security.capability`, as far as this mount was told.
    fn may_have_capability(&self) -> bool {
        !self.no_capability || !self.attr.no_xattrs && !self.is_watched()
    }

    /// Newer attributes are learned; `others`: somebody else has changed the file, perhaps.
    pub(super) fn learn_capability(&mut self, attr: &Attr, others: bool) {
        // What had no attributes may have got one, and what had some another one. Where several write it, others change it all
        // the time: each write would look.
        let may_be_new = others && !attr.no_xattrs && self.is_watched();
        if may_be_new || attr.no_xattrs != self.attr.no_xattrs {
            self.no_capability = attr.no_xattrs;
        }
    }
}

impl OpenFile {
    /// True if what is changed through it is, perhaps, an ordinary user's doing: one has written through it since somebody here gave the
    /// file setuid or setgid.
    fn drops_setid(&self, core: &Core) -> bool {
        self.drops_setid.load(Ordering::Relaxed) > core.given_setid
    }
}

impl Volume {
    /// Takes note that somebody is about to change contents through a handle, perhaps an ordinary user (`by_user`), whoever has
    /// opened it. True if [`Volume::drop_privileges`] comes first.
    pub fn note_writer(&self, file: &OpenFile, by_user: bool) -> bool {
        let core = file.state.core();
        if by_user {
            file.drops_setid.fetch_max(core.given_setid + 1, Ordering::Relaxed);
        }
        !core.no_capability || by_user && self.may_have_setid(file.ino(), &core)
    }

    /// Before contents are changed: takes away what the file has, perhaps, and is not to keep. True if that has changed its mode,
    /// which nobody tells a kernel: it is to be told before anything else is waited for.
    pub async fn drop_privileges(&self, file: &OpenFile, by_user: bool) -> Result<bool> {
        let state = &file.state;
        Box::pin(self.take_capability(state)).await?;
        if !by_user {
            return Ok(false);
        }
        let ino = state.ino();
        Box::pin(self.take_setid(state, move |core: &Core| self.may_have_setid(ino, core))).await
    }

    /// After an ordinary user has cut the file by opening it: that has taken its capability, and told what it has. Takes setuid
    /// and setgid away, if it has them. As above, true if the mode has changed.
    pub async fn drop_setid(&self, file: &OpenFile) -> Result<bool> {
        Box::pin(self.take_setid(&file.state, Core::has_setid)).await
    }

    /// Contents are changed through a handle: if an ordinary user may do it, what the file may have goes when that is told.
    pub(super) fn note_change(&self, file: &OpenFile, core: &mut Core) {
        if file.drops_setid(core) && !core.unpublished.drop_setid {
            core.unpublished.drop_setid = self.may_be_privileged(file.ino(), core);
        }
    }

    /// True unless it is known that an ordinary user's write takes nothing away.
    pub(crate) fn may_be_privileged(&self, ino: Ino, core: &Core) -> bool {
        core.has_setid() || core.may_have_capability() || !self.is_covered(ino, core)
    }

    /// True if the file has setuid or setgid, or its lease has gone: then somebody else has changed it, perhaps so. What takes them
    /// away leases it anew.
    fn may_have_setid(&self, ino: Ino, core: &Core) -> bool {
        let unheard = || core.is_watched() && !self.is_covered(ino, core);
        core.has_setid() || self.keeps_leases() && unheard()
    }

    fn is_covered(&self, ino: Ino, core: &Core) -> bool {
        self.leases(ino).covers(ino, core.attr.version, self.now())
    }

    /// If that is due, has the server take them away, whatever the mode is now: who only sets another one would undo what others
    /// do meanwhile. True if the mode is another one then. Nothing is waited for after the answer.
    async fn take_setid(&self, file: &FileState, is_due: impl Fn(&Core) -> bool) -> Result<bool> {
        let before = {
            let core = file.core();
            if !is_due(&core) {
                return Ok(false);
            }
            core.attr.mode
        };
        let life = file.life();
        // Each change is one step of the version: answers to two at once could look like somebody else's.
        let _order = self.in_order(file).await?;
        {
            let core = file.core();
            if !is_due(&core) {
                // Who was first has done so.
                return Ok(core.attr.mode != before);
            }
        }
        let publish = meta::Publish { ino: file.ino().0, drop_setid: true, ..Default::default() };
        let answer = self.mutate_in(life, &self.root_cred(), MetaOp::Publish(publish)).await;
        file.core().told_in_vain.note(self.now(), answer.as_ref().err());
        life.check()?;
        // A kernel may have been told that meanwhile.
        let shown = file.core().attr.mode;
        let attr = self.own_entry(file, answer?, "publish")?;
        self.inodes().learn(&attr, self.now());
        let mut core = file.core();
        // It goes with them.
        core.no_capability |= core.attr.version == attr.version;
        Ok([before, shown].iter().any(|mode| *mode != attr.mode))
    }

    /// Once in the life of a file's state, unless it may have got one since: see [`Core::no_capability`].
    async fn take_capability(&self, file: &FileState) -> Result<()> {
        if file.core().no_capability {
            return Ok(());
        }
        // In turn with who sets one here.
        let _order = self.in_order(file).await?;
        let version = {
            let core = file.core();
            if core.no_capability {
                return Ok(());
            }
            core.attr.version
        };
        let (cred, ino, name) = (self.root_cred(), file.ino(), Bytes::from_static(CAPABILITY));
        let taken = match self.getxattr(&cred, ino, name.clone()).await {
            Ok(_) => self.removexattr(&cred, ino, name).await,
            Err(error) => Err(error),
        };
        let failed = taken.err().filter(|error| error.kind != ErrorKind::NoAttribute);
        let mut core = file.core();
        core.told_in_vain.note(self.now(), failed.as_ref());
        if let Some(error) = failed {
            return Err(error);
        }
        // Else somebody else has changed the file meanwhile: perhaps so.
        core.no_capability = core.attr.version == version;
        Ok(())
    }
}
