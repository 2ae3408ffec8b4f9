//! Changing attributes of a file that is open in this mount, above all its length.

use super::open::OpenFile;
use super::state::{Body, Core, FileState};
use crate::ops::unexpected;
use crate::volume::Volume;
use std::sync::Arc;
use strake_types::access::{SETGID, SETUID};
use strake_types::{Attr, Credentials, Result, SetAttr, SetTime};
use strake_wire::message::common::AttrChange;
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

/// Keeps writes of a file waiting while it lives, and the file in use: its process may be killed, and its last handle go.
pub(crate) struct Exclusive<'a> {
    volume: &'a Volume,
    file: &'a FileState,
}

impl<'a> Exclusive<'a> {
    pub(crate) fn new(volume: &'a Volume, file: &'a FileState) -> Self {
        file.core().exclusive = true;
        Self { volume, file }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        {
            let mut core = self.file.core();
            core.exclusive = false;
            if core.knows_no_better() {
                // Nothing that was learned meanwhile made it shorter.
                core.length = core.attr.length;
            }
        }
        self.file.progress.notify_waiters();
        self.volume.forget_if_closed(self.file);
    }
}

impl Volume {
    pub(crate) async fn setattr_open(
        self: &Arc<Self>,
        cred: &Credentials,
        file: &Arc<FileState>,
        request: meta::SetAttr,
        handle: Option<&Arc<OpenFile>>,
    ) -> Result<Attr> {
        if let Some(rights) = rights_of(&request.change) {
            let changed = Box::pin(self.change_with_contents(cred, file, rights)).await?;
            if let Some(changed) = changed {
                return Ok(changed);
            }
        }
        let length = request.change.length;
        let change = &request.change;
        let touches_contents = length.is_some()
            || change.mtime.is_some()
            || change.ctime.is_some()
            || change.atime.is_some() && file.core().unpublished.has_atime();
        let gives_setid = change.mode.is_some_and(|mode| mode & (SETUID | SETGID) != 0);
        if gives_setid {
            file.core().given_setid += 1;
        }
        let touches_setid = gives_setid && file.core().unpublished.drop_setid;
        if !touches_contents && !touches_setid {
            let asked = self.now();
            let answer = self.mutate(cred, MetaOp::SetAttr(request)).await?;
            return self.changed_entry(answer, asked);
        }
        // What was written before must have its effect on length and times before this has: a
        // later publish would take it back.
        let life = file.life();
        let _order = self.in_order(file).await?;
        let exclusive = Exclusive::new(self, file);
        self.drain(file).await;
        self.tell_in_order(file, false).await?;
        handle.map_or(Ok(()), |handle| handle.check_kept())?;
        if let Some(length) = length {
            // Already now: the server may do it and its answer be lost.
            file.core().kept.cut(length, u64::MAX);
        }
        // One that was in vain says nothing to who stands in line: it may have waited for other clients.
        let answer = self.mutate_in(life, cred, MetaOp::SetAttr(request)).await?;
        file.core().told_in_vain.note(self.now(), None);
        let MetaAnswer::Entry(attributes) = answer else { return Err(unexpected("setattr")) };
        let attr: Arc<Attr> = Arc::new(attributes.try_into()?);
        let now = self.now();
        let known = self.inodes().learn(&attr, now);
        // The file may have been closed and opened again since.
        if let Some(other) = known.filter(|known| !Arc::ptr_eq(known, file)) {
            other.distrust();
            other.learn(&attr, true, now);
        }
        if let Some(length) = length {
            file.resized(&attr, length, now);
        } else {
            file.core().learn_own(&attr, now);
        }
        drop(exclusive);
        Ok(file.merge(&attr))
    }
}

impl Volume {
    /// Keeps a change back that needs no message of its own: the metadata server is told of it with what was written to the file,
    /// which it is still to be told (S-062). What unpacks an archive sets the time of each file, and its owner to what it is.
    /// `None`: it has to be told at once.
    pub(crate) fn hold_back(
        &self,
        cred: &Credentials,
        file: &FileState,
        change: &SetAttr,
    ) -> Option<Attr> {
        // Who has its order may be telling.
        let _order = file.order.try_lock().ok()?;
        let mut core = file.core();
        let may = cred.checked || [0, core.attr.uid].contains(&cred.uid);
        let times = core.unpublished.times.filter(|_| may && self.may_go_with_writes(&core))?;
        let knows = self.leases(file.ino()).covers(file.ino(), core.attr.version, self.now());
        if !knows || !is_of_times(&core, change) {
            return None;
        }
        let now = self.wall_time();
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let set = [change.mtime, change.atime].map(|set| set.map(time));
        core.unpublished.times = Some(times.set(set, core.attr.ctime, now));
        Some(core.merged(&core.attr))
    }

    /// Mode and owner go with small contents that are still to be told, in one message. `None`: they go by themselves.
    async fn change_with_contents(
        self: &Arc<Self>,
        cred: &Credentials,
        file: &Arc<FileState>,
        rights: AttrChange,
    ) -> Result<Option<Attr>> {
        let Ok(_order) = file.order.try_lock() else { return Ok(None) };
        if !self.may_go_with_writes(&file.core()) {
            return Ok(None);
        }
        let sent = self.write_inline_with(cred, file, rights).await?;
        let core = file.core();
        Ok(sent.then(|| core.merged(&core.attr)))
    }

    /// True if what is set on a file may be told together with what was written: the server takes that, and nobody else has the
    /// file open, for it would stand over what such a one has written since.
    fn may_go_with_writes(&self, core: &Core) -> bool {
        let alone = core.is_strict() && !core.shared && !core.exclusive && !core.change_in_doubt;
        alone && self.session(core.attr.ino).takes_with_writes()
    }
}

/// A change of mode and owner and of nothing else, which may come together with a write: with setuid or setgid it may not, for what
/// is told later of a write in between would take these away.
fn rights_of(change: &AttrChange) -> Option<AttrChange> {
    let (mode, uid, gid) = (change.mode, change.uid, change.gid);
    let rights = AttrChange { mode, uid, gid, ..AttrChange::default() };
    let gives_setid = mode.is_some_and(|mode| mode & (SETUID | SETGID) != 0);
    (rights != AttrChange::default() && rights == *change && !gives_setid).then_some(rights)
}

/// True if attributes are as a change of mode and owner makes them.
pub(super) fn has_rights(attr: &Attr, [mode, uid, gid]: [Option<u32>; 3]) -> bool {
    let is = |asked: Option<u32>, now: u32| asked.is_none_or(|asked| asked == now);
    is(mode.map(|mode| mode & 0o7777), attr.mode) && is(uid, attr.uid) && is(gid, attr.gid)
}

/// True if a change changes nothing but times, and the clock of this machine will do for it.
fn is_of_times(core: &Core, change: &SetAttr) -> bool {
    let SetAttr { mode, uid, gid, length, atime, mtime, ctime, drop_setid: _ } = change;
    let attr = &core.attr;
    // A new owner, even the same, takes these away.
    let special = attr.mode & (SETUID | SETGID) != 0 || !attr.no_xattrs;
    let some = mode.is_some() || uid.is_some() || gid.is_some();
    let same = has_rights(attr, [*mode, *uid, *gid]);
    let times = mtime.is_some() || atime.is_some();
    // The present is that of the server: `make` compares it with that of files that were closed before.
    let own_clock = ctime.is_none() && *mtime != Some(SetTime::Now);
    length.is_none() && own_clock && (times || some) && (!some || same && !special)
}

impl FileState {
    /// The server has set the length.
    fn resized(&self, attr: &Arc<Attr>, length: u64, now: std::time::Duration) {
        let mut core = self.core();
        core.ahead.clear();
        let is_cut = !attr.inline && length < core.length;
        if attr.inline {
            if let Body::Inline(inline) = &mut core.body {
                inline.set_len(length as usize);
            }
        } else {
            core.body = Body::Chunks;
        }
        core.unpublished.forget_end();
        core.learn_own(attr, now);
        if is_cut {
            // There where it lies now: that may just have been learned.
            core.changed_elsewhere();
        }
        // This answer may have been overtaken by a newer one.
        core.length = core.attr.length;
    }
}

#[cfg(test)]
mod tests {
    use super::Exclusive;
    use crate::testing::{Fake, create, options, pattern, read, write};
    use crate::{OpenFlags, SeekTo};
    use std::sync::Arc;
    use strake_types::{Credentials, ErrorKind, SetAttr, SetTime};

    /// It was forgotten at once, and whoever opened it then knew nothing of the change.
    #[tokio::test]
    async fn a_file_that_is_closed_while_it_is_changed_is_forgotten_when_that_is_over() {
        let volume = Arc::new(Fake::default()).volume(options()).await;
        let file = create(&volume, "a").await;
        let changed = Exclusive::new(&volume, &file.state);
        volume.forget_handle(&file, true);
        volume.report_all_closes();
        assert!(volume.inodes().file(file.ino()).is_some());
        drop(changed);
        assert!(volume.inodes().file(file.ino()).is_none());
    }

    /// The answer of an earlier release, which leaves the mode out, was taken for one that had set it.
    #[tokio::test]
    async fn a_mode_that_goes_with_contents_and_is_left_out_or_refused_is_set_by_itself() {
        let fake = Arc::new(Fake::default());
        fake.leave_out_what_comes_with_writes();
        let volume = fake.volume(options()).await;
        for (name, is_refused) in [("left-out", false), ("refused", true)] {
            let file = create(&volume, name).await;
            write(&volume, &file, 0, pattern(1, 100)).await;
            if is_refused {
                fake.fail("inline", ErrorKind::NotPermitted);
            }
            fake.take_log();
            let change = SetAttr { mode: Some(0o604), ..SetAttr::default() };
            let root = Credentials::root();
            let changed = volume.setattr(&root, file.ino(), change, None).await.unwrap();
            assert_eq!((changed.mode, changed.length), (0o604, 100));
            let log = fake.take_log();
            assert!(log[0].starts_with("inline") && log[1].starts_with("setattr"), "{log:?}");
            volume.flush(&file).await.unwrap();
            assert_eq!(fake.take_log().len(), usize::from(is_refused));
            assert_eq!(read(&volume, &file, 0, 100).await, pattern(1, 100));
        }
    }

    /// What somebody else had cut meanwhile was there again, as zeros or as what had been cut.
    #[tokio::test]
    async fn an_answer_to_a_cut_that_was_overtaken_sets_no_older_length() {
        let volume = Arc::new(Fake::default()).volume(options()).await;
        let file = create(&volume, "a").await;
        write(&volume, &file, 0, pattern(1, 20_000)).await;
        volume.fsync(&file, false).await.unwrap();
        let older = file.attr();
        let cut = SetAttr { length: Some(10), ..SetAttr::default() };
        volume.setattr(&Credentials::root(), file.ino(), cut, Some(&file)).await.unwrap();
        file.state.resized(&Arc::new(older), 20_000, volume.now());
        assert_eq!(file.attr().length, 10);
        assert_eq!(file.state.core().length, 10);
    }

    /// The longer length of before stayed, and what had been cut read as zeros.
    #[tokio::test]
    async fn who_sets_a_time_of_a_file_that_another_mount_has_cut_learns_its_length() {
        let fake = Arc::new(Fake::default());
        let (volume, other) = (fake.volume(options()).await, fake.volume(options()).await);
        let (file, cred) = (create(&volume, "a").await, Credentials::root());
        write(&volume, &file, 0, pattern(1, 20_000)).await;
        volume.release(&file).await.unwrap();
        let file = volume.open(&cred, file.ino(), OpenFlags::READ).await.unwrap();
        assert_eq!(read(&volume, &file, 0, 30_000).await.len(), 20_000);
        let cut = SetAttr { length: Some(10_000), ..SetAttr::default() };
        other.setattr(&cred, file.ino(), cut, None).await.unwrap();
        let time = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        volume.setattr(&cred, file.ino(), time, Some(&file)).await.unwrap();
        assert!(read(&volume, &file, 10_000, 100).await.is_empty());
        let hole = volume.seek(&file, 10_000, SeekTo::Hole).await;
        assert_eq!(hole.unwrap_err().kind, ErrorKind::NoSuchAddress);
    }
}
