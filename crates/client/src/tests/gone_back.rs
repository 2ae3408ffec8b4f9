//! What becomes of what a mount knows when its metadata server has lost it with its power.

use super::*;

/// It succeeded: the server was asked for nothing but a sync of its journal.
#[tokio::test]
async fn an_fsync_of_a_file_that_is_nowhere_fails_each_time() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let ino = file.ino();
    fake.restart_without(ino);
    for _ in 0..2 {
        assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::Stale);
    }
    volume.fsync_dir(ino).await.expect("another mount may have removed a directory");
    volume.sync_all().await.unwrap();
}
