use super::*;
use crate::groups::Yields;
use crate::liveness::Word;
use crate::records::Target;
use strake_wire::message::manager::{Resynced, TargetSpec};

const BEAT: Duration = Duration::from_millis(200);
const BEATS_A_SECOND: u32 = 5;

/// Servers of one target each, of the same number, that are all heard, and groups with these members, from group 1 on.
struct Bench {
    state: State,
    live: Liveness,
    now: Duration,
    /// Targets whose disks hang.
    hung: Vec<u32>,
}

impl Bench {
    fn new(groups: &[&[u32]]) -> Self {
        let servers: BTreeSet<u32> =
            groups.iter().flat_map(|group| group.iter().copied()).collect();
        let target = |&server: &u32| (server, Target { server, ..Target::default() });
        let group = |members: &&[u32]| {
            let (members, in_sync) = (members.to_vec(), members.to_vec());
            Group { epoch: 7, members, in_sync, ..Group::default() }
        };
        let state = State {
            targets: servers.iter().map(target).collect(),
            groups: (1..).zip(groups.iter().map(group)).collect(),
            ..State::default()
        };
        let live = Liveness::new(Duration::from_secs(3), Duration::ZERO, servers.into_iter());
        Self { state, live, now: Duration::ZERO, hung: Vec::new() }
    }

    fn group(&mut self, id: u32) -> &mut Group {
        self.state.groups.get_mut(&id).unwrap()
    }

    /// For so long this is said of ways, and of groups whose primaries have acknowledged something alone.
    fn pass(&mut self, beats: u32, ways: &[Way], early: &[u32]) {
        let said = Silences { ways: all(ways), early: all(early) };
        for _ in 0..beats {
            self.now += BEAT;
            for &target in self.state.targets.keys() {
                let silent_ms = self.hung.contains(&target).then_some(20_000);
                let spec = TargetSpec { target, silent_ms, ..TargetSpec::default() };
                self.live.hear(target, self.now, Word::Beat, vec![spec]);
            }
            self.live.decide_apart(&self.state, &said, self.now);
        }
    }

    /// For as long as it takes.
    fn decide(&mut self, ways: &[Way]) {
        self.pass(3 * BEATS_A_SECOND, ways, &[]);
    }

    /// The manager does not reach a server any more.
    fn lose_way_to(&mut self, server: u32) {
        for _ in 0..4 {
            self.live.note_look(server, self.now, Err("no answer".to_owned()), self.now + BEAT);
            self.now += Duration::from_secs(1);
        }
    }

    /// A server begins anew.
    fn begin_anew(&mut self, server: u32) {
        let spec = TargetSpec { target: server, ..TargetSpec::default() };
        self.live.hear(server, self.now, Word::Join, vec![spec]);
    }

    /// Which members are asked to go, by group.
    fn asked(&self) -> BTreeSet<(u32, u32)> {
        let asked =
            self.state.targets.keys().flat_map(|id| self.live.asked_to_resign(*id, self.now));
        asked
            .inspect(|one| assert_eq!(one.epoch, self.state.groups[&one.group].epoch))
            .map(|one| (one.group, one.member))
            .collect()
    }

    /// They do.
    fn resign(&mut self) {
        for (id, member) in self.asked() {
            let group = self.group(id);
            group.in_sync.retain(|other| *other != member);
            group.epoch += 1;
        }
    }

    /// Who does not join.
    fn kept_out(&self) -> BTreeSet<(u32, u32)> {
        let out = groups(&self.state).flat_map(|(id, group)| {
            let out = group.members.iter().filter(move |member| !group.in_sync.contains(member));
            out.map(move |member| (id, *member))
        });
        out.filter(|(id, member)| self.live.is_paused(*id, *member, self.now)).collect()
    }

    /// The primary of a group has tried to make a member equal, which was silent if that failed.
    fn try_in(&mut self, id: u32, member: u32, failed: bool) {
        self.try_in_with(id, member, Resynced { failed, silent: failed, ..Resynced::default() });
    }

    fn try_in_with(&mut self, id: u32, member: u32, report: Resynced) {
        self.group(id).joining = vec![member];
        let failed = report.failed;
        let report = Resynced { group: id, member, ..report };
        self.live.hear_resynced(&self.state, &report, self.now);
        let group = self.group(id);
        group.joining.clear();
        if !failed {
            group.in_sync.push(member);
        }
    }
}

/// Both ways between these.
fn both(pairs: &[Pair]) -> Vec<Way> {
    pairs.iter().flat_map(|&(one, other)| [(one, other), (other, one)]).collect()
}

fn all<T: Ord + Copy>(of: &[T]) -> BTreeSet<T> {
    of.iter().copied().collect()
}

/// Each of two led groups of both, and would have taken out the other one there.
#[test]
fn one_and_the_same_of_two_goes_from_all_groups_that_need_the_way_between_them() {
    let mut bench = Bench::new(&[&[1, 2], &[2, 1], &[1, 2, 3], &[3, 1, 2], &[2, 3]]);
    bench.decide(&both(&[(1, 2)]));
    assert_eq!(bench.asked(), all(&[(1, 2), (2, 2), (3, 2)]), "it leads fewer of these");
    bench.resign();
    bench.pass(1, &[], &[]);
    assert_eq!(bench.asked(), all(&[]));
    // What was decided holds when another one leads.
    bench.group(4).in_sync = vec![1, 2];
    bench.pass(1, &[], &[]);
    assert_eq!(bench.asked(), all(&[(4, 2)]));
}

#[test]
fn a_way_that_is_cut_for_a_moment_costs_nothing() {
    let mut bench = Bench::new(&[&[1, 2]]);
    for _ in 0..10 {
        bench.pass(2 * BEATS_A_SECOND, &both(&[(1, 2)]), &[]);
        assert_eq!(bench.asked(), all(&[]));
        bench.pass(1, &[], &[]);
    }
    bench.decide(&both(&[(1, 2)]));
    assert_eq!(bench.asked(), all(&[(1, 2)]));
}

/// It would have gone on alone in all that it leads.
#[test]
fn a_server_that_is_apart_from_several_goes_and_not_each_of_these() {
    let mut bench = Bench::new(&[&[1, 2], &[2, 1], &[1, 3], &[3, 1], &[2, 3], &[1, 2, 3], &[1, 4]]);
    bench.decide(&both(&[(1, 2), (1, 3)]));
    let asked = all(&[(1, 1), (2, 1), (3, 1), (4, 1), (6, 1)]);
    assert_eq!(bench.asked(), asked, "4 it reaches");
}

#[test]
fn of_two_pairs_in_a_group_only_the_one_with_the_primary_counts() {
    let mut bench = Bench::new(&[&[1, 2, 3, 4]]);
    bench.decide(&both(&[(1, 2), (3, 4)]));
    assert_eq!(bench.asked(), all(&[(1, 2)]));
    bench.resign();
    bench.pass(1, &[], &[]);
    assert_eq!(bench.asked(), all(&[]));
}

#[test]
fn of_two_members_that_are_to_go_each_goes_from_an_epoch_of_its_own() {
    let mut bench = Bench::new(&[&[1, 2, 3], &[4, 2]]);
    bench.decide(&both(&[(1, 2)]));
    bench.decide(&both(&[(1, 3), (3, 4)]));
    for goes in [2, 3] {
        assert_eq!(bench.asked(), all(&[(1, goes)]));
        bench.resign();
        bench.pass(1, &[], &[]);
    }
    assert_eq!((bench.asked(), &*bench.group(1).in_sync), (all(&[]), &[1][..]));
}

#[test]
fn the_last_one_that_serves_stays() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2]]);
    bench.hung = vec![1];
    bench.decide(&both(&[(1, 2)]));
    assert_eq!(bench.asked(), all(&[(1, 1), (2, 1)]), "although it leads");
    bench.hung = vec![1, 2];
    bench.pass(1, &both(&[(1, 2)]), &[]);
    assert_eq!(bench.asked(), all(&[]));
    bench.hung.clear();
    bench.state.groups.values_mut().for_each(|group| group.in_sync = vec![1]);
    bench.pass(1, &both(&[(1, 2)]), &[]);
    assert_eq!(bench.asked(), all(&[]));
}

/// The manager would have let it go on, in a new epoch each time.
#[test]
fn a_member_that_is_to_leave_anyway_goes_when_all_others_serve() {
    let mut bench = Bench::new(&[&[1, 2, 3], &[1, 2]]);
    bench.group(1).leaving = vec![2];
    bench.decide(&both(&[(1, 2)]));
    bench.hung = vec![3];
    bench.pass(1, &both(&[(1, 2)]), &[]);
    assert_eq!(bench.asked(), all(&[(2, 2)]));
    bench.hung.clear();
    bench.pass(1, &both(&[(1, 2)]), &[]);
    assert_eq!(bench.asked(), all(&[(1, 2), (2, 2)]));
}

/// What it had acknowledged alone (`--ack primary`) would be lost.
#[test]
fn a_primary_that_has_acknowledged_something_alone_stays_and_the_member_goes() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2], &[2, 1]]);
    bench.decide(&both(&[(1, 2)]));
    assert_eq!(bench.asked(), all(&[(1, 2), (2, 2), (3, 2)]));
    bench.pass(1, &both(&[(1, 2)]), &[3]);
    assert_eq!(bench.asked(), all(&[(1, 2), (2, 2), (3, 1)]));
}

/// Each group would have let it join again and again, and what was written there had waited for it each time.
#[test]
fn who_has_gone_is_tried_in_one_group_at_a_time_and_joins_all_when_it_is_reached() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2], &[1, 2, 3], &[2, 3]]);
    bench.decide(&both(&[(1, 2)]));
    bench.resign();
    bench.pass(2 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(1, 2), (2, 2), (3, 2)]), "who writes has just waited");
    bench.pass(3 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(2, 2), (3, 2)]), "group 1 may try");
    bench.try_in(1, 2, true);
    bench.pass(6 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(1, 2), (2, 2), (3, 2)]), "not at once");
    bench.pass(5 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(1, 2), (3, 2)]), "the next one");
    bench.group(2).joining = vec![2];
    bench.pass(1, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(1, 2), (3, 2)]), "no other one meanwhile");
    bench.try_in(2, 2, false);
    bench.pass(1, &[], &[]);
    assert_eq!((bench.kept_out(), bench.asked()), (all(&[]), all(&[])));
}

#[test]
fn a_way_of_which_nothing_is_heard_any_more_counts_as_whole() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2]]);
    bench.decide(&both(&[(1, 2)]));
    bench.resign();
    bench.pass(89 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out().len(), 1);
    bench.pass(2 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[]));
}

/// It took the lead, could not reach a member, lost the lead, and took it again.
#[test]
fn the_lead_is_not_given_to_who_does_not_reach_another_member() {
    let mut bench = Bench::new(&[&[2, 3, 1], &[1, 2], &[1, 2]]);
    bench.group(1).in_sync = vec![3, 2, 1];
    let yields = |bench: &mut Bench| {
        bench.pass(1, &[], &[]);
        bench.live.yields(1, &bench.state.groups[&1])
    };
    assert_eq!(yields(&mut bench), Yields::AtOnce);
    bench.decide(&both(&[(1, 2)]));
    assert_eq!(yields(&mut bench), Yields::Never);
    bench.resign();
    bench.try_in(2, 2, false);
    assert_eq!(yields(&mut bench), Yields::Never, "of the way back nothing is known");
    bench.pass(91 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(yields(&mut bench), Yields::AtOnce);
}

/// It was left as the only copy, and nobody read it.
#[test]
fn who_is_reached_by_nobody_goes_and_does_not_stay_alone() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2], &[1, 2, 3]]);
    bench.lose_way_to(1);
    bench.decide(&both(&[(1, 2)]));
    assert_eq!(bench.asked(), all(&[(1, 1), (2, 1), (3, 1)]), "although it leads");
}

/// It was never decided again.
#[test]
fn it_is_decided_again_when_who_stays_is_reached_no_more_or_is_apart_from_others() {
    let ways = both(&[(1, 2)]);
    let mut bench = Bench::new(&[&[1, 2], &[1, 2, 3]]);
    bench.decide(&ways);
    assert_eq!(bench.asked(), all(&[(1, 2), (2, 2)]));
    bench.lose_way_to(1);
    bench.pass(1, &ways, &[]);
    assert_eq!(bench.asked().get(&(1, 1)), Some(&(1, 1)), "2 is the one that is reached");
    bench.lose_way_to(2);
    bench.pass(1, &ways, &[]);
    assert!(bench.asked().iter().all(|(group, _)| *group != 1), "nobody else is left");
    let mut bench = Bench::new(&[&[1, 2], &[1, 3]]);
    bench.decide(&ways);
    assert_eq!(bench.asked(), all(&[(1, 2)]));
    bench.group(1).epoch += 1;
    bench.decide(&both(&[(1, 2), (1, 3)]));
    assert_eq!(bench.asked(), all(&[(1, 1), (2, 1)]));
}

/// It took the lead again each time that it had been made equal, which the other one can, and did not reach that one: one copy was left.
#[test]
fn who_does_not_reach_another_one_but_is_reached_by_it_stays_a_member_and_leads_no_more() {
    let mut bench = Bench::new(&[&[1, 2], &[2, 1]]);
    bench.decide(&[(2, 1)]);
    assert_eq!(bench.asked(), all(&[(2, 2)]), "the other group works");
    let doubt = Doubt { group: 1, epoch: 7, member: 2, primary: 1 };
    assert_eq!((bench.live.doubts(1), bench.live.doubts(2)), (vec![doubt], vec![]));
    bench.resign();
    bench.pass(1, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[]), "1 reaches it");
    let mut leads_for = Vec::new();
    for _ in 0..2 {
        bench.try_in(2, 2, false);
        let yields = |bench: &Bench| bench.live.yields(2, &bench.state.groups[&2]);
        let mut beats = 0;
        bench.pass(1, &[], &[]);
        while yields(&bench) == Yields::Never {
            bench.pass(1, &[], &[]);
            assert_eq!(bench.asked(), all(&[]));
            beats += 1;
        }
        leads_for.push(beats / BEATS_A_SECOND);
        bench.group(2).in_sync = vec![2, 1];
        bench.decide(&[(2, 1)]);
        assert_eq!(bench.asked(), all(&[(2, 2)]));
        bench.resign();
    }
    assert!(leads_for[1] > leads_for[0] + 60, "{leads_for:?}");
}

/// Nobody said that the way is cut: who had left joined all groups again and again, and status said nothing of it.
#[test]
fn a_manager_that_knows_nothing_learns_of_a_way_by_a_member_that_joins_and_is_silent() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2], &[1, 3]]);
    for id in [1, 2] {
        bench.group(id).in_sync = vec![1];
    }
    bench.pass(1, &[], &[]);
    let damaged = Resynced { failed: true, ..Resynced::default() };
    bench.try_in_with(1, 2, damaged);
    bench.pass(2 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[]), "its disk, perhaps");
    bench.try_in(1, 2, true);
    bench.pass(2 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(1, 2), (2, 2)]));
    let left_out = bench.live.left_out(&bench.state, bench.now);
    assert_eq!(left_out.into_keys().collect::<Vec<_>>(), [(2, 1)]);
    assert_eq!(bench.asked(), all(&[]), "nobody waits for it");
}

/// It was believed at once, and all that the server had stayed out for a minute and a half when it was back.
#[test]
fn a_member_that_joins_and_is_silent_keeps_nobody_out_when_its_server_begins_anew() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2]]);
    for id in [1, 2] {
        bench.group(id).in_sync = vec![1];
    }
    bench.pass(1, &[], &[]);
    bench.try_in(1, 2, true);
    bench.begin_anew(2);
    bench.pass(2 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[]), "it was down");
    bench.try_in(1, 2, true);
    bench.pass(1, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(1, 2), (2, 2)]), "it is heard");
    bench.begin_anew(2);
    bench.pass(1, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[]), "its network may be another one");
}

/// Where nobody could go it was remembered, and somebody went when the way had been whole for a minute.
#[test]
fn a_way_for_which_nobody_is_kept_out_is_forgotten_soon() {
    let mut bench = Bench::new(&[&[1, 2]]);
    bench.hung = vec![1, 2];
    bench.decide(&both(&[(1, 2)]));
    bench.pass(16 * BEATS_A_SECOND, &[], &[]);
    bench.hung.clear();
    bench.pass(1, &[], &[]);
    assert_eq!(bench.asked(), all(&[]));
}

#[test]
fn a_join_that_lasts_keeps_no_other_group_from_being_tried() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2]]);
    bench.decide(&both(&[(1, 2)]));
    bench.resign();
    bench.group(1).joining = vec![2];
    bench.pass(9 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(2, 2)]));
    bench.pass(2 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[]));
}

/// All that wrote there waited for as long as an answer may take.
#[test]
fn where_the_one_that_is_asked_does_not_go_the_other_one_is_asked() {
    let (ways, mut bench) = (both(&[(1, 2)]), Bench::new(&[&[1, 2]]));
    bench.decide(&ways);
    assert_eq!(bench.asked(), all(&[(1, 2)]));
    bench.pass(10 * BEATS_A_SECOND, &ways, &[]);
    assert_eq!(bench.asked(), all(&[(1, 1)]), "it may be of an earlier release");
}

#[test]
fn members_that_are_asked_to_go_take_turns_where_there_are_very_many() {
    let group: &[u32] = &[1, 2];
    let mut bench = Bench::new(&[group; RESIGNS_MAX + 44]);
    bench.decide(&both(&[(1, 2)]));
    let mut asked = bench.asked();
    assert_eq!(asked.len(), RESIGNS_MAX);
    bench.pass(4 * BEATS_A_SECOND, &both(&[(1, 2)]), &[]);
    asked.extend(bench.asked());
    assert_eq!(asked.len(), RESIGNS_MAX + 44);
}
