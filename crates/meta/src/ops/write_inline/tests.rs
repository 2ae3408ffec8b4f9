use crate::tests::world::*;
use strake_types::{ErrorKind, FileKind};
use strake_wire::message::common::AttrChange;
use strake_wire::message::meta::{MetaOp, WriteInline};

/// A file that anybody may write, which is not his who has it open.
async fn opened_by_user(world: &World) -> (u64, User<'_>) {
    let made = world.root().make(new(1, "f", FileKind::File, 0o666)).await.unwrap();
    let (ino, session) = (made.attr.ino, world.open_session(0, &[]).await.session);
    let user = world.user(5, 5).at(session);
    user.open(ino, BOTH).await.unwrap();
    (ino, user)
}

#[tokio::test]
async fn bytes_go_where_they_belong_and_gaps_are_zeros() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 2, b"cd").await.unwrap();
    root.write(ino, 0, b"a").await.unwrap();
    let attr = root.write(ino, 6, b"g").await.unwrap();
    assert_eq!((attr.length, attr.occupied), (7, 7));
    assert_eq!(root.read(ino).await.unwrap().unwrap(), &b"a\0cd\0\0g"[..]);
    assert_eq!(root.stat().await.bytes, 7);
}

#[tokio::test]
async fn what_does_not_fit_is_refused() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, &[1; 8192]).await.unwrap();
    assert_eq!(kind(root.write(ino, 8192, b"x").await), ErrorKind::FileTooBig);
    assert_eq!(kind(root.write(ino, u64::MAX, b"x").await), ErrorKind::FileTooBig);
    root.move_out(ino).await.unwrap();
    assert_eq!(kind(root.write(ino, 0, b"x").await), ErrorKind::FileTooBig);
    let fifo = root.make(new(1, "p", FileKind::Fifo, 0o644)).await.unwrap().attr.ino;
    assert_eq!(kind(root.write(fifo, 0, b"x").await), ErrorKind::Invalid);
}

#[tokio::test]
async fn an_open_file_is_written_whatever_its_mode_and_closed_with_the_same_message() {
    let world = World::new().await;
    let (root, (ino, user)) = (world.root(), opened_by_user(&world).await);
    root.chmod(ino, 0o6755).await.unwrap();
    let last = WriteInline {
        ino,
        data: "x".into(),
        close: true,
        drop_setid: true,
        sync: true,
        ..WriteInline::default()
    };
    user.call(MetaOp::WriteInline(last.clone())).await.unwrap();
    assert_eq!(root.getattr(ino).await.unwrap().mode, 0o755);
    assert_eq!(kind(user.call(MetaOp::WriteInline(last)).await), ErrorKind::AccessDenied);
}

#[tokio::test]
async fn mode_and_owner_may_come_with_a_write_of_who_may_set_them() {
    let world = World::new().await;
    let (root, (ino, user)) = (world.root(), opened_by_user(&world).await);
    let with = |change| {
        let (data, change) = ("new".into(), Some(Box::new(change)));
        MetaOp::WriteInline(WriteInline { ino, data, change, ..WriteInline::default() })
    };
    let mode = |mode| AttrChange { mode: Some(mode), ..AttrChange::default() };
    let before = root.getattr(ino).await.unwrap();
    assert_eq!(kind(user.call(with(mode(0o600))).await), ErrorKind::NotPermitted);
    let longer = AttrChange { length: Some(9), ..mode(0o600) };
    assert_eq!(kind(root.call(with(longer)).await), ErrorKind::Invalid);
    assert_eq!(root.getattr(ino).await.unwrap(), before);
    world.clock.advance_ms(1_000);
    let given = AttrChange { uid: Some(5), gid: Some(6), ..mode(0o640) };
    root.call(with(given)).await.unwrap();
    let after = root.getattr(ino).await.unwrap();
    assert_eq!((after.uid, after.gid, after.mode, after.length), (5, 6, 0o640, 3));
    assert!(after.version == before.version + 1 && after.ctime.seconds > before.ctime.seconds);
    user.call(with(mode(0o600))).await.unwrap();
    assert_eq!(root.getattr(ino).await.unwrap().mode, 0o600);
}
