//! Copies between chunks, done by the server that holds the destination.

use crate::server::{StorageServer, in_chunk};
use crate::target::Target;
use bytes::Bytes;
use std::sync::Arc;
use strake_engine::chunk::ChunkStore;
use strake_types::{ChunkId, Error, ErrorKind, Result, TargetId};
use strake_wire::capability::Rights;
use strake_wire::message::storage::{Copy, Data, Read, StorageAnswer, StorageOp, StorageRequest};

/// Bytes moved at once.
const PIECE_BYTES: u64 = 4 << 20;

/// Makes a range of a chunk on `to` the same as one of a chunk on any target.
pub(crate) async fn copy(server: &StorageServer, to: &Arc<Target>, request: Copy) -> Result<()> {
    let (from, into) = (request.from, request.to);
    in_chunk(from)?;
    in_chunk(into)?;
    if from.len != into.len {
        return Err(Error::with(ErrorKind::Invalid, "both ranges of a copy must be of one length"));
    }
    let source = TargetId(request.from_target);
    let local = server.local(source);
    if local.is_some() {
        // Another server checks for itself.
        let right = Rights::READ;
        server.authorise(&request.from_capability, from.chunk, right)?;
    }
    if source == to.id {
        let (a, b) = (ChunkId::from(from.chunk), ChunkId::from(into.chunk));
        return to.run(move |s| s.clone_range(a, from.offset, b, into.offset, from.len)).await;
    }
    let mut done = 0;
    while done < into.len {
        let len = PIECE_BYTES.min(into.len - done);
        let read = Read { chunk: from.chunk, offset: from.offset + done, len };
        let (data, crc) = match local {
            Some(target) => {
                let chunk = ChunkId::from(read.chunk);
                target.run(move |s| s.read(chunk, read.offset, len)).await?
            }
            None => fetch(server, source, read, request.from_capability.clone()).await?,
        };
        let (chunk, at) = (ChunkId::from(into.chunk), into.offset + done);
        to.run(move |s| put(s, chunk, at, len, &data, crc)).await?;
        done += len;
    }
    Ok(())
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

/// Reads from another server's target.
async fn fetch(
    server: &StorageServer,
    source: TargetId,
    read: Read,
    capability: Bytes,
) -> Result<(Bytes, u32)> {
    let service = server.map().storage_of(source)?;
    let op = Some(StorageOp::Read(read));
    let request = StorageRequest { target: source.0, epoch: 0, capability, op };
    let (reply, data) = service.call(request, Bytes::new()).await?;
    match reply.answer {
        Some(StorageAnswer::Data(Data { crc })) if data.len() as u64 <= read.len => Ok((data, crc)),
        _ => Err(Error::with(ErrorKind::Malformed, format!("target {source}'s answer to a read"))),
    }
}
