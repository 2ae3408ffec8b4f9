//! What is said to etcd: its own messages, as far as we use them, and nothing else of them.
//!
//! A `oneof` of the protocol is a set of optional fields here, of which one is set: on the wire that is the same.

use bytes::Bytes;
use prost::Message;

/// Says of an answer at which revision it was given.
#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
}

/// Keys from `key` to before `range_end`; without that, the one key.
#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// 0: now.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// The member answers from what it has, without asking the others.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bool, tag = "3")]
    pub prev_kv: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(message, repeated, tag = "3")]
    pub prev_kvs: Vec<KeyValue>,
}

/// One of what a transaction does.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    pub put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    pub delete: Option<DeleteRangeRequest>,
    #[prost(message, optional, tag = "4")]
    pub txn: Option<TxnRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeResponse>,
}

/// A condition: the revision that wrote a key last, of all keys of a range. A key that is not there has 0.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    key: Bytes,
    #[prost(int64, optional, tag = "6")]
    mod_revision: Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    value: Option<Bytes>,
    #[prost(bytes = "bytes", tag = "64")]
    range_end: Bytes,
}

/// All of `success` if every condition holds, else all of `failure`.
#[derive(Clone, PartialEq, Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CompactRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct CompactResponse {}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub token: String,
}

/// Neither may be seen in a log.
impl std::fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthenticateRequest")
    }
}

impl std::fmt::Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthenticateResponse")
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    #[prost(string, tag = "2")]
    pub version: String,
    /// 0: it knows none.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
}

/// Most operations in one list of a transaction of ours. etcd lets a list have 128, less for what is inside of it:
/// so three of such lists inside each other are few enough.
const LIST_MAX: usize = 42;

impl RequestOp {
    pub fn range(range: RangeRequest) -> Self {
        Self { range: Some(range), ..Self::default() }
    }

    pub fn put(key: Bytes, value: Bytes) -> Self {
        Self { put: Some(PutRequest { key, value }), ..Self::default() }
    }

    pub fn delete(key: Bytes) -> Self {
        let delete = DeleteRangeRequest { key, prev_kv: false };
        Self { delete: Some(delete), ..Self::default() }
    }

    /// The same, in lists that are short enough for etcd.
    pub fn nested(mut ops: Vec<Self>) -> Vec<Self> {
        while ops.len() > LIST_MAX {
            let mut rest = ops.into_iter().peekable();
            ops = Vec::new();
            while rest.peek().is_some() {
                let success = rest.by_ref().take(LIST_MAX).collect();
                let txn = TxnRequest { success, ..TxnRequest::default() };
                ops.push(Self { txn: Some(txn), ..Self::default() });
            }
        }
        ops
    }
}

impl Compare {
    const EQUAL: i32 = 0;
    const LESS: i32 = 2;
    const MOD: i32 = 2;
    const VALUE: i32 = 3;

    /// The key was written by this revision last; 0: it is not there.
    pub fn is(key: Bytes, revision: i64) -> Self {
        Self::of(Self::EQUAL, key, Bytes::new(), revision)
    }

    /// No key of the range was written after this revision.
    pub fn unchanged(key: Bytes, range_end: Bytes, revision: i64) -> Self {
        Self::of(Self::LESS, key, range_end, revision + 1)
    }

    fn of(result: i32, key: Bytes, range_end: Bytes, revision: i64) -> Self {
        let (target, mod_revision, value) = (Self::MOD, Some(revision), None);
        Self { result, target, key, mod_revision, value, range_end }
    }

    /// The key has this value.
    pub fn holds(key: Bytes, value: Bytes) -> Self {
        let (result, target, value) = (Self::EQUAL, Self::VALUE, Some(value));
        Self { result, target, key, mod_revision: None, value, range_end: Bytes::new() }
    }
}

impl RangeRequest {
    /// One key as it is now, of which all acknowledged changes are seen.
    pub fn one(key: Bytes) -> Self {
        Self { key, ..Self::default() }
    }

    /// The same as it was at a revision.
    pub fn at(self, revision: i64) -> Self {
        Self { revision, serializable: true, ..self }
    }
}

impl RangeResponse {
    pub fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }
}

impl TxnResponse {
    pub fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }

    /// What the nth operation has found, if it was one that looks at a key.
    pub fn found(&self, nth: usize) -> Option<&KeyValue> {
        self.responses.get(nth)?.range.as_ref()?.kvs.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_short_enough_at_every_depth() {
        fn depth(ops: &[RequestOp]) -> usize {
            let inside = ops.iter().filter_map(|op| op.txn.as_ref()).map(|txn| depth(&txn.success));
            // As etcd counts: what a list has, and the longest inside of it.
            ops.len() + inside.max().unwrap_or(0)
        }
        fn count(ops: &[RequestOp]) -> usize {
            ops.iter().map(|op| op.txn.as_ref().map_or(1, |txn| count(&txn.success))).sum()
        }
        for length in [0, 1, 42, 43, 1764, 1765, 70_000] {
            let ops = vec![RequestOp::delete(Bytes::from_static(b"k")); length];
            let nested = RequestOp::nested(ops);
            assert!(depth(&nested) < 128 && count(&nested) == length, "{length}");
        }
    }

    #[test]
    fn a_password_is_not_in_what_is_logged() {
        let asked = AuthenticateRequest { name: "u".into(), password: "s3cret".into() };
        assert!(!format!("{asked:?}").contains("s3cret"));
    }
}
