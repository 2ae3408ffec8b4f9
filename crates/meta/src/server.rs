//! The server itself: start, dispatch, stop.

use crate::MetaOptions;
use crate::core::Core;
use crate::metrics::Metrics;
use crate::ops::{getattr, lookup, readdir, sessions};
use crate::txn::{Ctx, mutate};
use async_trait::async_trait;
use std::sync::Arc;
use strake_base::clock::Clock;
use strake_engine::kv::Kv;
use strake_types::{Error, ErrorKind, Result, VolumeId};
use strake_wire::capability::CapabilityKey;
use strake_wire::map::MapView;
use strake_wire::message::meta::{MetaAnswer, MetaOp, MetaReply, MetaRequest};
use strake_wire::service::MetaService;

/// A metadata server.
pub struct MetaServer {
    core: Arc<Core>,
}

impl MetaServer {
    /// Starts a server on a store that is its alone. Must be called within a Tokio runtime.
    pub async fn start(
        kv: Arc<dyn Kv>,
        map: Arc<MapView>,
        key: CapabilityKey,
        clock: Arc<dyn Clock>,
        options: MetaOptions,
    ) -> Result<Arc<Self>> {
        let core = Arc::new(Core::new(kv, map, key, clock, options));
        Ok(Arc::new(MetaServer { core }))
    }

    async fn serve(&self, request: MetaRequest) -> Result<MetaAnswer> {
        let none = || Error::with(ErrorKind::Malformed, "no operation, or one of a newer release");
        let op = request.op.ok_or_else(none)?;
        let volume = self.core.volume(VolumeId(request.volume)).await?;
        let session = match request.session {
            0 => None,
            id => {
                let gone = || Error::with(ErrorKind::NoSession, format!("session {id} is over"));
                let session = volume.sessions.get(id).ok_or_else(gone)?;
                session.renew(self.core.deadline_ms());
                Some(session)
            }
        };
        let ctx = Ctx {
            core: self.core.clone(),
            settings: volume.settings(),
            volume,
            session,
            cred: request.cred.into(),
            now: self.core.now(),
            seq: request.seq,
            answered: request.answered,
        };
        perform(&ctx, &op).await
    }
}

/// Hands an operation to its file.
async fn perform(ctx: &Ctx, op: &MetaOp) -> Result<MetaAnswer> {
    match op {
        MetaOp::OpenSession(op) => sessions::open(ctx, op).await,
        MetaOp::RenewSession(op) => sessions::renew(ctx, op).await,
        MetaOp::CloseSession(_) => sessions::close(ctx).await,
        MetaOp::Lookup(op) => lookup::lookup(ctx, op).await,
        MetaOp::GetAttr(op) => getattr::getattr(ctx, op).await,
        MetaOp::Create(op) => mutate(ctx, op).await,
        MetaOp::Unlink(op) => mutate(ctx, op).await,
        MetaOp::Open(op) => mutate(ctx, op).await,
        MetaOp::ReadDir(op) => readdir::readdir(ctx, op).await,
        _ => Err(Error::new(ErrorKind::NotSupported)),
    }
}

#[async_trait]
impl MetaService for MetaServer {
    async fn call(&self, request: MetaRequest) -> Result<MetaReply> {
        let slot = request.op.as_ref().map(Metrics::slot);
        let began = self.core.clock.monotonic();
        let answer = self.serve(request).await;
        if let Some(slot) = slot {
            let took = self.core.clock.monotonic().saturating_sub(began);
            self.core.metrics.record(slot, took, answer.is_err());
        }
        answer.map(|answer| MetaReply { answer: Some(answer) })
    }
}
