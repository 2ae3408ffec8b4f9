//! Files that several processes share through several mounts: appends, maps, and locks, whatever becomes of who
//! holds them.

use rustix::fs::{FlockOperation, flock};
use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use strake_tests::applications::Application;
use strake_tests::cluster::{
    Mount, Servers, contents, counted, eventually, may_be_nobody, read_write, succeed,
};
use strake_tests::servers::WAIT;
use strake_tests::system::{LockOwner, Mapping, RangeLock, lock};

/// Bytes of a record.
const RECORD: usize = 1000;
const PAGE: usize = 4096;
/// What no wait reaches where somebody lets go.
const SOON: Duration = Duration::from_secs(60);

fn mounts<const N: usize>(servers: &Servers, names: [&str; N]) -> [Mount; N] {
    names.map(|name| servers.mount(name, ""))
}

fn ask(application: &mut Application, words: &str) -> Vec<u64> {
    application.ask(words).good(words)
}

#[test]
fn appends_of_eight_processes_on_four_mounts_are_all_there_and_whole() {
    append_by_many(true);
}

#[test]
fn appends_of_eight_processes_on_four_mounts_need_no_lock() {
    append_by_many(false);
}

fn append_by_many(locked: bool) {
    const EACH: u64 = 40;
    let servers = Servers::start();
    let mounts = mounts(&servers, ["a", "b", "c", "d"]);
    std::thread::scope(|scope| {
        for nth in 0..8_u64 {
            let path = mounts[nth as usize % 4].at("log").display().to_string();
            scope.spawn(move || {
                let mut application = Application::start();
                let held = match locked {
                    true => format!("hold log {path}.lock cached"),
                    false => format!("hold log {path} end"),
                };
                ask(&mut application, &held);
                ask(&mut application, &format!("open {path}"));
                for record in 1..=EACH {
                    // Of one to three parts.
                    let (parts, mark) = (1 + record % 3, nth * 1000 + record);
                    let words = match locked {
                        true => format!("append log {path} {RECORD} {parts} {mark}"),
                        false => format!("add log {RECORD} {parts} {mark}"),
                    };
                    assert_eq!(ask(&mut application, &words), [parts * RECORD as u64]);
                }
            });
        }
    });
    for mount in &mounts {
        let all = contents(&mount.at("log"));
        let marks: Vec<u64> = all
            .chunks(RECORD)
            .map(|part| {
                let mark = u64::from_le_bytes(part[..8].try_into().unwrap());
                assert!(part.chunks(8).all(|word| word == mark.to_le_bytes()), "it is torn");
                mark
            })
            .collect();
        let mut found = BTreeSet::new();
        for run in marks.chunk_by(|a, b| a == b) {
            assert_eq!(run.len() as u64, 1 + run[0] % 1000 % 3, "{} is not whole", run[0]);
            assert!(found.insert(run[0]), "{} is there twice", run[0]);
        }
        assert_eq!(found.len() as u64, 8 * EACH, "nothing is lost");
    }
}

#[test]
fn a_map_shows_what_another_mount_has_synced() {
    let servers = Servers::start();
    let [a, b] = mounts(&servers, ["a", "b"]);
    fs::write(a.at("file"), vec![1; 4 * PAGE]).unwrap();
    let (file_a, file_b) = (read_write(&a.at("file")), read_write(&b.at("file")));
    let mut map_a = Mapping::new(&file_a, 4 * PAGE, true).unwrap();
    let mut map_b = Mapping::new(&file_b, 4 * PAGE, true).unwrap();
    assert!(map_b.bytes().iter().all(|byte| *byte == 1));
    // A kernel that is busy with the page for long is not waited for: three rounds in a row it has to be there at once.
    let mut in_a_row = 0;
    for round in 2..40_u8 {
        map_a.bytes()[PAGE..2 * PAGE].fill(round);
        map_a.sync().unwrap();
        in_a_row = if map_b.bytes()[PAGE] == round { in_a_row + 1 } else { 0 };
        eventually(SOON, "the map shows it", || map_b.bytes()[PAGE] == round);
        let again = File::open(b.at("file")).unwrap();
        let mut new_map = Mapping::new(&again, 4 * PAGE, false).unwrap();
        // All maps of a mount are of the same pages.
        for map in [&mut map_b, &mut new_map] {
            assert_eq!(map.bytes()[PAGE..2 * PAGE], [round; PAGE]);
            assert!(map.bytes()[..PAGE].iter().all(|byte| *byte == 1));
        }
        assert_eq!(contents(&b.at("file"))[PAGE], round);
        if in_a_row == 3 {
            return;
        }
    }
    panic!("it is never there at once three times in a row");
}

#[test]
fn two_mounts_store_to_different_pages_of_shared_maps_and_both_keep_them() {
    const PAGES: usize = 16;
    let servers = Servers::start();
    let [a, b] = mounts(&servers, ["a", "b"]);
    fs::write(a.at("file"), vec![0; PAGES * PAGE]).unwrap();
    std::thread::scope(|scope| {
        for (mount, own) in [(&a, 0), (&b, 1)] {
            scope.spawn(move || {
                let file = read_write(&mount.at("file"));
                let mut map = Mapping::new(&file, PAGES * PAGE, true).unwrap();
                for page in (own..PAGES).step_by(2) {
                    map.bytes()[page * PAGE..(page + 1) * PAGE].fill(page as u8 + 1);
                    if page % 3 == 0 {
                        map.sync().unwrap();
                    }
                }
                map.sync().unwrap();
            });
        }
    });
    for mount in [&a, &b] {
        for (page, bytes) in contents(&mount.at("file")).chunks(PAGE).enumerate() {
            assert!(bytes.iter().all(|byte| *byte == page as u8 + 1), "page {page}");
        }
    }
}

/// Each holds a lock of its own and waits for that of the next one.
fn circle(count: usize) {
    let servers = Servers::start();
    let mounts = mounts(&servers, ["a", "b", "c"]);
    let mut all: Vec<Application> = (0..count).map(|_| Application::start()).collect();
    for (nth, application) in all.iter_mut().enumerate() {
        for file in 0..count {
            let path = mounts[nth].at(&format!("file{file}")).display().to_string();
            ask(application, &format!("hold {file} {path} cached"));
        }
        ask(application, &format!("lock {nth} process exclude 0 10 try"));
    }
    for (nth, application) in all.iter_mut().enumerate() {
        application.begin(&format!("lock {} process exclude 5 1 wait", (nth + 1) % count));
    }
    // One is refused; when it lets go of its own lock, the one before it goes on, and so on.
    let mut refused = None;
    for _ in 0..600 {
        for (nth, application) in all.iter_mut().enumerate() {
            if let Some(answer) = application.wait_for(Duration::from_millis(50)) {
                assert_eq!(answer.told, Err(libc::EDEADLK), "nobody has let go");
                refused = Some(nth);
                break;
            }
        }
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.expect("a circle is found");
    for step in 0..count - 1 {
        let holder = (refused + count - step) % count;
        ask(&mut all[holder], &format!("lock {holder} process unlock 0 0 try"));
        let before = (holder + count - 1) % count;
        let answer = all[before].wait_for(SOON).expect("its turn has come");
        assert_eq!(answer.told, Ok(Vec::new()));
    }
}

#[test]
fn of_two_processes_on_two_mounts_that_wait_for_each_other_one_is_refused() {
    circle(2);
}

#[test]
fn of_three_processes_on_three_mounts_that_wait_in_a_circle_one_is_refused() {
    circle(3);
}

#[test]
fn locks_of_a_killed_process_are_free_for_other_mounts() {
    let servers = Servers::start();
    let [a, b] = mounts(&servers, ["a", "b"]);
    let (mut holder, mut other) = (Application::start(), Application::start());
    let owners = ["process", "file", "flock"];
    for owner in owners {
        for (mount, application) in [(&a, &mut holder), (&b, &mut other)] {
            ask(application, &format!("hold {owner} {} cached", mount.at(owner).display()));
        }
        ask(&mut holder, &format!("lock {owner} {owner} exclude 0 10 try"));
        let refused = other.ask(&format!("lock {owner} {owner} share 5 1 try"));
        assert_eq!(refused.told, Err(libc::EAGAIN), "{owner}");
    }
    other.begin("lock process process exclude 0 0 wait");
    assert!(other.wait_for(Duration::from_millis(300)).is_none(), "it is held");
    holder.kill();
    let answer = other.wait_for(SOON).expect("who held it is dead");
    assert_eq!(answer.told, Ok(Vec::new()));
    for owner in owners {
        let words = format!("lock {owner} {owner} exclude 0 10 wait");
        other.begin(&words);
        let answer = other.wait_for(SOON).expect("who held it is dead");
        answer.good(&words);
    }
}

/// Who waits and is killed takes nothing from others: neither the lock, nor by standing in a circle.
#[test]
fn a_process_that_is_killed_while_it_waits_leaves_nothing_behind() {
    let servers = Servers::start();
    let [a, b] = mounts(&servers, ["a", "b"]);
    let (mut holder, mut waiter) = (Application::start(), Application::start());
    let mut third = Application::start();
    for (mount, application) in [(&a, &mut holder), (&b, &mut waiter), (&b, &mut third)] {
        for name in ["one", "two"] {
            ask(application, &format!("hold {name} {} cached", mount.at(name).display()));
        }
    }
    ask(&mut holder, "lock one process exclude 0 0 try");
    ask(&mut waiter, "lock two process exclude 0 0 try");
    waiter.begin("lock one process exclude 0 0 wait");
    assert!(waiter.wait_for(Duration::from_millis(300)).is_none(), "it is held");
    waiter.kill();
    holder.begin("lock two process exclude 0 0 wait");
    let answer = holder.wait_for(SOON).expect("who held it is dead");
    assert_eq!(answer.told, Ok(Vec::new()), "it is no circle any more");
    ask(&mut holder, "lock one process unlock 0 0 try");
    third.begin("lock one process exclude 0 0 wait");
    let answer = third.wait_for(SOON).expect("nobody holds it");
    assert_eq!(answer.told, Ok(Vec::new()));
}

#[test]
fn locks_of_a_killed_mount_are_free_when_its_session_is_over() {
    let servers = Servers::start();
    let [mut a, b] = mounts(&servers, ["a", "b"]);
    let (file_a, file_b) = (read_write(&a.at("file")), read_write(&b.at("file")));
    flock(&file_a, FlockOperation::LockExclusive).unwrap();
    lock(&file_a, LockOwner::Process, RangeLock::Exclusive, (0, 10), false).unwrap();
    lock(&file_a, LockOwner::OpenFile, RangeLock::Exclusive, (20, 10), false).unwrap();
    a.process().kill();
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    assert!(flock(&file_b, exclusive).is_err(), "it may come back");
    let mut waiter = Application::start();
    ask(&mut waiter, &format!("hold file {} cached", b.at("file").display()));
    waiter.begin("lock file process exclude 0 0 wait");
    let answer = waiter.wait_for(2 * SOON).expect("its session is over");
    assert_eq!(answer.told, Ok(Vec::new()));
    flock(&file_b, exclusive).unwrap();
}

/// How often the metadata server was told of something written.
fn told(metrics: &str) -> u64 {
    counted(metrics, |line| {
        line.starts_with("strake_meta_ops_total{") && line.contains("\"publish\"")
    })
}

/// Two mounts write disjoint parts of a file by turns; all of it is there when they have synced. How often they told.
fn write_by_turns(mounts: &[Mount; 2], name: &str, metrics: &str) -> u64 {
    const PIECE: usize = 10_000;
    const PIECES: usize = 60;
    fs::write(mounts[0].at(name), vec![0; PIECES * PIECE]).unwrap();
    let handles = [read_write(&mounts[0].at(name)), read_write(&mounts[1].at(name))];
    let before = told(metrics);
    for piece in 0..PIECES {
        let bytes = vec![piece as u8 + 1; PIECE];
        handles[piece % 2].write_all_at(&bytes, (piece * PIECE) as u64).unwrap();
    }
    let count = told(metrics) - before;
    handles.iter().for_each(|handle| handle.sync_all().unwrap());
    let expected: Vec<u8> = (0..PIECES * PIECE).map(|at| (at / PIECE) as u8 + 1).collect();
    for mount in mounts {
        assert!(contents(&mount.at(name)) == expected, "{name}");
    }
    // Longer, and cut, by one; the other looks.
    handles[0].write_all_at(b"more", expected.len() as u64).unwrap();
    handles[0].sync_all().unwrap();
    assert_eq!(fs::metadata(mounts[1].at(name)).unwrap().size(), expected.len() as u64 + 4);
    handles[1].set_len(7).unwrap();
    assert_eq!(fs::metadata(mounts[0].at(name)).unwrap().size(), 7);
    assert_eq!(contents(&mounts[0].at(name)), [1; 7]);
    count
}

#[test]
fn a_directory_says_whether_writers_of_one_file_wait_for_each_other() {
    let (servers, metrics) = Servers::start_counted();
    let mounts = mounts(&servers, ["a", "b"]);
    assert!(write_by_turns(&mounts, "strict", &metrics) >= 60, "each write is told");
    for mode in ["close-to-open", "parallel"] {
        let directory = mounts[0].at(mode);
        fs::create_dir(&directory).unwrap();
        let path = directory.display().to_string();
        succeed(["layout", "set", &path, "--consistency", mode]);
        let shown = succeed(["layout", "get", &path]);
        assert!(shown.contains(&format!("consistency   {mode}")), "{shown}");
        let name = format!("{mode}/file");
        // They tell by themselves each second.
        eventually(WAIT, "writes that are told together", || {
            write_by_turns(&mounts, &name, &metrics) < 30
        });
        let shown = succeed(["layout", "get", &mounts[1].at(&name).display().to_string()]);
        assert!(shown.contains(mode), "{shown}");
    }
}

/// A kernel that was told something of the file ignored the answer that said how long it is, and went by what it knew: what others
/// had appended was written over, and what `fstat` had shown could not be mapped.
#[test]
fn the_end_of_a_file_is_where_the_last_one_who_had_its_lock_has_left_it() {
    const ROUNDS: usize = 100;
    let servers = Servers::start();
    let mounts = mounts(&servers, ["a", "b"]);
    let append = |mount: &Mount, name: &str| {
        let mut file = File::options().read(true).write(true).open(mount.at(name)).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let end = file.seek(SeekFrom::End(0)).unwrap();
        let is_right = file.metadata().unwrap().len() == end;
        file.write_all_at(&[1; RECORD], end).unwrap();
        is_right
    };
    // The first moment is not promised, nor that after seconds in which a busy machine does nothing (S-014).
    let is_whole = |name: &str| {
        fs::write(mounts[0].at(name), "").unwrap();
        let are_right = thread::scope(|scope| {
            let all = |mount| (0..ROUNDS).fold(true, |right, _| append(mount, name) && right);
            let threads = mounts.each_ref().map(|mount| scope.spawn(move || all(mount)));
            threads.map(|thread| thread.join().unwrap())
        });
        let contents = fs::read(mounts[1].at(name)).unwrap();
        are_right == [true; 2] && contents == vec![1; 2 * ROUNDS * RECORD]
    };
    assert!(["f", "g", "h"].into_iter().any(is_whole));
}

/// The kernel was told once more of an earlier change, and ignored the answer that said who may do what by now.
#[test]
fn who_may_open_a_file_is_as_another_mount_has_just_said() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mounts = mounts(&servers, ["a", "b"]);
    fs::write(mounts[0].at("f"), "x").unwrap();
    let (asks, asked) = mpsc::channel::<PathBuf>();
    let (answers, answered) = mpsc::channel();
    let nobody = thread::spawn(move || {
        // Of this thread alone.
        set_thread_uid(Uid::from_raw(65_534)).unwrap();
        asked.iter().for_each(|path| answers.send(File::open(path).is_ok()).unwrap());
    });
    for round in 0..600 {
        let (mode, may) = if round % 2 == 0 { (0o600, false) } else { (0o644, true) };
        let own = usize::from(round % 3 == 1);
        fs::set_permissions(mounts[own].at("f"), fs::Permissions::from_mode(mode)).unwrap();
        asks.send(mounts[1 - own].at("f")).unwrap();
        assert_eq!(answered.recv().unwrap(), may, "{mode:o} in round {round}");
    }
    drop(asks);
    nobody.join().unwrap();
}
