//! Which primaries have said that another member may lead.

use super::Liveness;
use crate::groups::Yields;
use crate::records::Group;

impl Liveness {
    /// The primary of a group says so, for the rest of this epoch. True if it is news.
    pub fn hear_yield(&mut self, group: u32, epoch: u64, vouches: u64) -> bool {
        self.yielded.insert(group, (epoch, vouches)) != Some((epoch, vouches))
    }

    /// What the primary of a group says of that.
    pub fn yields(&self, id: u32, group: &Group) -> Yields {
        if self.is_led_on(id) {
            return Yields::Never;
        }
        match self.yielded.get(&id) {
            Some(&(epoch, vouches)) if epoch == group.epoch => Yields::As(vouches),
            _ => {
                let primary = group.in_sync.first().and_then(|target| self.target(*target));
                let is_asked = primary.is_some_and(|spec| spec.hands_over);
                if is_asked { Yields::NotYet } else { Yields::AtOnce }
            }
        }
    }
}
