//! A member of a group of several copies. `docs/design/0040-replication.md` is what this does.
//!
//! * [`ranges`] — who may touch which bytes now.
//! * `lead` — the primary: numbers changes, makes them.
//! * `spread` — the primary: sees that all members have them; `missed` — those that do not take them.
//! * `sync` — the primary: makes durable what all members have.
//! * `cut` — a cut of many chunks, in parts.
//! * `level` — what a change that has failed half-way leaves.
//! * `follow` — the other members: what comes from the primary, and what readers may see.
//! * `errand` — what goes to members beside changes.
//! * `recover` — what a new primary does first.
//! * `resync` — making a joining member equal; `healing` — when and how fast, and how far it is.
//! * `leave` — a member that is to leave; `handing` — a primary that is to let another member lead.
//! * `hung` — a member whose disk does not answer, or that is asked to go; `failing` — one whose store fails for good.
//! * `left` — changes that nobody waits for any more, and their bound.
//! * `digest` — what copies of chunks are compared by.
//! * `compare` — whether the copies of chunks are the same.
//! * `repair` — damaged blocks, and where sound ones come from; `met` — who sees to them; `tale` — what is told of that. `holes` — where the truth is zeros.
//! * `short` — members that are short of room.
//!
//! A replica acts in the epoch it has *adopted*: that of the newest map it knows, or a newer one that
//! a new primary told it. A *reign* is the time in which one replica is the primary without a break;
//! its name is the epoch in which it began.

mod compare;
mod cut;
mod digest;
mod errand;
mod failing;
mod follow;
mod handing;
mod healing;
mod holes;
mod hung;
mod lead;
mod leave;
mod left;
mod level;
mod met;
mod missed;
pub(crate) mod ranges;
mod recover;
mod repair;
mod resync;
mod short;
mod spread;
mod sync;
mod tale;

use crate::apply::{Answer, Shelf};
use crate::gate::Gate;
use crate::order::Whose;
use crate::target::Target;
use bytes::Bytes;
pub(crate) use errand::{MetBy, Outcome};
use failing::Failing;
pub(crate) use healing::Healing;
use holes::Hole;
use hung::Offers;
use left::Left;
use met::{Met, Repairs};
use missed::Missing;
use parking_lot::Mutex;
use ranges::{Area, Ranges};
use short::Short;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_base::clock::Clock;
use strake_base::is_broken;
use strake_types::{Error, ErrorKind, GroupId, Result, TargetId};
use strake_wire::capability::CapabilityKey;
use strake_wire::lease::{Lease, Term};
use strake_wire::map::MapView;
use strake_wire::map::Standing;
use strake_wire::message::storage::{Attempt, Forward, StorageAnswer, StorageOp, StorageRequest};
use sync::Looks;
use tokio::sync::{Notify, OnceCell, RwLock, RwLockReadGuard};

/// How long a member may take to answer before it is asked again.
const MEMBER_WAIT: Duration = Duration::from_secs(10);
/// How long it may take to sync. A client is told then that it is still at work on that.
pub(crate) const SYNC_WAIT: Duration = Duration::from_secs(90);
/// Time between two looks at what is to be done.
const TICK: Duration = Duration::from_millis(100);

/// What all replicas of a server share.
pub(crate) struct Common {
    pub map: Arc<MapView>,
    pub key: CapabilityKey,
    pub clock: Arc<dyn Clock>,
    pub lease: Arc<Lease>,
    /// When this server started, on the monotonic clock: what it promised before, it has forgotten.
    pub started: Duration,
    pub healing: Healing,
}

impl Common {
    /// Milliseconds since 1970-01-01 UTC.
    pub fn wall_ms(&self) -> u64 {
        u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }

    /// Fails if the session is fenced. Its client opens a new one, and learns what it has lost.
    pub fn check_fence(&self, whose: Option<Whose>) -> Result<()> {
        let Some((volume, session)) = whose else { return Ok(()) };
        if !self.map.is_fenced(volume, session) || is_broken("fenced-sessions-are-refused") {
            return Ok(());
        }
        let detail = format!("session {session} of volume {volume} is over");
        Err(Error::with(ErrorKind::BadCapability, detail))
    }
}

/// What is sent to members.
struct Message {
    attempt: Option<Attempt>,
    /// See [`Order::whose`](crate::order::Order::whose).
    whose: Option<Whose>,
    op: StorageOp,
    payload: Bytes,
}

impl Message {
    /// One without payload, which is no client's change.
    fn of(op: StorageOp) -> Self {
        Self { attempt: None, whose: None, op, payload: Bytes::new() }
    }

    /// The same, answered as soon as it is made.
    fn hasty(&self) -> Self {
        let (op, payload) = (self.op.clone().not_durable(), self.payload.clone());
        Self { op, payload, ..*self }
    }
}

/// A group as the map has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub epoch: u64,
    /// The primary first.
    pub in_sync: Vec<TargetId>,
    pub joining: Vec<TargetId>,
    /// The reign for which the primary vouches that begins to lead in it: its own, or the one whose lead was handed over to it.
    pub vouches: u64,
}

impl View {
    /// Two members count, and nobody is to.
    fn is_pair(&self) -> bool {
        self.in_sync.len() == 2 && self.joining.is_empty()
    }
}

/// One member's part of a group.
pub(crate) struct Replica {
    group: GroupId,
    shelf: Shelf,
    common: Arc<Common>,
    /// Of those who use the group's chunks without a replica.
    gate: Arc<Gate>,
    /// All of them have gone.
    opened: OnceCell<()>,
    ranges: Ranges,
    /// The epoch adopted. Held for reading while a change is applied: a new epoch is adopted between
    /// changes.
    adopted: RwLock<u64>,
    state: Mutex<State>,
    /// Damage that is being seen to.
    met: Met,
    repairs: Repairs,
    short: Short,
    /// Held by the primary while members are asked for room and it is reserved.
    reserving: tokio::sync::Mutex<()>,
    left: Left,
    /// Whether members say that they are there.
    looks: Looks,
    /// Something about the reign has changed.
    progress: Notify,
    /// A change that was acknowledged early is everywhere.
    settled_early: Notify,
    /// How long members may take to sync, and, if it is longer than usual, to say that they are there: for tests.
    #[cfg(test)]
    short_syncs: Mutex<Option<Duration>>,
    /// A member may take an hour to answer anything else: for tests.
    #[cfg(test)]
    waits_long: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct State {
    /// This replica is the primary.
    reign: Option<Reign>,
    /// What was applied here and not everywhere, as far as we know: by reign and number.
    unsettled: BTreeMap<(u64, u64), Unsettled>,
    /// All changes before this one, by reign and number, are applied everywhere.
    settled: (u64, u64),
    /// The epoch in which a change could not be applied here: nothing is answered in it any more, nor in an earlier one.
    resigned: Option<u64>,
    /// When the manager was last told that.
    resigned_said: Option<Duration>,
    /// What the primary asks here in vain.
    failing: Failing,
    /// The epoch as whose primary it needs what its own store fails at for good, and when that was last so,
    own_failed: Option<(u64, Duration)>,
    /// and when that became so in an epoch.
    own_offers: Offers,
    /// The epoch from which it has resigned because its disk did not answer, or for that,
    gave_up: Option<u64>,
    /// and when it last began to say so.
    offers: Offers,
    /// The epoch of which it said last that it leaves, and when.
    let_go_at: Option<(u64, Duration)>,
    /// The epoch after which another member is to lead: in it nothing is acknowledged early any more.
    hands_over: Option<u64>,
    /// The epoch of which it said last that nothing is, and when.
    handed_at: Option<(u64, Duration)>,
    /// To whom we have promised to act in no epoch without them, and until when.
    promised: HashMap<TargetId, Duration>,
    /// The epoch in which, and until when, all others have promised us the same.
    promises: (u64, Duration),
    /// How long such promises are asked for.
    promise_term: Term,
    /// When the manager was last told that somebody waits here for others.
    stalled_at: Option<Duration>,
}

struct Unsettled {
    area: Area,
    /// What it makes zeros, or takes away.
    hole: Option<Area>,
    stage: Stage,
    /// Since when damage is in its way.
    damaged: Option<Duration>,
    /// Remembered as made when it is settled; should the next primary not have it, never.
    attempt: Option<Attempt>,
    /// The epoch in which it came,
    epoch: u64,
    /// and when, on the monotonic clock.
    came: Duration,
}

/// How far a change has come at a member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begun,
    Applied,
    /// Damage is in its way, or the disk does not answer: it is to come again when that is mended. Or this member has resigned.
    Failed,
}

/// What a primary knows.
struct Reign {
    /// The epoch in which it began: its name.
    since: u64,
    /// The name of the first one since which nobody was ready to lead without what was acknowledged early in any of these: it is here
    /// still. It follows from the map in which this one began: a later one says for what the next vouches.
    vouches: u64,
    view: View,
    /// What was unsettled when it began is equal everywhere.
    ready: bool,
    recovering: bool,
    /// Those that others have made, and we perhaps not, until it is ready.
    holes: Vec<Hole>,
    /// Number of the next change.
    next: u64,
    /// Changes that are not everywhere yet.
    open: BTreeSet<u64>,
    /// Those of them that are acknowledged.
    early: BTreeSet<u64>,
    /// Up to where the members were told that changes are settled.
    told: u64,
    joiners: HashMap<TargetId, Joiner>,
    /// Members that count and take no change.
    missing: HashMap<TargetId, Missing>,
}

/// A joining member, in the present epoch.
#[derive(Clone, Default)]
struct Joiner {
    /// It is being made equal.
    started: bool,
    /// It missed a change,
    failed: bool,
    /// or something else: this.
    reason: String,
    /// The manager is being told of that.
    told: bool,
    /// It was reported as equal: changes need its answer from now on.
    counted: bool,
}

impl State {
    /// The reign of this name, if it lasts.
    fn reign(&mut self, since: u64) -> Option<&mut Reign> {
        self.reign.as_mut().filter(|reign| reign.since == since)
    }

    /// From now on nothing is answered in an epoch.
    fn resign(&mut self, epoch: u64) {
        self.resigned = self.resigned.max(Some(epoch));
    }

    /// True while a promise runs to somebody who is not in sync in a view: without him nothing is
    /// done yet.
    fn is_bound(&self, view: &View, now: Duration) -> bool {
        self.promised.iter().any(|(member, until)| !view.in_sync.contains(member) && now < *until)
    }
}

impl Reign {
    fn new(view: View) -> Self {
        Self {
            since: view.epoch,
            vouches: view.vouches,
            view,
            ready: false,
            recovering: false,
            holes: Vec::new(),
            next: 1,
            open: BTreeSet::new(),
            early: BTreeSet::new(),
            told: 0,
            joiners: HashMap::new(),
            missing: HashMap::new(),
        }
    }

    /// Something that was here when it began is lost: it may have been acknowledged early, also by who handed the lead over.
    fn vouch_anew(&mut self) {
        if !self.ready {
            self.vouches = self.since;
        }
    }

    /// Up to where changes are settled; 0: nothing is known.
    fn settled(&self) -> u64 {
        let open = self.open.first().filter(|_| !strake_base::is_broken("settled-is-everywhere"));
        if self.ready { open.copied().unwrap_or(self.next) } else { 0 }
    }

    /// A joining member that is not waited for: it begins anew in another epoch.
    fn has_failed(&self, target: TargetId) -> bool {
        self.joiners.get(&target).is_some_and(|joiner| joiner.failed && !joiner.counted)
    }

    fn is_counted(&self, target: TargetId) -> bool {
        self.joiners.get(&target).is_some_and(|joiner| joiner.counted)
    }

    /// Who must have a change before it is acknowledged, beside the primary.
    fn required(&self) -> impl Iterator<Item = TargetId> + '_ {
        let counted = self.view.joining.iter().filter(|&&target| self.is_counted(target));
        self.view.in_sync.iter().skip(1).chain(counted).copied()
    }
}

impl Replica {
    /// The part of `target` in a group.
    pub fn new(
        target: &Arc<Target>,
        group: GroupId,
        common: Arc<Common>,
        gate: Arc<Gate>,
    ) -> Arc<Self> {
        Arc::new(Self {
            gate,
            opened: OnceCell::new(),
            group,
            shelf: Shelf::new(target, group),
            common,
            ranges: Ranges::default(),
            adopted: RwLock::new(0),
            state: Mutex::default(),
            met: Met::default(),
            repairs: Repairs::default(),
            short: Short::default(),
            reserving: tokio::sync::Mutex::default(),
            left: Left::default(),
            looks: Looks::default(),
            progress: Notify::new(),
            settled_early: Notify::new(),
            #[cfg(test)]
            short_syncs: Mutex::default(),
            #[cfg(test)]
            waits_long: std::sync::atomic::AtomicBool::default(),
        })
    }

    /// Waits for those who have come before it was there. Nothing is asked of it earlier.
    pub async fn open(&self) {
        self.opened.get_or_init(|| async { drop(self.gate.close().await) }).await;
    }

    /// The gate of those who have no replica.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// True if a group needs it no more: its target is no member, or alone and everything before is
    /// settled.
    pub fn is_over(&self, standing: Standing) -> bool {
        let state = self.state.lock();
        let done = |reign: &Reign| {
            reign.ready && reign.view.epoch == standing.epoch.0 && reign.open.is_empty()
        };
        !standing.member || state.reign.as_ref().is_some_and(done)
    }

    fn me(&self) -> TargetId {
        self.shelf.target.id
    }

    fn error(&self, kind: ErrorKind, what: &str) -> Error {
        Error::with(kind, format!("group {} at target {}: {what}", self.group, self.me()))
    }

    /// The group as the map has it now.
    fn view(&self) -> Result<View> {
        let group = self.common.map.group(self.group)?;
        let ids = |list: &[u32]| list.iter().copied().map(TargetId).collect();
        Ok(View {
            epoch: group.epoch,
            in_sync: ids(group.in_sync()),
            joining: ids(&group.joining),
            vouches: group.vouches_in(group.epoch),
        })
    }

    /// The group in the epoch of a request (0: whichever it is now), which is adopted.
    async fn current(&self, epoch: u64) -> Result<View> {
        let mut view = self.view()?;
        let behind = epoch.max(*self.hold_epoch().await?);
        if view.epoch < behind {
            // If nobody can tell, the next lines say so.
            let _ = self.common.map.refresh().await;
            view = self.view()?;
        }
        if epoch != 0 && epoch < view.epoch && !strake_base::is_broken("only-in-sync-serve") {
            let what = format!("the request is of epoch {epoch}, and it is {}", view.epoch);
            return Err(self.error(ErrorKind::StaleMap, &what));
        }
        // A change that hangs is in its way.
        self.shelf.target.while_disk_answers(self.adopt(&view)).await?;
        if view.epoch < behind {
            let what = format!("epoch {behind} is not in our map yet");
            return Err(self.error(ErrorKind::NotCurrent, &what));
        }
        Ok(view)
    }

    /// The epoch adopted, which stays so while this is held. Fails where others wait to change it for a disk that does not answer.
    async fn hold_epoch(&self) -> Result<RwLockReadGuard<'_, u64>> {
        self.shelf.target.while_disk_answers(self.adopted.read()).await
    }

    /// Adopts the epoch of a view, if it is newer.
    async fn adopt(&self, view: &View) {
        if *self.adopted.read().await >= view.epoch {
            return;
        }
        let mut adopted = self.adopted.write().await;
        let before = *adopted;
        if before >= view.epoch {
            return;
        }
        *adopted = view.epoch;
        let leads = view.in_sync.first() == Some(&self.me());
        let mut state = self.state.lock();
        let bound = state.is_bound(view, self.common.clock.monotonic());
        match &mut state.reign {
            // Between two epochs that follow each other nobody else can have led.
            Some(reign) if leads && !bound && view.epoch == before + 1 => {
                reign.view = view.clone();
                reign.joiners.clear();
                reign.missing.clear();
                reign.told = 0;
            }
            // Who led in those that we have missed is ready only with our answer, which we give in an epoch that we have
            // adopted, or without us: then we are in sync again only by what we answer as one that joins.
            reign => {
                let vouches = reign.as_ref().map(|reign| reign.vouches);
                *reign = leads.then(|| {
                    let anew = Reign::new(view.clone());
                    Reign { vouches: vouches.unwrap_or(anew.vouches), ..anew }
                });
            }
        }
        drop(state);
        self.progress.notify_waiters();
    }

    /// A change that comes now.
    fn entry(&self, area: Area, attempt: Option<Attempt>, epoch: u64) -> Unsettled {
        let came = self.common.clock.monotonic();
        Unsettled { area, hole: None, stage: Stage::Begun, damaged: None, attempt, epoch, came }
    }

    /// Asks another member what it has, whatever its standing. Ends, as all that is sent to members, when a later epoch is adopted.
    async fn ask(&self, member: TargetId, epoch: u64, op: StorageOp) -> Result<StorageAnswer> {
        self.tell(member, epoch, Forward::default(), &Message::of(op)).await
    }

    async fn tell(
        &self,
        member: TargetId,
        epoch: u64,
        forward: Forward,
        message: &Message,
    ) -> Result<StorageAnswer> {
        Ok(self.fetch(member, epoch, forward, message).await?.0)
    }

    /// As [`Replica::tell`], with the payload of the answer.
    async fn fetch(
        &self,
        member: TargetId,
        epoch: u64,
        forward: Forward,
        message: &Message,
    ) -> Result<Answer> {
        let (volume, ino) = Area::of_op(&message.op, 0).map(|area| area.file()).unwrap_or_default();
        let request = StorageRequest {
            target: member.0,
            group: self.group.0,
            epoch,
            capability: self.common.key.mint_own(volume, ino),
            attempt: message.attempt,
            forward: Some(forward),
            op: Some(message.op.clone()),
            ..StorageRequest::default()
        };
        let limit = match message.op {
            StorageOp::Sync(_) => self.patience(SYNC_WAIT),
            _ => self.member_wait(),
        };
        let payload = message.payload.clone();
        let service = self.common.map.storage_of(member)?;
        let called = tokio::time::timeout(limit, service.call(request, payload));
        let late = |_| self.error(ErrorKind::Unavailable, &format!("target {member} is silent"));
        let (reply, payload) = tokio::select! {
            biased;
            called = called => called.map_err(late)??,
            // It may be out by then, and nobody is to wait for it.
            () = self.epoch_after(epoch) => {
                return Err(self.error(ErrorKind::StaleMap, "a new epoch has begun"));
            }
        };
        let empty = || self.error(ErrorKind::Malformed, &format!("target {member} said nothing"));
        let answer = reply.answer.ok_or_else(empty)?;
        if let StorageAnswer::Done(done) = answer {
            self.short.note(member, done.short);
        }
        Ok((answer, payload))
    }

    /// Waits until an epoch later than this one is adopted.
    async fn epoch_after(&self, epoch: u64) {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if *self.adopted.read().await > epoch {
                return;
            }
            progress.await;
        }
    }

    /// How long a member may take to answer: so long, but in tests.
    fn member_wait(&self) -> Duration {
        #[cfg(test)]
        if self.waits_long.load(std::sync::atomic::Ordering::Relaxed) {
            return Duration::from_secs(3_600);
        }
        MEMBER_WAIT
    }

    /// How long a member that syncs is waited for: so long, but in tests.
    fn patience(&self, usual: Duration) -> Duration {
        #[cfg(test)]
        if let Some(short) = *self.short_syncs.lock() {
            return short;
        }
        usual
    }

    /// Waits until something has changed, or for a pause, and looks at the map.
    async fn look_again(&self, pause: Duration) {
        let _woken = tokio::time::timeout(pause, self.progress.notified()).await;
        if let Err(error) = self.current(0).await {
            tracing::debug!("{error}");
        }
    }

    /// Does what is to be done from time to time, as long as somebody else holds the replica: adopts
    /// new epochs, begins reigns, makes joining members equal.
    pub async fn live(replica: Weak<Self>) {
        while let Some(replica) = replica.upgrade() {
            replica.open().await;
            match replica.current(0).await {
                Ok(_) => {
                    replica.look_at_missing();
                    replica.lead_on().await;
                    replica.let_go().await;
                    replica.hand_over().await;
                    replica.say_resigned().await;
                }
                Err(error) => tracing::debug!("{error}"),
            }
            drop(replica);
            tokio::time::sleep(TICK).await;
        }
    }
}

#[cfg(test)]
mod tests;
