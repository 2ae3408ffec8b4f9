//! What a request says beside its operation.

use strake_types::{Ack, GroupId, Safety, SessionId, VolumeId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageRequest;

/// A client's session of a volume.
pub(crate) type Whose = (VolumeId, SessionId);

/// What a request says beside its operation.
pub(crate) struct Order {
    pub group: GroupId,
    /// The epoch its sender believes in; 0: whichever it is.
    pub epoch: u64,
    /// Its number, if it is to be carried out once.
    pub attempt: Option<msg::Attempt>,
    /// What it asks of the copies.
    pub safety: Safety,
    /// Whose it is, if not another server's: refused when that session is fenced.
    pub whose: Option<Whose>,
}

impl Order {
    /// The same, acknowledged by all.
    pub fn safely(&self) -> Self {
        let safety = Safety { ack: Ack::All, ..self.safety };
        Self { safety, ..*self }
    }

    /// The same, of a part that has no number of its own.
    pub fn unnumbered(&self) -> Self {
        Self { attempt: None, ..*self }
    }

    /// That of a request that was sent on behalf of a session.
    pub fn of(request: &StorageRequest, whose: Option<Whose>) -> Self {
        let ack = if request.ack_primary { Ack::Primary } else { Ack::All };
        Self {
            group: GroupId(request.group),
            epoch: request.epoch,
            attempt: request.attempt,
            safety: Safety { ack, min_copies: request.min_copies.max(1) },
            whose,
        }
    }
}
