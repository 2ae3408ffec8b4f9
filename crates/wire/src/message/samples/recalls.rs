//! What is said of recalls, and with them; of claims, which are called back so; and of clients.

use super::super::meta;
use super::Gen;

impl Gen {
    pub(super) fn recalled(&mut self) -> meta::MetaAnswer {
        let (number, inodes) = (self.u64(), self.list(Self::u64));
        meta::MetaAnswer::Recalled(meta::Recalled {
            number,
            inodes,
            everything: self.bool(),
            shared: self.list(Self::ask),
            rest: self.list(Self::ask),
            cuts: self.list(Self::u64),
            exclusive: self.list(Self::ask),
        })
    }

    fn ask(&mut self) -> meta::Ask {
        meta::Ask { ino: self.u64(), number: self.u64(), keep: self.bool() }
    }

    pub(super) fn look(&mut self) -> meta::Look {
        let (ino, to_read, told) = (self.u64(), self.bool(), self.bool());
        let (start, end) = (self.u64(), self.u64());
        meta::Look { ino, to_read, told, start, end, to_write: self.bool() }
    }

    pub(super) fn told(&mut self) -> meta::MetaOp {
        let (ino, number) = (self.u64(), self.u64());
        let (keeps_pages, kept, rests) = (self.bool(), self.bool(), self.bool());
        let exclusive = self.u64();
        meta::MetaOp::Told(meta::Told { ino, number, keeps_pages, kept, rests, exclusive })
    }

    pub(super) fn claim(&mut self) -> meta::MetaOp {
        let (ino, start, end) = (self.u64(), self.u64(), self.u64());
        let (wanted_end, through, once) = (self.u64(), self.bool(), self.bool());
        meta::MetaOp::Claim(meta::Claim { ino, start, end, wanted_end, through, once })
    }

    pub(super) fn behind(&mut self) -> meta::MetaOp {
        let (seq, at, ino, other) = (self.u64(), self.time(), self.u64(), self.u64());
        let unlink = meta::Unlink { at: self.name(), directory: self.bool() };
        let changes = [meta::NameChange::Unlink(unlink), meta::NameChange::Rename(self.rename())];
        let change = |change| meta::ChangeBehind { seq, at, ino, other, change: Some(change) };
        meta::MetaOp::Behind(meta::Behind { changes: changes.map(change).into() })
    }

    pub(super) fn made(&mut self) -> meta::MetaAnswer {
        let (changes, refused) = (self.list(Self::renamed), self.u32());
        meta::MetaAnswer::Made(meta::Made { changes, refused, why: self.string() })
    }

    pub(super) fn claimed(&mut self) -> meta::MetaAnswer {
        let (end, through_ms, once) = (self.u64(), self.u64(), self.bool());
        meta::MetaAnswer::Claimed(meta::Claimed { end, through_ms, once })
    }

    pub(super) fn clients(&mut self) -> meta::ClientList {
        let clients = self.list(|g| meta::Client {
            session: g.u64(),
            name: g.string(),
            silent_ms: g.u64(),
            open: g.u64(),
            locked: g.u64(),
            leased: g.u64(),
            absent: g.bool(),
            lost: g.bool(),
            mount: g.u64(),
            waits: g.list(Self::wait),
            waited: g.list(Self::wait),
            release: g.string(),
        });
        meta::ClientList { clients, waits: self.list(Self::wait) }
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
