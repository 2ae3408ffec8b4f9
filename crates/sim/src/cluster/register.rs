//! What a reader may see of a file's blocks.
//!
//! Each file is written by one client, a block at a time with a version that no other write has. So what
//! is read says which write it came from, and what may be read is an interval: not older than what
//! was acknowledged, or read by somebody, before the file was opened; not newer than what has been
//! written. `docs/SEMANTICS.md` has the clauses.

use bytes::Bytes;
use std::collections::BTreeSet;
use strake_base::count_case;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Bytes of the mark that a block is filled with.
const MARK: usize = 16;

/// What is known of a block.
#[derive(Clone, Debug, Default)]
struct Block {
    /// Whoever opens from now on sees this version or a later one.
    acked: u64,
    /// As `acked`, and no loss of power takes it away.
    durable: u64,
    /// Somebody has read it.
    seen: u64,
    /// What the mount that writes it has to see; `None`: it was told of an error since.
    own: Option<u64>,
    /// The last version that anybody has tried to write.
    latest: u64,
    /// Versions that are zeros.
    zeros: BTreeSet<u64>,
    /// Of these, those that were carried out when their mount was answered: nothing of them is under way.
    done: BTreeSet<u64>,
    /// Versions whose writer died before they were acknowledged: what it had sent may arrive later.
    ghosts: BTreeSet<u64>,
}

/// A file.
#[derive(Debug)]
pub struct Register {
    file: u32,
    blocks: Vec<Block>,
    next: u64,
    /// Versions up to here may have been lost with the power of machines; only an `fsync` says that
    /// they were not.
    lossy: u64,
    /// Machines have lost power and copies are not equal again: what is there now and not synced may
    /// still go, with whoever has it.
    shaky: bool,
    /// How often power was lost.
    losses: u64,
    /// Versions up to here may have been lost with a journal: no `fsync` says whether they were.
    unsaid: u64,
    /// How often what the mount has written may have become less: it died, or was told of an error.
    upsets: u64,
    /// What the mount holds back may be missed, until the metadata server has surely heard it.
    unheard: bool,
    /// How often that began.
    misses: u64,
    /// Versions from here on were written since.
    since_missed: u64,
    /// For so many reasons that may begin again at any time.
    doubts: u64,
    /// One copy acknowledges what others may not have: only an `fsync` says that it stays.
    alone: bool,
    /// Its mount was told that a change has failed.
    refused: bool,
    /// The mount has read something older than what it has written: its next sync has to say why, or
    /// already its next close, unless power was lost.
    suspect: Option<(String, bool)>,
}

/// What was true when a file was opened.
#[derive(Clone, Debug)]
pub struct Opened {
    floors: Vec<u64>,
    durable: Vec<u64>,
    losses: u64,
    /// What the mount that writes it had written, told or not.
    written: Vec<u64>,
    upsets: u64,
}

impl Register {
    /// A file of zeros.
    pub fn new(file: u32, blocks: u64) -> Self {
        let block = Block { zeros: BTreeSet::from([0]), ..Block::default() };
        let blocks = vec![block; blocks as usize];
        let (next, lossy, shaky, alone, refused, suspect) = (1, 0, false, false, false, None);
        let (losses, unsaid, upsets) = (0, 0, 0);
        let (unheard, misses, since_missed, doubts) = (false, 0, 0, 0);
        Self {
            file,
            blocks,
            next,
            lossy,
            shaky,
            losses,
            unsaid,
            upsets,
            unheard,
            misses,
            since_missed,
            doubts,
            alone,
            refused,
            suspect,
        }
    }

    /// From now on one copy acknowledges alone (`--ack primary`, S-099).
    pub fn acknowledge_alone(&mut self) {
        (self.alone, self.shaky) = (true, true);
    }

    /// Number of blocks.
    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// True for a file without blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// A write begins: its version, and its bytes.
    pub fn begin_write(&mut self, first: u64, count: u64) -> (u64, Bytes) {
        let version = self.next;
        self.next += 1;
        let mut bytes = Vec::with_capacity((count * BLOCK) as usize);
        for nth in first..first + count {
            self.blocks[nth as usize].latest = version;
            let mut mark = Vec::with_capacity(MARK);
            mark.extend(self.file.to_le_bytes());
            mark.extend((nth as u32).to_le_bytes());
            mark.extend(version.to_le_bytes());
            bytes.extend(mark.repeat(BLOCK as usize / MARK));
        }
        (version, bytes.into())
    }

    /// A range begins to be made zeros: its version.
    pub fn begin_zero(&mut self, first: u64, count: u64) -> u64 {
        let version = self.next;
        self.next += 1;
        for block in &mut self.blocks[first as usize..(first + count) as usize] {
            block.latest = version;
            block.zeros.insert(version);
        }
        version
    }

    /// A write has been taken by its mount.
    pub fn written(&mut self, first: u64, count: u64, version: u64) {
        for block in &mut self.blocks[first as usize..(first + count) as usize] {
            block.own = Some(version).filter(|version| *version > self.unsaid);
        }
    }

    /// A range has been made zeros where it lies, and not in the memory of its mount.
    pub fn zeroed(&mut self, first: u64, count: u64, version: u64) {
        self.written(first, count, version);
        for block in &mut self.blocks[first as usize..(first + count) as usize] {
            block.done.insert(version);
        }
    }

    /// What the mount has written is with the servers; `synced`: on their disks.
    ///
    /// # Errors
    /// The mount has seen before that something was lost.
    pub fn acknowledged(&mut self, synced: bool) -> Result<(), String> {
        if let Some((what, lost_power)) = self.suspect.clone()
            && (synced || !lost_power)
        {
            return Err(format!("{what}, and the next sync says that all is well"));
        }
        for block in &mut self.blocks {
            let Some(own) = block.own else { continue };
            if synced {
                block.durable = block.durable.max(own);
            }
            if synced || own > self.lossy && !self.shaky {
                block.acked = block.acked.max(own);
            }
        }
        // A close tells nothing where there is nothing to tell.
        let told = self.blocks.iter().filter_map(|block| block.own).max();
        self.unheard &= self.doubts > 0 || told.is_none_or(|own| own < self.since_missed);
        Ok(())
    }

    /// How often what the mount holds back may have been missed.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// The metadata server has answered what the mount asked after so many [`Register::misses`]. What it asked before
    /// says nothing: it may have been answered by then.
    pub fn heard(&mut self, misses: u64) {
        self.unheard &= self.doubts > 0 || misses != self.misses;
    }

    /// The mount was told of an error.
    pub fn failed(&mut self) {
        self.refused = true;
        self.forget_own();
    }

    /// Of what the mount has written nobody knows what it sees: it was told of an error, is gone, or never heard what has become of it.
    pub fn forget_own(&mut self) {
        self.suspect = None;
        self.upsets += 1;
        self.blocks.iter_mut().for_each(|block| block.own = None);
    }

    /// The mount has died. What it had sent and was not answered may still be carried out, after what
    /// others write.
    pub fn died(&mut self) {
        self.forget_own();
        for block in &mut self.blocks {
            let sent = (block.acked + 1..=block.latest).filter(|sent| !block.done.contains(sent));
            block.ghosts.extend(sent);
        }
    }

    /// True if it may say that it occupies nothing although targets hold something (S-063): all of it was punched, and may have been
    /// counted then, and of a change that has failed nobody need have told.
    pub fn may_seem_empty(&self) -> bool {
        self.refused && self.blocks.iter().all(|block| block.zeros.len() > 1)
    }

    /// True if something that a dead client had sent may arrive.
    pub fn awaits_the_dead(&self) -> bool {
        self.blocks.iter().any(|block| !block.ghosts.is_empty())
    }

    /// Nothing of the dead arrives any more: it is too long ago.
    pub fn dead_are_over(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.ghosts.clear());
    }

    /// Machines have lost power, and with it perhaps what was acknowledged and not synced.
    pub fn power_lost(&mut self) {
        self.shaky = true;
        self.losses += 1;
        self.lossy = self.next - 1;
        for block in &mut self.blocks {
            block.acked = block.durable;
            block.seen = block.durable;
        }
    }

    /// The machine of the metadata server has lost power, and with it perhaps what its journal had not synced of this file,
    /// which lies there: no later `fsync` notices (S-008), and who has seen it may have been the last one.
    pub fn journal_lost(&mut self) {
        self.forget_own();
        self.power_lost();
        self.unsaid = self.next - 1;
    }

    /// The metadata server was restarted, and who stays away from it then is not waited for until he is back; or a
    /// client is evicted, and what it holds back is lost.
    pub fn may_be_missed(&mut self) {
        self.upsets += 1;
        (self.unheard, self.misses, self.since_missed) = (true, self.misses + 1, self.next);
    }

    /// A client was to be evicted, and nobody knows whether and when it is; or a disk is full.
    pub fn may_be_missed_at_any_time(&mut self) {
        self.may_be_missed();
        self.doubts += 1;
    }

    /// One reason for that is over: what is asked from now on says again whether the mount is heard.
    pub fn doubt_ends(&mut self) {
        self.may_be_missed();
        self.doubts = self.doubts.saturating_sub(1);
    }

    /// All copies are equal again.
    pub fn whole_again(&mut self) {
        if self.shaky {
            self.power_lost();
            self.shaky = self.alone;
        }
    }

    /// The file is about to be opened.
    pub fn open(&self) -> Opened {
        self.opened(self.blocks.iter().map(|block| block.acked.max(block.seen)).collect())
    }

    fn opened(&self, floors: Vec<u64>) -> Opened {
        let durable = self.blocks.iter().map(|block| block.durable).collect();
        let stays = |own: &u64| *own > self.lossy && !self.unheard;
        let kept = |block: &Block| block.own.filter(stays).unwrap_or(0);
        let written = self.blocks.iter().map(kept).collect();
        Opened { floors, durable, losses: self.losses, written, upsets: self.upsets }
    }

    /// A file that was `opened` is about to be read: what others have told since is seen, too. What somebody
    /// else has merely seen need not be (S-014).
    pub fn read(&self, opened: &Opened) -> Opened {
        let before = if opened.losses == self.losses { &opened.floors } else { &opened.durable };
        let floors = self.blocks.iter().zip(before).map(|(block, &before)| before.max(block.acked));
        self.opened(floors.collect())
    }

    /// What a reader has read; `own`: by the mount that writes the file.
    ///
    /// # Errors
    /// What it may not see.
    pub fn check(
        &mut self,
        opened: &Opened,
        first: u64,
        data: &[u8],
        own: bool,
    ) -> Result<(), String> {
        for (nth, bytes) in (first..).zip(data.chunks(BLOCK as usize)) {
            self.check_block(opened, nth, bytes, own)?;
        }
        Ok(())
    }

    fn check_block(
        &mut self,
        opened: &Opened,
        nth: u64,
        bytes: &[u8],
        own: bool,
    ) -> Result<(), String> {
        let file = self.file;
        let shown = |what: &str| format!("file {file} block {nth}: {what}");
        let found = mark_of(bytes).ok_or_else(|| shown("a mixture of several writes"))?;
        let since = opened.losses != self.losses;
        let block = &mut self.blocks[nth as usize];
        let floors = if since { &opened.durable } else { &opened.floors };
        // Nobody holds back what others may look for (S-014), while nothing is lost.
        let quiet = !since && !self.shaky && opened.upsets == self.upsets;
        let written = if quiet { opened.written[nth as usize] } else { 0 };
        let floor = floors[nth as usize].max(written);
        let range = floor..=block.latest;
        let version = match found {
            Some((of_file, of_block, _)) if (of_file, of_block) != (file, nth as u32) => {
                return Err(shown(&format!("bytes of file {of_file} block {of_block}")));
            }
            Some((_, _, version)) => version,
            None => *block.zeros.range(range.clone()).next_back().unwrap_or(&0),
        };
        // What a dead writer had sent may come after what others write.
        let late = match found {
            Some(_) => block.ghosts.contains(&version),
            None => block.zeros.iter().any(|zero| block.ghosts.contains(zero)),
        };
        let fits = range.contains(&version) && (found.is_some() || block.zeros.contains(&version));
        if late && !fits {
            count_case("read-excused");
            return Ok(());
        }
        if floor > 0 {
            count_case("read-bounded");
        }
        if written > floors[nth as usize] {
            count_case("read-bounded-by-write");
        }
        if !fits {
            return Err(shown(&format!("version {version} where {range:?} may be ({block:?})")));
        }
        match block.own.filter(|_| own) {
            Some(expected) if version < expected && !late => {
                let what = format!("version {version} where this mount has written {expected}");
                self.suspect = Some((shown(&what), self.alone || expected <= self.lossy));
            }
            // What the mount reads may be in its memory only.
            _ if !own && !since && !self.shaky && found.is_some() && version > self.unsaid => {
                block.seen = block.seen.max(version)
            }
            _ => {}
        }
        Ok(())
    }
}

/// File, block and version of a block; `None` inside: zeros; outside: neither.
pub(super) fn mark_of(bytes: &[u8]) -> Option<Option<(u32, u32, u64)>> {
    let mark = bytes.get(..MARK)?;
    if bytes.chunks(MARK).any(|part| part != mark) {
        return None;
    }
    let version = u64::from_le_bytes(*mark[8..].first_chunk()?);
    let file = u32::from_le_bytes(*mark.first_chunk()?);
    let block = u32::from_le_bytes(*mark[4..].first_chunk()?);
    Some((version != 0).then_some((file, block, version)))
}

#[cfg(test)]
mod tests;
