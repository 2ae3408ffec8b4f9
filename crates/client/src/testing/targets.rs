//! The targets.

use super::described::describe_data;
use super::{Fake, FakeState, pairs};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use strake_types::{ErrorKind, GroupId, Result};
use strake_wire::frame::crc32c;
use strake_wire::message::storage::{
    self, Data, Done, ExtentList, StorageAnswer, StorageOp, StorageReply, StorageRequest,
    TargetStat,
};
use strake_wire::service::StorageService;

pub(super) struct FakeStorage(pub Arc<Fake>);

#[async_trait]
impl StorageService for FakeStorage {
    async fn call(&self, request: StorageRequest, payload: Bytes) -> Result<(StorageReply, Bytes)> {
        let mood = self.0.pairs.meet(&request, payload.len()).await?;
        let op = request.op.expect("the client says what it wants");
        let writes = matches!(op, StorageOp::Write(_) | StorageOp::WriteMany(_));
        if writes && request.capability.is_empty() {
            return Err(ErrorKind::BadCapability.into());
        }
        let line = describe_data(&op, payload.len());
        self.0.state.lock().log.push(line.clone());
        if writes {
            let _gate = self.0.gate.read().await;
        } else if op.is_change() {
            let _gate = self.0.change_gate.read().await;
        }
        let mut state = self.0.state.lock();
        state.injected(&line)?;
        if state.away == Some(request.group) {
            return Err(ErrorKind::Unavailable.into());
        }
        let (answer, bytes) = match self.0.pairs.is_repeated(request.attempt) {
            true => done(state.boot, false),
            false => state.storage(op, payload)?,
        };
        let answer = self.0.pairs.vouch(request.group, answer);
        Ok((StorageReply { answer: Some(pairs::spoil(mood, answer)?) }, bytes))
    }
}

impl Fake {
    /// The next read answers with a wrong checksum.
    pub(crate) fn garble_next_read(&self) {
        let error = ErrorKind::Corrupt.into();
        self.state.lock().lost_answers.push(("read garbled".into(), error));
    }

    /// From now on so much is free on each target.
    pub(crate) fn leave_free(&self, bytes: u64) {
        self.state.lock().free = Some(bytes);
    }

    /// The targets of a group are away from now on.
    pub(crate) fn lose_group(&self, group: GroupId) {
        self.state.lock().away = Some(group.0);
    }
}

fn done(boot: u64, durable: bool) -> (StorageAnswer, Bytes) {
    (StorageAnswer::Done(Done { boot, durable, ..Done::default() }), Bytes::new())
}

impl FakeState {
    fn storage(&mut self, op: StorageOp, payload: Bytes) -> Result<(StorageAnswer, Bytes)> {
        let done = done(self.boot, op.is_durable());
        match op {
            StorageOp::Write(write) => {
                if crc32c(&payload) != write.crc {
                    return Err(ErrorKind::Corrupt.into());
                }
                self.put(write.chunk, write.offset, &payload);
                Ok(done)
            }
            StorageOp::WriteMany(many) => {
                let mut rest = payload;
                for nth in 0..many.lens.len() {
                    let data = rest.split_to(many.lens[nth] as usize);
                    assert_eq!(crc32c(&data), many.crcs[nth]);
                    let index = many.indices[nth];
                    let chunk = storage::Chunk { volume: many.volume, ino: many.ino, index };
                    self.put(chunk, many.offsets[nth], &data);
                }
                Ok(done)
            }
            StorageOp::Read(read) => {
                let bytes = self.get(read.chunk, read.offset, read.len);
                let mut crc = crc32c(&bytes);
                if let Some((_, error)) = self.lost_answers.first()
                    && error.kind == ErrorKind::Corrupt
                {
                    self.lost_answers.remove(0);
                    crc ^= 1;
                }
                Ok((StorageAnswer::Data(Data { crc }), bytes))
            }
            StorageOp::Punch(range) => {
                self.put(range.chunk, range.offset, &vec![0; range.len as usize]);
                Ok(done)
            }
            StorageOp::Copy(copy) => {
                let bytes = self.get(copy.from.chunk, copy.from.offset, copy.from.len);
                let mut all = bytes.to_vec();
                all.resize(copy.from.len as usize, 0);
                self.put(copy.to.chunk, copy.to.offset, &all);
                Ok(done)
            }
            StorageOp::Extents(chunk) => {
                let len = self.chunks.get(&(chunk.ino, chunk.index)).map_or(0, |c| c.len() as u64);
                let (starts, lens) = if len > 0 { (vec![0], vec![len]) } else { (vec![], vec![]) };
                let list = ExtentList { starts, lens, ..ExtentList::default() };
                Ok((StorageAnswer::Extents(list), Bytes::new()))
            }
            StorageOp::Stat(_) => {
                let Some(free_bytes) = self.free else { return Ok(done) };
                let stat = TargetStat { total_bytes: 1 << 40, free_bytes, ..TargetStat::default() };
                Ok((StorageAnswer::Stat(stat), Bytes::new()))
            }
            _ => Ok(done),
        }
    }

    fn put(&mut self, chunk: storage::Chunk, offset: u64, bytes: &[u8]) {
        let contents = self.chunks.entry((chunk.ino, chunk.index)).or_default();
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        let len = contents.len().max(to);
        contents.resize(len, 0);
        contents[from..to].copy_from_slice(bytes);
    }

    fn get(&self, chunk: storage::Chunk, offset: u64, len: u64) -> Bytes {
        let Some(contents) = self.chunks.get(&(chunk.ino, chunk.index)) else {
            return Bytes::new();
        };
        let from = (offset as usize).min(contents.len());
        let to = (from + len as usize).min(contents.len());
        Bytes::copy_from_slice(&contents[from..to])
    }
}
