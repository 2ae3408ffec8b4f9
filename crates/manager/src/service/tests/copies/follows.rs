//! A manager that follows another knows how long that one's leases are.

use super::*;
use crate::beats::{Beats, Bequest};
use crate::records::Beat;
use strake_wire::lease::Lease;

/// The manager is followed by one that finds this; its lease, which does not hold yet.
pub(in crate::service::tests) async fn follow(bench: &mut Bench, left: Bequest) -> Arc<Lease> {
    let options = ManagerOptions { clock: bench.clock.clone(), ..ManagerOptions::default() };
    let from = bench.clock.monotonic();
    let beats = Arc::new(Beats::new(bench.clock.clone(), options.lease_ms, from, &left));
    beats.note_said(&Beat { lent_ms: options.lease_ms, ..Beat::default() });
    let lease = Arc::new(Lease::new(bench.clock.clone()));
    let lead = Lead { lease: lease.clone(), from, number: 7, left, beats };
    let begun = Manager::begin(bench.kv.clone(), options, Some(lead), Beginning::default()).await;
    bench.manager = begun.unwrap();
    lease
}

pub(in crate::service::tests) fn left(leader: u32, own_ms: u64, longest_ms: u64) -> Bequest {
    let (own, longest) = (Duration::from_millis(own_ms), Duration::from_millis(longest_ms));
    Bequest { led: vec![(leader, own)], longest }
}

/// It waited for a whole lease, whatever had been given.
#[tokio::test]
async fn others_are_waited_for_no_longer_than_their_leases_last() {
    // The server of target 2 is silent.
    for (left, ms) in [
        (left(0, 3_000, 3_000), 3_000),
        (left(9, 0, 800), 800),
        (left(9, 0, 1_200), 1_200),
        (left(2, 0, 1_200), 0),
        (left(2, 900, 1_200), 900),
        // A tenure may last longer than any lease.
        (left(2, 1_500, 800), 800),
        // The leader before the last one.
        (Bequest { led: vec![(2, Duration::ZERO), (1, Duration::ZERO)], ..left(1, 0, 800) }, 0),
        // Whose leader it was does not matter to others.
        (left(1, 0, 800), 800),
    ] {
        let (mut bench, servers) = Bench::with_two_copies(2).await;
        follow(&mut bench, left.clone()).await;
        let before = bench.group().await;
        let stalled = async || {
            bench.beat_of(&servers[0].0, &servers[0].1).await;
            let said = message::Stalled { group: TWO, epoch: before.epoch, target: 1 };
            bench.ask(ManagerOp::Stalled(said)).await.unwrap();
            bench.manager.inner.lock().state.groups[&TWO].in_sync.clone()
        };
        bench.clock.pass(ms);
        assert_eq!(stalled().await, [1, 2], "{left:?}");
        bench.clock.pass(1);
        assert_eq!(stalled().await, [1], "{left:?}");
        assert_eq!(sets(&bench.group().await).0, [1]);
    }
}

#[tokio::test]
async fn the_volumes_of_the_server_that_has_led_go_to_another_when_it_says_nothing() {
    let (mut bench, servers) = Bench::with_two_copies(2).await;
    let lasts = |bench: &Bench, server| {
        let inner = bench.manager.inner.lock();
        inner.live.tenure(server, bench.clock.monotonic()).lasts
    };
    for own_ms in [0, 900] {
        follow(&mut bench, left(2, own_ms, 800)).await;
        let miss = |bench: &Bench| {
            for id in [1, 2] {
                bench.manager.inner.lock().live.miss(id);
            }
        };
        bench.clock.pass(own_ms.max(200));
        miss(&bench);
        assert!(lasts(&bench, 1) && lasts(&bench, 2), "{own_ms}");
        bench.clock.pass(1);
        assert!(lasts(&bench, 1) && !lasts(&bench, 2), "{own_ms}");
        bench.beat_of(&servers[1].0, &servers[1].1).await;
        assert!(lasts(&bench, 2), "it is well");
        bench.clock.pass(1_500);
        miss(&bench);
        assert!(lasts(&bench, 2) && !lasts(&bench, 1), "others may have theirs still");
    }
}

/// Whoever follows it need not wait for what ends with its lead.
#[tokio::test]
async fn a_heartbeat_of_the_own_server_is_answered_with_the_lead_that_its_lease_ends_with() {
    let (mut bench, servers) = Bench::with_two_copies(2).await;
    let lead_of = async |bench: &Bench, server: usize| {
        let joined = &servers[server].1;
        let beat = Heartbeat { server: joined.server, ..Heartbeat::default() };
        let op = Some(ManagerOp::Heartbeat(beat));
        bench.manager.call(ManagerRequest { op }).await.unwrap().lead
    };
    assert_eq!(lead_of(&bench, 0).await, 0, "nobody follows it");
    follow(&mut bench, left(2, 0, 800)).await;
    bench.manager.lead_as(1, "").await.unwrap();
    assert_eq!((lead_of(&bench, 0).await, lead_of(&bench, 1).await), (7, 0));
}
