//! Changes that fail half-way at the primary.

use super::*;
use crate::replica::lead::Numbered;

/// A block of a chunk, filled.
fn write_of(index: u64, block: u64, fill: u8) -> (StorageOp, Bytes) {
    let data = Bytes::from(vec![fill; BLOCK]);
    let (offset, crc) = (block * BLOCK as u64, crc32c(&data));
    (StorageOp::Write(msg::Write { chunk: chunk(index), offset, crc, durable: false }), data)
}

impl Bench {
    /// Writes a block of chunk 0, and one of chunk 2 with bytes that are not those that were sent: the first is made at the
    /// primary, and the second fails there.
    pub(super) async fn fail_behind(&self, block: u64, fill: u8) -> Result<()> {
        let data = Bytes::from(vec![fill; 2 * BLOCK]);
        let crc = crc32c(&data[..BLOCK]);
        let many = msg::WriteMany {
            volume: 1,
            ino: 2,
            indices: vec![0, 2],
            offsets: vec![block * BLOCK as u64, 0],
            lens: vec![BLOCK as u64; 2],
            crcs: vec![crc, !crc],
        };
        self.change(StorageOp::WriteMany(many), data).await
    }

    /// Who asks for the checksums of a chunk waits from now on.
    fn hold_sums_of(&self, index: u64) {
        *self.net.sums_wait.lock() = Some(index);
    }

    async fn until_sums_are_asked_for(&self) {
        let asked = || self.net.sums_asked.load(Ordering::Relaxed) > 0;
        self.until(async || asked().then_some(())).await;
    }

    fn let_sums_go(&self) {
        *self.net.sums_wait.lock() = None;
    }
}

/// Whole chunks were made equal after a failed change, which held its own range only: what came to the primary and the
/// members after one had looked and before the other was taken away at the member.
#[tokio::test]
async fn a_change_that_fails_takes_away_nothing_of_what_is_written_elsewhere_in_its_chunks() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.hold_sums_of(0);
    let failing = tokio::spawn({
        let bench = bench.clone();
        async move { bench.fail_behind(1, 2).await }
    });
    bench.until_sums_are_asked_for().await;
    bench.write_to(1, bench.attempt(), 5, 3).await.unwrap();
    bench.let_sums_go();
    failing.await.unwrap().unwrap_err();
    bench.reads_at(1..=MEMBERS, 5, 3).await;
    bench.reads_at(1..=MEMBERS, 1, 2).await;
    bench.reads_at(1..=MEMBERS, 0, 1).await;
    assert_eq!(bench.compare(false).await.unwrap(), (vec![], vec![]));
}

/// The length of a chunk is part of what was made equal: what was written behind the end was cut off at the member, or the
/// chunk was deleted there, because the primary had none when it looked.
#[tokio::test]
async fn a_change_that_fails_deletes_no_chunk_that_another_one_makes_meanwhile() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.hold_sums_of(2);
    let failing = tokio::spawn({
        let bench = bench.clone();
        async move { bench.fail_behind(1, 2).await }
    });
    bench.until_sums_are_asked_for().await;
    let (op, data) = write_of(2, 5, 3);
    bench.change(op, data.clone()).await.unwrap();
    bench.let_sums_go();
    failing.await.unwrap().unwrap_err();
    let read = msg::Read { chunk: chunk(2), offset: 5 * BLOCK as u64, len: BLOCK as u64 };
    for member in 1..=MEMBERS {
        let request = bench.request(member, StorageOp::Read(read));
        let read = async || bench.send(request.clone(), Bytes::new()).await.ok();
        assert_eq!(bench.until(read).await.1, data, "at {member}");
    }
    assert_eq!(bench.compare(false).await.unwrap(), (vec![], vec![]));
}

/// Members that were being made equal did not get what a failed change had left at the primary, although they might be past
/// its chunks.
#[tokio::test]
async fn what_a_failed_change_leaves_also_a_member_gets_that_is_joining() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.manager.take_out(3);
    let (op, data) = write_of(1, 0, 4);
    bench.until(async || bench.change(op.clone(), data.clone()).await.ok()).await;
    bench.hold_sums_of(1);
    bench.manager.let_join(3);
    // It has chunk 0, and waits for its turn to get chunk 1.
    bench.until_sums_are_asked_for().await;
    bench.fail_behind(1, 2).await.unwrap_err();
    bench.let_sums_go();
    bench.until_in_sync(&[1, 2, 3]).await;
    bench.reads_at(1..=MEMBERS, 1, 2).await;
    assert_eq!(bench.compare(false).await.unwrap(), (vec![], vec![]));
}

/// It was asked again and again, and nobody could touch what the change had touched for as long as the reign lasted. Taken out
/// by the word of the primary alone it would have answered readers still.
#[tokio::test]
async fn a_member_that_fails_for_good_while_it_is_made_equal_takes_itself_out() {
    let is_sums: fn(&StorageOp) -> bool = |op| matches!(op, StorageOp::Sums(_));
    for kind in [ErrorKind::Io, ErrorKind::Corrupt] {
        let bench = Arc::new(Bench::start().await);
        bench.write(0, 1).await;
        *bench.net.fails.lock() = Some((3, is_sums, kind));
        let failing = tokio::spawn({
            let bench = bench.clone();
            async move { bench.fail_behind(1, 2).await }
        });
        bench.until_in_sync(&[1, 2]).await;
        assert!(bench.has_resigned(3).await);
        // The primary hears of the new epoch.
        bench.write(5, 4).await;
        let error = failing.await.unwrap().unwrap_err();
        assert_ne!(error.kind, ErrorKind::NotCurrent, "not under way any more: {error}");
        bench.write(1, 3).await;
        for member in [1, 2] {
            assert_eq!(bench.read(member, 1).await, 3, "{kind:?} at {member}");
        }
    }
}

/// What fails a few times only takes nobody out.
#[tokio::test]
async fn a_member_that_fails_for_a_moment_while_it_is_made_equal_stays() {
    let is_sums: fn(&StorageOp) -> bool = |op| matches!(op, StorageOp::Sums(_));
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    *bench.net.fails.lock() = Some((3, is_sums, ErrorKind::Io));
    let failing = tokio::spawn({
        let bench = bench.clone();
        async move { bench.fail_behind(1, 2).await }
    });
    bench.until(async || (bench.net.failed.load(Ordering::Relaxed) > 1).then_some(())).await;
    *bench.net.fails.lock() = None;
    failing.await.unwrap().unwrap_err();
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    bench.reads_at(1..=MEMBERS, 1, 2).await;
}

/// It counted as being applied there for ever: nobody who asked the former primary could read there any more.
#[tokio::test]
async fn what_a_failed_change_has_left_is_read_again_at_a_primary_that_lost_the_lead_meanwhile() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.hold_sums_of(0);
    let failing = tokio::spawn({
        let bench = bench.clone();
        async move { bench.fail_behind(1, 2).await }
    });
    bench.until_sums_are_asked_for().await;
    bench.manager.take_out(1);
    failing.await.unwrap().unwrap_err();
    bench.let_sums_go();
    bench.write(5, 4).await;
    // It comes back, and does not lead.
    bench.manager.decide(|group| {
        group.members = vec![2, 3, 1];
        group.joining.push(1);
    });
    bench.until_in_sync(&[2, 3, 1]).await;
    assert_eq!((bench.read(1, 1).await, bench.read(1, 5).await), (0, 4));
    assert_eq!(bench.read(2, 1).await, 0, "others never had it");
}

/// It stayed until that one had something else to say.
#[tokio::test]
async fn what_a_failed_change_has_left_is_forgotten_where_the_next_primary_has_settled_it_already()
{
    let bench = Bench::start().await;
    let replica = bench.replica(2).await;
    let numbered = Numbered { reign: 1, number: 7 };
    for (settled, stays) in [((1, 7), true), ((2, 1), false)] {
        let begun = replica.entry(Area::of_chunk(chunk(0).into()), None, 1);
        {
            let mut state = replica.state.lock();
            state.settled = settled;
            state.unsettled.insert((1, 7), begun);
        }
        replica.leave_failed(&numbered);
        assert_eq!(replica.state.lock().unsettled.contains_key(&(1, 7)), stays, "{settled:?}");
    }
}
