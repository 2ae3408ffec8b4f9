//! Ranges of a file of which one client alone may hold back what it writes, and how clients come to tell that.

use prost::Message;

/// See [`MetaOp::GetAttr`](super::MetaOp::GetAttr).
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Look {
    /// The inode.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// The caller is about to read contents: all who hold back what they have written, also by their claims, tell it first;
    /// [`strake_types::ErrorKind::HeldBack`] if that takes long: to be asked again.
    #[prost(bool, tag = "2")]
    pub to_read: bool,
    /// Somebody who has the file open is shown this: all who hold back what they have written tell it first, but what they have
    /// claimed they keep ([`Ask::keep`](super::Ask::keep)), and go on to hold back.
    #[prost(bool, tag = "3")]
    pub told: bool,
    /// First byte that is about to be read, if anything is known of that: who holds back only what lies elsewhere is asked to
    /// tell it, and not waited for.
    #[prost(uint64, tag = "4")]
    pub start: u64,
    /// First byte after that; 0: nothing is known.
    #[prost(uint64, tag = "5")]
    pub end: u64,
    /// The caller has the file open, rests ([`Told::rests`]), and is about to write to it. What is answered says where it lies
    /// from then on.
    #[prost(bool, tag = "6")]
    pub to_write: bool,
}

/// See [`MetaOp::Told`](super::MetaOp::Told).
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Told {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// Which question this answers ([`Ask::number`](super::Ask::number)): an earlier one may be of before the file was closed.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// Its kernel may keep pages of what it writes, so it needs leases on that.
    #[prost(bool, tag = "3")]
    pub keeps_pages: bool,
    /// The question was one with [`Ask::keep`](super::Ask::keep): nothing else is said than that all is told that had been
    /// written when it came.
    #[prost(bool, tag = "4")]
    pub kept: bool,
    /// The question was one of [`Recalled::rest`](super::Recalled::rest), and nothing else is said than this: all is told that was
    /// written, and before the next write the client asks where the file lies ([`Look::to_write`]).
    #[prost(bool, tag = "5")]
    pub rests: bool,
    /// The number of an exclusive lease on this directory, and nothing else is said than this: the client has it no more, with
    /// nothing under way there ([`Recalled::exclusive`](super::Recalled::exclusive)).
    #[prost(uint64, tag = "6")]
    pub exclusive: u64,
}

/// See [`MetaOp::Claim`](super::MetaOp::Claim).
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Claim {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// First byte of the range.
    #[prost(uint64, tag = "2")]
    pub start: u64,
    /// First byte after what is needed of it.
    #[prost(uint64, tag = "3")]
    pub end: u64,
    /// First byte after what is of use, if nobody has claimed it.
    #[prost(uint64, tag = "4")]
    pub wanted_end: u64,
    /// Nothing is to be granted: the caller writes through, or changes contents in another way.
    #[prost(bool, tag = "5")]
    pub through: bool,
    /// The caller writes to the range as soon as he may, and knows [`Claimed::once`].
    #[prost(bool, tag = "6")]
    pub once: bool,
}

/// See [`MetaOp::Claim`](super::MetaOp::Claim).
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Claimed {
    /// First byte after what is granted from the start on; 0: nothing is.
    #[prost(uint64, tag = "1")]
    pub end: u64,
    /// Where nothing is granted: nobody has a claim on the file, and nobody is granted one for so many milliseconds, by the
    /// caller's clock from when it asked. So long it writes through without asking again.
    #[prost(uint64, tag = "2")]
    pub through_ms: u64,
    /// Others still hold something back, but not in the range: the write for which this was asked, and no other, may go through
    /// to it ([`Claim::once`]).
    #[prost(bool, tag = "3")]
    pub once: bool,
}
