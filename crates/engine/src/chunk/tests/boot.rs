//! When a target speaks from another boot, and when it does not.

use super::super::boot::Boot;
use super::*;

/// Opens, does something, and says from which boot.
fn boot_with(disk: &SimDisk, with: impl FnOnce(&ChunkStore)) -> u64 {
    let store = open(disk);
    with(&store);
    store.boot()
}

fn boot(disk: &SimDisk) -> u64 {
    boot_with(disk, |_| {})
}

fn write(store: &ChunkStore) {
    put(store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
}

#[test]
fn the_death_of_a_process_is_no_new_boot() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    write(&store);
    let before = store.boot();
    disk.kill();
    drop(store);
    assert_eq!(boot(&disk), before);
    assert_ne!(before, 0);
}

/// Whatever of the unsynced write survives: nobody can say that all of it does.
#[test]
fn a_power_loss_is_a_new_boot() {
    for seed in 0..20 {
        let disk = formatted(seed, 64 << 20);
        let first = {
            let store = open(&disk);
            write(&store);
            disk.power_loss();
            store.boot()
        };
        let second = {
            let store = open(&disk);
            assert_ne!(store.boot(), first, "seed {seed}");
            write(&store);
            disk.power_loss();
            store.boot()
        };
        let third = boot(&disk);
        assert!(third != second && third != first, "seed {seed}");
    }
}

/// Everything was on disk, so the host may be started anew without an alarm. The next power loss is
/// one.
#[test]
fn a_host_restarted_in_good_order_is_no_new_boot() {
    for seed in 0..20 {
        let disk = formatted(seed, 64 << 20);
        let before = boot_with(&disk, write);
        disk.power_loss();
        let store = open(&disk);
        assert_eq!(store.boot(), before, "seed {seed}");
        assert_eq!(contents(&store, chunk(1, 0)), vec![1; 5000]);
        disk.power_loss();
        drop(store);
        assert_ne!(boot(&disk), before, "seed {seed}");
    }
}

#[test]
fn a_copy_in_the_targets_place_is_a_new_boot() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    let before = store.boot();
    let copy = SimDisk::new(2, 64 << 20);
    copy.restore(&disk);
    write(&store);
    disk.kill();
    drop(store);
    disk.restore(&copy);
    assert_ne!(boot(&disk), before);
}

/// The kernel forgets what it could not write, and tells only once.
#[test]
fn a_failed_sync_is_a_new_boot_for_the_next_process() {
    let disk = formatted(1, 64 << 20);
    // Nor does an orderly stop mend it.
    for killed in [true, false] {
        let store = open(&disk);
        write(&store);
        disk.set_syncs_fail(true);
        store.sync().unwrap_err();
        let before = store.boot();
        disk.set_syncs_fail(false);
        if killed {
            disk.kill();
        }
        drop(store);
        assert_ne!(boot(&disk), before, "killed: {killed}");
    }
}

/// The next process of the same kernel read what was written and not synced from the cache, believed it, and synced a map
/// that named it: with the next loss of power, contents and map were damaged.
#[test]
fn after_a_disk_has_failed_only_what_it_has_counts() {
    use strake_base::disk::sim::SimFault;
    let mut failed = 0;
    for point in 0..60 {
        let disk = formatted(point, 64 << 20);
        let store = open(&disk);
        put(&store, chunk(1, 0), 0, vec![1; 200_000]).unwrap();
        store.sync().unwrap();
        put(&store, chunk(1, 0), 0, vec![2; 200_000]).unwrap();
        match point % 2 {
            0 => disk.set_syncs_fail(true),
            _ => disk.fault_after(point / 2, SimFault::Io),
        }
        if point % 4 == 0 {
            // A checkpoint under way, and edits in the next log.
            let mut commit = store.commit.lock();
            let snapshot = store.snapshot(&mut commit);
            commit.log.begin().unwrap();
            drop(commit);
            put(&store, chunk(1, 0), 0, vec![2; 100_000]).unwrap();
            store.flush(&snapshot).unwrap_err();
            failed += 1;
        } else {
            failed += usize::from(store.sync().is_err());
        }
        disk.set_syncs_fail(false);
        disk.kill();
        drop(store);
        let mut store = open(&disk);
        let found = contents(&store, chunk(1, 0));
        // Nor does a process after the next one believe more.
        for _ in 0..point % 3 {
            disk.kill();
            drop(store);
            store = open(&disk);
            assert!(contents(&store, chunk(1, 0)) == found, "point {point}: brought back");
        }
        assert!(found == vec![1; 200_000] || found == vec![2; 200_000], "point {point}: neither");
        put(&store, chunk(1, 1), 0, vec![3; 5000]).unwrap();
        store.sync().unwrap();
        disk.power_loss();
        drop(store);
        let store = open(&disk);
        assert!(contents(&store, chunk(1, 0)) == found, "point {point}: what was synced is lost");
        assert_eq!(contents(&store, chunk(1, 1)), vec![3; 5000]);
    }
    assert!(failed > 30, "{failed}");
}

/// What another process will find in the file must not be what this one said.
#[test]
fn a_boot_that_cannot_be_stored_is_nobody_elses() {
    for full in [true, false] {
        let disk = formatted(1, 64 << 20);
        let closed = boot_with(&disk, write);
        let (total, free) = disk.process().space().unwrap();
        disk.set_syncs_fail(!full);
        if full {
            disk.process().remove("boot").unwrap();
            disk.set_capacity(total - free - 4096);
        }
        let unstored = Boot::open(&*disk.process()).unwrap().number();
        assert_ne!(unstored, closed);
        disk.set_syncs_fail(false);
        disk.set_capacity(total);
        disk.power_loss();
        assert_ne!(boot(&disk), unstored);
    }
}

#[test]
fn damage_to_the_file_is_a_new_boot() {
    let disk = formatted(1, 64 << 20);
    let before = boot(&disk);
    assert_eq!(boot(&disk), before);
    disk.flip_bit("boot", 20, 3);
    assert_ne!(boot(&disk), before);
}
