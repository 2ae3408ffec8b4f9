//! The door of a mount over servers in this process, asked as the kernel asks it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use strake_client::{VolumeOptions, XattrFlags};
use strake_engine::kv::memory::MemoryKv;
use strake_fuse::device::Device;
use strake_fuse::dispatch::Door;
use strake_fuse::door::View;
use strake_fuse::errno::Errno;
use strake_fuse::interrupt::Interrupt;
use strake_fuse::mount::is_ours;
use strake_fuse::reply::Reply;
use strake_fuse::request::{CopyRange, Lock, Op, Request, Setattr};
use strake_fuse::{FuseDoor, MountOptions, Unmount};
use strake_tests::local::{LocalCluster, Names, bytes};
use strake_types::acl::Acl;
use strake_types::limits::CHUNK_BYTES_MIN;
use strake_types::{Attr, Credentials, ErrorKind, Ino, SetAttr};
use tokio::runtime::Handle;

/// The root of a mount.
const ROOT: u64 = 1;
/// By which all requests are known.
const UNIQUE: u64 = 2;

async fn door(cluster: &LocalCluster) -> Arc<FuseDoor> {
    door_with(cluster, VolumeOptions::default()).await
}

async fn door_with(cluster: &LocalCluster, options: VolumeOptions) -> Arc<FuseDoor> {
    let volume = cluster.volume(options).await;
    let view = View { root: Ino::ROOT, uid: None, gid: None, writeback: false, xattr: true };
    Arc::new(FuseDoor::new(volume, view, Handle::current()))
}

async fn ask(door: &Arc<FuseDoor>, node: u64, op: Op) -> Result<Reply, Errno> {
    ask_as(0, door, node, op).await
}

async fn ask_as(uid: u32, door: &Arc<FuseDoor>, node: u64, op: Op) -> Result<Reply, Errno> {
    let request = Request { unique: UNIQUE, opcode: 0, node, uid, gid: uid, pid: 0, op };
    Door::handle(Arc::clone(door), request, Interrupt::never()).await
}

/// A SETATTR that changes nothing.
fn no_change() -> Setattr {
    Setattr {
        mode: None,
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: None,
        ctime: None,
        fh: None,
        kill_suidgid: false,
    }
}

/// What somebody sees who has just mounted the volume.
async fn seen(cluster: &LocalCluster, node: u64) -> Attr {
    cluster.volume(VolumeOptions::default()).await.getattr(Ino(node)).await.unwrap()
}

/// Makes a file with something in it that is unsent; its node and the number of its handle.
async fn written(door: &Arc<FuseDoor>) -> (u64, u64) {
    let flags = libc::O_RDWR as u32;
    let name = bytes("a");
    let create = Op::Create { name, flags, mode: 0o644, umask: 0 };
    let Ok(Reply::Created(shown, opened)) = ask(door, ROOT, create).await else {
        panic!("a new name");
    };
    let (node, fh, data) = (shown.attr.ino.0, opened.fh, bytes(vec![1_u8; 200_000]));
    let (append, sync, kill_suidgid, from_pages) = (false, false, false, false);
    let write = Op::Write { fh, offset: 0, data, append, sync, kill_suidgid, from_pages };
    assert!(matches!(ask(door, node, write).await, Ok(Reply::Written(200_000))));
    (node, fh)
}

/// The number of a handle is free as soon as its RELEASE begins. Whoever opened the file before that had ended got the
/// same one, and lost what it locked by it.
#[tokio::test]
async fn a_close_takes_no_lock_of_who_opens_the_file_meanwhile() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let door = door(&cluster).await;
    let (node, fh) = written(&door).await;
    let mut closing = pin!(ask(&door, node, Op::Release { fh, flocked: false }));
    tokio::select! {
        biased;
        _ = &mut closing => panic!("there is something to send first"),
        () = std::future::ready(()) => {}
    }
    let open = Op::Open { flags: libc::O_RDWR as u32, kill_suidgid: false };
    let Ok(Reply::Open(again)) = ask(&door, node, open).await else { panic!("it exists") };
    assert_eq!(again.fh, fh, "the number is free");
    let (kind, end) = (libc::F_WRLCK as u32, i64::MAX as u64);
    let lock = |owner: u64, pid| Lock { fh, owner, start: 0, end, kind, pid, flock: false };
    ask(&door, node, Op::Setlk { lock: lock(3, 3), wait: false }).await.unwrap();
    closing.await.unwrap();
    let Ok(Reply::Lock(held)) = ask(&door, node, Op::Getlk(lock(4, 4))).await else {
        panic!("the server answers");
    };
    assert_eq!((held.kind, held.pid), (kind, 3), "it is locked still");
}

/// A cut of a killed process went on when that had closed the file: it was made when the lock was somebody else's.
#[tokio::test]
async fn a_close_gives_no_lock_back_while_a_change_of_its_killed_process_goes_on() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let door = door(&cluster).await;
    let (node, fh) = written(&door).await;
    // Nothing is left to send.
    ask(&door, node, Op::Flush { fh, lock_owner: 9 }).await.unwrap();
    let (kind, end) = (libc::F_WRLCK as u32, i64::MAX as u64);
    let lock = |owner: u64, pid| Lock { fh, owner, start: 0, end, kind, pid, flock: false };
    ask(&door, node, Op::Setlk { lock: lock(3, 3), wait: false }).await.unwrap();
    Door::outlives(&*door, 8, true);
    let held = async || match ask(&door, node, Op::Getlk(lock(4, 4))).await {
        Ok(Reply::Lock(held)) => held.kind,
        _ => panic!("the server answers"),
    };
    {
        let mut closing = pin!(ask(&door, node, Op::Flush { fh, lock_owner: 3 }));
        let closed = tokio::time::timeout(Duration::from_millis(100), closing.as_mut()).await;
        assert!(closed.is_err(), "it waits");
        assert_eq!(held().await, kind);
        // What begins meanwhile is not waited for.
        Door::outlives(&*door, 10, true);
        Door::outlives(&*door, 8, false);
        closing.await.unwrap();
    }
    assert_eq!(held().await, libc::F_UNLCK as u32);
}

/// They began when the process was gone, and its files were somebody else's.
#[tokio::test]
async fn a_copy_and_a_punch_of_a_killed_process_are_not_begun() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let door = door(&cluster).await;
    let (node, fh) = written(&door).await;
    let copy = || {
        let (from_offset, to_offset, len, wide) = (0, 100_000, 100_000, true);
        Op::CopyFileRange(CopyRange { from: fh, from_offset, to: fh, to_offset, len, wide })
    };
    let punch = || {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        Op::Fallocate { fh, offset: 0, length: 100_000, mode: mode as u32 }
    };
    let changes: [&dyn Fn() -> Op; 2] = [&copy, &punch];
    for change in changes {
        Door::outlives(&*door, UNIQUE, true);
        assert_eq!(ask(&door, node, change()).await.unwrap_err(), Errno::EINTR);
        Door::outlives(&*door, UNIQUE, false);
        ask(&door, node, change()).await.unwrap();
    }
}

/// A child that was killed in a cut shares its open file with its parent: the cut was made when the parent had given the
/// lock back.
#[tokio::test]
async fn an_unlock_gives_no_lock_back_while_a_change_of_a_killed_process_goes_on() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let door = door(&cluster).await;
    let (node, fh) = written(&door).await;
    let lock = |owner: u64, kind: i32| {
        let (kind, end) = (kind as u32, i64::MAX as u64);
        Lock { fh, owner, start: 0, end, kind, pid: owner as u32, flock: false }
    };
    let set = |kind| ask(&door, node, Op::Setlk { lock: lock(3, kind), wait: false });
    set(libc::F_WRLCK).await.unwrap();
    Door::outlives(&*door, 8, true);
    let held = async || match ask(&door, node, Op::Getlk(lock(4, libc::F_WRLCK))).await {
        Ok(Reply::Lock(held)) => held.kind as i32,
        _ => panic!("the server answers"),
    };
    {
        let mut unlocking = pin!(set(libc::F_UNLCK));
        let unlocked = tokio::time::timeout(Duration::from_millis(100), unlocking.as_mut()).await;
        assert!(unlocked.is_err(), "it waits");
        assert_eq!(held().await, libc::F_WRLCK);
        Door::outlives(&*door, 8, false);
        unlocking.await.unwrap();
    }
    assert_eq!(held().await, libc::F_UNLCK);
}

/// Others read as soon as a lock is shared: a cut of a killed child was made while they did.
#[tokio::test]
async fn a_lock_is_not_shared_while_a_change_of_a_killed_process_goes_on() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let door = door(&cluster).await;
    let (node, _fh) = written(&door).await;
    for flock in [false, true] {
        let set = |number: u64, kind: i32| {
            let (kind, end, pid) = (kind as u32, i64::MAX as u64, number as u32);
            // An flock is its handle's.
            let lock = Lock { fh: number, owner: number, start: 0, end, kind, pid, flock };
            ask(&door, node, Op::Setlk { lock, wait: false })
        };
        set(3, libc::F_WRLCK).await.unwrap();
        Door::outlives(&*door, 8, true);
        {
            let mut sharing = pin!(set(3, libc::F_RDLCK));
            let shared = tokio::time::timeout(Duration::from_millis(100), sharing.as_mut()).await;
            assert!(shared.is_err(), "it waits");
            let refused = set(4, libc::F_RDLCK).await.err();
            assert_eq!(refused, Some(Errno(libc::EAGAIN)), "it is locked still");
            Door::outlives(&*door, 8, false);
            sharing.await.unwrap();
        }
        set(4, libc::F_RDLCK).await.unwrap();
    }
}

/// Of a punch or a copy that was made after all this mount went on to show what was there before: in maps, and for as long as
/// its kernel believed the attributes.
#[tokio::test]
async fn the_kernel_drops_attributes_and_pages_of_what_has_changed_after_all() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let door = door(&cluster).await;
    let (node, to) = written(&door).await;
    let (from, from_offset, to_offset, len, wide) = (99, 0, 0, 1, true);
    let copy = CopyRange { from, from_offset, to, to_offset, len, wide };
    let (unique, pid, op) = (UNIQUE, 0, Op::CopyFileRange(copy));
    let copies = Request { unique, opcode: 0, node: 99, uid: 0, gid: 0, pid, op };
    assert_eq!(Door::changes(&*door, &copies), Some(node), "not what is copied");
    let (mut kernel, device) = UnixStream::pair().unwrap();
    kernel.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    Door::mounted(&*door, Device::from_session(device.as_fd()).unwrap(), false);
    Door::changed_after_all(&*door, node);
    // Node and offset of an `InvalInodeOut` with its head.
    let mut next = || {
        let mut told = [0; 40];
        kernel.read_exact(&mut told).unwrap();
        [16, 24].map(|at: usize| i64::from_ne_bytes(told[at..at + 8].try_into().unwrap()))
    };
    assert_eq!(next(), [node as i64, -1], "what it believes, first");
    assert_eq!(next(), [node as i64, 0], "what it has");
}

/// A CREATE for a name that another mount has just given to somebody's file opened it, and cut it, whatever its mode said:
/// of a file that is made the kernel asks nobody.
#[tokio::test]
async fn what_has_got_the_name_of_a_new_file_meanwhile_is_not_opened_without_being_asked_for() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let (here, there) = (door(&cluster).await, door(&cluster).await);
    let create = |name: &str, further: i32| {
        let flags = (libc::O_RDWR | libc::O_CREAT | further) as u32;
        Op::Create { name: bytes(name), flags, mode: 0o600, umask: 0 }
    };
    let Ok(Reply::Created(shown, opened)) = ask_as(1000, &there, ROOT, create("a", 0)).await else {
        panic!("a new name");
    };
    let (node, fh, data) = (shown.attr.ino.0, opened.fh, bytes("theirs"));
    let (append, sync, kill_suidgid, from_pages) = (false, false, false, false);
    let write = Op::Write { fh, offset: 0, data, append, sync, kill_suidgid, from_pages };
    ask(&there, node, write).await.unwrap();
    ask(&there, node, Op::Flush { fh, lock_owner: 9 }).await.unwrap();
    let length = async || match ask(&here, node, Op::Getattr { fh: None }).await {
        Ok(Reply::Attr(shown)) => shown.attr.length,
        _ => panic!("the server answers"),
    };
    let target = bytes("a");
    ask(&there, ROOT, Op::Symlink { name: bytes("link"), target }).await.unwrap();
    let mkdir = Op::Mkdir { name: bytes("dir"), mode: 0o700, umask: 0 };
    ask(&there, ROOT, mkdir).await.unwrap();
    let error = async |uid: u32, name: &str, further: i32| {
        ask_as(uid, &here, ROOT, create(name, further)).await.err().map(|error| error.0)
    };
    assert_eq!(error(2000, "a", libc::O_TRUNC).await, Some(libc::ESTALE), "the kernel looks again");
    assert_eq!(error(1000, "a", libc::O_EXCL).await, Some(libc::EEXIST));
    assert_eq!(error(1000, "link", 0).await, Some(libc::ESTALE));
    assert_eq!(error(1000, "dir", 0).await, Some(libc::EISDIR));
    // Nothing is cut before the kernel has asked all that it asks.
    assert_eq!(error(1000, "a", libc::O_TRUNC).await, Some(libc::ESTALE));
    assert_eq!(length().await, 6);
    // Nobody else decides whether its owner may.
    let Ok(Reply::Created(shown, _)) = ask_as(1000, &here, ROOT, create("a", 0)).await else {
        panic!("it is his");
    };
    assert_eq!((shown.attr.ino.0, shown.attr.length), (node, 6));
}

/// While the kernel wrote a large map out each question about that file waited, and each further SEEK left a thread behind.
#[tokio::test]
async fn a_kernel_that_is_busy_writing_a_map_out_keeps_nobody_else_waiting() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    // What is known of the file is answered at once.
    let options = VolumeOptions { exclusive: true, ..VolumeOptions::default() };
    let door = door_with(&cluster, options).await;
    // A kernel that cannot be told anything before this is read.
    let (mut kernel, mut device) = UnixStream::pair().unwrap();
    let mut filled = 0;
    device.set_nonblocking(true).unwrap();
    while let Ok(len) = device.write(&[0; 4096]) {
        filled += len;
    }
    device.set_nonblocking(false).unwrap();
    Door::mounted(&*door, Device::from_session(device.as_fd()).unwrap(), false);
    let (hole, data) = (1_u64 << 20, 8_u64 << 20);
    let (node, fh) = written(&door).await;
    let (append, sync, kill_suidgid, from_pages) = (false, false, false, false);
    let end = bytes("end");
    let write = Op::Write { fh, offset: data, data: end, append, sync, kill_suidgid, from_pages };
    ask(&door, node, write).await.unwrap();
    ask(&door, node, Op::Getattr { fh: None }).await.unwrap();
    let seek = async |fh: u64| {
        let whence = libc::SEEK_DATA as u32;
        match ask(&door, node, Op::Lseek { fh, offset: hole, whence }).await {
            Ok(Reply::Offset(at)) => at,
            _ => panic!("there is data"),
        }
    };
    assert_eq!(seek(fh).await, hole, "nobody knows yet");
    {
        let mut asked = pin!(ask(&door, node, Op::Getattr { fh: None }));
        tokio::select! {
            biased;
            answer = &mut asked => assert!(answer.is_ok()),
            () = std::future::ready(()) => panic!("it waits"),
        }
    }
    assert_eq!((seek(fh).await, seek(fh).await), (hole, hole));
    kernel.read_exact(&mut vec![0; filled]).unwrap();
    let found = async {
        while seek(fh).await != data {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.unwrap();
    // Of an `InvalInodeOut` with its head, where the offset is.
    let mut told = [0; 4096];
    let len = kernel.read(&mut told).unwrap();
    let from_hole = told[..len].chunks(40).filter(|told| told[24..32] == hole.to_ne_bytes());
    assert_eq!(from_hole.count(), 2, "that of before, and the one that was waited for");
    // Nobody can have stored anything into it any more.
    let flags = libc::O_RDONLY as u32;
    let open = Op::Open { flags, kill_suidgid: false };
    let Ok(Reply::Open(opened)) = ask(&door, node, open).await else { panic!("it exists") };
    ask(&door, node, Op::Release { fh, flocked: false }).await.unwrap();
    assert_eq!(seek(opened.fh).await, data);
    kernel.set_nonblocking(true).unwrap();
    assert!(kernel.read(&mut told).is_err(), "nothing is written out");
}

/// Each such write looked at the file first, unless it was leased: all who held back something of it told that, and nobody
/// could hold back anything of it any more.
#[tokio::test]
async fn what_a_user_writes_looks_at_nothing_and_takes_setid_away() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let leasing = || VolumeOptions { leases: true, ..VolumeOptions::default() };
    let (door, other) =
        (door_with(&cluster, leasing()).await, door_with(&cluster, leasing()).await);
    let native = cluster.volume(VolumeOptions::default()).await;
    let (root, flags) = (Credentials::root(), libc::O_RDWR as u32);
    let made = async |op: Op| match ask(&door, ROOT, op).await {
        Ok(Reply::Created(shown, opened)) => (shown.attr.ino.0, opened.fh),
        _ => panic!("a new file"),
    };
    let create = |name: &str| {
        let (name, mode, umask) = (bytes(name), 0o6777, 0);
        Op::Create { name, flags, mode, umask }
    };
    let nameless = made(Op::Tmpfile { flags, mode: 0o6777, umask: 0 }).await;
    let claimed = made(create("claimed")).await;
    let open = Op::Open { flags: libc::O_WRONLY as u32, kill_suidgid: false };
    let Ok(Reply::Open(_)) = ask(&other, claimed.0, open).await else { panic!("it exists") };
    let (name, value) = (bytes("user.strake.layout.consistency"), bytes("parallel"));
    native.setxattr(&root, Ino::ROOT, name, value, XattrFlags::default()).await.unwrap();
    let parallel = made(create("parallel")).await;
    for (node, fh) in [nameless, claimed, parallel] {
        let mode = async || match ask(&door, node, Op::Getattr { fh: Some(fh) }).await {
            Ok(Reply::Attr(shown)) => shown.attr.mode,
            _ => panic!("it is open"),
        };
        let write = async |nth: u64| {
            let (data, offset) = (bytes(vec![1_u8; 100]), nth * 100);
            let (append, sync, kill_suidgid, from_pages) = (false, false, true, false);
            let write = Op::Write { fh, offset, data, append, sync, kill_suidgid, from_pages };
            assert!(matches!(ask(&door, node, write).await, Ok(Reply::Written(100))));
        };
        assert_eq!(mode().await, 0o6777);
        write(0).await;
        let looks = cluster.looks();
        for nth in 1..100 {
            write(nth).await;
        }
        assert_eq!(cluster.looks(), looks, "nobody is asked");
        assert_eq!(mode().await, 0o777);
        // Somebody else gives it the bits again, and the mount does not hear of that.
        let again = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
        native.setattr(&root, Ino(node), again, None).await.unwrap();
        write(0).await;
        ask(&door, node, Op::Flush { fh, lock_owner: 9 }).await.unwrap();
        assert_eq!(seen(&cluster, node).await.mode, 0o777);
    }
}

/// A mount whose lease is recalled is not told what has changed, and a kernel asks for no attributes before a write: a user's
/// own bytes could be run with the rights of the owner until they were told.
#[tokio::test]
async fn setid_that_another_mount_has_given_goes_before_a_user_s_next_write() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let leasing = || VolumeOptions { leases: true, ..VolumeOptions::default() };
    let (door, other) =
        (door_with(&cluster, leasing()).await, door_with(&cluster, leasing()).await);
    let (flags, name) = (libc::O_RDWR as u32, bytes("a"));
    let create = Op::Create { name, flags, mode: 0o777, umask: 0 };
    let Ok(Reply::Created(shown, opened)) = ask(&door, ROOT, create).await else {
        panic!("a new name");
    };
    let (node, fh) = (shown.attr.ino.0, opened.fh);
    let write = async || {
        let (append, sync, kill_suidgid, from_pages) = (false, false, true, false);
        let (offset, data) = (0, bytes(vec![1_u8; 100]));
        let write = Op::Write { fh, offset, data, append, sync, kill_suidgid, from_pages };
        assert!(matches!(ask(&door, node, write).await, Ok(Reply::Written(100))));
    };
    write().await;
    ask(&door, node, Op::Flush { fh, lock_owner: 9 }).await.unwrap();
    let change = Setattr { mode: Some(0o4777), ..no_change() };
    ask(&other, node, Op::Setattr(change)).await.unwrap();
    write().await;
    assert_eq!(seen(&cluster, node).await.mode, 0o777, "before the write is told");
}

/// The kernel says nothing of privileges where it has a range copied or zeroed: setuid went when that was done, and stayed if
/// it failed half-way; and root left a capability to whatever the program had become.
#[tokio::test]
async fn privileges_go_before_a_range_is_copied_or_zeroed() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let (door, native) = (door(&cluster).await, cluster.volume(VolumeOptions::default()).await);
    let (node, fh) = written(&door).await;
    let copy = |to_offset| {
        let (from, from_offset, to, len, wide) = (fh, 0, fh, 1_000, true);
        Op::CopyFileRange(CopyRange { from, from_offset, to, to_offset, len, wide })
    };
    let zero = |length| {
        let (offset, mode) = (0, libc::FALLOC_FL_ZERO_RANGE as u32);
        Op::Fallocate { fh, offset, length, mode }
    };
    let capability = bytes("security.capability");
    for (change, refused) in [(copy(100_000), copy(10)), (zero(1_000), zero(0))] {
        let (name, value) = (capability.clone(), bytes("value"));
        let give = Op::Setxattr { name, value, flags: 0, kill_sgid: false };
        ask(&door, node, give).await.unwrap();
        ask(&door, node, change).await.unwrap();
        let left = native.getxattr(&Credentials::root(), Ino(node), capability.clone()).await;
        assert_eq!(left.unwrap_err().kind, ErrorKind::NoAttribute);
        let setid = Setattr { mode: Some(0o6777), ..no_change() };
        ask(&door, node, Op::Setattr(setid)).await.unwrap();
        assert!(ask_as(1000, &door, node, refused).await.is_err());
        assert_eq!(seen(&cluster, node).await.mode, 0o777, "before it is known that it fails");
    }
}

/// The whole mode was set a message later, as it had been before: what the owner had set in between was gone.
#[tokio::test]
async fn a_cut_and_an_acl_take_setid_away_in_one_change() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let door = door(&cluster).await;
    let (name, flags) = (bytes("a"), libc::O_RDWR as u32);
    let create = Op::Create { name, flags, mode: 0o644, umask: 0 };
    let Ok(Reply::Created(shown, _)) = ask(&door, ROOT, create).await else {
        panic!("a new name");
    };
    let node = shown.attr.ino.0;
    let cut = Setattr { size: Some(10), kill_suidgid: true, ..no_change() };
    let (name, value) = (bytes("system.posix_acl_access"), bytes(Acl::from_mode(0o777).encode()));
    let acl = Op::Setxattr { name, value, flags: 0, kill_sgid: true };
    for (setid, change) in [(0o6777, Op::Setattr(cut)), (0o2777, acl)] {
        let setid = Setattr { mode: Some(setid), ..no_change() };
        ask(&door, node, Op::Setattr(setid)).await.unwrap();
        let before = seen(&cluster, node).await.version;
        ask_as(1000, &door, node, change).await.unwrap();
        let after = seen(&cluster, node).await;
        assert_eq!((after.mode, after.version), (0o777, before + 1));
    }
}

/// What could not be sent came before it was unmounted: a mount whose servers are away stayed in the tree, although it was
/// told to go.
#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_unmount_takes_the_mount_away_although_nothing_can_be_sent() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let options = VolumeOptions { operation_wait_ms: 50, ..VolumeOptions::default() };
    let volume = cluster.volume(options).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let runtime = Handle::current();
    let mount = strake_fuse::mount(volume, &path, &MountOptions::default(), runtime).await.unwrap();
    let file = tokio::task::block_in_place(|| {
        let mut file = File::create(path.join("file")).unwrap();
        file.write_all(b"unsent").unwrap();
        file
    });
    drop(cluster);
    let told = mount.unmount(Unmount::Lazy).await;
    let is_mounted = is_ours(&path);
    tokio::task::block_in_place(|| drop(file));
    assert_eq!(told.unwrap_err().kind, ErrorKind::TimedOut);
    assert!(!is_mounted);
}
