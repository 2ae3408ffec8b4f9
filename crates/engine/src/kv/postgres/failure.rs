//! What the database says, in our words.

use super::super::KvError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// What to do when its disk is full.
const MAKE_ROOM: &str = "give the database's disk room, or delete files: the database uses theirs again once it \
     was vacuumed (a deletion may need a little itself)";

/// A transaction has taken longer than the database allows. Since PostgreSQL 17, and the client library has no name for it.
const TRANSACTION_TIMEOUT: &str = "25P04";

/// An error with all that it says of its causes.
pub fn sentence(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said.message().to_owned();
    }
    let mut text = error.to_string();
    for cause in causes(error) {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
    }
    text
}

/// What has led to an error, the nearest first.
fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| cause.source())
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
        if let Some(next) = advice_on_tls(error, &cause) {
            return refused(next);
        }
        let is_network = error.is_closed() || has_io_cause(error);
        return match is_network {
            true => KvError::Unreachable { store, cause },
            false => refused("correct --meta, or set PGPASSWORD"),
        };
    };
    match *code {
        SqlState::DISK_FULL => full(&store),
        SqlState::LOCK_NOT_AVAILABLE => {
            let cause = format!("{cause}; its pg_stat_activity shows who has locked a table");
            KvError::Unreachable { store, cause }
        }
        // So it is while it is restored: a table that is made, and one that has no index yet. Who waits is told which.
        SqlState::UNDEFINED_TABLE | SqlState::INVALID_COLUMN_REFERENCE => {
            let cause = format!("{cause}; if it is not being restored, restore it from a backup");
            KvError::Unreachable { store, cause }
        }
        SqlState::SNAPSHOT_TOO_OLD => KvError::Expired { store, cause },
        SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => KvError::Corrupt { store, cause },
        // It says so itself where nobody but an encrypted connection is let in.
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION if cause.contains("no encryption") => {
            refused(
                "correct the user in --meta, or add ?sslmode=verify-full&sslrootcert=FILE to it",
            )
        }
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            refused("correct the user in --meta, and the password there or in PGPASSWORD")
        }
        SqlState::INVALID_CATALOG_NAME => refused("make the database: createdb --owner USER NAME"),
        SqlState::INSUFFICIENT_PRIVILEGE if is_of_our_tables(&cause) => refused(
            "its tables belong to another user: in that database, REASSIGN OWNED BY THAT_USER TO USER",
        ),
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

/// True if it says that one of the store's tables may not be used. Nothing but the sentence tells which it is about.
fn is_of_our_tables(sentence: &str) -> bool {
    ["table strake_", "relation strake_"].iter().any(|words| sentence.contains(words))
}

/// That a row holds something else than what we keep there.
pub fn damaged(store: &str, error: &Error) -> KvError {
    KvError::Corrupt { store: store.to_owned(), cause: sentence(error) }
}

/// That its disk is full.
pub fn full(store: &str) -> KvError {
    KvError::Full { store: store.to_owned(), next: MAKE_ROOM }
}

/// What to do about an error of TLS, if it is one that does not pass.
fn advice_on_tls(error: &Error, sentence: &str) -> Option<&'static str> {
    let is_of_tls = |cause: &(dyn std::error::Error + 'static)| {
        let wrapped = cause.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref());
        cause.is::<rustls::Error>() || wrapped.is_some_and(|wrapped| wrapped.is::<rustls::Error>())
    };
    if causes(error).any(is_of_tls) {
        return Some(
            "correct sslmode, sslrootcert, sslcert and sslkey in --meta, or the database's certificate",
        );
    }
    let has_none = sentence.contains("server does not support TLS");
    has_none.then_some("turn TLS on in the database (ssl = on), or take sslmode out of --meta")
}

fn has_io_cause(error: &Error) -> bool {
    // The time limit on connecting has no cause.
    causes(error).any(|cause| cause.is::<std::io::Error>()) || error.to_string().contains("connect")
}

/// True for what goes away by itself: the server starts, stops, is overloaded (has no memory or connection to spare), or
/// waited too long.
fn is_passing(code: &SqlState) -> bool {
    let class = &code.code()[..2];
    matches!(class, "08" | "40" | "53" | "55" | "57")
        || matches!(
            *code,
            SqlState::IN_FAILED_SQL_TRANSACTION | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
        )
        || code.code() == TRANSACTION_TIMEOUT
}

/// True if another try of the same statement may well succeed: it lost against another. One that has waited for a lock for as
/// long as it may did not: it would wait as long again.
pub fn is_lost_race(error: &Error) -> bool {
    let lost = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
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

#[cfg(test)]
mod tests {
    use super::super::address::Address;
    use super::super::primary;
    use super::*;
    use crate::kv::tests::postgres::{postgres, run};

    /// Programs were told of an I/O error where there was no memory for a moment.
    #[test]
    fn what_a_database_lacks_for_a_while_is_waited_for() {
        let address = Address::parse(&postgres().options.url).unwrap();
        run(async {
            let (client, _) = primary::connect(&address).await.unwrap();
            let of = async |code: &str| {
                let raise =
                    format!("DO $$ BEGIN RAISE EXCEPTION 'so' USING ERRCODE = '{code}'; END $$");
                failure("db", &client.batch_execute(&raise).await.unwrap_err())
            };
            for code in ["53000", "53200", "53300", "53400", "25P04", "40P01", "57014"] {
                let error = of(code).await;
                assert!(matches!(error, KvError::Unreachable { .. }), "{code}: {error}");
            }
            assert!(matches!(of("53100").await, KvError::Full { .. }));
            assert!(matches!(of("72000").await, KvError::Expired { .. }));
            assert!(matches!(of("22012").await, KvError::Io { .. }));
        });
    }
}
