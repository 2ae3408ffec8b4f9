//! The commit of a transaction: leases of others are recalled before it, and the caches, what only memory
//! knows, and the caller's own leases follow it.

use super::Tx;
use crate::cache::Commit;
use crate::core::Core;
use crate::ctx::{Ctx, is_leasable};
use crate::keys;
use crate::leases::{Changing as Recalled, Keeper};
use crate::locks::inodes::Held;
use crate::records::{self, Raw};
use crate::stored::store_error;
use prost::Message;
use strake_engine::kv::{KvError, Outcome, Transaction};
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{MetaAnswer, MetaReply};

/// A request, and what is answered to it.
pub(crate) type Asked<'a, 't> = (&'a Ctx, &'t mut MetaAnswer);

impl<'a> Tx<'a> {
    /// Has changed if anything was written since.
    pub fn mark(&self) -> (usize, usize, usize, i64) {
        let written = self.kv.as_ref().map_or(0, Transaction::written);
        (written, self.seen.len(), self.opens.len() + self.closes.len(), self.inodes_delta)
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
            self.effects(asked);
            self.lease_to_callers(asked);
            return Ok(Some(self.held));
        };
        if !self.borrowed.note(&mut kv).await? {
            // Whoever lends looks what is stored there, and so knows it again.
            self.borrowed.end(None);
            return Ok(None);
        }
        // Others must see the old state until nobody believes it any more: first of all.
        let _recalled = self.recall(only_keeper(asked)).await;
        let requests = asked.len();
        let mut forgotten = Vec::with_capacity(requests);
        for (ctx, answer) in &*asked {
            forgotten.push((*ctx, self.remember(&mut kv, ctx, answer, requests)));
        }
        // Before the commit: whoever changes it next is to know of it.
        self.lease_to_callers(asked);
        let (ctx, counts) = (self.ctx, self.inodes_delta != 0 || self.bytes_delta != 0);
        let _counting = match counts {
            true => Some(ctx.volume.counts.gate.read().await),
            false => None,
        };
        self.borrowed.end(None);
        let mut is_never = false;
        let committed = {
            let mut changing = Changing::begin(&self);
            let committed = match kv.commit(&*self.ctx.volume.kv).await {
                Ok(Outcome::Committed) => Ok(true),
                Ok(Outcome::Conflict) => {
                    is_never = true;
                    Ok(false)
                }
                Ok(Outcome::Unknown) => {
                    let settled = self.settle().await;
                    if settled.is_err() {
                        self.doubt(asked, counts);
                    }
                    settled
                }
                Err(error) => {
                    // Whoever lends could not write that down.
                    is_never = matches!(error, KvError::Full { .. });
                    Err(store_error(error))
                }
            };
            changing.committed = matches!(committed, Ok(true));
            committed
        };
        if is_never {
            self.borrowed.end(Some(false));
        }
        if !matches!(committed, Ok(true)) {
            for (ctx, seqs) in &forgotten {
                ctx.ledger().iter().for_each(|ledger| ledger.keep(seqs));
            }
        }
        if !committed? {
            return Ok(None);
        }
        self.borrowed.end(Some(true));
        self.fill();
        self.effects(asked);
        self.forget_nobodys(asked).await;
        Ok(Some(self.held))
    }

    /// A session that has ended since its request began has no replies any more: this one came after they were deleted.
    async fn forget_nobodys(&self, asked: &[Asked<'a, '_>]) {
        let volume = &self.ctx.volume;
        let nobodys = asked.iter().filter_map(|(ctx, _)| {
            let session = ctx.session.as_ref().filter(|session| session.has_ended());
            Some((keys::result(volume.id, session.filter(|_| ctx.seq != 0)?.id, ctx.seq), None))
        });
        let nobodys: Vec<_> = nobodys.collect();
        if !nobodys.is_empty()
            && let Err(error) = volume.write(nobodys).await
        {
            tracing::warn!(
                "volume {}: a reply to a session that is over stays: {error}",
                volume.id
            );
        }
    }

    /// Takes back what others believe of what changes; `own` knows of all of it.
    async fn recall(&mut self, own: Option<&Keeper>) -> Recalled<'a> {
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
        let (leases, sessions) = (&self.ctx.volume.leases, &self.ctx.volume.sessions);
        let own = ctx.session.as_deref();
        each_attributes(answer, |attr| {
            let ino = Ino(attr.ino);
            let locked = alone && self.held.has(ino);
            let covered = locked || self.inodes.iter().any(|(new, _)| *new == ino);
            let shared = own.is_some_and(|session| sessions.writes_through(session, ino));
            let lives = covered && ctx.is_here(ino) && is_leasable(attr) && !shared;
            attr.leased = lives && leases.enter(keeper, ino, true, &*self.ctx.core.clock);
        });
    }

    /// Stores the reply with the mutation, one of so many, and deletes replies that were received.
    fn remember(
        &mut self,
        kv: &mut Transaction,
        ctx: &Ctx,
        answer: &MetaAnswer,
        requests: usize,
    ) -> Vec<u64> {
        let Some(session) = ctx.session.as_ref().filter(|_| ctx.seq != 0) else {
            return Vec::new();
        };
        let volume = ctx.volume.id;
        let reply = MetaReply { answer: Some(answer.clone()), fenced: 0 }.encode_to_vec();
        let key = keys::result(volume, session.id, ctx.seq);
        let value = records::encode(&Raw { bytes: reply.into() });
        kv.put(key.clone(), value.clone());
        self.witness = Some((key, Some(value)));
        let old = session.ledger.forget(ctx.answered, requests);
        for seq in &old {
            kv.delete(keys::result(volume, session.id, *seq));
        }
        old
    }

    /// Nobody knows what has become of the commit.
    fn doubt(&self, asked: &[Asked<'a, '_>], counts: bool) {
        for (ctx, _) in asked {
            ctx.ledger().iter().for_each(|ledger| ledger.doubt(ctx.seq));
        }
        if counts {
            self.ctx.core.doubt_counts(&self.ctx.volume);
        }
    }

    /// After a commit whose answer was lost: looks whether the witness is there.
    async fn settle(&self) -> Result<bool> {
        let Some((key, value)) = &self.witness else {
            return Err(Error::with(ErrorKind::Io, "the store lost the answer to a commit"));
        };
        let snapshot = self.ctx.volume.kv.snapshot().await.map_err(store_error)?;
        Ok(snapshot.get(key).await.map_err(store_error)? == *value)
    }

    /// The caches know nothing of what changes. Of other shares they never do.
    fn forget(&self, commit: Commit) {
        let (ctx, core, opening) = (self.ctx, &self.ctx.core, self.ctx.volume.opening);
        for (ino, _) in self.inodes.iter().filter(|(ino, _)| ctx.is_here(*ino)) {
            core.inodes.forget(Core::inode_key(opening, *ino), commit);
        }
        for (place, _) in &self.entries {
            core.entries.forget(*place, commit);
        }
        for ((dir, index), _) in self.shards.iter().filter(|((dir, _), _)| ctx.is_here(*dir)) {
            core.shards.forget(Core::shard_key(opening, *dir, *index), commit);
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
                None => {
                    core.inodes.forget(place, Commit::Ended);
                    self.ctx.volume.leases.forget(ino);
                }
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

    /// After the commit: what only memory knows.
    fn effects(&self, asked: &[Asked<'a, '_>]) {
        let volume = &self.ctx.volume;
        volume.counts.add(self.inodes_delta, self.bytes_delta);
        let mut work = self.queued;
        for (ctx, ino, writes) in &self.opens {
            if let Some(session) = &ctx.session {
                volume.sessions.open(session, *ino, *writes, ctx.incarnation);
            }
        }
        for (ctx, ino, then) in &self.closes {
            if let Some(session) = &ctx.session {
                work |= volume.sessions.close(session, *ino, *then);
            }
        }
        if self.witness.is_some() {
            for (ctx, _) in asked {
                ctx.ledger().iter().for_each(|ledger| ledger.stored(ctx.seq));
            }
        }
        if work {
            self.ctx.core.work.notify_one();
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

/// While a commit is under way: the caches know nothing of what changes, and unless it is known to have
/// got through, they are told here that it has ended.
struct Changing<'t, 'a> {
    tx: &'t Tx<'a>,
    committed: bool,
}

impl<'t, 'a> Changing<'t, 'a> {
    fn begin(tx: &'t Tx<'a>) -> Self {
        tx.forget(Commit::Begins);
        Changing { tx, committed: false }
    }
}

impl Drop for Changing<'_, '_> {
    fn drop(&mut self) {
        if !self.committed {
            self.tx.forget(Commit::Ended);
        }
    }
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
