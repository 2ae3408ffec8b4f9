//! What this share borrows of others, to change it together with its own.

use crate::core::Core;
use crate::ctx::Ctx;
use crate::keys;
use crate::locks::inodes::Held;
use crate::records::{self, LoanRecord};
use crate::stored::{decoded, store_error};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use strake_base::random::mixed;
use strake_base::task;
use strake_engine::kv::Transaction;
use strake_types::{Credentials, Error, ErrorKind, FileKind, Ino, Result, VolumeId};
use strake_wire::message::meta::{
    Borrow, Create, GiveBack, Loan, MetaAnswer, MetaOp, MetaRequest, Name,
};
use tokio::time::Instant;

/// How long another server is waited for,
const CALL_MS_MAX: u64 = 6_000;
/// and until the manager is told, again and again.
const CALL_MS_SOON: u64 = 300;
/// How long locks are waited for that may be lent to another server: longer than a loan lasts.
const LOCK_MS_MAX: u64 = 10_000;
/// The same of who has borrowed something meanwhile: shorter than that lasts.
const LOCK_LENT_MS_MAX: u64 = 4_000;

/// What a mutation touches in other shares, beside the inodes that it names.
#[derive(Default)]
pub(crate) struct Elsewhere {
    /// Names that may change.
    pub names: Vec<Name>,
    /// The share in which a child of this directory is to be made.
    pub child: Option<(VolumeId, Ino)>,
}

/// The share in which a new inode is: that of its directory, but directories are dealt out to all.
pub(crate) fn home_of(ctx: &Ctx, op: &Create) -> VolumeId {
    let shares = ctx.settings.shares;
    if shares.count == 1 || op.kind != FileKind::Directory as u32 || op.at.name.is_empty() {
        return ctx.volume.id;
    }
    let mixed = mixed(op.at.parent ^ u64::from(records::checksum(&op.at.name)));
    VolumeId(shares.first.0 + (mixed % u64::from(shares.count)) as u32)
}

/// What was borrowed of other shares for one change. Given back when it is dropped.
#[derive(Default)]
pub(crate) struct Borrowed(Vec<Lent>);

/// What was borrowed of one share.
struct Lent {
    core: Arc<Core>,
    share: VolumeId,
    inodes: Vec<Ino>,
    loan: Loan,
    /// What the share has more when the change is made, and what has become of that.
    end: GiveBack,
}

/// Takes the locks of the inodes that a mutation touches, wherever they are: of one share after the other in ascending
/// order, so that nobody waits in a circle.
pub(crate) async fn lock(
    ctx: &Ctx,
    scope: &[Ino],
    elsewhere: Elsewhere,
) -> Result<(Held, Borrowed)> {
    match lock_all(ctx, scope, elsewhere).await {
        // With nothing locked.
        Err(error) if error.kind == ErrorKind::StaleMap => {
            Box::pin(ctx.core.map.refresh()).await?;
            Err(Error::with(ErrorKind::Conflict, error.to_string()))
        }
        locked => locked,
    }
}

async fn lock_all(ctx: &Ctx, scope: &[Ino], elsewhere: Elsewhere) -> Result<(Held, Borrowed)> {
    let here = ctx.volume.id;
    if elsewhere.child.is_none() && scope.iter().all(|ino| ctx.is_here(*ino)) {
        return Ok((lock_here(ctx, scope).await?, Borrowed::default()));
    }
    let mut shares: BTreeMap<VolumeId, Vec<Ino>> = BTreeMap::new();
    for ino in scope {
        shares.entry(ctx.home(*ino)).or_default().push(*ino);
    }
    if let Some((share, _)) = elsewhere.child {
        shares.entry(share).or_default();
    }
    let (mut held, mut borrowed) = (Held::default(), Borrowed::default());
    for (share, inodes) in shares {
        let ms_max = if borrowed.0.is_empty() { LOCK_MS_MAX } else { LOCK_LENT_MS_MAX };
        match share == here {
            true => held = lock_within(ctx, &inodes, ms_max).await?,
            false => borrowed.0.push(borrow(ctx, share, inodes, &elsewhere).await?),
        }
    }
    Ok((held, borrowed))
}

/// Takes the locks of inodes of this share, which may be lent.
pub(crate) async fn lock_here(ctx: &Ctx, inodes: &[Ino]) -> Result<Held> {
    lock_within(ctx, inodes, LOCK_MS_MAX).await
}

async fn lock_within(ctx: &Ctx, inodes: &[Ino], ms_max: u64) -> Result<Held> {
    let (lock, shares) = (ctx.core.locks.lock(ctx.volume.id, inodes), ctx.settings.shares);
    if shares.count == 1 {
        return Ok(lock.await);
    }
    let late = |_| {
        let inodes = inodes.iter().map(|ino| ino.0);
        let inodes: Vec<_> = inodes.filter(|ino| *ino != 0).collect();
        let detail = format!(
            "inodes {inodes:?} of {} were in use for {ms_max} ms; what another share's server borrows of it ends by itself",
            shares.named(ctx.volume.id)
        );
        Error::with(ErrorKind::Unavailable, detail)
    };
    tokio::time::timeout(Duration::from_millis(ms_max), lock).await.map_err(late)
}

async fn borrow(
    ctx: &Ctx,
    share: VolumeId,
    inodes: Vec<Ino>,
    elsewhere: &Elsewhere,
) -> Result<Lent> {
    let names = elsewhere.names.iter().filter(|name| ctx.home(Ino(name.parent)) == share);
    let child = elsewhere.child.filter(|(place, _)| *place == share);
    let (mount, leases) = caller_of(ctx);
    let op = Borrow {
        borrower: ctx.volume.id.0,
        since: ctx.settings.owned_since.0,
        inodes: inodes.iter().map(|ino| ino.0).collect(),
        names: names.cloned().collect(),
        child_of: child.map_or(0, |(_, dir)| dir.0),
        mount,
        leases,
    };
    use ErrorKind::{Conflict, Corrupt, StaleMap};
    let core = ctx.core.clone();
    match ask(&core, share, MetaOp::Borrow(op)).await {
        Ok(MetaAnswer::Loan(loan)) => {
            let end = GiveBack { number: loan.number, made: Some(false), ..GiveBack::default() };
            Ok(Lent { core, share, inodes, loan, end })
        }
        Ok(_) => Err(Error::with(ErrorKind::Malformed, "the answer to a loan is of another kind")),
        Err(error) if matches!(error.kind, StaleMap | Conflict | Corrupt) => Err(error),
        Err(error) => {
            let share = ctx.settings.shares.named(share);
            let detail = format!("{share} lends nothing: {error}");
            Err(Error::with(ErrorKind::Unavailable, detail))
        }
    }
}

/// Who learns of the change from its answer, and under which number he asks for it.
fn caller_of(ctx: &Ctx) -> (u64, u64) {
    match (&ctx.session, &ctx.keeper) {
        (Some(session), Some(keeper)) => (session.mount(), keeper.number),
        _ => (0, 0),
    }
}

async fn ask(core: &Core, share: VolumeId, op: MetaOp) -> Result<MetaAnswer> {
    let cred = (&Credentials { checked: true, ..Credentials::root() }).into();
    let request = MetaRequest { volume: share.0, cred, op: Some(op), ..MetaRequest::default() };
    let service = core.map.meta_for(share)?;
    let since = core.map.owned_since(share);
    let mut asked = pin!(service.call(request));
    let end = Instant::now() + Duration::from_millis(CALL_MS_MAX);
    let reply = loop {
        match tokio::time::timeout(Duration::from_millis(CALL_MS_SOON), &mut asked).await {
            Ok(reply) => break reply,
            Err(_) if Instant::now() >= end => {
                break Err(Error::with(ErrorKind::Unavailable, "its server does not answer"));
            }
            // It may be gone.
            Err(_) => core.map.miss(share, since),
        }
    };
    if reply.as_ref().is_err_and(|error| error.kind == ErrorKind::Unavailable) {
        core.map.miss(share, since);
    }
    let answer = reply?.answer;
    answer.ok_or_else(|| Error::with(ErrorKind::Malformed, "empty answer of a metadata server"))
}

impl Borrowed {
    /// True if the lock of this inode was borrowed.
    pub fn has(&self, ino: Ino) -> bool {
        self.0.iter().any(|lent| lent.inodes.contains(&ino))
    }

    /// The number of a new inode in another share, if one was asked for.
    pub fn child(&self) -> Option<Ino> {
        self.0.iter().map(|lent| Ino(lent.loan.ino)).find(|ino| ino.0 != 0)
    }

    /// Inodes and bytes that a share has more afterwards. False: nothing was borrowed of it.
    pub fn count(&mut self, share: VolumeId, inodes: i64, bytes: i64) -> bool {
        let lent = self.0.iter_mut().find(|lent| lent.share == share);
        lent.is_some_and(|lent| {
            lent.end.inodes += inodes;
            lent.end.bytes += bytes;
            true
        })
    }

    /// Writes into the slot of each loan that the change is made. False: one is over.
    pub async fn note(&self, kv: &mut Transaction) -> Result<bool> {
        if self.0.is_empty() || strake_base::is_broken("loans-are-noted") {
            return Ok(true);
        }
        let slot = |lent: &Lent| keys::loan(lent.share, lent.loan.slot as u8);
        let slots: Vec<_> = self.0.iter().map(slot).collect();
        let found = kv.multi_get(&slots).await.map_err(store_error)?;
        for ((Lent { loan, end, .. }, key), value) in self.0.iter().zip(slots).zip(found) {
            let stored: Option<LoanRecord> = decoded(&key, value)?;
            if stored.is_none_or(|stored| stored.number != loan.stored) {
                return Ok(false);
            }
            let GiveBack { number, inodes, bytes, .. } = *end;
            let made = LoanRecord { number, made: true, inodes, bytes };
            match strake_base::is_broken("loans-are-contended") {
                true => kv.put(key, records::encode(&made)),
                false => kv.put_contended(key, records::encode(&made)),
            }
        }
        Ok(true)
    }

    /// What has become of the change; `None`: nobody knows.
    pub fn end(&mut self, made: Option<bool>) {
        self.0.iter_mut().for_each(|lent| lent.end.made = made);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let (core, share, end) = (self.core.clone(), self.share, self.end);
        task::spawn(async move {
            if let Err(error) = ask(&core, share, MetaOp::GiveBack(end)).await {
                tracing::debug!("share {share} does not hear that a loan is over: {error}");
            }
        });
    }
}
