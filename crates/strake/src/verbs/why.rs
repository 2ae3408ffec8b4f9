//! `strake why`: what is the matter with one file.
//!
//! Every member of the file's groups is asked for some of its bytes, each by itself, so that a copy
//! that is damaged, or a target that is slow, shows although readers get along without it.

mod group;

use super::status::{self, Health};
use crate::cluster::{self, ClusterFlags};
use crate::failure::{Failure, Outcome};
use crate::groups::{self, MemberState};
use crate::jobs;
use crate::place::{self, Found};
use crate::waits::{self, WaitRow};
use crate::{output, size};
use clap::Args;
use futures::future::join_all;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use strake_client::{ChunkView, LayoutView, OpenFile, OpenFlags, Volume};
use strake_types::{Attr, ChunkIndex, Credentials, ErrorKind, FileKind, TargetId};
use strake_wire::message::jobs::Job;
use strake_wire::message::manager::{ClusterMap, Group, Target};
use strake_wire::message::meta::{Description, Holder};
use tokio::time::{Instant, timeout};

/// How long one target is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Bytes that have a checksum of their own; so many are asked of each copy without `--verify`.
const BLOCK_BYTES: u64 = 4096;
/// Chunks of a file that are looked at, the first ones.
const CHUNKS_MAX: usize = 1 << 20;
/// Bytes asked for at a time with `--verify`.
const PIECE_BYTES: u64 = 1 << 20;
/// Damaged chunks of a group that are looked at without `--verify`.
const SUSPECTS_MAX: usize = 16;
/// Time between two looks at what is being mended.
const LOOK: Duration = Duration::from_millis(100);
/// A target that takes so many times longer than the fastest is slow,
const SLOW_FACTOR: u32 = 10;
/// unless it takes less than this.
const SLOW_MIN: Duration = Duration::from_millis(20);

/// Why no copy could be looked at.
const HELD_BACK: &str = "it did not open within 3 s: its metadata server is slow or changes, or another client cannot send \
                         what it has written to it; strake status says what is waited for";

/// Flags of `strake why`.
#[derive(Args, Debug)]
pub struct WhyFlags {
    /// A path in a mount, or ADDR:/VOLUME/PATH
    pub path: String,

    /// Read every copy whole and check it, not only its beginning and what a scrub has found damaged
    #[arg(long)]
    pub verify: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The report, as `--json` prints it.
#[derive(Serialize)]
struct Report {
    health: Health,
    path: String,
    volume: String,
    inode: u64,
    kind: String,
    length: u64,
    /// Every path that leads to the inode.
    paths: Vec<String>,
    copies: u32,
    /// Inside the inode: there are no chunks.
    inline: bool,
    layout: Option<LayoutView>,
    users: Vec<User>,
    /// What programs wait for with it, or have lately.
    waits: Vec<WaitRow>,
    members: Vec<Member>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct User {
    /// As text: beyond 2^53 numbers are rounded by who reads JSON.
    session: String,
    client: String,
    opens: u32,
    locks: u32,
    /// It has not come back since the metadata server was started.
    absent: bool,
}

/// A target, in one of the file's groups.
#[derive(Clone, Serialize)]
struct Member {
    group: u32,
    target: u32,
    name: String,
    state: &'static str,
    /// Chunks of the file that lie in the group.
    chunks: usize,
    /// Time of the first answer.
    answer_ms: Option<f64>,
    /// Chunks of which the copy here could not be read, and why.
    damaged: BTreeMap<u64, Damage>,
}

/// What could not be read of a chunk's copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Damage {
    /// The target did not give the bytes, so nothing is known of them.
    Unread(String),
    /// These blocks do not match their checksums.
    Blocks(BTreeSet<u64>),
    /// The first block that did not, before this very look had it mended from another copy.
    Mended(u64),
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Unread(why) => out.write_str(why),
            Damage::Blocks(blocks) => {
                let first = blocks.first().copied().unwrap_or_default() * BLOCK_BYTES;
                match blocks.len() {
                    1 => write!(out, "damaged at byte {first}"),
                    count => write!(out, "damaged in {count} blocks, the first at byte {first}"),
                }
            }
            Damage::Mended(block) => write!(out, "damaged at byte {}", block * BLOCK_BYTES),
        }
    }
}

impl Serialize for Damage {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// Runs the verb; the exit code is that of `strake status`, for this file.
pub async fn run(flags: &WhyFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    look(flags, cluster).await.map_err(Failure::broken)
}

async fn look(flags: &WhyFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let found = place::find(&flags.path, cluster, "why").await?;
    let report = report(flags, &found).await;
    // Before anything is shown: whoever has seen enough ends the program.
    cluster::leave_volume(&found.place.volume).await;
    let report = report?;
    match flags.json {
        true => output::json(&report)?,
        false => show(&report),
    }
    Ok(report.health as u8)
}

async fn report(flags: &WhyFlags, found: &Found) -> Outcome<Report> {
    let Found { place, attr } = found;
    let volume = &place.volume;
    volume.map().refresh().await?;
    let about = place.describe(attr.ino, &flags.path).await?;
    let layout = match attr.kind {
        FileKind::File => Some(volume.layout(attr.ino).await?),
        _ => None,
    };
    // What a client follows says how full targets are to a sixteenth only.
    let map = cluster::fresh_map(volume.map()).await?;
    let (mut members, mut lost, mut held_back) = (Vec::new(), Vec::new(), false);
    if let Some(layout) = layout.as_ref().filter(|layout| !layout.chunks.is_empty()) {
        // Who holds back what he has written may be what is the matter.
        // Nothing is shown of the contents, and who is told the names may know how they are.
        let root = Credentials::root();
        match timeout(ANSWER_MAX, volume.open(&root, attr.ino, OpenFlags::READ)).await {
            Ok(file) => {
                let file = file?;
                let home = volume.shares().of(attr.ino);
                let found = jobs::damage_found(volume.map(), home, attr.ino);
                // What cannot be asked in time is left out.
                let suspects = match flags.verify {
                    true => BTreeSet::new(),
                    false => timeout(ANSWER_MAX, found).await.unwrap_or_default(),
                };
                let chunks: Vec<ChunkView> = layout.chunks.iter().take(CHUNKS_MAX).collect();
                lost = group::losses(volume, &file, &map, attr, &chunks).await?;
                let verify = flags.verify;
                let taste = Taste { volume, file: &file, chunks, verify, suspects };
                members = taste.members(&map).await;
                volume.release(&file).await?;
            }
            Err(_) => held_back = true,
        }
    }
    let name = volume.name().to_owned();
    // A manager of an earlier release knows no jobs.
    let jobs = jobs::fetch(volume.map(), 0).await.map(|list| list.jobs).unwrap_or_default();
    let known = (&map, &jobs[..], flags.verify);
    let mut report = judge(&flags.path, name, attr, &about, layout, (members, lost), known);
    if held_back {
        report.health = Health::Broken;
        report.problems.push(HELD_BACK.to_owned());
    }
    report.waits = waits::about(volume, attr.ino).await;
    if report.holds_up() {
        report.health = report.health.max(Health::Degraded);
    }
    Ok(report)
}

impl Report {
    /// Somebody waits with the file now.
    fn holds_up(&self) -> bool {
        self.waits.iter().any(WaitRow::lasts)
    }
}

impl Member {
    /// It gave this block of a chunk as it was written; without one: all of them.
    fn gives(&self, chunk: u64, block: Option<u64>) -> bool {
        let sound = match (self.damaged.get(&chunk), block) {
            (None | Some(Damage::Mended(_)), _) => true,
            (Some(Damage::Blocks(damaged)), Some(block)) => !damaged.contains(&block),
            (Some(_), _) => false,
        };
        self.answer_ms.is_some() && sound
    }
}

/// How copies are looked at.
struct Taste<'a> {
    volume: &'a Arc<Volume>,
    file: &'a Arc<OpenFile>,
    chunks: Vec<ChunkView>,
    verify: bool,
    /// Chunks of which a scrub has found a copy damaged.
    suspects: BTreeSet<u64>,
}

impl Taste<'_> {
    /// Every member of the groups that hold the file, each group's in their order.
    async fn members(&self, map: &ClusterMap) -> Vec<Member> {
        let mut chunks: BTreeMap<u32, Vec<&ChunkView>> = BTreeMap::new();
        for chunk in &self.chunks {
            chunks.entry(chunk.group).or_default().push(chunk);
        }
        let mut all = Vec::new();
        for (id, chunks) in &chunks {
            let Some(group) = map.groups.iter().find(|group| group.id == *id) else { continue };
            let members = group.members.iter().zip(&chunks[0].targets);
            let asked = members.map(|(&target, name)| self.member(group, target, name, chunks));
            all.extend(join_all(asked).await);
        }
        all
    }

    async fn member(
        &self,
        group: &Group,
        target: u32,
        name: &str,
        chunks: &[&ChunkView],
    ) -> Member {
        let state = MemberState::of(group, target);
        let mut member = Member {
            group: group.id,
            target,
            name: name.to_owned(),
            state: if group.members.len() > 1 { state.word() } else { "only copy" },
            chunks: chunks.len(),
            answer_ms: None,
            damaged: BTreeMap::new(),
        };
        if !matches!(state, MemberState::Primary | MemberState::InSync) {
            return member;
        }
        let mut silent = None;
        for (chunk, bytes) in looks(chunks, self.verify, &self.suspects) {
            let began = Instant::now();
            let read = match silent.clone() {
                // It would be waited for again and again.
                Some(why) if !self.verify => Err(Damage::Unread(why)),
                _ => self.copy(ChunkIndex(chunk), TargetId(target), bytes).await,
            };
            let took = began.elapsed().as_secs_f64() * 1e3;
            match read {
                Ok(()) => member.answer_ms = Some(member.answer_ms.map_or(took, |ms| ms.min(took))),
                Err(damage) => {
                    // It has answered, if not with what was written.
                    match &damage {
                        Damage::Unread(why) => silent = Some(why.clone()),
                        _ => member.answer_ms = member.answer_ms.or(Some(took)),
                    }
                    member.damaged.insert(chunk, damage);
                }
            }
        }
        member
    }

    /// Reads the first bytes of one copy.
    async fn copy(&self, chunk: ChunkIndex, target: TargetId, end: u64) -> Result<(), Damage> {
        let (mut at, mut damaged, mut piece) = (0, BTreeSet::new(), PIECE_BYTES);
        // Where damage was met first, and when.
        let mut met: Option<(u64, Instant)> = None;
        while at < end {
            let next = (at / PIECE_BYTES + 1) * PIECE_BYTES;
            let read = self.volume.read_copy(self.file, chunk, target, at, piece.min(end - at));
            match timeout(ANSWER_MAX, read).await {
                Ok(Ok(bytes)) if bytes.is_empty() => break,
                Ok(Ok(bytes)) => at += bytes.len() as u64,
                // Some block of the piece: each is read by itself.
                Ok(Err(error)) if error.kind == ErrorKind::Corrupt && piece > BLOCK_BYTES => {
                    piece = BLOCK_BYTES;
                    met.get_or_insert((at / BLOCK_BYTES, Instant::now()));
                }
                Ok(Err(error)) if error.kind == ErrorKind::Corrupt => {
                    damaged.insert(at / BLOCK_BYTES);
                    at += BLOCK_BYTES;
                }
                // Whoever meets damage has it mended: for a moment the copy answers nobody there.
                Ok(Err(error))
                    if error.kind == ErrorKind::NotCurrent
                        && met.is_some_and(|(_, since)| since.elapsed() < ANSWER_MAX) =>
                {
                    tokio::time::sleep(LOOK).await;
                }
                Ok(Err(error)) => return Err(Damage::Unread(error.to_string())),
                Err(_) => return Err(Damage::Unread(no_answer())),
            }
            if at >= next {
                piece = PIECE_BYTES;
            }
        }
        match (damaged.is_empty(), met) {
            (false, _) => Err(Damage::Blocks(damaged)),
            (true, Some((block, _))) => Err(Damage::Mended(block)),
            (true, None) => Ok(()),
        }
    }
}

/// What is said of a target that was waited for in vain.
fn no_answer() -> String {
    format!("no answer for {} s", ANSWER_MAX.as_secs())
}

/// Of which chunks how many bytes are read: of all everything, or of the first its beginning, and everything of
/// those of which a scrub has found a copy damaged, at every member: it is to be said whether another one is sound.
fn looks(chunks: &[&ChunkView], verify: bool, suspects: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let whole = |chunk: &&ChunkView| (chunk.index, chunk.bytes);
    if verify {
        return chunks.iter().map(whole).collect();
    }
    let suspects = chunks.iter().filter(|chunk| suspects.contains(&chunk.index));
    let suspects = suspects.take(SUSPECTS_MAX).map(whole);
    [(chunks[0].index, BLOCK_BYTES)].into_iter().chain(suspects).collect()
}

fn judge(
    path: &str,
    volume: String,
    attr: &Attr,
    about: &Description,
    layout: Option<LayoutView>,
    (members, lost): (Vec<Member>, Vec<(Health, String)>),
    (map, jobs, verify): (&ClusterMap, &[Job], bool),
) -> Report {
    let mut problems = Vec::new();
    // What is wrong with the groups of this file, and no others.
    let here = |group: &&Group| members.iter().any(|member| member.group == group.id);
    let groups = map.groups.iter().filter(here).cloned().collect();
    let own = ClusterMap { groups, ..map.clone() };
    problems.extend(groups::of_groups(&own, jobs).into_iter().map(|trouble| {
        let health = if trouble.stops { Health::Broken } else { Health::Degraded };
        (health, format!("{}; {}", trouble.about, trouble.mend))
    }));
    problems.extend(own.groups.iter().filter_map(|group| group::too_few(group, attr)));
    problems.extend(lost);
    problems.extend(members.iter().filter_map(|member| damage(member, &members)));
    problems.extend(full(map, &members));
    // Whole chunks take as long as there is of them.
    problems.extend(slow(&members).into_iter().filter(|_| !verify));
    problems.extend(about.holders.iter().filter(|holder| holder.absent).map(|holder| {
        let text = format!(
            "{} has it open and has not come back since the metadata server was started",
            holder.client
        );
        (Health::Degraded, text)
    }));
    let text = |bytes: &bytes::Bytes| format!("/{}", output::text_of(bytes));
    Report {
        health: problems.iter().map(|problem| problem.0).max().unwrap_or(Health::Fine),
        path: path.to_owned(),
        volume,
        inode: attr.ino.0,
        kind: format!("{:?}", attr.kind).to_lowercase(),
        length: attr.length,
        paths: about.paths.iter().map(text).collect(),
        copies: attr.layout.as_ref().map_or(1, |layout| layout.copies()),
        inline: layout.as_ref().is_some_and(|layout| layout.inline),
        layout,
        users: about.holders.iter().map(user).collect(),
        waits: Vec::new(),
        members,
        problems: problems.into_iter().map(|problem| problem.1).collect(),
    }
}

fn user(holder: &Holder) -> User {
    User {
        session: holder.session.to_string(),
        client: holder.client.clone(),
        opens: holder.opens,
        locks: holder.locks,
        absent: holder.absent,
    }
}

/// Its targets that take no more, or soon will not.
fn full(map: &ClusterMap, members: &[Member]) -> Vec<(Health, String)> {
    let with_it = |target: &&Target| members.iter().any(|member| member.target == target.id);
    let rooms = map.targets.iter().filter(with_it).filter_map(status::room_problem);
    rooms.map(|room| (room.health, format!("{}; {}", room.about, room.mend))).collect()
}

/// What cannot be read of a member's copies, and whether another has it.
fn damage(member: &Member, all: &[Member]) -> Option<(Health, String)> {
    let (first, damage) = member.damaged.iter().next()?;
    let others = || all.iter().filter(|o| o.group == member.group && o.target != member.target);
    let name = format!("target {} ({})", member.target, member.name);
    if member.damaged.values().all(|damage| matches!(damage, Damage::Mended(_))) {
        let text = format!(
            "chunk {first} was {damage} at {name}, and was mended from another copy by this look"
        );
        return Some((Health::Fine, text));
    }
    let kept = member.damaged.iter().all(|(chunk, damage)| match damage {
        Damage::Mended(_) => true,
        Damage::Unread(_) => others().any(|other| other.gives(*chunk, None)),
        Damage::Blocks(blocks) => {
            blocks.iter().all(|block| others().any(|other| other.gives(*chunk, Some(*block))))
        }
    });
    let what = match member.damaged.len() {
        1 => format!("chunk {first}"),
        count => format!("{count} chunks, the first of them chunk {first},"),
    };
    let unread = |of: &Member| of.damaged.values().any(|d| matches!(d, Damage::Unread(_)));
    let answered = |of: &Member| of.answer_ms.is_some() && !unread(of);
    let (health, also) = match kept {
        true if unread(member) => (
            Health::Degraded,
            "another copy is sound: strake status shows whether its server is away".to_owned(),
        ),
        true => (Health::Degraded, "another copy is sound: strake scrub mends it".to_owned()),
        false if !answered(member) || !others().all(answered) => (
            Health::Broken,
            "no sound copy answers: strake status shows which servers are away".to_owned(),
        ),
        false => {
            let lost = match others().count() {
                0 => "it is the only copy".to_owned(),
                count => format!("all {} copies answered, and none is sound", count + 1),
            };
            (Health::Broken, format!("{lost}: restore the file from a backup"))
        }
    };
    Some((health, format!("{what} cannot be read from {name}: {damage}; {also}")))
}

/// Targets that take much longer than others.
fn slow(members: &[Member]) -> Vec<(Health, String)> {
    let mut times: BTreeMap<u32, (f64, &str)> = BTreeMap::new();
    for member in members {
        if let Some(ms) = member.answer_ms {
            let time = times.entry(member.target).or_insert((ms, &member.name));
            time.0 = time.0.min(ms);
        }
    }
    let fastest = times.values().map(|time| time.0).fold(f64::INFINITY, f64::min);
    let limit = (fastest * f64::from(SLOW_FACTOR)).max(SLOW_MIN.as_secs_f64() * 1e3);
    let slow = times.iter().filter(|(_, time)| time.0 > limit);
    let told = slow.map(|(target, (ms, name))| {
        let text = format!(
            "target {target} ({name}) answers in {ms:.0} ms, the fastest in {fastest:.1} ms: its \
             disk or its link is slow, or has much to do (strake_storage_queue_depth in its metrics)"
        );
        (Health::Degraded, text)
    });
    told.collect()
}

fn show(report: &Report) {
    let copies = match (&report.layout, report.copies) {
        (None, _) => String::new(),
        (Some(_), 1) => ", one copy".to_owned(),
        (Some(_), copies) => format!(", {copies} copies"),
    };
    output::line(&format!(
        "{}: {}, {}, inode {} of volume {}{copies}",
        report.path,
        report.kind,
        size::show(report.length),
        report.inode,
        report.volume
    ));
    for path in &report.paths {
        output::line(&format!("  name     {path}"));
    }
    if report.paths.is_empty() {
        output::line("  it has no name any more: it goes when nobody has it open");
    }
    if let Some(layout) = &report.layout {
        let size = layout.equal_size().map(|bytes| format!(" of {}", size::show(bytes)));
        let size = size.unwrap_or_default();
        let groups = output::count(layout.stripe_width.into(), "group", "groups");
        let where_it_is = match (layout.inline, layout.chunks.len()) {
            (true, _) => "inside the inode, with the metadata server".to_owned(),
            (false, count) => format!(
                "{}{size}, {} over {groups} (strake layout get shows each){}",
                output::count(count, "chunk", "chunks"),
                layout.distributed(),
                match count > CHUNKS_MAX as u64 {
                    true => format!("; looked at are the first {CHUNKS_MAX}"),
                    false => String::new(),
                }
            ),
        };
        output::line(&format!("  layout   {where_it_is}"));
    }
    users_lines(&report.users).iter().for_each(|line| output::line(line));
    for wait in &report.waits {
        output::line(&format!("  waits    {}", wait.line()));
    }
    if !report.members.is_empty() {
        show_members(&report.members);
    }
    output::line("");
    match (report.problems.is_empty() && !report.holds_up(), report.members.is_empty()) {
        (true, true) => output::line("fine"),
        (true, false) => output::line("fine: every copy is there and answers"),
        (false, _) => {}
    }
    report.problems.iter().for_each(|problem| output::advice(&format!("  ! {problem}")));
}

/// Who uses a file. Whether a program still has it open that a mount counts as open nobody but the mount knows.
fn users_lines(users: &[User]) -> Vec<String> {
    let line = |user: &User| {
        format!(
            "  in use   {} (session {}); handles: {}, locks: {}",
            user.client, user.session, user.opens, user.locks
        )
    };
    let is_open = users.iter().any(|user| user.opens > 0);
    let note = is_open.then(|| {
        "           (a file that was closed may count as open by its mount for up to 60 s more)"
            .to_owned()
    });
    users.iter().map(line).chain(note).collect()
}

fn show_members(members: &[Member]) {
    output::line("");
    let head = [">GROUP", ">CHUNKS", ">TARGET", "STATE", ">ANSWER", "DAMAGED", "WHERE"];
    let mut table = output::table(&head);
    for member in members {
        let unread = |damage: &&Damage| matches!(damage, Damage::Unread(_));
        let unread = member.damaged.values().filter(unread).count();
        let damaged = match (member.damaged.len() - unread, unread) {
            (0, 0) => "-".to_owned(),
            (0, _) => "not known".to_owned(),
            (count, _) => format!("{count} of {}", member.chunks),
        };
        table.add_row([
            member.group.to_string(),
            member.chunks.to_string(),
            member.target.to_string(),
            member.state.to_owned(),
            member.answer_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms")),
            damaged,
            member.name.clone(),
        ]);
    }
    output::show(&table);
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::TargetSpec;

    fn member(target: u32, answer_ms: Option<f64>, damaged: &[(u64, Damage)]) -> Member {
        let damaged = damaged.iter().cloned().collect();
        let name = format!("h{target}:/t");
        Member { group: 7, target, name, state: "in sync", chunks: 3, answer_ms, damaged }
    }

    fn blocks(chunk: u64, blocks: &[u64]) -> (u64, Damage) {
        (chunk, Damage::Blocks(blocks.iter().copied().collect()))
    }

    /// Who looked for the program that has it open was sent to a host where none has.
    #[test]
    fn that_a_file_may_be_closed_already_is_told_with_who_has_it_open() {
        let user = |opens| User {
            session: "7".into(),
            client: "h1:/mnt".into(),
            opens,
            locks: 1,
            absent: false,
        };
        let lines = users_lines(&[user(1)]);
        assert!(lines.len() == 2 && lines[1].contains("for up to 60 s more"), "{lines:?}");
        assert_eq!(users_lines(&[user(0)]).len(), 1, "it has a lock");
        assert!(users_lines(&[]).is_empty());
    }

    /// Of a strip that is longer than the layout's chunk size the rest was not read, and its copies were called sound.
    #[test]
    fn of_each_chunk_all_its_bytes_are_read() {
        let chunk = |index, bytes| {
            let (targets, in_sync) = (Vec::new(), Vec::new());
            ChunkView { index, bytes, group: 0, targets, in_sync }
        };
        let (short, long) = (chunk(0, 4096), chunk(1, 64 << 20));
        let of = |verify, suspects: &[u64]| {
            looks(&[&short, &long], verify, &suspects.iter().copied().collect())
        };
        assert_eq!(of(true, &[]), [(0, 4096), (1, 64 << 20)]);
        assert_eq!(of(false, &[1]), [(0, BLOCK_BYTES), (1, 64 << 20)]);
    }

    #[test]
    fn damage_is_the_worse_if_no_other_copy_is_sound() {
        let told = |members: &[Member]| damage(&members[0], members).unwrap();
        let rotten = |target, damaged| member(target, Some(1.0), &[damaged]);
        let away = member(2, None, &[]);
        assert!(damage(&away, std::slice::from_ref(&away)).is_none());
        let (health, text) = told(&[rotten(1, blocks(2, &[5])), away]);
        assert!(health == Health::Broken && text.contains("no sound copy answers"), "{text}");
        for other in [blocks(1, &[5]), blocks(2, &[6])] {
            let (health, text) = told(&[rotten(1, blocks(2, &[5])), rotten(2, other)]);
            assert!(health == Health::Degraded && text.contains("strake scrub mends it"), "{text}");
        }
        let (health, text) = told(&[rotten(1, blocks(2, &[5, 6])), rotten(2, blocks(2, &[6]))]);
        assert_eq!(health, Health::Broken);
        assert!(text.contains("all 2 copies answered, and none is sound: restore"), "{text}");
        assert!(text.contains("damaged in 2 blocks, the first at byte 20480"), "{text}");
        let (health, text) = told(&[rotten(1, blocks(2, &[0]))]);
        assert!(health == Health::Broken && text.contains("it is the only copy"), "{text}");
    }

    /// A file that nothing could be added to was fine.
    #[test]
    fn a_target_that_is_full_is_told_of_with_its_files() {
        let spec = TargetSpec { total_bytes: 1000, free_bytes: 0, ..TargetSpec::default() };
        let target = |id| Target { id, up: true, spec: spec.clone(), ..Target::default() };
        let map = ClusterMap { targets: vec![target(1), target(2)], ..ClusterMap::default() };
        let told = full(&map, &[member(2, Some(1.0), &[])]);
        assert_eq!((told.len(), told[0].0), (1, Health::Degraded));
        assert!(told[0].1.starts_with("target 2 () is full; delete files"), "{}", told[0].1);
    }

    #[test]
    fn what_was_mended_by_the_look_is_told_and_is_well() {
        let mended = member(1, Some(1.0), &[(2, Damage::Mended(5))]);
        let (health, text) = damage(&mended, &[mended.clone(), member(2, Some(1.0), &[])]).unwrap();
        assert_eq!(health, Health::Fine);
        assert!(text.contains("chunk 2 was damaged at byte 20480 at target 1"), "{text}");
    }

    #[test]
    fn a_copy_that_did_not_answer_is_not_called_damaged() {
        let silent = |target| {
            let unread = Damage::Unread("no answer for 3 s".to_owned());
            member(target, Some(1.0), &[(2, unread)])
        };
        let (health, text) = damage(&silent(1), &[silent(1), member(2, Some(1.0), &[])]).unwrap();
        assert!(health == Health::Degraded && text.contains("strake status"), "{text}");
        let rotten = member(2, Some(1.0), &[blocks(2, &[0])]);
        for one in [&silent(1), &rotten] {
            let both = [silent(1), member(2, Some(1.0), &[blocks(2, &[0])])];
            let (health, text) = damage(one, &both).unwrap();
            assert!(health == Health::Broken && text.contains("no sound copy answers"), "{text}");
        }
    }

    #[test]
    fn only_what_is_much_slower_than_the_rest_is_slow() {
        assert!(slow(&[member(1, Some(0.1), &[]), member(2, Some(15.0), &[])]).is_empty());
        let told = slow(&[member(1, Some(3.0), &[]), member(2, Some(40.0), &[])]);
        assert!(told.len() == 1 && told[0].1.contains("target 2"), "{told:?}");
        assert!(slow(&[member(1, None, &[blocks(0, &[0])])]).is_empty());
    }
}
