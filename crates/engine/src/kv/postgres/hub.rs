//! What is shared: by all parts of a store the address and the connections that are free, and by readers and
//! writer of one part what is known of its health.

use super::super::gone_back::GoneBack;
use super::super::pause::Pause;
use super::super::{KvError, Part, Result, Room};
use super::address::Address;
use super::answer::answer;
use super::connection::Connection;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Snapshots of different ages at once, each on a connection of its own.
const READERS_MAX: usize = 24;
/// So many of them are of one part: where its changes wait for a client that hangs, others still have some.
const PART_READERS_MAX: usize = 20;

/// Shared by all tasks of one part.
pub struct Hub {
    pub pool: Arc<Pool>,
    /// Our number among those that have opened a part of the store.
    pub writer: i64,
    /// There may be a commit of which it is not known whether it happened.
    pub in_doubt: AtomicBool,
    /// Whether the database's disk has room.
    pub room: Room,
    /// Another writes what we wrote.
    taken_over: AtomicBool,
    /// How often the database had gone back to an earlier state before the part was opened.
    gone_back_before: u64,
    /// Its snapshots need no place among those of others: nobody is to wait for the control plane.
    is_control: bool,
    /// Those of this part.
    places: Arc<Semaphore>,
}

/// A place for a snapshot: one of its part's, and one of all.
pub struct Place {
    _of_part: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Hub {
    pub fn new(pool: Arc<Pool>, writer: i64, part: Part, gone_back_before: u64) -> Self {
        let (in_doubt, room, taken_over) = Default::default();
        let is_control = part == Part::Control;
        let places = Arc::new(Semaphore::new(PART_READERS_MAX));
        Self { pool, writer, in_doubt, room, taken_over, gone_back_before, is_control, places }
    }

    /// A place for a snapshot; `None`: none is needed.
    pub async fn place(&self, deadline: Instant) -> Result<Option<Place>> {
        if self.is_control {
            return Ok(None);
        }
        // In this order: who waits for his part keeps nothing from others.
        let _of_part = self.pool.place_of(&self.places, deadline).await?;
        let _of_all = self.pool.place_of(&self.pool.places, deadline).await?;
        Ok(Some(Place { _of_part, _of_all }))
    }

    /// Another, on the host named, writes what we wrote.
    pub fn taken_over(&self, by: String) -> KvError {
        self.taken_over.store(true, Ordering::Relaxed);
        KvError::TakenOver { store: self.pool.address.shown.clone(), by }
    }

    /// Our row is gone: that of one who was shut out is, when many have opened a part since.
    pub fn forgotten(&self) -> KvError {
        self.taken_over("a host that is not known".into())
    }

    /// The database has an earlier state than we have seen. What is known of the map here is of a history that is gone, so the
    /// part has to be opened anew, as if another had taken it over.
    pub fn gone_back(&self) -> KvError {
        let error = KvError::Refused {
            store: self.pool.address.shown.clone(),
            cause: "it has gone back to an earlier state; was it restored from a backup, or has a standby that \
                 lacked the last commits taken the primary's place?"
                .into(),
            next: "what was written last is lost; the server goes on with what is there".into(),
        };
        self.pool.gone_back.note(self.gone_back_before, &error);
        error
    }

    /// True once any part has met that.
    fn has_gone_back(&self) -> bool {
        self.pool.gone_back.times() != self.gone_back_before
    }

    /// Fails once the database has gone back.
    pub fn check_history(&self) -> Result<()> {
        match self.has_gone_back() {
            true => Err(self.gone_back()),
            false => Ok(()),
        }
    }

    /// True if the part has to be opened anew before it is read or written again.
    pub fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Relaxed) || self.has_gone_back()
    }
}

/// Shared by all parts of one open store.
pub struct Pool {
    pub address: Address,
    /// How long to wait for a database that is away.
    pub wait: Duration,
    pub runtime: tokio::runtime::Handle,
    pub gone_back: GoneBack,
    idle: Mutex<Vec<Connection>>,
    places: Arc<Semaphore>,
}

impl Pool {
    pub fn new(address: Address, wait: Duration, runtime: tokio::runtime::Handle) -> Self {
        Self {
            address,
            wait,
            runtime,
            gone_back: GoneBack::default(),
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(READERS_MAX)),
        }
    }

    /// A place among readers.
    async fn place_of(
        &self,
        places: &Arc<Semaphore>,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit> {
        let free = places.clone().acquire_owned();
        match tokio::time::timeout_at(deadline, free).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(self.unreachable(&format!(
                "all {READERS_MAX} connections, or {PART_READERS_MAX} for one volume, have been in use for {} s",
                self.wait.as_secs()
            ))),
        }
    }

    /// A connection that was used before, if one is free. It may be broken by now.
    pub fn idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        idle.retain(|connection| connection.is_good(&self.address));
        idle.pop()
    }

    /// Forgets the connections that are free: one of them was broken, and they break together.
    pub fn forget_idle(&self) {
        self.idle.lock().clear();
    }

    /// Ends a reader's transaction, and keeps its connection if it is still good.
    pub fn give_back(self: &Arc<Self>, connection: Connection, place: Option<Place>) {
        let pool = self.clone();
        self.runtime.spawn(async move {
            let ended = answer(&pool.address, connection.client.batch_execute("ROLLBACK"));
            if matches!(ended.await, Some(Ok(()))) {
                pool.keep(connection);
            }
            drop(place);
        });
    }

    /// Keeps a connection on which nothing is under way, if it is still good.
    pub fn keep(&self, connection: Connection) {
        if connection.is_good(&self.address) {
            self.idle.lock().push(connection);
        }
    }

    /// A new connection, tried again until the deadline as long as waiting may help.
    pub async fn connect(&self, deadline: Instant) -> Result<Connection> {
        let mut pause = Pause::default();
        loop {
            // In a box: readers and the writer need it now and then only, and would be larger by all that it takes.
            match Box::pin(Connection::open(&self.address)).await {
                Ok(connection) => return Ok(connection),
                Err(error) => pause.after(error, deadline).await?,
            }
        }
    }

    pub fn deadline(&self) -> Instant {
        Instant::now() + self.wait
    }

    pub fn unreachable(&self, cause: &str) -> KvError {
        KvError::Unreachable { store: self.address.shown.clone(), cause: cause.into() }
    }
}
