//! The commit of a transaction: leases of others are recalled before it, and the caches and the caller's own leases
//! follow it.

use super::Tx;
use super::underway::{Kept, Numbered, Underway};
use crate::cache::Commit;
use crate::core::Core;
use crate::ctx::{Ctx, is_leasable};
use crate::keys;
use crate::leases::{Changing as Recalled, Keeper};
use crate::locks::inodes::Held;
use crate::places::Places;
use crate::records::{self, Raw};
use crate::session::Session;
use prost::Message;
use strake_base::task;
use strake_engine::kv::Transaction;
use strake_types::{FileKind, Ino, Result};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{Created, MetaAnswer, MetaReply};

/// A request, and what is answered to it.
pub(crate) type Asked<'a, 't> = (&'a Ctx, &'t mut MetaAnswer);

impl<'a> Tx<'a> {
    /// Has changed if anything was written since.
    pub fn mark(&self) -> (usize, usize, usize, i64) {
        let opened = self.effects.opens.len() + self.effects.closes.len();
        (self.written(), self.seen.len(), opened, self.inodes_delta)
    }

    /// How many keys it writes, without the replies.
    pub fn written(&self) -> usize {
        self.kv.as_ref().map_or(0, Transaction::written)
    }

    /// How many bytes these and their values have.
    pub fn bytes(&self) -> usize {
        self.kv.as_ref().map_or(0, Transaction::bytes)
    }

    /// True if it has something to write.
    pub fn writes(&self) -> bool {
        self.kv.as_ref().is_some_and(|kv| !kv.is_read_only())
    }

    /// Commits; the locks are given back to be held on. `None`: begin again. The answer learns what the
    /// caller has leases on; what is stored of it does not say so.
    pub async fn commit(self, answer: &mut MetaAnswer) -> Result<Option<Held>> {
        let ctx = self.ctx;
        self.commit_all(&mut [(ctx, answer)]).await
    }

    /// The same for all requests that were carried out on this view, each with its answer.
    pub async fn commit_all(mut self, asked: &mut [Asked<'a, '_>]) -> Result<Option<Held>> {
        let Some(mut kv) = self.kv.take().filter(|kv| !kv.is_read_only()) else {
            self.effects.bring_about(&self.ctx.core, &self.ctx.volume);
            self.lease_to_callers(asked);
            return Ok(Some(self.held));
        };
        if !self.borrowed.note(&mut kv).await? {
            // Whoever lends looks what is stored there, and so knows it again.
            self.borrowed.end(None);
            return Ok(None);
        }
        // Others must see the old state until nobody believes it any more: first of all.
        let recalled = self.recall(only_keeper(asked)).await;
        let counts = self.inodes_delta != 0 || self.bytes_delta != 0;
        let counting = match counts {
            true => Some(self.ctx.volume.counts.gate.clone().read_owned().await),
            false => None,
        };
        // From here on nothing is waited for until it goes on by itself.
        let requests = asked.len();
        let mut numbered = Vec::with_capacity(requests);
        for (ctx, answer) in &*asked {
            numbered.extend(self.remember(&mut kv, ctx, answer, requests));
        }
        // Before the commit: whoever changes it next is to know of it.
        self.lease_to_callers(asked);
        self.borrowed.end(None);
        let held = std::mem::take(&mut self.held);
        let underway = Underway {
            volume: self.ctx.volume.clone(),
            asked: numbered,
            witness: self.witness.take(),
            delta: (self.inodes_delta, self.bytes_delta),
            effects: std::mem::take(&mut self.effects),
            kept: Kept { places: self.places(), _recalled: recalled, held, counting },
            is_put: false,
        };
        let (mut underway, ended) = underway.commit(kv).await;
        if ended.is_never {
            self.borrowed.end(Some(false));
        }
        if !ended.committed? {
            return Ok(None);
        }
        self.borrowed.end(Some(true));
        self.lease_new_directories(asked);
        self.fill();
        underway.is_put = true;
        Ok(Some(underway.take_locks()))
    }

    /// Takes back what others believe of what changes; `own` knows of all of it.
    async fn recall(&mut self, own: Option<&Keeper>) -> Recalled {
        let ctx = self.ctx;
        let mut seen = std::mem::take(&mut self.seen);
        seen.sort_unstable();
        seen.dedup();
        // The leases on others were recalled when they were borrowed, but for the caller's own, whom the answer tells.
        seen.retain(|ino| ctx.is_here(*ino));
        let volume = &ctx.volume;
        let holders = || volume.sessions.holders();
        volume.leases.change(own, seen, holders, &*ctx.core.clock).await
    }

    /// Enters leases of each caller on what his answer tells of, as far as nobody else can change it: it is
    /// locked, or new. Not of a file that others have open and of which its kernel keeps nothing: several who write to
    /// it would recall each other's leases with every write. Nor, where this is done for several callers, of what is locked:
    /// an answer tells nothing of what the others have changed there.
    fn lease_to_callers(&self, asked: &mut [Asked<'a, '_>]) {
        let alone = only_keeper(asked).is_some();
        asked.iter_mut().for_each(|(ctx, answer)| self.lease_to_caller(ctx, alone, answer));
    }

    fn lease_to_caller(&self, ctx: &Ctx, alone: bool, answer: &mut MetaAnswer) {
        let Some(keeper) = &ctx.keeper else { return };
        let sessions = &self.ctx.volume.sessions;
        let own = ctx.session.as_deref();
        let session = self.may_be_behind(ctx);
        let (behind, clock) = (session.and_then(|s| s.may_be_behind()), &*ctx.core.clock);
        each_attributes(answer, |attr| {
            let ino = Ino(attr.ino);
            let locked = alone && self.held.has(ino);
            let covered = locked || self.inodes.iter().any(|(new, _)| *new == ino);
            let shared = own.is_some_and(|session| sessions.writes_through(session, ino));
            let lives = covered && ctx.is_here(ino) && is_leasable(attr) && !shared;
            attr.leased = lives && self.ctx.lease_to(keeper, ino, true);
            let is_dir = attr.kind == FileKind::Directory as u32;
            if attr.leased && is_dir && locked {
                let leases = &self.ctx.volume.leases;
                match behind {
                    Some(_) => attr.exclusive = leases.give_exclusive(keeper, ino, clock),
                    // What has become of the volume, or its client, does not allow it any more.
                    None if keeper.holder.has_exclusive() => {
                        leases.ask_back(0, &[ino], true, clock);
                    }
                    None => {}
                }
            }
        });
    }

    /// After the commit, since nobody gives back what is leased of what was never made: each has for himself the directories that he
    /// has made, unless somebody else has found them by now. Without a change in it it may be removed again.
    fn lease_new_directories(&self, asked: &mut [Asked<'a, '_>]) {
        for (ctx, answer) in asked {
            let MetaAnswer::Created(Created { attr, created: true, .. }) = &mut **answer else {
                continue;
            };
            let is_dir = attr.kind == FileKind::Directory as u32;
            let Some(keeper) = ctx.keeper.as_ref().filter(|_| is_dir && attr.leased) else {
                continue;
            };
            let behind = self.may_be_behind(ctx).and_then(Session::may_be_behind);
            if behind.is_some() {
                let leases = &self.ctx.volume.leases;
                attr.exclusive = leases.give_exclusive(keeper, Ino(attr.ino), &*ctx.core.clock);
            }
        }
    }

    /// The caller's session, if it may be given exclusive leases on directories. The first time that is noted in the store.
    fn may_be_behind<'c>(&self, ctx: &'c Ctx) -> Option<&'c Session> {
        // Who wants all on disk before it is answered waits for that; nobody knows how far loans go; and what is made one after
        // the other takes longer, where a commit does, than what many ask for at once.
        let (settings, volume) = (&ctx.settings, &ctx.volume);
        let may = settings.shares.count == 1 && !settings.sync_always;
        let may = may && volume.kv.commits_at_once();
        let session = ctx.session.as_ref().filter(|_| may)?;
        if session.begins_to_note_behind() {
            let (session, volume) = (session.clone(), ctx.volume.clone());
            task::spawn(async move {
                let noted = volume.note_behind(session.id, true).await;
                session.note_behind(noted.is_ok());
            });
        }
        Some(session)
    }

    /// Stores the reply with the mutation, one of so many, and deletes replies that were received. `None`: it has no number.
    fn remember(
        &mut self,
        kv: &mut Transaction,
        ctx: &Ctx,
        answer: &MetaAnswer,
        requests: usize,
    ) -> Option<Numbered> {
        let session = ctx.session.as_ref().filter(|_| ctx.seq != 0)?;
        let (volume, seq) = (ctx.volume.id, ctx.seq);
        let reply = MetaReply { answer: Some(answer.clone()), fenced: 0 }.encode_to_vec();
        let key = keys::result(volume, session.id, seq);
        let value = records::encode(&Raw { bytes: reply.into() });
        kv.put(key.clone(), value.clone());
        self.witness = Some((key, Some(value)));
        let forgotten = session.ledger.forget(ctx.answered, requests);
        for old in &forgotten {
            kv.delete(keys::result(volume, session.id, *old));
        }
        let session = session.clone();
        Some(Numbered { _running: session.ledger.work_on(seq), session, seq, forgotten })
    }

    /// Where what changes is in the caches. What is of other shares never is.
    fn places(&self) -> Places {
        let (ctx, opening) = (self.ctx, self.ctx.volume.opening);
        let inodes = self.inodes.iter().filter(|(ino, _)| ctx.is_here(*ino));
        let shards = self.shards.iter().filter(|((dir, _), _)| ctx.is_here(*dir));
        Places {
            core: ctx.core.clone(),
            inodes: inodes.map(|(ino, _)| Core::inode_key(opening, *ino)).collect(),
            shards: shards
                .map(|((dir, index), _)| Core::shard_key(opening, *dir, *index))
                .collect(),
            entries: self.entries.iter().map(|(place, _)| *place).collect(),
        }
    }

    /// After the commit: the caches know what is so now.
    fn fill(&mut self) {
        let (core, opening) = (&self.ctx.core, self.ctx.volume.opening);
        let ctx = self.ctx;
        for (ino, inode) in self.inodes.drain(..).filter(|(ino, _)| ctx.is_here(*ino)) {
            let place = Core::inode_key(opening, ino);
            match inode {
                Some(inode) => core.inodes.put(place, inode),
                None => core.inodes.forget(place, Commit::Ended),
            }
        }
        self.entries.drain(..).for_each(|(place, entry)| core.entries.put(place, entry));
        let here = |((dir, _), _): &((Ino, u16), _)| ctx.is_here(*dir);
        for ((dir, index), shard) in self.shards.drain(..).filter(here) {
            let place = Core::shard_key(opening, dir, index);
            match shard {
                Some(shard) => core.shards.put(place, shard),
                None => core.shards.forget(place, Commit::Ended),
            }
        }
    }
}

/// Who knows of all that is changed, because nobody else asks for any of it.
fn only_keeper<'a>(asked: &[Asked<'a, '_>]) -> Option<&'a Keeper> {
    let ((first, _), others) = asked.split_first()?;
    let own = first.keeper.as_ref()?;
    let same = |(ctx, _): &Asked<'_, '_>| ctx.keeper.as_ref().is_some_and(|other| other.is(own));
    others.iter().all(same).then_some(own)
}

/// The attributes of an answer to a mutation, one after the other.
pub(crate) fn each_attributes(answer: &mut MetaAnswer, mut each: impl FnMut(&mut Attributes)) {
    match answer {
        MetaAnswer::Entry(attr) => each(attr),
        MetaAnswer::Opened(opened) => each(&mut opened.attr),
        MetaAnswer::Named(named) => {
            each(&mut named.attr);
            named.parent.iter_mut().for_each(each);
        }
        MetaAnswer::Created(created) => {
            each(&mut created.attr);
            created.opened.iter_mut().for_each(|opened| each(&mut opened.attr));
            created.parent.iter_mut().for_each(each);
        }
        MetaAnswer::Renamed(renamed) => {
            each(&mut renamed.moved);
            let others = [&mut renamed.other, &mut renamed.parent, &mut renamed.new_parent];
            others.into_iter().flatten().for_each(each);
        }
        _ => {}
    }
}
