//! Copies between chunks, done by the server that holds the destination.

use crate::apply::Shelf;
use crate::attempts::Running;
use crate::order::Order;
use crate::server::{StorageServer, Way};
use crate::tag::Tag;
use crate::target::{Target, in_chunk};
use bytes::Bytes;
use std::sync::Arc;
use strake_engine::chunk::ChunkStore;
use strake_types::limits::COPY_BYTES_MAX;
use strake_types::{ChunkId, Error, ErrorKind, GroupId, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Copy, Data, Read, StorageAnswer, StorageOp, StorageRequest};
use strake_wire::service::StorageService;

/// Where the bytes come from.
enum Source {
    /// A target of this server.
    Local(Arc<Target>),
    /// Another server, which checks the right to read for itself.
    Remote(Arc<dyn StorageService>),
}

impl StorageServer {
    /// Makes a copy once, when it is its turn. Turns are those of all targets: it gives its own back where the disk of its target
    /// hangs, or the server of its source is away, and waits on for what it has begun there.
    pub(crate) async fn copy_in_turn(
        &self,
        to: &Arc<Target>,
        order: &Order,
        request: Copy,
    ) -> Result<()> {
        let from = TargetId(request.from_target);
        let turn = self.copies.acquire().await;
        let Some(running) = to.begin(order.attempt, order.whose)? else { return Ok(()) };
        let mut made = Box::pin(self.copy(to, order, request, running));
        let in_turn = tokio::select! {
            biased;
            waited = to.while_disk_answers(&mut made) => waited.ok(),
            () = self.until_away(from) => None,
        };
        if let Some(made) = in_turn {
            return made;
        }
        drop(turn);
        made.await
    }

    /// Returns when the server of a source is away, as the map has it. This one is there for itself.
    async fn until_away(&self, source: TargetId) {
        let is_away = |_: &u64| {
            let map = self.map().current();
            let mut sources = map.targets.iter().filter(|target| target.id == source.0);
            self.local(source).is_none() && sources.any(|target| !target.up)
        };
        drop(self.map().watch().wait_for(is_away).await);
    }

    /// Returns when a source is none any more, as the map has it: its group goes on without it.
    async fn until_left_out(&self, source: TargetId, group: GroupId) {
        let is_out = |_: &u64| {
            let group = self.map().group(group);
            group.is_ok_and(|group| !group.in_sync().contains(&source.0))
        };
        drop(self.map().watch().wait_for(is_out).await);
    }

    /// Makes a range of a chunk the same as one of another chunk, wherever that is.
    async fn copy(
        &self,
        to: &Arc<Target>,
        order: &Order,
        request: Copy,
        running: Running<'_>,
    ) -> Result<()> {
        let group = order.group;
        let (chunk, offset, len) = in_chunk(request.to)?;
        let (from, from_offset, from_len) = in_chunk(request.from)?;
        if from_len != len {
            let detail = "both ranges of a copy must be of one length";
            return Err(Error::with(ErrorKind::Invalid, detail));
        }
        let (from_target, from_group) =
            (TargetId(request.from_target), GroupId(request.from_group));
        let single = group.copies() == 1 && from_group.copies() == 1;
        let source = self.source_of(&request)?;
        if let Source::Local(target) = &source {
            // Nothing of a session that is fenced may come into the source after it was read. What its disk has not ended may be inside.
            let gate = self.gates.of(target.id, from_group);
            target.while_disk_answers(gate.fence(self.map().fenced_epoch())).await?;
        }
        if single
            && from_target == to.id
            && let Some(passes) = self.passes(to, from_group, group).await
        {
            let from = Tag::of(to.id, from_group).mark(from)?;
            let chunk = Tag::of(to.id, group).mark(chunk)?;
            self.begin_use(&self.gates.of(to.id, group), to.id, group).await?;
            self.check_fence(order.whose)?;
            let clone = move |s: &ChunkStore| {
                let cloned = s.clone_range(from, from_offset, chunk, offset, len);
                drop(passes);
                cloned
            };
            to.run_attempt(running.attempt(), clone).await?;
            let gate = self.gates.of(to.id, from_group);
            self.check_unused(Some(&gate), to, from_group)?;
            running.succeed();
            return Ok(());
        }
        let mut done = 0;
        while done < len {
            // Its client may have given it up: others may have written there since.
            running.check()?;
            let piece = COPY_BYTES_MAX.min(len - done);
            let read = Read { chunk: from.into(), offset: from_offset + done, len: piece };
            let data = self.read_sound(&source, &request, read).await?;
            let range = (chunk, offset + done, piece);
            done += piece;
            if done == len {
                // It has the number of the whole, which so is known at all members, of which a group of one copy has several while
                // it moves: the next primary must not do it again over what came after it.
                drop(running);
                return self.put(to, order, range, data).await;
            }
            self.put(to, &order.unnumbered(), range, data).await?;
        }
        running.succeed();
        Ok(())
    }

    /// Leave to use the chunks of two groups, if both are a target's alone.
    async fn passes(&self, target: &Arc<Target>, from: GroupId, to: GroupId) -> Option<Vec<Shelf>> {
        // Always in this order, and each once: two who wait for each other's gate would for ever.
        let mut groups = vec![from.min(to), from.max(to)];
        groups.dedup();
        let mut passes = Vec::with_capacity(groups.len());
        for group in groups {
            match self.way(target, group, 0).await.ok()? {
                Way::Alone(shelf) => passes.push(shelf),
                Way::Several(_) => return None,
            }
        }
        Some(passes)
    }

    /// Where a copy comes from. Checks the right to read it, unless another server will.
    fn source_of(&self, request: &Copy) -> Result<Source> {
        let id = TargetId(request.from_target);
        let Some(target) = self.local(id) else {
            return Ok(Source::Remote(self.map().storage_of(id)?));
        };
        self.check_read(&request.from_capability, request.from.chunk)?;
        Ok(Source::Local(target))
    }

    /// As [`StorageServer::read_from`]; where other copies can help, damage is repaired first.
    async fn read_sound(
        &self,
        source: &Source,
        request: &Copy,
        read: Read,
    ) -> Result<(Bytes, u32)> {
        let group = GroupId(request.from_group);
        match self.read_from(source, request, read).await {
            Err(error) if error.kind == ErrorKind::Corrupt && group.copies() > 1 => {
                self.have_repaired(group, read.chunk).await?;
                self.read_from(source, request, read).await
            }
            other => other,
        }
    }

    /// Has the primary of a group, wherever it is, repair a chunk that was read.
    async fn have_repaired(&self, group: GroupId, chunk: msg::Chunk) -> Result<()> {
        let primary = self.map().route(group)?.primary;
        let request = StorageRequest {
            target: primary.0,
            group: group.0,
            op: Some(StorageOp::Repair(msg::Repair { chunk, met_by: 0 })),
            ..StorageRequest::default()
        };
        let service = self.map().storage_of(primary)?;
        service.call(request, Bytes::new()).await.map(drop)
    }

    async fn read_from(&self, source: &Source, request: &Copy, read: Read) -> Result<(Bytes, u32)> {
        let (target, group) = (request.from_target, GroupId(request.from_group));
        let (answer, data) = match source {
            Source::Local(target) => self.look(target, group, 0, StorageOp::Read(read)).await?,
            Source::Remote(service) => {
                let request = StorageRequest {
                    target,
                    group: group.0,
                    capability: request.from_capability.clone(),
                    fenced: self.map().fenced_epoch().0,
                    op: Some(StorageOp::Read(read)),
                    ..StorageRequest::default()
                };
                let (reply, data) = tokio::select! {
                    biased;
                    answered = service.call(request, Bytes::new()) => answered?,
                    () = self.until_left_out(TargetId(target), group) => {
                        let detail = format!("target {target} has left group {group}");
                        return Err(Error::with(ErrorKind::StaleMap, detail));
                    }
                };
                let empty = || Error::with(ErrorKind::Malformed, "an empty answer to a read");
                (reply.answer.ok_or_else(empty)?, data)
            }
        };
        match answer {
            StorageAnswer::Data(Data { crc }) if data.len() as u64 <= read.len => Ok((data, crc)),
            _ => {
                let detail = format!("target {target}'s answer to a read");
                Err(Error::with(ErrorKind::Malformed, detail))
            }
        }
    }

    /// Writes a piece of a copy; where the source ended before, the destination reads as zeros. The last change of
    /// it has the number, if it has one.
    async fn put(
        &self,
        to: &Arc<Target>,
        order: &Order,
        (chunk, offset, len): (ChunkId, u64, u64),
        (data, crc): (Bytes, u32),
    ) -> Result<()> {
        let (have, chunk) = (data.len() as u64, msg::Chunk::from(chunk));
        if have > 0 {
            let write = StorageOp::Write(msg::Write { chunk, offset, crc, durable: false });
            let first = order.unnumbered();
            let order = if have < len { &first } else { order };
            self.change(to, order, write, data).await?;
        }
        if have < len {
            let range = msg::Range { chunk, offset: offset + have, len: len - have };
            self.change(to, order, StorageOp::Punch(range), Bytes::new()).await?;
        }
        Ok(())
    }
}
