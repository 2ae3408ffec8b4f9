//! Commits: one task writes, and what is asked for while a statement is under way goes together into the
//! next (group commit).
//!
//! Each statement has a number, `seq`, which it stores as its receipt in our row of `strake_writer` if it
//! finds its predecessor's there. So where no answer came, the row tells what happened; and by storing another number
//! there we make sure that a statement which is still on its way never will.

use super::super::group::{Queued, next_batch, tell};
use super::super::pause::Pause;
use super::super::{KvError, Outcome, Result};
use super::answer::{answer, bounded};
use super::connection::Connection;
use super::failure::{damaged, failure, is_lost_race, is_unsure};
use super::hub::Hub;
use super::schema::{self, SEQ_BITS};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

/// Commits that may wait to be taken up.
pub const WAITING_MAX: usize = 1024;
/// Keys, and bytes of keys and values, in a statement of several commits.
const BATCH_KEYS_MAX: usize = 4096;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How often a statement that lost a race is tried again.
const RACES_MAX: u32 = 10;

/// What the writer is asked to do.
pub enum Ask {
    /// To commit.
    Commit(Commit),
    /// To find out what has become of a commit whose answer was lost.
    Settle(oneshot::Sender<Result<()>>),
}

/// A key to write, what to write (`None`: delete it), and the version that it has in the snapshot.
pub struct Write {
    pub key: Vec<u8>,
    pub value: Option<Bytes>,
    pub replaced: i64,
}

/// A commit.
pub struct Commit {
    pub writes: Vec<Write>,
    pub answer: oneshot::Sender<Result<Outcome>>,
}

impl Queued for Commit {
    fn writes(&self) -> impl Iterator<Item = (&Vec<u8>, &Option<Bytes>)> {
        self.writes.iter().map(|write| (&write.key, &write.value))
    }

    fn into_answer(self) -> oneshot::Sender<Result<Outcome>> {
        self.answer
    }
}

/// Asks the writer to settle what is in doubt.
pub async fn settle(hub: &Hub, writer: &mpsc::Sender<Ask>) -> Result<()> {
    let (tell, told) = oneshot::channel();
    let closed = || hub.pool.unreachable("the store is being closed");
    writer.send(Ask::Settle(tell)).await.map_err(|_| closed())?;
    told.await.map_err(|_| closed())?
}

/// The writing task's own.
pub struct Writer {
    hub: Arc<Hub>,
    connection: Option<Connection>,
    /// What our row says, once nothing is in doubt.
    last: i64,
    /// The next number; none is used twice.
    next: i64,
    /// The number of a statement that may or may not have happened.
    doubt: Option<i64>,
}

/// How a statement ended.
enum Ended {
    Committed,
    /// Nothing was written: something in it stands against it.
    Against,
    /// Nothing was written, and it may well be at another try.
    LostRace,
    /// No answer came.
    Unsure,
    Failed(KvError),
}

impl Writer {
    /// `seq` is what our row says before anything is written.
    pub fn new(hub: Arc<Hub>, seq: i64) -> Self {
        Self { hub, connection: None, last: seq, next: seq + 1, doubt: None }
    }

    /// Writes until nobody can ask any more.
    pub async fn run(mut self, mut asked: mpsc::Receiver<Ask>) {
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                // Most parts are quiet most of the time.
                self.connection.take().into_iter().for_each(|unused| self.hub.pool.keep(unused));
                match asked.recv().await {
                    Some(ask) => self.take(ask, &mut waiting).await,
                    None => return,
                }
            }
            while waiting.len() < WAITING_MAX {
                let Ok(ask) = asked.try_recv() else { break };
                self.take(ask, &mut waiting).await;
            }
            let mut batch = next_batch(&mut waiting, BATCH_KEYS_MAX, BATCH_BYTES_MAX);
            match self.carry_out(&mut batch).await {
                // What needs less than the others may find it.
                Err(KvError::Full { .. }) if batch.len() > 1 => self.one_by_one(batch).await,
                result => tell(batch, &result),
            }
        }
    }

    /// Carries out a batch that found no room together, until the database is away: each of the others would wait as long
    /// again.
    async fn one_by_one(&mut self, batch: Vec<Commit>) {
        let mut batch = batch.into_iter();
        while let Some(commit) = batch.next() {
            let mut alone = vec![commit];
            let result = self.carry_out(&mut alone).await;
            let is_away = matches!(result, Ok(Outcome::Unknown) | Err(KvError::Unreachable { .. }));
            tell(alone, &result);
            if is_away {
                let store = self.hub.pool.address.shown.clone();
                let cause = "it went away while others were written".to_owned();
                return tell(batch, &Err(KvError::Unreachable { store, cause }));
            }
        }
    }

    async fn take(&mut self, ask: Ask, waiting: &mut VecDeque<Commit>) {
        match ask {
            Ask::Commit(commit) => waiting.push_back(commit),
            Ask::Settle(tell) => {
                let deadline = self.hub.pool.deadline();
                let _gone = tell.send(self.settle(deadline).await.map(|_| ()));
            }
        }
    }

    /// Commits a batch; those against which something stands are told so and leave it.
    async fn carry_out(&mut self, batch: &mut Vec<Commit>) -> Result<Outcome> {
        let deadline = self.hub.pool.deadline();
        let mut races = 0;
        while !batch.is_empty() && races <= RACES_MAX {
            self.settle(deadline).await?;
            match self.attempt(batch, deadline).await {
                Ended::Committed => {
                    self.hub.room.note_found();
                    return Ok(Outcome::Committed);
                }
                Ended::Against => {
                    let before = batch.len();
                    self.refuse_losers(batch, deadline).await?;
                    races += u32::from(batch.len() == before);
                }
                Ended::LostRace => races += 1,
                Ended::Unsure => match self.settle(deadline).await {
                    Ok(true) => return Ok(Outcome::Committed),
                    Ok(false) if Instant::now() < deadline => races += 1,
                    Ok(false) => {
                        return Err(self.hub.pool.unreachable("it gives no answers to commits"));
                    }
                    Err(error) => {
                        tracing::warn!("the answer to a commit was lost: {error}");
                        return Ok(Outcome::Unknown);
                    }
                },
                Ended::Failed(error) => {
                    if matches!(error, KvError::Full { .. }) {
                        self.hub.room.note_full();
                    }
                    return Err(error);
                }
            }
        }
        Ok(Outcome::Conflict)
    }

    /// One statement for the whole batch.
    async fn attempt(&mut self, batch: &[Commit], deadline: Instant) -> Ended {
        let connection = match self.connection(deadline).await {
            Ok(connection) => connection,
            Err(error) => return Ended::Failed(error),
        };
        let mut writes: Vec<&Write> = batch.iter().flat_map(|commit| &commit.writes).collect();
        writes.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let keys: Vec<&[u8]> = writes.iter().map(|write| &*write.key).collect();
        let values: Vec<Option<&[u8]>> =
            writes.iter().map(|write| write.value.as_deref()).collect();
        let replaced: Vec<i64> = writes.iter().map(|write| write.replaced).collect();
        let seq = self.next;
        self.next += 1;
        let version = self.hub.writer << SEQ_BITS | seq;
        let count = writes.len() as i64;
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&self.hub.writer, &seq, &self.last, &version, &keys, &values, &replaced, &count];
        let asked = connection.client.execute(&connection.commit, &parameters);
        let error = match answer(&self.hub.pool.address, asked).await {
            Some(Ok(_)) => {
                self.last = seq;
                self.connection = Some(connection);
                return Ended::Committed;
            }
            Some(Err(error)) => error,
            None => return self.unsure(seq),
        };
        if is_unsure(&error) {
            tracing::debug!("commit {seq}: {error}");
            return self.unsure(seq);
        }
        self.connection = Some(connection);
        match error.code() {
            Some(&SqlState::DIVISION_BY_ZERO) => Ended::Against,
            _ if is_lost_race(&error) => Ended::LostRace,
            _ => Ended::Failed(failure(&self.hub.pool.address.shown, &error)),
        }
    }

    fn unsure(&mut self, seq: i64) -> Ended {
        self.doubt = Some(seq);
        self.hub.in_doubt.store(true, Ordering::SeqCst);
        Ended::Unsure
    }

    async fn connection(&mut self, deadline: Instant) -> Result<Connection> {
        let kept = || self.hub.pool.idle();
        match self
            .connection
            .take()
            .or_else(kept)
            .filter(|kept| kept.is_good(&self.hub.pool.address))
        {
            Some(connection) => Ok(connection),
            None => self.hub.pool.connect(deadline).await,
        }
    }

    /// Finds out whether the statement in doubt has happened; after this it never will if it has not.
    /// True if one was in doubt and has happened.
    async fn settle(&mut self, deadline: Instant) -> Result<bool> {
        let Some(doubt) = self.doubt else { return Ok(false) };
        let mut pause = Pause::default();
        let found = loop {
            match self.look(deadline).await {
                Ok(found) => break found,
                Err(error) => pause.after(error, deadline).await?,
            }
        };
        // Our numbers only rise, and what we have not given is of another opening, which got our number.
        if found < self.last || found >= self.next {
            return Err(self.hub.gone_back());
        }
        self.last = found;
        self.doubt = None;
        self.hub.in_doubt.store(false, Ordering::SeqCst);
        Ok(found == doubt)
    }

    /// What our row says. It waits for a statement that is being carried out, and changes what the row says
    /// if that is still what the statement in doubt was to find.
    async fn look(&mut self, deadline: Instant) -> Result<i64> {
        let connection = self.connection(deadline).await?;
        let instead = self.next;
        self.next += 1;
        let client = &connection.client;
        let (writer, last) = (self.hub.writer, self.last);
        let sql = "UPDATE strake_writer SET seq = CASE WHEN seq = $2 THEN $3 ELSE seq END \
             WHERE writer = $1 RETURNING seq";
        let parameters: [&(dyn ToSql + Sync); 3] = [&writer, &last, &instead];
        let row = bounded(&self.hub.pool.address, client.query_opt(sql, &parameters));
        let row = row.await?.ok_or_else(|| self.hub.forgotten())?;
        let found = row.try_get(0).map_err(|e| damaged(&self.hub.pool.address.shown, &e))?;
        self.connection = Some(connection);
        Ok(found)
    }

    /// Tells those commits of which a key has been written since their snapshot.
    async fn refuse_losers(&mut self, batch: &mut Vec<Commit>, deadline: Instant) -> Result<()> {
        let mut pause = Pause::default();
        // Nothing was written, and nothing is by asking: a connection that breaks now is no answer.
        while let Err(error) = self.look_for_losers(batch, deadline).await {
            pause.after(error, deadline).await?;
        }
        Ok(())
    }

    async fn look_for_losers(&mut self, batch: &mut Vec<Commit>, deadline: Instant) -> Result<()> {
        self.check_row(deadline).await?;
        let connection = self.connection(deadline).await?;
        let address = &self.hub.pool.address;
        let keys: Vec<&[u8]> =
            batch.iter().flat_map(|commit| &commit.writes).map(|write| &*write.key).collect();
        let parameters: [&(dyn ToSql + Sync); 1] = [&keys];
        let asked = connection.client.query(&connection.versions, &parameters);
        let rows = bounded(address, asked).await?;
        let mut versions: HashMap<&[u8], i64> = HashMap::with_capacity(rows.len());
        for row in &rows {
            let read = |e| damaged(&address.shown, &e);
            versions.insert(row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
        }
        // One that is gone was a deleted key, and that was forgotten.
        let lost = |write: &Write| {
            versions.get(&*write.key).is_some_and(|version| *version != write.replaced)
        };
        let (losers, others) =
            std::mem::take(batch).into_iter().partition(|commit| commit.writes.iter().any(lost));
        *batch = others;
        tell(losers, &Ok(Outcome::Conflict));
        self.connection = Some(connection);
        Ok(())
    }

    /// Makes sure that we are still the writer, and that our row says what we have written there last.
    async fn check_row(&mut self, deadline: Instant) -> Result<()> {
        let connection = self.connection(deadline).await?;
        let address = &self.hub.pool.address;
        let sql = format!(
            "SELECT w.seq, w.fenced, ({}) FROM strake_writer w WHERE w.writer = $1",
            schema::FENCED_BY
        );
        let parameters: [&(dyn ToSql + Sync); 1] = [&self.hub.writer];
        let row = bounded(address, connection.client.query_opt(&sql, &parameters)).await?;
        self.connection = Some(connection);
        let Some(row) = row else { return Err(self.hub.forgotten()) };
        let read = |e| damaged(&address.shown, &e);
        let seq: i64 = row.try_get(0).map_err(read)?;
        let fenced: bool = row.try_get(1).map_err(read)?;
        match row.try_get::<_, Option<String>>(2).map_err(read)? {
            Some(by) => Err(self.hub.taken_over(by)),
            None if fenced => Err(self.hub.forgotten()),
            None if seq != self.last => Err(self.hub.gone_back()),
            None => Ok(()),
        }
    }
}
