//! What programs wait for on mounts, and metadata servers for them, as people see it.

use crate::cluster;
use crate::soundness::path_in;
use futures::StreamExt;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use strake_client::Volume;
use strake_types::{Credentials, Ino};
use strake_wire::map::MapView;
use strake_wire::message::manager::ClusterMap;
use strake_wire::message::meta::{Client, ClientList, Wait};
use strake_wire::message::storage::SYNC_GOES_ON;
use tokio::time::{Instant, timeout, timeout_at};

/// How long metadata servers are waited for, all together.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// How long for the path of one file.
const PATH_WAIT: Duration = Duration::from_millis(300);
/// A client of which nothing was heard for so long is silent: what it said last is over, or will be.
pub const SILENT_MS_MIN: u64 = 10_000;
/// A target that a program has waited for so long is gone, or hangs, and others do not go on without it by themselves: one that is
/// lost is taken out sooner.
const TROUBLE_SECONDS: f64 = 5.0;
/// Volumes asked at a time.
const AT_ONCE: usize = 8;
/// Most waits that are shown.
const SHOWN_MAX: usize = 20;

/// An operation that waits, as `--json` prints it.
#[derive(Serialize)]
pub struct WaitRow {
    volume: String,
    /// Of the client, in decimal; null: it is a metadata server of the volume that waits.
    client: Option<String>,
    /// Who that is.
    name: String,
    /// For what it waits, and why.
    what: String,
    /// The file that it is about.
    path: Option<String>,
    waited_seconds: f64,
    limit_seconds: f64,
    /// For how long it does not wait any more; none: it does.
    ended_seconds: Option<f64>,
}

impl WaitRow {
    /// As `strake status` shows it.
    pub fn line(&self) -> String {
        let on = |path: &String| format!("{} on ", path_in(&self.volume, path.as_bytes()));
        let client = self.client.iter().map(|client| format!(" (client {client})"));
        let whose: String =
            self.path.iter().map(on).chain([self.name.clone()]).chain(client).collect();
        let Self { what, waited_seconds: waited, limit_seconds: limit, .. } = self;
        match self.ended_seconds {
            None => format!("{whose} waits for {what}; {waited:.0} s so far, {limit:.0} s at most"),
            Some(ago) => format!("{whose} waited for {what}; {waited:.0} s, until {ago:.0} s ago"),
        }
    }

    /// It waits for a target, and has for so long that something is wrong.
    pub fn is_trouble(&self) -> bool {
        let is_for_target =
            ["target ", "the target "].iter().any(|word| self.what.starts_with(word));
        // Of a disk that hangs the map tells.
        let goes_on = self.what.contains(SYNC_GOES_ON);
        self.lasts() && is_for_target && !goes_on && self.waited_seconds > TROUBLE_SECONDS
    }

    /// It waits still.
    pub fn lasts(&self) -> bool {
        self.ended_seconds.is_none()
    }
}

/// What waits, or has waited lately, the longest first, as far as metadata servers say so in time.
pub async fn all(view: &Arc<MapView>, map: &ClusterMap) -> Vec<WaitRow> {
    let names = cluster::served_volume_names(map);
    let asked = names.iter().map(|name| of_volume(view, name));
    let mut found = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
    let (end, mut rows) = (Instant::now() + ANSWER_WAIT, Vec::new());
    while let Ok(Some(of_one)) = timeout_at(end, found.next()).await {
        rows.extend(of_one.unwrap_or_default());
    }
    sort(&mut rows);
    rows.truncate(SHOWN_MAX);
    rows
}

/// What waits for a file, or has lately, the longest first, as far as its metadata server says so in time.
pub async fn about(volume: &Volume, ino: Ino) -> Vec<WaitRow> {
    let root = Credentials::root();
    let Ok(Ok(list)) = timeout(ANSWER_WAIT, volume.clients_and_waits(&root)).await else {
        return Vec::new();
    };
    let own = heard(&list).filter(|(_, wait, _)| wait.ino == ino.0);
    let mut rows: Vec<_> = own.map(|wait| row(volume.name(), wait, None)).collect();
    sort(&mut rows);
    rows
}

async fn of_volume(view: &Arc<MapView>, name: &str) -> Option<Vec<WaitRow>> {
    let volume = cluster::open_volume(view.clone(), name, "status").await.ok()?;
    let mut rows = Vec::new();
    let list = volume.clients_and_waits(&Credentials::root()).await.unwrap_or_default();
    for found in heard(&list) {
        let path = match found.1.ino {
            0 => None,
            ino => timeout(PATH_WAIT, cluster::path_of(&volume, Ino(ino))).await.ok(),
        };
        let path = path.and_then(Result::ok).flatten();
        rows.push(row(name, found, path.map(|path| format!("/{path}"))));
    }
    cluster::leave_volume(&volume).await;
    Some(rows)
}

/// What waits at a client or (of none) at a metadata server, or has waited there and does not any more.
type Found<'a> = (Option<&'a Client>, &'a Wait, bool);

/// What clients that are heard of tell, and metadata servers of themselves.
fn heard(list: &ClientList) -> impl Iterator<Item = Found<'_>> {
    let heard =
        |client: &&Client| !client.lost && !client.absent && client.silent_ms < SILENT_MS_MIN;
    let at_clients = list.clients.iter().filter(heard).flat_map(|client| {
        let lasts = client.waits.iter().map(move |wait| (Some(client), wait, true));
        lasts.chain(client.waited.iter().map(move |wait| (Some(client), wait, false)))
    });
    at_clients.chain(list.waits.iter().map(|wait| (None, wait, true)))
}

fn row(volume: &str, (client, wait, lasts): Found<'_>, path: Option<String>) -> WaitRow {
    WaitRow {
        volume: volume.to_owned(),
        client: client.map(|client| client.session.to_string()),
        name: client.map_or_else(
            || format!("the metadata server of volume {volume}"),
            |client| client.name.clone(),
        ),
        what: wait.what.clone(),
        path,
        waited_seconds: wait.waited_ms as f64 / 1e3,
        limit_seconds: wait.limit_ms as f64 / 1e3,
        ended_seconds: (!lasts).then_some(wait.ended_ms as f64 / 1e3),
    }
}

fn sort(rows: &mut [WaitRow]) {
    rows.sort_by(|a, b| {
        let longest = || b.waited_seconds.total_cmp(&a.waited_seconds);
        b.lasts().cmp(&a.lasts()).then_with(longest)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: Option<&str>) -> WaitRow {
        WaitRow {
            volume: "main".into(),
            client: Some("4".into()),
            name: "host:/mnt".into(),
            what: "the target of group 2: connection refused".into(),
            path: path.map(str::to_owned),
            waited_seconds: 12.4,
            limit_seconds: 30.0,
            ended_seconds: None,
        }
    }

    /// The cluster was fine while writers waited for 30 s, and failed.
    #[test]
    fn who_waits_long_for_a_target_is_in_trouble() {
        assert!(row(None).is_trouble());
        assert!(
            WaitRow { what: "target 2 on h2 (group 5): no answer".into(), ..row(None) }
                .is_trouble()
        );
        assert!(!WaitRow { waited_seconds: 5.0, ..row(None) }.is_trouble(), "others may go on");
        assert!(!WaitRow { ended_seconds: Some(1.0), ..row(None) }.is_trouble(), "it is over");
        let what = format!("target 2 on h2 (group 5): target 2: {SYNC_GOES_ON}");
        assert!(!WaitRow { what, ..row(None) }.is_trouble(), "its disk is slow");
        let what = "the metadata server of volume main: no answer".into();
        assert!(!WaitRow { what, ..row(None) }.is_trouble(), "of that the map tells");
    }

    #[test]
    fn a_wait_is_told_with_its_file_and_its_bound() {
        let rest = "host:/mnt (client 4) waits for the target of group 2: connection refused; 12 s so far, 30 s at most";
        assert_eq!(row(None).line(), rest);
        assert_eq!(row(Some("/d/f")).line(), format!(":/main/d/f on {rest}"));
        let over = WaitRow { ended_seconds: Some(5.1), ..row(None) };
        let said = "host:/mnt (client 4) waited for the target of group 2: connection refused; 12 s, until 5 s ago";
        assert_eq!((over.line().as_str(), over.lasts()), (said, false));
    }

    /// While a metadata server waited for a target nothing was told, and then that it did not answer.
    #[test]
    fn what_a_metadata_server_waits_for_is_told_as_its_own() {
        let what = "the target of group 2: connection refused".to_owned();
        let wait = Wait { what, waited_ms: 12_400, limit_ms: 30_000, ..Wait::default() };
        let list = ClientList { waits: vec![wait], ..ClientList::default() };
        let rows: Vec<_> = heard(&list).map(|found| super::row("main", found, None)).collect();
        let said = "the metadata server of volume main waits for the target of group 2: connection refused; 12 s so far, 30 s at most";
        assert_eq!(rows.iter().map(WaitRow::line).collect::<Vec<_>>(), [said]);
        assert!(rows[0].is_trouble());
    }
}
