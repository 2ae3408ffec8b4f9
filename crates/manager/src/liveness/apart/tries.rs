//! Who joins again of those that were not reached, and where the lead stays meanwhile.

use super::{Apart, Known, Way, groups, serves};
use crate::liveness::Liveness;
use crate::records::Group;
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strake_wire::message::manager::Resynced;

/// Who joins is waited for so long before another one is tried: if it is silent, that is known by then.
const TRY: Duration = Duration::from_secs(10);

impl Apart {
    /// Who does not join, and where the lead stays; which ways that is for. Of those that a way keeps out one is tried at a time, in the
    /// next group each time.
    pub(super) fn bar(&mut self, state: &State, live: &Liveness, now: Duration) -> BTreeSet<Way> {
        let (mut barred, mut led_on, mut used) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut joins, mut tried) = (BTreeMap::new(), BTreeSet::new());
        let mut waiting = BTreeMap::<Way, Vec<(u32, u32)>>::new();
        for (id, group) in groups(state) {
            if self.would_not_reach(state, group) {
                led_on.insert(id);
            }
            used.extend(self.kept_from_lead(state, group));
            for (member, way) in self.kept_out(state, group) {
                used.insert(way);
                if group.joining.contains(&member) {
                    let since = self.joins.get(&(id, member)).copied().unwrap_or(now);
                    joins.insert((id, member), since);
                    if now.saturating_sub(since) <= TRY {
                        tried.insert(way);
                    }
                    continue;
                }
                barred.insert((id, member));
                let serve = |target: &u32| serves(state, live, *target, now);
                let may_try = group.in_sync.first().is_some_and(serve) && serve(&member);
                if may_try && !live.has_failed_lately(id, member, now) {
                    waiting.entry(way).or_default().push((id, member));
                }
            }
        }
        for (way, waiting) in waiting {
            let Some(known) = self.ways.get(&way).filter(|_| !tried.contains(&way)) else {
                continue;
            };
            if known.pause.is_none_or(|pause| !pause.lasts(now)) {
                let after = waiting.iter().find(|(id, _)| *id > known.tried);
                if let Some(one) = after.or(waiting.first()) {
                    barred.remove(one);
                }
            }
        }
        (self.barred, self.led_on, self.joins) = (barred, led_on, joins);
        used
    }

    /// Members that are not in sync, and that the primary does not reach as far as is known; and the way.
    pub(super) fn kept_out(&self, state: &State, group: &Group) -> Vec<(u32, Way)> {
        self.cut_off(state, group, |member| !group.in_sync.contains(member))
    }

    /// True if who leads by the list of members does not reach another one in sync.
    fn would_not_reach(&self, state: &State, group: &Group) -> bool {
        let lead = group.members.iter().find(|member| group.in_sync.contains(member));
        let Some(here) = lead.and_then(|lead| state.server_of(*lead)) else { return false };
        let mut servers = group.in_sync.iter().filter_map(|member| state.server_of(*member));
        servers.any(|there| self.is_cut((here, there)))
    }

    /// Ways that would be needed if one led, in sync by then, that comes before the primary in the list of members.
    fn kept_from_lead(&self, state: &State, group: &Group) -> Vec<Way> {
        let primary = group.in_sync.first();
        let before = group.members.iter().take_while(|member| Some(*member) != primary);
        let servers = || group.members.iter().filter_map(|member| state.server_of(*member));
        let ways = before
            .filter_map(|member| state.server_of(*member))
            .flat_map(|here| servers().map(move |there| (here, there)));
        ways.filter(|way| self.is_cut(*way)).collect()
    }
}

impl Liveness {
    /// A member that joins was made equal, or could not be: the way from its primary is whole, or, if it was silent, cut.
    pub(in crate::liveness) fn note_tried(
        &mut self,
        state: &State,
        report: &Resynced,
        now: Duration,
    ) {
        let group = state.groups.get(&report.group);
        let group = group.filter(|group| group.joining.contains(&report.member));
        let primary = group.and_then(|group| group.in_sync.first());
        let from = primary.and_then(|primary| state.server_of(*primary));
        let Some(way) = from.zip(state.server_of(report.member)) else { return };
        if !report.failed {
            let Some(known) = self.apart.ways.get_mut(&way) else { return };
            known.vain = None;
            if known.cut.take().is_some() {
                tracing::info!("server {} reaches server {} again", way.0, way.1);
                known.told = None;
            }
            return;
        }
        // One that is gone, or whose disk hangs, is told of by others.
        let is_silent = report.silent && way.0 != way.1 && !self.is_silent(report.member);
        if is_silent && self.is_up(way.1, now) {
            let known = self.apart.ways.entry(way).or_insert_with(|| Known::new(now));
            match known.cut.is_some() {
                true => known.note_vain(now),
                // It may have been down, and about to begin anew.
                false => known.vain = known.vain.or(Some(now)),
            }
        }
        if let Some(known) = self.apart.ways.get_mut(&way) {
            known.tried = report.group;
        }
    }

    /// True if a server was heard after this moment, and is reached as far as is known.
    pub(super) fn is_well_since(&self, server: u32, since: Duration) -> bool {
        let heard = self.servers.get(&server).filter(|heard| !heard.left);
        heard.is_some_and(|heard| heard.at > since) && !self.is_doubtful(server)
    }
}
