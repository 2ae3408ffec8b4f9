//! What is said of recalls, and with them.

use super::super::meta;
use super::Gen;

impl Gen {
    pub(super) fn recalled(&mut self) -> meta::MetaAnswer {
        let (number, inodes) = (self.u64(), self.list(Self::u64));
        meta::MetaAnswer::Recalled(meta::Recalled {
            number,
            inodes,
            everything: self.bool(),
            shared: self.list(|s| meta::Ask { ino: s.u64(), number: s.u64() }),
        })
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
