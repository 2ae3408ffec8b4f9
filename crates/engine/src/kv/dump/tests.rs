use super::*;
use crate::kv::memory::{MemoryKv, Rates};
use crate::kv::{EngineKind, KvError, Moved, Snapshot, Writes, open};
use parking_lot::Mutex;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Keys and values of many lengths, some empty, and some longer than a block.
async fn fill(kv: &dyn Kv, pairs: usize) {
    for first in (0..pairs).step_by(500) {
        let mut tx = Transaction::begin(kv).await.unwrap();
        for nth in first..pairs.min(first + 500) {
            let len = if nth % 1_999 == 7 { BLOCK_BYTES + nth } else { nth % 3_000 };
            tx.put(format!("k{nth:06}").into_bytes(), vec![nth as u8; len]);
        }
        assert_eq!(tx.commit(kv).await.unwrap(), Outcome::Committed);
    }
}

/// What a store holds, marks left out.
async fn all(kv: &dyn Kv) -> Vec<Pair> {
    let snapshot = kv.snapshot().await.unwrap();
    let mut pairs = snapshot.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).await.unwrap();
    pairs.retain(|(key, _)| !key.starts_with(OURS));
    pairs
}

/// Verifies a file, and imports it.
async fn import(kv: &dyn Kv, file: &Path, progress: impl Fn(Progress)) -> Result<Dump> {
    let dump = verify(file, &progress)?;
    super::import(kv, file, &dump, progress).await?;
    Ok(dump)
}

async fn filled(pairs: usize) -> MemoryKv {
    let kv = MemoryKv::new();
    fill(&kv, pairs).await;
    kv
}

fn draft(file: &Path) -> PathBuf {
    file.with_extension("part")
}

/// A store that ends in front of a commit, as a process that is killed does.
struct Failing {
    kv: Arc<dyn Kv>,
    commits_left: Mutex<usize>,
    /// How often it was read.
    snapshots: Mutex<usize>,
}

impl Failing {
    /// The first commit is the 1st.
    fn before(kv: &Arc<dyn Kv>, commit: usize) -> Self {
        Self { kv: kv.clone(), commits_left: Mutex::new(commit), snapshots: Mutex::default() }
    }
}

#[async_trait::async_trait]
impl Kv for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    async fn snapshot(&self) -> crate::kv::Result<Arc<dyn Snapshot>> {
        *self.snapshots.lock() += 1;
        self.kv.snapshot().await
    }

    async fn commit(
        &self,
        snapshot: Arc<dyn Snapshot>,
        writes: Writes,
    ) -> crate::kv::Result<Outcome> {
        let left = {
            let mut left = self.commits_left.lock();
            *left = left.saturating_sub(1);
            *left
        };
        match left {
            0 => Err(KvError::Full { store: "failing".into(), next: "" }),
            _ => self.kv.commit(snapshot, writes).await,
        }
    }

    async fn sync(&self) -> crate::kv::Result<()> {
        self.kv.sync().await
    }
}

#[tokio::test]
async fn every_engine_s_store_is_moved_to_every_other() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let first: Arc<dyn Kv> = Arc::new(filled(6_000).await);
    let wanted = all(&*first).await;
    let stores = [
        first,
        open(EngineKind::Fjall, &at("fjall")).unwrap(),
        open(EngineKind::Redb, &at("redb")).unwrap(),
        open(EngineKind::Fjall, &at("fjall again")).unwrap(),
        Arc::new(MemoryKv::new()),
    ];
    for (nth, pair) in stores.windows(2).enumerate() {
        let file = at(&format!("file{nth}"));
        let made = export(&*pair[0], "about", &file, None).await.unwrap();
        assert_eq!((made.pairs, &*made.about), (6_000, "about"));
        assert!(is_what_was_exported(&*pair[0], &made.id).await.unwrap());
        assert_eq!(import(&*pair[1], &file, |_| ()).await.unwrap(), made);
        assert_eq!(all(&*pair[1]).await, wanted);
        assert_eq!(import(&*pair[1], &file, |_| ()).await.unwrap(), made, "once more");
        assert!(!is_what_was_exported(&*pair[1], &made.id).await.unwrap());
        assert!(is_import_of(&*pair[1], &made.id).await.unwrap());
        forget(&*pair[0]).await.unwrap();
        forget(&*pair[1]).await.unwrap();
        assert!(!is_import_of(&*pair[1], &made.id).await.unwrap());
        assert!(!is_what_was_exported(&*pair[0], &made.id).await.unwrap());
        assert_eq!(all(&*pair[0]).await, wanted);
        let error = import(&*pair[1], &file, |_| ()).await.unwrap_err();
        assert!(matches!(error, DumpError::NotEmpty { .. }), "{error}");
    }
}

#[tokio::test]
async fn an_empty_store_is_moved_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    assert_eq!(export(&MemoryKv::new(), "", &file, None).await.unwrap().pairs, 0);
    let to = MemoryKv::new();
    import(&to, &file, |_| ()).await.unwrap();
    forget(&to).await.unwrap();
    assert!(page(&to, None).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_export_that_was_cut_off_anywhere_goes_on_unless_a_server_has_started_since() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let from = filled(4_000).await;
    let id = export(&from, "", &file, None).await.unwrap().id;
    let whole = std::fs::read(&file).unwrap();
    for len in
        [0, 5, 36, 37, 40, 1_500_000, 2_500_000, whole.len() - 33, whole.len() - 1, whole.len()]
    {
        std::fs::remove_file(&file).unwrap();
        std::fs::write(draft(&file), &whole[..len]).unwrap();
        std::fs::set_permissions(draft(&file), Permissions::from_mode(0o600)).unwrap();
        assert_eq!(export(&from, "", &file, None).await.unwrap().id, id);
        assert!(std::fs::read(&file).unwrap() == whole, "cut off at {len}");
        assert!(!draft(&file).exists());
    }
    // One that goes on reads only what is missing.
    std::fs::rename(&file, draft(&file)).unwrap();
    let exported = Mutex::new(0);
    let count = |now: Progress| *exported.lock() += usize::from(now.step == Step::Export);
    export(&from, "", &file, Some(&count)).await.unwrap();
    assert_eq!(*exported.lock(), 0);
    // A server was there meanwhile, and has changed something.
    std::fs::rename(&file, draft(&file)).unwrap();
    forget(&from).await.unwrap();
    fill(&from, 4_100).await;
    assert_ne!(export(&from, "", &file, None).await.unwrap().id, id);
    let to = MemoryKv::new();
    import(&to, &file, |_| ()).await.unwrap();
    assert_eq!(all(&to).await, all(&from).await);
}

/// Nobody knew how much followed: there was no bar, and no time left.
#[tokio::test]
async fn an_export_knows_how_much_there_is_before_it_writes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let from = filled(5_000).await;
    let exporting = async || {
        let told = Mutex::new(Vec::new());
        let tell = |now: Progress| {
            if now.step == Step::Export {
                told.lock().push((now.bytes, now.bytes_total.unwrap()));
            }
        };
        export(&from, "", &file, Some(&tell)).await.unwrap();
        told.into_inner()
    };
    let told = exporting().await;
    let whole = std::fs::read(&file).unwrap();
    let is_near = |total: u64| total.abs_diff(whole.len() as u64) < 1_000;
    assert!(told.len() > 1 && told.iter().all(|(bytes, total)| bytes <= total && is_near(*total)));
    // One that goes on counts what is there, too.
    std::fs::rename(&file, draft(&file)).unwrap();
    std::fs::OpenOptions::new().write(true).open(draft(&file)).unwrap().set_len(1_500_000).unwrap();
    assert!(exporting().await.iter().all(|(_, total)| is_near(*total)));
}

/// It was read twice, for a bar that nobody saw, while all servers were stopped.
#[tokio::test]
async fn a_store_is_read_once_where_nobody_looks_how_far_its_export_is() {
    let dir = tempfile::tempdir().unwrap();
    let kv: Arc<dyn Kv> = Arc::new(filled(5_000).await);
    let kv = Failing::before(&kv, usize::MAX);
    let tell: &(dyn Fn(Progress) + Sync) = &|_| ();
    let reads = async |name: &str, is_watched: bool| {
        let before = *kv.snapshots.lock();
        let file = dir.path().join(name);
        export(&kv, "", &file, is_watched.then_some(tell)).await.unwrap();
        *kv.snapshots.lock() - before
    };
    // The first one leaves its mark, which the next ones find.
    reads("first", false).await;
    let pages = 5_000_usize.div_ceil(PAGE) + 1;
    assert_eq!(reads("watched", true).await, reads("unwatched", false).await + pages);
}

#[tokio::test]
async fn an_export_overwrites_nothing_and_only_its_owner_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let from = filled(10).await;
    let error = export(&from, "", &file, None).await.unwrap_err();
    assert!(matches!(error, DumpError::Exists { .. }), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    assert!(!draft(&file).exists());
    let file = dir.path().join("other");
    export(&from, "", &file, None).await.unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let error = export(&from, "", &dir.path().join("no/dir"), None).await.unwrap_err();
    assert!(error.to_string().contains("no/dir.part"), "{error}");
}

/// It was looked whether the name was free, and what got it before the draft did was lost.
#[test]
fn what_gets_the_name_of_an_export_in_the_moment_in_which_it_ends_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let (draft, file) = (dir.path().join("draft"), dir.path().join("file"));
    std::fs::write(&draft, "export").unwrap();
    std::fs::write(&file, "precious").unwrap();
    let error = file::rename_to_absent(&draft, &file).unwrap_err();
    assert!(matches!(&error, DumpError::Exists { path } if *path == file), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    std::fs::remove_file(&file).unwrap();
    file::rename_to_absent(&draft, &file).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"export");
    assert!(!draft.exists());
}

/// What has the name of a draft may be anybody's: nothing of it is lost, and nothing secret goes into it.
#[tokio::test]
async fn a_draft_that_is_not_one_s_own_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let from = filled(10).await;
    let refused = async |about: &str| {
        let before = std::fs::read(draft(&file)).unwrap();
        let error = export(&from, about, &file, None).await.unwrap_err();
        assert!(matches!(&error, DumpError::Exists { path } if *path == draft(&file)), "{error}");
        assert_eq!(std::fs::read(draft(&file)).unwrap(), before);
        std::fs::remove_file(draft(&file)).unwrap();
    };
    std::fs::write(draft(&file), "precious").unwrap();
    std::fs::set_permissions(draft(&file), Permissions::from_mode(0o600)).unwrap();
    refused("").await;
    export(&from, "", &file, None).await.unwrap();
    std::fs::copy(&file, draft(&file)).unwrap();
    std::fs::remove_file(&file).unwrap();
    refused("another server").await;
    std::fs::write(draft(&file), b"STRK").unwrap();
    std::fs::set_permissions(draft(&file), Permissions::from_mode(0o644)).unwrap();
    refused("").await;
    let elsewhere = dir.path().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, draft(&file)).unwrap();
    refused("").await;
    export(&from, "", &file, None).await.unwrap();
}

/// What this thread has read so far; `None`: the kernel does not count it.
fn bytes_read() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

/// All of it was, into memory.
#[tokio::test]
async fn of_a_draft_that_is_no_export_no_more_is_read_than_its_head() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let large = std::fs::File::create(draft(&file)).unwrap();
    large.set_len(64 << 20).unwrap();
    large.set_permissions(Permissions::from_mode(0o600)).unwrap();
    let from = filled(10).await;
    let before = bytes_read();
    let error = export(&from, "", &file, None).await.unwrap_err();
    assert!(matches!(&error, DumpError::Exists { path } if *path == draft(&file)), "{error}");
    let read = bytes_read().zip(before).map_or(0, |(after, before)| after - before);
    assert!(read < 1 << 20, "{read} bytes");
}

#[tokio::test]
async fn an_import_that_was_killed_before_any_commit_goes_on_there() {
    let dir = tempfile::tempdir().unwrap();
    let (file, other) = (dir.path().join("file"), dir.path().join("other"));
    let from = filled(5_000).await;
    export(&from, "", &file, None).await.unwrap();
    export(&filled(10).await, "", &other, None).await.unwrap();
    let embedded = open(EngineKind::Redb, &dir.path().join("redb")).unwrap();
    for to in [Arc::new(MemoryKv::new()) as Arc<dyn Kv>, embedded] {
        let mut before = 0;
        let mut tries = 0;
        // One commit in each try.
        while import(&Failing::before(&to, 2), &file, |_| ()).await.is_err() {
            let here = all(&*to).await;
            assert!(here.len() >= before && here.len() - before <= COMMIT_PAIRS);
            before = here.len();
            let error = import(&*to, &other, |_| ()).await.unwrap_err();
            assert!(matches!(error, DumpError::OtherImport { .. }), "{error}");
            // No server may take a part for the whole.
            let error = forget(&*to).await.unwrap_err();
            assert!(matches!(error, DumpError::Unfinished { .. }), "{error}");
            tries += 1;
        }
        assert!(tries > 5_000 / COMMIT_PAIRS, "{tries}");
        assert_eq!(all(&*to).await, all(&from).await);
        // A start that is killed in between is no half import.
        forget(&Failing::before(&to, 2)).await.unwrap_err();
        forget(&*to).await.unwrap();
    }
}

fn move_of(export: DumpId, to: &str) -> Moved {
    Moved { export, at_ms: 0, to: to.into(), host: "there".into() }
}

/// Nobody could tell the old store from the new one, and who was started on the old one led it, too.
#[tokio::test]
async fn a_store_that_was_moved_is_closed_until_the_move_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (file, second) = (dir.path().join("file"), dir.path().join("second"));
    let from = filled(100).await;
    let id = export(&from, "", &file, None).await.unwrap().id;
    let (wanted, other) = (move_of(id, "etcd://h:2379/n"), move_of(id, "etcd://h:2379/other"));
    assert!(moved(&from).await.unwrap().is_none());
    assert!(close(&from, &wanted).await.unwrap());
    assert!(close(&from, &Moved { at_ms: 7, ..wanted.clone() }).await.unwrap(), "once more");
    assert_eq!(moved(&from).await.unwrap(), Some(wanted.clone()));
    for refused in [
        close(&from, &other).await.map(drop),
        forget(&from).await,
        export(&from, "", &second, None).await.map(drop),
        check_open(&from).await.map_err(DumpError::from),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, DumpError::Store(KvError::Moved { .. })), "{error}");
        let said = error.to_string();
        for word in ["is closed", "--meta etcd://h:2379/n", "strake meta reopen"] {
            assert!(said.contains(word), "{said}");
        }
    }
    let error = import(&from, &file, |_| ()).await.unwrap_err();
    assert!(matches!(error, DumpError::NotEmpty { .. }), "{error}");
    // What is imported is open, and goes on from where it was interrupted.
    let to: Arc<dyn Kv> = Arc::new(MemoryKv::new());
    import(&Failing::before(&to, 2), &file, |_| ()).await.unwrap_err();
    import(&*to, &file, |_| ()).await.unwrap();
    forget(&*to).await.unwrap();
    assert_eq!(all(&*to).await, all(&from).await);
    reopen(&from).await.unwrap();
    assert!(is_what_was_exported(&from, &id).await.unwrap());
    assert!(close(&from, &other).await.unwrap(), "the next move");
    reopen(&from).await.unwrap();
    forget(&from).await.unwrap();
}

/// A metadata server that was not stopped went on to serve, and what it acknowledged was missing where the file was imported.
#[tokio::test]
async fn from_an_export_or_an_import_on_nobody_serves_until_somebody_leads() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let from: Arc<dyn Kv> = Arc::new(filled(3_000).await);
    let to: Arc<dyn Kv> = Arc::new(MemoryKv::new());
    let refused = async |kv: &Arc<dyn Kv>| {
        let error = check_led(&**kv).await.unwrap_err();
        assert!(matches!(error, KvError::Refused { .. }), "{error}");
        check_open(&**kv).await.unwrap();
    };
    check_led(&*from).await.unwrap();
    check_led(&*to).await.unwrap();
    export(&*from, "", &file, None).await.unwrap();
    refused(&from).await;
    import(&Failing::before(&to, 3), &file, |_| ()).await.unwrap_err();
    refused(&to).await;
    import(&*to, &file, |_| ()).await.unwrap();
    refused(&to).await;
    // Who is killed while he begins to lead has not led.
    forget(&Failing::before(&to, 2)).await.unwrap_err();
    refused(&to).await;
    for kv in [from, to] {
        forget(&*kv).await.unwrap();
        check_led(&*kv).await.unwrap();
    }
}

/// An export may be a copy to keep.
#[tokio::test]
async fn an_export_leaves_its_store_open_and_what_has_changed_since_is_not_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (file, second) = (dir.path().join("file"), dir.path().join("second"));
    let from = filled(100).await;
    let first = export(&from, "", &file, None).await.unwrap().id;
    forget(&from).await.unwrap();
    assert!(!close(&from, &move_of(first, "")).await.unwrap());
    let id = export(&from, "", &second, None).await.unwrap().id;
    assert!(!close(&from, &move_of(first, "")).await.unwrap());
    assert!(moved(&from).await.unwrap().is_none());
    // Where it was imported, it may go on from the same file.
    let to = MemoryKv::new();
    import(&to, &second, |_| ()).await.unwrap();
    assert!(close(&from, &move_of(id, "")).await.unwrap());
    assert!(close(&to, &move_of(id, "etcd://h:2379/n")).await.unwrap());
    assert!(forget(&to).await.is_err());
}

#[tokio::test]
async fn a_store_that_says_in_an_unknown_way_where_it_was_moved_is_closed_too() {
    let from = filled(1).await;
    let mut tx = Transaction::begin(&from).await.unwrap();
    tx.put(MOVED.to_vec(), "2\nsomewhere");
    assert_eq!(tx.commit(&from).await.unwrap(), Outcome::Committed);
    let error = forget(&from).await.unwrap_err().to_string();
    assert!(error.contains("it was moved") && error.contains("install the release"), "{error}");
}

/// An engine that loses answers, with what it had or without, and invents conflicts.
#[tokio::test]
async fn a_commit_of_which_nobody_knows_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..20 {
        let file = dir.path().join(format!("file{seed}"));
        let from = MemoryKv::adversarial(seed, Rates::ROUGH);
        for nth in 0..50_u8 {
            while fill_one(&from, nth).await != Outcome::Committed {}
        }
        let id = export(&from, "", &file, None).await.unwrap().id;
        assert!(is_what_was_exported(&from, &id).await.unwrap());
        let to = MemoryKv::adversarial(seed + 100, Rates { unknown: 0.4, ..Rates::ROUGH });
        import(&to, &file, |_| ()).await.unwrap();
        assert_eq!(all(&to).await, all(&from).await);
        assert!(close(&from, &move_of(id, "")).await.unwrap());
        reopen(&from).await.unwrap();
        forget(&from).await.unwrap();
        assert!(!is_what_was_exported(&from, &id).await.unwrap());
    }
}

async fn fill_one(kv: &dyn Kv, nth: u8) -> Outcome {
    let mut tx = Transaction::begin(kv).await.unwrap();
    tx.put(vec![b'k', nth], vec![nth; 100_000]);
    tx.commit(kv).await.unwrap()
}

#[tokio::test]
async fn an_import_into_a_store_that_others_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    export(&filled(3_000).await, "", &file, None).await.unwrap();
    let to = MemoryKv::new();
    let seen = Mutex::new(None);
    let intrude = |now: Progress| {
        if now.step == Step::Import {
            *seen.lock() = Some(now.bytes_total);
            // What another one would have to change to go on with the import himself.
            let other = to.clone();
            let intruder = async move {
                let mut tx = Transaction::begin(&other).await.unwrap();
                tx.put(IMPORTING.to_vec(), vec![7; 30]);
                assert_eq!(tx.commit(&other).await.unwrap(), Outcome::Committed);
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build();
                    runtime.unwrap().block_on(intruder);
                });
            });
        }
    };
    let error = import(&to, &file, intrude).await.unwrap_err();
    assert!(matches!(error, DumpError::InUse { .. }), "{error}");
    assert_eq!(*seen.lock(), Some(Some(std::fs::metadata(&file).unwrap().len())));
}

/// A store in which a value has changed, one is missing, or one is too many, after it was written.
#[tokio::test]
async fn what_the_store_does_not_hold_as_written_is_found_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let id = export(&filled(3_000).await, "", &file, None).await.unwrap().id;
    let damage: [(&str, Option<&[u8]>); 4] =
        [("k001234", Some(b"x")), ("k002999", None), ("k002999x", Some(b"x")), ("a", Some(b""))];
    for (key, value) in damage {
        let to = MemoryKv::new();
        fill(&to, 3_000).await;
        let mut tx = Transaction::begin(&to).await.unwrap();
        match value {
            Some(value) => tx.put(key.into(), value.to_vec()),
            None => tx.delete(key.into()),
        }
        // All of it was written, says the mark.
        tx.put(IMPORTING.to_vec(), [&id[..], b"k002999"].concat());
        assert_eq!(tx.commit(&to).await.unwrap(), Outcome::Committed);
        let error = import(&to, &file, |_| ()).await.unwrap_err();
        assert!(matches!(error, DumpError::Differs { .. }), "{key}: {error}");
    }
}

#[tokio::test]
async fn a_file_that_was_changed_anywhere_is_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    export(&filled(300).await, "whose", &file, None).await.unwrap();
    let whole = std::fs::read(&file).unwrap();
    let to = MemoryKv::new();
    let ends = (0..50).chain(whole.len() - 40..whole.len());
    for at in (50..whole.len()).step_by(9_973).chain(ends) {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        std::fs::write(&file, &bad).unwrap();
        let error = import(&to, &file, |_| ()).await.unwrap_err();
        let expected = match at {
            0..8 => matches!(error, DumpError::NoExport { .. }),
            8..12 => matches!(error, DumpError::Newer { .. }),
            _ => matches!(error, DumpError::Corrupt { .. }),
        };
        assert!(expected && error.to_string().contains("file"), "{at}: {error}");
        std::fs::write(&file, &whole[..at]).unwrap();
        let error = import(&to, &file, |_| ()).await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains("cut off") && told.contains("at byte"), "{at}: {told}");
    }
    std::fs::write(&file, [&whole[..], b"more"].concat()).unwrap();
    let error = import(&to, &file, |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("something follows"), "{error}");
    assert!(page(&to, None).await.unwrap().is_empty());
    std::fs::write(&file, &whole).unwrap();
    import(&to, &file, |_| ()).await.unwrap();
}

/// The bytes that docs/FORMATS.md describes.
#[tokio::test]
async fn a_file_of_version_1_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let fixture = include_bytes!("fixtures/export-v1.bin");
    std::fs::write(&file, fixture).unwrap();
    let to = MemoryKv::new();
    let dump = import(&to, &file, |_| ()).await.unwrap();
    assert_eq!((dump.id, &*dump.about, dump.pairs, dump.bytes), ([7; 16], "whose", 3, 10));
    assert_eq!(head(&file).unwrap(), ([7; 16], "whose".to_owned()));
    let pairs = [("a", ""), ("b", "value"), ("c!", "x")];
    let pairs = pairs.map(|(key, value)| (Bytes::from(key), Bytes::from(value)));
    assert_eq!(all(&to).await, pairs);
    let again = dir.path().join("again");
    let mut draft = Draft::begin(&again, [7; 16], "whose").unwrap();
    draft.put(&pairs[..2]).unwrap();
    draft.put(&pairs[2..]).unwrap();
    draft.end().unwrap().publish().unwrap();
    assert_eq!(std::fs::read(&again).unwrap(), fixture);
}
