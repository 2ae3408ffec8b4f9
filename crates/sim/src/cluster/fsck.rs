//! What `strake fsck` says of the volume: nothing is broken, at whatever moment it looks (S-053).
//!
//! It is asked as the verb asks, part by part, first while everything is still there: names, inodes, locks, and chunks on all
//! targets, as trouble has left them. At the end, when nearly all is deleted, only the totals are left to be looked at.

use super::Cluster;
use super::mount::Mount;
use super::world::Remains;
use std::time::Duration;
use strake_base::count_case;
use strake_types::{Credentials, Ino, Result};
use strake_wire::message::meta::{Check, CheckPart, Problem};

/// What a check says where nobody can be asked about some chunks, by the map of a moment ago.
const AWAY: &str = "chunks-away";
/// How often a part is looked at until all can be asked,
const LOOKS: usize = 3;
/// and how long after one another.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// What was found, and whether all could be looked at.
type Looked = (Vec<Problem>, Result<()>);

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
        let look = async || self.look(mount, part, target).await;
        let (found, ended) = look_until_all_is_there(look).await;
        self.judge_problems(found);
        ended
    }

    /// What is found fails the run, unless something has gone wrong that leaves it.
    fn judge_problems(&self, problems: Vec<Problem>) {
        if problems.is_empty() {
            return;
        }
        let mut remains = self.world.remains.lock().clone();
        // What its primary has said of a change goes with the primary (S-099).
        remains.of_power |= self.plan.acknowledges_alone();
        for Problem { what, ino, detail, .. } in problems {
            match is_excused(&what, Ino(ino), &remains, |ino| self.files.may_seem_empty(ino)) {
                true => count_case("fsck-excused"),
                false => self.world.fail(format!("fsck: {what} of inode {ino}: {detail}")),
            }
        }
    }

    /// One look.
    async fn look(&self, mount: &Mount, part: CheckPart, target: u32) -> Looked {
        let mut check = Check { part: part as u32, target, ..Check::default() };
        let mut found = Vec::new();
        loop {
            match mount.volume.check(&Credentials::root(), check.clone()).await {
                Ok(checked) => {
                    found.extend(checked.problems);
                    if checked.next.is_empty() {
                        return (found, Ok(()));
                    }
                    check.after = checked.next;
                }
                Err(error) => return (found, Err(error)),
            }
        }
    }
}

/// Looks again while something cannot be asked. All else that was found counts whatever a later look finds, and so does what a later
/// one was not able to ask again. It fails if already the first one does.
async fn look_until_all_is_there(mut look: impl AsyncFnMut() -> Looked) -> Looked {
    let (mut found, mut away) = (Vec::new(), Vec::new());
    for nth in 0..LOOKS {
        if nth > 0 {
            count_case("fsck-looked-again");
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        let (problems, ended) = look().await;
        let (waiting, told): (Vec<_>, Vec<_>) = problems.into_iter().partition(is_away);
        found.extend(told);
        match ended {
            Ok(()) => away = waiting,
            Err(error) if nth == 0 => return (found, Err(error)),
            Err(_) => {}
        }
        if away.is_empty() {
            break;
        }
    }
    found.extend(away);
    (found, Ok(()))
}

fn is_away(problem: &Problem) -> bool {
    problem.what == AWAY
}

/// True of what may be left of something that went wrong with this file, and is promised to be nothing worse. `may_seem_empty`:
/// whether a file of those that do not grow may be called so.
fn is_excused(
    what: &str,
    ino: Ino,
    remains: &Remains,
    may_seem_empty: impl Fn(Ino) -> bool,
) -> bool {
    let has_failed = remains.of_failed.contains(&ino);
    match what {
        // It takes room, and is no part of the file (S-053).
        "chunk-past-end" => has_failed || remains.of_dead.contains(&ino) || remains.of_power,
        // What nobody was told of, or went before it was on disk, need not be counted; what a dead client had written is (S-063).
        "wrong-occupied" => has_failed || remains.of_power || may_seem_empty(ino),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::{Error, ErrorKind};

    const HERE: Ino = Ino(7);
    const ELSEWHERE: Ino = Ino(8);

    fn excused(what: &str, remains: &Remains) -> bool {
        is_excused(what, HERE, remains, |_| false)
    }

    /// All of it was excused in every run; then in every run in which any change of any file had failed.
    #[test]
    fn what_is_left_is_excused_only_where_something_went_wrong_that_leaves_it() {
        let left = |failed: &[Ino], dead: &[Ino], of_power| {
            let (mut remains, client) = (Remains { of_power, ..Remains::default() }, 1);
            remains.of_failed.extend(failed);
            dead.iter().for_each(|ino| remains.begin(client, *ino));
            remains.died(client);
            remains
        };
        let all = [
            left(&[], &[], false),
            left(&[ELSEWHERE], &[ELSEWHERE], false),
            left(&[], &[HERE], false),
            left(&[HERE], &[], false),
            left(&[], &[], true),
        ];
        let excused = |what| [0, 1, 2, 3, 4].map(|nth: usize| excused(what, &all[nth]));
        assert_eq!(excused("chunk-past-end"), [false, false, true, true, true]);
        assert_eq!(excused("wrong-occupied"), [false, false, false, true, true]);
        assert_eq!(excused(AWAY), [false; 5]);
        let nothing = &all[0];
        assert!(is_excused("wrong-occupied", HERE, nothing, |ino| ino == HERE));
        assert!(!is_excused("chunk-past-end", HERE, nothing, |_| true), "it has its length");
    }

    /// The last look alone counted, and where it failed nothing did.
    #[test]
    fn what_an_earlier_look_of_fsck_has_found_counts_whatever_becomes_of_later_ones() {
        let failed = || Err(Error::new(ErrorKind::Unavailable));
        let both = "chunks-away orphaned-chunk";
        let orphan = || ("orphaned-chunk".to_owned(), true);
        assert_eq!(looked(vec![(both, Ok(())), ("", Ok(()))]), orphan());
        assert_eq!(looked(vec![(AWAY, Ok(())), ("orphaned-chunk", Ok(()))]), orphan());
        let later = vec![(AWAY, Ok(())), ("", failed()), ("orphaned-chunk", failed())];
        assert_eq!(looked(later), ("orphaned-chunk chunks-away".to_owned(), true));
        assert_eq!(looked(vec![(both, failed())]), ("orphaned-chunk".to_owned(), false));
        let answered = vec![(AWAY, Ok(())), ("", failed()), ("", Ok(()))];
        assert_eq!(looked(answered), (String::new(), true));
    }

    /// What counts of looks that find this and end so, and whether that is all.
    fn looked(looks: Vec<(&str, Result<()>)>) -> (String, bool) {
        let problem = |what: &str| Problem { what: what.to_owned(), ..Problem::default() };
        let mut looks = looks.into_iter();
        let next = async || {
            let (found, ended) = looks.next().expect("it was looked often enough");
            let found: Vec<Problem> = found.split_whitespace().map(problem).collect();
            (found, ended)
        };
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        let (found, ended) = runtime.block_on(look_until_all_is_there(next));
        let words: Vec<String> = found.into_iter().map(|problem| problem.what).collect();
        (words.join(" "), ended.is_ok())
    }

    #[test]
    fn a_client_that_died_leaves_something_only_of_what_it_was_doing() {
        let mut remains = Remains::default();
        remains.begin(1, HERE);
        remains.begin(2, ELSEWHERE);
        remains.end(1, HERE);
        remains.died(1);
        remains.died(3);
        assert_eq!(remains.of_dead.len(), 0);
        remains.begin(1, HERE);
        remains.died(1);
        assert!(excused("chunk-past-end", &remains));
        assert_eq!(remains.of_dead.len(), 1);
    }
}
