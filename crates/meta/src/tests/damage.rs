//! Values that were damaged are named and refused, and nothing else suffers.

use crate::keys;
use crate::tests::world::*;
use strake_engine::kv::{Outcome, Transaction};
use strake_types::{ErrorKind, Ino, VolumeId};
use strake_wire::message::meta::{MetaAnswer, MetaOp, MetaRequest, Nothing};
use strake_wire::service::MetaService;

const V: VolumeId = VolumeId(1);

async fn damage(world: &World, key: Vec<u8>) {
    let mut tx = Transaction::begin(&*world.kv).await.unwrap();
    let mut value = tx.get(&key).await.unwrap().expect("it is there").to_vec();
    value[2] ^= 4;
    tx.put(key, value);
    assert_eq!(tx.commit(&*world.kv).await.unwrap(), Outcome::Committed);
}

#[tokio::test]
async fn a_damaged_value_is_an_error_that_names_its_key() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let ino = root.file(dir, "f").await.unwrap();
    let other = root.file(1, "other").await.unwrap();
    root.write(ino, 0, b"x").await.unwrap();
    for key in [keys::inode(V, Ino(ino)), keys::contents(V, Ino(ino)), keys::shard(V, Ino(dir), 0)]
    {
        damage(&world, key).await;
    }
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    let root = world.root();
    for result in [
        root.getattr(ino).await.map(drop),
        root.lookup(dir, "f").await.map(drop),
        root.write(ino, 0, b"y").await.map(drop),
        root.unlink(dir, "f").await.map(drop),
        root.getattr(dir).await.map(drop),
        root.page(dir, 0, 10, true).await.map(drop),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
        assert!(error.detail.contains("volume 1"), "{error}");
    }
    root.getattr(other).await.unwrap();
    root.file(1, "new").await.unwrap();
}

async fn inodes_of(world: &World, volume: u32) -> strake_types::Result<u64> {
    let op = Some(MetaOp::VolumeStat(Nothing {}));
    let reply = world.server.call(MetaRequest { volume, op, ..MetaRequest::default() }).await?;
    let Some(MetaAnswer::VolumeStat(stat)) = reply.answer else { panic!("{reply:?}") };
    Ok(stat.inodes)
}

/// The server did not start, and all its volumes were away.
#[tokio::test]
async fn a_damaged_session_keeps_only_its_volume_from_being_served() {
    let world = World::new().await;
    {
        let mut map = world.manager.map.lock();
        map.volumes.push(volume(2, "second"));
        map.epoch += 1;
    }
    world.map.refresh().await.unwrap();
    damage(&world, keys::session(V, world.session)).await;
    let world = world.killed().await;
    assert_eq!(inodes_of(&world, 2).await.unwrap(), 1);
    let error = inodes_of(&world, 1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.detail.contains("key S of volume 1"), "{error}");
}

/// The same.
#[tokio::test]
async fn a_volume_whose_counts_are_damaged_is_counted() {
    let world = World::new().await;
    world.root().file(1, "f").await.unwrap();
    // It would store them.
    world.halt().await;
    damage(&world, keys::volume_stat(V)).await;
    let world = world.killed().await;
    assert_eq!(inodes_of(&world, 1).await.unwrap(), 2);
}

#[tokio::test]
async fn garbage_in_messages_is_refused() {
    let world = World::new().await;
    let root = world.root();
    let nothing = MetaRequest { volume: 1, ..MetaRequest::default() };
    assert_eq!(kind(world.server.call(nothing).await), ErrorKind::Malformed);
    let create = strake_wire::message::meta::Create {
        kind: 99,
        ..new(1, "x", strake_types::FileKind::File, 0)
    };
    assert_eq!(kind(root.make(create).await), ErrorKind::Malformed);
}
