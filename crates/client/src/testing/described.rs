//! Requests as the log of the fake metadata server shows them.

use strake_wire::message::meta::MetaOp;
use strake_wire::message::storage::{self, StorageOp};

pub(super) fn describe(op: &MetaOp) -> String {
    match op {
        MetaOp::OpenSession(o) => format!("session resume={} open={:?}", o.resume, o.open),
        MetaOp::RenewSession(r) => format!("renew closed={:?}", r.closed),
        MetaOp::CloseSession(_) => "close session".into(),
        MetaOp::Create(_) => "create".into(),
        MetaOp::Open(_) => "open".into(),
        MetaOp::GetAttr(look) if look.to_read && look.end > 0 => {
            format!("getattr to read {}-{}", look.start, look.end)
        }
        MetaOp::GetAttr(look) if look.to_read => "getattr to read".into(),
        MetaOp::GetAttr(look) if look.told => "getattr told".into(),
        MetaOp::GetAttr(look) if look.to_write => "getattr to write".into(),
        MetaOp::GetAttr(_) => "getattr".into(),
        MetaOp::Claim(claim) if claim.through && claim.once => {
            format!("claim through {}-{}", claim.start, claim.end)
        }
        MetaOp::Claim(claim) if claim.through => "claim nothing".into(),
        MetaOp::Claim(claim) => {
            format!("claim {}-{}, {}", claim.start, claim.end, claim.wanted_end)
        }
        MetaOp::SetAttr(s) => {
            let mode = if s.change.mode.is_some() { " mode" } else { "" };
            let user = if s.change.drop_setid { " by a user" } else { "" };
            format!("setattr length={:?}{mode}{user}", s.change.length)
        }
        MetaOp::Publish(p) => format!("publish length={} sync={}", p.length_min, p.sync),
        MetaOp::WriteInline(w) => {
            format!("inline {}+{} close={} sync={}", w.offset, w.data.len(), w.close, w.sync)
        }
        MetaOp::MoveOut(_) => "move out".into(),
        MetaOp::Behind(behind) => format!("behind {}", behind.changes.len()),
        MetaOp::Sync(s) => format!("sync {}", s.ino),
        // Somebody waits for it who has no place among those who wait at the server.
        MetaOp::SetLock(l) if l.wait_ms == 1 => {
            format!("lock owner={} kind={} in line", l.owner, l.kind)
        }
        MetaOp::SetLock(l) => format!("lock owner={} kind={}", l.owner, l.kind),
        other => format!("{other:?}"),
    }
}

/// As it stands in the log.
pub(super) fn describe_data(op: &StorageOp, len: usize) -> String {
    let at = |c: storage::Chunk, offset: u64, len: u64| format!("{}:{offset}+{len}", c.index);
    match op {
        StorageOp::Write(w) => format!("write {}", at(w.chunk, w.offset, len as u64)),
        StorageOp::WriteMany(many) => format!("write many {} parts", many.lens.len()),
        StorageOp::Read(r) => format!("read {}", at(r.chunk, r.offset, r.len)),
        StorageOp::Sync(_) => "sync target".into(),
        StorageOp::Punch(r) => format!("punch {}", at(r.chunk, r.offset, r.len)),
        StorageOp::Copy(c) => format!("copy {}", at(c.to.chunk, c.to.offset, c.to.len)),
        other => format!("{other:?}"),
    }
}
