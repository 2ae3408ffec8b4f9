use super::*;
use crate::testing::TestClock;

const WHOLE: u64 = 3_000;
const SOON: Duration = Duration::from_millis(50);

fn grants(left: Bequest) -> (Arc<TestClock>, Grants) {
    let clock = Arc::new(TestClock::default());
    let grants = Grants::new(clock.clone(), WHOLE, Duration::ZERO, left);
    (clock, grants)
}

fn left(longest_ms: u64) -> Bequest {
    let longest = Duration::from_millis(longest_ms);
    Bequest { leader: 2, own: Duration::ZERO, longest }
}

/// A beat that is stored; what it allows.
fn beat(grants: &Grants) -> u64 {
    let said = grants.say().lent_ms;
    grants.note_said(said);
    said
}

#[tokio::test]
async fn a_longer_lease_is_given_when_a_beat_that_allows_it_is_stored() {
    let (_, grants) = grants(left(700));
    assert_eq!(beat(&grants), 800);
    grants.lend(720, SOON).await.unwrap();
    assert_eq!(grants.lend(801, SOON).await.unwrap_err().kind, ErrorKind::Unavailable);
    let said = grants.say().lent_ms;
    assert_eq!(said, 900, "what was asked for is counted");
    grants.lend(801, SOON).await.unwrap_err();
    grants.note_said(said);
    grants.lend(801, SOON).await.unwrap();
    let (longer, said) = tokio::join!(grants.lend(0, SOON), async {
        grants.until_short().await;
        beat(&grants)
    });
    longer.unwrap();
    assert_eq!(said, WHOLE);
}

#[tokio::test]
async fn a_beat_says_less_when_no_longer_lease_can_last() {
    let (clock, grants) = grants(left(700));
    beat(&grants);
    clock.pass(2_900);
    beat(&grants);
    let (asked, said) = tokio::join!(grants.lend(2_000, SOON), async { beat(&grants) });
    asked.unwrap();
    assert_eq!(said, 2_000);
    // One window ends at once, the next a whole lease later.
    for ms in [100, 1_000, 1_000, 900] {
        clock.pass(ms);
        assert_eq!(beat(&grants), 2_000);
    }
    clock.pass(100);
    assert_eq!(grants.say().lent_ms, 800);
    // It may be stored already.
    grants.lend(900, SOON).await.unwrap_err();
}

/// Else who follows soon after would not know of what the one before last has given.
#[test]
fn the_first_beats_of_a_lead_say_what_the_one_before_has_given() {
    let (clock, grants) = grants(left(2_000));
    for ms in [1_000, 1_000, 1_000] {
        assert_eq!(beat(&grants), 2_000);
        clock.pass(ms);
    }
    assert_eq!(beat(&grants), 800);
}

#[test]
fn beats_say_how_long_their_own_server_may_rely_on_others() {
    let (clock, shorter) = grants(left(700));
    assert_eq!(shorter.say().own_ms, 1_500, "a tenure");
    clock.pass(1_000);
    assert_eq!(shorter.say().own_ms, 500);
    clock.pass(600);
    assert_eq!(shorter.say().own_ms, 0);
    assert_eq!(grants(left(2_000)).1.say().own_ms, 2_000);
}

/// Else the only manager could renew nothing while its store is away, although nobody else may lead.
#[tokio::test]
async fn what_is_allowed_stays_so_while_no_beat_is_stored() {
    let (clock, grants) = grants(left(700));
    let (asked, said) = tokio::join!(grants.lend(0, SOON), async { beat(&grants) });
    asked.unwrap();
    assert_eq!(said, WHOLE);
    for _ in 0..5 {
        clock.pass(WHOLE);
        assert_eq!(grants.say().lent_ms, WHOLE);
    }
    grants.lend(0, SOON).await.unwrap();
}

#[test]
fn beats_say_how_long_the_one_before_may_lead() {
    let clock = Arc::new(TestClock::default());
    let grants = Grants::new(clock.clone(), WHOLE, Duration::from_millis(800), left(700));
    clock.pass(500);
    let said = grants.say();
    assert_eq!((said.waits_ms, said.own_ms), (300, 1_800));
    clock.pass(400);
    assert_eq!(grants.say().waits_ms, 0);
}

#[test]
fn a_beat_of_an_earlier_release_stands_for_whole_leases() {
    let whole = Duration::from_millis(WHOLE);
    let unknown = Bequest { leader: 0, own: whole, longest: whole };
    assert_eq!(Bequest::of(None, WHOLE), unknown);
    let old = Beat { server: 2, number: 9, ..Beat::default() };
    assert_eq!(Bequest::of(Some(&old), WHOLE), unknown);
    let new = Beat { lent_ms: 800, own_ms: 90_000, ..old };
    let longest = Duration::from_millis(800);
    assert_eq!(Bequest::of(Some(&new), WHOLE), Bequest { leader: 2, own: whole, longest });
}
