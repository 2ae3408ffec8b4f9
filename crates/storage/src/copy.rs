//! Copies between chunks, done by the server that holds the destination.

use crate::target::{Target, in_chunk};
use bytes::Bytes;
use std::sync::Arc;
use strake_engine::chunk::ChunkStore;
use strake_types::{ChunkId, Error, ErrorKind, Result};
use strake_wire::message::storage::{Copy, Data, Read, StorageAnswer, StorageOp, StorageRequest};
use strake_wire::service::StorageService;

/// Bytes moved at once.
const PIECE_BYTES: u64 = 4 << 20;

/// Where the bytes come from, if not from the target they go to.
pub(crate) enum Source {
    /// Another target of this server.
    Local(Arc<Target>),
    /// Another server, which checks the right to read for itself.
    Remote(Arc<dyn StorageService>),
}

/// Makes a range of a chunk on `to` the same as one of a chunk on another target, or (without a
/// `source`) on the same.
pub(crate) async fn copy(to: &Arc<Target>, request: Copy, source: Option<Source>) -> Result<()> {
    let (chunk, offset, len) = in_chunk(request.to)?;
    let (from, from_offset, from_len) = in_chunk(request.from)?;
    if from_len != len {
        return Err(Error::with(ErrorKind::Invalid, "both ranges of a copy must be of one length"));
    }
    let Some(source) = source else {
        return to.run(move |s| s.clone_range(from, from_offset, chunk, offset, len)).await;
    };
    let mut done = 0;
    while done < len {
        let piece = PIECE_BYTES.min(len - done);
        let read = Read { chunk: from.into(), offset: from_offset + done, len: piece };
        let (data, crc) = source.read(&request, read).await?;
        let at = offset + done;
        to.run(move |s| put(s, chunk, at, piece, &data, crc)).await?;
        done += piece;
    }
    Ok(())
}

impl Source {
    async fn read(&self, request: &Copy, read: Read) -> Result<(Bytes, u32)> {
        let service = match self {
            Source::Remote(service) => service,
            Source::Local(target) => {
                let (chunk, offset, len) = (ChunkId::from(read.chunk), read.offset, read.len);
                return target.run(move |s| s.read(chunk, offset, len)).await;
            }
        };
        let target = request.from_target;
        let capability = request.from_capability.clone();
        let op = Some(StorageOp::Read(read));
        let group = request.from_group;
        let request = StorageRequest { target, group, capability, op, ..StorageRequest::default() };
        let (reply, data) = service.call(request, Bytes::new()).await?;
        match reply.answer {
            Some(StorageAnswer::Data(Data { crc })) if data.len() as u64 <= read.len => {
                Ok((data, crc))
            }
            _ => {
                let detail = format!("target {target}'s answer to a read");
                Err(Error::with(ErrorKind::Malformed, detail))
            }
        }
    }
}

/// Writes a piece of a copy; where the source ended before, the destination reads as zeros.
fn put(
    store: &ChunkStore,
    chunk: ChunkId,
    offset: u64,
    len: u64,
    data: &Bytes,
    crc: u32,
) -> strake_engine::chunk::Result<()> {
    let have = data.len() as u64;
    if have > 0 {
        store.write(chunk, offset, data, crc)?;
    }
    if have < len {
        store.punch(chunk, offset + have, len - have)?;
    }
    Ok(())
}
