use super::*;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use strake_base::disk::sim::SimDisk;
use strake_types::{ChunkId, ChunkIndex, Ino, ServerId, VolumeId};
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::message::manager::{ClusterMap, Group, Server, Target};
use strake_wire::message::storage::{
    Repaired, ScrubReport, StorageAnswer, StorageOp, StorageReply, StorageRequest,
};
use strake_wire::service::{Services, StorageService};

fn finding(index: u64, fate: ScrubFate) -> Finding {
    let chunk = ChunkId { volume: VolumeId(1), ino: Ino(2), index: ChunkIndex(index) };
    Finding {
        target: 3,
        group: 4,
        chunk,
        fate,
        different: false,
        detail: "why".into(),
        paths: Vec::new(),
    }
}

fn home() -> SimDisk {
    SimDisk::new(1, 1 << 20)
}

#[tokio::test]
async fn a_scrub_goes_on_where_it_was_until_nobody_wants_it_any_more() {
    let home = home();
    let open = || Arc::new(Book::open(home.process()));
    let mut entry = Entry::new(7, 3);
    entry.after = Some((1, 2, 3));
    entry.tally.bytes = 99;
    entry.note(finding(5, ScrubFate::Lost));
    open().keep(&entry).await;
    home.power_loss();
    let again = open();
    // The name of the file may have been lost with the power, and nothing else.
    let known = again.of((7, 3));
    assert!(known == entry || known == Entry::new(7, 3), "{known:?}");
    again.keep(&entry).await;
    home.kill();
    let again = open();
    assert_eq!(again.of((7, 3)), entry);
    assert_eq!(again.of((8, 3)), Entry::new(8, 3), "another job begins anew");
    assert!(!again.forget_others(|key| *key == (7, 3)));
    assert_eq!(open().of((7, 3)), entry);
    assert!(again.forget_others(|_| false));
    again.write().unwrap();
    assert_eq!(open().of((7, 3)), Entry::new(7, 3));
}

#[test]
fn a_book_of_version_1_is_read_and_a_damaged_one_is_a_new_beginning() {
    let disk = home().process();
    let write = |text: &str| {
        let file = disk.open(NAME, true).unwrap();
        file.set_len(0).unwrap();
        file.write_all_at(text.as_bytes(), 0).unwrap();
    };
    let version_1 = r#"{"format":1,"scrubs":[{"job":7,"target":3,"after":[1,2,3],"verified":true,
        "groups_done":1,"compared":[1,2,4],
        "tally":{"chunks":5,"bytes":6,"repaired":1,"left":0,"compared":2},
        "findings":[{"target":3,"group":4,"chunk":[1,2,5],"fate":"repaired","different":true,
        "detail":"why"}],"skipped":["x"],"ended":false}]}"#;
    write(version_1);
    let entry = Book::open(disk.clone()).of((7, 3));
    assert_eq!((entry.after, entry.compared), (Some((1, 2, 3)), Some((1, 2, 4))));
    assert!(entry.verified && entry.groups_done == 1 && entry.tally.chunks == 5);
    assert_eq!((entry.findings[0].fate, entry.findings[0].different), (ScrubFate::Repaired, true));
    for other in ["{", r#"{"format":2,"scrubs":[]}"#] {
        write(other);
        assert_eq!(Book::open(disk.clone()).of((7, 3)), Entry::new(7, 3));
    }
}

#[test]
fn everything_is_counted_and_what_is_damaged_still_is_remembered_first() {
    let mut entry = Entry::new(1, 3);
    let many = FINDINGS_MAX as u64;
    (0..many + 5).for_each(|index| entry.note(finding(index, ScrubFate::Repaired)));
    assert_eq!((entry.findings.len(), entry.tally.repaired), (FINDINGS_MAX, many + 5));
    (0..many + 5).for_each(|index| entry.note(finding(index, ScrubFate::Lost)));
    assert_eq!((entry.findings.len(), entry.tally.left), (FINDINGS_MAX, many + 5));
    assert!(entry.findings.iter().all(|found| found.fate == ScrubFate::Lost));
    let told = entry.progress(FINDINGS_MAX);
    assert_eq!((told.tally.left, told.findings.len()), (many + 5, FINDINGS_MAX));
    assert_eq!(Finding::from_told(&told.findings[0]).fate, ScrubFate::Lost);
    // Where many targets tell at once each tells less.
    entry.findings.truncate(1);
    entry.findings.insert(0, Found::of(finding(0, ScrubFate::Repaired)));
    assert_eq!(Finding::from_told(&entry.progress(1).findings[0]).fate, ScrubFate::Lost);
}

#[test]
fn the_slower_it_goes_the_smaller_are_the_steps() {
    assert_eq!(step_bytes(0), STEP_BYTES_MAX);
    assert_eq!(step_bytes(1), STEP_BYTES_MIN);
    assert_eq!(step_bytes(40 << 20), 10 << 20);
    assert_eq!(step_bytes(u64::MAX), STEP_BYTES_MAX);
}

/// A server whose only target cannot be looked at for a while; then all of it is sound.
struct Away {
    until: Instant,
    why: ErrorKind,
}

#[async_trait]
impl StorageService for Away {
    async fn call(&self, _: StorageRequest, _: Bytes) -> Result<(StorageReply, Bytes)> {
        if Instant::now() < self.until {
            return Err(self.why.into());
        }
        let answer = Some(StorageAnswer::Scrub(ScrubReport::default()));
        Ok((StorageReply { answer }, Bytes::new()))
    }
}

impl Scrubbed for Away {
    fn has(&self, _: TargetId) -> bool {
        true
    }

    fn note_verified(&self, _: TargetId, _: ScrubTally) {}
}

/// A cluster of this server, with target 3, which is all of group 4.
fn map_of(server: Arc<dyn StorageService>) -> Arc<MapView> {
    let callers = Callers::new(CallerOptions::default());
    let services = Services { storage: Some(server), ..Services::default() };
    callers.register_local(ServerId(1), services);
    let map = ClusterMap {
        cluster: "c".into(),
        epoch: 1,
        servers: vec![Server { id: 1, up: true, ..Server::default() }],
        targets: vec![Target { id: 3, server: 1, up: true, ..Target::default() }],
        groups: vec![Group { id: 4, epoch: 1, members: vec![3], ..Group::default() }],
        ..ClusterMap::default()
    };
    MapView::fixed(callers, map)
}

/// What a scrub of that target tells in the end, and after how long.
async fn scrub_of_one_away(away_s: u64, why: ErrorKind) -> (Vec<String>, u64) {
    let began = Instant::now();
    let server = Arc::new(Away { until: began + Duration::from_secs(away_s), why });
    let map = map_of(server.clone());
    let scrubs = Scrubs::new(home().process(), server, &map);
    scrubs.obey(&[ScrubOrder { job: 7, target: 3, ..ScrubOrder::default() }]);
    loop {
        let told = scrubs.progress().swap_remove(0);
        if told.ended {
            return (told.skipped, began.elapsed().as_secs());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// After 40 s the rest of a target whose disk hung was passed over.
#[tokio::test(start_paused = true)]
async fn a_target_that_does_not_answer_for_a_while_is_verified_after_it() {
    let (skipped, took_s) = scrub_of_one_away(1_800, ErrorKind::Unavailable).await;
    assert!(skipped.is_empty(), "{skipped:?}");
    assert!((1_800..1_810).contains(&took_s), "{took_s}");
    let (skipped, took_s) = scrub_of_one_away(10_000, ErrorKind::Unavailable).await;
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!((3_590..3_620).contains(&took_s), "{took_s}");
    let (skipped, took_s) = scrub_of_one_away(10_000, ErrorKind::Io).await;
    assert_eq!(skipped.len(), 1, "what does not pass: {skipped:?}");
    assert!(took_s < 60, "{took_s}");
}

/// A primary that was away for some minutes had used up all tries: the first error of another kind behind it, as that an older map does
/// not have the group, passed over all that was left of its copies.
#[test]
fn what_is_waited_for_uses_up_no_tries_of_what_does_not_pass() {
    for kind in [ErrorKind::Io, ErrorKind::StaleMap] {
        let mut failed = Failed::default();
        let mut is_enough = |kind| failed.is_enough(&Error::new(kind), Duration::ZERO);
        for nth in 1..TRIES_MAX {
            for _ in 0..20 {
                assert!(!is_enough(ErrorKind::Unavailable));
            }
            assert!(!is_enough(kind), "{kind:?}, {nth} times");
        }
        assert!(is_enough(kind), "{kind:?}");
    }
}

/// A copy with a damaged chunk, and its primary, of an earlier release: that repairs nothing where it cannot look.
#[derive(Default)]
struct PassedOver {
    mended: AtomicBool,
}

#[async_trait]
impl StorageService for PassedOver {
    async fn call(&self, request: StorageRequest, _: Bytes) -> Result<(StorageReply, Bytes)> {
        let answer = match request.op.unwrap() {
            StorageOp::Repair(_) => StorageAnswer::Repaired(Repaired::default()),
            StorageOp::Scrub(scrub) => {
                // As the store has it, with its group.
                assert_eq!(scrub.after.unwrap().index, (5 << 40) + 4);
                let is_damaged = !self.mended.load(Ordering::Relaxed);
                let damaged = finding(5, ScrubFate::Left).chunk;
                let corrupt = is_damaged.then(|| damaged.into()).into_iter().collect();
                let groups = is_damaged.then_some(4).into_iter().collect();
                StorageAnswer::Scrub(ScrubReport { corrupt, groups, ..ScrubReport::default() })
            }
            other => panic!("{other:?}"),
        };
        Ok((StorageReply { answer: Some(answer) }, Bytes::new()))
    }
}

/// It was said to be repaired, and left out of the status.
#[tokio::test]
async fn a_copy_that_its_primary_has_passed_over_is_not_called_repaired() {
    let copy = Arc::new(PassedOver::default());
    let map = map_of(copy.clone());
    let mut found = finding(5, ScrubFate::Left);
    soundness::repair(&map, &mut found).await;
    assert_eq!(found.fate, ScrubFate::Unknown, "{}", found.detail);
    // Who reads may have had it mended meanwhile.
    copy.mended.store(true, Ordering::Relaxed);
    soundness::repair(&map, &mut found).await;
    assert_eq!(found.fate, ScrubFate::Repaired, "{}", found.detail);
}
