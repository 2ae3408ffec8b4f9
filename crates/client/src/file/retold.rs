//! What a metadata server loses of open files with the power of its machine, and is told once more.
//!
//! It answers when its journal is written, and syncs that each second. Should its machine lose power before, what it was told
//! last is gone. It says so when the session is opened again. Then what this mount still knows is told once more, as if it had
//! been held back: contents inside the inode, the length and time of what targets have. Of the rest (a cut, a mode) the
//! handles report that it is lost, as of a write that failed. So no later `fsync` succeeds without it.
//!
//! Only what nobody else can have changed since is told once more: what was leased since then, and not recalled.

use super::state::{Body, Core, FileState};
use super::volatile::{Again, Lost};
use crate::share::Share;
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Ino};
use strake_wire::message::meta::{MetaAnswer, MetaOp};

/// An operation that tells something of an open file, from before it is sent.
pub(crate) struct Telling {
    file: Arc<FileState>,
    /// In this life.
    life: u64,
    /// When so much had been told.
    mark: u64,
    again: Option<Again>,
    /// It is answered when all is on disk.
    durable: bool,
}

/// Whether the state of a file is told once more, or over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    Over,
}

fn lost() -> Error {
    let detail = "the machine of the metadata server has lost power, and with it a change of the file that had not been \
                  synced; make it again";
    Error::with(ErrorKind::Io, detail)
}

/// What an operation tells of which file: what of it can be told once more, and whether it is answered when that is on disk.
fn told_by(op: &MetaOp) -> Option<(u64, Option<Again>, bool)> {
    Some(match op {
        MetaOp::Publish(publish) => {
            let (length, drop_setid) = (publish.length_min, publish.drop_setid);
            let mtime = publish.mtime.map(Into::into);
            (publish.ino, Some(Again { length, mtime, drop_setid, inline: None }), publish.sync)
        }
        MetaOp::WriteInline(write) => {
            let from = write.offset as usize;
            let inline = Some((from, from + write.data.len()));
            let (mtime, drop_setid) = (write.mtime.map(Into::into), write.drop_setid);
            (write.ino, Some(Again { length: 0, mtime, drop_setid, inline }), write.sync)
        }
        MetaOp::SetAttr(set) => (set.ino, None, false),
        MetaOp::SetXattr(xattr) | MetaOp::RemoveXattr(xattr) => (xattr.ino, None, false),
        _ => return None,
    })
}

impl Core {
    /// The metadata server, `heard` last then, may have lost what it was told last. True if something of that cannot be told
    /// once more.
    fn lose_told(&mut self, goes: Goes, heard: Duration) -> bool {
        let Lost { again, more } = self.volatile.lose(heard);
        let over = again.is_some() && goes == Goes::Over;
        again.filter(|_| !over).into_iter().for_each(|again| self.tell_again(again));
        over || more
    }

    /// As if it had been held back.
    fn tell_again(&mut self, again: Again) {
        // What has moved out of the inode since is on disk.
        if let (Body::Inline(inline), Some(range)) = (&mut self.body, again.inline) {
            inline.unsend(range);
        }
        let unpublished = &mut self.unpublished;
        unpublished.acknowledged = unpublished.acknowledged.max(again.length);
        unpublished.mtime = unpublished.mtime.or(again.mtime).or(Some(self.attr.mtime));
        unpublished.drop_setid |= again.drop_setid;
    }
}

impl Volume {
    /// An operation is about to be sent.
    pub(crate) fn begin_telling(&self, op: &MetaOp) -> Option<Box<Telling>> {
        let (ino, again, durable) = told_by(op)?;
        let file = self.inodes().file(Ino(ino))?;
        let (life, mark) = {
            let core = file.core();
            (core.life, core.volatile.mark())
        };
        Some(Box::new(Telling { file, life, mark, again, durable }))
    }

    /// It was answered so, in this incarnation of the session.
    pub(crate) fn has_told(
        &self,
        share: &Share,
        telling: Telling,
        (answer, incarnation): (&MetaAnswer, u64),
    ) {
        let Telling { file, life, mark, again, durable } = telling;
        let now = self.now();
        if durable {
            return file.core().volatile.synced(mark);
        }
        let leased = match answer {
            MetaAnswer::Entry(attr) => {
                self.leases(file.ino()).covers(file.ino(), attr.version, now)
            }
            _ => false,
        };
        let alone = self.options().exclusive || self.keeps_leases() && leased;
        file.core().volatile.note(again.filter(|_| alone), now);
        // The answer may have been on its way while the server lost it.
        if share.session.has_lost(incarnation) {
            let goes = if file.life().number() == life { Goes::On } else { Goes::Over };
            self.lose_told(&file, goes, share.session.heard());
        }
    }

    /// The metadata server of a share may have lost what it was told last; `resumed`: the session goes on. Nothing that it
    /// has told is believed any more: what is asked for next is of later versions ([`crate::session`]).
    pub(crate) fn lose_power(&self, share: &Share, resumed: bool) {
        let who = self.called(share.id);
        tracing::warn!(
            "the metadata server of {who} has lost power, and may have lost what it was told last"
        );
        let here = |ino: Ino| self.home(ino) == share.id;
        let now = self.now();
        share.leases.forget_all(now);
        let known = self.inodes().forget_all(here, now);
        let goes = if resumed { Goes::On } else { Goes::Over };
        let heard = share.session.heard();
        let mut files = self.inodes().files();
        files.retain(|file| here(file.ino()));
        for file in &files {
            file.distrust();
            self.lose_told(file, goes, heard);
        }
        if let Some(believer) = self.believer() {
            believer.recall(&known);
            let open: Vec<Ino> = files.iter().map(|file| file.ino()).collect();
            // It begins at once; nobody waits for its end.
            drop(believer.forget_contents(&open));
        }
    }

    fn lose_told(&self, file: &Arc<FileState>, goes: Goes, heard: Duration) {
        let is_lost = file.core().lose_told(goes, heard);
        if is_lost {
            self.failed(file, &lost());
        }
        if !file.is_idle() {
            self.mark_busy(file);
        }
    }

    /// Others may change the files of a share: what was told of them is not told once more.
    pub(crate) fn give_up_volatile(&self, share: &Share) {
        let files = self.inodes().files();
        let own = files.iter().filter(|file| self.home(file.ino()) == share.id);
        own.for_each(|file| file.core().volatile.give_up());
    }
}
