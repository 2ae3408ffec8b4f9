//! What a study takes, to be told before it begins: some take days, or more room than there is.

use super::{Options, Setting, Study, chosen, plan};
use crate::error::Result;
use crate::plan::{Before, Plan, Step};
use crate::work::Job;
use crate::work::file::Direction;

/// Bytes per second of a directory of which nothing is known.
pub const SPEED_ASSUMED: f64 = 100e6;

/// About what a study takes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Forecast {
    /// How many testbeds are made, one after the other; 0 on directories that are there.
    pub testbeds: usize,
    /// Bytes that are moved to and from the file system, not counting what caches answer.
    pub bytes: u64,
    /// How long it takes to move them, as fast as links and disks are.
    pub seconds: f64,
    /// Bytes of room that it needs at once.
    pub room: u64,
}

impl Forecast {
    /// Of all settings of a study in testbeds.
    pub fn in_testbeds(study: Study, options: &Options) -> Result<Self> {
        let mut all = Self::default();
        for setting in chosen(study, options)? {
            all.add(&plan(study, Some(&setting), options)?, speed(&setting));
            all.testbeds += 1;
        }
        Ok(all)
    }

    /// In a directory that is there.
    pub fn in_a_directory(plan: &Plan) -> Self {
        let mut all = Self::default();
        all.add(plan, SPEED_ASSUMED);
        all
    }

    fn add(&mut self, plan: &Plan, speed: f64) {
        let steps = plan.cells.iter().flat_map(|cell| &cell.steps);
        let once = steps.map(moved).fold(0, u64::saturating_add);
        let bytes = once.saturating_mul(plan.repetitions as u64);
        self.bytes = self.bytes.saturating_add(bytes);
        self.seconds += bytes as f64 / speed;
        self.room = self.room.max(plan.needs().bytes);
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
    use super::super::Part;
    use super::*;

    /// The whole second study ran for days before anybody knew that it would.
    #[test]
    fn what_a_study_takes_is_known_before_it_begins() {
        let whole =
            Options { quick: false, repetitions: Some(1), verify: false, seed: 1, part: Part::ALL };
        let all = Forecast::in_testbeds(Study::Two, &whole).unwrap();
        assert_eq!(all.testbeds, 16);
        assert_eq!(all.room, 33 << 30);
        assert!(all.seconds > 86_400.0 && all.bytes > 16 * 500_000_000_000, "{all:?}");
        let part = Part { sizes: vec![1 << 20], threads: vec![1, 2], ..Part::ALL };
        let part = Part { servers: vec![2], disks: vec![6_830_000], ..part };
        let less = Forecast::in_testbeds(Study::Two, &Options { part, ..whole }).unwrap();
        assert_eq!((less.testbeds, less.room), (1, 3 << 20));
        assert!(less.seconds < 60.0, "{less:?}");
    }

    #[test]
    fn nothing_is_faster_than_the_clients_link_or_all_disks() {
        let setting = Setting { servers: 4, link: Some(12e6), disk: Some(2e6), chunk_size: None };
        assert_eq!(speed(&setting), 8e6);
        assert_eq!(speed(&Setting { disk: Some(5e6), ..setting }), 12e6);
        assert_eq!(speed(&Setting { link: None, ..setting }), 8e6);
    }
}
