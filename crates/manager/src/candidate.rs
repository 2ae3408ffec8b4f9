//! Which of several managers leads.
//!
//! The managers of a cluster keep its truth in one store, and one of them leads: it answers, and changes the store. It
//! says there that it lives ([`Beat`]), and leads as long as that was written lately: its lease counts from before each
//! beat. The others read the beat. When it has not changed for a whole lease of the leader, one of them opens the control
//! plane, which shuts out whoever wrote it before, and leads. Nobody else is needed to decide that: the store orders the
//! beats and the openings, as in *Paxos made live* (Chandra, Griesemer and Redstone, 2007) the master's leases.
//!
//! - No two change anything: a part of the store has one writer.
//! - No two promise anything at once, such as that the lease of a member is renewed: the one before has stopped when its
//!   own lease is over, and the next one counts everybody's silence from after that.
//!
//! A new leader is a manager that was started again, on another machine: it goes on with what is stored.

mod copies;
mod noted;

use crate::beats::{Beats, Bequest, LEAD_MAX, answers_for, pause_of};
use crate::options::ManagerOptions;
use crate::records::{self, Beat, Cluster, Kind};
use crate::service::{Beginning, Lead, Manager};
use crate::state::stored;
use async_trait::async_trait;
use noted::{Newest, note};
use parking_lot::{Mutex, RwLock};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use strake_base::task::{Owned, spawn_owned};
use strake_engine::kv::dump::{self, DumpError};
use strake_engine::kv::{Kv, KvError, Part, Store};
use strake_types::{Error, ErrorKind, Result};
use strake_wire::lease::Lease;
use strake_wire::message::manager::{Leader, ManagerAnswer, ManagerReply, ManagerRequest};
use strake_wire::service::ManagerService;
use tokio::sync::{SetOnce, watch};
use tokio::time::Instant;

/// How often a manager that starts tries to lead or to follow where others try to lead at the same time.
const TRIES_MAX: u32 = 5;
/// Managers try at so many different times,
const TURNS: u32 = 5;
/// with so much between them at first, in milliseconds: longer than it takes to open the store and give a beat.
const TURN_MS: u64 = 100;
/// Shortest pause between two beats or looks, in milliseconds.
const PAUSE_MS: u64 = 10;

/// A manager that leads, or would if the leader fell silent.
pub struct Candidate {
    inner: Arc<Inner>,
    /// Leads or looks on.
    watching: Mutex<Option<Owned<()>>>,
}

/// The server that a manager is part of.
#[derive(Clone, Debug, Default)]
pub struct Candidature {
    /// Its number; 0: it has none yet.
    pub server: u32,
    /// Its address.
    pub address: String,
    /// It begins a new cluster, if there is none.
    pub founds: bool,
    /// Id of the store that it leads by, as its server says it when it joins; empty: only that one has it.
    pub store: String,
}

struct Inner {
    store: Arc<dyn Store>,
    options: ManagerOptions,
    /// Its server's number; 0: it has none yet.
    server: AtomicU32,
    address: String,
    founds: bool,
    /// See [`Candidature::store`].
    store_id: String,
    cluster: Mutex<String>,
    seat: RwLock<Seat>,
    /// Why the store was of no use the last time; empty: it was.
    cut_off: Mutex<String>,
    lease: Arc<Lease>,
    epochs: watch::Sender<u64>,
    /// Number of the last beat.
    last_number: AtomicU64,
    newest: Newest,
    /// Held over a beat: they are stored in the order in which they are given.
    beating: tokio::sync::Mutex<()>,
    /// Its server has joined in this life.
    joined: AtomicBool,
    /// A process elsewhere with the number of this server has led since this one looks on.
    heard_elsewhere: AtomicBool,
    /// What is to be said once another process has led with the number of this server.
    overtaken: SetOnce<Error>,
}

/// What it is now.
#[derive(Clone)]
enum Seat {
    Leads(Arc<Manager>),
    Follows(Leader),
}

/// What a manager finds that only looks on.
struct Sight {
    cluster: Cluster,
    beat: Option<Beat>,
    /// The own server is one of the managers.
    may_lead: bool,
    /// It has joined at another address last, and not here.
    has_moved: bool,
}

impl Candidate {
    /// Starts on what the store holds: it leads if no other manager does, and a store of one process has no other.
    /// `lease` is to be over.
    pub async fn start(
        store: Arc<dyn Store>,
        who: Candidature,
        lease: Arc<Lease>,
        options: ManagerOptions,
    ) -> Result<Arc<Self>> {
        let inner = Arc::new(Inner {
            store,
            options,
            server: AtomicU32::new(who.server),
            address: who.address,
            founds: who.founds,
            store_id: who.store,
            cluster: Mutex::default(),
            seat: RwLock::new(Seat::Follows(Leader::default())),
            cut_off: Mutex::default(),
            lease,
            epochs: watch::Sender::new(0),
            last_number: AtomicU64::new(0),
            newest: Newest::default(),
            beating: tokio::sync::Mutex::default(),
            joined: AtomicBool::default(),
            heard_elsewhere: AtomicBool::default(),
            overtaken: SetOnce::new(),
        });
        let mut tries = 0;
        while let Err(error) = inner.take_seat().await {
            tries += 1;
            if error.kind != ErrorKind::Conflict || tries == TRIES_MAX {
                return Err(error);
            }
            tracing::info!("another manager takes the lead at the same time: {error}");
        }
        let watching = Mutex::new(Some(spawn_owned(inner.clone().keep_seat())));
        Ok(Arc::new(Self { inner, watching }))
    }

    /// The cluster's id (32 hex digits).
    pub fn cluster(&self) -> String {
        self.inner.cluster.lock().clone()
    }

    /// True while it leads.
    pub fn leads(&self) -> bool {
        matches!(*self.inner.seat.read(), Seat::Leads(_))
    }

    /// From now on a lease of its own server ends with its lead, as far as this manager renews it.
    pub fn bind_to_lead(&self, lease: &Lease) {
        let inner = Arc::downgrade(&self.inner);
        lease.ends_with(Arc::new(move || inner.upgrade().map_or(0, |inner| inner.lead())));
    }

    /// The epoch of the map, which changes with every change that this manager makes.
    pub fn epochs(&self) -> watch::Receiver<u64> {
        self.inner.epochs.subscribe()
    }

    /// Its server has joined under this number: others are to know who leads, before there are any.
    pub async fn has_joined(&self, server: u32) -> Result<()> {
        self.inner.server.store(server, Ordering::Relaxed);
        self.inner.joined.store(true, Ordering::Relaxed);
        match self.inner.seat() {
            Seat::Leads(manager) => {
                let Some(beats) = manager.beats() else { return Ok(()) };
                self.inner.give_beat(&**manager.kv(), beats).await?;
                manager.lead_as(server, &self.inner.store_id).await
            }
            Seat::Follows(_) => Ok(()),
        }
    }

    /// Leads no more, so that another manager need not wait until it is missed. Nothing if no other one is up.
    pub async fn resign(&self) {
        if matches!(self.inner.seat(), Seat::Leads(manager) if manager.has_others()) {
            self.end().await;
        }
    }

    /// Neither leads nor looks on from now on, also if no other one is up that its store knows of.
    pub async fn end(&self) {
        self.watching.lock().take();
        let seat =
            std::mem::replace(&mut *self.inner.seat.write(), Seat::Follows(Leader::default()));
        self.inner.lease.give_up();
        let Seat::Leads(manager) = seat else { return };
        // The one before it may still lead: who follows waits for that one, too.
        let Some(beats) = manager.beats().filter(|_| manager.has_begun()) else { return };
        // A beat may be under way still.
        let _one = self.inner.beating.lock().await;
        let beat = Beat { ended: true, ..self.inner.beat(beats) };
        if let Err(error) = note(&**manager.kv(), &beat).await {
            tracing::debug!("the other managers are not told: {error}");
        }
    }
}

impl Inner {
    fn seat(&self) -> Seat {
        self.seat.read().clone()
    }

    /// Number of its lead, while it may answer in it; else 0.
    fn lead(&self) -> u64 {
        match &*self.seat.read() {
            Seat::Leads(manager) => manager.lead_number(),
            Seat::Follows(_) => 0,
        }
    }

    fn number(&self) -> u32 {
        self.server.load(Ordering::Relaxed)
    }

    /// Leads or follows, by what the store says.
    async fn take_seat(&self) -> Result<()> {
        if !self.store.is_shared() {
            return self.take_lead(None).await;
        }
        let sight = self.look().await?;
        match sight {
            Some(Sight { cluster, beat: Some(beat), has_moved, .. })
                if !self.is_free(&beat) || self.leaves_to_others(&beat, has_moved) =>
            {
                tracing::info!(server = beat.server, address = %beat.address, "another manager leads, or may still: this one waits");
                *self.cluster.lock() = cluster.uuid;
                *self.seat.write() = Seat::Follows(leader(&beat));
                Ok(())
            }
            sight => self.take_lead(sight.and_then(|sight| sight.beat)).await,
        }
    }

    /// True if nobody leads by this beat who might still do so: it was the last one, or of an earlier life of this manager
    /// that did not wait for another. At another address that one may run still, and this be a copy of it.
    fn is_free(&self, beat: &Beat) -> bool {
        beat.ended || beat.server == 0 || self.is_own(beat) && beat.waits_ms == 0
    }

    /// What is stored, as far as it says who leads. `None`: no cluster is. Fails if it was moved to another store.
    async fn look(&self) -> Result<Option<Sight>> {
        let own = records::key(Kind::Server, self.number());
        let moved = dump::MOVED.to_vec();
        let keys = [records::key(Kind::Cluster, 0), records::key(Kind::Beat, 0), own, moved];
        let found = self.store.look(&keys).await.map_err(|e| stored(&e))?;
        let moved = found.get(3).and_then(Option::as_ref);
        dump::check_mark(self.store.name(), moved).map_err(|e| stored(&e))?;
        let Some(cluster) = decoded::<Cluster>(&keys[0], found.first())? else { return Ok(None) };
        let beat = decoded::<Beat>(&keys[1], found.get(1))?;
        beat.iter().for_each(|beat| self.newest.note(beat));
        let own = decoded::<records::Server>(&keys[2], found.get(2))?.unwrap_or_default();
        let has_moved = !own.address.is_empty() && own.address != self.address;
        Ok(Some(Sight { cluster, beat, may_lead: own.manager, has_moved }))
    }

    /// Takes the lead from the one who gave this beat.
    async fn take_lead(&self, last: Option<Beat>) -> Result<()> {
        let kv = self.store.open(Part::Control).await.map_err(|error| match &error {
            KvError::TakenOver { .. } => Error::with(ErrorKind::Conflict, error.to_string()),
            error => stored(error),
        })?;
        let taken = self.lead_on(&kv, last).await;
        taken.map_err(|error| match kv.is_taken_over() {
            // Whoever has it by now leads, or is about to.
            true => Error::with(ErrorKind::Conflict, error.detail),
            false => error,
        })
    }

    /// The same with the store open: from here on nobody else writes it.
    async fn lead_on(&self, kv: &Arc<dyn Kv>, last: Option<Beat>) -> Result<()> {
        dump::forget(&**kv).await.map_err(|error| match &error {
            DumpError::Store(error @ KvError::Moved { .. }) => stored(error),
            error => Error::with(ErrorKind::Conflict, error.to_string()),
        })?;
        let lead = match self.store.is_shared() {
            true => Some(self.begin_to_lead(&**kv, last).await?),
            false => None,
        };
        let beats = lead.as_ref().map(|lead| lead.beats.clone());
        let founds = self.founds && self.number() == 0;
        let beginning = Beginning { founds, epochs: self.epochs.clone() };
        let begin = Manager::begin(kv.clone(), self.options.clone(), lead, beginning);
        let manager = match &beats {
            Some(beats) => {
                let begun = async {
                    let manager = begin.await?;
                    let led = async {
                        manager.note_lost().await?;
                        manager.lead_as(self.number(), &self.store_id).await
                    };
                    beats.begin_to_answer();
                    // Each is given up when the store's engine gives up, and so is a beat before it that is under way.
                    tokio::try_join!(led, self.give_beat(&**kv, beats))?;
                    Ok::<_, Error>(manager)
                };
                let due = Instant::now() + pause_of(LEAD_MAX);
                tokio::select! {
                    begun = begun => begun?,
                    // There may be much to read. It does not end before the store is another's.
                    () = self.keep_beating(&**kv, beats, due) => return Err(taken_over()),
                }
            }
            None => {
                let manager = begin.await?;
                manager.lead_alone(self.number()).await?;
                manager
            }
        };
        if beats.is_some() {
            manager.begin_to_hear();
            tracing::info!("this manager leads the cluster");
        }
        *self.cluster.lock() = manager.cluster();
        *self.seat.write() = Seat::Leads(manager);
        Ok(())
    }

    /// Shows the others at once that somebody leads. The one before may do so for a while yet, if it has given a beat after
    /// the last that was seen.
    async fn begin_to_lead(&self, kv: &dyn Kv, last: Option<Beat>) -> Result<Lead> {
        let key = records::key(Kind::Beat, 0);
        let snapshot = kv.snapshot().await.map_err(|e| stored(&e))?;
        let value = snapshot.get(&key).await.map_err(|e| stored(&e))?;
        let found = decoded::<Beat>(&key, Some(&value))?;
        let is_over = found == last || found.as_ref().is_none_or(|beat| self.is_free(beat));
        found.iter().for_each(|beat| self.newest.note(beat));
        self.last_number.fetch_max(self.newest.number(), Ordering::Relaxed);
        let grace = found.as_ref().filter(|_| !is_over).map_or(Duration::ZERO, answers_for);
        let clock = &self.options.clock;
        let from = clock.monotonic() + grace;
        let whole_ms = self.options.lease_ms;
        let mut left = Bequest::of(found.as_ref(), whole_ms);
        // An earlier lead of this very server, which is about to be heard.
        left.led.retain(|(server, _)| *server != self.number());
        let beats = Arc::new(Beats::new(clock.clone(), whole_ms, from, &left));
        beats.set_lost(self.newest.is_lost(found.as_ref()));
        let number = self.give_beat(kv, &beats).await?;
        Ok(Lead { lease: self.lease.clone(), from, number, left, beats })
    }

    fn beat(&self, beats: &Beats) -> Beat {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let (server, address) = (self.number(), self.address.clone());
        Beat { server, address, number, ..beats.say() }
    }

    /// Gives a beat; its number.
    async fn give_beat(&self, kv: &dyn Kv, beats: &Beats) -> Result<u64> {
        let _one = self.beating.lock().await;
        let (sent, beat) = (self.lease.now(), self.beat(beats));
        note(kv, &beat).await?;
        self.newest.note(&beat);
        self.lease.renew(sent, beat.lead_ms);
        beats.note_said(&beat);
        Ok(beat.number)
    }

    /// The store was of use, or was not: who asks is told why, until it is again.
    fn note_use<T>(&self, used: &Result<T>) {
        // Of one that others use better, or have moved, nothing is wrong with the store.
        let is_its_own = |error: &&Error| {
            !matches!(error.kind, ErrorKind::Conflict | ErrorKind::WrongPeer)
                && **error != taken_over()
        };
        let error = used.as_ref().err().filter(is_its_own);
        *self.cut_off.lock() = error.map(|error| error.detail.to_string()).unwrap_or_default();
    }

    /// Leads while it may, and looks on while another does, until it is dropped.
    async fn keep_seat(self: Arc<Self>) {
        loop {
            match self.seat() {
                Seat::Leads(manager) => match manager.beats() {
                    Some(beats) => {
                        tokio::select! {
                            () = manager.clone().keep_watch() => {}
                            () = self.keep_beating(&**manager.kv(), beats, Instant::now()) => {}
                        }
                        tracing::warn!("this manager leads no more");
                        *self.seat.write() = Seat::Follows(Leader::default());
                    }
                    None => manager.keep_watch().await,
                },
                Seat::Follows(_) => self.keep_looking().await,
            }
        }
    }

    /// Gives beats, the first of them then, until another has opened the store.
    async fn keep_beating(&self, kv: &dyn Kv, beats: &Beats, mut due: Instant) {
        let mut heard = true;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = beats.until_short(), if heard => due = Instant::now(),
            }
            if kv.is_taken_over() {
                return;
            }
            let given = self.give_beat(kv, beats).await;
            match &given {
                Err(error) if heard => {
                    tracing::warn!("this manager cannot say that it leads: {error}");
                }
                Ok(_) if !heard => tracing::info!("this manager leads again"),
                _ => {}
            }
            if !kv.is_taken_over() {
                self.note_use(&given);
            }
            heard = given.is_ok();
            // However long it takes to store one, the next is due after the same time.
            due += beats.note_delay(heard.then(|| due.elapsed()));
            due = due.max(Instant::now() + Duration::from_millis(PAUSE_MS));
        }
    }

    /// True if this is still the last beat after so many milliseconds. All managers notice at the same time that the leader is silent,
    /// and who opens the store after another must wait for that one's lease.
    async fn is_last_after(&self, ms: u64, beat: &Beat) -> bool {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        let sight = self.look().await.ok().flatten();
        sight.is_some_and(|sight| sight.may_lead && sight.beat.as_ref() == Some(beat))
    }

    /// A beat that is not the one `before`: somebody can use the store, also if this manager tried to lead in vain (`has_failed`).
    fn note_new(&self, beat: &Beat, before: Option<&Beat>, has_failed: bool) {
        self.cut_off.lock().clear();
        self.newest.note_next(beat);
        let (server, address) = (beat.server, &beat.address);
        if has_failed && !beat.ended {
            tracing::info!(server, %address, "another manager leads");
        }
        if self.runs_elsewhere(beat, before) {
            self.heard_elsewhere.store(true, Ordering::Relaxed);
        }
        if self.is_of_copy(beat, before) {
            self.note_overtaken(beat);
        }
    }

    /// Takes the lead from the one who gave this beat; true if that went well. It is tried every second until there is another
    /// beat, so what is in the way is said only if it is not what was the last time (`failed`).
    async fn follow(&self, beat: Beat, failed: &mut Option<Error>) -> bool {
        if failed.is_none() {
            let what = if beat.ended { "has resigned" } else { "is silent" };
            tracing::warn!(server = beat.server, address = %beat.address, "the manager that leads {what}");
        }
        let Err(error) = self.take_lead(Some(beat)).await else { return true };
        if failed.as_ref() != Some(&error) {
            match error.kind {
                ErrorKind::Conflict => tracing::info!("another manager was faster: {error}"),
                _ => tracing::warn!("this manager cannot take the lead: {error}"),
            }
        }
        *failed = Some(error.clone());
        self.note_use(&Err::<(), _>(error));
        false
    }

    /// Looks at the leader's beats, until this manager leads.
    async fn keep_looking(&self) {
        let clock = &self.options.clock;
        // Since when, and how long another one is waited for.
        let mut last: Option<(Beat, Duration, Duration)> = None;
        let mut seen: Option<Beat> = None;
        let mut failed: Option<Error> = None;
        let mut rests_until = Duration::ZERO;
        let mut is_told = false;
        loop {
            // The last one when the leader's lease is over.
            let wait = last.as_ref().map_or(LEAD_MAX, |(_, _, wait)| *wait);
            let over =
                last.as_ref().map_or(Duration::MAX, |(_, at, _)| (*at + wait).max(rests_until));
            let look = pause_of(wait.min(LEAD_MAX));
            let left = over.saturating_sub(clock.monotonic());
            tokio::time::sleep(left.clamp(Duration::from_millis(PAUSE_MS), look)).await;
            let looked = self.look().await;
            if looked.is_err() {
                self.note_use(&looked);
            }
            let (beat, cluster, has_moved) = match looked {
                Ok(Some(Sight { beat: Some(beat), may_lead: true, cluster, has_moved })) => {
                    (beat, cluster, has_moved)
                }
                Ok(_) => {
                    last = None;
                    continue;
                }
                Err(error) => {
                    // Nor does the leader reach it, perhaps.
                    last = None;
                    tracing::debug!("who leads is not known: {error}");
                    if error.kind == ErrorKind::WrongPeer && !std::mem::replace(&mut is_told, true)
                    {
                        tracing::error!("this manager neither leads nor follows: {}", error.detail);
                    }
                    continue;
                }
            };
            let now = clock.monotonic();
            let since =
                last.as_ref().filter(|(known, ..)| *known == beat).map_or(now, |(_, at, _)| *at);
            let wait = self.waits_for(&beat, has_moved);
            let is_silent = now.saturating_sub(since) >= wait;
            let has_ended = beat.ended && !self.leaves_to_others(&beat, has_moved);
            *self.seat.write() = Seat::Follows(leader(&beat));
            let before = seen.replace(beat.clone());
            // Its own is of when it took the lead and then could not keep it.
            let is_own = self.is_own(&beat) && !self.is_of_copy(&beat, before.as_ref());
            if before.as_ref() != Some(&beat) && !is_own {
                self.note_new(&beat, before.as_ref(), failed.take().is_some());
            }
            if !is_silent && !has_ended || now < rests_until {
                last = Some((beat, since, wait));
                continue;
            }
            let turn = turn(self.number(), beat.server, cluster.next_server);
            if !has_ended && !self.is_last_after(turn * TURN_MS, &beat).await {
                last = None;
                continue;
            }
            if self.follow(beat, &mut failed).await {
                return;
            }
            last = None;
            // Who has tried at the same time comes back at another.
            rests_until = clock.monotonic() + LEAD_MAX + Duration::from_millis(2 * turn * TURN_MS);
        }
    }
}

/// When a manager tries, of [`TURNS`]: the next one after the leader first, where `next_server` is the number that the next
/// server gets.
fn turn(number: u32, leader: u32, next_server: u32) -> u64 {
    let numbers = next_server.max(2) - 1;
    let after = (number % numbers + numbers - leader % numbers + numbers - 1) % numbers;
    u64::from(after % TURNS)
}

fn taken_over() -> Error {
    Error::with(ErrorKind::Unavailable, "another manager has opened the store meanwhile")
}

fn leader(beat: &Beat) -> Leader {
    match beat.ended {
        true => Leader::default(),
        false => {
            let (server, address) = (beat.server, beat.address.clone());
            Leader { server, address, ..Leader::default() }
        }
    }
}

/// A record, if there is one.
fn decoded<M: Message + Default>(
    key: &[u8],
    value: Option<&Option<bytes::Bytes>>,
) -> Result<Option<M>> {
    value.and_then(Option::as_ref).map(|value| records::decode(key, value)).transpose()
}

#[async_trait]
impl ManagerService for Candidate {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        let mut reply = match self.inner.seat() {
            Seat::Leads(manager) => manager.call(request).await?,
            Seat::Follows(leader) => ManagerAnswer::Leader(leader).into(),
        };
        if let Some(ManagerAnswer::Leader(leader)) = &mut reply.answer {
            leader.cut_off.clone_from(&self.inner.cut_off.lock());
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests;
