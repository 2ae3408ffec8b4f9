//! `strake client`: who uses volumes.

use crate::cluster::{self, ClusterFlags};
use crate::failure::{Failure, Outcome};
use crate::waits::SILENT_MS_MIN;
use crate::{output, release};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_client::Volume;
use strake_types::Credentials;
use strake_wire::map::MapView;
use strake_wire::message::meta::Client;

/// How long an evicted client may take to be gone: its session is fenced, and lengths are settled.
const GONE_MAX: Duration = Duration::from_secs(90);
/// How long it may take to be told who uses a volume that is to be deleted.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time between two looks whether it is.
const LOOK: Duration = Duration::from_millis(200);

/// Flags of `strake client`.
#[derive(Args, Debug)]
pub struct ClientFlags {
    /// What to do.
    #[command(subcommand)]
    verb: ClientVerb,
}

#[derive(Subcommand, Debug)]
enum ClientVerb {
    /// List the clients: who they are, what they hold, and how long nothing was heard of them
    List {
        /// Only of these volumes
        #[arg(value_name = "VOLUME")]
        volumes: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a client: its locks are given back, storage servers refuse it, and what it has not written is lost
    Evict {
        /// Its number (strake client list)
        #[arg(value_name = "CLIENT", value_parser = clap::value_parser!(u64).range(1..))]
        session: u64,
        /// Its volume, where clients of several volumes have that number
        #[arg(long, value_name = "VOLUME")]
        volume: Option<String>,
    },
}

/// A client, as `--json` prints it.
#[derive(Serialize)]
struct Row {
    /// In decimal: programs that read numbers of JSON as floating point would round it.
    client: String,
    volume: String,
    name: String,
    state: &'static str,
    silent_seconds: f64,
    open_files: u64,
    locked_files: u64,
    leased_inodes: u64,
    /// Null: it has not said it, as an earlier one.
    release: Option<String>,
}

impl Row {
    fn new(volume: &str, client: &Client) -> Self {
        Self {
            client: client.session.to_string(),
            volume: volume.to_owned(),
            name: client.name.clone(),
            state: state(client),
            silent_seconds: client.silent_ms as f64 / 1e3,
            open_files: client.open,
            locked_files: client.locked,
            leased_inodes: client.leased,
            release: release::said(&client.release),
        }
    }
}

fn state(client: &Client) -> &'static str {
    match client {
        Client { lost: true, .. } => "being evicted",
        Client { absent: true, .. } => "not back since the server started",
        Client { silent_ms: SILENT_MS_MIN.., .. } => "silent",
        Client { waits, .. } if !waits.is_empty() => "waiting (strake status)",
        _ => "here",
    }
}

/// Runs the verb.
pub async fn run(flags: &ClientFlags, cluster: &ClusterFlags) -> Outcome {
    let map = cluster.connect().await?;
    let named = match &flags.verb {
        ClientVerb::List { volumes, .. } => &volumes[..],
        ClientVerb::Evict { volume, .. } => volume.as_slice(),
    };
    named.iter().try_for_each(|name| cluster::volume_named(&map, name).map(drop))?;
    match &flags.verb {
        ClientVerb::List { volumes, json } => list(&map, volumes, *json).await,
        ClientVerb::Evict { session, volume } => evict(&map, *session, volume.as_deref()).await,
    }
}

/// The volumes that are named, or all whose metadata server answers; and of the others, why it does not.
async fn open_each(map: &Arc<MapView>, named: &[String]) -> (Vec<Arc<Volume>>, Option<Failure>) {
    let (mut volumes, mut away) = (Vec::new(), None);
    for name in cluster::named_or_all(&map.current(), named) {
        match cluster::open_volume(map.clone(), &name, "client").await {
            Ok(volume) => volumes.push(volume),
            Err(failure) => {
                let mut failure = failure.about(&format!("volume {name}"));
                let next = || "strake status shows which servers are away".to_owned();
                failure.next.get_or_insert_with(next);
                away.get_or_insert(failure);
            }
        }
    }
    (volumes, away)
}

/// The clients of a volume.
pub async fn of_volume(map: &Arc<MapView>, name: &str) -> Outcome<Vec<Client>> {
    let asked = async {
        let volume = cluster::open_volume(map.clone(), name, "client").await?;
        let clients = volume.clients(&Credentials::root()).await;
        cluster::leave_volume(&volume).await;
        Outcome::Ok(clients?)
    };
    let late = |_| Failure::new(format!("no answer within {} s", ANSWER_MAX.as_secs()));
    tokio::time::timeout(ANSWER_MAX, asked).await.map_err(late)?
}

async fn list(map: &Arc<MapView>, named: &[String], json: bool) -> Outcome {
    let mut rows = Vec::new();
    let (volumes, mut away) = open_each(map, named).await;
    for volume in volumes {
        match volume.clients(&Credentials::root()).await {
            Ok(clients) => rows.extend(clients.iter().map(|c| Row::new(volume.name(), c))),
            Err(error) => drop(away.get_or_insert_with(|| error.into())),
        }
        cluster::leave_volume(&volume).await;
    }
    match json {
        true => output::json(&rows)?,
        // Of a volume that does not answer it is not known.
        false if rows.is_empty() && away.is_some() => {}
        false => show(rows),
    }
    away.map_or(Ok(()), Err)
}

fn show(rows: Vec<Row>) {
    if rows.is_empty() {
        return output::line("no clients");
    }
    let head =
        [">CLIENT", "VOLUME", "NAME", ">OPEN", ">LOCKED", ">LEASED", ">HEARD", "RELEASE", "STATE"];
    let mut table = output::table(&head);
    for row in rows {
        table.add_row([
            row.client,
            row.volume,
            row.name,
            row.open_files.to_string(),
            row.locked_files.to_string(),
            row.leased_inodes.to_string(),
            format!("{:.0} s ago", row.silent_seconds),
            release::shown(row.release),
            row.state.to_owned(),
        ]);
    }
    output::show(&table);
}

async fn evict(map: &Arc<MapView>, session: u64, named: Option<&str>) -> Outcome {
    let named: Vec<String> = named.map(str::to_owned).into_iter().collect();
    let root = Credentials::root();
    let mut found: Vec<(Arc<Volume>, Client)> = Vec::new();
    let (opened, away) = open_each(map, &named).await;
    if let Some(failure) = away {
        for volume in &opened {
            cluster::leave_volume(volume).await;
        }
        // Clients of several volumes may have that number.
        let next = format!("strake client evict {session} --volume VOLUME");
        return Err(if named.is_empty() { failure.next(next) } else { failure });
    }
    let mut failed = None;
    for volume in opened {
        match volume.client_with(&root, session).await {
            Ok(Some(client)) => {
                found.push((volume, client));
                continue;
            }
            Ok(None) => {}
            Err(error) => drop(failed.get_or_insert_with(|| Failure::from(error))),
        }
        cluster::leave_volume(&volume).await;
    }
    let volumes: Vec<&str> = found.iter().map(|(volume, _)| volume.name()).collect();
    let evicted = match (failed, &found[..]) {
        (Some(failure), _) => Err(failure),
        (None, []) => Err(Failure::new(format!("there is no client {session}"))
            .next("strake client list shows the numbers")),
        (None, [(volume, client)]) => evict_from(volume, client).await,
        (None, _) => Err(Failure::usage(format!(
            "client {session} is one of each of the volumes {}",
            volumes.join(", ")
        ))
        .next(format!("strake client evict {session} --volume {}", volumes[0]))),
    };
    for (volume, _) in &found {
        cluster::leave_volume(volume).await;
    }
    evicted
}

async fn evict_from(volume: &Arc<Volume>, client: &Client) -> Outcome {
    let root = Credentials::root();
    let sessions = volume.evict(&root, client.session).await?;
    let until = Instant::now() + GONE_MAX;
    while !volume.have_ended(&root, &sessions).await? {
        if Instant::now() > until {
            let what = format!(
                "client {} is evicted, and after {} s its locks are not given back yet",
                client.session,
                GONE_MAX.as_secs()
            );
            return Err(Failure::new(what)
                .next("strake status shows whether a manager and all storage servers answer"));
        }
        tokio::time::sleep(LOOK).await;
    }
    output::line(&format!(
        "client {} ({}) is evicted: {} and {} given back",
        client.session,
        client.name,
        output::count(client.open, "open file", "open files"),
        output::count(client.locked, "locked file", "locked files"),
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_in_the_worst_of_its_states() {
        let here = Client { silent_ms: SILENT_MS_MIN - 1, ..Client::default() };
        assert_eq!(state(&here), "here");
        let silent = Client { silent_ms: SILENT_MS_MIN, ..here.clone() };
        assert_eq!(state(&silent), "silent");
        let absent = Client { absent: true, ..silent };
        assert_eq!(state(&absent), "not back since the server started");
        assert_eq!(state(&Client { lost: true, ..absent }), "being evicted");
    }
}
