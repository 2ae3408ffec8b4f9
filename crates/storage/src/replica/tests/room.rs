//! A member with less room than the others.

use super::*;
use crate::tag::Tag;
use std::ops::Range;

const MIB: usize = 1 << 20;

impl Bench {
    /// The members, of which the last may hold so many bytes.
    async fn start_with_small_member(capacity: u64) -> Bench {
        let bench = Bench::start().await;
        bench.shrink(3, capacity).await;
        bench
    }

    /// A member starts anew, and may hold so many bytes.
    async fn shrink(&self, member: u32, capacity: u64) {
        self.kill(member);
        *self.capacity.lock() = Some(capacity);
        self.start_member(member).await;
    }

    /// Reserves 8 MiB in each of these chunks, all at once. In how many it was made, and in how many refused: at each member.
    async fn reserve_at_once(self: &Arc<Self>, indices: Range<u64>) -> (usize, usize) {
        const BLOCKS: u64 = 8 * 256;
        let reservers = indices.clone().map(|index| {
            let bench = self.clone();
            let allocate = StorageOp::Allocate(blocks(index, 0, BLOCKS));
            tokio::spawn(async move { bench.change(allocate, Bytes::new()).await })
        });
        let (mut made, mut refused) = (0, 0);
        for (index, reserver) in indices.zip(reservers.collect::<Vec<_>>()) {
            let expected = match reserver.await.unwrap() {
                Ok(()) => {
                    made += 1;
                    BLOCKS
                }
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
                    refused += 1;
                    0
                }
            };
            for member in 1..=MEMBERS {
                let reserved = self.reserved_at(member, index).len() as u64;
                assert_eq!(reserved, expected, "{index} at {member}");
            }
        }
        (made, refused)
    }

    /// The blocks that a member has reserved in a chunk.
    pub(super) fn reserved_at(&self, member: u32, index: u64) -> Vec<u32> {
        let target = self.server(member).local(TargetId(member)).unwrap();
        let tag = Tag::of(TargetId(member), self.group);
        let sums = target.store.blocks_of(tag.mark(chunk(index).into()).unwrap()).unwrap();
        sums.map_or_else(Vec::new, |sums| sums.reserved().unwrap().to_vec())
    }

    /// Makes a change as soon as the primary knows who is in sync.
    async fn change_in_time(&self, op: StorageOp) {
        self.until(async || self.change(op.clone(), Bytes::new()).await.ok()).await;
    }

    /// A member that does not run gets an empty disk.
    async fn swap_disk(&self, member: u32) {
        // The life before may not have ended yet.
        while ChunkStore::open(self.disk(member), ChunkOptions::default()).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let dir = self.dir.path().join(member.to_string());
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::create_dir(&dir).unwrap();
        self.format(member);
    }

    /// The whole of a chunk of 1 MiB.
    async fn fill(&self, index: u64, fill: u8) -> Result<()> {
        let data = Bytes::from(vec![fill; MIB]);
        let write =
            msg::Write { chunk: chunk(index), offset: 0, crc: crc32c(&data), durable: false };
        self.change(StorageOp::Write(write), data).await
    }

    async fn fill_until_full(&self) -> u64 {
        for index in 0.. {
            if let Err(error) = self.fill(index, 1).await {
                assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
                assert!(error.to_string().contains("target 3 is short of room"), "{error}");
                return index;
            }
        }
        unreachable!()
    }
}

#[tokio::test]
async fn a_change_for_which_a_member_has_no_room_is_refused_and_the_member_stays() {
    let bench = Bench::start_with_small_member(32 * MIB as u64).await;
    let range = msg::Range { chunk: chunk(100), offset: 0, len: MIB as u64 };
    bench.change(StorageOp::Allocate(range), Bytes::new()).await.unwrap();
    let made = bench.fill_until_full().await;
    assert!(made >= 16, "{made} MiB");
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    bench.fill(100, 2).await.unwrap();
    bench.fill(0, 3).await.unwrap_err();
    let cut = cut_from(4, None);
    bench.change(StorageOp::Truncate(cut), Bytes::new()).await.unwrap();
    bench.until(async || bench.fill(4, 5).await.ok()).await;
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    bench.reads_at(1..=MEMBERS, 0, 1).await;
}

/// Of what is kept back for a member's extent map so many bytes are left, and others have the rest of the disk: but for the first granule
/// of data, what was set aside is theirs, too.
pub(super) fn use_up(disk: &SimDisk, left: usize) {
    let process = disk.process();
    process.open("reserve", false).unwrap().set_len(left as u64).unwrap();
    process.open("data-00000", false).unwrap().punch(MIB as u64, 1 << 30).unwrap();
    disk.fill();
}

/// So many whole blocks of a chunk.
fn blocks(index: u64, first: u64, count: u64) -> msg::Range {
    let (offset, len) = (first * BLOCK as u64, count * BLOCK as u64);
    msg::Range { chunk: chunk(index), offset, len }
}

/// A copy that was made equal had the same bytes and nothing reserved: a write to what `fallocate` had reserved was refused.
#[tokio::test]
async fn a_member_that_comes_back_has_reserved_what_the_others_have() {
    const BLOCKS: u64 = (MIB / BLOCK) as u64;
    for swapped in [false, true] {
        let bench = Bench::start_with_small_member(32 * MIB as u64).await;
        let before = StorageOp::Allocate(blocks(101, 0, 8));
        bench.change(before, Bytes::new()).await.unwrap();
        bench.lose(3);
        bench.change_in_time(StorageOp::Allocate(blocks(100, 0, BLOCKS))).await;
        bench.change_in_time(StorageOp::Punch(blocks(101, 2, 3))).await;
        if swapped {
            bench.swap_disk(3).await;
        }
        bench.start_member(3).await;
        bench.manager.let_join(3);
        bench.until_in_sync(&[1, 2, 3]).await;
        for member in 1..=MEMBERS {
            assert_eq!(bench.reserved_at(member, 100).len() as u64, BLOCKS, "at {member}");
            assert_eq!(bench.reserved_at(member, 101), [0, 1, 5, 6, 7], "at {member}");
        }
        bench.write(0, 1).await;
        bench.fill_until_full().await;
        bench.fill(100, 2).await.unwrap();
        assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    }
}

/// It failed to reserve what the others had, each time that it was to be made equal, and stayed away although it had all bytes.
#[tokio::test]
async fn a_member_without_room_for_what_is_reserved_comes_back_and_writes_into_that_are_refused() {
    let bench = Bench::start_with_small_member(32 * MIB as u64).await;
    bench.manager.take_out(3);
    for index in 100..140 {
        let whole = msg::Range { chunk: chunk(index), offset: 0, len: MIB as u64 };
        bench.change_in_time(StorageOp::Allocate(whole)).await;
    }
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    bench.change_in_time(StorageOp::Punch(blocks(138, 0, 1))).await;
    bench.fill_until_full().await;
    // It is full now, and has less reserved than the others.
    bench.lose(3);
    bench.start_member(3).await;
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    assert_eq!(bench.reserved_at(3, 100), bench.reserved_at(1, 100));
    assert!(bench.reserved_at(3, 139).is_empty());
    bench.change_in_time(StorageOp::Punch(blocks(138, 0, 1))).await;
    bench.fill(100, 2).await.unwrap();
    let refused = bench.fill(139, 2).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoSpace, "{refused}");
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
}

/// All of it was reserved at once, and a member that had less had to leave; or until one was short, which then took no writes.
#[tokio::test]
async fn a_comparison_reserves_only_where_far_more_room_is_left_than_a_member_keeps() {
    let bench = Bench::start_with_small_member(32 * MIB as u64).await;
    let behind = Bytes::from(vec![1; BLOCK]);
    let (len, crc) = (40 * MIB as u64, crc32c(&behind));
    let write = msg::Write { chunk: chunk(100), offset: len, crc, durable: false };
    bench.change(StorageOp::Write(write), behind).await.unwrap();
    bench.manager.take_out(3);
    let range = msg::Range { chunk: chunk(100), offset: 0, len };
    bench.change_in_time(StorageOp::Allocate(range)).await;
    // A member of an earlier release, which has the same bytes, does not say that it has nothing reserved.
    bench.net.older.store(true, Ordering::Relaxed);
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    bench.net.older.store(false, Ordering::Relaxed);
    bench.write(0, 1).await;
    assert!(bench.reserved_at(3, 100).is_empty());
    assert_eq!(bench.compare(true).await.unwrap(), (vec![], vec![]));
    let reserved = bench.reserved_at(3, 100).len() * BLOCK / MIB;
    assert!((1..24).contains(&reserved), "{reserved} MiB");
    bench.fill(1, 2).await.unwrap();
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
}

/// The primary died when one member had reserved room and another had not: that stayed so.
#[tokio::test]
async fn what_one_member_has_reserved_is_reserved_by_all_or_by_none_when_there_is_a_new_primary() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.cut(1, 3);
    let half = tokio::spawn({
        let bench = bench.clone();
        async move { bench.change(StorageOp::Allocate(blocks(5, 0, 2)), Bytes::new()).await }
    });
    bench.until(async || (bench.reserved_at(2, 5) == [0, 1]).then_some(())).await;
    assert!(bench.reserved_at(3, 5).is_empty());
    bench.lose(1);
    half.abort();
    assert_eq!(bench.read(2, 0).await, 1, "it leads");
    assert_eq!(bench.reserved_at(3, 5), bench.reserved_at(2, 5));
}

/// The primary looked at its own reservation only, made the change, and the member had to leave.
#[tokio::test]
async fn what_is_reserved_at_the_primary_alone_is_refused_while_another_copy_has_no_room() {
    let bench = Bench::start_with_small_member(32 * MIB as u64).await;
    let behind = Bytes::from(vec![1; BLOCK]);
    let (offset, crc) = (MIB as u64, crc32c(&behind));
    let write = msg::Write { chunk: chunk(100), offset, crc, durable: false };
    bench.change(StorageOp::Write(write), behind).await.unwrap();
    bench.manager.take_out(3);
    let range = msg::Range { chunk: chunk(100), offset: 0, len: MIB as u64 };
    let allocate = async || bench.change(StorageOp::Allocate(range), Bytes::new()).await;
    bench.until(async || allocate().await.ok()).await;
    // A member of an earlier release, which has the same bytes, does not say that it has nothing reserved.
    bench.net.older.store(true, Ordering::Relaxed);
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    bench.net.older.store(false, Ordering::Relaxed);
    assert!(bench.reserved_at(3, 100).is_empty());
    bench.write(0, 1).await;
    bench.fill_until_full().await;
    for refused in [bench.fill(100, 2).await, allocate().await] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
    }
    let data = Bytes::from(vec![3; BLOCK]);
    let many = msg::WriteMany {
        volume: 1,
        ino: 2,
        indices: vec![100],
        offsets: vec![0],
        lens: vec![BLOCK as u64],
        crcs: vec![crc32c(&data)],
    };
    let refused = bench.change(StorageOp::WriteMany(many), data).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoSpace, "{refused}");
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
}

/// The member failed to make what its primary had made, and had to leave.
#[tokio::test]
async fn a_reservation_for_which_a_member_has_no_room_is_made_by_nobody_and_the_member_stays() {
    let bench = Bench::start_with_small_member(32 * MIB as u64).await;
    let allocate = async |range| bench.change(StorageOp::Allocate(range), Bytes::new()).await;
    allocate(blocks(100, 8, 2)).await.unwrap();
    // The last one is less than it has, but leaves less than it keeps.
    for (index, mib) in [(100, 40), (101, 64), (102, 31)] {
        let error = allocate(blocks(index, 0, mib * 256)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
        assert!(error.to_string().contains("target 3 is short of room"), "{error}");
    }
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    for member in 1..=MEMBERS {
        assert_eq!(bench.reserved_at(member, 100), [8, 9], "at {member}");
        assert!(bench.reserved_at(member, 101).is_empty(), "at {member}");
        assert!(bench.reserved_at(member, 102).is_empty(), "at {member}");
    }
    assert_eq!(bench.compare(false).await.unwrap(), (vec![], vec![]));
    allocate(blocks(103, 0, 256)).await.unwrap();
    assert_eq!(bench.reserved_at(3, 103).len(), 256);
    bench.fill(104, 1).await.unwrap();
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
}

/// Only the primary looked whether its own extent map has room: it made the punch, and the member that refused it had to leave.
#[tokio::test]
async fn a_punch_for_which_a_member_has_no_room_in_its_map_is_refused_and_the_member_stays() {
    let bench = Bench::start().await;
    let disk = bench.simulate(3).await;
    bench.fill(0, 1).await.unwrap();
    bench.lose(3);
    disk.kill();
    use_up(&disk, 0);
    bench.start_member(3).await;
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    // All hear with this that it is short.
    bench.change_in_time(StorageOp::Punch(blocks(1, 0, 1))).await;
    for _ in 0..2 {
        let punched = bench.change(StorageOp::Punch(blocks(0, 3, 1)), Bytes::new()).await;
        assert_eq!(punched.unwrap_err().kind, ErrorKind::NoSpace);
    }
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    assert_eq!(bench.read(1, 0).await, 1);
    bench.change(StorageOp::Punch(blocks(0, 0, 256)), Bytes::new()).await.unwrap();
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
}

/// An earlier release had used up what is kept back for the extent map, and does not tell when it has: on a full disk what a copy was to be
/// made equal with was refused after the upgrade, as what is new is, and it was never in sync again. So was a punch, as long as anything was left.
#[tokio::test]
async fn a_member_with_hardly_any_room_in_its_map_is_made_equal_all_the_same() {
    for (left, change) in [(10 * MIB, None), (MIB, Some(StorageOp::Punch(blocks(0, 3, 1))))] {
        let bench = Bench::start().await;
        let disk = bench.simulate(3).await;
        bench.fill(0, 1).await.unwrap();
        // Free room in a part of the disk that is in use.
        bench.change_in_time(StorageOp::Punch(blocks(0, 128, 128))).await;
        bench.lose(3);
        disk.kill();
        use_up(&disk, left);
        match change {
            Some(change) => bench.change_in_time(change).await,
            None => bench.write(3, 2).await,
        }
        bench.start_member(3).await;
        bench.manager.let_join(3);
        bench.until_in_sync(&[1, 2, 3]).await;
        assert_eq!(bench.read(3, 3).await, bench.read(1, 3).await);
    }
}

/// It was taken back, and those that had made it remembered it as made: the next primary answered so when it was asked again.
#[tokio::test]
async fn a_reservation_that_was_refused_is_refused_by_the_next_primary_too() {
    let bench = Bench::start_with_small_member(32 * MIB as u64).await;
    let attempt = bench.attempt();
    let allocate = async |primary: u32| {
        let op = StorageOp::Allocate(blocks(100, 0, 40 * 256));
        let request = StorageRequest { attempt: Some(attempt), ..bench.request(primary, op) };
        bench.send(request, Bytes::new()).await.map(drop)
    };
    assert_eq!(allocate(1).await.unwrap_err().kind, ErrorKind::NoSpace);
    // With this all hear what is settled.
    bench.write(0, 1).await;
    bench.write(0, 2).await;
    bench.manager.take_out(1);
    bench.write(0, 3).await;
    assert_eq!(allocate(2).await.unwrap_err().kind, ErrorKind::NoSpace);
    for member in 2..=MEMBERS {
        assert!(bench.reserved_at(member, 100).is_empty(), "at {member}");
    }
}

/// It had to leave for a reservation that it had no room for.
#[tokio::test]
async fn a_member_that_could_not_be_asked_and_has_no_room_for_a_reservation_stays_without_it() {
    let bench = Arc::new(Bench::start_with_small_member(32 * MIB as u64).await);
    bench.write(0, 1).await;
    bench.cut(1, 3);
    let reserver = tokio::spawn({
        let bench = bench.clone();
        let allocate = StorageOp::Allocate(blocks(100, 0, 40 * 256));
        async move { bench.change(allocate, Bytes::new()).await }
    });
    bench.until(async || (!bench.reserved_at(2, 100).is_empty()).then_some(())).await;
    bench.net.cut.lock().clear();
    reserver.await.unwrap().unwrap();
    assert!(bench.reserved_at(3, 100).is_empty());
    assert_eq!(bench.compare(false).await.unwrap(), (vec![], vec![]));
    bench.fill(101, 1).await.unwrap();
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
}

/// Each found room for itself, and what was kept for writes under way was gone.
#[tokio::test]
async fn of_many_reservations_at_once_each_is_made_by_all_members_or_by_none() {
    let bench = Arc::new(Bench::start_with_small_member(32 * MIB as u64).await);
    let (made, refused) = bench.reserve_at_once(100..108).await;
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
}

/// There, nobody looked for room one after the other.
#[tokio::test]
async fn of_many_reservations_at_a_small_primary_none_takes_what_it_keeps() {
    let bench = Arc::new(Bench::start().await);
    bench.shrink(1, 32 * MIB as u64).await;
    // It has forgotten which numbers it gave.
    bench.manager.decide(|_| {});
    let (made, refused) = bench.reserve_at_once(100..108).await;
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
    assert!(!bench.server(1).local(TargetId(1)).unwrap().is_short());
    bench.fill(200, 1).await.unwrap();
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
}

/// A member without room answered like one that had reserved it, so the primary of an earlier release had the copy move without.
#[tokio::test]
async fn the_only_copy_does_not_move_to_where_there_is_no_room_for_what_is_reserved() {
    let bench = Bench::start_with(GroupId::of_class(1, 0), &[1]).await;
    bench.shrink(2, 32 * MIB as u64).await;
    bench.write(0, 1).await;
    let allocate = StorageOp::Allocate(blocks(0, 256, 40 * 256));
    bench.change(allocate, Bytes::new()).await.unwrap();
    bench.begin_move(1, 2);
    let is_tried = async || bench.manager.map.lock().groups[0].joining.is_empty().then_some(());
    bench.until(is_tried).await;
    assert_eq!(bench.manager.in_sync(), [1]);
    assert_eq!(bench.read(1, 0).await, 1);
    assert_eq!(bench.reserved_at(1, 0).len(), 40 * 256);
}

#[tokio::test]
async fn a_member_that_left_with_too_little_room_holds_up_nobody() {
    let bench = Bench::start_with_small_member(32 * MIB as u64).await;
    let made = bench.fill_until_full().await;
    bench.manager.take_out(3);
    bench.until(async || bench.fill(made, 1).await.ok()).await;
}

#[tokio::test]
async fn many_writers_at_once_fill_a_small_member_and_it_stays() {
    let bench = Arc::new(Bench::start_with_small_member(128 * MIB as u64).await);
    let writers = (0..6).map(|nth| {
        let bench = bench.clone();
        tokio::spawn(async move {
            for index in (nth..).step_by(6) {
                if let Err(error) = bench.fill(index, 1).await {
                    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
                    return;
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
}

/// It had its range first, and readers of that waited for the reservations of others, and for their members.
#[tokio::test]
async fn a_reservation_that_waits_for_others_keeps_no_reader_waiting() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    let server = bench.server(1);
    let replica = server.replica(&server.targets()[0], bench.group, 0).await.unwrap();
    let others = replica.reserving.lock().await;
    let reserver = {
        let (bench, allocate) = (bench.clone(), StorageOp::Allocate(blocks(0, 0, 8)));
        tokio::spawn(async move { bench.change(allocate, Bytes::new()).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.read_from(1, 0).await.unwrap(), 1);
    drop(others);
    reserver.await.unwrap().unwrap();
}
