//! What the client says, in our words.

use strake_engine::kv::KvError;
use tikv_client::Error;

/// Codes of gRPC for "this certificate may not" and "who are you".
const PERMISSION_DENIED: i32 = 7;
const UNAUTHENTICATED: i32 = 16;

/// What to do when its disks are full.
const MAKE_ROOM: &str =
    "add TiKV servers, or give theirs disk space; until then it may refuse deletions as well";

/// The errors that one is made of.
fn parts(error: &Error) -> Vec<&Error> {
    match error {
        Error::ExtractedErrors(errors) | Error::MultipleKeyErrors(errors) => {
            errors.iter().flat_map(parts).collect()
        }
        Error::UndeterminedError(inner) | Error::PessimisticLockError { inner, .. } => parts(inner),
        _ => vec![error],
    }
}

/// A short sentence.
fn sentence(error: &Error) -> String {
    match error {
        Error::GrpcAPI(status) if status.message().is_empty() => format!("{:?}", status.code()),
        Error::GrpcAPI(status) => status.message().to_owned(),
        Error::Grpc(error) => {
            let mut text = error.to_string();
            let first = std::error::Error::source(error);
            for cause in std::iter::successors(first, |cause| cause.source()) {
                text = format!("{text}: {cause}");
            }
            text
        }
        Error::RegionError(error) => error.message.clone(),
        Error::KeyError(error) if error.conflict.is_some() => {
            "others write the same keys all the time".into()
        }
        Error::ResolveLockError(_) => "a transaction that another has left is in the way".into(),
        // It begins with a line of the client's source.
        Error::InternalError { message } => match message.split_once("]: ") {
            Some((_, message)) => message.to_owned(),
            None => message.clone(),
        },
        _ => error.to_string(),
    }
}

/// An error after which nothing was written, or of which the caller knows better.
pub fn failure(store: &str, error: &Error) -> KvError {
    let parts = parts(error);
    let part = parts.first().copied().unwrap_or(error);
    let (store, cause) = (store.to_owned(), sentence(part));
    let refused = |next: &str| KvError::Refused {
        store: store.clone(),
        cause: cause.clone(),
        next: next.into(),
    };
    match part {
        Error::RegionError(region) if region.disk_full.is_some() => full(&store),
        Error::GrpcAPI(status)
            if [PERMISSION_DENIED, UNAUTHENTICATED].contains(&(status.code() as i32)) =>
        {
            refused("correct sslrootcert, sslcert and sslkey in --meta")
        }
        _ if cause.to_lowercase().contains("api version") => {
            refused("give Strake a cluster with storage.api-version = 1")
        }
        _ if cause.contains("certificate") || cause.contains("failed to open") => {
            refused("correct sslrootcert, sslcert and sslkey in --meta")
        }
        _ if is_passing(part) => KvError::Unreachable { store, cause },
        _ => KvError::Io { store, cause },
    }
}

/// That its disks are full.
pub fn full(store: &str) -> KvError {
    KvError::Full { store: store.to_owned(), next: MAKE_ROOM }
}

/// True for what goes away by itself: a server starts, stops, is overloaded, or gives a region to another.
fn is_passing(error: &Error) -> bool {
    is_of_network(error)
        || matches!(
            error,
            // Other transactions: one came first, or has taken away our locks.
            Error::KeyError(_)
                | Error::TxnNotFound(_)
                | Error::RegionError(_)
                | Error::ResolveLockError(_)
                | Error::LeaderNotFound { .. }
                | Error::RegionForKeyNotFound { .. }
                | Error::RegionForRangeNotFound { .. }
                | Error::RegionNotFoundInResponse { .. }
                | Error::EntryNotFoundInRegionCache
                | Error::NoCurrentRegions
        )
}

/// True if the connection, or what the client knows of the cluster, may be the reason.
pub fn is_of_network(error: &Error) -> bool {
    parts(error).iter().any(|part| {
        matches!(
            part,
            Error::Grpc(_)
                | Error::GrpcAPI(_)
                | Error::Io(_)
                | Error::Channel(_)
                | Error::Canceled(_)
                | Error::InternalError { .. }
                | Error::LeaderNotFound { .. }
        )
    })
}

/// True if another has written a key of the transaction since it began: then it was not committed.
pub fn is_conflict(error: &Error) -> bool {
    let has_one = |part: &&Error| matches!(part, Error::KeyError(key) if key.conflict.is_some());
    parts(error).iter().any(has_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tikv_client::{ProtoKeyError, ProtoRegionError};

    fn region(message: &str, is_full: bool) -> Error {
        let mut error = ProtoRegionError { message: message.into(), ..Default::default() };
        error.disk_full = is_full.then(Default::default);
        error.into()
    }

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        let of = |error| failure("tikv://pd:2379/x", &error);
        let full = Error::ExtractedErrors(vec![region("disk full", true)]);
        assert!(matches!(of(full), KvError::Full { .. }));
        let moved = of(region("region 7 is not here", false)).to_string();
        assert!(moved.contains("cannot be reached: region 7 is not here"), "{moved}");
        let message = "[src/pd/cluster.rs:1]: PD cluster failed to respond".into();
        let away = of(Error::InternalError { message }).to_string();
        assert!(away.contains("cannot be reached: PD cluster failed to respond"), "{away}");
        let other = of(Error::StringError("Api version in request does not match".into()));
        assert!(other.to_string().contains("api-version = 1"), "{other}");
        assert!(matches!(of(Error::Unimplemented), KvError::Io { .. }));
    }

    #[test]
    fn a_conflict_is_found_wherever_it_is() {
        let conflict = ProtoKeyError { conflict: Some(Default::default()), ..Default::default() };
        let inner = Error::MultipleKeyErrors(vec![Error::Unimplemented, conflict.into()]);
        assert!(is_conflict(&Error::UndeterminedError(Box::new(inner))));
        assert!(!is_conflict(&Error::from(ProtoKeyError::default())));
    }
}
