//! Members that are short of room: a change that takes some is refused before anybody makes it. A
//! member that had to refuse what its primary has made would have to leave. A reservation may be larger than what is kept for
//! what is under way: a member that has no room for it says so and stays, and the others take it back.

use super::errand::Errand;
use super::ranges::Area;
use super::{Message, Replica};
use crate::apply::Answer;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use strake_types::{ChunkId, Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp};
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

/// What a change asks of those who are short. Other changes take no room.
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
        _ => Vec::new(),
    };
    msg::Settle { parts, allocate: matches!(op, StorageOp::Allocate(_)) }
}

impl Replica {
    /// Where a reservation takes room here: its parts, ascending. Other changes have none.
    pub(super) async fn reserves(&self, op: &StorageOp) -> Result<Vec<msg::Range>> {
        let StorageOp::Allocate(range) = op else { return Ok(Vec::new()) };
        let part = |(offset, len)| msg::Range { offset, len, ..*range };
        Ok(self.shelf.holes(*range).await?.into_iter().map(part).collect())
    }

    /// Takes back what a reservation took here, and at members that made it. The caller holds it: nothing has been written there.
    pub(super) async fn take_back_reserved(&self, reign: u64, parts: &[msg::Range]) -> Result<()> {
        for part in parts {
            let message = Message::of(StorageOp::Punch(*part));
            let numbered = self.make(reign, Area::of_range(part), &message).await?;
            self.spread(&numbered, &message).await?;
            self.settle(&numbered);
        }
        Ok(())
    }

    /// A member has no room for a reservation. True if it counts: nobody is to rely on that one then. One that is being made
    /// equal is spared as in [`Replica::reserve_at`]; but it is not where the only copy moves to.
    pub(super) async fn refuses(&self, epoch: u64, member: TargetId) -> bool {
        if self.required().contains(&member) {
            return true;
        }
        if self.group.copies() == 1 {
            let error = self.has_no_room(member);
            self.missed(epoch, member, &error).await;
        }
        false
    }

    /// Fails if a change takes room, and a member that has to make it is short, or if a reservation would make us short: so
    /// much it `takes` here. Reserved room may be written by all; others under way to the same member have what it keeps.
    pub(super) async fn check_room(
        &self,
        reign: u64,
        message: &Message,
        takes: &[msg::Range],
    ) -> Result<()> {
        let members: Vec<TargetId> = {
            let mut state = self.state.lock();
            state.reign(reign).iter().flat_map(|reign| reign.required()).collect()
        };
        if members.is_empty() {
            return Ok(());
        }
        if !takes.is_empty() && !self.shelf.target.may_reserve(takes.iter().map(|p| p.len).sum()) {
            return Err(self.has_no_room(self.me()));
        }
        let Some(short) = self.first_short(&members).await else { return Ok(()) };
        if self.shelf.takes_room(&message.op, &message.payload).await? {
            return Err(self.has_no_room(short));
        }
        // What is reserved here need not be there: a copy that an earlier release has made equal has the same bytes, and
        // no more; nor has one that was short when it was made equal.
        let wanted = wanted_by(&message.op, message.payload.len() as u64);
        if wanted.parts.is_empty() {
            return Ok(());
        }
        for member in members.into_iter().filter(|&member| self.short.since(member).is_some()) {
            if !self.ask_for_reserved(member, &wanted).await? {
                return Err(self.has_no_room(member));
            }
        }
        Ok(())
    }

    /// True if a member that was short takes a change without room, or has some again. One of an older release
    /// does not say so.
    async fn ask_for_reserved(&self, member: TargetId, wanted: &msg::Settle) -> Result<bool> {
        let epoch = *self.adopted.read().await;
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
        let told = self.mend_told(errand, op, Bytes::new()).await;
        let counts = self.required().contains(&errand.member);
        if let (true, Err(error)) = (counts, &told) {
            // It may have been the last of its room: one of an older release then answers nobody in this epoch.
            self.missed(errand.epoch, errand.member, error).await;
        }
        match told?.tight {
            true if moves => Err(self.has_no_room(errand.member)),
            tight => Ok(!tight),
        }
    }

    /// To the primary, of a reservation for which there is no room here. One of an older release takes it for made, as it does
    /// where a copy was made equal without it.
    pub(super) fn refused_room(&self) -> Answer {
        let short = self.shelf.target.is_short();
        let refused = msg::Done { short, tight: true, ..msg::Done::default() };
        (StorageAnswer::Done(refused), Bytes::new())
    }

    /// Tells the primary whether what it is about to write, or to reserve, takes room here, and whether there is some.
    pub(super) async fn tell_room(&self, wanted: msg::Settle) -> Result<Answer> {
        let (reserves, parts) = (wanted.allocate, wanted.parts.iter().map(|part| part.len));
        let bytes = parts.fold(0, u64::saturating_add);
        let reserved = self.shelf.has_reserved(wanted).await?;
        let tight = reserves && self.shelf.target.is_tight(bytes);
        Ok(match self.shelf.done_at(0).0 {
            StorageAnswer::Done(done) => {
                (StorageAnswer::Done(msg::Done { reserved, tight, ..done }), Bytes::new())
            }
            other => (other, Bytes::new()),
        })
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
        let epoch = *self.adopted.read().await;
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
