//! Random messages about jobs.

use super::super::jobs::{Held, Job, JobItem, JobList, Order, Plan, Progress, SteerJob};
use super::super::recopies::{
    JobRecopy, RecopyAhead, RecopyFile, RecopyLeft, RecopyOrder, RecopyProgress, RecopyTally,
    RecopyWish,
};
use super::super::scrubs::{JobScrub, ScrubFinding, ScrubOrder, ScrubProgress, ScrubTally};
use super::Gen;

impl Gen {
    pub(super) fn held(&mut self) -> Held {
        Held { target: self.u32(), group: self.u32(), chunks: self.u64(), bytes: self.u64() }
    }

    pub(super) fn progress(&mut self) -> Progress {
        Progress {
            group: self.u32(),
            member: self.u32(),
            compared: self.u64(),
            sent: self.u64(),
            at: self.opt(Self::chunk),
            total: self.u64(),
        }
    }

    pub(super) fn order(&mut self) -> Order {
        Order { group: self.u32(), member: self.u32(), paused: self.bool(), rate: self.u64() }
    }

    pub(super) fn plan(&mut self) -> Plan {
        Plan {
            kind: self.u32(),
            targets: self.list(Self::u32),
            to: self.u32(),
            servers: self.list(Self::u32),
            dry_run: self.bool(),
            force: self.bool(),
            lose_data: self.bool(),
            remove: self.bool(),
            rate: Some(self.u64()),
            undo: self.bool(),
            no_repair: self.bool(),
            recopy: self.opt(Self::recopy_wish),
        }
    }

    pub(super) fn steer_job(&mut self) -> SteerJob {
        SteerJob {
            id: self.u64(),
            pause: self.bool(),
            resume: self.bool(),
            cancel: self.bool(),
            rate: self.opt(Self::u64),
        }
    }

    pub(super) fn job_list(&mut self) -> JobList {
        JobList { jobs: self.list(Self::job), default_rate: self.u64(), left_out: self.u32() }
    }

    fn job(&mut self) -> Job {
        Job {
            id: self.u64(),
            kind: self.u32(),
            state: self.u32(),
            about: self.string(),
            begun_ms: self.u64(),
            ended_ms: self.u64(),
            rate_max: self.u64(),
            bytes: self.u64(),
            bytes_done: self.u64(),
            bytes_sent: self.u64(),
            rate: self.u64(),
            items: self.list(Self::job_item),
            reason: self.string(),
            scrubs: self.list(Self::job_scrub),
            no_repair: self.bool(),
            recopy: self.opt(Self::job_recopy),
        }
    }

    fn job_item(&mut self) -> JobItem {
        JobItem {
            group: self.u32(),
            from: self.u32(),
            to: self.u32(),
            state: self.u32(),
            reason: self.string(),
            bytes: self.u64(),
            bytes_done: self.u64(),
            bytes_sent: self.u64(),
            at: self.opt(Self::chunk),
            lost: self.bool(),
            uncounted: self.bool(),
        }
    }

    pub(super) fn scrub_order(&mut self) -> ScrubOrder {
        ScrubOrder {
            job: self.u64(),
            target: self.u32(),
            repair: self.bool(),
            compare: self.list(Self::u32),
            paused: self.bool(),
            rate: self.u64(),
        }
    }

    fn scrub_tally(&mut self) -> ScrubTally {
        ScrubTally {
            chunks: self.u64(),
            bytes: self.u64(),
            repaired: self.u64(),
            left: self.u64(),
            compared: self.u64(),
        }
    }

    fn scrub_finding(&mut self) -> ScrubFinding {
        ScrubFinding {
            target: self.u32(),
            group: self.u32(),
            chunk: self.opt(Self::chunk),
            fate: self.u32(),
            different: self.bool(),
            detail: self.string(),
        }
    }

    pub(super) fn scrub_progress(&mut self) -> ScrubProgress {
        ScrubProgress {
            job: self.u64(),
            target: self.u32(),
            tally: self.scrub_tally(),
            at: self.opt(Self::chunk),
            findings: self.list(Self::scrub_finding),
            skipped: self.list(Self::string),
            ended: self.bool(),
            trouble: self.string(),
        }
    }

    fn job_scrub(&mut self) -> JobScrub {
        JobScrub {
            target: self.u32(),
            state: self.u32(),
            reason: self.string(),
            bytes: self.u64(),
            tally: self.scrub_tally(),
            at: self.opt(Self::chunk),
            findings: self.list(Self::scrub_finding),
            skipped: self.list(Self::string),
        }
    }

    fn recopy_wish(&mut self) -> RecopyWish {
        RecopyWish { volume: self.u32(), ino: self.u64(), copies: self.u32(), path: self.string() }
    }

    pub(super) fn recopy_order(&mut self) -> RecopyOrder {
        RecopyOrder {
            job: self.u64(),
            volume: self.u32(),
            ino: self.u64(),
            copies: self.u32(),
            paused: self.bool(),
            rate: self.u64(),
        }
    }

    fn recopy_tally(&mut self) -> RecopyTally {
        RecopyTally { looked: self.u64(), files: self.u64(), bytes: self.u64() }
    }

    fn recopy_file(&mut self) -> RecopyFile {
        RecopyFile { path: self.string(), copied: self.u64(), bytes: self.u64() }
    }

    fn recopy_left(&mut self) -> RecopyLeft {
        RecopyLeft { path: self.string(), reason: self.string() }
    }

    pub(super) fn recopy_progress(&mut self) -> RecopyProgress {
        RecopyProgress {
            job: self.u64(),
            tally: self.recopy_tally(),
            under_way: self.list(Self::recopy_file),
            left: self.u64(),
            waiting: self.list(Self::recopy_left),
            ended: self.bool(),
            trouble: self.string(),
            volume: self.u32(),
            ahead: self.opt(Self::recopy_ahead),
            directories: self.u64(),
        }
    }

    fn job_recopy(&mut self) -> JobRecopy {
        JobRecopy {
            wish: self.recopy_wish(),
            reason: self.string(),
            tally: self.recopy_tally(),
            under_way: self.list(Self::recopy_file),
            left: self.u64(),
            waiting: self.list(Self::recopy_left),
            ahead: self.opt(Self::recopy_ahead),
        }
    }

    fn recopy_ahead(&mut self) -> RecopyAhead {
        RecopyAhead { files: self.u64(), bytes: self.u64(), whole: self.bool() }
    }
}
