//! A member with less room than the others.

use super::*;

const MIB: usize = 1 << 20;

impl Bench {
    /// The members, of which the last may hold so many bytes.
    async fn start_with_small_member(capacity: u64) -> Bench {
        let bench = Bench::start().await;
        bench.kill(3);
        *bench.capacity.lock() = Some(capacity);
        bench.start_member(3).await;
        bench
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
    let cut = msg::Truncate { volume: 1, ino: 2, from_index: 4, last_chunk_len: None };
    bench.change(StorageOp::Truncate(cut), Bytes::new()).await.unwrap();
    bench.until(async || bench.fill(4, 5).await.ok()).await;
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    for member in 1..=MEMBERS {
        assert_eq!(bench.read(member, 0).await, 1);
    }
}

/// The primary looked at its own reservation only, made the change, and the member had to leave.
#[tokio::test]
async fn what_is_reserved_at_the_primary_alone_is_refused_while_another_copy_has_no_room() {
    let bench = Bench::start_with_small_member(32 * MIB as u64).await;
    bench.manager.take_out(3);
    let range = msg::Range { chunk: chunk(100), offset: 0, len: MIB as u64 };
    let allocate = async || bench.change(StorageOp::Allocate(range), Bytes::new()).await;
    bench.until(async || allocate().await.ok()).await;
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
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
