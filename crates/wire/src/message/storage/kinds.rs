//! Kinds of requests to storage servers.

use super::{StorageOp, StorageRequest};

impl StorageRequest {
    /// True for what only servers say.
    pub fn is_between_servers(&self) -> bool {
        self.forward.is_some() || self.op.as_ref().is_some_and(StorageOp::is_between_servers)
    }

    /// True for what waits for a disk: both ends of a connection count it apart from other calls.
    pub fn is_sync(&self) -> bool {
        matches!(self.op, Some(StorageOp::Sync(_)))
    }
}

impl StorageOp {
    /// True for what only servers say, in the name of no client: shortening files, dropping volumes,
    /// and what members of a group tell each other.
    pub fn is_between_servers(&self) -> bool {
        use StorageOp::{
            Adopt, Census, Cut, Damage, Digests, DropVolume, Lose, Promise, Remember, Settle, Sums,
            Truncate,
        };
        matches!(
            self,
            Truncate(_)
                | DropVolume(_)
                | Adopt(_)
                | Settle(_)
                | Digests(_)
                | Sums(_)
                | Cut(_)
                | Promise(_)
                | Remember(_)
                | Damage(_)
                | Lose(_)
                | Census(_)
        )
    }

    /// True for a change that is to be answered when it is durable.
    pub fn is_durable(&self) -> bool {
        matches!(self, StorageOp::Write(write) if write.durable)
    }

    /// The same, to be answered when it is made.
    pub fn not_durable(mut self) -> Self {
        if let StorageOp::Write(write) = &mut self {
            write.durable = false;
        }
        self
    }

    /// True for what changes contents.
    pub fn is_change(&self) -> bool {
        use StorageOp::{Allocate, Copy, Cut, Lose, Punch, Truncate, Write, WriteMany};
        matches!(
            self,
            Write(_)
                | WriteMany(_)
                | Truncate(_)
                | Punch(_)
                | Allocate(_)
                | Copy(_)
                | Cut(_)
                | Lose(_)
        )
    }

    /// True for what has a number ([`super::Attempt`]): it is done once, however often it is sent.
    pub fn is_numbered(&self) -> bool {
        self.is_change() || matches!(self, StorageOp::Sync(_))
    }
}
