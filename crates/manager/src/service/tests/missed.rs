//! Members that do not take what their primaries send them, although the manager hears both.

use super::copies::TWO;
use super::*;
use strake_types::GroupId;
use strake_wire::message::manager::{MapVersion, Missed, MissedBy, Resign};

/// Both were heard, so nobody was told why all that write waited.
#[tokio::test]
async fn a_member_that_is_heard_and_missed_by_its_primary_is_shown_to_people() {
    let (bench, joined) = Bench::with_two_copies(2).await;
    let epoch = bench.map().await.group(GroupId(TWO)).unwrap().epoch;
    let missed =
        Missed { group: TWO, epoch, member: 2, for_ms: 4_000, silent: true, ..Missed::default() };
    let beat = async |missed: Vec<Missed>| {
        let (join, joined) = &joined[0];
        let (server, targets) = (joined.server, again(join, joined).targets);
        let beat = Heartbeat { server, targets, missed, ..Heartbeat::default() };
        bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    };
    beat(vec![missed]).await;
    let shown = MissedBy { member: 2, primary: 1, for_ms: 4_000, silent: true, left: false };
    assert_eq!(bench.map().await.missed, [shown]);
    let get = GetMap { known: Some(MapVersion::default()), ..GetMap::default() };
    let ManagerAnswer::Map(followed) = bench.ask(ManagerOp::GetMap(get)).await.unwrap() else {
        panic!("no map");
    };
    assert_eq!(followed.decoded().unwrap().unwrap().missed, [], "who follows does not need it");
    beat(vec![]).await;
    assert_eq!(bench.map().await.missed, []);
}

/// Both were heard, so neither was ever taken out, and each would have taken out the other in the group that it leads.
#[tokio::test]
async fn of_two_servers_that_do_not_reach_each_other_one_is_asked_to_go_and_joins_when_it_is_reached()
 {
    let (bench, joined) = Bench::with_two_copies(2).await;
    let before = bench.map().await.group(GroupId(TWO)).unwrap().epoch;
    let silent = |group, member| Missed {
        group,
        epoch: before,
        member,
        for_ms: 4_000,
        silent: true,
        ..Missed::default()
    };
    // What the second server is asked at the end.
    let pass = async |beats: u32, are_apart: bool| {
        let mut asked = Vec::new();
        for _ in 0..beats {
            bench.clock.pass(200);
            let said = [silent(TWO, 2), silent(TWO + 1, 1)];
            for ((join, joined), missed) in joined.iter().zip(said) {
                let (server, targets) = (joined.server, again(join, joined).targets);
                let missed = if are_apart { vec![missed] } else { Vec::new() };
                let beat = Heartbeat { server, targets, missed, ..Heartbeat::default() };
                let op = Some(ManagerOp::Heartbeat(beat));
                asked = bench.manager.call(ManagerRequest { op }).await.unwrap().resigns;
            }
            bench.manager.watch().await.unwrap();
        }
        asked
    };
    let sets = async || {
        let map = bench.map().await;
        let group = |id| map.group(GroupId(id)).unwrap();
        [TWO, TWO + 1].map(|id| (group(id).in_sync.clone(), group(id).joining.clone()))
    };
    let report = async |group: u32, failed: bool, hangs: bool| {
        let epoch = bench.map().await.group(GroupId(group)).unwrap().epoch;
        let silent = failed && !hangs;
        let report =
            Resynced { group, epoch, member: 2, failed, hangs, silent, ..Resynced::default() };
        bench.ask(ManagerOp::Resynced(report)).await.unwrap();
    };
    assert_eq!(pass(5, true).await, [], "it may pass");
    let resign = |group| Resign { group, epoch: before, member: 2 };
    assert_eq!(pass(10, true).await, [resign(TWO), resign(TWO + 1)]);
    report(TWO, true, true).await;
    report(TWO + 1, true, true).await;
    assert_eq!(sets().await, [(vec![1], vec![]), (vec![1], vec![])]);
    assert_eq!(pass(1, false).await, []);
    let told = bench.map().await.missed;
    let left = MissedBy { member: 2, primary: 1, for_ms: 0, silent: true, left: true };
    assert_eq!(told.iter().map(|one| MissedBy { for_ms: 0, ..*one }).collect::<Vec<_>>(), [left]);
    pass(30, false).await;
    assert_eq!(sets().await, [(vec![1], vec![2]), (vec![1], vec![])], "one is tried");
    report(TWO, true, false).await;
    pass(60, false).await;
    assert_eq!(sets().await, [(vec![1], vec![]), (vec![1], vec![2])], "then the other one");
    report(TWO + 1, false, false).await;
    pass(10, false).await;
    // Whether 2 reaches 1 nobody knows yet.
    assert_eq!(sets().await, [(vec![1], vec![2]), (vec![1, 2], vec![])]);
    assert_eq!(bench.map().await.missed, []);
}
