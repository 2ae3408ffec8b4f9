//! What becomes of a store whose directory is not where it was, and of one of which nobody knows.

use super::*;
use std::time::Duration;
use strake_base::disk::{HeldDisk, Place, RealDisk};

/// Looks for its directory all the time, and makes checkpoints.
fn watched(disk: Arc<dyn Disk>) -> ChunkStore {
    let options = ChunkOptions { background: true, checkpoint_ms_max: 5, ..options() };
    ChunkStore::open(disk, options).unwrap()
}

fn until(what: &str, so: impl Fn() -> bool) {
    let waited = (0..3_000).find(|_| {
        std::thread::sleep(Duration::from_millis(10));
        so()
    });
    assert!(waited.is_some(), "in vain: {what}");
}

/// Both went on as if nothing were: what was synced into the one that was removed was gone with its process, and nobody had been told.
#[test]
fn a_target_whose_directory_is_removed_takes_no_writes_and_one_that_is_moved_goes_on() {
    let parent = tempfile::tempdir().unwrap();
    let (path, aside) = (parent.path().join("target"), parent.path().join("aside"));
    std::fs::create_dir(&path).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&path).unwrap());
    ChunkStore::format(&disk, &identity(), &options()).unwrap();
    let store = watched(disk);
    let is_at = |place: Place| until(&format!("{place:?}"), || store.stat().place == place);
    put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
    std::fs::rename(&path, &aside).unwrap();
    is_at(Place::Elsewhere);
    put(&store, chunk(1, 0), 0, vec![2; 5000]).unwrap();
    store.sync().unwrap();
    std::fs::rename(&aside, &path).unwrap();
    is_at(Place::Same);
    // What the store does by itself may make a file meanwhile.
    until("it is removed", || std::fs::remove_dir_all(&path).is_ok());
    is_at(Place::Removed);
    let refused = put(&store, chunk(1, 0), 0, vec![3; 5000]).unwrap_err();
    assert!(matches!(refused, ChunkError::Poisoned { .. }), "{refused}");
    assert!(store.sync().is_err());
    assert_eq!(contents(&store, chunk(1, 0)), vec![2; 5000]);
}

/// The path may lead over a disk that answers nobody. Checkpoints waited for it, and who closed the target.
#[test]
fn who_looks_for_a_directory_and_gets_no_answer_holds_up_nobody() {
    let disk = formatted(7, 64 << 20);
    let held = Arc::new(HeldDisk::new(disk.process()));
    held.hold_way();
    let store = watched(held.clone());
    // Where this fails it does not hang.
    let on = GoesOn(&held);
    held.until_looked_for();
    put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
    until("a checkpoint", || store.stat().unsynced_bytes == 0);
    drop(store);
    let store = ChunkStore::open(held.clone(), options()).unwrap();
    assert_eq!(contents(&store, chunk(1, 0)), vec![1; 5000]);
    drop(on);
}

struct GoesOn<'a>(&'a HeldDisk);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}
