use super::*;
use std::collections::BTreeSet;

thread_local! {
    /// Granules that were looked at: for one that is absent, or for free places.
    static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

pub(super) fn note_look() {
    LOOKED_AT.set(LOOKED_AT.get() + 1);
}

/// Granules of memory instead of disk.
struct Boundless;

impl Ground for Boundless {
    fn provision(&self, _first: u64, _count: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Gives nothing: too many files are open.
struct NoFiles;

impl Ground for NoFiles {
    fn provision(&self, _first: u64, _count: u64) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()))
    }
}

#[test]
fn large_takes_lie_in_a_row() {
    let mut space = Space::new(1 << 40);
    for nth in 0..10 {
        let taken = space.take(256, false, &Boundless).unwrap().unwrap();
        assert_eq!(taken, [(nth * 256, 256)]);
    }
    let taken = space.take(2048, false, &Boundless).unwrap().unwrap();
    assert_eq!(taken.len(), 1);
}

#[test]
fn what_was_taken_before_no_more_could_be_got_is_free_again() {
    let mut space = Space::new(64 << 20);
    let taken = space.take(31 * GRANULE_BLOCKS, false, &Boundless).unwrap().unwrap();
    // One granule is free as a whole, and half of each of the others.
    each_place(&taken).filter(|at| at % 2 == 0).for_each(|at| space.give_up(at));
    let before = space.bytes().used;
    space.take(2 * GRANULE_BLOCKS, false, &NoFiles).unwrap_err();
    assert_eq!(space.bytes().used, before);
    assert!(space.take(GRANULE_BLOCKS, false, &NoFiles).unwrap().is_some(), "that granule");
}

#[test]
fn runs_end_at_segments() {
    let mut space = Space::new(4 << 30);
    let mut all = Vec::new();
    for _ in 0..600 {
        all.extend(space.take(700, false, &Boundless).unwrap().unwrap());
    }
    for (at, count) in all {
        assert_eq!(at / SEGMENT_BLOCKS, (at + u64::from(count) - 1) / SEGMENT_BLOCKS);
    }
}

#[test]
fn what_is_given_up_is_free_after_the_checkpoint_and_what_is_fresh_at_once() {
    let mut space = Space::new(1 << 20);
    let total = GRANULE_BLOCKS - 16;
    let taken = space.take(total, false, &Boundless).unwrap().unwrap();
    let old = space.begin_checkpoint();
    space.end_checkpoint(&old);
    assert_eq!(space.take(1, false, &Boundless).unwrap(), None);
    let first = taken[0].0;
    space.give_up(first);
    assert_eq!(space.take(1, false, &Boundless).unwrap(), None);
    assert!(space.is_waiting());
    let given_up = space.begin_checkpoint();
    assert_eq!(space.take(1, false, &Boundless).unwrap(), None);
    space.end_checkpoint(&given_up);
    let again = space.take(1, false, &Boundless).unwrap().unwrap();
    assert_eq!(space.take(1, false, &Boundless).unwrap(), None);
    space.give_up(again[0].0);
    assert!(space.take(1, false, &Boundless).unwrap().is_some());
    // Cutting may use the last ones.
    assert!(space.take(1, true, &Boundless).unwrap().is_some());
}

#[test]
fn random_takes_and_give_ups_never_give_a_place_twice_nor_lose_one() {
    let mut random = 1u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % bound
    };
    let mut space = Space::new(64 << 20);
    let (mut used, mut waiting) = (BTreeSet::new(), Vec::<Places>::new());
    for _ in 0..20_000 {
        match below(10) {
            0..=4 => {
                let most = if below(4) == 0 { 600 } else { 20 };
                let count = 1 + below(most);
                if let Some(taken) = space.take(count, false, &Boundless).unwrap() {
                    assert_eq!(each_place(&taken).count() as u64, count);
                    for at in each_place(&taken) {
                        assert!(used.insert(at), "{at} given twice");
                    }
                }
            }
            5..=8 => {
                for _ in 0..below(200) {
                    let Some(at) = used.range(below(16_384)..).next().copied() else { break };
                    used.remove(&at);
                    space.give_up(at);
                }
            }
            _ => {
                space.end_checkpoint(&waiting);
                waiting = space.begin_checkpoint();
                if below(5) == 0 {
                    for (first, count) in space.leaving(below(2 << 30)) {
                        space.left(first, count);
                    }
                }
            }
        }
        let before = &space.granules[..space.absent_from as usize];
        assert!(!before.contains(&Granule::Absent));
        let whole = space.free_in.iter().filter(|free| is_whole(**free)).count() as u64;
        assert_eq!(space.whole_granules, whole);
        let bytes = space.bytes();
        assert_eq!(bytes.used, used.len() as u64 * BLOCK_BYTES);
        assert_eq!(bytes.free + bytes.growable + bytes.used, bytes.total);
    }
}

/// Whatever a target has, the next granules to be got were searched from its start.
#[test]
fn new_granules_are_found_without_a_look_at_all_that_there_are() {
    let granules = 10_000;
    let mut space = Space::new(1 << 40);
    space.take(granules * GRANULE_BLOCKS, false, &Boundless).unwrap().unwrap();
    let before = LOOKED_AT.get();
    for _ in 0..4 * GROW_GRANULES {
        space.take(GRANULE_BLOCKS, false, &Boundless).unwrap().unwrap();
    }
    let looked_at = LOOKED_AT.get() - before;
    assert!(looked_at < granules, "{looked_at}");
}

/// Those that have gone back to the disk come first: others behind them would make the files longer.
#[test]
fn of_granules_that_have_left_the_lowest_is_got_again() {
    let mut space = Space::new(1 << 40);
    let taken = space.take(300 * GRANULE_BLOCKS, false, &Boundless).unwrap().unwrap();
    let old = space.begin_checkpoint();
    space.end_checkpoint(&old);
    each_place(&taken).filter(|at| *at < 100 * GRANULE_BLOCKS).for_each(|at| space.give_up(at));
    let given_up = space.begin_checkpoint();
    space.end_checkpoint(&given_up);
    for (first, count) in space.leaving(0) {
        space.left(first, count);
    }
    let again = space.take(GRANULE_BLOCKS, false, &Boundless).unwrap().unwrap();
    assert_eq!(again, [(0, GRANULE_BLOCKS as u32)]);
}

/// Ground of a disk that has little left.
struct Scarce;

impl Ground for Scarce {
    fn provision(&self, _first: u64, _count: u64) -> io::Result<()> {
        Ok(())
    }

    fn has_plenty(&self) -> bool {
        false
    }
}

/// Data took the last room of a disk for the sake of rows, and nothing was left for the map, so that all writes were refused with many
/// places free.
#[test]
fn on_a_disk_with_little_left_fragments_are_taken_before_new_granules() {
    let mut space = Space::new(1 << 40);
    let taken = space.take(64 * GRANULE_BLOCKS, false, &Boundless).unwrap().unwrap();
    let rest = space.bytes().free / BLOCK_BYTES;
    space.take(rest - CUT_BLOCKS, false, &Boundless).unwrap().unwrap();
    each_place(&taken).filter(|at| at % 2 == 0).for_each(|at| space.give_up(at));
    let before = space.ready_granules;
    let fragments = 20 * GRANULE_BLOCKS;
    assert!(space.take(fragments, false, &Scarce).unwrap().is_some());
    assert_eq!(space.ready_granules, before);
    // Where there are too few, the last is taken.
    assert!(space.take(fragments, false, &Scarce).unwrap().is_some());
    assert!(space.ready_granules > before);
}

/// For each fragment a row was looked for through all of a target that has none.
#[test]
fn where_there_is_no_row_fragments_are_taken_without_looking_for_another_one() {
    let granules = 64;
    let mut space = Space::new(granules * GRANULE_BLOCKS * BLOCK_BYTES);
    let all = granules * GRANULE_BLOCKS - CUT_BLOCKS;
    let taken = space.take(all, false, &Boundless).unwrap().unwrap();
    let old = space.begin_checkpoint();
    space.end_checkpoint(&old);
    each_place(&taken).filter(|at| at % 2 == 0).for_each(|at| space.give_up(at));
    let given_up = space.begin_checkpoint();
    space.end_checkpoint(&given_up);
    let before = LOOKED_AT.get();
    let fragments = 1_000;
    let taken = space.take(fragments, false, &Boundless).unwrap().unwrap();
    assert!(taken.len() > 900, "{}", taken.len());
    let looked_at = LOOKED_AT.get() - before;
    assert!(looked_at < 3 * fragments, "{looked_at}");
}

/// Each block took 8 bytes of memory until the next checkpoint: 2 GB for some thousands of large chunks that are deleted.
#[test]
fn what_is_given_up_in_rows_takes_the_memory_of_rows() {
    let mut space = Space::new(1 << 40);
    let taken = space.take(4 * SEGMENT_BLOCKS, false, &Boundless).unwrap().unwrap();
    let old = space.begin_checkpoint();
    space.end_checkpoint(&old);
    let used = space.bytes().used;
    each_place(&taken).for_each(|at| space.give_up(at));
    assert!(space.given_up_weight() < 1_000, "{}", space.given_up_weight());
    let given_up = space.begin_checkpoint();
    space.end_checkpoint(&given_up);
    assert_eq!((space.given_up_weight(), space.is_waiting()), (0, false));
    assert_eq!(space.bytes().used, used - 4 * SEGMENT_BLOCKS * BLOCK_BYTES);
}
