//! Syncs of one target: at most one is under way, and one is next.
//!
//! A sync makes durable what the whole target had acknowledged when it began. So whoever asks waits for the next one, with all
//! others who ask until that begins, and all hear how it ends. It goes on if nobody waits for it any more, and takes one of the
//! target's turns, however many wait.
//!
//! A client that is told that it takes long asks again, with the same number ([`Asked`]). It waits then for what was begun for it
//! the first time: a sync that began later would have to write what others have written meanwhile, and under a steady load none might
//! end in time.

use futures::future::{BoxFuture, FutureExt, Shared};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::storage::Attempt;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// Numbers remembered; beyond, the one that was asked for longest ago is forgotten.
const ASKED_MAX: usize = 4096;
/// Who is still there asks again much sooner.
const ASKED_FOR: Duration = Duration::from_secs(300);
/// What has taken no longer need not be remembered: another one is as soon done.
const BRIEF: Duration = Duration::from_secs(10);

/// A sync that was begun, for all who wait for it.
pub(crate) type Begun = Shared<BoxFuture<'static, Result<()>>>;

/// The turn to sync a target.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// What a client asks for, however often it has to: under one primary, its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    reign: u64,
    client: u64,
    seq: u64,
}

/// The syncs of a target.
#[derive(Default)]
pub(crate) struct Syncs {
    turn: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The one that waits for the turn.
    next: Option<Begun>,
    asked: HashMap<Asked, Kept>,
}

/// What was begun for who asked first.
struct Kept {
    begun: Begun,
    since: Instant,
    /// When it was asked for last.
    last: Instant,
}

impl Asked {
    /// What has a number; the reign is 0 where there is no primary.
    pub fn of(reign: u64, attempt: Option<Attempt>) -> Option<Self> {
        attempt.map(|attempt| Self { reign, client: attempt.client, seq: attempt.seq })
    }
}

/// Begins a sync, which ends whoever waits for it.
pub(crate) fn begin(sync: impl Future<Output = Result<()>> + Send + 'static) -> Begun {
    let sync = task::spawn(sync);
    let ended = async move {
        sync.await.unwrap_or_else(|gone| {
            Err(match gone.is_cancelled() {
                true => Error::with(ErrorKind::Unavailable, "the server is stopping"),
                false => Error::with(ErrorKind::Io, format!("a sync was abandoned: {gone}")),
            })
        })
    };
    ended.boxed().shared()
}

impl Syncs {
    /// What to wait for: what was begun for this when it was asked first, else the next sync, which `begin`s unless it waits
    /// for its turn already.
    pub fn join(&self, asked: Option<Asked>, begin: impl FnOnce() -> Begun) -> Begun {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(asked) = asked
            && let Some(kept) = state.asked.get_mut(&asked)
        {
            kept.last = now;
            return kept.begun.clone();
        }
        // One that has ended already was abandoned.
        let waits = state.next.take().filter(|next| next.peek().is_none());
        let next = waits.unwrap_or_else(begin);
        state.next = Some(next.clone());
        if let Some(asked) = asked {
            state.keep(asked, Kept { begun: next.clone(), since: now, last: now });
        }
        next
    }

    /// Who has asked for this has heard how it has ended. What has failed is begun anew when he asks again.
    pub fn heard(&self, asked: Asked, ended: &Result<()>) {
        let mut state = self.state.lock();
        let is_brief = |kept: &Kept| kept.since.elapsed() < BRIEF;
        if ended.is_err() || state.asked.get(&asked).is_some_and(is_brief) {
            state.asked.remove(&asked);
        }
    }

    /// Waits until nobody else syncs.
    pub async fn turn(&self) -> Turn {
        self.turn.clone().lock_owned().await
    }

    /// The turn, if nobody syncs nor waits for that.
    pub fn try_turn(&self) -> Option<Turn> {
        self.turn.clone().try_lock_owned().ok()
    }

    /// The next one begins: who comes from now on may have changed something that it does not make durable.
    pub fn next_begins(&self) {
        self.state.lock().next = None;
    }
}

impl State {
    fn keep(&mut self, asked: Asked, kept: Kept) {
        if self.asked.len() >= ASKED_MAX {
            let now = kept.last;
            self.asked.retain(|_, old| now.saturating_duration_since(old.last) < ASKED_FOR);
        }
        if self.asked.len() >= ASKED_MAX
            && let Some(oldest) = self.asked.iter().min_by_key(|(_, old)| old.last)
        {
            let oldest = *oldest.0;
            self.asked.remove(&oldest);
        }
        self.asked.insert(asked, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(seq: u64) -> Option<Asked> {
        Asked::of(1, Some(Attempt { client: 9, seq, settled: 0 }))
    }

    /// One that never ends.
    fn endless() -> Begun {
        std::future::pending::<Result<()>>().boxed().shared()
    }

    /// One that has ended.
    fn ended(with: Result<()>) -> Begun {
        std::future::ready(with).boxed().shared()
    }

    #[tokio::test]
    async fn who_asks_again_waits_for_what_was_begun_for_him_first() {
        let syncs = Syncs::default();
        let first = syncs.join(asked(1), endless);
        syncs.next_begins();
        let second = syncs.join(asked(2), endless);
        assert!(!first.ptr_eq(&second), "it began before the second one asked");
        assert!(first.ptr_eq(&syncs.join(asked(1), || panic!("it is known"))));
        assert!(second.ptr_eq(&syncs.join(None, || panic!("it waits"))));
        let other_reign = Asked::of(2, Some(Attempt { client: 9, seq: 1, settled: 0 }));
        assert!(second.ptr_eq(&syncs.join(other_reign, || panic!("it waits"))));
    }

    #[tokio::test]
    async fn who_asks_again_for_a_sync_that_has_failed_has_another_one_begun() {
        let syncs = Syncs::default();
        let failed = Err(Error::from(ErrorKind::Io));
        let all = [asked(1), asked(2), None].map(|asked| (asked, ended(failed.clone())));
        for (asked, begun) in all {
            let heard = syncs.join(asked, || begun).await;
            assert_eq!(heard, failed, "{asked:?}");
            asked.iter().for_each(|asked| syncs.heard(*asked, &heard));
        }
        assert_eq!(syncs.join(asked(1), || ended(Ok(()))).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_of_syncs_is_bounded() {
        let syncs = Syncs::default();
        for seq in 0..=ASKED_MAX as u64 {
            drop(syncs.join(asked(seq), endless));
            syncs.next_begins();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let kept = |seq| syncs.state.lock().asked.contains_key(&asked(seq).unwrap());
        assert_eq!(syncs.state.lock().asked.len(), ASKED_MAX);
        assert!(!kept(0) && kept(1), "the oldest is forgotten");
        tokio::time::advance(ASKED_FOR).await;
        drop(syncs.join(asked(0), || ended(Ok(()))));
        assert_eq!(syncs.state.lock().asked.len(), 1);
        syncs.heard(asked(0).unwrap(), &Ok(()));
        assert!(!kept(0), "what was brief");
    }
}
