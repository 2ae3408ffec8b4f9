//! Cuts of many chunks.

use super::recover::CHUNKS;
use super::*;
use tokio::task::JoinHandle;

/// Of the file's chunks the first and the last, and one that is cut with the first.
const SOME: [u64; 3] = [0, 499, CHUNKS - 1];

impl Bench {
    /// A file of many chunks, at all members.
    async fn with_many_chunks() -> Arc<Bench> {
        let bench = Arc::new(Bench::start().await);
        bench.write_chunks().await;
        for member in 1..=MEMBERS {
            bench.until(async || bench.read_chunk(member, CHUNKS - 1).await.ok()).await;
        }
        bench
    }

    /// Deletes all of the file, at whoever leads.
    async fn cut_all(&self, attempt: msg::Attempt) -> Result<()> {
        let op = StorageOp::Truncate(cut_from(0, None));
        let request = self.request(self.manager.in_sync()[0], op);
        self.send(StorageRequest { attempt: Some(attempt), ..request }, Bytes::new())
            .await
            .map(drop)
    }

    /// Begins to delete all of the file: the primary and `has` have made a part of that, and `lacks` gets nothing.
    async fn begin_to_cut(
        self: &Arc<Self>,
        has: u32,
        lacks: u32,
    ) -> (msg::Attempt, JoinHandle<Result<()>>) {
        self.cut(1, lacks);
        let (bench, attempt) = (self.clone(), self.attempt());
        let cut = tokio::spawn(async move { bench.cut_all(attempt).await });
        // It may not be read there: other errors pass.
        let has_come = |error: &Error| error.detail.contains("a change is under way there");
        self.until(async || self.read_chunk(has, CHUNKS - 1).await.err().filter(has_come)).await;
        (attempt, cut)
    }

    /// How long some chunks are at a member, when it may say so.
    async fn some(&self, member: u32) -> [usize; 3] {
        let mut lens = [0; 3];
        for (len, index) in lens.iter_mut().zip(SOME) {
            let read = self.until(async || self.read_chunk(member, index).await.ok()).await;
            *len = read.len();
        }
        lens
    }

    /// Asks for a cut that was under way when the primary was lost until it is done, at 2 and 3, and then once more.
    async fn finish_cut(&self, attempt: msg::Attempt) {
        self.until(async || self.cut_all(attempt).await.ok()).await;
        for member in [2, 3] {
            assert_eq!(self.some(member).await, [0, 0, 0], "at {member}");
        }
        self.write(0, 3).await;
        self.cut_all(attempt).await.unwrap();
        assert_eq!(self.read(2, 0).await, 3, "a cut is made once");
    }
}

/// It was made as a whole, and a new epoch waited for that.
#[tokio::test]
async fn a_new_epoch_comes_between_the_parts_of_a_cut() {
    let bench = Bench::with_many_chunks().await;
    let (attempt, cut) = bench.begin_to_cut(2, 3).await;
    assert_eq!(bench.some(3).await, [1, 1, 1]);
    let first = bench.read_chunk(2, 0).await.unwrap();
    assert_eq!(first.len(), 1, "the part that is under way does not touch it");
    let again = bench.cut_all(attempt).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::NotCurrent, "it is under way");
    bench.manager.decide(|_| {});
    bench.until(async || bench.read_behind(1).await.ok()).await;
    let first = bench.until(async || bench.read_chunk(2, 0).await.ok()).await;
    assert_eq!(first.len(), 1, "the new epoch has begun, and the cut is under way");
    bench.net.cut.lock().clear();
    // Whoever asked in the epoch before is answered, or is not: it is done.
    drop(cut.await.unwrap());
    bench.until(async || bench.cut_all(attempt).await.ok()).await;
    for member in 1..=MEMBERS {
        assert_eq!(bench.some(member).await, [0, 0, 0], "at {member}");
    }
}

/// The next primary has the part that was under way.
#[tokio::test]
async fn a_cut_goes_on_where_it_was_when_its_primary_is_lost() {
    let bench = Bench::with_many_chunks().await;
    let (attempt, cut) = bench.begin_to_cut(2, 3).await;
    bench.lose(1);
    cut.abort();
    for member in [2, 3] {
        assert_eq!(bench.some(member).await, [1, 1, 0], "at {member}");
    }
    bench.finish_cut(attempt).await;
}

/// The next primary lacks the part that was under way: that much is sent back, and no more.
#[tokio::test]
async fn of_a_cut_whose_primary_is_lost_one_part_at_most_is_undone() {
    let bench = Bench::with_many_chunks().await;
    let (attempt, cut) = bench.begin_to_cut(3, 2).await;
    bench.net.sums.store(0, Ordering::Relaxed);
    bench.lose(1);
    cut.abort();
    for member in [2, 3] {
        assert_eq!(bench.some(member).await, [1, 1, 1], "at {member}");
    }
    let asked = bench.net.sums.load(Ordering::Relaxed);
    assert!(asked <= 500, "for {asked} chunks");
    bench.finish_cut(attempt).await;
}
