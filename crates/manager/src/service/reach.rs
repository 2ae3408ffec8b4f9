//! Whether servers are reached that are heard: the manager looks back.

use super::{Inner, Manager};
use crate::options::Ways;
use crate::state::State;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::BTreeSet;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::transport::is_unix;

/// Each server is looked at every second, a part of all in each tenth of that,
const PARTS: u32 = 10;
const PART: Duration = Duration::from_millis(100);
/// but not while a look at it is under way: those that wait for the same connection would fail together, for one reason. It has so
/// long to answer: longer than a connection may take, so that none is cut short.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// Looks under way. While there are so many, as where a network is lost, no further ones begin.
const UNDER_WAY_MAX: usize = 1_024;

/// A look that has come to its end: the server, when it began, and why it failed.
type Look = (u32, Duration, Result<(), String>);

impl Manager {
    /// Looks, until it is dropped.
    pub(super) async fn look_back(&self) {
        let Some(ways) = &self.options.ways else { return std::future::pending().await };
        let mut under_way = FuturesUnordered::new();
        let mut looked_at = BTreeSet::new();
        for part in (0..PARTS).cycle() {
            let due = self.due_looks(part).into_iter().filter(|(id, _)| !looked_at.contains(id));
            let room = UNDER_WAY_MAX.saturating_sub(under_way.len());
            let due: Vec<_> = due.take(room).collect();
            looked_at.extend(due.iter().map(|(id, _)| *id));
            under_way.extend(due.into_iter().map(|(id, at)| self.look_at(&**ways, id, at)));
            let mut pause = std::pin::pin!(tokio::time::sleep(PART));
            loop {
                tokio::select! {
                    biased;
                    Some(look) = under_way.next() => {
                        looked_at.remove(&look.0);
                        self.note_look(look);
                    }
                    () = &mut pause => break,
                }
            }
        }
    }

    /// Who is to be looked at now, and where. A Unix socket does not leave the machine, and nothing is in its way; nor does the
    /// manager look at its own server, whose address may lead back to it from elsewhere only.
    pub(super) fn due_looks(&self, part: u32) -> Vec<(u32, String)> {
        if !self.may_answer() {
            return Vec::new();
        }
        let now = self.now();
        let mut inner = self.inner.lock();
        let Inner { state, live, .. } = &mut *inner;
        let own = own_server(state);
        live.forget_looks(own, now);
        let of_part = state.servers.iter().filter(|(id, _)| **id % PARTS == part && **id != own);
        let is_known = |address: &str| !address.is_empty() && !is_unix(address);
        let by_network = of_part.filter(|(_, server)| is_known(&server.address));
        let heard = by_network.filter(|(id, _)| live.is_heard(**id, now));
        heard.map(|(&id, server)| (id, server.address.clone())).collect()
    }

    async fn look_at(&self, ways: &dyn Ways, server: u32, address: String) -> Look {
        let began = self.options.clock.monotonic();
        let reached = tokio::time::timeout(ANSWER_MAX, ways.reach(server, &address)).await;
        let late = |_| Err(Error::with(ErrorKind::TimedOut, "no answer"));
        let reached = reached.unwrap_or_else(late);
        (server, began, reached.map_err(|error| why_not(&error, &address)))
    }

    pub(super) fn note_look(&self, (server, began, end): Look) {
        let now = self.now();
        let mut inner = self.inner.lock();
        if !inner.live.note_look(server, began, end, now) {
            return;
        }
        match inner.live.why_unreached(server) {
            "" => tracing::info!(server, "it is reached again"),
            why => tracing::warn!(server, "it is heard, but cannot be reached: {why}"),
        }
        inner.ticked = None;
        inner.show_anew();
    }

    /// Refuses what a server says that is heard and not reached.
    pub(super) fn refuse_unreached(&self, server: u32, now: Duration) -> Result<()> {
        let mut inner = self.inner.lock();
        let Some(why) = inner.live.refuse(server, now) else { return Ok(()) };
        let address = inner.state.servers.get(&server).map_or("", |server| &server.address);
        let detail = format!(
            "it hears this server, but cannot reach it at {address} ({why}); is that its address (--advertise), and does a firewall \
             let others in?"
        );
        // Of another kind the other managers would be asked for the one that leads.
        Err(Error::with(ErrorKind::NotCurrent, detail))
    }
}

/// Why a look failed, without the address: whoever tells it names that.
fn why_not(error: &Error, address: &str) -> String {
    match &*error.detail {
        "" => error.to_string(),
        detail => detail.replace("connecting to ", "").replace(&format!("{address}: "), ""),
    }
}

/// The server of this manager: nobody else leads, or only one has a manager.
fn own_server(state: &State) -> u32 {
    let mut managers = state.servers.iter().filter(|(_, server)| server.manager);
    match state.cluster.leader {
        0 => managers.next().map_or(0, |(&id, _)| id),
        leader => leader,
    }
}
