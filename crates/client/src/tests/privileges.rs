//! What a write takes away from a file: setuid and setgid, and `security.capability`.

use super::shared::claiming;
use super::*;
use strake_types::access::CAPABILITY;

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// What is asked for when the file has a capability, or might have got one, before somebody writes through a handle.
async fn look_for_capability(fake: &Fake, volume: &Volume, file: &OpenFile) {
    assert!(file.has_privileges(false));
    fake.fail("GetXattr", ErrorKind::NoAttribute);
    assert!(!volume.drop_privileges(file, false).await.unwrap(), "of the mode nothing");
    assert!(!file.has_privileges(false), "once");
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
        assert!(!file.has_privileges(true), "none that this mount was told of");
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
    assert!(!file.has_privileges(false), "root's writes take none away");
    assert!(file.has_privileges(true));
    fake.take_log();
    assert!(volume.drop_privileges(&file, true).await.unwrap());
    assert_eq!(fake.take_log(), ["publish length=0 sync=false"]);
    assert_eq!((fake.server_mode(file.ino()), file.attr().mode), (0o755, 0o755));
    assert!(!file.has_privileges(true), "once");
    // The mark of mandatory locking stays, and is no matter of each write.
    volume.setattr(&root, file.ino(), mode(0o2644), None).await.unwrap();
    assert!(!file.has_privileges(true));
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
    assert!(!file.has_privileges(true));
    write(&volume, &file, 0, pattern(1, 10)).await;
    volume.setattr(&root, file.ino(), mode(0o4755), None).await.unwrap();
    told_before("setattr");
    assert_eq!(fake.server_mode(file.ino()), 0o4755);
    volume.drop_privileges(&file, true).await.unwrap();
    write(&volume, &file, 0, pattern(2, 10)).await;
    fake.take_log();
    let (name, value) = (Bytes::from_static(CAPABILITY), Bytes::from_static(b"value"));
    volume.setxattr(&root, file.ino(), name, value, false, false).await.unwrap();
    told_before("SetXattr");
    look_for_capability(&fake, &volume, &file).await;
}

#[tokio::test]
async fn a_capability_is_looked_for_once_and_not_where_there_are_no_attributes() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    assert!(!file.has_privileges(false), "it is new");
    volume.release(&file).await.unwrap();
    let file = open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
    assert!(!file.has_privileges(false), "the server says that there are none");
    fake.give_xattr(file.ino());
    volume.fetch_attr(file.ino(), false).await.unwrap();
    look_for_capability(&fake, &volume, &file).await;
    volume.release(&file).await.unwrap();
    let file = open(&volume, file.ino(), OpenFlags::WRITE).await;
    look_for_capability(&fake, &volume, &file).await;
}
