//! What is in a file: blocks, each filled by one mark.
//!
//! Who changes and reads a file under a lock, and opens it after taking it, sees one history ([`Whole`]). Who
//! does not is promised less (S-010, S-013): what is read is not older than what was closed before the open, but
//! of two readers on different mounts the later one may see less of a write that is still under way; and a
//! write is its bytes first and then the length. So each block that somebody has seen is judged by itself,
//! together with all changes ([`judge_seen`]).
//!
//! Of a file that all have open all the time a read shows what was written last (S-014): [`Last`].

use super::{Object, Operation, Verdict};

/// A block that was never written, or cut off and made longer again.
pub const ZEROS: u64 = 0;

/// What a client does with the file while it has the lock, having read all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Nothing,
    /// Writes some blocks, from the first one on.
    Write(u64, u64),
    /// Appends so many blocks.
    Append(u64),
    /// Sets the length.
    Resize(u64),
}

/// All of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Whole(pub Vec<u64>);

impl Object for Whole {
    /// The change, and the mark that it writes.
    type Ask = (Change, u64);
    /// What was read before it.
    type Told = Vec<u64>;
    type Step = ();

    fn after(
        &self,
        ask: &(Change, u64),
        told: &Vec<u64>,
        _step: Option<&()>,
    ) -> Vec<(Self, Option<()>)> {
        if *told != self.0 {
            return Vec::new();
        }
        let mut blocks = self.0.clone();
        let (at, count) = match ask.0 {
            Change::Nothing => (0, 0),
            Change::Write(at, count) => (at as usize, count as usize),
            Change::Append(count) => (blocks.len(), count as usize),
            Change::Resize(len) => {
                blocks.resize(len as usize, ZEROS);
                (0, 0)
            }
        };
        if count > 0 && blocks.len() < at + count {
            blocks.resize(at + count, ZEROS);
        }
        blocks[at..at + count].fill(ask.1);
        vec![(Whole(blocks), None)]
    }

    fn only_looks(ask: &(Change, u64), _told: &Vec<u64>) -> bool {
        ask.0 == Change::Nothing
    }
}

/// One block of a file that all have open. What is still under way may be seen by one, and then not yet by another (S-014):
/// so each read is judged by itself, together with all writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Last(pub u64);

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It gets a mark.
    Write(u64),
    /// It is read: this is there.
    Read(u64),
}

impl Object for Last {
    type Ask = Use;
    type Told = ();
    type Step = ();

    fn after(&self, ask: &Use, _told: &(), _step: Option<&()>) -> Vec<(Self, Option<()>)> {
        match *ask {
            Use::Write(mark) => vec![(Last(mark), None)],
            Use::Read(seen) if seen == self.0 => vec![(self.clone(), None)],
            Use::Read(_) => Vec::new(),
        }
    }

    fn only_looks(ask: &Use, _told: &()) -> bool {
        matches!(ask, Use::Read(_))
    }
}

/// What a client does without a lock, each with an open and a close of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Writes so many blocks from one on with a mark.
    Write(u64, u64, u64),
    /// Sets the length.
    Resize(u64),
    /// Has read these blocks from one on: fewer than asked for only at the end of the file.
    Read(u64, Vec<u64>, u64),
    /// Was told the length.
    Length(u64),
}

/// One block of a file, and whether the length reaches over it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    value: u64,
    is_there: bool,
}

/// What happens to one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It gets a mark, then the length reaches over it.
    Write(u64),
    /// The length reaches over it.
    Reach,
    /// It is cut off.
    Cut,
    /// It is read: this is there.
    See(u64),
    /// It is seen that the length reaches over it, or not.
    Reached(bool),
}

impl Object for Block {
    type Ask = Touch;
    type Told = ();
    type Step = ();

    fn after(&self, ask: &Touch, _told: &(), step: Option<&()>) -> Vec<(Self, Option<()>)> {
        let Block { value, is_there } = *self;
        match (*ask, step) {
            // The bytes; a block beyond the end shows them when the length is told.
            (Touch::Write(mark), None) => vec![(Block { value: mark, is_there }, Some(()))],
            (Touch::Write(_), Some(())) | (Touch::Reach, _) => {
                vec![(Block { value, is_there: true }, None)]
            }
            (Touch::Cut, _) => vec![(Block { value: ZEROS, is_there: false }, None)],
            // The length is that of the open; the bytes may be newer.
            (Touch::See(seen), None) if is_there => {
                let now = (seen == value).then(|| (self.clone(), None));
                now.into_iter().chain([(self.clone(), Some(()))]).collect()
            }
            (Touch::See(seen), Some(())) if seen == value => vec![(self.clone(), None)],
            (Touch::Reached(seen), _) if seen == is_there => vec![(self.clone(), None)],
            (Touch::See(_) | Touch::Reached(_), _) => Vec::new(),
        }
    }

    fn only_looks(ask: &Touch, _told: &()) -> bool {
        matches!(ask, Touch::See(_) | Touch::Reached(_))
    }
}

/// A deed, by whom and when.
#[derive(Clone, Debug)]
pub struct Done {
    /// Who.
    pub client: u32,
    /// What.
    pub deed: Deed,
    /// When it began, before the open.
    pub began: u64,
    /// When it ended, after the close.
    pub ended: u64,
}

impl Done {
    fn touch(&self, ask: Touch) -> Operation<Block> {
        let Done { client, began, ended, .. } = *self;
        Operation { client, ask, told: (), began, ended }
    }

    /// What it does to a block.
    fn change_of(&self, block: u64) -> Option<Operation<Block>> {
        let touch = match self.deed {
            Deed::Write(at, count, mark) if (at..at + count).contains(&block) => Touch::Write(mark),
            Deed::Write(at, count, _) if block < at + count => Touch::Reach,
            Deed::Resize(len) if block < len => Touch::Reach,
            Deed::Resize(_) => Touch::Cut,
            _ => return None,
        };
        Some(self.touch(touch))
    }

    /// What it has seen, block by block.
    fn seen(&self) -> Vec<(u64, Touch)> {
        match &self.deed {
            Deed::Read(at, blocks, wanted) => {
                let read = (*at..).zip(blocks.iter().map(|mark| Touch::See(*mark)));
                let end = at + blocks.len() as u64;
                read.chain((end < at + wanted).then_some((end, Touch::Reached(false)))).collect()
            }
            Deed::Length(len) => {
                let last = len.checked_sub(1).map(|last| (last, Touch::Reached(true)));
                last.into_iter().chain([(*len, Touch::Reached(false))]).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Whether what was seen of a file that had these blocks at first can have been there.
pub fn judge_seen(first: &[u64], history: &[Done]) -> Verdict {
    let mut verdict = Verdict::Fits;
    for looked in history {
        for (block, seen) in looked.seen() {
            let value = first.get(block as usize);
            let start = Block { value: value.copied().unwrap_or(ZEROS), is_there: value.is_some() };
            let mut touches: Vec<_> = history.iter().filter_map(|d| d.change_of(block)).collect();
            touches.push(looked.touch(seen));
            verdict = verdict.and(|| match super::judge(start, &touches) {
                Verdict::Impossible(why) => {
                    Verdict::Impossible(format!("block {block} of {looked:?}: {why}"))
                }
                other => other,
            });
        }
    }
    verdict
}
