use crate::tests::world::*;
use strake_types::{ErrorKind, Timestamp};
use strake_wire::message::meta::Publish;

#[tokio::test]
async fn the_length_only_grows_and_the_time_is_the_writers() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.move_out(ino).await.unwrap();
    let mtime = Timestamp { seconds: 99, nanos: 9 };
    let publish = Publish {
        ino,
        length_min: 100_000,
        mtime: Some(mtime.into()),
        occupied_delta: 50_000,
        sync: true,
        ..Publish::default()
    };
    let attr = root.publish(publish).await.unwrap();
    assert_eq!((attr.length, attr.occupied, attr.mtime.seconds), (100_000, 50_000, 99));
    let shorter = Publish { ino, length_min: 5, occupied_delta: -90_000, ..Publish::default() };
    let attr = root.publish(shorter).await.unwrap();
    assert_eq!((attr.length, attr.occupied), (100_000, 0));
    let much = Publish { ino, occupied_delta: 1 << 40, ..Publish::default() };
    assert_eq!(root.publish(much).await.unwrap().occupied, 102_400, "no more than the length");
    let same = root.publish(Publish { ino, length_min: 5, ..Publish::default() }).await.unwrap();
    assert_eq!(same, root.getattr(ino).await.unwrap());
    assert_eq!(root.stat().await.bytes, 102_400);
}

#[tokio::test]
async fn only_writers_publish_and_only_chunks() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let publish = Publish { ino, length_min: 5, ..Publish::default() };
    assert_eq!(kind(root.publish(publish).await), ErrorKind::Invalid);
    root.move_out(ino).await.unwrap();
    assert_eq!(kind(world.user(5, 5).publish(publish).await), ErrorKind::AccessDenied);
    let beyond = Publish { ino, length_min: u64::MAX, ..Publish::default() };
    assert_eq!(kind(root.publish(beyond).await), ErrorKind::FileTooBig);
    let dir = root.mkdir(1, "d").await.unwrap();
    let on_dir = Publish { ino: dir, ..publish };
    assert_eq!(kind(root.publish(on_dir).await), ErrorKind::Invalid);
}
