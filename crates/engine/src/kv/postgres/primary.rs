//! Finds the primary among the hosts of a database, and connects to it.
//!
//! A primary that has crashed may come back after a standby was promoted, still in the belief that it is the primary. It
//! does not know what the other has acknowledged since; but its log is on a lower timeline, so who has met the other one
//! refuses it. And so that all have, they look at all hosts before they use one again after a connection was lost.

use super::super::{KvError, Result};
use super::address::{Address, CONNECT_SECONDS_MAX};
use super::answer::{answer, bounded};
use super::failure::failure;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, Socket};

/// Limits of a session in milliseconds, and nothing that PostgreSQL alone has.
const SESSION: &str = "SET statement_timeout = 15000; SET lock_timeout = 10000; \
     SET idle_in_transaction_session_timeout = 600000";
/// Small tables would be read from end to end, and go on being when they have grown. Not needed, only
/// good: where there is no such setting we do without.
const INDEXES: &str = "SET enable_seqscan = off";

/// What a connection leads to.
pub struct Standing {
    /// Timeline of its log; highest of all where none is told.
    pub timeline: u64,
    /// It lets nothing be changed. Whatever becomes of the database, a session may remain so until it ends: it has its settings
    /// from when it began.
    pub is_read_only: bool,
}

/// Connects to the primary, and sets the limits of the session.
pub async fn connect(address: &Address) -> Result<(Client, Standing)> {
    let (first, count) = (address.known.last(), address.hosts.len());
    let mut errors = Vec::new();
    for at in (first..first + count).map(|at| at % count) {
        match connect_to_primary(address, at).await {
            Ok(connected) => {
                address.known.note_last(at);
                return Ok(connected);
            }
            Err(error) if count == 1 => return Err(error),
            Err(error) => errors.push(error),
        }
    }
    // Where one may come back, or become the primary, waiting helps.
    let passes = errors.iter().any(|error| matches!(error, KvError::Unreachable { .. }));
    let causes: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let all = KvError::Unreachable { store: address.shown.clone(), cause: causes.join("; ") };
    Err(errors.pop().filter(|_| !passes).unwrap_or(all))
}

/// Connects to a host, unless another is the primary: a standby says so itself, and of an old primary it is found by
/// looking at the others. Those are looked at when this one has said that it is the primary: had one taken its place
/// before, it would be met.
async fn connect_to_primary(address: &Address, at: usize) -> Result<(Client, Standing)> {
    let (client, standing) = connect_to(address, &address.hosts[at]).await?;
    if let Some(lost) = address.known.to_look() {
        let others = address.hosts.iter().enumerate().filter(|(other, _)| *other != at);
        futures::future::join_all(others.map(|(_, host)| look(address, host))).await;
        address.known.note_looked(lost);
    }
    let (timeline, known) = (standing.timeline, address.known.timeline());
    if timeline < known {
        let cause = format!(
            "this host was the primary once (timeline {timeline}), and another has taken its place (timeline {known}): \
             make it a standby of that one (pg_rewind); if the database was upgraded or restored instead, restart this server"
        );
        return Err(KvError::Unreachable { store: address.shown.clone(), cause });
    }
    Ok((client, standing))
}

/// Learns the timeline of a host, if it is a primary that answers. One that is away is not waited for long: it would
/// be with each connection that is lost.
async fn look(address: &Address, host: &Config) {
    let looked = connect_to(address, host);
    match tokio::time::timeout(Duration::from_secs(CONNECT_SECONDS_MAX), looked).await {
        Ok(Ok(_primary)) => {}
        Ok(Err(error)) => tracing::debug!("not the primary: {error}"),
        Err(_) => tracing::debug!("a host of the database does not answer"),
    }
}

async fn connect_to(address: &Address, host: &Config) -> Result<(Client, Standing)> {
    let client = match &address.encryption {
        None => begin(address, host, NoTls).await?,
        Some(encryption) => {
            let unreadable = |cause| KvError::Unreachable { store: address.shown.clone(), cause };
            begin(address, host, encryption.connector().map_err(unreadable)?).await?
        }
    };
    bounded(address, client.batch_execute(SESSION)).await?;
    if let Err(error) = bounded(address, client.batch_execute(INDEXES)).await {
        tracing::debug!("{INDEXES}: {error}");
    }
    let standing = standing(address, &client).await?;
    Ok((client, standing))
}

async fn begin<T>(address: &Address, host: &Config, tls: T) -> Result<Client>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = bounded(address, host.connect(tls)).await?;
    let known = address.known.clone();
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            known.note_lost();
            tracing::debug!("connection to the metadata store: {error}");
        }
    });
    Ok(client)
}

/// What a database says to a question it does not know.
const UNKNOWN: [SqlState; 3] =
    [SqlState::UNDEFINED_FUNCTION, SqlState::FEATURE_NOT_SUPPORTED, SqlState::SYNTAX_ERROR];

/// What a connection leads to. All are told of the timeline of a primary's log; a standby is refused where there are several
/// hosts.
async fn standing(address: &Address, client: &Client) -> Result<Standing> {
    let not_now = |cause: &str| {
        Err(KvError::Unreachable { store: address.shown.clone(), cause: cause.into() })
    };
    let read_only = "SHOW transaction_read_only";
    let read_only: String = bounded(address, client.query_one(read_only, &[])).await?.get(0);
    if read_only == "on" {
        return match address.hosts.len() {
            1 => Ok(Standing { timeline: u64::MAX, is_read_only: true }),
            _ => not_now("this host is a standby"),
        };
    }
    let timeline = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";
    let row = match answer(address, client.query_one(timeline, &[])).await {
        Some(Ok(row)) => row,
        // Only PostgreSQL has timelines. Another error, such as that it is shutting down, says nothing of them.
        Some(Err(error)) if error.code().is_some_and(|code| UNKNOWN.contains(code)) => {
            return Ok(Standing { timeline: u64::MAX, is_read_only: false });
        }
        Some(Err(error)) => return Err(failure(&address.shown, &error)),
        None => return not_now("it does not say which timeline it is on"),
    };
    let number = u64::from_str_radix(row.try_get(0).unwrap_or(""), 16).unwrap_or(0);
    address.known.note_timeline(number);
    Ok(Standing { timeline: number, is_read_only: false })
}
