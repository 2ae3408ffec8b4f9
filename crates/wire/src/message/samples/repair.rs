//! Messages about damage, and about what does not fit.

use super::super::{manager as mgr, meta, storage as st};
use super::Gen;

impl Gen {
    fn lost(&mut self) -> st::LostBlocks {
        let (chunk, blocks) = (self.chunk(), self.list(Self::u32));
        st::LostBlocks { chunk, blocks, crcs: self.list(Self::u32) }
    }

    pub(super) fn cut(&mut self) -> st::Cut {
        st::Cut { chunk: self.chunk(), length: self.opt(Self::u64), lose: self.bool() }
    }

    pub(super) fn write(&mut self) -> st::Write {
        let (chunk, offset) = (self.chunk(), self.u64());
        st::Write { chunk, offset, crc: self.u32(), durable: self.bool() }
    }

    fn hole(&mut self) -> st::Hole {
        let (reign, number) = (self.u64(), self.u64());
        let (from, offset) = (self.chunk(), self.u64());
        st::Hole { reign, number, from, offset, bytes: self.opt(Self::u64) }
    }

    pub(super) fn unsettled(&mut self) -> st::UnsettledList {
        let (chunks, files) = (self.list(Self::chunk), self.list(Self::file));
        st::UnsettledList { chunks, files, holes: self.list(Self::hole) }
    }

    pub(super) fn check(&mut self) -> meta::MetaOp {
        meta::MetaOp::Check(meta::Check {
            part: self.u32() % 5,
            after: self.bytes(),
            limit: self.u32(),
            repair: self.bool(),
            target: self.u32(),
            lost_found: self.u64(),
        })
    }

    fn problem(&mut self) -> meta::Problem {
        meta::Problem {
            what: self.string(),
            ino: self.u64(),
            path: self.bytes(),
            detail: self.string(),
            mended: self.bool(),
        }
    }

    pub(super) fn checked(&mut self) -> meta::MetaAnswer {
        meta::MetaAnswer::Checked(meta::Checked {
            next: self.bytes(),
            looked_at: self.u64(),
            problems: self.list(Self::problem),
        })
    }

    pub(super) fn scrub_word(&mut self) -> mgr::ScrubWord {
        mgr::ScrubWord { ended_unix_s: self.u64(), repaired: self.u64(), left: self.u64() }
    }

    pub(super) fn repairs(&mut self) -> Vec<st::StorageOp> {
        use st::StorageOp::*;
        vec![
            Damage(self.range()),
            Lose(self.lost()),
            Repair(st::Repair { chunk: self.chunk(), met_by: self.u32() }),
            Compare(st::Compare { after: self.opt(Self::chunk), repair: self.bool() }),
            Census(st::DigestsAfter { after: self.opt(Self::chunk) }),
            AddTarget(st::AddTarget { dir: self.string(), dry_run: self.bool() }),
        ]
    }

    pub(super) fn repair_answers(&mut self) -> Vec<st::StorageAnswer> {
        use st::StorageAnswer::*;
        vec![
            Damage(st::BlockList { blocks: self.list(Self::u32) }),
            Repaired(st::Repaired { blocks: self.u64(), lost: self.list(Self::u32) }),
            Compared(st::Compared {
                next: self.opt(Self::chunk),
                chunks: self.u64(),
                different: self.list(Self::chunk),
                members: self.list(Self::u32),
                left: self.list(Self::bool),
            }),
            Census(st::CensusPage {
                chunks: self.list(Self::chunk),
                groups: self.list(Self::u32),
                lens: self.list(Self::u64),
                next: self.opt(Self::chunk),
            }),
            Added(st::Added {
                target: self.u32(),
                path: self.string(),
                total_bytes: self.u64(),
                free_bytes: self.u64(),
                beside: self.list(Self::u32),
            }),
        ]
    }
}
