//! Members that are short of room: a change that takes some is refused before anybody makes it. A
//! member that had to refuse what its primary has made would have to leave.

use super::{Message, Replica};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageOp;
use tokio::time::Instant;

/// For how long a member's word is taken that it is short.
const ASK_AGAIN: Duration = Duration::from_millis(500);

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

impl Replica {
    /// Fails if a change takes room, and a member that has to make it is short. Reserved room may be
    /// written by all; others under way to the same member have what it keeps.
    pub(super) async fn check_room(&self, reign: u64, message: &Message) -> Result<()> {
        let members: Vec<TargetId> = {
            let mut state = self.state.lock();
            state.reign(reign).iter().flat_map(|reign| reign.required()).collect()
        };
        if members.is_empty() {
            return Ok(());
        }
        let Some(short) = self.first_short(&members).await else { return Ok(()) };
        match self.shelf.takes_room(&message.op, &message.payload).await? {
            true => Err(self.has_no_room(short)),
            false => Ok(()),
        }
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
        let asked = self.ask(member, epoch, StorageOp::Settle(msg::Settle {})).await;
        asked.is_ok() && self.short.since(member).is_some()
    }

    fn has_no_room(&self, member: TargetId) -> Error {
        let detail = format!(
            "group {}: target {member} is short of room, and each copy needs some",
            self.group
        );
        Error::with(ErrorKind::NoSpace, detail)
    }
}
