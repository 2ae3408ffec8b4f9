use super::*;

fn write(register: &mut Register, first: u64, count: u64) -> (u64, Bytes) {
    let (version, bytes) = register.begin_write(first, count);
    register.written(first, count, version);
    (version, bytes)
}

#[test]
fn readers_see_what_was_acknowledged_before_they_opened_or_later_versions() {
    let mut register = Register::new(3, 4);
    let early = register.open();
    let (_, old) = write(&mut register, 1, 2);
    register.acknowledged(false).unwrap();
    let opened = register.open();
    assert!(register.check(&opened, 1, &[0; 8192], false).unwrap_err().contains("version 0"));
    assert_eq!(register.check(&early, 1, &[0; 8192], false), Ok(()), "as old as its open");
    let (_, new) = write(&mut register, 2, 1);
    register.check(&opened, 1, &old, false).unwrap();
    register.check(&opened, 2, &new, false).unwrap();
    let later = register.open();
    assert!(register.check(&later, 1, &old, false).is_err(), "block 2 went back");
    let torn = [&new[..2048], &old[6144..]].concat();
    assert!(register.check(&later, 2, &torn, false).unwrap_err().contains("mixture"));
    assert!(register.check(&later, 3, &new, false).unwrap_err().contains("bytes of file"));
}

#[test]
fn a_loss_of_power_takes_what_was_not_synced_and_a_sync_has_to_say_so() {
    let mut register = Register::new(3, 1);
    let (_, synced) = write(&mut register, 0, 1);
    register.acknowledged(true).unwrap();
    let (_, closed) = write(&mut register, 0, 1);
    register.acknowledged(false).unwrap();
    let before = register.open();
    assert!(register.check(&before, 0, &synced, false).is_err());
    register.power_lost();
    register.whole_again();
    let after = register.open();
    register.check(&after, 0, &synced, false).unwrap();
    register.check(&before, 0, &closed, false).unwrap();
    assert!(register.check(&after, 0, &[0; 4096], false).is_err(), "what was synced stays");
}

#[test]
fn a_mount_that_reads_older_than_it_wrote_must_be_told_of_an_error() {
    let mut register = Register::new(3, 1);
    let opened = register.open();
    write(&mut register, 0, 1);
    register.check(&opened, 0, &[0; 4096], true).unwrap();
    assert!(register.acknowledged(true).is_err());
    register.check(&opened, 0, &[0; 4096], true).unwrap();
    register.failed();
    assert_eq!(register.acknowledged(true), Ok(()));
}

#[test]
fn a_sync_after_a_loss_of_power_answers_for_what_was_written_before_it() {
    let mut register = Register::new(3, 1);
    write(&mut register, 0, 1);
    register.acknowledged(false).unwrap();
    register.power_lost();
    let opened = register.open();
    register.check(&opened, 0, &[0; 4096], true).unwrap();
    register.acknowledged(false).unwrap();
    let mut silent = register;
    assert!(silent.acknowledged(true).is_err(), "the mount has read what is older");
    silent.suspect = None;
    silent.acknowledged(true).unwrap();
    let later = silent.open();
    assert!(silent.check(&later, 0, &[0; 4096], false).is_err(), "the sync has said so");
}

#[test]
fn of_what_one_copy_acknowledges_alone_only_a_sync_says_that_it_stays() {
    let mut register = Register::new(3, 1);
    register.acknowledge_alone();
    let (_, closed) = write(&mut register, 0, 1);
    register.acknowledged(false).unwrap();
    let opened = register.open();
    register.check(&opened, 0, &closed, false).unwrap();
    register.whole_again();
    let later = register.open();
    register.check(&later, 0, &[0; 4096], false).unwrap();
    register.check(&later, 0, &[0; 4096], true).unwrap();
    assert_eq!(register.acknowledged(false), Ok(()));
    assert!(register.acknowledged(true).is_err(), "the mount has read what is older");
    register.failed();
    let (_, synced) = write(&mut register, 0, 1);
    register.acknowledged(true).unwrap();
    let last = register.open();
    register.check(&last, 0, &synced, false).unwrap();
    assert!(register.check(&last, 0, &closed, false).is_err());
}

/// The head never lost power where its journal was not always synced.
#[test]
fn what_a_journal_had_not_synced_goes_and_no_later_sync_says_so() {
    let mut register = Register::new(3, 1);
    let (_, synced) = write(&mut register, 0, 1);
    register.acknowledged(true).unwrap();
    let (_, closed) = write(&mut register, 0, 1);
    register.acknowledged(false).unwrap();
    register.journal_lost();
    register.whole_again();
    register.check(&register.open(), 0, &closed, false).unwrap();
    register.check(&register.open(), 0, &synced, false).unwrap();
    assert_eq!(register.acknowledged(true), Ok(()));
    register.check(&register.open(), 0, &synced, false).unwrap();
    assert!(register.check(&register.open(), 0, &[0; 4096], false).is_err(), "it was synced");
    let (_, later) = write(&mut register, 0, 1);
    register.acknowledged(true).unwrap();
    register.check(&register.open(), 0, &later, false).unwrap();
    assert!(register.check(&register.open(), 0, &closed, false).is_err(), "so was this");
}

/// Seed 795548938958 (and 1795600004530, as it was reported): a sync that was asked for before its client was evicted,
/// or before another metadata server took over, and answered after that, was taken for a sign that the client had been
/// heard since.
#[test]
fn what_was_asked_before_a_client_was_missed_is_no_sign_of_it() {
    let mut register = Register::new(3, 1);
    let (_, old) = write(&mut register, 0, 1);
    let asked = register.misses();
    register.may_be_missed();
    register.acknowledged(true).unwrap();
    register.heard(asked);
    let (_, new) = write(&mut register, 0, 1);
    let opened = register.open();
    register.check(&opened, 0, &old, false).unwrap();
    register.heard(register.misses());
    let opened = register.open();
    assert!(register.check(&opened, 0, &old, false).is_err(), "it was heard");
    register.check(&opened, 0, &new, false).unwrap();
}

#[test]
fn while_nobody_knows_whether_a_client_is_evicted_nothing_is_a_sign_of_it() {
    let mut register = Register::new(3, 1);
    let (_, old) = write(&mut register, 0, 1);
    register.may_be_missed_at_any_time();
    register.acknowledged(true).unwrap();
    register.heard(register.misses());
    write(&mut register, 0, 1);
    register.check(&register.open(), 0, &old, false).unwrap();
    register.acknowledged(true).unwrap();
    assert!(register.check(&register.open(), 0, &old, false).is_err(), "it was synced");
}

/// A full disk, once, switched off for the rest of a run what the mount that writes is held against.
#[test]
fn when_the_doubt_is_over_a_sync_is_a_sign_again() {
    let mut register = Register::new(3, 1);
    register.may_be_missed_at_any_time();
    register.may_be_missed_at_any_time();
    register.doubt_ends();
    register.heard(register.misses());
    let (_, old) = write(&mut register, 0, 1);
    register.acknowledged(true).unwrap();
    write(&mut register, 0, 1);
    register.check(&register.open(), 0, &old, false).unwrap();
    let asked = register.misses();
    register.doubt_ends();
    register.heard(asked);
    register.check(&register.open(), 0, &old, false).unwrap();
    register.heard(register.misses());
    assert!(register.check(&register.open(), 0, &old, false).is_err(), "it was heard");
}

#[test]
fn a_close_is_a_sign_only_of_who_had_something_to_tell() {
    let mut register = Register::new(3, 1);
    let (_, first) = write(&mut register, 0, 1);
    register.may_be_missed();
    register.acknowledged(false).unwrap();
    let (_, second) = write(&mut register, 0, 1);
    register.check(&register.open(), 0, &first, false).unwrap();
    register.acknowledged(false).unwrap();
    write(&mut register, 0, 1);
    assert!(register.check(&register.open(), 0, &second, false).is_err());
}

#[test]
fn zeros_are_a_version_too() {
    let mut register = Register::new(3, 1);
    let (_, old) = write(&mut register, 0, 1);
    let version = register.begin_zero(0, 1);
    register.written(0, 1, version);
    register.acknowledged(false).unwrap();
    let opened = register.open();
    register.check(&opened, 0, &[0; 4096], true).unwrap();
    assert!(register.check(&opened, 0, &old, false).is_err());
}

/// What a client had sent before it died was never held against anybody, whether it came late or not.
#[test]
fn what_a_dead_client_had_sent_comes_late_and_once_it_was_seen_nothing_older_is() {
    let mut register = Register::new(3, 1);
    let (_, old) = write(&mut register, 0, 1);
    register.acknowledged(false).unwrap();
    let (_, sent) = write(&mut register, 0, 1);
    register.died();
    register.check(&register.open(), 0, &old, false).unwrap();
    register.check(&register.open(), 0, &sent, false).unwrap();
    assert!(register.check(&register.open(), 0, &old, false).is_err(), "somebody has read it");
    write(&mut register, 0, 1);
    register.acknowledged(false).unwrap();
    register.check(&register.open(), 0, &sent, false).unwrap();
    register.check(&register.open(), 0, &sent, true).unwrap();
    assert_eq!(register.acknowledged(true), Ok(()), "it came late");
}

/// One dead client excused whatever it had sent for the rest of a run.
#[test]
fn nothing_of_a_dead_client_comes_when_it_is_long_enough_ago() {
    let mut register = Register::new(3, 1);
    assert!(!register.awaits_the_dead());
    let (_, sent) = write(&mut register, 0, 1);
    register.died();
    assert!(register.awaits_the_dead());
    let (_, new) = write(&mut register, 0, 1);
    register.acknowledged(true).unwrap();
    register.check(&register.open(), 0, &sent, false).unwrap();
    register.dead_are_over();
    assert!(!register.awaits_the_dead());
    register.check(&register.open(), 0, &new, false).unwrap();
    assert!(register.check(&register.open(), 0, &sent, false).is_err());
}

/// One punch whose client had died excused all zeros of its block that were ever read.
#[test]
fn zeros_that_were_answered_do_not_come_late() {
    for answered in [true, false] {
        let mut register = Register::new(3, 1);
        let version = register.begin_zero(0, 1);
        if answered {
            register.zeroed(0, 1, version);
        }
        register.died();
        let (_, new) = write(&mut register, 0, 1);
        register.acknowledged(false).unwrap();
        register.check(&register.open(), 0, &new, false).unwrap();
        let late = register.check(&register.open(), 0, &[0; 4096], false);
        assert_eq!(late.is_err(), answered);
    }
}

/// Any failed change of any file excused it for all.
#[test]
fn a_file_may_seem_empty_only_where_all_of_it_was_punched_and_a_change_has_failed() {
    let mut register = Register::new(1, 2);
    register.begin_write(0, 2);
    register.failed();
    assert!(!register.may_seem_empty(), "it was told of when it was made");
    register.begin_zero(0, 1);
    assert!(!register.may_seem_empty());
    register.begin_zero(1, 1);
    assert!(register.may_seem_empty());
    let mut register = Register::new(1, 2);
    register.begin_zero(0, 2);
    register.begin_write(0, 1);
    register.forget_own();
    register.died();
    assert!(!register.may_seem_empty(), "its mount goes on and tells, or its server counts");
}
