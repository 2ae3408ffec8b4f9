//! The data files: segments of 1 GiB, sparse, named `data-00000` and so on.
//!
//! They stay open as long as the process may have so many files open. Beyond that those are closed that have not been used for
//! a while, but none that was written to and not synced: what goes wrong until then is told to an open file only.

use super::space::{GRANULE_BLOCKS, Ground, Places};
use super::{BLOCK_BYTES, SEGMENT_BLOCKS};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_base::descriptor;
use strake_base::disk::{Disk, DiskFile};

/// What names of data files begin with.
pub(super) const PREFIX: &str = "data-";
/// So many bytes in a row are handed to the disk at once, so that a later sync finds little to do.
const WRITEBACK_BYTES_MIN: u64 = 256 << 10;
/// A shorter write is left to a later sync.
const GATHERED_BYTES_MIN: u64 = 64 << 10;
/// Bytes of a segment.
const SEGMENT_BYTES: u64 = SEGMENT_BLOCKS * BLOCK_BYTES;

/// Of so many open files that the process may have, the segments of all its targets take three: a segment has a second one for
/// large reads.
const FILES_PER_THREE_SEGMENTS: u64 = 8;
/// Segments that a target may have open in any case.
const SEGMENTS_MIN: u64 = 16;

/// A disk with more room than this part of it,
const PLENTY_PART: u64 = 100;
/// or than so much, has plenty.
const PLENTY_BYTES_MAX: u64 = 1 << 30;

/// Targets that this process has open, or is about to: they share the files that it may have open.
static TARGETS: AtomicU64 = AtomicU64::new(0);

/// A target's share of the files that the process may have open. It counts from before the first is opened, so that one target that
/// is opened beside others does not take theirs.
pub(super) struct Share(());

impl Share {
    pub(super) fn begin() -> Self {
        TARGETS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        TARGETS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The data files of a target.
pub(super) struct Data {
    disk: Arc<dyn Disk>,
    segments: RwLock<Segments>,
    /// Files that the process may have open.
    files_max: u64,
    /// Written in parts and not yet handed to the disk.
    gathered: Mutex<Gathered>,
    /// A file was made whose name is not durable yet.
    names_changed: AtomicBool,
    _share: Share,
}

/// A segment whose file is open.
struct Segment {
    file: Arc<dyn DiskFile>,
    /// Used since others were looked for to be closed.
    used: AtomicBool,
    /// Written to, or room set aside in it, since it was last synced. It stays so, and the file open, where the edit that would have
    /// named that was not made, until another one is synced.
    unsynced: AtomicBool,
}

impl Segment {
    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let written = self.file.write_all_at(data, offset);
        // Whoever closes it waits until nobody holds it, so it is not closed before this.
        self.unsynced.store(true, Ordering::Release);
        written
    }

    fn sync(&self) -> io::Result<()> {
        // In this order: of a write that ends meanwhile it is not known whether it is on disk.
        self.unsynced.store(false, Ordering::Release);
        self.file.sync()
    }
}

/// The segments whose files are open.
#[derive(Default)]
struct Segments {
    open: Vec<Option<Arc<Segment>>>,
    count: usize,
    /// The one looked at last for something to close.
    hand: usize,
}

impl Segments {
    /// A segment whose file somebody has opened; of two the first counts.
    fn insert(&mut self, nth: usize, file: Arc<dyn DiskFile>) -> Arc<Segment> {
        if nth >= self.open.len() {
            self.open.resize(nth + 1, None);
        }
        let count = &mut self.count;
        let segment = self.open[nth].get_or_insert_with(|| {
            *count += 1;
            let (used, unsynced) = (AtomicBool::new(true), AtomicBool::new(false));
            Arc::new(Segment { file, used, unsynced })
        });
        segment.clone()
    }

    /// Takes out what nobody uses and is synced, until no more than `keep` are left: first those not used since last time.
    /// What is returned is closed with it.
    fn take_idle(&mut self, keep: usize) -> Vec<Arc<Segment>> {
        let (mut taken, all) = (Vec::new(), self.open.len());
        for spare_used in [true, false] {
            for _ in 0..all {
                if self.count <= keep {
                    return taken;
                }
                self.hand = (self.hand + 1) % all;
                let slot = &mut self.open[self.hand];
                let Some(segment) = slot.as_mut().and_then(Arc::get_mut) else { continue };
                let used = std::mem::take(segment.used.get_mut());
                if *segment.unsynced.get_mut() || used && spare_used {
                    continue;
                }
                taken.extend(slot.take());
                self.count -= 1;
            }
        }
        taken
    }
}

/// Bytes in a row: where in all segments they begin, and how many.
#[derive(Default)]
struct Gathered {
    start: u64,
    len: u64,
}

impl Gathered {
    /// So many bytes were written: the row that is to be handed to the disk now, as start and length.
    fn add(&mut self, start: u64, len: u64) -> Option<(u64, u64)> {
        if len < GATHERED_BYTES_MIN {
            return None;
        }
        let follows = start == self.start + self.len && !start.is_multiple_of(SEGMENT_BYTES);
        let before = match follows {
            true => Gathered::default(),
            false => std::mem::replace(self, Gathered { start, len: 0 }),
        };
        self.len += len;
        let row = if self.len >= WRITEBACK_BYTES_MIN { std::mem::take(self) } else { before };
        (row.len > 0).then_some((row.start, row.len))
    }
}

impl Data {
    pub(super) fn new(disk: Arc<dyn Disk>, share: Share) -> Self {
        Self::within(disk, share, descriptor::limit())
    }

    /// In a process that may have so many files open.
    fn within(disk: Arc<dyn Disk>, share: Share, files_max: u64) -> Self {
        // An earlier process may have died before it made the names it had given durable.
        Self {
            disk,
            segments: RwLock::default(),
            files_max,
            gathered: Mutex::default(),
            names_changed: AtomicBool::new(true),
            _share: share,
        }
    }

    /// Granules within the files, used or not, as (first, count), one for each file.
    pub(super) fn granules(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for name in self.disk.list()? {
            let Some(nth) = name.strip_prefix(PREFIX).and_then(|n| n.parse::<u64>().ok()) else {
                continue;
            };
            // It need not stay open.
            let len = self.open_or_make_way(nth as usize, false)?.len()?;
            let granule_bytes = GRANULE_BLOCKS * BLOCK_BYTES;
            let per_segment = SEGMENT_BLOCKS / GRANULE_BLOCKS;
            found.push((nth * per_segment, len.div_ceil(granule_bytes).min(per_segment)));
        }
        Ok(found)
    }

    /// How long a segment's file is; `None`: there is no such file.
    pub(super) fn file_bytes(&self, nth: usize) -> io::Result<Option<u64>> {
        match self.open_or_make_way(nth, false) {
            // It need not stay open.
            Ok(file) => Ok(Some(file.len()?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fills `buf` (whole blocks) from a place; all of it lies in one segment.
    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.segment(at, false)?.file.read_exact_at(buf, offset_of(at))
    }

    /// As [`Data::read`], but false if a disk would have to be waited for.
    pub(super) fn read_cached(&self, buf: &mut [u8], at: u64) -> io::Result<bool> {
        match self.opened((at / SEGMENT_BLOCKS) as usize) {
            Some(segment) => segment.file.read_cached_at(buf, offset_of(at)),
            None => Ok(false),
        }
    }

    /// What is at some places, block after block.
    pub(super) fn read_places(&self, places: &[Places]) -> io::Result<Vec<u8>> {
        let mut blocks = Vec::new();
        for &(at, count) in places {
            let start = blocks.len();
            blocks.resize(start + count as usize * BLOCK_BYTES as usize, 0);
            self.read(&mut blocks[start..], at)?;
        }
        Ok(blocks)
    }

    /// Writes at `skip` bytes after a place; all of it lies in one segment.
    pub(super) fn write(&self, data: &[u8], at: u64, skip: u64) -> io::Result<()> {
        self.segment(at, true)?.write(data, offset_of(at) + skip)?;
        let row = self.gathered.lock().add(at * BLOCK_BYTES + skip, data.len() as u64);
        if let Some((start, len)) = row {
            let segment = self.segment(start / BLOCK_BYTES, false)?;
            segment.file.start_writeback(start % SEGMENT_BYTES, len);
        }
        Ok(())
    }

    /// False of a place in a segment that has no file.
    pub(super) fn is_there(&self, at: u64) -> bool {
        !matches!(self.segment(at, false), Err(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Makes what was written to some segments durable, and the names of all.
    pub(super) fn sync(&self, segments: &BTreeSet<u64>) -> io::Result<()> {
        for segment in segments {
            self.segment(segment * SEGMENT_BLOCKS, false)?.sync()?;
        }
        if self.names_changed.swap(false, Ordering::AcqRel) {
            self.disk.sync_directory()?;
        }
        Ok(())
    }

    /// Gives the disk space of granules within one segment back.
    pub(super) fn punch(&self, first_granule: u64, count: u64) -> io::Result<()> {
        let at = first_granule * GRANULE_BLOCKS;
        let (nth, offset) = ((at / SEGMENT_BLOCKS) as usize, offset_of(at));
        let len = count * GRANULE_BLOCKS * BLOCK_BYTES;
        if let Some(segment) = self.opened(nth) {
            return segment.file.punch(offset, len);
        }
        match self.open_or_make_way(nth, false) {
            // It need not stay open.
            Ok(file) => file.punch(offset, len),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A segment, if its file is open. Waits for no disk.
    fn opened(&self, nth: usize) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        let segment = segments.open.get(nth)?.as_ref()?;
        if !segment.used.load(Ordering::Relaxed) {
            segment.used.store(true, Ordering::Relaxed);
        }
        Some(segment.clone())
    }

    fn segment(&self, at: u64, create: bool) -> io::Result<Arc<Segment>> {
        let nth = (at / SEGMENT_BLOCKS) as usize;
        if let Some(segment) = self.opened(nth) {
            return Ok(segment);
        }
        // Before the lock, which those take who must not wait for a disk. Of two who open it the first counts.
        let file = self.open_or_make_way(nth, create)?;
        let max = self.segments_max();
        let is_full = self.segments.read().count >= max;
        if is_full {
            self.close_idle(max - max / 4);
        }
        Ok(self.segments.write().insert(nth, file))
    }

    /// So many of its segments may be open.
    fn segments_max(&self) -> usize {
        let all = self.files_max / FILES_PER_THREE_SEGMENTS * 3;
        (all / TARGETS.load(Ordering::Relaxed).max(1)).max(SEGMENTS_MIN) as usize
    }

    /// Closes what nobody needs open, but for so many; false if there is nothing. None is closed under the lock.
    fn close_idle(&self, keep: usize) -> bool {
        let idle = self.segments.write().take_idle(keep);
        !idle.is_empty()
    }

    /// Opens a segment's file; where the process may open no more, after all that nobody needs is closed.
    fn open_or_make_way(&self, nth: usize, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        match self.open_segment(nth, create) {
            // Another target, or connections, may have more than their part.
            Err(error) if is_out_of_files(&error) && self.close_idle(0) => {
                self.open_segment(nth, create)
            }
            opened => opened,
        }
    }

    fn open_segment(&self, nth: usize, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let name = name_of(nth);
        match self.disk.open(&name, false) {
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
                let file = self.disk.open(&name, true)?;
                self.names_changed.store(true, Ordering::Release);
                Ok(file)
            }
            opened => opened,
        }
    }
}

impl Ground for Data {
    fn provision(&self, first_granule: u64, count: u64) -> io::Result<()> {
        let at = first_granule * GRANULE_BLOCKS;
        let segment = self.segment(at, true)?;
        let len = count * GRANULE_BLOCKS * BLOCK_BYTES;
        let set_aside = segment.file.allocate(offset_of(at), len);
        // What is reserved there is synced, too.
        segment.unsynced.store(true, Ordering::Release);
        set_aside
    }

    fn has_plenty(&self) -> bool {
        // What a disk that does not say has is taken as ever.
        let space = self.disk.space();
        space.map_or(true, |(all, free)| free > (all / PLENTY_PART).min(PLENTY_BYTES_MAX))
    }
}

/// The name of a segment's file.
pub(super) fn name_of(nth: usize) -> String {
    format!("{PREFIX}{nth:05}")
}

/// Where a place lies in its segment's file.
fn offset_of(at: u64) -> u64 {
    at % SEGMENT_BLOCKS * BLOCK_BYTES
}

/// The system lacks what an open file takes, and nothing has been done.
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// The disk does not give what was written there.
pub(super) fn is_unreadable(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::NODATA | Errno::BADMSG))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;
    use strake_base::disk::HeldDisk;
    use strake_base::disk::sim::{SimDisk, SimFault};

    const KIB: u64 = 1 << 10;

    #[test]
    fn what_is_written_in_parts_is_handed_to_the_disk_in_long_rows() {
        let mut gathered = Gathered::default();
        let mut add = |start: u64, len: u64| gathered.add(start * KIB, len * KIB);
        assert_eq!(add(1024, 256), Some((1024 * KIB, 256 * KIB)), "long enough alone");
        assert_eq!(add(0, 16), None, "a later sync does it");
        let rows: Vec<_> = (0..8).filter_map(|nth| add(2048 + nth * 64, 64)).collect();
        assert_eq!(rows, [(2048 * KIB, 256 * KIB), (2304 * KIB, 256 * KIB)]);
        assert_eq!(add(4096, 128), None);
        assert_eq!(add(8192, 64), Some((4096 * KIB, 128 * KIB)), "nothing follows it");
        assert_eq!(add(16384, 512), Some((16384 * KIB, 512 * KIB)));
    }

    #[test]
    fn no_row_crosses_a_segment() {
        let mut gathered = Gathered::default();
        let part = 128 * KIB;
        assert_eq!(gathered.add(SEGMENT_BYTES - part, part), None);
        let before = Some((SEGMENT_BYTES - part, part));
        assert_eq!(gathered.add(SEGMENT_BYTES, part), before);
    }

    /// It was opened under the lock that every look needs: a disk that did not answer stopped threads that must not wait.
    #[test]
    fn who_must_not_wait_opens_no_data_file_and_waits_for_nobody_who_does() {
        let disk = Arc::new(HeldDisk::new(SimDisk::new(1, 8 << 20).process()));
        let block = [7; BLOCK_BYTES as usize];
        Data::new(disk.clone(), Share::begin()).write(&block, 0, 0).unwrap();
        let data = Arc::new(Data::new(disk.clone(), Share::begin()));
        let mut read = [0; BLOCK_BYTES as usize];
        assert!(!data.read_cached(&mut read, 0).unwrap(), "it is not open");
        disk.hold();
        let waits = std::thread::spawn({
            let data = data.clone();
            move || data.read(&mut [0; BLOCK_BYTES as usize], 0)
        });
        disk.until_waited_for(1);
        let (looked, heard) = mpsc::channel();
        std::thread::spawn({
            let data = data.clone();
            move || {
                let cached = data.read_cached(&mut [0; BLOCK_BYTES as usize], 0).unwrap();
                looked.send(cached).unwrap();
            }
        });
        assert_eq!(heard.recv_timeout(Duration::from_secs(30)), Ok(false));
        disk.go_on();
        waits.join().unwrap().unwrap();
        assert!(data.read_cached(&mut read, 0).unwrap() && read == block);
    }

    /// All stayed open: where a target had more segments than the process may have files open, reads failed with EIO, and it was
    /// not opened any more.
    #[test]
    fn no_more_data_files_are_open_than_there_may_be_and_all_can_be_read() {
        let disk: Arc<dyn Disk> = SimDisk::new(1, 64 << 20).process();
        let data = Data::within(disk, Share::begin(), 0);
        let place = |nth: u64| nth * SEGMENT_BLOCKS;
        let block = |nth: u64| [nth as u8; BLOCK_BYTES as usize];
        let is_open = |nth: u64| data.opened(nth as usize).is_some();
        let count = || data.segments.read().count as u64;
        let all = 3 * SEGMENTS_MIN;
        (0..all).for_each(|nth| data.write(&block(nth), place(nth), 0).unwrap());
        assert_eq!(count(), all, "what is not synced stays open");
        assert_eq!(data.granules().unwrap().len() as u64, all);
        data.sync(&(0..all).collect()).unwrap();
        data.write(&block(1), place(1), 0).unwrap();
        for _ in 0..2 {
            for nth in 0..all {
                let mut read = [0; BLOCK_BYTES as usize];
                data.read(&mut read, place(nth)).unwrap();
                assert_eq!(read, block(nth));
                assert!(is_open(1), "it was written to");
            }
            data.close_idle(SEGMENTS_MIN as usize);
            assert!((1..=SEGMENTS_MIN).contains(&count()), "{}", count());
        }
        assert!(data.close_idle(0));
        assert_eq!((count(), is_open(1)), (1, true));
        assert!(!data.close_idle(0), "the rest is not synced");
    }

    /// Room that was only reserved counted as synced: its file could be closed, and a sync had to open it again.
    #[test]
    fn a_data_file_in_which_room_was_reserved_stays_open_until_it_is_synced() {
        let disk: Arc<dyn Disk> = SimDisk::new(1, 64 << 20).process();
        let data = Data::within(disk, Share::begin(), 0);
        data.provision(0, 1).unwrap();
        assert!(!data.close_idle(0));
        data.sync(&BTreeSet::from([0])).unwrap();
        assert!(data.close_idle(0));
    }

    /// Each file that room was given back in stayed open, also those of a target that was opened beside others.
    #[test]
    fn room_is_given_back_without_keeping_a_data_file_open() {
        let disk = SimDisk::new(1, 64 << 20);
        let granule_bytes = GRANULE_BLOCKS * BLOCK_BYTES;
        Data::new(disk.process(), Share::begin()).provision(0, 2).unwrap();
        let data = Data::new(disk.process(), Share::begin());
        data.punch(1, 1).unwrap();
        data.punch(SEGMENT_BLOCKS / GRANULE_BLOCKS, 1).unwrap();
        assert_eq!(disk.occupied("data-00000"), granule_bytes);
        assert!(data.opened(0).is_none());
    }

    /// Only reads and writes closed what nobody needs and tried again.
    #[test]
    fn room_is_given_back_also_where_no_more_files_may_be_open() {
        let disk = SimDisk::new(1, 64 << 20);
        let per_segment = SEGMENT_BLOCKS / GRANULE_BLOCKS;
        let data = Data::new(disk.process(), Share::begin());
        (0..2).for_each(|nth| data.provision(nth * per_segment, 1).unwrap());
        data.sync(&BTreeSet::from([0, 1])).unwrap();
        let let_one_be_open = || {
            data.close_idle(0);
            data.segment(0, false).unwrap();
            disk.fault_after(0, SimFault::Files);
        };
        let_one_be_open();
        data.punch(per_segment, 1).unwrap();
        assert_eq!(disk.occupied("data-00001"), 0);
        let_one_be_open();
        assert_eq!(data.granules().unwrap().len(), 2);
    }

    /// Data took the last room of a disk where it had free places in pieces, and the target refused all that made its map larger.
    #[test]
    fn the_last_hundredth_of_a_disk_is_not_plenty() {
        let disk = SimDisk::new(1, 400 << 20);
        let data = Data::new(disk.process(), Share::begin());
        data.provision(0, 390).unwrap();
        assert!(data.has_plenty());
        data.provision(390, 6).unwrap();
        assert!(!data.has_plenty());
    }
}
