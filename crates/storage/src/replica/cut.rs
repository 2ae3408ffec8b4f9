//! A cut of a file, which may have very many chunks: it is made in parts, and a new epoch may be adopted between them.

use super::Replica;
use strake_types::{ErrorKind, Result};
use strake_wire::message::storage::Truncate;
use tokio::sync::RwLockReadGuard;

impl Replica {
    /// Makes a cut here. The epoch adopted is held while a part of it is made, and when this has ended. If it is another one then
    /// that the cut is not for any more (`lasts`), it ends half-way: somebody else may have put something in its area.
    pub(super) async fn cut_in_parts<'a>(
        &'a self,
        mut held: RwLockReadGuard<'a, u64>,
        cut: Truncate,
        lasts: impl Fn(u64) -> bool,
    ) -> (RwLockReadGuard<'a, u64>, Result<()>) {
        let mut from = cut.from_index;
        loop {
            match self.shelf.cut_part(cut, from).await {
                Ok(Some(next)) => from = next,
                Ok(None) => return (held, Ok(())),
                Err(error) => return (held, Err(error)),
            }
            drop(held);
            // Whoever adopts one has come before.
            held = self.adopted.read().await;
            if !lasts(*held) {
                let error = self.error(ErrorKind::StaleMap, "a new epoch has begun during a cut");
                return (held, Err(error));
            }
        }
    }
}
