//! A store that is lost in the middle of a commit.

use crate::tests::check::check;
use crate::tests::world::*;
use std::sync::Arc;
use strake_engine::kv::memory::MemoryKv;
use strake_types::{ErrorKind, FileKind, Ino};
use strake_wire::message::meta::{MetaAnswer, MetaOp};

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
