mod crossing;

use super::*;
use crate::moments::MOMENT;
use crate::testing::Paused;
use bytes::Bytes;
use futures::future::BoxFuture;
use std::sync::atomic::AtomicBool;
use strake_types::{Credentials, Error, ErrorKind};
use strake_wire::message::common::AttrChange;
use strake_wire::message::meta::{
    Create, Created, DirEntry, Look, Name, Named, Nothing, ReadDir, Rename, Renamed, SetAttr,
    Unlink,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Leases that last until 3 s.
fn leases() -> Leases {
    let leases =
        Leases::new(true, Shares::one(VolumeId(1)), VolumeId(1), Arc::new(AtomicU64::new(1)));
    leases.extend(ms(LEASE_MS));
    leases
}

fn attr(ino: u64, version: u64) -> Attributes {
    Attributes { ino, version, nlink: 1, leased: true, name_leased: true, ..Attributes::default() }
}

fn at(name: &'static str) -> Name {
    Name { parent: 1, name: Bytes::from_static(name.as_bytes()) }
}

fn getattr(ino: u64) -> MetaOp {
    MetaOp::GetAttr(Look { ino, ..Look::default() })
}

fn lookup(name: &'static str) -> MetaOp {
    MetaOp::Lookup(at(name))
}

fn entry(ino: u64, version: u64) -> MetaAnswer {
    MetaAnswer::Entry(attr(ino, version))
}

fn unlink(name: &'static str) -> (MetaOp, MetaAnswer) {
    let gone = Attributes { nlink: 0, leased: false, ..attr(7, 9) };
    let answer = MetaAnswer::Named(Named { attr: gone, parent: Some(attr(1, 9)) });
    (MetaOp::Unlink(Unlink { at: at(name), directory: false }), answer)
}

fn create(name: &'static str, ino: u64) -> (MetaOp, MetaAnswer) {
    let parent = Some(attr(1, 8));
    let created = Created { attr: attr(ino, 1), created: true, opened: None, parent };
    (MetaOp::Create(Create { at: at(name), ..Create::default() }), MetaAnswer::Created(created))
}

#[test]
fn what_is_leased_is_believed_until_the_leases_are_over_or_it_is_recalled() {
    let leases = leases();
    leases.learn(&getattr(5), &entry(5, 3), ms(10), ms(11));
    leases.learn(&getattr(6), &entry(6, 3), ms(10), ms(11));
    assert!(leases.covers(Ino(5), 3, ms(12)) && leases.covers(Ino(5), 4, ms(2_999)));
    assert!(!leases.covers(Ino(5), 2, ms(12)), "an older version");
    assert!(!leases.covers(Ino(5), 3, ms(LEASE_MS)));
    leases.forget(&[Ino(5)], ms(20));
    assert!(!leases.covers(Ino(5), 3, ms(21)) && leases.covers(Ino(6), 3, ms(21)));
    assert_eq!(leases.time_for(Ino(6), 3, ms(1_000)), ms(2_000) - TICKS);
    let unleased = MetaAnswer::Entry(Attributes { leased: false, ..attr(6, 4) });
    leases.learn(&getattr(6), &unleased, ms(30), ms(31));
    assert!(!leases.covers(Ino(6), 4, ms(32)));
}

#[test]
fn names_are_believed_for_a_moment_and_a_recall_waits_for_its_end() {
    let leases = leases();
    let time = |name: &str, now| leases.time_for_name(Ino(1), name.as_bytes(), Ino(5), now);
    assert_eq!(time("a", ms(9)), ms(0), "nothing is known of it");
    leases.learn(&lookup("a"), &entry(5, 3), ms(10), ms(11));
    leases.learn(&lookup("b"), &entry(6, 3), ms(10), ms(11));
    assert_eq!((time("a", ms(20)), time("b", ms(20))), (MOMENT, ms(0)), "b is another inode");
    assert_eq!(leases.end_moments(&[Ino(5)], ms(30)), ms(0));
    leases.forget(&[Ino(1)], ms(40));
    assert_eq!(time("a", ms(41)), ms(0));
    assert_eq!(leases.end_moments(&[Ino(5), Ino(1)], ms(50)), ms(20) + MOMENT - ms(50) + TICKS);
    leases.learn(&lookup("a"), &entry(5, 3), ms(60), ms(61));
    assert_eq!(leases.name(Ino(1), b"a", ms(62)), Some(Some(Ino(5))));
    assert_eq!(time("a", ms(62)), ms(0), "others change names there");
    assert_eq!(leases.time_for_name(Ino(1), b"a", Ino(5), ms(LEASE_MS)), ms(0));
}

/// The server had the directory as ours for ever: everybody waited for us after each of its restarts.
#[test]
fn what_an_answer_leases_exclusively_that_is_not_believed_is_given_back() {
    let leases = leases();
    let found = |number| MetaAnswer::Entry(Attributes { exclusive: number, ..attr(5, 3) });
    leases.forget(&[Ino(5)], ms(20));
    leases.learn(&getattr(5), &found(7), ms(10), ms(25));
    assert_eq!(leases.behind.to_tell(ms(25)), [7]);
    leases.behind.told(&[7]);
    leases.learn(&getattr(5), &found(8), ms(21), ms(26));
    leases.learn(&getattr(5), &found(8), ms(10), ms(27));
    assert_eq!(leases.behind.to_tell(ms(27)), [0; 0], "it is known by now");
}

#[test]
fn an_answer_that_a_recall_has_overtaken_is_not_believed() {
    let leases = leases();
    leases.forget(&[Ino(5), Ino(1)], ms(20));
    leases.learn(&lookup("a"), &entry(5, 3), ms(10), ms(25));
    leases.learn(&lookup("b"), &MetaAnswer::Missing(Nothing {}), ms(10), ms(25));
    assert!(!leases.covers(Ino(5), 3, ms(26)));
    assert_eq!(
        (leases.name(Ino(1), b"a", ms(26)), leases.name(Ino(1), b"b", ms(26))),
        (None, None)
    );
    leases.learn(&lookup("a"), &entry(5, 3), ms(21), ms(27));
    assert!(leases.covers(Ino(5), 3, ms(28)));
    assert_eq!(leases.name(Ino(1), b"a", ms(28)), Some(Some(Ino(5))));
}

#[test]
fn an_answer_that_took_longer_than_notes_are_kept_is_not_believed() {
    let leases = leases();
    leases.extend(ms(60_000));
    leases.learn(&lookup("a"), &entry(5, 3), ms(10), ms(4_011));
    assert!(!leases.covers(Ino(5), 3, ms(4_012)));
    assert_eq!(leases.name(Ino(1), b"a", ms(4_012)), None);
}

#[test]
fn a_name_is_believed_only_with_a_lease_on_its_directory() {
    let leases = leases();
    let alone = MetaAnswer::Entry(Attributes { name_leased: false, ..attr(5, 3) });
    leases.learn(&lookup("a"), &alone, ms(10), ms(11));
    assert!(leases.covers(Ino(5), 3, ms(12)));
    assert_eq!(leases.name(Ino(1), b"a", ms(12)), None);
    leases.learn(&lookup("a"), &entry(5, 3), ms(13), ms(14));
    assert_eq!(leases.name(Ino(1), b"a", ms(15)), Some(Some(Ino(5))));
    leases.forget(&[Ino(1)], ms(16));
    assert_eq!(leases.name(Ino(1), b"a", ms(17)), None);
    // Leased anew: what was known of names before is not true again.
    leases.learn(&lookup("b"), &entry(6, 3), ms(18), ms(19));
    assert_eq!(leases.name(Ino(1), b"a", ms(20)), None);
}

#[test]
fn what_two_crossing_changes_say_of_a_name_is_not_believed() {
    let leases = leases();
    let ((unlink, unlinked), (create, created)) = (unlink("a"), create("a", 7));
    leases.learn(&unlink, &unlinked, ms(10), ms(11));
    assert_eq!(leases.name(Ino(1), b"a", ms(12)), Some(None));
    leases.learn(&create, &created, ms(20), ms(30));
    assert_eq!(leases.name(Ino(1), b"a", ms(31)), Some(Some(Ino(7))));
    leases.learn(&unlink, &unlinked, ms(21), ms(32));
    assert_eq!(leases.name(Ino(1), b"a", ms(33)), None);
}

#[test]
fn a_look_that_a_change_by_this_mount_has_overtaken_is_not_believed() {
    let leases = leases();
    let (unlink, unlinked) = unlink("a");
    leases.learn(&lookup("a"), &entry(7, 3), ms(5), ms(6));
    leases.learn(&unlink, &unlinked, ms(10), ms(12));
    leases.learn(&lookup("a"), &entry(7, 3), ms(9), ms(13));
    assert_eq!(leases.name(Ino(1), b"a", ms(14)), Some(None));
    assert!(!leases.covers(Ino(7), 3, ms(14)), "also if nothing is known of the inode any more");
}

#[test]
fn a_change_makes_listings_old_but_no_other_names() {
    let leases = leases();
    let read = MetaOp::ReadDir(meta_readdir(1));
    let page = MetaAnswer::Page(Page { leased: true, end: true, ..Page::default() });
    leases.learn(&read, &page, ms(10), ms(11));
    leases.learn(&lookup("b"), &entry(6, 3), ms(12), ms(13));
    assert!(leases.are_names_of(Ino(1), ms(10), ms(14)));
    let (create, created) = create("a", 7);
    leases.learn(&create, &created, ms(15), ms(16));
    assert!(!leases.are_names_of(Ino(1), ms(10), ms(17)));
    assert!(!leases.are_names_of(Ino(1), ms(15), ms(17)), "asked for before the change ended");
    assert_eq!(leases.name(Ino(1), b"b", ms(17)), Some(Some(Ino(6))));
}

fn meta_readdir(ino: u64) -> strake_wire::message::meta::ReadDir {
    strake_wire::message::meta::ReadDir { ino, limit: 10, ..Default::default() }
}

#[test]
fn the_number_of_inodes_is_bounded() {
    let leases = leases();
    for ino in 0..200_000 {
        leases.learn(&getattr(ino), &entry(ino, 1), ms(10), ms(11));
    }
    let kept: usize = leases.shards.iter().map(|shard| shard.lock().leased.len()).sum();
    assert!((30_000..=SHARDS * INODES_PER_SHARD_MAX).contains(&kept), "{kept}");
}

/// A kernel that is told nothing meanwhile.
struct Quiet;

impl Believer for Quiet {
    fn recall(&self, inodes: &[Ino]) -> Duration {
        assert!(inodes.is_empty());
        Duration::ZERO
    }

    fn forget_contents(&self, _inodes: &[Ino]) -> BoxFuture<'static, bool> {
        Box::pin(async { true })
    }

    fn forget_soon(&self, _ino: Ino) {}
}

#[test]
fn after_everything_was_forgotten_only_later_questions_count() {
    assert_eq!(leases().end(ms(1_000)), ms(0), "nobody else believes anything");
    let kernel: Arc<dyn Believer> = Arc::new(Quiet);
    let with_kernel = || {
        let leases = leases();
        *leases.believer.write() = Some(Arc::downgrade(&kernel));
        leases
    };
    let moment = MOMENT + TICKS;
    assert_eq!(with_kernel().end(ms(1_000)), moment, "a name may have come from another share");
    let leases = with_kernel();
    leases.learn(&getattr(5), &entry(5, 3), ms(10), ms(11));
    assert_eq!(leases.time_for(Ino(5), 3, ms(500)), ms(2_500) - TICKS);
    let lasts = ms(2_000) - TICKS + KERNEL_MARGIN;
    assert_eq!(leases.end(ms(1_000)), lasts, "what others were told may last so long");
    leases.extend(ms(5_000));
    leases.learn(&getattr(5), &entry(5, 3), ms(999), ms(1_001));
    assert!(!leases.covers(Ino(5), 3, ms(1_002)));
    leases.learn(&getattr(5), &entry(5, 3), ms(1_003), ms(1_004));
    assert!(leases.covers(Ino(5), 3, ms(1_005)));
}

/// A kernel that remembers whether it was told.
#[derive(Default)]
struct Kernel(AtomicBool);

impl Believer for Kernel {
    fn recall(&self, inodes: &[Ino]) -> Duration {
        assert_eq!(inodes, [Ino(9)]);
        self.0.store(true, Ordering::SeqCst);
        Duration::ZERO
    }

    fn forget_contents(&self, _inodes: &[Ino]) -> BoxFuture<'static, bool> {
        Box::pin(async { true })
    }

    fn forget_soon(&self, _ino: Ino) {}
}

/// A kernel that is being told something while it is told of a recall.
struct Busy(Weak<Volume>);

impl Believer for Busy {
    fn recall(&self, inodes: &[Ino]) -> Duration {
        assert!(inodes.is_empty());
        let Some(volume) = self.0.upgrade() else { return Duration::ZERO };
        let told = volume.now() + ms(3_500);
        volume.leases(Ino::ROOT).told_until.fetch_max(nanos(told), Ordering::SeqCst);
        Duration::ZERO
    }

    fn forget_contents(&self, _inodes: &[Ino]) -> BoxFuture<'static, bool> {
        Box::pin(async { true })
    }

    fn forget_soon(&self, _ino: Ino) {}
}

/// It once said so 20 ms after its kernel was to stop believing, had no leases until then, and asked for nothing.
#[tokio::test(start_paused = true)]
async fn who_forgets_everything_has_followed_when_its_kernel_has_and_goes_on_at_once() {
    let fake = Arc::new(crate::testing::Fake::default());
    let clock = Arc::new(Paused::default());
    let options = crate::VolumeOptions { leases: true, clock, ..crate::testing::options() };
    let volume = fake.volume(options).await;
    tokio::time::sleep(ms(100)).await;
    let kernel = Arc::new(Busy(Arc::downgrade(&volume)));
    volume.set_believer(&kernel);
    let leases = volume.leases(Ino::ROOT);
    let learn = || leases.learn(&getattr(5), &entry(5, 3), volume.now(), volume.now());
    learn();
    fake.take_log();
    fake.recall_everything(9);
    while leases.covers(Ino(5), 3, volume.now()) {
        tokio::time::sleep(ms(1)).await;
    }
    let forgot = volume.now() - ms(1);
    tokio::time::sleep(ms(10)).await;
    learn();
    assert!(leases.covers(Ino(5), 3, volume.now()), "leases begin anew");
    let (mut asked, mut followed) = (0, false);
    while !followed {
        for line in fake.take_log() {
            asked += usize::from(line.starts_with("Recalls(Recalls { followed: 1"));
            followed |= line.starts_with("Recalls(Recalls { followed: 9");
        }
        tokio::time::sleep(ms(10)).await;
    }
    let after = volume.now() - forgot;
    let least = ms(3_500) + KERNEL_MARGIN;
    assert!(after >= least && after <= least + ms(400), "after {after:?}");
    assert!(asked >= 10, "asked {asked} times");
    assert!(leases.covers(Ino(5), 3, volume.now()), "and go on");
}

/// A kernel that is told to drop contents, and fails to the first two times.
#[derive(Default)]
struct Failing(Mutex<Vec<Vec<Ino>>>);

impl Believer for Failing {
    fn recall(&self, _inodes: &[Ino]) -> Duration {
        Duration::ZERO
    }

    fn forget_contents(&self, inodes: &[Ino]) -> BoxFuture<'static, bool> {
        let mut inodes = inodes.to_vec();
        inodes.sort_unstable();
        let mut told = self.0.lock();
        told.push(inodes);
        let is_dropped = told.len() > 2;
        Box::pin(async move { is_dropped })
    }

    fn forget_soon(&self, _ino: Ino) {}
}

/// Where no thread could be started that drops it, maps went on to show what was before another mount had written.
#[tokio::test(start_paused = true)]
async fn a_recall_is_followed_when_a_kernel_has_dropped_contents_and_not_when_that_failed() {
    let fake = Arc::new(crate::testing::Fake::default());
    let clock = Arc::new(Paused::default());
    let options = crate::VolumeOptions { leases: true, clock, ..crate::testing::options() };
    let volume = fake.volume(options).await;
    tokio::time::sleep(ms(100)).await;
    let recalled = crate::testing::create(&volume, "recalled").await;
    let other = crate::testing::create(&volume, "other").await;
    let kernel = Arc::new(Failing::default());
    volume.set_believer(&kernel);
    fake.recall(9, recalled.ino().0);
    let followed = |line: &String| line.starts_with("Recalls(Recalls { followed: 9");
    while !fake.take_log().iter().any(followed) {
        tokio::time::sleep(ms(10)).await;
    }
    let mut all = vec![recalled.ino(), other.ino()];
    all.sort_unstable();
    // Nobody knows what else it has failed to drop.
    assert_eq!(*kernel.0.lock(), [vec![recalled.ino()], all.clone(), all]);
}

#[tokio::test]
async fn a_change_of_which_nobody_knows_the_end_leaves_nothing_believed() {
    let fake = Arc::new(crate::testing::Fake::default());
    let options = crate::VolumeOptions { leases: true, ..crate::testing::options() };
    let volume = fake.volume(options).await;
    volume.leases(Ino::ROOT).extend(ms(u64::MAX / 2_000_000));
    let kernel = Arc::new(Kernel::default());
    volume.set_believer(&kernel);
    let change =
        MetaOp::SetAttr(SetAttr { ino: 9, change: AttrChange::default(), ..SetAttr::default() });
    let believed = |ino| volume.leases(Ino::ROOT).covers(Ino(ino), 3, volume.now());
    let learn = |ino| {
        volume.leases(Ino::ROOT).learn(&getattr(ino), &entry(ino, 3), volume.now(), volume.now())
    };
    let fail = |kind| Some(Error::new(kind));
    let doubt = || Doubt::new(&volume, &change, volume.touched(&change));
    [5, 9].into_iter().for_each(learn);
    doubt().end(None);
    assert!(believed(5) && believed(9));
    doubt().end(fail(ErrorKind::NotPermitted).as_ref());
    assert!(believed(5) && !believed(9), "it may have been done in part");
    assert!(!kernel.0.load(Ordering::SeqCst));
    doubt().end(fail(ErrorKind::TimedOut).as_ref());
    assert!(!believed(5) && kernel.0.load(Ordering::SeqCst));
    learn(5);
    assert!(believed(5));
    drop(doubt());
    assert!(!believed(5), "given up");
}

/// Others saw the new state, and who had made it what was before, for as long as TCP waits for an answer that was lost.
#[tokio::test(start_paused = true)]
async fn what_was_lent_for_a_change_without_an_answer_is_believed_no_longer_than_leases_last() {
    let fake = Arc::new(crate::testing::Fake::default());
    let clock = Arc::new(Paused::default());
    let options = crate::VolumeOptions { leases: true, clock, ..crate::testing::options() };
    let volume = fake.volume_of_shares(options).await;
    tokio::time::sleep(ms(100)).await;
    let lent = volume.shares().place(Ino(5), 1);
    let leases = volume.leases(lent);
    leases.learn(&getattr(lent.0), &entry(lent.0, 3), volume.now(), volume.now());
    let believed = || leases.covers(lent, 3, volume.now());
    let unanswered = fake.unlinked_gate.write().await;
    let ((change, _), remover) = (unlink("a"), volume.clone());
    let removed = tokio::spawn(async move { remover.mutate(&Credentials::root(), change).await });
    tokio::time::sleep(ms(LEASE_MS - 100)).await;
    assert!(believed(), "the other share still answers");
    tokio::time::sleep(ms(200)).await;
    assert!(!believed());
    drop(unanswered);
    removed.await.unwrap().unwrap();
}

/// A page of the directory 1 that follows a cookie.
fn page(after: u64, names: &[(&'static str, u64)], end: bool) -> (MetaOp, MetaAnswer) {
    let read = ReadDir { ino: 1, after, limit: 100, plus: false };
    let entry = |&(name, ino): &(&'static str, u64)| DirEntry {
        name: Bytes::from_static(name.as_bytes()),
        ino,
        cookie: ino,
        ..DirEntry::default()
    };
    let entries = names.iter().map(entry).collect();
    (MetaOp::ReadDir(read), MetaAnswer::Page(Page { entries, end, parent: 1, leased: true }))
}

#[test]
fn a_directory_that_was_just_made_has_no_names_but_those_that_were_made_in_it() {
    let leases = leases();
    let made = |ino, created| {
        let attr = Attributes { kind: FileKind::Directory as u32, ..attr(ino, 1) };
        let parent = Some(Attributes { ino: 9, ..attr.clone() });
        let at = Name { parent: 9, name: Bytes::from_static(b"d") };
        let created = Created { attr, created, opened: None, parent };
        (MetaOp::Create(Create { at, ..Create::default() }), MetaAnswer::Created(created))
    };
    let (op, answer) = made(1, true);
    leases.learn(&op, &answer, ms(10), ms(11));
    let name = |name: &str, now| leases.name(Ino(1), name.as_bytes(), ms(now));
    assert_eq!((name("a", 12), name(".", 12), name("..", 12)), (Some(None), None, None));
    assert_eq!(leases.name(Ino(9), b"a", ms(12)), None, "of its parent one name is known");
    let (op, answer) = create("a", 5);
    leases.learn(&op, &answer, ms(13), ms(14));
    assert_eq!((name("a", 15), name("b", 15)), (Some(Some(Ino(5))), Some(None)));
    let (op, answer) = unlink("a");
    leases.learn(&op, &answer, ms(16), ms(17));
    assert_eq!((name("a", 18), name("a", LEASE_MS)), (Some(None), None));
    // Two at the same time: nobody knows which was first, so of one nothing is known.
    let ((op, answer), (other_op, other)) = (create("b", 6), create("c", 7));
    leases.learn(&op, &answer, ms(20), ms(23));
    leases.learn(&other_op, &other, ms(21), ms(24));
    assert_eq!(
        (name("b", 25), name("c", 25), name("d", 25)),
        (Some(Some(Ino(6))), None, Some(None))
    );
    leases.forget(&[Ino(1)], ms(30));
    assert_eq!((name("b", 31), name("d", 31)), (None, None));
    for (ino, created, recalled) in [(2, false, 0), (3, true, 42)] {
        leases.forget(&[Ino(ino)], ms(recalled));
        let (op, answer) = made(ino, created);
        leases.learn(&op, &answer, ms(41), ms(43));
        assert_eq!(leases.name(Ino(ino), b"a", ms(44)), None, "{ino}");
    }
}

#[test]
fn what_a_whole_listing_does_not_show_is_not_there() {
    let missing = |happens: &dyn Fn(&Leases)| {
        let leases = leases();
        let (op, answer) = page(0, &[("a", 5), ("b", 6)], false);
        leases.learn(&op, &answer, ms(10), ms(12));
        assert_eq!(leases.name(Ino(1), b"z", ms(13)), None);
        happens(&leases);
        let (op, answer) = page(6, &[("c", 7)], true);
        leases.learn(&op, &answer, ms(20), ms(22));
        assert_ne!(leases.name(Ino(1), b"c", ms(30)), Some(None));
        leases.name(Ino(1), b"z", ms(30)) == Some(None)
    };
    assert!(missing(&|_| {}));
    assert!(missing(&|leases| leases.learn(&lookup("y"), &entry(8, 1), ms(14), ms(15))));
    let changed = |leases: &Leases| {
        let (op, answer) = create("x", 8);
        leases.learn(&op, &answer, ms(14), ms(15));
    };
    assert!(!missing(&changed), "it may have lain before the second page");
    assert!(!missing(&|leases| leases.forget(&[Ino(1)], ms(15))));
    assert!(
        !missing(&|leases| {
            let (op, answer) = page(8, &[], false);
            leases.learn(&op, &answer, ms(14), ms(15));
        }),
        "another place was read meanwhile"
    );
    assert!(
        !missing(&|leases| {
            (0..110_000u64).for_each(|nth| {
                let known = Known { leads: None, asked: ms(14) };
                leases.names.put(Ino(4), &nth.to_le_bytes(), known);
            });
        }),
        "there was no room for all names"
    );
}

/// What is noted of a directory is forgotten after some seconds; a listing may take longer.
#[test]
fn a_long_listing_beside_changes_that_cross_is_not_whole() {
    let leases = leases();
    leases.extend(ms(60_000));
    let (op, answer) = page(0, &[("b", 6)], false);
    leases.learn(&op, &answer, ms(10), ms(11));
    for (name, ino, ended) in [("a", 5, 14), ("x", 8, 15)] {
        let (op, answer) = create(name, ino);
        leases.learn(&op, &answer, ms(13), ms(ended));
    }
    leases.forget(&[Ino(1 + SHARDS as u64)], ms(6_000));
    let (op, answer) = page(6, &[], true);
    leases.learn(&op, &answer, ms(6_010), ms(6_011));
    let name = |name: &str| leases.name(Ino(1), name.as_bytes(), ms(6_012));
    assert_eq!((name("b"), name("x"), name("y")), (Some(Some(Ino(6))), None, None));
}
