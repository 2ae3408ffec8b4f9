//! How a mutation is carried out: once, all at once, and whatever the store answers.
//!
//! A mutation runs in five steps: name the inodes it touches ([`Mutation::scope`]), take their
//! locks, make the contents fit ([`Mutation::prepare`]), read and decide and write
//! ([`Mutation::run`]), commit. Where the store says *conflict* it begins again; where it says
//! *unknown* a value that only this transaction can have written tells what happened. A numbered
//! mutation stores its reply with it, so that a repeat is answered from the ledger.

use crate::borrow::{self, Elsewhere};
use crate::core::backoff;
use crate::ctx::Ctx;
use crate::keys;
use crate::ledger::Begin;
use crate::locks::inodes::Held;
use crate::records::{self, Raw};
use crate::stored::store_error;
use crate::view::{Tx, each_attributes};
use crate::visit::visit;
use prost::Message;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{MetaAnswer, MetaReply};

/// How often a mutation begins again before it gives up.
const TRIES_MAX: u32 = 200;

/// A mutation.
pub(crate) trait Mutation: Sync {
    /// Inodes whose locks it needs, as far as can be told before they are held.
    fn scope(&self, ctx: &Ctx) -> impl Future<Output = Result<Vec<Ino>>> + Send;

    /// What it touches in other shares of the volume beside the inodes of its scope.
    fn elsewhere(&self, _ctx: &Ctx) -> Elsewhere {
        Elsewhere::default()
    }

    /// Makes contents fit under the locks, with transactions of its own, before [`Mutation::run`].
    /// [`ErrorKind::Conflict`] lets it begin again here, too.
    fn prepare(&self, _ctx: &Ctx, _held: &Held) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Reads, decides, writes. [`ErrorKind::Conflict`] lets it begin again with a new scope.
    fn run(&self, tx: &mut Tx<'_>) -> impl Future<Output = Result<MetaAnswer>> + Send;

    /// Carried out together with others, if that is possible now.
    fn merged(&self, _ctx: &Ctx) -> impl Future<Output = Option<Result<MetaAnswer>>> + Send {
        async { None }
    }

    /// What is still to be done after the commit, under the lock of the inode that the answer is about.
    fn finish(&self, _ctx: &Ctx, _answer: &MetaAnswer) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// It takes more room in the store than it frees: refused while the store is nearly full, so that
    /// files can still be deleted.
    fn takes_room(&self) -> bool {
        false
    }

    /// The answer must wait until all is on disk.
    fn wants_sync(&self) -> bool {
        false
    }
}

/// Carries out a mutation once, however often it is asked for.
pub(crate) async fn mutate(ctx: &Ctx, op: &impl Mutation) -> Result<MetaAnswer> {
    let ledger = ctx.ledger();
    let _running = match ledger {
        None => None,
        Some(ledger) => match ledger.begin(ctx.seq).await {
            Begin::New(running) if ledger.is_in_doubt(ctx.seq) => {
                if was_carried_out(ctx).await? {
                    return Box::pin(repeat(ctx, op)).await;
                }
                Some(running)
            }
            Begin::New(_) if ledger.is_full() => return Err(unheard()),
            Begin::New(running) => Some(running),
            Begin::Repeat(_running) => {
                strake_base::count_case("answer-from-store");
                return Box::pin(repeat(ctx, op)).await;
            }
            Begin::Idle(_running, answer) => {
                strake_base::count_case("answer-from-memory");
                let mut answer = (*answer).clone()?;
                // It may have been recalled since, and followed.
                each_attributes(&mut answer, |attr| (attr.leased, attr.exclusive) = (false, 0));
                return Box::pin(give_again(ctx, op, answer)).await;
            }
            Begin::Late => return Err(late()),
        },
    };
    let answer = until_carried_out(ctx, op).await;
    if let Some(ledger) = ledger {
        ledger.ended(ctx.seq, ctx.answered, &answer);
    }
    if answer.is_ok() {
        durable(ctx, op).await?;
    }
    answer
}

/// The error for a copy of a request whose answer its client has.
pub(crate) fn late() -> Error {
    Error::with(ErrorKind::Malformed, "the reply to this request has been received already")
}

/// The error while a client does not say that it has received replies. It tries again: what it waits for longest ends.
fn unheard() -> Error {
    Error::with(ErrorKind::Conflict, "too many replies of this session are not acknowledged yet")
}

async fn until_carried_out(ctx: &Ctx, op: &impl Mutation) -> Result<MetaAnswer> {
    if let Some(answer) = op.merged(ctx).await {
        return answer;
    }
    for turn in 0..TRIES_MAX {
        match attempt(ctx, op).await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => {}
            Err(error) if error.kind == ErrorKind::Conflict => {}
            Err(error) => return Err(error),
        }
        ctx.core.metrics.conflicts.increment(1);
        backoff(turn).await;
        // What it has to borrow may be in use for seconds with each try.
        check_session(ctx)?;
        check_wanted(ctx)?;
    }
    Err(Error::with(ErrorKind::Conflict, "metadata store: too many conflicts"))
}

/// Fails if the session is over.
fn check_session(ctx: &Ctx) -> Result<()> {
    ctx.session.as_ref().map_or(Ok(()), |session| session.check())
}

/// Fails if the client has given the request up.
fn check_wanted(ctx: &Ctx) -> Result<()> {
    match ctx.ledger().is_some_and(|ledger| ledger.is_over(ctx.seq)) {
        true => Err(late()),
        false => Ok(()),
    }
}

/// Waits, with no lock held, until an answer is on disk that has to be.
async fn durable(ctx: &Ctx, op: &impl Mutation) -> Result<()> {
    let asked = op.wants_sync() && !strake_base::is_broken("fsync-reaches-journal");
    let always = ctx.settings.sync_always && !strake_base::is_broken("sync-always-is-heeded");
    match always || asked {
        true => ctx.volume.sync().await,
        false => Ok(()),
    }
}

/// Carries out a part of an operation that already holds the locks of its scope: they stay held until its commit has ended,
/// whatever becomes of the caller.
pub(crate) async fn under_locks(ctx: &Ctx, op: &impl Mutation) -> Result<()> {
    let ctx = ctx.system();
    let scope = op.scope(&ctx).await?;
    for turn in 0..TRIES_MAX {
        let mut tx = Tx::begin(&ctx, ctx.core.locks.hold_on(ctx.volume.id, &scope));
        let mut answer = op.run(&mut tx).await?;
        if tx.commit(&mut answer).await?.is_some() {
            return Ok(());
        }
        backoff(turn).await;
    }
    Err(Error::with(ErrorKind::Conflict, "metadata store: too many conflicts"))
}

/// One try; `None` or a conflict: it has to begin again.
async fn attempt(ctx: &Ctx, op: &impl Mutation) -> Result<Option<MetaAnswer>> {
    let scope = op.scope(ctx).await?;
    // Who has something of it leased exclusively waits for these locks with what he has under way.
    let _visitors = match ctx.behind {
        None => Some(visit(ctx, scope.clone()).await?),
        Some(_) => None,
    };
    let (held, borrowed) = borrow::lock(ctx, &scope, op.elsewhere(ctx)).await?;
    // It may have waited for longer than its session lasted: what that had locked is given back under this lock.
    check_session(ctx)?;
    if was_carried_out(ctx).await? {
        drop((held, borrowed));
        return Box::pin(repeat(ctx, op)).await.map(Some);
    }
    // Its client may have given it up while it waited, and have gone on by what it has asked for since: a cut would take
    // away what was written after that.
    check_wanted(ctx)?;
    ctx.check_behind()?;
    op.prepare(ctx, &held).await?;
    let counted = ctx.has_opened();
    let mut tx = Tx::begin(ctx, held).with_borrowed(borrowed);
    let mut answer = op.run(&mut tx).await?;
    if op.takes_room() && tx.writes() {
        ctx.volume.kv.check_room().map_err(store_error)?;
    }
    let Some(mut held) = tx.commit(&mut answer).await? else { return Ok(None) };
    // What is left to do may wait for storage servers: others use the directory meanwhile.
    about(&answer).iter().for_each(|ino| held.keep_only(*ino));
    if let Err(error) = op.finish(ctx, &answer).await {
        opened_by(&answer).filter(|_| !counted).iter().for_each(|ino| take_back(ctx, *ino));
        return Err(error);
    }
    Ok(Some(answer))
}

/// True if the request has been carried out: its outcome was in doubt, or it went with others that waited for the same
/// lock, for a caller that has gone away.
async fn was_carried_out(ctx: &Ctx) -> Result<bool> {
    let Some(ledger) = ctx.ledger() else { return Ok(false) };
    if ledger.is_in_doubt(ctx.seq) {
        match is_stored(ctx).await? {
            true => ledger.stored(ctx.seq),
            false => ledger.settled(ctx.seq),
        }
    }
    Ok(ledger.is_stored(ctx.seq))
}

/// True if the reply to this request is in the store.
async fn is_stored(ctx: &Ctx) -> Result<bool> {
    let key = keys::result(ctx.volume.id, ctx.need_session()?.id, ctx.seq);
    let snapshot = ctx.volume.kv.snapshot().await.map_err(store_error)?;
    Ok(snapshot.get(&key).await.map_err(store_error)?.is_some())
}

/// Answers a mutation that has been carried out before.
async fn repeat(ctx: &Ctx, op: &impl Mutation) -> Result<MetaAnswer> {
    let session = ctx.need_session()?;
    let key = keys::result(ctx.volume.id, session.id, ctx.seq);
    let snapshot = ctx.volume.kv.snapshot().await.map_err(store_error)?;
    let stored: Option<Raw> = crate::stored::get(&*snapshot, &key).await?;
    drop(snapshot);
    let gone = || Error::with(ErrorKind::Malformed, "the reply to this request was forgotten");
    let reply = MetaReply::decode(stored.ok_or_else(gone)?.bytes);
    let reply = reply.map_err(|e| records::corrupt(&key, &e.to_string()))?;
    let answer = reply.answer.ok_or_else(|| records::corrupt(&key, "has no answer"))?;
    give_again(ctx, op, answer).await
}

/// Gives an answer again, after what is still to be done; nobody else works on its number meanwhile. Where that fails its
/// caller has not opened the file that the answer says is open.
async fn give_again(ctx: &Ctx, op: &impl Mutation, answer: MetaAnswer) -> Result<MetaAnswer> {
    let opened = hold_open(ctx, &answer);
    let mut answer = as_it_lies(ctx, answer).await?;
    {
        let scope: Vec<Ino> = about(&answer).into_iter().filter(|ino| ctx.is_here(*ino)).collect();
        let _held = borrow::lock_here(ctx, &scope).await?;
        if let Err(error) = op.finish(ctx, &answer).await {
            opened.iter().for_each(|ino| take_back(ctx, *ino));
            return Err(error);
        }
    }
    durable(ctx, op).await?;
    ask_back(ctx, &mut answer);
    Ok(answer)
}

/// What an answer has leased exclusively when it was given for the first time nobody knows of, if it was lost then.
fn ask_back(ctx: &Ctx, answer: &mut MetaAnswer) {
    let (own, leases) = (ctx.session_id(), &ctx.volume.leases);
    each_attributes(answer, |attr| {
        if leases.is_exclusive(own, Ino(attr.ino)) {
            leases.ask_back(0, &[Ino(attr.ino)], true, &*ctx.core.clock);
        }
    });
}

/// The file that an answer says is open counts as such, once for this request. Which it is, if it did not yet.
fn hold_open(ctx: &Ctx, answer: &MetaAnswer) -> Option<Ino> {
    let (session, ino) = (ctx.session.as_ref()?, opened_by(answer)?);
    ctx.volume.recopies.touch(ino);
    ctx.volume.sessions.open_again(session, ino, ctx.incarnation, ctx.seq).then_some(ino)
}

/// A file that was opened for an answer which is not given.
fn take_back(ctx: &Ctx, ino: Ino) {
    if let Some(session) = &ctx.session
        && ctx.volume.sessions.take_back(session, ino, ctx.incarnation, ctx.seq)
    {
        ctx.core.has_work(&ctx.volume);
    }
}

/// An answer that opens a file and is given again, now that the file counts as open: while it did
/// not, it may have got another layout.
async fn as_it_lies(ctx: &Ctx, mut answer: MetaAnswer) -> Result<MetaAnswer> {
    let Some(ino) = opened_by(&answer) else { return Ok(answer) };
    let _held = borrow::lock_here(ctx, &[ino]).await?;
    let Some(inode) = Tx::reader(ctx).find_inode(ino).await? else { return Ok(answer) };
    let newer = |attr: &mut Attributes| {
        if attr.layout != inode.layout {
            attr.layout = inode.layout.clone();
            attr.version = attr.version.max(ctx.core.losses().told(inode.version));
        }
    };
    match &mut answer {
        MetaAnswer::Opened(opened) => newer(&mut opened.attr),
        MetaAnswer::Created(created) => {
            newer(&mut created.attr);
            created.opened.iter_mut().for_each(|opened| newer(&mut opened.attr));
        }
        _ => {}
    }
    Ok(answer)
}

/// The inode that an answer is about.
fn about(answer: &MetaAnswer) -> Option<Ino> {
    match answer {
        MetaAnswer::Entry(attr) => Some(Ino(attr.ino)),
        MetaAnswer::Opened(opened) => Some(Ino(opened.attr.ino)),
        MetaAnswer::Created(created) => Some(Ino(created.attr.ino)),
        MetaAnswer::Named(named) => Some(Ino(named.attr.ino)),
        _ => None,
    }
}

/// The file that an answer says is open.
fn opened_by(answer: &MetaAnswer) -> Option<Ino> {
    match answer {
        MetaAnswer::Opened(opened) => Some(Ino(opened.attr.ino)),
        MetaAnswer::Created(created) => created.opened.as_ref().map(|o| Ino(o.attr.ino)),
        _ => None,
    }
}
