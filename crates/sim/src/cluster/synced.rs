//! The workload on what a loss of power of the head may not take: small files, of which each client makes, fills, renames and
//! removes its own, and mostly syncs what it has done. When all is over what was synced is as it was (S-002), in a
//! `sync_always` volume also what was only answered (S-003), and of the rest each file is as it was before or after a change.
//!
//! Nobody else knows of these files, so nobody can have seen what goes with the power; and each name and all contents are used
//! once, so nothing that is done later hides a loss. An `fsync` says nothing of what was done before a loss of
//! power that came before it (S-008).

use super::files::consider;
use super::mount::Mount;
use super::places::cred;
use super::plan::{Plan, Trouble};
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::count_case;
use strake_base::random::SplitMix64;
use strake_client::{NewFile, OpenFile, OpenFlags, RenameFlags};
use strake_types::{Error, ErrorKind, Ino, Result};
use tokio::sync::Notify;

/// Name of the directory of these files.
const NAME: &str = "synced";
/// Longest contents: less than a block, so that they are old or new.
const BYTES_MAX: u64 = 3_000;
/// Most files that one life of a client has at once.
const OWN_MAX: usize = 12;
/// Most files of all clients, with those that are removed.
const ALL_MAX: usize = 300;
/// Contents that are synced, of a hundred.
const SYNCED: u64 = 60;
/// Changes of names that are, of a hundred.
const NAMES_SYNCED: u64 = 40;
/// How often a file is looked at that is not as it should be: what was asked for by who died may be under way.
const LOOKS: u32 = 4;
/// Between two looks.
const LOOK: Duration = Duration::from_secs(3);
/// Entries asked for at once.
const ENTRIES: u32 = 100;
/// How often names are found in the directory when it was just emptied.
const LATE_MAX: u32 = 10;

/// A file, and what may be true of it.
#[derive(Debug)]
struct Item {
    /// Names that it may have, by their numbers; `None`: it is not there. The last one is what its client knows.
    names: Vec<Option<u64>>,
    /// All names that it has ever had or was to have.
    ever: Vec<u64>,
    /// Contents that it may have; 0: none. The last is what its client has written.
    fills: Vec<u64>,
    /// Bytes of its contents.
    len: usize,
    /// Something that is done to it is under way, or has failed: it is left alone.
    unsure: bool,
}

impl Item {
    /// A file that is about to be made.
    fn new(name: u64, len: usize) -> Self {
        let (names, ever, fills) = (vec![None, Some(name)], vec![name], vec![0, name]);
        Self { names, ever, fills, len, unsure: true }
    }

    /// True if its client may go on with it.
    fn is_usable(&self) -> bool {
        !self.unsure && self.name().is_some()
    }

    fn name(&self) -> Option<u64> {
        self.names.last().copied().flatten()
    }

    /// It is about to get another name, or to be removed. The name that it has.
    fn begin_rename(&mut self, to: Option<u64>) -> Option<u64> {
        let name = self.name();
        self.unsure = true;
        self.names.push(to);
        self.ever.extend(to);
        name
    }

    /// It is about to get other contents. The name that it has.
    fn begin_fill(&mut self, fill: u64) -> Option<u64> {
        self.unsure = true;
        self.fills.push(fill);
        self.name()
    }

    /// The last change of its name stays.
    fn keep_name(&mut self) {
        self.names.drain(..self.names.len().saturating_sub(1));
    }

    /// What was written last stays.
    fn keep_fill(&mut self) {
        self.fills.drain(..self.fills.len().saturating_sub(1));
    }

    /// It stays, by one of its names (what else a sync of a directory says of them, that of a file does not).
    fn keep(&mut self) {
        self.names.retain(Option::is_some);
    }

    /// It stays, and what was written last.
    fn keep_all(&mut self) {
        self.keep();
        self.keep_fill();
    }

    /// What its client has written last.
    fn data(&self) -> Bytes {
        bytes_of(self.fills.last().copied().unwrap_or(0), self.len)
    }

    /// Whether the file may be found so: by these names, with these contents if it was.
    fn judge(&self, found: &[u64], contents: &[u8]) -> std::result::Result<(), String> {
        let names = &self.names;
        let fits = match found {
            [] => names.contains(&None),
            [name] => names.contains(&Some(*name)),
            _ => false,
        };
        if !fits {
            return Err(format!("a file is found by {found:?} where {names:?} may be"));
        }
        let is_empty = contents.iter().all(|byte| *byte == 0);
        let is_of = |fill: &u64| match *fill {
            0 => is_empty,
            fill => *contents == *bytes_of(fill, self.len),
        };
        if found.is_empty() || self.fills.iter().any(is_of) {
            return Ok(());
        }
        let (fills, begin) = (&self.fills, &contents[..contents.len().min(8)]);
        let len = contents.len();
        Err(format!("file {found:?} has {len} bytes, first {begin:?}, where {fills:?} may be"))
    }
}

/// Contents by their number.
fn bytes_of(fill: u64, len: usize) -> Bytes {
    fill.to_le_bytes().into_iter().cycle().take(len).collect::<Vec<_>>().into()
}

fn name_of(number: u64) -> Bytes {
    format!("s{number}").into()
}

/// The files, and what is known of them.
pub struct Synced {
    world: Arc<World>,
    /// There are such files.
    any: bool,
    /// What is answered is on disk (`sync_always`).
    always: bool,
    /// Contents lie inside inodes.
    inline: bool,
    directory: Mutex<Ino>,
    items: Mutex<Vec<Item>>,
    /// The last name, or contents, that was used.
    last: AtomicU64,
    /// How often the head has lost what was not synced.
    losses: AtomicU64,
    /// Told whenever a client was told of something that stays.
    kept: Notify,
    /// Told whenever a client was told that a file is removed, which may not be on disk.
    removed: Notify,
    /// Longest pause of a client between two changes.
    pause_ms: u64,
}

impl Synced {
    /// The files of a plan.
    pub fn new(world: &Arc<World>, plan: &Plan) -> Arc<Self> {
        let inline = plan.volume.inline_bytes_max.is_some_and(|most| u64::from(most) >= BYTES_MAX);
        let (directory, items, last, losses, kept, removed) = Default::default();
        Arc::new(Self {
            world: world.clone(),
            any: plan.troubles.contains(&Trouble::HeadPower),
            always: plan.volume.sync_always == Some(true),
            inline,
            directory,
            items,
            last,
            losses,
            kept,
            removed,
            pause_ms: plan.pause_ms,
        })
    }

    /// The head has lost power, and with it what its journal had not synced.
    pub fn journal_lost(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until a client was told of something that stays; `removed`: that a file is removed, if that may not stay.
    pub async fn answered(&self, removed: bool) {
        match removed && !self.always {
            true => self.removed.notified().await,
            false => self.kept.notified().await,
        }
    }

    /// Makes their directory.
    pub async fn make(&self, mount: &Mount) -> Result<()> {
        if !self.any {
            return Ok(());
        }
        let (cred, new) = (cred(), NewFile::directory(0o755, 0));
        let made = mount.volume.make(&cred, Ino::ROOT, NAME.into(), new);
        *self.directory.lock() = mount.call("mkdir for what is synced", made).await?.ino;
        mount.call("fsync the root", mount.volume.fsync_dir(Ino::ROOT)).await
    }

    /// Changes files until the workload ends.
    pub async fn work_on(&self, mount: &Mount, mut random: SplitMix64, is_over: impl Fn() -> bool) {
        let mut own = Vec::new();
        while self.any && !is_over() {
            let failed = self.use_once(mount, &mut own, &mut random).await.err();
            // What was not synced may have gone.
            let kind = failed.map(|error| error.kind);
            consider(&self.world, kind.filter(|kind| !kind.is_gone()));
            tokio::time::sleep(Duration::from_millis(random.below(self.pause_ms))).await;
        }
    }

    async fn use_once(
        &self,
        mount: &Mount,
        own: &mut Vec<usize>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        own.retain(|&at| self.items.lock()[at].is_usable());
        let (sync, sync_name) = (random.percent(SYNCED), random.percent(NAMES_SYNCED));
        let may_make = own.len() < OWN_MAX && self.items.lock().len() < ALL_MAX;
        if may_make && (own.is_empty() || random.percent(40)) {
            let len = 1 + random.below(BYTES_MAX) as usize;
            own.push(self.make_one(mount, len, sync).await?);
            return Ok(());
        }
        if own.is_empty() {
            return Ok(());
        }
        let at = own[random.below(own.len() as u64) as usize];
        match random.below(4) {
            0 => self.rewrite(mount, at, sync).await,
            1 => self.rename(mount, at, None, sync_name).await,
            _ => self.rename(mount, at, Some(self.next()), sync_name).await,
        }
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    fn change<T>(&self, at: usize, change: impl FnOnce(&mut Item) -> T) -> T {
        change(&mut self.items.lock()[at])
    }

    /// A client was told of something since that was done after so many losses; `stays`: it is on disk.
    fn told(&self, at: usize, losses: u64, stays: bool, keep: fn(&mut Item)) {
        if stays && losses == self.losses() {
            self.change(at, keep);
            self.kept.notify_waiters();
        }
    }

    async fn make_one(&self, mount: &Mount, len: usize, sync: bool) -> Result<usize> {
        let (name, losses, directory) = (self.next(), self.losses(), *self.directory.lock());
        let at = {
            let mut items = self.items.lock();
            items.push(Item::new(name, len));
            items.len() - 1
        };
        let (cred, flags) = (cred(), OpenFlags::READ_WRITE);
        let made = mount.volume.create(&cred, directory, name_of(name), 0o644, 0, flags);
        let (_, open, _) = mount.call(&format!("make s{name}"), made).await?;
        self.told(at, losses, self.always, Item::keep);
        // Nobody would find chunks of an inode that goes with the power (S-053). If it has gone before this, it is not synced.
        let kept = match self.inline {
            true => Ok(()),
            false => self.sync(mount, at, &open, losses, Item::keep).await,
        };
        self.fill(mount, at, &open, kept.map(|()| sync)).await?;
        Ok(at)
    }

    async fn rewrite(&self, mount: &Mount, at: usize, sync: bool) -> Result<()> {
        let (fill, directory, cred) = (self.next(), *self.directory.lock(), cred());
        let Some(name) = self.change(at, |item| item.begin_fill(fill)) else { return Ok(()) };
        let found = mount.volume.lookup(&cred, directory, name_of(name));
        let ino = mount.call(&format!("lookup s{name}"), found).await?.ino;
        let open = mount.volume.open(&cred, ino, OpenFlags::READ_WRITE);
        let open = mount.call(&format!("open s{name}"), open).await?;
        self.fill(mount, at, &open, Ok(sync)).await
    }

    /// Gives a file that is open its last contents, if all went well so far, and closes it.
    async fn fill(
        &self,
        mount: &Mount,
        at: usize,
        open: &Arc<OpenFile>,
        sync: Result<bool>,
    ) -> Result<()> {
        let filling = async {
            let written = match sync {
                Ok(sync) => self.write(mount, at, open, sync).await,
                Err(error) => Err(error),
            };
            let released = mount.call("close it", mount.volume.release(open)).await;
            written.and(released)
        };
        self.world.lengthening(mount.number, open.ino(), filling).await?;
        self.change(at, |item| item.unsure = false);
        Ok(())
    }

    async fn write(
        &self,
        mount: &Mount,
        at: usize,
        open: &Arc<OpenFile>,
        sync: bool,
    ) -> Result<()> {
        let (data, losses) = (self.change(at, |item| item.data()), self.losses());
        mount.call("write it", mount.volume.write(open, 0, data)).await?;
        if sync {
            self.sync(mount, at, open, losses, Item::keep_all).await?;
        }
        mount.call("flush it", mount.volume.flush(open)).await?;
        // It moves out of the inode while somebody may have the file open who was killed.
        self.told(at, losses, self.always && open.attr().inline, Item::keep_fill);
        Ok(())
    }

    async fn sync(
        &self,
        mount: &Mount,
        at: usize,
        open: &Arc<OpenFile>,
        losses: u64,
        keep: fn(&mut Item),
    ) -> Result<()> {
        mount.call("fsync it", mount.volume.fsync(open, false)).await?;
        self.told(at, losses, true, keep);
        Ok(())
    }

    /// Gives a file another name, or removes it.
    async fn rename(&self, mount: &Mount, at: usize, to: Option<u64>, sync: bool) -> Result<()> {
        let (losses, directory) = (self.losses(), *self.directory.lock());
        let Some(from) = self.change(at, |item| item.begin_rename(to)) else { return Ok(()) };
        let (cred, name, volume) = (cred(), name_of(from), &mount.volume);
        match to {
            Some(to) => {
                let (new, flags) = (name_of(to), RenameFlags::default());
                let renamed = volume.rename(&cred, directory, name, directory, new, flags);
                mount.call(&format!("rename s{from} to s{to}"), renamed).await?;
            }
            None => {
                let removed = volume.unlink(&cred, directory, name);
                mount.call(&format!("unlink s{from}"), removed).await?;
                self.removed.notify_waiters();
            }
        }
        self.told(at, losses, self.always, Item::keep_name);
        if sync {
            mount.call("fsync their directory", volume.fsync_dir(directory)).await?;
            self.told(at, losses, true, Item::keep_name);
        }
        self.change(at, |item| item.unsure = false);
        Ok(())
    }

    /// Looks at all files.
    pub async fn look_at_all(&self, mount: &Mount) -> Result<()> {
        let count = self.items.lock().len();
        for at in 0..count {
            self.look_until_right(mount, at).await?;
        }
        Ok(())
    }

    /// Removes all that is left.
    pub async fn end(&self, mount: &Mount) -> Result<()> {
        if !self.any {
            return Ok(());
        }
        let mut removed = self.remove(mount).await;
        for _ in 0..LATE_MAX {
            if !removed.as_ref().is_err_and(|error| error.kind == ErrorKind::NotEmpty) {
                break;
            }
            removed = self.remove(mount).await;
        }
        removed
    }

    async fn look_until_right(&self, mount: &Mount, at: usize) -> Result<()> {
        let mut wrong = String::new();
        for look in 0..LOOKS {
            if look > 0 {
                tokio::time::sleep(LOOK).await;
            }
            let (found, contents) = self.look(mount, at).await?;
            match self.change(at, |item| item.judge(&found, &contents)) {
                Ok(()) => {
                    self.count(at);
                    return Ok(());
                }
                Err(what) => wrong = what,
            }
        }
        self.world.fail(format!("synced: {wrong}"));
        Ok(())
    }

    /// Of what may be everything nothing is shown.
    fn count(&self, at: usize) {
        if self.change(at, |item| item.names.len() > 1) {
            return;
        }
        count_case(match self.always {
            true => "answered-name-judged",
            false => "synced-name-judged",
        });
    }

    /// The names by which a file is found, and what it holds.
    async fn look(&self, mount: &Mount, at: usize) -> Result<(Vec<u64>, Bytes)> {
        let (mut found, mut contents) = (Vec::new(), Bytes::new());
        let (ever, len) = self.change(at, |item| (item.ever.clone(), item.len));
        let (cred, directory, volume) = (cred(), *self.directory.lock(), &mount.volume);
        for name in ever {
            let looked = volume.lookup(&cred, directory, name_of(name));
            match mount.call(&format!("lookup s{name}"), looked).await {
                Ok(attr) => {
                    found.push(name);
                    match read(mount, attr.ino, len).await {
                        Ok(bytes) => contents = bytes,
                        Err(error) => is_gone(error)?,
                    }
                }
                Err(error) => is_gone(error)?,
            }
        }
        Ok((found, contents))
    }

    /// Removes the directory with all that is in it.
    async fn remove(&self, mount: &Mount) -> Result<()> {
        let (cred, directory, volume) = (cred(), *self.directory.lock(), &mount.volume);
        let page = volume.readdir(&cred, directory, 0, ENTRIES, false);
        for entry in mount.call("list what is synced", page).await?.entries {
            let unlink = volume.unlink(&cred, directory, entry.name);
            if let Err(error) = mount.call("unlink what was synced", unlink).await {
                is_gone(error)?;
            }
        }
        let removed = volume.rmdir(&cred, Ino::ROOT, NAME.into());
        mount.call("rmdir of what is synced", removed).await.map(drop)
    }
}

/// What a file holds; one byte more is asked for than should be there.
async fn read(mount: &Mount, ino: Ino, len: usize) -> Result<Bytes> {
    let cred = cred();
    let open = mount.volume.open(&cred, ino, OpenFlags::READ);
    let open = mount.call("open it", open).await?;
    let read = mount.call("read it", mount.volume.read(&open, 0, len as u32 + 1)).await;
    mount.call("close it", mount.volume.release(&open)).await?;
    Ok(read?.into_bytes())
}

/// Something may be missing; any other error is one.
fn is_gone(error: Error) -> Result<()> {
    match error.kind.is_gone() {
        true => Ok(()),
        false => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_there_and_of_the_rest_any_state_that_it_had() {
        let mut item = Item::new(1, 20);
        assert_eq!(item.judge(&[], &[]), Ok(()), "nothing was synced");
        assert_eq!(item.judge(&[1], &[]), Ok(()));
        assert_eq!(item.judge(&[1], &bytes_of(1, 20)), Ok(()));
        assert!(item.judge(&[1], &bytes_of(2, 20)).unwrap_err().contains("20 bytes"));
        item.keep_all();
        assert!(item.judge(&[], &[]).is_err(), "it was synced");
        assert!(item.judge(&[1], &[]).is_err(), "so were its contents");
        assert_eq!(item.begin_rename(Some(2)), Some(1));
        for name in [1, 2] {
            assert_eq!(item.judge(&[name], &bytes_of(1, 20)), Ok(()));
        }
        assert!(item.judge(&[1, 2], &bytes_of(1, 20)).is_err(), "it has one name");
        item.keep_name();
        assert!(item.judge(&[1], &bytes_of(1, 20)).is_err());
    }

    #[test]
    fn a_file_that_was_removed_may_come_back_whole_until_that_is_kept() {
        let mut item = Item::new(1, 20);
        item.keep_all();
        assert_eq!(item.begin_rename(None), Some(1));
        assert_eq!(item.judge(&[], &[]), Ok(()));
        assert_eq!(item.judge(&[1], &bytes_of(1, 20)), Ok(()));
        assert!(item.judge(&[1], &[0; 20]).is_err(), "its chunks are gone");
        item.keep_name();
        assert!(item.judge(&[1], &bytes_of(1, 20)).is_err() && !item.is_usable());
    }
}
