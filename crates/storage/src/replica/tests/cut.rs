//! Cuts of files with more chunks than are cut at once.

use super::*;

/// More than are deleted at a time.
const CHUNKS: u64 = 1_100;

impl Bench {
    /// Writes a byte to each of the first chunks of the file.
    async fn write_chunks(&self) {
        let data = Bytes::from(vec![7; CHUNKS as usize]);
        let crc = crc32c(&data[..1]);
        let many = msg::WriteMany {
            volume: 1,
            ino: 2,
            indices: (0..CHUNKS).collect(),
            offsets: vec![0; CHUNKS as usize],
            lens: vec![1; CHUNKS as usize],
            crcs: vec![crc; CHUNKS as usize],
        };
        self.change(StorageOp::WriteMany(many), data).await.unwrap();
    }

    /// The chunks that a member has of the file, and how long they are.
    async fn chunks_and_lengths_at(&self, member: u32) -> (Vec<u64>, Vec<u64>) {
        let op = StorageOp::Chunks(msg::ChunksOf { volume: 1, ino: 2, from: 0, max: 0 });
        let ask = async || self.send(self.request(member, op.clone()), Bytes::new()).await.ok();
        match self.until(ask).await.0 {
            StorageAnswer::Chunks(list) => (list.indices, list.lens),
            other => panic!("{other:?}"),
        }
    }
}

fn cut(from_index: u64, last_chunk_len: Option<u64>) -> msg::Truncate {
    msg::Truncate { volume: 1, ino: 2, from_index, last_chunk_len }
}

#[tokio::test]
async fn a_file_of_many_chunks_is_cut_at_all_members() {
    let bench = Bench::start().await;
    bench.write_chunks().await;
    let op = StorageOp::Truncate(cut(2, Some(0)));
    bench.change(op, Bytes::new()).await.unwrap();
    for member in 1..=MEMBERS {
        assert_eq!(
            bench.chunks_and_lengths_at(member).await,
            (vec![0, 1], vec![1, 0]),
            "at {member}"
        );
    }
    assert_eq!(bench.compare(false).await.unwrap(), (vec![], vec![]));
}

/// A new epoch waited until all chunks were gone, 10 to 20 s for a million: so long nobody could take the place of a member
/// that was lost.
#[tokio::test]
async fn a_new_epoch_is_adopted_during_a_long_cut_which_then_deletes_nothing_more() {
    let bench = Bench::start().await;
    bench.write_chunks().await;
    let server = bench.server(2);
    let replica = server.replica(&server.local(TargetId(2)).unwrap(), GROUP, 0).await.unwrap();
    let held = replica.hold_epoch().await.unwrap();
    let epoch = *held;
    let adopts = tokio::spawn({
        let replica = replica.clone();
        async move { *replica.adopted.write().await += 1 }
    });
    // It waits for us, and others for it.
    while replica.adopted.try_read().is_ok() {
        tokio::task::yield_now().await;
    }
    let lasts = |now: u64| now == epoch;
    let (held, made) = replica.cut_in_parts(held, cut(0, None), lasts).await;
    assert_eq!(made.unwrap_err().kind, ErrorKind::StaleMap);
    assert_eq!(*held, epoch + 1);
    let all = StorageOp::Chunks(msg::ChunksOf { volume: 1, ino: 2, from: 0, max: 0 });
    match replica.shelf.look(all).await.unwrap().0 {
        StorageAnswer::Chunks(left) => assert_eq!(left.indices.first(), Some(&1_024)),
        other => panic!("{other:?}"),
    }
    adopts.await.unwrap();
}
