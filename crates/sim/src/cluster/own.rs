//! The workload on directories that clients have for themselves, each its own, and in which they write names behind
//! (docs/design/0053-names-behind.md): files are removed and moved there, and directories made and removed, and now and then
//! another client looks at once what has become of one.
//!
//! He may find it as it was before, if its client is cut off. Then it is not changed later either, and `fsync` of the
//! directory fails.

use super::files::consider;
use super::mount::Mount;
use super::places::cred;
use super::plan::Plan;
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{NewFile, RenameFlags};
use strake_types::{ErrorKind, FileKind, Ino, Result};

/// Seeds with such a workload, of a hundred of those that may have it.
const SEEDS: u64 = 60;
/// Files of one round.
const FILES: u64 = 6;
/// How long nobody looks before they are changed: only then the directory is leased exclusively.
const ALONE: Duration = Duration::from_millis(2_500);
/// Longest pause between two changes: what is not used for a second is given back.
const PAUSE_MS: u64 = 500;
/// How often a directory is made before a change, and removed with it, in percent.
const EMPTY: u64 = 30;
/// How often another client looks after a change, in percent. With that the round is over.
const LOOKS: u64 = 25;
/// Longest pause after something has failed.
const AGAIN_MS: u64 = 1_000;
/// Entries asked for at once.
const ENTRIES: u32 = 1_000;
/// How often names are found in a directory that was just emptied.
const LATE_MAX: usize = 10;

/// A client that others may look through, and who does.
type Looker = (Arc<Mount>, Arc<()>);

/// The directories.
pub struct Own {
    world: Arc<World>,
    any: bool,
    /// Their names in the root, also of those that may not have been made.
    directories: Mutex<Vec<Bytes>>,
    mounts: Mutex<BTreeMap<u32, Looker>>,
    /// The number of the last directory or file.
    last: AtomicU64,
}

impl Own {
    /// Some, where they may be leased exclusively, and what was told does not go with the power of the machine that keeps names.
    pub fn new(world: &Arc<World>, plan: &Plan) -> Arc<Self> {
        let behind = plan.metas == 1 && plan.volume.sync_always != Some(true);
        let stays = plan.head_loses() != Some(true);
        let any = behind && stays && world.stream(0x9015).percent(SEEDS);
        let (directories, mounts, last) = Default::default();
        Arc::new(Self { world: world.clone(), any, directories, mounts, last })
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Changes names until the workload ends.
    pub async fn work_on(
        &self,
        mount: &Arc<Mount>,
        mut random: SplitMix64,
        is_over: impl Fn() -> bool,
    ) {
        if !self.any {
            return;
        }
        let others = Arc::new(());
        self.mounts.lock().insert(mount.number, (mount.clone(), others.clone()));
        while !is_over() {
            let failed = self.use_one(mount, &mut random, &is_over).await.err();
            let kind = failed.map(|error| error.kind);
            // What was sent twice may find itself.
            let again = |kind: &ErrorKind| kind.is_gone() || *kind == ErrorKind::Exists;
            consider(&self.world, kind.filter(|kind| !again(kind)));
            tokio::time::sleep(Duration::from_millis(random.below(AGAIN_MS))).await;
        }
        self.mounts.lock().remove(&mount.number);
        // Who is just looking through it is not to find it closed.
        while Arc::strong_count(&others) > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Uses a directory until something fails: nobody knows then what is there.
    async fn use_one(
        &self,
        mount: &Mount,
        random: &mut SplitMix64,
        is_over: &impl Fn() -> bool,
    ) -> Result<()> {
        let name = Bytes::from(format!("own-{}", self.next()));
        self.directories.lock().push(name.clone());
        let (cred, new) = (cred(), NewFile::directory(0o755, 0));
        let made = mount.volume.make(&cred, Ino::ROOT, name, new);
        let directory = mount.call("mkdir for itself", made).await?.ino;
        while !is_over() {
            self.round(mount, directory, random).await?;
        }
        Ok(())
    }

    async fn round(&self, mount: &Mount, directory: Ino, random: &mut SplitMix64) -> Result<()> {
        let mut files = Vec::new();
        for _ in 0..FILES {
            files.push(self.make_file(mount, directory).await?);
        }
        tokio::time::sleep(ALONE).await;
        // By now nobody else is there, nor believes anything of it.
        files.push(self.make_file(mount, directory).await?);
        for file in files {
            let mut changed = change(mount, directory, file, random.percent(50)).await?;
            if random.percent(EMPTY) {
                changed = self.make_and_remove(mount, directory, random).await?;
            }
            if random.percent(LOOKS) {
                return self.look(mount, directory, changed, random).await;
            }
            tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MS))).await;
        }
        Ok(())
    }

    async fn make_file(&self, mount: &Mount, directory: Ino) -> Result<u64> {
        let (file, new) = (self.next(), NewFile::node(FileKind::File, 0o644, 0, 0));
        let cred = cred();
        let made = mount.volume.make(&cred, directory, old_name(file), new);
        mount.call("make a file for itself", made).await?;
        Ok(file)
    }

    /// A directory is removed in which nothing was ever done.
    async fn make_and_remove(
        &self,
        mount: &Mount,
        directory: Ino,
        random: &mut SplitMix64,
    ) -> Result<Changed> {
        let (cred, volume) = (cred(), &mount.volume);
        let name = Bytes::from(format!("d{}", self.next()));
        let made = volume.make(&cred, directory, name.clone(), NewFile::directory(0o755, 0));
        mount.call("mkdir in its own", made).await?;
        tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MS))).await;
        mount.call("rmdir in its own", volume.rmdir(&cred, directory, name.clone())).await?;
        Ok(Changed { old: name, new: None })
    }

    /// Another client looks what has become of what was just removed, or moved.
    async fn look(
        &self,
        mount: &Mount,
        directory: Ino,
        changed: Changed,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let name = changed.old.clone();
        let Some((other, looks)) = self.other(mount, random) else { return Ok(()) };
        let (process, number) = (other.process.clone(), other.number);
        let looking = process.spawn(async move {
            let _looks = looks;
            is_before(&other, directory, changed).await
        });
        // It may have died, or be told nothing.
        if !matches!(looking.await, Ok(Ok(true))) {
            return Ok(());
        }
        let synced = mount.volume.fsync_dir(directory);
        mount.call("fsync its directory", synced).await?;
        let who = mount.number;
        self.world.fail(format!(
            "client {number} has found {name:?} as it was before client {who} was told that it is changed, which was done then"
        ));
        Ok(())
    }

    fn other(&self, mount: &Mount, random: &mut SplitMix64) -> Option<Looker> {
        let mounts = self.mounts.lock();
        let alive = |other: &&Looker| other.0.number != mount.number && !other.0.process.is_dead();
        let others: Vec<&Looker> = mounts.values().filter(alive).collect();
        match others.len() as u64 {
            0 => None,
            count => Some(others[random.below(count) as usize].clone()),
        }
    }

    /// Removes all of them. What a client asked for before it died may still be carried out meanwhile.
    pub async fn end(&self, mount: &Mount) -> Result<()> {
        let names = std::mem::take(&mut *self.directories.lock());
        let cred = cred();
        for name in names {
            let found = mount.volume.lookup(&cred, Ino::ROOT, name.clone());
            let directory = match mount.call("look up what was a client's own", found).await {
                Err(error) if error.kind == ErrorKind::NotFound => continue,
                found => found?.ino,
            };
            let mut removed = self.remove(mount, directory, &name).await;
            for _ in 0..LATE_MAX {
                if !removed.as_ref().is_err_and(|error| error.kind == ErrorKind::NotEmpty) {
                    break;
                }
                removed = self.remove(mount, directory, &name).await;
            }
            removed?;
        }
        Ok(())
    }

    async fn remove(&self, mount: &Mount, directory: Ino, name: &Bytes) -> Result<()> {
        let (cred, volume) = (cred(), &mount.volume);
        let page = volume.readdir(&cred, directory, 0, ENTRIES, false);
        for entry in mount.call("list what was a client's own", page).await?.entries {
            let is_dir = entry.kind == FileKind::Directory;
            let removed = async {
                match is_dir {
                    true => volume.rmdir(&cred, directory, entry.name).await.map(drop),
                    false => volume.unlink(&cred, directory, entry.name).await.map(drop),
                }
            };
            match mount.call("remove what was in a client's own", removed).await {
                Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let removed = volume.rmdir(&cred, Ino::ROOT, name.clone());
        mount.call("rmdir of what was a client's own", removed).await.map(drop)
    }
}

fn old_name(file: u64) -> Bytes {
    format!("f{file}").into()
}

fn new_name(file: u64) -> Bytes {
    format!("g{file}").into()
}

/// A name that is gone, and what it is called now, if it was moved.
struct Changed {
    old: Bytes,
    new: Option<Bytes>,
}

async fn change(mount: &Mount, directory: Ino, file: u64, moved: bool) -> Result<Changed> {
    let (cred, volume) = (cred(), &mount.volume);
    let (old, new) = (old_name(file), new_name(file));
    if !moved {
        let removed = volume.unlink(&cred, directory, old.clone());
        mount.call("remove its file", removed).await?;
        return Ok(Changed { old, new: None });
    }
    let flags = RenameFlags::default();
    let renamed = volume.rename(&cred, directory, old.clone(), directory, new.clone(), flags);
    mount.call("move its file", renamed).await?;
    Ok(Changed { old, new: Some(new) })
}

/// True if a client finds what it was before it was removed, or moved.
async fn is_before(mount: &Mount, directory: Ino, changed: Changed) -> Result<bool> {
    if is_there(mount, directory, changed.old).await? {
        return Ok(true);
    }
    match changed.new {
        Some(new) => is_there(mount, directory, new).await.map(|is_there| !is_there),
        None => Ok(false),
    }
}

async fn is_there(mount: &Mount, directory: Ino, name: Bytes) -> Result<bool> {
    let cred = cred();
    let found = mount.volume.lookup(&cred, directory, name);
    match mount.call("look at a file of another client", found).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
