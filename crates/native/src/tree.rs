//! Looking at trees and taking them away.

use crate::clients::{Clients, Spot};
use crate::contents::{Contents, Pool};
use crate::failures::Failures;
use crate::info::Info;
use crate::location::{Location, RemotePath};
use crate::place::{Directory, Listing, Name};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, FuturesUnordered};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use strake_client::VolumeSpace;
use strake_types::{Error, ErrorKind, FileKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Directories listed, or names removed, at once.
const WIDTH: usize = 32;
/// What `cat` asks for at once, and how many such blocks it has under way.
const CAT_BLOCK_BYTES: usize = 4 << 20;
const CAT_BLOCKS: usize = 4;

/// A thing found by a walk.
#[derive(Clone)]
pub struct Found {
    /// Where it is.
    pub name: Name,
    /// What it is.
    pub info: Info,
    /// Path from the start of the walk, without a leading slash; empty for the start itself.
    pub path: Vec<u8>,
}

/// The entries of a directory by name, those that begin with a dot only if `hidden` ones are wanted; or the only entry where it is not a
/// directory.
pub async fn list(clients: &Clients, location: &Location, hidden: bool) -> Result<Vec<Found>> {
    let (spot, info) = clients.existing(location).await?;
    if info.kind != FileKind::Directory {
        return Ok(vec![Found { path: spot.base.to_vec(), name: spot.name, info }]);
    }
    let entries = listed(&spot.name).await?.whole()?;
    let found = |(name, info): (Name, Info)| Found { path: name.name.to_vec(), name, info };
    let mut entries: Vec<_> = entries.into_iter().map(found).collect();
    entries.retain(|entry| hidden || !entry.path.starts_with(b"."));
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// Visits everything below a path and the thing itself, a directory before what is in it; several
/// directories are listed at once. The failures are of those that cannot be looked at or listed, after what
/// has ended the walk before its end, if anything has; what is gone by then is none.
pub async fn walk(
    clients: &Clients,
    location: &Location,
    mut visit: impl FnMut(&Found),
) -> Result<Failures> {
    let (spot, info) = clients.existing(location).await?;
    let start = Found { name: spot.name, info, path: Vec::new() };
    Ok(walk_from(start, &mut visit).await)
}

async fn walk_from(start: Found, visit: &mut impl FnMut(&Found)) -> Failures {
    visit(&start);
    let mut left = vec![start];
    let (mut listing, mut failures) = (FuturesOrdered::new(), Failures::default());
    loop {
        while listing.len() < WIDTH {
            let Some(next) = left.pop() else { break };
            if next.info.kind == FileKind::Directory {
                listing.push_back(entries_of(next));
            }
        }
        match listing.next().await {
            Some(Ok((entries, failed))) => {
                // One entry's, whatever its kind: the others could be looked at.
                failed.into_iter().for_each(|error| failures.push(error));
                entries.iter().for_each(&mut *visit);
                left.extend(entries);
            }
            Some(Err(error)) => {
                if let Err(error) = failures.note(error) {
                    failures.ended_by(error);
                    return failures;
                }
            }
            None => return failures,
        }
    }
}

/// What is in a directory, and why the others cannot be looked at.
async fn entries_of(directory: Found) -> Result<(Vec<Found>, Vec<Error>)> {
    let Listing { entries, failed } = match listed(&directory.name).await {
        Ok(listing) => listing,
        Err(error) => {
            let may_be_gone = error.kind.is_gone() && !directory.path.is_empty();
            // Removed meanwhile, and nobody has named it.
            if may_be_gone && matches!(directory.name.info().await, Ok(None)) {
                return Ok((Vec::new(), Vec::new()));
            }
            return Err(error);
        }
    };
    let found = |(name, info): (Name, Info)| {
        let mut path = directory.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name.name);
        Found { name, info, path }
    };
    Ok((entries.into_iter().map(found).collect(), failed))
}

pub(crate) async fn listed(directory: &Name) -> Result<Listing> {
    directory.enter().await?.list().await.map_err(|error| directory.about(error))
}

/// What a tree takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Files, directories and other entries; a file with several names counts once.
    pub entries: u64,
    /// Length of all files.
    pub bytes: u64,
    /// Bytes they occupy.
    pub occupied: u64,
    /// Directories of which what is in them is not counted, after what has ended the count, if anything has.
    pub unread: Failures,
}

/// What a tree takes.
pub async fn usage(clients: &Clients, location: &Location) -> Result<Usage> {
    let (mut usage, mut seen) = (Usage::default(), HashSet::new());
    let count = |found: &Found| {
        let info = &found.info;
        if info.nlink > 1 && info.kind != FileKind::Directory && !seen.insert(info.ino) {
            return;
        }
        usage.entries += 1;
        usage.occupied += info.occupied;
        if info.kind == FileKind::File {
            usage.bytes += info.length;
        }
    };
    let unread = walk(clients, location, count).await?;
    Ok(Usage { unread, ..usage })
}

/// Room in the cluster and counts of the volume.
pub async fn space(clients: &Clients, path: &RemotePath) -> Result<VolumeSpace> {
    clients.volume(path).await?.statfs().await
}

/// What is removed, and how hard.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoveOptions {
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Nothing there is no error.
    pub force: bool,
}

/// What a removal has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files, directories and other entries that went.
    pub entries: u64,
    /// Why others did not, after what has ended the removal, if anything has. That a directory is not empty because of them is no
    /// failure of its own.
    pub failures: Failures,
}

/// A removal that is under way.
struct Removal {
    /// How many may go on beside the one that there is always.
    spare: Arc<Semaphore>,
    done: Mutex<Removed>,
}

impl Removal {
    fn new() -> Arc<Self> {
        Arc::new(Self { spare: Arc::new(Semaphore::new(WIDTH - 1)), done: Mutex::default() })
    }

    fn note(&self, error: Error) -> Result<()> {
        self.done.lock().failures.note(error)
    }

    /// What was done, where it `ended` so.
    fn done(&self, ended: Result<bool>) -> Removed {
        let mut done = std::mem::take(&mut *self.done.lock());
        if let Err(error) = ended {
            done.failures.ended_by(error);
        }
        done
    }
}

/// Removes a file or a tree. What is meant is never found by `.` or `..`, and the root of a volume
/// stays, with what is in it.
pub async fn remove(
    clients: &Clients,
    location: &Location,
    options: RemoveOptions,
) -> Result<Removed> {
    // A link is removed, not what it leads to.
    let (name, info) = match clients.find_itself(location).await {
        Ok(Spot { name, info: Some(info), .. }) => (name, info),
        Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
        _ if options.force => return Ok(Removed::default()),
        _ => return Err(Error::with(ErrorKind::NotFound, location.to_string())),
    };
    if info.kind == FileKind::Directory && !options.recursive {
        let detail = format!("{location}: give -r to remove a directory with all that is in it");
        return Err(Error::with(ErrorKind::IsDirectory, detail));
    }
    if &name.name[..] == b"." {
        let detail = format!(
            "{location} is not removed by such a path; name a directory by its own name (strake volume delete removes a volume)"
        );
        return Err(Error::with(ErrorKind::Invalid, detail));
    }
    let removal = Removal::new();
    let ended = remove_tree((name, info), None, Arc::clone(&removal)).await;
    Ok(removal.done(ended))
}

/// A part of a removal that others go on beside.
type Beside = Option<OwnedSemaphorePermit>;

/// True if all of it is gone. An error ends the whole removal.
fn remove_tree(
    (name, info): (Name, Info),
    beside: Beside,
    removal: Arc<Removal>,
) -> BoxFuture<'static, Result<bool>> {
    Box::pin(async move {
        let _beside = beside;
        let directory = info.kind == FileKind::Directory;
        if directory {
            match empty(&name, &removal).await {
                Ok(true) => {}
                // What is still in it has been told.
                Ok(false) => return Ok(false),
                Err(error) if error.kind.is_gone() => {}
                Err(error) => return removal.note(error).map(|()| false),
            }
        }
        match name.remove(directory).await {
            Ok(()) => removal.done.lock().entries += 1,
            // Somebody else was faster.
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return removal.note(error).map(|()| false),
        }
        Ok(true)
    })
}

/// Removes everything in a directory.
async fn empty(name: &Name, removal: &Arc<Removal>) -> Result<bool> {
    let Listing { entries, failed } = listed(name).await?;
    let is_whole = failed.is_empty();
    failed.into_iter().for_each(|error| removal.done.lock().failures.push(error));
    let remove = |entry, beside| remove_tree(entry, beside, Arc::clone(removal));
    Ok(side_by_side(entries, &removal.spare, remove).await? && is_whole)
}

/// Does something with each, as many at once as are to spare over all levels of a tree, and one in any case; whether all was done.
async fn side_by_side<T>(
    all: Vec<T>,
    spare: &Arc<Semaphore>,
    each: impl Fn(T, Beside) -> BoxFuture<'static, Result<bool>>,
) -> Result<bool> {
    let (mut under_way, mut whole) = (FuturesUnordered::new(), true);
    for one in all {
        let beside = loop {
            match Arc::clone(spare).try_acquire_owned() {
                Ok(permit) => break Some(permit),
                Err(_) => match under_way.next().await {
                    Some(done) => whole &= done?,
                    None => break None,
                },
            }
        };
        under_way.push(each(one, beside));
    }
    while let Some(done) = under_way.next().await {
        whole &= done?;
    }
    Ok(whole)
}

/// Makes a directory; with `parents` also those above it, and none of it is an error if it is there.
pub async fn make_directory(
    clients: &Clients,
    location: &Location,
    mode: u32,
    parents: bool,
) -> Result<()> {
    if parents && let Location::Remote(path) = location {
        let root = Location::Remote(RemotePath { path: "/".into(), ..path.clone() });
        let (spot, _) = clients.existing(&root).await?;
        let mut at: Directory = spot.name.directory;
        for part in path.path.split('/').filter(|part| !part.is_empty()) {
            at = at.name(Bytes::copy_from_slice(part.as_bytes())).make_directory(mode).await?;
        }
        return Ok(());
    }
    let spot = clients.find(location).await?;
    if spot.info.is_some() && !parents {
        return Err(Error::with(ErrorKind::Exists, location.to_string()));
    }
    spot.name.make_directory(mode).await.map(drop)
}

/// Hands the contents of a file to `write`, in order, while the next blocks are being fetched.
pub async fn cat(
    clients: &Clients,
    location: &Location,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let (spot, info) = clients.existing(location).await?;
    if info.kind == FileKind::Directory {
        return Err(Error::with(ErrorKind::IsDirectory, location.to_string()));
    }
    let pool: Arc<Pool> = Arc::default();
    let contents = Contents::open(&spot.name, &info, &pool).await?;
    let (mut next, mut done) = (0, 0);
    let mut reading = FuturesOrdered::new();
    loop {
        while reading.len() < CAT_BLOCKS {
            reading.push_back(contents.read(next, CAT_BLOCK_BYTES));
            next += CAT_BLOCK_BYTES as u64;
        }
        let Some(parts) = reading.next().await else { break };
        let mut got = 0;
        for part in parts? {
            got += part.len();
            write(&part)?;
        }
        done += got as u64;
        // The blocks after the end may have something by now, which is not what comes next.
        if got < CAT_BLOCK_BYTES {
            break;
        }
    }
    drop(reading);
    contents.close().await?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use strake_client::VolumeOptions;

    /// It was the end, and nothing was told of all that was there.
    #[tokio::test]
    async fn a_directory_that_vanishes_or_cannot_be_listed_hides_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["gone/x", "kept/x", "odd"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let clients = Clients::new(VolumeOptions::default());
        let mut seen = Vec::new();
        let visit = |found: &Found| {
            match &found.path[..] {
                b"gone" => fs::remove_dir_all(at("gone")).unwrap(),
                b"odd" => {
                    fs::remove_dir(at("odd")).unwrap();
                    fs::write(at("odd"), "").unwrap();
                }
                _ => {}
            }
            seen.push(String::from_utf8(found.path.clone()).unwrap());
        };
        let top = Location::Local(directory.path().to_path_buf());
        let failures = walk(&clients, &top, visit).await.unwrap();
        seen.sort();
        assert_eq!(seen, ["", "gone", "kept", "kept/x", "odd"]);
        assert_eq!(failures.count(), 1, "{failures:?}");
        assert_eq!(failures.first[0].kind, ErrorKind::NotDirectory);
        assert!(failures.first[0].to_string().contains("odd"), "{failures:?}");
        // What was named is to be there.
        let named = Location::Local(at("kept"));
        let visit = |found: &Found| {
            if found.path.is_empty() {
                fs::remove_dir_all(at("kept")).unwrap();
            }
        };
        let failures = walk(&clients, &named, visit).await.unwrap();
        assert_eq!(failures.first[0].kind, ErrorKind::NotFound);
    }

    /// What had come behind a block that was short when it was read followed it, without what had come in between.
    #[tokio::test]
    async fn cat_of_a_file_that_grows_leaves_nothing_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("grows");
        let block = CAT_BLOCK_BYTES as u64;
        let file = fs::File::create(&path).unwrap();
        let write = |from: u64, bytes: usize| {
            let part: Vec<u8> = (from..).take(bytes).map(|at| (at / 1000) as u8).collect();
            file.write_all_at(&part, from).unwrap();
        };
        // The second block is read short, and another one is asked for when the file is longer.
        write(0, CAT_BLOCK_BYTES + 1);
        let mut read = Vec::new();
        let push = |part: &[u8]| {
            if read.is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(200));
                write(block + 1, CAT_BLOCK_BYTES * CAT_BLOCKS);
            }
            read.extend_from_slice(part);
            Ok(())
        };
        let clients = Clients::new(VolumeOptions::default());
        let done = cat(&clients, &Location::Local(path.clone()), push).await.unwrap();
        assert_eq!(done, read.len() as u64);
        assert!(done > block && fs::read(&path).unwrap().starts_with(&read));
    }

    /// Ends of branches that are under way, the most that were at once, and all that were.
    type Busy = Arc<[AtomicUsize; 3]>;

    fn branch(
        levels: u32,
        beside: Beside,
        (spare, busy): (Arc<Semaphore>, Busy),
    ) -> BoxFuture<'static, Result<bool>> {
        Box::pin(async move {
            let _beside = beside;
            if levels == 0 {
                let now = busy[0].fetch_add(1, Ordering::Relaxed) + 1;
                busy[1].fetch_max(now, Ordering::Relaxed);
                tokio::task::yield_now().await;
                busy[0].fetch_sub(1, Ordering::Relaxed);
                busy[2].fetch_add(1, Ordering::Relaxed);
                return Ok(true);
            }
            let below = |(), beside| branch(levels - 1, beside, (spare.clone(), busy.clone()));
            side_by_side(vec![(); 2 * WIDTH], &spare, below).await
        })
    }

    /// There were so many for each level.
    #[tokio::test]
    async fn however_deep_a_tree_is_no_more_than_so_many_removals_are_under_way_at_once() {
        for levels in [1, 3] {
            let (spare, busy) = (Arc::new(Semaphore::new(WIDTH - 1)), Busy::default());
            assert!(branch(levels, None, (spare, busy.clone())).await.unwrap());
            assert_eq!(busy[2].load(Ordering::Relaxed), (2 * WIDTH).pow(levels));
            let most = busy[1].load(Ordering::Relaxed);
            assert!((WIDTH / 2..=WIDTH).contains(&most), "{levels} levels: {most}");
        }
    }

    /// What had failed before, and how much had gone, was told to nobody.
    #[tokio::test]
    async fn what_was_removed_and_what_was_not_is_told_with_what_ends_a_removal() {
        let removal = Removal::new();
        let each = |kind: ErrorKind, _: Beside| -> BoxFuture<'static, Result<bool>> {
            let removal = Arc::clone(&removal);
            Box::pin(async move {
                removal.done.lock().entries += 1;
                removal.note(kind.into()).map(|()| false)
            })
        };
        let kinds = vec![ErrorKind::AccessDenied, ErrorKind::TimedOut];
        // One after the other.
        let ended = side_by_side(kinds, &Arc::new(Semaphore::new(0)), each).await;
        let Removed { entries, failures } = removal.done(ended);
        let kinds: Vec<_> = failures.first.iter().map(|error| error.kind).collect();
        assert_eq!((entries, &kinds[..]), (2, &[ErrorKind::TimedOut, ErrorKind::AccessDenied][..]));
    }
}
