//! What this mount knows of inodes: attributes of at most a given age, and the state of open files.

use crate::contents::Contents;
use crate::file::FileState;
use crate::names::thin;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_types::{Attr, Ino};

const SHARDS: usize = 16;
/// Most inodes remembered per shard beyond those that are open.
const NODES_PER_SHARD_MAX: usize = 4_096;

/// How long it is remembered at least that an inode's attributes were forgotten: as long as anything
/// learned before may be believed, and more.
const FORGOTTEN_AGE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Node {
    /// As the server said last, and when it was asked (monotonic).
    attr: Option<(Arc<Attr>, Duration)>,
    /// When this mount last changed it without learning its new attributes: what was asked before
    /// is not true any more.
    forgotten: Duration,
    /// State shared by all handles, while there are any or something is unsent.
    file: Option<Arc<FileState>>,
    /// What the contents were when this mount last closed the file.
    seen: Option<Contents>,
}

/// A part of the table.
#[derive(Default)]
struct Shard {
    nodes: HashMap<Ino, Node>,
    /// With so many the next one makes room: where most must stay, not each of those that follow looks at all of them.
    full_at: usize,
    /// When the metadata server asked last whether one of these files rests: what was to say so may have gone since.
    rested: Option<Duration>,
}

impl Shard {
    /// Drops some closed inodes if there are too many. One that was forgotten lately stays: answers that are older may still
    /// come.
    fn make_room(&mut self, now: Duration) {
        if self.nodes.len() < self.full_at.max(NODES_PER_SHARD_MAX) {
            return;
        }
        thin(&mut self.nodes, |node| {
            let asked = node.attr.as_ref().map(|(_, asked)| *asked);
            let lately = asked.is_none() && node.forgotten + FORGOTTEN_AGE > now;
            (node.file.is_none() && !lately).then(|| asked.unwrap_or_default())
        });
        self.full_at = self.nodes.len() + self.nodes.len() / 4;
    }
}

/// The table. Locks are held for a few instructions only, but where room is made.
pub(crate) struct Inodes {
    shards: [Mutex<Shard>; SHARDS],
    /// Files with a state.
    files: AtomicUsize,
}

impl Inodes {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), files: AtomicUsize::new(0) }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[(ino.0 % SHARDS as u64) as usize]
    }

    /// Remembers attributes that a server was `asked` for; the file's state, if it has one. Answers
    /// may overtake each other: an older one is not remembered.
    pub(crate) fn learn(&self, attr: &Arc<Attr>, asked: Duration) -> Option<Arc<FileState>> {
        let mut shard = self.shard(attr.ino).lock();
        shard.make_room(asked);
        let node = shard.nodes.entry(attr.ino).or_default();
        let newer = |(known, _): &(Arc<Attr>, Duration)| known.version > attr.version;
        if asked >= node.forgotten && !node.attr.as_ref().is_some_and(newer) {
            node.attr = Some((Arc::clone(attr), asked));
        }
        node.file.clone()
    }

    /// Attributes as they will be when a change is made that is answered already: of the version that is known.
    pub(crate) fn answer(&self, attr: Attr, now: Duration) {
        let ino = attr.ino;
        let mut shard = self.shard(ino).lock();
        shard.nodes.entry(ino).or_default().attr = Some((Arc::new(attr), now));
    }

    /// Attributes with the time they were asked for, and the file's state.
    #[allow(clippy::type_complexity)]
    pub(crate) fn get(&self, ino: Ino) -> (Option<(Arc<Attr>, Duration)>, Option<Arc<FileState>>) {
        let shard = self.shard(ino).lock();
        shard.nodes.get(&ino).map(|n| (n.attr.clone(), n.file.clone())).unwrap_or_default()
    }

    /// The state of a file, if it has one.
    pub(crate) fn file(&self, ino: Ino) -> Option<Arc<FileState>> {
        self.shard(ino).lock().nodes.get(&ino).and_then(|n| n.file.clone())
    }

    /// The state of a file, made if it has none, by when it may have rested before; runs `with` on it under the table's lock,
    /// so that it cannot be dropped in between.
    pub(crate) fn file_or_new(
        &self,
        ino: Ino,
        new: impl FnOnce(Option<Duration>) -> Arc<FileState>,
        with: impl FnOnce(&FileState),
    ) -> Arc<FileState> {
        let mut shard = self.shard(ino).lock();
        let rested = shard.rested;
        let node = shard.nodes.entry(ino).or_default();
        let file = node.file.get_or_insert_with(|| {
            self.files.fetch_add(1, Ordering::Relaxed);
            new(rested)
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
        let file = shard.nodes.get(&ino)?.file.as_ref()?;
        look(file).map(|seen| (Arc::clone(file), seen))
    }

    /// A file is asked now whether it rests: what its state says under the table's lock, if it has one. Who makes a state of it
    /// later learns when that was.
    pub(crate) fn rest(
        &self,
        ino: Ino,
        now: Duration,
        rests: impl FnOnce(&FileState) -> bool,
    ) -> bool {
        let mut shard = self.shard(ino).lock();
        shard.rested = shard.rested.max(Some(now));
        shard.nodes.get(&ino).and_then(|node| node.file.as_ref()).is_some_and(|file| rests(file))
    }

    /// Drops the state of a file if `unused` says so, and remembers what its contents were.
    pub(crate) fn drop_file(
        &self,
        ino: Ino,
        unused: impl FnOnce(&FileState) -> bool,
        seen: Option<Contents>,
    ) {
        let mut shard = self.shard(ino).lock();
        let Some(node) = shard.nodes.get_mut(&ino) else { return };
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
        self.shard(ino).lock().nodes.get(&ino).and_then(|n| n.seen)
    }

    /// This mount has changed a closed file beside its contents, with this outcome.
    pub(crate) fn changed(&self, attr: &Attr) {
        let mut shard = self.shard(attr.ino).lock();
        let seen = shard.nodes.get_mut(&attr.ino).and_then(|node| node.seen.as_mut());
        seen.into_iter().for_each(|seen| seen.changed(attr));
    }

    /// Nobody can tell any more what they were.
    pub(crate) fn forget_seen(&self, ino: Ino) {
        if let Some(node) = self.shard(ino).lock().nodes.get_mut(&ino) {
            node.seen = None;
        }
    }

    /// The attributes known are no longer true.
    pub(crate) fn forget_attr(&self, ino: Ino, now: Duration) {
        let mut shard = self.shard(ino).lock();
        let node = shard.nodes.entry(ino).or_default();
        node.attr = None;
        node.forgotten = now;
    }

    /// True if an answer to what was `asked` may be older than a change made by this mount.
    pub(crate) fn is_forgotten_since(&self, ino: Ino, asked: Duration) -> bool {
        self.shard(ino).lock().nodes.get(&ino).is_some_and(|node| node.forgotten >= asked)
    }

    /// Files that handles are open on.
    pub(crate) fn files(&self) -> Vec<Arc<FileState>> {
        let all = self.shards.iter();
        all.flat_map(|s| s.lock().nodes.values().filter_map(|n| n.file.clone()).collect::<Vec<_>>())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Lets so many inodes come; how often that went through the table, and the most that were in it.
    fn let_come(shard: &mut Shard, count: u64, now: Duration) -> (usize, usize) {
        let (mut times, mut most) = (0, 0);
        for nth in 0..count {
            let full_at = shard.full_at;
            shard.make_room(now);
            times += usize::from(shard.full_at != full_at);
            shard.nodes.insert(Ino(1 << 20 | nth), Node::default());
            most = most.max(shard.nodes.len());
        }
        (times, most)
    }

    #[test]
    fn a_table_of_which_most_must_stay_is_not_gone_through_for_each_that_comes() {
        let mut shard = Shard::default();
        let lately = || Node { forgotten: ms(100_000), ..Node::default() };
        shard.nodes.extend((0..10_000).map(|nth| (Ino(nth), lately())));
        let (times, most) = let_come(&mut shard, 20_000, ms(100_001));
        assert!((1..=12).contains(&times), "{times}");
        assert!(most <= 17_000, "{most}");
        assert!((0..10_000).all(|nth| shard.nodes.contains_key(&Ino(nth))));
        let_come(&mut shard, 40_000, ms(100_000) + FORGOTTEN_AGE);
        assert!(shard.nodes.len() <= NODES_PER_SHARD_MAX, "nothing must stay any more");
    }
}
