use crate::tests::world::*;
use strake_types::ErrorKind;

#[tokio::test]
async fn dot_and_dot_dot_lead_where_they_should() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    assert_eq!(root.lookup(dir, ".").await.unwrap().ino, dir);
    assert_eq!(root.lookup(dir, "..").await.unwrap().ino, 1);
    assert_eq!(root.lookup(1, "..").await.unwrap().ino, 1);
}

#[tokio::test]
async fn a_missing_name_is_missing_until_it_is_made() {
    let world = World::new().await;
    let root = world.root();
    assert_eq!(kind(root.lookup(1, "f").await), ErrorKind::NotFound);
    let ino = root.file(1, "f").await.unwrap();
    assert_eq!(root.lookup(1, "f").await.unwrap().ino, ino);
    root.unlink(1, "f").await.unwrap();
    assert_eq!(kind(root.lookup(1, "f").await), ErrorKind::NotFound);
    assert_eq!(kind(root.getattr(ino).await), ErrorKind::Stale);
}

#[tokio::test]
async fn searching_needs_the_right_to() {
    let world = World::new().await;
    let dir = world.root().mkdir(1, "d").await.unwrap();
    world.root().file(dir, "f").await.unwrap();
    world.root().chmod(dir, 0o744).await.unwrap();
    assert_eq!(kind(world.user(5, 5).lookup(dir, "f").await), ErrorKind::AccessDenied);
    assert_eq!(kind(world.user(5, 5).lookup(dir, "none").await), ErrorKind::AccessDenied);
    world.user(5, 5).checked().lookup(dir, "f").await.unwrap();
}

/// A lookup that read the entry just before another file was renamed over it, and the inode just
/// after, said that there was no such name. Found by simulation.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_name_that_others_are_renamed_over_is_always_there() {
    let world = std::sync::Arc::new(World::new().await);
    world.root().file(1, "name").await.unwrap();
    let renames = tokio::spawn({
        let world = world.clone();
        async move {
            for _ in 0..20_000 {
                world.root().file(1, "draft").await.unwrap();
                world.root().rename((1, "draft"), (1, "name")).await.unwrap();
            }
        }
    });
    while !renames.is_finished() {
        world.root().lookup(1, "name").await.unwrap();
    }
    renames.await.unwrap();
}
