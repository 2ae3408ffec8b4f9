use super::*;
use crate::groups::Yields;
use crate::liveness::Word;
use crate::records::Target;
use strake_wire::message::manager::TargetSpec;

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
    fn pass(&mut self, beats: u32, pairs: &[Pair], early: &[u32]) {
        let said = Silences { pairs: all(pairs), early: all(early) };
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
    fn decide(&mut self, pairs: &[Pair]) {
        self.pass(3 * BEATS_A_SECOND, pairs, &[]);
    }

    /// Which members are asked to go, by group.
    fn asked(&self) -> BTreeSet<(u32, u32)> {
        let asked = self.state.targets.keys().flat_map(|id| self.live.asked_to_resign(*id));
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

    /// The primary of a group has tried to make a member equal.
    fn try_in(&mut self, id: u32, member: u32, failed: bool) {
        self.group(id).joining = vec![member];
        let report = Resynced { group: id, member, failed, ..Resynced::default() };
        self.live.hear_resynced(&self.state, &report, self.now);
        let group = self.group(id);
        group.joining.clear();
        if !failed {
            group.in_sync.push(member);
        }
    }
}

fn all<T: Ord + Copy>(of: &[T]) -> BTreeSet<T> {
    of.iter().copied().collect()
}

/// Each of two led groups of both, and would have taken out the other one there.
#[test]
fn one_and_the_same_of_two_goes_from_all_groups_that_need_the_way_between_them() {
    let mut bench = Bench::new(&[&[1, 2], &[2, 1], &[1, 2, 3], &[3, 1, 2], &[2, 3]]);
    bench.decide(&[(1, 2)]);
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
        bench.pass(2 * BEATS_A_SECOND, &[(1, 2)], &[]);
        assert_eq!(bench.asked(), all(&[]));
        bench.pass(1, &[], &[]);
    }
    bench.decide(&[(1, 2)]);
    assert_eq!(bench.asked(), all(&[(1, 2)]));
}

/// It would have gone on alone in all that it leads.
#[test]
fn a_server_that_is_apart_from_several_goes_and_not_each_of_these() {
    let mut bench = Bench::new(&[&[1, 2], &[2, 1], &[1, 3], &[3, 1], &[2, 3], &[1, 2, 3], &[1, 4]]);
    bench.decide(&[(1, 2), (1, 3)]);
    let asked = all(&[(1, 1), (2, 1), (3, 1), (4, 1), (6, 1)]);
    assert_eq!(bench.asked(), asked, "4 it reaches");
}

#[test]
fn of_two_pairs_in_a_group_only_the_one_with_the_primary_counts() {
    let mut bench = Bench::new(&[&[1, 2, 3, 4]]);
    bench.decide(&[(1, 2), (3, 4)]);
    assert_eq!(bench.asked(), all(&[(1, 2)]));
    bench.resign();
    bench.pass(1, &[], &[]);
    assert_eq!(bench.asked(), all(&[]));
}

#[test]
fn of_two_members_that_are_to_go_each_goes_from_an_epoch_of_its_own() {
    let mut bench = Bench::new(&[&[1, 2, 3], &[4, 2]]);
    bench.decide(&[(1, 2)]);
    bench.decide(&[(1, 3), (3, 4)]);
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
    bench.decide(&[(1, 2)]);
    assert_eq!(bench.asked(), all(&[(1, 1), (2, 1)]), "although it leads");
    bench.hung = vec![1, 2];
    bench.pass(1, &[(1, 2)], &[]);
    assert_eq!(bench.asked(), all(&[]));
    bench.hung.clear();
    bench.state.groups.values_mut().for_each(|group| group.in_sync = vec![1]);
    bench.pass(1, &[(1, 2)], &[]);
    assert_eq!(bench.asked(), all(&[]));
}

/// The manager would have let it go on, in a new epoch each time.
#[test]
fn a_member_that_is_to_leave_anyway_goes_when_all_others_serve() {
    let mut bench = Bench::new(&[&[1, 2, 3], &[1, 2]]);
    bench.group(1).leaving = vec![2];
    bench.decide(&[(1, 2)]);
    bench.hung = vec![3];
    bench.pass(1, &[(1, 2)], &[]);
    assert_eq!(bench.asked(), all(&[(2, 2)]));
    bench.hung.clear();
    bench.pass(1, &[(1, 2)], &[]);
    assert_eq!(bench.asked(), all(&[(1, 2), (2, 2)]));
}

/// What it had acknowledged alone (`--ack primary`) would be lost.
#[test]
fn a_primary_that_has_acknowledged_something_alone_stays_and_the_member_goes() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2], &[2, 1]]);
    bench.decide(&[(1, 2)]);
    assert_eq!(bench.asked(), all(&[(1, 2), (2, 2), (3, 2)]));
    bench.pass(1, &[(1, 2)], &[3]);
    assert_eq!(bench.asked(), all(&[(1, 2), (2, 2), (3, 1)]));
}

/// Each group would have let it join again and again, and what was written there had waited for it each time.
#[test]
fn who_has_gone_is_tried_in_one_group_at_a_time_and_joins_all_when_it_is_reached() {
    let mut bench = Bench::new(&[&[1, 2], &[1, 2], &[1, 2, 3], &[2, 3]]);
    bench.decide(&[(1, 2)]);
    bench.resign();
    bench.pass(2 * BEATS_A_SECOND, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(2, 2), (3, 2)]), "group 1 may try");
    bench.try_in(1, 2, true);
    bench.pass(1, &[], &[]);
    assert_eq!(bench.kept_out(), all(&[(1, 2), (2, 2), (3, 2)]), "not at once");
    bench.pass(3 * BEATS_A_SECOND, &[], &[]);
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
    bench.decide(&[(1, 2)]);
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
    bench.decide(&[(1, 2)]);
    assert_eq!(yields(&mut bench), Yields::Never);
    bench.resign();
    bench.try_in(2, 2, false);
    assert_eq!(yields(&mut bench), Yields::AtOnce);
}
