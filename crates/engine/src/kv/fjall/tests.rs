use super::*;
use std::fs::File;
use std::io::Write;

/// A small disk of its own in memory.
struct Small(tempfile::TempDir);

impl Small {
    /// `None`: only root makes one.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        let mounted = rustix::mount::mount("tmpfs", directory.path(), "tmpfs", flags, c"size=32m");
        use rustix::io::Errno;
        if let Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::NODEV) = mounted {
            eprintln!("skipped: only root mounts, and not everywhere");
            return None;
        }
        mounted.unwrap();
        Some(Self(directory))
    }

    /// A file that leaves so many bytes of the disk to others.
    fn fill_but(&self, free: u64) -> File {
        let mut filler = File::create(self.0.path().join("filler")).unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
        let len = filler.metadata().unwrap().len();
        filler.set_len(len - free).unwrap();
        filler
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _gone = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// So many values of 64 KiB, always of the same keys, as one sealed part; returns its version.
fn seal_large(lsm: &Lsm, count: u32) -> u64 {
    let value = Bytes::from(vec![7; 64 << 10]);
    let writes: Writes =
        (0..count).map(|n| (n.to_be_bytes().to_vec(), Some(value.clone()))).collect();
    let version = lsm.next_version();
    lsm.apply(version, &writes).unwrap();
    lsm.seal(version).unwrap();
    version
}

fn assert_full<T>(outcome: Result<T, StoreError>) {
    assert!(matches!(outcome, Err(StoreError::Io(error)) if is_full(&error)));
}

fn files(lsm: &Lsm) -> usize {
    std::fs::read_dir(&lsm.tables).unwrap().count()
}

fn count(lsm: &Lsm, version: u64) -> usize {
    let view = lsm.view(version).unwrap();
    view.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap().len()
}

/// Each try had left what it had written in a file of its own, until nothing was free, nor what was kept back.
#[test]
fn a_checkpoint_that_does_not_fit_leaves_nothing_behind() {
    let Some(disk) = Small::new() else { return };
    let lsm = Lsm::open(&disk.0.path().join("lsm")).unwrap();
    let version = seal_large(&lsm, 48);
    let filler = disk.fill_but(1 << 20);
    for _ in 0..3 {
        assert_full(lsm.checkpoint(version));
        assert_eq!(files(&lsm), 0);
    }
    filler.set_len(0).unwrap();
    lsm.checkpoint(version).unwrap();
    drop(lsm);
    let lsm = Lsm::open(&disk.0.path().join("lsm")).unwrap();
    assert_eq!((lsm.durable().unwrap(), count(&lsm, SeqNo::MAX - 1)), (version, 48));
}

#[test]
fn a_compaction_that_does_not_fit_leaves_nothing_behind() {
    let Some(disk) = Small::new() else { return };
    let lsm = Lsm::open(&disk.0.path().join("lsm")).unwrap();
    let mut version = 0;
    for _ in 0..6 {
        version = seal_large(&lsm, 48);
        lsm.checkpoint(version).unwrap();
    }
    assert_eq!(files(&lsm), 6);
    let filler = disk.fill_but(1 << 20);
    // Nothing that was replaced may go: as much is written as is read.
    for _ in 0..3 {
        assert_full(lsm.compact(0));
        assert_eq!(files(&lsm), 6);
    }
    filler.set_len(0).unwrap();
    assert!(lsm.compact(version).unwrap());
    assert_eq!(count(&lsm, version), 48);
}

#[test]
fn tables_that_were_replaced_stay_for_those_who_read_them() {
    let directory = tempfile::tempdir().unwrap();
    let lsm = Lsm::open(directory.path()).unwrap();
    let versions: Vec<u64> = (0..6)
        .map(|_| {
            let version = seal_large(&lsm, 3);
            lsm.checkpoint(0).unwrap();
            version
        })
        .collect();
    assert!(lsm.compact(0).unwrap());
    let held = files(&lsm);
    assert!(held > lsm.tree.table_count(), "older views have theirs");
    std::fs::write(lsm.tables.join("1000"), "half a table").unwrap();
    lsm.remove_unnamed(0).unwrap();
    assert_eq!(files(&lsm), held);
    assert_eq!(count(&lsm, versions[3]), 3);
}

fn one(n: u32) -> Writes {
    [(n.to_be_bytes().to_vec(), Some(Bytes::from_static(b"value")))].into()
}

/// The tree counts the runs of a level in one byte: with a flush at every start and no
/// compaction in between, the 256th start left a store that could not be opened.
#[test]
fn a_store_opens_after_more_checkpoints_than_its_first_level_can_count() {
    let directory = tempfile::tempdir().unwrap();
    let lsm = Lsm::open(directory.path()).unwrap();
    for n in 0..270 {
        let version = lsm.next_version();
        lsm.apply(version, &one(n)).unwrap();
        lsm.seal(version).unwrap();
        lsm.checkpoint(version).unwrap();
    }
    drop(lsm);
    let lsm = Lsm::open(directory.path()).unwrap();
    let view = lsm.view(SeqNo::MAX - 1).unwrap();
    let pairs = view.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap();
    assert_eq!(pairs.len(), 270);
}
