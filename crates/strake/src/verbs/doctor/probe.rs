//! The probes of `strake doctor`: every metadata server and every target is really used.

use super::{ANSWER_SECONDS_MAX, Report, millis};
use crate::asked::{AT_ONCE, Asked};
use crate::verbs::status::{self, Health, Problem};
use crate::{cluster, output, refusals};
use bytes::Bytes;
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_base::clock::wall_time;
use strake_client::{OpenFile, OpenFlags, Volume};
use strake_types::layout::LayoutTemplate;
use strake_types::{
    ChunkIndex, Credentials, Distribution, Error, ErrorKind, GroupId, Ino, Result, TargetId,
};
use strake_wire::map::MapView;
use strake_wire::message::manager::{ClusterMap, Group, Target};

/// Bytes written to each target: more than may lie inside an inode.
const PROBE_BYTES: usize = 128 << 10;
/// Volumes that are opened beside those in which something is made.
const OTHERS_MAX: usize = 1_000;
/// Of a metadata server with so many volumes that cannot be opened, no others are tried.
const FAILURES_MAX: usize = 3;
/// Time between two looks at a copy that may not answer yet.
const LOOK: Duration = Duration::from_millis(20);
/// A clock that is off by more than this shows in times of files, and in `make`.
const SKEW_MS_MAX: i64 = 1_000;

/// One volume for each metadata server that serves any, and all of several shares: each is opened with all of its shares.
fn volumes_to_probe(map: &ClusterMap) -> Vec<(u32, String)> {
    let mut seen = BTreeSet::new();
    let living = map.living().filter(|v| seen.insert(v.meta_server) || v.shares().count > 1);
    living.map(|v| (v.meta_server, v.spec.name.clone())).collect()
}

/// Makes, looks at and removes a file on each metadata server, and compares its clock with ours. With each further share
/// of a volume a session begins and ends.
pub async fn meta_and_clock(view: &Arc<MapView>, map: &ClusterMap, report: &mut Report) {
    for (server, name) in volumes_to_probe(map) {
        let began = Instant::now();
        match probe_meta(view, &name).await {
            Ok(skew_ms) => {
                let about = format!(
                    "server {server}: made, read and removed a file ({:.1} ms)",
                    millis(began)
                );
                report.ok("metadata", about);
                let about = format!("server {server} is {skew_ms} ms ahead of this machine");
                match skew_ms.abs() <= SKEW_MS_MAX {
                    true => report.ok("clock", about),
                    false => {
                        report.warn("clock", about, "run an NTP client on both (chronyc makestep)")
                    }
                }
            }
            Err(error) => {
                let mend = "strake status; is the server with the meta role up?";
                let (error, mend) = told(error.to_string(), mend);
                report.bad("metadata", format!("server {server}, volume {name}: {error}"), mend);
            }
        }
    }
}

/// Opens the other volumes that are served, too, and leaves them: one may be out of reach by itself.
pub async fn other_volumes(view: &Arc<MapView>, map: &ClusterMap, report: &mut Report) {
    let others = volumes_to_open(map);
    let (mut opened, mut left) = (0, others.len().saturating_sub(OTHERS_MAX) as u64);
    let mut failures: BTreeMap<u32, usize> = BTreeMap::new();
    let others: Vec<(u32, String)> = others.into_iter().take(OTHERS_MAX).collect();
    let asked = Asked::of(view);
    for some in others.chunks(AT_ONCE) {
        let has_failed = |server: &u32| failures.get(server).is_some_and(|&n| n >= FAILURES_MAX);
        let tried: Vec<_> = some.iter().filter(|(server, _)| !has_failed(server)).collect();
        left += (some.len() - tried.len()) as u64;
        let answers = tried.iter().map(|(_, name)| asked.answer(name, open_and_leave(view, name)));
        for ((server, _), answer) in tried.iter().zip(join_all(answers).await) {
            let Err(failure) = answer else {
                opened += 1;
                continue;
            };
            *failures.entry(*server).or_default() += 1;
            let mend = "strake status; the log of its metadata server says more";
            let (cause, mend) = told(failure.cause, mend);
            report.bad("volume", cause, mend);
        }
    }
    if opened > 0 {
        report.ok("volume", format!("opened {}", output::count(opened, "other", "others")));
    }
    if left > 0 {
        let about = format!("{} not looked at", output::count(left, "other was", "others were"));
        report.ok("volume", about);
    }
}

/// The volumes that are served and not probed, with the server of the metadata of each.
fn volumes_to_open(map: &ClusterMap) -> Vec<(u32, String)> {
    let probed: BTreeSet<String> = volumes_to_probe(map).into_iter().map(|probe| probe.1).collect();
    let served: BTreeSet<String> = cluster::served_volume_names(map).into_iter().collect();
    let living = map.living().map(|v| (v.meta_server, v.spec.name.clone()));
    living.filter(|(_, name)| served.contains(name) && !probed.contains(name)).collect()
}

async fn open_and_leave(view: &Arc<MapView>, name: &str) -> Result<()> {
    let volume = open(view, name).await?;
    cluster::leave_volume(&volume).await;
    Ok(())
}

async fn probe_meta(view: &Arc<MapView>, name: &str) -> Result<i64> {
    let volume = open(view, name).await?;
    let cred = Credentials::root();
    let before = now_ms();
    let (attr, file) = volume.tmpfile(&cred, Ino::ROOT, 0o600, 0, OpenFlags::READ_WRITE).await?;
    let after = now_ms();
    volume.getattr(attr.ino).await?;
    volume.release(&file).await?;
    volume.close().await?;
    let made = attr.btime.seconds * 1000 + i64::from(attr.btime.nanos / 1_000_000);
    // Somewhere in between it was made.
    Ok(made - made.clamp(before, after.max(before)))
}

fn now_ms() -> i64 {
    i64::try_from(wall_time().as_millis()).unwrap_or(i64::MAX)
}

async fn open(view: &Arc<MapView>, name: &str) -> Result<Arc<Volume>> {
    Volume::connect(view.clone(), name, cluster::options_of("doctor")).await
}

/// Why something failed and what mends it. A metadata store that takes no changes says both itself, whatever was asked for.
pub fn told(error: String, mend: &str) -> (String, String) {
    match refusals::of_store(&error) {
        Some((what, next)) => (what.to_owned(), next.to_owned()),
        None => (error, mend.to_owned()),
    }
}

/// Writes to, syncs, reads and empties each target.
pub async fn targets(view: &Arc<MapView>, map: &ClusterMap, report: &mut Report) {
    let Some((_, name)) =
        volumes_to_probe(map).into_iter().find(|probe| cluster::is_up(map, probe.0))
    else {
        return;
    };
    for target in &map.targets {
        let subject = named(target);
        // That was told of.
        if !target.spec.poisoned.is_empty() {
            continue;
        }
        if !target.up {
            // Whether that is the end for somebody, its groups say.
            report.warn("target", format!("{subject} is down"), "start its server again");
            continue;
        }
        let group = group_to_probe(map, target.id).and_then(|group| map.group(group));
        let Some(group) = group else {
            let why = "nothing was put yet into a group that has it in sync";
            report.ok("target", format!("{subject}: not written to, as {why}"));
            continue;
        };
        one_target(view, &name, (target, group), report).await;
    }
}

fn named(target: &Target) -> String {
    format!("target {} ({})", target.id, target.spec.path)
}

/// Writes to a target in one of its groups, and says what came of it.
async fn one_target(
    view: &Arc<MapView>,
    volume: &str,
    (target, group): (&Target, &Group),
    report: &mut Report,
) {
    let subject = named(target);
    let members: Vec<String> = group.members.iter().map(u32::to_string).collect();
    let among = format!("group {} (targets {})", group.id, members.join(", "));
    let began = Instant::now();
    let probed = probe_target(view, volume, GroupId(group.id), TargetId(target.id)).await;
    let took = millis(began);
    // Where it fails the others of its group go on without it, and what was asked for is done.
    let after = cluster::fresh_map(view).await.ok();
    let fault = after.and_then(|after| fault_of(&after, GroupId(group.id), target.id));
    let log = format!("strake status; the log of server {} says more", target.server);
    match (fault, probed) {
        (Some(fault), _) => report.bad("target", format!("{subject} {fault}"), log),
        (None, Ok(true)) => {
            let about = format!("{subject}: wrote, synced, read, removed ({took:.1} ms)");
            report.ok("target", about);
        }
        (None, Ok(false)) => {
            let about = format!("{subject} gives back other bytes than were written to {among}");
            let mend = format!("strake scrub {}; check their disks", members.join(" "));
            report.bad("target", about, mend);
        }
        (None, Err(error)) => report.problem("target", unwritten(&subject, &among, &error, log)),
    }
}

/// Why a target could not be written to; `log` is what is advised where nothing else is known.
fn unwritten(subject: &str, among: &str, error: &Error, log: String) -> Problem {
    if let Some((what, next)) = refusals::of_store(&error.detail) {
        // Which says nothing against the target.
        let about = format!("{subject}: not written to, as {what}");
        return Problem { health: Health::Degraded, about, mend: next.to_owned() };
    }
    let (health, mend) = match error.kind {
        ErrorKind::NoSpace => (Health::Degraded, status::make_room()),
        _ => (Health::Broken, log),
    };
    Problem { health, about: format!("{subject}, in {among}: {error}"), mend }
}

/// What is the matter with a target that was in sync in a group before it was written to there, as the map says after that.
fn fault_of(after: &ClusterMap, group: GroupId, target: u32) -> Option<String> {
    let spec = after.targets.iter().find(|one| one.id == target).map(|one| &one.spec);
    if let Some(spec) = spec.filter(|spec| !spec.poisoned.is_empty()) {
        return Some(format!("takes no writes: {}", spec.poisoned));
    }
    let in_sync = after.group(group).is_some_and(|group| group.in_sync().contains(&target));
    (!in_sync).then(|| format!("was taken out of group {group} while it was written to"))
}

/// The group in which a target is written to. One of one copy into which nothing was ever put stays so, also while files get
/// one copy: with the first byte it counts as something that is lost with its target, and for good.
fn group_to_probe(map: &ClusterMap, target: u32) -> Option<GroupId> {
    let is_meant = |group: &&Group| !group.never_used && group.in_sync().contains(&target);
    let leads = |group: &Group| group.in_sync().first() == Some(&target);
    let best = map.groups.iter().filter(is_meant).min_by_key(|g| (!leads(g), g.id));
    best.map(|group| GroupId(group.id))
}

/// True if what the target has is what was written to its group. Two clients, so that the bytes come from there.
async fn probe_target(
    view: &Arc<MapView>,
    name: &str,
    group: GroupId,
    target: TargetId,
) -> Result<bool> {
    let (writer, reader) = (open(view, name).await?, open(view, name).await?);
    let cred = Credentials::root();
    let (attr, file) = writer.tmpfile(&cred, Ino::ROOT, 0o600, 0, OpenFlags::READ_WRITE).await?;
    let template = LayoutTemplate {
        groups: Some(vec![group]),
        // Of a copy that is away is told elsewhere.
        min_copies: Some(1),
        // One chunk has it all.
        chunk_size: Some(PROBE_BYTES as u64),
        distribution: Some(Distribution::SimpleStripe),
        ..LayoutTemplate::default()
    };
    writer.set_template(&cred, attr.ino, &template).await?;
    // The handle of before knows the layout of before. It is closed last: nothing else keeps a file without a name.
    let (before, file) = (file, writer.open(&cred, attr.ino, OpenFlags::READ_WRITE).await?);
    let pattern: Vec<u8> = (0..PROBE_BYTES).map(|i| (i % 251) as u8).collect();
    let pattern = Bytes::from(pattern);
    writer.write(&file, 0, pattern.clone()).await?;
    writer.fsync(&file, false).await?;
    let seen = reader.open(&cred, attr.ino, OpenFlags::READ).await?;
    let data = copy_of(&reader, &seen, target).await?;
    reader.release(&seen).await?;
    writer.release(&file).await?;
    writer.release(&before).await?;
    writer.close().await?;
    reader.close().await?;
    Ok(data == pattern)
}

/// What a target itself has of the chunk: whoever just reads a file is answered by any member of its group.
async fn copy_of(reader: &Volume, file: &Arc<OpenFile>, target: TargetId) -> Result<Bytes> {
    let end = Instant::now() + Duration::from_secs(ANSWER_SECONDS_MAX);
    loop {
        let read = reader.read_copy(file, ChunkIndex(0), target, 0, PROBE_BYTES as u64).await;
        match read {
            // Those that follow hear a moment later that all have it.
            Err(error) if error.is_passing() && Instant::now() < end => {
                reader.map().hurry();
                tokio::time::sleep(LOOK).await;
            }
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::{TargetSpec, Volume};

    /// It was sent back to `strake status`, and to the logs of servers whose targets were well.
    #[test]
    fn a_metadata_store_that_takes_no_changes_is_told_with_what_mends_it_whatever_was_tried() {
        let (what, next) = ("metadata store postgres://db/strake: no space left", "give it room");
        let full = Error::with(ErrorKind::NoSpace, format!("{what}; {next}"));
        assert_eq!(told(full.to_string(), "strake status"), (what.to_owned(), next.to_owned()));
        let unwritten = |error: &Error| unwritten("target 4", "group 1", error, "its log".into());
        let target = unwritten(&full);
        assert_eq!((target.health, &*target.mend), (Health::Degraded, next));
        assert_eq!(target.about, format!("target 4: not written to, as {what}"));
        let stopped = "metadata store /d/meta stopped after an I/O error (EIO); restart its server";
        let stopped = Error::with(ErrorKind::Io, stopped);
        let target = unwritten(&stopped);
        assert_eq!((target.health, &*target.mend), (Health::Degraded, "restart its server"));
        assert_eq!(told(stopped.to_string(), "strake status").1, "restart its server");
        let own = Error::with(ErrorKind::NoSpace, "target t is full; delete files or add targets");
        assert_eq!(unwritten(&own).mend, status::make_room());
        assert_eq!(told(own.to_string(), "strake status").1, "strake status");
    }

    /// It was, where files got one copy; and when they got two, what had been nothing counted as lost with its target.
    #[test]
    fn what_was_never_used_is_not_written_to() {
        let group = |id: GroupId, members: &[u32], never_used| Group {
            id: id.0,
            members: members.to_vec(),
            never_used,
            ..Group::default()
        };
        let (first, second) = (GroupId::of_class(2, 0), GroupId::of_class(2, 1));
        let single = |ordinal| GroupId::of_class(1, ordinal);
        let mut map = ClusterMap {
            groups: vec![
                group(single(0), &[1], true),
                group(single(1), &[2], true),
                group(single(2), &[3], true),
                group(first, &[1, 2], false),
                group(second, &[2, 1], false),
            ],
            // Files of it get one copy.
            volumes: vec![Volume { id: 1, ..Volume::default() }],
            ..ClusterMap::default()
        };
        let probed = |map: &ClusterMap| [1, 2, 3, 4].map(|target| group_to_probe(map, target));
        assert_eq!(probed(&map), [Some(first), Some(second), None, None]);
        map.groups[1].never_used = false;
        assert_eq!(group_to_probe(&map, 2), Some(single(1)), "only it can give that back");
        map.groups[3].in_sync = vec![2];
        assert_eq!(group_to_probe(&map, 1), Some(second));
    }

    /// It was well: others of the group had taken what was written.
    #[test]
    fn a_target_that_was_taken_out_while_it_was_written_to_is_not_well() {
        let id = GroupId::of_class(2, 0);
        let group = Group { id: id.0, members: vec![1, 2], ..Group::default() };
        let target = |id| Target { id, up: true, ..Target::default() };
        let mut map = ClusterMap {
            groups: vec![group],
            targets: vec![target(1), target(2)],
            ..ClusterMap::default()
        };
        let well = |map: &ClusterMap| [1, 2].map(|target| fault_of(map, id, target).is_none());
        assert_eq!(well(&map), [true, true]);
        map.groups[0].in_sync = vec![2];
        assert_eq!(well(&map), [false, true]);
        map.groups[0].in_sync = vec![1, 2];
        map.targets[0].spec = TargetSpec { poisoned: "EIO".into(), ..TargetSpec::default() };
        assert_eq!(fault_of(&map, id, 1).unwrap(), "takes no writes: EIO");
        map.groups.clear();
        assert_eq!(well(&map), [false, false]);
    }
}
