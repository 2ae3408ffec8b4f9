use crate::tests::world::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_engine::kv::memory::SyncedKv;
use strake_types::{ErrorKind, FileKind, GroupId};
use strake_wire::message::common::Template;
use strake_wire::message::manager::Group;
use strake_wire::message::meta::{Inode, MetaAnswer, MetaOp, SetTemplate};

async fn text(user: &User<'_>, ino: u64, field: &str) -> String {
    let value = user.getxattr(ino, &format!("user.strake.layout.{field}")).await.unwrap();
    String::from_utf8(value.to_vec()).unwrap()
}

#[tokio::test]
async fn a_directory_hands_down_what_is_set_on_it() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let before = root.mkdir(dir, "before").await.unwrap();
    root.setxattr(dir, "user.strake.layout.chunk_size", b"4M").await.unwrap();
    root.setxattr(dir, "user.strake.layout.width", b"2").await.unwrap();
    root.setxattr(dir, "user.strake.layout.distribution", b"twod_stripe=2:4\n").await.unwrap();
    let after = root.mkdir(dir, "after").await.unwrap();
    let deep = root.file(after, "f").await.unwrap();
    assert_eq!(text(&root, deep, "chunk_size").await, "4194304");
    assert_eq!(text(&root, deep, "width").await, "2");
    assert_eq!(text(&root, deep, "distribution").await, "twod_stripe=2:4");
    assert_eq!(text(&root, before, "chunk_size").await, "65536", "made before");
    root.removexattr(dir, "user.strake.layout.width").await.unwrap();
    assert_eq!(text(&root, dir, "width").await, "3", "all there are");
    let list = root.bytes(MetaOp::ListXattr(Inode { ino: dir })).await.unwrap();
    assert!(list.is_empty(), "virtual ones are not listed");
}

#[tokio::test]
async fn explicit_targets_are_those_of_the_cluster() {
    let world = World::new().await;
    let root = world.root();
    let file = root.file(1, "f").await.unwrap();
    root.setxattr(file, "user.strake.layout.targets", b"13,11").await.unwrap();
    assert_eq!(text(&root, file, "targets").await, "13,11");
    assert_eq!(root.getattr(file).await.unwrap().layout.unwrap().list, [2, 0]);
    let doubled = root.setxattr(file, "user.strake.layout.targets", b"13,11,13").await;
    assert_eq!(kind(doubled), ErrorKind::Invalid);
    let unknown = root.setxattr(file, "user.strake.layout.targets", b"99").await;
    assert_eq!(kind(unknown), ErrorKind::Invalid);
    let wrong = root.setxattr(file, "user.strake.layout.chunk_size", b"5").await;
    assert_eq!(kind(wrong), ErrorKind::Invalid);
}

/// Who opened it wrote where it was to lie, synced that, and found it where it was to lie before when the power came back.
#[tokio::test]
async fn where_a_file_is_to_lie_is_on_disk_before_anybody_can_write_there() {
    for by_name in [false, true] {
        let kv = SyncedKv::new();
        let world = World::on(Arc::new(kv.clone())).await;
        let root = world.root();
        let ino = root.file(1, "f").await.unwrap();
        if by_name {
            root.setxattr(ino, "user.strake.layout.targets", b"13,11").await.unwrap();
        } else {
            let template = Template { list: vec![2, 0], ..Template::default() };
            root.call(MetaOp::SetTemplate(SetTemplate { ino, template })).await.unwrap();
        }
        let left = World::on(Arc::new(kv.after_power_loss().await.unwrap())).await;
        let layout = left.root().getattr(ino).await.unwrap().layout.unwrap();
        assert_eq!(layout.list, [2, 0], "by name: {by_name}");
    }
}

#[tokio::test]
async fn copies_are_handed_down_and_targets_lead_groups_of_that_many() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    assert_eq!(text(&root, dir, "copies").await, "1");
    root.setxattr(dir, "user.strake.layout.copies", b"2").await.unwrap();
    let file = root.file(dir, "f").await.unwrap();
    assert_eq!(text(&root, file, "copies").await, "2");
    let layout = root.getattr(file).await.unwrap().layout.unwrap();
    assert_eq!((layout.copies, layout.table), (2, 3));
    root.setxattr(dir, "user.strake.layout.targets", b"13,11").await.unwrap();
    let listed = root.file(dir, "listed").await.unwrap();
    let two = |ordinal| GroupId::of_class(2, ordinal).0;
    assert_eq!(root.getattr(listed).await.unwrap().layout.unwrap().list, [two(2), two(0)]);
    assert_eq!(text(&root, listed, "targets").await, "13,11");
    root.setxattr(dir, "user.strake.layout.copies", b"1").await.unwrap();
    let single = root.file(dir, "single").await.unwrap();
    assert_eq!(root.getattr(single).await.unwrap().layout.unwrap().list, [2, 0]);
    for wrong in [&b"3"[..], b"0", b"4", b"two"] {
        let refused = root.setxattr(dir, "user.strake.layout.copies", wrong).await;
        assert_eq!(kind(refused), ErrorKind::Invalid, "3 are possible, but no group keeps them");
    }
}

/// One of several servers has set them; another, whose map is behind, told who looked at the directory of a layout of no
/// groups, which could not be read. It refuses files there for good only where no newer map has such groups.
#[tokio::test]
async fn copies_that_the_map_does_not_know_yet_keep_nobody_from_looking_and_are_waited_for() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    root.setxattr(dir, "user.strake.layout.copies", b"2").await.unwrap();
    let groups = world.manager.map.lock().groups.clone();
    let single = |group: &&Group| GroupId(group.id).copies() == 1;
    world.set_groups(groups.iter().filter(single).cloned().collect()).await;
    assert_eq!(root.lookup(1, "d").await.unwrap().layout, None);
    assert_eq!(kind(root.file(dir, "none").await), ErrorKind::Invalid);
    world.manager.silent.store(true, Ordering::SeqCst);
    assert_eq!(kind(root.file(dir, "unknown").await), ErrorKind::Unavailable);
    {
        let mut map = world.manager.map.lock();
        map.groups = groups;
        map.epoch += 1;
    }
    world.manager.silent.store(false, Ordering::SeqCst);
    // The map may have arrived by itself.
    if let Err(error) = root.file(dir, "behind").await {
        assert_eq!(error.kind, ErrorKind::StaleMap);
    }
    let layout = root.lookup(1, "d").await.unwrap().layout.unwrap();
    assert_eq!((layout.copies, layout.table), (2, 3));
    root.file(dir, "f").await.unwrap();
}

/// It stayed as narrow as it had become, whatever was set on it later.
#[tokio::test]
async fn a_file_that_went_around_a_full_target_gets_the_width_that_it_was_to_have() {
    let world = World::new().await;
    let root = world.root();
    world.set_free(13, 10).await;
    let file = root.file(1, "f").await.unwrap();
    for (free_bytes, width) in [(10, "2"), (900, "3")] {
        world.set_free(13, free_bytes).await;
        root.setxattr(file, "user.strake.layout.chunk_size", b"4M").await.unwrap();
        assert_eq!(text(&root, file, "width").await, width);
    }
}

const TWO: [u32; 2] = [GroupId::of_class(2, 0).0, GroupId::of_class(2, 1).0];

/// Target 11 is gone, and 13 has got what it had; groups of two copies were made after that.
async fn without_a_target(world: &World) {
    let led = |(id, members): (u32, &[u32])| Group {
        id,
        epoch: 1,
        members: members.to_vec(),
        ..Group::default()
    };
    let groups: [(u32, &[u32]); 5] =
        [(0, &[13]), (1, &[12]), (2, &[13]), (TWO[0], &[12, 13]), (TWO[1], &[13, 12])];
    world.set_groups(groups.map(led).to_vec()).await;
}

/// The volume has other settings.
async fn set_volume(world: &World, set: impl FnOnce(&mut Template)) {
    {
        let mut map = world.manager.map.lock();
        set(map.volumes[0].spec.template.as_mut().unwrap());
        map.epoch += 1;
    }
    world.map.refresh().await.unwrap();
}

async fn list_of(user: &User<'_>, dir: u64, name: &str) -> Vec<u32> {
    let file = user.file(dir, name).await.unwrap();
    user.getattr(file).await.unwrap().layout.unwrap().list
}

/// Groups were looked for by their numbers: files came to lie on another target, or could not be made.
#[tokio::test]
async fn other_copies_of_what_is_listed_stay_on_its_targets_whatever_their_groups_numbers() {
    let world = World::new().await;
    let root = world.root();
    without_a_target(&world).await;
    let dir = root.mkdir(1, "d").await.unwrap();
    let template = Template { list: vec![1, 2], ..Template::default() };
    root.call(MetaOp::SetTemplate(SetTemplate { ino: dir, template })).await.unwrap();
    root.setxattr(dir, "user.strake.layout.copies", b"2").await.unwrap();
    assert_eq!(list_of(&root, dir, "f").await, TWO);
    // What is listed for the volume, too.
    set_volume(&world, |template| template.list = vec![2]).await;
    let other = root.mkdir(1, "e").await.unwrap();
    assert_eq!(list_of(&root, other, "one").await, [2]);
    root.setxattr(other, "user.strake.layout.copies", b"2").await.unwrap();
    assert_eq!(list_of(&root, other, "two").await, TWO[1..]);
}

#[tokio::test]
async fn other_copies_are_refused_where_a_listed_target_leads_none_and_files_go_on_to_be_made() {
    let world = World::new().await;
    let root = world.root();
    without_a_target(&world).await;
    let before = root.mkdir(1, "before").await.unwrap();
    root.setxattr(before, "user.strake.layout.copies", b"2").await.unwrap();
    set_volume(&world, |template| template.list = vec![2, 1]).await;
    let mut groups = world.map.current().groups.clone();
    groups.retain(|group| group.id != TWO[0]);
    world.set_groups(groups).await;
    let after = root.mkdir(1, "after").await.unwrap();
    let refused = root.setxattr(after, "user.strake.layout.copies", b"2").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid);
    assert!(refused.detail.contains("target 12 is the first of no group"), "{refused}");
    assert_eq!(list_of(&root, before, "f").await, TWO[1..]);
    // What has nothing to do with it is set as ever.
    root.setxattr(before, "user.strake.layout.chunk_size", b"4M").await.unwrap();
}

/// A rebalance had moved the only group of two copies that target 13 led, and nothing could be made any more.
#[tokio::test]
async fn files_are_made_where_a_listed_target_leads_no_group_of_the_copies_any_more() {
    let world = World::new().await;
    let root = world.root();
    set_volume(&world, |template| template.list = vec![2]).await;
    let dir = root.mkdir(1, "d").await.unwrap();
    root.setxattr(dir, "user.strake.layout.copies", b"2").await.unwrap();
    let two = |ordinal| GroupId::of_class(2, ordinal).0;
    assert_eq!(list_of(&root, dir, "before").await, [two(2)]);
    let mut groups = world.map.current().groups.clone();
    let set = |groups: &mut Vec<Group>, members: [[u32; 2]; 3]| {
        for (ordinal, members) in (0..).zip(members) {
            let group = groups.iter_mut().find(|group| group.id == two(ordinal)).unwrap();
            (group.epoch, group.members) = (group.epoch + 1, members.to_vec());
        }
    };
    set(&mut groups, [[11, 12], [12, 13], [11, 12]]);
    world.set_groups(groups.clone()).await;
    assert_eq!(list_of(&root, dir, "member").await, [two(1)], "it has a copy there");
    assert_eq!(text(&root, dir, "copies").await, "2");
    set(&mut groups, [[11, 12], [12, 11], [11, 12]]);
    world.set_groups(groups).await;
    let file = root.file(dir, "anywhere").await.unwrap();
    let layout = root.getattr(file).await.unwrap().layout.unwrap();
    assert_eq!((layout.list.len(), layout.copies, layout.table), (0, 2, 3));
    assert_eq!(text(&root, dir, "copies").await, "2");
    // What somebody asks for is refused.
    let other = root.mkdir(1, "e").await.unwrap();
    let refused = root.setxattr(other, "user.strake.layout.copies", b"2").await.unwrap_err();
    assert!(refused.detail.contains("--groups: target 13 is the first of no group"), "{refused}");
}

/// Files lay on the first target alone, as the directory above, or the volume, had a width of 1.
#[tokio::test]
async fn a_list_of_targets_is_as_wide_as_it_is_long() {
    let world = World::new().await;
    let root = world.root();
    root.setxattr(1, "user.strake.layout.width", b"1").await.unwrap();
    let dir = root.mkdir(1, "d").await.unwrap();
    root.setxattr(dir, "user.strake.layout.targets", b"13,11").await.unwrap();
    assert_eq!(text(&root, dir, "width").await, "2");
    root.setxattr(dir, "user.strake.layout.width", b"1").await.unwrap();
    assert_eq!(text(&root, dir, "width").await, "1", "it was set after the list");
    set_volume(&world, |template| template.width = Some(1)).await;
    let template = Template { list: vec![2, 0], ..Template::default() };
    for ino in [root.mkdir(dir, "e").await.unwrap(), root.file(dir, "f").await.unwrap()] {
        let template = template.clone();
        root.call(MetaOp::SetTemplate(SetTemplate { ino, template })).await.unwrap();
        assert_eq!(text(&root, ino, "width").await, "2");
    }
    root.setxattr(dir, "user.strake.layout.targets", b"13,11").await.unwrap();
    assert_eq!(text(&root, dir, "width").await, "2", "it was set before the list");
    root.removexattr(dir, "user.strake.layout.targets").await.unwrap();
    assert_eq!(text(&root, dir, "width").await, "1", "it is inherited again");
}

#[tokio::test]
async fn a_file_with_contents_keeps_its_layout() {
    let world = World::new().await;
    let root = world.root();
    let file = root.file(1, "f").await.unwrap();
    root.write(file, 0, b"x").await.unwrap();
    let late = root.setxattr(file, "user.strake.layout.width", b"1").await;
    assert_eq!(kind(late), ErrorKind::Busy);
    root.truncate(file, 0).await.unwrap();
    root.setxattr(file, "user.strake.layout.width", b"1").await.unwrap();
    assert_eq!(root.getattr(file).await.unwrap().layout.unwrap().width, 1);
}

#[tokio::test]
async fn templates_are_set_and_got_as_a_whole() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let get = async |ino| match root.call(MetaOp::GetTemplate(Inode { ino })).await.unwrap() {
        MetaAnswer::Template(template) => template,
        other => panic!("{other:?}"),
    };
    assert_eq!(get(dir).await, Template::default());
    let template = Template { width: Some(2), list: vec![1, 2], ..Template::default() };
    let set = |ino, template| MetaOp::SetTemplate(SetTemplate { ino, template });
    root.call(set(dir, template.clone())).await.unwrap();
    assert_eq!(get(dir).await, template);
    root.call(set(dir, Template::default())).await.unwrap();
    assert_eq!(get(dir).await, Template::default());
    let beyond = Template { list: vec![9], ..Template::default() };
    assert_eq!(kind(root.call(set(dir, beyond)).await), ErrorKind::Invalid);
    let denied = world.user(5, 5).call(set(dir, template)).await;
    assert_eq!(kind(denied), ErrorKind::NotPermitted);
}

/// It was "no such attribute".
#[tokio::test]
async fn what_is_neither_file_nor_directory_is_said_to_have_no_layout() {
    let world = World::new().await;
    let root = world.root();
    let fifo = root.make(new(1, "p", FileKind::Fifo, 0o644)).await.unwrap().attr.ino;
    let error = root.call(MetaOp::GetTemplate(Inode { ino: fifo })).await.unwrap_err();
    assert_eq!(error.to_string(), "only files and directories have a layout");
}
