//! Messages that give files another number of copies.

use prost::Message;

/// See [`super::MetaOp::Recopy`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Recopy {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// Copies of every chunk, from now on.
    #[prost(uint32, tag = "2")]
    pub copies: u32,
    /// Most bytes copied in a second; 0: as fast as it goes.
    #[prost(uint64, tag = "3")]
    pub rate: u64,
}

/// How far a file is that gets another number of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RecopyState {
    /// It is being copied, or waits for its turn: ask again.
    UnderWay = 1,
    /// It has so many copies now.
    Done = 2,
    /// It had so many copies already, or is no regular file.
    Unchanged = 3,
    /// It is as it was, because somebody may be using it: to be tried later.
    Waits = 4,
}

impl RecopyState {
    /// From its number; `None`: of a newer release.
    pub fn of(number: u32) -> Option<Self> {
        [Self::UnderWay, Self::Done, Self::Unchanged, Self::Waits]
            .into_iter()
            .find(|state| *state as u32 == number)
    }
}

/// See [`super::MetaAnswer::Recopied`].
#[derive(Clone, PartialEq, Message)]
pub struct Recopied {
    /// [`RecopyState`] as its number.
    #[prost(uint32, tag = "1")]
    pub state: u32,
    /// Bytes copied so far.
    #[prost(uint64, tag = "2")]
    pub copied: u64,
    /// Bytes to copy in all, as far as is known.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Why it waits: who has it open, or until when.
    #[prost(string, tag = "4")]
    pub detail: String,
}
