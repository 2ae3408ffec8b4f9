use crate::tests::world::*;
use strake_types::acl::Acl;
use strake_types::{ErrorKind, FileKind};
use strake_wire::message::meta::{Inode, MetaOp, Xattr};

async fn list(user: &User<'_>, ino: u64) -> String {
    let names = user.bytes(MetaOp::ListXattr(Inode { ino })).await.unwrap();
    String::from_utf8_lossy(&names).replace('\0', " ")
}

#[tokio::test]
async fn attributes_are_set_listed_read_and_removed() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let before = root.getattr(ino).await.unwrap();
    root.setxattr(ino, "user.b", b"2").await.unwrap();
    root.setxattr(ino, "user.a", b"1").await.unwrap();
    root.setxattr(ino, "user.a", b"").await.unwrap();
    assert_eq!(list(&root, ino).await, "user.a user.b ");
    assert_eq!(root.getxattr(ino, "user.a").await.unwrap(), "");
    let after = root.getattr(ino).await.unwrap();
    assert!(after.ctime != before.ctime && after.mtime == before.mtime);
    root.removexattr(ino, "user.a").await.unwrap();
    assert_eq!(kind(root.removexattr(ino, "user.a").await), ErrorKind::NoAttribute);
    assert_eq!(kind(root.getxattr(ino, "user.a").await), ErrorKind::NoAttribute);
    assert_eq!(world.keys(b'X').await, 1);
}

#[tokio::test]
async fn create_and_replace_are_told_apart() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let create = Xattr { must_create: true, ..xattr(ino, "user.a", b"1") };
    let replace = Xattr { must_replace: true, ..xattr(ino, "user.a", b"2") };
    let set = async |op: &Xattr| root.call(MetaOp::SetXattr(op.clone())).await;
    assert_eq!(kind(set(&replace).await), ErrorKind::NoAttribute);
    set(&create).await.unwrap();
    assert_eq!(kind(set(&create).await), ErrorKind::Exists);
    set(&replace).await.unwrap();
}

#[tokio::test]
async fn each_name_space_has_its_rules() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let fifo = root.make(new(1, "p", FileKind::Fifo, 0o666)).await.unwrap().attr.ino;
    let user = world.user(5, 5);
    assert_eq!(kind(root.setxattr(fifo, "user.a", b"1").await), ErrorKind::NotPermitted);
    assert_eq!(kind(root.getxattr(fifo, "user.a").await), ErrorKind::NoAttribute);
    root.setxattr(fifo, "trusted.a", b"1").await.unwrap();
    assert_eq!(kind(user.setxattr(ino, "user.a", b"1").await), ErrorKind::AccessDenied);
    assert_eq!(kind(user.setxattr(ino, "trusted.a", b"1").await), ErrorKind::NotPermitted);
    assert_eq!(kind(user.setxattr(ino, "security.a", b"1").await), ErrorKind::NotPermitted);
    assert_eq!(kind(root.setxattr(ino, "system.a", b"1").await), ErrorKind::NotSupported);
    assert_eq!(kind(root.setxattr(ino, "a", b"1").await), ErrorKind::NotSupported);
    root.setxattr(ino, "trusted.a", b"1").await.unwrap();
    root.setxattr(ino, "security.a", b"1").await.unwrap();
    assert_eq!(list(&root, ino).await, "security.a trusted.a ");
    assert_eq!(list(&user, ino).await, "security.a ");
    assert_eq!(kind(user.getxattr(ino, "trusted.a").await), ErrorKind::NoAttribute);
    let dir = root.make(new(1, "d", FileKind::Directory, 0o1777)).await.unwrap().attr.ino;
    assert_eq!(kind(user.setxattr(dir, "user.a", b"1").await), ErrorKind::NotPermitted);
}

#[tokio::test]
async fn sizes_are_bounded() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.setxattr(ino, "user.a", &[0; 65_536]).await.unwrap();
    assert_eq!(kind(root.setxattr(ino, "user.a", &[0; 65_537]).await), ErrorKind::TooBig);
    let long = format!("user.{}", "x".repeat(251));
    assert_eq!(kind(root.setxattr(ino, &long, b"").await), ErrorKind::Range);
    for nth in 0..254 {
        root.setxattr(ino, &format!("user.{nth}"), b"").await.unwrap();
    }
    assert_eq!(kind(root.setxattr(ino, "user.more", b"").await), ErrorKind::NoSpace);
}

#[tokio::test]
async fn an_acl_and_the_mode_say_the_same() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let name = "system.posix_acl_access";
    assert_eq!(kind(root.getxattr(ino, name).await), ErrorKind::NoAttribute);
    root.setxattr(ino, name, &Acl::from_mode(0o751).encode()).await.unwrap();
    assert_eq!(root.getattr(ino).await.unwrap().mode, 0o751);
    assert_eq!(kind(root.getxattr(ino, name).await), ErrorKind::NoAttribute, "it is minimal");
    let named = Acl { groups: vec![(9, 4)], mask: Some(4), ..Acl::from_mode(0o700) };
    root.setxattr(ino, name, &named.encode()).await.unwrap();
    assert_eq!(root.getxattr(ino, name).await.unwrap(), named.encode());
    assert_eq!(list(&root, ino).await, format!("{name} "));
    world.user(5, 9).read(ino).await.unwrap();
    assert_eq!(kind(world.user(5, 8).read(ino).await), ErrorKind::AccessDenied);
    assert_eq!(
        kind(world.user(5, 9).setxattr(ino, name, &named.encode()).await),
        ErrorKind::NotPermitted
    );
    root.removexattr(ino, name).await.unwrap();
    root.removexattr(ino, name).await.unwrap();
    assert_eq!(root.getattr(ino).await.unwrap().mode, 0o740);
    assert_eq!(kind(root.setxattr(ino, name, b"nonsense").await), ErrorKind::NotSupported);
    let default = root.setxattr(ino, "system.posix_acl_default", &named.encode()).await;
    assert_eq!(kind(default), ErrorKind::AccessDenied);
}

#[tokio::test]
async fn an_acl_takes_setgid_away_where_a_kernel_says_so() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.make(new(1, "f", FileKind::File, 0o2770)).await.unwrap().attr.ino;
    let user = world.user(5, 5).checked();
    let set = async |drop_setgid: bool| {
        let acl = xattr(ino, "system.posix_acl_access", &Acl::from_mode(0o750).encode());
        user.call(MetaOp::SetXattr(Xattr { drop_setgid, ..acl })).await.unwrap();
        root.getattr(ino).await.unwrap().mode
    };
    assert_eq!(set(false).await, 0o2750);
    assert_eq!(set(true).await, 0o750);
}
