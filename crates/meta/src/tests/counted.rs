//! A store that counts what it is asked.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, Outcome, Pair, Result, Snapshot, Writes};

/// How many questions there were, by the kind of the (first) key that they were about.
#[derive(Default)]
pub struct Questions(Mutex<BTreeMap<u8, usize>>);

impl Questions {
    /// About keys of these kinds.
    pub fn about(&self, kinds: &[u8]) -> usize {
        let asked = self.0.lock();
        kinds.iter().filter_map(|kind| asked.get(kind)).sum()
    }

    fn note(&self, key: &[u8]) {
        if let Some(kind) = key.first() {
            *self.0.lock().entry(*kind).or_default() += 1;
        }
    }
}

/// An empty store, and what it will have been asked.
pub fn counted() -> (Arc<dyn Kv>, Arc<Questions>) {
    let questions = Arc::new(Questions::default());
    (Arc::new(Counted { kv: MemoryKv::new(), questions: questions.clone() }), questions)
}

struct Counted {
    kv: MemoryKv,
    questions: Arc<Questions>,
}

struct CountedSnapshot {
    snapshot: Arc<dyn Snapshot>,
    questions: Arc<Questions>,
}

#[async_trait]
impl Kv for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let (snapshot, questions) = (self.kv.snapshot().await?, self.questions.clone());
        Ok(Arc::new(CountedSnapshot { snapshot, questions }))
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        let any: &dyn std::any::Any = &*snapshot;
        let counted = any.downcast_ref::<CountedSnapshot>().expect("one of ours");
        self.kv.commit(counted.snapshot.clone(), writes).await
    }

    async fn sync(&self) -> Result<()> {
        self.kv.sync().await
    }
}

#[async_trait]
impl Snapshot for CountedSnapshot {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.questions.note(key);
        self.snapshot.get(key).await
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        keys.iter().take(1).for_each(|key| self.questions.note(key));
        self.snapshot.multi_get(keys).await
    }

    async fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<Pair>> {
        if let Bound::Included(key) | Bound::Excluded(key) = from {
            self.questions.note(key);
        }
        self.snapshot.scan(from, to, limit).await
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.snapshot.as_any()
    }
}
