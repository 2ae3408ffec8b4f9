//! What is granted, in the way, and over.

use super::*;

const FILE: Ino = Ino(7);
/// What was claimed at 0 is not young any more.
const OLD: u64 = AHEAD_AFTER_MS;

fn all(claims: &Claims) -> Vec<(u64, u64, u64)> {
    let table = claims.table.lock();
    let ranges = table.files.get(&FILE).into_iter().flat_map(|file| &file.ranges);
    ranges.map(|(start, claim)| (*start, claim.end, claim.session)).collect()
}

/// Between the two it would write through without asking, as with a server of before.
#[test]
fn a_client_minds_claims_once_it_has_heard_that_they_are_granted() {
    let minds = Minds::default();
    minds.has_heard();
    assert!(!minds.is_so());
    assert!(minds.says(true) && !minds.is_so());
    minds.has_heard();
    assert!(minds.is_so());
    assert!(minds.says(true) && minds.is_so(), "its session goes on");
    assert!(!minds.says(false) && !minds.is_so());
}

#[test]
fn what_is_granted_ends_where_somebody_else_has_claimed() {
    let claims = Claims::default();
    assert!(!claims.any(FILE));
    assert_eq!(claims.grant(FILE, 1, 100..200, 150, 0), Some(200), "what is needed is whole");
    assert_eq!(claims.grant(FILE, 2, 0..50, 1_000, OLD), Some(100));
    assert_eq!(claims.grant(FILE, 2, 200..300, 1_000, OLD), Some(1_000));
    for (start, end) in [(0, 101), (150, 160), (199, 201), (50, 2_000)] {
        assert_eq!(claims.grant(FILE, 3, start..end, end, 0), None, "{start} to {end}");
    }
    assert_eq!(claims.grant(FILE, 3, 7..7, 9, 0), None, "it is empty");
    assert_eq!(all(&claims), [(0, 100, 2), (100, 200, 1), (200, 1_000, 2)]);
    assert_eq!(claims.holders(FILE), [(1, true), (2, true)]);
    assert!(claims.any(FILE) && claims.has(FILE, 1) && !claims.has(FILE, 3));
}

/// Found in a testbed: one of two mounts was 8 MiB ahead before the other's second thread began there. All claims were
/// called back, and the pause was as long as the run.
#[test]
fn who_begins_first_does_not_claim_where_others_are_about_to_begin() {
    let claims = Claims::default();
    assert_eq!(claims.grant(FILE, 1, 0..10, 100, 1_000), Some(10));
    assert_eq!(claims.grant(FILE, 1, 10..20, 100, 1_000 + OLD - 1), Some(20));
    assert_eq!(claims.grant(FILE, 2, 50..60, 100, 1_000 + OLD - 1), Some(60));
    assert_eq!(claims.grant(FILE, 1, 20..30, 100, 1_000 + OLD), Some(50));
    claims.end(1);
    claims.end(2);
    assert_eq!(claims.grant(FILE, 1, 0..10, 100, 9_000), Some(10), "others may begin anew");
}

#[test]
fn what_one_has_claimed_is_his_again_and_what_touches_it_becomes_one() {
    let claims = Claims::default();
    claims.grant(FILE, 1, 100..200, 200, 0).unwrap();
    claims.grant(FILE, 1, 300..400, 400, 0).unwrap();
    assert_eq!(claims.grant(FILE, 1, 150..160, 160, 0), Some(160));
    assert_eq!(all(&claims), [(100, 200, 1), (300, 400, 1)]);
    assert_eq!(claims.grant(FILE, 1, 180..200, 350, OLD), Some(350));
    assert_eq!(all(&claims), [(100, 400, 1)]);
    claims.grant(FILE, 1, 0..100, 100, 0).unwrap();
    claims.grant(FILE, 2, 400..500, 500, 0).unwrap();
    assert_eq!(all(&claims), [(0, 400, 1), (400, 500, 2)]);
    claims.give_up(FILE, 1);
    assert_eq!(all(&claims), [(400, 500, 2)]);
    claims.end(2);
    assert!(!claims.any(FILE) && claims.holders(FILE).is_empty());
}

#[test]
fn what_an_earlier_server_may_have_granted_is_in_the_way_of_all_until_it_is_given_up() {
    let claims = Claims::default();
    claims.may_have_been_granted(FILE, 1);
    claims.may_have_been_granted(FILE, 2);
    assert!(claims.any(FILE) && !claims.has(FILE, 1));
    assert_eq!(claims.holders(FILE), [(1, false), (2, false)]);
    assert_eq!(claims.grant(FILE, 1, 0..10, 10, 0), None);
    claims.give_up(FILE, 1);
    assert_eq!(claims.grant(FILE, 1, 0..10, 10, 0), None, "the other one may have it");
    assert_eq!(claims.pause(FILE, 0, 0), None);
    claims.end(2);
    assert!(!claims.any(FILE));
    assert_eq!(claims.grant(FILE, 1, 0..10, 10, 0), Some(10));
}

/// Who is told that nobody holds anything back must be right for as long as he goes by that.
#[test]
fn nothing_is_granted_while_claims_are_called_back_nor_in_the_pause_after_that() {
    let claims = Claims::default();
    claims.call_back(FILE, 0);
    claims.grant(FILE, 1, 0..10, 10, 0).unwrap();
    assert_eq!(claims.pause(FILE, 0, 0), None, "something is claimed");
    claims.call_back(FILE, 0);
    claims.call_back(FILE, 500);
    assert_eq!(claims.grant(FILE, 2, 20..30, 30, 60_000), None, "the first is called back");
    claims.give_up(FILE, 1);
    let told = claims.pause(FILE, 0, 100).unwrap();
    assert!((800..1_000).contains(&told), "{told}");
    assert_eq!(claims.grant(FILE, 2, 20..30, 30, 100 + told), None, "clocks differ");
    assert_eq!(claims.grant(FILE, 2, 20..30, 30, 1_100), Some(30));
}

#[test]
fn what_is_called_back_is_in_nobody_s_way_elsewhere() {
    let claims = Claims::default();
    assert!(!claims.are_elsewhere(FILE, 3, &(0..10)), "nothing is claimed");
    claims.grant(FILE, 1, 100..200, 200, 0).unwrap();
    claims.grant(FILE, 2, 300..400, 400, 0).unwrap();
    assert!(!claims.are_elsewhere(FILE, 3, &(0..10)), "the next one may be granted it at once");
    claims.call_back(FILE, 0);
    for (start, end, elsewhere) in
        [(0, 100, true), (200, 300, true), (0, 101, false), (199, 201, false), (7, 7, false)]
    {
        assert_eq!(claims.are_elsewhere(FILE, 3, &(start..end)), elsewhere, "{start} to {end}");
    }
    assert!(claims.are_elsewhere(FILE, 1, &(100..300)), "its own are not in its way");
    assert_eq!(claims.grant(FILE, 3, 0..10, 10, 60_000), None);
    let asks = |now| claims.is_time_to_ask(FILE, 250, now);
    assert_eq!([249, 250, 400, 500].map(asks), [false, true, false, true]);
    claims.give_up(FILE, 1);
    assert!(claims.are_elsewhere(FILE, 3, &(100..200)));
    claims.may_have_been_granted(FILE, 4);
    assert!(!claims.are_elsewhere(FILE, 3, &(0..10)), "nobody knows where that is");
    claims.give_up(FILE, 2);
    claims.give_up(FILE, 4);
    assert!(!claims.are_elsewhere(FILE, 3, &(0..10)) && !asks(9_000), "all are given up");
}

#[test]
fn pauses_get_longer_as_long_as_claims_are_called_back_again_and_again() {
    let claims = Claims::default();
    let mut now = 0;
    let mut pause = || {
        while claims.grant(FILE, 1, 0..10, 10, now).is_none() {
            now += 100;
        }
        let called = now;
        claims.call_back(FILE, now);
        claims.give_up(FILE, 1);
        while claims.grant(FILE, 1, 0..10, 10, now).is_none() {
            now += 100;
        }
        claims.give_up(FILE, 1);
        (now - called) / 1_000
    };
    assert_eq!([(); 6].map(|()| pause()), [1, 2, 4, 8, 17, 17]);
    now += QUIET_MS;
    let pause = || {
        claims.grant(FILE, 1, 0..10, 10, now).unwrap();
        claims.call_back(FILE, now);
        claims.give_up(FILE, 1);
        claims.pause(FILE, 0, now).unwrap()
    };
    assert_eq!(pause(), 1_000);
}

#[test]
fn who_writes_through_may_ask_for_a_pause() {
    let claims = Claims::default();
    assert_eq!(claims.pause(FILE, 500, 0), Some(500));
    assert_eq!(claims.grant(FILE, 1, 0..10, 10, 549), None);
    assert_eq!(claims.grant(FILE, 1, 0..10, 10, 550), Some(10));
}
