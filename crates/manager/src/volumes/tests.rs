use super::*;
use crate::fences::FENCES_MAX;
use crate::liveness::Liveness;
use crate::records::{Fence, Group, Target};
use crate::testing::cluster;
use std::sync::Arc;
use std::time::Duration;
use strake_types::limits::{ALL_TARGETS_MAX, STRIPE_WIDTH_MAX};
use strake_wire::message::common::Template;

fn spec(name: &str) -> VolumeSpec {
    VolumeSpec { name: name.to_owned(), ..VolumeSpec::default() }
}

/// The largest volume there can be.
fn large() -> Volume {
    let group = |nth| GroupId::of_class(3, nth);
    let groups = Some((0..STRIPE_WIDTH_MAX as u32).map(group).collect());
    let template = LayoutTemplate { groups, ..defaults() };
    let name = "v".repeat(NAME_BYTES_MAX);
    let spec = VolumeSpec { template: Some((&template).into()), ..spec(&name) };
    Volume { spec, ..Volume::default() }
}

/// A cluster of which the volumes take as much of the map as they may.
fn full() -> State {
    let mut state = State::default();
    for id in 1.. {
        state.volumes.insert(id, large());
        if check_room(&state, 0).is_err() {
            state.volumes.remove(&id);
            state.cluster.next_volume = id;
            return state;
        }
    }
    unreachable!("there is an end to that")
}

/// A group of several copies was looked for by the number of the group of one: that is another target's once one has left.
#[test]
fn more_copies_of_a_listed_group_are_on_its_target_whatever_its_number() {
    let mut state = cluster(&[1; 4]);
    state.targets.remove(&1);
    let moved = state.groups.get_mut(&0).unwrap();
    (moved.members, moved.in_sync) = (vec![3], vec![3]);
    let with = |template| VolumeSpec { template: Some(template), ..spec("v") };
    let listed = with(Template { list: vec![2], ..Template::default() });
    create(&mut state, &listed, |_| true).unwrap();
    let id = set(&mut state, &with(Template { copies: Some(2), ..Template::default() })).unwrap();
    let template = state.volumes[&id].spec.template.clone().unwrap();
    let group = &state.groups[&template.list[0]];
    assert_eq!((template.list.len(), group.members.len(), group.members[0]), (1, 2, 3));
    assert_eq!(template.copies, Some(2));
}

/// They were stored, and nobody could open the volume or give it other ones any more.
#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let set_to = |copies, min_copies| {
        let template = LayoutTemplate { copies, min_copies, ..LayoutTemplate::default() };
        VolumeSpec { template: Some((&template).into()), ..spec("v") }
    };
    let volume = |copies, min_copies| {
        let stored = Template { copies, min_copies, ..Template::default() };
        let spec = VolumeSpec { template: Some(stored), ..spec("v") };
        let volumes = [(1, Volume { spec, ..Volume::default() })].into();
        let targets = [(1, Target::default())].into();
        State { volumes, targets, ..State::default() }
    };
    for (mut state, wanted) in [
        (volume(Some(1), Some(1)), set_to(None, Some(2))),
        (volume(Some(2), Some(2)), set_to(Some(1), None)),
    ] {
        let refused = set(&mut state, &wanted).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert!(refused.detail.contains("--min-copies"), "{refused}");
    }
    assert!(create(&mut State::default(), &set_to(None, Some(2)), |_| true).is_err());
    let mut state = volume(Some(2), Some(2));
    set(&mut state, &set_to(Some(1), Some(1))).unwrap();
    // What an earlier release has stored takes other settings again.
    let mut state = volume(Some(1), Some(2));
    set(&mut state, &VolumeSpec { sync_always: Some(true), ..spec("v") }).unwrap();
    let now = state.volumes[&1].spec.template.clone().unwrap();
    assert_eq!((now.copies, now.min_copies), (Some(1), Some(1)));
}

/// Nobody could be sent the map any more: of a hundred thousand volumes, which were allowed, it took eight megabytes.
#[test]
fn volumes_beyond_what_the_map_can_tell_are_refused() {
    let mut state = full();
    let count = state.volumes.len();
    let mut refused = None;
    for nth in 0..1_000 {
        let mut next = state.clone();
        match create(&mut next, &spec(&format!("small{nth}")), |_| true) {
            Ok(_) => state = next,
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let refused = refused.expect("a large one would not have fitted");
    assert!(refused.detail.contains("strake volume delete"), "{refused}");
    let missing = find(&state, "missing").unwrap_err();
    assert!(missing.detail.contains(&format!("shows the {}", state.volumes.len())), "{missing}");
    assert!(state.volumes.len() > count);
}

/// What they had been given was told with the map for ever, and each share of them counted as a volume.
#[test]
fn deleted_volumes_leave_room_for_others() {
    let mut state = full();
    let name = "v".repeat(NAME_BYTES_MAX);
    while delete(&mut state, &name).is_ok() {}
    create(&mut state, &spec("small"), |_| true).unwrap();

    let meta = Server { meta: true, shares: true, store: "db".into(), ..Server::default() };
    let mut state = State { servers: [(1, meta)].into(), ..State::default() };
    let wide = VolumeSpec { shares: Some(SHARES_MAX), ..spec("wide") };
    create(&mut state, &wide, |_| true).unwrap();
    delete(&mut state, "wide").unwrap();
    let deleted: Vec<Volume> = state.volumes.into_values().collect();
    let count = 2 * VOLUMES_MAX;
    state.volumes = (1..).zip(deleted.into_iter().cycle().take(count)).collect();
    state.cluster.next_volume = count as u32 + 1;
    let id = create(&mut state, &wide, |_| true).unwrap();
    assert_eq!(find(&state, "wide").unwrap(), id);
}

/// It was told to delete volumes, of which none could be made any more for that very reason.
#[test]
fn where_deleted_volumes_take_the_map_nobody_is_told_to_delete_more() {
    let wide = VolumeSpec { shares: Some(64), ..spec("gone") };
    let mut gone = Volume { spec: wide, ..Volume::default() };
    gone.delete();
    let volumes = (1_000_000..1_200_000).map(|id| (id, gone.clone())).collect();
    let mut state = State { volumes, ..State::default() };
    state.cluster.next_volume = 1_200_000;
    let refused = create(&mut state, &spec("new"), |_| true).unwrap_err();
    assert!(refused.detail.contains("were deleted"), "{refused}");
    assert!(!refused.detail.contains("strake volume delete"), "{refused}");
}

#[test]
fn the_map_of_a_large_cluster_fits_into_a_message() {
    let mut state = full();
    for id in 1..=1_000 {
        let (address, name) = ("255.255.255.255:65535".to_owned(), "h".repeat(64));
        let store = "0c".repeat(16);
        let server = Server { address, name, store, meta: true, ..Server::default() };
        state.servers.insert(id, server);
    }
    for id in 1..=ALL_TARGETS_MAX as u32 {
        let (uuid, path) = ("0c".repeat(16), format!("/srv/strake/disk-{id}/target"));
        let target =
            Target { server: id / 8, uuid, path, total_bytes: 1 << 44, ..Target::default() };
        state.targets.insert(id, target);
        for copies in 1..=3 {
            let members: Vec<u32> = (id..id + copies).collect();
            let (in_sync, epoch) = (members.clone(), 1 << 20);
            let (hand_over, handed_in, stands_for) = (epoch, epoch, epoch);
            let group = Group {
                epoch,
                members,
                in_sync,
                lost_ms: 1 << 40,
                hand_over,
                handed_in,
                stands_for,
                ..Group::default()
            };
            state.groups.insert(GroupId::of_class(copies, id).0, group);
        }
    }
    for id in 1..=FENCES_MAX as u32 {
        let (session, epoch) = (u64::from(id) << 16, 1 << 20);
        let fence = Fence { volume: 20_000, session, epoch, ..Fence::default() };
        state.fences.insert(id, fence);
    }
    let live = Liveness::new(Duration::ZERO, Duration::ZERO, 1..=1_000);
    let sight = show::Sight::of(&Arc::new(state), &live, Duration::ZERO);
    let bytes = sight.map().encoded_len();
    assert!(bytes < BODY_BYTES_MAX, "{bytes}");
}

/// There are as many groups of two copies as targets that stay, and target 4 leads none.
#[test]
fn a_listed_target_that_leads_none_of_so_many_copies_gets_one_to_lead() {
    let mut state = cluster(&[1; 3]);
    groups::prepare(&mut state, 2).unwrap();
    let target = crate::testing::add_target(&mut state, 1);
    state.targets.get_mut(&1).unwrap().drains = true;
    let with = |template| VolumeSpec { template: Some(template), ..spec("v") };
    let listed = Template { list: vec![3], ..Template::default() };
    create(&mut state, &with(listed), |_| true).unwrap();
    let two = Template { copies: Some(2), ..Template::default() };
    let id = set(&mut state, &with(two)).unwrap();
    let fourth = GroupId::of_class(2, 3).0;
    assert_eq!(state.groups[&fourth].members[0], target);
    assert_eq!(state.volumes[&id].spec.template.as_ref().unwrap().list, [fourth]);
}

/// The sentence was cut in the middle where it told of the next command, and it counted groups of all kinds.
#[test]
fn a_group_that_does_not_exist_is_told_with_those_of_its_kind() {
    let mut state = cluster(&[1; 3]);
    groups::prepare(&mut state, 2).unwrap();
    let listed = |group| VolumeSpec {
        template: Some(Template { list: vec![group], ..Template::default() }),
        ..spec("v")
    };
    let error = create(&mut state, &listed(99), |_| true).unwrap_err();
    let (cause, next) = error.detail.split_once("; ").unwrap();
    assert_eq!(cause, "group 99 does not exist: of one copy there are 0, 1, 2");
    assert!(next.starts_with("strake status --json"));
    let none = GroupId::of_class(3, 7).0;
    let error = create(&mut state, &listed(none), |_| true).unwrap_err();
    assert!(error.detail.contains("of 3 copies there are none"), "{error}");
}
