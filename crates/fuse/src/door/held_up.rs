//! Many pieces of work, any of which may be held up for long, in threads.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Threads that get no further for so long are held up.
const HELD_UP: Duration = Duration::from_millis(10);
/// More threads than the first one of each, for all that is being worked through at once: others need threads, too.
const MORE_THREADS_MAX: usize = 256;

/// The threads that may go on past those that are held up.
pub(super) struct MoreThreads(Arc<Semaphore>);

impl Default for MoreThreads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MORE_THREADS_MAX)))
    }
}

impl MoreThreads {
    /// Works through all of this, in any order; ended when all is done, but for what has panicked: then false. One thread does it;
    /// as soon as that is held up there are twice as many, and so on.
    pub async fn work_through<T: Send + 'static>(
        &self,
        all: Vec<T>,
        work: impl Fn(T) + Clone + Send + 'static,
    ) -> bool {
        let (left, mut threads) = (Arc::new(Mutex::new(all)), JoinSet::new());
        let (mut before, mut is_done) = (None, true);
        loop {
            let now = left.lock().len();
            if now == 0 {
                break;
            }
            let held_up = before.replace(now) == Some(now);
            let more = if held_up { threads.len().min(now) } else { 0 };
            let permits = (0..more).map_while(|_| Arc::clone(&self.0).try_acquire_owned().ok());
            let first = threads.is_empty().then_some(None);
            for permit in first.into_iter().chain(permits.map(Some)) {
                let (left, work) = (Arc::clone(&left), work.clone());
                threads.spawn_blocking(move || {
                    let _given_back_at_its_end = permit;
                    loop {
                        let Some(next) = left.lock().pop() else { return };
                        work(next);
                    }
                });
            }
            if let Ok(Some(ended)) = timeout(HELD_UP, threads.join_next()).await {
                is_done &= ended.is_ok();
            }
        }
        while let Some(ended) = threads.join_next().await {
            is_done &= ended.is_ok();
        }
        is_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, sync_channel};

    /// Pages of a file that a server was slow to send kept those of all others in the kernel that were recalled with it: maps
    /// showed what another mount had written over half a minute before.
    #[tokio::test]
    async fn what_is_held_up_holds_up_nothing_else() {
        const STUCK: u32 = 20;
        let threads = MoreThreads::default();
        let (done, dones) = channel();
        let (go_on, waits) = sync_channel::<()>(0);
        let waits = Arc::new(Mutex::new(waits));
        let work = move |nth: u32| {
            if nth >= 100 - STUCK {
                // Until the other end is gone.
                let _gone = waits.lock().recv();
            }
            done.send(nth).unwrap();
        };
        let mut all = std::pin::pin!(threads.work_through((0..100).collect(), work));
        let mut ended = Vec::new();
        while ended.len() < (100 - STUCK) as usize {
            assert!(timeout(Duration::from_millis(1), all.as_mut()).await.is_err(), "some wait");
            ended.extend(dones.try_iter());
        }
        assert!(ended.iter().all(|nth| *nth < 100 - STUCK));
        drop(go_on);
        assert!(all.await);
        assert_eq!(dones.try_iter().count(), STUCK as usize);
        assert_eq!(threads.0.available_permits(), MORE_THREADS_MAX);
    }

    /// Maps that showed what was before counted as dropped.
    #[tokio::test]
    async fn what_panics_is_not_done_and_all_else_is() {
        let (done, dones) = channel();
        let work = move |nth: u32| {
            assert!(nth.is_multiple_of(2), "it panics");
            done.send(nth).unwrap();
        };
        assert!(!MoreThreads::default().work_through((0..10).collect(), work).await);
        assert_eq!(dones.try_iter().count(), 5);
    }

    /// All threads of the mount would wait, and those that could answer what they wait for with them.
    #[tokio::test]
    async fn what_is_held_up_takes_no_more_threads_than_there_may_be() {
        let threads = MoreThreads(Arc::new(Semaphore::new(2)));
        let (go_on, waits) = sync_channel::<()>(0);
        let waits = Arc::new(Mutex::new(waits));
        let (begun, begins) = channel();
        let work = move |nth: u32| {
            begun.send(nth).unwrap();
            let _gone = waits.lock().recv();
        };
        let mut all = std::pin::pin!(threads.work_through((0..100).collect(), work));
        assert!(timeout(20 * HELD_UP, all.as_mut()).await.is_err());
        let first = begins.try_iter().count();
        assert!(first <= 3, "{first} at once");
        drop(go_on);
        assert!(all.await);
        assert_eq!(first + begins.try_iter().count(), 100);
    }
}
