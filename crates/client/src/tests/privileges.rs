//! What a write takes away from a file: setuid and setgid, and `security.capability`.

use super::deferred::mounts;
use super::shared::{claiming, until_logged};
use super::*;
use crate::testing::Paused;
use futures::future::join;
use strake_types::access::CAPABILITY;

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// What is asked for when the file has a capability, or might have got one, before somebody writes through a handle.
async fn look_for_capability(fake: &Fake, volume: &Volume, file: &OpenFile) {
    assert!(volume.note_writer(file, false));
    fake.fail("GetXattr", ErrorKind::NoAttribute);
    assert!(!volume.drop_privileges(file, false).await.unwrap(), "of the mode nothing");
    assert!(!volume.note_writer(file, false), "once");
}

/// Each write of an ordinary user looked at the file first: all who held back something of it were to tell that.
#[tokio::test]
async fn a_user_who_writes_to_a_claimed_file_looks_at_nothing_and_what_others_gave_it_goes() {
    let (fake, volume, file) = claiming().await;
    // Nobody is leased a file of which something is claimed; this server does not know that.
    volume.leases(file.ino()).forget(&[file.ino()], volume.now());
    let other = fake.volume(options()).await;
    other.setattr(&Credentials::root(), file.ino(), mode(0o6755), None).await.unwrap();
    fake.take_log();
    for nth in 0..100 {
        assert!(!volume.note_writer(&file, true), "none that this mount was told of");
        write(&volume, &file, nth * 1_000, pattern(2, 1_000)).await;
    }
    let log = fake.take_log();
    let asked = ["getattr", "publish", "GetXattr"].map(|what| starting(&log, what).len());
    assert_eq!(asked, [0, 0, 0], "{log:?}");
    assert_eq!(fake.server_mode(file.ino()), 0o6755);
    volume.flush(&file).await.unwrap();
    assert_eq!(fake.server_mode(file.ino()), 0o755, "it goes with what is told of the writes");
}

#[tokio::test]
async fn setid_that_is_known_goes_before_a_user_s_first_write() {
    let (fake, volume) = cluster().await;
    let root = Credentials::root();
    let file = create(&volume, "a").await;
    volume.setattr(&root, file.ino(), mode(0o6755), None).await.unwrap();
    assert!(!volume.note_writer(&file, false), "root's writes take none away");
    assert!(volume.note_writer(&file, true));
    fake.take_log();
    assert!(volume.drop_privileges(&file, true).await.unwrap());
    assert_eq!(fake.take_log(), ["publish length=0 sync=false"]);
    assert_eq!((fake.server_mode(file.ino()), file.attr().mode), (0o755, 0o755));
    assert!(!volume.note_writer(&file, true), "once");
    // The mark of mandatory locking stays, and is no matter of each write.
    volume.setattr(&root, file.ino(), mode(0o2644), None).await.unwrap();
    assert!(!volume.note_writer(&file, true));
}

/// It was set after the write: what is told of that later is not to take it away.
#[tokio::test]
async fn what_is_given_to_a_file_after_a_write_stays_when_the_write_is_told() {
    let (fake, volume) = cluster().await;
    let root = Credentials::root();
    let file = create(&volume, "a").await;
    let told_before = |what: &str| {
        let log = fake.take_log();
        let at = |what: &str| log.iter().position(|line| line.starts_with(what));
        assert!(at("inline") < at(what) && at("inline").is_some(), "{log:?}");
    };
    assert!(!volume.note_writer(&file, true));
    write(&volume, &file, 0, pattern(1, 10)).await;
    volume.setattr(&root, file.ino(), mode(0o4755), None).await.unwrap();
    told_before("setattr");
    assert_eq!(fake.server_mode(file.ino()), 0o4755);
    volume.drop_privileges(&file, true).await.unwrap();
    write(&volume, &file, 0, pattern(2, 10)).await;
    fake.take_log();
    let (name, value) = (Bytes::from_static(CAPABILITY), Bytes::from_static(b"value"));
    volume.setxattr(&root, file.ino(), name, value, XattrFlags::default()).await.unwrap();
    told_before("SetXattr");
    look_for_capability(&fake, &volume, &file).await;
}

/// A handle through which a user had written once took them away with each write, whoever made it.
#[tokio::test]
async fn what_root_gives_and_writes_keeps_setid_although_a_user_has_written_before() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let write_as = async |by_user: bool| {
        if volume.note_writer(&file, by_user) {
            volume.drop_privileges(&file, by_user).await.unwrap();
        }
        write(&volume, &file, 0, pattern(1, 10)).await;
        volume.flush(&file).await.unwrap();
        fake.server_mode(file.ino())
    };
    write_as(true).await;
    volume.setattr(&Credentials::root(), file.ino(), mode(0o4755), None).await.unwrap();
    assert_eq!((write_as(false).await, write_as(true).await), (0o4755, 0o755));
}

#[tokio::test]
async fn a_capability_is_looked_for_once_and_not_where_there_are_no_attributes() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    assert!(!volume.note_writer(&file, false), "it is new");
    volume.release(&file).await.unwrap();
    let file = open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
    assert!(!volume.note_writer(&file, false), "the server says that there are none");
    fake.give_xattr(file.ino());
    volume.fetch_attr(file.ino(), false).await.unwrap();
    look_for_capability(&fake, &volume, &file).await;
    volume.release(&file).await.unwrap();
    let file = open(&volume, file.ino(), OpenFlags::WRITE).await;
    look_for_capability(&fake, &volume, &file).await;
}

/// A recall forgets the lease, and asks for nothing: the mode of before was believed.
#[tokio::test(start_paused = true)]
async fn a_user_s_first_write_after_a_recall_takes_setid_away_and_the_next_ones_ask_nothing() {
    let fake = Arc::new(Fake::default());
    let clock = Arc::new(Paused::default());
    let volume = fake.volume(VolumeOptions { leases: true, clock, ..options() }).await;
    until_logged(&fake, "Recalls(Recalls { followed: 1").await;
    let other = fake.volume(options()).await;
    let file = create(&volume, "a").await;
    assert!(!volume.note_writer(&file, true), "it is leased");
    other.setattr(&Credentials::root(), file.ino(), mode(0o6755), None).await.unwrap();
    volume.leases(file.ino()).forget(&[file.ino()], volume.now());
    // What is asked for at the time of the recall may be older.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!volume.note_writer(&file, false), "root's writes take none away");
    assert!(volume.note_writer(&file, true));
    fake.take_log();
    assert!(volume.drop_privileges(&file, true).await.unwrap(), "a kernel may know the new mode");
    assert_eq!(starting(&fake.take_log(), "publish"), ["publish length=0 sync=false"]);
    assert_eq!(fake.server_mode(file.ino()), 0o755);
    assert!(!volume.note_writer(&file, true), "it is leased again");
    volume.leases(file.ino()).forget(&[file.ino()], volume.now());
    assert!(volume.note_writer(&file, true));
    assert!(!volume.drop_privileges(&file, true).await.unwrap(), "the mode is what it was");
}

/// Whoever stood in line asked once more, each of them.
#[tokio::test]
async fn of_two_who_write_at_the_same_time_one_takes_away_what_there_is() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    volume.setattr(&Credentials::root(), file.ino(), mode(0o4755), None).await.unwrap();
    fake.give_xattr(file.ino());
    volume.fetch_attr(file.ino(), false).await.unwrap();
    fake.fail("GetXattr", ErrorKind::NoAttribute);
    fake.take_log();
    let order = file.state.order.lock().await;
    let both = join(volume.drop_privileges(&file, true), volume.drop_privileges(&file, true));
    futures::pin_mut!(both);
    assert!(futures::poll!(both.as_mut()).is_pending());
    drop(order);
    let (one, two) = both.await;
    assert!(one.unwrap() && two.unwrap(), "both have found it with setuid");
    let log = fake.take_log();
    let asked = ["GetXattr", "publish"].map(|what| starting(&log, what).len());
    assert_eq!(asked, [1, 1], "{log:?}");
}

/// All that they wrote carried it along, and no `fsync` told the time while the bytes were on their way.
#[tokio::test]
async fn what_a_user_writes_to_a_file_with_attributes_takes_nothing_along_that_is_known_to_be_gone()
{
    let (fake, volume, _other) = mounts().await;
    let file = create(&volume, "a").await;
    fake.give_xattr(file.ino());
    volume.fetch_attr(file.ino(), false).await.unwrap();
    look_for_capability(&fake, &volume, &file).await;
    assert!(!volume.note_writer(&file, true));
    write(&volume, &file, 0, pattern(1, 10)).await;
    assert!(!file.state.core().unpublished.drop_setid);
    volume.flush(&file).await.unwrap();
    // Now it has one more, perhaps that.
    fake.give_xattr(file.ino());
    volume.fetch_attr(file.ino(), false).await.unwrap();
    look_for_capability(&fake, &volume, &file).await;
    // Of one that several write nobody is told.
    file.state.core().shared = true;
    fake.give_xattr(file.ino());
    volume.fetch_attr(file.ino(), false).await.unwrap();
    assert!(!volume.note_writer(&file, true));
    assert!(volume.may_be_privileged(file.ino(), &file.state.core()), "it goes with the write");
}

#[tokio::test]
async fn a_cut_by_opening_need_not_be_told() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    fake.take_log();
    assert!(!volume.drop_setid(&file).await.unwrap());
    assert!(fake.take_log().is_empty(), "the open has told it");
}

/// The file had other contents, and kept setuid for good.
#[tokio::test]
async fn what_a_user_has_copied_or_zeroed_takes_setid_away_where_it_failed_half_way() {
    for copies in [true, false] {
        let (fake, volume) = cluster().await;
        let (from, to) = (create(&volume, "from").await, create(&volume, "to").await);
        for file in [&from, &to] {
            write(&volume, file, 0, pattern(1, 4 * CHUNK as usize)).await;
            volume.fsync(file, false).await.unwrap();
        }
        assert!(!volume.note_writer(&to, true), "none that this mount was told of");
        let other = fake.volume(options()).await;
        other.setattr(&Credentials::root(), to.ino(), mode(0o6755), None).await.unwrap();
        for change in ["copy 3:", "punch 3:"] {
            fake.fail(change, ErrorKind::NoSpace);
        }
        let changed = match copies {
            true => volume.copy_range(&from, 0, &to, CHUNK, 3 * CHUNK).await.map(drop),
            false => volume.fallocate(&to, FallocateMode::Punch, CHUNK, 3 * CHUNK).await,
        };
        assert_eq!(changed.unwrap_err().kind, ErrorKind::NoSpace);
        volume.sync_all().await.unwrap();
        assert_eq!(fake.server_mode(to.ino()), 0o755);
    }
}

/// The answer may be lost and it be done.
#[tokio::test]
async fn a_capability_that_was_set_perhaps_is_looked_for() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let (name, value) = (Bytes::from_static(CAPABILITY), Bytes::from_static(b"value"));
    fake.fail("SetXattr", ErrorKind::Io);
    let root = Credentials::root();
    volume.setxattr(&root, file.ino(), name, value, XattrFlags::default()).await.unwrap_err();
    look_for_capability(&fake, &volume, &file).await;
}
