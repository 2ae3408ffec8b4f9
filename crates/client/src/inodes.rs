//! What this mount knows of inodes: attributes of at most a given age, and the state of open files.

use crate::file::FileState;
use crate::names::thin;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_types::{Attr, Ino, Timestamp};

const SHARDS: usize = 16;
/// Most inodes remembered per shard beyond those that are open.
const NODES_PER_SHARD_MAX: usize = 4_096;

/// How long it is remembered at least that an inode's attributes were forgotten: as long as anything
/// learned before may be believed, and more.
const FORGOTTEN_AGE: Duration = Duration::from_secs(5);

/// What identifies the contents of a file as far as an outsider can tell.
pub(crate) type Contents = (u64, Timestamp);

#[derive(Default)]
struct Node {
    /// As the server said last, and when it was asked (monotonic).
    attr: Option<(Arc<Attr>, Duration)>,
    /// When this mount last changed it without learning its new attributes: what was asked before
    /// is not true any more.
    forgotten: Duration,
    /// State shared by all handles, while there are any or something is unsent.
    file: Option<Arc<FileState>>,
    /// Length and mtime when this mount last closed the file.
    seen: Option<Contents>,
}

/// The table. Locks are held for a few instructions only.
pub(crate) struct Inodes {
    shards: [Mutex<HashMap<Ino, Node>>; SHARDS],
    /// Files with a state.
    files: AtomicUsize,
}

impl Inodes {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), files: AtomicUsize::new(0) }
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, Node>> {
        &self.shards[(ino.0 % SHARDS as u64) as usize]
    }

    /// Remembers attributes that a server was `asked` for; the file's state, if it has one. Answers
    /// may overtake each other: an older one is not remembered.
    pub(crate) fn learn(&self, attr: &Arc<Attr>, asked: Duration) -> Option<Arc<FileState>> {
        let mut shard = self.shard(attr.ino).lock();
        if shard.len() >= NODES_PER_SHARD_MAX {
            make_room(&mut shard, asked);
        }
        let node = shard.entry(attr.ino).or_default();
        let newer = |(known, _): &(Arc<Attr>, Duration)| known.version > attr.version;
        if asked >= node.forgotten && !node.attr.as_ref().is_some_and(newer) {
            node.attr = Some((Arc::clone(attr), asked));
        }
        node.file.clone()
    }

    /// Attributes with the time they were asked for, and the file's state.
    #[allow(clippy::type_complexity)]
    pub(crate) fn get(&self, ino: Ino) -> (Option<(Arc<Attr>, Duration)>, Option<Arc<FileState>>) {
        let shard = self.shard(ino).lock();
        shard.get(&ino).map(|n| (n.attr.clone(), n.file.clone())).unwrap_or_default()
    }

    /// The state of a file, if it has one.
    pub(crate) fn file(&self, ino: Ino) -> Option<Arc<FileState>> {
        self.shard(ino).lock().get(&ino).and_then(|n| n.file.clone())
    }

    /// The state of a file, made if it has none; runs `with` on it under the table's lock, so that
    /// it cannot be dropped in between.
    pub(crate) fn file_or_new(
        &self,
        ino: Ino,
        new: impl FnOnce() -> Arc<FileState>,
        with: impl FnOnce(&FileState),
    ) -> Arc<FileState> {
        let mut shard = self.shard(ino).lock();
        let node = shard.entry(ino).or_default();
        let file = node.file.get_or_insert_with(|| {
            self.files.fetch_add(1, Ordering::Relaxed);
            new()
        });
        with(file);
        Arc::clone(file)
    }

    /// The state of a file, if it has one, with what `look` says of it under the table's lock.
    pub(crate) fn with_file<T>(
        &self,
        ino: Ino,
        look: impl FnOnce(&Arc<FileState>) -> Option<T>,
    ) -> Option<(Arc<FileState>, T)> {
        let shard = self.shard(ino).lock();
        let file = shard.get(&ino)?.file.as_ref()?;
        look(file).map(|seen| (Arc::clone(file), seen))
    }

    /// Drops the state of a file if `unused` says so, and remembers what its contents were.
    pub(crate) fn drop_file(
        &self,
        ino: Ino,
        unused: impl FnOnce(&FileState) -> bool,
        seen: Option<Contents>,
    ) {
        let mut shard = self.shard(ino).lock();
        let Some(node) = shard.get_mut(&ino) else { return };
        node.seen = seen;
        if node.file.as_ref().is_some_and(|file| unused(file))
            && let Some(file) = node.file.take()
        {
            self.files.fetch_sub(1, Ordering::Relaxed);
            file.lay_down();
        }
    }

    /// How many files have a state.
    pub(crate) fn count(&self) -> usize {
        self.files.load(Ordering::Relaxed)
    }

    /// What the contents were when this mount last closed the file.
    pub(crate) fn seen(&self, ino: Ino) -> Option<Contents> {
        self.shard(ino).lock().get(&ino).and_then(|n| n.seen)
    }

    /// The attributes known are no longer true.
    pub(crate) fn forget_attr(&self, ino: Ino, now: Duration) {
        let mut shard = self.shard(ino).lock();
        let node = shard.entry(ino).or_default();
        node.attr = None;
        node.forgotten = now;
    }

    /// True if an answer to what was `asked` may be older than a change made by this mount.
    pub(crate) fn is_forgotten_since(&self, ino: Ino, asked: Duration) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|node| node.forgotten >= asked)
    }

    /// Files that handles are open on.
    pub(crate) fn files(&self) -> Vec<Arc<FileState>> {
        let all = self.shards.iter();
        all.flat_map(|s| s.lock().values().filter_map(|n| n.file.clone()).collect::<Vec<_>>())
            .collect()
    }
}

/// Drops every other closed inode. One that was forgotten lately stays: answers that are older may still come.
fn make_room(shard: &mut HashMap<Ino, Node>, now: Duration) {
    thin(shard, |node| {
        let asked = node.attr.as_ref().map(|(_, asked)| *asked);
        let lately = asked.is_none() && node.forgotten + FORGOTTEN_AGE > now;
        (node.file.is_none() && !lately).then(|| asked.unwrap_or_default())
    });
}
