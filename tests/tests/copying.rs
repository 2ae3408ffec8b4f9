//! `strake cp`: what is durable, what an archive keeps, and copies that would meet themselves through a mount.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use strake_client::{Volume, VolumeOptions};
use strake_engine::kv::memory::SyncedKv;
use strake_fuse::MountOptions;
use strake_native::tree::walk;
use strake_native::{Clients, CopyOptions, Location, NotKept, Summary, copy};
use strake_tests::cluster::{
    Mount, Servers, may_be_nobody, mount_of, mount_volume, run, run_as_nobody, succeed,
};
use strake_tests::local::{LocalCluster, Names};
use strake_tests::mounted::Mounted;
use strake_types::FileKind;

const CHUNK_BYTES: u64 = 1 << 20;
/// It grows under a name of its own, and gets its final one when it is whole.
const LARGE: u64 = 17 << 20;
const NOBODY: u32 = u32::MAX;

fn remote(path: &str) -> Location {
    Location::parse(&format!("here:1:/main{path}")).unwrap()
}

fn options() -> VolumeOptions {
    VolumeOptions { remember: false, ..VolumeOptions::default() }
}

async fn clients_of(volume: Arc<Volume>) -> Clients {
    let clients = Clients::new(options());
    clients.adopt(vec!["here:1".into()], volume).await;
    clients
}

async fn copied(
    clients: &Clients,
    from: &Location,
    to: &Location,
    options: &CopyOptions,
) -> Summary {
    copy(clients, std::slice::from_ref(from), to, options, |_| {}).await.unwrap()
}

/// Every name that a loss of power leaves, with length and mode.
async fn left_after_power_loss(kv: &SyncedKv) -> BTreeMap<String, (u64, u32)> {
    let names = Names::Memory(kv.after_power_loss().await.unwrap());
    let cluster = LocalCluster::start(names, CHUNK_BYTES).await;
    let clients = clients_of(cluster.volume(options()).await).await;
    let mut found = BTreeMap::new();
    let see = |entry: &strake_native::tree::Found| {
        let path = String::from_utf8(entry.path.clone()).unwrap();
        let what = match entry.info.kind {
            FileKind::Directory => (0, entry.info.mode),
            FileKind::Symlink => (entry.info.length, 0),
            _ => (entry.info.length, entry.info.mode),
        };
        found.insert(path, what);
    };
    walk(&clients, &remote("/"), see).await.unwrap();
    found.remove("");
    found
}

/// A large file, an empty directory and a link.
fn make_to_be_synced(from: &Path) -> BTreeMap<String, (u64, u32)> {
    fs::create_dir_all(from.join("sub/empty")).unwrap();
    fs::File::create(from.join("sub/large")).unwrap().set_len(LARGE).unwrap();
    fs::write(from.join("sub/small"), "small").unwrap();
    symlink("small", from.join("sub/link")).unwrap();
    let modes = [("sub/large", 0o640), ("sub/small", 0o751), ("sub/empty", 0o711), ("sub", 0o750)];
    for (name, mode) in modes {
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let expected = [
        ("sub", (0, 0o750)),
        ("sub/empty", (0, 0o711)),
        ("sub/large", (LARGE, 0o640)),
        ("sub/link", (5, 0)),
        ("sub/small", (5, 0o751)),
    ];
    expected.map(|(name, what)| (name.to_owned(), what)).into()
}

fn synced() -> CopyOptions {
    CopyOptions { recursive: true, preserve: true, sync: true, ..CopyOptions::default() }
}

/// The file had been synced under another name, and directories never.
#[tokio::test(flavor = "multi_thread")]
async fn a_synced_copy_into_a_volume_survives_a_power_loss_with_all_names() {
    let (kv, directory) = (SyncedKv::new(), tempfile::tempdir().unwrap());
    let expected = make_to_be_synced(directory.path());
    let cluster = LocalCluster::start(Names::Synced(kv.clone()), CHUNK_BYTES).await;
    let clients = clients_of(cluster.volume(options()).await).await;
    let from = Location::Local(directory.path().join("sub"));
    copied(&clients, &from, &remote("/"), &synced()).await;
    assert_eq!(left_after_power_loss(&kv).await, expected);
    // A file alone: its last change is that of its name.
    let from = Location::Local(directory.path().join("sub/large"));
    copied(&clients, &from, &remote("/alone"), &synced()).await;
    let left = left_after_power_loss(&kv).await;
    assert_eq!(left.get("alone"), Some(&(LARGE, 0o640)), "{left:?}");
}

/// The directory of this machine is a mount: what nobody has synced there is lost with the power as well.
#[test]
fn a_synced_copy_to_this_machine_survives_a_power_loss_with_all_names() {
    let (kv, directory) = (SyncedKv::new(), tempfile::tempdir().unwrap());
    let expected = make_to_be_synced(directory.path());
    let mounted = Mounted::on(Names::Synced(kv.clone()));
    let clients = Clients::new(options());
    let from = Location::Local(directory.path().join("sub"));
    let to = Location::Local(mounted.root().into());
    mounted.block_on(copied(&clients, &from, &to, &synced()));
    assert_eq!(mounted.block_on(left_after_power_loss(&kv)), expected);
    // An earlier copy has brought it and synced nothing.
    let from = Location::Local(directory.path().join("sub/small"));
    let to = Location::Local(mounted.path("kept"));
    let lazy = CopyOptions { sync: false, ..synced() };
    mounted.block_on(copied(&clients, &from, &to, &lazy));
    let again = mounted.block_on(copied(&clients, &from, &to, &synced()));
    assert_eq!(again.bytes_kept, again.bytes);
    let left = mounted.block_on(left_after_power_loss(&kv));
    assert_eq!(left.get("kept"), Some(&(5, 0o751)), "{left:?}");
}

/// What an archive keeps of a file.
#[derive(Debug, PartialEq)]
struct Kept {
    rights: (u32, u32, u32),
    mtime: (i64, i64),
    /// Of those names that are names of the same file, the first.
    first: String,
    contents: Vec<u8>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut list, mut value) = (vec![0; 4096], vec![0; 4096]);
    let len = rustix::fs::llistxattr(path, &mut list[..]).unwrap();
    let names = list[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    let with_value = |name: String| {
        let len = rustix::fs::lgetxattr(path, &name, &mut value[..]).unwrap();
        (name, value[..len].to_vec())
    };
    names.into_iter().map(with_value).collect()
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// An ACL that gives one more user a right to read.
fn acl() -> Vec<u8> {
    let entries = [
        (1_u16, 6_u16, NOBODY),
        (2, 4, 1234),
        (4, 4, NOBODY),
        (0x10, 4, NOBODY),
        (0x20, 0, NOBODY),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Everything below a directory, and the directory itself.
fn described(root: &Path) -> BTreeMap<String, Kept> {
    let mut paths = vec![root.to_path_buf()];
    let mut nth = 0;
    while nth < paths.len() {
        if fs::symlink_metadata(&paths[nth]).unwrap().is_dir() {
            paths.extend(fs::read_dir(&paths[nth]).unwrap().map(|entry| entry.unwrap().path()));
        }
        nth += 1;
    }
    paths.sort();
    let (mut first, mut found) = (BTreeMap::new(), BTreeMap::new());
    for path in paths {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let meta = fs::symlink_metadata(&path).unwrap();
        let contents = match () {
            () if meta.is_symlink() => {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            }
            () if meta.is_file() => fs::read(&path).unwrap(),
            () => Vec::new(),
        };
        let kept = Kept {
            rights: (meta.mode(), meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            first: first.entry(meta.ino()).or_insert_with(|| name.clone()).clone(),
            contents,
            xattrs: xattrs(&path),
        };
        found.insert(name, kept);
    }
    found
}

fn make_to_be_archived(from: &Path) {
    let at = |name: &str| from.join(name);
    fs::create_dir_all(at("sub")).unwrap();
    for (name, bytes) in [("a", 5_000), ("sub/plain", 10), ("acl", 0), ("large", LARGE as usize)] {
        fs::write(at(name), vec![7; bytes]).unwrap();
    }
    for name in ["b", "sub/c"] {
        fs::hard_link(at("a"), at(name)).unwrap();
    }
    fs::hard_link(at("large"), at("sub/large too")).unwrap();
    symlink("a", at("link")).unwrap();
    set(&at("a"), "user.colour", b"blue");
    set(&at("a"), "trusted.note", b"for root");
    set(&at("sub"), "user.kind", b"directory");
    set(&at("sub"), "system.posix_acl_default", &acl());
    set(&at("acl"), "system.posix_acl_access", &acl());
    for (name, mode, uid) in [("a", 0o4755, 1234), ("sub", 0o2750, 77), ("sub/plain", 0o400, 0)] {
        chown(at(name), Some(uid), Some(uid + 1)).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::lchown(at("link"), Some(5), Some(6)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000, 123_456_789);
    fs::File::open(at("sub")).unwrap().set_modified(time).unwrap();
}

fn archive() -> CopyOptions {
    CopyOptions { archive: true, ..CopyOptions::default() }
}

/// A mounted volume and the same one without its mount.
fn mounted_with_clients() -> (Mounted, Clients) {
    let mounted = Mounted::new();
    let volume = mounted.block_on(mounted.volume(options()));
    let clients = mounted.block_on(clients_of(volume));
    (mounted, clients)
}

fn local(path: PathBuf) -> Location {
    Location::Local(path)
}

#[test]
fn an_archive_keeps_owners_times_links_xattrs_and_acls_there_and_back() {
    let (mounted, clients) = mounted_with_clients();
    let from = mounted.path("from");
    make_to_be_archived(&from);
    let go =
        |from: &Location, to: &Location| mounted.block_on(copied(&clients, from, to, &archive()));
    let there = go(&local(from.clone()), &remote("/there"));
    assert_eq!(there.not_kept, NotKept::default());
    assert_eq!(there.entries, described(&from).len() as u64);
    // What has several names is copied once.
    assert_eq!(there.bytes, 5_000 + 10 + LARGE);
    go(&remote("/there"), &local(mounted.path("back")));
    assert_eq!(described(&mounted.path("there")), described(&from));
    assert_eq!(described(&mounted.path("back")), described(&from));
    let again = go(&local(from.join("sub")), &remote("/there"));
    assert_eq!(again.bytes_kept, again.bytes);
    assert_eq!(again.bytes, 5_000 + 10 + LARGE, "where the other names are not copied");
    // A link that is named is copied itself.
    go(&local(from.join("link")), &remote("/named"));
    assert_eq!(fs::read_link(mounted.path("named")).unwrap(), Path::new("a"));
}

/// Contents and times were there already, and nothing else; two names that were copies of one file are two files.
#[test]
fn an_archive_completes_what_another_copy_has_left() {
    let (mounted, clients) = mounted_with_clients();
    let from = mounted.path("from");
    make_to_be_archived(&from);
    for name in ["there", "back"] {
        fs::create_dir(mounted.path(name)).unwrap();
    }
    let plain = CopyOptions { recursive: true, ..CopyOptions::default() };
    let places =
        [(local(from.clone()), remote("/there")), (remote("/from"), local(mounted.path("back")))];
    for (from, to) in &places {
        mounted.block_on(copied(&clients, from, to, &plain));
        let rest = mounted.block_on(copied(&clients, from, to, &archive()));
        assert_eq!(rest.bytes_kept, rest.bytes);
    }
    let assert_equal = || {
        for copy in ["there/from", "back/from"] {
            assert_eq!(described(&mounted.path(copy)), described(&from), "{copy}");
        }
    };
    assert_equal();
    // A file that has become one of its own leaves the other names of its copy alone.
    fs::remove_file(from.join("b")).unwrap();
    fs::write(from.join("b"), "another").unwrap();
    for (from, to) in &places {
        mounted.block_on(copied(&clients, from, to, &archive()));
    }
    assert_equal();
}

/// New files get the ACLs that their directory has for them; a copy has those of its source.
#[test]
fn an_archive_takes_no_acls_from_where_it_goes() {
    let (mounted, clients) = mounted_with_clients();
    let (source, target) = (mounted.path("source"), mounted.path("target"));
    fs::create_dir(&target).unwrap();
    set(&target, "system.posix_acl_default", &acl());
    fs::write(target.join("new"), "x").unwrap();
    assert!(!xattrs(&target.join("new")).is_empty(), "the directory gives one to new files");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("f"), "x").unwrap();
    for to in [local(target.join("here")), remote("/target/there")] {
        mounted.block_on(copied(&clients, &local(source.clone()), &to, &archive()));
    }
    for name in ["here", "there"] {
        assert_eq!(described(&target.join(name)), described(&source), "{name}");
    }
}

#[test]
fn what_an_archive_cannot_keep_is_named_once_for_each_file() {
    let mut mounted = Mounted::new();
    let without = mounted.mount(&MountOptions { xattr: false, ..MountOptions::default() });
    let clients = Clients::new(options());
    let source = mounted.path("source");
    fs::create_dir(&source).unwrap();
    for name in ["one", "two", "none"] {
        fs::write(source.join(name), name).unwrap();
    }
    set(&source.join("one"), "user.colour", b"red");
    set(&source.join("one"), "user.shape", b"round");
    let go = |to: &str| {
        let to = local(without.join(to));
        mounted.block_on(copied(&clients, &local(source.clone()), &to, &archive())).not_kept
    };
    let lacks = go("first");
    let line = lacks.lines.first[0].clone();
    assert_eq!((lacks.lines.count(), lacks.failed), (1, false), "{lacks:?}");
    for word in ["first/one", "user.colour", "user.shape"] {
        assert!(line.contains(word), "{word} is not in: {line}");
    }
    set(&source.join("two"), "system.posix_acl_access", &acl());
    let lacks = go("second");
    assert_eq!((lacks.lines.count(), lacks.failed), (2, true), "{lacks:?}");
    assert_eq!(fs::read(mounted.path("second/two")).unwrap(), b"two", "all else is there");
}

/// It was told at the end of a copy that went well only.
#[test]
fn what_could_not_be_kept_before_an_error_is_told_with_it() {
    let mut mounted = Mounted::new();
    let without = mounted.mount(&MountOptions { xattr: false, ..MountOptions::default() });
    let clients = Clients::new(options());
    let (source, target) = (mounted.path("source"), without.join("target"));
    fs::create_dir(&source).unwrap();
    fs::create_dir_all(target.join("bad")).unwrap();
    for name in ["bad", "good"] {
        fs::write(source.join(name), name).unwrap();
    }
    set(&source.join("good"), "user.colour", b"red");
    // What is named last is copied first, and the other one, where a directory lies, after it.
    let sources = ["bad", "good"].map(|name| local(source.join(name)));
    let one = CopyOptions { streams: 1, ..archive() };
    let incomplete = mounted
        .block_on(copy(&clients, &sources, &local(target.clone()), &one, |_| {}))
        .unwrap_err();
    let lines = &incomplete.not_kept.lines.first;
    assert_eq!(lines.len(), 1, "{incomplete:?}");
    assert!(lines[0].contains("target/good") && lines[0].contains("user.colour"), "{lines:?}");
    assert_eq!(fs::read(target.join("good")).unwrap(), b"good");
}

/// Runs a copy that would read what it writes.
fn refused(arguments: &[&str], why: &str) {
    let output: Output = run(["cp", "--no-resume"].into_iter().chain(arguments.iter().copied()));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    assert!(error.contains(why), "{arguments:?}: {error}");
}

/// The file was emptied, and the directory copied until the names were too long.
#[test]
fn a_copy_that_would_meet_itself_through_a_mount_is_refused() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    let outer = servers.directory().join("outer");
    fs::create_dir(&outer).unwrap();
    fs::write(outer.join("beside"), "x").unwrap();
    fs::create_dir_all(a.at("d/e")).unwrap();
    let bytes = vec![3; 50_000];
    fs::write(a.at("d/f"), &bytes).unwrap();
    let sub = servers.directory().join("sub");
    fs::create_dir(&sub).unwrap();
    let _sub = mount_volume(servers.address(), "main/d", &sub, "");
    let _inner = mount_of(servers.address(), &outer.join("inner"), "");
    let remote = |path: &str| format!("{}:/main{path}", servers.address());
    let here = |path: PathBuf| path.display().to_string();
    let names = [remote("/d/f"), here(a.at("d/f")), here(b.at("d/f")), here(sub.join("f"))];
    for (from, to) in names.iter().flat_map(|from| names.iter().map(move |to| (from, to))) {
        refused(&[from, to], "onto itself");
    }
    let names = [remote("/d"), here(a.at("d")), here(b.at("d")), here(sub.clone())];
    for (from, to) in names.iter().flat_map(|from| names.iter().map(move |to| (from, to))) {
        refused(&["-r", from, &format!("{to}/new")], "into itself");
        refused(&["-r", from, &format!("{to}/e")], "into itself");
    }
    // It begins beside the volume and comes to it.
    refused(&["-r", &here(outer.clone()), &remote("/outer")], "into itself");
    // The volume is mounted somewhere below what is written to.
    let above = servers.directory().join("above");
    fs::create_dir_all(above.join("d")).unwrap();
    let _below = mount_volume(servers.address(), "main/d", &above.join("d"), "");
    refused(&["-r", &remote("/d"), &here(above)], "itself");
    // A link that nobody has named leads to it.
    let linked = servers.directory().join("linked");
    fs::create_dir(&linked).unwrap();
    symlink(a.at("d/f"), linked.join("f")).unwrap();
    refused(&[&remote("/d/f"), &here(linked.clone())], "name that file instead");
    refused(&[&here(b.at("d/f")), &here(linked.clone())], "name that file instead");
    refused(&[&here(a.at("d/f")), &here(linked.clone())], "onto itself");
    // Nor is what a link leads to taken for a part of the copy.
    symlink(a.at("d"), linked.join("d")).unwrap();
    refused(&["-r", &remote("/d"), &here(linked)], "not a directory");
    assert_eq!(fs::read(a.at("d/f")).unwrap(), bytes);
    assert_eq!(fs::read_dir(a.at("d")).unwrap().count(), 2);
    // Another name in the same volume is no matter.
    succeed(["cp", &remote("/d/f"), &here(a.at("d/g"))]);
    succeed(["cp", "-r", &here(b.at("d")), &remote("/copy")]);
    assert_eq!(fs::read(sub.join("g")).unwrap(), bytes);
    assert_eq!(fs::read(a.at("copy/f")).unwrap(), bytes);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Another user copies a tree to a directory into which all may write, and it is not whole. What he is told.
fn copied_in_part_by_nobody(servers: &Servers, mount: &Mount, source: &Path) -> String {
    fs::create_dir(mount.at("d")).unwrap();
    set_mode(&mount.at("d"), 0o777);
    let to = format!("{}:/main/d/", servers.address());
    let output = run_as_nobody(["cp", "-rq", source.to_str().unwrap(), &to]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    error
}

/// It was emptied; and of several names one was gone.
#[test]
fn a_file_stays_as_it_was_where_what_was_to_replace_it_may_not_be_read() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    let source = servers.directory().join("source");
    fs::write(&source, "new").unwrap();
    set_mode(&source, 0o600);
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("d/f"), "old").unwrap();
    set_mode(&mount.at("d"), 0o777);
    set_mode(&mount.at("d/f"), 0o666);
    let to = format!("{}:/main/d/f", servers.address());
    for (flags, nlink) in [("-q", 1), ("-aq", 2)] {
        if nlink > 1 {
            fs::hard_link(mount.at("d/f"), mount.at("d/g")).unwrap();
        }
        let output = run_as_nobody(["cp", flags, source.to_str().unwrap(), &to]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("source") && error.contains("denied"), "{error}");
        assert_eq!(fs::read(mount.at("d/f")).unwrap(), b"old");
        assert_eq!(fs::metadata(mount.at("d/f")).unwrap().nlink(), nlink);
    }
}

/// A large file of a second after 1970.
fn large_of_then(path: &Path) {
    fs::write(path, vec![1; LARGE as usize]).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Directories into which all may write, in the volume and on this machine, and as what a copy names them.
fn open_to_all(servers: &Servers, mount: &Mount) -> [(PathBuf, String); 2] {
    let here = servers.directory().join("here");
    let there = format!("{}:/main/d", servers.address());
    let both = [(mount.at("d"), there), (here.clone(), here.display().to_string())];
    for (directory, _) in &both {
        fs::create_dir(directory).unwrap();
        set_mode(directory, 0o777);
    }
    both
}

/// Each copy failed, and named a hidden file.
#[test]
fn a_large_file_is_copied_beside_a_partial_copy_that_may_not_be_opened() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    let source = servers.directory().join("source");
    large_of_then(&source);
    set_mode(&source, 0o444);
    for (directory, to) in open_to_all(&servers, &mount) {
        let partial = directory.join(format!(".f-{LARGE:x}-1.0.strake-partial"));
        fs::write(&partial, "of another user").unwrap();
        set_mode(&partial, 0o600);
        for flags in ["-q", "-pq"] {
            let to = format!("{to}/f");
            let output = run_as_nobody(["cp", flags, source.to_str().unwrap(), &to]);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{flags} {to}: {error}");
            let copy = fs::metadata(directory.join("f")).unwrap();
            assert_eq!((copy.len(), copy.mode() & 0o700), (LARGE, 0o400), "{flags} {to}");
            assert_eq!(fs::read(&partial).unwrap(), b"of another user");
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "{flags} {to}");
            fs::remove_file(directory.join("f")).unwrap();
        }
    }
}

/// He read what nobody else may read, and could go on writing to it.
#[test]
fn a_partial_copy_that_somebody_else_has_made_stays_empty() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    let source = servers.directory().join("source");
    large_of_then(&source);
    set_mode(&source, 0o600);
    chown(&source, Some(65_534), Some(65_534)).unwrap();
    for (directory, to) in open_to_all(&servers, &mount) {
        let partial = directory.join(format!(".f-{LARGE:x}-1.0.strake-partial"));
        fs::write(&partial, "").unwrap();
        set_mode(&partial, 0o666);
        chown(&partial, Some(1000), Some(1000)).unwrap();
        let to = format!("{to}/f");
        let arguments = ["cp", "-pq", source.to_str().unwrap(), &to];
        for is_root in [true, false] {
            let output = if is_root { run(arguments) } else { run_as_nobody(arguments) };
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{to}: {error}");
            let copy = fs::metadata(directory.join("f")).unwrap();
            let kept = (copy.len(), copy.uid(), copy.mode() & 0o777);
            assert_eq!(kept, (LARGE, 65_534, 0o600), "{to}");
            assert_eq!(fs::metadata(&partial).unwrap().len(), 0, "{to}");
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "{to}");
            fs::remove_file(directory.join("f")).unwrap();
        }
    }
}

/// It was whole, with the mode of its source, when its copy was killed in the sync before its name: nobody went on with it, and
/// where there was no room for a second one no copy succeeded any more.
#[test]
fn a_whole_partial_copy_of_a_read_only_file_is_gone_on_with() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    let source = servers.directory().join("source");
    large_of_then(&source);
    set_mode(&source, 0o444);
    for (directory, to) in open_to_all(&servers, &mount) {
        let partial = directory.join(format!(".f-{LARGE:x}-1.0.strake-partial"));
        for flags in ["-q", "-pq"] {
            large_of_then(&partial);
            chown(&partial, Some(65_534), Some(65_534)).unwrap();
            set_mode(&partial, 0o444);
            let left = fs::metadata(&partial).unwrap().ino();
            let to = format!("{to}/f");
            let output = run_as_nobody(["cp", flags, source.to_str().unwrap(), &to]);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{flags} {to}: {error}");
            let copy = fs::metadata(directory.join("f")).unwrap();
            assert_eq!((copy.ino(), copy.mode() & 0o777), (left, 0o444), "{flags} {to}");
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "{flags} {to}");
            fs::remove_file(directory.join("f")).unwrap();
        }
    }
}

/// The first one was the end of the copy: the rest was missing, and no directory got its time.
#[test]
fn a_tree_is_copied_but_for_what_may_not_be_read() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    let source = servers.directory().join("source");
    fs::create_dir_all(source.join("sub/locked")).unwrap();
    for name in ["a", "secret", "sub/b", "sub/c", "sub/locked/d"] {
        fs::write(source.join(name), name).unwrap();
    }
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000, 123_456_789);
    for name in ["sub", ""] {
        fs::File::open(source.join(name)).unwrap().set_modified(time).unwrap();
    }
    set_mode(&source.join("secret"), 0);
    set_mode(&source.join("sub/locked"), 0o700);
    let error = copied_in_part_by_nobody(&servers, &mount, &source);
    assert!(error.contains("source/secret") && error.contains("sub/locked"), "{error}");
    assert_eq!(error.lines().filter(|line| line.starts_with("strake: ")).count(), 2, "{error}");
    let copy = mount.at("d/source");
    for name in ["a", "sub/b", "sub/c"] {
        assert_eq!(fs::read(copy.join(name)).unwrap(), name.as_bytes());
    }
    for name in ["sub", ""] {
        assert_eq!(fs::metadata(copy.join(name)).unwrap().modified().unwrap(), time, "{name}");
    }
    assert!(!copy.join("secret").exists() && !copy.join("sub/locked").exists());
}

/// One of them was the end of its whole directory.
#[test]
fn an_entry_that_may_not_be_looked_at_is_a_failure_of_its_own() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    let source = servers.directory().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    for name in ["a", "sub/b", "sub/c"] {
        fs::write(source.join(name), name).unwrap();
    }
    // What is in it may be listed, and not be looked at.
    set_mode(&source.join("sub"), 0o744);
    let error = copied_in_part_by_nobody(&servers, &mount, &source);
    assert!(error.contains("source/sub/b") && error.contains("source/sub/c"), "{error}");
    let copy = mount.at("d/source");
    assert_eq!(fs::read(copy.join("a")).unwrap(), b"a");
    assert_eq!(fs::read_dir(copy.join("sub")).unwrap().count(), 0, "it is copied");
}

/// Each further copy of a user warned of what had been kept: his file may not be written, by him either.
#[test]
fn a_repeated_archive_sets_nothing_that_is_there() {
    let (mounted, clients) = mounted_with_clients();
    let from = mounted.path("from");
    fs::write(&from, "x").unwrap();
    set(&from, "user.colour", b"red");
    set(&from, "system.posix_acl_access", &acl());
    set_mode(&from, 0o444);
    let go = || {
        for to in [remote("/there"), local(mounted.path("here"))] {
            mounted.block_on(copied(&clients, &local(from.clone()), &to, &archive()));
        }
        let of = |name: &str| fs::metadata(mounted.path(name)).unwrap();
        ["there", "here"].map(|name| (of(name).ctime(), of(name).ctime_nsec()))
    };
    let first = go();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(go(), first);
    set(&mounted.path("here"), "user.colour", b"blue");
    assert_ne!(go(), first);
    assert_eq!(xattrs(&mounted.path("here")), xattrs(&from));
}

#[test]
fn the_exit_code_of_an_archive_is_that_of_gnu_cp() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", "noxattr"));
    fs::write(a.at("f"), "x").unwrap();
    let go = |to: &str| {
        let (from, to) = (a.at("f").display().to_string(), b.at(to).display().to_string());
        let output = run(["cp", "-a", "--json", &from, &to]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(fs::read(a.at("f")).unwrap(), b"x");
        (output.status.code(), error.matches("warning: ").count(), error.contains(&to))
    };
    assert_eq!(go("1"), (Some(0), 0, false));
    set(&a.at("f"), "user.colour", b"red");
    assert_eq!(go("2"), (Some(0), 1, true));
    set(&a.at("f"), "system.posix_acl_access", &acl());
    assert_eq!(go("3"), (Some(1), 1, true));
}
