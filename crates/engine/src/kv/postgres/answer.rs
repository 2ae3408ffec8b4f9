//! Waits for answers, not for ever.

use super::super::{KvError, Result};
use super::address::Address;
use super::failure::failure;
use std::future::Future;
use std::time::Duration;
use tokio_postgres::Error;

/// How long the answer to a statement may take; the server gives up before.
const ANSWER_SECONDS_MAX: u64 = 20;

/// Waits for an answer. `None`: none came, and the connection is of no use any more.
pub async fn answer<T>(address: &Address, asked: impl Future<Output = T>) -> Option<T> {
    let answered = tokio::time::timeout(Duration::from_secs(ANSWER_SECONDS_MAX), asked).await.ok();
    if answered.is_none() {
        address.known.note_lost();
    }
    answered
}

/// As [`answer`], with errors in our words.
pub async fn bounded<T>(
    address: &Address,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T> {
    match answer(address, asked).await {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(error)) => Err(failure(&address.shown, &error)),
        None => Err(KvError::Unreachable {
            store: address.shown.clone(),
            cause: format!("no answer in {ANSWER_SECONDS_MAX} s"),
        }),
    }
}
