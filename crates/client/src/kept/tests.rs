use super::*;

const MIB: u64 = 1 << 20;
const NOW: Duration = Duration::ZERO;

fn attr(version: u64) -> Attr {
    let attributes =
        strake_wire::message::common::Attributes { ino: 7, kind: 1, version, ..Default::default() };
    attributes.try_into().unwrap()
}

fn file(kept: &Arc<Kept>) -> KeptFile {
    kept.take_up(&attr(1))
}

fn bytes(len: u64) -> Bytes {
    (0..len).map(|at| (at / 4096) as u8).collect::<Vec<u8>>().into()
}

fn put(file: &KeptFile, start: u64, len: u64) {
    file.put(start, bytes(len), file.mark(), NOW);
}

/// Starts and lengths of what is kept.
fn parts(file: &KeptFile) -> Vec<(u64, u64)> {
    let all = file.overlay(0, 1 << 40, NOW);
    all.iter().map(|(at, part)| (*at, part.len() as u64)).collect()
}

#[test]
fn what_was_sent_is_kept_without_a_copy() {
    let kept = Arc::default();
    let file = file(&kept);
    let data = bytes(MIB);
    file.put(0, data.clone(), file.mark(), NOW);
    let found = file.overlay(8192, 12288, NOW);
    assert_eq!(found, [(8192, data.slice(8192..12288))]);
    assert_eq!(found[0].1.as_ptr(), data[8192..].as_ptr());
    assert!(file.covers(0, MIB) && !file.covers(0, MIB + 1));
}

#[test]
fn a_short_part_of_a_large_buffer_does_not_hold_it() {
    let kept = Arc::default();
    let file = file(&kept);
    let data = bytes(MIB);
    file.put(0, data.slice(..64 << 10), file.mark(), NOW);
    assert_ne!(file.overlay(0, MIB, NOW)[0].1.as_ptr(), data.as_ptr());
    assert_eq!(kept.bytes(), (64 << 10) + EXTENT_BYTES);
    // What is left of one that was cut, too.
    put(&file, MIB, MIB);
    file.cut(MIB + 100_000, 2 * MIB);
    assert_eq!(kept.bytes(), (64 << 10) + 100_000 + 2 * EXTENT_BYTES);
}

#[test]
fn a_cut_leaves_what_is_outside_of_it() {
    let kept = Arc::default();
    let file = file(&kept);
    put(&file, 0, MIB);
    put(&file, MIB, MIB);
    file.cut(MIB / 2, MIB + MIB / 4);
    assert_eq!(parts(&file), [(0, MIB / 2), (MIB + MIB / 4, MIB - MIB / 4)]);
    let tail = &file.overlay(MIB + MIB / 4, 2 * MIB, NOW)[0].1;
    assert_eq!(tail[0], (MIB / 4 / 4096) as u8);
    assert!(!file.covers(0, 2 * MIB));
    file.cut(0, u64::MAX);
    assert!(parts(&file).is_empty() && kept.bytes() == 0);
}

#[test]
fn newer_bytes_take_the_place_of_older_ones() {
    let kept = Arc::default();
    let file = file(&kept);
    put(&file, 0, MIB);
    file.put(4096, vec![99; 8192].into(), file.mark(), NOW);
    assert_eq!(file.overlay(4096, 12288, NOW), [(4096, Bytes::from(vec![99; 8192]))]);
    assert!(file.covers(4096, MIB));
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let kept = Arc::default();
    let file = file(&kept);
    (0..4).for_each(|nth| put(&file, nth * MIB, MIB));
    file.overlay(0, 4096, NOW);
    kept.shrink_to(2 * (MIB as usize + EXTENT_BYTES));
    assert_eq!(parts(&file), [(0, MIB), (3 * MIB, MIB)]);
    kept.shrink_to(0);
    assert_eq!(kept.bytes(), 0);
}

#[test]
fn what_nobody_uses_is_given_back() {
    let kept = Arc::default();
    let file = file(&kept);
    put(&file, 0, MIB);
    put(&file, MIB, MIB);
    file.overlay(0, 1, Duration::from_secs(200));
    kept.drop_old(AGE_MAX + Duration::from_secs(1));
    assert_eq!(parts(&file), [(0, MIB)]);
}

#[test]
fn a_write_that_began_before_all_was_forgotten_keeps_nothing() {
    let kept = Arc::default();
    let mut file = file(&kept);
    let mark = file.mark();
    file.clear();
    file.put(0, bytes(MIB), mark, NOW);
    assert!(parts(&file).is_empty());
    put(&file, 0, MIB);
    assert_eq!(parts(&file), [(0, MIB)]);
}

#[test]
fn an_open_finds_what_was_laid_down_if_nobody_else_changed_the_file() {
    let kept = Arc::default();
    let closed_at = |version| {
        let file = file(&kept);
        put(&file, 0, MIB);
        file.lay_down(&attr(version));
    };
    closed_at(5);
    assert!(kept.take_up(&attr(5)).covers(0, MIB));
    closed_at(5);
    assert!(!kept.take_up(&attr(6)).covers(0, MIB));
    // A change of ours, then none, then one of ours beside one of another.
    closed_at(5);
    kept.changed(&attr(6));
    assert!(kept.take_up(&attr(6)).covers(0, MIB));
    closed_at(6);
    kept.changed(&attr(8));
    assert!(!kept.take_up(&attr(8)).covers(0, MIB));
    // Never laid down: the file's state has gone without a word.
    put(&file(&kept), 0, MIB);
    assert!(!kept.take_up(&attr(1)).covers(0, MIB));
}

#[test]
fn a_cut_does_not_forget_what_was_laid_down() {
    let kept = Arc::default();
    let file = file(&kept);
    put(&file, 0, MIB);
    file.lay_down(&attr(5));
    file.cut(0, MIB / 2);
    assert!(kept.take_up(&attr(5)).covers(MIB / 2, MIB));
}
