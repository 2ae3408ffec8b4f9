use crate::MetaOptions;
use crate::tests::world::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_engine::kv::memory::MemoryKv;
use strake_types::{ErrorKind, FileKind};
use strake_wire::capability::{CapabilityKey, Rights};
use strake_wire::message::meta::{
    Create, MetaAnswer, MetaOp, MetaRequest, Open, OpenMode, OpenSession, RenewSession, Unlink,
};
use strake_wire::service::MetaService;

/// It counted as open for as long as the session lasted, and was not deleted when its name was gone.
#[tokio::test]
async fn an_open_that_fails_again_when_it_is_repeated_leaves_the_file_closed() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.move_out(ino).await.unwrap();
    world.storage.away.store(true, Ordering::SeqCst);
    let open = || MetaOp::Open(Open { ino, mode: OpenMode { truncate: true, ..BOTH } });
    for _ in 0..2 {
        assert_eq!(kind(root.call_seq(1, 0, open()).await), ErrorKind::Unavailable);
    }
    world.storage.away.store(false, Ordering::SeqCst);
    root.unlink(1, "f").await.unwrap();
    world.until(async || root.getattr(ino).await.is_err()).await;
}

/// The one that failed took the count of the other away, or did not count when it was answered at last.
#[tokio::test]
async fn an_open_that_fails_again_beside_another_one_leaves_that_one_open() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.move_out(ino).await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    world.storage.away.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(kind(root.call_seq(1, 0, cut(ino)).await), ErrorKind::Unavailable);
        assert_eq!(world.opens(ino).await, 1);
    }
    world.storage.away.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        root.call_seq(1, 0, cut(ino)).await.unwrap();
        assert_eq!(world.opens(ino).await, 2);
    }
}

fn cut(ino: u64) -> MetaOp {
    MetaOp::Open(Open { ino, mode: OpenMode { truncate: true, ..BOTH } })
}

/// What makes a file and opens it, or opens the one that is there.
fn make(name: &str, truncate: bool) -> MetaOp {
    let open = Some(OpenMode { truncate, ..BOTH });
    MetaOp::Create(Create { open, exclusive: false, ..new(1, name, FileKind::File, 0o644) })
}

/// Of those that were answered again one counted for all, and none beside a handle that the client had named: the first close
/// took that away, and the file was deleted under the others.
#[tokio::test]
async fn opens_whose_answers_a_restart_has_lost_count_once_each() {
    for named in [0, 1] {
        let world = World::new().await;
        let root = world.root();
        let first = root.call_seq(1, 0, make("f", false)).await.unwrap();
        let MetaAnswer::Created(first) = first else { panic!("not what was asked") };
        let ino = first.attr.ino;
        let op = |seq: u64| match seq {
            1 => make("f", false),
            2 => make("f", true),
            _ => cut(ino),
        };
        for seq in [2, 3] {
            root.call_seq(seq, 0, op(seq)).await.unwrap();
        }
        assert_eq!(world.opens(ino).await, 3);
        let world = world.killed().await;
        assert!(world.open_session(world.session, &vec![ino; named]).await.resumed);
        let root = world.root();
        for (seq, before) in [(3, 0), (1, 1), (3, 2), (2, 2), (1, 3), (2, 3)] {
            assert_eq!(world.opens(ino).await, named as u32 + before, "before {seq}");
            root.call_seq(seq, 0, op(seq)).await.unwrap();
        }
        root.unlink(1, "f").await.unwrap();
        for left in (0..named as u32 + 3).rev() {
            root.getattr(ino).await.unwrap();
            root.close(ino).await.unwrap();
            assert_eq!(world.opens(ino).await, left);
        }
        world.until(async || root.getattr(ino).await.is_err()).await;
    }
}

/// A copy of the first one's message opened the file for ever when both were closed.
#[tokio::test]
async fn what_is_closed_before_another_open_is_answered_again_stays_so_and_the_other_counts() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    for seq in [1, 2] {
        root.call_seq(seq, 0, cut(ino)).await.unwrap();
    }
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    let root = world.root();
    root.call_seq(1, 0, cut(ino)).await.unwrap();
    root.close(ino).await.unwrap();
    assert_eq!(world.opens(ino).await, 0);
    for seq in [2, 1] {
        root.call_seq(seq, 0, cut(ino)).await.unwrap();
        assert_eq!(world.opens(ino).await, 1);
    }
    root.close(ino).await.unwrap();
    root.call_seq(1, 0, cut(ino)).await.unwrap();
    assert_eq!(world.opens(ino).await, 0);
}

/// What changes nothing is not stored, and was answered from memory: without being counted, if another one was.
#[tokio::test]
async fn opens_that_change_nothing_count_once_each_when_their_client_has_come_back() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    for named in [0, 1] {
        world.open_session(world.session, &vec![ino; named]).await;
        for seq in [1, 2, 1, 2] {
            root.call_seq(seq, 0, make("f", false)).await.unwrap();
        }
        assert_eq!(world.opens(ino).await, named as u32 + 2);
    }
    assert_eq!(world.keys(b'R').await, 0);
}

/// It counted for as long as the session went on: nobody closed it once more.
#[tokio::test]
async fn a_late_copy_of_an_open_that_was_answered_opens_nothing() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.call_seq(1, 0, cut(ino)).await.unwrap();
    root.close(ino).await.unwrap();
    for answered in [0, 1] {
        // The next one has its client forget what was answered.
        root.call_seq(2, answered, MetaOp::Open(Open { ino, mode: BOTH })).await.unwrap();
        root.call_seq(1, answered, cut(ino)).await.unwrap();
        assert_eq!(world.opens(ino).await, 1);
    }
    root.close(ino).await.unwrap();
    root.call_seq(1, 1, cut(ino)).await.unwrap();
    assert_eq!(world.opens(ino).await, 0);
}

/// Each try counted, and the client closed it once: the file was not deleted when its name was gone.
#[tokio::test]
async fn an_open_that_is_sent_again_counts_once() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    for _ in 0..3 {
        root.call_seq(1, 0, MetaOp::Open(Open { ino, mode: BOTH })).await.unwrap();
    }
    assert_eq!(world.keys(b'R').await, 0, "nothing is stored of it");
    root.unlink(1, "f").await.unwrap();
    root.getattr(ino).await.unwrap();
    root.close(ino).await.unwrap();
    world.until(async || root.getattr(ino).await.is_err()).await;
}

/// Who waits for the answer has it open once more than the files that he named when he came back.
#[tokio::test]
async fn an_open_that_is_sent_again_after_its_client_came_back_counts_once_more() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let request = |session: u64, incarnation: u64, op: MetaOp| MetaRequest {
        volume: 1,
        session,
        seq: u64::from(matches!(op, MetaOp::Open(_))),
        incarnation,
        op: Some(op),
        ..MetaRequest::default()
    };
    let call = async |request| world.server.call(request).await.unwrap();
    let open = || MetaOp::Open(Open { ino, mode: BOTH });
    call(request(world.session, 0, open())).await;
    let back = OpenSession {
        resume: world.session,
        open: vec![ino],
        incarnation: 1,
        ..OpenSession::default()
    };
    call(request(0, 0, MetaOp::OpenSession(back))).await;
    for _ in 0..2 {
        call(request(world.session, 1, open())).await;
    }
    let close = || {
        let report = RenewSession { closed: vec![ino], number: 0, incarnation: 1 };
        request(world.session, 1, MetaOp::RenewSession(report))
    };
    call(close()).await;
    let nobody = root.clone().at(0);
    nobody.unlink(1, "f").await.unwrap();
    nobody.getattr(ino).await.unwrap();
    call(close()).await;
    world.until(async || nobody.getattr(ino).await.is_err()).await;
}

/// Some 1,000 answers were remembered, of whatever kind: a copy of the message that came late was carried out.
#[tokio::test]
async fn opens_do_not_push_out_how_others_were_answered() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let unlink = || MetaOp::Unlink(Unlink { at: at(1, "late"), directory: false });
    assert_eq!(kind(root.call_seq(1, 0, unlink()).await), ErrorKind::NotFound);
    for seq in 2..2_002 {
        root.call_seq(seq, 0, MetaOp::Open(Open { ino, mode: BOTH })).await.unwrap();
    }
    root.file(1, "late").await.unwrap();
    assert_eq!(kind(root.call_seq(1, 0, unlink()).await), ErrorKind::NotFound);
}

/// The answer of the first try was given again, with what was in the file then.
#[tokio::test]
async fn an_open_that_is_sent_again_shows_what_was_written_meanwhile() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"first").await.unwrap();
    let open = || root.call_seq(1, 0, MetaOp::Open(Open { ino, mode: BOTH }));
    open().await.unwrap();
    root.write(ino, 0, b"second").await.unwrap();
    let MetaAnswer::Opened(again) = open().await.unwrap() else { panic!("not what was asked") };
    assert_eq!(again.inline.unwrap(), "second");
    assert_eq!(again.attr, root.getattr(ino).await.unwrap());
}

#[tokio::test]
async fn an_open_gives_attributes_contents_and_the_right_to_chunks() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"abc").await.unwrap();
    let opened = root.open(ino, OpenMode { read: true, ..OpenMode::default() }).await.unwrap();
    assert_eq!(opened.inline.unwrap(), "abc");
    assert_eq!(opened.attr, root.getattr(ino).await.unwrap());
    let right = CapabilityKey::new([7; 32]).verify(&opened.capability, 0).unwrap();
    assert_eq!((right.ino.0, right.rights, right.session.0), (ino, Rights::READ, world.session));
    root.move_out(ino).await.unwrap();
    assert_eq!(root.open(ino, BOTH).await.unwrap().inline, None);
}

#[tokio::test]
async fn rights_and_kinds_are_checked() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let user = world.user(5, 5);
    let read = OpenMode { read: true, ..OpenMode::default() };
    user.open(ino, read).await.unwrap();
    assert_eq!(kind(user.open(ino, BOTH).await), ErrorKind::AccessDenied);
    let cut = OpenMode { truncate: true, ..read };
    assert_eq!(kind(user.open(ino, cut).await), ErrorKind::AccessDenied);
    let dir = root.mkdir(1, "d").await.unwrap();
    let fifo = root.make(new(1, "p", FileKind::Fifo, 0o644)).await.unwrap().attr.ino;
    assert_eq!(kind(root.open(dir, read).await), ErrorKind::IsDirectory);
    assert_eq!(kind(root.open(fifo, read).await), ErrorKind::Invalid);
    assert_eq!(kind(root.open(999, read).await), ErrorKind::Stale);
    assert_eq!(kind(root.clone().at(0).open(ino, read).await), ErrorKind::NoSession);
    assert_eq!(kind(root.clone().at(999).open(ino, read).await), ErrorKind::NoSession);
}

#[tokio::test]
async fn a_cut_at_open_empties_the_file_and_takes_setid_away() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.make(new(1, "f", FileKind::File, 0o6777)).await.unwrap().attr.ino;
    root.write(ino, 0, b"abc").await.unwrap();
    let cut = OpenMode { truncate: true, ..BOTH };
    let opened = world.user(5, 5).open(ino, cut).await.unwrap();
    assert_eq!((opened.attr.length, opened.attr.mode), (0, 0o777));
    assert_eq!(opened.inline.unwrap(), "");
    root.write(ino, 0, b"abc").await.unwrap();
    root.move_out(ino).await.unwrap();
    root.open(ino, cut).await.unwrap();
    assert!(world.storage.chunks.lock().is_empty());
    assert_eq!(root.stat().await.bytes, 0);
}

/// It was cut later, and with it what the client that had the file open had written since.
#[tokio::test]
async fn an_open_that_is_answered_again_has_cut_what_was_to_be_cut_by_then() {
    // By these, and by the map, nothing is tried in the background.
    let options = MetaOptions { tick_ms: 3_600_000, ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"secret").await.unwrap();
    root.move_out(ino).await.unwrap();
    let open = || MetaOp::Open(Open { ino, mode: BOTH });
    root.call_seq(1, 0, open()).await.unwrap();
    world.open_session(world.session, &[]).await;
    world.set_targets_up(false).await;
    world.storage.away.store(true, Ordering::SeqCst);
    assert_eq!(kind(root.truncate(ino, 2).await), ErrorKind::Unavailable);
    world.storage.away.store(false, Ordering::SeqCst);
    world.set_targets_up(true).await;
    root.call_seq(1, 0, open()).await.unwrap();
    let chunks = world.storage.chunks.lock();
    assert_eq!(chunks.values().map(Vec::len).collect::<Vec<_>>(), [2]);
}

/// Each open kept the file's lock for half a minute, and whoever wanted to remove it waited behind all of them. Here the target is
/// back, but the map does not say so: who asks it would be answered.
#[tokio::test]
async fn who_opens_a_file_does_not_wait_for_a_cut_on_a_target_that_is_known_to_be_away() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"secret").await.unwrap();
    root.move_out(ino).await.unwrap();
    let open = async |seq: u64| root.call_seq(seq, 0, MetaOp::Open(Open { ino, mode: BOTH })).await;
    open(1).await.unwrap();
    world.set_targets_up(false).await;
    world.storage.away.store(true, Ordering::SeqCst);
    assert_eq!(kind(root.truncate(ino, 2).await), ErrorKind::Unavailable);
    world.storage.away.store(false, Ordering::SeqCst);
    let contents = || world.storage.chunks.lock().values().cloned().collect::<Vec<_>>();
    // The first is answered again.
    for seq in [1, 2] {
        assert_eq!(kind(open(seq).await), ErrorKind::Unavailable);
    }
    world.poison_targets(true).await;
    assert_eq!(kind(open(3).await), ErrorKind::Poisoned, "that is not waited for");
    world.poison_targets(false).await;
    assert_eq!(contents(), [b"secret".to_vec()]);
    world.set_targets_up(true).await;
    for seq in [1, 2] {
        open(seq).await.unwrap();
        assert_eq!(contents(), [b"se".to_vec()]);
    }
}
