//! A store that is lost in the middle of a commit.

use crate::tests::check::check;
use crate::tests::world::*;
use std::sync::Arc;
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_types::{ErrorKind, FileKind, Ino, VolumeId};
use strake_wire::message::meta::{MetaAnswer, MetaOp, Nothing};

/// It was carried out a second time, and found its own file in its way.
#[tokio::test]
async fn a_change_whose_commit_was_lost_with_the_store_is_carried_out_once() {
    let kv = MemoryKv::new();
    let world = World::on(Arc::new(kv.clone())).await;
    let root = world.root();
    root.file(Ino::ROOT.0, "before").await.unwrap();
    let make = || MetaOp::Create(new(Ino::ROOT.0, "a", FileKind::File, 0o644));
    kv.get_lost_at_commit();
    for _ in 0..2 {
        let error = root.call_seq(7, 0, make()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    }
    kv.come_back();
    for _ in 0..2 {
        let answer = root.call_seq(7, 0, make()).await.unwrap();
        assert!(matches!(answer, MetaAnswer::Created(_)), "{answer:?}");
    }
    assert!(root.lookup(Ino::ROOT.0, "a").await.is_ok());
    check(&*world.kv).await;
}

/// The file was there and not counted. Found by simulation (seed 2511000003044).
#[tokio::test(start_paused = true)]
async fn what_a_lost_commit_has_made_is_counted() {
    let kv = MemoryKv::new();
    let world = World::on(Arc::new(kv.clone())).await;
    let root = world.root();
    let count = async || match root.call(MetaOp::VolumeStat(Nothing {})).await.unwrap() {
        MetaAnswer::VolumeStat(stat) => stat.inodes,
        other => panic!("{other:?}"),
    };
    root.file(Ino::ROOT.0, "before").await.unwrap();
    let before = count().await;
    kv.get_lost_at_commit();
    let made = root.call_seq(7, 0, MetaOp::Create(new(Ino::ROOT.0, "a", FileKind::File, 0o644)));
    made.await.unwrap_err();
    kv.come_back();
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    while !volume.counts.is_exact() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(count().await, before + 1);
}
