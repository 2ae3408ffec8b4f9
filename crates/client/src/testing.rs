//! A metadata server and targets small enough to read, for the tests of this crate: they keep just
//! what the client's contents path needs, and can be told to wait, to fail and to lose memory.

use crate::{OpenFile, OpenFlags, Volume, VolumeOptions};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use strake_base::clock::Clock;
use strake_types::{Credentials, Error, ErrorKind, FileKind, Ino, Result, ServerId};
use strake_wire::caller::{CallerOptions, Callers, LocalServices};
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::message::common::{AttrChange, Attributes, FileLayout, Time, TimeChoice};
use strake_wire::message::manager::{
    ClusterMap, Group, Server, Target, TargetSpec, Volume as VolumeEntry, VolumeSpec,
};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp, MetaReply, MetaRequest, Opened};
use strake_wire::service::MetaService;

mod answered;
mod behind;
mod buffers;
mod claims;
mod described;
#[path = "../../../tests/src/lines.rs"]
pub(crate) mod lines;
mod losses;
pub(crate) mod pairs;
mod privileges;
mod shares;
mod targets;

pub(crate) use buffers::buffer;
use described::describe;
use targets::FakeStorage;

pub(crate) const TARGETS: u32 = 4;
pub(crate) const CHUNK: u64 = 64 << 10;

/// A cluster of one metadata server and [`TARGETS`] targets.
#[derive(Default)]
pub(crate) struct Fake {
    state: Mutex<FakeState>,
    /// While something holds it, writes wait before they are applied.
    pub(crate) gate: tokio::sync::RwLock<()>,
    /// The same for what is copied, freed or reserved.
    pub(crate) change_gate: tokio::sync::RwLock<()>,
    /// The same for what is published.
    pub(crate) publish_gate: tokio::sync::RwLock<()>,
    /// A publish waits here when it is done, before it is answered.
    pub(crate) published_gate: tokio::sync::RwLock<()>,
    /// The same for opens.
    pub(crate) open_gate: tokio::sync::RwLock<()>,
    /// An open waits here when it is done, before it is answered.
    pub(crate) opened_gate: tokio::sync::RwLock<()>,
    /// While something holds it, claims wait.
    pub(crate) claim_gate: tokio::sync::RwLock<()>,
    /// The same for changes of attributes.
    pub(crate) set_attr_gate: tokio::sync::RwLock<()>,
    /// The same for locks that may wait.
    pub(crate) lock_gate: tokio::sync::RwLock<()>,
    /// An unlink waits here when it is done, before it is answered.
    pub(crate) unlinked_gate: tokio::sync::RwLock<()>,
    /// While something holds it, lists of changes that were answered already wait before they are made.
    pub(crate) behind_gate: tokio::sync::RwLock<()>,
    pub(crate) pairs: pairs::Pairs,
}

#[derive(Default)]
struct FakeState {
    /// New files lie in the pair.
    in_pair: bool,
    /// Somebody else has everything open.
    shared: bool,
    /// Ranges may be claimed: all that is asked for is granted, or nothing is.
    claims: Option<bool>,
    /// It says that it takes attributes together with writes, and leaves them out.
    with_writes: bool,
    behind: behind::Behind,
    /// See [`Fake::let_through_once`], and for false [`Fake::let_nothing_through`].
    once: Option<bool>,
    files: BTreeMap<u64, FakeFile>,
    names: HashMap<Vec<u8>, u64>,
    chunks: BTreeMap<(u64, u64), Vec<u8>>,
    /// Each session with its incarnation; 0: nobody has said yet what it has open.
    sessions: BTreeMap<u64, u64>,
    /// How many entries directories have that were made by [`Fake::fill`].
    entries: HashMap<u64, u64>,
    /// All pages of a directory but the first come without a lease.
    rest_unleased: bool,
    /// The number of a recall of everything; 0: there is nothing to recall.
    everything: u64,
    /// The number of a recall of one inode, and that.
    recalled: (u64, u64),
    /// Files of which it says once that a cut may stay undone.
    cuts: Vec<u64>,
    /// The last session that began.
    session: u64,
    /// That of whoever asks now.
    incarnation: u64,
    seen_seqs: HashSet<(u64, u64, u64)>,
    /// Numbers of mutations that it was told are given up.
    given_up: HashSet<u64>,
    /// Reports of closed files: incarnation and number.
    reports: HashSet<(u64, u64)>,
    log: Vec<String>,
    /// Errors to answer to the next requests whose log line begins so.
    errors: Vec<(String, Error)>,
    /// Which boot the targets speak from; 0: they do not say.
    boot: u64,
    /// Bytes free on each target; none: they do not say.
    free: Option<u64>,
    /// The group that answers nothing.
    away: Option<u32>,
    /// Errors to answer after having carried the request out.
    lost_answers: Vec<(String, Error)>,
    /// The sessions are forgotten with the answer that is lost.
    with_session: bool,
}

/// Inodes of [`Fake::fill`] are numbered apart.
const ENTRIES_MAX: u64 = 1_000_000;

/// The name of the nth entry of a directory.
pub(crate) fn entry_name(nth: u64) -> Bytes {
    Bytes::from(format!("entry-{nth}"))
}

#[derive(Clone)]
struct FakeFile {
    attr: Attributes,
    inline: Vec<u8>,
    opens: i64,
}

impl Fake {
    /// A volume over it.
    pub(crate) async fn volume(self: &Arc<Self>, options: VolumeOptions) -> Arc<Volume> {
        let view = MapView::fixed(self.callers(), map());
        Volume::connect(view, "main", options).await.unwrap()
    }

    /// A volume over it whose files lie in [`pairs::PAIR`].
    pub(crate) async fn volume_in_pair(self: &Arc<Self>, options: VolumeOptions) -> Arc<Volume> {
        self.pairs.start(map());
        self.state.lock().in_pair = true;
        let source = ManagerSource::Local(Arc::new(pairs::FakeManager(Arc::clone(self))));
        let view = MapView::connect(self.callers(), source, 1_000)
            .await
            .expect("the fake manager answers at once");
        Volume::connect(view, "main", options).await.expect("the fake map has a volume main")
    }

    fn callers(self: &Arc<Self>) -> Arc<Callers> {
        // So that who waits for a connection does so until he gives it up himself.
        let options = CallerOptions { connect_timeout_ms: 60_000, ..CallerOptions::default() };
        let callers = Callers::new(options);
        let services = LocalServices {
            manager: None,
            meta: Some(Arc::new(FakeMeta(Arc::clone(self)))),
            storage: Some(Arc::new(FakeStorage(Arc::clone(self)))),
        };
        callers.register_local(ServerId(1), services);
        callers
    }

    /// What was asked so far, one line per request; the log is empty afterwards.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().log)
    }

    /// True if it was told that all these mutations are given up.
    pub(crate) fn knows_given_up(&self, seqs: &[u64]) -> bool {
        let state = self.state.lock();
        seqs.iter().all(|seq| state.given_up.contains(seq))
    }

    pub(crate) fn fail(&self, prefix: &str, kind: ErrorKind) {
        self.state.lock().errors.push((prefix.into(), kind.into()));
    }

    /// The next such request is carried out, but its answer is lost.
    pub(crate) fn lose_answer(&self, prefix: &str) {
        self.state.lock().lost_answers.push((prefix.into(), ErrorKind::Unavailable.into()));
    }

    /// As [`Fake::lose_answer`], and the server forgets its sessions then.
    pub(crate) fn lose_answer_and_session(&self, prefix: &str) {
        self.state.lock().with_session = true;
        self.lose_answer(prefix);
    }

    /// Everything is recalled from all sessions, under this number.
    pub(crate) fn recall_everything(&self, number: u64) {
        self.state.lock().everything = number;
    }

    /// An inode is recalled from all sessions, under this number.
    pub(crate) fn recall(&self, number: u64, ino: u64) {
        self.state.lock().recalled = (number, ino);
    }

    /// Says with its next answer about recalls that a cut of a file may stay undone.
    pub(crate) fn doubt_cut(&self, ino: Ino) {
        self.state.lock().cuts.push(ino.0);
    }

    /// From now on there are so many entries in a directory: [`entry_name`] has their names.
    pub(crate) fn fill(&self, directory: u64, entries: u64) {
        self.state.lock().entries.insert(directory, entries);
    }

    /// From now on somebody is just changing each directory when its second page is asked for, and later ones.
    pub(crate) fn lease_no_rest(&self) {
        self.state.lock().rest_unleased = true;
    }

    /// The targets speak from this boot from now on.
    pub(crate) fn set_boot(&self, boot: u64) {
        self.state.lock().boot = boot;
    }

    pub(crate) fn opens(&self, ino: Ino) -> i64 {
        self.state.lock().files[&ino.0].opens
    }

    /// The file lies on one target only from now on.
    pub(crate) fn lay_elsewhere(&self, ino: Ino) {
        let mut state = self.state.lock();
        let attr =
            &mut state.files.get_mut(&ino.0).expect("a test names a file that is there").attr;
        attr.version += 1;
        attr.layout.iter_mut().for_each(|layout| layout.width = 1);
    }

    pub(crate) fn server_length(&self, ino: Ino) -> u64 {
        self.state.lock().files[&ino.0].attr.length
    }
}

/// The paused time of tokio.
pub(crate) struct Paused(tokio::time::Instant);

impl Default for Paused {
    fn default() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for Paused {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(1) + self.0.elapsed()
    }

    fn wall(&self) -> Duration {
        self.monotonic()
    }
}

pub(crate) fn options() -> VolumeOptions {
    VolumeOptions { operation_wait_ms: 2_000, memory_bytes: 32 << 20, ..VolumeOptions::default() }
}

/// Makes and opens a file for both.
pub(crate) async fn create(volume: &Arc<Volume>, name: &str) -> Arc<OpenFile> {
    let flags = OpenFlags::READ_WRITE;
    let name = Bytes::copy_from_slice(name.as_bytes());
    let cred = Credentials::root();
    volume.create(&cred, Ino::ROOT, name, 0o644, 0, flags).await.unwrap().1
}

fn map() -> ClusterMap {
    let spec = |target| TargetSpec {
        target,
        total_bytes: 1 << 40,
        free_bytes: 1 << 39,
        path: format!("path-{target}"),
        ..Default::default()
    };
    ClusterMap {
        cluster: "test".into(),
        epoch: 1,
        servers: vec![Server { id: 1, meta: true, up: true, ..Server::default() }],
        targets: (0..TARGETS)
            .map(|id| Target { id, server: 1, spec: spec(id), up: true, drains: false })
            .collect(),
        groups: (0..TARGETS)
            .map(|id| Group { id, epoch: 1, members: vec![id], ..Group::default() })
            .collect(),
        volumes: vec![VolumeEntry {
            id: 1,
            spec: VolumeSpec { name: "main".into(), ..VolumeSpec::default() },
            meta_server: 1,
            ..VolumeEntry::default()
        }],
        ..ClusterMap::default()
    }
}

struct FakeMeta(Arc<Fake>);

#[async_trait]
impl MetaService for FakeMeta {
    async fn call(&self, request: MetaRequest) -> Result<MetaReply> {
        let op = request.op.clone().unwrap();
        if matches!(op, MetaOp::Publish(_)) {
            let _gate = self.0.publish_gate.read().await;
        }
        if matches!(op, MetaOp::Open(_)) {
            let _gate = self.0.open_gate.read().await;
        }
        if matches!(&op, MetaOp::SetLock(lock) if lock.wait_ms > 1) {
            let _gate = self.0.lock_gate.read().await;
        }
        let line = describe(&op);
        let last = {
            let mut state = self.0.state.lock();
            state.log.push(line.clone());
            state.last_recall()
        };
        if matches!(op, MetaOp::Claim(_)) {
            let _gate = self.0.claim_gate.read().await;
        }
        if matches!(op, MetaOp::SetAttr(_)) {
            let _gate = self.0.set_attr_gate.read().await;
        }
        if matches!(op, MetaOp::Behind(_)) {
            let _gate = self.0.behind_gate.read().await;
        }
        if matches!(&op, MetaOp::Recalls(recalls) if recalls.followed >= last) {
            // There is nothing to recall.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let (opens, publishes) = (matches!(op, MetaOp::Open(_)), matches!(op, MetaOp::Publish(_)));
        let unlinks = matches!(op, MetaOp::Unlink(_));
        let answer = self.0.state.lock().answer(&request, op, &line)?;
        if opens {
            let _gate = self.0.opened_gate.read().await;
        }
        if publishes {
            let _gate = self.0.published_gate.read().await;
        }
        if unlinks {
            let _gate = self.0.unlinked_gate.read().await;
        }
        Ok(MetaReply { answer: Some(answer), fenced: 0 })
    }
}

impl FakeState {
    fn injected(&mut self, line: &str) -> Result<()> {
        match self.errors.iter().position(|(prefix, _)| line.starts_with(prefix.as_str())) {
            Some(at) => Err(self.errors.remove(at).1),
            None => Ok(()),
        }
    }

    fn lost(&mut self, line: &str) -> Result<()> {
        match self.lost_answers.iter().position(|(prefix, _)| line.starts_with(prefix.as_str())) {
            Some(at) => {
                if std::mem::take(&mut self.with_session) {
                    self.sessions.clear();
                }
                Err(self.lost_answers.remove(at).1)
            }
            None => Ok(()),
        }
    }

    fn file(&mut self, ino: u64) -> Result<&mut FakeFile> {
        self.files.get_mut(&ino).ok_or(ErrorKind::Stale.into())
    }

    /// A server says the number of what is followed where there is nothing: no greater one.
    fn last_recall(&self) -> u64 {
        self.everything.max(self.recalled.0).max(1)
    }

    fn page(&self, read: meta::ReadDir) -> MetaAnswer {
        let entries = self.entries.get(&read.ino).copied().unwrap_or_default();
        let last = entries.min(read.after + u64::from(read.limit));
        let entry = |cookie| {
            let attr = FakeFile::new(read.ino * ENTRIES_MAX + cookie).attr;
            let attr = Attributes { name_leased: true, ..attr };
            let name = entry_name(cookie);
            meta::DirEntry { name, ino: attr.ino, kind: 1, cookie, attr: read.plus.then_some(attr) }
        };
        MetaAnswer::Page(meta::Page {
            entries: (read.after + 1..=last).map(entry).collect(),
            end: last == entries,
            parent: 1,
            leased: !self.rest_unleased || read.after == 0,
        })
    }

    fn entry(&mut self, ino: u64) -> Result<MetaAnswer> {
        Ok(MetaAnswer::Entry(self.file(ino)?.attr.clone()))
    }

    fn opened(&mut self, ino: u64, truncate: bool) -> Result<Opened> {
        if truncate {
            self.set_length(ino, 0)?;
            self.changed(ino, None)?;
        }
        let file = self.file(ino)?;
        file.opens += 1;
        let inline = file.attr.inline.then(|| Bytes::copy_from_slice(&file.inline));
        let attr = file.attr.clone();
        let capability = Bytes::from_static(b"cap");
        let (shared, unsettled) = (self.shared, self.shared);
        Ok(Opened { attr, inline, capability, shared, unsettled, others_write: false })
    }

    fn changed(&mut self, ino: u64, mtime: Option<Time>) -> Result<()> {
        let file = self.file(ino)?;
        file.attr.version += 1;
        if let Some(mtime) = mtime {
            file.attr.mtime = mtime;
        }
        Ok(())
    }

    fn meta(&mut self, op: MetaOp, repeated: bool) -> Result<MetaAnswer> {
        let nothing = MetaAnswer::Done(meta::Nothing {});
        match op {
            MetaOp::OpenSession(open) => Ok(MetaAnswer::Session(self.open_session(open))),
            MetaOp::RenewSession(renew) => {
                if renew.incarnation == self.incarnation
                    && self.reports.insert((renew.incarnation, renew.number))
                {
                    for ino in renew.closed {
                        self.file(ino)?.opens -= 1;
                    }
                }
                Ok(nothing)
            }
            MetaOp::Create(create) => self.create(create, repeated),
            MetaOp::Open(open) => {
                let opened = self.opened(open.ino, open.mode.truncate)?;
                self.file(open.ino)?.opens -= i64::from(repeated);
                Ok(MetaAnswer::Opened(opened))
            }
            MetaOp::GetAttr(look) => self.entry(look.ino),
            MetaOp::Claim(claim) => Ok(self.claimed(&claim)),
            MetaOp::SetAttr(set) => self.set_attr(set),
            MetaOp::Publish(publish) => {
                let file = self.file(publish.ino)?;
                file.attr.length = file.attr.length.max(publish.length_min);
                let occupied = if repeated { 0 } else { publish.occupied_delta };
                file.attr.occupied = file.attr.occupied.saturating_add_signed(occupied);
                file.written_by(publish.drop_setid);
                self.changed(publish.ino, publish.mtime)?;
                self.entry(publish.ino)
            }
            MetaOp::WriteInline(write) => self.write_inline(write),
            MetaOp::ReadInline(inode) | MetaOp::Settle(inode) => {
                let opened = self.opened(inode.ino, false)?;
                self.file(inode.ino)?.opens -= 1;
                Ok(MetaAnswer::Opened(opened))
            }
            MetaOp::SetLock(_) => Ok(nothing),
            MetaOp::Sync(inode) if inode.ino != 0 => self.file(inode.ino).map(|_| nothing),
            MetaOp::Recalls(recalls) => {
                let everything = recalls.forgotten < self.everything;
                let (number, ino) = self.recalled;
                let inodes = if recalls.followed < number { vec![ino] } else { Vec::new() };
                let number = self.last_recall();
                let cuts = std::mem::take(&mut self.cuts);
                self.behind.given_back.extend(recalls.given_back);
                let exclusive = std::mem::take(&mut self.behind.asked_back);
                let told =
                    meta::Recalled { number, inodes, everything, cuts, ..Default::default() };
                Ok(MetaAnswer::Recalled(meta::Recalled { exclusive, ..told }))
            }
            MetaOp::ReadDir(read) => Ok(self.page(read)),
            MetaOp::Behind(behind) => Ok(self.make_behind(&behind)),
            MetaOp::Lookup(at) if self.behind.on => self.lookup(&at),
            MetaOp::Link(link) if self.behind.on => self.link(&link),
            MetaOp::Unlink(unlink) if self.behind.on => self.unlink(&unlink),
            MetaOp::Rename(rename) if self.behind.on => self.rename(&rename),
            MetaOp::VolumeStat(_) => Ok(MetaAnswer::VolumeStat(meta::VolumeStat::default())),
            MetaOp::MoveOut(inode) => {
                self.move_out(inode.ino)?;
                self.entry(inode.ino)
            }
            _ => Ok(nothing),
        }
    }

    fn create(&mut self, create: meta::Create, repeated: bool) -> Result<MetaAnswer> {
        let name = create.at.name.to_vec();
        if create.exclusive && !repeated && self.names.contains_key(&name) {
            return Err(ErrorKind::Exists.into());
        }
        let created = !self.names.contains_key(&name);
        let next = self.files.len() as u64 + 2;
        let ino = *self.names.entry(name).or_insert(next);
        let mut file = FakeFile::new(ino);
        if let Some(layout) = file.attr.layout.as_mut().filter(|_| self.in_pair) {
            (layout.copies, layout.table, layout.width) = (2, 1, 1);
            // Named for what they ask of the copies.
            if create.at.name.starts_with(b"early") {
                (layout.ack, layout.min_copies) = (1, 2);
            }
        }
        self.files.entry(ino).or_insert(file);
        let directory = create.at.parent;
        self.files.entry(directory).or_insert_with(|| FakeFile::new(directory));
        self.changed(directory, None)?;
        let parent = match self.behind.on {
            true => self.made_in(directory, ino, create.kind, created)?,
            false => self.file(directory)?.attr.clone(),
        };
        let opened = Some(self.opened(ino, false)?);
        let mut attr = self.file(ino)?.attr.clone();
        let is_dir = attr.kind == FileKind::Directory as u32;
        // Named for who has found it by now.
        if self.behind.on && created && is_dir && !create.at.name.starts_with(b"found") {
            attr.exclusive = self.behind.number(ino);
        }
        Ok(MetaAnswer::Created(meta::Created { attr, created, opened, parent: Some(parent) }))
    }

    fn set_attr(&mut self, set: meta::SetAttr) -> Result<MetaAnswer> {
        let AttrChange { length, mtime, mode, .. } = set.change;
        if let Some(length) = length {
            self.set_length(set.ino, length)?;
        }
        if let Some(mode) = mode {
            self.file(set.ino)?.attr.mode = mode;
        }
        let mtime = match mtime.and_then(|m| m.choice) {
            Some(TimeChoice::At(time)) => Some(time),
            _ => None,
        };
        self.changed(set.ino, mtime)?;
        self.entry(set.ino)
    }

    fn set_length(&mut self, ino: u64, length: u64) -> Result<()> {
        let file = self.file(ino)?;
        let before = std::mem::replace(&mut file.attr.length, length);
        if file.attr.inline && length > 8192 {
            self.move_out(ino)?;
        } else if file.attr.inline {
            file.inline.resize(length as usize, 0);
        } else if length < before {
            // As the real server does: only what it knows to be there is cut.
            self.chunks.retain(|&(file, index), _| file != ino || index * CHUNK < length);
            if let Some(last) = self.chunks.get_mut(&(ino, length / CHUNK)) {
                last.truncate((length % CHUNK) as usize);
            }
        }
        Ok(())
    }

    fn write_inline(&mut self, write: meta::WriteInline) -> Result<MetaAnswer> {
        let closes = write.close && write.incarnation == self.incarnation;
        let file = self.file(write.ino)?;
        let (from, to) = (write.offset as usize, write.offset as usize + write.data.len());
        if !file.attr.inline || to > 8192 {
            return Err(ErrorKind::FileTooBig.into());
        }
        let len = file.inline.len().max(to);
        file.inline.resize(len, 0);
        file.inline[from..to].copy_from_slice(&write.data);
        file.attr.length = len as u64;
        file.opens -= i64::from(closes);
        file.written_by(write.drop_setid);
        self.changed(write.ino, write.mtime)?;
        self.entry(write.ino)
    }

    fn move_out(&mut self, ino: u64) -> Result<()> {
        let file = self.file(ino)?;
        if std::mem::replace(&mut file.attr.inline, false) {
            file.attr.version += 1;
            let contents = std::mem::take(&mut file.inline);
            self.chunks.insert((ino, 0), contents);
        }
        Ok(())
    }
}

impl FakeFile {
    fn new(ino: u64) -> Self {
        let layout = FileLayout {
            chunk_size: CHUNK,
            distribution: strake_wire::message::common::Dist { kind: 1, ..Default::default() },
            width: TARGETS,
            seed: 7,
            table: TARGETS,
            list: Vec::new(),
            copies: 1,
            ..FileLayout::default()
        };
        let attr = Attributes {
            ino,
            kind: 1,
            mode: 0o644,
            nlink: 1,
            version: 1,
            inline: true,
            no_xattrs: true,
            leased: true,
            layout: Some(layout),
            ..Attributes::default()
        };
        Self { attr, inline: Vec::new(), opens: 0 }
    }
}

/// What a read returns, as one piece.
pub(crate) async fn read(volume: &Arc<Volume>, file: &Arc<OpenFile>, at: u64, len: u32) -> Vec<u8> {
    volume.read(file, at, len).await.unwrap().into_bytes().to_vec()
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(seed: u8, len: usize) -> Bytes {
    (0..len).map(|i| (i / 251) as u8 ^ (i as u8) ^ seed).collect::<Vec<u8>>().into()
}

/// Writes all of it.
pub(crate) async fn write(volume: &Arc<Volume>, file: &Arc<OpenFile>, at: u64, data: Bytes) {
    let len = data.len() as u64;
    assert_eq!(volume.write(file, at, data).await.unwrap().len, len);
}
