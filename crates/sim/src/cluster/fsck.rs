//! What `strake fsck` says of the volume: nothing is broken, at whatever moment it looks (S-053).
//!
//! It is asked as the verb asks, part by part, first while everything is still there: names, inodes, locks, and chunks on all
//! targets, as trouble has left them. At the end, when nearly all is deleted, only the totals are left to be looked at.

use super::Cluster;
use super::mount::Mount;
use super::world::Remains;
use std::time::Duration;
use strake_base::count_case;
use strake_types::{Credentials, Result};
use strake_wire::message::meta::{Check, CheckPart, Problem};

/// What a check says where nobody can be asked about some chunks, by the map of a moment ago.
const AWAY: &str = "chunks-away";
/// How often a part is looked at until all can be asked,
const LOOKS: usize = 3;
/// and how long after one another.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

impl Cluster {
    /// Looks at everything. What cannot be looked at now is passed over, as the verb does: targets that do not answer, and
    /// totals that are just being counted.
    pub(super) async fn check_volume(&self, mount: &Mount) -> Result<()> {
        for part in [CheckPart::Entries, CheckPart::Inodes, CheckPart::Leftovers] {
            self.check_part(mount, part, 0).await?;
        }
        let map = self.map().await?;
        let targets = map.targets.iter().filter(|target| target.up).map(|target| target.id);
        let chunks = targets.map(|target| (CheckPart::Chunks, target));
        for (part, target) in chunks.chain([(CheckPart::Totals, 0)]) {
            match self.check_part(mount, part, target).await {
                Ok(()) => count_case("fsck-part-checked"),
                Err(error) => {
                    count_case("fsck-part-skipped");
                    self.world.note(format_args!("{part:?} of target {target}: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Looks through a part of the volume, from its beginning to its end.
    pub(super) async fn check_part(
        &self,
        mount: &Mount,
        part: CheckPart,
        target: u32,
    ) -> Result<()> {
        let mut problems = Vec::new();
        for look in 0..LOOKS {
            if look > 0 {
                count_case("fsck-looked-again");
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            problems = self.problems(mount, part, target).await?;
            if problems.iter().all(|problem| problem.what != AWAY) {
                break;
            }
        }
        let mut remains = *self.world.remains.lock();
        // What its primary has said of a change goes with the primary (S-099).
        remains.of_power |= self.plan.acknowledges_alone();
        for Problem { what, ino, detail, .. } in problems {
            match is_excused(&what, remains) {
                true => count_case("fsck-excused"),
                false => self.world.fail(format!("fsck: {what} of inode {ino}: {detail}")),
            }
        }
        Ok(())
    }

    async fn problems(&self, mount: &Mount, part: CheckPart, target: u32) -> Result<Vec<Problem>> {
        let mut check = Check { part: part as u32, target, ..Check::default() };
        let mut problems = Vec::new();
        loop {
            let checked = mount.volume.check(&Credentials::root(), check.clone()).await?;
            problems.extend(checked.problems);
            if checked.next.is_empty() {
                return Ok(problems);
            }
            check.after = checked.next;
        }
    }
}

/// True of what may be left of something that went wrong, and is promised to be nothing worse.
fn is_excused(what: &str, remains: Remains) -> bool {
    match what {
        // It takes room, and is no part of the file (S-053).
        "chunk-past-end" => remains.of_failed || remains.of_dead || remains.of_power,
        // What nobody was told of, or went before it was on disk, need not be counted; what a dead client had written is (S-063).
        "wrong-occupied" => remains.of_failed || remains.of_power,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of it was excused in every run.
    #[test]
    fn what_is_left_is_excused_only_where_something_went_wrong_that_leaves_it() {
        let nothing = Remains::default();
        let dead = Remains { of_dead: true, ..nothing };
        let failed = Remains { of_failed: true, ..nothing };
        let power = Remains { of_power: true, ..nothing };
        let excused = |what| [nothing, dead, failed, power].map(|left| is_excused(what, left));
        assert_eq!(excused("chunk-past-end"), [false, true, true, true]);
        assert_eq!(excused("wrong-occupied"), [false, false, true, true]);
        assert_eq!(excused(AWAY), [false; 4]);
    }
}
