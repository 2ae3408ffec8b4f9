//! The model against what everyone knows of POSIX.

use crate::op::{Fallocate, Filler, RenameMode};
use crate::{Model, Op, OpenFlags, Outcome};
use strake_types::{Credentials, ErrorKind, FileKind};

fn path(text: &str) -> Vec<String> {
    text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn create() -> OpenFlags {
    OpenFlags { read: true, write: true, create: Some(0o644), ..OpenFlags::default() }
}

const WORDS: Filler = Filler { seed: 3, len: 10 };
const SEVENS: Filler = Filler { seed: 7, len: 5000 };

struct Fixture {
    model: Model,
    cred: Credentials,
}

impl Fixture {
    fn new() -> Self {
        Self { model: Model::new(0o755, 0, 0), cred: Credentials::root() }
    }

    fn run(&mut self, op: Op) -> Outcome {
        self.model.apply(&self.cred, &op)
    }

    fn with_file(slot: usize, at: &str) -> Self {
        let mut fixture = Self::new();
        assert_eq!(fixture.run(Op::Open(slot, path(at), create())), Outcome::Done);
        fixture
    }
}

#[test]
fn an_unlinked_file_lives_on_while_it_is_open() {
    let mut fs = Fixture::with_file(0, "a");
    fs.run(Op::Write(0, 0, WORDS));
    assert_eq!(fs.run(Op::Unlink(path("a"))), Outcome::Done);
    assert_eq!(fs.run(Op::Stat(path("a"))), Outcome::Failed(ErrorKind::NotFound));
    assert_eq!(fs.run(Op::Read(0, 0, 99)), Outcome::Bytes(WORDS.bytes()));
    let Outcome::Stat(stat) = fs.run(Op::StatHandle(0)) else { panic!("fstat shows attributes") };
    assert_eq!(stat.nlink, 0);
    assert_eq!(fs.run(Op::Close(0)), Outcome::Done);
    assert_eq!(fs.run(Op::Read(0, 0, 99)), Outcome::Skipped);
}

#[test]
fn what_is_cut_off_is_zeros_when_the_file_grows_again() {
    let mut fs = Fixture::with_file(0, "a");
    fs.run(Op::Write(0, 5000, SEVENS));
    fs.run(Op::SetLength(0, 6000));
    fs.run(Op::SetLength(0, 9000));
    let mut expected = vec![0; 9000];
    expected[5000..6000].copy_from_slice(&SEVENS.bytes()[..1000]);
    assert_eq!(fs.run(Op::ReadAll(path("a"))), Outcome::Bytes(expected));
}

#[test]
fn fallocate_keeps_or_changes_the_length_as_its_mode_says() {
    let mut fs = Fixture::with_file(0, "a");
    fs.run(Op::Write(0, 0, Filler { seed: 1, len: 100 }));
    let length = |fs: &mut Fixture| match fs.run(Op::StatHandle(0)) {
        Outcome::Stat(stat) => stat.length,
        other => panic!("{other:?}"),
    };
    for (mode, expected) in [
        (Fallocate::KeepSize, 100),
        (Fallocate::Punch, 100),
        (Fallocate::ZeroKeepSize, 100),
        (Fallocate::Allocate, 250),
        (Fallocate::Zero, 350),
    ] {
        let offset = if mode == Fallocate::Zero { 150 } else { 50 };
        assert_eq!(fs.run(Op::Fallocate(0, mode, offset, 200)), Outcome::Done);
        assert_eq!(length(&mut fs), expected, "after {mode:?}");
    }
}

#[test]
fn a_directory_does_not_move_into_itself() {
    let mut fs = Fixture::new();
    fs.run(Op::MakeDirectory(path("a"), 0o755));
    fs.run(Op::MakeDirectory(path("a/b"), 0o755));
    let rename = |from, to, mode| Op::Rename(path(from), path(to), mode);
    let invalid = Outcome::Failed(ErrorKind::Invalid);
    assert_eq!(fs.run(rename("a", "a/b/c", RenameMode::Replace)), invalid);
    let not_empty = Outcome::Failed(ErrorKind::NotEmpty);
    assert_eq!(fs.run(rename("a/b", "a", RenameMode::Replace)), not_empty);
    assert_eq!(fs.run(rename("a/b", "a", RenameMode::Exchange)), invalid);
}

#[test]
fn exchange_swaps_a_file_with_a_directory_and_link_counts_follow() {
    let mut fs = Fixture::with_file(0, "f");
    fs.run(Op::MakeDirectory(path("d"), 0o755));
    fs.run(Op::MakeDirectory(path("d/e"), 0o755));
    let rename = Op::Rename(path("f"), path("d/e"), RenameMode::Exchange);
    assert_eq!(fs.run(rename), Outcome::Done);
    let kind = |outcome| match outcome {
        Outcome::Stat(stat) => (stat.kind, stat.nlink),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(fs.run(Op::Stat(path("d/e")))), (FileKind::File, 1));
    assert_eq!(kind(fs.run(Op::Stat(path("f")))), (FileKind::Directory, 2));
    assert_eq!(kind(fs.run(Op::Stat(path("d")))), (FileKind::Directory, 2));
    assert_eq!(kind(fs.run(Op::Stat(path("")))), (FileKind::Directory, 4));
}

#[test]
fn sticky_directories_protect_entries_of_others() {
    let mut fs = Fixture::new();
    fs.run(Op::MakeDirectory(path("tmp"), 0o1777));
    fs.cred = Credentials { uid: 1000, gid: 1000, ..Credentials::default() };
    fs.run(Op::Open(0, path("tmp/mine"), create()));
    fs.cred.uid = 2000;
    let refused = Outcome::Failed(ErrorKind::NotPermitted);
    assert_eq!(fs.run(Op::Unlink(path("tmp/mine"))), refused);
    let rename = Op::Rename(path("tmp/mine"), path("tmp/yours"), RenameMode::Replace);
    assert_eq!(fs.run(rename), refused);
    fs.cred.uid = 1000;
    assert_eq!(fs.run(Op::Unlink(path("tmp/mine"))), Outcome::Done);
}
