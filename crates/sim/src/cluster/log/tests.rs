use super::*;

const NOW: Duration = Duration::from_secs(100);

fn held() -> Log {
    let mut log = Log::default();
    log.granted(1, NOW).unwrap();
    log.opened(0).unwrap();
    log
}

#[test]
fn what_was_acknowledged_is_there_for_whoever_opens_then() {
    let mut log = held();
    let before = log.seen();
    let (at, first) = log.append(10);
    assert_eq!((at, log.check(before, 0, 0, &[])), (0, Ok(())));
    log.acknowledged(1, false);
    let after = log.seen();
    assert_eq!(log.check(before, 0, 0, &[]), Ok(()), "as old as its open");
    assert!(log.check(after, 9, 0, &first[..9]).unwrap_err().contains("9 bytes long"));
    assert_eq!(log.check(after, 10, 0, &first), Ok(()));
    assert!(log.check(after, 10, 0, &[0; 10]).unwrap_err().contains("byte 0 is 0"));
    log.let_go(1);
    log.granted(2, NOW).unwrap();
    assert!(log.opened(9).is_err() && log.opened(11).is_err());
    log.opened(10).unwrap();
    log.resize(4);
    assert_eq!(log.check(after, 4, 0, &first[..4]), Ok(()), "it has been cut since");
}

#[test]
fn what_failed_may_be_anything_and_what_was_before_it_is_there() {
    let mut log = held();
    let (_, first) = log.append(10);
    log.acknowledged(1, false);
    log.append(5);
    log.failed(1);
    log.let_go(1);
    log.granted(2, NOW).unwrap();
    assert!(log.opened(9).is_err());
    log.opened(12).unwrap();
    assert!(log.check_own(0, &[first.as_ref(), &[7, 7]].concat()).is_ok());
    assert!(log.check_own(0, &[0; 10]).is_err());
}

#[test]
fn two_have_a_lock_only_where_one_was_silent_for_long() {
    let mut log = held();
    assert!(log.granted(2, NOW + Duration::from_secs(5)).is_err());
    let mut log = held();
    assert_eq!(log.granted(2, NOW + LEASE), Ok(()));
    log.append(3);
    log.acknowledged(1, true);
    assert_eq!(log.seen().stable, 0, "who has lost its lock acknowledges nothing");
}

/// Seed 940000004221.
#[test]
fn who_hears_late_of_a_lock_that_was_lost_meanwhile_has_none() {
    let mut log = Log::default();
    log.evict(2);
    log.evicted(2, NOW + Duration::from_secs(1));
    log.granted(1, NOW + Duration::from_secs(2)).unwrap();
    assert_eq!(log.granted(2, NOW), Ok(()));
    assert!(log.is_held_by(1) && !log.is_held_by(2));
}

#[test]
fn who_stood_still_for_long_may_have_lost_its_lock_or_not() {
    for other_gets_it in [true, false] {
        let mut log = held();
        log.append(10);
        log.acknowledged(1, false);
        log.append(8);
        log.silence(1);
        if other_gets_it {
            log.granted(2, NOW).unwrap();
            log.opened(14).unwrap();
        }
        log.comes_back(1, NOW);
        assert_eq!((log.is_held_by(1), log.is_held_by(2)), (false, other_gets_it));
        assert_eq!(log.is_spoilt(), !other_gets_it, "what nobody waited for may come later");
        log.granted(1, NOW).unwrap();
        assert!(!log.is_held_by(1), "it may be of the session that is over");
    }
}

#[test]
fn nothing_of_a_lost_holder_comes_after_the_next_one_has_opened_the_file() {
    for dies in [true, false] {
        let mut log = held();
        log.append(10);
        log.acknowledged(1, false);
        log.append(8);
        match dies {
            true => log.died(1),
            false => {
                log.evict(1);
                log.evicted(1, NOW);
            }
        }
        log.acknowledged(1, false);
        assert!(!log.is_held_by(1));
        log.granted(2, NOW).unwrap();
        assert!(log.opened(9).is_err());
        log.opened(14).unwrap();
        let (at, own) = log.append(4);
        assert_eq!((at, log.check_own(10, &[7; 4])), (14, Ok(())), "of the lost one's");
        assert_eq!(log.check_own(14, &own), Ok(()));
        assert!(log.check_own(14, &[7; 4]).is_err());
        log.acknowledged(2, false);
        assert!(log.opened(19).is_err());
    }
}

#[test]
fn a_loss_of_power_leaves_what_was_synced() {
    let mut log = held();
    let (_, first) = log.append(8);
    log.acknowledged(1, true);
    log.append(8);
    log.acknowledged(1, false);
    log.power_lost();
    assert_eq!(log.check_own(0, &[first.as_ref(), &[0; 8]].concat()), Ok(()));
    assert!(log.check_own(0, &[0; 16]).is_err());
    log.resize(9);
    log.acknowledged(1, false);
    assert_eq!((log.opened(16), log.opened(17).is_err()), (Ok(()), true));
}

/// Only where all that was appended before had been synced by whoever had appended it did a sync count.
#[test]
fn a_sync_covers_what_others_have_appended_before() {
    let mut log = held();
    let (_, first) = log.append(8);
    log.acknowledged(1, false);
    log.let_go(1);
    log.granted(2, NOW).unwrap();
    log.opened(8).unwrap();
    let (_, second) = log.append(8);
    log.acknowledged(2, true);
    log.power_lost();
    assert_eq!(log.check_own(0, &[first, second].concat()), Ok(()));
    assert!(log.check_own(0, &[0; 8]).is_err() && log.check_own(8, &[0; 8]).is_err());
}

/// What is lost by then no later sync brings back.
#[test]
fn a_sync_does_not_cover_what_was_lost_before_it() {
    let mut log = held();
    log.append(8);
    log.acknowledged(1, false);
    log.power_lost();
    let (_, second) = log.append(8);
    log.acknowledged(1, true);
    assert_eq!(log.check_own(0, &[&[0; 8][..], &second].concat()), Ok(()));
    log.power_lost();
    assert!(log.check_own(8, &[0; 8]).is_err());
}

/// One change that failed excused whatever was read behind it for the rest of a run.
#[test]
fn of_the_file_that_takes_the_place_of_a_spoilt_one_all_is_known() {
    let mut log = held();
    log.append(8);
    assert!(!log.is_spoilt());
    log.failed(1);
    assert!(log.is_spoilt());
    log.evict(2);
    let mut log = log.successor();
    assert!(!log.is_spoilt() && !log.is_held_by(1));
    log.granted(2, NOW).unwrap();
    assert!(!log.is_held_by(2), "it is being evicted");
    log.let_go(2);
    log.granted(3, NOW).unwrap();
    assert!(log.opened(8).is_err());
    log.opened(0).unwrap();
    let (at, _) = log.append(4);
    assert!(log.check_own(at, &[9; 4]).is_err());
}

/// One loss of power excused whatever was read of a file for the rest of a run.
#[test]
fn what_is_acknowledged_when_copies_are_equal_again_is_there() {
    let mut log = held();
    log.append(8);
    log.acknowledged(1, false);
    log.power_lost();
    log.append(4);
    log.whole_again();
    log.acknowledged(1, false);
    assert_eq!(log.check_own(0, &[9; 12]), Ok(()), "it was under way until then");
    let (at, _) = log.append(4);
    log.acknowledged(1, false);
    assert!(log.check_own(at, &[9; 4]).is_err());
}

/// Seed 2612000001172.
#[test]
fn who_reads_what_one_copy_alone_has_acknowledged_may_find_it_lost() {
    let mut log = held();
    log.append(8);
    assert!(log.check_own(0, &[0; 8]).is_err(), "where all copies do, it is there");
    let mut log = held();
    log.acknowledge_alone();
    log.append(8);
    assert_eq!(log.check_own(0, &[0; 8]), Ok(()));
}

/// Seed 810000000020.
#[test]
fn what_was_cut_off_may_come_back_under_who_holds_the_lock() {
    let mut log = held();
    let (_, first) = log.append(8);
    log.acknowledged(1, true);
    log.resize(2);
    log.acknowledged(1, false);
    log.power_lost();
    // Seed 2511000001918.
    let again = [&first[1..2], &[7; 6]].concat();
    assert_eq!(log.check_own(1, &again), Ok(()));
    assert!(log.check_own(1, &[7; 8]).is_err());
    let (at, _) = log.append(3);
    assert!(log.landed(at, 1).is_err() && log.landed(at, 9).is_err());
    log.landed(at, 8).unwrap();
    assert_eq!((at, log.len()), (2, 11));
    assert_eq!(log.check_own(0, &first[..2]), Ok(()));
    log.acknowledged(1, false);
    assert!(log.opened(10).is_err());
}
