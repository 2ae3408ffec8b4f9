//! What `strake fsck` says of the volume: nothing is broken, at whatever moment it looks (S-053).
//!
//! It is asked as the verb asks, part by part, first while everything is still there: names, inodes, locks, and chunks on all
//! targets, as trouble has left them. At the end, when nearly all is deleted, only the totals are left to be looked at.

use super::Cluster;
use super::mount::Mount;
use strake_base::count_case;
use strake_types::{Credentials, Result};
use strake_wire::message::meta::{Check, CheckPart};

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
        let mut check = Check { part: part as u32, target, ..Check::default() };
        loop {
            let checked = mount.volume.check(&Credentials::root(), check.clone()).await?;
            for problem in checked.problems {
                // What a write that failed has left behind the end; what was away by the map of a moment ago; and files
                // with holes that a server which has stopped was still to count.
                if let "chunk-past-end" | "chunks-away" | "wrong-occupied" = problem.what.as_str() {
                    count_case("fsck-excused");
                    continue;
                }
                let (what, ino, detail) = (problem.what, problem.ino, problem.detail);
                self.world.fail(format!("fsck: {what} of inode {ino}: {detail}"));
            }
            if checked.next.is_empty() {
                return Ok(());
            }
            check.after = checked.next;
        }
    }
}
