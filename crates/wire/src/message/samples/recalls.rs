//! What is said of recalls, and with them; and of claims, which are called back so.

use super::super::meta;
use super::Gen;

impl Gen {
    pub(super) fn recalled(&mut self) -> meta::MetaAnswer {
        let (number, inodes) = (self.u64(), self.list(Self::u64));
        meta::MetaAnswer::Recalled(meta::Recalled {
            number,
            inodes,
            everything: self.bool(),
            shared: self.list(|s| meta::Ask { ino: s.u64(), number: s.u64(), keep: s.bool() }),
        })
    }

    pub(super) fn look(&mut self) -> meta::Look {
        let (ino, to_read, told) = (self.u64(), self.bool(), self.bool());
        meta::Look { ino, to_read, told, start: self.u64(), end: self.u64() }
    }

    pub(super) fn told(&mut self) -> meta::MetaOp {
        let (ino, number) = (self.u64(), self.u64());
        let (keeps_pages, kept) = (self.bool(), self.bool());
        meta::MetaOp::Told(meta::Told { ino, number, keeps_pages, kept })
    }

    pub(super) fn claim(&mut self) -> meta::MetaOp {
        let (ino, start, end) = (self.u64(), self.u64(), self.u64());
        let (wanted_end, through, once) = (self.u64(), self.bool(), self.bool());
        meta::MetaOp::Claim(meta::Claim { ino, start, end, wanted_end, through, once })
    }

    pub(super) fn claimed(&mut self) -> meta::MetaAnswer {
        let (end, through_ms, once) = (self.u64(), self.u64(), self.bool());
        meta::MetaAnswer::Claimed(meta::Claimed { end, through_ms, once })
    }

    pub(super) fn wait(&mut self) -> meta::Wait {
        meta::Wait {
            what: self.string(),
            ino: self.u64(),
            waited_ms: self.u64(),
            limit_ms: self.u64(),
            ended_ms: self.u64(),
        }
    }
}
