use super::*;
use bytes::Bytes;
use futures::FutureExt;
use strake_wire::message::meta::{Name, NameChange, Unlink};

const DIR: Ino = Ino(2);
const OTHER: Ino = Ino(3);
const SESSION: u64 = 5;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn removal(dir: Ino, ino: u64) -> Queued {
    let at = Name { parent: dir.0, name: Bytes::from(ino.to_string()) };
    let unlink = NameChange::Unlink(Unlink { at, directory: false });
    let change = ChangeBehind { ino, change: Some(unlink), ..ChangeBehind::default() };
    Queued { change, session: 0, dirs: vec![dir], inodes: vec![Ino(ino)], gone: Some(Ino(ino)) }
}

fn begin(behind: &Behind, dir: Ino, ino: u64) -> Option<bool> {
    behind.turn().begin(removal(dir, ino), &[dir], ms(0), || SESSION)
}

/// One with exclusive leases on both directories.
fn leased() -> Arc<Behind> {
    let behind = Arc::<Behind>::default();
    behind.learn(DIR, 1, ms(0));
    behind.learn(OTHER, 2, ms(0));
    behind
}

#[test]
fn a_change_begins_only_where_the_directory_is_leased_exclusively_and_nothing_of_it_is_changed_otherwise()
 {
    let behind = leased();
    assert_eq!(begin(&behind, Ino(9), 10), None);
    let otherwise = behind.change_otherwise(vec![DIR, Ino(11)]);
    let twice = behind.change_otherwise(vec![DIR]);
    drop(twice);
    assert_eq!(begin(&behind, DIR, 10), None);
    assert_eq!(begin(&behind, OTHER, 11), None);
    assert_eq!(begin(&behind, OTHER, 12), Some(true), "somebody has to send it");
    drop(otherwise);
    assert_eq!(begin(&behind, DIR, 10), Some(false), "somebody does");
    behind.forget_leases();
    assert_eq!(begin(&behind, DIR, 13), None);
    assert!(behind.is_of_before());
    behind.turn().end(1);
    assert!(behind.is_of_before());
    behind.turn().end(1);
    assert!(!behind.is_of_before() && !behind.is_busy());
}

#[test]
fn all_that_is_under_way_is_sent_in_order_under_the_numbers_that_it_has_once() {
    let behind = leased();
    for ino in 10..80 {
        begin(&behind, if ino % 2 == 0 { DIR } else { OTHER }, ino).unwrap();
    }
    let mut numbers = 0;
    let mut number = || {
        numbers += 1;
        numbers
    };
    let (session, first) = behind.batch(&mut number);
    assert_eq!((session, first.len()), (SESSION, BATCH_MAX));
    assert!(
        first.iter().zip(10..).zip(1..).all(|((one, ino), seq)| (one.ino, one.seq) == (ino, seq))
    );
    // Only some of them are made.
    let over = behind.turn().end(3);
    assert_eq!(over.iter().map(|one| one.change.ino).collect::<Vec<_>>(), [10, 11, 12]);
    let (_, next) = behind.batch(&mut number);
    assert_eq!((next[0].ino, next[0].seq), (13, 4), "it may have been made");
    behind.turn().end(usize::MAX);
    assert!(behind.batch(&mut number).1.is_empty());
    assert_eq!(begin(&behind, DIR, 90), Some(true), "nobody sends any more");
}

/// Who found the list full stood in line for as long as the server was away, whatever his patience.
#[test]
fn who_finds_too_many_under_way_goes_the_old_way() {
    let behind = leased();
    let many = UNDER_WAY_MAX as u64;
    assert!((0..many).all(|nth| begin(&behind, DIR, 1_000 + nth).is_some()));
    assert_eq!(begin(&behind, OTHER, 10), None);
    behind.turn().end(1);
    assert!(begin(&behind, OTHER, 10).is_some());
}

#[tokio::test]
async fn who_asks_waits_for_what_touches_it_and_had_begun_and_no_more() {
    let behind = leased();
    begin(&behind, DIR, 10).unwrap();
    begin(&behind, OTHER, 11).unwrap();
    begin(&behind, DIR, 12).unwrap();
    assert!(behind.touches(DIR) && behind.touches(Ino(12)) && !behind.touches(Ino(13)));
    assert!(behind.is_gone(Ino(10)) && !behind.is_gone(DIR));
    assert!(behind.until(&After::These(vec![Ino(13)])).now_or_never().is_some());
    assert!(behind.until(&After::Nothing).now_or_never().is_some());
    let (other, all) = (After::These(vec![OTHER]), After::Everything);
    let mut of_other = Box::pin(behind.until(&other));
    let mut of_all = Box::pin(behind.until(&all));
    assert!(futures::poll!(&mut of_other).is_pending());
    assert!(futures::poll!(&mut of_all).is_pending());
    begin(&behind, OTHER, 14).unwrap();
    behind.turn().end(2);
    assert!(futures::poll!(&mut of_other).is_ready());
    assert!(futures::poll!(&mut of_all).is_pending());
    behind.turn().end(1);
    assert!(futures::poll!(&mut of_all).is_ready());
    assert!(!behind.touches(DIR) && behind.touches(OTHER));
}

/// In between it was shown, and learnt from any other answer, as it was before.
#[test]
fn what_ends_with_a_turn_is_under_way_until_what_has_become_of_it_is_learnt() {
    let behind = leased();
    for (dir, ino) in [(DIR, 10), (DIR, 11), (OTHER, 12)] {
        begin(&behind, dir, ino).unwrap();
    }
    let turn = behind.turn();
    assert_eq!(turn.end(2).len(), 2);
    assert!(turn.touches_after(1, DIR) && !turn.touches_after(2, DIR));
    assert!(turn.touches_after(2, OTHER));
    assert!(behind.touches(DIR) && behind.is_gone(Ino(10)) && behind.is_busy());
    drop(turn);
    assert!(!behind.touches(DIR) && !behind.is_gone(Ino(10)) && behind.touches(OTHER));
}

#[tokio::test]
async fn a_lease_that_is_asked_for_is_given_back_when_nothing_is_under_way_there_and_not_believed_again()
 {
    let behind = leased();
    begin(&behind, DIR, 10).unwrap();
    let ask = Ask { ino: DIR.0, number: 1, keep: false };
    let mut back = Box::pin(behind.give_back(ask));
    assert!(futures::poll!(&mut back).is_pending());
    assert_eq!(begin(&behind, DIR, 11), None);
    assert!(!behind.give_back(ask).await, "that is being done");
    // Of before the question.
    behind.learn(DIR, 1, ms(0));
    assert_eq!(begin(&behind, DIR, 11), None);
    behind.turn().end(1);
    assert!(back.await);
    behind.gave_back(ask, true);
    behind.learn(DIR, 3, ms(0));
    assert!(begin(&behind, DIR, 11).is_some());
}

#[test]
fn what_is_not_used_for_a_while_is_given_back_until_the_server_has_heard_of_it() {
    let behind = leased();
    begin(&behind, DIR, 10).unwrap();
    assert!(behind.to_tell(ms(500)).is_empty());
    assert_eq!(behind.to_tell(ms(1_000)), [2], "in the other something is under way");
    assert_eq!(behind.to_tell(ms(1_001)), [2]);
    behind.learn(OTHER, 2, ms(1_001));
    assert_eq!(begin(&behind, OTHER, 11), None);
    behind.told(&[2]);
    assert!(behind.to_tell(ms(1_002)).is_empty());
}

/// The server had it as this mount's for as long as the session lasted, which it was no more.
#[test]
fn what_is_forgotten_is_given_back_when_nothing_is_under_way_there() {
    let behind = leased();
    begin(&behind, DIR, 10).unwrap();
    behind.forget_leases();
    assert_eq!(behind.to_tell(ms(1)), [2]);
    behind.turn().end(1);
    assert_eq!(behind.to_tell(ms(2)), [1, 2]);
    behind.learn(DIR, 1, ms(2));
    assert_eq!(begin(&behind, DIR, 11), None, "it is given back");
}

/// As all that is given after it has a greater one, and of ever so many that were given back only the greatest is known.
#[test]
fn a_number_that_is_not_believed_is_given_back_but_not_one_that_is_held() {
    let behind = leased();
    let last = 3 + GIVEN_BACK_MAX as u64;
    for number in 3..=last {
        behind.learn(Ino(100 + number), number, ms(0));
    }
    begin(&behind, DIR, 10).unwrap();
    behind.turn().end(1);
    behind.state.lock().leased.entry(DIR).and_modify(|held| held.used = ms(1_000));
    let idle = behind.to_tell(ms(1_500));
    assert!(!idle.contains(&1) && idle.contains(&last));
    behind.told(&idle);
    behind.learn(DIR, 1, ms(1_500));
    assert!(begin(&behind, DIR, 11).is_some(), "it is held all the time");
    behind.learn(OTHER, 2, ms(1_500));
    assert_eq!((begin(&behind, OTHER, 12), behind.to_tell(ms(1_500))), (None, vec![2]));
}

#[tokio::test]
async fn what_was_asked_for_is_told_again_when_nobody_has_heard_that_it_is_given_back() {
    let behind = leased();
    let ask = Ask { ino: DIR.0, number: 1, keep: false };
    assert!(behind.give_back(ask).await && behind.to_tell(ms(1)).is_empty());
    behind.gave_back(ask, false);
    assert_eq!(behind.to_tell(ms(1)), [1]);
}

#[test]
fn of_ever_so_many_that_were_given_back_none_is_believed_again() {
    let behind = Behind::default();
    let count = 3 * GIVEN_BACK_MAX as u64;
    for nth in 1..=count {
        behind.learn(Ino(nth), nth, ms(0));
    }
    assert_eq!(behind.to_tell(ms(2_000)).len() as u64, count);
    for nth in 1..=count {
        behind.learn(Ino(nth), nth, ms(2_000));
    }
    assert!(behind.state.lock().leased.is_empty());
    assert!(behind.state.lock().given_back.len() <= GIVEN_BACK_MAX);
}

#[test]
fn the_servers_time_is_what_it_has_told_and_what_has_gone_by_since() {
    let behind = Behind::default();
    let at = |seconds, nanos| Timestamp { seconds, nanos };
    assert_eq!(behind.time(ms(0)), None);
    behind.learn_time(at(100, 900_000_000), ms(900), ms(1_000));
    assert_eq!(behind.time(ms(1_200)), Some(at(101, 100_000_000)));
    behind.learn_time(at(100, 950_000_000), ms(1_000), ms(1_300));
    assert_eq!(behind.time(ms(1_300)), Some(at(101, 200_000_000)), "it was on its way for longer");
    behind.learn_time(at(105, 0), ms(1_250), ms(1_300));
    assert_eq!(behind.time(ms(1_300)), Some(at(105, 0)));
}

/// It was only ever set forward, and so ran ahead by whatever this machine's clock is faster.
#[test]
fn a_servers_time_that_is_earlier_than_can_be_is_followed() {
    let behind = Behind::default();
    let at = |seconds, nanos| Timestamp { seconds, nanos };
    behind.learn_time(at(100, 0), ms(999), ms(1_000));
    behind.learn_time(at(101, 0), ms(11_000), ms(11_001));
    assert_eq!(behind.time(ms(11_001)), Some(at(101, 1_000_000)));
}

#[test]
fn what_was_lost_is_told_once() {
    let behind = leased();
    behind.turn().lose(&[DIR]);
    assert!(!behind.take_lost(OTHER) && behind.take_lost(DIR) && !behind.take_lost(DIR));
    assert!(!behind.take_all_lost());
    behind.turn().lose(&[OTHER]);
    assert!(behind.take_all_lost() && !behind.take_all_lost() && !behind.take_lost(OTHER));
}
