//! Groups of several copies over time, through the manager's own messages.

pub(super) mod follows;
mod late;

use super::*;
use std::collections::BTreeMap;
use strake_base::random::SplitMix64;
use strake_types::GroupId;

pub(super) const TWO: u32 = GroupId::of_class(2, 0).0;

impl Bench {
    /// Servers of one target each, and groups of two copies.
    pub(super) async fn with_two_copies(servers: u32) -> (Bench, Vec<(Join, Joined)>) {
        let bench = Bench::new().await;
        let mut joined = Vec::new();
        for nth in 1..=servers {
            let join = booted(server(&format!("h{nth}:1"), &[&format!("t{nth}")]), "boot");
            joined.push((join.clone(), bench.join(join).await.unwrap()));
        }
        bench.ask(prepare(2, &[])).await.unwrap();
        // The first lease time of the manager goes by.
        for _ in 0..7 {
            bench.clock.pass(500);
            for (join, joined) in &joined {
                bench.beat_of(join, joined).await;
            }
        }
        (bench, joined)
    }

    pub(super) async fn beat_of(&self, join: &Join, joined: &Joined) {
        let targets = again(join, joined).targets;
        let beat = Heartbeat { server: joined.server, targets, ..Heartbeat::default() };
        self.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    }

    async fn group(&self) -> message::Group {
        self.map().await.group(GroupId(TWO)).unwrap().clone()
    }

    async fn resynced(&self, epoch: u64, member: u32, failed: bool) {
        let report = Resynced { group: TWO, epoch, member, failed, ..Resynced::default() };
        self.ask(ManagerOp::Resynced(report)).await.unwrap();
    }
}

fn booted(join: Join, boot: &str) -> Join {
    Join { boot: boot.into(), ..join }
}

/// Members in sync, members joining.
pub(super) fn sets(group: &message::Group) -> (&[u32], &[u32]) {
    (&group.in_sync, &group.joining)
}

#[tokio::test]
async fn a_manager_that_stood_still_takes_nobody_out_for_what_it_has_not_heard() {
    let (bench, joined) = Bench::with_two_copies(2).await;
    bench.manager.watch().await.unwrap();
    // Its process is stopped for three leases. What it reads first then is one heartbeat of one server.
    bench.clock.pass(9_000);
    bench.beat_of(&joined[1].0, &joined[1].1).await;
    assert_eq!(sets(&bench.group().await), (&[1, 2][..], &[][..]));
    // Who is silent from now on is taken out, as ever.
    for _ in 0..16 {
        bench.manager.watch().await.unwrap();
        bench.clock.pass(200);
        bench.beat_of(&joined[1].0, &joined[1].1).await;
    }
    assert_eq!(bench.group().await.in_sync, [2]);
}

#[tokio::test]
async fn copies_of_a_volume_make_the_groups_and_new_targets_lead_more() {
    let bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    let copies = |copies| Some(Template { copies: Some(copies), ..Template::default() });
    let wanted = VolumeSpec { template: copies(2), ..named("two") };
    assert_eq!(bench.create(wanted.clone()).await.unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(bench.map().await.volumes.len(), 1, "nothing was made");
    bench.join(server("b:1", &["y"])).await.unwrap();
    let made = bench.create(wanted).await.unwrap();
    assert_eq!(made.spec.template.unwrap().copies, Some(2));
    assert_eq!(bench.create(named("one")).await.unwrap().spec.template.unwrap().copies, Some(1));
    bench.join(server("c:1", &["z"])).await.unwrap();
    let map = bench.map().await;
    let ids: Vec<u32> = map.groups.iter().map(|group| group.id).collect();
    assert_eq!(ids, [0, 1, 2, TWO, TWO + 1, TWO + 2], "ascending, and target 3 has group 2");
    let members: Vec<_> = map.groups.iter().map(|group| group.members.clone()).collect();
    assert_eq!(members[3..], [vec![1, 2], vec![2, 1], vec![3, 1]]);
    assert!(map.groups.iter().all(|group| group.in_sync == group.members && group.epoch == 1));
    // Targets that a volume lies on can be taken with more copies, and lists must be of one kind.
    let mixed = Template { list: vec![0, TWO], ..Template::default() };
    let mixed = VolumeSpec { template: Some(mixed), ..named("mixed") };
    assert_eq!(bench.create(mixed).await.unwrap_err().kind, ErrorKind::Invalid);
    let listed = Template { list: vec![1], ..Template::default() };
    bench.create(VolumeSpec { template: Some(listed), ..named("listed") }).await.unwrap();
    let more = VolumeSpec { template: copies(2), ..named("listed") };
    let ManagerAnswer::Volume(changed) = bench.ask(ManagerOp::SetVolume(more)).await.unwrap()
    else {
        panic!("not a volume");
    };
    assert_eq!(changed.spec.template.unwrap().list, [TWO + 1]);
}

#[tokio::test]
async fn a_server_that_dies_is_taken_out_when_its_lease_is_over_and_not_before() {
    let (bench, servers) = Bench::with_two_copies(2).await;
    let before = bench.group().await;
    assert_eq!(sets(&before), (&[1, 2][..], &[][..]));
    for _ in 0..6 {
        bench.clock.pass(500);
        bench.beat_of(&servers[1].0, &servers[1].1).await;
        bench.manager.tick().await.unwrap();
    }
    assert_eq!(bench.group().await, before, "its lease lasts");
    bench.clock.pass(200);
    bench.manager.tick().await.unwrap();
    let after = bench.manager.inner.lock().state.groups[&TWO].clone();
    assert_eq!((after.epoch, after.in_sync), (before.epoch + 1, vec![2]), "nobody asked");
}

/// A server asks for leases of 0.6 s. It is taken out when they are over if somebody waits for it, else after 3 s.
#[tokio::test]
async fn who_is_waited_for_is_taken_out_when_the_lease_that_it_asked_for_is_over() {
    let (bench, servers) = Bench::with_two_copies(2).await;
    let beat = async |nth: usize| {
        let (join, joined) = &servers[nth];
        let targets = again(join, joined).targets;
        let beat =
            Heartbeat { server: joined.server, targets, lease_ms: 600, ..Heartbeat::default() };
        bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    };
    // The leases that nobody asked for end.
    for _ in 0..6 {
        bench.clock.pass(500);
        beat(0).await;
        beat(1).await;
    }
    let before = bench.group().await;
    assert_eq!(sets(&before), (&[1, 2][..], &[][..]));
    let stalled = async |epoch, target| {
        let said = message::Stalled { group: TWO, epoch, target };
        bench.ask(ManagerOp::Stalled(said)).await.unwrap();
        bench.group().await
    };
    bench.clock.pass(600);
    assert_eq!(stalled(before.epoch, 1).await, before, "its lease lasts");
    bench.clock.pass(1);
    assert_eq!(stalled(before.epoch, 1).await, before, "who says that was not heard since");
    beat(1).await;
    bench.clock.pass(601);
    beat(0).await;
    assert_eq!(bench.group().await, before, "nobody waits for it");
    assert_eq!(stalled(before.epoch - 1, 1).await, before, "of an epoch that is over");
    assert_eq!(stalled(before.epoch, 2).await, before, "by itself, and the other one lives");
    let after = stalled(before.epoch, 1).await;
    assert_eq!((after.epoch, sets(&after)), (before.epoch + 1, (&[1][..], &[][..])));
    beat(1).await;
    assert_eq!(sets(&bench.group().await), (&[1][..], &[2][..]), "it is heard again");
}

/// What a manager of before has answered it may not know.
#[tokio::test]
async fn a_manager_that_has_just_started_takes_out_nobody_who_is_waited_for() {
    let (mut bench, servers) = Bench::with_two_copies(2).await;
    bench.restart().await;
    let before = bench.group().await;
    for passed in [1_000, 1_900, 101] {
        bench.clock.pass(passed);
        bench.beat_of(&servers[0].0, &servers[0].1).await;
        let said = message::Stalled { group: TWO, epoch: before.epoch, target: 1 };
        bench.ask(ManagerOp::Stalled(said)).await.unwrap();
        let now = bench.manager.inner.lock().state.groups[&TWO].in_sync.clone();
        let expected = if passed == 101 { vec![1] } else { vec![1, 2] };
        assert_eq!(now, expected, "after {passed} more ms");
    }
}

#[tokio::test]
async fn who_leaves_or_has_a_broken_disk_is_taken_out_at_once() {
    let (bench, servers) = Bench::with_two_copies(2).await;
    bench.ask(ManagerOp::Leave(Leave { server: 1, life: 0 })).await.unwrap();
    assert_eq!(sets(&bench.group().await), (&[2][..], &[][..]));
    bench.ask(ManagerOp::Leave(Leave { server: 2, life: 0 })).await.unwrap();
    assert_eq!(sets(&bench.group().await), (&[2][..], &[][..]), "never the last one");

    let (bench, servers) = (Bench::with_two_copies(2).await.0, servers);
    let mut beat = Heartbeat {
        server: 1,
        targets: again(&servers[0].0, &servers[0].1).targets,
        ..Heartbeat::default()
    };
    beat.targets[0].poisoned = "EIO".into();
    bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    assert_eq!(sets(&bench.group().await), (&[2][..], &[][..]));
}

/// A heartbeat may come late, when the target serves readers again. Its report is of an epoch in which it does not.
#[tokio::test]
async fn a_target_whose_disk_hangs_is_taken_out_by_its_report_alone_and_is_back_when_it_answers() {
    let (bench, servers) = Bench::with_two_copies(2).await;
    let say = async |silent_ms: Option<u64>| {
        let mut targets = again(&servers[0].0, &servers[0].1).targets;
        targets[0].silent_ms = silent_ms;
        let beat = Heartbeat { server: 1, targets, ..Heartbeat::default() };
        bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    };
    say(Some(9_000)).await;
    let group = bench.group().await;
    assert_eq!(sets(&group), (&[1, 2][..], &[][..]));
    let hangs = Resynced {
        group: TWO,
        epoch: group.epoch,
        member: 1,
        failed: true,
        hangs: true,
        ..Resynced::default()
    };
    bench.ask(ManagerOp::Resynced(hangs)).await.unwrap();
    assert_eq!(sets(&bench.group().await), (&[2][..], &[][..]));
    bench.clock.pass(1_200);
    bench.beat_of(&servers[1].0, &servers[1].1).await;
    say(Some(12_000)).await;
    assert_eq!(sets(&bench.group().await), (&[2][..], &[][..]), "it would hold the others up");
    say(None).await;
    assert_eq!(sets(&bench.group().await), (&[2][..], &[1][..]));
}

/// A server that left in good order was taken out at once, in favour of one that had just lost power:
/// all that remained was what that one had synced. Found by simulation.
#[tokio::test]
async fn who_leaves_hands_nothing_over_to_one_that_was_not_heard_since() {
    let (bench, servers) = Bench::with_two_copies(2).await;
    bench.clock.pass(300);
    bench.ask(ManagerOp::Leave(Leave { server: 1, life: 0 })).await.unwrap();
    assert_eq!(sets(&bench.group().await), (&[1, 2][..], &[][..]), "2 may be dead, too");
    bench.beat_of(&servers[1].0, &servers[1].1).await;
    assert_eq!(sets(&bench.group().await), (&[2][..], &[][..]));

    let (bench, servers) = Bench::with_two_copies(2).await;
    bench.clock.pass(300);
    bench.ask(ManagerOp::Leave(Leave { server: 1, life: 0 })).await.unwrap();
    bench.clock.pass(7_000);
    bench.manager.tick().await.unwrap();
    assert_eq!(sets(&bench.group().await), (&[1, 2][..], &[][..]), "2 is dead");
    let (join, joined) = &servers[0];
    while bench.join(again(join, joined)).await.is_err() {
        bench.clock.pass(500);
    }
    let group = bench.group().await;
    assert_eq!((sets(&group), group.losses), ((&[1][..], &[][..]), 0), "it has everything");
}

#[tokio::test]
async fn in_its_first_lease_time_the_manager_takes_nobody_out() {
    let (mut bench, servers) = Bench::with_two_copies(2).await;
    bench.restart().await;
    bench.beat_of(&servers[1].0, &servers[1].1).await;
    bench.ask(ManagerOp::Leave(Leave { server: 1, life: 0 })).await.unwrap();
    assert_eq!(sets(&bench.group().await), (&[1, 2][..], &[][..]));
    bench.clock.pass(3_001);
    bench.beat_of(&servers[1].0, &servers[1].1).await;
    assert_eq!(sets(&bench.group().await), (&[2][..], &[][..]));
}

#[tokio::test]
async fn a_server_that_returns_joins_when_it_serves_and_is_in_sync_when_it_is_equal() {
    let (bench, servers) = Bench::with_two_copies(2).await;
    let (join, joined) = &servers[0];
    // The other one has said nothing since: it may have died in the same moment.
    bench.clock.pass(300);
    let error = bench.join(again(join, joined)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    bench.clock.pass(300);
    bench.beat_of(&servers[1].0, &servers[1].1).await;
    bench.clock.pass(1);
    bench.join(again(join, joined)).await.unwrap();
    let out = bench.group().await;
    assert_eq!(sets(&out), (&[2][..], &[][..]));
    bench.beat_of(join, joined).await;
    let joining = bench.group().await;
    assert_eq!((joining.epoch, sets(&joining)), (out.epoch + 1, (&[2][..], &[1][..])));
    bench.resynced(out.epoch, 1, false).await;
    assert_eq!(bench.group().await, joining, "that was about an epoch that is over");
    bench.resynced(joining.epoch, 1, false).await;
    let whole = bench.group().await;
    assert_eq!((whole.epoch, sets(&whole)), (joining.epoch + 1, (&[2, 1][..], &[][..])));
    assert_eq!(whole.losses, 0);
    // It leads again when all that it may have promised before is over.
    for _ in 0..6 {
        assert_eq!(bench.group().await, whole);
        bench.clock.pass(1_000);
        for (join, joined) in &servers {
            bench.beat_of(join, joined).await;
        }
    }
    bench.clock.pass(1);
    for (join, joined) in &servers {
        bench.beat_of(join, joined).await;
    }
    let led = bench.group().await;
    assert_eq!((led.epoch, sets(&led)), (whole.epoch + 1, (&[1, 2][..], &[][..])));
}

/// The one that led had acknowledged writes that others did not have yet, and the other one wrote older bytes over them.
#[tokio::test]
async fn the_lead_is_given_back_when_the_primary_says_that_others_have_what_it_has_acknowledged() {
    let (bench, servers) = Bench::with_two_copies(2).await;
    let beat = async || {
        for (join, joined) in &servers {
            let mut targets = again(join, joined).targets;
            targets.iter_mut().for_each(|spec| spec.hands_over = true);
            let beat = Heartbeat { server: joined.server, targets, ..Heartbeat::default() };
            bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
        }
    };
    bench.ask(ManagerOp::Leave(Leave { server: 1, life: 0 })).await.unwrap();
    beat().await;
    let joining = bench.group().await;
    assert_eq!(sets(&joining), (&[2][..], &[1][..]));
    bench.resynced(joining.epoch, 1, false).await;
    for _ in 0..10 {
        bench.clock.pass(1_000);
        beat().await;
    }
    let asked = bench.group().await;
    assert_eq!(sets(&asked), (&[2, 1][..], &[][..]), "it has not said so");
    assert_eq!(asked.hand_over, asked.epoch);
    let say = async |epoch, member| {
        let yields = Resynced { hands_over: true, vouches: 3, ..Resynced::default() };
        let said = Resynced { group: TWO, epoch, member, ..yields };
        bench.ask(ManagerOp::Resynced(said)).await.unwrap();
        bench.group().await
    };
    assert_eq!(say(asked.epoch - 1, 2).await, asked, "of an epoch that is over");
    assert_eq!(say(asked.epoch, 1).await, asked, "it does not lead");
    let led = say(asked.epoch, 2).await;
    assert_eq!((led.epoch, sets(&led)), (asked.epoch + 1, (&[1, 2][..], &[][..])));
    assert_eq!((led.handed_in, led.stands_for), (led.epoch, 3));
}

#[tokio::test]
async fn a_member_that_cannot_be_made_equal_is_tried_again_after_a_pause_that_grows() {
    let (bench, servers) = Bench::with_two_copies(2).await;
    bench.ask(ManagerOp::Leave(Leave { server: 1, life: 0 })).await.unwrap();
    let epoch = bench.group().await.epoch;
    for wait in [1_000, 2_000, 4_000] {
        bench.beat_of(&servers[0].0, &servers[0].1).await;
        bench.beat_of(&servers[1].0, &servers[1].1).await;
        let joining = bench.group().await;
        assert_eq!(sets(&joining), (&[2][..], &[1][..]));
        bench.resynced(joining.epoch, 1, true).await;
        let mut waited = 0;
        while waited + 500 < wait {
            waited += 500;
            bench.clock.pass(500);
            bench.beat_of(&servers[0].0, &servers[0].1).await;
            bench.beat_of(&servers[1].0, &servers[1].1).await;
            assert_eq!(sets(&bench.group().await), (&[2][..], &[][..]), "{waited} of {wait}");
        }
        bench.clock.pass(500);
    }
    // On and off again three times, and on once more.
    assert_eq!(bench.group().await.epoch, epoch + 7, "no epoch per heartbeat");
}

#[tokio::test]
async fn a_group_that_lost_all_members_is_founded_again_and_counts_what_may_be_lost() {
    for (boot, losses) in [("boot", 0), ("another boot", 1)] {
        let (bench, servers) = Bench::with_two_copies(2).await;
        let join = booted(again(&servers[0].0, &servers[0].1), boot);
        let mut refused = 0;
        // It goes on asking; nobody else is heard for a lease.
        while bench.join(join.clone()).await.is_err() {
            refused += 1;
            bench.clock.pass(300);
        }
        assert_eq!(refused, 11, "a lease, for what the one that returns has promised");
        let group = bench.group().await;
        assert_eq!((sets(&group), group.losses), ((&[1][..], &[][..]), losses));
        let other = again(&servers[1].0, &servers[1].1);
        bench.join(other).await.unwrap();
        assert_eq!(sets(&bench.group().await), (&[1][..], &[][..]), "the other one is not in sync");
    }
}

/// A file system that failed was mounted anew on a host that ran on: that was no loss.
#[tokio::test]
async fn whether_something_may_be_lost_a_target_says_itself_where_it_can() {
    let cases = [
        (7, 7, "boot", 0),
        (7, 8, "boot", 1),
        // Its host was stopped in good order.
        (7, 7, "another boot", 0),
        // One of an earlier release goes by its host.
        (0, 8, "boot", 0),
        (0, 8, "another boot", 1),
        (7, 0, "boot", 0),
        (7, 0, "another boot", 1),
    ];
    let says = |join: &Join, own| {
        let mut join = join.clone();
        join.targets[0].boot = own;
        join
    };
    for (before, now, host, losses) in cases {
        let (bench, servers) = Bench::with_two_copies(2).await;
        let (first, joined) = &servers[0];
        // It was made when it had joined.
        bench.beat_of(&says(first, before), joined).await;
        let back = booted(again(first, joined), host);
        while bench.join(says(&back, now)).await.is_err() {
            bench.clock.pass(300);
        }
        let told = (before, now, host);
        assert_eq!(bench.group().await.losses, losses, "{told:?}");
        // What it said then counts from then on, and no late word of before.
        bench.beat_of(&says(first, 5), joined).await;
        for (next, more) in [(now, 0), (9, u64::from(now != 0))] {
            bench.join(says(&back, next)).await.unwrap();
            assert_eq!(bench.group().await.losses, losses + more, "{told:?}, then {next}");
        }
    }
}

#[tokio::test]
async fn a_group_of_an_earlier_release_has_all_its_members_in_sync() {
    let mut bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    // Version 1, epoch 1, member 1, and the checksum: as release 0.1 wrote it.
    let old = crate::records::Group { epoch: 1, members: vec![1], ..Default::default() };
    let mut transaction = Transaction::begin(&*bench.kv).await.unwrap();
    let key = crate::records::key(crate::records::Kind::Group, 0);
    transaction.put(key, crate::records::encode(&old));
    assert_eq!(transaction.commit(&*bench.kv).await.unwrap(), Outcome::Committed);
    bench.restart().await;
    let group = bench.map().await.groups[0].clone();
    assert_eq!((sets(&group), group.losses), ((&[1][..], &[][..]), 0));
}

/// A server of the property test.
struct Machine {
    join: Join,
    joined: Option<Joined>,
    runs: bool,
    boots: u64,
}

/// What happened in a step, as far as it may bring a member in sync or found a group again.
enum Cause {
    Report(Resynced),
    Return,
    Other,
}

type Groups = BTreeMap<u32, crate::records::Group>;

/// What holds between two moments, whatever happened.
fn check_step(before: &Groups, after: &Groups, cause: &Cause, seed: u64) {
    for (id, new) in after {
        assert!(!new.in_sync.is_empty(), "seed {seed}: group {id} has nobody");
        assert!(new.in_sync.iter().all(|m| new.members.contains(m)), "seed {seed}: {new:?}");
        assert!(new.joining.iter().all(|m| new.members.contains(m)), "seed {seed}: {new:?}");
        assert!(!new.joining.iter().any(|m| new.in_sync.contains(m)), "seed {seed}: {new:?}");
        let Some(old) = before.get(id) else { continue };
        let context = || format!("seed {seed}: group {id}: {old:?} became {new:?}");
        assert_eq!(old == new, old.epoch == new.epoch, "{}", context());
        assert!(new.epoch <= old.epoch + 1 || !matches!(cause, Cause::Report(_)), "{}", context());
        assert!(new.epoch >= old.epoch && new.losses >= old.losses, "{}", context());
        assert_eq!(old.members, new.members, "{}", context());
        if new.members.len() == 1 {
            assert_eq!(old, new, "{}", context());
        }
        for member in new.in_sync.iter().filter(|member| !old.in_sync.contains(member)) {
            let told = matches!(cause, Cause::Report(report) if !report.failed
                && (report.group, report.epoch, report.member) == (*id, old.epoch, *member));
            assert!(told, "{}", context());
        }
        if new.losses > old.losses {
            assert!(matches!(cause, Cause::Return) && new.in_sync.len() == 1, "{}", context());
        }
    }
    assert!(before.keys().all(|id| after.contains_key(id)), "seed {seed}: a group is gone");
}

async fn step(
    bench: &mut Bench,
    machines: &mut [Machine],
    dice: &mut SplitMix64,
    known: &Groups,
) -> Cause {
    let at = dice.below(machines.len() as u64) as usize;
    let machine = &mut machines[at];
    match dice.below(100) {
        0..30 => {
            for machine in machines.iter_mut().filter(|machine| machine.runs) {
                bench.beat_of(&machine.join, machine.joined.as_ref().unwrap()).await;
            }
        }
        30..45 => {
            machine.runs = false;
            machine.boots += dice.below(2);
        }
        45..70 => {
            if !machine.runs {
                let join = booted(machine.join.clone(), &machine.boots.to_string());
                let join =
                    machine.joined.as_ref().map_or(join.clone(), |known| again(&join, known));
                if let Ok(joined) = bench.join(join).await {
                    (machine.joined, machine.runs) = (Some(joined), true);
                }
                return Cause::Return;
            }
        }
        70..75 => {
            if let (true, Some(joined)) = (machine.runs, &machine.joined) {
                let leave = ManagerOp::Leave(Leave { server: joined.server, life: 0 });
                bench.ask(leave).await.unwrap();
                machine.runs = false;
            }
        }
        75..95 => {
            // Those that join, and those in sync that could not take a change.
            let told = |group: &crate::records::Group| {
                let in_sync = group.in_sync.iter().skip(1);
                group.joining.iter().chain(in_sync).copied().collect::<Vec<_>>()
            };
            let members: Vec<_> = known
                .iter()
                .flat_map(|(id, g)| told(g).into_iter().map(move |m| (*id, g, m)))
                .collect();
            let pick = dice.below(members.len() as u64) as usize;
            if let Some(&(group_id, group, member)) = members.get(pick) {
                let epoch = group.epoch - dice.below(2);
                let failed = dice.percent(30);
                let report =
                    Resynced { group: group_id, epoch, member, failed, ..Resynced::default() };
                bench.ask(ManagerOp::Resynced(report.clone())).await.unwrap();
                return Cause::Report(report);
            }
        }
        95..98 => bench.restart().await,
        _ => {
            let copies = 2 + dice.below(2) as u32;
            // Too few targets are there at first.
            let _ = bench.ask(prepare(copies, &[])).await;
        }
    }
    Cause::Other
}

#[tokio::test]
async fn whatever_happens_the_in_sync_sets_stay_sound() {
    let (mut refounded, mut whole_again) = (0, 0);
    for seed in 0..40 {
        let mut dice = SplitMix64::new(seed);
        let mut bench = Bench::new().await;
        let machine = |nth: u64| {
            let uuids = [format!("x{nth}"), format!("y{nth}")];
            let uuids: Vec<&str> = uuids.iter().map(String::as_str).collect();
            let targets = 1 + nth as usize % 2;
            let join = server(&format!("h{nth}:1"), &uuids[..targets]);
            Machine { join, joined: None, runs: false, boots: 0 }
        };
        let mut machines: Vec<Machine> = (0..4).map(machine).collect();
        for _ in 0..200 {
            let before = bench.manager.inner.lock().state.groups.clone();
            let cause = step(&mut bench, &mut machines, &mut dice, &before).await;
            let between = bench.manager.inner.lock().state.groups.clone();
            check_step(&before, &between, &cause, seed);
            bench.clock.pass(dice.below(700));
            bench.manager.tick().await.unwrap();
            let after = bench.manager.inner.lock().state.groups.clone();
            check_step(&between, &after, &Cause::Other, seed);
            for (id, group) in &between {
                let old = before.get(id).filter(|old| old.in_sync != group.in_sync);
                let Some(old) = old else { continue };
                match cause {
                    Cause::Return => refounded += usize::from(group.in_sync.len() == 1),
                    Cause::Report(_) => whole_again += usize::from(group.in_sync > old.in_sync),
                    Cause::Other => {}
                }
            }
        }
    }
    assert!(refounded > 20 && whole_again > 20, "{refounded} {whole_again}: nothing happened");
}

/// What a server says whose target has this generation on its disk.
fn of_generation(join: &Join, generation: u64) -> Join {
    let mut join = join.clone();
    join.targets[0].generation = Some(generation);
    join
}

#[tokio::test]
async fn a_target_that_is_older_than_it_was_is_refused_or_counts_as_one_that_has_less() {
    let (bench, joined) = Bench::with_two_copies(3).await;
    let (first, given) = (again(&joined[0].0, &joined[0].1), &joined[0].1);
    assert_eq!(given.generations, [0], "an earlier release writes none");
    let enter = async |generation, old_disks| {
        let join = Join { old_disks, ..of_generation(&first, generation) };
        // The others have been away for long, which is known when it has knocked for a lease.
        loop {
            match bench.join(join.clone()).await {
                Err(error) if error.kind == ErrorKind::Busy => bench.clock.pass(1_000),
                outcome => return outcome,
            }
        }
    };
    let told = async |generation| {
        bench.beat_of(&of_generation(&first, generation), given).await;
    };
    assert_eq!(enter(0, false).await.unwrap().generations, [1]);
    // What it was given before it died, and what it was given twice because an answer was lost, may be on its disk or not.
    assert_eq!(enter(0, false).await.unwrap().generations, [2]);
    assert_eq!(enter(1, false).await.unwrap().generations, [3]);
    told(3).await;
    assert_eq!(enter(3, false).await.unwrap().generations, [4]);
    assert_eq!(
        enter(3, false).await.unwrap().generations,
        [5],
        "nobody has heard that 4 was written"
    );
    told(5).await;
    for old in [0, 4] {
        let error = enter(old, false).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::WrongPeer);
        assert!(
            error.detail.contains("(number 1) is older") && error.detail.contains("--old-disks"),
            "{error}"
        );
    }
    let before = bench.map().await;
    assert_eq!(enter(4, true).await.unwrap().generations, [6]);
    let after = bench.map().await;
    for group in &before.groups {
        let now = after.group(GroupId(group.id)).unwrap();
        match (group.in_sync.contains(&1), group.in_sync.len()) {
            (false, _) => assert_eq!(now.losses, group.losses),
            (true, 1) => {
                assert_eq!((&now.in_sync, now.losses), (&group.in_sync, group.losses + 1));
                assert!(
                    group.id >= TWO || now.word != group.word,
                    "what was acknowledged is not covered"
                );
            }
            // Nobody else lives, and it is waited for all the same.
            (true, _) => assert!(!now.in_sync.contains(&1) && !now.in_sync.is_empty(), "{now:?}"),
        }
    }
    // That number may not have come to its disk.
    assert_eq!(enter(4, false).await.unwrap().generations, [7]);
    // A disk that is newer than this manager remembers is not an old one.
    assert_eq!(enter(40, false).await.unwrap().generations, [41]);
}
