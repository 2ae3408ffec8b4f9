//! Messages between the metadata servers of two shares of a volume, of which one changes what is in both.

use super::Name;
use prost::Message;

/// See [`super::MetaOp::Borrow`].
#[derive(Clone, PartialEq, Message)]
pub struct Borrow {
    /// The id of the share whose server is to make the change.
    #[prost(uint32, tag = "1")]
    pub borrower: u32,
    /// Since which epoch of the map it serves that: when another one does, the loan is over.
    #[prost(uint64, tag = "2")]
    pub since: u64,
    /// The inodes that may change, in the share that is asked.
    #[prost(uint64, repeated, tag = "3")]
    pub inodes: Vec<u64>,
    /// Names of them that may change.
    #[prost(message, repeated, tag = "4")]
    pub names: Vec<Name>,
    /// A number for a new inode below this directory is asked for as well; 0: none.
    #[prost(uint64, tag = "5")]
    pub child_of: u64,
    /// For which client ([`super::OpenSession::mount`]): it knows of the change from its answer, and what is leased to it is
    /// not recalled. 0: for none that keeps leases.
    #[prost(uint64, tag = "6")]
    pub mount: u64,
    /// Under which number it asks ([`super::MetaRequest::leases`]).
    #[prost(uint64, tag = "7")]
    pub leases: u64,
    /// How many numbers one would like below `child_of`, to make one directory after the other with this loan. 0: one.
    #[prost(uint32, tag = "8")]
    pub children: u32,
}

/// See [`super::MetaAnswer::Loan`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Loan {
    /// Its number, of which the lender has no two.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Its slot.
    #[prost(uint32, tag = "2")]
    pub slot: u32,
    /// The number that is stored there now: the change is made only if it finds that.
    #[prost(uint64, tag = "3")]
    pub stored: u64,
    /// The number for a new inode; 0: none was asked for.
    #[prost(uint64, tag = "4")]
    pub ino: u64,
    /// How many numbers there are, each one more than the one before. With several the loan is good for one change after the
    /// other, until it is given back. 0, of a lender who knows of no further changes: one.
    #[prost(uint32, tag = "5")]
    pub children: u32,
}

/// See [`super::MetaOp::GiveBack`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct GiveBack {
    /// The loan.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// True: the change was made, or some were. False: none was, and never will be. Absent: the borrower does not know.
    #[prost(bool, optional, tag = "2")]
    pub made: Option<bool>,
    /// Inodes that the share has more since, by all that were made.
    #[prost(sint64, tag = "3")]
    pub inodes: i64,
    /// Bytes that it has more.
    #[prost(sint64, tag = "4")]
    pub bytes: i64,
}
