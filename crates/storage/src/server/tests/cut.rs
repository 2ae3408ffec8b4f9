//! Cuts of many chunks.

use super::*;
use strake_wire::message::storage::Attempt;

const CHUNKS: u64 = 1_100;

/// A server that has a byte in each of the first chunks of the file.
async fn server_of_chunks(dir: &tempfile::TempDir) -> (StorageServer, Arc<Target>) {
    let server = server_of_two_targets(dir);
    let target = server.local(TargetId(1)).unwrap();
    let data = Bytes::from_static(&[7]);
    let write = move |s: &ChunkStore| {
        let write = |index| s.write(ChunkId::from(chunk(index)), 0, &data, crc(&data));
        (0..CHUNKS).try_for_each(write)
    };
    target.run(write).await.unwrap();
    (server, target)
}

fn order(seq: u64) -> Order {
    let attempt = Some(Attempt { client: 5, seq, settled: 1 });
    Order::of(&StorageRequest { attempt, ..StorageRequest::default() }, None)
}

/// Which chunks there are, and how long the last one is.
async fn found(server: &StorageServer, target: &Arc<Target>) -> (Vec<u64>, Option<u64>) {
    let op = StorageOp::Chunks(chunks_from(0, 0));
    match server.look(target, GroupId(0), 0, op).await.unwrap().0 {
        StorageAnswer::Chunks(list) => (list.indices, list.lens.last().copied()),
        other => panic!("{other:?}"),
    }
}

/// All of it was one call, for which who moved the group, or fenced a session, had to wait.
#[tokio::test]
async fn a_cut_of_many_chunks_goes_in_parts_from_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (server, target) = server_of_chunks(&dir).await;
    let (few, turn) = server.cut_ahead(&target, &order(1), cut_from(700, None)).await.unwrap();
    drop(turn);
    assert_eq!(few, cut_from(700, None), "it is one part");
    assert_eq!(found(&server, &target).await.0.len() as u64, CHUNKS);
    let (cut, second) = (cut_from(10, Some(0)), order(2));
    let (rest, turn) = server.cut_ahead(&target, &second, cut).await.unwrap();
    drop(turn);
    assert_eq!(rest, msg::Truncate { to_index: Some(509), ..cut });
    let (indices, _) = found(&server, &target).await;
    assert_eq!(indices, (0..510).collect::<Vec<_>>(), "the first part is left");
    let whole = || server.change(&target, &second, StorageOp::Truncate(cut), Bytes::new());
    whole().await.unwrap();
    assert_eq!(found(&server, &target).await, ((0..10).collect(), Some(0)));
    // What is written since stays, however often the cut is asked for.
    let (data, behind) = (Bytes::from_static(&[7]), ChunkId::from(chunk(600)));
    target.run(move |s| s.write(behind, 0, &data, crc(&data))).await.unwrap();
    whole().await.unwrap();
    assert_eq!(found(&server, &target).await.0.len(), 11);
}

/// Where a file has one copy both were made side by side, and the first could still be at work on what its client had given up.
#[tokio::test]
async fn the_second_cut_of_a_file_waits_for_the_first_and_sees_that_it_was_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (server, target) = server_of_chunks(&dir).await;
    let cut = StorageOp::Truncate(cut_from(10, None));
    let (_, first) = server.cut_ahead(&target, &order(1), cut_from(900, None)).await.unwrap();
    assert!(first.is_some());
    let other = server.local(TargetId(2)).unwrap();
    let elsewhere = Order { group: GroupId(1), ..order(1) };
    server.change(&other, &elsewhere, cut.clone(), Bytes::new()).await.unwrap();
    let second = order(2);
    let waits = server.change(&target, &second, cut, Bytes::new());
    let goes_on = async {
        while target.attempts.begin(second.attempt, None).is_ok() {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            let (indices, _) = found(&server, &target).await;
            assert_eq!(indices.len() as u64, CHUNKS, "the first is not over");
        }
        let later = Attempt { client: 5, seq: 3, settled: 3 };
        drop(target.attempts.begin(Some(later), None).unwrap());
        drop(first);
    };
    let (second, ()) = tokio::join!(waits, goes_on);
    assert_eq!(second.unwrap_err().kind, ErrorKind::NotCurrent, "it is over for its client");
    assert_eq!(found(&server, &target).await.0.len() as u64, CHUNKS);
}
