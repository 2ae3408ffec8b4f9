//! Changes that wait for their turn at a target.

use super::*;
use crate::target::DEPTH_MAX;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A server with one target, which has one group of one copy.
fn server(dir: &tempfile::TempDir) -> Arc<StorageServer> {
    std::fs::create_dir(dir.path().join("1")).unwrap();
    let group = Group { id: 0, epoch: 1, members: vec![1], ..Group::default() };
    let map = ClusterMap {
        cluster: "c".into(),
        epoch: 1,
        servers: vec![Server { id: 1, up: true, ..Server::default() }],
        targets: vec![MapTarget { id: 1, server: 1, up: true, ..MapTarget::default() }],
        groups: vec![group],
        ..ClusterMap::default()
    };
    let map = MapView::fixed(Callers::new(CallerOptions::default()), map);
    let stores = vec![(TargetId(1), store(dir, "1"))];
    Arc::new(StorageServer::with_clock(stores, key(), map, Arc::new(FixedClock)))
}

fn request(op: StorageOp, attempt: Option<msg::Attempt>) -> StorageRequest {
    let capability = key().mint(&capability(Rights::READ_WRITE));
    StorageRequest { target: 1, capability, attempt, op: Some(op), ..StorageRequest::default() }
}

/// A write of which its client says that all before `settled` is over.
fn write(data: &Bytes, seq: u64, settled: u64) -> StorageRequest {
    let write = msg::Write { chunk: chunk(0), offset: 0, crc: crc(data), durable: false };
    request(StorageOp::Write(write), Some(msg::Attempt { client: 5, seq, settled }))
}

/// Takes all turns of a target, until what is returned is dropped.
pub(super) async fn stand_still(target: &Arc<Target>) -> Vec<std::sync::mpsc::Sender<()>> {
    let (begun, mut turns) = mpsc::unbounded_channel();
    let mut held = Vec::new();
    for _ in 0..DEPTH_MAX {
        let (go_on, stopped) = std::sync::mpsc::channel::<()>();
        let (target, begun) = (target.clone(), begun.clone());
        tokio::spawn(async move {
            let wait = move |_: &ChunkStore| {
                begun.send(()).unwrap();
                let _dropped = stopped.recv();
                Ok(())
            };
            target.run(wait).await
        });
        held.push(go_on);
    }
    for _ in 0..DEPTH_MAX {
        turns.recv().await.unwrap();
    }
    held
}

/// Sends a write; returns when it is under way.
async fn begin(
    server: &Arc<StorageServer>,
    data: &Bytes,
    seq: u64,
    settled: u64,
) -> JoinHandle<Result<(StorageReply, Bytes)>> {
    let sent = tokio::spawn({
        let (server, data) = (server.clone(), data.clone());
        async move { server.call(write(&data, seq, settled), data).await }
    });
    let attempts = &server.local(TargetId(1)).unwrap().attempts;
    let again = Some(msg::Attempt { client: 5, seq, settled });
    while attempts.begin(again, None).is_ok() {
        tokio::task::yield_now().await;
    }
    sent
}

/// Both waited while the disk stood still, and nobody looked again when they got their turns.
#[tokio::test]
async fn a_write_that_was_given_up_while_it_waited_is_not_made_over_a_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir);
    let (old, new) = (bytes(1, 4_096), bytes(2, 4_096));
    let held = stand_still(&server.local(TargetId(1)).unwrap()).await;
    let first = begin(&server, &old, 5, 5).await;
    let second = begin(&server, &new, 6, 6).await;
    drop(held);
    assert_eq!(first.await.unwrap().unwrap_err().kind, ErrorKind::NotCurrent);
    second.await.unwrap().unwrap();
    let read = StorageOp::Read(msg::Read { chunk: chunk(0), offset: 0, len: 4_096 });
    let (_, data) = server.call(request(read, None), Bytes::new()).await.unwrap();
    assert_eq!(data, new);
}
