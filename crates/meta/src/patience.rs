//! How long targets are waited for by who asks them about many files.

use crate::core::Core;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result, TargetId};
use tokio::time::timeout;

/// How long a target is waited for. One that was waited for in vain is not asked for a while, until it answers somebody who
/// waits still: otherwise it would be waited for with each of its files, and the files of others would wait, too. One that has
/// answered others meanwhile is late, and not silent.
pub(crate) struct Patience {
    /// For one answer.
    wait: Duration,
    /// Until one is asked again that has not answered.
    pause_ms: u64,
    /// Until all of them are asked no more, by the server's clock.
    end_ms: u64,
    heard: Mutex<HashMap<TargetId, Heard>>,
}

/// What was heard of a target.
#[derive(Clone, Copy, Default)]
struct Heard {
    /// How often it has said something.
    answers: u64,
    /// Until when it is not asked, by the server's clock in milliseconds.
    silent_until_ms: u64,
}

impl Patience {
    /// Each answer is waited for so long; after one that does not come its target is not asked for so long.
    pub fn new(wait: Duration, pause_ms: u64) -> Self {
        Self { wait, pause_ms, end_ms: u64::MAX, heard: Mutex::default() }
    }

    /// Nothing is asked from this time on, by the server's clock: whoever waits for all answers would give up.
    pub fn until_ms(self, end_ms: u64) -> Self {
        Self { end_ms, ..self }
    }

    /// True if nothing is asked any more.
    pub fn is_over(&self, core: &Core) -> bool {
        core.monotonic_ms() >= self.end_ms
    }

    /// What a target answers; TimedOut if it does not, or did not answer others and nobody since, or nothing is asked any more.
    pub async fn ask<T>(
        &self,
        core: &Core,
        target: TargetId,
        asked: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let silent = || Error::with(ErrorKind::TimedOut, format!("target {target} is silent"));
        if self.is_over(core) {
            return Err(Error::with(ErrorKind::TimedOut, "targets have taken too long for others"));
        }
        let before = self.heard.lock().get(&target).copied().unwrap_or_default();
        if core.monotonic_ms() < before.silent_until_ms {
            return Err(silent());
        }
        let answer = timeout(self.wait, asked).await;
        let mut all = self.heard.lock();
        let heard = all.entry(target).or_default();
        let Ok(answer) = answer else {
            if heard.answers == before.answers {
                heard.silent_until_ms = core.monotonic_ms() + self.pause_ms;
            }
            return Err(silent());
        };
        if answer.as_ref().err().is_none_or(is_its_own) {
            *heard = Heard { answers: heard.answers + 1, silent_until_ms: 0 };
        }
        answer
    }
}

/// True if a target itself has said this, and not somebody who did not reach it.
fn is_its_own(error: &Error) -> bool {
    !matches!(error.kind, ErrorKind::Unavailable | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::world::*;
    use std::future::pending;

    /// Each of its files waited for a target that said nothing.
    #[tokio::test]
    async fn a_target_that_says_nothing_is_waited_for_once_in_a_while() {
        let world = World::new().await;
        let core = world.server.core();
        let patience = Patience::new(Duration::from_millis(1), 1_000);
        let ask = async |target: u32, asked: &mut bool| {
            let answer = async {
                *asked = true;
                Ok::<(), Error>(())
            };
            patience.ask(&core, TargetId(target), answer).await
        };
        let (mut first, mut others, mut later) = (false, false, false);
        let none = patience.ask(&core, TargetId(11), pending::<Result<()>>()).await;
        assert_eq!(kind(none), ErrorKind::TimedOut);
        assert_eq!(kind(ask(11, &mut first).await), ErrorKind::TimedOut);
        assert!(!first, "it is not asked");
        ask(12, &mut others).await.unwrap();
        world.clock.advance_ms(1_001);
        ask(11, &mut later).await.unwrap();
        assert!(others && later);
    }

    /// For a minute no lost client's files were settled that lie on a target of which one answer was late: sessions that had
    /// asked for nothing ran out of time.
    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_late_once_and_answers_others_is_asked_on() {
        let world = World::new().await;
        let core = world.server.core();
        let patience = Patience::new(Duration::from_secs(4), 60_000);
        let after = |ms| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(())
        };
        let ask = |ms| patience.ask(&core, TargetId(11), after(ms));
        let later = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            ask(3_000).await
        };
        let (late, later) = tokio::join!(ask(4_500), later);
        assert_eq!(kind(late), ErrorKind::TimedOut);
        later.unwrap();
        ask(0).await.unwrap();
        let (late, soon) = tokio::join!(ask(4_500), ask(1_000));
        assert_eq!(kind(late), ErrorKind::TimedOut);
        soon.unwrap();
        ask(0).await.unwrap();
    }

    /// What a target says, after so long.
    async fn after(ms: u64, answer: Result<()>) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        answer
    }

    /// That no connection could be made counted as an answer: everybody waited for a host without power.
    #[tokio::test(start_paused = true)]
    async fn a_target_that_others_cannot_reach_has_said_nothing() {
        let world = World::new().await;
        let core = world.server.core();
        for failure in [ErrorKind::Unavailable, ErrorKind::TimedOut] {
            let patience = Patience::new(Duration::from_secs(4), 60_000);
            let ask = |ms, answer| patience.ask(&core, TargetId(11), after(ms, answer));
            let (hangs, fails) = tokio::join!(ask(4_500, Ok(())), ask(3_000, Err(failure.into())));
            assert_eq!((kind(hangs), kind(fails)), (ErrorKind::TimedOut, failure));
            let mut is_asked = false;
            let asked = async {
                is_asked = true;
                Ok(())
            };
            let later = patience.ask(&core, TargetId(11), asked).await;
            assert_eq!((kind(later), is_asked), (ErrorKind::TimedOut, false));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_refuses_others_has_answered() {
        let world = World::new().await;
        let core = world.server.core();
        let patience = Patience::new(Duration::from_secs(4), 60_000);
        let ask = |ms, answer| patience.ask(&core, TargetId(11), after(ms, answer));
        let refused = Err(ErrorKind::NotCurrent.into());
        let (hangs, fails) = tokio::join!(ask(4_500, Ok(())), ask(3_000, refused));
        assert_eq!((kind(hangs), kind(fails)), (ErrorKind::TimedOut, ErrorKind::NotCurrent));
        ask(0, Ok(())).await.unwrap();
    }
}
