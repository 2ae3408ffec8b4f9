//! How a mutation is carried out: once, all at once, and whatever the store answers.
//!
//! A mutation runs in five steps: name the inodes it touches ([`Mutation::scope`]), take their
//! locks, make the contents fit ([`Mutation::prepare`]), read and decide and write
//! ([`Mutation::run`]), commit. Where the store says *conflict* it begins again; where it says
//! *unknown* a value that only this transaction can have written tells what happened. A numbered
//! mutation stores its reply with it, so that a repeat is answered from the ledger.

use crate::core::{backoff, store_error};
use crate::ctx::Ctx;
use crate::keys;
use crate::ledger::Begin;
use crate::locks::inodes::Held;
use crate::records::{self, Raw};
use crate::view::Tx;
use prost::Message;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, MetaReply};

/// How often a mutation begins again before it gives up.
const TRIES_MAX: u32 = 200;

/// A mutation.
pub(crate) trait Mutation: Sync {
    /// Inodes whose locks it needs, as far as can be told before they are held.
    fn scope(&self, ctx: &Ctx) -> impl Future<Output = Result<Vec<Ino>>> + Send;

    /// Makes contents fit under the locks, with transactions of its own, before [`Mutation::run`].
    fn prepare(&self, _ctx: &Ctx) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Reads, decides, writes. [`ErrorKind::Conflict`] lets it begin again with a new scope.
    fn run(&self, tx: &mut Tx<'_>) -> impl Future<Output = Result<MetaAnswer>> + Send;

    /// What is still to be done under the locks after the commit.
    fn finish(&self, _ctx: &Ctx, _answer: &MetaAnswer) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }
}

/// Carries out a mutation once, however often it is asked for.
pub(crate) async fn mutate(ctx: &Ctx, op: &impl Mutation) -> Result<MetaAnswer> {
    let ledger = ctx.session.as_ref().filter(|_| ctx.seq != 0).map(|session| &session.ledger);
    let _running = match ledger {
        None => None,
        Some(ledger) => match ledger.begin(ctx.seq).await {
            Begin::New(running) => Some(running),
            Begin::Repeat => return repeat(ctx, op).await,
            Begin::Late => {
                let detail = "the reply to this request has been received already";
                return Err(Error::with(ErrorKind::Malformed, detail));
            }
        },
    };
    for turn in 0..TRIES_MAX {
        if let Some(answer) = attempt(ctx, op).await? {
            return Ok(answer);
        }
        ctx.core.metrics.conflicts.increment(1);
        backoff(turn).await;
    }
    Err(Error::with(ErrorKind::Conflict, "metadata store: too many conflicts"))
}

/// Carries out a part of an operation that already holds the locks it needs.
pub(crate) async fn under_locks(ctx: &Ctx, op: &impl Mutation) -> Result<()> {
    let ctx = ctx.system();
    for turn in 0..TRIES_MAX {
        let mut tx = Tx::begin(&ctx, Held::default());
        let answer = op.run(&mut tx).await?;
        if tx.commit(&answer).await?.is_some() {
            return Ok(());
        }
        backoff(turn).await;
    }
    Err(Error::with(ErrorKind::Conflict, "metadata store: too many conflicts"))
}

/// One try; `None`: it has to begin again.
async fn attempt(ctx: &Ctx, op: &impl Mutation) -> Result<Option<MetaAnswer>> {
    let scope = op.scope(ctx).await?;
    let held = ctx.core.locks.lock(ctx.volume.id, &scope).await;
    op.prepare(ctx).await?;
    let mut tx = Tx::begin(ctx, held);
    let answer = match op.run(&mut tx).await {
        Ok(answer) => answer,
        Err(error) if error.kind == ErrorKind::Conflict => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(_held) = tx.commit(&answer).await? else { return Ok(None) };
    op.finish(ctx, &answer).await?;
    if ctx.settings.sync_always {
        ctx.core.kv.sync().await.map_err(store_error)?;
    }
    Ok(Some(answer))
}

/// Answers a mutation that has been carried out before.
async fn repeat(ctx: &Ctx, op: &impl Mutation) -> Result<MetaAnswer> {
    let session = ctx.need_session()?;
    let key = keys::result(ctx.volume.id, session.id, ctx.seq);
    let snapshot = ctx.core.kv.snapshot().await.map_err(store_error)?;
    let stored: Option<Raw> = crate::core::get(&*snapshot, &key).await?;
    let gone = || Error::with(ErrorKind::Malformed, "the reply to this request was forgotten");
    let reply = MetaReply::decode(stored.ok_or_else(gone)?.bytes);
    let reply = reply.map_err(|e| records::corrupt(&key, &e.to_string()))?;
    let answer = reply.answer.ok_or_else(|| records::corrupt(&key, "has no answer"))?;
    if let Some(ino) = opened_by(&answer)
        && !ctx.volume.sessions.holds(session, ino)
    {
        ctx.volume.sessions.open(session, ino);
    }
    let scope = op.scope(ctx).await.unwrap_or_default();
    let _held = ctx.core.locks.lock(ctx.volume.id, &scope).await;
    op.finish(ctx, &answer).await?;
    Ok(answer)
}

/// The file that an answer says is open.
fn opened_by(answer: &MetaAnswer) -> Option<Ino> {
    match answer {
        MetaAnswer::Opened(opened) => Some(Ino(opened.attr.ino)),
        MetaAnswer::Created(created) => created.opened.as_ref().map(|o| Ino(o.attr.ino)),
        _ => None,
    }
}
