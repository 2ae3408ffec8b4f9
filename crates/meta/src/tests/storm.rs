//! Many clients at once in the same few directories, on a store that does its worst.

use crate::check::tests::fsck;
use crate::tests::check::check;
use crate::tests::world::*;
use std::sync::Arc;
use strake_base::random::SplitMix64;
use strake_engine::kv::memory::{MemoryKv, Rates};
use strake_types::FileKind;
use strake_wire::message::meta::Create;

/// One of several.
fn any<T: Copy>(random: &mut SplitMix64, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

async fn client(root: User<'_>, dirs: &[u64], seed: u64, turns: usize) {
    let names = ["a", "b", "c", "d", "e"];
    let mut random = SplitMix64::new(seed);
    let mut made = Vec::new();
    for _ in 0..turns {
        let (d, e) = (any(&mut random, dirs), any(&mut random, dirs));
        let (n, m) = (any(&mut random, &names), any(&mut random, &names));
        // Most of these fail in some way; only what is left behind counts.
        let _ = match random.below(8) {
            0 => root.file(d, n).await.map(|ino| made.push(ino)),
            1 => root.mkdir(d, n).await.map(|ino| made.push(ino)),
            2 => root.unlink(d, n).await.map(drop),
            3 => root.rmdir(d, n).await.map(drop),
            4 => root.rename((d, n), (e, m)).await.map(drop),
            5 => root.rename_with((d, n), (e, m), false, true).await.map(drop),
            6 => {
                let op = Create {
                    exclusive: false,
                    open: Some(BOTH),
                    ..new(d, n, FileKind::File, 0o600)
                };
                match root.make(op).await {
                    Ok(opened) => root.close(opened.attr.ino).await,
                    Err(error) => Err(error),
                }
            }
            _ => match made.get(random.below(made.len() as u64 + 1) as usize) {
                Some(&ino) => root.link(ino, d, n).await.map(drop),
                None => root.lookup(d, n).await.map(drop),
            },
        };
    }
}

async fn storm(seed: u64, rates: Rates, turns: usize) {
    let world = World::on(Arc::new(MemoryKv::adversarial(seed, rates))).await;
    let root = world.root();
    let mut dirs = vec![1];
    for name in ["x", "y", "z"] {
        dirs.push(root.mkdir(1, name).await.unwrap());
        let last = dirs[dirs.len() - 1];
        dirs.push(root.mkdir(last, "deep").await.unwrap());
    }
    let clients = (0..6).map(|nth| client(root.clone().numbered(), &dirs, seed * 100 + nth, turns));
    let over = std::cell::Cell::new(false);
    let clients = async {
        futures::future::join_all(clients).await;
        over.set(true);
    };
    // What is only under way is no error, however often it is looked at.
    let checks = async {
        while !over.get() {
            assert_eq!(fsck(&root.clone().at(0), true).await, []);
            tokio::task::yield_now().await;
        }
    };
    futures::join!(clients, checks);
    world.all_done().await;
    let inodes = check(&*world.kv).await;
    assert_eq!(fsck(&world.root().at(0), false).await, []);
    world.until(async || root.stat().await.inodes == inodes as u64).await;
    let world = world.restarted().await;
    assert_eq!(world.root().at(0).stat().await.inodes, inodes as u64);
}

#[tokio::test]
async fn many_clients_leave_everything_in_order() {
    storm(1, Rates { suspend: 0.3, ..Rates::CALM }, 200).await;
}

#[tokio::test]
async fn many_clients_on_a_store_at_its_worst_leave_everything_in_order() {
    for seed in 2..5 {
        storm(seed, Rates { suspend: 0.2, ..Rates::ROUGH }, 60).await;
    }
}

#[tokio::test]
async fn who_looks_while_the_last_name_goes_does_not_bring_the_inode_back() {
    let rates = Rates { suspend: 0.5, ..Rates::CALM };
    let world = World::on(Arc::new(MemoryKv::adversarial(7, rates))).await;
    let root = world.root();
    for round in 0..100 {
        let file = root.file(1, "gone").await.unwrap();
        let dir = root.mkdir(1, "dir").await.unwrap();
        let look = async || {
            for _ in 0..8 {
                let _ = futures::join!(root.getattr(file), root.getattr(dir));
                tokio::task::yield_now().await;
            }
        };
        let (unlinked, removed, ()) =
            futures::join!(root.unlink(1, "gone"), root.rmdir(1, "dir"), look());
        unlinked.unwrap();
        removed.unwrap();
        assert!(root.link(file, 1, "again").await.is_err(), "round {round}: a file without record");
        assert!(root.file(dir, "f").await.is_err(), "round {round}: a directory without record");
    }
    world.all_done().await;
    check(&*world.kv).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_leave_everything_in_order() {
    let world = Arc::new(World::new().await);
    let dirs: Vec<u64> = vec![1, world.root().mkdir(1, "x").await.unwrap()];
    let tasks: Vec<_> = (0..4)
        .map(|nth| {
            let (world, dirs) = (world.clone(), dirs.clone());
            tokio::spawn(async move { client(world.root().numbered(), &dirs, nth, 500).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    world.all_done().await;
    check(&*world.kv).await;
}
