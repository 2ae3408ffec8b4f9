//! What copies of chunks are compared by: it follows from their bytes, and from nothing else.

use super::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// All of a target, in pages. What is reserved does not follow from bytes, and is left out.
fn census(store: &ChunkStore, limit: usize) -> Vec<ChunkDigest> {
    let chunks = full_census(store, limit).into_iter();
    chunks.map(|chunk| ChunkDigest { reserved: 0, ..chunk }).collect()
}

/// The same, with what is reserved.
fn full_census(store: &ChunkStore, limit: usize) -> Vec<ChunkDigest> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.chunks_after(after, |_| true, limit).unwrap();
        assert!(page.chunks.len() <= limit);
        found.extend(page.chunks);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

/// Computed from the bytes, by the words of docs/FORMATS.md.
fn digest_of(bytes: &[u8]) -> u64 {
    let mut message = (bytes.len() as u64).to_le_bytes().to_vec();
    for (nth, block) in (0u32..).zip(bytes.chunks(4096)) {
        let mut block = block.to_vec();
        block.resize(4096, 0);
        if block.iter().any(|byte| *byte != 0) {
            message.extend(nth.to_le_bytes());
            message.extend(crc_fast::crc32_iscsi(&block).to_le_bytes());
        }
    }
    u64::from_le_bytes(blake3::hash(&message).as_bytes()[..8].try_into().unwrap())
}

fn digests_of(model: &Model) -> Vec<ChunkDigest> {
    let one = |(id, bytes): (&ChunkId, &Vec<u8>)| ChunkDigest {
        id: *id,
        len: bytes.len() as u64,
        digest: digest_of(bytes),
        reserved: 0,
    };
    model.iter().map(one).collect()
}

fn random_model(store: &ChunkStore, random: &mut Random, ops: u64) -> Model {
    let mut model = Model::new();
    for _ in 0..ops {
        let op = Op::random(random);
        op.run(store).unwrap();
        op.apply(&mut model);
    }
    model
}

/// Brings a store to hold what `model` does, in its own way.
fn rebuild(store: &ChunkStore, model: &Model, random: &mut Random) {
    for (id, bytes) in model {
        let len = bytes.len() as u64;
        if random.below(2) == 0 {
            store.allocate(*id, random.below(40_000), 1 + random.below(40_000)).unwrap();
        }
        store.set_len(*id, len).unwrap();
        let (mut pieces, mut start) = (Vec::new(), 0);
        while start < len {
            let end = len.min(start + [4096, 1 + random.below(20_000)][random.below(2) as usize]);
            pieces.push(start..end);
            start = end;
        }
        while !pieces.is_empty() {
            let piece = pieces.swap_remove(random.below(pieces.len() as u64) as usize);
            let data = bytes[piece.start as usize..piece.end as usize].to_vec();
            match random.below(5) {
                0 if data.iter().all(|byte| *byte == 0) => {
                    store.punch(*id, piece.start, data.len() as u64).unwrap();
                }
                1 => store.sync().unwrap(),
                _ => {}
            }
            put(store, *id, piece.start, data).unwrap();
        }
    }
}

#[test]
fn digests_follow_from_the_bytes_and_not_from_their_history() {
    for seed in 0..20 {
        let disks = [formatted(seed, 64 << 20), formatted(seed + 1000, 64 << 20)];
        let [store, other] = [open(&disks[0]), open(&disks[1])];
        let mut random = Random(seed);
        let model = random_model(&store, &mut random, 60);
        let expected = digests_of(&model);
        assert_eq!(census(&store, 2), expected, "seed {seed}");

        let before = random_model(&other, &mut random, 30);
        for id in before.keys().filter(|id| !model.contains_key(id)) {
            other.delete_range(id.volume, id.ino, id.index..=id.index).unwrap();
        }
        rebuild(&other, &model, &mut random);
        assert_eq!(state_of(&other), model, "seed {seed}");
        assert_eq!(census(&other, 100), expected, "seed {seed}: another history");
        drop((store, other));
        assert_eq!(census(&open(&disks[1]), 3), expected, "seed {seed} after a clean end");
    }
}

#[test]
fn any_other_byte_gives_another_digest_to_its_chunk_alone() {
    for seed in 0..10 {
        let store = open(&formatted(seed, 64 << 20));
        let mut random = Random(seed);
        let model = random_model(&store, &mut random, 40);
        let all = census(&store, 100);
        for chunk in all.iter().filter(|chunk| chunk.len > 0) {
            let at = random.below(chunk.len);
            let byte = model[&chunk.id][at as usize];
            put(&store, chunk.id, at, vec![byte ^ (1 << random.below(8))]).unwrap();
            let changed = census(&store, 100);
            let differ = all.iter().zip(&changed).filter(|(a, b)| a != b).map(|(a, _)| a.id);
            assert_eq!(differ.collect::<Vec<_>>(), [chunk.id], "seed {seed} byte {at}");
            put(&store, chunk.id, at, vec![byte]).unwrap();
            assert_eq!(census(&store, 100), all);
        }
    }
}

/// Makes what `store` holds the same as what `from` does, by digests and differences; returns how many
/// bytes were sent.
fn resync(from: &ChunkStore, store: &ChunkStore) -> u64 {
    let [ours, theirs] = [full_census(from, 7), full_census(store, 7)];
    for gone in theirs.iter().filter(|theirs| !ours.iter().any(|ours| ours.id == theirs.id)) {
        store.delete_range(gone.id.volume, gone.id.ino, gone.id.index..=gone.id.index).unwrap();
    }
    let mut sent = 0;
    for chunk in ours.iter().filter(|chunk| !theirs.contains(chunk)) {
        let id = chunk.id;
        let theirs = store.blocks_of(id).unwrap().unwrap_or_else(BlockSums::empty);
        let difference = difference(&from.blocks_of(id).unwrap().unwrap(), &theirs);
        store.set_len(id, difference.len).unwrap();
        for range in difference.punch.iter().chain(&difference.release) {
            store.punch(id, range.start, range.end - range.start).unwrap();
        }
        for range in &difference.send {
            let (bytes, sum) = from.read(id, range.start, range.end - range.start).unwrap();
            assert_eq!(bytes.len() as u64, range.end - range.start);
            store.write(id, range.start, &bytes, sum).unwrap();
            sent += bytes.len() as u64;
        }
        for range in &difference.reserve {
            store.allocate(id, range.start, range.end - range.start).unwrap();
        }
    }
    sent
}

#[test]
fn a_copy_becomes_equal_by_its_differences() {
    for seed in 0..40 {
        let [store, other] = [0, 1000].map(|more| open(&formatted(seed + more, 64 << 20)));
        let mut random = Random(seed);
        let mut model = random_model(&store, &mut random, 30);
        random_model(&other, &mut random, 30);
        resync(&store, &other);
        assert_eq!(state_of(&other), model, "seed {seed}");
        assert_eq!(full_census(&other, 9), full_census(&store, 9), "seed {seed}: what is reserved");
        assert_eq!(resync(&store, &other), 0);
        // What one missed for a while is all that it gets.
        let Some((id, bytes)) = model.iter_mut().find(|(_, bytes)| bytes.len() > 9000) else {
            continue;
        };
        put(&store, *id, 5000, vec![!bytes[5000]]).unwrap();
        bytes[5000] = !bytes[5000];
        assert_eq!(resync(&store, &other), 4096, "seed {seed}");
        assert_eq!(state_of(&other), model, "seed {seed}");
    }
}

#[test]
fn a_chunk_is_made_exactly_so_long() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    let id = chunk(1, 0);
    store.set_len(id, 0).unwrap();
    assert_eq!(census(&store, 9), digests_of(&Model::from([(id, vec![])])));
    put(&store, id, 0, vec![7; 5000]).unwrap();
    store.allocate(id, 8192, 4096).unwrap();
    store.set_len(id, 6000).unwrap();
    let stat = store.chunks_of(VolumeId(1), Ino(1), from(0), usize::MAX).unwrap().0[0];
    assert_eq!((stat.len, stat.occupied), (6000, 12_288), "reserved space is kept");
    assert_eq!((store.reserved(id).unwrap(), stat.reserved), (vec![(8192, 4096)], 4096));
    store.set_len(id, 4500).unwrap();
    let stat = store.chunks_of(VolumeId(1), Ino(1), from(0), usize::MAX).unwrap().0[0];
    assert_eq!((stat.len, stat.occupied, stat.reserved), (4500, 8192, 0));
    store.set_len(id, 1 << 20).unwrap();
    let mut expected = vec![7; 4500];
    expected.resize(1 << 20, 0);
    store.sync().unwrap();
    disk.power_loss();
    drop(store);
    let store = open(&disk);
    assert!(contents(&store, id) == expected);
    use strake_types::limits::CHUNK_BYTES_MAX;
    store.set_len(id, CHUNK_BYTES_MAX).unwrap();
    let refused = store.set_len(chunk(2, 0), CHUNK_BYTES_MAX + 1);
    assert!(matches!(refused, Err(ChunkError::OutOfRange { .. })));
    assert_eq!(store.stat().chunks, 1);
}

#[test]
fn pages_go_on_where_the_last_ended_also_when_nothing_is_wanted() {
    let disk = formatted(1, 256 << 20);
    let store = open(&disk);
    let mut model = Model::new();
    for nth in 0..5000 {
        // Some in the table alone, some in memory alone, some deleted.
        let id = chunk(1 + nth % 3, (nth % 7) << 40 | nth);
        put(&store, id, 0, nth.to_le_bytes().to_vec()).unwrap();
        model.insert(id, nth.to_le_bytes().to_vec());
        if nth == 3000 {
            store.sync().unwrap();
        }
    }
    store.delete_range(VolumeId(1), Ino(2), from(0)).unwrap();
    model.retain(|id, _| id.ino != Ino(2));
    let all = digests_of(&model);
    assert_eq!(census(&store, 100), all);
    assert_eq!(census(&store, 5000), all);

    let tagged = |index: ChunkIndex| index.0 >> 40 == 5;
    let page = store.chunks_after(Some(chunk(1, 0)), tagged, 3).unwrap();
    let expected: Vec<_> = all.iter().filter(|chunk| tagged(chunk.id.index)).take(3).collect();
    assert_eq!(page.chunks.iter().collect::<Vec<_>>(), expected);
    assert_eq!(page.next, Some(expected[2].id));
    let page = store.chunks_after(None, |_| false, 3).unwrap();
    let (seen, next) = (page.chunks.len(), page.next.unwrap());
    assert_eq!(seen, 0);
    assert!(next > all[0].id && next < all[all.len() - 1].id, "{next}: not a part of them");
    assert_eq!(store.chunks_after(Some(next), |_| false, 3).unwrap(), ChunkPage::default());
}

#[test]
fn the_last_chunk_there_can_be_ends_a_page() {
    let store = open(&formatted(1, 64 << 20));
    let last =
        ChunkId { volume: VolumeId(u32::MAX), ino: Ino(u64::MAX), index: ChunkIndex(u64::MAX) };
    put(&store, last, 0, vec![1; 10]).unwrap();
    assert_eq!(store.blocks_of(chunk(1, 0)).unwrap(), None);
    for limit in [0, 1, 2] {
        let page = store.chunks_after(None, |_| true, limit).unwrap();
        assert_eq!(page.chunks, digests_of(&Model::from([(last, vec![1; 10])])));
        if let Some(next) = page.next {
            assert_eq!(
                store.chunks_after(Some(next), |_| true, limit).unwrap(),
                ChunkPage::default()
            );
        }
    }
}

#[test]
fn a_walk_over_all_chunks_leaves_memory_to_what_is_in_use() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    for index in 0..100 {
        put(&store, chunk(1, index), 0, vec![1; 10]).unwrap();
    }
    drop(store);
    let store = open(&disk);
    assert_eq!(census(&store, 7).len(), 100);
    let loaded = store.resident.between(chunk(0, 0), chunk(9, 0), usize::MAX);
    assert_eq!(loaded, []);
}

/// Tags in the upper bits keep the chunks of a file apart.
#[test]
fn ranges_of_indices_have_an_end() {
    let disk = formatted(1, 64 << 20);
    let mut store = open(&disk);
    let tag = |tag: u64, index: u64| tag << 40 | index;
    let indices = [0, 1, tag(1, 0), tag(1, 1), tag(0xff_ffff, 0), u64::MAX];
    for round in 0..3 {
        for index in indices {
            put(&store, chunk(1, index), 0, vec![1; 10]).unwrap();
        }
        put(&store, chunk(2, 0), 0, vec![1; 10]).unwrap();
        if round > 0 {
            store.sync().unwrap();
        }
        if round == 2 {
            drop(store);
            store = open(&disk);
        }
        let found = |first, last| {
            let range = ChunkIndex(first)..=ChunkIndex(last);
            let found = store.chunks_of(VolumeId(1), Ino(1), range, usize::MAX).unwrap().0;
            found.iter().map(|stat| stat.index.0).collect::<Vec<_>>()
        };
        let delete = |first, last| {
            let range = ChunkIndex(first)..=ChunkIndex(last);
            store.delete_range(VolumeId(1), Ino(1), range).unwrap();
        };
        assert_eq!(found(0, u64::MAX), indices);
        assert_eq!(found(1, tag(1, 0)), indices[1..3]);
        assert_eq!(found(tag(1, 0), tag(2, 0) - 1), indices[2..4]);
        assert_eq!(found(u64::MAX, u64::MAX), indices[5..]);
        let every_nth = |range, nth| {
            let found = store.every_nth(VolumeId(1), Ino(1), range, nth).unwrap();
            found.into_iter().map(|index| index.0).collect::<Vec<_>>()
        };
        assert_eq!(every_nth(from(0), 2), [indices[0], indices[2], indices[4]]);
        assert_eq!(every_nth(from(0), 5), [indices[0], indices[5]]);
        assert_eq!(every_nth(from(1), 5), [indices[1]]);
        assert_eq!(every_nth(ChunkIndex(0)..=ChunkIndex(1), 1), indices[..2]);
        assert!(every_nth(ChunkIndex(2)..=ChunkIndex(9), 1).is_empty());
        assert_eq!(found(5, 4), []);
        delete(5, 4);
        delete(tag(1, 1), tag(1, 1) + 7);
        delete(u64::MAX, u64::MAX);
        assert_eq!(found(0, u64::MAX), [0, 1, tag(1, 0), tag(0xff_ffff, 0)]);
        delete(1, tag(0xff_ffff, 0));
        assert_eq!(found(0, u64::MAX), [0]);
        assert_eq!(contents(&store, chunk(2, 0)), vec![1; 10]);
    }
}

/// A digest taken while a chunk is written to, pushed out of memory and loaded again is of one moment, and
/// misses nothing that was acknowledged before it was asked for.
#[test]
fn sums_are_of_one_moment_and_miss_nothing_acknowledged() {
    const ROUNDS: u64 = 400;
    let small = ChunkOptions { map_cache_bytes: 4096, ..options() };
    let disk = formatted(1, 256 << 20);
    let open = || ChunkStore::open(disk.process(), small.clone()).unwrap();
    let (store, id, others) = (open(), chunk(1, 0), 1000);
    let block = |round: u64| round.to_le_bytes().repeat(512);
    let rounds: HashMap<u32, u64> =
        (1..=ROUNDS).map(|round| (crc_fast::crc32_iscsi(&block(round)), round)).collect();
    let digests: HashMap<u64, u64> =
        (1..=ROUNDS).map(|round| (digest_of(&block(round).repeat(8)), round)).collect();
    put(&store, id, 0, block(1).repeat(8)).unwrap();
    for index in 0..others {
        put(&store, chunk(2, index), 0, vec![1; 10]).unwrap();
    }
    drop(store);
    let store = open();
    let (acknowledged, pushed_out) = (AtomicU64::new(1), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 2..=ROUNDS {
                put(&store, id, 0, block(round).repeat(8)).unwrap();
                acknowledged.store(round, Ordering::SeqCst);
                if round % 10 == 0 {
                    store.checkpoint().unwrap();
                    (0..others).for_each(|index| drop(contents(&store, chunk(2, index))));
                    let ids = store.resident.between(id, id, 1);
                    pushed_out.fetch_add(u64::from(ids.is_empty()), Ordering::SeqCst);
                }
            }
        });
        while !writer.is_finished() {
            let before = acknowledged.load(Ordering::SeqCst);
            let sums = store.blocks_of(id).unwrap().unwrap();
            let (_, sum) = sums.blocks()[0];
            let whole: Vec<_> = (0..8).map(|nth| (nth, sum)).collect();
            assert_eq!(sums.blocks(), whole, "a write by half");
            assert!(rounds[&sum] >= before);
            let before = acknowledged.load(Ordering::SeqCst);
            let page = store.chunks_after(None, |_| true, 1).unwrap();
            assert!(digests[&page.chunks[0].digest] >= before);
        }
    });
    assert!(pushed_out.into_inner() > 0, "always in memory");
}

/// The page failed for ever: nothing behind that chunk was compared. And what is damaged on both is not the same for that.
#[test]
fn a_page_shows_a_chunk_whose_map_is_damaged_as_like_no_other_and_goes_on_behind_it() {
    let stores = [1, 2].map(with_a_damaged_map);
    let [ours, theirs] = [&stores[0], &stores[1]].map(|store| census(store, 2));
    let ids: Vec<ChunkId> = ours.iter().map(|found| found.id).collect();
    assert_eq!(ids, [0, 1, 2].map(|index| chunk(1, index)));
    let same: Vec<bool> = ours.iter().zip(&theirs).map(|(a, b)| a == b).collect();
    assert_eq!(same, [true, false, true]);
    let refused = stores[0].blocks_of(chunk(1, 1)).unwrap_err();
    assert!(matches!(refused, ChunkError::Damaged { .. }), "{refused}");
}
