//! Reading the journal back.

use super::super::super::Writes;
use super::super::store::StoreError;
use super::record::{HEADER_BYTES, Header, Record, Salt};
use super::{PREFIX, mark, segment_name};
use std::io;
use strake_base::disk::Disk;

/// Why the journal cannot be read back.
#[derive(Debug)]
pub enum RecoveryError {
    /// An error of the disk.
    Disk(io::Error),
    /// Something that was known to be on disk is not there, or not as it was.
    Corrupt(String),
    /// A segment of a newer format.
    Newer(u32),
    /// An error of the store into which the records go.
    Store(StoreError),
}

impl From<io::Error> for RecoveryError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// What the journal held.
#[derive(Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The newest version, in the journal or the store.
    pub newest: u64,
    /// Commits that went into the store.
    pub commits: u64,
    /// Bytes at the end that were no whole records.
    pub cut: u64,
    /// Number of the highest segment, 0 if there is none.
    pub number: u64,
    /// All segments, which can be removed when the store is durable up to `newest`.
    pub segments: Vec<String>,
}

struct Segment {
    name: String,
    header: Option<Header>,
    len: u64,
}

impl Segment {
    /// True if whoever made it died before a record could be written.
    fn is_unborn(&self) -> bool {
        self.header.is_none() && self.len <= HEADER_BYTES as u64
    }

    /// What its records begin with: the header says it or, if that is damaged, the first record.
    fn salt(&self, bytes: &[u8]) -> Option<Salt> {
        let header = self.header.map(|header| header.salt);
        header.or_else(|| Record::salt(bytes.get(HEADER_BYTES..)?))
    }
}

/// Applies every commit after `durable`, the version up to which the store has everything.
pub fn recover(
    disk: &dyn Disk,
    durable: u64,
    mut apply: impl FnMut(u64, &Writes) -> Result<(), StoreError>,
) -> Result<Recovered, RecoveryError> {
    let marked = mark::read(disk);
    let numbers = numbers(disk)?;
    let segments = numbers
        .iter()
        .map(|number| open(disk, *number))
        .collect::<Result<Vec<Segment>, RecoveryError>>()?;
    let mut recovered = Recovered {
        newest: durable,
        commits: 0,
        cut: 0,
        number: numbers.last().copied().unwrap_or(0),
        segments: segments.iter().map(|segment| segment.name.clone()).collect(),
    };
    let Some(start) = start(&segments, durable)? else { return recovered.reaching(marked) };
    // Everything before `start` is in the store.
    let mut reader = Reader { durable, at: segments[start].header.map_or(0, |h| h.base) };
    for (index, segment) in segments.iter().enumerate().skip(start) {
        let bytes = read(disk, &segment.name)?;
        let read = match segment.header {
            Some(header) if header.base == reader.at => {
                reader.records(&bytes, header.salt, &mut recovered.commits, &mut apply)?
            }
            _ => 0,
        };
        if read < bytes.len() || read == 0 {
            let (before, segments) = segments.split_at(index);
            let before = before.last().and_then(|segment| segment.header);
            let before = before.map(|header| header.salt);
            let lost = Lost { segments, offset: read, before, marked };
            recovered.cut = lost.judge(disk, bytes, reader.at.max(durable))?;
            break;
        }
    }
    recovered.newest = reader.at.max(durable);
    recovered.reaching(marked)
}

impl Recovered {
    /// The same, unless more was synced than was found: whole records are missing at the end then, or all of it.
    fn reaching(self, marked: u64) -> Result<Self, RecoveryError> {
        let newest = self.newest;
        if marked <= newest {
            return Ok(self);
        }
        let found = match self.segments.last() {
            Some(last) => format!("segment {last} of the journal ends after version {newest}"),
            None => "no segment of the journal is there".to_owned(),
        };
        Err(missing(&found, marked))
    }
}

/// `found` says what there is of the journal.
fn missing(found: &str, synced: u64) -> RecoveryError {
    RecoveryError::Corrupt(format!(
        "{found}, although version {synced} had reached the disk: changes are missing that were synced"
    ))
}

/// The segment to begin with: the last of those that begin at or before what the store has.
fn start(segments: &[Segment], durable: u64) -> Result<Option<usize>, RecoveryError> {
    let start = segments.iter().rposition(|s| s.header.is_some_and(|h| h.base <= durable));
    match (start, segments) {
        (Some(start), _) => Ok(Some(start)),
        // Killed while the store was being made: the first segment is synced before its first record.
        (None, []) if durable == 0 => Ok(None),
        (None, [first]) if durable == 0 && first.is_unborn() => Ok(None),
        (None, []) => Err(RecoveryError::Corrupt(format!(
            "no segment of the journal is there, but the store has data up to version {durable}"
        ))),
        (None, [first, ..]) => Err(RecoveryError::Corrupt(match first.header {
            Some(header) => format!(
                "the journal begins after version {}, but the store ends at version {durable}",
                header.base
            ),
            None => format!("the header of segment {} is damaged", first.name),
        })),
    }
}

struct Reader {
    durable: u64,
    /// The version of the last record read.
    at: u64,
}

impl Reader {
    /// Applies the records of a segment that continue the chain; returns the bytes they take.
    fn records(
        &mut self,
        bytes: &[u8],
        salt: Salt,
        commits: &mut u64,
        apply: &mut impl FnMut(u64, &Writes) -> Result<(), StoreError>,
    ) -> Result<usize, RecoveryError> {
        let mut offset = HEADER_BYTES;
        while let Some(record) = Record::decode(&bytes[offset..], salt) {
            if record.previous != self.at || record.version < self.at {
                break;
            }
            if record.version > self.at && record.version > self.durable {
                apply(record.version, &record.writes).map_err(RecoveryError::Store)?;
                *commits += 1;
            }
            self.at = record.version;
            offset += record.len;
        }
        Ok(offset)
    }
}

/// The rest of the journal from the first byte that is no whole record.
struct Lost<'a> {
    /// The segment with that byte, and those after it.
    segments: &'a [Segment],
    offset: usize,
    /// The salt of the segment before. If the same process made these segments, it is theirs.
    before: Option<Salt>,
    /// Everything up to this version was synced, by the mark.
    marked: u64,
}

impl Lost<'_> {
    /// The bytes to cut off, if none of them can have been synced; `bytes` are those of the first
    /// segment, `have` is the newest version that is there.
    fn judge(&self, disk: &dyn Disk, bytes: Vec<u8>, have: u64) -> Result<u64, RecoveryError> {
        let (mut synced, mut cut, mut salt) = (self.marked, 0, self.before);
        let (mut offset, mut first) = (self.offset, Some(bytes));
        for segment in self.segments {
            let bytes = first.take().map_or_else(|| read(disk, &segment.name), Ok)?;
            salt = segment.salt(&bytes).or(salt);
            synced = synced.max(segment.header.map_or(0, |header| header.synced));
            let told = salt.and_then(|s| Record::highest_synced(&bytes[offset..], s));
            synced = synced.max(told.unwrap_or(0));
            cut += (bytes.len() - offset) as u64;
            offset = 0;
        }
        match self.segments {
            [damaged, ..] if synced > have => {
                let (name, at) = (&damaged.name, self.offset);
                let found = format!(
                    "segment {name} of the journal is damaged at byte {at}, after version {have}"
                );
                Err(missing(&found, synced))
            }
            _ => Ok(cut),
        }
    }
}

fn numbers(disk: &dyn Disk) -> io::Result<Vec<u64>> {
    let mut numbers: Vec<u64> = disk
        .list()?
        .iter()
        .filter_map(|name| u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn open(disk: &dyn Disk, number: u64) -> Result<Segment, RecoveryError> {
    let name = segment_name(number);
    let file = disk.open(&name, false)?;
    let len = file.len()?;
    let mut bytes = vec![0; HEADER_BYTES.min(len as usize)];
    file.read_exact_at(&mut bytes, 0)?;
    let header = Header::decode(&bytes).map_err(RecoveryError::Newer)?;
    Ok(Segment { name, header: header.filter(|header| header.number == number), len })
}

fn read(disk: &dyn Disk, name: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(name, false)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
