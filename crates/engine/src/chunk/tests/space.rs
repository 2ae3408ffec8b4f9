//! Room: what is refused, what comes back.

use super::*;

const MIB: u64 = 1 << 20;

fn open_with(disk: &SimDisk, capacity_bytes: u64) -> ChunkStore {
    let options = ChunkOptions { capacity_bytes: Some(capacity_bytes), ..options() };
    ChunkStore::open(disk.process(), options).unwrap()
}

/// Writes whole chunks until the target is full; returns how many.
fn fill(store: &ChunkStore) -> u64 {
    for index in 0.. {
        match put(store, chunk(1, index), 0, vec![index as u8 | 1; MIB as usize]) {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error, ChunkError::Full { .. }), "{error}");
                return index;
            }
        }
    }
    unreachable!("the target is never full")
}

fn check_full(store: &ChunkStore, filled: u64, disk: &SimDisk) {
    assert!(store.stat().poisoned.is_none());
    for index in 0..filled {
        assert_eq!(contents(store, chunk(1, index)), vec![index as u8 | 1; MIB as usize]);
    }
    assert_eq!(contents(store, chunk(1, filled)), [], "a refused write left something behind");
    store.sync().unwrap();
    // Cutting a block in part needs a place, and there is one.
    store.truncate(chunk(1, 0), 1000).unwrap();
    store.punch(chunk(1, 1), 100, 100).unwrap();
    store.delete_range(VolumeId(1), Ino(1), from(2)).unwrap();
    store.sync().unwrap();
    assert_eq!(store.stat().chunks, 2);
    let again = fill(store);
    assert!(again + 2 >= filled, "{filled} chunks at first, {again} after a delete");
    disk.power_loss();
}

#[test]
fn a_full_target_refuses_before_it_acknowledges_and_still_deletes() {
    let disk = formatted(1, 256 << 20);
    let store = open_with(&disk, 32 * MIB);
    let filled = fill(&store);
    assert!((30..=32).contains(&filled), "{filled}");
    assert!(store.stat().free_bytes <= 2 * MIB);
    assert_eq!(store.stat().total_bytes, 32 * MIB);
    check_full(&store, filled, &disk);
}

#[test]
fn a_full_disk_refuses_before_it_acknowledges_and_still_deletes() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    let filled = fill(&store);
    assert!(filled > 20, "{filled}");
    check_full(&store, filled, &disk);
}

/// The map's file grows by as much as it has, and all of that was set aside at once: a full disk has no room for it, and the
/// target took no more writes, nor could it be opened again.
#[test]
fn the_map_of_a_full_disk_takes_only_what_it_needs() {
    let reserve_bytes = 448 << 10;
    let disk = SimDisk::new(1, 40 << 20);
    let options = ChunkOptions { reserve_bytes, ..options() };
    ChunkStore::format(&disk.process(), &identity(), &options).unwrap();
    let open = || ChunkStore::open(disk.process(), options.clone()).unwrap();
    let store = open();
    fill(&store);
    store.sync().unwrap();
    let len = || disk.process().open("map.redb", false).unwrap().len().unwrap();
    let (mut index, mut before) = (1000, len());
    while len() <= before + reserve_bytes {
        before = len();
        for _ in 0..100 {
            store.set_len(chunk(2, index), 1).unwrap();
            index += 1;
        }
        store.checkpoint().unwrap();
        assert!(index < 100_000, "it does not grow by more than the reserve at once");
    }
    assert!(disk.occupied("map.redb") < len(), "all of it is set aside");
    store.delete_range(VolumeId(1), Ino(1), from(2)).unwrap();
    store.sync().unwrap();
    drop(store);
    let store = open();
    assert_eq!(contents(&store, chunk(1, 0)), vec![1; MIB as usize]);
    store.checkpoint().unwrap();
    store.balance_room();
    assert_eq!(disk.occupied("reserve"), reserve_bytes, "room is kept back again");
}

/// Clones take no places: the map grew by them until nothing was left for it, and the target took no more writes or deletes,
/// nor could it be opened again.
#[test]
fn clones_on_a_full_disk_are_refused_before_the_map_has_no_room() {
    let disk = formatted(1, 40 << 20);
    let mut store = open(&disk);
    fill(&store);
    for ino in 2..4 {
        let clone = |index| store.clone_range(chunk(1, 0), 0, chunk(ino, index), 0, MIB);
        let refused = (0..20_000).find_map(|index| clone(index).err());
        assert!(matches!(refused, Some(ChunkError::Full { .. })), "{refused:?}");
        let refused = put(&store, chunk(1, 1), 0, vec![9; 4096]).unwrap_err();
        assert!(matches!(refused, ChunkError::Full { .. }), "{refused}");
        assert_eq!(store.stat().free_bytes, 0);
        store.sync().unwrap();
        drop(store);
        store = open(&disk);
        assert_eq!(contents(&store, chunk(2, 0)), vec![1; MIB as usize]);
    }
    store.delete_range(VolumeId(1), Ino(2), from(0)).unwrap();
    store.delete_range(VolumeId(1), Ino(3), from(0)).unwrap();
    store.delete_range(VolumeId(1), Ino(1), from(10)).unwrap();
    store.checkpoint().unwrap();
    store.balance_room();
    assert_eq!(disk.occupied("reserve"), MIB);
    put(&store, chunk(1, 1), 0, vec![9; 4096]).unwrap();
    assert!(store.stat().free_bytes > 10 * MIB);
    assert_eq!(store.stat().poisoned, None);
}

/// What changed between two checkpoints was bounded by the log alone, and what one writes to the map by nothing.
#[test]
fn on_a_full_disk_a_checkpoint_comes_before_more_has_changed_than_is_kept_back() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    let generation = || store.commit.lock().log.generation;
    let before = generation();
    for index in 0..200 {
        store.set_len(chunk(1, index), 1).unwrap();
    }
    assert_eq!(generation(), before, "there is room for all of it");
    assert!(disk.occupied("reserve") > 3 * MIB, "and it is kept back");
    store.checkpoint().unwrap();
    assert_eq!(disk.occupied("reserve"), MIB, "until the checkpoint");
    let total = disk.fill();
    let before = generation();
    store.delete_range(VolumeId(1), Ino(1), from(0)).unwrap();
    assert!(generation() > before + 4, "{} checkpoints", generation() - before);
    store.sync().unwrap();
    assert_eq!(store.stat().chunks, 0);
    disk.set_capacity(total);
    for index in 0..200 {
        store.set_len(chunk(1, index), 1).unwrap();
    }
    assert_eq!(store.stat().poisoned, None);
}

/// A write into room that was reserved is refused later than others, but before nothing is left for deletes.
#[test]
fn a_write_into_reserved_room_is_made_where_others_are_refused_for_the_map() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    store.allocate(chunk(9, 0), 0, MIB).unwrap();
    fill(&store);
    let clone = |index| store.clone_range(chunk(1, 0), 0, chunk(2, index), 0, MIB);
    let refused = (0..20_000).find_map(|index| clone(index).err());
    assert!(matches!(refused, Some(ChunkError::Full { .. })), "{refused:?}");
    put(&store, chunk(9, 0), 0, vec![7; MIB as usize]).unwrap();
    assert_eq!(contents(&store, chunk(9, 0)), vec![7; MIB as usize]);
    let refused = put(&store, chunk(9, 0), 0, vec![8; 4096]).unwrap_err();
    assert!(matches!(refused, ChunkError::Full { .. }), "{refused}");
}

/// Uses up what is kept back for the map, but for less than so many eighths, and fills the disk.
fn use_up_map_room(store: &ChunkStore, disk: &SimDisk, eighths: u64) {
    store.checkpoint().unwrap();
    while store.table.room.has_left(eighths) {
        assert!(store.table.room.release());
    }
    disk.fill();
}

/// A punch makes two runs of one: none was refused, until nothing was left for the map and the target took no more writes or deletes.
#[test]
fn a_punch_that_leaves_pieces_is_refused_before_the_map_has_no_room() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    assert!(fill(&store) > 20);
    use_up_map_room(&store, &disk, room::FOR_LITTLE);
    let punch = |index| store.punch(chunk(1, index), 3 * BLOCK_BYTES, BLOCK_BYTES);
    let refused = punch(1).unwrap_err();
    assert!(matches!(refused, ChunkError::Full { .. }), "{refused}");
    assert_eq!(contents(&store, chunk(1, 1)), vec![1; MIB as usize]);
    store.punch(chunk(1, 1), 0, MIB).unwrap();
    assert_eq!(contents(&store, chunk(1, 1)), vec![0; MIB as usize]);
    store.truncate(chunk(1, 2), 1000).unwrap();
    store.delete_range(VolumeId(1), Ino(1), from(10)).unwrap();
    punch(3).unwrap();
    store.sync().unwrap();
    assert_eq!(store.stat().poisoned, None);
}

/// A copy refused what others had made already as it refuses what is new: it had to leave, and could not be made equal.
#[test]
fn what_other_copies_have_is_made_where_what_is_new_is_refused() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![1; MIB as usize]).unwrap();
    store.punch(chunk(1, 0), 64 * BLOCK_BYTES, 192 * BLOCK_BYTES).unwrap();
    let copy = |fill: u8| {
        let data = vec![fill; BLOCK_BYTES as usize];
        let sum = crc_fast::crc32_iscsi(&data);
        store.write_copy(chunk(1, 0), 0, &data.into(), sum)
    };
    use_up_map_room(&store, &disk, room::FOR_GROWTH);
    let refused = put(&store, chunk(1, 0), 0, vec![2; BLOCK_BYTES as usize]).unwrap_err();
    assert!(matches!(refused, ChunkError::Full { .. }), "{refused}");
    copy(2).unwrap();
    use_up_map_room(&store, &disk, room::FOR_LITTLE);
    assert!(matches!(copy(3).unwrap_err(), ChunkError::Full { .. }));
    let (offset, len) = (3 * BLOCK_BYTES, BLOCK_BYTES);
    assert!(matches!(store.punch(chunk(1, 0), offset, len), Err(ChunkError::Full { .. })));
    store.punch_copy(chunk(1, 0), offset, len).unwrap();
    let bytes = contents(&store, chunk(1, 0));
    assert_eq!((bytes[0], bytes[offset as usize]), (2, 0));
    store.sync().unwrap();
    assert_eq!(store.stat().poisoned, None);
}

/// A copy made it whatever was left, until the map had no room: then the target took no more writes or deletes, nor could it be opened again.
#[test]
fn a_punch_that_other_copies_have_made_is_refused_when_nothing_is_left_for_the_map() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    fill(&store);
    let clone = |index| store.clone_range(chunk(1, 0), 0, chunk(2, index), 0, MIB);
    let clones = (0..20_000).find(|index| clone(*index).is_err()).unwrap();
    use_up_map_room(&store, &disk, room::FOR_LITTLE);
    // Each second block: the map becomes larger, and no place free.
    let punch = |nth: u64| {
        let (index, block) = (nth / 128, nth % 128 * 2);
        store.punch_copy(chunk(2, index), block * BLOCK_BYTES, BLOCK_BYTES)
    };
    let refused = (0..clones * 128).find_map(|nth| punch(nth).err());
    assert!(matches!(refused, Some(ChunkError::Full { .. })), "{refused:?}");
    store.checkpoint().unwrap();
    drop(store);
    let store = open(&disk);
    assert_eq!(contents(&store, chunk(1, 0)), vec![1; MIB as usize]);
    store.delete_range(VolumeId(1), Ino(2), from(0)).unwrap();
    store.sync().unwrap();
    assert_eq!(store.stat().poisoned, None);
}

/// Clones of holes take no places, and were not refused, but they make chunks.
#[test]
fn clones_of_holes_are_refused_before_the_map_has_no_room() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    store.set_len(chunk(1, 0), MIB).unwrap();
    use_up_map_room(&store, &disk, room::FOR_PROMISED);
    let refused = store.clone_range(chunk(1, 0), 0, chunk(2, 0), 0, MIB).unwrap_err();
    assert!(matches!(refused, ChunkError::Full { .. }), "{refused}");
    assert_eq!(store.stat().chunks, 1);
}

/// What changed nothing was refused, too.
#[test]
fn punches_and_clones_that_change_nothing_need_no_room_for_the_map() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![1; MIB as usize]).unwrap();
    store.punch(chunk(1, 0), 8 * BLOCK_BYTES, 8 * BLOCK_BYTES).unwrap();
    let clone = || store.clone_range(chunk(1, 0), 0, chunk(2, 0), 0, MIB);
    clone().unwrap();
    use_up_map_room(&store, &disk, room::FOR_LITTLE);
    let punch = |first: u64| store.punch(chunk(1, 0), first * BLOCK_BYTES, BLOCK_BYTES);
    assert!(matches!(punch(3).unwrap_err(), ChunkError::Full { .. }));
    assert!(store.punch_leaves_pieces(chunk(1, 0), 3 * BLOCK_BYTES, BLOCK_BYTES).unwrap());
    punch(9).unwrap();
    assert!(!store.punch_leaves_pieces(chunk(1, 0), 9 * BLOCK_BYTES, BLOCK_BYTES).unwrap());
    clone().unwrap();
    assert_eq!(contents(&store, chunk(2, 0)), contents(&store, chunk(1, 0)));
}

/// A member said that it takes a write into reserved room, and refused it then; and one that made no reservation could not even make
/// the chunk. For both it had to leave its groups.
#[test]
fn reserved_room_is_promised_no_more_while_what_was_promised_is_still_written() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    store.allocate(chunk(9, 0), 0, MIB).unwrap();
    assert!(store.keeps_promises());
    use_up_map_room(&store, &disk, room::PROMISED);
    assert!(!store.keeps_promises());
    put(&store, chunk(9, 0), 0, vec![7; MIB as usize]).unwrap();
    use_up_map_room(&store, &disk, room::FOR_PROMISED);
    store.touch(chunk(9, 1)).unwrap();
    assert_eq!(store.stat().chunks, 2);
}

/// Each write that was refused asked the disk for room.
#[test]
fn the_disk_is_asked_for_room_for_the_map_once_between_two_checkpoints() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    use_up_map_room(&store, &disk, room::FOR_GROWTH);
    let is_refused = |store: &ChunkStore| match put(store, chunk(1, 0), 0, vec![1; 4096]) {
        Err(ChunkError::Full { .. }) => true,
        made => made.map(|()| false).unwrap(),
    };
    assert!(is_refused(&store));
    let before = disk.operations();
    assert!(is_refused(&store));
    assert_eq!(disk.operations(), before);
    disk.set_capacity(40 << 20);
    store.table.refill_reserve();
    assert!(!is_refused(&store));
}

/// A simulated target kept nothing back again: what was opened on a full disk took nothing new for ever, since nobody writes to
/// what offers no room.
#[test]
fn a_target_offers_room_again_when_its_disk_has_some_though_nobody_writes() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    use_up_map_room(&store, &disk, room::OFFERED);
    drop(store);
    let store = open(&disk);
    store.balance_room();
    assert!(!store.offers_room());
    disk.set_capacity(40 << 20);
    store.balance_room();
    assert!(store.offers_room());
}

/// One checkpoint could take half of what was left: who sends to the target did not hear in time that it is short.
#[test]
fn what_is_left_for_the_map_falls_by_an_eighth_at_most_with_each_checkpoint() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    use_up_map_room(&store, &disk, 8);
    let room = &store.table.room;
    assert!(!room.has_left(8));
    assert!(room.keep(MIB / 8));
    assert!(!room.keep(MIB / 8 + 1));
}

/// The first checkpoint took half of all that is kept back, and the target refused writes when hardly anybody had heard that it is short.
#[test]
fn a_checkpoint_takes_a_quarter_at_most_of_all_that_is_kept_back() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    store.checkpoint().unwrap();
    let room = &store.table.room;
    let total = disk.fill();
    assert!(room.has_left(8) && !room.keeps_more());
    assert!(room.keep(MIB / 4));
    assert!(!room.keep(MIB / 4 + 1));
    disk.set_capacity(total);
    assert!(room.keep(MIB / 4 + 1));
    assert!(room.keeps_more(), "the disk has more");
}

#[test]
fn reserved_space_takes_a_write_when_the_target_is_full() {
    let disk = formatted(1, 256 << 20);
    let store = open_with(&disk, 16 * MIB);
    store.allocate(chunk(9, 0), 0, MIB).unwrap();
    assert_eq!(contents(&store, chunk(9, 0)), []);
    assert_eq!(store.extents(chunk(9, 0)).unwrap(), []);
    assert_eq!(
        store.chunks_of(VolumeId(1), Ino(9), from(0), usize::MAX).unwrap().0[0].occupied,
        MIB
    );
    fill(&store);
    put(&store, chunk(9, 0), 5, vec![7; MIB as usize - 10]).unwrap();
    assert_eq!(contents(&store, chunk(9, 0))[5..], vec![7; MIB as usize - 10]);
    assert_eq!(
        store.chunks_of(VolumeId(1), Ino(9), from(0), usize::MAX).unwrap().0[0].occupied,
        MIB
    );
}

#[test]
fn what_a_reservation_takes_is_told_before() {
    let disk = formatted(1, 256 << 20);
    let store = open(&disk);
    let (id, block) = (chunk(1, 0), BLOCK_BYTES);
    assert_eq!(store.allocate_takes(id, 1, 2 * block).unwrap(), 3 * block);
    store.touch(id).unwrap();
    assert_eq!(store.stat().chunks, 1);
    put(&store, id, block, vec![1; BLOCK_BYTES as usize]).unwrap();
    store.allocate(id, 3 * block, block).unwrap();
    store.touch(id).unwrap();
    assert_eq!(store.allocate_takes(id, 0, 6 * block).unwrap(), 4 * block);
    assert_eq!(store.allocate_takes(id, block, block).unwrap(), 0);
    assert_eq!(contents(&store, id).len() as u64, 2 * block);
    store.allocate(id, 0, 6 * block).unwrap();
    assert_eq!(store.allocate_takes(id, 0, 6 * block).unwrap(), 0);
}

#[test]
fn deleted_space_comes_back_to_the_target_and_to_the_disk() {
    let disk = formatted(1, 512 << 20);
    let store = open(&disk);
    for index in 0..200 {
        put(&store, chunk(1, index), 0, vec![1; MIB as usize]).unwrap();
    }
    store.sync().unwrap();
    assert!(disk.occupied("data-00000") >= 200 * MIB);
    store.delete_range(VolumeId(1), Ino(1), from(0)).unwrap();
    store.checkpoint().unwrap();
    store.give_space_back();
    assert!(disk.occupied("data-00000") <= 64 * MIB, "{}", disk.occupied("data-00000"));
    put(&store, chunk(1, 0), 0, vec![1; MIB as usize]).unwrap();
    drop(store);
    assert_eq!(contents(&open(&disk), chunk(1, 0)), vec![1; MIB as usize]);
    assert!(disk.occupied("data-00000") <= 2 * MIB, "what was got and not used stays");
}

#[test]
fn a_full_disk_gets_all_free_room_back_for_whoever_shares_it() {
    let disk = formatted(1, 40 << 20);
    let store = open(&disk);
    assert!(fill(&store) > 20);
    store.delete_range(VolumeId(1), Ino(1), from(1)).unwrap();
    store.checkpoint().unwrap();
    store.give_space_back();
    assert!(disk.occupied("data-00000") <= 2 * MIB, "{}", disk.occupied("data-00000"));
}

#[test]
fn random_overwrites_of_4_kib_occupy_a_bounded_multiple_of_the_data() {
    let disk = formatted(1, 1 << 30);
    let options =
        ChunkOptions { unsynced_bytes_max: 4 * MIB, log_bytes_max: 512 << 10, ..options() };
    let store = ChunkStore::open(disk.process(), options).unwrap();
    const DATA: u64 = 64;
    for index in 0..DATA {
        put(&store, chunk(1, index), 0, vec![1; MIB as usize]).unwrap();
    }
    store.sync().unwrap();
    let (mut random, mut most) = (Random(1), 0);
    for round in 0..40_000 {
        let at = random.below(256) * BLOCK_BYTES;
        put(&store, chunk(1, random.below(DATA)), at, vec![round as u8; 4096]).unwrap();
        if round % 1000 == 999 {
            most = most.max(disk.occupied("data-00000"));
        }
    }
    let percent = most * 100 / (DATA * MIB);
    assert!(percent <= 200, "{percent} % of the data's size");
}

#[test]
fn small_appends_without_a_sync_occupy_what_they_hold() {
    let disk = formatted(1, 256 << 20);
    let store = open(&disk);
    for i in 0..20_000 {
        put(&store, chunk(1, 0), i * 10, vec![i as u8; 10]).unwrap();
    }
    assert_eq!(contents(&store, chunk(1, 0)).len(), 200_000);
    assert!(disk.occupied("data-00000") <= 32 * MIB, "{}", disk.occupied("data-00000"));
}

#[test]
fn clones_share_space_until_the_last_is_gone() {
    let disk = formatted(1, 256 << 20);
    let store = open_with(&disk, 16 * MIB);
    put(&store, chunk(1, 0), 0, vec![1; 8 * MIB as usize]).unwrap();
    for ino in 2..20 {
        store.clone_range(chunk(1, 0), 0, chunk(ino, 0), 0, 8 * MIB).unwrap();
    }
    put(&store, chunk(2, 0), 0, vec![2; 4096]).unwrap();
    assert_eq!(contents(&store, chunk(3, 0)), vec![1; 8 * MIB as usize]);
    drop(store);
    let store = open_with(&disk, 16 * MIB);
    for ino in (1..20).filter(|ino| *ino != 3) {
        store.delete_range(VolumeId(1), Ino(ino), from(0)).unwrap();
    }
    store.sync().unwrap();
    let free = store.stat().free_bytes;
    assert_eq!(contents(&store, chunk(3, 0)), vec![1; 8 * MIB as usize]);
    store.delete_range(VolumeId(1), Ino(3), from(0)).unwrap();
    store.sync().unwrap();
    assert_eq!(store.stat().free_bytes, free + 8 * MIB);
    assert_eq!(store.stat().free_bytes, 16 * MIB);
}

/// The place of a block that was cloned twice to the same chunk was counted twice.
#[test]
fn cloning_again_counts_a_place_once() {
    let disk = formatted(1, 256 << 20);
    let store = open_with(&disk, 16 * MIB);
    put(&store, chunk(1, 0), 0, vec![1; MIB as usize]).unwrap();
    for _ in 0..3 {
        store.clone_range(chunk(1, 0), 0, chunk(2, 0), 0, MIB).unwrap();
    }
    store.delete_range(VolumeId(1), Ino(1), from(0)).unwrap();
    store.delete_range(VolumeId(1), Ino(2), from(0)).unwrap();
    store.sync().unwrap();
    assert_eq!(store.stat().free_bytes, 16 * MIB);
}
