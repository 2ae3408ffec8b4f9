//! What a job is to do now, and how fast: it may be paused, slowed and ended between any two pieces.

use crate::recopies::UnderWay;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often who waits for his turn to copy looks whether he still has to.
const LOOK: Duration = Duration::from_secs(1);

/// What a job is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To go on, with so many bytes per second at most (0: no limit), or to wait.
    Go { paused: bool, rate: u64 },
    /// To end, and to be forgotten.
    GiveUp,
    /// To end until the server starts again.
    Stop,
}

/// Bytes that were copied and are not paid for yet by the time that has passed.
struct Debt {
    bytes: f64,
    at: Instant,
}

/// The pace of a job, which its files share.
pub(super) struct Pace {
    wish: watch::Receiver<Wish>,
    debt: Mutex<Debt>,
    /// Held by the one who waits for time to pass: the others wait for him.
    turn: tokio::sync::Mutex<()>,
    /// Somebody has waited because it was paused.
    paused: AtomicBool,
}

impl Pace {
    pub fn new(wish: watch::Receiver<Wish>) -> Self {
        let debt = Mutex::new(Debt { bytes: 0.0, at: Instant::now() });
        let turn = tokio::sync::Mutex::default();
        Self { wish, debt, turn, paused: AtomicBool::new(false) }
    }

    /// What it is to do now.
    pub fn wish(&self) -> Wish {
        match self.wish.has_changed() {
            Ok(_) => *self.wish.borrow(),
            // Nobody is there any more who could wish something.
            Err(_) => Wish::Stop,
        }
    }

    /// True if it is to end.
    pub fn is_over(&self) -> bool {
        !matches!(self.wish(), Wish::Go { .. })
    }

    /// True if it is to wait until something else is wished.
    pub fn is_paused(&self) -> bool {
        matches!(self.wish(), Wish::Go { paused: true, .. })
    }

    /// True if somebody has waited since the last call because it was paused.
    pub fn take_paused(&self) -> bool {
        self.paused.swap(false, Ordering::Relaxed)
    }

    /// Lets time go by, less if something else is wished.
    pub async fn rest(&self, time: Duration) {
        let mut wish = self.wish.clone();
        wish.borrow_and_update();
        if !self.is_over() {
            // How it ends, the caller asks for.
            let _ended = tokio::time::timeout(time, wish.changed()).await;
        }
    }

    /// Bytes that are copied without waiting for their turn; others wait the longer.
    pub fn owe(&self, bytes: u64) {
        self.debt.lock().bytes += bytes as f64;
    }

    /// Waits while it is paused, as long as there is a use in it. It holds no turn: others of the file may get on.
    pub async fn while_paused(&self, file: &UnderWay) {
        while self.is_paused() && !file.is_touched() && file.check().is_ok() {
            self.paused.store(true, Ordering::Relaxed);
            self.rest(LOOK).await;
        }
    }

    /// Waits until it is the turn of so many bytes, of a file or in general, or there is no use in it.
    /// False: it is to end.
    pub async fn wait(&self, bytes: u64, file: Option<&UnderWay>) -> bool {
        let _turn = self.turn.lock().await;
        loop {
            let (paused, rate) = match self.wish() {
                Wish::Go { paused, rate } => (paused, rate as f64),
                Wish::GiveUp | Wish::Stop => return false,
            };
            if file.is_some_and(|file| file.is_touched() || file.check().is_err()) {
                return true;
            }
            let owed = self.settle(rate);
            if !paused && owed <= 0.0 {
                self.owe(bytes);
                return true;
            }
            let time = match paused {
                true => LOOK,
                false => Duration::from_secs_f64(owed / rate).clamp(LOOK / 1000, LOOK),
            };
            self.paused.fetch_or(paused, Ordering::Relaxed);
            self.rest(time).await;
        }
    }

    /// Bytes that are owed still, now that time has passed.
    fn settle(&self, rate: f64) -> f64 {
        let mut debt = self.debt.lock();
        let now = Instant::now();
        let paid = now.duration_since(debt.at).as_secs_f64() * rate;
        debt.bytes = if rate == 0.0 { 0.0 } else { (debt.bytes - paid).max(0.0) };
        debt.at = now;
        debt.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recopies::Recopies;
    use strake_types::Ino;

    /// Far less than what is waited for.
    const SOON: Duration = Duration::from_millis(30);

    fn pace(paused: bool, rate: u64) -> (watch::Sender<Wish>, Pace) {
        let (sender, receiver) = watch::channel(Wish::Go { paused, rate });
        (sender, Pace::new(receiver))
    }

    async fn waits(pace: &Pace) -> bool {
        tokio::time::timeout(SOON, pace.wait(1, None)).await.is_err()
    }

    #[tokio::test]
    async fn what_was_copied_is_paid_for_first_at_the_rate_there_is_by_then() {
        let (wish, pace) = pace(false, 100);
        assert!(pace.wait(1_000_000, None).await, "nothing is owed yet");
        assert!(waits(&pace).await);
        wish.send_replace(Wish::Go { paused: false, rate: 0 });
        assert!(pace.wait(1_000_000, None).await);
        wish.send_replace(Wish::Go { paused: false, rate: 100 });
        pace.owe(1_000_000);
        assert!(waits(&pace).await && !pace.take_paused());
    }

    #[tokio::test]
    async fn who_is_paused_waits_until_he_goes_on_or_ends() {
        let (wish, pace) = pace(true, 0);
        for next in [Wish::Go { paused: false, rate: 0 }, Wish::GiveUp, Wish::Stop] {
            wish.send_replace(Wish::Go { paused: true, rate: 0 });
            assert!(waits(&pace).await && pace.take_paused());
            wish.send_replace(next);
            assert_eq!(pace.wait(1, None).await, matches!(next, Wish::Go { .. }));
        }
        wish.send_replace(Wish::Go { paused: true, rate: 0 });
        drop(wish);
        assert!(pace.is_over() && !pace.wait(1, None).await);
    }

    #[tokio::test]
    async fn who_only_waits_while_it_is_paused_holds_no_turn() {
        let (wish, pace) = pace(true, 0);
        let recopies = Recopies::default();
        let running = recopies.begin(Ino(7)).unwrap();
        let go_on = async {
            tokio::time::sleep(SOON).await;
            assert!(pace.turn.try_lock().is_ok());
            wish.send_replace(Wish::Go { paused: false, rate: 0 });
        };
        tokio::join!(pace.while_paused(&running.file), go_on);
        assert!(pace.take_paused());
    }

    #[tokio::test]
    async fn a_file_that_somebody_writes_to_waits_no_longer() {
        let (_wish, pace) = pace(false, 1);
        let recopies = Recopies::default();
        let running = recopies.begin(Ino(7)).unwrap();
        pace.owe(1_000_000);
        let touch = async {
            tokio::time::sleep(SOON).await;
            recopies.touch(Ino(7));
        };
        assert!(tokio::join!(pace.wait(1, Some(&running.file)), touch).0);
    }
}
