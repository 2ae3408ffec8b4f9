use super::*;
use strake_base::disk::sim::SimDisk;
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

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
