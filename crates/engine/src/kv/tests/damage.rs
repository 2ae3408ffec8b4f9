//! Stores of which bytes are missing or wrong.

use super::workload::{self, factor, random, run};
use crate::kv::embedded::{Embedded, FORMS, Store};
use crate::kv::fjall::Lsm;
use crate::kv::redb::BTree;
use crate::kv::{Kv, KvError, Outcome, Transaction};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const CHECKPOINT_BYTES: u64 = 96 << 10;
/// Up to where the journal was synced, beside it.
const MARK: &str = "synced";
/// Bytes of a note, which a sync leaves at the end of the journal.
const NOTE_BYTES: usize = 48;

/// A copy of a store in use, as a crash would leave it.
struct Image {
    directory: TempDir,
    /// Everything up to this commit was synced ...
    synced: u64,
    /// ... when the last segment of the journal was this long.
    segment: (PathBuf, u64),
    committed: u64,
}

/// Makes `before` commits and some more, syncs, makes `after` commits, and copies the directory of
/// the open store.
fn image<S: Store>(before: u64, after: u64) -> Image {
    let original = tempfile::tempdir().unwrap();
    let kv = Embedded::<S>::open_with(original.path(), CHECKPOINT_BYTES).unwrap();
    let mut synced = 0;
    let mut commit = |count| {
        for _ in 0..count {
            synced += 1;
            run(workload::commit(&kv, 0, synced)).unwrap();
        }
        synced
    };
    commit(before);
    // No checkpoint is under way now, and none begins until the image is taken.
    while settled(original.path()) > CHECKPOINT_BYTES / 3 {
        commit(1);
    }
    let synced = commit(20);
    run(async { kv.sync().await.unwrap() });
    let length = settled(original.path());
    let segment = segments(original.path()).pop().unwrap();
    let mark = fs::read(original.path().join(MARK)).unwrap();
    for n in synced + 1..=synced + after {
        run(workload::commit(&kv, 0, n)).unwrap();
    }
    let directory = copy(original.path());
    // What was synced meanwhile, in the background, is not said.
    fs::write(directory.path().join(MARK), mark).unwrap();
    Image {
        segment: (segment.file_name().unwrap().into(), length),
        directory,
        synced,
        committed: synced + after,
    }
}

/// Waits until only one segment is left; returns its length.
fn settled(directory: &Path) -> u64 {
    loop {
        if let [segment] = &segments(directory)[..] {
            return fs::metadata(segment).unwrap().len();
        }
        std::thread::yield_now();
    }
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut segments: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("journal-"))
        .collect();
    segments.sort();
    segments
}

fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    copy_into(from, to.path());
    to
}

fn copy_into(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy_into(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Opens a store and counts the commits in it.
fn heads<S: Store>(directory: &Path) -> Result<u64, KvError> {
    let kv = Embedded::<S>::open_with(directory, CHECKPOINT_BYTES)?;
    Ok(run(workload::verify(&kv, 1)).unwrap()[0])
}

fn flip(path: &Path, offset: u64, mask: u8) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ mask], offset).unwrap();
}

/// Cuts, overwrites with zeros or with rubbish the end of the journal that was never synced.
fn an_unsynced_end_may_be_torn<S: Store>() {
    let image = image::<S>(150, 25);
    let mut random = random(1);
    for round in 0..16 * factor() {
        let torn = copy(image.directory.path());
        let path = torn.path().join(&image.segment.0);
        let len = fs::metadata(&path).unwrap().len();
        assert!(len > image.segment.1, "the unsynced commits are in the same segment");
        let offset = image.segment.1 + random.below((len - image.segment.1) as usize) as u64;
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let rest = (len - offset) as usize;
        match round % 4 {
            0 => file.set_len(offset).unwrap(),
            1 => file.write_all_at(&vec![0; rest], offset).unwrap(),
            2 => file.write_all_at(&vec![0xA5; random.below(rest) + 1], offset).unwrap(),
            _ => flip(&path, offset, 1),
        }
        let head = heads::<S>(torn.path()).unwrap();
        assert!((image.synced..=image.committed).contains(&head), "{head} of {}", image.committed);
        assert_eq!(heads::<S>(torn.path()).unwrap(), head, "it stays so");
    }
}

/// The fault of fjall's own journal: there, all that follows a damaged record is dropped without
/// a word, as if power had been lost, although it had been synced.
fn a_flipped_bit_in_the_synced_journal_is_corruption<S: Store>() {
    let image = image::<S>(150, 0);
    let mut random = random(2);
    let mut refused = 0;
    for _ in 0..24 * factor() {
        let rotten = copy(image.directory.path());
        let path = rotten.path().join(&image.segment.0);
        flip(&path, random.below(image.segment.1 as usize) as u64, 1 << random.below(8));
        match heads::<S>(rotten.path()) {
            // The bit was in the note that a sync leaves, or in what the store has anyway.
            Ok(head) => assert_eq!(head, image.committed),
            Err(KvError::Corrupt { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0);
}

/// The last block took the notes along that spoke of it: what had been synced was cut off as if it had never been, and all was
/// gone without a word where the journal was short.
fn a_damaged_end_is_corruption_after_an_orderly_stop<S: Store>() {
    let stopped = tempfile::tempdir().unwrap();
    let kv = Embedded::<S>::open_with(stopped.path(), 1 << 20).unwrap();
    for n in 1..=20 {
        run(workload::commit(&kv, 0, n)).unwrap();
    }
    drop(kv);
    let segment = segments(stopped.path()).pop().unwrap();
    let whole = fs::read(&segment).unwrap();
    let needed = whole.len() - NOTE_BYTES;
    for from in [0, 1, needed / 2, needed - 100, needed - 1, needed] {
        for zeros in [0, whole.len() - from] {
            let damaged = copy(stopped.path());
            let path = damaged.path().join(segment.file_name().unwrap());
            let mut bytes = whole[..from].to_vec();
            bytes.resize(from + zeros, 0);
            fs::write(&path, bytes).unwrap();
            match heads::<S>(damaged.path()) {
                Ok(head) => assert!(from == needed && head == 20, "{head} with {from} bytes"),
                Err(error) => {
                    let told = error.to_string();
                    assert!(from < needed && matches!(error, KvError::Corrupt { .. }), "{told}");
                    assert!(told.contains("journal-") && told.contains("a backup"), "{told}");
                    // Nothing was cut.
                    fs::write(&path, &whole).unwrap();
                    assert_eq!(heads::<S>(damaged.path()).unwrap(), 20);
                }
            }
        }
    }
}

/// Only what was never synced may be cut off, and the mark does not have to be there.
fn a_damaged_end_is_corruption_after_a_crash_if_it_was_synced<S: Store>() {
    let image = image::<S>(150, 25);
    let whole = image.segment.1 as usize;
    for (left, is_synced) in
        [(whole, true), (whole - NOTE_BYTES, true), (whole - NOTE_BYTES - 1, false)]
    {
        let torn = copy(image.directory.path());
        let path = torn.path().join(&image.segment.0);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(left as u64).unwrap();
        match heads::<S>(torn.path()) {
            Ok(head) => assert!(is_synced && head == image.synced, "{head} with {left} bytes"),
            Err(error) => {
                assert!(!is_synced && matches!(error, KvError::Corrupt { .. }), "{error}")
            }
        }
    }
    fs::remove_file(image.directory.path().join(MARK)).unwrap();
    let head = heads::<S>(image.directory.path()).unwrap();
    assert!(head >= image.synced, "{head} of {}", image.synced);
}

/// A note as a user can forge it, who knows the format, and perhaps the salt: it claims that a
/// version far ahead was synced.
fn forged_record(salt: &[u8]) -> Vec<u8> {
    let form = FORMS.iter().find(|form| form.name == "record").unwrap();
    let mut record = (form.samples)().pop().unwrap();
    record[..8].copy_from_slice(salt);
    record[20..44].copy_from_slice(&[0x7F; 24]);
    (form.seal)(&mut record);
    record
}

/// The contents of a user's small file travel inside a commit, and lie in the journal as they are.
/// The power goes before that commit is synced, and its beginning does not reach the disk, but the
/// forged records in it do. Only if they had the journal's salt would they be believed.
fn a_forged_record_in_a_users_file_does_not_stop_the_store_after_a_power_loss<S: Store>() {
    let original = tempfile::tempdir().unwrap();
    let kv = Embedded::<S>::open_with(original.path(), 1 << 20).unwrap();
    for n in 1..=20 {
        run(workload::commit(&kv, 0, n)).unwrap();
    }
    run(async { kv.sync().await.unwrap() });
    let begin = settled(original.path()) as usize;
    let segment = segments(original.path()).pop().unwrap();
    let mark = fs::read(original.path().join(MARK)).unwrap();
    let salt = fs::read(&segment).unwrap()[40..48].to_vec();
    let secrets = [b"a secret".to_vec(), vec![0; 8], vec![0xFF; 8], b"STRKJRNL".to_vec()];
    let contents: Vec<u8> = secrets.iter().flat_map(|salt| forged_record(salt)).collect();
    run(async {
        let mut transaction = Transaction::begin(&kv).await.unwrap();
        transaction.put(b"file".to_vec(), contents.clone());
        assert_eq!(transaction.commit(&kv).await.unwrap(), Outcome::Committed);
    });
    let torn = copy(original.path());
    let path = torn.path().join(segment.file_name().unwrap());
    let mut bytes = fs::read(&path).unwrap();
    let found = bytes.windows(contents.len()).position(|window| window == contents).unwrap();
    assert!(found > begin);
    // What was synced meanwhile, in the background, is taken away again.
    bytes.truncate(found + contents.len());
    bytes[begin..found].fill(0);
    fs::write(&path, &bytes).unwrap();
    fs::write(torn.path().join(MARK), mark).unwrap();
    assert_eq!(heads::<S>(copy(torn.path()).path()).unwrap(), 20);

    bytes.splice(found.., forged_record(&salt));
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(heads::<S>(torn.path()), Err(KvError::Corrupt { .. })));
}

fn a_missing_segment_is_corruption<S: Store>() {
    let image = image::<S>(300, 0);
    let path = image.directory.path().join(&image.segment.0);
    fs::remove_file(path).unwrap();
    let error = heads::<S>(image.directory.path()).unwrap_err();
    assert!(matches!(error, KvError::Corrupt { .. }), "{error}");
}

/// A store that has lost its checkpoints, but not its journal.
fn a_store_older_than_its_journal_is_corruption<S: Store>() {
    let image = image::<S>(300, 0);
    fs::remove_dir_all(image.directory.path().join(S::NAME)).unwrap();
    let error = heads::<S>(image.directory.path()).unwrap_err();
    assert!(error.to_string().contains("the journal begins after version"), "{error}");
}

/// Any file of the store cut short: what is opened is right, or refused.
fn a_cut_file_is_refused_or_harmless<S: Store>() {
    let image = image::<S>(300, 10);
    let mut files = Vec::new();
    list(&image.directory.path().join(S::NAME), &mut files);
    let mut random = random(3);
    for file in files {
        let cut = copy(image.directory.path());
        let path = cut.path().join(file.strip_prefix(image.directory.path()).unwrap());
        let len = fs::metadata(&path).unwrap().len();
        if len == 0 {
            continue;
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(random.below(len as usize) as u64).unwrap();
        match Embedded::<S>::open_with(cut.path(), CHECKPOINT_BYTES) {
            Ok(kv) => {
                // Damage that is found only when it is read is an error then.
                if let Ok(heads) = run(workload::verify(&kv, 1)) {
                    assert_eq!(heads, [image.committed], "{}", path.display());
                }
            }
            Err(KvError::Corrupt { .. } | KvError::Io { .. }) => {}
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// A bit of a table: the block's checksum finds it when it is read.
#[test]
fn fjall_finds_a_flipped_bit_in_a_table() {
    let image = image::<Lsm>(300, 0);
    let mut files = Vec::new();
    list(&image.directory.path().join("fjall/tables"), &mut files);
    let mut random = random(4);
    let mut found = 0;
    for _ in 0..16 * factor() {
        let rotten = copy(image.directory.path());
        let file = &files[random.below(files.len())];
        let path = rotten.path().join(file.strip_prefix(image.directory.path()).unwrap());
        let len = fs::metadata(&path).unwrap().len() as usize;
        flip(&path, random.below(len) as u64, 1 << random.below(8));
        let opened = Embedded::<Lsm>::open_with(rotten.path(), CHECKPOINT_BYTES);
        match opened.map(|kv| run(workload::verify(&kv, 1))) {
            Ok(Ok(heads)) => assert_eq!(heads, [image.committed]),
            Ok(Err(text)) if text.contains("corrupt") => found += 1,
            Ok(Err(text)) => panic!("wrong contents: {text}"),
            Err(KvError::Corrupt { .. }) => found += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(found > 0);
}

macro_rules! on_each_engine {
    ($($test:ident),+) => {
        mod fjall {
            $(#[test] fn $test() { super::$test::<super::Lsm>(); })+
        }
        mod redb {
            $(#[test] fn $test() { super::$test::<super::BTree>(); })+
        }
    };
}

on_each_engine!(
    an_unsynced_end_may_be_torn,
    a_flipped_bit_in_the_synced_journal_is_corruption,
    a_damaged_end_is_corruption_after_an_orderly_stop,
    a_damaged_end_is_corruption_after_a_crash_if_it_was_synced,
    a_forged_record_in_a_users_file_does_not_stop_the_store_after_a_power_loss,
    a_missing_segment_is_corruption,
    a_store_older_than_its_journal_is_corruption,
    a_cut_file_is_refused_or_harmless
);
