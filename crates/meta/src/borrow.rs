//! What this share borrows of others, to change it together with its own.

use crate::core::{Core, backoff};
use crate::ctx::Ctx;
use crate::kept_loans::OnLoan;
use crate::keys;
use crate::loans::CHILDREN_MAX;
use crate::locks::inodes::Held;
use crate::records::{self, LoanRecord};
use crate::stored::{decoded, store_error};
use crate::volume::Volume;
use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use strake_base::random::mixed;
use strake_base::task;
use strake_engine::kv::Transaction;
use strake_types::{Credentials, Error, ErrorKind, FileKind, Ino, Result, Shares, VolumeId};
use strake_wire::message::meta::{
    Borrow, Create, GiveBack, Loan, MetaAnswer, MetaOp, MetaRequest, Name,
};
use tokio::time::{Instant, sleep_until};

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
    dealt(shares, &op.at)
}

/// The share to which a new directory is dealt.
pub(crate) fn dealt(shares: Shares, at: &Name) -> VolumeId {
    let mixed = mixed(at.parent ^ u64::from(records::checksum(&at.name)));
    VolumeId(shares.first.0 + (mixed % u64::from(shares.count)) as u32)
}

/// What was borrowed of other shares for one change. Given back when it is dropped, or kept for the next one.
#[derive(Default)]
pub(crate) struct Borrowed(Vec<Lent>);

/// What was borrowed of one share.
struct Lent {
    core: Arc<Core>,
    /// The share that borrows.
    own: Arc<Volume>,
    share: VolumeId,
    inodes: Vec<Ino>,
    of: OnLoan,
    /// The number for a new inode, if one was asked for.
    child: Option<Ino>,
    /// Inodes and bytes that the share has more when the change is made,
    more: (i64, i64),
    /// and what has become of that; `None`: nobody knows.
    made: Option<bool>,
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

/// Looks at what an inode leads to, so often at most while what was read does not fit together (`None`), and then once more
/// while nobody may change it: whoever changes it again and again waits once.
pub(crate) async fn look_again<T, F>(
    ctx: &Ctx,
    ino: Ino,
    tries: u32,
    look: impl Fn() -> F,
) -> Result<Option<T>>
where
    F: Future<Output = Result<Option<T>>>,
{
    for turn in 0..tries {
        if let Some(found) = look().await? {
            return Ok(Some(found));
        }
        if turn + 1 < tries {
            backoff(turn).await;
        }
    }
    let _held = lock_here(ctx, &[ino]).await?;
    Box::pin(look()).await
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
    let child = elsewhere.child.filter(|(place, _)| *place == share).map(|(_, dir)| dir);
    let since = ctx.core.map.owned_since(share);
    // A number is all that is needed of it.
    if inodes.is_empty()
        && let Some(kept) = ctx.volume.kept.take(share, since)
    {
        return Ok(Lent::begin(ctx, share, inodes, kept, child));
    }
    let (mount, leases) = caller_of(ctx);
    let op = Borrow {
        borrower: ctx.volume.id.0,
        since: ctx.settings.owned_since.0,
        inodes: inodes.iter().map(|ino| ino.0).collect(),
        names: names.cloned().collect(),
        child_of: child.map_or(0, |dir| dir.0),
        mount,
        leases,
        children: if inodes.is_empty() { CHILDREN_MAX } else { 0 },
    };
    let kept_for = Duration::from_millis(ctx.core.options.loan_kept_ms);
    let until = Instant::now() + kept_for;
    use ErrorKind::{Conflict, Corrupt, StaleMap};
    match ask(&ctx.core, share, MetaOp::Borrow(op)).await {
        Ok(MetaAnswer::Loan(loan)) => {
            let of = OnLoan { loan, since, numbers: numbers_of(&loan), noted: None, until };
            let lent = Lent::begin(ctx, share, inodes, of, child);
            lent.give_back_in_time();
            Ok(lent)
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

/// The numbers that came with a loan.
fn numbers_of(loan: &Loan) -> Range<u64> {
    match loan.ino {
        0 => 0..0,
        first => first..first.saturating_add(loan.children.clamp(1, CHILDREN_MAX).into()),
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
        self.0.iter().find_map(|lent| lent.child)
    }

    /// Inodes and bytes that a share has more afterwards. False: nothing was borrowed of it.
    pub fn count(&mut self, share: VolumeId, inodes: i64, bytes: i64) -> bool {
        let lent = self.0.iter_mut().find(|lent| lent.share == share);
        lent.is_some_and(|lent| {
            lent.more.0 += inodes;
            lent.more.1 += bytes;
            true
        })
    }

    /// Writes into the slot of each loan that the change is made. False: one is over.
    pub async fn note(&self, kv: &mut Transaction) -> Result<bool> {
        if self.0.is_empty() || strake_base::is_broken("loans-are-noted") {
            return Ok(true);
        }
        let slot = |lent: &Lent| keys::loan(lent.share, lent.of.loan.slot as u8);
        let slots: Vec<_> = self.0.iter().map(slot).collect();
        let found = kv.multi_get(&slots).await.map_err(store_error)?;
        for ((lent, key), value) in self.0.iter().zip(slots).zip(found) {
            let stored: Option<LoanRecord> = decoded(&key, value)?;
            if !lent.of.lasts(stored) {
                // Whoever has ended this one has ended the others as well, or will: each would cost a try.
                lent.own.kept.forget(lent.share);
                return Ok(false);
            }
            let made = records::encode(&lent.note());
            match strake_base::is_broken("loans-are-contended") {
                true => kv.put(key, made),
                false => kv.put_contended(key, made),
            }
        }
        Ok(true)
    }

    /// What has become of the change; `None`: nobody knows.
    pub fn end(&mut self, made: Option<bool>) {
        for lent in &mut self.0 {
            lent.made = made;
            if made == Some(true) && lent.of.noted.is_some() {
                strake_base::count_case("loan-used-again");
            }
        }
    }
}

impl Lent {
    /// For one change, which may make something below `dir`.
    fn begin(
        ctx: &Ctx,
        share: VolumeId,
        inodes: Vec<Ino>,
        mut of: OnLoan,
        dir: Option<Ino>,
    ) -> Self {
        let shares = ctx.settings.shares;
        // As if its lender had been asked for this directory: where it lies does not depend on who was first.
        let place = |dir, number| shares.place(keys::child_ino(dir, number), shares.index(share));
        let child = dir.and_then(|dir| Some(place(dir, of.numbers.next()?)));
        let (core, own) = (ctx.core.clone(), ctx.volume.clone());
        Lent { core, own, share, inodes, of, child, more: (0, 0), made: Some(false) }
    }

    /// What its slot is to hold when the change is made.
    fn note(&self) -> LoanRecord {
        self.of.note(self.more.0, self.more.1)
    }

    /// If it can be kept, it is given back when its time is over; in use then, it is not kept any more.
    fn give_back_in_time(&self) {
        if self.of.numbers.is_empty() {
            return;
        }
        let (core, own, share) = (self.core.clone(), self.own.clone(), self.share);
        let (number, until) = (self.of.loan.number, self.of.until);
        task::spawn(async move {
            sleep_until(until).await;
            if let Some(kept) = own.kept.remove(share, number) {
                give_back(&core, share, kept.end(true)).await;
            }
        });
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.made == Some(true) {
            self.of.noted = Some(self.note());
        }
        let certain = self.made.is_some();
        if certain && self.own.kept.put(self.share, &self.of) {
            return;
        }
        let (core, share, end) = (self.core.clone(), self.share, self.of.end(certain));
        task::spawn(async move { give_back(&core, share, end).await });
    }
}

async fn give_back(core: &Core, share: VolumeId, end: GiveBack) {
    if let Err(error) = ask(core, share, MetaOp::GiveBack(end)).await {
        tracing::debug!("share {share} does not hear that a loan is over: {error}");
    }
}
