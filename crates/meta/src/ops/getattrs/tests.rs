use crate::keys;
use crate::tests::world::*;
use strake_types::Ino;
use strake_wire::message::meta::{Around, MetaAnswer, MetaOp, Recalls};

async fn around(caller: &User<'_>, ino: u64, before: u32, limit: u32) -> Vec<u64> {
    let answer = caller.call(MetaOp::GetAttrs(Around { ino, before, limit })).await.unwrap();
    let MetaAnswer::Page(page) = answer else { panic!("{answer:?}") };
    let told = page.entries.into_iter().map(|entry| {
        let attr = entry.attr.expect("they are what was asked for");
        assert_eq!(attr.ino, entry.ino);
        attr.ino
    });
    told.collect()
}

#[tokio::test]
async fn inodes_of_the_same_directory_are_told_together() {
    let world = World::new().await;
    let root = world.root();
    let (one, other) = (root.mkdir(1, "one").await.unwrap(), root.mkdir(1, "other").await.unwrap());
    let mut inos = Vec::new();
    for nth in 0..20 {
        inos.push(root.file(one, &format!("f{nth}")).await.unwrap());
        root.file(other, &format!("g{nth}")).await.unwrap();
    }
    assert_eq!(around(&root, inos[5], 0, 100).await, inos[5..]);
    assert_eq!(around(&root, inos[5], 0, 3).await, inos[5..8]);
    assert_eq!(around(&root, inos[0], u32::MAX, 100).await, inos);
    root.unlink(one, "f7").await.unwrap();
    let left: Vec<u64> = inos.iter().copied().filter(|&ino| ino != inos[7]).collect();
    assert_eq!(around(&root, inos[0], 0, 100).await, left);
    assert_eq!(around(&root, inos[7], 0, 2).await, inos[8..10]);
    let nowhere = keys::child_ino(Ino(12_345), 1).0;
    assert!(around(&root, nowhere, 9, 9).await.is_empty());
}

/// As with each by itself: what is told is believed until it is recalled.
#[tokio::test]
async fn what_is_told_is_leased_to_those_who_keep_leases() {
    let world = World::new().await;
    let root = world.root();
    let inos = [root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap()];
    let session = world.open_session_of(0, &[], true).await.session;
    let keeper = world.root().at(session).leasing();
    // Leases begin with the first question for recalls.
    keeper.call(MetaOp::Recalls(Recalls { followed: 0 })).await.unwrap();
    let op = MetaOp::GetAttrs(Around { ino: inos[0], before: 0, limit: 10 });
    for (caller, leased) in [(&keeper, true), (&root, false)] {
        let answer = caller.call(op.clone()).await.unwrap();
        let MetaAnswer::Page(page) = answer else { panic!("{answer:?}") };
        let told: Vec<_> = page.entries.into_iter().filter_map(|entry| entry.attr).collect();
        assert_eq!(told.iter().map(|attr| attr.ino).collect::<Vec<_>>(), inos);
        assert!(told.iter().all(|attr| attr.leased == leased));
    }
}
