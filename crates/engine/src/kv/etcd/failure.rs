//! What etcd says when it does not do what it was asked, in our words.

use super::super::KvError;
use tonic::{Code, ConnectError, Status};

/// Why a request was not answered as it should have been.
#[derive(Clone, Debug)]
pub enum Failed {
    /// It was not sent, or refused for now: nothing was done, and another try may help.
    NotDone(String),
    /// No answer came, or one that does not tell: it may have been carried out, or will be.
    Unsure(String),
    /// The member does not know the token that we showed. Nothing was done.
    Token(String),
    /// The member has not come as far as the revision that was asked for.
    Behind(String),
    /// etcd may take no more room. It says so of requests that were not carried out, and of the first one
    /// that was carried out all the same; in any case it is done with this one.
    Full,
    /// The revision that was asked for is no longer kept.
    Compacted(String),
    /// The request has more bytes, or operations, than a member takes. Nothing was done.
    TooLarge(String),
    /// The connection is not encrypted as it should be. Nothing was done; another member may be in order.
    Tls(String),
    /// Waiting does not help. Nothing was done.
    Refused { cause: String, next: String },
    /// The members contradict each other.
    Corrupt(String),
}

/// What to do when etcd takes no more.
pub const MAKE_ROOM: &str = "its quota is used up, and nothing can be deleted before there is room: raise \
     --quota-backend-bytes of its members, or etcdctl compact and etcdctl defrag; then etcdctl alarm disarm \
     (etcdctl alarm list shows whether it is over)";
/// What to do when it does not know us.
const CORRECT_USER: &str =
    "correct the user in --meta, and the password there or in ETCDCTL_PASSWORD";

impl Failed {
    /// From what was answered, or from what the connection says.
    pub fn from_status(status: &Status) -> Self {
        let text = status.message();
        let Some(said) = text.strip_prefix("etcdserver: ") else {
            return Self::of_connection(status);
        };
        let said_so = || text.to_owned();
        let refused = |next: &str| Self::Refused { cause: said_so(), next: next.into() };
        match said {
            "mvcc: database space exceeded" => Self::Full,
            "mvcc: required revision has been compacted" => Self::Compacted(said_so()),
            "mvcc: required revision is a future revision" => Self::Behind(said_so()),
            "too many requests" | "not capable" | "rpc not supported for learner" => {
                Self::NotDone(said_so())
            }
            // The last is what a member says that has just forgotten all tokens.
            "invalid auth token" | "revision of auth store is old" | "user name is empty" => {
                Self::Token(said_so())
            }
            "request is too large" | "too many operations in txn request" => {
                Self::TooLarge(said_so())
            }
            "permission denied" => refused(
                "let the user write the store: etcdctl role grant-permission ROLE readwrite --prefix=true NAME/",
            ),
            "authentication is not enabled" => {
                refused("take the user out of --meta, or turn users on: etcdctl auth enable")
            }
            "corrupt cluster" => Self::Corrupt(said_so()),
            _ if said.starts_with("authentication failed") || said.starts_with("user name not") => {
                refused(CORRECT_USER)
            }
            _ => Self::Unsure(said_so()),
        }
    }

    fn of_connection(status: &Status) -> Self {
        let text = sentence(status);
        let is_of_connecting = causes(status).any(|cause| cause.is::<ConnectError>());
        let is_of_tls = |cause: &(dyn std::error::Error + 'static)| {
            cause.is::<rustls::Error>() || is_tls_inside(cause)
        };
        // Of a connection that was made nobody knows what has come through.
        if is_of_connecting && causes(status).any(is_of_tls) {
            return Self::Tls(text);
        }
        // What grpc itself refuses has not come to etcd.
        if status.code() == Code::ResourceExhausted && text.contains("larger than max") {
            return Self::TooLarge(text);
        }
        if status.code() == Code::Unimplemented {
            let next = "see that --meta names etcd 3.4 or newer, and its port for clients";
            return Self::Refused { cause: text, next: next.into() };
        }
        match is_of_connecting {
            true => Self::NotDone(text),
            false => Self::Unsure(text),
        }
    }

    /// As an error of the store, where it is known that nothing was written.
    pub fn into_error(self, store: &str) -> KvError {
        let store = store.to_owned();
        match self {
            Self::NotDone(cause) | Self::Unsure(cause) | Self::Behind(cause) => {
                KvError::Unreachable { store, cause }
            }
            Self::Token(cause) => KvError::Refused { store, cause, next: CORRECT_USER.into() },
            Self::Full => KvError::Full { store, next: MAKE_ROOM },
            Self::Compacted(cause) => KvError::Expired { store, cause },
            Self::TooLarge(cause) => {
                let option = match cause.contains("too many operations") {
                    true => "--max-txn-ops",
                    false => "--max-request-bytes",
                };
                KvError::Refused { store, cause, next: format!("raise {option} of its members") }
            }
            Self::Tls(cause) => KvError::Refused {
                store,
                cause,
                next: "correct cacert, cert and key in --meta, or the members' certificates".into(),
            },
            Self::Refused { cause, next } => KvError::Refused { store, cause, next },
            Self::Corrupt(cause) => KvError::Corrupt { store, cause },
        }
    }
}

/// What has led to an error, the nearest first.
fn causes(status: &Status) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(status), |cause| cause.source())
}

fn is_tls_inside(cause: &(dyn std::error::Error + 'static)) -> bool {
    let wrapped = cause.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref());
    wrapped.is_some_and(|wrapped| wrapped.is::<rustls::Error>())
}

/// An error with all that it says of its causes.
fn sentence(status: &Status) -> String {
    let mut text = status.message().to_owned();
    for cause in causes(status) {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
    }
    text
}
