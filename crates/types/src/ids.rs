//! One newtype per kind of id, so that no two can be mistaken for each other.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(raw: $inner) -> Self {
                Self(raw)
            }
        }
    };
}

id!(
    /// Number of an inode within its volume. 1 is the root directory; 0 is never used.
    Ino,
    u64
);
id!(
    /// A volume of the cluster. Never reused after a volume is deleted.
    VolumeId,
    u32
);
id!(
    /// One disk or directory of one storage server.
    TargetId,
    u32
);
id!(
    /// The ordered set of targets that hold one chunk's copies.
    GroupId,
    u32
);
id!(
    /// One server process of the cluster, whatever its roles.
    ServerId,
    u32
);
id!(
    /// Version of a group's membership or of the cluster map. Only grows.
    Epoch,
    u64
);
id!(
    /// One client's session with the metadata servers.
    SessionId,
    u64
);
id!(
    /// Number of a mutation within its session, from 1; 0 means "not to be remembered".
    Seq,
    u64
);
id!(
    /// What a target speaks from: another one than before says that something it acknowledged, and had
    /// not made durable, may be lost.
    Boot,
    u64
);
id!(
    /// Number of a chunk within its file, from 0.
    ChunkIndex,
    u64
);

impl Ino {
    /// The root directory of every volume.
    pub const ROOT: Ino = Ino(1);
}

/// Names one chunk in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId {
    /// The volume the file belongs to.
    pub volume: VolumeId,
    /// The file.
    pub ino: Ino,
    /// Which of the file's chunks.
    pub index: ChunkIndex,
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} inode {} chunk {}", self.volume, self.ino, self.index)
    }
}
