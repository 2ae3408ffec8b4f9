//! What the database says, in our words.

use super::super::KvError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// An error with all that it says of its causes.
pub fn sentence(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said.message().to_owned();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// An error of a statement or of connecting, from which it is known that nothing was written.
pub fn failure(store: &str, error: &Error) -> KvError {
    let (store, cause) = (store.to_owned(), sentence(error));
    let refused = |next: &str| KvError::Refused {
        store: store.clone(),
        cause: cause.clone(),
        next: next.into(),
    };
    let Some(code) = error.code() else {
        let is_network = error.is_closed() || has_io_cause(error);
        return match is_network {
            true => KvError::Unreachable { store, cause },
            false => refused("correct --meta, or set PGPASSWORD"),
        };
    };
    match *code {
        SqlState::DISK_FULL => KvError::Full { store },
        SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => KvError::Corrupt { store, cause },
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            refused("correct the user in --meta, and the password there or in PGPASSWORD")
        }
        SqlState::INVALID_CATALOG_NAME => refused("make the database: createdb --owner USER NAME"),
        SqlState::INSUFFICIENT_PRIVILEGE => {
            refused("make the user the owner of the database: ALTER DATABASE NAME OWNER TO USER")
        }
        SqlState::READ_ONLY_SQL_TRANSACTION => refused(
            "the database is read-only: name its primary in --meta, or let it be written again",
        ),
        _ if is_passing(code) => KvError::Unreachable { store, cause },
        _ => KvError::Io { store, cause },
    }
}

fn has_io_cause(error: &Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if inner.is::<std::io::Error>() {
            return true;
        }
        cause = inner.source();
    }
    // The time limit on connecting has no cause.
    error.to_string().contains("connect")
}

/// True for what goes away by itself: the server starts, stops, is overloaded, or waited too long.
fn is_passing(code: &SqlState) -> bool {
    let class = &code.code()[..2];
    matches!(class, "08" | "40" | "57" | "55")
        || matches!(
            *code,
            SqlState::TOO_MANY_CONNECTIONS
                | SqlState::IN_FAILED_SQL_TRANSACTION
                | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
        )
}

/// True if another try of the same statement may well succeed: it lost against another.
pub fn is_lost_race(error: &Error) -> bool {
    let lost = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
    ];
    error.code().is_some_and(|code| lost.contains(code))
}

/// True if the statement may have taken effect although it failed: no answer came, or one that does
/// not say (a server that stops, CockroachDB's "statement completion unknown").
pub fn is_unsure(error: &Error) -> bool {
    error.code().is_none_or(|code| {
        let class = &code.code()[..2];
        matches!(class, "08" | "57") || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
    })
}
