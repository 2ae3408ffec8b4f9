//! Kills and power losses at every operation of the disk.

use super::*;
use strake_base::disk::sim::SimFault;

/// How a run is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Kill,
    PowerLoss,
}

impl Crash {
    fn happen(self, disk: &SimDisk) {
        match self {
            Crash::Kill => disk.kill(),
            Crash::PowerLoss => disk.power_loss(),
        }
    }
}

fn random_ops(seed: u64, count: usize) -> Vec<Op> {
    let mut random = Random(seed);
    (0..count).map(|_| Op::random(&mut random)).collect()
}

/// As a database does: little between one sync and the next.
fn small_ops(seed: u64, count: usize) -> Vec<Op> {
    let mut random = Random(seed);
    let one = |_| match random.below(3) {
        0 => Op::Sync,
        1 => {
            let (offset, len) = (random.below(40_000), 1 + random.below(9_000));
            Op::Write(chunk(1, 0), offset, random.bytes(len))
        }
        _ => match Op::random(&mut random) {
            Op::Write(id, offset, mut data) => {
                data.truncate(5_000);
                Op::Write(id, offset, data)
            }
            other => other,
        },
    };
    (0..count).map(one).collect()
}

/// Runs operations up to a failure; returns the model after each, and how many of them are synced.
/// The last may have been done in part.
fn run_until_cut(store: &ChunkStore, ops: &[Op], start: Model) -> (Vec<Model>, usize, bool) {
    let (mut models, mut synced) = (vec![start], 0);
    for op in ops {
        let mut next = models[models.len() - 1].clone();
        op.apply(&mut next);
        models.push(next);
        if op.run(store).is_err() {
            return (models, synced, true);
        }
        if matches!(op, Op::Sync) {
            synced = models.len() - 1;
        }
    }
    (models, synced, false)
}

/// Every byte is as before or as after an operation that was cut off.
fn is_between(state: &Model, before: &Model, after: &Model) -> bool {
    let ids = before.keys().chain(after.keys()).chain(state.keys());
    ids.into_iter().all(|id| {
        let (state, before, after) = (state.get(id), before.get(id), after.get(id));
        if state == before || state == after {
            return true;
        }
        let none = Vec::new();
        let (Some(state), before) = (state, before.unwrap_or(&none)) else { return false };
        let after = after.unwrap_or(&none);
        let byte = |bytes: &Vec<u8>, i: usize| bytes.get(i).copied().unwrap_or(0);
        state.len() <= before.len().max(after.len())
            && (0..state.len()).all(|i| state[i] == byte(before, i) || state[i] == byte(after, i))
    })
}

/// Runs `ops`, crashes at the disk operation `point`, and checks what is there afterwards; then goes
/// on, and checks that too. False: the run ended before the point.
fn crash_at(seed: u64, ops: &[Op], point: u64, crash: Crash) -> bool {
    let disk = formatted(seed ^ point << 20, 64 << 20);
    let store = open(&disk);
    disk.fault_after(point, SimFault::Stop);
    let (models, synced, cut) = run_until_cut(&store, ops, Model::new());
    crash.happen(&disk);
    drop(store);

    let store = open(&disk);
    let state = state_of(&store);
    let last = models.len() - 1;
    let acknowledged = last - usize::from(cut);
    let allowed = if crash == Crash::Kill { acknowledged..=last } else { synced..=last };
    let found = models[allowed.clone()].contains(&state)
        || (cut && is_between(&state, &models[last - 1], &models[last]));
    assert!(found, "seed {seed}, {crash:?} at {point}: not a state of {allowed:?}");

    // Life goes on, and the next crash finds what it should.
    let rest = &ops[ops.len() / 2..];
    let (models, ..) = run_until_cut(&store, rest, state);
    assert!(state_of(&store) == models[models.len() - 1], "seed {seed}, {crash:?} at {point}");
    store.sync().unwrap();
    disk.power_loss();
    drop(store);
    let store = open(&disk);
    assert!(state_of(&store) == models[models.len() - 1], "seed {seed}, {crash:?} at {point}");
    cut
}

fn crash_everywhere(
    seeds: std::ops::Range<u64>,
    crash: Crash,
    ops: impl Fn(u64, usize) -> Vec<Op>,
) {
    for seed in seeds {
        let ops = ops(seed, 24);
        let mut point = 0;
        while crash_at(seed, &ops, point, crash) {
            point += 1;
        }
        assert!(point > 20, "only {point} operations of the disk");
    }
}

#[test]
fn after_power_loss_at_any_point_bytes_are_old_or_new_and_synced_ones_are_there() {
    crash_everywhere(0..6, Crash::PowerLoss, random_ops);
    crash_everywhere(200..206, Crash::PowerLoss, small_ops);
}

#[test]
fn kill_at_any_point_loses_nothing_acknowledged() {
    crash_everywhere(100..106, Crash::Kill, random_ops);
    crash_everywhere(300..306, Crash::Kill, small_ops);
}

#[test]
fn long_runs_with_kills_and_power_losses_agree_with_the_model() {
    for seed in 0..20 {
        let disk = formatted(seed, 64 << 20);
        let mut random = Random(seed);
        let mut state = Model::new();
        for round in 0..8 {
            let store = open(&disk);
            assert!(state_of(&store) == state, "seed {seed} round {round}");
            let ops = if random.below(2) == 0 { random_ops } else { small_ops };
            let ops = ops(random.below(u64::MAX), 40);
            let (models, synced, _) = run_until_cut(&store, &ops, state);
            if random.below(2) == 0 {
                disk.kill();
                drop(store);
                state = models[models.len() - 1].clone();
                continue;
            }
            disk.power_loss();
            drop(store);
            let found = state_of(&open(&disk));
            assert!(models[synced..].contains(&found), "seed {seed} round {round}");
            state = found;
        }
    }
}

/// Of a log of another boot what comes before its last mark counts, and nothing else.
#[test]
fn a_small_sync_is_a_mark_in_the_log_and_survives_a_power_loss() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    let durable = store.flushes.lock().durable;
    for nth in 1..=3 {
        put(&store, chunk(1, 0), nth * 1000, vec![nth as u8; 6000]).unwrap();
        store.sync().unwrap();
    }
    let first = contents(&store, chunk(1, 0));
    assert!(store.flushes.lock().marked > (durable, 0));
    assert_eq!(store.flushes.lock().durable, durable, "it was a checkpoint");
    put(&store, chunk(1, 0), 0, vec![9; 50]).unwrap();
    disk.power_loss();
    drop(store);
    // Twice: the first recovery makes a checkpoint.
    assert_eq!(contents(&open(&disk), chunk(1, 0)), first);
    assert_eq!(contents(&open(&disk), chunk(1, 0)), first);
}

/// A place may be used again after a mark has named it: the mark brings back what was there.
#[test]
fn what_a_mark_holds_comes_back_although_its_place_was_used_again() {
    let place = |store: &ChunkStore, id| {
        let chunk = store.chunk(id, false).unwrap().unwrap();
        let map = chunk.map.read();
        map.get(0).place().unwrap()
    };
    for seed in 0..20 {
        // Little room, so that the place comes round soon.
        let disk = formatted(seed, 8 << 20);
        let store = open(&disk);
        put(&store, chunk(1, 0), 0, vec![1; 4096]).unwrap();
        store.sync().unwrap();
        let (old, generation) = (place(&store, chunk(1, 0)), store.commit.lock().log.generation);
        store.delete_range(VolumeId(1), Ino(1), from(0)).unwrap();
        let mut uses = (0..900).map(|_| {
            put(&store, chunk(2, 0), 0, vec![2; 16 << 10]).unwrap();
            place(&store, chunk(2, 0))
        });
        assert!(uses.any(|place| place <= old && old < place + 4), "never used again");
        assert_eq!(store.commit.lock().log.generation, generation, "there was a checkpoint");
        disk.power_loss();
        drop(store);
        assert_eq!(contents(&open(&disk), chunk(1, 0)), vec![1; 4096], "seed {seed}");
    }
}

/// Too much for a mark, then little: the mark must not vouch for what it does not hold.
#[test]
fn a_small_sync_after_a_large_write_makes_both_durable() {
    for seed in 0..20 {
        let disk = formatted(seed, 64 << 20);
        let store = open(&disk);
        put(&store, chunk(1, 0), 0, vec![1; 100_000]).unwrap();
        put(&store, chunk(1, 1), 0, vec![2; 100]).unwrap();
        store.sync().unwrap();
        put(&store, chunk(1, 1), 0, vec![3; 100]).unwrap();
        store.sync().unwrap();
        disk.power_loss();
        drop(store);
        let store = open(&disk);
        assert_eq!(contents(&store, chunk(1, 0)), vec![1; 100_000], "seed {seed}");
        assert_eq!(contents(&store, chunk(1, 1)), vec![3; 100], "seed {seed}");
    }
}

#[test]
fn what_was_never_synced_is_gone_with_the_power() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
    store.sync().unwrap();
    put(&store, chunk(1, 0), 0, vec![2; 5000]).unwrap();
    disk.power_loss();
    drop(store);
    assert_eq!(contents(&open(&disk), chunk(1, 0)), vec![1; 5000]);
}

/// A dead process had made a data file and not synced its name; the next one took the name for
/// durable, and lost the file with the power.
#[test]
fn names_that_a_dead_process_made_become_durable_with_the_next_checkpoint() {
    for seed in 0..20 {
        let disk = formatted(seed, 64 << 20);
        let store = open(&disk);
        put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
        disk.kill();
        drop(store);
        let store = open(&disk);
        store.sync().unwrap();
        disk.power_loss();
        drop(store);
        assert_eq!(contents(&open(&disk), chunk(1, 0)), vec![1; 5000]);
    }
}

/// What `allocate` promised is there after a power loss, if a mark vouched for it, and a target opens on a
/// disk that others have filled meanwhile.
#[test]
fn room_that_a_mark_vouches_for_comes_back_with_it() {
    for seed in 0..20 {
        let disk = formatted(seed, 64 << 20);
        let store = open(&disk);
        put(&store, chunk(1, 0), 0, vec![1; 4096]).unwrap();
        store.allocate(chunk(1, 1), 0, 1 << 20).unwrap();
        store.sync().unwrap();
        disk.power_loss();
        drop(store);
        let store = open(&disk);
        disk.fill();
        put(&store, chunk(1, 1), 0, vec![2; 1 << 20]).unwrap();
        assert_eq!(contents(&store, chunk(1, 0)), vec![1; 4096], "seed {seed}");
    }
}

/// A checkpoint made the map durable that says what is reserved, and not the room itself.
#[test]
fn room_that_a_checkpoint_made_durable_is_there_after_a_power_loss() {
    for seed in 0..20 {
        let disk = formatted(seed, 64 << 20);
        let store = open(&disk);
        store.allocate(chunk(1, 0), 0, 1 << 20).unwrap();
        store.checkpoint().unwrap();
        disk.power_loss();
        drop(store);
        let store = open(&disk);
        disk.fill();
        put(&store, chunk(1, 0), 0, vec![2; 1 << 20]).unwrap();
        assert_eq!(contents(&store, chunk(1, 0)), vec![2; 1 << 20], "seed {seed}");
    }
}

/// What had been named, given up and given back to the disk was named again after a kill, and counted as there.
#[test]
fn room_that_went_back_to_the_disk_before_a_kill_is_there_when_it_is_reserved_again() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    store.allocate(chunk(1, 0), 0, 1 << 20).unwrap();
    store.delete_range(VolumeId(1), Ino(1), from(0)).unwrap();
    disk.fill();
    store.give_space_back();
    assert_eq!(disk.occupied("data-00000"), 0);
    disk.kill();
    drop(store);
    let store = open(&disk);
    store.allocate(chunk(2, 0), 0, 1 << 20).unwrap();
    disk.fill();
    put(&store, chunk(2, 0), 0, vec![2; 1 << 20]).unwrap();
    assert_eq!(contents(&store, chunk(2, 0)), vec![2; 1 << 20]);
}

/// What nothing named any more was set aside again first, and on a full disk no room was left for what was reserved.
#[test]
fn what_is_not_named_any_more_takes_no_room_from_what_is_reserved() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    store.allocate(chunk(1, 0), 0, 1 << 20).unwrap();
    store.allocate(chunk(2, 0), 0, 1 << 20).unwrap();
    store.delete_range(VolumeId(1), Ino(1), from(0)).unwrap();
    disk.kill();
    drop(store);
    // As after a power loss that took the room.
    let file = disk.process().open("data-00000", false).unwrap();
    file.punch(0, 64 << 20).unwrap();
    let (total, left) = disk.process().space().unwrap();
    disk.set_capacity(total - left + (1 << 20) + (256 << 10));
    let store = open(&disk);
    put(&store, chunk(2, 0), 0, vec![2; 1 << 20]).unwrap();
    assert_eq!(contents(&store, chunk(2, 0)), vec![2; 1 << 20]);
}

/// The power may have taken the file itself in which it was, too: nobody has asked for that one to be durable.
#[test]
fn a_target_opens_although_what_was_deleted_was_in_a_file_that_is_gone() {
    for seed in 0..40 {
        let disk = formatted(seed, 64 << 20);
        let store = open(&disk);
        put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
        store.sync().unwrap();
        store.delete_range(VolumeId(1), Ino(1), from(0)).unwrap();
        store.sync().unwrap();
        disk.power_loss();
        drop(store);
        let store = open(&disk);
        put(&store, chunk(2, 0), 0, vec![2; 5000]).unwrap();
        assert_eq!(contents(&store, chunk(2, 0)), vec![2; 5000], "seed {seed}");
    }
}

/// What is written between the sync of a log and the note of it may be lost with the power, which is no damage.
#[test]
fn a_note_vouches_for_no_more_than_was_synced_before_it() {
    for seed in 0..100 {
        let disk = formatted(seed, 64 << 20);
        let store = open(&disk);
        put(&store, chunk(1, 0), 0, vec![1; 5000]).unwrap();
        store.sync().unwrap();
        let (file, synced) = {
            let commit = store.commit.lock();
            (commit.log.file().clone(), commit.log.position())
        };
        file.sync().unwrap();
        put(&store, chunk(1, 1), 0, vec![2; 5000]).unwrap();
        assert_eq!(store.note(synced), synced);
        disk.power_loss();
        drop(store);
        assert_eq!(contents(&open(&disk), chunk(1, 0)), vec![1; 5000], "seed {seed}");
    }
}

/// Two blocks in a row, the first at the end of a data file and the second at the beginning of the next:
/// both files are synced.
#[test]
fn a_write_across_two_data_files_is_durable_in_both() {
    for seed in 0..4 {
        let disk = formatted(seed, 3 << 30);
        let store = open(&disk);
        store.allocate(chunk(8, 0), 0, 32 << 20).unwrap();
        for index in 1..16 {
            store.allocate(chunk(8, index), 0, 64 << 20).unwrap();
        }
        store.allocate(chunk(8, 16), 4096, (64 << 20) - 4096).unwrap();
        store.sync().unwrap();
        let across = |index: u64| {
            let found = store.chunk(chunk(8, index), false).unwrap().unwrap();
            let map = found.map.read();
            let at = |block| map.get(block).place();
            let last = |block: &u64| at(*block) == Some(SEGMENT_BLOCKS - 1);
            let block =
                (0..16_383).find(|block| last(block) && at(block + 1) == Some(SEGMENT_BLOCKS));
            block.map(|block| (chunk(8, index), block * BLOCK_BYTES))
        };
        let (id, offset) = (0..17).find_map(across).expect("blocks across two files");
        put(&store, id, offset, vec![7; 8192]).unwrap();
        store.checkpoint().unwrap();
        disk.power_loss();
        drop(store);
        let (bytes, _) = open(&disk).read(id, offset, 8192).unwrap();
        assert!(bytes == vec![7; 8192], "seed {seed}");
    }
}
