//! Which sequences are tried: few names, so that operations meet; offsets where something changes
//! (the inline limit, chunk boundaries); a few users.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use strake_model::op::{Fallocate, Filler, Path, RenameMode};
use strake_model::{Op, OpenFlags};
use strake_types::{Credentials, Timestamp};

/// Chunk size of the volumes that properties run on: the smallest, so that short files are striped.
pub const CHUNK_BYTES: u64 = strake_types::limits::CHUNK_BYTES_MIN;
/// Longest sequence.
const STEPS_MAX: usize = 60;
/// Handles that a sequence juggles.
const SLOTS: usize = 4;

/// What a sequence may contain.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Users other than root.
    pub users: bool,
    /// Restarts of servers.
    pub restarts: bool,
}

/// One step of a sequence.
#[derive(Clone, Debug)]
pub enum Step {
    /// Somebody does something.
    Do(Credentials, Op),
    /// The servers restart.
    Restart,
    /// The client goes and comes back.
    Remount,
}

/// Whole sequences.
pub fn sequence(scope: Scope) -> impl Strategy<Value = Vec<Step>> {
    vec(step(scope), 1..STEPS_MAX)
}

fn step(scope: Scope) -> impl Strategy<Value = Step> {
    let restarts = u32::from(scope.restarts) * 2;
    prop_oneof![
        96 => (credentials(scope.users), operation()).prop_map(|(cred, op)| owned(cred, op)),
        restarts => Just(Step::Restart),
        2 => Just(Step::Remount),
    ]
}

/// Hard links are made by root only: kernels differ in whom they let link what.
fn owned(cred: Credentials, op: Op) -> Step {
    match op {
        Op::Link(..) => Step::Do(Credentials::root(), op),
        _ => Step::Do(cred, op),
    }
}

fn credentials(users: bool) -> impl Strategy<Value = Credentials> {
    let user = |uid: u32, groups: Vec<u32>| Credentials { uid, gid: uid, groups, checked: false };
    let others = if users { 3 } else { 0 };
    prop_oneof![
        8 => Just(Credentials::root()),
        others => Just(user(1000, vec![3000])),
        others => Just(user(2000, vec![1000, 3000])),
    ]
}

fn operation() -> impl Strategy<Value = Op> {
    prop_oneof![4 => contents(), 4 => names(), 2 => attributes()]
}

fn contents() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (slot(), path(), flags()).prop_map(|(s, p, f)| Op::Open(s, p, f)),
        1 => slot().prop_map(Op::Close),
        3 => (slot(), offset(), length()).prop_map(|(s, o, l)| Op::Read(s, o, l)),
        8 => (slot(), offset(), length(), any::<u8>())
            .prop_map(|(s, o, len, seed)| Op::Write(s, o, Filler { seed, len })),
        2 => (slot(), offset()).prop_map(|(s, o)| Op::SetLength(s, o)),
        2 => (slot(), fallocate(), offset(), length())
            .prop_map(|(s, m, o, l)| Op::Fallocate(s, m, o, u64::from(l))),
        2 => (slot(), offset(), slot(), offset(), length())
            .prop_map(|(a, x, b, y, l)| Op::CopyRange(a, x, b, y, u64::from(l))),
        1 => slot().prop_map(Op::Sync),
        1 => slot().prop_map(Op::StatHandle),
        1 => (path(), offset()).prop_map(|(p, o)| Op::Truncate(p, o)),
        3 => path().prop_map(Op::ReadAll),
    ]
}

fn names() -> impl Strategy<Value = Op> {
    let mode = || select(vec![0o755, 0o700, 0o750, 0o511]);
    prop_oneof![
        4 => (path(), mode()).prop_map(|(p, m)| Op::MakeDirectory(p, m)),
        1 => (path(), mode()).prop_map(|(p, m)| Op::MakeFifo(p, m)),
        1 => (path(), 0..9_u8).prop_map(|(p, n)| Op::MakeSymlink(p, format!("nowhere-{n}"))),
        1 => path().prop_map(Op::ReadLink),
        2 => (path(), path()).prop_map(|(a, b)| Op::Link(a, b)),
        2 => path().prop_map(Op::Unlink),
        2 => path().prop_map(Op::RemoveDirectory),
        5 => (path(), path(), rename_mode()).prop_map(|(a, b, m)| Op::Rename(a, b, m)),
        3 => path_or_root().prop_map(Op::Stat),
        1 => (path(), path()).prop_map(|(a, b)| Op::SameFile(a, b)),
        3 => path_or_root().prop_map(Op::List),
    ]
}

fn attributes() -> impl Strategy<Value = Op> {
    let mode = select(vec![0o777, 0o755, 0o700, 0o644, 0o400, 0o070, 0o2775, 0o4755, 0o6711, 0]);
    let id = || select(vec![0, 1000, 2000, 3000]);
    let time = || (-9_i64..2_000_000_000, 0..1_000_000_000_u32);
    let stamp = |(seconds, nanos)| Timestamp { seconds, nanos };
    let xattr = || select(vec!["user.a".to_owned(), "user.b".to_owned()]);
    let value = vec(any::<u8>(), 0..40);
    prop_oneof![
        3 => (path_or_root(), mode).prop_map(|(p, m)| Op::SetMode(p, m)),
        2 => (path(), id(), id()).prop_map(|(p, u, g)| Op::SetOwner(p, u, g)),
        2 => (path(), time(), time())
            .prop_map(move |(p, a, m)| Op::SetTimes(p, stamp(a), stamp(m))),
        2 => (path(), xattr(), value, any::<Option<bool>>())
            .prop_map(|(p, n, v, m)| Op::SetXattr(p, n, v, m)),
        1 => (path(), xattr()).prop_map(|(p, n)| Op::GetXattr(p, n)),
        1 => path().prop_map(Op::ListXattr),
        1 => (path(), xattr()).prop_map(|(p, n)| Op::RemoveXattr(p, n)),
    ]
}

fn slot() -> impl Strategy<Value = usize> {
    0..SLOTS
}

fn path() -> impl Strategy<Value = Path> {
    prop_oneof![6 => vec(name(), 1), 4 => vec(name(), 2), 2 => vec(name(), 3)]
}

/// Also the root: what a mount point's own errors are is not ours to say.
fn path_or_root() -> impl Strategy<Value = Path> {
    prop_oneof![9 => path(), 1 => Just(Path::new())]
}

fn name() -> impl Strategy<Value = String> {
    let usual = select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned);
    let long = select(vec![255, 256]).prop_map(|len| "n".repeat(len));
    prop_oneof![60 => usual, 1 => long]
}

/// Where things change: the start, the inline limit, page and chunk boundaries.
fn offset() -> impl Strategy<Value = u64> {
    let near = |at: u64| (at.saturating_sub(3)..at + 4).boxed();
    prop_oneof![
        4 => Just(0_u64),
        3 => 0..20_000_u64,
        2 => near(4096),
        2 => near(8192),
        3 => (1..6_u64).prop_flat_map(move |n| near(n * CHUNK_BYTES)),
        2 => 0..6 * CHUNK_BYTES,
    ]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        1 => Just(0_u32),
        4 => 1..200_u32,
        4 => 1..9_000_u32,
        1 => Just(4096_u32),
        2 => 60_000..300_000_u32,
    ]
}

fn flags() -> impl Strategy<Value = OpenFlags> {
    let create =
        prop_oneof![3 => select(vec![0o644, 0o600, 0o444]).prop_map(Some), 1 => Just(None)];
    let access = select(vec![(true, false), (false, true), (true, true), (true, true)]);
    let rare = || prop_oneof![4 => Just(false), 1 => Just(true)];
    (access, create, rare(), rare(), rare()).prop_map(
        |((read, write), create, append, truncate, exclusive)| OpenFlags {
            read,
            write,
            append: append && write,
            // What O_TRUNC does without O_WRONLY is unspecified.
            truncate: truncate && write,
            create,
            exclusive: exclusive && create.is_some(),
        },
    )
}

fn fallocate() -> impl Strategy<Value = Fallocate> {
    select(vec![
        Fallocate::Allocate,
        Fallocate::KeepSize,
        Fallocate::Punch,
        Fallocate::Zero,
        Fallocate::ZeroKeepSize,
    ])
}

fn rename_mode() -> impl Strategy<Value = RenameMode> {
    prop_oneof![
        4 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        1 => Just(RenameMode::Exchange),
    ]
}
