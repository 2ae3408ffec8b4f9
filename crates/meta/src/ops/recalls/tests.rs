use crate::tests::world::*;
use futures::FutureExt;
use strake_types::FileKind;
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{Create, MetaAnswer, MetaOp, Nothing, Recalled, Recalls, Rename};

/// Lets a change be waited for and followed; the inodes recalled.
async fn recalled_by<T>(user: &User<'_>, change: impl Future<Output = T>) -> (Vec<u64>, T) {
    futures::pin_mut!(change);
    assert!(futures::poll!(change.as_mut()).is_pending(), "it waits");
    let recalled = user.recalls(0).await;
    assert!(futures::poll!(change.as_mut()).is_pending(), "it still waits");
    assert!(user.recalls(recalled.number).now_or_never().is_none());
    (recalled.inodes, change.await)
}

fn leased(attr: &Attributes) -> (bool, bool) {
    (attr.leased, attr.name_leased)
}

#[tokio::test]
async fn what_is_looked_at_is_leased_to_those_who_keep_leases_alone() {
    let world = World::new().await;
    let (a, other) = (leasing(&world).await, world.root());
    let dir = other.mkdir(1, "d").await.unwrap();
    let file = other.file(dir, "f").await.unwrap();
    assert_eq!(leased(&a.getattr(file).await.unwrap()), (true, false));
    assert_eq!(leased(&a.lookup(dir, "f").await.unwrap()), (true, true));
    assert_eq!(leased(&other.lookup(dir, "f").await.unwrap()), (false, false));
    let page = a.page(dir, 0, 10, true).await.unwrap();
    assert!(page.leased && page.entries[0].attr.as_ref().unwrap().leased);
    assert!(!other.page(dir, 0, 10, true).await.unwrap().leased);
    let missing = a.call(MetaOp::Lookup(at(dir, "no"))).await.unwrap();
    assert_eq!(missing, MetaAnswer::Missing(Nothing {}));
    assert!(other.call(MetaOp::Lookup(at(dir, "no"))).await.is_err());
}

#[tokio::test]
async fn a_change_of_a_name_recalls_the_directory_and_what_the_name_stands_for() {
    let world = World::new().await;
    let (a, b) = (leasing(&world).await, leasing(&world).await);
    let dir = b.mkdir(1, "d").await.unwrap();
    let file = b.file(dir, "f").await.unwrap();
    for ino in [1, dir, file] {
        assert!(a.getattr(ino).await.unwrap().leased);
    }
    let (inodes, made) = recalled_by(&a, b.file(dir, "g")).await;
    assert_eq!(inodes, [dir]);
    made.unwrap();
    assert!(a.getattr(dir).await.unwrap().leased, "again");
    let (mut inodes, renamed) = recalled_by(&a, b.rename((dir, "f"), (1, "h"))).await;
    inodes.sort_unstable();
    let mut all = [1, dir, file];
    all.sort_unstable();
    assert_eq!(inodes, all);
    let renamed = renamed.unwrap();
    assert!(renamed.moved.leased && renamed.parent.unwrap().leased);
    assert!(renamed.new_parent.unwrap().leased, "to who has made the change");
}

#[tokio::test]
async fn while_it_is_waited_the_old_state_is_seen_and_not_leased() {
    let world = World::new().await;
    let (a, b) = (leasing(&world).await, leasing(&world).await);
    let file = b.file(1, "f").await.unwrap();
    assert!(a.getattr(file).await.unwrap().leased);
    let change = b.chmod(file, 0o600);
    futures::pin_mut!(change);
    assert!(futures::poll!(change.as_mut()).is_pending());
    let seen = a.getattr(file).await.unwrap();
    assert_eq!((seen.mode, seen.leased), (0o644, false));
    let number = a.recalls(0).await.number;
    assert!(a.recalls(number).now_or_never().is_none());
    assert!(change.await.unwrap().leased);
    let seen = a.getattr(file).await.unwrap();
    assert_eq!((seen.mode, seen.leased), (0o600, true));
}

#[tokio::test]
async fn one_who_asks_no_more_is_waited_for_as_long_as_its_leases_last() {
    let world = World::new().await;
    let (a, b) = (leasing(&world).await, world.root());
    let file = b.file(1, "f").await.unwrap();
    assert!(a.getattr(file).await.unwrap().leased);
    let change = b.chmod(file, 0o600);
    futures::pin_mut!(change);
    assert!(futures::poll!(change.as_mut()).is_pending());
    world.clock.advance_ms(3_300);
    change.await.unwrap();
    assert!(!a.getattr(file).await.unwrap().leased);
}

#[tokio::test]
async fn what_is_gone_is_not_leased() {
    let world = World::new().await;
    let a = leasing(&world).await;
    let open = Create { open: Some(BOTH), ..new(1, "f", FileKind::File, 0o600) };
    let file = a.make(open).await.unwrap();
    assert!(file.attr.leased && file.parent.unwrap().leased);
    assert!(!a.unlink(1, "f").await.unwrap().leased);
    assert!(!a.getattr(file.attr.ino).await.unwrap().leased, "open still, without a name");
    let dir = a.mkdir(1, "d").await.unwrap();
    assert!(!a.rmdir(1, "d").await.unwrap().leased);
    assert!(a.getattr(dir).await.is_err());
}

/// It may have been recalled since it was first given.
#[tokio::test]
async fn an_answer_that_is_given_again_leases_nothing() {
    let world = World::new().await;
    let a = leasing(&world).await;
    let make = MetaOp::Create(new(1, "f", FileKind::File, 0o600));
    let rename = Rename { from: at(1, "f"), to: at(1, "f"), ..Rename::default() };
    for (seq, op) in [(1, make), (2, MetaOp::Rename(rename))] {
        for first in [true, false] {
            let (attr, parent) = match a.call_seq(seq, 0, op.clone()).await.unwrap() {
                MetaAnswer::Created(created) => (created.attr, created.parent.unwrap()),
                MetaAnswer::Renamed(renamed) => (renamed.moved, renamed.parent.unwrap()),
                other => panic!("{other:?}"),
            };
            assert_eq!((attr.leased, parent.leased), (first, first), "{seq}");
        }
    }
}

#[tokio::test]
async fn after_a_restart_changes_wait_for_leases_that_others_may_have() {
    let world = World::new().await;
    let a = leasing(&world).await.session;
    let b = world.root().file(1, "f").await.unwrap();
    let world = world.restarted().await;
    assert!(world.open_session_of(a, &[], true).await.resumed);
    world.open_session(world.session, &[]).await;
    let own = world.root().at(a).leasing();
    own.chmod(b, 0o600).await.unwrap();
    let other = world.root();
    let change = other.chmod(b, 0o640);
    futures::pin_mut!(change);
    assert!(futures::poll!(change.as_mut()).is_pending());
    world.clock.advance_ms(3_300);
    change.await.unwrap();
}

/// Contents that move out of the inode are changed on behalf of who writes.
#[tokio::test]
async fn what_the_server_does_within_a_request_recalls_nothing_from_its_caller() {
    let world = World::new().await;
    let a = leasing(&world).await;
    let file = a.file(1, "f").await.unwrap();
    a.write(file, 0, b"some").await.unwrap();
    let moved = a.move_out(file).now_or_never().expect("nobody is waited for").unwrap();
    assert!(moved.leased && !moved.inline);
}

/// Numbers of recalls begin anew with a server, as far as the client can tell.
#[tokio::test]
async fn after_a_restart_nothing_counts_as_followed_that_was_not_told() {
    let world = World::new().await;
    let a = leasing(&world).await;
    let file = world.root().file(1, "f").await.unwrap();
    let mut followed = 0;
    for turn in 0..5 {
        assert!(a.getattr(file).await.unwrap().leased);
        let other = world.root();
        let change = other.chmod(file, 0o600 + turn);
        futures::pin_mut!(change);
        assert!(futures::poll!(change.as_mut()).is_pending());
        followed = a.recalls(followed).await.number;
        assert!(a.recalls(followed).now_or_never().is_none());
        change.await.unwrap();
    }
    let (session, own) = (a.session, world.session);
    let world = world.restarted().await;
    assert!(world.open_session_of(session, &[], true).await.resumed);
    world.open_session(own, &[]).await;
    let (a, other) = (world.root().at(session).leasing(), world.root());
    let begin = a.recalls(followed).await;
    assert!(begin.everything && begin.number > followed);
    assert!(!a.getattr(file).await.unwrap().leased, "it has not forgotten what it had");
    let (followed, forgotten) = (begin.number, begin.number);
    let forgotten = Recalls { followed, forgotten, ..Recalls::default() };
    let told = a.call(MetaOp::Recalls(forgotten)).await.unwrap();
    assert_eq!(
        told,
        MetaAnswer::Recalled(Recalled { number: begin.number, ..Recalled::default() })
    );
    assert!(a.getattr(file).await.unwrap().leased);
    let change = other.chmod(file, 0o640);
    futures::pin_mut!(change);
    assert!(futures::poll!(change.as_mut()).is_pending());
    assert_eq!(a.recalls(followed).await.inodes, [file]);
    assert!(futures::poll!(change.as_mut()).is_pending(), "it says what it said before");
}
