//! The data files: segments of 1 GiB, sparse, named `data-00000` and so on.

use super::space::{GRANULE_BLOCKS, Ground, Places};
use super::{BLOCK_BYTES, SEGMENT_BLOCKS};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strake_base::disk::{Disk, DiskFile};

/// What names of data files begin with.
pub(super) const PREFIX: &str = "data-";
/// So many bytes in a row are handed to the disk at once, so that a later sync finds little to do.
const WRITEBACK_BYTES_MIN: u64 = 256 << 10;
/// A shorter write is left to a later sync.
const GATHERED_BYTES_MIN: u64 = 64 << 10;
/// Bytes of a segment.
const SEGMENT_BYTES: u64 = SEGMENT_BLOCKS * BLOCK_BYTES;

/// The data files of a target.
pub(super) struct Data {
    disk: Arc<dyn Disk>,
    segments: RwLock<Vec<Option<Arc<dyn DiskFile>>>>,
    /// Written in parts and not yet handed to the disk.
    gathered: Mutex<Gathered>,
    /// A file was made whose name is not durable yet.
    names_changed: AtomicBool,
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
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        // An earlier process may have died before it made the names it had given durable.
        Self {
            disk,
            segments: RwLock::default(),
            gathered: Mutex::default(),
            names_changed: AtomicBool::new(true),
        }
    }

    /// Granules within the files, used or not, as (first, count), one for each file.
    pub(super) fn granules(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for name in self.disk.list()? {
            let Some(nth) = name.strip_prefix(PREFIX).and_then(|n| n.parse::<u64>().ok()) else {
                continue;
            };
            let len = self.segment(nth * SEGMENT_BLOCKS, false)?.len()?;
            let granule_bytes = GRANULE_BLOCKS * BLOCK_BYTES;
            let per_segment = SEGMENT_BLOCKS / GRANULE_BLOCKS;
            found.push((nth * per_segment, len.div_ceil(granule_bytes).min(per_segment)));
        }
        Ok(found)
    }

    /// Fills `buf` (whole blocks) from a place; all of it lies in one segment.
    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.segment(at, false)?.read_exact_at(buf, offset_of(at))
    }

    /// As [`Data::read`], but false if a disk would have to be waited for.
    pub(super) fn read_cached(&self, buf: &mut [u8], at: u64) -> io::Result<bool> {
        match self.opened((at / SEGMENT_BLOCKS) as usize) {
            Some(file) => file.read_cached_at(buf, offset_of(at)),
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

    /// Writes blocks to the places that they were read from.
    pub(super) fn write_places(&self, places: &[Places], mut blocks: &[u8]) -> io::Result<()> {
        for &(at, count) in places {
            let (now, rest) = blocks.split_at(count as usize * BLOCK_BYTES as usize);
            self.write(now, at, 0)?;
            blocks = rest;
        }
        Ok(())
    }

    /// Writes at `skip` bytes after a place; all of it lies in one segment.
    pub(super) fn write(&self, data: &[u8], at: u64, skip: u64) -> io::Result<()> {
        let (file, offset) = (self.segment(at, true)?, offset_of(at) + skip);
        file.write_all_at(data, offset)?;
        let row = self.gathered.lock().add(at * BLOCK_BYTES + skip, data.len() as u64);
        if let Some((start, len)) = row {
            let file = self.segment(start / BLOCK_BYTES, false)?;
            file.start_writeback(start % SEGMENT_BYTES, len);
        }
        Ok(())
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
        match self.segment(at, false) {
            Ok(file) => file.punch(offset_of(at), count * GRANULE_BLOCKS * BLOCK_BYTES),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A segment's file, if it is open. Waits for no disk.
    fn opened(&self, nth: usize) -> Option<Arc<dyn DiskFile>> {
        self.segments.read().get(nth).cloned().flatten()
    }

    fn segment(&self, at: u64, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let nth = (at / SEGMENT_BLOCKS) as usize;
        if let Some(file) = self.opened(nth) {
            return Ok(file);
        }
        // Before the lock, which those take who must not wait for a disk. Of two who open it the first counts.
        let file = self.open_segment(nth, create)?;
        let mut segments = self.segments.write();
        if nth >= segments.len() {
            segments.resize(nth + 1, None);
        }
        Ok(segments[nth].get_or_insert(file).clone())
    }

    fn open_segment(&self, nth: usize, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let name = format!("{PREFIX}{nth:05}");
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
        let file = self.segment(at, true)?;
        file.allocate(offset_of(at), count * GRANULE_BLOCKS * BLOCK_BYTES)
    }
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
    use strake_base::disk::{HeldDisk, sim::SimDisk};

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
        Data::new(disk.clone()).write(&block, 0, 0).unwrap();
        let data = Arc::new(Data::new(disk.clone()));
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
}
