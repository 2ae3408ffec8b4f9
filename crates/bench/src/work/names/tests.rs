//! Every phase does to every file what its name says.

use super::*;
use std::collections::BTreeSet;

fn phase(operation: Operation) -> Phase {
    Phase {
        operation,
        root: "tree".into(),
        shape: Shape { depth: 1, branching: 2, files: 5 },
        worker: 0,
        workers: 1,
        naming: Naming::Numbered,
        visiting: Visiting::Numbered(Order::Forward),
        bytes: 10,
        content: Content { seed: 4, salt: 0, generation: 1, checked: true },
        flush: false,
        flush_names: false,
    }
}

fn run(phase: &Phase, directory: &Path) -> Result<Amount> {
    let mut prepared = prepare(phase, directory)?;
    let amount = prepared.run(&Watch::default());
    prepared.finish()?;
    amount
}

fn files(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        match next.is_dir() {
            true => left.extend(fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path())),
            false => {
                found.insert(next.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found
}

/// "failed to fill whole buffer", and no word on how much was lost.
#[test]
fn a_file_of_many_that_lost_its_end_is_told_of() {
    let directory = tempfile::tempdir().unwrap();
    for operation in [Operation::Mkdir, Operation::Create] {
        run(&phase(operation), directory.path()).unwrap();
    }
    let mut below = vec![directory.path().to_owned()];
    while let Some(next) = below.pop() {
        match next.is_dir() {
            true => below.extend(fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path())),
            false => fs::write(next, "short").unwrap(),
        }
    }
    let error = run(&phase(Operation::Read), directory.path()).unwrap_err();
    assert!(error.cause.contains("it is 5 bytes long, and 10 were written"), "{error}");
    assert!(error.next.unwrap().contains("has lost data"));
}

#[test]
fn the_phases_of_a_tree_make_visit_and_remove_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let count = |operation, naming| {
        let phase = Phase { naming, ..phase(operation) };
        run(&phase, directory.path()).unwrap()
    };
    let names = |count| Amount { bytes: 0, operations: count };
    let bytes = Amount { bytes: 150, operations: 15 };
    assert_eq!(count(Operation::Mkdir, Naming::Numbered), names(3));
    assert_eq!(count(Operation::Create, Naming::Numbered), bytes);
    assert_eq!(files(directory.path()).len(), 15);
    assert_eq!(count(Operation::Stat, Naming::Numbered), names(15));
    assert_eq!(count(Operation::Read, Naming::Numbered), bytes);
    assert_eq!(count(Operation::List, Naming::Numbered), names(17));
    assert_eq!(count(Operation::Rename, Naming::Numbered), names(15));
    assert!(files(directory.path()).iter().all(|name| name.starts_with("renamed.")));
    assert_eq!(count(Operation::Stat, Naming::Renamed), names(15));
    assert_eq!(count(Operation::Remove, Naming::Renamed), names(15));
    assert!(files(directory.path()).is_empty());
    assert_eq!(count(Operation::Rmdir, Naming::Renamed), names(3));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn workers_in_one_directory_have_files_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    run(&phase(Operation::Mkdir), directory.path()).unwrap();
    for worker in 0..3 {
        let create = Phase { worker, workers: 3, ..phase(Operation::Create) };
        run(&create, directory.path()).unwrap();
    }
    assert_eq!(files(directory.path()).len(), 45);
    let list = Phase { workers: 3, ..phase(Operation::List) };
    assert_eq!(run(&list, directory.path()).unwrap().operations, 47);
    let error = run(&phase(Operation::List), directory.path()).unwrap_err();
    assert!(error.cause.contains("47 entries were listed, and there are 17"), "{error}");
}

#[test]
fn a_flipped_bit_and_a_missing_file_are_found() {
    let directory = tempfile::tempdir().unwrap();
    run(&phase(Operation::Mkdir), directory.path()).unwrap();
    run(&phase(Operation::Create), directory.path()).unwrap();
    let victim = directory.path().join("tree/file.mdtest.0.3");
    let mut bytes = fs::read(&victim).unwrap();
    bytes[7] ^= 1;
    fs::write(&victim, &bytes).unwrap();
    let error = run(&phase(Operation::Read), directory.path()).unwrap_err();
    assert!(error.cause.contains("file.mdtest.0.3: the byte at offset 7"), "{error}");
    fs::remove_file(&victim).unwrap();
    let error = run(&phase(Operation::Stat), directory.path()).unwrap_err();
    assert!(error.cause.contains("file.mdtest.0.3"), "{error}");
}

#[test]
fn files_are_visited_in_any_order_and_as_they_are_listed() {
    for naming in [Naming::NumberFirst, Naming::LettersFirst] {
        let directory = tempfile::tempdir().unwrap();
        let of = |operation, visiting| Phase { naming, visiting, ..phase(operation) };
        let shuffled = Visiting::Numbered(Order::Shuffled { seed: 9 });
        let flat = |phase: Phase| Phase { shape: Shape { depth: 0, ..phase.shape }, ..phase };
        let all = |phase| run(&flat(phase), directory.path()).unwrap().operations;
        all(phase(Operation::Mkdir));
        assert_eq!(all(of(Operation::Create, shuffled)), 5);
        assert_eq!(all(of(Operation::Stat, Visiting::Listed)), 5);
        let some = Order::Anywhere { seed: 1, visits: 20 };
        assert_eq!(all(of(Operation::Stat, Visiting::Numbered(some))), 20);
        let last = if naming == Naming::NumberFirst { Visiting::Listed } else { shuffled };
        assert_eq!(all(of(Operation::Remove, last)), 5);
        assert!(files(directory.path()).is_empty());
    }
}

/// What a listing lacked was neither asked for nor removed, and the figure was as good.
#[test]
fn files_that_the_listing_lacks_or_has_too_many_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let flat = |operation, visiting| {
        let shape = Shape { depth: 0, ..phase(operation).shape };
        run(&Phase { shape, visiting, ..phase(operation) }, directory.path())
    };
    let forward = Visiting::Numbered(Order::Forward);
    flat(Operation::Mkdir, forward).unwrap();
    flat(Operation::Create, forward).unwrap();
    fs::remove_file(directory.path().join("tree/file.mdtest.0.3")).unwrap();
    let error = flat(Operation::Stat, Visiting::Listed).unwrap_err();
    assert!(error.cause.contains("4 entries were listed, and there are 5"), "{error}");
    for more in ["more", "still more"] {
        fs::write(directory.path().join("tree").join(more), "x").unwrap();
    }
    let error = flat(Operation::Remove, Visiting::Listed).unwrap_err();
    assert!(error.cause.contains("6 entries were listed, and there are 5"), "{error}");
}

/// With `-b`, bonnie++ syncs the directory after each file that it makes or removes.
#[test]
fn each_file_that_is_made_or_removed_ends_with_fsync_of_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    run(&phase(Operation::Mkdir), directory.path()).unwrap();
    let (count, made) = (|| files(directory.path()).len(), phase(Operation::Create));
    for (operation, after_one, after_all) in
        [(Operation::Create, 1, 15), (Operation::Remove, 14, 0)]
    {
        let all = Phase { operation, flush_names: true, ..made.clone() };
        let mut broken = ready(&all, directory.path()).unwrap();
        assert_eq!(broken.synced.len(), 3, "each directory is open");
        // What cannot be synced stands for the first directory: it is asked for that after the first file.
        broken.synced[0] = File::open("/dev/null").unwrap();
        assert!(broken.run(&Watch::default()).is_err());
        assert_eq!(count(), after_one, "{operation:?}");
        let first = directory.path().join("tree/file.mdtest.0.0");
        match operation {
            Operation::Create => fs::remove_file(first).unwrap(),
            _ => fs::write(first, "x").unwrap(),
        }
        run(&all, directory.path()).unwrap();
        assert_eq!(count(), after_all, "{operation:?}");
    }
    for operation in [Operation::Stat, Operation::Mkdir, Operation::Rmdir] {
        let phase = Phase { operation, flush_names: true, ..made.clone() };
        assert!(ready(&phase, directory.path()).unwrap().synced.is_empty(), "{operation:?}");
    }
    let phase = phase(Operation::Create);
    assert!(ready(&phase, directory.path()).unwrap().synced.is_empty());
}

#[test]
fn trees_and_files_that_are_too_large_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let large = Shape { depth: 30, branching: 10, files: 1 };
    for wrong in [
        Phase { shape: large, ..phase(Operation::Mkdir) },
        Phase { bytes: BYTES_MAX + 1, ..phase(Operation::Create) },
    ] {
        assert!(run(&wrong, directory.path()).is_err());
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// All files of all workers were the same, byte for byte.
#[test]
fn files_that_are_not_checked_are_all_different() {
    let directory = tempfile::tempdir().unwrap();
    run(&phase(Operation::Mkdir), directory.path()).unwrap();
    let mut found = BTreeSet::new();
    for worker in 0..2 {
        let content = Content { checked: false, ..phase(Operation::Create).content };
        let create = Phase { worker, bytes: 100, content, ..phase(Operation::Create) };
        run(&create, directory.path()).unwrap();
        for index in 0..5 {
            let path = directory.path().join(format!("tree/file.mdtest.{worker}.{index}"));
            // Without what tells them apart in any case.
            found.insert(fs::read(path).unwrap()[8..].to_vec());
        }
    }
    assert_eq!(found.len(), 10);
}
