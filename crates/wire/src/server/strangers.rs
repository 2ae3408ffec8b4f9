//! Callers with whom hellos are still to be exchanged. They are bounded, and who says nothing keeps nobody out: the oldest
//! makes way for who comes when there is no room.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// All of them.
pub(super) struct Strangers {
    /// At most so many, and at least one.
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// How many have come.
    next: u64,
    /// Those that are here, in the order in which they came. One whose sender is dropped makes way.
    here: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One of them, until it is dropped.
pub(super) struct Stranger {
    all: Arc<Strangers>,
    number: u64,
    made_way: oneshot::Receiver<()>,
}

impl Strangers {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), inner: Mutex::default() })
    }

    /// Takes another one; those that have been here longest make way.
    pub(super) fn admit(self: &Arc<Self>) -> Stranger {
        let (stays, made_way) = oneshot::channel();
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        while inner.here.len() >= self.most {
            drop(inner.here.pop_first());
        }
        inner.here.insert(number, stays);
        Stranger { all: self.clone(), number, made_way }
    }
}

impl Stranger {
    /// Waits until it has to make way.
    pub(super) async fn displaced(&mut self) {
        // Nobody sends anything: the sender is dropped.
        let _dropped = (&mut self.made_way).await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.inner.lock().here.remove(&self.number);
    }
}
