//! Damaged blocks, and where sound ones come from: "Damage" in `docs/design/0040-replication.md`.
//!
//! Only the primary repairs, and it holds what it repairs, so that repairs are ordered with changes. A
//! block of its own comes from a member in sync, with its checksum as our map has it; one of another
//! member comes from here. Nothing is invented: a block that is damaged everywhere stays damaged. A member in
//! sync that does not answer may have it: until it does, or is taken out, nothing is called lost.

use super::errand::{Errand, MetBy, Outcome};
use super::holes::hole_of;
use super::met::{READ_PAUSE, REPAIR_WAIT, Tries};
use super::ranges::Area;
use super::tale::Tale;
use super::{Message, Reign, Replica, View};
use bytes::{Bytes, BytesMut};
use metrics::counter;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use strake_base::task;
use strake_engine::chunk::{BLOCK_BYTES, BlockSums};
use strake_types::limits::CHUNK_BYTES_MAX;
use strake_types::{ChunkId, Error, ErrorKind, Result, TargetId};
use strake_wire::frame::crc32c;
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Forward, StorageAnswer, StorageOp};

/// A member that does not say what it has, and why.
type Unheard = (TargetId, Error);

/// What another member has of a chunk.
struct Copy {
    member: TargetId,
    in_sync: bool,
    sums: BlockSums,
    damaged: BTreeSet<u32>,
}

impl Copy {
    /// Of what is sound there.
    fn sum(&self, block: u32) -> Option<u32> {
        sum_of(&self.sums, block).filter(|_| !self.damaged.contains(&block))
    }
}

/// A chunk that is being repaired: what is known of it, and what was done.
struct Patient<'a> {
    reign: u64,
    epoch: u64,
    chunk: ChunkId,
    /// Of ours, before that.
    sums: BlockSums,
    copies: Vec<Copy>,
    /// Who is in sync and may have what is damaged here, and does not say it now.
    silent: Option<Unheard>,
    /// Who is joining and does not say what it has.
    unheard: Vec<Unheard>,
    /// Blocks of ours that hold something else than before: the checksum, or a hole.
    changed: BTreeMap<u32, Option<u32>>,
    tale: Tale<'a>,
    outcome: Outcome,
}

impl Patient<'_> {
    /// True if another member in sync has a block.
    fn is_sound_elsewhere(&self, block: u32) -> bool {
        self.copies.iter().any(|copy| copy.in_sync && copy.sum(block).is_some())
    }
}

/// The checksum that a block has, or should have.
pub(super) fn sum_of(sums: &BlockSums, block: u32) -> Option<u32> {
    let found = sums.blocks().binary_search_by_key(&block, |(nth, _)| *nth);
    Some(sums.blocks()[found.ok()?].1)
}

impl Replica {
    /// Makes a chunk sound at all members in sync; for the primary. Waits for a repair of it that is under way: it may take longer
    /// than whoever has begun it waits, and comes back.
    pub async fn repair(
        self: &Arc<Self>,
        epoch: u64,
        chunk: ChunkId,
        met_by: MetBy,
    ) -> Result<Outcome> {
        let view = self.current(epoch).await?;
        self.check_lead(&view)?;
        let (mut ending, end) = self.repairs.join(chunk);
        if let Some(end) = end {
            let replica = self.clone();
            task::spawn(async move {
                let repaired = replica.repair_chunk(chunk, met_by).await;
                end.send_replace(Some(repaired));
            });
        }
        let late = |_| self.error(ErrorKind::NotCurrent, "the repair is still under way");
        let ended = ending.wait_for(Option::is_some);
        let ended = tokio::time::timeout(REPAIR_WAIT, ended).await.map_err(late)?;
        let repaired = ended.ok().and_then(|ended| ended.clone());
        let abandoned = || Err(self.error(ErrorKind::Io, "a repair was abandoned"));
        let outcome = repaired.unwrap_or_else(abandoned)?;
        self.check_seen(chunk, met_by, &outcome)?;
        Ok(outcome)
    }

    /// A scrub asks because it has met damage, wherever: at a member in sync that cannot be looked at it is there still, and at one that
    /// does not answer now it may be, if none was repaired. Who has met damage otherwise goes on with what was repaired.
    fn check_seen(&self, chunk: ChunkId, met_by: MetBy, outcome: &Outcome) -> Result<()> {
        let Some((member, error)) = &outcome.unseen else { return Ok(()) };
        let is_repaired = outcome.repaired > 0 && error.is_passing();
        if met_by != MetBy::Scrub || is_repaired || !outcome.lost.is_empty() {
            return Ok(());
        }
        let what = format!("{chunk} cannot be looked at on target {member}: {error}");
        Err(self.error(error.kind, &what))
    }

    async fn repair_chunk(&self, chunk: ChunkId, met_by: MetBy) -> Result<Outcome> {
        let reign = self.reigning().await?;
        let _held = self.ranges.take(Area::of_chunk(chunk), true).await;
        self.repair_held(reign, chunk, 0..u64::MAX, met_by).await
    }

    /// Makes blocks of a chunk sound, here and at all members in sync. The caller holds them. Fails when a
    /// block is damaged here and a member in sync that may have it does not answer. What a disk does not read is tried again
    /// before it counts as lost, for a moment.
    pub(super) async fn repair_held(
        &self,
        reign: u64,
        chunk: ChunkId,
        mut blocks: Range<u64>,
        met_by: MetBy,
    ) -> Result<Outcome> {
        let now = || self.common.clock.monotonic();
        let (mut repaired, mut tries) = (0, Tries::since(now()));
        loop {
            let outcome = self.repair_once(reign, chunk, &blocks, met_by).await?;
            repaired += outcome.repaired;
            let ends = outcome.lost.first().copied().zip(outcome.lost.last().copied());
            let Some((first, last)) = ends.filter(|_| tries.once_more(now())) else {
                self.tell_lost(chunk, &outcome.lost);
                return Ok(Outcome { repaired, ..outcome });
            };
            blocks = u64::from(first)..u64::from(last) + 1;
            tokio::time::sleep(READ_PAUSE).await;
        }
    }

    async fn repair_once(
        &self,
        reign: u64,
        chunk: ChunkId,
        blocks: &Range<u64>,
        met_by: MetBy,
    ) -> Result<Outcome> {
        let view = self.state.lock().reign(reign).ok_or_else(|| self.over())?.view.clone();
        let own = self.shelf.damaged(chunk, blocks.clone()).await?;
        let sums = self.shelf.sums(chunk).await?.unwrap_or_default();
        let (copies, unseen, unheard) = self.copies(&view, chunk, blocks).await;
        let silent = unseen.iter().find(|(_, error)| error.is_passing()).cloned();
        let mut patient = Patient {
            reign,
            epoch: view.epoch,
            chunk,
            sums,
            copies,
            silent,
            unheard,
            changed: BTreeMap::new(),
            tale: Tale::new(self, chunk, met_by),
            outcome: Outcome::default(),
        };
        for block in own {
            self.mend_own(&mut patient, block).await?;
        }
        for nth in 0..patient.copies.len() {
            self.mend_copy(&mut patient, nth).await?;
        }
        let Patient { silent, unheard, changed, mut outcome, .. } = patient;
        for (member, error) in unheard.iter().filter(|_| !changed.is_empty()) {
            self.begins_anew(view.epoch, *member, chunk, error).await;
        }
        // One that is silent may have what is damaged here; or what was here, and is something else now.
        let needed = !outcome.lost.is_empty() || !changed.is_empty();
        if let Some((member, error)) = silent.filter(|_| needed) {
            let what = format!(
                "{chunk} is damaged, and target {member}, which may have it, says: {error}"
            );
            return Err(self.error(error.kind, &what));
        }
        outcome.lost.sort_unstable();
        // Of who is away for a moment less is to be feared than of who cannot read what it has.
        outcome.unseen = unseen.into_iter().min_by_key(|(_, error)| error.is_passing());
        Ok(outcome)
    }

    /// What other members have of a chunk, who of those in sync does not say it, and who of those that are joining.
    async fn copies(
        &self,
        view: &View,
        chunk: ChunkId,
        blocks: &Range<u64>,
    ) -> (Vec<Copy>, Vec<Unheard>, Vec<Unheard>) {
        let (mut copies, mut unseen, mut unheard) = (Vec::new(), Vec::new(), Vec::new());
        let in_sync = view.in_sync.iter().skip(1).map(|&member| (member, true));
        for (member, in_sync) in in_sync.chain(view.joining.iter().map(|&member| (member, false))) {
            match self.copy_at(member, in_sync, view.epoch, chunk, blocks).await {
                Ok(copy) => copies.push(copy),
                Err(error) => {
                    tracing::debug!("group {}: {chunk}: {error}", self.group);
                    match in_sync {
                        true => unseen.push((member, error)),
                        // What it has is of no need.
                        false => unheard.push((member, error)),
                    }
                }
            }
        }
        (copies, unseen, unheard)
    }

    /// A block is damaged here: it comes from who has it, or is a hole as it is at who has made one.
    async fn mend_own(&self, patient: &mut Patient<'_>, block: u32) -> Result<()> {
        let (reign, chunk) = (patient.reign, patient.chunk);
        let known = sum_of(&patient.sums, block);
        let (from, sum) = if let Some((from, sum, data)) = self.fetch_sound(patient, block).await? {
            self.change_own(reign, write_of(chunk, block, &data), data).await?;
            (from, Some(sum))
        } else {
            let is_hole = |copy: &&Copy| {
                copy.in_sync
                    && sum_of(&copy.sums, block).is_none()
                    && self.takes_hole_of(copy.member, chunk, block)
            };
            let from = patient.copies.iter().find(is_hole).map(|copy| copy.member);
            let Some(from) = from else {
                patient.outcome.lost.push(block);
                return Ok(());
            };
            self.state.lock().reign.iter_mut().for_each(Reign::vouch_anew);
            self.change_own(reign, hole_of(chunk, block), Bytes::new()).await?;
            (from, None)
        };
        if sum != known {
            patient.changed.insert(block, sum);
        }
        patient.tale.note(self.me(), from, block);
        patient.outcome.repaired += 1;
        Ok(())
    }

    /// What is damaged at another member, and what ours is no more as it was, comes from here.
    async fn mend_copy(&self, patient: &mut Patient<'_>, nth: usize) -> Result<()> {
        let Some(copy) = patient.copies.get(nth) else { return Ok(()) };
        let chunk = patient.chunk;
        let errand = Errand { reign: patient.reign, epoch: patient.epoch, member: copy.member };
        // A longer copy, as one may be in a recovery before it is cut, has more in the last block of ours.
        let len = copy.sums.chunk_len();
        for (&block, &sum) in &patient.changed {
            let (theirs, before) = (sum_of(&copy.sums, block), sum_of(&patient.sums, block));
            // One that is joining and has something else than we had is sent it anyway.
            let is_to_come = !copy.in_sync && theirs != before;
            if copy.damaged.contains(&block) || theirs == sum || is_to_come {
                continue;
            }
            match self.send_block(errand, chunk, block, len).await {
                Err(error) if !copy.in_sync => {
                    self.begins_anew(errand.epoch, copy.member, chunk, &error).await;
                }
                sent => sent.map(drop)?,
            }
        }
        for &block in &copy.damaged {
            // One that is joining is sent what it has not, or not so. What it is said to have is not compared any more.
            let is_to_come =
                !copy.in_sync && sum_of(&copy.sums, block) != sum_of(&patient.sums, block);
            if patient.outcome.lost.contains(&block) || is_to_come {
                continue;
            }
            if self.send_block(errand, chunk, block, len).await? {
                patient.tale.note(copy.member, self.me(), block);
                patient.outcome.repaired += 1;
            } else if copy.in_sync && !patient.is_sound_elsewhere(block) {
                // It lies behind the end of ours. What others have of that a comparison takes back.
                patient.outcome.lost.push(block);
            }
        }
        Ok(())
    }

    /// Ours has become something else, and a member that is joining may have been made equal to what it was before.
    async fn begins_anew(&self, epoch: u64, member: TargetId, chunk: ChunkId, error: &Error) {
        let what = format!("{chunk} was repaired, and it may have what was there before: {error}");
        let now = self.common.clock.monotonic();
        self.missed(epoch, member, now, &self.error(ErrorKind::Corrupt, &what)).await;
    }

    async fn copy_at(
        &self,
        member: TargetId,
        in_sync: bool,
        epoch: u64,
        chunk: ChunkId,
        blocks: &Range<u64>,
    ) -> Result<Copy> {
        let (start, end) = (blocks.start * BLOCK_BYTES, blocks.end.min(BLOCKS_MAX) * BLOCK_BYTES);
        let range = msg::Range { chunk: chunk.into(), offset: start, len: end - start };
        let damaged = self.ask(member, epoch, StorageOp::Damage(range)).await?;
        let StorageAnswer::Damage(list) = damaged else { return Err(self.nonsense(member)) };
        let sums = self.sums_at(member, epoch, chunk).await?.unwrap_or_default();
        Ok(Copy { member, in_sync, sums, damaged: list.blocks.into_iter().collect() })
    }

    /// The bytes of a block that is damaged here, up to the end of our copy, with their checksum: from a member in sync, or from one
    /// that is joining and has exactly what we had. Notes who has them and does not send them now.
    async fn fetch_sound(
        &self,
        patient: &mut Patient<'_>,
        block: u32,
    ) -> Result<Option<(TargetId, u32, Bytes)>> {
        let (chunk, known) = (patient.chunk, sum_of(&patient.sums, block));
        let len = patient.sums.chunk_len();
        let copies = &patient.copies;
        let same = copies.iter().filter(|copy| copy.sum(block).is_some_and(|s| Some(s) == known));
        let others = copies.iter().filter(|copy| copy.in_sync);
        for copy in same.chain(others) {
            let Some(sum) = copy.sum(block) else { continue };
            match self.fetch_block(copy.member, patient.epoch, chunk, block, sum).await {
                Ok(data) => {
                    let data = self.up_to_our_end(chunk, block, len, data).await?;
                    let sum = crc32c(&padded(&data));
                    if Some(sum) != known {
                        self.forget_requests(chunk, block);
                    }
                    return Ok(Some((copy.member, sum, data)));
                }
                Err(error) => {
                    tracing::warn!("group {}: {chunk}: {error}", self.group);
                    if copy.in_sync && error.is_passing() {
                        patient.silent = Some((copy.member, error));
                    }
                }
            }
        }
        Ok(None)
    }

    /// What a longer copy has of a block behind the end of ours does not make ours longer, and a shorter one's block is as long as ours. Where ours had this `len`, it may have been
    /// made longer since, and theirs with it: of the rest of the chunk nothing is held for a change.
    async fn up_to_our_end(
        &self,
        chunk: ChunkId,
        block: u32,
        len: u64,
        mut data: Bytes,
    ) -> Result<Bytes> {
        if data.len() == part_of(block, len) {
            return Ok(data);
        }
        let len = self.shelf.sums(chunk).await?.map_or(0, |sums| sums.chunk_len());
        data.truncate(part_of(block, len));
        Ok(reaching(data, block, len))
    }

    /// Blocks that a member has and we have not come back from there. The caller holds the chunk. If it ends half-way, the
    /// rest is there still when it is done again.
    pub(super) async fn take_back(
        &self,
        errand: Errand,
        chunk: ChunkId,
        blocks: &[(u32, u32)],
    ) -> Result<()> {
        for &(block, sum) in blocks {
            let data = self.fetch_block(errand.member, errand.epoch, chunk, block, sum).await?;
            self.change_own_in(errand, write_of(chunk, block, &data), data).await?;
        }
        let target = self.me().to_string();
        counter!("strake_storage_taken_back_blocks_total", "target" => target)
            .increment(blocks.len() as u64);
        tracing::warn!(
            "group {}: {chunk} lacked {} blocks on target {}: taken back from target {}",
            self.group,
            blocks.len(),
            self.me(),
            errand.member
        );
        Ok(())
    }

    async fn fetch_block(
        &self,
        member: TargetId,
        epoch: u64,
        chunk: ChunkId,
        block: u32,
        sum: u32,
    ) -> Result<Bytes> {
        let read = read_of(chunk, block);
        let message = Message::of(StorageOp::Read(read));
        let (answer, data) = self.fetch(member, epoch, Forward::default(), &message).await?;
        let sound = matches!(answer, StorageAnswer::Data(_)) && crc32c(&padded(&data)) == sum;
        let damaged = || {
            let what = format!("target {member} sent something else at byte {}", read.offset);
            self.error(ErrorKind::Corrupt, &what)
        };
        if sound { Ok(data) } else { Err(damaged()) }
    }

    /// What we had of a block is gone, and an older one takes its place: requests that were not
    /// everywhere are not remembered as made by it, and who was told of one early learns of that.
    pub(super) fn forget_requests(&self, chunk: ChunkId, block: u32) {
        let area = Area::of_block(chunk, block);
        let mut state = self.state.lock();
        state.reign.iter_mut().for_each(Reign::vouch_anew);
        let touched = state.unsettled.values_mut().filter(|entry| entry.area.overlaps(&area));
        touched.for_each(|entry| entry.attempt = None);
    }

    /// Changes our copy alone, unless another reign has begun: then somebody else's newer bytes may be there.
    pub(super) async fn change_own(&self, reign: u64, op: StorageOp, data: Bytes) -> Result<()> {
        let _gate = self.hold_epoch().await?;
        self.change_inside(reign, op, data).await
    }

    /// The same, unless another epoch has begun: a member that joins in it may be past the chunk already.
    pub(super) async fn change_own_in(
        &self,
        errand: Errand,
        op: StorageOp,
        data: Bytes,
    ) -> Result<()> {
        let gate = self.hold_epoch().await?;
        if *gate != errand.epoch {
            return Err(self.error(ErrorKind::StaleMap, "a new epoch has begun"));
        }
        self.change_inside(errand.reign, op, data).await
    }

    /// The caller holds the epoch. What comes from other members is made also where what is new would be refused.
    async fn change_inside(&self, reign: u64, op: StorageOp, data: Bytes) -> Result<()> {
        let area = Area::checked(&op, data.len() as u64)?;
        let numbered = self.number(reign, area, None)?;
        let written = self.shelf.following().change(op, data).await;
        self.settle(&numbered);
        written
    }

    /// Sends one of our blocks to a member whose copy has this `len`; false if there is nothing of it here. The caller holds it.
    pub(super) async fn send_block(
        &self,
        errand: Errand,
        chunk: ChunkId,
        block: u32,
        len: u64,
    ) -> Result<bool> {
        let (data, _) = self.shelf.bytes(read_of(chunk, block)).await?;
        if data.is_empty() {
            return Ok(false);
        }
        let data = reaching(data, block, len);
        self.mend(errand, write_of(chunk, block, &data), data).await?;
        Ok(true)
    }

    /// Damage of ours is in the way of a change: repairs the blocks that it touches, which the caller
    /// holds. How many were.
    pub(super) async fn mend_before(&self, reign: u64, message: &Message) -> Result<u64> {
        let mut repaired = 0;
        for (chunk, blocks) in touched(&message.op, &message.payload) {
            let outcome = self.repair_held(reign, chunk, blocks, MetBy::Change).await?;
            repaired += outcome.repaired;
        }
        Ok(repaired)
    }

    /// Damage at a member is in the way of a change that is made here: the member gets our blocks.
    pub(super) async fn mend_member(&self, errand: Errand, message: &Message) -> Result<()> {
        let (reign, epoch, member) = (errand.reign, errand.epoch, errand.member);
        for (chunk, blocks) in touched(&message.op, &message.payload) {
            let mut tale = Tale::new(self, chunk, MetBy::Change);
            let copy = self.copy_at(member, true, epoch, chunk, &blocks).await?;
            for &block in &copy.damaged {
                let (errand, len) = (Errand { reign, epoch, member }, copy.sums.chunk_len());
                self.send_block(errand, chunk, block, len).await?;
                tale.note(member, self.me(), block);
            }
        }
        Ok(())
    }

    fn tell_lost(&self, chunk: ChunkId, lost: &[u32]) {
        let Some(first) = lost.first() else { return };
        let target = self.me().to_string();
        counter!("strake_storage_lost_blocks_total", "target" => target)
            .increment(lost.len() as u64);
        tracing::error!(
            "group {}: {chunk} is damaged at all members in {} blocks, the first at byte {}; restore the file from a backup",
            self.group,
            lost.len(),
            u64::from(*first) * BLOCK_BYTES
        );
    }
}

/// Blocks of the longest chunk.
const BLOCKS_MAX: u64 = CHUNK_BYTES_MAX / BLOCK_BYTES;

fn read_of(chunk: ChunkId, block: u32) -> msg::Read {
    msg::Read { chunk: chunk.into(), offset: u64::from(block) * BLOCK_BYTES, len: BLOCK_BYTES }
}

fn write_of(chunk: ChunkId, block: u32, data: &[u8]) -> StorageOp {
    let offset = u64::from(block) * BLOCK_BYTES;
    StorageOp::Write(msg::Write { chunk: chunk.into(), offset, crc: crc32c(data), durable: false })
}

/// How many bytes of a block a chunk of this length has.
fn part_of(block: u32, len: u64) -> usize {
    len.saturating_sub(u64::from(block) * BLOCK_BYTES).min(BLOCK_BYTES) as usize
}

/// The first bytes of a block, with zeros behind them where a copy of this length has more of it: what is damaged there is replaced
/// as a whole, by bytes up to its end, and it gets no longer by that. The checksum is the same.
fn reaching(data: Bytes, block: u32, len: u64) -> Bytes {
    let part = part_of(block, len);
    if data.len() >= part {
        return data;
    }
    let mut longer = BytesMut::from(&data[..]);
    longer.resize(part, 0);
    longer.freeze()
}

/// A block with zeros to its end.
fn padded(data: &[u8]) -> Bytes {
    let mut whole = BytesMut::from(data);
    whole.resize(BLOCK_BYTES as usize, 0);
    whole.freeze()
}

/// The blocks that a change touches, and may have to read because it changes them in part.
fn touched(op: &StorageOp, payload: &[u8]) -> Vec<(ChunkId, Range<u64>)> {
    let blocks = |chunk: msg::Chunk, offset: u64, len: u64| {
        let end = offset.saturating_add(len);
        (ChunkId::from(chunk), offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES))
    };
    match op {
        StorageOp::Write(write) => vec![blocks(write.chunk, write.offset, payload.len() as u64)],
        StorageOp::WriteMany(many) => {
            let parts = many.indices.iter().zip(&many.offsets).zip(&many.lens);
            let part = |((&index, &offset), &len)| {
                blocks(msg::Chunk { volume: many.volume, ino: many.ino, index }, offset, len)
            };
            parts.map(part).collect()
        }
        StorageOp::Punch(range) => vec![blocks(range.chunk, range.offset, range.len)],
        StorageOp::Truncate(cut) => match (cut.last_chunk_len, cut.from_index.checked_sub(1)) {
            (Some(len), Some(index)) => {
                vec![blocks(msg::Chunk { volume: cut.volume, ino: cut.ino, index }, len, 1)]
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
