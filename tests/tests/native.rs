//! The native library on a cluster in this process.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use strake_client::{LockKind, LockRequest, RenameFlags, Volume, VolumeOptions};
use strake_engine::kv::memory::MemoryKv;
use strake_native::tree::{
    RemoveOptions, Removed, cat, list, make_directory, remove, space, usage, walk,
};
use strake_native::{Clients, CopyOptions, Location, Summary, copy};
use strake_tests::local::{LocalCluster, Names};
use strake_tests::made::pattern;
use strake_tests::servers::WAIT;
use strake_types::{Credentials, ErrorKind, FileKind, Ino};
use tempfile::TempDir;

const CHUNK_BYTES: u64 = 1 << 20;
/// How often a copy is begun in which something is to happen: this thread may have to wait for a processor until it is done.
const TRIES_MAX: usize = 20;
const TOO_LATE: &str = "each copy was done before";

struct Setup {
    clients: Clients,
    directory: TempDir,
    cluster: LocalCluster,
}

impl Setup {
    async fn new() -> Self {
        let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES).await;
        let options = VolumeOptions { remember: false, ..VolumeOptions::default() };
        let volume: Arc<Volume> = cluster.volume(options.clone()).await;
        let clients = Clients::new(options);
        clients.adopt(vec!["here:1".into()], volume).await;
        Self { clients, directory: tempfile::tempdir().unwrap(), cluster }
    }

    fn local(&self, path: &str) -> Location {
        Location::Local(self.directory.path().join(path))
    }

    async fn copy(&self, from: &Location, to: &Location, options: &CopyOptions) -> Summary {
        let done = AtomicU64::new(0);
        let progress = |p: &strake_native::Progress| {
            assert!(p.bytes_done >= done.fetch_max(p.bytes_done, Ordering::Relaxed));
        };
        copy(&self.clients, std::slice::from_ref(from), to, options, progress).await.unwrap()
    }

    /// Begins to copy a large file to `part/copy`, and drops that on the way. What it has left, which has another name.
    async fn interrupt(&self, from: &Location, part: &Path, options: &CopyOptions) -> fs::File {
        let to = Location::Local(part.join("copy"));
        for _ in 0..TRIES_MAX {
            let copying = copy(&self.clients, std::slice::from_ref(from), &to, options, |_| {});
            let begun = async {
                while fs::read_dir(part).unwrap().next().is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let is_done = tokio::select! {
                biased;
                copied = copying => {
                    copied.expect("nothing stops it");
                    true
                }
                () = begun => false,
            };
            if !is_done {
                let partial = at_rest(part).await;
                assert_ne!(partial.file_name().unwrap(), "copy", "the dropped copy went on");
                return fs::OpenOptions::new().write(true).open(partial).unwrap();
            }
            fs::remove_file(part.join("copy")).unwrap();
        }
        panic!("{TOO_LATE}");
    }

    async fn read(&self, location: &Location) -> Vec<u8> {
        let mut bytes = Vec::new();
        let push = |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        cat(&self.clients, location, push).await.unwrap();
        bytes
    }

    /// A file that is a hole but for 1 MiB, and an empty directory for its copy.
    fn sparse(&self, length: u64, data_at: u64) -> (PathBuf, PathBuf) {
        let (source, part) =
            (self.directory.path().join("source"), self.directory.path().join("part"));
        let file = fs::File::create(&source).unwrap();
        file.set_len(length).unwrap();
        file.write_all_at(&pattern(1 << 20), data_at).unwrap();
        fs::create_dir(&part).unwrap();
        (source, part)
    }
}

fn remote(path: &str) -> Location {
    Location::parse(&format!("here:1:/main{path}")).unwrap()
}

fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, preserve: true, ..CopyOptions::default() }
}

/// Path, mode, target or contents, and time of change of everything below.
fn tree(root: &Path) -> BTreeMap<String, (u32, Vec<u8>, i64)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(at) = left.pop() {
        let meta = fs::symlink_metadata(&at).unwrap();
        let contents = match () {
            () if meta.is_dir() => Vec::new(),
            () if meta.is_symlink() => {
                fs::read_link(&at).unwrap().into_os_string().into_encoded_bytes()
            }
            () => fs::read(&at).unwrap(),
        };
        let name = at.strip_prefix(root).unwrap().display().to_string();
        found.insert(name, (meta.mode(), contents, meta.mtime_nsec()));
        if meta.is_dir() {
            left.extend(fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

fn make_tree(root: &Path) {
    for sub in ["a/b", "empty", "many"] {
        fs::create_dir_all(root.join(sub)).unwrap();
    }
    (0..200).for_each(|n| fs::write(root.join(format!("many/{n}")), pattern(n * 37)).unwrap());
    fs::write(root.join("a/large"), pattern(20 << 20)).unwrap();
    fs::write(root.join("a/b/middle"), pattern(3_000_001)).unwrap();
    fs::set_permissions(root.join("a/b/middle"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o500)).unwrap();
    symlink("../a/large", root.join("many/link")).unwrap();
}

/// It copied what it had just made, until the names were too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_not_copied_into_itself() {
    let setup = Setup::new().await;
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    fs::create_dir_all(setup.directory.path().join("a/b/c")).unwrap();
    symlink("a/b", setup.directory.path().join("link")).unwrap();
    fs::write(setup.directory.path().join("a/file"), "x").unwrap();
    setup.copy(&setup.local("a"), &remote("/"), &options).await;
    let before = list(&setup.clients, &remote("/a"), true).await.unwrap().len();
    for (from, to) in
        [("/a", "/a"), ("/a", "/a/new"), ("/a", "/a/b"), ("/a", "/a/b/c"), ("/a", "/"), ("/", "/a")]
    {
        for (from, to) in
            [(remote(from), remote(to)), (setup.local(&from[1..]), setup.local(&to[1..]))]
        {
            let copied =
                copy(&setup.clients, std::slice::from_ref(&from), &to, &options, |_| {}).await;
            let error = copied.unwrap_err().error;
            assert_eq!(error.kind, ErrorKind::Invalid, "{from} to {to}: {error}");
            assert!(error.to_string().contains("into itself"), "{error}");
        }
    }
    let (from, link) = ([setup.local("a")], setup.local("link"));
    let copied = copy(&setup.clients, &from, &link, &options, |_| {}).await;
    assert_eq!(copied.unwrap_err().error.kind, ErrorKind::Invalid);
    assert_eq!(list(&setup.clients, &remote("/a"), true).await.unwrap().len(), before);
    assert_eq!(fs::read_dir(setup.directory.path().join("a")).unwrap().count(), 2);
    // Beside it, and one that only begins alike, is no matter.
    setup.copy(&remote("/a"), &remote("/ab"), &options).await;
    setup.copy(&remote("/a/b"), &remote("/a/d"), &options).await;
    setup.copy(&setup.local("a"), &setup.local("ab"), &options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_goes_there_and_back_unchanged() {
    let setup = Setup::new().await;
    let (from, back) = (setup.directory.path().join("from"), setup.directory.path().join("back"));
    make_tree(&from);
    let there = setup.copy(&Location::Local(from.clone()), &remote("/tree"), &recursive()).await;
    assert_eq!(there.entries, tree(&from).len() as u64);
    setup.copy(&remote("/tree"), &Location::Local(back.clone()), &recursive()).await;
    assert_eq!(tree(&back), tree(&from));
    // Once more: everything is there already.
    let again = setup.copy(&Location::Local(from.join("a")), &remote("/tree"), &recursive()).await;
    assert_eq!(again.bytes_kept, again.bytes);
    let mut seen = 0;
    walk(&setup.clients, &remote("/tree"), |_| seen += 1).await.unwrap();
    assert_eq!(seen, there.entries);
    let used = usage(&setup.clients, &remote("/tree")).await.unwrap();
    assert_eq!((used.entries, used.bytes), (there.entries, there.bytes));
}

/// The one file in a directory, when it neither grows nor gets another name any more.
async fn at_rest(directory: &Path) -> PathBuf {
    let look = || {
        let entry = fs::read_dir(directory).unwrap().next().unwrap().unwrap();
        (entry.path(), entry.metadata().map(|of| of.len()).unwrap_or_default())
    };
    let mut before = look();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = look();
        if now == before {
            return now.0;
        }
        before = now;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_is_continued_and_not_taken_for_a_whole_one() {
    let setup = Setup::new().await;
    let (source, length) = (setup.directory.path().join("source"), 600 << 20);
    // Mostly a hole, so that the test is quick; with `sparse` off every byte is copied.
    let file = fs::File::create(&source).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(&pattern(1 << 20), 200 << 20).unwrap();
    file.write_all_at(b"the end", length - 7).unwrap();
    let part = setup.directory.path().join("part");
    let stop_early = CopyOptions { sparse: false, ..CopyOptions::default() };
    let to = Location::Local(part.join("copy"));
    fs::create_dir(&part).unwrap();
    setup.copy(&Location::Local(source.clone()), &remote("/source"), &CopyOptions::default()).await;
    let from = remote("/source");
    let file = setup.interrupt(&from, &part, &stop_early).await;
    // As a copy that got far leaves it.
    let good = fs::read(&source).unwrap();
    file.write_all_at(&good[..500 << 20], 0).unwrap();
    file.set_len(500 << 20).unwrap();
    let rest = setup.copy(&from, &to, &stop_early).await;
    assert!(rest.bytes_kept > 0 && rest.bytes == length, "{rest:?}");
    assert!(fs::read(part.join("copy")).unwrap() == fs::read(&source).unwrap());
    assert_eq!(fs::read_dir(&part).unwrap().count(), 1);
}

/// Its last block alone was compared, and all before that taken for good: a loss of power leaves zeros anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_partial_copy_has_lost_is_copied_again() {
    let setup = Setup::new().await;
    let (source, part) = setup.sparse(600 << 20, 50 << 20);
    let (from, to) = (Location::Local(source.clone()), Location::Local(part.join("copy")));
    let slow = CopyOptions { sparse: false, ..CopyOptions::default() };
    for options in [&slow, &CopyOptions::default()] {
        let left = setup.interrupt(&from, &part, &slow).await;
        left.set_len(0).unwrap();
        left.set_len(500 << 20).unwrap();
        let rest = setup.copy(&from, &to, options).await;
        assert!(rest.bytes_kept > 0 && rest.bytes_kept <= 50 << 20, "{rest:?}");
        assert!(fs::read(part.join("copy")).unwrap() == fs::read(&source).unwrap());
        fs::remove_file(part.join("copy")).unwrap();
    }
}

/// Of a copy that was interrupted the last 384 MB were copied again: of one as short as this, everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_stopped_in_order_goes_on_where_it_ended() {
    let setup = Setup::new().await;
    let (source, part) =
        (setup.directory.path().join("source"), setup.directory.path().join("part"));
    let (length, block) = (200_u64 << 20, 1_u64 << 20);
    let file = fs::File::create(&source).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(&pattern(9 << 20), 2 << 20).unwrap();
    file.write_all_at(b"the end", length - 7).unwrap();
    fs::create_dir(&part).unwrap();
    setup.copy(&Location::Local(source.clone()), &remote("/source"), &CopyOptions::default()).await;
    // Block after block, so that it is found on the way.
    let slow = CopyOptions {
        sparse: false,
        block_bytes: block as usize,
        window_bytes: block as usize,
        ..CopyOptions::default()
    };
    let (from, to) = ([remote("/source")], Location::Local(part.join("copy")));
    let grown = || fs::read_dir(&part).unwrap().next().map(|left| left.unwrap().metadata());
    let mut tries = 0;
    let incomplete = loop {
        let (asking, stop) = tokio::sync::watch::channel(false);
        let stopping = CopyOptions { stop: Some(stop), ..slow.clone() };
        let asked = async {
            while grown().and_then(Result::ok).is_none_or(|left| left.len() < 4 * block) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Nobody listens where it is done.
            let _late = asking.send(true);
        };
        let copying = copy(&setup.clients, &from, &to, &stopping, |_| {});
        let (copied, asked) = tokio::join!(copying, tokio::time::timeout(WAIT, asked));
        assert!(asked.is_ok(), "it makes nothing: {copied:?}");
        if let Err(incomplete) = copied {
            break incomplete;
        }
        tries += 1;
        assert!(tries < TRIES_MAX, "{TOO_LATE}");
        fs::remove_file(part.join("copy")).unwrap();
    };
    assert_eq!(incomplete.error.kind, ErrorKind::Interrupted);
    let left = grown().unwrap().unwrap();
    assert!(left.len() < length && !part.join("copy").exists(), "it has ended early");
    let rest = setup.copy(&from[0], &to, &slow).await;
    assert_eq!(rest.bytes_kept, left.len() - block, "all but the block that was compared");
    assert!(fs::read(part.join("copy")).unwrap() == fs::read(&source).unwrap());
    assert_eq!(fs::read_dir(&part).unwrap().count(), 1);
}

/// They stayed for ever, as large as they were.
#[tokio::test(flavor = "multi_thread")]
async fn what_copies_of_earlier_sources_have_left_goes_when_one_succeeds() {
    let setup = Setup::new().await;
    let at = |name: &str| setup.directory.path().join(name);
    fs::create_dir(at("d")).unwrap();
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let (seconds, nanos) = (since.as_secs(), since.subsec_nanos());
    let marked = format!(".copy-1200000-{seconds:x}.{nanos:x}.strake-partial");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
    // Killed long ago, stopped in order a moment ago, perhaps under way, and two that are of other files.
    for (name, time) in [
        (".copy-1200000-1.2.strake-partial", long_ago),
        (marked.as_str(), now),
        (".copy-1200000-3.4.strake-partial", now),
        (".copy-2-1200000-1.2.strake-partial", long_ago),
        (".cop-1200000-1.2.strake-partial", long_ago),
    ] {
        fs::write(at("d").join(name), "left").unwrap();
        let left = fs::File::options().write(true).open(at("d").join(name)).unwrap();
        left.set_modified(time).unwrap();
    }
    fs::write(at("source"), pattern(17 << 20)).unwrap();
    setup.copy(&setup.local("d"), &remote("/d"), &recursive()).await;
    for (directory, copy) in
        [(setup.local("d"), setup.local("d/copy")), (remote("/d"), remote("/d/copy"))]
    {
        setup.copy(&setup.local("source"), &copy, &CopyOptions::default()).await;
        let left = list(&setup.clients, &directory, true).await.unwrap();
        let left: Vec<_> = left.iter().map(|found| String::from_utf8_lossy(&found.path)).collect();
        assert_eq!(
            left,
            [
                ".cop-1200000-1.2.strake-partial",
                ".copy-1200000-3.4.strake-partial",
                ".copy-2-1200000-1.2.strake-partial",
                "copy"
            ]
        );
    }
}

/// Who compares what is there writes nothing: after ten minutes it counted as left by nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_partial_copy_in_a_volume_stays_while_another_client_is_at_it() {
    let setup = Setup::new().await;
    let at = |name: &str| setup.directory.path().join(name);
    let partial = ".copy-1200000-1.2.strake-partial";
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d").join(partial), "left").unwrap();
    let left = fs::File::options().write(true).open(at("d").join(partial)).unwrap();
    left.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(5)).unwrap();
    setup.copy(&setup.local("d"), &remote("/"), &recursive()).await;
    let other = setup.cluster.volume(VolumeOptions::default()).await;
    let path = format!("/d/{partial}");
    let ino = other.resolve(&Credentials::root(), path.as_bytes()).await.unwrap().ino;
    let (start, end, flock, wait) = (0, u64::MAX, true, false);
    let lock = |kind| LockRequest { owner: 7, pid: 7, start, end, kind, flock, wait };
    for (kind, length) in [(LockKind::Exclusive, 17 << 20), (LockKind::Unlock, 18 << 20)] {
        other.set_lock(ino, lock(kind)).await.unwrap();
        fs::write(at("source"), pattern(length)).unwrap();
        setup.copy(&setup.local("source"), &remote("/d/copy"), &CopyOptions::default()).await;
        let left = list(&setup.clients, &remote("/d"), true).await.unwrap();
        let is_left = left.iter().any(|found| found.path.ends_with(partial.as_bytes()));
        assert_eq!(is_left, kind == LockKind::Exclusive);
    }
}

/// It got the owner and the mode of the directory.
#[tokio::test(flavor = "multi_thread")]
async fn what_takes_the_place_of_a_directory_of_a_volume_gets_none_of_its_attributes() {
    for is_file in [true, false] {
        let mut tries = 0;
        while !replace_while_filled(is_file).await {
            tries += 1;
            assert!(tries < TRIES_MAX, "{TOO_LATE}");
        }
    }
}

/// False if the directory was full before it was replaced.
async fn replace_while_filled(is_file: bool) -> bool {
    let setup = Setup::new().await;
    let at = |name: &str| setup.directory.path().join(name);
    fs::create_dir(at("d")).unwrap();
    fs::File::create(at("d/f")).unwrap().set_len(200 << 20).unwrap();
    match is_file {
        true => fs::write(at("other"), "x").unwrap(),
        false => fs::create_dir(at("other")).unwrap(),
    }
    fs::set_permissions(at("other"), fs::Permissions::from_mode(0o600)).unwrap();
    setup.copy(&setup.local("other"), &remote("/other"), &recursive()).await;
    let (volume, root) =
        (setup.cluster.volume(VolumeOptions::default()).await, Credentials::root());
    let other = volume.resolve(&root, b"/other").await.unwrap().ino;
    // Block after block, so that it is found on the way.
    let slow =
        CopyOptions { sparse: false, block_bytes: 1 << 20, window_bytes: 1 << 20, ..recursive() };
    let (from, to, d) = ([setup.local("d")], remote("/"), remote("/d"));
    let replaced = async {
        while !list(&setup.clients, &d, true).await.is_ok_and(|found| !found.is_empty()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (top, flags) = (Ino::ROOT, RenameFlags::default());
        volume.rename(&root, top, "d".into(), top, "moved".into(), flags).await.unwrap();
        let (from, to) = ("other".into(), "d".into());
        let placed = match is_file {
            true => volume.link(&root, other, top, to).await.map(drop),
            false => volume.rename(&root, top, from, top, to, flags).await.map(drop),
        };
        placed.unwrap();
    };
    let copying = copy(&setup.clients, &from, &to, &slow, |_| {});
    let (copied, replaced) = tokio::join!(copying, tokio::time::timeout(WAIT, replaced));
    assert!(replaced.is_ok(), "it makes nothing: {copied:?}");
    let now = volume.resolve(&root, b"/d").await.unwrap();
    assert_eq!((now.ino, now.mode & 0o777), (other, 0o600));
    if let Err(incomplete) = &copied {
        let error = &incomplete.error;
        assert_eq!(error.kind, ErrorKind::Stale, "{error}");
    }
    copied.is_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changed_is_copied_again() {
    let setup = Setup::new().await;
    let source = setup.directory.path().join("source");
    for (round, contents) in [&b"first"[..], b"later"].into_iter().enumerate() {
        fs::write(&source, contents).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + round as u64);
        fs::File::options().write(true).open(&source).unwrap().set_modified(time).unwrap();
        setup
            .copy(&Location::Local(source.clone()), &remote("/file"), &CopyOptions::default())
            .await;
        assert_eq!(setup.read(&remote("/file")).await, contents);
    }
}

/// It was emptied first, and then copied; and what stood in the place of a file was replaced by one.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_not_copied_onto_itself_nor_onto_another_source_nor_onto_what_is_no_file() {
    let setup = Setup::new().await;
    let at = |name: &str| setup.directory.path().join(name);
    fs::write(at("f"), pattern(5_000)).unwrap();
    symlink("f", at("link")).unwrap();
    fs::hard_link(at("f"), at("name")).unwrap();
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/f"), "other").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    setup.copy(&setup.local("f"), &remote("/f"), &CopyOptions::default()).await;
    let refused = async |sources: &[Location], to: Location, why: &str| {
        let options = CopyOptions { resume: false, ..CopyOptions::default() };
        let copied = copy(&setup.clients, sources, &to, &options, |_| {}).await;
        let error = copied.unwrap_err().error;
        assert!(error.kind == ErrorKind::Invalid && error.to_string().contains(why), "{error}");
    };
    for to in ["f", "link", "name"] {
        refused(&[setup.local("f")], setup.local(to), "onto itself").await;
    }
    for to in ["/f", "/"] {
        refused(&[remote("/f")], remote(to), "onto itself").await;
    }
    refused(&[remote("/f")], setup.local("socket"), "no regular file").await;
    refused(&[setup.local("f"), setup.local("d/f")], remote("/"), "another source").await;
    assert_eq!(fs::read(at("f")).unwrap(), pattern(5_000));
    assert_eq!(setup.read(&remote("/f")).await, pattern(5_000));
    fs::write(at("large"), pattern(17 << 20)).unwrap();
    setup.copy(&setup.local("large"), &setup.local("link"), &CopyOptions::default()).await;
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink(), "it leads where it led");
    assert!(fs::read(at("f")).unwrap() == pattern(17 << 20));
}

/// The slash counted for nothing, and `rm link/` removed the link.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_named_as_a_directory_is_not_found() {
    let setup = Setup::new().await;
    let clients = &setup.clients;
    make_directory(clients, &remote("/d"), 0o755, false).await.unwrap();
    fs::write(setup.directory.path().join("f"), "x").unwrap();
    setup.copy(&setup.local("f"), &remote("/f"), &CopyOptions::default()).await;
    for (target, link) in [("f", "to f"), ("d", "to d")] {
        symlink(target, setup.directory.path().join(link)).unwrap();
    }
    let links = CopyOptions { archive: true, ..CopyOptions::default() };
    for link in ["to f", "to d"] {
        setup.copy(&setup.local(link), &remote("/"), &links).await;
    }
    let force = RemoveOptions { recursive: false, force: true };
    for path in ["/f/", "/to f/"] {
        for found in [
            cat(clients, &remote(path), |_| Ok(())).await.err(),
            list(clients, &remote(path), true).await.err(),
            remove(clients, &remote(path), force).await.err(),
        ] {
            assert_eq!(found.unwrap().kind, ErrorKind::NotDirectory, "{path}");
        }
    }
    let refused = remove(clients, &remote("/to d/"), force).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::IsDirectory, "{refused}");
    assert!(list(clients, &remote("/to d/"), true).await.unwrap().is_empty());
    assert_eq!(list(clients, &remote("/"), true).await.unwrap().len(), 4, "nothing is removed");
}

/// A tree of this machine came to lie in the target by its own name, one of a volume did not.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_dir_dot_goes_into_the_target_itself() {
    let setup = Setup::new().await;
    let at = |name: &str| setup.directory.path().join(name);
    for name in ["srv/sub", "x", "y"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::write(at("srv/sub/f"), "f").unwrap();
    make_directory(&setup.clients, &remote("/x"), 0o755, false).await.unwrap();
    for (from, to) in [
        (setup.local("srv/."), setup.local("x")),
        (setup.local("srv/./"), remote("/x")),
        (remote("/x/."), setup.local("y")),
    ] {
        setup.copy(&from, &to, &recursive()).await;
    }
    for copy in ["x", "y"] {
        assert_eq!(fs::read(at(copy).join("sub/f")).unwrap(), b"f", "{copy}");
        assert_eq!(fs::read_dir(at(copy)).unwrap().count(), 1, "{copy}");
    }
    assert_eq!(setup.read(&remote("/x/sub/f")).await, b"f");
}

/// The slash counted for nothing: the file was written over, or made.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_not_copied_to_what_is_named_as_a_directory_and_is_none() {
    let setup = Setup::new().await;
    fs::write(setup.directory.path().join("f"), "new").unwrap();
    fs::write(setup.directory.path().join("old"), "old").unwrap();
    let options = CopyOptions::default();
    setup.copy(&setup.local("old"), &remote("/old"), &options).await;
    for to in [remote("/old/"), remote("/none/"), setup.local("old/"), setup.local("none/")] {
        let copied = copy(&setup.clients, &[setup.local("f")], &to, &options, |_| {}).await;
        assert_eq!(copied.unwrap_err().error.kind, ErrorKind::NotDirectory, "{to}");
    }
    assert_eq!(setup.read(&remote("/old")).await, b"old");
    assert!(!setup.directory.path().join("none").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_stay_holes() {
    let setup = Setup::new().await;
    let source = setup.directory.path().join("sparse");
    let file = fs::File::create(&source).unwrap();
    file.set_len(1 << 30).unwrap();
    file.write_all_at(b"data", 300 << 20).unwrap();
    let from = Location::Local(source);
    setup.copy(&from, &remote("/sparse"), &CopyOptions::default()).await;
    let used = usage(&setup.clients, &remote("/sparse")).await.unwrap();
    assert!(used.bytes == 1 << 30 && used.occupied < 16 << 20, "{used:?}");
    setup.copy(&remote("/sparse"), &setup.local("back"), &CopyOptions::default()).await;
    let back = setup.directory.path().join("back").metadata().unwrap();
    assert!(back.len() == 1 << 30 && back.blocks() * 512 < 16 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_copied_within_its_volume() {
    let setup = Setup::new().await;
    fs::write(setup.directory.path().join("f"), pattern(5_000_000)).unwrap();
    setup.copy(&setup.local("f"), &remote("/one"), &CopyOptions::default()).await;
    setup.copy(&remote("/one"), &remote("/two"), &CopyOptions::default()).await;
    assert!(setup.read(&remote("/two")).await == pattern(5_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_are_made_listed_and_removed() {
    let setup = Setup::new().await;
    let clients = &setup.clients;
    make_directory(clients, &remote("/x/y/z"), 0o755, true).await.unwrap();
    make_directory(clients, &remote("/x/y/z"), 0o755, true).await.unwrap();
    let twice = make_directory(clients, &remote("/x/y"), 0o755, false).await.unwrap_err();
    assert_eq!(twice.kind, ErrorKind::Exists);
    for name in ["b", "a", "c"] {
        fs::write(setup.directory.path().join(name), name).unwrap();
        setup.copy(&setup.local(name), &remote("/x/y"), &CopyOptions::default()).await;
    }
    let names = list(clients, &remote("/x/y"), false).await.unwrap();
    let names: Vec<_> = names.iter().map(|found| String::from_utf8_lossy(&found.path)).collect();
    assert_eq!(names, ["a", "b", "c", "z"]);
    let refused = remove(clients, &remote("/x"), RemoveOptions::default()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::IsDirectory);
    let all = RemoveOptions { recursive: true, force: false };
    assert_eq!(remove(clients, &remote("/x"), all).await.unwrap().entries, 6);
    assert!(list(clients, &remote("/"), true).await.unwrap().is_empty());
    let missing = remove(clients, &remote("/x"), all).await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);
    let forced = RemoveOptions { recursive: true, force: true };
    assert_eq!(remove(clients, &remote("/x"), forced).await.unwrap(), Removed::default());
    let Location::Remote(root) = remote("/") else { unreachable!("a remote path") };
    assert!(space(clients, &root).await.unwrap().total_bytes > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_refused_before_anything_is_changed() {
    let setup = Setup::new().await;
    fs::create_dir(setup.directory.path().join("d")).unwrap();
    fs::write(setup.directory.path().join("f"), "x").unwrap();
    let options = CopyOptions::default();
    let tried = async |from: Vec<Location>, to: Location| {
        copy(&setup.clients, &from, &to, &options, |_| {}).await.unwrap_err().error.kind
    };
    assert_eq!(tried(vec![setup.local("d")], remote("/d")).await, ErrorKind::IsDirectory);
    assert_eq!(tried(vec![setup.local("none")], remote("/f")).await, ErrorKind::NotFound);
    assert_eq!(tried(vec![setup.local("f")], remote("/no/f")).await, ErrorKind::NotFound);
    let two = vec![setup.local("f"), setup.local("f")];
    assert_eq!(tried(two, remote("/f")).await, ErrorKind::NotDirectory);
    assert!(list(&setup.clients, &remote("/"), true).await.unwrap().is_empty());
}

/// Of a name that this machine does not take only the path was told.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_found_is_told_with_its_cause() {
    let setup = Setup::new().await;
    let long = "a".repeat(300);
    for from in [setup.local(&long), remote(&format!("/{long}")), remote(&format!("/{long}/f"))] {
        let options = CopyOptions::default();
        let copied = copy(&setup.clients, &[from], &remote("/f"), &options, |_| {}).await;
        let told = copied.unwrap_err().error.to_string();
        assert!(told.contains(&long) && told.ends_with(": file name too long"), "{told}");
    }
}

/// What an interrupted copy has left is compared. Where it is another one, nothing of it may stay, not even in what are holes of the source.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_partial_copy_that_is_not_continued() {
    let setup = Setup::new().await;
    let (source, part) = setup.sparse(800 << 20, 200 << 20);
    let (from, to) = (Location::Local(source.clone()), Location::Local(part.join("copy")));
    let slow = CopyOptions { sparse: false, ..CopyOptions::default() };
    let file = setup.interrupt(&from, &part, &slow).await;
    file.set_len(0).unwrap();
    file.write_all_at(&vec![9; 320 << 20], 0).unwrap();
    file.set_len(700 << 20).unwrap();
    let all = setup.copy(&from, &to, &CopyOptions::default()).await;
    assert_eq!(all.bytes_kept, 0);
    assert!(fs::read(part.join("copy")).unwrap() == fs::read(&source).unwrap());
}

/// A pipe that was named became a pipe, and took the place of the file that was there.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_that_is_named_is_read_to_its_end() {
    let setup = Setup::new().await;
    let pipe = setup.directory.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    fs::write(setup.directory.path().join("old"), pattern(9 << 20)).unwrap();
    setup.copy(&setup.local("old"), &remote("/x"), &CopyOptions::default()).await;
    let (writer, contents) = (pipe.clone(), pattern(5_000_000));
    let written = contents.clone();
    let writing = std::thread::spawn(move || fs::write(writer, written).unwrap());
    let (pipe, x) = (Location::Local(pipe), remote("/x"));
    assert_eq!(setup.copy(&pipe, &x, &CopyOptions::default()).await.bytes, 5_000_000);
    writing.join().unwrap();
    assert!(setup.read(&x).await == contents);
    // In a tree it is copied as what it is, in the place of what is there when it has been made.
    setup.copy(&pipe, &x, &recursive()).await;
    let there = list(&setup.clients, &remote("/x"), false).await.unwrap();
    assert_eq!(there[0].info.kind, FileKind::Fifo);
    assert_eq!(list(&setup.clients, &remote("/"), true).await.unwrap().len(), 1);
    let refused = [remote("/x")];
    let to = setup.local("back");
    let read = copy(&setup.clients, &refused, &to, &CopyOptions::default(), |_| {}).await;
    assert!(read.unwrap_err().error.to_string().contains("no regular file"));
}

/// `rm -r a/..` removed what is beside `a`, and a copy of it was written beside its target.
#[tokio::test(flavor = "multi_thread")]
async fn what_two_dots_name_is_not_removed_and_not_written_beside_the_target() {
    let setup = Setup::new().await;
    let clients = &setup.clients;
    make_directory(clients, &remote("/p/a"), 0o755, true).await.unwrap();
    fs::write(setup.directory.path().join("f"), "f").unwrap();
    setup.copy(&setup.local("f"), &remote("/p/f"), &CopyOptions::default()).await;
    let all = RemoveOptions { recursive: true, force: true };
    for path in ["/p/a/..", "/p/.", "/", ""] {
        let refused = remove(clients, &remote(path), all).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid, "{path}: {refused}");
    }
    assert_eq!(list(clients, &remote("/p"), true).await.unwrap().len(), 2);
    let out = setup.directory.path().join("out");
    fs::create_dir(&out).unwrap();
    setup.copy(&remote("/p/a/.."), &Location::Local(out.clone()), &recursive()).await;
    assert_eq!(fs::read(out.join("f")).unwrap(), b"f");
    assert!(out.join("a").is_dir() && !setup.directory.path().join("a").exists());
    let nothing = remove(clients, &remote("/none/f"), all).await.unwrap();
    assert_eq!(nothing, Removed::default(), "nothing is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_in_a_volume_lead_where_they_lead() {
    let setup = Setup::new().await;
    let (clients, at) = (&setup.clients, |name: &str| setup.directory.path().join(name));
    fs::create_dir_all(at("t/d")).unwrap();
    fs::write(at("t/d/f"), "old").unwrap();
    fs::write(at("new"), "new").unwrap();
    for (link, target) in
        [("link", "d"), ("to-file", "d/f"), ("nowhere", "none"), ("round", "round")]
    {
        symlink(target, at("t").join(link)).unwrap();
    }
    setup.copy(&setup.local("t"), &remote("/t"), &recursive()).await;
    let names = async |path: &str| list(clients, &remote(path), true).await.unwrap().len();
    assert_eq!(names("/t/link").await, 1);
    assert_eq!(usage(clients, &remote("/t/link/")).await.unwrap().entries, 2);
    setup.copy(&setup.local("new"), &remote("/t/link"), &CopyOptions::default()).await;
    setup.copy(&setup.local("new"), &remote("/t/to-file"), &CopyOptions::default()).await;
    assert_eq!(
        (setup.read(&remote("/t/d/new")).await, setup.read(&remote("/t/d/f")).await),
        (b"new".to_vec(), b"new".to_vec())
    );
    let new = [setup.local("new")];
    let lost = copy(clients, &new, &remote("/t/nowhere"), &CopyOptions::default(), |_| {}).await;
    assert!(lost.unwrap_err().error.to_string().contains("leads nowhere"));
    setup.copy(&remote("/t/link"), &setup.local("back"), &recursive()).await;
    assert_eq!(fs::read(at("back/f")).unwrap(), b"new");
    // Where one leads does not matter to who removes it.
    for link in ["/t/round", "/t/nowhere", "/t/link"] {
        let removed = remove(clients, &remote(link), RemoveOptions::default()).await.unwrap();
        assert_eq!(removed.entries, 1);
    }
    assert_eq!((names("/t").await, names("/t/d").await), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_has_no_more_rights_than_the_umask_leaves_and_is_found_by_its_name() {
    let setup = Setup::new().await;
    let hidden = setup.directory.path().join(".hidden");
    fs::write(&hidden, "x").unwrap();
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o666)).unwrap();
    setup
        .copy(&Location::Local(hidden.clone()), &remote("/.hidden"), &CopyOptions::default())
        .await;
    let found = list(&setup.clients, &remote("/.hidden"), false).await.unwrap();
    let made = setup.directory.path().join("made");
    fs::write(&made, "x").unwrap();
    let masked = made.metadata().unwrap().mode() & 0o777;
    assert_eq!((found.len(), found[0].info.mode), (1, masked));
    assert!(list(&setup.clients, &remote("/"), false).await.unwrap().is_empty());
}
