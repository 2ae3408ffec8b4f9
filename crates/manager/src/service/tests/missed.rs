//! Members that do not take what their primaries send them, although the manager hears both.

use super::copies::TWO;
use super::*;
use strake_types::GroupId;
use strake_wire::message::manager::{MapVersion, Missed, MissedBy};

/// Both were heard, so nobody was told why all that write waited.
#[tokio::test]
async fn a_member_that_is_heard_and_missed_by_its_primary_is_shown_to_people() {
    let (bench, joined) = Bench::with_two_copies(2).await;
    let epoch = bench.map().await.group(GroupId(TWO)).unwrap().epoch;
    let missed = Missed { group: TWO, epoch, member: 2, for_ms: 4_000, silent: true };
    let beat = async |missed: Vec<Missed>| {
        let (join, joined) = &joined[0];
        let (server, targets) = (joined.server, again(join, joined).targets);
        let beat = Heartbeat { server, targets, missed, ..Heartbeat::default() };
        bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    };
    beat(vec![missed]).await;
    let shown = MissedBy { member: 2, primary: 1, for_ms: 4_000, silent: true };
    assert_eq!(bench.map().await.missed, [shown]);
    let get = GetMap { known: Some(MapVersion::default()), ..GetMap::default() };
    let ManagerAnswer::Map(followed) = bench.ask(ManagerOp::GetMap(get)).await.unwrap() else {
        panic!("no map");
    };
    assert_eq!(followed.decoded().unwrap().unwrap().missed, [], "who follows does not need it");
    beat(vec![]).await;
    assert_eq!(bench.map().await.missed, []);
}
