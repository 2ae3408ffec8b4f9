//! What the metadata server was told of an open file, and may not have on its disk yet.
//!
//! It answers when its journal is written, and syncs that each second. Should its machine lose power before, what it was told
//! last is gone. It says so when the session is opened again. Then what this mount still knows is told once more, as if it had
//! been held back: contents inside the inode, the length and time of what targets have. Of the rest (a cut, a mode) the
//! handles report that it is lost, as of a write that failed. So no later `fsync` succeeds without it.
//!
//! Only what nobody else can have changed since is told once more: what was leased since then, and not recalled.

use super::state::{Body, Core, FileState};
use crate::share::Share;
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Ino, Timestamp};
use strake_wire::message::meta::{MetaAnswer, MetaOp};

/// What was told so long before the server was heard last is on disk: a journal is synced each second, and takes no more after a
/// sync that fails. (One that lasts longer than this is not thought of.)
const AGE_MAX: Duration = Duration::from_secs(60);

/// What can be told once more.
#[derive(Clone, Copy, Default)]
struct Again {
    /// The file is so long at least.
    length: u64,
    /// When contents were written last.
    mtime: Option<Timestamp>,
    drop_setid: bool,
    /// The range of the contents inside the inode.
    inline: Option<(usize, usize)>,
}

/// What may get lost of an open file.
#[derive(Default)]
pub(crate) struct Volatile {
    /// How often something was told, or lost.
    marks: u64,
    again: Again,
    /// When that was told last; `None`: there is nothing.
    told: Option<Duration>,
    /// When something was told last that cannot be told once more.
    once: Option<Duration>,
}

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

impl Again {
    fn and(self, later: Again) -> Again {
        let inline = match (self.inline, later.inline) {
            (Some((from, to)), Some((start, end))) => Some((from.min(start), to.max(end))),
            (one, other) => one.or(other),
        };
        Again {
            length: self.length.max(later.length),
            mtime: later.mtime.or(self.mtime),
            drop_setid: self.drop_setid || later.drop_setid,
            inline,
        }
    }
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

impl Volatile {
    /// How much has been told.
    pub(crate) fn mark(&self) -> u64 {
        self.marks
    }

    /// Something was told; `None`: it cannot be told once more, nor can what was told before it, which it may have undone.
    fn note(&mut self, again: Option<Again>, now: Duration) {
        self.marks += 1;
        match again {
            Some(again) => (self.again, self.told) = (self.again.and(again), Some(now)),
            None => {
                self.give_up();
                self.once = Some(now);
            }
        }
    }

    /// The file was cut when it was opened.
    pub(crate) fn note_cut(&mut self, now: Duration) {
        self.note(None, now);
    }

    /// Others may change the file: what was told is not told once more.
    pub(crate) fn give_up(&mut self) {
        self.once = self.once.max(self.told.take());
        self.again = Again::default();
    }

    /// All is on disk that had been told when there was so much.
    pub(crate) fn synced(&mut self, mark: u64) {
        if self.marks == mark {
            *self = Volatile { marks: mark, ..Volatile::default() };
        }
    }

    fn take(&mut self) -> Volatile {
        // What a sync of before covers had been told in vain.
        let marks = self.marks + 1;
        std::mem::replace(self, Volatile { marks, ..Volatile::default() })
    }
}

impl Core {
    /// The metadata server, `heard` last then, may have lost what it was told last. True if something of that cannot be told
    /// once more.
    fn lose_volatile(&mut self, goes: Goes, heard: Duration) -> bool {
        let lost = self.volatile.take();
        let is_recent = |at: Duration| heard.saturating_sub(at) < AGE_MAX;
        let told = lost.told.is_some_and(is_recent);
        if told && goes == Goes::On {
            self.tell_again(lost.again);
        }
        lost.once.is_some_and(is_recent) || told && goes == Goes::Over
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
    pub(crate) fn begin_telling(&self, op: &MetaOp) -> Option<Telling> {
        let (ino, again, durable) = told_by(op)?;
        let file = self.inodes().file(Ino(ino))?;
        let (life, mark) = {
            let core = file.core();
            (core.life, core.volatile.mark())
        };
        Some(Telling { file, life, mark, again, durable })
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
        let is_lost = file.core().lose_volatile(goes, heard);
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn length(length: u64) -> Option<Again> {
        Some(Again { length, ..Again::default() })
    }

    #[test]
    fn what_a_sync_covers_is_what_was_told_before_it() {
        let mut volatile = Volatile::default();
        volatile.note(length(5), at(1));
        let mark = volatile.mark();
        volatile.note(length(4), at(2));
        volatile.synced(mark);
        assert_eq!((volatile.told, volatile.again.length), (Some(at(2)), 5));
        volatile.synced(volatile.mark());
        assert!(volatile.told.is_none() && volatile.again.length == 0);
        volatile.note(length(7), at(3));
        let mark = volatile.mark();
        assert_eq!(volatile.take().again.length, 7);
        volatile.note(length(8), at(4));
        volatile.synced(mark + 1);
        assert_eq!(volatile.again.length, 8, "what was lost is no part of it");
    }

    /// A length of before a cut would have made the file longer again.
    #[test]
    fn what_was_told_before_a_cut_is_not_told_again_after_it() {
        let mut volatile = Volatile::default();
        volatile.note(length(100), at(1));
        volatile.note(None, at(2));
        volatile.note(length(10), at(3));
        let lost = volatile.take();
        assert_eq!((lost.again.length, lost.told, lost.once), (10, Some(at(3)), Some(at(2))));
    }
}
