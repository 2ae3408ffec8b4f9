use super::*;
use crate::behind::GATHER;
use crate::testing::lines::Lines;
use crate::testing::{Fake, Paused, options};
use crate::{NewFile, OpenFlags, RenameFlags, VolumeOptions};
use tokio::time::sleep;

/// By how much the number of an exclusive lease is greater than that of its directory.
const BASE: u64 = 100;
const ROOT: Ino = Ino::ROOT;

/// What was asked for in the same instant as something was changed is not believed.
async fn tick() {
    sleep(Duration::from_millis(1)).await;
}

/// What was answered until now is sent.
async fn sent() {
    sleep(2 * GATHER).await;
}

/// As a kernel's.
fn cred() -> Credentials {
    Credentials { checked: true, ..Credentials::root() }
}

/// A volume of a server that leases directories exclusively, in whose root there are these files.
async fn volume<const N: usize>(fake: &Arc<Fake>, names: [&str; N]) -> (Arc<Volume>, [Ino; N]) {
    fake.lease_exclusively(BASE);
    let clock = Arc::new(Paused::default());
    let options = VolumeOptions { clock, leases: true, behind: true, ..options() };
    let volume = fake.volume(options).await;
    let mut inos = [ROOT; N];
    for (ino, name) in inos.iter_mut().zip(names) {
        *ino = make(&volume, ROOT, name).await;
    }
    fake.take_log();
    (volume, inos)
}

async fn make(volume: &Volume, dir: Ino, name: &str) -> Ino {
    tick().await;
    let new = NewFile::node(FileKind::File, 0o644, 0, 0);
    let made = volume.make(&cred(), dir, Bytes::copy_from_slice(name.as_bytes()), new).await;
    tick().await;
    made.unwrap().ino
}

async fn unlink(volume: &Volume, name: &'static str) -> Result<Attr> {
    volume.unlink(&cred(), ROOT, name.into()).await
}

async fn rename(
    volume: &Volume,
    from: &'static str,
    to: &'static str,
    flags: RenameFlags,
) -> Result<(Attr, Option<Attr>)> {
    volume.rename(&cred(), ROOT, from.into(), ROOT, to.into(), flags).await
}

async fn lookup(volume: &Volume, name: &'static str) -> Result<Ino> {
    let found = volume.lookup(&cred(), ROOT, name.into()).await.map(|attr| attr.ino);
    tick().await;
    found
}

fn kind<T>(told: Result<T>) -> Option<ErrorKind> {
    told.err().map(|error| error.kind)
}

/// True if a change was asked for since this was asked last, and the server heard of it before it was answered.
fn went_the_old_way(fake: &Fake) -> bool {
    let changes = ["Unlink", "Rename"];
    fake.take_log().iter().any(|line| changes.iter().any(|change| line.starts_with(change)))
}

#[tokio::test(start_paused = true)]
async fn removals_and_renames_are_answered_before_they_are_sent_and_shown_as_they_will_be() {
    let fake = Arc::new(Fake::default());
    let (volume, [_, b, c]) = volume(&fake, ["a", "b", "c"]).await;
    assert_eq!(kind(lookup(&volume, "d").await), Some(ErrorKind::NotFound));
    let held = fake.behind_gate.write().await;
    assert_eq!(unlink(&volume, "a").await.unwrap().nlink, 0);
    let (moved, other) = rename(&volume, "b", "d", RenameFlags::default()).await.unwrap();
    assert_eq!((moved.ino, other), (b, None));
    let (moved, other) = rename(&volume, "c", "d", RenameFlags::default()).await.unwrap();
    assert_eq!((moved.ino, other.unwrap().ino), (c, b));
    for gone in ["a", "b", "c"] {
        assert_eq!(kind(lookup(&volume, gone).await), Some(ErrorKind::NotFound), "{gone}");
    }
    assert_eq!(lookup(&volume, "d").await, Ok(c));
    let shown = volume.getattr(ROOT).await.unwrap();
    assert_eq!(shown.length, ENTRY_BYTES);
    assert!(fake.leads("a").is_some(), "nothing is made");
    drop(held);
    volume.fsync_dir(ROOT).await.unwrap();
    assert_eq!([fake.leads("a"), fake.leads("b"), fake.leads("d")], [None, None, Some(c.0)]);
    let made = volume.getattr(ROOT).await.unwrap();
    assert!(made.version > shown.version);
    assert_eq!(Attr { version: shown.version, ..made }, shown);
    assert!(!went_the_old_way(&fake));
}

#[tokio::test(start_paused = true)]
async fn changes_gather_for_a_message_until_somebody_waits_for_them() {
    let fake = Arc::new(Fake::default());
    let (volume, _) = volume(&fake, ["a", "b", "c"]).await;
    let began = tokio::time::Instant::now();
    unlink(&volume, "a").await.unwrap();
    unlink(&volume, "b").await.unwrap();
    volume.fsync_dir(ROOT).await.unwrap();
    assert!(began.elapsed() < GATHER);
    assert_eq!(fake.take_log(), ["behind 2", "sync 1"]);
    unlink(&volume, "c").await.unwrap();
    sent().await;
    assert_eq!(fake.leads("c"), None);
}

#[tokio::test(start_paused = true)]
async fn an_empty_directory_is_removed_behind_when_it_is_leased_exclusively_itself() {
    let fake = Arc::new(Fake::default());
    let (volume, []) = volume(&fake, []).await;
    let mut dirs = Vec::new();
    for name in ["d", "e", "found"] {
        tick().await;
        let made = volume.make(&cred(), ROOT, name.into(), NewFile::directory(0o755, 0)).await;
        dirs.push(made.unwrap().ino);
    }
    make(&volume, dirs[0], "f").await;
    fake.take_log();
    let rmdir = async |name: &'static str| volume.rmdir(&cred(), ROOT, name.into()).await;
    volume.unlink(&cred(), dirs[0], "f".into()).await.unwrap();
    assert_eq!(rmdir("d").await.unwrap().nlink, 0);
    assert_eq!(volume.getattr(ROOT).await.unwrap().nlink, 4);
    assert!(!went_the_old_way(&fake));
    assert_eq!(rmdir("e").await.unwrap().nlink, 0);
    assert!(!went_the_old_way(&fake), "who has made it has it for himself");
    rmdir("found").await.unwrap();
    assert!(went_the_old_way(&fake), "somebody may be there");
    assert_eq!((fake.leads("d"), fake.leads("e"), fake.leads("found")), (None, None, None));
    // Of what was removed the server hears that it is not leased any more: it might have refused.
    sleep(Duration::from_secs(3)).await;
    let given_back = fake.given_back();
    assert!(dirs[..2].iter().all(|dir| given_back.contains(&(BASE + dir.0))), "{given_back:?}");
}

#[tokio::test(start_paused = true)]
async fn what_may_be_otherwise_than_is_known_here_goes_the_old_way() {
    let fake = Arc::new(Fake::default());
    let (volume, [a, b, _, _]) = volume(&fake, ["a", "b", "c", "d"]).await;
    assert_eq!(kind(unlink(&volume, "nowhere").await), Some(ErrorKind::NotFound));
    assert!(went_the_old_way(&fake), "it is not known");
    let _open = volume.open(&cred(), a, OpenFlags::READ_WRITE).await.unwrap();
    unlink(&volume, "a").await.unwrap();
    assert!(went_the_old_way(&fake), "it is open");
    tick().await;
    volume.link(&cred(), b, ROOT, "b2".into()).await.unwrap();
    tick().await;
    unlink(&volume, "b").await.unwrap();
    assert!(went_the_old_way(&fake), "it has another name");
    tick().await;
    let keep = RenameFlags { no_replace: true, exchange: false };
    assert_eq!(kind(rename(&volume, "c", "d", keep).await), Some(ErrorKind::Exists));
    assert!(went_the_old_way(&fake), "it must not be replaced");
    volume.unlink(&Credentials::root(), ROOT, "c".into()).await.unwrap();
    assert!(went_the_old_way(&fake), "nobody has checked whether he may");
}

#[tokio::test(start_paused = true)]
async fn an_answer_says_nothing_of_what_a_later_change_touches() {
    let fake = Arc::new(Fake::default());
    let (volume, _) = volume(&fake, ["a", "b", "c"]).await;
    let held = fake.behind_gate.write().await;
    unlink(&volume, "a").await.unwrap();
    sent().await;
    unlink(&volume, "b").await.unwrap();
    let shown = volume.getattr(ROOT).await.unwrap();
    drop(held);
    // Whoever waited there comes first.
    let held = fake.behind_gate.write().await;
    tick().await;
    assert!(fake.leads("a").is_none() && fake.leads("b").is_some());
    assert_eq!(volume.getattr(ROOT).await.unwrap(), shown);
    assert_eq!(kind(lookup(&volume, "b").await), Some(ErrorKind::NotFound));
    let asks = volume.fetch_attr(ROOT, false);
    tokio::pin!(asks);
    assert!(futures::poll!(&mut asks).is_pending(), "it would be of before");
    drop(held);
    assert_eq!(asks.await.unwrap().length, shown.length);
}

/// They were told to a kernel when the change had been, and it believed them for as long as the lease lasted.
#[tokio::test(start_paused = true)]
async fn attributes_of_before_a_change_that_is_answered_are_not_believed() {
    let fake = Arc::new(Fake::default());
    let (volume, _) = volume(&fake, ["a"]).await;
    let before = volume.getattr(ROOT).await.unwrap();
    assert!(!volume.believable(ROOT, &before).is_zero());
    let _held = fake.behind_gate.write().await;
    unlink(&volume, "a").await.unwrap();
    assert!(volume.believable(ROOT, &before).is_zero());
    let shown = volume.getattr(ROOT).await.unwrap();
    assert!(!volume.believable(ROOT, &shown).is_zero());
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_asked_back_is_given_back_when_what_is_under_way_there_is_made() {
    let fake = Arc::new(Fake::default());
    let (volume, _) = volume(&fake, ["a", "b"]).await;
    let is_told = || fake.take_log().iter().any(|line| line.starts_with("Told"));
    let held = fake.behind_gate.write().await;
    unlink(&volume, "a").await.unwrap();
    fake.ask_back(Ask { ino: ROOT.0, number: BASE + ROOT.0, keep: false });
    sleep(Duration::from_secs(2)).await;
    assert!(!is_told());
    drop(held);
    sleep(Duration::from_millis(100)).await;
    assert!(is_told() && fake.leads("a").is_none());
    unlink(&volume, "b").await.unwrap();
    assert!(went_the_old_way(&fake));
}

/// All that was answered was given up when the patience of one message was over.
#[tokio::test(start_paused = true)]
async fn what_was_answered_is_sent_for_as_long_as_its_session_lasts_and_nobody_waits_for_longer_than_he_may()
 {
    let fake = Arc::new(Fake::default());
    let (volume, _) = volume(&fake, ["a", "b"]).await;
    let held = fake.behind_gate.write().await;
    unlink(&volume, "a").await.unwrap();
    assert_eq!(kind(volume.fetch_attr(ROOT, false).await), Some(ErrorKind::TimedOut));
    sleep(Duration::from_secs(40)).await;
    assert!(fake.leads("a").is_some());
    drop(held);
    volume.fsync_dir(ROOT).await.unwrap();
    assert_eq!(fake.leads("a"), None);
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_in_a_session_that_is_lost_is_given_up_and_told_once() {
    let fake = Arc::new(Fake::default());
    let (volume, [a]) = volume(&fake, ["a"]).await;
    let held = fake.behind_gate.write().await;
    unlink(&volume, "a").await.unwrap();
    fake.forget_session();
    drop(held);
    assert_eq!(kind(volume.fsync_dir(ROOT).await), Some(ErrorKind::Io));
    volume.fsync_dir(ROOT).await.unwrap();
    volume.sync_all().await.unwrap();
    assert_eq!((fake.leads("a"), lookup(&volume, "a").await), (Some(a.0), Ok(a)));
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_one_that_is_refused_is_not_made_and_names_are_shown_as_the_server_has_them()
 {
    let fake = Arc::new(Fake::default());
    let (volume, [_, _, c, d]) = volume(&fake, ["a", "b", "c", "d"]).await;
    let held = fake.behind_gate.write().await;
    for name in ["a", "b", "c"] {
        unlink(&volume, name).await.unwrap();
    }
    // While this mount was cut off.
    fake.lose_name("b");
    drop(held);
    assert_eq!(kind(volume.fsync_dir(ROOT).await), Some(ErrorKind::Io));
    volume.fsync_dir(ROOT).await.unwrap();
    assert_eq!((fake.leads("a"), fake.leads("c")), (None, Some(c.0)));
    assert_eq!(lookup(&volume, "c").await, Ok(c));
    assert_eq!(kind(lookup(&volume, "b").await), Some(ErrorKind::NotFound));
    let asked = volume.fetch_attr(ROOT, false).await.unwrap();
    assert_eq!(volume.getattr(ROOT).await.unwrap(), asked);
    // What it was leased is forgotten with that, and given back.
    sleep(Duration::from_secs(3)).await;
    assert!(fake.given_back().contains(&(BASE + ROOT.0)));
    fake.lease_exclusively(2 * BASE);
    make(&volume, ROOT, "e").await;
    assert_eq!(lookup(&volume, "d").await, Ok(d));
    let held = fake.behind_gate.write().await;
    unlink(&volume, "d").await.unwrap();
    fake.lose_name("d");
    drop(held);
    assert_eq!(kind(volume.sync_all().await), Some(ErrorKind::Io));
    volume.sync_all().await.unwrap();
    volume.fsync_dir(ROOT).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_answer_is_lost_is_made_once() {
    let fake = Arc::new(Fake::default());
    let (volume, [_, b]) = volume(&fake, ["a", "b"]).await;
    fake.lose_answer("behind");
    unlink(&volume, "a").await.unwrap();
    rename(&volume, "b", "a", RenameFlags::default()).await.unwrap();
    volume.fsync_dir(ROOT).await.unwrap();
    assert_eq!((fake.leads("a"), fake.leads("b")), (Some(b.0), None));
    assert!(!went_the_old_way(&fake));
}

/// The log named none of them.
#[tokio::test(start_paused = true)]
async fn what_is_under_way_when_its_mount_ends_is_named_and_what_may_be_done_is_told_apart() {
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    let fake = Arc::new(Fake::default());
    let (volume, _) = volume(&fake, ["a", "b"]).await;
    let held = fake.behind_gate.write().await;
    unlink(&volume, "a").await.unwrap();
    sent().await;
    unlink(&volume, "b").await.unwrap();
    assert_eq!(volume.unsent_names(), 2);
    volume.give_up_names();
    assert_eq!(volume.unsent_names(), 0);
    assert_eq!(
        lines.count("\"a\" in directory 1 was answered, and nobody knows whether it is done"),
        1
    );
    assert_eq!(lines.count("\"b\" in directory 1 was answered, and is not done"), 1);
    drop(held);
    assert_eq!(kind(volume.fsync_dir(ROOT).await), Some(ErrorKind::Io));
    volume.give_up_names();
    assert_eq!(lines.count("was answered"), 2);
}

/// Of what the server had refused the log said that nobody knew.
#[tokio::test(start_paused = true)]
async fn of_what_is_refused_the_log_says_that_it_is_not_done() {
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    let fake = Arc::new(Fake::default());
    let (volume, _) = volume(&fake, ["a", "b"]).await;
    let held = fake.behind_gate.write().await;
    unlink(&volume, "a").await.unwrap();
    unlink(&volume, "b").await.unwrap();
    fake.lose_name("a");
    drop(held);
    assert_eq!(kind(volume.fsync_dir(ROOT).await), Some(ErrorKind::Io));
    assert_eq!(lines.count("was answered, and is not done"), 2);
}
