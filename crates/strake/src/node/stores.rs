//! The stores of a server: found, checked, and made where they are new.

use super::generation;
use super::identity::{Node, TargetRecord};
use crate::failure::{Context, Failure, Outcome, Plain};
use crate::{mountpoint, output, private, size};
use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strake_base::disk::{Disk, RealDisk, SlowDisk};
use strake_base::mount_table::Mount;
use strake_base::random::SystemRandom;
use strake_engine::chunk::{ChunkError, ChunkOptions, ChunkStore, Identity, StoreStat};
use strake_types::TargetId;
use strake_wire::message::manager::{ScrubWord, TargetSpec};

/// Least room on the disk of a new target: what it takes before it holds anything, and some more.
pub const ROOM_BYTES_MIN: u64 = 64 << 20;
/// What to do where a target cannot be read.
const CHECK_DISK: &str = "check its disk (dmesg, smartctl) and who may read it, and try again; or start without its \
     directory, and put another in its place: strake target replace (disks.md, A lost disk)";
/// Targets that are opened at a time.
const OPENING_MAX: usize = 64;

/// A target of this server.
pub struct Target {
    /// Where it lies.
    pub path: PathBuf,
    /// Its unique id.
    pub uuid: String,
    /// Its number; 0 until the manager has given one.
    pub id: TargetId,
    /// Its cluster; empty until it belongs to one.
    pub cluster: String,
    /// Its store; `None` until it is formatted.
    pub store: Option<Arc<ChunkStore>>,
    /// The disk that it is on, looked for once: it may hang later.
    pub device: Option<u64>,
    /// Targets of this server on the same disk, itself included: they share its room.
    sharing: AtomicU64,
    /// As in [`TargetRecord`].
    pub added: bool,
    /// The last round in which all of it was verified.
    pub scrub: Mutex<Option<ScrubWord>>,
    /// See [`super::generation`].
    generation: AtomicU64,
}

impl Target {
    fn new(path: PathBuf, uuid: String) -> Target {
        Target {
            device: device(&path),
            path,
            uuid,
            id: TargetId(0),
            cluster: String::new(),
            store: None,
            sharing: AtomicU64::new(1),
            added: false,
            scrub: Mutex::default(),
            generation: AtomicU64::default(),
        }
    }

    /// Looks at the directory of a target. Neither opens nor writes anything. With `new_disks`, one that
    /// should hold a target and does not is a new one.
    pub fn look(path: &Path, node: &Node, new_disks: bool) -> Outcome<Target> {
        let known = node.target_at(path);
        let added = known.is_some_and(|record| record.added);
        let ours = mountpoint::ours();
        if known.is_some_and(|record| record.target != 0) {
            check_no_mount_of_ours(path, false, &ours)?;
        }
        let identity = match RealDisk::new(path) {
            Ok(disk) => Identity::read(&disk).map_err(unread)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(Failure::new(format!("target {}: {e}", path.display()))),
        };
        let path = path.to_owned();
        match (identity, known) {
            (Some(identity), known) => {
                check_known(&path, &identity, known)?;
                check_cluster(&path, &identity, node)?;
                let Identity { cluster, uuid, target } = identity;
                let (id, generation) = (TargetId(target), generation::read(&path)?.into());
                Ok(Target { id, cluster, added, generation, ..Target::new(path, uuid) })
            }
            (None, Some(record)) if record.target != 0 && !new_disks => Err(Failure::new(format!(
                "target {} (number {}) is missing from {}",
                record.uuid,
                record.target,
                path.display()
            ))
            .next(format!(
                "mount its disk there and try again; or leave this directory out{} to go on without it. Is the \
                 disk lost? Start with --new-disks, then: strake target replace {} NEW",
                left_out_by(record),
                record.target
            ))),
            (None, known) => {
                let begun = known.filter(|record| record.target == 0);
                check_begun(&path, begun)?;
                check_empty(&path)?;
                check_outside_targets(&path)?;
                check_no_mount_of_ours(&path, true, &ours)?;
                let uuid = begun.map_or_else(new_uuid, |record| Ok(record.uuid.clone()))?;
                Ok(Target { added, ..Target::new(path, uuid) })
            }
        }
    }

    /// Opens the store, where there is one; see [`open_disk`] for `disk_rate`.
    pub fn open(&mut self, disk_rate: Option<u64>) -> Outcome {
        if self.id.0 == 0 {
            return Ok(());
        }
        let shown = || self.path.display().to_string();
        let disk = open_disk(&self.path, disk_rate).context(shown)?;
        let options =
            ChunkOptions { cluster: Some(self.cluster.clone()), ..ChunkOptions::default() };
        self.store = Some(Arc::new(ChunkStore::open(disk, options).map_err(unread)?));
        Ok(())
    }

    /// Makes the store of a new target, now that the manager has given it a number.
    pub fn format(&mut self, cluster: &str, id: TargetId, disk_rate: Option<u64>) -> Outcome {
        self.id = id;
        if self.store.is_some() {
            return Ok(());
        }
        let shown = || format!("target {}", self.path.display());
        private::make_directory(&self.path).context(shown)?;
        let disk = open_disk(&self.path, disk_rate).context(shown)?;
        let identity =
            Identity { cluster: cluster.to_owned(), uuid: self.uuid.clone(), target: id.0 };
        let options = ChunkOptions { cluster: Some(cluster.to_owned()), ..ChunkOptions::default() };
        ChunkStore::format(&disk, &identity, &options).plain()?;
        self.store = Some(Arc::new(ChunkStore::open(disk, options).plain()?));
        Ok(())
    }

    /// Writes down the generation that it was given, before it serves. A disk without room keeps the one it has.
    pub fn begin_generation(&self, given: u64) -> Outcome {
        if given > 0 && generation::write(&self.path, given)? {
            self.generation.store(given, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The generation that is written on it; 0: none.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// What the target says of itself.
    pub fn spec(&self) -> TargetSpec {
        let stat = match &self.store {
            Some(store) => store.stat(),
            None => {
                let existing = self.path.ancestors().find(|path| path.exists());
                let disk = existing.and_then(|path| rustix::fs::statvfs(path).ok());
                let free_bytes = disk.map_or(0, |disk| disk.f_bavail * disk.f_frsize);
                StoreStat { total_bytes: free_bytes, free_bytes, ..StoreStat::default() }
            }
        };
        let stat = stat.of_one_in(self.sharing());
        TargetSpec {
            target: self.id.0,
            uuid: self.uuid.clone(),
            path: self.path.display().to_string(),
            total_bytes: stat.total_bytes,
            free_bytes: stat.free_bytes,
            poisoned: stat.poisoned.unwrap_or_default(),
            displaced: stat.place as u32,
            scrub: *self.scrub.lock(),
            generation: Some(self.generation()),
            // Said by who asks the disk, and by who serves it.
            silent_ms: None,
            boot: self.store.as_ref().map_or(0, |store| store.boot()),
            hands_over: false,
            uncounted: false,
            unwalked: false,
        }
    }

    /// How many targets of this server share its disk, itself included.
    pub fn sharing(&self) -> u64 {
        self.sharing.load(Ordering::Relaxed)
    }

    /// What is told of its last scrub from now on.
    pub fn note_scrub(&self, word: Option<ScrubWord>) {
        *self.scrub.lock() = word;
    }

    /// As `node.json` keeps it.
    pub fn record(&self) -> TargetRecord {
        let (path, uuid) = (self.path.clone(), self.uuid.clone());
        TargetRecord { path, uuid, target: self.id.0, added: self.added }
    }
}

/// Why a target cannot be used. An error of its disk does not say itself what to do, where nothing is added to it.
fn unread(error: ChunkError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        ChunkError::Io { cause, .. } if !cause.contains("; ") => failure.next(CHECK_DISK),
        _ => failure,
    }
}

/// Opens targets side by side, for each may have to read much: with what came of it, in their order.
pub async fn open_all(
    targets: Vec<Target>,
    disk_rate: Option<u64>,
) -> Outcome<Vec<(Target, Outcome)>> {
    let open = move |mut target: Target| async move {
        let open = move || {
            let opened = target.open(disk_rate);
            (target, opened)
        };
        tokio::task::spawn_blocking(open).await.context(|| "opening the targets".into())
    };
    stream::iter(targets).map(open).buffered(OPENING_MAX).try_collect().await
}

/// The disk of a target; one that lets no more than `disk_rate` bytes per second through, if given.
fn open_disk(path: &Path, disk_rate: Option<u64>) -> std::io::Result<Arc<dyn Disk>> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(path)?);
    Ok(match disk_rate {
        Some(rate) => Arc::new(SlowDisk::new(disk, rate)),
        None => disk,
    })
}

/// Lets targets on the same disk know of each other. Waits for no disk.
pub fn count_sharing(targets: &[impl std::borrow::Borrow<Target>]) {
    let devices: Vec<_> = targets.iter().map(|target| target.borrow().device).collect();
    for (target, own) in targets.iter().zip(&devices) {
        let sharing = devices.iter().filter(|device| *device == own).count().max(1) as u64;
        target.borrow().sharing.store(sharing, Ordering::Relaxed);
    }
}

/// The disk that a directory is on, or will be when it is made.
fn device(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let existing = path.ancestors().find(|path| path.exists())?;
    Some(existing.metadata().ok()?.dev())
}

/// True if two paths name the same directory, as far as they exist.
pub fn same_place(a: &Path, b: &Path) -> bool {
    let full = |path: &Path| path.canonicalize().ok();
    a == b || full(a).is_some_and(|a| Some(a) == full(b))
}

/// Refuses the same directory given twice: as targets they would shut each other out when the cluster knows both already.
pub fn check_distinct(targets: &[PathBuf]) -> Outcome {
    let mut seen = HashSet::new();
    match targets.iter().find(|target| !seen.insert(resolved(target))) {
        Some(target) => {
            let dir = target.parent().unwrap_or(target).display();
            Err(Failure::usage(format!("--data {dir}: this directory is given twice"))
                .next("give each target a directory of its own"))
        }
        None => Ok(()),
    }
}

/// A path without links and dots, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|there| Some((there, there.canonicalize().ok()?)));
    there.map_or_else(
        || path.to_owned(),
        |(there, full)| path.strip_prefix(there).map_or(path.to_owned(), |rest| full.join(rest)),
    )
}

/// Refuses to begin more targets than their disks have room for: it would be known only when most are made, and the
/// cluster counts on all.
pub fn check_room(targets: &[Target]) -> Outcome {
    let new: Vec<_> = targets.iter().filter(|target| target.id.0 == 0).collect();
    for target in &new {
        let count = new.iter().filter(|other| other.device == target.device).count() as u64;
        let (room, free) = (count * ROOM_BYTES_MIN, target.spec().free_bytes * target.sharing());
        if free < room {
            return Err(Failure::new(format!(
                "the disk of {} has {} free, and {} there need {} before they hold anything",
                target.path.display(),
                size::show(free),
                output::count(count, "new target", "new targets"),
                size::show(room)
            ))
            .next("free room there, give directories on other disks, or begin fewer targets"));
        }
    }
    Ok(())
}

/// How a directory is left out that no flag names.
fn left_out_by(record: &TargetRecord) -> String {
    let dir = record.path.parent().filter(|_| record.added);
    dir.map(|dir| format!(" (--without {})", dir.display())).unwrap_or_default()
}

fn check_known(path: &Path, found: &Identity, known: Option<&TargetRecord>) -> Outcome {
    match known {
        Some(record) if record.uuid != found.uuid => Err(Failure::new(format!(
            "{} holds target {}, but target {} belongs there",
            path.display(),
            found.uuid,
            record.uuid
        ))
        .next("are two disks swapped? Mount them where they were")),
        _ => Ok(()),
    }
}

/// A server brings targets of its own cluster. (Whether one that is new to a cluster may bring
/// targets that have a number already is for the manager to say.)
fn check_cluster(path: &Path, found: &Identity, node: &Node) -> Outcome {
    if !node.has_joined() || found.cluster == node.cluster {
        return Ok(());
    }
    Err(Failure::new(format!(
        "target {} belongs to cluster {}, this server to cluster {}",
        path.display(),
        found.cluster,
        node.cluster
    ))
    .next("give a target of this cluster, or an empty directory"))
}

/// Refuses what is left of a target whose making was cut short: it never had a number.
fn check_begun(path: &Path, begun: Option<&TargetRecord>) -> Outcome {
    let has_part = || path.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    match begun.is_some() && has_part() {
        true => Err(Failure::new(format!(
            "{} holds a part of a target, which an earlier start did not finish",
            path.display()
        ))
        .next(format!("rm -r {}, then start again", output::word(&path.display().to_string())))),
        false => Ok(()),
    }
}

/// Refuses a directory that has something in it, or that cannot be made.
pub fn check_empty(path: &Path) -> Outcome {
    match std::fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            Err(Failure::new(format!("{} holds other files and no target", path.display()))
                .next("give an empty directory"))
        }
        Ok(false) => check_writable(path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if parent.exists() => check_writable(parent),
            _ => Ok(()),
        },
        Err(e) => Err(Failure::new(format!("target {}: {e}", path.display()))),
    }
}

/// Refuses to begin a target in the directory of another one, which may be deleted when that has left.
fn check_outside_targets(path: &Path) -> Outcome {
    const NEXT: &str = "give a directory outside of it";
    for dir in resolved(path).ancestors().skip(1) {
        // What is missing holds nothing.
        let Ok(disk) = RealDisk::new(dir) else { continue };
        // One that is damaged, or of a later release, is one, too.
        if let Some(found) = Identity::read(&disk).plain().map_err(|f| f.next(NEXT))? {
            return Err(Failure::new(format!(
                "{} lies in target {} ({})",
                path.display(),
                found.target,
                dir.display()
            ))
            .next(NEXT));
        }
    }
    Ok(())
}

/// Refuses to begin a target, or a server, in a mount of a volume, and warns of what is there: where the volume lies on
/// it, each waits for the other.
pub fn check_no_mount_of_ours(path: &Path, is_new: bool, ours: &[Mount]) -> Outcome {
    let disk = device(path);
    let Some(mount) = ours.iter().find(|mount| Some(mount.device) == disk) else { return Ok(()) };
    let cause = format!("{} lies in a Strake mount ({})", path.display(), mount.path.display());
    if is_new {
        return Err(Failure::new(cause).next(
            "mount the new disk there first, or give a directory on a disk of this machine",
        ));
    }
    tracing::warn!("{cause}: where that volume lies on this server, each waits for the other");
    Ok(())
}

/// Refuses a directory in which nothing can be made.
pub fn check_writable(path: &Path) -> Outcome {
    use rustix::fs::{Access, access};
    access(path, Access::WRITE_OK | Access::EXEC_OK)
        .context(|| format!("{} cannot be written", path.display()))
        .map_err(|f| f.next("make the directory writable (read-only mount? wrong owner?), or choose another directory"))
}

/// A random id of 32 hex digits.
pub fn new_uuid() -> Outcome<String> {
    let mut bytes = [0; 16];
    SystemRandom.fill(&mut bytes).context(|| "random numbers".into())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second target was found in use when the cluster knew both already.
    #[test]
    fn a_directory_that_is_given_twice_is_refused_by_whatever_path() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path).join("target");
        std::fs::create_dir(top.path().join("a")).unwrap();
        std::os::unix::fs::symlink(top.path().join("a"), top.path().join("link")).unwrap();
        check_distinct(&[at("a"), at("b"), at("c/d")]).unwrap();
        for twice in [[at("a"), at("a")], [at("a"), at("link")], [at("link/new"), at("a/new")]] {
            let failure = check_distinct(&twice).unwrap_err();
            assert!(failure.cause.contains("given twice") && failure.next.is_some(), "{failure}");
        }
    }

    /// What the system had said was all that it said.
    #[test]
    fn a_target_whose_disk_does_not_read_it_is_told_with_what_to_do() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("identity")).unwrap();
        let failure = Target::look(top.path(), &Node::default(), false).err().unwrap();
        let next = failure.next.as_deref().unwrap_or_default();
        assert!(
            next.contains("strake target replace") && next.starts_with("check its disk"),
            "{failure}"
        );
        let cause = "no room; make some and start again".to_owned();
        assert_eq!(unread(ChunkError::Io { target: "/t".into(), cause }).next, None);
    }

    /// `--data DIR/target` began a second one in the first one's own directory.
    #[test]
    fn no_target_is_begun_inside_of_another_one() {
        let top = tempfile::tempdir().unwrap();
        let outer = top.path().join("a/target");
        std::fs::create_dir_all(&outer).unwrap();
        let identity = Identity { cluster: "ab".repeat(16), uuid: "cd".repeat(16), target: 7 };
        identity.write(&RealDisk::new(&outer).unwrap()).unwrap();
        std::os::unix::fs::symlink(&outer, top.path().join("link")).unwrap();
        let look =
            |dir: &str| Target::look(&top.path().join(dir).join("target"), &Node::default(), false);
        for dir in ["a/target", "a/target/deep/er", "link"] {
            let failure = look(dir).err().unwrap();
            assert!(failure.cause.contains("lies in target 7 ("), "{failure}");
            assert!(failure.next.is_some());
        }
        assert_eq!(look("a/other").unwrap().id.0, 0);
        // It passed for none.
        std::fs::write(outer.join("identity"), "damaged").unwrap();
        let failure = look("a/target").err().unwrap();
        assert!(failure.cause.contains("identity") && failure.next.is_some(), "{failure}");
    }

    /// Where one is there already it was opened without a word.
    #[test]
    fn no_target_is_begun_in_a_strake_mount() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("new/target");
        let own = device(&path).unwrap();
        let mount = |device| Mount {
            path: "/mnt/s".into(),
            root: "/".into(),
            kind: "fuse.strake".into(),
            source: "host:/main".into(),
            device,
            user: None,
        };
        let check = |is_new, devices: &[u64]| {
            let ours: Vec<_> = devices.iter().copied().map(mount).collect();
            check_no_mount_of_ours(&path, is_new, &ours)
        };
        check(true, &[own + 1]).unwrap();
        check(false, &[own + 1, own]).unwrap();
        let failure = check(true, &[own + 1, own]).unwrap_err();
        assert!(failure.cause.contains("lies in a Strake mount (/mnt/s)"), "{failure}");
        assert!(failure.next.is_some());
    }

    /// With each target that came or went all others were looked for, of which one may lie on a disk that hangs.
    #[test]
    fn the_disk_of_a_target_is_not_looked_for_again() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        std::fs::create_dir(at("disk")).unwrap();
        std::os::unix::fs::symlink(at("disk"), at("link")).unwrap();
        let look = |name| Target::look(&at(name).join("target"), &Node::default(), false).unwrap();
        let targets = [look("disk"), look("link")];
        std::fs::remove_file(at("link")).unwrap();
        std::os::unix::fs::symlink("/proc", at("link")).unwrap();
        count_sharing(&targets);
        assert!(targets.iter().all(|target| target.sharing() == 2));
    }

    /// The manager went by the kernel's boot: of a file system that was mounted anew it counted no loss.
    #[test]
    fn a_target_says_its_own_boot_as_soon_as_it_is_made() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("target");
        let mut target = Target::look(&path, &Node::default(), false).unwrap();
        assert_eq!(target.spec().boot, 0);
        target.format(&"ab".repeat(16), TargetId(1), None).unwrap();
        let own = target.store.as_ref().unwrap().boot();
        assert!(own != 0 && target.spec().boot == own);
    }

    /// It was called a directory with other files, for which there was no way on.
    #[test]
    fn what_is_left_of_a_target_that_was_not_finished_is_said_with_the_way_on() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("target");
        let record = TargetRecord { path: path.clone(), uuid: "ab".into(), ..Default::default() };
        let node = Node { targets: vec![record], ..Node::default() };
        assert_eq!(Target::look(&path, &node, false).unwrap().uuid, "ab");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("log"), "half").unwrap();
        let failure = Target::look(&path, &node, false).err().unwrap();
        assert!(failure.next.is_some_and(|next| next.contains("rm -r ")));
        let failure = Target::look(&path, &Node::default(), false).err().unwrap();
        assert!(failure.cause.contains("holds other files"), "{failure}");
    }

    /// One was opened after the other: hours for each after a crash, while none of the server's served.
    #[tokio::test]
    async fn targets_are_opened_side_by_side() {
        let top = tempfile::tempdir().unwrap();
        let (mut locks, mut targets) = (Vec::new(), Vec::new());
        for target in 1..=8 {
            let path = top.path().join(target.to_string());
            std::fs::create_dir(&path).unwrap();
            let disk = RealDisk::new(&path).unwrap();
            let (cluster, uuid) = ("ab".repeat(16), format!("{target:032x}"));
            Identity { cluster, uuid, target }.write(&disk).unwrap();
            // It is waited for for two seconds.
            locks.push(disk.lock().unwrap());
            targets.push(Target::look(&path, &Node::default(), false).unwrap());
        }
        let began = std::time::Instant::now();
        let opened = open_all(targets, None).await.unwrap();
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
        assert!(opened.iter().all(|(_, opened)| opened.is_err()), "they are in use");
        assert!(opened.iter().map(|(target, _)| target.id.0).eq(1..=8));
    }
}
