use super::*;
use crate::testing::TestClock;

const WHOLE: u64 = 3_000;
const SOON: Duration = Duration::from_millis(50);

/// Of a manager that answers.
fn beats(left: Bequest) -> (Arc<TestClock>, Beats) {
    let clock = Arc::new(TestClock::default());
    let beats = Beats::new(clock.clone(), WHOLE, Duration::ZERO, &left);
    beats.begin_to_answer();
    beats.begin_to_hear(Duration::ZERO);
    (clock, beats)
}

fn left(longest_ms: u64) -> Bequest {
    Bequest { led: vec![(2, Duration::ZERO)], longest: Duration::from_millis(longest_ms) }
}

/// A beat that is stored; what it allows.
fn beat(beats: &Beats) -> u64 {
    let said = beats.say();
    beats.note_said(&said);
    said.lent_ms
}

/// What a beat says of servers whose managers have led.
fn past(beat: &Beat) -> Vec<(u32, u64)> {
    beat.past.iter().map(|past| (past.server, past.lasts_ms)).collect()
}

#[tokio::test]
async fn a_longer_lease_is_given_when_a_beat_that_allows_it_is_stored() {
    let (_, beats) = beats(left(700));
    assert_eq!(beat(&beats), 800);
    beats.lend(1, 720, SOON).await.unwrap();
    assert_eq!(beats.lend(1, 801, SOON).await.unwrap_err().kind, ErrorKind::Unavailable);
    let said = beats.say();
    assert_eq!(said.lent_ms, 900, "what was asked for is counted");
    beats.lend(1, 801, SOON).await.unwrap_err();
    beats.note_said(&said);
    beats.lend(1, 801, SOON).await.unwrap();
    let (longer, said) = tokio::join!(beats.lend(1, 0, SOON), async {
        beats.until_short().await;
        beat(&beats)
    });
    longer.unwrap();
    assert_eq!(said, WHOLE);
}

#[tokio::test]
async fn a_beat_says_less_when_no_longer_lease_can_last() {
    let (clock, beats) = beats(left(700));
    beat(&beats);
    clock.pass(2_900);
    beat(&beats);
    let (asked, said) = tokio::join!(beats.lend(1, 2_000, SOON), async { beat(&beats) });
    asked.unwrap();
    assert_eq!(said, 2_000);
    // One window ends at once, the next a whole lease later.
    for ms in [100, 1_000, 1_000, 900] {
        clock.pass(ms);
        assert_eq!(beat(&beats), 2_000);
    }
    clock.pass(100);
    assert_eq!(beats.say().lent_ms, 800);
    // It may be stored already.
    beats.lend(1, 900, SOON).await.unwrap_err();
}

/// Else who follows soon after would not know of what the one before last has given.
#[test]
fn the_first_beats_of_a_lead_say_what_the_one_before_has_given() {
    let (clock, beats) = beats(left(2_000));
    for ms in [1_000, 1_000, 1_000] {
        assert_eq!(beat(&beats), 2_000);
        clock.pass(ms);
    }
    assert_eq!(beat(&beats), 800);
}

#[test]
fn beats_say_how_long_their_own_server_may_rely_on_others() {
    let (clock, shorter) = beats(left(700));
    assert_eq!(shorter.say().own_ms, 1_500, "a tenure");
    clock.pass(1_000);
    assert_eq!(shorter.say().own_ms, 500);
    clock.pass(600);
    assert_eq!(shorter.say().own_ms, 0);
    assert_eq!(beats(left(2_000)).1.say().own_ms, 2_000);
}

/// Else the only manager could renew nothing while its store is away, although nobody else may lead.
#[tokio::test]
async fn what_is_allowed_stays_so_while_no_beat_is_stored() {
    let (clock, beats) = beats(left(700));
    let (asked, said) = tokio::join!(beats.lend(1, 0, SOON), async { beat(&beats) });
    asked.unwrap();
    assert_eq!(said, WHOLE);
    for _ in 0..5 {
        clock.pass(WHOLE);
        assert_eq!(beats.say().lent_ms, WHOLE);
    }
    beats.lend(1, 0, SOON).await.unwrap();
}

#[test]
fn beats_say_how_long_the_one_before_may_lead() {
    let clock = Arc::new(TestClock::default());
    let beats = Beats::new(clock.clone(), WHOLE, Duration::from_millis(800), &left(700));
    clock.pass(500);
    let said = beats.say();
    assert_eq!((said.waits_ms, said.own_ms), (300, 1_800));
    clock.pass(400);
    assert_eq!(beats.say().waits_ms, 0);
}

#[test]
fn a_beat_of_an_earlier_release_stands_for_whole_leases() {
    let whole = Duration::from_millis(WHOLE);
    let unknown = Bequest { led: Vec::new(), longest: whole };
    assert_eq!(Bequest::of(None, WHOLE), unknown);
    let old = Beat { server: 2, number: 9, ..Beat::default() };
    assert_eq!(Bequest::of(Some(&old), WHOLE), unknown);
    let new = Beat { lent_ms: 800, own_ms: 90_000, ..old };
    let longest = Duration::from_millis(800);
    assert_eq!(Bequest::of(Some(&new), WHOLE), Bequest { led: vec![(2, whole)], longest });
}

/// It was taken for one that has led, and of the one before it nothing was known any more.
#[test]
fn who_has_answered_nothing_leaves_what_it_has_found() {
    let past = vec![PastLead { server: 1, lasts_ms: 200 }];
    let beat = Beat { server: 2, lent_ms: 800, own_ms: 1_500, past, ..Beat::default() };
    let [short, tenure, longest] = [200, 1_500, 800].map(Duration::from_millis);
    let answers = Bequest { led: vec![(1, short), (2, tenure)], longest };
    assert_eq!(Bequest::of(Some(&beat), WHOLE), answers);
    assert_eq!(answers_for(&beat), Duration::from_millis(800));
    let loads = Beat { loads: true, waits_ms: 300, ..beat };
    assert_eq!(Bequest::of(Some(&loads), WHOLE), Bequest { led: vec![(1, short)], longest });
    assert_eq!(answers_for(&loads), Duration::from_millis(300));
}

/// Two that followed a manager soon said each for 3 s more that there are leases of 3 s.
#[test]
fn beats_of_a_manager_that_loads_say_how_long_leases_last_still() {
    let clock = Arc::new(TestClock::default());
    let from = Duration::from_millis(300);
    let beats = Beats::new(clock.clone(), WHOLE, from, &left(2_000));
    let said = |ms| {
        clock.pass(ms);
        beats.say().lent_ms
    };
    assert_eq!([0, 300, 450].map(said), [2_300, 2_000, 1_600]);
    beats.begin_to_answer();
    assert_eq!(said(0), 2_000, "it may give such itself");
}

/// One that took long to load had given up nobody, and said nothing of them any more.
#[test]
fn servers_whose_managers_have_led_are_named_until_they_are_given_up() {
    let clock = Arc::new(TestClock::default());
    let beats = Beats::new(clock.clone(), WHOLE, Duration::ZERO, &left(700));
    clock.pass(5_000);
    assert_eq!(past(&beats.say()), [(2, 0)]);
    beats.begin_to_answer();
    clock.pass(1_000);
    beats.begin_to_hear(clock.monotonic());
    clock.pass(2_900);
    assert_eq!(past(&beats.say()), [(2, 0)]);
    clock.pass(100);
    assert!(past(&beats.say()).is_empty());
}

#[test]
fn beats_say_what_is_left_to_servers_whose_managers_have_led() {
    let led = vec![(2, Duration::ZERO), (3, Duration::from_millis(900))];
    let (clock, beats) = beats(Bequest { led, ..left(700) });
    assert_eq!(past(&beats.say()), [(2, 0), (3, 900)]);
    clock.pass(500);
    assert_eq!(past(&beats.say()), [(2, 0), (3, 400)]);
    clock.pass(2_400);
    assert_eq!(past(&beats.say()), [(2, 0), (3, 0)]);
    clock.pass(100);
    assert!(past(&beats.say()).is_empty(), "this one has given them up by now");
}

/// Else whoever follows would take out a server whose lease runs.
#[tokio::test]
async fn a_server_that_is_said_to_be_over_is_answered_when_that_is_said_no_more() {
    let (_, beats) = beats(left(700));
    let first = beats.say();
    beats.note_said(&first);
    let under_way = beats.say();
    assert_eq!((past(&first), past(&under_way)), (vec![(2, 0)], vec![(2, 0)]));
    beats.lend(1, 700, SOON).await.unwrap();
    beats.lend(2, 700, SOON).await.unwrap_err();
    beats.note_said(&under_way);
    beats.lend(2, 700, SOON).await.unwrap_err();
    let next = beats.say();
    assert!(past(&next).is_empty());
    beats.lend(2, 700, SOON).await.unwrap_err();
    beats.note_said(&next);
    beats.lend(2, 700, SOON).await.unwrap();
}

/// A beat whose store took so long, and the pause after it.
fn lead_after(clock: &TestClock, beats: &Beats, delay_ms: u64) -> u64 {
    let said = beats.say();
    beats.note_said(&said);
    let pause = beats.note_delay(Some(Duration::from_millis(delay_ms)));
    clock.pass(u64::try_from(pause.as_millis()).unwrap());
    said.lead_ms
}

#[test]
fn a_beat_lets_its_manager_lead_as_long_as_beats_may_be_late() {
    let (clock, beats) = beats(left(700));
    assert_eq!(lead_after(&clock, &beats, 5), 800, "nothing is known at first");
    while clock.monotonic() < Duration::from_secs(1) {
        assert_eq!(lead_after(&clock, &beats, 5), 800);
    }
    while clock.monotonic() < Duration::from_secs(2) {
        lead_after(&clock, &beats, 5);
    }
    assert_eq!(lead_after(&clock, &beats, 5), 410);
    let pause = beats.note_delay(Some(Duration::from_millis(90)));
    assert_eq!(pause, Duration::from_micros(102_500), "as long as the last beat says, still");
    assert_eq!(lead_after(&clock, &beats, 5), 580);
    let later = clock.monotonic() + Duration::from_secs(11);
    while clock.monotonic() < later {
        lead_after(&clock, &beats, 5);
    }
    assert_eq!(lead_after(&clock, &beats, 5), 410);
    beats.note_delay(None);
    assert_eq!(lead_after(&clock, &beats, 5), 800, "it was not stored");
}

/// Each changed who leads.
#[test]
fn a_store_that_stands_still_every_minute_is_remembered() {
    let long_after = |stall: &dyn Fn(&Beats)| {
        let (clock, beats) = beats(left(700));
        stall(&beats);
        while clock.monotonic() < Duration::from_secs(60) {
            lead_after(&clock, &beats, 5);
        }
        let after_a_minute = lead_after(&clock, &beats, 5);
        while clock.monotonic() < Duration::from_secs(250) {
            lead_after(&clock, &beats, 5);
        }
        (after_a_minute, lead_after(&clock, &beats, 5))
    };
    let delayed = |ms| {
        move |beats: &Beats| {
            beats.note_delay(Some(Duration::from_millis(ms)));
        }
    };
    assert_eq!(long_after(&delayed(5)), (410, 410));
    assert_eq!(long_after(&delayed(150)), (700, 410));
    assert_eq!(long_after(&|beats| beats.note_stall()), (800, 410));
}

/// Else one that comes late, and has seen the later one only, would lead while this one still does.
#[test]
fn no_beat_ends_a_lead_before_an_earlier_one_does() {
    let (clock, beats) = beats(left(700));
    let (mut until, mut shortest) = (Duration::ZERO, 800);
    while clock.monotonic() < Duration::from_secs(12) {
        beats.note_delay(Some(Duration::ZERO));
        let lead_ms = beats.say().lead_ms;
        let end = clock.monotonic() + Duration::from_millis(lead_ms);
        assert!(end >= until, "{end:?}, and {until:?} before");
        (until, shortest) = (end, shortest.min(lead_ms));
        clock.pass(70);
    }
    assert_eq!(shortest, 400);
}

#[test]
fn a_beat_of_an_earlier_release_leads_as_long_as_those_did() {
    assert_eq!(lead_of(&Beat::default()), Duration::from_millis(800));
    let said = |lead_ms| lead_of(&Beat { lead_ms, ..Beat::default() });
    assert_eq!(said(410), Duration::from_millis(410));
    assert_eq!(
        [said(1), said(9_000)],
        [400, 800].map(Duration::from_millis),
        "no release says that"
    );
}
