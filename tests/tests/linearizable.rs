//! Several processes on several mounts of one volume: what they were told must be the history of one file
//! system. Who is told what, and what may be of several moments, is in `strake_model::history`.
//!
//! `STRAKE_HISTORIES=N` asks for N histories of each kind; without it there are as many as fit in some seconds.
//! `STRAKE_SEED=S` begins with the seed that a failure has named.

use std::any::Any;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use strake_base::random::SplitMix64;
use strake_model::history::contents::{Change, Deed, Done, Whole, judge_seen};
use strake_model::history::names::{How, Name};
use strake_model::history::{Object, Operation, Verdict, judge, lines, locks, paths};
use strake_tests::applications::{Answer, Application, TORN};
use strake_tests::cluster::{Mount, Servers};
use strake_tests::owners::Cluster;
use strake_tests::system::now_ns;
use strake_types::ErrorKind;

/// How long each kind of histories is made where nobody says how many.
const TIME: Duration = Duration::from_secs(4);
/// Mounts.
const MOUNTS: usize = NAMES_OF_MOUNTS.len();
const NAMES_OF_MOUNTS: [&str; 4] = ["a", "b", "c", "d"];
/// How long servers live where they are killed: long enough for who waits for the leases of the one before.
const LIFE: Duration = Duration::from_secs(8);
/// The first one does not; so even some seconds of histories meet an end.
const FIRST_LIFE: Duration = Duration::from_secs(1);
/// Shares of a volume that has several.
const SHARES: u32 = 5;
/// Processes; the first ones on different mounts.
const APPLICATIONS: usize = 6;
/// Names in each of two directories.
const NAMES: u64 = 3;
/// For how long a kernel believes a name without asking what it stands for.
const BELIEF_NS: u64 = 100_000_000;
/// Blocks of a file at most.
const BLOCKS: u64 = 6;
/// Blocks that are a process's own, where several write parts of a file,
const PART: u64 = 4;
/// and so many blocks of 4 KiB from one of them to the next: half of the least that a mount claims.
const STRIDE: u64 = 128;

/// A volume with its mounts and the processes on them.
struct Stage {
    applications: Vec<Application>,
    mounts: Vec<Mount>,
    /// They end after all else.
    _servers: Box<dyn Any>,
}

impl Stage {
    fn new() -> Self {
        let servers = Servers::start();
        let mounts = NAMES_OF_MOUNTS.map(|name| servers.mount(name, "")).into();
        Self::on(mounts, servers)
    }

    /// On a volume whose directories two metadata servers share.
    fn of_shares() -> Self {
        let cluster = Cluster::of_shares(SHARES);
        let mounts = NAMES_OF_MOUNTS.map(|name| cluster.mount(name)).into();
        Self::on(mounts, cluster)
    }

    fn on(mounts: Vec<Mount>, servers: impl Any) -> Self {
        let applications = (0..APPLICATIONS).map(|_| Application::start()).collect();
        Self { applications, mounts, _servers: Box::new(servers) }
    }

    /// Has some processes, each on its mount, do something at the same time: what each notes of it, together.
    fn play<T: Send>(
        &mut self,
        seed: u64,
        each: impl Fn(&mut Player, &mut Vec<T>) + Sync,
    ) -> Vec<T> {
        let mut random = SplitMix64::new(seed);
        let (players, skipped) = (3 + random.below(4) as usize, random.below(2) as usize);
        let mounts = 2 + random.below(MOUNTS as u64 - 1) as usize;
        let (all, each) = (&self.mounts, &each);
        std::thread::scope(|scope| {
            let players = self.applications.iter_mut().enumerate().skip(skipped).take(players);
            let tasks = players.map(|(number, application)| {
                let mount = number % mounts;
                let random = SplitMix64::new(seed ^ (number as u64 + 1) << 48);
                let root = all[mount].path().join(format!("h{seed}"));
                let root = root.display().to_string();
                let client = number as u32;
                let mut player = Player { client, mount, random, root, application, marks: 0 };
                scope.spawn(move || {
                    let mut noted = Vec::new();
                    each(&mut player, &mut noted);
                    noted
                })
            });
            let tasks: Vec<_> = tasks.collect();
            tasks.into_iter().flat_map(|task| task.join().expect("told above")).collect()
        })
    }

    /// Makes histories, one seed after the other.
    fn perform(
        &mut self,
        kind: &str,
        mut history: impl FnMut(&mut Self, u64) -> (Verdict, String),
    ) {
        let number = |name: &str| std::env::var(name).ok().map(|n| n.parse().expect("a number"));
        let count: Option<u64> = number("STRAKE_HISTORIES");
        let first = number("STRAKE_SEED").unwrap_or(now_ns() & 0xffff_ffff);
        let end = Instant::now() + TIME;
        let (mut made, mut judged, mut too_long) = (0, 0, String::new());
        while count.map_or(Instant::now() < end, |count| made < count) {
            let seed = first + made;
            std::fs::create_dir(self.mounts[0].at(&format!("h{seed}"))).expect("a fresh name");
            let (verdict, shown) = history(self, seed);
            match verdict {
                Verdict::Fits => judged += 1,
                // On a busy machine much is under way at once. It says nothing.
                Verdict::TooLong => {
                    println!("seed {seed}: too much to look through");
                    too_long = shown;
                }
                Verdict::Impossible(why) => panic!("seed {seed}: {why}\n{shown}"),
            }
            std::fs::remove_dir_all(self.mounts[0].at(&format!("h{seed}"))).expect("ours");
            made += 1;
        }
        println!("{kind}: {made} histories from seed {first}, of which {judged} were judged");
        let left = made - judged;
        let are_few = left <= 2 || 4 * left <= made;
        assert!(
            judged > 0 && are_few,
            "{kind}: {judged} of {made} were judged; the last other:\n{too_long}"
        );
    }
}

/// A process in a history.
struct Player<'a> {
    client: u32,
    /// Which of the mounts it is on.
    mount: usize,
    random: SplitMix64,
    /// Its way to the directory of the history.
    root: String,
    application: &'a mut Application,
    /// How many marks it has used.
    marks: u64,
}

impl Player<'_> {
    fn path(&self, name: Name) -> String {
        format!("{}/d{}/n{}", self.root, name.within, name.name)
    }

    fn ask(&mut self, words: &str) -> Answer {
        self.application.ask(words)
    }

    fn note<O: Object>(&self, ask: O::Ask, told: O::Told, answer: &Answer) -> Operation<O> {
        let Answer { began, ended, .. } = *answer;
        Operation { client: self.client, ask, told, began, ended }
    }

    /// A mark that nobody else writes.
    fn mark(&mut self) -> u64 {
        self.marks += 1;
        u64::from(self.client + 1) * 1000 + self.marks
    }

    fn done(&self, deed: Deed, answer: &Answer) -> Done {
        let Answer { began, ended, .. } = *answer;
        Done { client: self.client, deed, began, ended }
    }
}

fn refusal(words: &str, error: i32) -> ErrorKind {
    match error {
        libc::EEXIST => ErrorKind::Exists,
        libc::ENOENT => ErrorKind::NotFound,
        libc::ENOTDIR => ErrorKind::NotDirectory,
        libc::EISDIR => ErrorKind::IsDirectory,
        libc::ENOTEMPTY => ErrorKind::NotEmpty,
        libc::EPERM => ErrorKind::NotPermitted,
        libc::ESTALE => ErrorKind::Stale,
        other => panic!("{words}: error {other}"),
    }
}

fn any_name(random: &mut SplitMix64) -> Name {
    Name { within: random.below(2) as u8, name: random.below(NAMES) as u8 }
}

/// A system call on names, and the words for it.
fn call_on_names(player: &mut Player) -> (paths::Ask, String) {
    use paths::Ask;
    let (name, mut other) = (any_name(&mut player.random), any_name(&mut player.random));
    if other == name {
        other.name = (other.name + 1) % NAMES as u8;
    }
    let (path, to) = (player.path(name), player.path(other));
    let within = name.within;
    let directory = format!("{}/d{within}", player.root);
    let rename = |how, word| (Ask::Rename(name, other, how), format!("rename {path} {to} {word}"));
    match player.random.below(22) {
        0..3 => (Ask::Create(name), format!("create {path}")),
        3..5 => (Ask::Open(name), format!("open {path}")),
        5 => (Ask::Mkdir(name), format!("mkdir {path}")),
        6..8 => (Ask::Unlink(name), format!("unlink {path}")),
        8 => (Ask::Rmdir(name), format!("rmdir {path}")),
        9..11 => (Ask::Link(name, other), format!("link {path} {to}")),
        11..14 => rename(How::Over, "over"),
        14 => rename(How::ToFree, "free"),
        15 => rename(How::Exchange, "exchange"),
        16..18 => (Ask::Stat(name), format!("stat {path}")),
        18 => (Ask::Leave(within), format!("rmdir {directory}")),
        19 => (Ask::Enter(within), format!("mkdir {directory}")),
        // A listing: see `note_listing`.
        _ => (Ask::Find(name), format!("list {directory}")),
    }
}

/// A call on names, and on which mount.
struct Called {
    call: paths::Operation,
    mount: usize,
}

fn change_names(player: &mut Player, noted: &mut Vec<Called>) {
    use paths::{Ask, Told};
    for _ in 0..6 + player.random.below(5) {
        let (ask, words) = call_on_names(player);
        let answer = player.ask(&words);
        let told = match (&answer.told, ask) {
            (Err(error), _) => Told::Refused(refusal(&words, *error)),
            (Ok(all), Ask::Find(_)) => {
                note_listing(player, ask, all, &answer, noted);
                continue;
            }
            (Ok(all), _) => match all[..] {
                [] => Told::Done,
                [ino] => Told::Inode(ino),
                [ino, links, ..] => Told::Stat(ino, links as u32),
            },
        };
        noted.push(Called { call: player.note(ask, told, &answer), mount: player.mount });
    }
}

/// A listing says something of each name; more than once of one that was taken away and given anew while the kernel
/// asked for what follows (S-034).
fn note_listing(
    player: &Player,
    ask: paths::Ask,
    all: &[u64],
    answer: &Answer,
    noted: &mut Vec<Called>,
) {
    use paths::{Ask, Told};
    let Ask::Find(Name { within, .. }) = ask else { return };
    for name in 0..NAMES as u8 {
        let entries = all.chunks(2).filter(|entry| entry[0] == u64::from(name));
        let mut told: Vec<Told> = entries.map(|entry| Told::Inode(entry[1])).collect();
        if told.is_empty() {
            told.push(Told::Refused(ErrorKind::NotFound));
        }
        let find = Ask::Find(Name { within, name });
        let called = |told| Called { call: player.note(find, told, answer), mount: player.mount };
        noted.extend(told.into_iter().map(called));
    }
}

/// The names in a call.
fn names_in(ask: paths::Ask) -> Vec<Name> {
    use paths::Ask;
    match ask {
        Ask::Link(from, to) | Ask::Rename(from, to, _) => vec![from, to],
        Ask::Create(name) | Ask::Open(name) | Ask::Mkdir(name) | Ask::Unlink(name) => vec![name],
        Ask::Rmdir(name) | Ask::Stat(name) | Ask::Find(name) => vec![name],
        Ask::Leave(_) | Ask::Enter(_) => Vec::new(),
    }
}

/// True if a call may have come after another one, or have been made meanwhile, that has succeeded.
fn may_follow(call: &paths::Operation, other: &paths::Operation) -> bool {
    other.told == paths::Told::Done && other.client != call.client && other.began < call.ended
}

/// True if a call was refused by a kernel that could not take over a directory which another mount has moved between a
/// name of it and the other directory (S-110): nothing was done, and nothing seen.
fn is_not_taken_over(called: &Called, history: &[Called]) -> bool {
    let call = &called.call;
    let both = names_in(call.ask);
    let moves = |other: &Called| match other.call.ask {
        paths::Ask::Rename(from, to, _) if from.within != to.within => {
            other.mount != called.mount
                && may_follow(call, &other.call)
                && (both.contains(&from) || both.contains(&to))
        }
        _ => false,
    };
    let makes = |Called { call: other, .. }: &Called| {
        let made = other.told == paths::Told::Done && other.began < call.ended;
        made && matches!(other.ask, paths::Ask::Mkdir(_))
    };
    call.told == paths::Told::Refused(ErrorKind::Stale)
        && history.iter().any(moves)
        && history.iter().any(makes)
}

/// True if a link was refused by a kernel that took the file for unlinked (S-110): while it waits for the answer to the
/// removal of another name it may learn of what that leaves, and counts the name once more when the answer comes.
fn is_taken_for_unlinked(called: &Called, history: &[Called]) -> bool {
    use paths::Ask;
    let call = &called.call;
    let Ask::Link(file, _) = call.ask else { return false };
    let names = names_of_file(file, call, history);
    let removes = |other: &Called| {
        let (Ask::Unlink(removed) | Ask::Rename(_, removed, How::Over)) = other.call.ask else {
            return false;
        };
        names.contains(&removed)
            && other.mount == called.mount
            && may_follow(call, &other.call)
            && call.began < other.call.ended.saturating_add(BELIEF_NS)
    };
    call.told == paths::Told::Refused(ErrorKind::NotFound) && history.iter().any(removes)
}

/// All names that the file of this one may have: by links and renames that began before a call has ended. None, if no link is among
/// them: then it has no other.
fn names_of_file(file: Name, call: &paths::Operation, history: &[Called]) -> Vec<Name> {
    use paths::Ask;
    let (mut names, mut linked, mut known) = (vec![file], false, 0);
    while names.len() > known {
        known = names.len();
        for Called { call: other, .. } in history {
            let (Ask::Link(one, two) | Ask::Rename(one, two, _)) = other.ask else { continue };
            let may_be = other.told == paths::Told::Done && other.began < call.ended;
            if may_be && [one, two].iter().any(|name| names.contains(name)) {
                linked |= matches!(other.ask, Ask::Link(..));
                let new = [one, two].into_iter().find(|name| !names.contains(name));
                names.extend(new);
            }
        }
    }
    if linked { names } else { Vec::new() }
}

/// Any move between directories excused ESTALE where there was no directory, and a removal on any mount, or of any file, a link.
#[test]
fn a_kernel_is_excused_for_no_more_than_is_promised() {
    use paths::{Ask, Told};
    let [from, to] = [0, 1].map(|within| Name { within, name: 0 });
    let called = |mount: usize, ask: Ask, told: Told| {
        let call = paths::Operation { client: mount as u32, ask, told, began: 10, ended: 20 };
        Called { call, mount }
    };
    let refused = |ask, kind| called(0, ask, Told::Refused(kind));
    let stale = || refused(Ask::Rename(to, from, How::Over), ErrorKind::Stale);
    let moved = |mount| called(mount, Ask::Rename(from, to, How::Over), Told::Done);
    let made = |told| called(2, Ask::Mkdir(from), told);
    let exists = Told::Refused(ErrorKind::Exists);
    assert!(is_not_taken_over(&stale(), &[moved(1), made(Told::Done)]));
    assert!(!is_not_taken_over(&stale(), &[moved(1)]), "there was no directory");
    assert!(!is_not_taken_over(&stale(), &[moved(1), made(exists)]));
    let own = Called { mount: 0, ..moved(1) };
    assert!(!is_not_taken_over(&stale(), &[own, made(Told::Done)]), "its own kernel moved it");
    let link = || refused(Ask::Link(from, to), ErrorKind::NotFound);
    let removed = |mount| Called { mount, ..called(1, Ask::Unlink(to), Told::Done) };
    let linked = || called(2, Ask::Link(from, to), Told::Done);
    assert!(is_taken_for_unlinked(&link(), &[linked(), removed(0)]));
    assert!(!is_taken_for_unlinked(&link(), &[linked(), removed(1)]), "another kernel");
    assert!(!is_taken_for_unlinked(&link(), &[removed(0)]), "the file has one name");
    let other = Name { within: 1, name: 1 };
    let apart = called(2, Ask::Link(to, other), Told::Done);
    assert!(!is_taken_for_unlinked(&link(), &[apart, removed(0)]), "another file");
    let moved_on = called(2, Ask::Rename(other, to, How::ToFree), Told::Done);
    let moved_on = [called(2, Ask::Link(from, other), Told::Done), moved_on, removed(0)];
    assert!(is_taken_for_unlinked(&link(), &moved_on), "its other name was renamed");
}

#[test]
fn names_on_several_mounts_have_one_history() {
    names_have_one_history(Stage::new());
}

/// Most are moved from one share to another, and made with one of them where the directory is in another.
#[test]
fn names_in_several_shares_have_one_history() {
    names_have_one_history(Stage::of_shares());
}

/// The same while the servers are killed in turn.
#[test]
fn names_in_several_shares_have_one_history_when_servers_are_killed() {
    while_servers_are_killed(names_have_one_history);
}

/// Has the metadata servers of two shares killed in turn until `play` ends, also if it fails.
fn while_servers_are_killed(play: impl FnOnce(Stage)) {
    let mut cluster = Cluster::of_shares(SHARES);
    let mounts = NAMES_OF_MOUNTS.map(|name| cluster.mount(name)).into();
    let stage = Stage::on(mounts, ());
    let (go_on, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let _go_on = go_on;
        scope.spawn(move || {
            let mut life = FIRST_LIFE;
            for nth in (0..2).cycle() {
                if ended.recv_timeout(life) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                let mut next = cluster.metas[nth].next();
                cluster.metas[nth].process.kill();
                next.go();
                cluster.metas[nth].process = next;
                life = LIFE;
            }
        });
        play(stage);
    });
}

fn names_have_one_history(mut stage: Stage) {
    stage.perform("names", |stage, seed| {
        for within in 0..2 {
            std::fs::create_dir(stage.mounts[1].at(&format!("h{seed}/d{within}"))).unwrap();
        }
        let history = stage.play(seed, change_names);
        let of_kernel = |called: &&Called| {
            is_not_taken_over(called, &history) || is_taken_for_unlinked(called, &history)
        };
        let judged = history.iter().filter(|called| !of_kernel(called));
        let calls = |called: &Called| called.call.clone();
        let judged: Vec<_> = judged.map(calls).collect();
        (paths::judge(&judged), lines(&history.iter().map(calls).collect::<Vec<_>>()))
    });
}

/// How files are opened.
fn any_how(random: &mut SplitMix64) -> &'static str {
    ["cached", "cached", "direct", "synced"][random.below(4) as usize]
}

/// What a process has done with a file, on which mount, and whether with the kernel's pages.
struct Used {
    done: Done,
    mount: usize,
    with_pages: bool,
    /// When the handle was opened, if it stays open: from and to.
    held: Option<(u64, u64)>,
}

/// True if a block was read while another process wrote it to the same page of the same kernel, which does not keep
/// one from seeing a part of the other (S-013).
fn is_torn_by_kernel(read: &Used, history: &[Used]) -> bool {
    let Deed::Read(first, marks, _) = &read.done.deed else { return false };
    let is_written = |block: u64| {
        history.iter().any(|other| {
            let Deed::Write(at, count, _) = other.done.deed else { return false };
            other.mount == read.mount
                && other.with_pages
                && (at..at + count).contains(&block)
                && other.done.began < read.done.ended
                && read.done.began < other.done.ended
        })
    };
    let torn = (*first..).zip(marks).filter(|(_, mark)| **mark == TORN);
    let blocks: Vec<u64> = torn.map(|(block, _)| block).collect();
    read.with_pages && !blocks.is_empty() && blocks.into_iter().all(is_written)
}

/// True if a read through a kernel's pages ended early while another process changed or read the file: what the kernel
/// hears of one makes it ignore what it was told of the length (S-014). Not if the handle was opened when another mount
/// had the file open (S-104).
fn is_cut_short_by_kernel(read: &Used, history: &[Used]) -> bool {
    let Deed::Read(_, marks, wanted) = &read.done.deed else { return false };
    let before = |used: &Used| {
        let ((_, there), (here, _)) = (used.held?, read.held?);
        (used.mount != read.mount && there < here).then_some(())
    };
    if history.iter().any(|used| before(used).is_some()) {
        return false;
    }
    let meanwhile = |other: &&Used| {
        other.done.client != read.done.client
            && other.done.began < read.done.ended
            && read.done.began < other.done.ended
    };
    read.with_pages && (marks.len() as u64) < *wanted && history.iter().any(|o| meanwhile(&o))
}

/// Changes and looks without a lock. A small file is written as a whole: see S-013.
fn use_file(player: &mut Player, noted: &mut Vec<Used>, unit: u64, blocks: u64) {
    let path = format!("{}/file", player.root);
    for _ in 0..6 + player.random.below(5) {
        let (how, at) = (any_how(&mut player.random), player.random.below(blocks));
        let count = 1 + player.random.below(blocks - at);
        let deed = match player.random.below(10) {
            0..4 => Deed::Write(at, count, player.mark()),
            4 if blocks > 1 => Deed::Resize(at + count),
            4..6 => Deed::Length(0),
            _ => Deed::Read(0, Vec::new(), blocks + 1),
        };
        let words = match &deed {
            Deed::Write(at, count, mark) => {
                format!("write {path} {how} {unit} {at} {count} {mark}")
            }
            Deed::Resize(len) => format!("truncate {path} {}", len * unit),
            Deed::Length(_) => format!("length {path}"),
            Deed::Read(at, _, count) => format!("read {path} {how} {unit} {at} {count}"),
        };
        let answer = player.ask(&words);
        let told = answer.good(&words);
        let deed = match deed {
            Deed::Read(at, _, count) => Deed::Read(at, told, count),
            Deed::Length(_) => {
                assert_eq!(told[0] % unit, 0, "no length that anybody has set");
                Deed::Length(told[0] / unit)
            }
            other => other,
        };
        let (done, mount) = (player.done(deed, &answer), player.mount);
        noted.push(Used { done, mount, with_pages: how == "cached", held: None });
    }
}

/// What a process has done, a line each.
fn deeds(history: &[&Used]) -> String {
    let mut all = history.to_vec();
    all.sort_by_key(|used| used.done.began);
    let first = all.first().map_or(0, |used| used.done.began);
    let line = |used: &&Used| {
        let (done, mount) = (&used.done, used.mount);
        let (began, ended) = ((done.began - first) / 1000, (done.ended - first) / 1000);
        let how = if used.with_pages { "pages" } else { "direct" };
        let who = format!("mount {mount}, {how:6} client {}", done.client);
        format!("{began:9} {ended:9} {who}: {:?}\n", done.deed)
    };
    all.iter().map(line).collect()
}

/// Makes the file of a history: its blocks.
fn first_blocks(stage: &mut Stage, seed: u64, unit: u64, count: u64) -> Vec<u64> {
    let path = stage.mounts[0].at(&format!("h{seed}/file"));
    let words = format!("write {} cached {unit} 0 {count} 1", path.display());
    stage.applications[0].ask(&words).good(&words);
    vec![1; count as usize]
}

#[test]
fn who_opens_a_file_sees_what_other_mounts_have_closed() {
    files_have_one_history(Stage::new());
}

#[test]
fn who_opens_a_file_in_several_shares_sees_what_other_mounts_have_closed() {
    files_have_one_history(Stage::of_shares());
}

/// What a mount and its kernel knew of files before a server came is not shown after a change that this one has made.
#[test]
fn who_opens_a_file_sees_what_others_have_closed_when_servers_are_killed() {
    while_servers_are_killed(files_have_one_history);
}

fn files_have_one_history(mut stage: Stage) {
    stage.perform("files", |stage, seed| {
        let (unit, blocks) = if seed % 3 == 0 { (512, 1) } else { (4096, BLOCKS) };
        let first = first_blocks(stage, seed, unit, blocks);
        let history = stage.play(seed, |player, noted| use_file(player, noted, unit, blocks));
        judged(&first, &history)
    });
}

/// What is to be said of a history, and the history.
fn judged(first: &[u64], history: &[Used]) -> (Verdict, String) {
    let by_kernel =
        |used: &&Used| is_torn_by_kernel(used, history) || is_cut_short_by_kernel(used, history);
    let judged: Vec<&Used> = history.iter().filter(|used| !by_kernel(used)).collect();
    let done: Vec<Done> = judged.iter().map(|used| used.done.clone()).collect();
    (judge_seen(first, &done), deeds(&judged))
}

/// Through a handle that is open all the time, with or without the kernel's pages.
fn use_handle(player: &mut Player, noted: &mut Vec<Used>) {
    let path = format!("{}/file", player.root);
    let how = ["cached", "direct"][player.random.below(2) as usize];
    let hold = player.ask(&format!("hold file {path} {how}"));
    hold.good("hold");
    let held = Some((hold.began, hold.ended));
    for _ in 0..6 + player.random.below(5) {
        let at = player.random.below(BLOCKS);
        let count = 1 + player.random.below(BLOCKS - at);
        let (deed, words) = match player.random.percent(50) {
            true => {
                let mark = player.mark();
                (Deed::Write(at, count, mark), format!("pwrite file 4096 {at} {count} {mark}"))
            }
            false => (Deed::Read(at, vec![], count), format!("pread file 4096 {at} {count}")),
        };
        let answer = player.ask(&words);
        let told = answer.good(&words);
        let deed = match deed {
            Deed::Read(at, _, count) => Deed::Read(at, told, count),
            other => other,
        };
        let (done, mount) = (player.done(deed, &answer), player.mount);
        noted.push(Used { done, mount, with_pages: how == "cached", held });
    }
    player.ask("drop file").good("drop");
}

#[test]
fn who_reads_an_open_file_sees_what_other_mounts_have_written() {
    Stage::new().perform("handles", |stage, seed| {
        // As long as it gets, or growing.
        let blocks = if seed % 2 == 0 { BLOCKS } else { 1 };
        let first = first_blocks(stage, seed, 4096, blocks);
        judged(&first, &stage.play(seed, use_handle))
    });
}

/// A handle that stays open.
struct Held {
    client: u32,
    with_pages: bool,
    /// When it was opened: from and to.
    opened: (u64, u64),
}

fn hold_file(player: &mut Player, noted: &mut Vec<Held>) {
    let path = format!("{}/file", player.root);
    let how = ["cached", "direct"][player.random.below(2) as usize];
    let hold = player.ask(&format!("hold file {path} {how}"));
    hold.good("hold");
    let (client, with_pages) = (player.client, how == "cached");
    noted.push(Held { client, with_pages, opened: (hold.began, hold.ended) });
}

/// Through a handle that is open all the time, while others write as well: at first only to its own part and looks how long the
/// file is, so that mounts claim what they write to; then also to that of others, and reads.
fn use_parts(player: &mut Player, noted: &mut Vec<Used>, all_held: &[Held]) {
    let path = format!("{}/file", player.root);
    let held = all_held.iter().find(|held| held.client == player.client).expect("it is held");
    for nth in 0..9 + player.random.below(6) {
        let alone = nth < 6;
        let owner = match alone || player.random.percent(60) {
            true => u64::from(player.client),
            false => player.random.below(APPLICATIONS as u64),
        };
        let at = (owner * PART + player.random.below(PART)) * STRIDE;
        let (deed, words) = match player.random.below(10) {
            0..2 => {
                let looks = ["size file".to_owned(), format!("length {path}")];
                (Deed::Length(0), looks[player.random.below(2) as usize].clone())
            }
            2 => {
                player.ask("sync file").good("sync");
                continue;
            }
            3..6 if !alone => (Deed::Read(at, vec![], 1), format!("pread file 4096 {at} 1")),
            _ => {
                let mark = player.mark();
                (Deed::Write(at, 1, mark), format!("pwrite file 4096 {at} 1 {mark}"))
            }
        };
        let answer = player.ask(&words);
        let told = answer.good(&words);
        let deed = match deed {
            Deed::Read(at, _, count) => Deed::Read(at, told, count),
            Deed::Length(_) => {
                assert_eq!(told[0] % 4096, 0, "no length that anybody has written");
                Deed::Length(told[0] / 4096)
            }
            other => other,
        };
        let (done, mount) = (player.done(deed, &answer), player.mount);
        let (with_pages, held) = (held.with_pages, Some(held.opened));
        noted.push(Used { done, mount, with_pages, held });
    }
    player.ask("drop file").good("drop");
}

/// What a mount has claimed it holds back, until somebody reads the file, or looks how long it is.
#[test]
fn who_reads_or_looks_sees_what_several_mounts_have_written_to_parts_of_a_file() {
    Stage::new().perform("parts", |stage, seed| {
        let first = first_blocks(stage, seed, 4096, 1);
        // All have it open before the first one writes: who has it alone needs no claims.
        let held = stage.play(seed, hold_file);
        judged(&first, &stage.play(seed, |player, noted| use_parts(player, noted, &held)))
    });
}

/// Takes the lock, reads all, changes it.
fn use_locked(player: &mut Player, noted: &mut Vec<Operation<Whole>>, owner: &str, unit: u64) {
    let path = format!("{}/file", player.root);
    // The locks of a process end with the first close of the file.
    player.ask(&format!("hold lock {path}.lock cached")).good("hold");
    for _ in 0..4 + player.random.below(4) {
        let how = ["cached", "direct"][player.random.below(2) as usize];
        let (at, count, mark) = (player.random.below(6), 1 + player.random.below(3), player.mark());
        let (change, words) = match player.random.below(6) {
            0..2 => (Change::Write(at, count), format!("write {at} {count} {mark}")),
            2..4 => (Change::Append(count), format!("append {count} {mark}")),
            4 => (Change::Resize(at), format!("resize {at}")),
            _ => (Change::Nothing, "nothing".to_owned()),
        };
        let words = format!("locked lock {owner} {path} {how} {unit} {words}");
        let answer = player.ask(&words);
        let before = answer.good(&words);
        noted.push(player.note((change, mark), before, &answer));
    }
    player.ask("drop lock").good("drop");
}

#[test]
fn under_a_lock_a_file_has_one_history() {
    Stage::new().perform("locked", |stage, seed| {
        let owner = ["process", "file", "flock"][(seed % 3) as usize];
        // Within the inode, on its way out of it, and in chunks.
        let unit = [100, 1500, 4096][(seed / 3 % 3) as usize];
        let history = stage.play(seed, |player, noted| use_locked(player, noted, owner, unit));
        (judge(Whole::default(), &history), lines(&history))
    });
}

/// Asks for locks on bytes of a file, and never waits.
fn use_locks(player: &mut Player, noted: &mut Vec<locks::Operation>, owner: &str) {
    use locks::{Ask, Told};
    let path = format!("{}/file", player.root);
    player.ask(&format!("hold file {path} cached")).good("hold");
    let bytes = if owner == "flock" { 1 } else { 5 };
    for _ in 0..6 + player.random.below(5) {
        let from = player.random.below(bytes) as u8;
        let to = from + 1 + player.random.below(bytes - u64::from(from)) as u8;
        let (ask, kind) = match player.random.below(5) {
            0..2 => (Ask::Exclude(from, to), "exclude"),
            2 => (Ask::Share(from, to), "share"),
            _ => (Ask::Unlock(from, to), "unlock"),
        };
        let words = format!("lock file {owner} {kind} {from} {} try", to - from);
        let answer = player.ask(&words);
        let told = match answer.told {
            Ok(_) => Told::Done,
            Err(libc::EAGAIN | libc::EACCES) => Told::Refused,
            Err(error) => panic!("{words}: error {error}"),
        };
        noted.push(player.note((player.client, ask), told, &answer));
    }
    let answer = player.ask("drop file");
    let ask = (player.client, Ask::Unlock(0, bytes as u8));
    let mut last = player.note(ask, Told::Done, &answer);
    if owner != "process" {
        // The kernel tells of the last close of an open file when that has returned.
        last.ended = u64::MAX;
    }
    noted.push(last);
}

#[test]
fn locks_on_several_mounts_have_one_history() {
    Stage::new().perform("locks", |stage, seed| {
        let owner = ["process", "file", "flock"][(seed % 3) as usize];
        let history = stage.play(seed, |player, noted| use_locks(player, noted, owner));
        (locks::judge(&history), lines(&history))
    });
}
