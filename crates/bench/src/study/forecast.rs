//! What a study takes, to be told before it begins: some take days, or more room than there is.

use super::{Options, Setting, Study, chosen, plan};
use crate::error::Result;
use crate::plan::{Before, Plan, Step};
use crate::work::Job;
use crate::work::file::Direction;

/// Bytes per second of a directory of which nothing is known.
const SPEED_ASSUMED: f64 = 100e6;

/// About what a study takes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Forecast {
    /// How many testbeds are made, one after the other; 0 on directories that are there.
    pub testbeds: usize,
    /// Bytes that are moved to and from the file system, not counting what caches answer.
    pub bytes: u64,
    /// How long it takes to move them, as fast as links and disks are.
    pub seconds: f64,
    /// Bytes per second of that; `None` where it is not one speed.
    pub speed: Option<f64>,
    /// Bytes of room that it needs at once.
    pub room: u64,
}

impl Forecast {
    /// Of all settings of a study in testbeds.
    pub fn in_testbeds(study: Study, options: &Options) -> Result<Self> {
        let mut all = Self::default();
        for setting in chosen(study, options)? {
            all.add(&plan(study, Some(&setting), options)?, speed(&setting), setting.room());
            all.testbeds += 1;
        }
        Ok(all)
    }

    /// In a directory that is there, which may be in a testbed of this setting.
    pub fn in_a_directory(plan: &Plan, setting: Option<&Setting>) -> Self {
        let known = setting.map(speed).filter(|speed| speed.is_finite());
        let speed = known.unwrap_or(SPEED_ASSUMED);
        let mut all = Self { speed: Some(speed), ..Self::default() };
        all.add(plan, speed, 0);
        all
    }

    /// Adds what a plan takes, with the room of a testbed that is made for it.
    fn add(&mut self, plan: &Plan, speed: f64, testbed: u64) {
        let steps = plan.cells.iter().flat_map(|cell| &cell.steps);
        let once = steps.map(moved).fold(0, u64::saturating_add);
        let bytes = once.saturating_mul(plan.repetitions as u64);
        self.bytes = self.bytes.saturating_add(bytes);
        self.seconds += bytes as f64 / speed;
        self.room = self.room.max(plan.needs().bytes.saturating_add(testbed));
    }
}

/// Bytes of a step that no cache can answer.
fn moved(step: &Step) -> u64 {
    let reads_cached = |job: &&Job| match job {
        Job::File(pass) => pass.direction == Direction::Read && step.before != Before::Cool,
        Job::Names(_) => false,
    };
    let jobs = step.jobs.iter().filter(|job| !reads_cached(job));
    jobs.map(Job::weight).fold(0, u64::saturating_add)
}

/// Bytes per second between the client and all servers of a setting.
fn speed(setting: &Setting) -> f64 {
    let each = setting.disk.into_iter().chain(setting.link).fold(f64::INFINITY, f64::min);
    let all = each * f64::from(setting.servers);
    setting.link.map_or(all, |client| all.min(client))
}

#[cfg(test)]
mod tests {
    use super::super::{EMPTY_CLUSTER, EMPTY_TARGET, Part};
    use super::*;

    /// The whole second study ran for days before anybody knew that it would.
    #[test]
    fn what_a_study_takes_is_known_before_it_begins() {
        let whole =
            Options { quick: false, repetitions: Some(1), verify: false, seed: 1, part: Part::ALL };
        let all = Forecast::in_testbeds(Study::Two, &whole).unwrap();
        assert_eq!(all.testbeds, 16);
        assert_eq!(all.room, (33 << 30) + EMPTY_CLUSTER + 8 * EMPTY_TARGET);
        assert!(all.seconds > 86_400.0 && all.bytes > 16 * 500_000_000_000, "{all:?}");
        let part = Part { sizes: vec![1 << 20], threads: vec![1, 2], ..Part::ALL };
        let part = Part { servers: vec![2], disks: vec![6_830_000], ..part };
        let less = Forecast::in_testbeds(Study::Two, &Options { part, ..whole }).unwrap();
        assert_eq!(less.testbeds, 1);
        // It said 3 MiB, those of the files; a disk of 84 was full before there were any.
        assert_eq!(less.room, (3 << 20) + EMPTY_CLUSTER + 2 * EMPTY_TARGET);
        assert!(less.seconds < 60.0, "{less:?}");
    }

    /// Minutes were told of what took hours: links of 12.5 MB/s, and 100 assumed.
    #[test]
    fn in_a_testbed_that_is_there_its_links_and_disks_say_how_long_it_takes() {
        let quick =
            Options { quick: true, repetitions: None, verify: false, seed: 1, part: Part::ALL };
        let plan = plan(Study::One, None, &quick).unwrap();
        let slow = Setting { servers: 2, link: Some(12.5e6), disk: None, chunk_size: None };
        let unlimited = Setting { link: None, ..slow };
        let speed = |setting| Forecast::in_a_directory(&plan, setting).speed;
        assert_eq!(speed(Some(&slow)), Some(12.5e6));
        assert_eq!(speed(Some(&unlimited)), Some(SPEED_ASSUMED));
        let [slow, assumed] = [Some(&slow), None].map(|s| Forecast::in_a_directory(&plan, s));
        assert_eq!((slow.bytes, slow.room), (assumed.bytes, assumed.room));
        assert!((slow.seconds / assumed.seconds - 8.0).abs() < 1e-6, "{slow:?}");
    }

    #[test]
    fn nothing_is_faster_than_the_clients_link_or_all_disks() {
        let setting = Setting { servers: 4, link: Some(12e6), disk: Some(2e6), chunk_size: None };
        assert_eq!(speed(&setting), 8e6);
        assert_eq!(speed(&Setting { disk: Some(5e6), ..setting }), 12e6);
        assert_eq!(speed(&Setting { link: None, ..setting }), 8e6);
    }
}
