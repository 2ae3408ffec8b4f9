//! The targets of this server, a list that may change while it runs.

use super::stores::Target;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strake_types::TargetId;
use tokio::task::{JoinHandle, spawn_blocking};

/// How much older a copy of a disk may be than it, and not be noticed.
const GENERATION: Duration = Duration::from_secs(3600);

/// All targets of the server. Clones are the same list.
#[derive(Clone)]
pub struct TargetList(Arc<RwLock<Vec<Arc<Target>>>>);

impl TargetList {
    /// Those that the server starts with.
    pub fn new(targets: Vec<Target>) -> Self {
        Self(Arc::new(RwLock::new(targets.into_iter().map(Arc::new).collect())))
    }

    /// All of them now.
    pub fn all(&self) -> Vec<Arc<Target>> {
        self.0.read().clone()
    }

    /// The one of a number.
    pub fn of(&self, id: TargetId) -> Option<Arc<Target>> {
        self.0.read().iter().find(|target| target.id == id).cloned()
    }

    /// The one in a directory.
    pub fn at(&self, path: &Path) -> Option<Arc<Target>> {
        self.0.read().iter().find(|target| target.path == path).cloned()
    }

    /// Lets all of them go on to further generations, until it is aborted.
    pub fn keep_growing(&self) -> JoinHandle<()> {
        let list = self.clone();
        tokio::spawn(async move {
            let mut growing: HashMap<TargetId, JoinHandle<()>> = HashMap::new();
            loop {
                tokio::time::sleep(GENERATION).await;
                // One whose disk hangs holds up no other, and is not begun a second time.
                let is_growing = |target: &Arc<Target>| {
                    growing.get(&target.id).is_some_and(|task| !task.is_finished())
                };
                let targets: Vec<_> =
                    list.all().into_iter().filter(|target| !is_growing(target)).collect();
                for target in targets {
                    growing.insert(target.id, spawn_blocking(move || grow(&target)));
                }
            }
        })
    }

    /// One more.
    pub fn push(&self, target: Arc<Target>) {
        self.0.write().push(target);
    }

    /// One less.
    pub fn remove(&self, id: TargetId) {
        self.0.write().retain(|target| target.id != id);
    }
}

fn grow(target: &Target) {
    if let Err(failure) = target.begin_generation(target.generation() + 1) {
        tracing::warn!("{}; an old copy of this disk may not be noticed", failure.cause);
    }
}
