//! What the kernel of a mount goes on with while pages wait for a storage server that says nothing.

use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_tests::cluster::{Mount, eventually, read_write};
use strake_tests::servers::{Cluster, WAIT};
use strake_tests::system::Mapping;

/// Directories whose files lie on the first storage server, and on the second one.
const SILENT: &str = "silent";
const ANSWERS: &str = "answers";
const PAGE: usize = 4096;
const CHUNK: u64 = 1 << 20;

/// Two storage servers, and a mount in which files are made.
fn start() -> (Cluster, Mount) {
    let cluster = Cluster::start(2);
    let maker = cluster.mount("maker");
    for (name, target) in [(SILENT, "1"), (ANSWERS, "2")] {
        let path = maker.at(name);
        fs::create_dir(&path).unwrap();
        cluster.succeed(&["layout", "set", "--targets", target, path.to_str().unwrap()]);
    }
    (cluster, maker)
}

/// Makes a file with a page of something in each of its chunks: two, or it would lie with the metadata server.
fn make(mount: &Mount, name: &str, chunks: u64) {
    let file = File::create(mount.at(name)).unwrap();
    (0..chunks).for_each(|nth| file.write_all_at(&[7; PAGE], nth * CHUNK).unwrap());
    file.sync_all().unwrap();
}

/// The server of [`SILENT`] says nothing until this is dropped.
struct Silence<'a>(&'a Cluster);

impl<'a> Silence<'a> {
    fn of(cluster: &'a Cluster) -> Self {
        cluster.signal(0, "STOP");
        Self(cluster)
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        self.0.signal(0, "CONT");
    }
}

/// Those who read a page each.
#[derive(Default)]
struct Readers {
    began: AtomicU64,
    ended: AtomicU64,
}

impl Readers {
    fn read(&self, file: &File, chunk: u64) {
        self.began.fetch_add(1, Ordering::SeqCst);
        // It fails where it has to wait for too long.
        let _read = file.read_at(&mut [0; PAGE], chunk * CHUNK);
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn have_begun(&self, count: u64) {
        eventually(WAIT, "all read", || self.began.load(Ordering::SeqCst) == count);
        // What they ask for is on its way.
        std::thread::sleep(Duration::from_millis(500));
    }

    fn all_wait(&self) -> bool {
        self.ended.load(Ordering::SeqCst) == 0
    }
}

/// A kernel that was told of a limit kept all further reads of pages, and the RELEASE that gives a lock back, until those
/// before had failed.
#[test]
fn reads_that_wait_for_a_silent_server_keep_nothing_else_in_the_kernel() {
    const READERS: u64 = 200;
    let (cluster, maker) = start();
    let a = cluster.mount("a");
    let [read, other, locked] =
        [format!("{SILENT}/read"), format!("{ANSWERS}/other"), format!("{ANSWERS}/locked")];
    make(&maker, &read, READERS);
    make(&maker, &other, 2);
    make(&maker, &locked, 2);
    let (file, holder) = (File::open(a.at(&read)).unwrap(), read_write(&a.at(&locked)));
    // One page for each, and nothing around it.
    fadvise(&file, 0, None, Advice::Random).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let readers = Readers::default();
    std::thread::scope(|scope| {
        let _silence = Silence::of(&cluster);
        for chunk in 0..READERS {
            let (readers, file) = (&readers, &file);
            scope.spawn(move || readers.read(file, chunk));
        }
        readers.have_begun(READERS);
        drop(holder);
        let next = read_write(&a.at(&locked));
        flock(&next, FlockOperation::LockExclusive).unwrap();
        assert!(readers.all_wait(), "the lock is free at once");
        let mut page = [0; PAGE];
        File::open(a.at(&other)).unwrap().read_exact_at(&mut page, CHUNK).unwrap();
        assert_eq!(page, [7; PAGE]);
        assert!(readers.all_wait(), "the other server answers at once");
    });
}

/// A kernel that waited for a page of a file which others change dropped those of no other one that was recalled with it: a
/// map showed what another mount had written over half a minute before.
#[test]
fn a_page_that_waits_for_a_silent_server_keeps_no_pages_of_other_files() {
    const FILES: u64 = 3;
    let (cluster, maker) = start();
    let a = cluster.mount("a");
    let (mapped, name) = (format!("{ANSWERS}/mapped"), |nth: u64| format!("{SILENT}/{nth}"));
    (0..FILES).for_each(|nth| make(&maker, &name(nth), 2));
    make(&maker, &mapped, 2);
    let (reader, writer) = (read_write(&a.at(&mapped)), read_write(&maker.at(&mapped)));
    writer.write_all_at(&[1; PAGE], 0).unwrap();
    let mut map = Mapping::new(&reader, PAGE, true).unwrap();
    assert_eq!(map.bytes()[0], 1);
    let files: Vec<File> = (0..FILES).map(|nth| File::open(a.at(&name(nth))).unwrap()).collect();
    let readers = Readers::default();
    std::thread::scope(|scope| {
        let _silence = Silence::of(&cluster);
        for file in &files {
            let readers = &readers;
            scope.spawn(move || readers.read(file, 1));
        }
        readers.have_begun(FILES);
        for nth in 0..FILES {
            let path = maker.at(&name(nth));
            scope.spawn(move || fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap());
            // The first one is told alone, and the next ones together with the write.
            std::thread::sleep(Duration::from_millis(30));
        }
        assert_eq!(map.bytes()[0], 1);
        writer.write_all_at(&[2; PAGE], 0).unwrap();
        while map.bytes()[0] != 2 {
            assert!(readers.all_wait(), "it waits for the pages of others");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(readers.all_wait());
    });
}
