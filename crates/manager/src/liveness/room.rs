//! Which targets are nearly full: metadata servers leave them out of new files, so they are told when that changes.

use super::Liveness;
use std::sync::Arc;
use strake_wire::message::manager::TargetSpec;

impl Liveness {
    /// True if a target has become nearly full since the last call, or has room again.
    pub(super) fn room_has_changed(&mut self) -> bool {
        let known = &self.nearly_full;
        let is_low =
            |(id, spec): &(&u32, &Arc<TargetSpec>)| spec.is_nearly_full(known.contains(*id));
        let now = self.targets.iter().filter(is_low).map(|(&id, _)| id).collect();
        let changed = now != self.nearly_full;
        self.nearly_full = now;
        changed
    }
}
