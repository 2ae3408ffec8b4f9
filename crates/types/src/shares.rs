//! The shares of a volume: its directories, dealt out to several metadata servers.
//!
//! Each share has an id as a volume has, and the inode number says in which share an inode is
//! (docs/design/0067-shares-of-a-volume.md).

use crate::{Ino, VolumeId};

/// Most shares of a volume.
pub const SHARES_MAX: u32 = 1 << SHARE_BITS;
/// Bits of an inode number that say which share it is in, where there are several.
const SHARE_BITS: u32 = 6;
/// Below them lie this many bits. The one above stays 0, so that inode numbers are positive where a program reads
/// them as signed.
const INO_BITS: u32 = 63 - SHARE_BITS;

/// Bits of a session's id below those that say which share of its volume it is with.
pub const SESSION_BITS: u32 = 48;

/// The shares of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The id of the volume, and of its first share: the others follow.
    pub first: VolumeId,
    /// How many there are, at least 1.
    pub count: u32,
}

impl Shares {
    /// A volume of one share: nothing is elsewhere.
    pub const fn one(volume: VolumeId) -> Self {
        Self { first: volume, count: 1 }
    }

    /// The share that an inode is in. Of a number that no inode has it is some share of the volume.
    pub const fn of(&self, ino: Ino) -> VolumeId {
        VolumeId(self.first.0 + self.index_of(ino))
    }

    /// Which share of the volume that is, from 0.
    pub const fn index_of(&self, ino: Ino) -> u32 {
        (ino.0 >> INO_BITS) as u32 % self.count
    }

    /// Which of them a share is.
    pub const fn index(&self, share: VolumeId) -> u32 {
        share.0 - self.first.0
    }

    /// What people call one of them: by its place in the volume, unless it is all of it.
    pub fn named(&self, share: VolumeId) -> String {
        match self.count {
            1 => format!("volume {}", self.first),
            _ => format!("share {} of volume {}", self.index(share), self.first),
        }
    }

    /// True if two inodes are in one share.
    pub const fn are_together(&self, one: Ino, other: Ino) -> bool {
        self.index_of(one) == self.index_of(other)
    }

    /// The number of an inode that would be `ino` if there was one share only, in the share with this index.
    pub const fn place(&self, ino: Ino, index: u32) -> Ino {
        match self.count {
            1 => ino,
            _ => Ino(ino.0 & ((1 << INO_BITS) - 1) | (index as u64) << INO_BITS),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = VolumeId> + use<> {
        let first = self.first.0;
        (first..first + self.count).map(VolumeId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_number_says_its_share_and_stays_positive() {
        let shares = Shares { first: VolumeId(7), count: 64 };
        for index in 0..64 {
            let ino = shares.place(Ino(u64::MAX >> 1), index);
            assert_eq!(shares.index_of(ino), index);
            assert_eq!(shares.of(ino), VolumeId(7 + index));
            assert_eq!(shares.index(shares.of(ino)), index);
            assert!(i64::try_from(ino.0).is_ok());
        }
        assert_eq!(shares.of(Ino::ROOT), VolumeId(7));
        assert_eq!(shares.all().count(), 64);
    }

    #[test]
    fn with_one_share_numbers_are_what_they_were() {
        let one = Shares::one(VolumeId(7));
        let ino = Ino(u64::MAX >> 1);
        assert_eq!((one.place(ino, 0), one.of(ino)), (ino, VolumeId(7)));
    }

    #[test]
    fn a_number_that_no_inode_has_is_in_some_share() {
        let three = Shares { first: VolumeId(1), count: 3 };
        assert!(three.all().any(|share| share == three.of(Ino(u64::MAX))));
    }
}
