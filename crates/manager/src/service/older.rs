//! What heartbeats tell that is to be stored; above all, of a manager whose data are older than what servers know, since they are from
//! a backup or the database has lost commits.

use super::Manager;
use crate::join;
use crate::liveness::Liveness;
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet};
use strake_types::Result;
use strake_wire::message::manager::Heartbeat;

/// No epoch that a server says it knows is believed beyond this one: there are to be others after it.
const EPOCH_MAX: u64 = 1 << 60;
/// So many epochs are skipped where a store has lost some, more than it can have lost: servers take a map of an epoch that they know
/// for the one that they have.
const EPOCHS_LOST: u64 = 1 << 20;

impl Manager {
    /// Notes what a server says of its targets, that it goes by a later map than there is, and that its database has gone back.
    pub(super) async fn note_beat(&self, beat: &Heartbeat) -> Result<()> {
        let (server, known) = (beat.server, beat.epoch.min(EPOCH_MAX));
        let used = self.newly_used(beat);
        let (has_grown, is_older, gone_back) = {
            let inner = self.inner.lock();
            let has_grown = !join::grown(&inner.state, server, &beat.targets).is_empty();
            // Who is not in this state gets no answer, and says it for ever.
            let gone_back = beat.gone_back && inner.state.servers.contains_key(&server);
            (has_grown, known > inner.state.cluster.epoch, gone_back)
        };
        if used.is_empty() && !has_grown && !is_older && !gone_back {
            return Ok(());
        }
        let note = |state: &mut State, _: &Liveness| {
            for id in &used {
                state.groups.entry(*id).and_modify(|group| group.never_used = false);
            }
            let grown = join::grown(state, server, &beat.targets);
            state.targets.extend(grown);
            if gone_back && mark_ahead(state, &self.lives) {
                state.cluster.epoch += EPOCHS_LOST;
            }
            Ok(go_on_behind(state, known, &self.lives))
        };
        let (was_older, epoch) = self.change(note).await?;
        if was_older {
            tracing::warn!(
                server,
                known,
                epoch,
                "this manager's data are older than what servers know: were they restored from a backup? (strake status)"
            );
        }
        Ok(())
    }

    /// Goes on behind all maps that servers may know, and marks those that may know more, where the store has lost what was stored.
    pub(crate) async fn note_lost(&self) -> Result<()> {
        let Some(beats) = self.beats().filter(|beats| beats.has_lost()) else { return Ok(()) };
        let note = |state: &mut State, _: &Liveness| {
            state.cluster.epoch += EPOCHS_LOST;
            mark_ahead(state, &self.lives);
            Ok(())
        };
        self.change(note).await?;
        beats.set_lost(false);
        tracing::warn!(
            "the store has gone back to an earlier state, and what was acknowledged since is lost: was it restored from a backup? \
             (strake status)"
        );
        Ok(())
    }

    /// Groups of one copy in which there is something of which nobody has told: this manager's data are older.
    fn newly_used(&self, beat: &Heartbeat) -> Vec<u32> {
        let inner = self.inner.lock();
        let used = beat.held.iter().filter(|held| held.chunks > 0);
        let fresh = |id: &u32| inner.state.groups.get(id).is_some_and(|group| group.never_used);
        used.map(|held| held.group).filter(fresh).collect()
    }
}

/// Goes on behind the map of this epoch, which a server knows, if it is later: nobody would believe maps that are not newer. True then.
/// It proves that this state is older, since each is on disk before it is shown, and whoever leads next goes on with that. So groups may
/// have had later epochs, too, and servers with targets may know those.
fn go_on_behind(state: &mut State, known: u64, lives: &BTreeMap<u32, u64>) -> bool {
    if known <= state.cluster.epoch {
        return false;
    }
    state.cluster.epoch = known + 1;
    mark_ahead(state, lives);
    true
}

/// Marks those servers with targets that may have what came after this state, unless they have joined since this manager began: in
/// another life than this one of `lives`. (Of a release without lives one may be marked although it has.) True if one is that was not.
fn mark_ahead(state: &mut State, lives: &BTreeMap<u32, u64>) -> bool {
    let mut marked = false;
    let with_targets: BTreeSet<u32> = state.targets.values().map(|target| target.server).collect();
    for (id, server) in &mut state.servers {
        let ahead = with_targets.contains(id) && lives.get(id) == Some(&server.life);
        marked |= ahead && !server.ahead;
        server.ahead |= ahead;
    }
    marked
}
