//! The jobs that the manager wants done by this server.

use super::pace::{Pace, Wish};
use super::walk::{Shown, Walk};
use crate::core::Core;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strake_base::task;
use strake_wire::message::recopies::{RecopyOrder, RecopyProgress};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A job that is under way, or has ended.
struct Running {
    wish: watch::Sender<Wish>,
    shown: Arc<Shown>,
    task: JoinHandle<()>,
}

impl Running {
    fn begin(core: &Arc<Core>, order: &RecopyOrder, first: Wish) -> Self {
        let (wish, receiver) = watch::channel(first);
        let shown = Arc::new(Shown::of(order.job));
        let pace = Pace::new(receiver);
        let (core, order) = (core.clone(), order.clone());
        let walk = Walk { core, order, pace, shown: shown.clone() };
        Self { wish, shown, task: task::spawn(walk.run()) }
    }

    /// True unless it is to end.
    fn lasts(&self) -> bool {
        matches!(*self.wish.borrow(), Wish::Go { .. })
    }

    fn set(&self, wish: Wish) {
        self.wish.send_if_modified(|known| std::mem::replace(known, wish) != wish);
    }
}

/// The jobs of a server, by number.
#[derive(Default)]
pub(crate) struct Jobs {
    running: Mutex<BTreeMap<u64, Running>>,
    stopped: AtomicBool,
}

impl Jobs {
    /// Does what these orders say, and nothing else.
    pub fn obey(&self, core: &Arc<Core>, orders: &[RecopyOrder]) {
        let mut running = self.running.lock();
        if self.stopped.load(Ordering::Acquire) {
            return;
        }
        running.retain(|job, one| {
            let wanted = orders.iter().any(|order| order.job == *job);
            if !wanted {
                one.set(Wish::GiveUp);
            }
            wanted && one.lasts() || !one.task.is_finished()
        });
        for order in orders {
            let wish = Wish::Go { paused: order.paused, rate: order.rate };
            match running.get(&order.job) {
                Some(one) if one.lasts() => one.set(wish),
                // It is about to end; then it begins anew.
                Some(_) => {}
                None => {
                    running.insert(order.job, Running::begin(core, order, wish));
                }
            }
        }
    }

    /// How far each is.
    pub fn progress(&self) -> Vec<RecopyProgress> {
        let running = self.running.lock();
        running.values().filter(|one| one.lasts()).map(|one| one.shown.progress()).collect()
    }

    /// Lets them end where they are, until the server starts again.
    pub fn stop(&self) {
        let running = self.running.lock();
        self.stopped.store(true, Ordering::Release);
        running.values().for_each(|one| one.set(Wish::Stop));
    }

    /// True if nothing is under way any more.
    pub fn have_ended(&self) -> bool {
        self.running.lock().values().all(|one| one.task.is_finished())
    }
}
