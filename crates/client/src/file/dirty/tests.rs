use super::*;
use crate::testing::buffer;
use proptest::prelude::*;
use std::sync::Arc;

const UNIT: u64 = 100;

fn unit_of(at: u64) -> (u64, u64) {
    (at / UNIT * UNIT, at / UNIT * UNIT + UNIT)
}

fn lane(at: u64) -> Lane {
    (at / UNIT % 3) as Lane
}

/// What can be done to unsent data.
#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, len: u64, seed: u8 },
    Cut { from: u64, len: u64 },
    GiveUp { lane: Lane },
    Take,
    TakeAllButFirst,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..500u64, 1..120u64, any::<u8>()).prop_map(|(at, len, seed)| Step::Write { at, len, seed }),
        1 => (0..500u64, 1..200u64).prop_map(|(from, len)| Step::Cut { from, len }),
        1 => (0..3u32).prop_map(|lane| Step::GiveUp { lane }),
        2 => Just(Step::Take),
        1 => Just(Step::TakeAllButFirst),
        1 => Just(Step::Flush),
    ]
}

fn write(dirty: &mut Dirty, model: &mut [Option<u8>], at: u64, len: u64, seed: u8) {
    let mut from = at;
    while from < at + len {
        let unit = unit_of(from);
        let to = (at + len).min(unit.1);
        let data: Bytes = (from..to).map(|i| i as u8 ^ seed).collect::<Vec<_>>().into();
        for (i, &b) in (from..to).zip(&data) {
            model[i as usize] = Some(b);
        }
        let is_part = seed.is_multiple_of(2);
        let fragment = Fragment { start: from, unit, lane: lane(from), data, is_part, room: None };
        dirty.insert(fragment, Duration::ZERO);
        from = to;
    }
}

fn check(dirty: &Dirty, model: &[Option<u8>]) {
    let mut seen = vec![None; model.len()];
    for (start, bytes) in dirty.overlay(0, model.len() as u64) {
        for (i, &b) in bytes.iter().enumerate() {
            seen[start as usize + i] = Some(b);
        }
    }
    assert_eq!(seen, model);
    let held: usize = dirty.extents.values().filter(|e| e.len() > 0).count();
    let counted: usize = dirty.unsettled.values().sum();
    assert!(held <= counted, "{held} extents, {counted} unsettled");
    for (&at, extent) in &dirty.extents {
        assert_eq!(unit_of(at), unit_of(at + extent.len() - 1), "an extent crosses a unit");
        assert_eq!(extent.lane, lane(at));
        let queued = dirty.ready.get(&extent.lane).is_some_and(|queue| queue.contains(&at));
        assert!(!extent.ready || queued, "a ready extent that nobody will take");
    }
    let young = dirty.extents.iter().filter(|(_, extent)| !extent.ready);
    assert!(young.map(|(&at, extent)| (extent.born, at)).collect::<BTreeSet<_>>() == dirty.young);
}

fn sent(model: &mut [Option<u8>], job: &Job) {
    for (i, &b) in job.data.iter().enumerate() {
        assert_eq!(model[job.start as usize + i].take(), Some(b));
    }
}

fn take_all(dirty: &mut Dirty, blocked: impl Fn(u64, u64) -> bool) -> Vec<Job> {
    let mut all = Vec::new();
    loop {
        let jobs = dirty.take(unit_of, &blocked, |_| 150, |_| u64::MAX);
        if jobs.is_empty() {
            return all;
        }
        assert!(jobs.iter().all(|job| lane(job.start) == lane(jobs[0].start)));
        let bytes: usize = jobs.iter().map(|job| job.data.len()).sum();
        assert!(jobs.len() == 1 || bytes <= 150);
        all.extend(jobs);
    }
}

proptest! {
    #[test]
    fn unsent_data_is_what_was_written(steps in proptest::collection::vec(step(), 1..60)) {
        let mut dirty = Dirty::default();
        let mut model = vec![None; 800];
        let mut generations = Vec::new();
        for step in steps {
            match step {
                Step::Write { at, len, seed } => write(&mut dirty, &mut model, at, len, seed),
                Step::Cut { from, len } => {
                    dirty.cut(from, from + len);
                    model[from as usize..(from + len) as usize].fill(None);
                }
                Step::GiveUp { lane: given_up } => {
                    dirty.give_up(given_up);
                    for (at, byte) in (0..).zip(&mut model) {
                        *byte = byte.filter(|_| lane(at) != given_up);
                    }
                }
                Step::Take => {
                    for job in dirty.take(unit_of, |_, _| false, |_| 50, |_| u64::MAX) {
                        sent(&mut model, &job);
                        dirty.settle(job.generation);
                    }
                }
                Step::TakeAllButFirst => {
                    for job in take_all(&mut dirty, |from, _| from < UNIT) {
                        assert!(job.start >= UNIT);
                        sent(&mut model, &job);
                        generations.push(job.generation);
                    }
                }
                Step::Flush => {
                    dirty.make_ready(Duration::MAX);
                    dirty.end_generation();
                }
            }
            check(&dirty, &model);
        }
        dirty.make_ready(Duration::MAX);
        let last = dirty.end_generation();
        for job in take_all(&mut dirty, |_, _| false) {
            sent(&mut model, &job);
            dirty.settle(job.generation);
        }
        assert_eq!(dirty.ready_len(), 0);
        assert!(dirty.is_empty() && model.iter().all(Option::is_none));
        assert_eq!(dirty.is_settled(last), generations.is_empty());
        generations.into_iter().for_each(|generation| dirty.settle(generation));
        assert!(dirty.is_settled(last) && dirty.unsettled.is_empty());
    }
}

/// A large write is passed on as it is: the bytes sent are the very bytes written.
#[test]
fn a_large_write_is_not_copied() {
    let mut dirty = Dirty::default();
    let data = Bytes::from(vec![7; 1 << 20]);
    let unit = (0, 1 << 20);
    dirty.insert(
        Fragment { start: 0, unit, lane: 0, data: data.clone(), is_part: false, room: None },
        Duration::ZERO,
    );
    let jobs = dirty.take(|_| unit, |_, _| false, |_| 1, |_| u64::MAX);
    assert_eq!(jobs[0].data.as_ptr(), data.as_ptr());
}

/// A few bytes held a buffer of a megabyte.
#[test]
fn what_is_left_of_a_large_write_holds_no_more_memory_than_it_takes() {
    let (mut dirty, (data, held)) = (Dirty::default(), buffer(1 << 20));
    let unit = (0, 1 << 20);
    let fragment = Fragment { start: 0, unit, lane: 0, data, is_part: false, room: None };
    dirty.insert(fragment, Duration::ZERO);
    assert_eq!(Arc::strong_count(&held), 2);
    dirty.cut(100, (1 << 20) - 10);
    assert_eq!(Arc::strong_count(&held), 1);
    let left = dirty.overlay(0, 1 << 20).into_iter();
    let left: Vec<_> = left.map(|(at, bytes)| (at, bytes.len())).collect();
    assert_eq!(left, [(0, 100), ((1 << 20) - 10, 10)]);
}

/// All that was sent at once to the other lanes together was under way to one that was slow.
#[test]
fn of_a_lane_of_which_enough_is_under_way_nothing_more_is_taken() {
    let (mut dirty, mut model) = (Dirty::default(), vec![None; 1_200]);
    for at in (0..1_200).step_by(UNIT as usize) {
        write(&mut dirty, &mut model, at, UNIT, 1);
    }
    let parts_max = |lane: Lane| if lane == 0 { 1_u64 } else { 3 };
    assert_eq!(dirty.senders_wanted(parts_max), 7);
    let take = |dirty: &mut Dirty| {
        let jobs = dirty.take(unit_of, |_, _| false, |_| 0, parts_max);
        jobs.first().map(|job| job.lane)
    };
    let taken: Vec<_> = std::iter::from_fn(|| take(&mut dirty)).collect();
    assert_eq!(taken, [1, 2, 0, 1, 2, 1, 2]);
    assert_eq!((dirty.ready_len(), dirty.senders_wanted(parts_max)), (5, 7));
    dirty.answered(1);
    dirty.answered(0);
    assert_eq!(dirty.senders_wanted(parts_max), 6, "lane 1 has enough");
    assert_eq!([take(&mut dirty), take(&mut dirty), take(&mut dirty)], [Some(0), Some(1), None]);
    assert_eq!(dirty.under_way, BTreeMap::from([(0, 1), (1, 3), (2, 3)]));
}

/// It was for senders that waited for other lanes to send it.
#[test]
fn what_is_ready_in_a_lane_wants_a_sender_however_many_are_at_others() {
    let (mut dirty, mut model) = (Dirty::default(), vec![None; 1_800]);
    for at in (0..1_500).step_by(3 * UNIT as usize) {
        write(&mut dirty, &mut model, at, UNIT, 1);
        dirty.take(unit_of, |_, _| false, |_| 0, |_| 4);
    }
    assert_eq!((dirty.ready_len(), dirty.senders_wanted(|_| 4)), (1, 4), "all of one lane");
    write(&mut dirty, &mut model, UNIT, UNIT, 1);
    assert_eq!((dirty.ready_len(), dirty.senders_wanted(|_| 4)), (2, 5));
}

/// All senders were at a group that had hung just after the first answer said that a few parts are enough for it: nobody was left for
/// the other one.
#[test]
fn what_is_under_way_to_a_lane_beyond_what_it_may_have_now_takes_no_sender_from_others() {
    let (mut dirty, mut model) = (Dirty::default(), vec![None; 1_800]);
    let take = |dirty: &mut Dirty, parts_max: fn(Lane) -> u64| {
        let jobs = dirty.take(unit_of, |_, _| false, |_| 0, parts_max);
        jobs.first().map(|job| job.lane)
    };
    for at in (0..1_800).step_by(3 * UNIT as usize) {
        write(&mut dirty, &mut model, at, UNIT, 1);
        assert_eq!(take(&mut dirty, |_| 16), Some(0));
    }
    let parts_max: fn(Lane) -> u64 = |lane| if lane == 0 { 2 } else { 3 };
    let max = |dirty: &Dirty| dirty.senders_max(0..2, parts_max);
    assert_eq!(max(&dirty), 2 + 3 + 4);
    write(&mut dirty, &mut model, UNIT, UNIT, 1);
    assert!(dirty.senders_wanted(parts_max) <= max(&dirty));
    assert_eq!((dirty.senders_wanted(parts_max), take(&mut dirty, parts_max)), (7, Some(1)));
    (0..5).for_each(|_| dirty.answered(0));
    assert_eq!(max(&dirty), 5, "it has no more than it may have");
}
