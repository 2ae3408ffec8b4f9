//! Volumes that are asked one beside the other: one that does not answer holds up none of the others for long.

use crate::cluster;
use crate::failure::{Failure, Outcome};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use strake_wire::map::MapView;
use tokio::time::timeout;

/// Volumes that are asked at once.
pub const AT_ONCE: usize = 16;
/// How long a volume is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Of a metadata server that was silent so often in a row no other volume is asked: with many that would take hours.
const SILENT_MAX: usize = 3;

/// Who asks volumes.
pub struct Asked<'a> {
    map: &'a MapView,
    /// How often each metadata server was silent since its last answer.
    silent: Mutex<BTreeMap<u32, usize>>,
}

impl<'a> Asked<'a> {
    /// Nothing was asked yet.
    pub fn of(map: &'a MapView) -> Self {
        Self { map, silent: Mutex::default() }
    }

    /// What a volume answers, or with its name why it does not. Of one whose metadata server is away that is known at once.
    pub async fn answer<T, E>(
        &self,
        name: &str,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Outcome<T>
    where
        Failure: From<E>,
    {
        let server = cluster::volume_named(self.map, name)?.meta_server;
        let about = |failure: Failure| failure.about(&format!("volume {name}"));
        self.check(server).map_err(about)?;
        let answer = timeout(ANSWER_MAX, answer).await;
        self.note(server, answer.is_err());
        match answer {
            Ok(answer) => answer.map_err(|error| about(error.into())),
            Err(_) => {
                let cause = format!("no answer within {} s", ANSWER_MAX.as_secs());
                Err(about(Failure::new(cause)))
            }
        }
    }

    /// Whether a metadata server is to be asked.
    fn check(&self, server: u32) -> Outcome {
        let why = match cluster::is_up(&self.map.current(), server) {
            false => "its metadata server is away",
            true if self.silent.lock().get(&server).is_some_and(|&times| times >= SILENT_MAX) => {
                "its metadata server does not answer"
            }
            true => return Ok(()),
        };
        Err(Failure::new(why).next("strake status shows what is the matter with it"))
    }

    fn note(&self, server: u32, was_silent: bool) {
        let mut silent = self.silent.lock();
        if was_silent {
            *silent.entry(server).or_default() += 1;
        } else {
            silent.remove(&server);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Arc;
    use strake_wire::caller::{CallerOptions, Callers};
    use strake_wire::message::manager::{ClusterMap, Server, Volume, VolumeSpec};

    /// A map in which server 1 is away with volume `away`, and server 2 is there with `main`.
    pub(crate) fn half_away() -> Arc<MapView> {
        let server = |id| Server { id, up: id == 2, meta: true, ..Server::default() };
        let volume = |id, name: &str| Volume {
            id,
            spec: VolumeSpec { name: name.to_owned(), ..VolumeSpec::default() },
            meta_server: id,
            ..Volume::default()
        };
        let map = ClusterMap {
            epoch: 1,
            servers: vec![server(1), server(2)],
            volumes: vec![volume(1, "away"), volume(2, "main")],
            ..ClusterMap::default()
        };
        MapView::fixed(Callers::new(CallerOptions::default()), map)
    }

    #[tokio::test]
    async fn a_volume_whose_server_is_away_is_not_asked() {
        let map = half_away();
        let asked = Asked::of(&map);
        let error = asked.answer("away", std::future::pending::<Outcome>()).await.unwrap_err();
        assert_eq!(error.cause, "volume away: its metadata server is away");
        let error = asked.answer("none", std::future::pending::<Outcome>()).await.unwrap_err();
        assert!(error.cause.contains("does not exist"), "{error}");
        let answer = async { Outcome::Ok(7) };
        assert_eq!(asked.answer("main", answer).await.unwrap(), 7);
        let refused = async { Outcome::<()>::Err(Failure::new("no")) };
        let error = asked.answer("main", refused).await.unwrap_err();
        assert_eq!(error.cause, "volume main: no");
    }

    #[tokio::test]
    async fn a_server_that_is_silent_again_and_again_is_asked_no_more() {
        let map = half_away();
        let asked = Asked::of(&map);
        let silent = |times: usize| (0..times).for_each(|_| asked.note(2, true));
        silent(SILENT_MAX - 1);
        asked.note(2, false);
        silent(SILENT_MAX - 1);
        assert!(asked.check(2).is_ok(), "it has answered in between");
        silent(1);
        assert!(asked.check(2).unwrap_err().cause.contains("does not answer"));
    }
}
