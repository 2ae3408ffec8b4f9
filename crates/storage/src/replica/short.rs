//! Members that are short of room: a change that takes some is refused before anybody makes it. A
//! member that had to refuse what its primary has made would have to leave. A reservation may be larger than what is kept for
//! what is under way, so before one is made all are asked whether they have room for it. Who has none all the same goes without.

use super::errand::Errand;
use super::{Message, Replica};
use crate::apply::{Answer, plain_answer};
use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use strake_types::{ChunkId, Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Forward, StorageAnswer, StorageOp};
use tokio::time::Instant;

/// For how long a member's word is taken that it is short.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Bytes that a member is asked to reserve at once: far less than large targets keep.
const PIECE_BYTES: u64 = 1 << 20;

/// Members that are short of room, and when they said so last.
#[derive(Default)]
pub(super) struct Short(Mutex<HashMap<TargetId, Instant>>);

impl Short {
    /// A member has said whether it is short.
    pub(super) fn note(&self, member: TargetId, short: bool) {
        let mut members = self.0.lock();
        if short {
            members.insert(member, Instant::now());
        } else if !members.is_empty() {
            members.remove(&member);
        }
    }

    /// When a member said that it is short.
    fn since(&self, member: TargetId) -> Option<Instant> {
        self.0.lock().get(&member).copied()
    }
}

/// What a change asks of those who are short. Other changes take no room. A punch needs nothing reserved, but some room for the extent
/// map: it asks as who writes nothing.
fn wanted_by(op: &StorageOp, payload: u64) -> msg::Settle {
    let parts = match op {
        StorageOp::Write(write) => {
            vec![msg::Range { chunk: write.chunk, offset: write.offset, len: payload }]
        }
        StorageOp::WriteMany(many) => {
            let starts = many.indices.iter().zip(&many.offsets);
            let part = |((&index, &offset), &len)| {
                let chunk = msg::Chunk { volume: many.volume, ino: many.ino, index };
                msg::Range { chunk, offset, len }
            };
            starts.zip(&many.lens).map(part).collect()
        }
        StorageOp::Allocate(range) => vec![*range],
        StorageOp::Punch(range) => vec![msg::Range { offset: 0, len: 0, ..*range }],
        _ => Vec::new(),
    };
    msg::Settle { parts, allocate: matches!(op, StorageOp::Allocate(_)) }
}

impl Replica {
    /// Fails if a change takes room, and a member that has to make it is short, or would be. Reserved room may be
    /// written by all; others under way to the same member have what it keeps.
    pub(super) async fn check_room(&self, reign: u64, message: &Message) -> Result<()> {
        let (epoch, members): (u64, Vec<TargetId>) = {
            let mut state = self.state.lock();
            let reign = state.reign(reign);
            reign.map(|reign| (reign.view.epoch, reign.required().collect())).unwrap_or_default()
        };
        if members.is_empty() {
            return Ok(());
        }
        if matches!(message.op, StorageOp::Allocate(_)) {
            let wanted = wanted_by(&message.op, 0);
            return Box::pin(self.check_all_have_room(epoch, &members, wanted)).await;
        }
        let Some(short) = self.first_short(&members).await else { return Ok(()) };
        if self.shelf.takes_room(&message.op, &message.payload).await? {
            return Err(self.has_no_room(short));
        }
        // What is reserved here need not be there: a copy that an earlier release has made equal has the same bytes, and
        // no more; nor has one that was short when it was made equal.
        let wanted = wanted_by(&message.op, message.payload.len() as u64);
        if wanted.parts.is_empty() || self.shelf.leaves_no_pieces(&message.op).await? {
            return Ok(());
        }
        for member in members.into_iter().filter(|&member| self.short.since(member).is_some()) {
            if !self.ask_for_reserved(member, &wanted).await? {
                return Err(self.has_no_room(member));
            }
        }
        Ok(())
    }

    /// Fails if a member has no room for a reservation. Who does not answer is not waited for: the change itself waits for
    /// it, or for it to be taken out. One of an older release says only that it is short.
    async fn check_all_have_room(
        &self,
        epoch: u64,
        members: &[TargetId],
        wanted: msg::Settle,
    ) -> Result<()> {
        let question = Message::of(StorageOp::Settle(wanted));
        let nothing = Forward::default();
        let asked = members.iter().map(|&member| self.forward(member, epoch, nothing, &question));
        for (&member, said) in members.iter().zip(join_all(asked).await) {
            if said.is_ok_and(|said| !said.reserved && (said.full || said.short)) {
                return Err(self.has_no_room(member));
            }
        }
        Ok(())
    }

    /// Reserves what the primary has reserved. What there is no room for any more is not reserved here: it changes no byte, so
    /// nobody has to leave for it. Where the only copy moves to, it moves with what is reserved, or not at all.
    pub(super) async fn reserve_or_go_without(
        &self,
        key: &(u64, u64),
        range: msg::Range,
    ) -> Result<()> {
        let refused = match self.shelf.reserve(range).await {
            Err(error) if error.kind == ErrorKind::NoSpace && self.group.copies() > 1 => error,
            made => return made,
        };
        let (group, me) = (self.group, self.me());
        tracing::warn!("group {group} at target {me}: a reservation is missing here: {refused}");
        if let Some(entry) = self.state.lock().unsettled.get_mut(key) {
            // Should we lead and be asked for it again, others are asked again, too.
            entry.attempt = None;
        }
        // It is there as it is at those that have it reserved.
        self.shelf.touch(range.chunk.into()).await
    }

    /// True if a member that was short takes a change without room, or has some again. One of an older release
    /// does not say so.
    async fn ask_for_reserved(&self, member: TargetId, wanted: &msg::Settle) -> Result<bool> {
        let epoch = *self.hold_epoch().await?;
        let done = self.ask_about(member, epoch, wanted).await?;
        Ok(done.reserved || !done.short)
    }

    async fn ask_about(
        &self,
        member: TargetId,
        epoch: u64,
        wanted: &msg::Settle,
    ) -> Result<msg::Done> {
        match self.ask(member, epoch, StorageOp::Settle(wanted.clone())).await? {
            StorageAnswer::Done(done) => Ok(done),
            _ => Err(self.nonsense(member)),
        }
    }

    /// Has a member set room aside for what is reserved here. It is spared where it is close to being short: it need not
    /// leave, nor stay away, for what nobody has written yet, and who writes there is refused as long as it is short.
    pub(super) async fn reserve_at(&self, errand: Errand, range: msg::Range) -> Result<()> {
        let end = range.offset + range.len;
        for offset in (range.offset..end).step_by(PIECE_BYTES as usize) {
            let piece = msg::Range { offset, len: PIECE_BYTES.min(end - offset), ..range };
            if !self.reserve_piece(errand, piece).await? {
                tracing::debug!(
                    "group {}: target {} has little room, and reserves none of {} from byte {offset} on",
                    self.group,
                    errand.member,
                    ChunkId::from(range.chunk)
                );
                break;
            }
        }
        Ok(())
    }

    /// False if the member is spared. To where the only copy moves it moves with what is reserved, or not at all.
    async fn reserve_piece(&self, errand: Errand, piece: msg::Range) -> Result<bool> {
        let op = StorageOp::Allocate(piece);
        let moves = self.group.copies() == 1 && !self.required().contains(&errand.member);
        let said = self.ask_about(errand.member, errand.epoch, &wanted_by(&op, 0)).await?;
        // One of an older release does not say that it is tight.
        if !moves && !said.reserved && (said.short || said.tight) {
            return Ok(false);
        }
        let sent = self.common.clock.monotonic();
        let reserved = self.mend(errand, op, Bytes::new()).await;
        let counts = self.required().contains(&errand.member);
        if let (true, Err(error)) = (counts, &reserved) {
            // It may have been the last of its room: then it answers nobody in this epoch.
            self.missed(errand.epoch, errand.member, sent, error).await;
        }
        reserved.map(|()| true)
    }

    /// Tells the primary whether what it is about to write, or to reserve, takes room here, and whether there is some.
    pub(super) async fn tell_room(&self, wanted: msg::Settle) -> Result<Answer> {
        let target = &self.shelf.target;
        let mut said = msg::Done { short: target.is_short(), ..msg::Done::default() };
        if wanted.allocate {
            let bytes = self.shelf.reservations_take(wanted.parts).await?;
            said.reserved = bytes == 0;
            said.tight = target.is_tight(bytes);
            said.full = !target.may_reserve(bytes);
        } else {
            // Where next to nothing is left for the extent map, what is reserved cannot be written either.
            let keeps = target.store.keeps_promises();
            said.reserved = keeps && self.shelf.has_reserved(wanted.parts).await?;
        }
        plain_answer(StorageAnswer::Done(said))
    }

    /// Ourselves, or a member that says so still.
    async fn first_short(&self, members: &[TargetId]) -> Option<TargetId> {
        if self.shelf.target.is_short() {
            return Some(self.me());
        }
        for &member in members {
            let Some(said) = self.short.since(member) else { continue };
            let known = said.elapsed() < ASK_AGAIN || self.ask_for_room(member).await;
            if known {
                return Some(member);
            }
        }
        None
    }

    /// True if a member that was short is so now; who does not answer is no longer known to be.
    async fn ask_for_room(&self, member: TargetId) -> bool {
        let Ok(epoch) = self.hold_epoch().await.map(|adopted| *adopted) else { return false };
        self.short.note(member, false);
        let asked = self.ask(member, epoch, StorageOp::Settle(msg::Settle::default())).await;
        asked.is_ok() && self.short.since(member).is_some()
    }

    pub(super) fn has_no_room(&self, member: TargetId) -> Error {
        let detail = format!(
            "group {}: target {member} is short of room, and each copy needs some",
            self.group
        );
        Error::with(ErrorKind::NoSpace, detail)
    }
}
