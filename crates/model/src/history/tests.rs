//! Hand-made histories: those that can have happened are accepted, and those that cannot are not.

use super::contents::{Change, Deed, Done, Last, Use, Whole, judge_seen};
use super::locks::{Ask as Lock, Told as LockTold, Wait, may_be_in_circle};
use super::names::{How, Name};
use super::paths::{Ask, Paths, Told};
use super::{Operation, Verdict, judge, judge_within, lines, locks, paths};
use strake_types::ErrorKind::{
    self, Exists, IsDirectory, NotDirectory, NotEmpty, NotFound, NotPermitted,
};

const A: Name = Name { within: 0, name: 0 };
const B: Name = Name { within: 0, name: 1 };
const C: Name = Name { within: 1, name: 0 };

fn no(kind: ErrorKind) -> Told {
    Told::Refused(kind)
}

fn op(ask: Ask, told: Told, began: u64, ended: u64) -> paths::Operation {
    Operation { client: 0, ask, told, began, ended }
}

/// One operation after the other.
fn row(all: &[(Ask, Told)]) -> Vec<paths::Operation> {
    let times = (0_u64..).map(|nth| (nth * 2, nth * 2 + 1));
    all.iter().zip(times).map(|(&(ask, told), (from, to))| op(ask, told, from, to)).collect()
}

fn fits(history: &[paths::Operation]) -> bool {
    match paths::judge(history) {
        Verdict::Fits => true,
        Verdict::Impossible(_) => false,
        Verdict::TooLong => panic!("these are short"),
    }
}

/// What can follow on a file 7 at A and a directory 8 at B, and what cannot.
fn follows(next: (Ask, Told)) -> bool {
    let before = [(Ask::Create(A), Told::Inode(7)), (Ask::Mkdir(B), Told::Done)];
    fits(&row(&[before[0], before[1], next]))
}

fn over(from: Name, to: Name) -> Ask {
    Ask::Rename(from, to, How::Over)
}

#[test]
fn what_system_calls_on_names_may_be_told_fits() {
    for good in [
        (Ask::Create(C), Told::Inode(9)),
        (Ask::Create(A), no(Exists)),
        (Ask::Open(A), Told::Inode(7)),
        (Ask::Open(C), Told::Inode(9)),
        (Ask::Open(B), no(IsDirectory)),
        (Ask::Mkdir(A), no(Exists)),
        (Ask::Unlink(A), Told::Done),
        (Ask::Unlink(B), no(IsDirectory)),
        (Ask::Unlink(C), no(NotFound)),
        (Ask::Rmdir(B), Told::Done),
        (Ask::Rmdir(A), no(NotDirectory)),
        (Ask::Link(A, C), Told::Done),
        (Ask::Link(A, B), no(Exists)),
        (Ask::Link(C, A), no(NotFound)),
        (Ask::Link(B, C), no(NotPermitted)),
        (over(A, C), Told::Done),
        (over(A, B), no(IsDirectory)),
        (over(B, A), no(NotDirectory)),
        (over(C, A), no(NotFound)),
        (Ask::Rename(A, B, How::ToFree), no(Exists)),
        (Ask::Rename(A, B, How::Exchange), Told::Done),
        (Ask::Rename(A, C, How::Exchange), no(NotFound)),
        (Ask::Stat(A), Told::Stat(7, 1)),
        (Ask::Stat(B), Told::Stat(8, 2)),
        (Ask::Mkdir(C), Told::Done),
        (Ask::Find(B), Told::Inode(8)),
        (Ask::Find(A), Told::Inode(7)),
        (Ask::Find(C), no(NotFound)),
        (Ask::Leave(0), no(NotEmpty)),
        (Ask::Leave(1), Told::Done),
        (Ask::Enter(1), no(Exists)),
    ] {
        assert!(follows(good), "{good:?}");
    }
}

#[test]
fn what_system_calls_on_names_cannot_be_told_does_not_fit() {
    for bad in [
        (Ask::Create(A), Told::Inode(9)),
        (Ask::Create(C), no(Exists)),
        (Ask::Open(A), Told::Inode(9)),
        (Ask::Open(A), no(IsDirectory)),
        (Ask::Open(A), no(NotFound)),
        (Ask::Mkdir(A), Told::Done),
        (Ask::Unlink(A), no(NotFound)),
        (Ask::Unlink(B), Told::Done),
        (Ask::Rmdir(A), Told::Done),
        (Ask::Rmdir(B), no(NotEmpty)),
        (Ask::Link(A, B), Told::Done),
        (Ask::Link(C, B), Told::Done),
        (Ask::Link(A, C), no(NotFound)),
        (Ask::Link(A, C), no(NotPermitted)),
        (over(A, B), Told::Done),
        (over(A, C), no(NotFound)),
        (over(A, C), no(IsDirectory)),
        (Ask::Rename(A, C, How::ToFree), no(Exists)),
        (Ask::Rename(A, B, How::ToFree), Told::Done),
        (Ask::Rename(A, C, How::Exchange), Told::Done),
        (Ask::Stat(A), Told::Stat(7, 2)),
        (Ask::Stat(A), no(NotFound)),
        (Ask::Find(A), Told::Inode(8)),
        (Ask::Find(B), Told::Inode(7)),
        (Ask::Find(A), no(NotFound)),
        (Ask::Find(C), Told::Inode(7)),
        (Ask::Leave(0), Told::Done),
        (Ask::Leave(1), no(NotEmpty)),
        (Ask::Enter(1), Told::Done),
    ] {
        assert!(!follows(bad), "{bad:?}");
    }
}

#[test]
fn changes_last() {
    let moved = |last| {
        fits(&row(&[
            (Ask::Create(A), Told::Inode(7)),
            (Ask::Link(A, C), Told::Done),
            (Ask::Rename(C, B, How::Over), Told::Done),
            (Ask::Leave(1), Told::Done),
            last,
        ]))
    };
    assert!(moved((Ask::Stat(B), Told::Stat(7, 2))) && !moved((Ask::Stat(B), Told::Stat(7, 1))));
    assert!(moved((Ask::Create(C), no(NotFound))) && !moved((Ask::Create(C), Told::Inode(9))));
    assert!(moved((Ask::Find(C), no(NotFound))) && !moved((Ask::Find(C), Told::Inode(7))));
    assert!(moved((Ask::Enter(1), Told::Done)) && !moved((Ask::Leave(1), Told::Done)));
    assert!(!moved((Ask::Unlink(C), Told::Done)) && moved((Ask::Unlink(B), Told::Done)));
}

/// What a kernel looks up is of several moments, all of them between beginning and end.
#[test]
fn a_kernel_decides_by_what_it_has_looked_up_one_after_the_other() {
    let others = [
        op(Ask::Create(A), Told::Inode(7), 0, 1),
        op(Ask::Rename(A, C, How::Over), Told::Done, 10, 20),
    ];
    let with = |more| fits(&[others.to_vec(), vec![more]].concat());
    // A and C lead to one inode, each at its moment.
    let same = |from, to| op(Ask::Rename(A, C, How::Over), Told::Done, from, to);
    assert!(with(same(5, 15)) && with(same(15, 25)) && !with(same(21, 22)) && !with(same(5, 6)));
    let exists = |from, to| op(Ask::Rename(A, C, How::ToFree), no(Exists), from, to);
    assert!(with(exists(5, 15)) && !with(exists(5, 6)) && !with(exists(21, 22)));
    let others = [
        op(Ask::Create(A), Told::Inode(7), 0, 1),
        op(Ask::Link(A, B), Told::Done, 2, 3),
        op(Ask::Unlink(B), Told::Done, 10, 20),
    ];
    let with = |more| fits(&[others.to_vec(), vec![more]].concat());
    // The name at one moment, the count of its links at a later one.
    let stat = |links, from, to| op(Ask::Stat(B), Told::Stat(7, links), from, to);
    assert!(with(stat(2, 5, 6)) && !with(stat(1, 5, 6)) && with(stat(1, 5, 15)));
    assert!(!with(stat(1, 21, 22)));
    // A directory is removed in between: found by a history of real mounts (seed 2957775413).
    let others = [
        op(Ask::Mkdir(B), Told::Done, 0, 1),
        op(Ask::Stat(B), Told::Stat(7, 2), 2, 3),
        op(Ask::Rmdir(B), Told::Done, 10, 20),
    ];
    let with = |more| fits(&[others.to_vec(), vec![more]].concat());
    assert!(with(stat(0, 5, 15)) && !with(stat(0, 5, 6)) && !with(stat(1, 5, 15)));
    assert!(!with(stat(0, 21, 22)) && with(stat(2, 5, 15)));
}

#[test]
fn what_somebody_has_seen_is_there_for_all_who_look_later() {
    let create = op(Ask::Create(A), Told::Inode(7), 0, 100);
    let look = |told, from, to| op(Ask::Find(A), told, from, to);
    let (there, gone) = (Told::Inode(7), no(NotFound));
    assert!(fits(&[create.clone(), look(gone, 1, 2), look(there, 3, 4)]));
    assert!(fits(&[create.clone(), look(there, 1, 4), look(gone, 2, 3)]));
    let back = [create, look(there, 1, 2), look(gone, 3, 4)];
    let Verdict::Impossible(why) = paths::judge(&back) else { panic!("it went back") };
    assert!(why.contains("Find"), "{why}");
    assert_eq!(lines(&back).lines().count(), 3);
}

#[test]
fn under_a_lock_everything_written_before_is_read() {
    let history = |second: &[u64], third: &[u64]| {
        let change = |nth, change, told: &[u64]| Operation {
            client: 0,
            ask: (change, nth),
            told: told.to_vec(),
            began: nth * 2,
            ended: nth * 2 + 1,
        };
        judge(
            Whole::default(),
            &[
                change(1, Change::Append(2), &[]),
                change(2, Change::Write(1, 1), second),
                change(3, Change::Resize(1), third),
                change(4, Change::Write(2, 1), &[1]),
                change(5, Change::Nothing, &[1, 0, 4]),
            ],
        ) == Verdict::Fits
    };
    assert!(history(&[1, 1], &[1, 2]));
    assert!(!history(&[], &[1, 2]), "the append is lost");
    assert!(!history(&[1], &[1, 2]), "it is cut short");
    assert!(!history(&[1, 1], &[1, 1]), "the write is lost");
    assert!(!history(&[1, 1], &[2, 2]), "it is elsewhere");
}

#[test]
fn without_a_lock_a_reader_sees_what_was_closed_before_its_open() {
    let history = |reads: &[(Deed, u64, u64)]| {
        let deed = |deed, began, ended| Done { client: 0, deed, began, ended };
        let mut all = vec![
            deed(Deed::Write(0, 1, 5), 0, 1),
            deed(Deed::Write(0, 4, 6), 10, 20),
            deed(Deed::Resize(2), 30, 40),
        ];
        all.extend(reads.iter().map(|(what, from, to)| deed(what.clone(), *from, *to)));
        judge_seen(&[4, 4], &all) == Verdict::Fits
    };
    let read = |at, blocks: &[u64]| Deed::Read(at, blocks.to_vec(), blocks.len() as u64 + 1);
    let (old, new) = (read(0, &[5, 4]), read(0, &[6, 6, 6, 6]));
    assert!(history(&[(old.clone(), 2, 3), (new.clone(), 21, 22)]));
    // On different mounts, while the write is under way.
    assert!(history(&[(new.clone(), 11, 12), (old.clone(), 13, 14)]));
    assert!(!history(&[(new.clone(), 2, 3)]) && !history(&[(old, 21, 22)]));
    assert!(history(&[(read(0, &[6, 4]), 11, 12)]), "the length comes later");
    assert!(!history(&[(read(0, &[5, 6]), 21, 22)]), "half of it is lost");
    assert!(!history(&[(new, 41, 42)]) && history(&[(read(1, &[6]), 41, 42)]));
    let length = |blocks| Deed::Length(blocks);
    assert!(history(&[(length(2), 2, 3), (length(4), 21, 22), (length(2), 41, 42)]));
    assert!(!history(&[(length(1), 2, 3)]) && !history(&[(length(3), 2, 3)]));
    assert!(!history(&[(length(4), 41, 42)]) && !history(&[(length(2), 21, 22)]));
}

/// A write is its bytes, then its length: what is cut off between them reads as zeros.
#[test]
fn a_cut_may_come_between_the_bytes_of_a_write_and_its_length() {
    let deed = |deed, began, ended| Done { client: 0, deed, began, ended };
    let last = |blocks: &[u64], cut| {
        let read = Deed::Read(0, blocks.to_vec(), blocks.len() as u64);
        judge_seen(
            &[4, 4],
            &[
                deed(Deed::Write(1, 1, 6), 0, 10),
                deed(Deed::Resize(1), cut, cut + 1),
                deed(read, 20, 21),
            ],
        ) == Verdict::Fits
    };
    assert!(last(&[4, 0], 5) && last(&[4, 6], 5) && last(&[4], 5));
    assert!(!last(&[4, 0], 12) && !last(&[4, 6], 12));
}

/// A read has the length of its open, and perhaps newer bytes: zeros, where they are cut off meanwhile.
#[test]
fn a_cut_may_come_between_the_open_of_a_reader_and_its_read() {
    let deed = |deed, began, ended| Done { client: 0, deed, began, ended };
    let read = |blocks: &[u64], began, ended| {
        let read = Deed::Read(0, blocks.to_vec(), blocks.len() as u64);
        judge_seen(&[4, 4], &[deed(Deed::Resize(1), 10, 20), deed(read, began, ended)])
            == Verdict::Fits
    };
    assert!(read(&[4, 0], 5, 15) && read(&[4, 4], 5, 15) && read(&[4], 5, 15));
    assert!(!read(&[4, 0], 5, 6) && !read(&[4, 0], 21, 22) && !read(&[4, 4], 21, 22));
}

#[test]
fn locks_exclude_by_byte_and_owner() {
    let history = |told: [bool; 6]| {
        let asked = [
            (1, Lock::Exclude(0, 4)),
            (2, Lock::Share(3, 6)),
            (1, Lock::Unlock(2, 4)),
            (2, Lock::Share(2, 6)),
            (1, Lock::Share(4, 8)),
            (1, Lock::Exclude(1, 3)),
        ];
        let times = (0_u64..).map(|nth| (nth * 2, nth * 2 + 1));
        let all = asked.into_iter().zip(told).zip(times);
        let all = all.map(|((ask, told), (began, ended))| Operation {
            client: ask.0,
            ask,
            told: if told { LockTold::Done } else { LockTold::Refused },
            began,
            ended,
        });
        locks::judge(&all.collect::<Vec<_>>()) == Verdict::Fits
    };
    assert!(history([true, false, true, true, true, false]));
    for nth in [0, 1, 3, 4, 5] {
        let mut told = [true, false, true, true, true, false];
        told[nth] = !told[nth];
        assert!(!history(told), "{nth}");
    }
}

/// An operation on locks.
fn on_locks(owner: u32, ask: Lock, told: LockTold, began: u64, ended: u64) -> locks::Operation {
    Operation { client: owner, ask: (owner, ask), told, began, ended }
}

fn locks_fit(history: &[locks::Operation]) -> bool {
    locks::judge(history) == Verdict::Fits
}

#[test]
fn who_looks_at_locks_is_told_of_one_in_the_way() {
    use LockTold::{Done, Free, Held};
    let look = |owner, exclusive, told| {
        let first = on_locks(1, Lock::Share(2, 4), Done, 0, 1);
        locks_fit(&[first, on_locks(owner, Lock::Look(3, 6, exclusive), told, 2, 3)])
    };
    assert!(look(2, true, Held(1, false)) && look(2, false, Free) && look(1, true, Free));
    assert!(
        !look(2, true, Free) && !look(2, false, Held(1, false)) && !look(1, true, Held(1, false))
    );
    assert!(!look(2, true, Held(1, true)) && !look(2, true, Held(3, false)));
}

/// It may have the lock for a moment, until it is known to be over.
#[test]
fn a_wait_that_was_given_up_leaves_no_lock_behind() {
    use LockTold::{Done, GaveUp, Refused};
    let refused = |ended, at| {
        locks_fit(&[
            on_locks(1, Lock::Exclude(0, 2), GaveUp, 0, ended),
            on_locks(2, Lock::Share(1, 2), Refused, at, at + 1),
            on_locks(2, Lock::Share(1, 2), Done, 100, 101),
        ])
    };
    assert!(refused(10, 5) && !refused(10, 11) && refused(u64::MAX, 11));
    let had = on_locks(2, Lock::Exclude(0, 9), Done, 0, 1);
    let refused = on_locks(3, Lock::Exclude(0, 1), Refused, 4, 5);
    assert!(locks_fit(&[had, on_locks(1, Lock::Exclude(0, 2), GaveUp, 2, 3), refused]));
}

#[test]
fn a_wait_that_was_given_up_leaves_what_its_owner_had() {
    use LockTold::{Done, GaveUp, Refused};
    let fits = |unlocked: bool, asked: &[(Lock, LockTold)]| {
        let mut all = vec![
            on_locks(1, Lock::Share(0, 2), Done, 0, 1),
            on_locks(1, Lock::Exclude(0, 4), GaveUp, 2, 10),
        ];
        if unlocked {
            all.push(on_locks(1, Lock::Unlock(0, 2), Done, 4, 5));
        }
        let asked = asked.iter().zip((20..).step_by(2));
        all.extend(asked.map(|(asked, at)| on_locks(2, asked.0, asked.1, at, at + 1)));
        locks_fit(&all)
    };
    let (own, beside) = (Lock::Exclude(1, 2), Lock::Exclude(2, 4));
    assert!(fits(false, &[(own, Refused), (Lock::Share(0, 2), Done), (beside, Done)]));
    assert!(!fits(false, &[(own, Done)]) && !fits(false, &[(beside, Refused)]));
    assert!(fits(true, &[(own, Done), (beside, Done)]) && !fits(true, &[(own, Refused)]));
}

/// Unless others share it by then.
#[test]
fn what_an_owner_had_alone_and_asked_to_share_it_has_again_alone() {
    use LockTold::{Done, GaveUp, Refused};
    let fits = |asked: u64, told: LockTold, last: LockTold| {
        locks_fit(&[
            on_locks(1, Lock::Exclude(0, 2), Done, 0, 1),
            on_locks(1, Lock::Share(0, 4), GaveUp, 2, 10),
            on_locks(2, Lock::Share(0, 1), told, asked, asked + 1),
            on_locks(3, Lock::Share(1, 2), last, 20, 21),
        ])
    };
    assert!(fits(15, Refused, Refused) && fits(5, Refused, Refused) && fits(5, Done, Done));
    assert!(!fits(15, Done, Done) && !fits(15, Refused, Done) && !fits(5, Done, Refused));
}

/// Of two that share a lock, and both wait to have it alone, one could not let the other one have it otherwise.
#[test]
fn who_waits_for_a_flock_may_let_go_of_what_it_had() {
    use LockTold::{Done, GaveUp, Refused};
    let fits = |wait: Lock, told: LockTold, others: &[(Lock, LockTold, u64)]| {
        let mut all = vec![
            on_locks(1, Lock::Share(0, 1), Done, 0, 1),
            on_locks(2, Lock::Share(0, 1), Done, 2, 3),
            on_locks(1, wait, told, 4, 20),
        ];
        let others = others.iter().map(|&(ask, told, at)| on_locks(2, ask, told, at, at + 1));
        all.extend(others);
        locks_fit(&all)
    };
    let (alone, unlock) = (Lock::Exclude(0, 1), Lock::Unlock(0, 1));
    let meanwhile = [(alone, Done, 6), (unlock, Done, 8)];
    assert!(fits(alone.awaited(), Done, &meanwhile) && !fits(alone, Done, &meanwhile));
    let later = |told| [(unlock, Done, 6), (alone, told, 22)];
    assert!(fits(alone.awaited(), Done, &later(Refused)));
    assert!(!fits(alone.awaited(), Done, &later(Done)), "what it is granted it has");
    assert!(fits(alone.awaited(), GaveUp, &later(Done)) && !fits(alone, GaveUp, &later(Done)));
    assert!(fits(alone.awaited(), GaveUp, &later(Refused)), "it has perhaps not waited yet");
}

#[test]
fn locks_of_a_lost_owner_are_its_own_until_others_are_granted_them() {
    use LockTold::{Done, Refused, Unknown};
    let all = |lost: u64, told: [LockTold; 3]| {
        let others = told.into_iter().zip((10..).step_by(2));
        let others = others.map(|(told, at)| on_locks(2, Lock::Exclude(0, 1), told, at, at + 1));
        let mut all = vec![
            on_locks(1, Lock::Exclude(0, 4), Done, 0, 1),
            on_locks(1, Lock::Unlock(0, 8), Unknown, lost, u64::MAX),
        ];
        all.extend(others);
        locks_fit(&all)
    };
    assert!(all(2, [Refused, Refused, Done]) && all(2, [Refused; 3]) && all(2, [Done; 3]));
    assert!(!all(2, [Refused, Done, Refused]), "it has unlocked nothing itself");
    assert!(!all(20, [Refused, Done, Done]), "nothing is lost yet");
}

#[test]
fn a_circle_of_waits_is_one_of_those_who_wait_at_the_same_time() {
    use LockTold::{Deadlock, Done, GaveUp};
    let circle = |unlocked: bool, waits: std::ops::Range<u64>, wanted: u8| {
        let mut first = vec![
            on_locks(1, Lock::Exclude(0, 1), Done, 0, 1),
            on_locks(2, Lock::Exclude(1, 2), Done, 2, 3),
        ];
        if unlocked {
            first.push(on_locks(1, Lock::Unlock(0, 2), Done, 4, 5));
        }
        first.push(on_locks(2, Lock::Exclude(wanted, wanted + 1), GaveUp, waits.start, waits.end));
        let second = vec![on_locks(2, Lock::Exclude(0, 3), Done, 0, 1)];
        let refused = on_locks(1, Lock::Share(1, 2), Deadlock, 20, 30);
        let waits: [Wait; 2] = [(0, first.len() - 1), (0, first.len())];
        first.push(refused);
        may_be_in_circle(&[first, second], &waits, waits[1])
    };
    assert!(circle(false, 15..25, 0));
    assert!(!circle(true, 15..25, 0), "nobody has what the other one waits for");
    assert!(!circle(false, 10..15, 0), "the other one has given up before");
    assert!(!circle(false, 15..25, 5), "the other one waits for something else");
}

#[test]
fn who_reads_what_all_have_open_sees_the_last_write_or_one_that_is_under_way() {
    let with = |what, began, ended| Operation { client: 1, ask: what, told: (), began, ended };
    let seen = |mark, began, ended| {
        let lost = with(Use::Write(3), 30, u64::MAX);
        let writes = [with(Use::Write(1), 0, 5), with(Use::Write(2), 10, 20), lost];
        let history: Vec<_> =
            writes.into_iter().chain([with(Use::Read(mark), began, ended)]).collect();
        judge(Last(0), &history) == Verdict::Fits
    };
    assert!(seen(1, 6, 9) && !seen(0, 6, 9) && !seen(2, 6, 9));
    assert!(seen(1, 12, 15) && seen(2, 12, 15) && seen(2, 40, 50) && seen(3, 40, 50));
    assert!(!seen(1, 21, 25) && !seen(3, 21, 25), "it was not written yet");
}

#[test]
fn a_history_of_too_many_possibilities_is_not_judged() {
    let all = (0..24_u8).map(|name| {
        let at = Name { within: 0, name };
        op(Ask::Create(at), Told::Inode(u64::from(name) + 1), u64::from(name), 100)
    });
    let last = op(Ask::Find(A), no(NotFound), 101, 102);
    let all: Vec<_> = all.chain([last]).collect();
    assert_eq!(judge_within(10_000, Paths::default(), &all), Verdict::TooLong);
}
