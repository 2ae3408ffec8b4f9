//! When a disk hangs, and when it is only slow.

use super::*;

const TICK: Duration = Duration::from_millis(200);

/// A watch, and the time by it.
struct Bench {
    watch: Arc<Watch>,
    now: Instant,
    probed: u32,
}

impl Bench {
    fn new() -> Self {
        let now = Instant::now();
        Self { watch: Arc::new(Watch::since(now)), now, probed: 0 }
    }

    /// Something that does not end before the bench does.
    fn begin(&self, work: Work) -> u64 {
        let under_way = self.watch.begin_at(work, self.now);
        let id = under_way.id;
        std::mem::forget(under_way);
        id
    }

    fn end(&self, id: u64) {
        self.watch.end_at(id, true, self.now);
    }

    /// So much time goes by, in which a disk that `answers` ends each probe at once.
    fn pass(&mut self, seconds: u64, answers: bool) -> bool {
        let mut hung = false;
        for _ in 0..seconds * 5 {
            self.now += TICK;
            if self.watch.look(self.now) {
                self.probed += 1;
                let id = self.begin(Work::Probe);
                if answers {
                    self.end(id);
                }
            }
            hung |= self.watch.silent().is_some();
        }
        hung
    }
}

#[test]
fn a_disk_hangs_whose_reads_do_not_end_and_no_more_once_one_does() {
    let mut bench = Bench::new();
    let reads = [bench.begin(Work::Read), bench.begin(Work::Read)];
    assert!(!bench.pass(7, false));
    assert!(bench.pass(2, false));
    assert!(!bench.watch.has_hung(bench.now), "the manager does not know it yet");
    bench.pass(3, false);
    assert!(bench.watch.has_hung(bench.now));
    bench.end(reads[0]);
    bench.pass(1, false);
    assert_eq!(bench.watch.silent(), None);
    assert!(!bench.watch.has_hung(bench.now));
    assert!(bench.pass(9, false), "the other one waits on");
}

#[test]
fn a_disk_to_which_is_only_written_hangs_when_it_does_not_answer_its_probe() {
    for work in [Work::Short, Work::Sync, Work::Walk] {
        let mut bench = Bench::new();
        bench.begin(work);
        assert!(bench.pass(12, false), "{work:?}");
        assert_eq!(bench.probed, 1, "one at a time");
    }
}

/// A fsync that takes most of a minute behind much that was written, and all writes wait for it.
#[test]
fn a_disk_that_is_only_slow_does_not_hang() {
    let mut bench = Bench::new();
    let sync = bench.begin(Work::Sync);
    let write = bench.begin(Work::Short);
    assert!(!bench.pass(50, true), "nobody reads, and it is probed");
    assert!(bench.probed > 10);
    bench.end(sync);
    bench.end(write);
    bench.begin(Work::Walk);
    assert!(!bench.pass(600, true), "there is much to do");
    let mut bench = Bench::new();
    bench.begin(Work::Sync);
    for _ in 0..10 {
        let read = bench.begin(Work::Read);
        let other = bench.begin(Work::Read);
        assert!(!bench.pass(6, false), "one after the other ends");
        bench.end(read);
        bench.end(other);
    }
}

#[test]
fn what_takes_longer_than_anybody_waits_hangs_although_reads_go_on() {
    for (work, seconds) in [(Work::Short, 60), (Work::Read, 60), (Work::Sync, 100)] {
        let mut bench = Bench::new();
        bench.begin(work);
        let mut hung_after = 0;
        while hung_after <= seconds && !bench.pass(1, true) {
            let read = bench.begin(Work::Read);
            bench.end(read);
            hung_after += 1;
        }
        assert_eq!(hung_after, seconds, "{work:?}");
    }
}

/// It was taken for one whose disk hung all the while.
#[test]
fn time_in_which_the_process_stood_still_counts_for_nothing() {
    let mut bench = Bench::new();
    bench.begin(Work::Read);
    bench.pass(1, false);
    bench.now += Duration::from_secs(3_600);
    assert!(!bench.pass(7, false));
    assert!(bench.pass(2, false));
}

/// While the disk tries to read a bad sector.
#[test]
fn one_read_that_takes_long_says_nothing_as_long_as_the_disk_answers_its_probes() {
    let mut bench = Bench::new();
    bench.begin(Work::Read);
    assert!(!bench.pass(50, true));
    let mut bench = Bench::new();
    bench.begin(Work::Read);
    let probe = bench.watch.begin_at(Work::Probe, bench.now);
    probe.end_in_vain();
    assert!(bench.pass(9, false), "it cannot be probed");
}

#[test]
fn a_disk_of_which_nothing_is_asked_is_left_alone() {
    let mut bench = Bench::new();
    assert!(!bench.pass(100, false));
    let read = bench.begin(Work::Read);
    bench.end(read);
    assert!(!bench.pass(100, false));
    assert_eq!(bench.probed, 0);
}
