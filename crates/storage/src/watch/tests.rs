//! When a disk hangs, and when it is only slow.

use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use strake_base::disk::Probe;

const TICK: Duration = Duration::from_millis(200);

/// A probe that is answered when the bench says so.
struct Told(Receiver<()>);

impl Probe for Told {
    fn ask(&mut self) {
        let _told = self.0.recv();
    }
}

/// A watch, and the time by it.
struct Bench {
    watch: Watch,
    calls: Arc<Calls>,
    now: Instant,
    answers: Sender<()>,
}

impl Bench {
    fn new() -> Self {
        let (answers, told) = channel();
        Self::with(Some(Prober::start(Box::new(Told(told))).unwrap()), answers)
    }

    fn with(prober: Option<Prober>, answers: Sender<()>) -> Self {
        let (calls, now) = (Arc::<Calls>::default(), Instant::now());
        let watch = Watch::since(calls.clone(), prober, now);
        Self { watch, calls, now, answers }
    }

    fn is_probing(&self) -> bool {
        self.watch.state.lock().probing.is_some()
    }

    /// The probe under way is answered, which is seen at the next look.
    fn answer(&self) {
        let answered = || self.watch.state.lock().prober.as_ref().unwrap().answers();
        let before = answered();
        self.answers.send(()).unwrap();
        while answered() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// So much time goes by, in which a disk that `answers` answers each probe at once. True if it was said to hang.
    fn pass(&mut self, seconds: u64, answers: bool) -> bool {
        let mut hung = false;
        for _ in 0..seconds * 5 {
            self.now += TICK;
            self.watch.look(self.now);
            if answers && self.is_probing() {
                self.answer();
            }
            hung |= self.hangs();
        }
        hung
    }

    fn hangs(&self) -> bool {
        self.watch.silent().is_some()
    }
}

#[test]
fn a_disk_hangs_when_neither_a_probe_nor_any_call_has_been_answered_for_long() {
    let mut bench = Bench::new();
    bench.calls.begin();
    assert!(!bench.pass(21, false), "it is probed after two seconds");
    assert!(bench.pass(2, false));
    assert!(!bench.watch.has_hung(bench.now), "the manager does not know it yet");
    bench.pass(3, false);
    assert!(bench.watch.has_hung(bench.now));
}

/// A checkpoint of a large target, or one call of a client, took more than a minute on a disk that was well.
#[test]
fn a_disk_that_answers_its_probes_does_not_hang_whatever_waits_for_it() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        bench.calls.begin();
    }
    assert!(!bench.pass(3_600, true));
}

/// Behind a deep queue, or a limit, a probe may wait for minutes, as everything does.
#[test]
fn a_disk_that_ends_one_call_after_the_other_does_not_hang_though_its_probe_waits() {
    let mut bench = Bench::new();
    bench.calls.begin();
    for _ in 0..20 {
        bench.calls.begin();
        assert!(!bench.pass(19, false));
        assert!(bench.is_probing());
        bench.calls.end();
    }
}

/// One that could not be probed was taken for one that had not answered its probe.
#[test]
fn a_disk_that_cannot_be_probed_never_hangs() {
    let mut bench = Bench::with(None, channel().0);
    bench.calls.begin();
    assert!(!bench.pass(3_600, false));
    assert!(!bench.is_probing());
}

/// It was taken for one whose disk hung all the while.
#[test]
fn time_in_which_the_process_stood_still_counts_for_nothing() {
    let mut bench = Bench::new();
    bench.calls.begin();
    bench.pass(10, false);
    bench.now += Duration::from_secs(3_600);
    assert!(!bench.pass(19, false));
    assert!(bench.pass(3, false));
    let mut bench = Bench::new();
    bench.calls.begin();
    for _ in 0..100 {
        bench.now += 2 * STOOD_STILL;
        assert!(!bench.pass(1, false), "it hardly runs");
    }
}

/// It was let in after each answer, and thrown out again.
#[test]
fn a_disk_that_hung_answers_again_when_it_has_for_a_while() {
    let mut bench = Bench::new();
    bench.calls.begin();
    assert!(bench.pass(23, false));
    for _ in 0..5 {
        bench.answer();
        assert!(bench.pass(15, false));
        assert!(bench.hangs(), "one answer now and then");
        assert!(bench.is_probing(), "though nobody asks it");
    }
    bench.calls.end();
    bench.answer();
    bench.pass(8, true);
    assert!(bench.hangs());
    bench.pass(4, true);
    assert!(!bench.hangs() && !bench.watch.has_hung(bench.now));
    assert!(!bench.pass(100, true));
}

#[test]
fn a_disk_of_which_nothing_is_asked_is_left_alone() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        assert!(!bench.pass(100, false));
        bench.calls.begin();
        bench.calls.end();
    }
    assert!(!bench.is_probing());
}
