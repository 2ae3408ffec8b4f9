//! Walks over what targets hold.

use super::turns::stand_still;
use super::*;

/// How many chunks were found on a target.
fn counted(server: &StorageServer, target: u32) -> u64 {
    let held = server.held().into_iter().filter(|held| held.target == target);
    held.map(|held| held.chunks).sum()
}

/// Targets were walked over one after the other, and nothing of those behind it was known any more.
#[tokio::test]
async fn a_target_whose_disk_hangs_does_not_hold_up_the_walks_over_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = Arc::new(server_of_two_targets(&dir));
    let data = bytes(1, 4_096);
    let write = msg::Write { chunk: chunk(0), offset: 0, crc: crc(&data), durable: false };
    let capability = key().mint(&capability(Rights::READ_WRITE));
    let op = Some(StorageOp::Write(write));
    let request =
        StorageRequest { target: 2, group: 1, capability, op, ..StorageRequest::default() };
    server.call(request, data).await.unwrap();
    let held = stand_still(&server.local(TargetId(1)).unwrap()).await;
    assert!(!server.has_counted(TargetId(2)), "that it has nothing is not said");
    for _ in 0..2_000 {
        server.wake_census();
        if server.has_counted(TargetId(2)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(counted(&server, 2), 1);
    assert!(server.has_walked(TargetId(2)));
    assert!(!server.has_counted(TargetId(1)) && !server.has_walked(TargetId(1)));
    drop(held);
}

/// All that a large one had was deleted first, for as long as that took.
#[tokio::test]
async fn a_walk_over_a_target_that_has_left_deletes_nothing_more_there() {
    let dir = tempfile::tempdir().unwrap();
    let server = server_of_two_targets(&dir);
    let target = server.local(TargetId(1)).unwrap();
    let moved = Tag::of(target.id, GroupId(1)).mark(chunk(0).into()).unwrap();
    let data = bytes(1, 4_096);
    target.store.write(moved, 0, &data, crc(&data)).unwrap();
    server.forget_target(target.id);
    server.walk(&target).await.unwrap();
    assert_eq!(target.store.stat().chunks, 1);
}
