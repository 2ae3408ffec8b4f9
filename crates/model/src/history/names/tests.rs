//! The checker of histories of names against hand-made ones.

use super::*;
use crate::history::Verdict;

fn at(name: u8) -> Name {
    Name { within: 0, name }
}

fn op(ask: Ask, told: Told, began: u64, ended: u64) -> Operation {
    Operation { client: 0, ask, told, began, ended }
}

#[test]
fn what_can_have_happened_fits_whatever_its_order() {
    let history = [
        op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 5),
        op(Ask::Lookup(at(1)), Told::Refused(ErrorKind::NotFound), 1, 2),
        op(Ask::Create(at(1)), Told::Refused(ErrorKind::Exists), 3, 6),
        op(Ask::Link(7, at(2)), Told::Inode(7, 2), 7, 8),
        op(Ask::Unlink(at(1)), Told::Unknown, 9, u64::MAX),
        op(Ask::List(0), Told::Names(vec![(at(1), 7), (at(2), 7)]), 10, 11),
        op(Ask::List(0), Told::Names(vec![(at(2), 7)]), 12, 13),
        op(Ask::Mkdir(at(3)), Told::Unknown, 14, u64::MAX),
        op(Ask::Lookup(at(3)), Told::Inode(9, 2), 15, 16),
        op(Ask::Rename(at(2), at(3), How::Over), Told::Refused(ErrorKind::IsDirectory), 17, 18),
        op(Ask::Rmdir(at(3)), Told::Done, 19, 20),
    ];
    assert_eq!(judge(&history), Verdict::Fits);
}

#[test]
fn what_cannot_have_happened_is_found() {
    let twice = [
        op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 5),
        op(Ask::Create(at(1)), Told::Inode(8, 1), 1, 6),
    ];
    assert!(matches!(judge(&twice), Verdict::Impossible(_)));
    let back = [
        op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 1),
        op(Ask::Unlink(at(1)), Told::Unknown, 2, u64::MAX),
        op(Ask::Lookup(at(1)), Told::Refused(ErrorKind::NotFound), 3, 4),
        op(Ask::Lookup(at(1)), Told::Inode(7, 1), 5, 6),
    ];
    let Verdict::Impossible(why) = judge(&back) else { panic!("it came back") };
    assert!(why.contains("after 3 operations"), "{why}");
    let links = [
        op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 1),
        op(Ask::Link(7, at(2)), Told::Inode(7, 2), 2, 3),
        op(Ask::Unlink(at(1)), Told::Inode(7, 0), 4, 5),
    ];
    assert!(matches!(judge(&links), Verdict::Impossible(_)));
}

#[test]
fn a_name_that_moves_between_directories_is_in_one_of_them_at_any_time() {
    let there = Name { within: 1, name: 0 };
    let moved = |first: Told, second: Told| {
        judge(&[
            op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 1),
            op(Ask::Create(there), Told::Inode(8, 1), 2, 3),
            op(Ask::Rename(at(1), there, How::ToFree), Told::Refused(ErrorKind::Exists), 4, 5),
            op(Ask::Rename(at(1), there, How::Over), Told::Done, 6, 11),
            op(Ask::Lookup(at(1)), first, 7, 8),
            op(Ask::Lookup(there), second, 9, 10),
        ])
    };
    let (old, new) = (Told::Inode(8, 1), Told::Inode(7, 1));
    let gone = Told::Refused(ErrorKind::NotFound);
    assert_eq!(moved(new.clone(), old.clone()), Verdict::Fits);
    assert_eq!(moved(gone.clone(), new), Verdict::Fits);
    assert!(matches!(moved(gone, old), Verdict::Impossible(_)));
}

#[test]
fn an_exchange_needs_both_names() {
    let there = Name { within: 1, name: 0 };
    let exchanged = |second: Told| {
        judge(&[
            op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 1),
            op(Ask::Rename(at(1), there, How::Exchange), Told::Refused(ErrorKind::NotFound), 2, 3),
            op(Ask::Mkdir(there), Told::Inode(8, 2), 4, 5),
            op(Ask::Rename(at(1), there, How::Exchange), Told::Done, 6, 7),
            op(Ask::List(0), Told::Names(vec![(at(1), 8)]), 8, 9),
            op(Ask::List(1), second, 10, 11),
        ])
    };
    assert_eq!(exchanged(Told::Names(vec![(there, 7)])), Verdict::Fits);
    assert!(matches!(exchanged(Told::Names(vec![(there, 8)])), Verdict::Impossible(_)));
}
