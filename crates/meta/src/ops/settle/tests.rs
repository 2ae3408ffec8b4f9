use crate::tests::world::*;
use futures::FutureExt;
use strake_types::limits::LEASE_MS_AT_SERVER;
use strake_types::{ErrorKind, FileKind, SetTime, Timestamp};
use strake_wire::message::common::AttrChange;
use strake_wire::message::meta::{
    Ask, Create, Inode, MetaAnswer, MetaOp, MetaRequest, Nothing, Open, OpenMode, OpenSession,
    Opened, Publish, RenewSession, Session, SetAttr, Told,
};
use strake_wire::service::MetaService;

const READ: OpenMode = OpenMode { read: true, write: false, truncate: false };

/// A user of a session that can be asked.
async fn client(world: &World) -> User<'_> {
    let session = world.open_session_of(0, &[], true).await.session;
    world.root().at(session).leasing()
}

/// Whether it has to tell, and whether it has to wait for others.
async fn flags(user: &User<'_>, ino: u64, mode: OpenMode) -> (bool, bool) {
    let opened = user.open(ino, mode).await.unwrap();
    (opened.shared, opened.unsettled)
}

async fn asked(user: &User<'_>) -> Vec<Ask> {
    user.recalls(0).await.shared
}

async fn settle(user: &User<'_>, ino: u64) -> Opened {
    match user.call(MetaOp::Settle(Inode { ino })).await.unwrap() {
        MetaAnswer::Opened(opened) => opened,
        other => panic!("{other:?}"),
    }
}

async fn tell(user: &User<'_>, Ask { ino, number, keep }: Ask) {
    let told = Told { ino, number, kept: keep, ..Told::default() };
    let told = user.call(MetaOp::Told(told)).await.unwrap();
    assert_eq!(told, MetaAnswer::Done(Nothing {}));
}

async fn close(user: &User<'_>, ino: u64) {
    let closed = RenewSession { closed: vec![ino], ..RenewSession::default() };
    user.call(MetaOp::RenewSession(closed)).await.unwrap();
}

/// Follows what is recalled.
async fn follow(user: &User<'_>) -> Vec<u64> {
    let recalled = user.recalls(0).await;
    let _pending = user.recalls(recalled.number).now_or_never();
    recalled.inodes
}

#[tokio::test]
async fn who_opens_a_file_waits_until_those_who_write_have_told() {
    let world = World::new().await;
    let (a, b, c) = (client(&world).await, client(&world).await, client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    assert_eq!(flags(&a, ino, BOTH).await, (false, false), "it is alone");
    a.move_out(ino).await.unwrap();
    assert_eq!(flags(&b, ino, READ).await, (false, true), "it does not write");
    let settled = settle(&b, ino);
    futures::pin_mut!(settled);
    assert!(futures::poll!(settled.as_mut()).is_pending());
    let asks = asked(&a).await;
    assert_eq!(asks.iter().map(|ask| ask.ino).collect::<Vec<_>>(), [ino]);
    // What it tells meanwhile needs the locks of the file.
    a.publish(Publish { ino, length_min: 70_000, ..Publish::default() }).await.unwrap();
    assert!(futures::poll!(settled.as_mut()).is_pending());
    tell(&a, asks[0]).await;
    assert_eq!(settled.await.attr.length, 70_000);
    assert_eq!(flags(&c, ino, BOTH).await, (true, true), "others have it open");
    assert_eq!(flags(&b, ino, READ).await, (false, true), "the third writes now");
    close(&c, ino).await;
    close(&b, ino).await;
    close(&b, ino).await;
    assert!(flags(&a, ino, BOTH).await.0, "it is taken at its word");
}

#[tokio::test]
async fn who_only_reads_is_not_waited_for() {
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    assert_eq!(flags(&a, ino, READ).await, (false, false));
    assert_eq!(flags(&b, ino, BOTH).await, (true, true));
    let settled = a.call(MetaOp::Settle(Inode { ino })).now_or_never();
    assert!(settled.is_none(), "the other writes, and has not said that it tells");
}

/// What it said was of the file as it had it open before.
#[tokio::test]
async fn an_answer_to_an_earlier_question_counts_for_nothing() {
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    a.open(ino, BOTH).await.unwrap();
    b.open(ino, READ).await.unwrap();
    let _asks = b.call(MetaOp::Settle(Inode { ino })).now_or_never();
    let old = asked(&a).await;
    close(&a, ino).await;
    close(&b, ino).await;
    assert_eq!(flags(&a, ino, BOTH).await, (false, false));
    tell(&a, old[0]).await;
    assert_eq!(flags(&b, ino, READ).await, (false, true));
}

#[tokio::test]
async fn a_cut_waits_for_what_others_hold_back() {
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    a.open(ino, BOTH).await.unwrap();
    let cut = b.open(ino, OpenMode { truncate: true, ..BOTH });
    let resized = b.truncate(ino, 5);
    futures::pin_mut!(cut, resized);
    assert!(
        futures::poll!(cut.as_mut()).is_pending() && futures::poll!(resized.as_mut()).is_pending()
    );
    tell(&a, asked(&a).await[0]).await;
    assert_eq!(cut.await.unwrap().attr.length, 0);
    resized.await.unwrap();
}

/// A write of before that was told later set its own time over it.
#[tokio::test]
async fn a_time_is_set_when_others_have_told_what_they_hold_back() {
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    a.open(ino, BOTH).await.unwrap();
    let then = SetTime::At(Timestamp { seconds: 7, nanos: 0 });
    let change = || AttrChange { mtime: Some(then.into()), ..AttrChange::default() };
    a.setattr(ino, change()).await.expect("nobody else writes");
    let set = b.setattr(ino, change());
    futures::pin_mut!(set);
    assert!(futures::poll!(set.as_mut()).is_pending());
    a.write(ino, 0, b"before").await.unwrap();
    assert!(futures::poll!(set.as_mut()).is_pending());
    tell(&a, asked(&a).await[0]).await;
    assert_eq!(set.await.unwrap().mtime.seconds, 7);
}

/// With one `touch` each of its writes was a message, until it had closed the file.
#[tokio::test]
async fn who_writes_to_a_file_that_others_give_a_time_tells_once_and_goes_on_to_hold_back() {
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    a.open(ino, BOTH).await.unwrap();
    let change = || AttrChange { mtime: Some(SetTime::Now.into()), ..AttrChange::default() };
    for _ in 0..2 {
        let set = b.setattr(ino, change());
        futures::pin_mut!(set);
        assert!(futures::poll!(set.as_mut()).is_pending(), "it may hold something back since");
        let asks = asked(&a).await;
        assert!(asks.len() == 1 && asks[0].keep, "{asks:?}");
        tell(&a, asks[0]).await;
        set.await.unwrap();
    }
    assert!(flags(&b, ino, READ).await.1, "it does not tell each write");
}

/// One of a release that knows no question which leaves all as it is.
#[tokio::test]
async fn an_older_client_that_writes_to_a_file_which_is_given_a_time_tells_each_write() {
    let world = World::new().await;
    let old = MetaOp::OpenSession(OpenSession { client: "old".into(), ..OpenSession::default() });
    let old = MetaRequest { volume: 1, leases: 1, op: Some(old), ..MetaRequest::default() };
    let old = world.server.call(old).await.unwrap().answer;
    let Some(MetaAnswer::Session(Session { session, .. })) = old else { panic!() };
    let (a, b) = (world.root().at(session).leasing(), client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    a.open(ino, BOTH).await.unwrap();
    let change = || AttrChange { mtime: Some(SetTime::Now.into()), ..AttrChange::default() };
    let set = b.setattr(ino, change());
    futures::pin_mut!(set);
    assert!(futures::poll!(set.as_mut()).is_pending());
    let asks = asked(&a).await;
    assert!(asks.len() == 1 && !asks[0].keep, "{asks:?}");
    tell(&a, asks[0]).await;
    set.await.unwrap();
    b.setattr(ino, change()).await.expect("nothing is held back");
}

/// It was made when others had told, and took away what its client had written since.
#[tokio::test]
async fn a_cut_that_its_client_has_given_up_is_not_made_after_the_client_has_opened_the_file_again()
{
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    a.write(ino, 0, b"before").await.unwrap();
    a.open(ino, BOTH).await.unwrap();
    let change = AttrChange { length: Some(1), ..AttrChange::default() };
    let cut = MetaOp::SetAttr(SetAttr { ino, change, writable_handle: false });
    let cut = b.call_seq(7, 6, cut);
    futures::pin_mut!(cut);
    assert!(futures::poll!(cut.as_mut()).is_pending());
    b.call_seq(0, 7, MetaOp::Open(Open { ino, mode: BOTH })).await.unwrap();
    tell(&a, asked(&a).await[0]).await;
    assert_eq!(kind(cut.await), ErrorKind::Malformed);
    assert_eq!(b.getattr(ino).await.unwrap().length, 6);
}

/// The server could not hear that it was given up, and made it when others had told.
#[tokio::test]
async fn a_cut_that_was_given_up_is_not_made_although_an_older_request_is_under_way() {
    const CUT: OpenMode = OpenMode { truncate: true, ..BOTH };
    let set_length = |ino: u64| {
        let change = AttrChange { length: Some(1), ..AttrChange::default() };
        MetaOp::SetAttr(SetAttr { ino, change, writable_handle: false })
    };
    let create = |_: u64| {
        let new = new(1, "f", FileKind::File, 0o644);
        MetaOp::Create(Create { exclusive: false, open: Some(CUT), ..new })
    };
    let cuts: [fn(u64) -> MetaOp; 3] =
        [set_length, create, |ino| MetaOp::Open(Open { ino, mode: CUT })];
    for cut in cuts {
        let world = World::new().await;
        let (a, b) = (client(&world).await, client(&world).await);
        let ino = a.file(1, "f").await.unwrap();
        a.write(ino, 0, b"before").await.unwrap();
        a.open(ino, BOTH).await.unwrap();
        let waiting = b.call_seq(7, 5, cut(ino));
        futures::pin_mut!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        let open = MetaOp::Open(Open { ino, mode: BOTH });
        b.call_giving_up(&[7], 8, 5, open).await.unwrap();
        tell(&a, asked(&a).await[0]).await;
        assert_eq!(kind(waiting.await), ErrorKind::Malformed);
        let late_copy = b.call_seq(7, 5, cut(ino)).await;
        assert_eq!(kind(late_copy), ErrorKind::Malformed);
        assert_eq!(b.getattr(ino).await.unwrap().length, 6);
    }
}

#[tokio::test]
async fn who_does_not_tell_is_named_after_a_while() {
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    a.open(ino, BOTH).await.unwrap();
    b.open(ino, READ).await.unwrap();
    let error = b.call(MetaOp::Settle(Inode { ino })).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::HeldBack);
    assert!(error.to_string().contains("test") && error.to_string().contains("client list"));
}

#[tokio::test]
async fn who_keeps_no_leases_or_ends_is_not_waited_for() {
    let world = World::new().await;
    let (a, b, root) = (client(&world).await, client(&world).await, world.root());
    let ino = root.file(1, "f").await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    b.open(ino, READ).await.unwrap();
    assert!(!b.open(ino, READ).await.unwrap().unsettled, "it cannot be asked");
    close(&b, ino).await;
    close(&b, ino).await;
    a.open(ino, BOTH).await.unwrap();
    assert_eq!(flags(&b, ino, READ).await, (false, true));
    a.call(MetaOp::CloseSession(Nothing {})).await.unwrap();
    settle(&b, ino).await;
}

#[tokio::test]
async fn after_a_restart_those_who_may_come_back_are_waited_for_a_while() {
    let world = World::new().await;
    let (a, ino) = {
        let user = client(&world).await;
        (user.session, user.file(1, "f").await.unwrap())
    };
    let world = world.killed().await;
    let b = client(&world).await;
    assert_eq!(flags(&b, ino, BOTH).await, (true, true), "it may have it open");
    assert_eq!(world.open_session_of(a, &[ino], true).await.session, a);
    assert_eq!(flags(&b, ino, READ).await, (true, true), "it has");
    let world = world.killed().await;
    let b = client(&world).await;
    world.clock.advance_ms(LEASE_MS_AT_SERVER + 1);
    assert_eq!(flags(&b, ino, READ).await, (false, false), "it is late");
}

/// Seed 795548938958: who opened a file while its writer was away had nobody to ask, and read on by what it had been
/// leased while the writer, back again, held back what it wrote.
#[tokio::test]
async fn who_comes_back_late_learns_what_others_have_opened_meanwhile() {
    let world = World::new().await;
    let (a, relaxed, files) = {
        let user = client(&world).await;
        let relaxed = user.mkdir(1, "relaxed").await.unwrap();
        user.setxattr(relaxed, "user.strake.layout.consistency", b"close-to-open").await.unwrap();
        let relaxed = user.file(relaxed, "f").await.unwrap();
        let files = [user.file(1, "f").await.unwrap(), user.file(1, "g").await.unwrap()];
        (user.session, relaxed, files)
    };
    let world = world.killed().await;
    let b = client(&world).await;
    world.clock.advance_ms(LEASE_MS_AT_SERVER + 1);
    let [one, other] = files;
    for ino in [one, relaxed] {
        assert_eq!(flags(&b, ino, READ).await, (false, false), "it is late");
    }
    let back = world.open_session_of(a, &[one, other, relaxed], true).await;
    assert_eq!((back.resumed, back.shared), (true, vec![one]));
}

/// Who has read the file a while ago, and only defers to close it, does not make every write of others a message.
#[tokio::test]
async fn who_only_defers_to_close_a_file_does_not_have_it_open() {
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    let ino = a.file(1, "f").await.unwrap();
    assert!(asked(&a).await.is_empty(), "its leases begin");
    assert!(a.open(ino, READ).await.unwrap().attr.leased);
    let opened = b.open(ino, BOTH).await.unwrap();
    assert!(opened.shared && opened.unsettled);
    let settled = settle(&b, ino);
    futures::pin_mut!(settled);
    assert!(futures::poll!(settled.as_mut()).is_pending(), "it may be asked for");
    close(&a, ino).await;
    assert_eq!(follow(&a).await, [ino]);
    assert!(!settled.await.shared);
}

/// What `consistency` gives up is not asked for; of what is parallel nothing is leased, so nobody waits for a recall.
#[tokio::test]
async fn files_of_a_relaxed_directory_are_written_without_asking_others() {
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    for user in [&a, &b] {
        assert!(asked(user).await.is_empty(), "its leases begin");
    }
    for (mode, leased) in [("close-to-open", true), ("parallel", false)] {
        let dir = a.mkdir(1, mode).await.unwrap();
        a.setxattr(dir, "user.strake.layout.consistency", mode.as_bytes()).await.unwrap();
        let ino = a.file(dir, "f").await.unwrap();
        assert!(b.getattr(dir).await.unwrap().leased, "it is a directory like others");
        a.move_out(ino).await.unwrap();
        for user in [&a, &b, &a] {
            assert_eq!(flags(user, ino, BOTH).await, (false, false), "{mode}");
        }
        assert_eq!(a.open(ino, OpenMode { truncate: true, ..BOTH }).await.unwrap().attr.length, 0);
        settle(&b, ino).await;
        assert_eq!(b.getattr(ino).await.unwrap().leased, leased, "{mode}");
        if !leased {
            a.publish(Publish { ino, length_min: 70_000, ..Publish::default() }).await.unwrap();
            a.truncate(ino, 5).await.unwrap();
            assert_eq!(b.getattr(ino).await.unwrap().length, 5);
        }
    }
    let error = a.setxattr(1, "user.strake.layout.consistency", b"loose").await.unwrap_err();
    assert!(error.to_string().contains("strict, close-to-open or parallel"), "{error}");
}

/// Several who write would take each other's leases away with every write.
#[tokio::test]
async fn who_writes_to_a_file_of_others_is_not_leased_it_by_that() {
    let world = World::new().await;
    let (a, b) = (client(&world).await, client(&world).await);
    for user in [&a, &b] {
        assert!(asked(user).await.is_empty(), "its leases begin");
    }
    let ino = a.file(1, "f").await.unwrap();
    a.open(ino, BOTH).await.unwrap();
    a.move_out(ino).await.unwrap();
    let longer = |length_min| Publish { ino, length_min, ..Publish::default() };
    assert!(a.publish(longer(100)).await.unwrap().leased, "it is alone");
    assert!(b.open(ino, READ).await.unwrap().attr.leased);
    let told = a.publish(longer(200));
    futures::pin_mut!(told);
    assert!(futures::poll!(told.as_mut()).is_pending(), "the other believes what it knows");
    follow(&b).await;
    assert!(!told.await.unwrap().leased);
    assert!(b.getattr(ino).await.unwrap().leased, "who looks is");
}
