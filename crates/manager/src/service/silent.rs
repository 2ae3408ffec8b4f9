//! Who lives: what the manager does when somebody is silent.

use super::{Inner, Manager};
use crate::groups::{self, Life};
use crate::jobs;
use crate::liveness::Liveness;
use crate::owners;
use crate::records::Group;
use crate::state::State;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_types::Result;
use strake_wire::message::manager::{ManagerAnswer, Resynced, Stalled};

/// How often the manager looks whether it can be heard,
const LOOK: Duration = Duration::from_millis(100);
/// and at least who lives.
const WATCH: Duration = Duration::from_millis(200);

impl Manager {
    /// Looks whose lease is over and who is back, until it is dropped: a server that died is taken out of
    /// its groups although nobody asks.
    pub async fn keep_watch(self: Arc<Self>) {
        let looks = async {
            loop {
                self.look();
                tokio::time::sleep(LOOK).await;
            }
        };
        // However long the store takes, the manager does not stand still.
        let notes = async {
            let mut failed = 0_u64;
            loop {
                failed = self.note(failed).await;
                tokio::time::sleep(self.until_next_end()).await;
            }
        };
        tokio::select! {
            () = looks => {}
            () = notes => {}
            () = self.look_back() => {}
        }
    }

    /// Notes who lives, if it may. In how many turns that has failed, one after the other: in so many before this one. Where the
    /// store takes nothing for long, the log says so ever more seldom.
    pub(super) async fn note(&self, failed: u64) -> u64 {
        let noted = if self.may_answer() { self.tick().await } else { Ok(()) };
        let Err(error) = noted else { return 0 };
        let failed = failed.saturating_add(1);
        if failed.is_power_of_two() {
            tracing::warn!("the manager cannot note who lives: {error}");
        }
        failed
    }

    /// Looks by itself, as it will again soon. Nobody is heard by one that may not answer: that counts as if it stood still.
    pub(super) fn look(&self) {
        if self.may_answer() {
            let now = self.options.clock.monotonic();
            self.inner.lock().live.watch(now);
        }
    }

    /// How long to wait before it notes again who lives: until somebody's time is over, if that is soon.
    pub(super) fn until_next_end(&self) -> Duration {
        let now = self.options.clock.monotonic();
        let end = self.inner.lock().live.next_end(now);
        let left = end.map_or(WATCH, |end| end.saturating_sub(now));
        // That long it lasts still.
        (left + Duration::from_millis(1)).min(WATCH)
    }

    /// Notes who lives now. Who is up is part of the map: a change of it has an epoch of its own.
    pub async fn tick(&self) -> Result<()> {
        let now = self.now();
        let (changed, due, owned) = {
            let mut inner = self.inner.lock();
            let Inner { state, live, misses, owners, ticked, .. } = &mut *inner;
            *ticked = Some(now);
            live.forget_old(now);
            live.decide_refused(state, now);
            live.cut_refused(now);
            let silences = misses.silences(state, live, now);
            live.decide_apart(state, &silences, now);
            live.note_waits(state, now);
            let changed = live.changed(now);
            let (state, live) = (&**state, &*live);
            let life = |target| life_in_groups(state, live, target, now);
            let paused = |group, member| live.is_paused(group, member, now);
            let yields = |id: u32, group: &Group| live.yields(id, group);
            let tenure = |server| live.tenure(server, now);
            let released = |server, volume, epoch| live.has_released(server, volume, epoch);
            let owned = owners.is_settled(state, tenure, released);
            // A change that was given up in the middle is settled by the next.
            let due = self.coming.load(Ordering::Acquire) > 0 || jobs::are_due(state);
            (changed, !groups::is_settled(state, life, paused, yields) || !owned || due, owned)
        };
        if changed || due {
            self.change(|state, live| {
                let lives = jobs::lives(state, |id| life_in_groups(state, live, id, now));
                let life = |target| lives.get(&target).copied().unwrap_or(Life::Gone);
                let paused = |group, member| live.is_paused(group, member, now);
                groups::settle(state, life, paused, |id, group| live.yields(id, group));
                // While a job lasts this is done with each look; another state than was looked at is looked at by the next.
                if !owned {
                    let tenure = |server| live.tenure(server, now);
                    owners::settle(state, tenure, |server, v, e| live.has_released(server, v, e));
                }
                // Where no group differs, the epoch is the change.
                state.cluster.epoch += u64::from(changed);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// True if something has changed since it was noted last who lives, somebody's time is over, or that was long ago: not
    /// each of the many who ask for the map need look through the whole cluster. It is due, too, while
    /// what was decided is being stored: whoever asks then waits for that.
    pub(super) fn is_tick_due(&self) -> bool {
        let now = self.options.clock.monotonic();
        let inner = self.inner.lock();
        let Some(last) = inner.ticked else { return true };
        let ended = inner.live.next_end(last).is_some_and(|end| end < now);
        ended || now >= last + WATCH || self.coming.load(Ordering::Acquire) > 0
    }

    /// Somebody who has the map of this epoch waits for the metadata servers of these volumes. True if nobody did before.
    pub(super) fn note_missed(&self, volumes: &[u32], known_epoch: u64) -> bool {
        let mut is_new = false;
        let mut inner = self.inner.lock();
        let Inner { state, live, .. } = &mut *inner;
        let known = volumes.iter().filter_map(|id| state.volumes.get(id));
        for volume in known.filter(|volume| volume.owned_since <= known_epoch) {
            // Until that one has let go, the next one serves nothing.
            let served_by = if volume.leaving == 0 { volume.meta_server } else { volume.leaving };
            is_new |= live.miss(served_by);
        }
        is_new
    }

    /// The primary of a group says that another member may lead. Many say so at the same time: what follows is for the next tick.
    pub(super) fn note_yield(&self, said: &Resynced) {
        let mut inner = self.inner.lock();
        let Inner { state, live, ticked, .. } = &mut *inner;
        let leads = |group: &Group| {
            group.epoch == said.epoch && group.in_sync.first() == Some(&said.member)
        };
        if state.groups.get(&said.group).is_some_and(leads)
            && live.hear_yield(said.group, said.epoch, said.vouches)
        {
            *ticked = None;
        }
    }

    /// Somebody waits at a member of a group: takes out those of the others that answer nobody any more.
    pub(super) async fn stalled(&self, said: Stalled) -> Result<ManagerAnswer> {
        if self.give_up_silent(&said, self.now()) {
            self.tick().await?;
        }
        Ok(self.epoch())
    }

    /// True if there are such.
    fn give_up_silent(&self, said: &Stalled, now: Duration) -> bool {
        let mut inner = self.inner.lock();
        let Inner { state, live, .. } = &mut *inner;
        let group = state.groups.get(&said.group).filter(|group| group.epoch == said.epoch);
        let by = state.server_of(said.target).filter(|by| live.has_spoken(*by, now));
        let (Some(group), Some(by)) = (group, by) else { return false };
        if !group.in_sync.contains(&said.target) {
            return false;
        }
        let members: BTreeSet<u32> =
            group.in_sync.iter().filter_map(|id| state.server_of(*id)).collect();
        let mut given_up = false;
        for server in members.into_iter().filter(|server| *server != by) {
            given_up |= live.give_up(server, by, now);
        }
        given_up
    }
}

/// What is known of a target, for its groups: whoever is given up has left them.
fn life_in_groups(state: &State, live: &Liveness, target: u32, now: Duration) -> Life {
    state.server_of(target).map_or(Life::Gone, |server| live.life_in_groups(target, server, now))
}

#[cfg(test)]
impl Manager {
    /// As it does by itself.
    pub(super) async fn watch(&self) -> Result<()> {
        self.look();
        self.tick().await
    }
}
