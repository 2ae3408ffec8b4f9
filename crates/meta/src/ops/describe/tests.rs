use crate::MetaOptions;
use crate::tests::world::*;
use std::sync::Arc;
use strake_engine::kv::memory::MemoryKv;
use strake_types::ErrorKind;
use strake_wire::message::meta::{
    Check, ClientRef, Description, Holder, Inode, Lock, MetaAnswer, MetaOp, Nothing, OpenMode,
};

async fn described(user: &User<'_>, ino: u64) -> Description {
    match user.call(MetaOp::Describe(Inode { ino })).await.unwrap() {
        MetaAnswer::Description(description) => description,
        other => panic!("{other:?}"),
    }
}

async fn paths(user: &User<'_>, ino: u64) -> Vec<String> {
    let paths = described(user, ino).await.paths.into_iter();
    let mut paths: Vec<_> = paths.map(|path| String::from_utf8(path.into()).unwrap()).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn every_name_of_a_file_is_told_as_it_is_now() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let ino = root.file(dir, "a").await.unwrap();
    assert_eq!(paths(&root, 1).await, [""]);
    assert_eq!(paths(&root, ino).await, ["d/a"]);
    root.link(ino, 1, "b").await.unwrap();
    assert_eq!(paths(&root, ino).await, ["b", "d/a"]);
    root.rename((1, "d"), (1, "e")).await.unwrap();
    root.unlink(1, "b").await.unwrap();
    assert_eq!(paths(&root, dir).await, ["e"]);
    assert_eq!(paths(&root, ino).await, ["e/a"]);
}

#[tokio::test]
async fn who_has_a_file_open_or_locked_is_told() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "a").await.unwrap();
    let other = root.file(1, "b").await.unwrap();
    assert_eq!(described(&root, ino).await.holders, []);
    root.open(ino, OpenMode::default()).await.unwrap();
    root.open(ino, OpenMode::default()).await.unwrap();
    let lock = Lock { ino, owner: 1, end: 5, kind: 2, ..Lock::default() };
    root.set_lock(lock).await.unwrap();
    let holders = described(&root, ino).await.holders;
    let [Holder { opens: 2, locks: 1, absent: false, .. }] = holders[..] else {
        panic!("{holders:?}");
    };
    assert_eq!(described(&root, other).await.holders, []);
    root.unlink(1, "a").await.unwrap();
    let orphan = described(&root, ino).await;
    assert_eq!((orphan.paths.len(), orphan.holders.len()), (0, 1));
}

/// A path names directories that a user may not look into.
#[tokio::test]
async fn only_root_is_told() {
    let world = World::new().await;
    let ino = world.root().file(1, "a").await.unwrap();
    let refused = world.user(5, 5).call(MetaOp::Describe(Inode { ino })).await;
    assert_eq!(kind(refused), ErrorKind::NotPermitted);
    assert_eq!(
        kind(world.root().call(MetaOp::Describe(Inode { ino: 99 })).await),
        ErrorKind::Stale
    );
}

/// Who may read the whole store.
#[tokio::test]
async fn the_user_who_runs_the_server_is_told() {
    let options = MetaOptions { root_owner: (5, 5), ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    let ino = world.root().file(1, "a").await.unwrap();
    assert_eq!(paths(&world.user(5, 5), ino).await, ["a"]);
    let refused = world.user(6, 5).call(MetaOp::Describe(Inode { ino })).await;
    assert_eq!(kind(refused), ErrorKind::NotPermitted);
}

/// He evicted clients and repaired volumes, too, which nothing asks in his name.
#[tokio::test]
async fn the_user_who_runs_the_server_is_told_the_names_and_nothing_more() {
    let options = MetaOptions { root_owner: (5, 5), ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    for op in [
        MetaOp::ListClients(Nothing {}),
        MetaOp::EvictClient(ClientRef { session: 1 }),
        MetaOp::Check(Check::default()),
        MetaOp::Check(Check { repair: true, ..Check::default() }),
    ] {
        assert_eq!(kind(world.user(5, 5).call(op).await), ErrorKind::NotPermitted);
    }
}
