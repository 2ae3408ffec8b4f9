use super::TRIES_MAX;
use crate::tests::disturbed::Disturbed;
use crate::tests::world::*;

/// The inode was read in a cache, and its contents in a snapshot that was taken after the change: zeros for what was gone, which
/// a client could go on with and write back.
#[tokio::test]
async fn who_reads_a_small_file_that_is_cut_or_moves_out_meanwhile_reads_no_zeros() {
    let kv = Disturbed::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, &[7; 5_000]).await.unwrap();
    let cut = async || {
        root.truncate(ino, 100).await.unwrap();
    };
    let read = kv.disturb(root.read(ino), 1, cut).await.unwrap();
    assert_eq!(read.unwrap(), [7u8; 100][..]);
    let moves_out = async || {
        root.move_out(ino).await.unwrap();
    };
    let read = kv.disturb(root.read(ino), 1, moves_out).await.unwrap();
    assert_eq!(read, None, "it lies in chunks");
}

#[tokio::test]
async fn a_small_file_that_is_written_again_and_again_is_read_all_the_same() {
    let kv = Disturbed::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, &[0; 5_000]).await.unwrap();
    let mut written = 0;
    let writes = async || {
        written += 1;
        root.write(ino, 0, &[written; 5_000]).await.unwrap();
    };
    let read = kv.disturb(root.read(ino), TRIES_MAX as usize, writes).await.unwrap();
    assert_eq!(read.unwrap(), [TRIES_MAX as u8; 5_000][..]);
}
