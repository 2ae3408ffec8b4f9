//! What targets have acknowledged and nobody has made durable yet, and from which boots.
//!
//! A target answers a write as soon as its host's page cache has it. Should the host lose power before
//! a sync, the write is gone, and the target that comes back cannot know who had been told. So it says
//! with each answer which boot it speaks from, and who wrote remembers that: a sync that is answered
//! from another boot does not cover the write. It is NFS's write verifier (RFC 8881, 18.32).

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Boot, Error, ErrorKind, GroupId, Ino};
use strake_wire::message::storage::{Done, StorageAnswer};

/// Boots remembered per group of a file; more are only there if a host keeps losing power, and the
/// oldest has been told then.
const BOOTS_MAX: usize = 8;
/// Closed files remembered before the targets are asked to sync them.
const LEFT_MAX: usize = 16 << 10;
/// Lost files remembered for who asks for them.
const LOST_MAX: usize = 1 << 20;
/// How long a closed file is remembered before that. Targets sync by themselves much earlier.
const LEFT_AGE_MAX: Duration = Duration::from_secs(10);

/// Which groups hold data that nobody has made durable yet.
#[derive(Clone, Default)]
pub(crate) struct Unsynced {
    /// Others may have written: the mark of when that was noted last; 0: a sync has covered it.
    others: u64,
    /// Until where they may have, since a sync has covered that.
    reach: u64,
    /// Groups written by this mount since the last sync. Who syncs them has the same map, until something is written.
    groups: Marks,
    marks: u64,
}

/// What a group has acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// Of the last write; 0: there was none.
    mark: u64,
    /// From which boots. Of several, all but one are lost, and that has been told.
    boots: Vec<Boot>,
}

/// What a sync is to make durable, as of the moment it began.
pub(crate) type Marks = Arc<BTreeMap<GroupId, Acknowledged>>;

impl Unsynced {
    /// `others`: until where they may have written before. `left`: what is known of the file from when it was open before.
    pub(crate) fn new(others: Option<u64>, left: Option<Unsynced>) -> Self {
        let mut unsynced = left.unwrap_or_default();
        if let Some(end) = others {
            unsynced.others_wrote(end);
        }
        unsynced
    }

    /// Others have written, or may have, before this `end`: the next sync asks each group that has something of the file there.
    pub(crate) fn others_wrote(&mut self, end: u64) {
        self.marks += 1;
        self.others = self.marks;
        self.reach = self.reach.max(end);
    }

    /// When that was noted last; 0: nothing of others is to be synced.
    pub(crate) fn others(&self) -> u64 {
        self.others
    }

    /// Until where they may have written.
    pub(crate) fn reach(&self) -> u64 {
        self.reach
    }

    /// A sync of all groups until there is done that began when this had been noted. What was noted meanwhile stays.
    pub(crate) fn forget_others(&mut self, noted: u64) {
        if self.others == noted {
            (self.others, self.reach) = (0, 0);
        }
    }

    /// A write to a group has been answered, from `boot` if the target says. True: an earlier one,
    /// acknowledged from another boot, is lost.
    #[must_use]
    pub(crate) fn add(&mut self, group: GroupId, boot: Option<Boot>) -> bool {
        self.marks += 1;
        let acknowledged = Arc::make_mut(&mut self.groups).entry(group).or_default();
        acknowledged.mark = self.marks;
        let Some(boot) = boot.filter(|boot| !acknowledged.boots.contains(boot)) else {
            return false;
        };
        if acknowledged.boots.len() >= BOOTS_MAX {
            acknowledged.boots.remove(0);
        }
        acknowledged.boots.push(boot);
        acknowledged.boots.len() > 1
    }

    /// How many writes have been answered.
    pub(crate) fn answered(&self) -> u64 {
        self.marks
    }

    /// As [`Unsynced::add`], of a write that is durable, and with it all that its group had acknowledged before it was sent,
    /// when so many writes had been `answered`. What was answered meanwhile has to be synced.
    #[must_use]
    pub(crate) fn add_durable(
        &mut self,
        group: GroupId,
        boot: Option<Boot>,
        answered: u64,
    ) -> bool {
        let is_lost = self.add(group, boot);
        if self.marks == answered + 1 {
            Arc::make_mut(&mut self.groups).remove(&group);
        }
        is_lost
    }

    /// What a sync of what this mount has written will make durable that begins now.
    pub(crate) fn own_marks(&self) -> Marks {
        self.groups.clone()
    }

    /// The same; `others` in any case.
    pub(crate) fn marks(&self, others: &BTreeSet<GroupId>) -> Marks {
        if others.is_empty() || strake_base::is_broken("syncs-cover-others") {
            return self.own_marks();
        }
        let mut marks: BTreeMap<GroupId, Acknowledged> =
            others.iter().map(|&group| (group, Acknowledged::default())).collect();
        marks.extend(self.groups.iter().map(|(&group, held)| (group, held.clone())));
        Arc::new(marks)
    }

    /// A sync of a group is done, or has shown that what it was for is lost. What was written
    /// meanwhile stays.
    pub(crate) fn forget(&mut self, group: GroupId, synced: &Acknowledged) {
        if self.groups.get(&group).is_some_and(|held| held.mark == synced.mark) {
            Arc::make_mut(&mut self.groups).remove(&group);
        }
    }

    fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl Acknowledged {
    /// True if a sync for which these vouch does not cover it. Where either side says no boot (a server
    /// of an earlier release) nothing can be told.
    pub(crate) fn is_lost(&self, vouching: &[Boot]) -> bool {
        let known = !vouching.is_empty() && !self.boots.is_empty();
        let covered = || vouching.iter().any(|boot| self.boots.contains(boot));
        known && !covered() && !strake_base::is_broken("syncs-compare-boots")
    }
}

/// The boot that an answer comes from, if it says.
pub(crate) fn boot_of(answer: &StorageAnswer) -> Option<Boot> {
    match answer {
        StorageAnswer::Done(Done { boot, .. }) if *boot != 0 => Some(Boot(*boot)),
        _ => None,
    }
}

/// Who vouches for a sync, if its answer says: the boot that it comes from, and who stands for what was acknowledged
/// by primaries alone.
pub(crate) fn vouching(answer: &StorageAnswer) -> Vec<Boot> {
    let StorageAnswer::Done(done) = answer else { return Vec::new() };
    [done.boot, done.early].into_iter().filter(|boot| *boot != 0).map(Boot).collect()
}

/// True if a write was answered that is durable.
pub(crate) fn is_durable(answer: &StorageAnswer) -> bool {
    matches!(answer, StorageAnswer::Done(Done { durable: true, .. }))
}

/// Why data is lost that a group had acknowledged.
pub(crate) fn lost(group: GroupId) -> Error {
    let detail = format!(
        "the target of group {group} has lost power, or its disk, since it acknowledged writes that \
         had not been synced; write them again"
    );
    Error::with(ErrorKind::Io, detail)
}

/// Files closed before what they wrote was synced: who opens one again and calls `fsync` is to learn
/// of a loss as well.
#[derive(Default)]
pub(crate) struct Left {
    files: Mutex<HashMap<Ino, LeftFile>>,
    settling: Mutex<bool>,
    /// Those of which a loss was found out when nobody had them open any more, where somebody asks for them.
    lost: Mutex<Option<BTreeSet<Ino>>>,
}

struct LeftFile {
    unsynced: Unsynced,
    since: Duration,
    /// A loss has been logged.
    told: bool,
}

impl Left {
    /// A file is closed.
    pub(crate) fn put(&self, ino: Ino, unsynced: Unsynced, now: Duration) {
        if !unsynced.is_empty() {
            let file = LeftFile { unsynced, since: now, told: false };
            self.files.lock().insert(ino, file);
        }
    }

    /// A file is opened again, or gone.
    pub(crate) fn take(&self, ino: Ino) -> Option<Unsynced> {
        self.files.lock().remove(&ino).map(|file| file.unsynced)
    }

    /// What each closed file has unsynced.
    pub(crate) fn marks(&self) -> Vec<(Ino, Marks)> {
        let files = self.files.lock();
        files.iter().map(|(&ino, file)| (ino, file.unsynced.own_marks())).collect()
    }

    /// See [`Unsynced::forget`].
    pub(crate) fn forget(&self, ino: Ino, group: GroupId, synced: &Acknowledged) {
        let mut files = self.files.lock();
        if let Some(file) = files.get_mut(&ino) {
            file.unsynced.forget(group, synced);
            if file.unsynced.is_empty() {
                files.remove(&ino);
            }
        }
    }

    /// Data of a file is lost; true the first time. It is remembered for who opens the file again.
    pub(crate) fn tell(&self, ino: Ino) -> bool {
        let told = |file: &mut LeftFile| !std::mem::replace(&mut file.told, true);
        let is_new = self.files.lock().get_mut(&ino).is_some_and(told);
        if is_new {
            self.note_lost(ino);
        }
        is_new
    }

    /// From now on lost files are remembered for [`Left::take_unsure`].
    pub(crate) fn gather_lost(&self) {
        *self.lost.lock() = Some(BTreeSet::new());
    }

    /// Data of a file is lost, and nobody has it open who could be told.
    pub(crate) fn note_lost(&self, ino: Ino) {
        if let Some(lost) = self.lost.lock().as_mut().filter(|lost| lost.len() < LOST_MAX) {
            lost.insert(ino);
        }
    }

    /// The files that are lost, and those of which nobody has said that they are durable.
    pub(crate) fn take_unsure(&self) -> BTreeSet<Ino> {
        let mut unsure = self.lost.lock().take().unwrap_or_default();
        unsure.extend(self.files.lock().keys());
        unsure
    }

    /// True if the targets are to be asked now whether what was left is durable; the caller does,
    /// and then calls [`Left::settled`].
    pub(crate) fn begin_settling(&self, now: Duration) -> bool {
        let mut settling = self.settling.lock();
        if *settling {
            return false;
        }
        let mut files = self.files.lock();
        if files.len() >= LEFT_MAX {
            // Where even the lost ones are too many, the log has to do.
            files.retain(|_, file| !file.told);
        }
        let old = |file: &LeftFile| !file.told && now.saturating_sub(file.since) >= LEFT_AGE_MAX;
        *settling = files.len() >= LEFT_MAX || files.values().any(old);
        *settling
    }

    /// The targets have been asked.
    pub(crate) fn settled(&self) {
        *self.settling.lock() = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(3);
    const A: Option<Boot> = Some(Boot(1));
    const B: Option<Boot> = Some(Boot(2));

    fn sync(unsynced: &mut Unsynced, boot: Option<Boot>) -> bool {
        let marks = unsynced.marks(&BTreeSet::from([GROUP]));
        unsynced.forget(GROUP, &marks[&GROUP]);
        marks[&GROUP].is_lost(boot.as_slice())
    }

    #[test]
    fn a_sync_from_another_boot_covers_nothing_and_is_told_once() {
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.add(GROUP, A));
        assert!(sync(&mut unsynced, B));
        assert!(!sync(&mut unsynced, B));
        assert!(!unsynced.add(GROUP, B));
        assert!(!sync(&mut unsynced, B));
    }

    /// Answers may overtake each other, so the boot that came last need not be the last boot.
    #[test]
    fn of_several_boots_all_but_the_one_that_syncs_are_told_with_the_writes() {
        for boots in [[A, B], [B, A]] {
            let mut unsynced = Unsynced::default();
            assert!(!unsynced.add(GROUP, boots[0]));
            assert!(unsynced.add(GROUP, boots[1]));
            assert!(!unsynced.add(GROUP, boots[0]));
            assert!(!sync(&mut unsynced, B));
        }
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.add(GROUP, A));
        assert!(unsynced.add(GROUP, B));
        assert!(sync(&mut unsynced, Some(Boot(3))));
    }

    #[test]
    fn a_sync_covers_what_primaries_have_acknowledged_alone() {
        let answer = StorageAnswer::Done(Done { boot: 1, early: 2, ..Done::default() });
        for (boot, covered) in [(A, true), (B, true), (Some(Boot(3)), false)] {
            let mut unsynced = Unsynced::default();
            assert!(!unsynced.add(GROUP, boot));
            assert_eq!(!unsynced.own_marks()[&GROUP].is_lost(&vouching(&answer)), covered);
        }
    }

    #[test]
    fn a_target_that_says_no_boot_is_believed() {
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.add(GROUP, None));
        assert!(!sync(&mut unsynced, A));
        assert!(!unsynced.add(GROUP, A));
        assert!(!sync(&mut unsynced, None));
    }

    #[test]
    fn what_is_written_during_a_sync_stays_with_its_boot() {
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.add(GROUP, A));
        let marks = unsynced.own_marks();
        assert!(!unsynced.add(GROUP, A));
        unsynced.forget(GROUP, &marks[&GROUP]);
        assert!(sync(&mut unsynced, B));
    }

    #[test]
    fn what_others_write_during_a_sync_stays_for_the_next_one() {
        let mut unsynced = Unsynced::new(Some(70), None);
        let noted = unsynced.others();
        assert_ne!(noted, 0);
        unsynced.others_wrote(50);
        unsynced.forget_others(noted);
        let noted = unsynced.others();
        assert_ne!(noted, 0);
        assert_eq!(unsynced.reach(), 70, "no sync of both has been done");
        unsynced.forget_others(noted);
        assert_eq!((unsynced.others(), unsynced.reach()), (0, 0));
        assert_eq!(Unsynced::new(None, None).others(), 0);
    }

    #[test]
    fn boots_are_bounded() {
        let mut unsynced = Unsynced::default();
        for boot in 1..100 {
            assert_eq!(unsynced.add(GROUP, Some(Boot(boot))), boot > 1);
        }
        assert_eq!(unsynced.own_marks()[&GROUP].boots.len(), BOOTS_MAX);
        assert!(!sync(&mut unsynced, Some(Boot(99))));
    }

    /// Those of all closed files were copied under the lock that opens need.
    #[test]
    fn what_is_to_be_synced_is_copied_only_if_it_changes_meanwhile() {
        let (left, mut unsynced) = (Left::default(), Unsynced::default());
        assert!(!unsynced.add(GROUP, A));
        left.put(Ino(7), unsynced, Duration::ZERO);
        let (first, second) = (left.marks().remove(0).1, left.marks().remove(0).1);
        assert!(Arc::ptr_eq(&first, &second));
        let mut unsynced = left.take(Ino(7)).unwrap();
        assert!(!unsynced.add(GroupId(4), A));
        assert_eq!(first.keys().copied().collect::<Vec<_>>(), [GROUP]);
        unsynced.forget(GROUP, &first[&GROUP]);
        let now = unsynced.own_marks();
        assert_eq!(now.keys().copied().collect::<Vec<_>>(), [GroupId(4)]);
    }

    #[test]
    fn closed_files_are_settled_when_they_are_old() {
        let left = Left::default();
        let later = |seconds| Duration::from_secs(seconds);
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.add(GROUP, A));
        left.put(Ino(7), unsynced, later(1));
        left.put(Ino(8), Unsynced::default(), later(1));
        assert_eq!(left.marks().len(), 1, "what holds nothing is not kept");
        assert!(!left.begin_settling(later(5)));
        assert!(left.begin_settling(later(11)));
        assert!(!left.begin_settling(later(12)), "it is under way");
        left.settled();
        assert!(left.begin_settling(later(12)), "it came to nothing");
        left.settled();
        assert!(left.tell(Ino(7)) && !left.tell(Ino(7)));
        assert!(!left.begin_settling(later(99)), "what is lost is lost");
        assert!(left.take(Ino(7)).is_some() && left.take(Ino(7)).is_none());
    }

    #[test]
    fn a_durable_write_covers_what_was_acknowledged_before_it_was_sent() {
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.add(GROUP, A));
        let answered = unsynced.answered();
        assert!(!unsynced.add_durable(GROUP, A, answered));
        assert!(unsynced.is_empty());
        let answered = unsynced.answered();
        assert!(
            !unsynced.add(GROUP, A),
            "answered meanwhile: the target may have synced before it"
        );
        assert!(!unsynced.add_durable(GROUP, A, answered));
        assert!(!unsynced.is_empty());
        let answered = unsynced.answered();
        assert!(unsynced.add_durable(GROUP, Some(Boot(77)), answered), "the first one is lost");
    }
}
