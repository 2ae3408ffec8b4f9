//! The jobs that the manager wants done by this server.

use super::pace::{Pace, Wish};
use super::walk::{LEFT_MAX, Shown, Walk};
use crate::core::Core;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strake_base::task;
use strake_wire::message::recopies::{RecopyOrder, RecopyProgress};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Files of a job under way at once, or one of each share if those are more.
const FILES_MAX: usize = 8;

/// A job of one share that is under way, or has ended.
struct Running {
    wish: watch::Sender<Wish>,
    shown: Arc<Shown>,
    task: JoinHandle<()>,
}

impl Running {
    fn begin(core: &Arc<Core>, order: &RecopyOrder, first: Wish, files_max: usize) -> Self {
        let (wish, receiver) = watch::channel(first);
        let shown = Arc::new(Shown::of(order));
        let pace = Pace::new(receiver);
        let (core, order) = (core.clone(), order.clone());
        let walk = Walk { core, order, pace, shown: shown.clone(), files_max };
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

/// The jobs of a server, by number and share.
#[derive(Default)]
pub(crate) struct Jobs {
    running: Mutex<BTreeMap<(u64, u32), Running>>,
    stopped: AtomicBool,
}

impl Jobs {
    /// Does what these orders say, and nothing else.
    pub fn obey(&self, core: &Arc<Core>, orders: &[RecopyOrder]) {
        let mut running = self.running.lock();
        if self.stopped.load(Ordering::Acquire) {
            return;
        }
        running.retain(|key, one| {
            let wanted = orders.iter().any(|order| (order.job, order.volume) == *key);
            if !wanted {
                one.set(Wish::GiveUp);
            }
            wanted && one.lasts() || !one.task.is_finished()
        });
        for order in orders {
            let wish = Wish::Go { paused: order.paused, rate: order.rate };
            let key = (order.job, order.volume);
            match running.get(&key) {
                Some(one) if one.lasts() => one.set(wish),
                // It is about to end; then it begins anew.
                Some(_) => {}
                None => {
                    let shares = orders.iter().filter(|other| other.job == order.job).count();
                    let files_max = (FILES_MAX / shares).max(1);
                    running.insert(key, Running::begin(core, order, wish, files_max));
                }
            }
        }
    }

    /// How far each is. Of the files that wait all of them together tell as many as one remembers.
    pub fn progress(&self) -> Vec<RecopyProgress> {
        let running = self.running.lock();
        let waiting_max = LEFT_MAX / running.len().max(1);
        let told = |one: &Running| {
            let mut progress = one.shown.progress();
            progress.waiting.truncate(waiting_max);
            progress
        };
        running.values().filter(|one| one.lasts()).map(told).collect()
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
