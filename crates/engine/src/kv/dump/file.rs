//! The file: a head, blocks of pairs in the order of their keys, and an end that counts them.

use super::error::with;
use super::{Dump, DumpError, DumpId, OURS, Pair, Progress, Result, Step};
use bytes::{Buf, Bytes};
use crc_fast::crc32_iscsi;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"STRKMETA";
const VERSION: u32 = 1;
/// Magic, version, number, and the length of what follows.
const HEAD_BYTES: u64 = 32;
/// Length, count and checksum of a block.
const BLOCK_HEAD_BYTES: u64 = 12;
/// A block is written when it has so many bytes.
pub const BLOCK_BYTES: usize = 1 << 20;
/// A block that claims more is damaged.
const BLOCK_BYTES_MAX: u32 = 256 << 20;
/// The same for what a file says of itself.
const ABOUT_BYTES_MAX: u32 = 1 << 16;

/// A file that is being written, under another name until it is whole.
pub struct Draft {
    path: PathBuf,
    draft: PathBuf,
    out: BufWriter<File>,
    dump: Dump,
    len: u64,
    last: Option<Bytes>,
}

/// A file that is durable and has not its name yet.
pub struct Written {
    path: PathBuf,
    draft: PathBuf,
    dump: Dump,
}

/// The head of a file.
pub fn head(id: &DumpId, about: &str) -> Vec<u8> {
    let mut head = Vec::from(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend(id);
    head.extend((about.len() as u32).to_le_bytes());
    head.extend(about.as_bytes());
    head.extend(crc32_iscsi(&head).to_le_bytes());
    head
}

/// A block of pairs, of which there is one at least.
pub fn block(pairs: &[Pair]) -> Vec<u8> {
    let mut payload = Vec::new();
    for bytes in pairs.iter().flat_map(|(key, value)| [key, value]) {
        payload.extend((bytes.len() as u32).to_le_bytes());
        payload.extend_from_slice(bytes);
    }
    let numbers = [payload.len() as u32, pairs.len() as u32, crc32_iscsi(&payload)];
    let head: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    [head, payload].concat()
}

/// Bytes that a pair takes in a block.
pub fn stored_bytes((key, value): &Pair) -> u64 {
    (2 * size_of::<u32>() + key.len() + value.len()) as u64
}

/// The end of a file.
pub fn end(dump: &Dump) -> Vec<u8> {
    let mut end = vec![0; BLOCK_HEAD_BYTES as usize];
    end.extend(dump.pairs.to_le_bytes());
    end.extend(dump.bytes.to_le_bytes());
    let crc = crc32_iscsi(&[&dump.id[..], &end[BLOCK_HEAD_BYTES as usize..]].concat());
    end.extend(crc.to_le_bytes());
    end
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Refuses a name that is taken.
pub fn check_absent(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Err(DumpError::Exists { path: path.to_owned() }),
        Err(_) => Ok(()),
    }
}

/// Gives a file a name that nobody has, nor gets in this very moment.
pub fn rename_to_absent(from: &Path, to: &Path) -> Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => Err(DumpError::Exists { path: to.to_owned() }),
        // The file system does not know how: NFS, for one.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            check_absent(to)?;
            std::fs::rename(from, to).map_err(with(to))
        }
        renamed => renamed.map_err(|error| with(to)(error.into())),
    }
}

impl Draft {
    /// A new one. What it holds, keys of the cluster among it, is nobody else's business.
    pub fn begin(path: &Path, id: DumpId, about: &str) -> Result<Self> {
        let draft = draft_of(path);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&draft).map_err(with(&draft))?;
        let head = head(&id, about);
        let mut out = BufWriter::new(file);
        out.write_all(&head).map_err(with(&draft))?;
        let dump = Dump { id, about: about.to_owned(), pairs: 0, bytes: 0 };
        Ok(Self { path: path.to_owned(), draft, out, dump, len: head.len() as u64, last: None })
    }

    /// One that was interrupted, as far as it is good; `None` if there is none of this. One that this owner has left
    /// and that is of no use is removed; whatever else has the name stays, and is an error.
    pub fn go_on(path: &Path, id: &DumpId, about: &str) -> Result<Option<Self>> {
        let draft = draft_of(path);
        let there = match draft.symlink_metadata() {
            Ok(there) => there,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(with(&draft)(error)),
        };
        let foreign = || Err(DumpError::Exists { path: draft.clone() });
        let own = there.uid() == rustix::process::geteuid().as_raw();
        if !there.is_file() || !own || there.mode() & 0o077 != 0 {
            return foreign();
        }
        let mut blocks = match Blocks::open(&draft) {
            Ok(blocks) if blocks.dump.id == *id && blocks.dump.about == about => blocks,
            Ok(blocks) if blocks.dump.about != about => return foreign(),
            Err(DumpError::NoExport { .. } | DumpError::Newer { .. }) => return foreign(),
            // Of what the store held before, or cut off in its head.
            _ => {
                std::fs::remove_file(&draft).map_err(with(&draft))?;
                return Ok(None);
            }
        };
        let (mut len, mut dump, mut last) = (blocks.at, blocks.dump.clone(), None);
        while let Ok(Some(_)) = blocks.next_block() {
            (len, dump, last) = (blocks.at, blocks.dump.clone(), blocks.last.clone());
        }
        let mut file = OpenOptions::new().write(true).open(&draft).map_err(with(&draft))?;
        file.set_len(len).map_err(with(&draft))?;
        file.seek(SeekFrom::Start(len)).map_err(with(&draft))?;
        let out = BufWriter::new(file);
        Ok(Some(Self { path: path.to_owned(), draft, out, dump, len, last }))
    }

    /// Pairs in it.
    pub fn pairs(&self) -> u64 {
        self.dump.pairs
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// The last key in it.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.last.as_deref()
    }

    /// Appends a block.
    pub fn put(&mut self, pairs: &[Pair]) -> Result<()> {
        let block = block(pairs);
        self.out.write_all(&block).map_err(with(&self.draft))?;
        self.len += block.len() as u64;
        self.dump.pairs += pairs.len() as u64;
        self.dump.bytes += bytes_of(pairs);
        self.last = pairs.last().map(|(key, _)| key.clone());
        Ok(())
    }

    /// That was all; it is durable.
    pub fn end(mut self) -> Result<Written> {
        self.out.write_all(&end(&self.dump)).map_err(with(&self.draft))?;
        let file = self.out.into_inner().map_err(|e| with(&self.draft)(e.into_error()))?;
        file.sync_all().map_err(with(&self.draft))?;
        Ok(Written { path: self.path, draft: self.draft, dump: self.dump })
    }
}

impl Written {
    /// Where it is still.
    pub fn draft(&self) -> &Path {
        &self.draft
    }

    /// Gives it its name.
    pub fn publish(self) -> Result<Dump> {
        rename_to_absent(&self.draft, &self.path)?;
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(with(dir))?;
        Ok(self.dump)
    }
}

fn bytes_of(pairs: &[Pair]) -> u64 {
    pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
}

/// A file that is being read.
pub struct Blocks {
    path: PathBuf,
    file: Box<dyn Read + Send>,
    /// Its length.
    len: u64,
    /// As far as it was read.
    dump: Dump,
    /// Where the next part begins.
    at: u64,
    /// Where the part begins that is being read: the head, a block, or the end.
    part: u64,
    last: Option<Bytes>,
    /// All of it was read, and it is whole.
    ended: bool,
}

impl Blocks {
    /// Reads its head.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(with(path))?;
        let len = file.metadata().map_err(with(path))?.len();
        Self::begin(path, Box::new(BufReader::new(file)), len)
    }

    /// The same of bytes that come from elsewhere.
    pub fn begin(path: &Path, file: Box<dyn Read + Send>, len: u64) -> Result<Self> {
        let mut blocks = Self {
            path: path.to_owned(),
            file,
            len,
            dump: Dump { id: DumpId::default(), about: String::new(), pairs: 0, bytes: 0 },
            at: 0,
            part: 0,
            last: None,
            ended: false,
        };
        blocks.read_head()?;
        Ok(blocks)
    }

    fn read_head(&mut self) -> Result<()> {
        let magic = self.up_to(MAGIC.len() as u64)?;
        if !MAGIC.starts_with(&magic) {
            return Err(DumpError::NoExport { path: self.path.clone() });
        }
        self.at += magic.len() as u64;
        let mut head = [magic, self.take(HEAD_BYTES - MAGIC.len() as u64)?].concat();
        let mut rest = &head[MAGIC.len()..];
        let found = rest.get_u32_le();
        if found > VERSION {
            return Err(DumpError::Newer { path: self.path.clone(), found, known: VERSION });
        }
        rest.copy_to_slice(&mut self.dump.id);
        let about_len = rest.get_u32_le();
        if about_len > ABOUT_BYTES_MAX {
            return Err(self.corrupt("its head is too long"));
        }
        let about = self.take(u64::from(about_len))?;
        head.extend_from_slice(&about);
        if self.take(4)? != crc32_iscsi(&head).to_le_bytes() {
            return Err(self.corrupt("the checksum of its head is wrong"));
        }
        let about = String::from_utf8(about);
        self.dump.about = about.map_err(|_| self.corrupt("its head is no text"))?;
        Ok(())
    }

    /// Its number, and whose store it is.
    pub fn head(&self) -> (DumpId, String) {
        (self.dump.id, self.dump.about.clone())
    }

    /// How far it was read.
    pub fn progress(&self, step: Step) -> Progress {
        Progress { step, pairs: self.dump.pairs, bytes: self.at, bytes_total: Some(self.len) }
    }

    fn corrupt(&self, cause: &str) -> DumpError {
        DumpError::Corrupt { path: self.path.clone(), at: self.part, cause: cause.to_owned() }
    }

    fn up_to(&mut self, len: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.file).take(len).read_to_end(&mut bytes).map_err(with(&self.path))?;
        Ok(bytes)
    }

    fn take(&mut self, len: u64) -> Result<Vec<u8>> {
        let bytes = self.up_to(len)?;
        if (bytes.len() as u64) < len {
            return Err(self.corrupt("it is cut off"));
        }
        self.at += len;
        Ok(bytes)
    }

    /// The pairs of the next block; none: that was all.
    pub fn next_block(&mut self) -> Result<Option<Vec<Pair>>> {
        if self.ended {
            return Ok(None);
        }
        self.part = self.at;
        let head = self.take(BLOCK_HEAD_BYTES)?;
        let mut numbers = &head[..];
        let (len, count, crc) = (numbers.get_u32_le(), numbers.get_u32_le(), numbers.get_u32_le());
        if (len, count, crc) == (0, 0, 0) {
            self.read_end()?;
            return Ok(None);
        }
        if len == 0 || len > BLOCK_BYTES_MAX {
            return Err(self.corrupt("the length of a block is wrong"));
        }
        let payload = Bytes::from(self.take(u64::from(len))?);
        if crc32_iscsi(&payload) != crc {
            return Err(self.corrupt("the checksum of a block is wrong"));
        }
        let pairs = self.pairs(payload)?;
        if pairs.len() as u64 != u64::from(count) {
            return Err(self.corrupt("a block counts its pairs wrongly"));
        }
        self.dump.pairs += pairs.len() as u64;
        self.dump.bytes += bytes_of(&pairs);
        Ok(Some(pairs))
    }

    fn pairs(&mut self, mut payload: Bytes) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        while !payload.is_empty() {
            let key = self.string(&mut payload)?;
            let value = self.string(&mut payload)?;
            if key.starts_with(OURS) {
                return Err(self.corrupt("a key of it is no store's"));
            }
            if self.last.as_ref().is_some_and(|last| *last >= key) {
                return Err(self.corrupt("its keys are not in order"));
            }
            self.last = Some(key.clone());
            pairs.push((key, value));
        }
        Ok(pairs)
    }

    fn string(&self, payload: &mut Bytes) -> Result<Bytes> {
        let len = (payload.len() >= 4).then(|| payload.get_u32_le() as usize);
        let len = len.filter(|len| *len <= payload.len());
        len.map(|len| payload.split_to(len)).ok_or_else(|| self.corrupt("a block ends in a pair"))
    }

    fn read_end(&mut self) -> Result<()> {
        let end = self.take(20)?;
        let mut numbers = &end[..];
        let counts = (numbers.get_u64_le(), numbers.get_u64_le());
        let crc = numbers.get_u32_le();
        if crc != crc32_iscsi(&[&self.dump.id[..], &end[..16]].concat()) {
            return Err(self.corrupt("the checksum of its end is wrong"));
        }
        if counts != (self.dump.pairs, self.dump.bytes) {
            return Err(self.corrupt("it does not hold as much as its end says"));
        }
        if self.at != self.len {
            return Err(self.corrupt("something follows its end"));
        }
        self.ended = true;
        Ok(())
    }

    /// What it says of itself, when all of it was read.
    pub fn end(self) -> Result<Dump> {
        match self.ended {
            true => Ok(self.dump),
            false => Err(self.corrupt("it was not read to its end")),
        }
    }
}
