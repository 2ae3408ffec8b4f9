//! Random messages of every kind, for the tests of this crate.

#[path = "samples/jobs.rs"]
mod jobs;
#[path = "samples/members.rs"]
mod members;
#[path = "samples/recalls.rs"]
mod recalls;
#[path = "samples/repair.rs"]
mod repair;

use super::common::*;
use super::{meta, storage as st};
use bytes::Bytes;

/// A source of random values (splitmix64); the seed comes from proptest.
pub struct Gen(pub u64);

impl Gen {
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = z ^ (z >> 31);
        // Small and large numbers both often.
        z >> (self.0 % 64)
    }

    pub fn u32(&mut self) -> u32 {
        self.u64() as u32
    }

    fn bool(&mut self) -> bool {
        self.u64() & 1 == 1
    }

    pub fn bytes(&mut self) -> Bytes {
        let len = self.u64() % 40;
        (0..len).map(|_| self.u64() as u8).collect()
    }

    fn string(&mut self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    fn opt<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.bool().then(|| make(self))
    }

    fn list<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.u64() % 5).map(|_| make(self)).collect()
    }

    fn time(&mut self) -> Time {
        Time { seconds: self.u64() as i64, nanos: self.u32() }
    }

    fn dist(&mut self) -> Dist {
        Dist {
            kind: self.u32(),
            groups: self.u32(),
            factor: self.u32(),
            strip_slots: self.list(Self::u32),
            strip_bytes: self.list(Self::u64),
        }
    }

    fn template(&mut self) -> Template {
        Template {
            chunk_size: self.opt(Self::u64),
            distribution: self.opt(Self::dist),
            width: self.opt(Self::u32),
            list: self.list(Self::u32),
            copies: self.opt(Self::u32),
            ack: self.opt(Self::u32),
            min_copies: self.opt(Self::u32),
            consistency: self.opt(Self::u32),
        }
    }

    fn layout(&mut self) -> FileLayout {
        FileLayout {
            chunk_size: self.u64(),
            distribution: self.dist(),
            width: self.u32(),
            seed: self.u64(),
            table: self.u32(),
            list: self.list(Self::u32),
            copies: self.u32(),
            ack: self.u32(),
            min_copies: self.u32(),
            consistency: self.u32(),
            wanted_width: self.u32(),
        }
    }

    fn attr(&mut self) -> Attributes {
        Attributes {
            ino: self.u64(),
            kind: self.u32(),
            mode: self.u32(),
            uid: self.u32(),
            gid: self.u32(),
            nlink: self.u32(),
            rdev: self.u32(),
            length: self.u64(),
            occupied: self.u64(),
            atime: self.time(),
            mtime: self.time(),
            ctime: self.time(),
            btime: self.time(),
            version: self.u64(),
            inline: self.bool(),
            no_xattrs: self.bool(),
            layout: self.opt(Self::layout),
            leased: self.bool(),
            name_leased: self.bool(),
            exclusive: self.u64(),
        }
    }

    fn time_set(&mut self) -> TimeSet {
        let choice = match self.bool() {
            true => TimeChoice::Now(true),
            false => TimeChoice::At(self.time()),
        };
        TimeSet { choice: Some(choice) }
    }

    fn change(&mut self) -> AttrChange {
        AttrChange {
            mode: self.opt(Self::u32),
            uid: self.opt(Self::u32),
            gid: self.opt(Self::u32),
            length: self.opt(Self::u64),
            atime: self.opt(Self::time_set),
            mtime: self.opt(Self::time_set),
            ctime: self.opt(Self::time),
            drop_setid: self.bool(),
        }
    }

    fn name(&mut self) -> meta::Name {
        meta::Name { parent: self.u64(), name: self.bytes() }
    }

    fn ino(&mut self) -> meta::Inode {
        meta::Inode { ino: self.u64() }
    }

    fn mode(&mut self) -> meta::OpenMode {
        meta::OpenMode { read: self.bool(), write: self.bool(), truncate: self.bool() }
    }

    fn xattr(&mut self) -> meta::Xattr {
        meta::Xattr {
            ino: self.u64(),
            name: self.bytes(),
            value: self.bytes(),
            must_create: self.bool(),
            must_replace: self.bool(),
            drop_setgid: self.bool(),
        }
    }

    fn lock(&mut self) -> meta::Lock {
        meta::Lock {
            ino: self.u64(),
            owner: self.u64(),
            pid: self.u32(),
            start: self.u64(),
            end: self.u64(),
            kind: self.u32(),
            flock: self.bool(),
            wait_ms: self.u32(),
        }
    }

    fn create(&mut self) -> meta::Create {
        meta::Create {
            at: self.name(),
            kind: self.u32(),
            mode: self.u32(),
            umask: self.u32(),
            rdev: self.u32(),
            target: self.bytes(),
            open: self.opt(Self::mode),
            exclusive: self.bool(),
            template: self.opt(Self::template),
        }
    }

    fn write_inline(&mut self) -> meta::WriteInline {
        meta::WriteInline {
            ino: self.u64(),
            offset: self.u64(),
            data: self.bytes(),
            mtime: self.opt(Self::time),
            sync: self.bool(),
            drop_setid: self.bool(),
            close: self.bool(),
            incarnation: self.u64(),
            ctime: self.opt(Self::time),
            atime: self.opt(Self::time),
            change: self.opt(Self::change).map(Box::new),
        }
    }

    fn publish(&mut self) -> meta::Publish {
        meta::Publish {
            ino: self.u64(),
            length_min: self.u64(),
            mtime: self.opt(Self::time),
            sync: self.bool(),
            occupied_delta: self.u64() as i64,
            drop_setid: self.bool(),
            ctime: self.opt(Self::time),
            atime: self.opt(Self::time),
        }
    }

    fn rename(&mut self) -> meta::Rename {
        meta::Rename {
            from: self.name(),
            to: self.name(),
            no_replace: self.bool(),
            exchange: self.bool(),
        }
    }

    fn opened(&mut self) -> meta::Opened {
        meta::Opened {
            attr: self.attr(),
            inline: self.opt(Self::bytes),
            capability: self.bytes(),
            shared: self.bool(),
            unsettled: self.bool(),
            others_write: self.bool(),
        }
    }

    fn beginning(&mut self) -> meta::OpenSession {
        meta::OpenSession {
            client: self.string(),
            resume: self.u64(),
            open: self.list(Self::u64),
            incarnation: self.u64(),
            writable: self.list(Self::u64),
            mount: self.u64(),
            claims: self.bool(),
            moves: self.bool(),
            release: self.string(),
            behind: self.bool(),
        }
    }

    fn meta_ops(&mut self) -> Vec<meta::MetaOp> {
        use meta::MetaOp::*;
        let nothing = meta::Nothing {};
        vec![
            OpenSession(self.beginning()),
            RenewSession(self.closed()),
            CloseSession(nothing),
            Lookup(self.name()),
            GetAttr(self.look()),
            SetAttr(meta::SetAttr {
                ino: self.u64(),
                change: self.change(),
                writable_handle: self.bool(),
            }),
            Create(self.create()),
            Link(meta::Link { ino: self.u64(), to: self.name() }),
            Unlink(meta::Unlink { at: self.name(), directory: self.bool() }),
            Rename(self.rename()),
            ReadLink(self.ino()),
            Open(meta::Open { ino: self.u64(), mode: self.mode() }),
            ReadDir(meta::ReadDir {
                ino: self.u64(),
                after: self.u64(),
                limit: self.u32(),
                plus: self.bool(),
            }),
            Publish(self.publish()),
            WriteInline(self.write_inline()),
            MoveOut(self.ino()),
            GetXattr(self.xattr()),
            ListXattr(self.ino()),
            SetXattr(self.xattr()),
            RemoveXattr(self.xattr()),
            SetLock(self.lock()),
            GetLock(self.lock()),
            Sync(self.ino()),
            VolumeStat(nothing),
            GetTemplate(self.ino()),
            SetTemplate(meta::SetTemplate { ino: self.u64(), template: self.template() }),
            ReadInline(self.ino()),
            Describe(self.ino()),
            self.check(),
            Recalls(meta::Recalls {
                followed: self.u64(),
                waits: self.list(Self::wait),
                forgotten: self.u64(),
                waited: self.list(Self::wait),
                given_back: self.list(Self::u64),
                behind: self.bool(),
            }),
            ListClients(nothing),
            EvictClient(meta::ClientRef { session: self.u64() }),
            Settle(self.ino()),
            self.told(),
            self.borrow(),
            GiveBack(meta::GiveBack {
                number: self.u64(),
                made: self.opt(Self::bool),
                inodes: -7,
                bytes: -4096,
            }),
            self.claim(),
            self.behind(),
        ]
    }

    fn borrow(&mut self) -> meta::MetaOp {
        meta::MetaOp::Borrow(meta::Borrow {
            borrower: self.u32(),
            since: self.u64(),
            inodes: self.list(Self::u64),
            names: self.list(Self::name),
            child_of: self.u64(),
            mount: self.u64(),
            leases: self.u64(),
            children: self.u32(),
        })
    }

    fn loan(&mut self) -> meta::MetaAnswer {
        let (number, slot, stored) = (self.u64(), self.u32(), self.u64());
        let (ino, children) = (self.u64(), self.u32());
        meta::MetaAnswer::Loan(meta::Loan { number, slot, stored, ino, children })
    }

    fn closed(&mut self) -> meta::RenewSession {
        let (closed, number) = (self.list(Self::u64), self.u64());
        meta::RenewSession { closed, number, incarnation: self.u64() }
    }

    /// A request with each operation.
    pub fn meta_requests(&mut self) -> Vec<meta::MetaRequest> {
        let cred = Cred {
            uid: self.u32(),
            gid: self.u32(),
            groups: self.list(Self::u32),
            checked: self.bool(),
        };
        let request = meta::MetaRequest {
            volume: self.u32(),
            session: self.u64(),
            seq: self.u64(),
            answered: self.u64(),
            cred,
            leases: self.u64(),
            incarnation: self.u64(),
            closed: Some(self.closed()),
            given_up: self.list(Self::u64),
            op: None,
        };
        let ops = self.meta_ops().into_iter();
        ops.map(|op| meta::MetaRequest { op: Some(op), ..request.clone() }).collect()
    }

    fn dir_entry(&mut self) -> meta::DirEntry {
        meta::DirEntry {
            name: self.bytes(),
            ino: self.u64(),
            kind: self.u32(),
            cookie: self.u64(),
            attr: self.opt(Self::attr),
        }
    }

    pub(super) fn renamed(&mut self) -> meta::Renamed {
        meta::Renamed {
            moved: self.attr(),
            other: self.opt(Self::attr),
            parent: self.opt(Self::attr),
            new_parent: self.opt(Self::attr),
        }
    }

    /// A reply with each answer.
    pub fn meta_replies(&mut self) -> Vec<meta::MetaReply> {
        use meta::MetaAnswer::*;
        let answers = vec![
            Done(meta::Nothing {}),
            Session(meta::Session {
                session: self.u64(),
                lease_ms: self.u64(),
                resumed: self.bool(),
                shared: self.list(Self::u64),
                claims: self.bool(),
                with_writes: self.bool(),
                behind: self.bool(),
            }),
            Entry(self.attr()),
            Created(meta::Created {
                attr: self.attr(),
                created: self.bool(),
                opened: self.opt(Self::opened),
                parent: self.opt(Self::attr),
            }),
            Renamed(self.renamed()),
            Named(meta::Named { attr: self.attr(), parent: self.opt(Self::attr) }),
            Bytes(self.bytes()),
            Opened(self.opened()),
            Page(meta::Page {
                entries: self.list(Self::dir_entry),
                end: self.bool(),
                parent: self.u64(),
                leased: self.bool(),
            }),
            Lock(self.lock()),
            VolumeStat(meta::VolumeStat {
                inodes: self.u64(),
                bytes: self.u64(),
                inodes_free: self.u64(),
                sessions: self.u64(),
            }),
            Template(self.template()),
            Description(meta::Description {
                paths: self.list(Self::bytes),
                holders: self.list(|s| meta::Holder {
                    session: s.u64(),
                    client: s.string(),
                    opens: s.u32(),
                    locks: s.u32(),
                    absent: s.bool(),
                }),
            }),
        ];
        let clients = Clients(self.clients());
        let more =
            [self.checked(), self.recalled(), Missing(meta::Nothing {}), clients, self.loan()];
        let (claimed, made, fenced) = (self.claimed(), self.made(), self.u64());
        let answers = answers.into_iter().chain(more).chain([claimed, made]);
        answers.map(|a| meta::MetaReply { answer: Some(a), fenced }).collect()
    }

    fn chunk(&mut self) -> st::Chunk {
        st::Chunk { volume: self.u32(), ino: self.u64(), index: self.u64() }
    }

    fn range(&mut self) -> st::Range {
        st::Range { chunk: self.chunk(), offset: self.u64(), len: self.u64() }
    }

    fn file(&mut self) -> st::FileRef {
        st::FileRef { volume: self.u32(), ino: self.u64() }
    }

    fn storage_ops(&mut self) -> Vec<st::StorageOp> {
        use st::StorageOp::*;
        vec![
            Read(st::Read { chunk: self.chunk(), offset: self.u64(), len: self.u64() }),
            Write(self.write()),
            Truncate(st::Truncate {
                volume: self.u32(),
                ino: self.u64(),
                from_index: self.u64(),
                last_chunk_len: self.opt(Self::u64),
                to_index: self.opt(Self::u64),
            }),
            Punch(self.range()),
            Allocate(self.range()),
            Sync(self.file()),
            Extents(self.chunk()),
            Copy(st::Copy {
                to: self.range(),
                from: self.range(),
                from_target: self.u32(),
                from_capability: self.bytes(),
                from_group: self.u32(),
            }),
            Chunks(st::ChunksOf {
                volume: self.u32(),
                ino: self.u64(),
                from: self.u64(),
                max: self.u32(),
            }),
            Stat(st::TargetStatRequest {}),
            Scrub(st::Scrub { after: self.opt(Self::chunk), budget_bytes: self.u64() }),
            DropVolume(self.file()),
            WriteMany(st::WriteMany {
                volume: self.u32(),
                ino: self.u64(),
                indices: self.list(Self::u64),
                offsets: self.list(Self::u64),
                lens: self.list(Self::u64),
                crcs: self.list(Self::u32),
            }),
            Adopt(st::Adopt {}),
            Settle(st::Settle { parts: self.list(Self::range), allocate: self.bool() }),
            Digests(st::DigestsAfter { after: self.opt(Self::chunk) }),
            Sums(self.chunk()),
            Cut(self.cut()),
            Promise(st::Promise { member: self.u32(), lease_ms: self.u64() }),
            Remember(st::AttemptTable {
                clients: self.list(Self::u64),
                settled: self.list(Self::u64),
                counts: self.list(Self::u32),
                seqs: self.list(Self::u64),
            }),
        ]
    }

    /// A request with each operation.
    pub fn storage_requests(&mut self) -> Vec<st::StorageRequest> {
        let ops = self.storage_ops().into_iter().chain(self.repairs()).collect::<Vec<_>>();
        let request = st::StorageRequest {
            target: self.u32(),
            epoch: self.u64(),
            capability: self.bytes(),
            group: self.u32(),
            attempt: self.opt(|g| st::Attempt { client: g.u64(), seq: g.u64(), settled: g.u64() }),
            forward: self.opt(|g| st::Forward {
                number: g.u64(),
                settled: g.u64(),
                reign: g.u64(),
            }),
            ack_primary: self.bool(),
            min_copies: self.u32(),
            fenced: self.u64(),
            op: None,
        };
        let with = |op| st::StorageRequest { op: Some(op), ..request.clone() };
        ops.into_iter().map(with).collect()
    }

    /// A reply with each answer.
    pub fn storage_replies(&mut self) -> Vec<st::StorageReply> {
        use st::StorageAnswer::*;
        let answers = vec![
            Done(st::Done {
                boot: self.u64(),
                short: self.bool(),
                durable: self.bool(),
                early: self.u64(),
                reserved: self.bool(),
                tight: self.bool(),
                full: self.bool(),
            }),
            Data(st::Data { crc: self.u32() }),
            Extents(st::ExtentList {
                starts: self.list(Self::u64),
                lens: self.list(Self::u64),
                reserved_starts: self.list(Self::u64),
                reserved_lens: self.list(Self::u64),
            }),
            Chunks(st::ChunkList {
                indices: self.list(Self::u64),
                lens: self.list(Self::u64),
                occupied: self.list(Self::u64),
                next: self.opt(Self::u64),
                reserved: self.list(Self::u64),
            }),
            Stat(st::TargetStat {
                total_bytes: self.u64(),
                free_bytes: self.u64(),
                chunks: self.u64(),
                corrupt: self.u64(),
                poisoned: self.string(),
            }),
            Scrub(st::ScrubReport {
                next: self.opt(Self::chunk),
                bytes: self.u64(),
                chunks: self.u64(),
                corrupt: self.list(Self::chunk),
                groups: self.list(Self::u32),
            }),
            Unsettled(self.unsettled()),
            Digests(st::DigestPage {
                chunks: self.list(Self::chunk),
                digests: self.list(Self::u64),
                next: self.opt(Self::chunk),
                lens: self.list(Self::u64),
                reserved: self.list(Self::u64),
            }),
            Sums(st::BlockSums {
                len: self.u64(),
                blocks: self.list(Self::u32),
                crcs: self.list(Self::u32),
                missing: self.bool(),
                reserved: self.opt(|g| st::BlockList { blocks: g.list(Self::u32) }),
            }),
        ];
        let answers = answers.into_iter().chain(self.repair_answers());
        answers.map(|a| st::StorageReply { answer: Some(a) }).collect()
    }
}
