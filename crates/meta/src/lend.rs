//! What this share lends to others: inodes that the server of another share of the volume is about to change.
//!
//! Who makes a change writes all of it in one transaction of the database, whosever keys they are. What the database
//! does not know is what the servers have in memory: so they are asked first. From then until the
//! loan is over nobody else changes these inodes, is leased them, or finds them in a cache here.
//!
//! Each loan has a slot, a key that the borrower writes with the change, and that this server writes when it
//! gives the borrower up: of the two the database lets one through, so what is so then stays so. A server that takes a
//! share into use writes all slots first, and so ends what its predecessor had lent.
//!
//! Of a directory that is to be made nothing is in memory. A loan for that is a slot and some numbers, and the borrower may
//! make several with it, one after the other: its slot counts them together, until he gives it back, or is given up.
//!
//! docs/design/0067-shares-of-a-volume.md goes through who may die when.

use crate::cache::Commit;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::keys;
use crate::leases::Keeper;
use crate::loans::{CHILDREN_MAX, SLOTS};
use crate::places::Places;
use crate::records::{self, LoanRecord};
use crate::stored::{decoded, store_error};
use crate::view::Tx;
use crate::volume::Volume;
use std::time::Duration;
use strake_base::task;
use strake_types::{Epoch, Error, ErrorKind, Ino, Result, VolumeId};
use strake_wire::message::meta::{Borrow, GiveBack, Loan, MetaAnswer, Nothing};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// How long a slot, and the locks and the leases of what is borrowed, are waited for.
const WAIT_MS_MAX: u64 = 4_000;
/// A loan that is not given back ends after so long.
const LOAN_MS_MAX: u64 = 6_000;
/// How often it is looked whether the borrower is the one that it was.
const LOOK_MS: u64 = 200;
/// Pause before it is tried again to find out what has become of a change, longer each time,
const SETTLE_PAUSE: Duration = Duration::from_millis(20);
/// and the longest.
const SETTLE_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Lends inodes of this share.
pub(crate) async fn lend(ctx: &Ctx, op: &Borrow) -> Result<MetaAnswer> {
    let borrower = VolumeId(op.borrower);
    if borrower == ctx.volume.id || ctx.settings.shares.all().all(|share| share != borrower) {
        let detail = format!("{} lends to other shares of its volume only", ctx.volume.id);
        return Err(Error::with(ErrorKind::Invalid, detail));
    }
    let (grant, granted) = oneshot::channel();
    task::spawn(keep(ctx.clone(), op.clone(), grant));
    let gone = || Error::with(ErrorKind::Unavailable, "the loan has ended");
    granted.await.unwrap_or_else(|_| Err(gone())).map(MetaAnswer::Loan)
}

/// The borrower has made the change, or will not.
pub(crate) fn take_back(ctx: &Ctx, op: &GiveBack) -> MetaAnswer {
    let keeper = ctx.volume.loans.keeper(op.number);
    // If it ends just now, it looks for itself.
    if let Some(keeper) = keeper {
        let _ = keeper.send(*op);
    }
    MetaAnswer::Done(Nothing {})
}

/// A loan from its beginning to its end.
async fn keep(ctx: Ctx, op: Borrow, grant: oneshot::Sender<Result<Loan>>) {
    let (core, volume) = (&ctx.core, &ctx.volume);
    let until = Instant::now() + Duration::from_millis(WAIT_MS_MAX);
    let inodes: Vec<Ino> = op.inodes.iter().copied().map(Ino).collect();
    let caller = caller_of(volume, &op);
    let reserved = timeout_at(until, async {
        let held = core.locks.lock(volume.id, &inodes).await;
        let holders = || volume.sessions.holders();
        let leased = |ino: &Ino| ino.0 != 0 && !strake_base::is_broken("loans-are-recalled");
        let real = inodes.iter().copied().filter(leased).collect();
        (held, volume.leases.change(caller.as_ref(), real, holders, &*core.clock).await)
    });
    let Ok(_reserved) = reserved.await else {
        let _ =
            grant.send(Err(Error::with(ErrorKind::Conflict, "what is to be borrowed is in use")));
        return;
    };
    // Last: who waits for an inode that many want leaves the slots to others.
    let Ok(mut loan) = timeout_at(until, volume.loans.begin()).await else {
        let detail = format!("as much of it is lent as may be: {SLOTS} changes of other shares");
        let _ = grant.send(Err(Error::with(ErrorKind::Unavailable, detail)));
        return;
    };
    let prepared = async {
        if !inodes.is_empty() {
            // What was given up half-way, and comes late, would lie over the change.
            volume.kv.drain().await.map_err(store_error)?;
        }
        number_children(volume, &op, &mut loan).await?;
        Forgotten::begin(&ctx, &op).await
    };
    let _forgotten = match prepared.await {
        Ok(forgotten) => forgotten,
        Err(error) => {
            volume.loans.end(&loan, loan.stored);
            let _ = grant.send(Err(error));
            return;
        }
    };
    let (keeper, given_back) = oneshot::channel();
    volume.loans.given(&loan, keeper);
    let said = match grant.send(Ok(loan)) {
        Ok(()) => until_over(&ctx, &op, given_back).await,
        // Nobody has heard of it.
        Err(_) => GiveBack { made: Some(false), ..GiveBack::default() },
    };
    let Some((stored, said)) = settled(&ctx, &loan, said).await else { return };
    if said.made == Some(true) && caller.is_some() {
        forget_removed(&ctx, &inodes).await;
    }
    let _counting = volume.counts.gate.read().await;
    if said.made == Some(true) {
        volume.counts.add(said.inodes, said.bytes);
        core.has_work(volume);
    }
    volume.loans.end(&loan, stored);
}

/// Numbers for what the borrower is about to make: for several changes one after the other, where he can keep a slot.
async fn number_children(volume: &Volume, op: &Borrow, loan: &mut Loan) -> Result<()> {
    if op.child_of == 0 {
        return Ok(());
    }
    // What is lent beside the numbers is given back with the change.
    let can_be_kept = op.inodes.is_empty() && volume.loans.are_few();
    loan.children = if can_be_kept { op.children.clamp(1, CHILDREN_MAX) } else { 1 };
    loan.ino = volume.new_inos(Ino(op.child_of), loan.children).await?.0;
    Ok(())
}

/// What a change has removed is not leased any more: the caller's lease was not recalled.
async fn forget_removed(ctx: &Ctx, inodes: &[Ino]) {
    for ino in inodes.iter().filter(|ino| ino.0 != 0) {
        if matches!(Tx::reader(ctx).find_inode(*ino).await, Ok(None)) {
            ctx.volume.leases.forget(*ino);
        }
    }
}

/// Who asks the borrower for the change: the answer tells him what to forget of what is leased to him here.
fn caller_of(volume: &Volume, op: &Borrow) -> Option<Keeper> {
    let session = volume.sessions.of_mount(op.mount)?;
    Some(Keeper { holder: session.holder.clone(), number: op.leases })
}

/// Waits until a loan is given back, its time is over, or the borrower's share has another server.
async fn until_over(ctx: &Ctx, op: &Borrow, mut back: oneshot::Receiver<GiveBack>) -> GiveBack {
    for _ in 0..LOAN_MS_MAX / LOOK_MS {
        let look = Duration::from_millis(LOOK_MS);
        if let Ok(Ok(said)) = tokio::time::timeout(look, &mut back).await {
            return said;
        }
        let since = ctx.core.map.owned_since(VolumeId(op.borrower));
        if since.is_none_or(|since| since > Epoch(op.since)) {
            break;
        }
    }
    GiveBack::default()
}

/// What has become of the change, and what is stored in the slot now. `None`: another server has taken the share over.
async fn settled(ctx: &Ctx, loan: &Loan, said: GiveBack) -> Option<(u64, GiveBack)> {
    match said.made {
        Some(true) => return Some((loan.number, said)),
        Some(false) => return Some((loan.stored, said)),
        None => {}
    }
    let mut turn = 1_u32;
    loop {
        match settle(&ctx.volume, loan).await {
            Ok(found) => {
                let LoanRecord { made, inodes, bytes, .. } = found;
                let said = GiveBack { number: loan.number, made: Some(made), inodes, bytes };
                return Some((loan.number, said));
            }
            Err(_) if ctx.volume.kv.is_taken_over() => return None,
            Err(error) => {
                if turn.is_power_of_two() {
                    let id = ctx.volume.id;
                    tracing::warn!("volume {id}: what was lent cannot be settled: {error}");
                }
                turn += 1;
                let pause = SETTLE_PAUSE * turn;
                tokio::time::sleep(pause.min(SETTLE_PAUSE_MAX)).await;
            }
        }
    }
}

/// Looks whether the change was made, or which of several were; if not, it never will be, nor will any other.
async fn settle(volume: &Volume, loan: &Loan) -> Result<LoanRecord> {
    let key = keys::loan(volume.id, loan.slot as u8);
    let mut found = LoanRecord::default();
    volume
        .own_transaction(Some(&key), |stored, tx| {
            let stored: Option<LoanRecord> = decoded(&key, stored)?;
            let never = LoanRecord { number: loan.number, ..LoanRecord::default() };
            found = stored.filter(|stored| stored.number == loan.number).unwrap_or(never);
            found.over = true;
            tx.put_contended(key.clone(), records::encode(&found));
            Ok(())
        })
        .await?;
    Ok(found)
}

/// What the caches do not keep while it is lent.
struct Forgotten(Places);

impl Forgotten {
    async fn begin(ctx: &Ctx, op: &Borrow) -> Result<Self> {
        let opening = ctx.volume.opening;
        let mut shards = Vec::new();
        for ino in op.inodes.iter().copied().map(Ino) {
            let inode = Tx::reader(ctx).find_inode(ino).await?;
            let count = inode.filter(|inode| inode.is_dir()).map_or(0, |dir| dir.shards());
            shards.extend((0..count).map(|index| Core::shard_key(opening, ino, index)));
        }
        let inodes = op.inodes.iter().map(|ino| Core::inode_key(opening, Ino(*ino)));
        let entry = |at: &strake_wire::message::meta::Name| {
            ctx.core.entry_key(opening, Ino(at.parent), &at.name)
        };
        let entries = op.names.iter().map(entry).collect();
        let all = Places { core: ctx.core.clone(), inodes: inodes.collect(), shards, entries };
        if !strake_base::is_broken("loans-are-forgotten") {
            all.forget(Commit::Begins);
        }
        Ok(Self(all))
    }
}

impl Drop for Forgotten {
    fn drop(&mut self) {
        if !strake_base::is_broken("loans-are-forgotten") {
            self.0.forget(Commit::Ended);
        }
    }
}
