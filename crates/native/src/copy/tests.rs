use super::*;
use crate::contents::Contents;
use crate::local;
use bytes::Bytes;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use strake_base::descriptor;

const OLD: SystemTime = SystemTime::UNIX_EPOCH;

fn job(options: CopyOptions) -> Arc<Job> {
    Job::new(options, Mounts::default(), rustix::process::geteuid().as_raw())
}

fn archive() -> CopyOptions {
    CopyOptions { recursive: true, preserve: true, archive: true, ..CopyOptions::default() }
}

fn name(path: &Path) -> Name {
    let name = Bytes::copy_from_slice(path.file_name().unwrap().as_bytes());
    Directory::Local(path.parent().unwrap().to_path_buf().into()).name(name)
}

/// What a listing has found, and is to become `to`.
async fn found(from: &Path, to: &Path) -> Task {
    let info = name(from).info().await.unwrap().unwrap();
    Task { from: name(from), info, to: name(to), named: false }
}

/// A directory to be copied from, and one to be copied to.
struct Places {
    from: PathBuf,
    to: PathBuf,
    _directory: tempfile::TempDir,
}

impl Places {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        Self { from, to, _directory: directory }
    }

    /// A listing that has found these. The last one is copied first.
    async fn listed(&self, names: &[&str]) -> Vec<Task> {
        let mut tasks = Vec::new();
        for name in names {
            tasks.push(found(&self.from.join(name), &self.to.join(name)).await);
        }
        tasks
    }
}

/// A directory with a file in it, and a time of change that no copy has by itself.
fn make_old_directory(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::write(path.join("x"), "x").unwrap();
    fs::File::open(path).unwrap().set_modified(OLD).unwrap();
}

fn assert_copied(directory: &Path) {
    assert_eq!(fs::read(directory.join("x")).unwrap(), b"x");
    assert_eq!(fs::metadata(directory).unwrap().modified().unwrap(), OLD);
}

/// It was emptied before that was known, and one of several names was taken away.
#[tokio::test]
async fn a_source_that_cannot_be_opened_takes_nothing_away() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["plain", "one"] {
        fs::write(at(name), "old").unwrap();
    }
    symlink("plain", at("link")).unwrap();
    fs::hard_link(at("one"), at("other")).unwrap();
    for length in [10, 2 << 20, 17 << 20] {
        for to in ["plain", "link", "one"] {
            fs::File::create(at("source")).unwrap().set_len(length).unwrap();
            let task = Task { named: true, ..found(&at("source"), &at(to)).await };
            fs::remove_file(at("source")).unwrap();
            let error = job(archive()).copy_file(&task).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::NotFound, "{length} to {to}: {error}");
            for name in ["plain", "one", "other"] {
                assert_eq!(fs::read(at(name)).unwrap(), b"old", "{length} to {to}: {name}");
            }
            assert_eq!(fs::metadata(at("one")).unwrap().nlink(), 2, "{length} to {to}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4, "{length} to {to}");
        }
    }
}

/// It was emptied at once, and one of several names was taken away.
#[tokio::test]
async fn a_source_that_cannot_be_read_to_its_end_takes_nothing_away() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["plain", "one"] {
        fs::write(at(name), "old").unwrap();
    }
    fs::hard_link(at("one"), at("other")).unwrap();
    for length in [2 << 20, 17 << 20] {
        for to in ["plain", "one"] {
            fs::write(at("source"), vec![1; length]).unwrap();
            let task = found(&at("source"), &at(to)).await;
            // As if it had become shorter when it was open already.
            fs::File::options().write(true).open(at("source")).unwrap().set_len(1 << 20).unwrap();
            for preserve in [false, true] {
                let job = job(CopyOptions { resume: false, preserve, ..archive() });
                let error = job.copy_file(&task).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::Stale, "{length} to {to}: {error}");
                // It named the copy, twice.
                let told = format!("{}: the source became shorter", at("source").display());
                assert!(error.to_string().starts_with(&told), "{error}");
            }
            for name in ["plain", "one", "other"] {
                assert_eq!(fs::read(at(name)).unwrap(), b"old", "{length} to {to}: {name}");
            }
            assert_eq!(fs::metadata(at("one")).unwrap().nlink(), 2, "{length} to {to}");
            let is_left = |e: &fs::DirEntry| e.file_name().as_bytes().ends_with(b".strake-partial");
            let entries = fs::read_dir(directory.path()).unwrap().map(Result::unwrap);
            // What there is of a large one is for the next copy.
            let left = entries.filter(is_left).count();
            assert!(left == 0 || length >= 16 << 20, "{length} to {to}");
        }
    }
}

/// The other names of a copy are those of other files by now.
#[tokio::test]
async fn a_small_file_is_replaced_when_the_new_one_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    // Not as long as the old one: with one time it would count as there.
    fs::write(at("source"), "newer").unwrap();
    fs::write(at("one"), "old").unwrap();
    fs::hard_link(at("one"), at("other")).unwrap();
    // Of a copy that is under way.
    fs::write(at(".one-7-0.0.strake-partial"), "of another one").unwrap();
    let task = found(&at("source"), &at("one")).await;
    job(archive()).copy_file(&task).await.unwrap();
    assert_eq!(fs::read(at("one")).unwrap(), b"newer");
    assert_eq!(fs::read(at("other")).unwrap(), b"old");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
}

/// It stayed half a copy: small ones that nobody but their owner may read, large ones with a name of their own.
#[tokio::test]
async fn what_vanishes_while_it_is_copied_is_copied_whole() {
    for length in [10, 2 << 20, 17 << 20] {
        let places = Places::new();
        let (source, copy) = (places.from.join("f"), places.to.join("f"));
        fs::write(&source, vec![1; length]).unwrap();
        fs::set_permissions(&source, fs::Permissions::from_mode(0o644)).unwrap();
        fs::File::open(&source).unwrap().set_modified(OLD).unwrap();
        let (task, job) = (found(&source, &copy).await, job(archive()));
        let from = file::Source::open(&task, &job.pool).await.unwrap();
        fs::remove_file(&source).unwrap();
        job.copy_opened(&task, &from, None).await.unwrap();
        let there = fs::metadata(&copy).unwrap();
        assert_eq!((there.len(), there.mode() & 0o777), (length as u64, 0o644));
        assert_eq!(there.modified().unwrap(), OLD, "{length}");
        assert_eq!(fs::read_dir(&places.to).unwrap().count(), 1, "{length}");
    }
}

/// It counted as gone, and half a copy of it as none.
#[tokio::test]
async fn what_is_cut_and_vanishes_while_it_is_copied_is_a_failure() {
    let places = Places::new();
    let source = places.from.join("f");
    fs::write(&source, vec![1; 2 << 20]).unwrap();
    let (task, job) = (found(&source, &places.to.join("f")).await, job(archive()));
    let from = file::Source::open(&task, &job.pool).await.unwrap();
    fs::File::options().write(true).open(&source).unwrap().set_len(0).unwrap();
    fs::remove_file(&source).unwrap();
    let error = job.copy_opened(&task, &from, None).await.unwrap_err();
    job.failed(error).unwrap();
    assert_eq!(job.failures.lock().count(), 1);
}

/// Its contents got the length and the times of the other one.
#[tokio::test]
async fn a_source_in_whose_place_another_file_has_come_is_a_failure() {
    for length in [10, 2 << 20] {
        let places = Places::new();
        let (source, copy) = (places.from.join("f"), places.to.join("f"));
        fs::write(&source, vec![1; length]).unwrap();
        fs::write(&copy, "old").unwrap();
        let task = found(&source, &copy).await;
        fs::write(places.from.join("other"), vec![2; length]).unwrap();
        fs::rename(places.from.join("other"), &source).unwrap();
        let error = job(archive()).copy_file(&task).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Stale, "{error}");
        assert_eq!(fs::read(&copy).unwrap(), b"old");
    }
}

/// The first one was the end of the copy.
#[tokio::test]
async fn what_vanishes_from_a_tree_is_no_failure_and_all_else_is_copied() {
    for streams in [1, 16] {
        let places = Places::new();
        make_old_directory(&places.from.join("sub"));
        fs::create_dir(places.from.join("gone directory")).unwrap();
        for file in ["gone", "kept"] {
            fs::write(places.from.join(file), file).unwrap();
        }
        let tasks = places.listed(&["sub", "kept", "gone directory", "gone"]).await;
        fs::remove_dir(places.from.join("gone directory")).unwrap();
        fs::remove_file(places.from.join("gone")).unwrap();
        let job = job(CopyOptions { streams, ..archive() });
        tree::copy_all(&job, tasks).await.unwrap();
        assert_eq!(*job.failures.lock(), Failures::default());
        assert_eq!(job.counters.summary().gone, 2);
        assert_copied(&places.to.join("sub"));
        assert_eq!(fs::read(places.to.join("kept")).unwrap(), b"kept");
        assert_eq!(fs::read_dir(&places.to).unwrap().count(), 2, "nothing of what is gone");
    }
}

/// All that was in it counted as gone, and the copy as one of all.
#[tokio::test]
async fn a_named_directory_that_is_moved_away_while_it_is_copied_is_a_failure() {
    let places = Places::new();
    let named = [found(&places.from, &places.to.join("from")).await];
    let failures = async |gone: u64| {
        let job = job(archive());
        job.counters.entries_gone.store(gone, Ordering::Relaxed);
        job.check_named(&named).await.unwrap();
        let failures = std::mem::take(&mut *job.failures.lock());
        failures.first.into_iter().map(|error| error.kind).collect::<Vec<_>>()
    };
    assert_eq!(failures(1).await, [], "it is there");
    fs::rename(&places.from, places.to.join("moved")).unwrap();
    assert_eq!(failures(0).await, [], "nothing of it was missed");
    assert_eq!(failures(1).await, [ErrorKind::NotFound]);
    fs::create_dir(&places.from).unwrap();
    assert_eq!(failures(1).await, [ErrorKind::Stale]);
}

/// The same; and what was named is to be there.
#[tokio::test]
async fn what_cannot_be_copied_is_named_and_all_else_is_copied() {
    let places = Places::new();
    make_old_directory(&places.from.join("sub"));
    for file in ["bad", "gone"] {
        fs::write(places.from.join(file), file).unwrap();
    }
    // No file is written there.
    fs::create_dir(places.to.join("bad")).unwrap();
    let mut tasks = places.listed(&["sub", "bad", "gone"]).await;
    tasks.iter_mut().for_each(|task| task.named = true);
    fs::remove_file(places.from.join("gone")).unwrap();
    let job = job(CopyOptions { streams: 1, ..archive() });
    tree::copy_all(&job, tasks).await.unwrap();
    let failures = job.failures.lock();
    let kinds: Vec<_> = failures.first.iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [ErrorKind::NotFound, ErrorKind::IsDirectory], "{failures:?}");
    assert!(failures.first.iter().zip(["gone", "bad"]).all(|(e, name)| e.detail.contains(name)));
    assert_copied(&places.to.join("sub"));
}

/// Every entry of it failed by itself, and the file got the mode and the times of the directory.
#[tokio::test]
async fn a_directory_is_not_copied_into_a_file() {
    let places = Places::new();
    make_old_directory(&places.from.join("sub"));
    fs::write(places.to.join("sub"), "a file").unwrap();
    let before = fs::metadata(places.to.join("sub")).unwrap();
    let (tasks, job) = (places.listed(&["sub"]).await, job(archive()));
    tree::copy_all(&job, tasks).await.unwrap();
    let failures = job.failures.lock();
    let kinds: Vec<_> = failures.first.iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [ErrorKind::NotDirectory], "{failures:?}");
    let after = fs::metadata(places.to.join("sub")).unwrap();
    assert_eq!(
        (after.mode(), after.modified().unwrap()),
        (before.mode(), before.modified().unwrap())
    );
    assert_eq!(fs::read(places.to.join("sub")).unwrap(), b"a file");
}

/// Under the first of the names lies what a copy of yesterday has brought: it is not this file.
#[tokio::test]
async fn a_file_whose_first_name_has_gone_is_copied_once_by_its_others() {
    let places = Places::new();
    fs::write(places.from.join("a"), "new contents").unwrap();
    for other in ["b", "c"] {
        fs::hard_link(places.from.join("a"), places.from.join(other)).unwrap();
    }
    fs::write(places.to.join("a"), "old").unwrap();
    let tasks = places.listed(&["c", "b", "a"]).await;
    fs::remove_file(places.from.join("a")).unwrap();
    let job = job(archive());
    tree::copy_all(&job, tasks).await.unwrap();
    assert_eq!(*job.failures.lock(), Failures::default());
    let ino = |name: &str| fs::metadata(places.to.join(name)).unwrap().ino();
    for name in ["b", "c"] {
        assert_eq!(fs::read(places.to.join(name)).unwrap(), b"new contents", "{name}");
    }
    assert_eq!(ino("b"), ino("c"));
    assert_eq!(fs::read(places.to.join("a")).unwrap(), b"old");
    let counted = job.counters.now();
    assert_eq!((counted.bytes_done, counted.bytes_total), (12, 24), "what is gone was found");
}

/// What had the name was gone by then.
#[tokio::test]
async fn a_further_name_that_cannot_be_made_takes_nothing_away() {
    let places = Places::new();
    fs::write(places.from.join("a"), "new").unwrap();
    fs::hard_link(places.from.join("a"), places.from.join("b")).unwrap();
    fs::write(places.to.join("b"), "old").unwrap();
    let (tasks, job) = (places.listed(&["a", "b"]).await, job(archive()));
    let mut links = links::Links::default();
    assert!(!links.take(&job, &tasks[0]) && links.take(&job, &tasks[1]));
    // No directory gets further names.
    fs::create_dir(places.to.join("a")).unwrap();
    links.make(&job).await.unwrap();
    assert_eq!(job.failures.lock().count(), 1);
    assert_eq!(fs::read(places.to.join("b")).unwrap(), b"old");
    assert_eq!(fs::read_dir(&places.to).unwrap().count(), 2);
}

fn partial_of(task: &Task) -> Name {
    task.to.directory.name(partial::partial_name(&task.to.name, &task.info))
}

/// It was said to be interrupted before all was copied, when all was.
#[tokio::test]
async fn a_copy_that_is_to_stop_when_nothing_is_left_is_whole() {
    let places = Places::new();
    fs::write(places.from.join("a"), "new").unwrap();
    let (_stop, told) = watch::channel(true);
    let stopped = || job(CopyOptions { stop: Some(told.clone()), ..archive() });
    tree::copy_all(&stopped(), Vec::new()).await.unwrap();
    let error = tree::copy_all(&stopped(), places.listed(&["a"]).await).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Interrupted);
    // What was under way, and ended early.
    let cut = stopped();
    cut.failed(ErrorKind::Interrupted.into()).unwrap();
    assert_eq!(tree::copy_all(&cut, Vec::new()).await.unwrap_err().kind, ErrorKind::Interrupted);
}

/// Both wrote to one file; and the one that was stopped cut what the other had given its name.
#[tokio::test]
async fn a_partial_copy_that_another_one_is_at_is_left_alone() {
    let places = Places::new();
    let (source, copy) = (places.from.join("f"), places.to.join("f"));
    fs::write(&source, vec![1; 17 << 20]).unwrap();
    let task = found(&source, &copy).await;
    let partial = partial_of(&task).local_path().unwrap();
    fs::write(&partial, "of another one").unwrap();
    let other = fs::File::open(&partial).unwrap();
    descriptor::lock_within(&other, Duration::ZERO).unwrap();
    for is_locked in [true, false] {
        job(archive()).copy_file(&task).await.unwrap();
        assert!(fs::read(&copy).unwrap() == vec![1; 17 << 20]);
        assert_eq!(partial.exists(), is_locked, "it is gone on with when the other one is gone");
        assert_eq!(fs::read_dir(&places.to).unwrap().count(), 1 + usize::from(is_locked));
        if is_locked {
            assert_eq!(fs::read(&partial).unwrap(), b"of another one");
            fs::remove_file(&copy).unwrap();
            rustix::fs::flock(&other, rustix::fs::FlockOperation::Unlock).unwrap();
        }
    }
}

/// It had the source's mode: it could not be opened again, and each further copy failed.
#[tokio::test]
async fn what_a_read_only_file_grows_as_may_be_opened_again_by_its_owner() {
    let places = Places::new();
    let (source, copy) = (places.from.join("f"), places.to.join("f"));
    fs::write(&source, vec![1; 17 << 20]).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o444)).unwrap();
    let plain = 0o444 & !local::umask();
    let anew = CopyOptions { resume: false, ..CopyOptions::default() };
    for (options, expected) in [(CopyOptions::default(), plain), (anew, plain), (archive(), 0o444)]
    {
        let (task, job) = (found(&source, &copy).await, job(options));
        // As a copy that was killed leaves it.
        let left = job.grow(&task).await.unwrap();
        assert_eq!(mode(&left.name.local_path().unwrap()) & 0o600, 0o600);
        drop(left);
        job.copy_file(&task).await.unwrap();
        assert_eq!(mode(&copy), expected);
        assert_eq!(fs::read_dir(&places.to).unwrap().count(), 1, "it was gone on with");
        fs::remove_file(&copy).unwrap();
    }
    // What is written in its place keeps its mode.
    fs::write(&copy, "old").unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o644)).unwrap();
    symlink("f", places.to.join("link")).unwrap();
    let task = found(&source, &places.to.join("link")).await;
    job(CopyOptions::default()).copy_file(&task).await.unwrap();
    assert_eq!((mode(&copy), fs::metadata(&copy).unwrap().len()), (0o644, 17 << 20));
}

/// It has its source's time of change before it has its name: another copy that ended then removed it, and this one failed.
#[tokio::test]
async fn a_copy_that_grows_aside_stays_until_it_has_its_name() {
    let places = Places::new();
    fs::write(places.from.join("f"), vec![1; 17 << 20]).unwrap();
    let task = found(&places.from.join("f"), &places.to.join("f")).await;
    let job = job(archive());
    let first = job.grow(&task).await.unwrap();
    let second = job.grow(&task).await.unwrap();
    assert!(first.is_kept && !second.is_kept);
    let long_ago = |process: u32| places.to.join(format!(".f-{process:x}-1.0.strake-partial"));
    let set_old = |path: &Path| {
        fs::File::options().write(true).open(path).unwrap().set_modified(OLD).unwrap();
    };
    // As if it had begun long ago.
    let (large, small) = (long_ago(7), task.to.directory.name(partial::aside_name(b"f")));
    fs::rename(second.name.local_path().unwrap(), &large).unwrap();
    set_old(&large);
    // A smaller one, which nobody has locked.
    let small = small.local_path().unwrap();
    fs::write(&small, "small").unwrap();
    set_old(&small);
    job.place(&task.to);
    job.remove_stale().await;
    assert!(large.exists() && small.exists());
    drop(second);
    fs::rename(&small, long_ago(8)).unwrap();
    job.place(&task.to);
    job.remove_stale().await;
    assert!(!large.exists() && !long_ago(8).exists(), "nobody is at them");
}

/// Only its name and its time said that it had just begun: where a clock was set another copy removed it.
#[tokio::test]
async fn a_smaller_copy_that_grows_aside_is_locked_while_it_is_written() {
    let places = Places::new();
    fs::write(places.from.join("f"), vec![1; 2 << 20]).unwrap();
    fs::write(places.to.join("f"), "old").unwrap();
    let task = found(&places.from.join("f"), &places.to.join("f")).await;
    let job = job(archive());
    let all = u32::try_from(job.room.available_permits()).unwrap();
    let room = job.room.clone().acquire_many_owned(all).await.unwrap();
    let mut copying = std::pin::pin!(job.copy_file(&task));
    // It waits for room to read, when it has made the other file and locked it.
    let is_locked = async {
        loop {
            tokio::time::timeout(Duration::from_millis(50), &mut copying).await.unwrap_err();
            let names = task.to.directory.names(partial::is_partial).await.unwrap();
            let Some(aside) = names.first() else { continue };
            let other = fs::File::open(aside.local_path().unwrap()).unwrap();
            if let Err(error) = descriptor::lock_within(&other, Duration::ZERO) {
                break assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_locked).await.expect("it is locked");
    drop(room);
    assert!(copying.await.unwrap());
    assert!(fs::read(places.to.join("f")).unwrap() == vec![1; 2 << 20]);
}

/// Its copy was taken for a part of the other file, and got the name of that.
#[tokio::test]
async fn a_source_that_is_called_as_a_partial_copy_is_copied_as_well() {
    let places = Places::new();
    fs::write(places.from.join("f"), vec![1; 17 << 20]).unwrap();
    let task = found(&places.from.join("f"), &places.to.join("f")).await;
    let left = String::from_utf8(partial_of(&task).name.to_vec()).unwrap();
    // Nor was it one that had been left, and went.
    fs::write(places.from.join(&left), "left").unwrap();
    let source = fs::File::options().write(true).open(places.from.join(&left)).unwrap();
    source.set_modified(OLD).unwrap();
    for names in [["f", &left[..]], [&left[..], "f"]] {
        let (tasks, job) =
            (places.listed(&names).await, job(CopyOptions { streams: 1, ..archive() }));
        tree::copy_all(&job, tasks).await.unwrap();
        assert_eq!(*job.failures.lock(), Failures::default());
        assert!(fs::read(places.to.join("f")).unwrap() == vec![1; 17 << 20]);
        for name in names {
            fs::remove_file(places.to.join(name)).unwrap();
        }
        assert_eq!(fs::read_dir(&places.to).unwrap().count(), 0);
    }
}

/// As it has the time of its source before it gets its final name, it counted as stopped in order: all on disk.
#[tokio::test]
async fn a_whole_partial_copy_that_never_got_its_name_is_compared() {
    let places = Places::new();
    let (source, copy) = (places.from.join("f"), places.to.join("f"));
    let mut contents = vec![1_u8; 17 << 20];
    fs::write(&source, &contents).unwrap();
    fs::File::options().write(true).open(&source).unwrap().set_modified(OLD).unwrap();
    let task = found(&source, &copy).await;
    contents[5 << 20] = 0;
    let partial = partial_of(&task).local_path().unwrap();
    fs::write(&partial, contents).unwrap();
    fs::File::options().write(true).open(&partial).unwrap().set_modified(OLD).unwrap();
    let job = job(archive());
    job.copy_file(&task).await.unwrap();
    assert!(fs::read(&copy).unwrap() == vec![1; 17 << 20]);
    assert_eq!(job.counters.summary().bytes_kept, 4 << 20);
}

/// Nothing was shown of it, for an hour where much was there.
#[tokio::test]
async fn what_is_compared_counts_on_the_way_as_far_as_it_is_the_same() {
    let places = Places::new();
    let (source, copy) = (places.from.join("f"), places.to.join("f"));
    let mut contents = vec![1_u8; 17 << 20];
    fs::write(&source, &contents).unwrap();
    for (differs, same) in [(None, 16 << 20), (Some(9 << 20), 8 << 20), (Some(0), 0)] {
        if let Some(at) = differs {
            contents[at] = 0;
        }
        fs::write(&copy, &contents).unwrap();
        let (task, job) = (found(&source, &copy).await, job(archive()));
        let there = task.to.info().await.unwrap().unwrap();
        let from = Contents::open(&task.from, &task.info, &job.pool).await.unwrap();
        let to = Contents::open(&task.to, &there, &job.pool).await.unwrap();
        assert_eq!(job.same_part(&from, &to, there.length).await.unwrap(), same);
        assert_eq!(job.counters.summary().bytes_kept, same);
    }
}

/// Who compares what is there writes nothing: after ten minutes it counted as left by nobody.
#[tokio::test]
async fn a_partial_copy_of_an_earlier_source_stays_while_another_one_is_at_it() {
    let places = Places::new();
    let partial = places.to.join(".f-1100000-1.0.strake-partial");
    fs::write(places.from.join("f"), "new").unwrap();
    fs::write(&partial, "of another one").unwrap();
    let other = fs::File::options().write(true).open(&partial).unwrap();
    other.set_modified(OLD).unwrap();
    descriptor::lock_within(&other, Duration::ZERO).unwrap();
    for is_locked in [true, false] {
        if !is_locked {
            rustix::fs::flock(&other, rustix::fs::FlockOperation::Unlock).unwrap();
        }
        // It is replaced, by one that grows aside.
        fs::write(places.to.join("f"), "older").unwrap();
        tree::copy_all(&job(archive()), places.listed(&["f"]).await).await.unwrap();
        assert_eq!(fs::read(places.to.join("f")).unwrap(), b"new");
        assert_eq!(partial.exists(), is_locked);
    }
}

/// It looked at all of them, and waited for each where the cluster did not answer.
#[tokio::test]
async fn a_copy_that_is_stopped_looks_for_no_more_partial_copies() {
    let places = Places::new();
    let partial = places.to.join(".f-1100000-1.0.strake-partial");
    fs::write(&partial, "left").unwrap();
    let left = fs::File::options().write(true).open(&partial).unwrap();
    left.set_modified(OLD).unwrap();
    let (stop, told) = watch::channel(true);
    let job = job(CopyOptions { stop: Some(told), ..archive() });
    for is_stopped in [true, false] {
        stop.send(is_stopped).unwrap();
        job.place(&name(&places.to.join("f")));
        job.remove_stale().await;
        assert_eq!(partial.exists(), is_stopped);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// It got the owner and the mode of the directory: who could write beside that had any directory of the machine made his, by a link, and
/// any that lay beside it, by a rename.
#[tokio::test]
async fn what_takes_the_place_of_a_directory_gets_none_of_its_attributes() {
    for is_link in [true, false] {
        replace_while_filled(is_link).await;
    }
}

async fn replace_while_filled(is_link: bool) {
    let places = Places::new();
    let (source, copy) = (places.from.join("d"), places.to.join("d"));
    let (moved, other) = (places.to.join("moved"), places.to.join("other"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(source.join("f"), vec![1; 2 << 20]).unwrap();
    set_mode(&source, 0o711);
    set_mode(&other, 0o700);
    let (tasks, job) = (places.listed(&["d"]).await, job(archive()));
    let all = u32::try_from(job.room.available_permits()).unwrap();
    let room = job.room.clone().acquire_many_owned(all).await.unwrap();
    let mut copying = std::pin::pin!(tree::copy_all(&job, tasks));
    // The file in it waits for room.
    let is_entered = async {
        while !copy.join("f").exists() {
            tokio::time::timeout(Duration::from_millis(50), &mut copying).await.unwrap_err();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_entered).await.expect("it is entered");
    fs::rename(&copy, &moved).unwrap();
    match is_link {
        true => symlink("other", &copy).unwrap(),
        false => fs::rename(&other, &copy).unwrap(),
    }
    drop(room);
    copying.await.unwrap();
    let failures = job.failures.lock();
    let kinds: Vec<_> = failures.first.iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [ErrorKind::Stale], "{failures:?}");
    assert!(failures.first[0].detail.contains(copy.to_str().unwrap()), "{failures:?}");
    assert_eq!(mode(&copy), 0o700, "what is there now");
    assert!(fs::read(moved.join("f")).unwrap() == vec![1; 2 << 20]);
}

/// Only the last name was looked at: what came later was written to where a link led by then.
#[tokio::test]
async fn nothing_is_written_through_a_link_in_the_place_of_a_directory() {
    let places = Places::new();
    let (source, copy, other) =
        (places.from.join("f"), places.to.join("d"), places.to.join("other"));
    fs::create_dir_all(other.join("sub")).unwrap();
    fs::write(&source, "new").unwrap();
    let made = name(&copy).make_directory(0o755).await.unwrap();
    let below = made.name("sub".into()).make_directory(0o755).await.unwrap();
    fs::rename(&copy, places.to.join("moved")).unwrap();
    symlink("other", &copy).unwrap();
    let info = name(&source).info().await.unwrap().unwrap();
    for to in [made.name("f".into()), below.name("f".into())] {
        let task = Task { from: name(&source), info: info.clone(), to, named: false };
        let error = job(archive()).copy_file(&task).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotDirectory, "{error}");
        assert!(error.detail.contains(&task.to.shown()), "{error}");
        task.to.make_node(&Info { kind: FileKind::Fifo, ..info.clone() }).await.unwrap_err();
    }
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    assert_eq!(fs::read_dir(other.join("sub")).unwrap().count(), 0);
}

/// Their owner and their mode went to what a link led to by then.
#[tokio::test]
async fn what_takes_the_place_of_a_kept_file_or_of_a_pipe_gets_none_of_its_attributes() {
    let places = Places::new();
    let (from, to) = (|name: &str| places.from.join(name), |name: &str| places.to.join(name));
    for path in [from("f"), to("f"), to("other")] {
        fs::write(path, "x").unwrap();
    }
    set_mode(&to("other"), 0o600);
    set_mode(&to("f"), 0o600);
    let task = found(&from("f"), &to("f")).await;
    let there = task.to.info().await.unwrap().unwrap();
    fs::rename(to("f"), to("moved")).unwrap();
    symlink("other", to("f")).unwrap();
    let error = job(archive()).keep(&task, &there).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Stale, "{error}");
    let fifo = Info { kind: FileKind::Fifo, mode: 0o600, ..there };
    for path in [from("pipe"), to("another's")] {
        name(&path).make_node(&fifo).await.unwrap();
    }
    set_mode(&from("pipe"), 0o640);
    let task = found(&from("pipe"), &to("pipe")).await;
    symlink("other", to("pipe")).unwrap();
    for is_link in [true, false] {
        if !is_link {
            fs::remove_file(to("pipe")).unwrap();
            fs::hard_link(to("another's"), to("pipe")).unwrap();
        }
        let made = attributes::Copied::Made(None);
        let error = job(archive()).finish_attributes(&task, &task.to, made).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Stale, "{error}");
    }
    assert_eq!((mode(&to("other")), mode(&to("another's"))), (0o600, 0o600));
}

/// It was one of the same kind.
#[tokio::test]
async fn another_device_is_not_the_one_that_was_made() {
    let there = name(&Places::new().from).info().await.unwrap().unwrap();
    let device = |rdev| Info { kind: FileKind::BlockDevice, nlink: 1, rdev, ..there.clone() };
    assert!(attributes::is_like(&device(7), &device(7)));
    assert!(!attributes::is_like(&device(8), &device(7)));
}

/// It was emptied, and written: he had it open, and read what was copied, whatever its mode.
#[tokio::test]
async fn what_somebody_makes_in_the_place_of_a_new_file_is_a_file_that_was_there() {
    for length in [10, 2 << 20] {
        let places = Places::new();
        let (source, copy) = (places.from.join("f"), places.to.join("f"));
        fs::write(&source, vec![1; length]).unwrap();
        let task = found(&source, &copy).await;
        let copied = async |options: CopyOptions| {
            let job = job(options);
            let from = file::Source::open(&task, &job.pool).await.unwrap();
            job.copy_opened(&task, &from, None).await
        };
        fs::write(&copy, "his").unwrap();
        set_mode(&copy, 0o666);
        let (his, ino) = (fs::File::open(&copy).unwrap(), fs::metadata(&copy).unwrap().ino());
        copied(archive()).await.unwrap();
        assert_eq!(his.metadata().unwrap().len(), 3, "what he has open");
        let there = fs::metadata(&copy).unwrap();
        assert_eq!(there.len(), length as u64);
        assert_ne!(there.ino(), ino);
        // The contents alone are written in place.
        fs::write(&copy, "his").unwrap();
        set_mode(&copy, 0o666);
        copied(CopyOptions::default()).await.unwrap();
        assert_eq!((fs::read(&copy).unwrap().len(), mode(&copy)), (length, 0o666));
        fs::remove_file(&copy).unwrap();
        symlink("other", &copy).unwrap();
        let error = copied(archive()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Stale, "{error}");
        assert_eq!(fs::read_dir(&places.to).unwrap().count(), 1);
    }
}

/// It was emptied, and written: whoever had made it read what came out of the pipe.
#[tokio::test]
async fn what_somebody_makes_while_a_pipe_waits_for_a_writer_is_not_written() {
    let places = Places::new();
    let (source, copy) = (places.from.join("pipe"), places.to.join("f"));
    fs::write(&source, "new").unwrap();
    let task = found(&source, &copy).await;
    let copied = async |there: Option<Info>| {
        let from = fs::File::open(&source).unwrap();
        job(archive()).copy_opened_stream(&task, from, there).await
    };
    fs::write(&copy, "his").unwrap();
    let error = copied(None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Stale, "{error}");
    assert_eq!(fs::read(&copy).unwrap(), b"his");
    let there = task.to.info().await.unwrap();
    copied(there).await.unwrap();
    assert_eq!(fs::read(&copy).unwrap(), b"new", "what was there");
    fs::remove_file(&copy).unwrap();
    copied(None).await.unwrap();
    assert_eq!(fs::read(&copy).unwrap(), b"new");
}

/// They read what nobody else was to read, and could go on writing to it.
#[tokio::test]
async fn a_partial_copy_that_others_may_have_open_is_not_gone_on_with() {
    let places = Places::new();
    let source = places.from.join("f");
    fs::File::create(&source).unwrap().set_len(17 << 20).unwrap();
    set_mode(&source, 0o600);
    let task = found(&source, &places.to.join("f")).await;
    let (partial, another) = (partial_of(&task).local_path().unwrap(), places.to.join("another"));
    for (rights, is_named_twice, is_kept) in
        [(0o600, false, true), (0o400, false, true), (0o666, false, false), (0o600, true, false)]
    {
        fs::write(&partial, "").unwrap();
        set_mode(&partial, rights);
        if is_named_twice {
            fs::hard_link(&partial, &another).unwrap();
        }
        let growing = job(archive()).grow(&task).await.unwrap();
        assert_eq!(growing.is_kept, is_kept, "{rights:o} {is_named_twice}");
        let left = fs::read_dir(&places.to).unwrap().count();
        assert_eq!(left, 1 + usize::from(is_named_twice) + usize::from(!is_kept));
        growing.name.remove(false).await.unwrap();
        if !is_kept {
            fs::remove_file(&partial).unwrap();
        }
    }
}

/// Each copy failed until it was removed by hand.
#[tokio::test]
async fn what_is_no_file_under_the_name_of_a_partial_copy_keeps_no_copy_from_its_end() {
    for is_link in [true, false] {
        let places = Places::new();
        let (source, copy) = (places.from.join("f"), places.to.join("f"));
        fs::write(&source, vec![1; 17 << 20]).unwrap();
        let task = found(&source, &copy).await;
        let partial = partial_of(&task).local_path().unwrap();
        match is_link {
            true => symlink("nowhere", &partial).unwrap(),
            false => fs::create_dir(&partial).unwrap(),
        }
        job(archive()).copy_file(&task).await.unwrap();
        assert!(fs::read(&copy).unwrap() == vec![1; 17 << 20]);
        assert!(partial.symlink_metadata().is_ok());
        assert_eq!(fs::read_dir(&places.to).unwrap().count(), 2);
    }
}

/// As NFS gives what root makes to somebody else.
#[tokio::test]
async fn a_partial_copy_is_gone_on_with_where_the_file_system_gives_it_another_owner() {
    let places = Places::new();
    fs::File::create(places.from.join("f")).unwrap().set_len(17 << 20).unwrap();
    let task = found(&places.from.join("f"), &places.to.join("f")).await;
    let job = Job::new(archive(), Mounts::default(), u32::MAX - 1);
    for _ in 0..2 {
        assert!(job.grow(&task).await.unwrap().is_kept);
        assert_eq!(fs::read_dir(&places.to).unwrap().count(), 1);
    }
}
