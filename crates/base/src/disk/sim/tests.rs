use super::*;

fn contents(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let file = disk.process().open(name, false).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

#[test]
fn what_is_synced_survives_power_loss_and_what_is_not_may_be_lost_or_torn() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let disk = SimDisk::new(seed, 1 << 20);
        let process = disk.process();
        let file = process.open("a", true).unwrap();
        process.sync_directory().unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        file.sync().unwrap();
        file.write_all_at(&[2; 8192], 0).unwrap();
        disk.power_loss();
        assert!(file.len().is_err(), "a handle of a dead process works");
        let bytes = contents(&disk, "a").unwrap();
        assert_eq!(bytes.len(), 8192);
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|b| *b == sector[0]), "torn within a sector");
        }
        match (bytes.contains(&1), bytes.contains(&2)) {
            (true, true) => torn += 1,
            (true, false) => lost += 1,
            _ => kept += 1,
        }
    }
    assert!(lost > 0 && kept > 0 && torn > 0, "{lost} {kept} {torn}");
}

#[test]
fn names_are_durable_only_after_the_directory_is_synced() {
    let mut survived = 0;
    for seed in 0..50 {
        let disk = SimDisk::new(seed, 1 << 20);
        let file = disk.process().open("a", true).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        file.sync().unwrap();
        disk.power_loss();
        survived += usize::from(contents(&disk, "a").is_some());
    }
    assert!(survived > 0 && survived < 50, "{survived}");
}

#[test]
fn kill_keeps_everything_and_frees_the_lock() {
    let disk = SimDisk::new(1, 1 << 20);
    let process = disk.process();
    let lock = process.lock().unwrap();
    assert_eq!(disk.process().lock().err().unwrap().kind(), io::ErrorKind::WouldBlock);
    process.open("a", true).unwrap().write_all_at(b"abc", 5).unwrap();
    let boot = process.boot_id().unwrap();
    disk.kill();
    let lock_of_next = disk.process().lock().unwrap();
    drop(lock);
    assert!(disk.process().lock().is_err(), "a dead process's lock was given up twice");
    drop(lock_of_next);
    assert_eq!(contents(&disk, "a").unwrap(), b"\0\0\0\0\0abc");
    assert_eq!(disk.process().boot_id().unwrap(), boot);
    disk.power_loss();
    assert_ne!(disk.process().boot_id().unwrap(), boot);
}

#[test]
fn capacity_and_faults() {
    let disk = SimDisk::new(1, 4 * PAGE);
    let file = disk.process().open("a", true).unwrap();
    file.allocate(0, 4 * PAGE).unwrap();
    assert_eq!(file.write_all_at(b"x", 4 * PAGE).unwrap_err().kind(), io::ErrorKind::StorageFull);
    file.write_all_at(&[7; 4096], PAGE).unwrap();
    file.punch(0, PAGE).unwrap();
    assert_eq!(disk.occupied("a"), 3 * PAGE);
    disk.fault_after(1, SimFault::Io);
    file.write_all_at(b"x", 0).unwrap();
    assert!(file.sync().is_err());
    file.sync().unwrap();
    disk.flip_bit("a", PAGE, 0);
    assert_eq!(contents(&disk, "a").unwrap()[PAGE as usize], 6);
    disk.fault_after(0, SimFault::Stop);
    assert!(file.write_all_at(b"y", 0).is_err());
    assert!(disk.stopped() && file.len().is_err());
    disk.kill();
    assert!(contents(&disk, "a").is_some());
}

/// A write of a part made it readable: with a real disk it fails, for the kernel has to read the rest.
#[test]
fn a_page_that_cannot_be_read_can_only_be_written_as_a_whole() {
    let disk = SimDisk::new(1, 8 * PAGE);
    let file = disk.process().open("a", true).unwrap();
    file.write_all_at(&[1; 2 * PAGE as usize + 100], 0).unwrap();
    disk.spoil("a", 2 * PAGE);
    for (offset, len) in [(2 * PAGE, 100), (2 * PAGE + 50, PAGE - 50), (PAGE, PAGE + 1)] {
        assert!(file.write_all_at(&vec![2; len as usize], offset).is_err(), "{offset}+{len}");
        assert!(file.read_exact_at(&mut [0], 2 * PAGE).is_err());
    }
    file.write_all_at(&[3; PAGE as usize], 2 * PAGE).unwrap();
    file.read_exact_at(&mut [0], 2 * PAGE).unwrap();
}
