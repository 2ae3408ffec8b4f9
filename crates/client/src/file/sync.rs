//! Making durable what was written.
//!
//! Targets say from which boot they acknowledge; what a sync answered from another one was to cover
//! is lost (see [`crate::unsynced`]). It fails the file as a failed write-behind does: the `fsync` of
//! every handle reports it once, and the file goes on.

use super::Life;
use super::allocate::REQUESTS_MAX;
use super::flush::Tell;
use super::open::{OpenFile, TellBy};
use super::state::FileState;
use super::unpublished::{Times, Unpublished};
use crate::metrics::Op;
use crate::ops::{done, names_are_lost};
use crate::unsynced::{Acknowledged, Marks, boot_of, lost, vouching};
use crate::volume::Volume;
use bytes::Bytes;
use futures::future::{join, join_all, try_join_all};
use futures::stream::{self, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::{Boot, Error, GroupId, Ino, Result};
use strake_wire::message::meta::{self, MetaOp};
use strake_wire::message::storage::{FileRef, StorageAnswer, StorageOp};
use tokio::sync::oneshot;

/// Who vouches for the sync of each group that has answered.
type Boots = BTreeMap<GroupId, Vec<Boot>>;

/// A sync of a file is under way until this is dropped.
struct Syncing<'a> {
    file: &'a FileState,
}

/// What a sync has waited for already.
#[derive(Clone, Copy)]
struct Waited {
    /// How often the file had failed before it was drained.
    failures: u64,
    /// When it began to stand in line.
    since: Duration,
}

impl<'a> Syncing<'a> {
    fn of(file: &'a FileState) -> Self {
        file.core().syncing += 1;
        Self { file }
    }
}

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        self.file.core().syncing -= 1;
    }
}

impl Life<'_> {
    /// The metadata server knows when the file was written, and targets what.
    fn told_times(self, times: Times) {
        let mut core = self.file().core();
        if !self.is_that_of(&core) || core.is_unsent() || !core.unpublished.note_told(Some(times)) {
            return;
        }
        if core.unpublished.end() <= core.attr.length {
            core.unpublished.times = None;
            core.unpublished.forget_end();
            core.length = core.attr.length;
        }
    }
}

impl Volume {
    /// As [`Volume::flush`], and answers when everything is on disk. `datasync` would allow to leave
    /// times out; they travel with the length, so nothing is gained by that.
    pub async fn fsync(self: &Arc<Self>, file: &Arc<OpenFile>, datasync: bool) -> Result<()> {
        let _ = datasync;
        let _timer = self.count(Op::Fsync);
        let synced = self.sync_file(&file.state).await;
        let failed = file.take_failure(TellBy::Sync);
        failed.and(synced)
    }

    /// As [`Volume::fsync`], for a write that is to be durable when it is answered. What it reports may
    /// be missed, as with any write, and is left to be reported by the others.
    pub async fn sync_written(self: &Arc<Self>, file: &Arc<OpenFile>) -> Result<()> {
        let _timer = self.count(Op::Fsync);
        let (volume, state) = (Arc::clone(self), Arc::clone(&file.state));
        // Told again by somebody else, bytes occupied would count twice.
        let synced = task::to_the_end(async move { volume.sync_file(&state).await }).await;
        let failed = file.take_failure(TellBy::Write);
        failed.and(synced)
    }

    async fn sync_file(self: &Arc<Self>, file: &Arc<FileState>) -> Result<()> {
        let waited = Waited { failures: file.core().failure.count, since: self.now() };
        if self.times_alone(file).is_none() {
            // On its way while another syncs.
            let _syncing = Syncing::of(file);
            self.drain(file).await;
        }
        // Who comes while another syncs must not answer before that one is done.
        let _turn = self.in_line(file, &file.sync_turn).await?;
        if let Some(synced) = self.sync_early_told(file, waited).await {
            return synced;
        }
        let order = {
            let _syncing = Syncing::of(file);
            self.drain_in_order(file).await?
        };
        // Neither waits for the other: until both are done nothing is promised, and a length may be
        // on disk before its bytes at any time, by the background task.
        let data = self.sync_drained(file, waited);
        let attributes = async {
            let told = self.sync_attributes(file).await;
            // Whoever is to tell of the file need not wait for the disks of targets: others wait for that.
            drop(order);
            told
        };
        let (data, attributes) = join(data, attributes).await;
        self.sync_moved(file, waited, data.and(attributes)).await
    }

    /// Both halves of a sync have ended so. Where contents have `moved` out of the inode meanwhile, which targets were not asked
    /// for, they are now: nobody waits for that who is to tell of the file.
    async fn sync_moved(
        &self,
        file: &FileState,
        waited: Waited,
        moved: Result<bool>,
    ) -> Result<()> {
        match moved? {
            true => self.sync_drained(file, waited).await,
            false => Ok(()),
        }
    }

    /// As [`Volume::sync_targets`]: who was waited for in vain since then is not waited for once more.
    async fn sync_drained(&self, file: &FileState, waited: Waited) -> Result<()> {
        let timed_out = file.core().failure.timed_out_after(waited.failures);
        timed_out.map_or(Ok(()), Err)?;
        if self.has_waited(waited.since) {
            file.core().synced_in_vain.check(waited.since)?;
        }
        self.sync_targets(file).await
    }

    /// Syncs a file of which only the times have to be told: they are told while the bytes are on their way. `None`: not
    /// this one.
    ///
    /// Who opens the file meanwhile learns its new time, and waits until the bytes have arrived before he reads
    /// ([`super::shared`]); so does whoever wants to cut it. Nobody has it open, or this file would count as shared.
    async fn sync_early_told(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        waited: Waited,
    ) -> Option<Result<()>> {
        self.times_alone(file)?;
        let order = match self.in_order(file).await {
            Ok(order) => order,
            Err(error) => return Some(Err(error)),
        };
        let (times, life) = self.times_alone(file)?;
        let (syncing, (arrive, arrived)) = (Syncing::of(file), oneshot::channel());
        let data = async {
            self.drain(file).await;
            drop(syncing);
            let _ = arrive.send(());
            self.sync_drained(file, waited).await
        };
        let tell = async {
            let told = match self.publish(file, Tell::WithTheBytes).await {
                Ok(true) => Ok(false),
                // It was told meanwhile, or its life is over.
                Ok(false) => self.sync_attributes(file).await,
                Err(error) => Err(error),
            };
            // Until the bytes are there, too, and no longer: as above. Told again, it would be set over what others set since.
            let _ = arrived.await;
            if told.is_ok() {
                life.told_times(times);
            }
            drop(order);
            told
        };
        let (data, told) = join(data, tell).await;
        Some(self.sync_moved(file, waited, data.and(told)).await)
    }

    /// The times of the last write to a file, if they are all that the metadata server has to be told of it, and nobody reads the
    /// file before what is on its way has arrived.
    fn times_alone<'a>(&self, file: &'a Arc<FileState>) -> Option<(Times, Life<'a>)> {
        let core = file.core();
        let Unpublished { times, occupied, drop_setid, .. } = core.unpublished;
        let end = core.unpublished.end().max(core.dirty.end());
        let settles = !core.shared && core.is_strict();
        let alone = !core.is_inline()
            && core.is_unsent()
            && core.unsynced.others() == 0
            && (occupied, drop_setid) == (0, false)
            && (core.attr.nlink > 0 && end <= core.attr.length && end <= core.length)
            && settles
            && self.leases(file.ino()).covers(file.ino(), core.attr.version, self.now());
        let times = times.filter(|times| alone && !times.are_set())?;
        Some((times, Life::of(file, &core)))
    }

    /// Makes durable what the metadata server knows of a file, and tells it the rest before. True if contents have moved out of
    /// the inode by that, as somebody else had moved them. The caller holds the file's order.
    async fn sync_attributes(self: &Arc<Self>, file: &Arc<FileState>) -> Result<bool> {
        let was_inline = file.core().is_inline();
        let told = self.write_inline(file, true, false).await?
            || self.publish(file, Tell::Durably).await?;
        if !told {
            let op = MetaOp::Sync(meta::Inode { ino: file.ino().0 });
            let answer = self.ask(&self.root_cred(), op).await;
            file.core().told_in_vain.note(self.now(), answer.as_ref().err());
            done(&answer?, "sync")?;
        }
        Ok(was_inline && !file.core().is_inline())
    }

    /// Makes durable what targets have acknowledged for a file. What turns out to be lost is kept for
    /// the handles to report.
    pub(crate) async fn sync_targets(&self, file: &FileState) -> Result<()> {
        if file.core().unsynced.others() != 0 {
            self.learn_place(file).await?;
        }
        let (unsynced, others) = {
            let core = file.core();
            if core.is_inline() {
                return Ok(());
            }
            let others = core.unsynced.others();
            // No target is waited for that has nothing of the file.
            let groups = match others {
                0 => BTreeSet::new(),
                _ => core.placement()?.groups_below(core.unsynced.reach()),
            };
            (core.unsynced.marks(&groups), others)
        };
        let reference = FileRef { volume: self.home(file.ino()).0, ino: file.ino().0 };
        let syncs = unsynced.iter().map(|(&group, held)| async move {
            let sync = StorageOp::Sync(reference);
            let (answer, _) = self.storage(file, group, true, sync).await?;
            self.synced(file, group, held, &vouching(&answer));
            Ok::<_, Error>(())
        });
        let synced = try_join_all(syncs).await;
        let now = self.now();
        let mut core = file.core();
        core.synced_in_vain.note(now, synced.as_ref().err());
        match &synced {
            Ok(_) => core.unsynced.forget_others(others),
            // Nobody knows what will be left of it.
            Err(_) => core.kept.clear(),
        }
        synced.map(drop)
    }

    /// A sync of what a group held of a file has been answered.
    fn synced(&self, file: &FileState, group: GroupId, held: &Acknowledged, vouching: &[Boot]) {
        file.core().unsynced.forget(group, held);
        if held.is_lost(vouching) {
            self.failed(file, &lost(group));
        }
    }

    /// A group has answered a change of a file's contents; `None`: nobody knows whether it was done.
    pub(crate) fn acknowledged(
        &self,
        file: &FileState,
        group: GroupId,
        answer: Option<&StorageAnswer>,
    ) {
        let is_lost = file.core().unsynced.add(group, answer.and_then(boot_of));
        if is_lost {
            self.failed(file, &lost(group));
        }
    }

    /// As [`Volume::acknowledged`], of a write that is durable, and was sent when so many had been `answered`.
    pub(super) fn made_durable(
        &self,
        file: &FileState,
        group: GroupId,
        answer: &StorageAnswer,
        answered: u64,
    ) {
        let is_lost = file.core().unsynced.add_durable(group, boot_of(answer), answered);
        if is_lost {
            self.failed(file, &lost(group));
        }
    }

    /// Sends and publishes everything of every file and makes it durable, as `syncfs` asks. Fails if
    /// anything written through this mount is lost that was not told before.
    pub async fn sync_all(self: &Arc<Self>) -> Result<()> {
        let _timer = self.count(Op::Fsync);
        let mut result = Ok(());
        // Whoever opens such a file again is to learn of a loss as well: what is left of it is remembered.
        self.report_all_closes();
        let files = self.busy_files();
        let mut written = stream::iter(files)
            .map(|file| async move { (self.write_back(&file, false).await, file) })
            .buffer_unordered(REQUESTS_MAX);
        while let Some((written, file)) = written.next().await {
            if let Err(error) = &written {
                tracing::warn!("cannot write back inode {}: {error}", file.ino());
            }
            result = result.and(written);
        }
        drop(written);
        self.drop_idle();
        let open = self.inodes().files();
        let open: Vec<(Arc<FileState>, Marks)> = open
            .into_iter()
            .map(|file| {
                let marks = file.core().unsynced.own_marks();
                (file, marks)
            })
            .collect();
        let left = self.left().marks();
        // No other group is asked: a dead target that holds nothing of ours is not waited for.
        let held = open.iter().map(|(_, marks)| marks).chain(left.iter().map(|(_, marks)| marks));
        let groups: BTreeSet<GroupId> = held.flat_map(|marks| marks.keys().copied()).collect();
        let (boots, targets) = self.sync_groups(groups.into_iter()).await;
        result = result.and(targets);
        for (file, marks) in &open {
            of_groups(marks, &boots, |group, held, boots| self.synced(file, group, held, boots));
            result = result.and(file.tell_failure());
        }
        result = result.and(self.all_left_synced(&left, &boots));
        let op = MetaOp::Sync(meta::Inode { ino: 0 });
        let names = self.ask_all(&self.root_cred(), &op).await;
        result = result.and(names.and_then(|names| names.iter().try_for_each(|a| done(a, "sync"))));
        for share in self.parts() {
            if share.leases.behind.take_all_lost() {
                result = result.and(Err(names_are_lost()));
            }
        }
        result
    }

    /// From now on closed files of which a loss is found out are remembered, for [`Volume::take_unsure`].
    pub fn gather_lost(&self) {
        self.left().gather_lost();
    }

    /// To be asked after [`Volume::sync_all`]: the closed files of which what was written through this mount is lost, since
    /// [`Volume::gather_lost`], or is not known to be durable.
    pub fn take_unsure(&self) -> BTreeSet<Ino> {
        let mut unsure = self.left().take_unsure();
        let is_unsure = |file: &Arc<FileState>| {
            let core = file.core();
            core.handles == 0 && (core.is_unsent() || !core.unsynced.own_marks().is_empty())
        };
        let open = self.inodes().files();
        unsure.extend(open.iter().filter(|&file| is_unsure(file)).map(|file| file.ino()));
        unsure
    }

    /// Makes everything durable that groups have acknowledged to anyone: from which boot each says
    /// so, and an error if one does not.
    async fn sync_groups(&self, groups: impl Iterator<Item = GroupId>) -> (Boots, Result<()>) {
        let op = StorageOp::Sync(FileRef { volume: self.id().0, ino: 0 });
        let syncs = groups.map(|group| {
            let sync = self.on_group(group, op.clone(), Bytes::new(), None);
            async move { (group, sync.await) }
        });
        let (mut boots, mut result) = (BTreeMap::new(), Ok(()));
        for (group, answer) in join_all(syncs).await {
            match answer {
                Ok((answer, _)) => drop(boots.insert(group, vouching(&answer))),
                Err(error) => result = result.and(Err(error)),
            }
        }
        (boots, result)
    }

    /// Syncs of what groups held of closed files have been answered. A loss is an error once, and
    /// remembered: who opens the file and syncs it is to learn of it too.
    fn all_left_synced(&self, left: &[(Ino, Marks)], boots: &Boots) -> Result<()> {
        let mut result = Ok(());
        for (ino, marks) in left {
            of_groups(marks, boots, |group, held, vouching| {
                if !held.is_lost(vouching) {
                    self.left().forget(*ino, group, held);
                } else if self.left().tell(*ino) {
                    let error = lost(group);
                    self.lost(*ino, &error);
                    self.drop_lost(*ino);
                    result = result.clone().and(Err(error));
                }
            });
        }
        result
    }

    /// Asks targets to make durable what files that are closed have left with them, if there are old
    /// ones or many.
    pub(crate) fn settle_left(self: &Arc<Self>) {
        if !self.left().begin_settling(self.now()) {
            return;
        }
        let volume = Arc::clone(self);
        task::spawn(async move {
            let left = volume.left().marks();
            let groups: BTreeSet<GroupId> =
                left.iter().flat_map(|(_, m)| m.keys().copied()).collect();
            let (boots, synced) = volume.sync_groups(groups.into_iter()).await;
            if let Err(error) = synced {
                tracing::debug!("cannot sync what closed files have written: {error}");
            }
            // Logged: there is nobody to be told.
            let _ = volume.all_left_synced(&left, &boots);
            volume.left().settled();
        });
    }
}

/// Goes through what was held by those groups that have answered.
fn of_groups(marks: &Marks, boots: &Boots, mut each: impl FnMut(GroupId, &Acknowledged, &[Boot])) {
    for (&group, held) in marks.iter() {
        if let Some(vouching) = boots.get(&group) {
            each(group, held, vouching);
        }
    }
}

#[cfg(test)]
mod tests;
