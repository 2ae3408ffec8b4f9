//! What a new primary compares.

use super::*;

pub(super) const CHUNKS: u64 = 1_100;

impl Bench {
    /// Writes a byte to each of the first chunks of the file.
    pub(super) async fn write_chunks(&self) {
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

    /// What asks for something of a file behind it.
    fn behind(&self, target: u32, op: StorageOp) -> StorageRequest {
        let capability = key().mint(&Capability {
            volume: VolumeId(1),
            ino: Ino(3),
            rights: Rights::READ_WRITE,
            session: SessionId(1),
            expires_unix_ms: u64::MAX,
        });
        StorageRequest { capability, ..self.request(target, op) }
    }

    /// Writes a byte there.
    async fn write_behind(&self) {
        let data = Bytes::from(vec![7]);
        let (chunk, crc) = (msg::Chunk { ino: 3, ..chunk(0) }, crc32c(&data));
        let op = StorageOp::Write(msg::Write { chunk, offset: 0, crc, durable: false });
        let request = StorageRequest { attempt: Some(self.attempt()), ..self.behind(1, op) };
        self.send(request, data).await.unwrap();
    }

    /// Reads there.
    pub(super) async fn read_behind(&self, member: u32) -> Result<Bytes> {
        let chunk = msg::Chunk { ino: 3, ..chunk(0) };
        let op = StorageOp::Read(msg::Read { chunk, offset: 0, len: 9 });
        Ok(self.send(self.behind(member, op), Bytes::new()).await?.1)
    }

    pub(super) async fn read_chunk(&self, member: u32, index: u64) -> Result<Bytes> {
        let op = StorageOp::Read(msg::Read { chunk: chunk(index), offset: 0, len: 9 });
        Ok(self.send(self.request(member, op), Bytes::new()).await?.1)
    }
}

/// A cut of the end of a file was in doubt, and the next primary asked for each chunk of it by itself: minutes for a million. What
/// differs is on the last of some pages, which has another file, too.
#[tokio::test]
async fn the_chunks_of_a_file_in_doubt_are_compared_by_pages() {
    let bench = Arc::new(Bench::start().await);
    bench.write_chunks().await;
    bench.write_behind().await;
    let last = CHUNKS - 1;
    for member in [2, 3] {
        bench.until(async || bench.read_chunk(member, last).await.ok()).await;
    }
    bench.cut(1, 3);
    let cut = cut_from(last, None);
    let half = tokio::spawn({
        let bench = bench.clone();
        async move { bench.change(StorageOp::Truncate(cut), Bytes::new()).await }
    });
    bench.until(async || bench.read_chunk(2, last).await.err()).await;
    bench.net.sums.store(0, Ordering::Relaxed);
    bench.lose(1);
    half.abort();
    for member in [2, 3] {
        let first = bench.until(async || bench.read_chunk(member, 0).await.ok()).await;
        let gone = bench.until(async || bench.read_chunk(member, last).await.ok()).await;
        assert_eq!((first.len(), gone.len()), (1, 0), "at {member}");
    }
    let asked = bench.net.sums.load(Ordering::Relaxed);
    assert!(asked <= 10, "for {asked} chunks by themselves");
}

/// Two servers were lost together. The next primary went on asking the other one when that was out, too, and nobody could read or write
/// until it gave that up.
#[tokio::test]
async fn a_new_primary_asks_a_member_no_longer_that_is_taken_out_meanwhile() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.wait_long(2).await;
    bench.net.silent.lock().insert(3);
    bench.lose(1);
    let is_asked = || {
        let unheard = bench.net.unheard.lock();
        unheard.iter().any(|(to, op)| *to == 3 && matches!(op, StorageOp::Adopt(_)))
    };
    bench.until(async || is_asked().then_some(())).await;
    bench.manager.take_out(3);
    // Much sooner than the hour that it would wait for an answer.
    let written = tokio::time::timeout(Duration::from_secs(60), bench.write(0, 2));
    written.await.expect("who is out is not waited for");
    assert_eq!(bench.read(2, 0).await, 2);
}
