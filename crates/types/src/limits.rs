//! The bounds that every layer keeps. A name carries its unit.

/// Longest name of a directory entry.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path and longest symbolic link.
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest file: 16 TiB, and room above it. With small chunks it is shorter ([`Layout::length_max`](crate::Layout::length_max)).
pub const FILE_BYTES_MAX: u64 = 1 << 60;
/// Most chunks of a file.
pub const FILE_CHUNKS_MAX: u64 = 1 << 40;
/// Most hard links of one inode.
pub const LINKS_MAX: u32 = 65_000;
/// Longest name of an extended attribute.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Largest value of an extended attribute.
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// Smallest chunk.
pub const CHUNK_BYTES_MIN: u64 = 64 << 10;
/// Largest chunk.
pub const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// Shortest strip of a varstrip, and what each is a multiple of.
pub const STRIP_BYTES_MIN: u64 = 4 << 10;
/// Chunk size where nothing else is said.
pub const CHUNK_BYTES_DEFAULT: u64 = 1 << 20;
/// Files up to this length lie inside the inode, where nothing else is said.
pub const INLINE_BYTES_DEFAULT: u32 = 8 << 10;
/// Largest inline length a volume may choose.
pub const INLINE_BYTES_MAX: u32 = 64 << 10;
/// Longest name of a release that is kept of what servers and clients say, in characters.
pub const RELEASE_CHARS_MAX: usize = 64;
/// Most that is kept of what a server says of a full metadata store, in characters.
pub const FULL_CHARS_MAX: usize = 1_000;
/// Most files that a client has open at once: it names all of them in one message when its session goes on.
pub const OPEN_FILES_MAX: usize = 200_000;
/// Most targets in an explicit list or a stripe.
pub const STRIPE_WIDTH_MAX: usize = 1024;
/// Most targets of a cluster: the map has all of them and their groups, and has to fit into a message.
pub const ALL_TARGETS_MAX: usize = 8_000;
/// Most volumes of a cluster, each share counted as one.
pub const VOLUMES_MAX: usize = 20_000;
/// Most copies that a group keeps.
pub const COPIES_MAX: u32 = 3;
/// Largest payload of one data request.
pub const PAYLOAD_BYTES_MAX: usize = 8 << 20;
/// Most bytes that are copied between chunks as one change: a longer copy is made in several, one after the other.
pub const COPY_BYTES_MAX: u64 = 4 << 20;
/// Largest body of one message.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Longest time an operation waits for servers to come back before it fails, where nothing else is said.
pub const OPERATION_WAIT_MS_DEFAULT: u64 = 30_000;
/// Longest time an operation waits for another client to tell what it has written, where nothing else is said: the
/// other's session lease, and the time that it takes to settle what a lost one has left.
pub const HELD_BACK_WAIT_MS_DEFAULT: u64 = 120_000;
/// Oldest attribute a client may answer from its cache.
pub const ATTRIBUTE_AGE_MS_MAX: u64 = 1_000;

/// How long a client believes what is leased to it after it last asked for recalls.
pub const LEASE_MS: u64 = 3_000;
/// How long the metadata server waits for a client to follow a recall: its clock may be slower than ours.
pub const LEASE_MS_AT_SERVER: u64 = LEASE_MS + LEASE_MS / 10;
/// Who has read a file for so long looks again where it lies before he goes by what he has read: shorter by far than what lies
/// where the file was is kept.
pub const OLD_PLACE_MS: u64 = 60_000;
