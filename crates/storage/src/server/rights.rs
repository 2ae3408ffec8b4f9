//! What a request must have a right to, and whether it shows one.

use super::StorageServer;
use crate::order::Whose;
use strake_types::{Error, ErrorKind, Ino, Result, SessionId, TargetId, VolumeId};
use strake_wire::capability::Rights;
use strake_wire::message::manager::Server;
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageOp;

impl StorageServer {
    /// Checks that a capability allows `rights` on a file. Whose it is, if not another server's.
    fn authorise(
        &self,
        capability: &[u8],
        volume: u32,
        ino: u64,
        rights: Rights,
    ) -> Result<Option<Whose>> {
        let held = self.common.key.verify(capability, self.common.wall_ms());
        let held = held.map_err(|error| self.named(error))?;
        if held.covers(VolumeId(volume), Ino(ino), rights) {
            return Ok(Some((held.volume, held.session)).filter(|_| held.session != SessionId(0)));
        }
        let detail = format!("volume {volume} inode {ino}: the capability is for something else");
        Err(Error::with(ErrorKind::BadCapability, detail))
    }

    /// An error with the name of this server before it: by the clock of which a capability is over.
    fn named(&self, error: Error) -> Error {
        let map = self.common.map.current();
        let targets = self.targets.read();
        let own = map.targets.iter().find(|target| targets.contains_key(&TargetId(target.id)));
        let server = own.and_then(|own| map.servers.iter().find(|s| s.id == own.server));
        match server {
            Some(Server { name, address, .. }) => {
                error.about(format_args!("server {name} ({address})"))
            }
            None => error,
        }
    }

    /// Checks that a capability allows to read a chunk's file.
    pub(crate) fn check_read(&self, capability: &[u8], chunk: msg::Chunk) -> Result<()> {
        let whose = self.authorise(capability, chunk.volume, chunk.ino, Rights::READ)?;
        self.common.check_fence(whose)
    }

    /// Every operation that shows or changes contents needs a right to the file. Sync, Stat, Scrub,
    /// Repair, Compare and AddTarget do neither. Whose the right is, if not another server's.
    pub(super) fn check_right(&self, capability: &[u8], op: &StorageOp) -> Result<Option<Whose>> {
        let (volume, ino, rights) = match op {
            StorageOp::Read(r) => (r.chunk.volume, r.chunk.ino, Rights::READ),
            StorageOp::Write(w) => (w.chunk.volume, w.chunk.ino, Rights::WRITE),
            StorageOp::WriteMany(w) => (w.volume, w.ino, Rights::WRITE),
            StorageOp::Truncate(t) => (t.volume, t.ino, Rights::WRITE),
            StorageOp::Punch(r) | StorageOp::Allocate(r) => {
                (r.chunk.volume, r.chunk.ino, Rights::WRITE)
            }
            StorageOp::Copy(c) => (c.to.chunk.volume, c.to.chunk.ino, Rights::WRITE),
            StorageOp::Extents(c) => (c.volume, c.ino, Rights::NONE),
            StorageOp::Chunks(f) => (f.volume, f.ino, Rights::NONE),
            StorageOp::DropVolume(f) => (f.volume, 0, Rights::WRITE),
            StorageOp::Cut(c) => (c.chunk.volume, c.chunk.ino, Rights::WRITE),
            StorageOp::Adopt(_)
            | StorageOp::Settle(_)
            | StorageOp::Digests(_)
            | StorageOp::Sums(_)
            | StorageOp::Promise(_)
            | StorageOp::Census(_)
            | StorageOp::Remember(_) => (0, 0, Rights::READ_WRITE),
            StorageOp::Damage(r) => (r.chunk.volume, r.chunk.ino, Rights::WRITE),
            StorageOp::Lose(l) => (l.chunk.volume, l.chunk.ino, Rights::WRITE),
            StorageOp::Sync(_)
            | StorageOp::Stat(_)
            | StorageOp::Scrub(_)
            | StorageOp::Repair(_)
            | StorageOp::AddTarget(_)
            | StorageOp::Compare(_) => return Ok(None),
        };
        self.authorise(capability, volume, ino, rights)
    }
}
