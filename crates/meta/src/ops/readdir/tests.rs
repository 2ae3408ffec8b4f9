use crate::tests::counted::counted;
use crate::tests::world::*;
use prost::Message;
use std::collections::HashSet;
use strake_types::ErrorKind;
use strake_types::limits::BODY_BYTES_MAX;
use strake_wire::message::meta::{MetaAnswer, MetaOp, Recalls};

#[tokio::test]
async fn pages_follow_each_other_while_entries_come_and_go() {
    let world = World::new().await;
    let root = world.root();
    for nth in 0..100 {
        root.file(1, &format!("f{nth:03}")).await.unwrap();
    }
    let (mut after, mut seen) = (0, HashSet::new());
    for turn in 0.. {
        let page = root.page(1, after, 7, false).await.unwrap();
        for entry in &page.entries {
            assert!(entry.cookie > after && entry.cookie < 1 << 63);
            after = entry.cookie;
            assert!(seen.insert(entry.name.clone()), "{:?} twice", entry.name);
        }
        if page.end {
            break;
        }
        // What was seen goes, the one after next goes, and new ones come.
        let gone = format!("f{:03}", turn * 7);
        let _ = root.unlink(1, &gone).await;
        root.file(1, &format!("new{turn}")).await.unwrap();
    }
    let stayed = (0..100).filter(|nth| nth % 7 != 0).map(|nth| format!("f{nth:03}"));
    assert!(stayed.into_iter().all(|name| seen.contains(name.as_bytes())));
}

#[tokio::test]
async fn a_listing_goes_on_where_it_was_after_the_server_was_killed() {
    let world = World::new().await;
    for nth in 0..50 {
        world.root().file(1, &format!("f{nth:02}")).await.unwrap();
    }
    let first = world.root().page(1, 0, 20, false).await.unwrap();
    let mut seen: Vec<_> = first.entries.iter().map(|entry| entry.name.clone()).collect();
    let after = first.entries[19].cookie;
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    let rest = world.root().page(1, after, 100, false).await.unwrap();
    assert!(rest.end);
    seen.extend(rest.entries.iter().map(|entry| entry.name.clone()));
    seen.sort();
    let all: Vec<_> = (0..50).map(|nth| format!("f{nth:02}").into_bytes()).collect();
    assert_eq!(seen, all);
}

#[tokio::test]
async fn attributes_come_along_wherever_the_inodes_lie() {
    let world = World::new().await;
    let root = world.root();
    let (a, b) = (root.mkdir(1, "a").await.unwrap(), root.mkdir(1, "b").await.unwrap());
    for nth in 0..20 {
        root.file(a, &format!("a{nth}")).await.unwrap();
        root.file(b, &format!("b{nth}")).await.unwrap();
    }
    for nth in 0..10 {
        root.rename((b, &format!("b{nth}")), (a, &format!("moved{nth}"))).await.unwrap();
        root.unlink(a, &format!("a{}", nth * 2)).await.unwrap();
    }
    root.mkdir(a, "sub").await.unwrap();
    let page = root.page(a, 0, 1000, true).await.unwrap();
    assert_eq!((page.entries.len(), page.end, page.parent), (21, true, 1));
    for entry in page.entries {
        assert_eq!(entry.attr.unwrap(), root.getattr(entry.ino).await.unwrap());
    }
}

/// Each directory was a question to the store, and each inode of another share one more: a page of a database that was far
/// away took longer than its client waits.
#[tokio::test]
async fn directories_of_a_page_are_asked_for_together() {
    for shares in [1, 3] {
        let (kv, questions) = counted();
        let world = World::of_shares(kv, options(), shares).await;
        let root = world.root();
        for nth in 0..40 {
            let dir = root.mkdir(1, &format!("d{nth}")).await.unwrap();
            root.file(dir, "f").await.unwrap();
        }
        let asked = || questions.about(b"IU");
        let before = asked();
        let page = root.page(1, 0, 1000, true).await.unwrap();
        let asked = asked() - before;
        assert!(asked < 10, "{asked} questions in a volume of {shares} shares");
        assert_eq!(page.entries.len(), 40);
        for entry in page.entries {
            assert_eq!(entry.attr.unwrap(), root.getattr(entry.ino).await.unwrap());
        }
    }
}

#[tokio::test]
async fn listing_needs_read_and_attributes_need_search() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    root.file(dir, "f").await.unwrap();
    root.chmod(dir, 0o711).await.unwrap();
    assert_eq!(kind(world.user(5, 5).page(dir, 0, 10, false).await), ErrorKind::AccessDenied);
    root.chmod(dir, 0o744).await.unwrap();
    let page = world.user(5, 5).page(dir, 0, 10, true).await.unwrap();
    assert_eq!(page.entries[0].attr, None);
    let file = root.file(1, "f").await.unwrap();
    assert_eq!(kind(root.page(file, 0, 10, false).await), ErrorKind::NotDirectory);
}

#[tokio::test]
async fn long_names_end_a_page_before_it_is_too_large() {
    let world = World::new().await;
    let root = world.root();
    for nth in 0..3000 {
        root.file(1, &format!("{nth:0>255}")).await.unwrap();
    }
    let page = root.page(1, 0, u32::MAX, true).await.unwrap();
    assert!(!page.end && page.entries.len() > 1000);
    let last = page.entries.last().unwrap().cookie;
    let rest = root.page(1, last, u32::MAX, true).await.unwrap();
    assert_eq!(page.entries.len() + rest.entries.len(), 3000);
}

/// A directory of files that lie strip by strip, of which a message does not hold 600.
async fn of_many_strips(world: &World) -> u64 {
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let strips: Vec<_> = (0..1_024).map(|nth| format!("{}:64K", nth % 3)).collect();
    let list = format!("varstrip={}", strips.join(","));
    root.setxattr(dir, "user.strake.layout.distribution", list.as_bytes()).await.unwrap();
    for nth in 0..600 {
        root.file(dir, &format!("f{nth:03}")).await.unwrap();
    }
    dir
}

#[tokio::test]
async fn a_page_ends_where_its_attributes_would_not_fit_into_a_message() {
    let world = World::new().await;
    let dir = of_many_strips(&world).await;
    let (mut after, mut seen, mut pages) = (0, HashSet::new(), 0);
    loop {
        let page = world.root().page(dir, after, 2_048, true).await.unwrap();
        pages += 1;
        assert!(page.encoded_len() < BODY_BYTES_MAX, "{}", page.encoded_len());
        for entry in &page.entries {
            assert!(entry.attr.is_some() && seen.insert(entry.name.clone()));
            after = entry.cookie;
        }
        if page.end {
            break;
        }
    }
    assert!(seen.len() == 600 && pages > 1, "{} in {pages} pages", seen.len());
}

/// Leases on what was cut from a page were given back, which its client had from before: it was told of no change any more.
#[tokio::test]
async fn what_is_cut_from_a_page_is_still_recalled() {
    let world = World::new().await;
    let dir = of_many_strips(&world).await;
    let session = world.open_session_of(0, &[], true).await.session;
    let user = world.root().at(session).leasing();
    let recalled = async |followed| {
        let recalls = Recalls { followed, ..Recalls::default() };
        match user.call(MetaOp::Recalls(recalls)).await.unwrap() {
            MetaAnswer::Recalled(recalled) => recalled,
            other => panic!("{other:?}"),
        }
    };
    recalled(0).await;
    let last = user.lookup(dir, "f599").await.unwrap();
    assert!(last.leased);
    let page = user.page(dir, 0, 2_048, true).await.unwrap();
    assert!(!page.end && page.entries.iter().all(|entry| entry.ino != last.ino));
    let root = world.root();
    let (changed, told) = tokio::join!(root.chmod(last.ino, 0o600), async {
        let told = recalled(0).await;
        recalled(told.number).await;
        told
    });
    changed.unwrap();
    assert!(told.everything || told.inodes.contains(&last.ino), "{told:?}");
}
