use super::{ASK_MS_MAX, ASKED_MAX, Asked, Findings, PARALLEL, Subject, chunks, inodes};
use crate::contents::layout_of;
use crate::ctx::Ctx;
use crate::keys;
use crate::ops::rename::TOPOLOGY;
use crate::records::{self, Entry, Inode, Mark, Raw, Shard, Stat};
use crate::tests::check::check as oracle;
use crate::tests::refusing::Refusing;
use crate::tests::world::*;
use crate::view::Tx;
use bytes::Bytes;
use prost::Message;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::kv::{Outcome, Transaction};
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, ErrorKind, FileKind, GroupId, Ino, VolumeId};
use strake_wire::message::meta::{
    Check, CheckPart, Checked, MetaAnswer, MetaOp, OpenMode, Problem, Publish,
};
use strake_wire::message::storage::StorageOp;

const V: VolumeId = VolumeId(1);

/// Looks through everything in small pages, as the verb does.
pub async fn fsck(user: &User<'_>, repair: bool) -> Vec<Problem> {
    let mut all = Vec::new();
    let parts = [CheckPart::Entries, CheckPart::Inodes, CheckPart::Leftovers].map(|part| (part, 0));
    let targets = [11, 12, 13].map(|target| (CheckPart::Chunks, target));
    let totals = (CheckPart::Totals, 0);
    for (part, target) in parts.into_iter().chain(targets).chain([totals]) {
        let mut check = Check { part: part as u32, limit: 7, repair, target, ..Check::default() };
        loop {
            let mut page = ask(user, &check).await;
            let nameless = |problem: &Problem| problem.what == super::inodes::NAMELESS;
            let below = |problem: &Problem| problem.what == "directory-below-itself";
            if repair && page.problems.iter().any(|p| (nameless(p) || below(p)) && !p.mended) {
                check.lost_found = match user.lookup(1, "lost+found").await {
                    Ok(found) => found.ino,
                    Err(_) => user.mkdir(1, "lost+found").await.unwrap(),
                };
                page.problems.retain(|problem| problem.mended);
                page.problems.extend(ask(user, &check).await.problems);
            }
            all.extend(page.problems);
            if page.next.is_empty() {
                break;
            }
            check.after = page.next;
        }
    }
    all
}

async fn ask(user: &User<'_>, check: &Check) -> Checked {
    match user.call(MetaOp::Check(check.clone())).await.unwrap() {
        MetaAnswer::Checked(page) => page,
        other => panic!("{other:?}"),
    }
}

/// Edits of the store behind the server's back.
struct Edits<'a> {
    world: &'a World,
}

impl Edits<'_> {
    async fn get<T: Message + Default>(&self, key: &[u8]) -> T {
        let tx = Transaction::begin(&*self.world.kv).await.unwrap();
        let value = tx.get(key).await.unwrap().expect("it is there");
        records::decode(key, &value).unwrap()
    }

    async fn set(&self, key: Vec<u8>, value: Option<Bytes>) {
        let mut tx = Transaction::begin(&*self.world.kv).await.unwrap();
        match value {
            Some(value) => tx.put(key, value),
            None => tx.delete(key),
        }
        assert_eq!(tx.commit(&*self.world.kv).await.unwrap(), Outcome::Committed);
    }

    async fn put(&self, key: Vec<u8>, value: &impl Message) {
        self.set(key, Some(records::encode(value))).await;
    }

    async fn delete(&self, key: Vec<u8>) {
        self.set(key, None).await;
    }

    async fn inode(&self, ino: u64, change: impl FnOnce(&mut Inode)) {
        let key = keys::inode(V, Ino(ino));
        let mut inode: Inode = self.get(&key).await;
        change(&mut inode);
        self.put(key, &inode).await;
    }
}

/// `/d/sub`, `/d/file` (also `/d/second`), `/d/lone`, `/d/link`, `/open`.
struct Tree {
    world: World,
    d: u64,
    sub: u64,
    file: u64,
    lone: u64,
}

impl Tree {
    async fn new() -> Tree {
        let world = World::new().await;
        let root = world.root();
        let d = root.mkdir(1, "d").await.unwrap();
        let sub = root.mkdir(d, "sub").await.unwrap();
        let file = root.file(d, "file").await.unwrap();
        root.link(file, d, "second").await.unwrap();
        let lone = root.file(d, "lone").await.unwrap();
        root.write(lone, 0, b"contents").await.unwrap();
        root.setxattr(lone, "user.a", b"value").await.unwrap();
        for nth in 0..10 {
            root.file(sub, &format!("{nth}")).await.unwrap();
        }
        assert_eq!(fsck(&root, false).await, []);
        Tree { world, d, sub, file, lone }
    }

    /// Damages the store of a server that is stopped; what is found is this, and is mended.
    async fn damaged(self, expected: &[&str], damage: impl AsyncFnOnce(&Edits<'_>, &Tree)) {
        self.damaged_but(expected, damage).await;
    }

    async fn damaged_but(
        self,
        expected: &[&str],
        damage: impl AsyncFnOnce(&Edits<'_>, &Tree),
    ) -> World {
        self.world.halt().await;
        damage(&Edits { world: &self.world }, &self).await;
        let world = self.world.killed().await;
        world.open_session(world.session, &[]).await;
        let root = world.root();
        let words = |problems: &[Problem]| {
            let mut words: Vec<String> = problems.iter().map(|p| p.what.clone()).collect();
            words.sort();
            words.dedup();
            words
        };
        let found = fsck(&root, false).await;
        assert_eq!(words(&found), expected, "{found:#?}");
        assert!(found.iter().all(|problem| !problem.mended));
        let mended = fsck(&root, true).await;
        assert!(mended.iter().all(|problem| problem.mended), "{mended:#?}");
        assert_eq!(fsck(&root, false).await, [], "the second time");
        world.until(async || world.keys(b'G').await == 0).await;
        oracle(&*world.kv).await;
        world
    }
}

#[tokio::test]
async fn an_entry_that_leads_nowhere_goes() {
    let tree = Tree::new().await;
    let damage = async |edits: &Edits<'_>, tree: &Tree| {
        edits.delete(keys::inode(V, Ino(tree.lone))).await;
    };
    tree.damaged(&["entry-without-inode", "leftover-record"], damage).await;
}

#[tokio::test]
async fn an_inode_without_a_name_gets_one_among_the_lost_and_found() {
    let tree = Tree::new().await;
    let (lone, sub) = (tree.lone, tree.sub);
    let damage = async |edits: &Edits<'_>, tree: &Tree| {
        edits.delete(keys::entry(V, Ino(tree.d), b"lone")).await;
        edits.delete(keys::entry(V, Ino(tree.d), b"sub")).await;
    };
    let expected = ["inode-without-name", "leftover-record", "wrong-counts"];
    let world = tree.damaged_but(&expected, damage).await;
    let root = world.root();
    let found = root.lookup(1, "lost+found").await.unwrap().ino;
    assert_eq!(root.lookup(found, &format!("#{lone}")).await.unwrap().ino, lone);
    assert_eq!(root.read(lone).await.unwrap().unwrap(), &b"contents"[..]);
    let sub_again = root.lookup(found, &format!("#{sub}")).await.unwrap().ino;
    assert_eq!(root.names(sub_again).await.len(), 10);
}

#[tokio::test]
async fn counts_and_words_on_names_are_set_right() {
    let tree = Tree::new().await;
    let damage = async |edits: &Edits<'_>, tree: &Tree| {
        edits.inode(tree.lone, |inode| inode.nlink = 5).await;
        edits.inode(tree.file, |inode| inode.nlink = 1).await;
        edits.inode(tree.sub, |inode| inode.parent = 777).await;
        let key = keys::shard(V, Ino(tree.d), 0);
        let shard: Shard = edits.get(&key).await;
        edits.put(key, &Shard { entries: 99, ..shard }).await;
    };
    // Without repair the directory seems to have no name: the verb knows better by then.
    let expected = ["inode-without-name", "wrong-counts", "wrong-nlink", "wrong-parent"];
    tree.damaged(&expected, damage).await;
}

#[tokio::test]
async fn missing_records_are_made_anew() {
    let tree = Tree::new().await;
    let damage = async |edits: &Edits<'_>, tree: &Tree| {
        let entry: Entry = edits.get(&keys::entry(V, Ino(tree.d), b"lone")).await;
        edits.delete(keys::order(V, Ino(tree.d), entry.cookie)).await;
        edits.delete(keys::link(V, Ino(tree.file), Ino(tree.d), b"second")).await;
        edits.delete(keys::shard(V, Ino(tree.sub), 0)).await;
        edits.delete(keys::xattr(V, Ino(tree.lone), b"user.a")).await;
    };
    // A name that is not known is not counted either.
    let expected =
        ["entry-not-listed", "name-not-known", "wrong-counts", "wrong-nlink", "wrong-xattr-counts"];
    tree.damaged(&expected, damage).await;
}

#[tokio::test]
async fn what_belongs_to_nothing_goes() {
    let tree = Tree::new().await;
    let damage = async |edits: &Edits<'_>, tree: &Tree| {
        let raw = Raw { bytes: Bytes::from_static(b"x") };
        edits.put(keys::xattr(V, Ino(9_999), b"user.x"), &raw).await;
        edits.put(keys::contents(V, Ino(9_998)), &raw).await;
        edits
            .put(keys::lock(V, true, Ino(tree.lone), 9_997, None), &records::Locks::default())
            .await;
        edits.put(keys::result(V, 9_997, 3), &raw).await;
        edits.put(keys::shard(V, Ino(tree.lone), 0), &Shard::default()).await;
        edits.put(keys::link(V, Ino(tree.lone), Ino(tree.d), b"other"), &Mark {}).await;
        edits.put(keys::link(V, Ino(tree.file), Ino(tree.d), b"other"), &Mark {}).await;
        let entry = Entry { ino: tree.lone, kind: FileKind::File as u32, cookie: 1 << 20 };
        edits.put(keys::entry(V, Ino(9_996), b"nowhere"), &entry).await;
    };
    let expected = ["entry-without-directory", "leftover-record", "name-not-there"];
    tree.damaged(&expected, damage).await;
}

/// As if `/d` had been moved into `/d/sub`.
async fn put_below_itself(edits: &Edits<'_>, tree: &Tree) {
    let entry: Entry = edits.get(&keys::entry(V, Ino(1), b"d")).await;
    edits.delete(keys::entry(V, Ino(1), b"d")).await;
    edits.delete(keys::order(V, Ino(1), entry.cookie)).await;
    let entry = Entry { cookie: 500 << 8, ..entry };
    let order = records::Order {
        name: Bytes::from_static(b"d"),
        ino: tree.d,
        kind: FileKind::Directory as u32,
    };
    edits.put(keys::entry(V, Ino(tree.sub), b"d"), &entry).await;
    edits.put(keys::order(V, Ino(tree.sub), entry.cookie), &order).await;
    edits.inode(tree.d, |inode| inode.parent = tree.sub).await;
}

#[tokio::test]
async fn a_directory_below_itself_is_brought_back_to_the_root() {
    let damage = async |edits: &Edits<'_>, tree: &Tree| put_below_itself(edits, tree).await;
    Tree::new().await.damaged(&["directory-below-itself", "wrong-counts"], damage).await;
}

/// Two directories that were moved while one below them was walked up looked like it.
#[tokio::test]
async fn no_directory_is_called_below_itself_while_others_may_move() {
    let tree = Tree::new().await;
    tree.world.halt().await;
    put_below_itself(&Edits { world: &tree.world }, &tree).await;
    let world = tree.world.killed().await;
    world.open_session(world.session, &[]).await;
    let (root, core) = (world.root(), world.server.core());
    let moves = core.locks.lock(V, &[TOPOLOGY]).await;
    let check = Check { part: CheckPart::Inodes as u32, ..Check::default() };
    let mut asked = pin!(ask(&root, &check));
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut asked).await.is_err());
    drop(moves);
    let problems = asked.await.problems;
    assert!(problems.iter().any(|p| p.what == "directory-below-itself"), "{problems:?}");
}

/// Below 8,192 others it was taken for one below itself, and `--repair` moved it to `/lost+found`.
#[tokio::test]
async fn a_directory_very_far_below_the_root_is_sound() {
    let world = World::new().await;
    let root = world.root();
    let mut dir = 1;
    for _ in 0..8_200 {
        dir = root.mkdir(dir, "d").await.unwrap();
    }
    let (part, after) = (CheckPart::Inodes as u32, keys::inode(V, Ino(dir - 1)).into());
    let check = Check { part, after, limit: 1, repair: true, ..Check::default() };
    let page = ask(&root, &check).await;
    assert_eq!((page.looked_at, page.problems), (1, Vec::new()));
}

/// It stayed without one: the walk up to the root ended at that record, and the check of the directory with it.
#[tokio::test]
async fn a_directory_without_a_name_below_one_that_cannot_be_read_gets_one() {
    let world = World::new().await;
    let root = world.root();
    let a = root.mkdir(1, "a").await.unwrap();
    let b = root.mkdir(a, "b").await.unwrap();
    let c = root.mkdir(b, "c").await.unwrap();
    world.halt().await;
    let edits = Edits { world: &world };
    edits.set(keys::inode(V, Ino(a)), Some(Bytes::from_static(b"\x01garbage"))).await;
    edits.delete(keys::entry(V, Ino(b), b"c")).await;
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    let root = world.root();
    fsck(&root, true).await;
    let found = root.lookup(1, "lost+found").await.unwrap().ino;
    assert_eq!(root.lookup(found, &format!("#{c}")).await.unwrap().ino, c);
    let left = fsck(&root, false).await;
    assert!(left.iter().all(|problem| problem.what == "unreadable-record"), "{left:?}");
    assert!(left.iter().all(|problem| problem.ino != b), "{left:?}");
}

/// Its entries were counted as they had been, and compared with counts as they were by then.
#[tokio::test]
async fn a_directory_in_which_files_are_made_is_counted_as_of_one_moment() {
    let tree = Tree::new().await;
    let core = tree.world.server.core();
    let ctx = Ctx::own(&core, &core.volume(V).await.unwrap());
    let mut reader = Tx::reader(&ctx);
    reader.kv().await.unwrap();
    tree.world.root().file(tree.d, "later").await.unwrap();
    let mut found = Findings::default();
    inodes::judge(&mut reader, Ino(tree.d), None, &mut found).await.unwrap();
    assert_eq!(found.problems, []);
}

/// Its client gave up a page that took longer than 30 s, and met the same again the next time.
#[tokio::test]
async fn a_page_ends_after_some_seconds_and_the_next_one_goes_on() {
    let tree = Tree::new().await;
    let world = &tree.world;
    for ino in 9_001..=9_008 {
        world.storage.chunks.lock().insert((11, ino, 0), vec![1; 10]);
    }
    let core = world.server.core();
    let ctx = Ctx::own(&core, &core.volume(V).await.unwrap());
    let (entries, inodes) = (world.keys(b'D').await as u64, world.keys(b'I').await as u64);
    let parts =
        [(CheckPart::Entries, entries), (CheckPart::Inodes, inodes), (CheckPart::Chunks, 8)];
    for (part, things) in parts {
        let mut check = Check { part: part as u32, target: 11, ..Check::default() };
        let (mut pages, mut looked_at, mut found) = (0, 0, 0);
        loop {
            world.clock.step_ms(2_000);
            let answer = super::check(&ctx, &check).await.unwrap();
            world.clock.step_ms(0);
            let page = match answer {
                MetaAnswer::Checked(page) => page,
                other => panic!("{other:?}"),
            };
            (pages, looked_at) = (pages + 1, looked_at + page.looked_at);
            found += page.problems.len();
            if page.next.is_empty() {
                break;
            }
            check.after = page.next;
        }
        assert!(pages >= 3, "{part:?}: {pages}");
        assert_eq!(looked_at, things, "{part:?}");
        assert_eq!(found, if part == CheckPart::Chunks { 8 } else { 0 }, "{part:?}");
    }
}

#[tokio::test]
async fn a_deleted_file_that_nobody_would_take_away_is_taken_away() {
    let tree = Tree::new().await;
    let root = tree.world.root();
    let opened = root.file(1, "open").await.unwrap();
    root.open(opened, OpenMode { write: true, ..OpenMode::default() }).await.unwrap();
    root.unlink(1, "open").await.unwrap();
    let damage = async |edits: &Edits<'_>, _: &Tree| {
        let inode: Inode = edits.get(&keys::inode(V, Ino(opened))).await;
        edits.delete(keys::queue(V, inode.queued_ms, Ino(opened))).await;
    };
    tree.damaged(&["not-in-queue"], damage).await;
}

#[tokio::test]
async fn chunks_that_no_file_has_are_found_by_target_and_go() {
    let tree = Tree::new().await;
    let root = tree.world.root();
    let file = root.file(1, "moved").await.unwrap();
    root.write(file, 0, b"some").await.unwrap();
    root.move_out(file).await.unwrap();
    assert_eq!(fsck(&root, false).await, []);
    let storage = tree.world.storage.clone();
    let damage = async |_: &Edits<'_>, _: &Tree| {
        let mut chunks = storage.chunks.lock();
        chunks.insert((12, 9_999, 3), vec![1; 10]);
        // One of them is where the layout would have it.
        for target in [11, 12, 13] {
            chunks.insert((target, file, 5), vec![1; 10]);
        }
    };
    let world =
        tree.damaged_but(&["chunk-past-end", "misplaced-chunk", "orphaned-chunk"], damage).await;
    let left = |world: &World| world.storage.chunks.lock().len();
    world.until(async || left(&world) == 1).await;
    assert_eq!(fsck(&world.root(), false).await, []);
}

/// What was written to a file that was just made stays, if a loss of power takes back that it has moved out of its inode:
/// it was shown where the file got a hole later, and never told.
#[tokio::test]
async fn chunks_of_a_file_that_is_inside_its_inode_are_told_and_go() {
    let world = World::new().await;
    let root = world.root();
    let file = root.file(1, "f").await.unwrap();
    root.write(file, 0, b"some").await.unwrap();
    world.put_chunk(file, 0, 10).await;
    root.open(file, OpenMode { write: true, ..OpenMode::default() }).await.unwrap();
    assert_eq!(fsck(&root, true).await, [], "who has it open may go on with chunks");
    root.close(file).await.unwrap();
    assert_eq!(words(&root, false).await, [("chunk-past-end".to_owned(), false)]);
    assert_eq!(words(&root, true).await, [("chunk-past-end".to_owned(), true)]);
    is_whole_without_chunks(&world, &root, file).await;
}

/// In groups that the layout does not have they were called misplaced, each time, and stayed.
#[tokio::test]
async fn chunks_of_a_file_that_is_inside_its_inode_go_wherever_they_are() {
    let world = World::new().await;
    let root = world.root();
    let file = root.file(1, "f").await.unwrap();
    root.write(file, 0, b"some").await.unwrap();
    let empty = root.file(1, "empty").await.unwrap();
    for ino in [file, empty] {
        world.put_chunk(ino, 0, 10).await;
        // One of a group of two copies, and some of all groups of one.
        let mut chunks = world.storage.chunks.lock();
        chunks.insert((111, ino, 0), vec![1; 10]);
        for target in [11, 12, 13] {
            chunks.insert((target, ino, 1), vec![1; 10]);
        }
    }
    let each = |mended| vec![("chunk-past-end".to_owned(), mended); 10];
    assert_eq!(words(&root, false).await, each(false));
    // What is cut with its file already is told no more.
    let mended = words(&root, true).await;
    assert!(mended.len() >= 4 && mended.iter().all(|told| *told == each(true)[0]), "{mended:?}");
    is_whole_without_chunks(&world, &root, file).await;
}

/// The delete was forgotten where it failed, and a server that had stood still did it after what was written later.
#[tokio::test]
async fn a_file_inside_its_inode_moves_out_when_chunks_that_it_must_not_have_are_gone() {
    let world = World::new().await;
    let root = world.root();
    let file = root.file(1, "f").await.unwrap();
    world.put_chunk(file, 0, 10).await;
    *world.storage.refuses.lock() =
        Some(|op| matches!(op, StorageOp::Cut(_) | StorageOp::Truncate(_)));
    let told = fsck(&root, true).await;
    assert!(told.len() == 1 && told[0].mended, "{told:?}");
    assert_eq!(kind(root.move_out(file).await), ErrorKind::Unavailable);
    *world.storage.refuses.lock() = None;
    root.move_out(file).await.unwrap();
    assert!(world.storage.chunks.lock().is_empty());
}

/// It waited for its cut in all groups of its layout: nobody could open it while a target of any was away.
#[tokio::test]
async fn a_file_that_fsck_has_cut_is_opened_while_another_of_its_targets_is_away() {
    let world = World::new().await;
    let root = world.root();
    let small = root.file(1, "small").await.unwrap();
    root.write(small, 0, b"some").await.unwrap();
    world.put_chunk(small, 0, 10).await;
    let target = world.storage.chunks.lock().keys().next().unwrap().0;
    let large = striped(&world, "large").await;
    until_occupied(&world, large, 27).await;
    // One of them on each target, behind its end.
    for index in 4..7 {
        world.put_chunk(large, index, 9).await;
    }
    let chunks = || world.storage.chunks.lock().len();
    let before = chunks();
    let away = [11, 12].into_iter().find(|other| *other != target).unwrap();
    world.storage.target_away.store(away, Ordering::SeqCst);
    world.set_target_away(away).await;
    let part = CheckPart::Chunks as u32;
    let told = ask(&root, &Check { part, target, repair: true, ..Check::default() }).await.problems;
    let is_told = |ino| told.iter().any(|p| p.ino == ino && p.what == "chunk-past-end" && p.mended);
    assert!(told.len() == 2 && is_told(small) && is_told(large), "{told:?}");
    for file in [small, large] {
        root.open(file, OpenMode { read: true, ..OpenMode::default() }).await.unwrap();
    }
    world.until(async || chunks() == before - 2).await;
    assert_eq!(root.read(small).await.unwrap().unwrap(), &b"some"[..]);
}

/// The file was to be cut, and waited for that with whoever opened it; a chunk of no file ended the check of its target.
#[tokio::test]
async fn what_a_target_has_that_takes_no_changes_is_told_and_stays_and_files_are_opened() {
    let world = World::new().await;
    let root = world.root();
    let file = root.file(1, "f").await.unwrap();
    root.write(file, 0, b"some").await.unwrap();
    world.put_chunk(file, 0, 10).await;
    world.storage.chunks.lock().insert((11, 9_999, 0), vec![1; 10]);
    world.poison_targets(true).await;
    let told = async |repair| {
        let mut told = words(&root, repair).await;
        told.sort();
        told
    };
    let both = |mended| ["chunk-past-end", "orphaned-chunk"].map(|what| (what.to_owned(), mended));
    assert_eq!(told(true).await, both(false));
    root.open(file, OpenMode { read: true, ..OpenMode::default() }).await.unwrap();
    root.close(file).await.unwrap();
    world.poison_targets(false).await;
    assert_eq!(told(true).await, both(true));
    is_whole_without_chunks(&world, &root, file).await;
}

/// Up to three others were dropped half-way, and nobody knew of the changes that they had sent; then those were not told.
#[tokio::test(start_paused = true)]
async fn what_is_settled_beside_a_chunk_that_fails_comes_to_its_end_and_nothing_is_begun() {
    let world = World::new().await;
    for index in 0..40 {
        world.storage.chunks.lock().insert((11, 9_999, index), vec![1; 10]);
    }
    world.storage.chunks.lock().insert((11, 10_000, 0), vec![1; 10]);
    world.storage.slow_ms.store(100, Ordering::SeqCst);
    *world.storage.refuses.lock() =
        Some(|op| matches!(op, StorageOp::Cut(cut) if cut.chunk.index == 0));
    let mut check =
        Check { part: CheckPart::Chunks as u32, target: 11, repair: true, ..Check::default() };
    let page = ask(&world.root(), &check).await;
    assert_eq!(world.storage.chunks.lock().len(), 41 - (PARALLEL - 1));
    let told: Vec<_> = page.problems.iter().map(|p| (p.what.as_str(), p.ino, p.mended)).collect();
    let mut expected = vec![("orphaned-chunk", 9_999, true); PARALLEL - 1];
    expected.push((inodes::AWAY, 9_999, false));
    assert_eq!(told, expected, "{page:?}");
    // What comes behind it is looked at; where there is nothing to tell but that, it fails.
    check.after = page.next;
    let failed = world.root().call(MetaOp::Check(check)).await;
    assert_eq!(kind(failed), ErrorKind::Unavailable);
}

/// A volume that another server took over in the middle was told as looked at to its end, but for that.
#[tokio::test]
async fn where_a_chunk_fails_by_what_may_pass_the_next_page_begins_with_its_file() {
    let world = World::new().await;
    for (ino, index) in [(9_999, 1), (10_000, 0), (10_001, 1)] {
        world.storage.chunks.lock().insert((11, ino, index), vec![1; 10]);
    }
    *world.storage.refuses.lock() =
        Some(|op| matches!(op, StorageOp::Cut(cut) if cut.chunk.index == 0));
    let mut check =
        Check { part: CheckPart::Chunks as u32, target: 11, repair: true, ..Check::default() };
    let page = ask(&world.root(), &check).await;
    let orphans = |page: &Checked, inos: &[u64]| {
        let told = page.problems.iter().map(|p| (p.what.as_str(), p.ino, p.mended));
        let expected = inos.iter().map(|ino| ("orphaned-chunk", *ino, true));
        assert_eq!(told.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{page:?}");
    };
    orphans(&page, &[9_999, 10_001]);
    assert_eq!(page.looked_at, 1);
    check.after = page.next;
    let failed = world.root().call(MetaOp::Check(check.clone())).await;
    assert_eq!(kind(failed), ErrorKind::Unavailable, "whoever asks for it asks again");
    *world.storage.refuses.lock() = None;
    let page = ask(&world.root(), &check).await;
    orphans(&page, &[10_000]);
    assert!(page.next.is_empty() && world.storage.chunks.lock().is_empty());
}

/// It was told as mended, and nothing was marked.
#[tokio::test]
async fn a_file_that_somebody_opens_before_it_is_to_be_cut_is_not_told_as_mended() {
    let world = World::new().await;
    let file = striped(&world, "f").await;
    until_occupied(&world, file, 27).await;
    let core = world.server.core();
    let ctx = Ctx::own(&core, &core.volume(V).await.unwrap());
    let inode = Tx::reader(&ctx).find_inode(Ino(file)).await.unwrap().unwrap();
    let group = layout_of(&inode).unwrap().slots()[0];
    let root = world.root();
    root.open(file, OpenMode { read: true, ..OpenMode::default() }).await.unwrap();
    assert!(!chunks::cut_again(&ctx, Ino(file), group).await.unwrap());
    root.close(file).await.unwrap();
    assert!(chunks::cut_again(&ctx, Ino(file), group).await.unwrap());
}

/// Two files that are wrong about their names, and a striped one.
async fn of_wrong_names(world: World) -> (World, [u64; 3]) {
    let root = world.root();
    let wrong = [root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap()];
    let large = striped(&world, "large").await;
    until_occupied(&world, large, 27).await;
    world.halt().await;
    for ino in wrong {
        Edits { world: &world }.inode(ino, |inode| inode.nlink = 5).await;
    }
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    (world, [wrong[0], wrong[1], large])
}

/// It was mended, and not told.
#[tokio::test]
async fn what_is_mended_before_something_that_fails_is_told_and_the_next_page_begins_there() {
    let kv = Refusing::new();
    let (world, [a, b, _]) = of_wrong_names(World::on(kv.clone()).await).await;
    let root = world.root();
    let mut check = Check { part: CheckPart::Inodes as u32, repair: true, ..Check::default() };
    kv.refuse(b);
    let page = ask(&root, &check).await;
    let told = |page: &Checked| -> Vec<(u64, bool)> {
        page.problems.iter().map(|p| (p.ino, p.mended)).collect()
    };
    assert_eq!(told(&page), [(a, true)], "{page:?}");
    check.after = page.next;
    assert!(root.call(MetaOp::Check(check.clone())).await.is_err(), "there is nothing to tell");
    kv.refuse(0);
    assert_eq!(told(&ask(&root, &check).await), [(b, true)]);
}

/// The same where targets were to be asked about files of the page. It was not told about which.
#[tokio::test]
async fn what_is_mended_beside_files_that_cannot_be_looked_at_is_told() {
    let (world, [a, b, large]) = of_wrong_names(World::new().await).await;
    let garbage = Some(Bytes::from_static(b"\x01garbage"));
    Edits { world: &world }.set(keys::spare(V, Ino(large)), garbage).await;
    lose(&world, u64::MAX >> 1).await;
    let root = world.root();
    let check = Check { part: CheckPart::Inodes as u32, repair: true, ..Check::default() };
    let page = ask(&root, &check).await;
    let told: Vec<_> = page.problems.iter().map(|p| (p.what.as_str(), p.ino, p.mended)).collect();
    let wrong = |ino| ("wrong-nlink", ino, true);
    assert_eq!(told, [wrong(a), wrong(b), (inodes::AWAY, large, false)], "{page:?}");
    assert!(root.call(MetaOp::Check(check)).await.is_err(), "there is nothing to tell");
}

/// Each file could take as long as its targets may for all their answers: whoever had asked for the page gave it up, and met
/// the same again.
#[tokio::test(start_paused = true)]
async fn slow_targets_are_asked_for_a_page_for_a_minute_and_the_rest_is_told() {
    let world = World::new().await;
    let file = striped_of(&world, "f", 12).await;
    until_occupied(&world, file, 99).await;
    lose(&world, u64::MAX >> 1).await;
    let core = world.server.core();
    let ctx = Ctx::own(&core, &core.volume(V).await.unwrap());
    world.storage.slow_ms.store(3_000, Ordering::SeqCst);
    let check = Check { part: CheckPart::Inodes as u32, ..Check::default() };
    let begun = tokio::time::Instant::now();
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.clock.advance_ms(ASK_MS_MAX);
    };
    let (page, ()) = tokio::join!(super::check(&ctx, &check), later);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let problems = match page.unwrap() {
        MetaAnswer::Checked(page) => page.problems,
        other => panic!("{other:?}"),
    };
    let is_told = |p: &Problem| p.what == inodes::AWAY && p.ino == file;
    assert!(!problems.is_empty() && problems.iter().all(is_told), "{problems:?}");
}

/// Each file waited for it, twice, the second time with its lock held.
#[tokio::test(start_paused = true)]
async fn a_silent_target_is_waited_for_with_no_lock_held_for_what_its_group_has_lost() {
    let world = World::new().await;
    let root = world.root();
    let files = [striped(&world, "a").await, striped(&world, "b").await];
    for file in files {
        until_occupied(&world, file, 27).await;
    }
    lose(&world, u64::MAX >> 1).await;
    let target = world.storage.chunks.lock().keys().find(|key| key.1 == files[0]).unwrap().0;
    world.storage.target_silent.store(target, Ordering::SeqCst);
    let begun = tokio::time::Instant::now();
    let check = Check { part: CheckPart::Inodes as u32, ..Check::default() };
    let later = async {
        tokio::time::sleep(Duration::from_secs(6)).await;
        root.chmod(files[0], 0o600).await.unwrap();
    };
    let (page, ()) = tokio::join!(ask(&root, &check), later);
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    let is_told = |p: &Problem| p.ino == files[0] && p.detail.contains("is silent");
    assert!(page.problems.iter().any(is_told), "{:?}", page.problems);
}

#[tokio::test]
async fn what_is_missing_of_files_that_are_older_than_the_loss_of_their_group_is_told() {
    let world = World::new().await;
    let root = world.root();
    let old = striped(&world, "old").await;
    assert_eq!(fsck(&root, false).await, [], "a chunk that is missing may be a hole");
    lose(&world, 1).await;
    assert_eq!(fsck(&root, false).await, [], "it was made after that");
    lose(&world, u64::MAX >> 1).await;
    let told = fsck(&root, true).await;
    let all: Vec<_> = told.iter().map(|p| (p.what.as_str(), p.ino, p.mended)).collect();
    assert_eq!(all, [("lost-chunk", old, false)], "{told:?}");
    assert!(told[0].detail.contains("the first is 1, at byte"), "{told:?}");
}

/// Each chunk waited for the one before, and a page could not end within a file: a long one that was deleted took minutes.
#[tokio::test(start_paused = true)]
async fn chunks_of_one_file_are_settled_some_at_the_same_time() {
    let world = World::new().await;
    for index in 0..40 {
        world.storage.chunks.lock().insert((11, 9_999, index), vec![1; 10]);
    }
    world.storage.slow_ms.store(100, Ordering::SeqCst);
    let check =
        Check { part: CheckPart::Chunks as u32, target: 11, repair: true, ..Check::default() };
    let begun = tokio::time::Instant::now();
    let page = ask(&world.root(), &check).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(page.problems.iter().filter(|problem| problem.mended).count(), 40);
    assert!(world.storage.chunks.lock().is_empty());
}

/// All pages of its chunks were to come within the time of one answer.
#[tokio::test(start_paused = true)]
async fn a_target_that_lists_many_chunks_of_a_file_is_not_called_silent() {
    let world = World::new().await;
    let file = striped_of(&world, "f", 12).await;
    until_occupied(&world, file, 99).await;
    lose(&world, u64::MAX >> 1).await;
    world.storage.slow_ms.store(3_000, Ordering::SeqCst);
    let check = Check { part: CheckPart::Inodes as u32, ..Check::default() };
    let problems = ask(&world.root(), &check).await.problems;
    let words: Vec<_> = problems.iter().map(|p| p.what.as_str()).collect();
    assert_eq!(words, ["lost-chunk"], "{problems:?}");
}

/// Files were counted, however many groups each of them lies in.
#[tokio::test]
async fn a_page_asks_about_as_many_groups_however_files_are_striped() {
    let world = World::new().await;
    let file = striped(&world, "f").await;
    until_occupied(&world, file, 27).await;
    lose(&world, u64::MAX >> 1).await;
    let core = world.server.core();
    let ctx = Ctx::own(&core, &core.volume(V).await.unwrap());
    let (mut reader, mut asked) = (Tx::reader(&ctx), Asked::default());
    let inode = reader.find_inode(Ino(file)).await.unwrap().unwrap();
    let slots = layout_of(&inode).unwrap().slots().len();
    while !asked.is_full() {
        Subject::Inode(Ino(file)).note(&mut reader, &[], &mut asked).await;
    }
    assert_eq!((asked.lost.len(), asked.empty.len()), (ASKED_MAX.div_ceil(slots), 0));
}

/// All groups have lost what they had by then, and the server knows it.
async fn lose(world: &World, at_ms: u64) {
    {
        let mut map = world.manager.map.lock();
        map.epoch += 1;
        map.groups.iter_mut().for_each(|group| group.lost_ms = at_ms);
    }
    world.server.core().map.refresh().await.unwrap();
}

async fn until_occupied(world: &World, file: u64, bytes: u64) {
    let occupied = async || world.root().at(0).getattr(file).await.unwrap().occupied;
    world.until(async || occupied().await == bytes).await;
}

/// What is told, and whether it is mended.
async fn words(user: &User<'_>, repair: bool) -> Vec<(String, bool)> {
    fsck(user, repair).await.into_iter().map(|p| (p.what, p.mended)).collect()
}

/// The chunks of a file inside its inode go, and it has what it had.
async fn is_whole_without_chunks(world: &World, root: &User<'_>, file: u64) {
    world.until(async || world.storage.chunks.lock().is_empty()).await;
    assert_eq!(words(root, false).await, Vec::new(), "the second time");
    assert_eq!(root.read(file).await.unwrap().unwrap(), &b"some"[..]);
}

/// A file of four chunks, of which the second is not there.
async fn striped(world: &World, name: &str) -> u64 {
    striped_of(world, name, 4).await
}

async fn striped_of(world: &World, name: &str, chunks: u64) -> u64 {
    let root = world.root();
    let file = root.file(1, name).await.unwrap();
    root.move_out(file).await.unwrap();
    let inode: Inode = Edits { world }.get(&keys::inode(V, Ino(file))).await;
    let placement = Placement::new(layout_of(&inode).unwrap());
    let mut length_min = 0;
    for index in 0..chunks {
        length_min += placement.layout().chunk_bounds(ChunkIndex(index)).1;
        let place = 11 + placement.group_of(ChunkIndex(index)).0;
        if index != 1 {
            world.storage.chunks.lock().insert((place, file, index), vec![1; 9]);
        }
    }
    root.publish(Publish { ino: file, length_min, ..Publish::default() }).await.unwrap();
    file
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_told_and_only_root_is() {
    let tree = Tree::new().await;
    tree.world.halt().await;
    let edits = Edits { world: &tree.world };
    edits.set(keys::inode(V, Ino(tree.lone)), Some(Bytes::from_static(b"\x01garbage"))).await;
    let world = tree.world.killed().await;
    world.open_session(world.session, &[]).await;
    world.storage.chunks.lock().insert((11, tree.lone, 0), vec![1; 10]);
    let found = fsck(&world.root(), true).await;
    assert_eq!(world.storage.chunks.lock().len(), 1, "whatever it was, it may have had this chunk");
    assert!(!found.is_empty() && found.iter().all(|p| p.what == "unreadable-record"), "{found:?}");
    assert!(found.iter().all(|problem| !problem.mended));
    let user = world.user(1000, 1000);
    let refused = user.call(MetaOp::Check(Check { part: 1, ..Check::default() })).await;
    assert_eq!(kind(refused), strake_types::ErrorKind::NotPermitted);
    assert!(!world.storage.away.load(Ordering::SeqCst));
}

#[tokio::test]
async fn totals_that_have_drifted_are_counted_and_set_right_while_the_volume_is_in_use() {
    let tree = Tree::new().await;
    let right = tree.world.root().stat().await;
    let damage = async |edits: &Edits<'_>, _: &Tree| {
        // As if the server had lost count, and had ended in good order.
        let stat = Stat { inodes: 3, bytes: 1 << 40, clean: true, ..Stat::default() };
        edits.put(keys::volume_stat(V), &stat).await;
    };
    let world = tree.damaged_but(&["wrong-totals"], damage).await;
    let stat = world.root().stat().await;
    assert_eq!((stat.inodes, stat.bytes), (right.inodes, right.bytes));
    let root = world.root();
    // Each round counts while others make and delete.
    let busy = async {
        for nth in 0..200 {
            let file = root.file(1, &format!("busy{nth}")).await.unwrap();
            root.write(file, 0, b"some").await.unwrap();
            root.unlink(1, &format!("busy{nth}")).await.unwrap();
        }
    };
    let look = async {
        for _ in 0..20 {
            assert_eq!(fsck(&root, true).await, []);
        }
    };
    tokio::join!(busy, look);
    world.until(async || world.keys(b'G').await == 0).await;
    let stat = world.root().stat().await;
    assert_eq!((stat.inodes, stat.bytes), (right.inodes, right.bytes));
}

/// `tar -S` takes such a file for a hole, and fsck called it sound.
#[tokio::test]
async fn a_file_that_says_that_it_occupies_nothing_and_has_contents_is_set_right() {
    let world = World::new().await;
    let file = striped(&world, "f").await;
    let occupies = async |world: &World, bytes| {
        world.root().at(0).getattr(file).await.unwrap().occupied == bytes
    };
    world.until(async || occupies(&world, 27).await).await;
    world.server.stop().await.unwrap();
    Edits { world: &world }.inode(file, |inode| inode.occupied = 0).await;
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    let root = world.root();
    let both = |mended| ["wrong-occupied", "wrong-totals"].map(|what| (what.to_owned(), mended));
    assert_eq!(words(&root, false).await, both(false));
    assert_eq!(words(&root, true).await, both(true));
    assert!(occupies(&world, 27).await);
    assert_eq!(fsck(&root, false).await, [], "the second time");
}

#[tokio::test]
async fn a_count_that_nobody_came_back_for_is_begun_anew() {
    let tree = Tree::new().await;
    let root = tree.world.root();
    let totals = Check { part: CheckPart::Totals as u32, ..Check::default() };
    let begun = root.call(MetaOp::Check(totals.clone()));
    // It is dropped as the caller of a client that dies is.
    let _gone = tokio::time::timeout(std::time::Duration::ZERO, begun).await;
    let before = tree.world.root().stat().await.inodes;
    root.file(1, "later").await.unwrap();
    assert_eq!(ask(&root, &totals).await.problems, []);
    assert_eq!(tree.world.root().stat().await.inodes, before + 1);
}

/// It ended with "(1 groups in all)".
#[test]
fn groups_that_are_away_are_counted_as_people_count() {
    let told = |groups: &[u32]| {
        inodes::told_away(&groups.iter().copied().map(GroupId).collect::<Vec<_>>())
    };
    assert_eq!(told(&[]), None);
    let [one, two, three] =
        [&[7][..], &[7, 8], &[7, 8, 9]].map(|groups| told(groups).unwrap_or_default());
    assert!(one.ends_with("in group 7 is away"), "{one}");
    assert!(two.ends_with(", and those of another group"), "{two}");
    assert!(three.ends_with(", and those of 2 other groups"), "{three}");
}
