//! What a store does while nothing crashes, and what it refuses.

use super::super::store::QUEUED_BYTES_MAX;
use super::*;
use bytes::Bytes;
use strake_types::error::Advice;
use strake_types::limits::CHUNK_BYTES_MAX;

#[test]
fn random_operations_agree_with_the_model() {
    for seed in 0..30 {
        let disk = formatted(seed, 64 << 20);
        let store = open(&disk);
        let mut random = Random(seed);
        let mut model = Model::new();
        for _ in 0..80 {
            let op = Op::random(&mut random);
            op.run(&store).unwrap();
            op.apply(&mut model);
        }
        assert_eq!(state_of(&store), model, "seed {seed}");
        let report = store.scrub(None, u64::MAX).unwrap();
        assert_eq!((report.next, report.corrupt.len()), (None, 0));
        assert_eq!(report.chunks, model.len() as u64);
        drop(store);
        assert_eq!(state_of(&open(&disk)), model, "seed {seed} after a clean end");
    }
}

#[test]
fn reads_are_short_at_the_end_and_zero_in_holes() {
    let store = open(&formatted(1, 64 << 20));
    let id = chunk(1, 0);
    assert_eq!(store.read(id, 0, 100).unwrap(), (Bytes::new(), 0));
    put(&store, id, 10_000, vec![5; 100]).unwrap();
    let (bytes, _) = store.read(id, 9_990, 1000).unwrap();
    assert_eq!(bytes.len(), 110);
    assert!(bytes[..10].iter().all(|b| *b == 0) && bytes[10..].iter().all(|b| *b == 5));
    assert_eq!(store.extents(id).unwrap(), [(8192, 10_100 - 8192)]);
    put(&store, id, CHUNK_BYTES_MAX - 1, vec![1]).unwrap();
    assert!(matches!(
        put(&store, id, CHUNK_BYTES_MAX, vec![1]),
        Err(ChunkError::OutOfRange { .. })
    ));
    let (bytes, sum) = store.read_cached(id, CHUNK_BYTES_MAX - 5, 10).unwrap().unwrap();
    assert_eq!((&bytes[..], sum), (&[0, 0, 0, 0, 1][..], crc_fast::crc32_iscsi(&bytes)));
}

#[test]
fn a_read_that_would_wait_is_refused_where_waiting_is_not_wanted() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![5; 100]).unwrap();
    disk.set_cold(true);
    assert_eq!(store.read_cached(chunk(1, 0), 0, 100).unwrap(), None);
    assert_eq!(contents(&store, chunk(1, 0)), vec![5; 100]);
}

#[test]
fn a_write_that_was_damaged_on_its_way_is_refused_and_changes_nothing() {
    let store = open(&formatted(1, 64 << 20));
    let refused = store.write(chunk(1, 0), 0, &Bytes::from_static(b"abc"), 1).unwrap_err();
    assert!(matches!(refused, ChunkError::BadPayload { .. }));
    assert_eq!(refused.kind().advice(), Advice::Retry, "whoever has the bytes sends them again");
    assert_eq!(store.chunks_of(VolumeId(1), Ino(1), from(0), usize::MAX).unwrap().0, []);
}

#[test]
fn bit_rot_is_found_on_read_and_by_scrub_and_an_overwrite_mends_it() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    for index in 0..4 {
        put(&store, chunk(1, index), 0, vec![index as u8 + 1; 20_000]).unwrap();
    }
    store.sync().unwrap();
    let place = place_of(&disk, 3);
    disk.flip_bit("data-00000", place + BLOCK_BYTES + 17, 3);
    let error = store.read(chunk(1, 2), 0, 20_000).unwrap_err();
    assert!(
        matches!(error, ChunkError::Corrupt { chunk: c, offset: 4096, .. } if c == chunk(1, 2)),
        "{error}"
    );
    assert_eq!(store.read(chunk(1, 2), 8192, 4096).unwrap().0, vec![3; 4096]);
    assert!(put(&store, chunk(1, 2), 5000, vec![9; 10]).is_err(), "damage was given a checksum");
    assert_eq!(store.stat().corrupt, 2);

    let mut report = store.scrub(None, 1).unwrap();
    let mut corrupt = report.corrupt.clone();
    while let Some(next) = report.next {
        report = store.scrub(Some(next), 1).unwrap();
        corrupt.extend(report.corrupt.clone());
    }
    assert_eq!(corrupt, [chunk(1, 2)]);
    put(&store, chunk(1, 2), 4096, vec![9; 4096]).unwrap();
    assert_eq!(store.scrub(None, u64::MAX).unwrap().corrupt, []);
}

#[test]
fn a_damaged_block_is_overwritten_as_a_whole_without_being_read() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 2), 0, vec![3; 20_000]).unwrap();
    store.sync().unwrap();
    let place = place_of(&disk, 3);
    for block in [1, 4] {
        disk.flip_bit("data-00000", place + block * BLOCK_BYTES + 17, 3);
    }
    assert_eq!(store.damaged(chunk(1, 2), 0..u64::MAX).unwrap(), [1, 4]);
    assert_eq!(store.damaged(chunk(1, 2), 2..4).unwrap(), []);
    assert_eq!(store.damaged(chunk(1, 9), 0..9).unwrap(), []);
    assert_eq!(store.stat().corrupt, 0, "nobody asked for these bytes");
    put(&store, chunk(1, 2), 4096, vec![9; 4096]).unwrap();
    // The last block ends with the chunk.
    assert!(put(&store, chunk(1, 2), 16_384, vec![9; 3_000]).is_err(), "some of it stays");
    put(&store, chunk(1, 2), 16_384, vec![9; 3_616]).unwrap();
    assert_eq!(store.damaged(chunk(1, 2), 0..u64::MAX).unwrap(), []);
    assert_eq!(store.read(chunk(1, 2), 16_384, 9_000).unwrap().0, vec![9; 3_616]);
}

/// One bad sector made all of a chunk, and whatever a scrub came to after it, unreadable.
#[test]
fn a_bad_sector_is_damage_of_its_block_alone() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    for index in 0..3 {
        put(&store, chunk(1, index), 0, vec![index as u8 + 1; 20_000]).unwrap();
    }
    store.sync().unwrap();
    let place = place_of(&disk, 2);
    disk.spoil("data-00000", place + 2 * BLOCK_BYTES);
    let error = store.read(chunk(1, 1), 0, 20_000).unwrap_err();
    assert!(matches!(error, ChunkError::Corrupt { offset: 8192, .. }), "{error}");
    assert_eq!(store.read(chunk(1, 1), 0, 8192).unwrap().0, vec![2; 8192]);
    assert!(put(&store, chunk(1, 1), 9000, vec![9; 10]).is_err(), "what is beside is not known");
    assert_eq!(store.damaged(chunk(1, 1), 0..u64::MAX).unwrap(), [2]);
    assert_eq!(store.scrub(None, u64::MAX).unwrap().corrupt, [chunk(1, 1)]);
    assert_eq!([1, 2].map(|nth| store.is_unreadable(chunk(1, 1), nth).unwrap()), [false, true]);
    disk.flip_bit("data-00000", place + 5, 1);
    assert_eq!(
        store.damaged(chunk(1, 1), 0..u64::MAX).unwrap(),
        [0, 2],
        "found by seed 2863000000141"
    );
    disk.flip_bit("data-00000", place + 5, 1);
    disk.unspoil();
    assert_eq!(store.damaged(chunk(1, 1), 0..u64::MAX).unwrap(), []);
    disk.spoil("data-00000", place + 2 * BLOCK_BYTES);
    put(&store, chunk(1, 1), 8192, vec![9; 4096]).unwrap();
    assert_eq!(store.scrub(None, u64::MAX).unwrap().corrupt, []);
}

/// "No such file or directory" was all that it said.
#[test]
fn a_target_that_has_lost_one_of_its_logs_names_it() {
    let disk = formatted(1, 64 << 20);
    disk.process().remove("log-1").unwrap();
    let error = ChunkStore::open(disk.process(), options()).err().unwrap();
    assert!(error.to_string().contains(": log-1: "), "{error}");
}

/// Of a disk that failed hundreds of lines in the log said so, one for each block.
#[test]
fn that_a_disk_does_not_read_blocks_is_told_ever_more_seldom() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![3; 4096]).unwrap();
    store.sync().unwrap();
    disk.spoil("data-00000", place_of(&disk, 3));
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    for _ in 0..16 {
        store.read(chunk(1, 0), 0, 4096).unwrap_err();
    }
    let told = lines.count("a block cannot be read");
    assert!((1..=7).contains(&told), "{told}");
}

/// It failed, and so did whoever was to make the copy equal to one that has not got the block either.
#[test]
fn of_a_chunk_that_is_set_to_a_length_within_damage_that_block_is_lost() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![3; 20_000]).unwrap();
    store.sync().unwrap();
    disk.spoil("data-00000", place_of(&disk, 3) + BLOCK_BYTES);
    for cut in [ChunkStore::truncate, ChunkStore::set_len] {
        assert!(cut(&store, chunk(1, 0), 5000).is_err(), "it may be repaired, or read, first");
    }
    store.set_len_or_lose(chunk(1, 0), 5000).unwrap();
    disk.unspoil();
    assert_eq!(store.damaged(chunk(1, 0), 0..9).unwrap(), [1]);
    assert_eq!(store.read(chunk(1, 0), 0, 4096).unwrap().0, vec![3; 4096]);
    put(&store, chunk(1, 0), 4096, vec![4; 904]).unwrap();
    assert_eq!(contents(&store, chunk(1, 0)), [vec![3; 4096], vec![4; 904]].concat());
}

#[test]
fn lost_blocks_compare_like_their_contents_and_cannot_be_read() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    for index in 0..2 {
        put(&store, chunk(1, index), 0, vec![3; 10_000]).unwrap();
    }
    put(&store, chunk(1, 1), 4096, vec![4; 4096]).unwrap();
    let whole = store.blocks_of(chunk(1, 0)).unwrap().unwrap();
    store.lose(chunk(1, 1), &whole.blocks()[..2]).unwrap();
    assert_eq!(store.blocks_of(chunk(1, 1)).unwrap().unwrap(), whole);
    assert_eq!(store.damaged(chunk(1, 1), 0..9).unwrap(), [1], "the first one was there");
    assert!(store.lose(chunk(1, 1), &[(3, 7)]).is_err(), "after the end");
    store.sync().unwrap();
    drop(store);
    let store = open(&disk);
    assert_eq!(store.damaged(chunk(1, 1), 0..9).unwrap(), [1]);
    put(&store, chunk(1, 1), 4096, vec![3; 4096]).unwrap();
    assert_eq!(store.read(chunk(1, 1), 0, 10_000).unwrap().0, vec![3; 10_000]);
}

/// Where the first block with these bytes lies.
fn place_of(disk: &SimDisk, fill: u8) -> u64 {
    (0..64).map(|block| block * BLOCK_BYTES).find(|at| byte_at(disk, *at) == fill).unwrap()
}

fn byte_at(disk: &SimDisk, offset: u64) -> u8 {
    let mut byte = [0];
    disk.process().open("data-00000", false).unwrap().read_exact_at(&mut byte, offset).unwrap();
    byte[0]
}

#[test]
fn an_io_error_of_a_sync_poisons_the_target_and_reads_go_on() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 1), 0, vec![7; 5000]).unwrap();
    store.sync().unwrap();
    put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
    disk.set_syncs_fail(true);
    assert!(matches!(store.sync(), Err(ChunkError::Poisoned { .. })));
    disk.set_syncs_fail(false);
    let refused = put(&store, chunk(1, 0), 0, vec![2; 5000]).unwrap_err();
    assert!(matches!(refused, ChunkError::Poisoned { .. }), "{refused}");
    assert!(refused.to_string().contains("simulated input/output error"), "{refused}");
    assert!(store.sync().is_err() && store.truncate(chunk(1, 0), 0).is_err());
    assert!(store.stat().poisoned.is_some());
    assert_eq!(contents(&store, chunk(1, 0)), vec![1; 5000]);
    // Until it is restarted; what was synced before is there, also after a loss of power.
    disk.power_loss();
    drop(store);
    let store = open(&disk);
    assert_eq!(contents(&store, chunk(1, 1)), vec![7; 5000]);
    put(&store, chunk(1, 0), 0, vec![3; 5000]).unwrap();
    store.sync().unwrap();
}

/// Its map was dropped from memory like any other, and the older one on disk was read in its place.
#[test]
fn what_a_poisoned_target_could_not_write_is_read_as_it_is() {
    let disk = formatted(1, 256 << 20);
    let options = ChunkOptions { map_cache_bytes: 64 << 10, ..options() };
    let store = ChunkStore::open(disk.process(), options).unwrap();
    for index in 0..3000 {
        put(&store, chunk(2, index), 0, vec![7; 5000]).unwrap();
    }
    put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
    store.checkpoint().unwrap();
    put(&store, chunk(1, 0), 0, vec![2; 5000]).unwrap();
    put(&store, chunk(1, 1), 0, vec![3; 5000]).unwrap();
    disk.set_syncs_fail(true);
    store.checkpoint().unwrap_err();
    for index in 0..3000 {
        contents(&store, chunk(2, index));
    }
    assert_eq!(contents(&store, chunk(1, 0)), vec![2; 5000]);
    assert_eq!(contents(&store, chunk(1, 1)), vec![3; 5000]);
}

/// A write that waited for the disk held a lock, and the whole server was silent until it was done.
#[test]
fn how_a_target_is_can_be_said_while_its_disk_does_not_answer() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
    let before = store.stat();
    let (commit, space) = (store.commit.lock(), store.space.lock());
    assert_eq!(store.stat().free_bytes, before.free_bytes);
    drop((commit, space));
    assert!(store.stat().unsynced_bytes > 0);
}

/// A new map was made in its place, by which nothing was stored: all contents were given up.
#[test]
fn a_map_that_is_missing_empty_or_of_an_earlier_time_is_refused() {
    let disk = formatted(1, 64 << 20);
    let map = |disk: &SimDisk| disk.process().open("map.redb", true).unwrap();
    let read = |disk: &SimDisk| {
        let mut bytes = vec![0; map(disk).len().unwrap() as usize];
        map(disk).read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let write = |disk: &SimDisk, bytes: &[u8]| {
        map(disk).set_len(0).unwrap();
        map(disk).write_all_at(bytes, 0).unwrap();
    };
    let earlier = read(&disk);
    let store = open(&disk);
    for index in 0..5 {
        put(&store, chunk(1, index), 0, vec![1; 5000]).unwrap();
        store.checkpoint().unwrap();
    }
    drop(store);
    let last = read(&disk);
    let refused = |disk: &SimDisk| {
        let refusal = ChunkStore::open(disk.process(), options()).err().unwrap();
        refusal.to_string()
    };
    disk.process().remove("map.redb").unwrap();
    assert!(refused(&disk).contains("map.redb, its extent map, is missing"));
    write(&disk, &[]);
    assert!(refused(&disk).contains("is empty"));
    write(&disk, &earlier);
    assert!(refused(&disk).contains("of an earlier time"), "{}", refused(&disk));
    write(&disk, &last);
    for index in 0..5 {
        assert_eq!(contents(&open(&disk), chunk(1, index)), vec![1; 5000]);
    }
}

/// Who read was the first to learn of it, and what was written next made a new file in its place.
#[test]
fn a_target_that_has_lost_a_data_file_or_its_end_is_refused_until_that_is_back() {
    for is_killed in [false, true] {
        let disk = formatted(1, 64 << 20);
        let store = open(&disk);
        put(&store, chunk(1, 0), 0, vec![1; 2 * BLOCK_BYTES as usize]).unwrap();
        if is_killed {
            disk.kill();
        }
        drop(store);
        let refused = |how: &str| {
            let error = ChunkStore::open(disk.process(), options()).err().unwrap();
            assert!(matches!(error, ChunkError::Damaged { .. }), "{error}");
            let told = error.to_string();
            assert!(told.contains(how) && told.contains("strake target replace"), "{told}");
        };
        let process = disk.process();
        process.rename("data-00000", "aside").unwrap();
        refused("data-00000 is missing");
        assert!(!process.list().unwrap().contains(&"data-00000".to_owned()), "made anew");
        process.rename("aside", "data-00000").unwrap();
        let file = process.open("data-00000", false).unwrap();
        let end = place_of(&disk, 1) + 2 * BLOCK_BYTES;
        file.set_len(end - 1).unwrap();
        refused(&format!("data-00000 ends at byte {}", end - 1));
        file.write_all_at(&[1], end - 1).unwrap();
        assert_eq!(contents(&open(&disk), chunk(1, 0)), vec![1; 2 * BLOCK_BYTES as usize]);
    }
}

/// Such an unmount takes what was not synced: the whole target was refused for what nobody had been promised.
#[test]
fn a_file_that_only_the_log_names_may_be_gone_where_an_unmount_by_force_goes_unnoticed() {
    let disk = formatted(1, 64 << 20);
    disk.hide_unmounts();
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
    disk.kill();
    drop(store);
    disk.process().remove("data-00000").unwrap();
    let store = open(&disk);
    assert!(store.read(chunk(1, 0), 0, 5000).is_err(), "what was written is lost");
    put(&store, chunk(2, 0), 0, vec![2; 5000]).unwrap();
    drop(store);
    assert_eq!(contents(&open(&disk), chunk(2, 0)), vec![2; 5000]);
    disk.process().remove("data-00000").unwrap();
    let error = ChunkStore::open(disk.process(), options()).err().unwrap();
    assert!(matches!(error, ChunkError::Damaged { .. }), "the map names it: {error}");
}

#[test]
fn data_that_nobody_syncs_survives_power_loss_moments_later() {
    let disk = formatted(1, 64 << 20);
    let options = ChunkOptions { background: true, checkpoint_ms_max: 20, ..options() };
    let store = ChunkStore::open(disk.process(), options).unwrap();
    put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
    let mut waited = 0;
    while store.stat().unsynced_bytes > 0 || store.flushes.lock().running {
        assert!(waited < 3_000, "nothing is synced in the background");
        std::thread::sleep(std::time::Duration::from_millis(10));
        waited += 1;
    }
    disk.power_loss();
    drop(store);
    assert_eq!(contents(&open(&disk), chunk(1, 0)), vec![1; 5000]);
}

#[test]
fn an_io_error_of_a_write_poisons_the_target() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
    disk.fault_after(0, strake_base::disk::sim::SimFault::Io);
    assert!(matches!(put(&store, chunk(1, 1), 0, vec![2; 9]), Err(ChunkError::Poisoned { .. })));
    assert!(matches!(put(&store, chunk(1, 1), 0, vec![2; 9]), Err(ChunkError::Poisoned { .. })));
    assert_eq!(contents(&store, chunk(1, 0)), vec![1; 5000]);
}

/// One such moment ended all writing until a restart, and that was another boot: though nothing had been written.
#[test]
fn a_write_for_which_no_file_may_be_opened_fails_and_the_next_one_does_not() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    let boot = store.boot();
    disk.fault_after(0, strake_base::disk::sim::SimFault::Files);
    let failed = put(&store, chunk(1, 0), 0, vec![1; 5000]);
    assert!(matches!(failed, Err(ChunkError::Io { .. })), "{failed:?}");
    assert_eq!(store.stat().poisoned, None);
    put(&store, chunk(1, 0), 0, vec![2; 5000]).unwrap();
    drop(store);
    let store = open(&disk);
    assert_eq!((store.boot(), contents(&store, chunk(1, 0))), (boot, vec![2; 5000]));
}

/// Its disk was to be checked, or replaced.
#[test]
fn a_target_that_may_open_no_more_files_is_told_with_what_mends_that() {
    let disk = formatted(1, 64 << 20);
    disk.fault_after(0, strake_base::disk::sim::SimFault::Files);
    let error = ChunkStore::open(disk.process(), options()).err().unwrap();
    assert!(error.to_string().contains("; let its server open more files"), "{error}");
}

#[test]
fn a_target_is_locked_and_only_its_cluster_opens_it() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    let refusal = |options: ChunkOptions| ChunkStore::open(disk.process(), options).err().unwrap();
    assert!(matches!(refusal(options()), ChunkError::InUse { .. }));
    drop(store);
    let foreign = ChunkOptions { cluster: Some("99".repeat(16)), ..options() };
    assert!(matches!(refusal(foreign), ChunkError::Foreign { .. }));
    let occupied = ChunkStore::format(&disk.process(), &identity(), &options());
    assert!(matches!(occupied, Err(ChunkError::Occupied { .. })));
    let empty = SimDisk::new(1, 64 << 20);
    let missing = ChunkStore::open(empty.process(), options()).err().unwrap();
    assert!(matches!(missing, ChunkError::Missing { .. }));
    assert_eq!(open(&disk).identity(), &identity());
}

#[test]
fn a_format_that_was_cut_off_is_begun_again() {
    let mut point = 0;
    loop {
        let disk = SimDisk::new(point, 64 << 20);
        disk.fault_after(point, strake_base::disk::sim::SimFault::Stop);
        let cut = ChunkStore::format(&disk.process(), &identity(), &options()).is_err();
        disk.power_loss();
        if Identity::read(&*disk.process()).unwrap().is_none() {
            assert!(cut);
            ChunkStore::format(&disk.process(), &identity(), &options()).unwrap();
        }
        put(&open(&disk), chunk(1, 0), 0, vec![1; 10]).unwrap();
        if !cut {
            break;
        }
        point += 1;
    }
}

#[test]
fn dropping_a_volume_leaves_the_others() {
    let store = open(&formatted(1, 64 << 20));
    let other = ChunkId { volume: VolumeId(2), ..chunk(1, 0) };
    for index in 0..1500 {
        put(&store, chunk(index % 7, index), 0, vec![1; 10]).unwrap();
    }
    put(&store, other, 0, vec![2; 10]).unwrap();
    store.drop_volume(VolumeId(1)).unwrap();
    assert_eq!(store.stat().chunks, 1);
    assert_eq!(contents(&store, other), vec![2; 10]);
}

#[test]
fn maps_that_do_not_fit_in_memory_are_read_again() {
    let disk = formatted(1, 256 << 20);
    let small = ChunkOptions { map_cache_bytes: 4096, ..options() };
    let store = ChunkStore::open(disk.process(), small).unwrap();
    for ino in 0..5000 {
        put(&store, chunk(ino, 0), 0, ino.to_le_bytes().to_vec()).unwrap();
    }
    store.sync().unwrap();
    for ino in 0..5000 {
        assert_eq!(contents(&store, chunk(ino, 0)), ino.to_le_bytes());
    }
    let loaded = store.resident.between(chunk(0, 0), chunk(u64::MAX, 0), usize::MAX).len();
    assert!(loaded < 4000, "{loaded} maps in memory");
}

#[test]
fn readers_never_see_a_false_checksum_error_while_places_are_used_again() {
    let store = open(&formatted(1, 256 << 20));
    let id = chunk(1, 0);
    put(&store, id, 0, vec![0; 65_536]).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    contents(&store, id);
                }
            });
        }
        for round in 0..2000u64 {
            put(&store, id, round % 16 * 4096, vec![round as u8; 4096]).unwrap();
            if round % 100 == 0 {
                store.sync().unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(store.stat().corrupt, 0);
}

/// The chunks of a file shared the cache of one shard, and a file of 1 GiB did not fit.
#[test]
fn the_maps_of_a_large_file_use_the_whole_cache() {
    let disk = formatted(1, 256 << 20);
    let store = open(&disk);
    for index in 0..1000 {
        put(&store, chunk(1, index), 0, vec![1; 100]).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let store = open(&disk);
    for index in 0..1000 {
        contents(&store, chunk(1, index));
    }
    let (first, last) = (chunk(1, 0), chunk(1, u64::MAX));
    let loaded = store.resident.between(first, last, usize::MAX).len();
    assert_eq!(loaded, 1000, "of 1000 maps that fit into 1 MiB");
}

/// Only a full log stopped writers: 150,000 edits, each of a map that may take 200 KiB of memory.
#[test]
fn edits_wait_for_a_checkpoint_when_the_maps_that_it_is_to_write_take_much_memory() {
    let store = open(&formatted(1, 64 << 20));
    let weight = || store.commit.lock().queued_weight;
    put(&store, chunk(1, 0), 0, vec![1; 100]).unwrap();
    let before = weight();
    assert!(before > 0);
    put(&store, chunk(1, 0), CHUNK_BYTES_MAX - 1, vec![1]).unwrap();
    assert!(weight() > before + 5_000, "it has 64 leaves now, one of them full: {}", weight());
    store.commit.lock().queued_weight = QUEUED_BYTES_MAX;
    let durable = store.flushes.lock().durable;
    put(&store, chunk(1, 1), 0, vec![1; 100]).unwrap();
    assert!(store.flushes.lock().durable > durable);
    assert!(weight() < 5_000, "{}", weight());
}
