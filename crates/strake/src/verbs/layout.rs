//! `strake layout`: where a file lies, and where new files will.

use crate::cluster::{self, ClusterFlags};
use crate::copy_notes::{self, Choice};
use crate::existing::{self, ExistingFlags};
use crate::failure::{Context, Failure, Outcome};
use crate::groups::MemberState;
use crate::layout_flags::LayoutFlags;
use crate::place::{self, Found, Place};
use crate::{output, size};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use strake_client::LayoutView;
use strake_types::layout::LayoutTemplate;
use strake_types::{
    Ack, Attr, Consistency, Credentials, Error, ErrorKind, FileKind, GroupId, Ino, Layout, Result,
    Safety,
};
use strake_wire::map::MapView;
use strake_wire::message::manager::{ClusterMap, Group, ManagerOp, PrepareCopies, Target, Volume};

/// Chunks shown of a file without `--all`.
const CHUNKS_SHOWN: u64 = 24;
/// Chunks in a table; all of a longer file are there as JSON.
const CHUNKS_IN_TABLE_MAX: u64 = 1 << 16;

/// How long it may take until a metadata server has heard of new groups, and how often it is asked.
const NEWS_MS_MAX: u64 = 3_000;
const NEWS_RETRY_MS: u64 = 200;

/// Flags of `strake layout`.
#[derive(Args, Debug)]
pub struct LayoutVerbFlags {
    /// What to do.
    #[command(subcommand)]
    verb: LayoutVerb,
}

#[derive(Subcommand, Debug)]
enum LayoutVerb {
    /// Show which chunk of a file lies on which target, or what a directory hands down
    Get {
        /// A path in a mount, or ADDR:/VOLUME/PATH
        path: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Show every chunk, up to 65,536; --json gives those of a longer file, too
        #[arg(long)]
        all: bool,
    },
    /// Set the layout of a directory, for what is made in it from now on, or of an empty file
    Set {
        /// A path in a mount, or ADDR:/VOLUME/PATH
        path: String,

        #[command(flatten)]
        layout: LayoutFlags,

        /// Lay files on exactly these targets, in this order (strake status shows their numbers)
        #[arg(long, value_name = "TARGET,...", value_delimiter = ',')]
        targets: Vec<u32>,

        /// Take away what was set, so that what the volume has counts again
        #[arg(long, conflicts_with_all = ["chunk_size", "stripe_width", "distribution", "copies", "ack", "min_copies", "consistency", "targets"])]
        clear: bool,

        #[command(flatten)]
        existing: ExistingFlags,
    },
}

/// What a directory hands down, as `--json` prints it.
#[derive(Serialize)]
struct DirectoryView {
    /// What is set on the directory itself, or was taken over when it was made; absent: that of the volume.
    chunk_size: Option<u64>,
    distribution: Option<String>,
    stripe_width: Option<u32>,
    copies: Option<u32>,
    ack: Option<String>,
    min_copies: Option<u32>,
    consistency: Option<String>,
    groups: Option<Vec<u32>>,
    /// The first targets of these groups, as `--targets` takes them.
    targets: Option<Vec<u32>>,
}

/// Where a file lies, as `--json` prints it.
#[derive(Serialize)]
struct FileView<'a> {
    copies: u32,
    ack: String,
    min_copies: u32,
    consistency: String,
    #[serde(flatten)]
    layout: &'a LayoutView,
}

impl<'a> FileView<'a> {
    fn new(attr: &Attr, layout: &'a LayoutView) -> Self {
        let safety = attr.layout.as_ref().map(|layout| layout.safety).unwrap_or_default();
        FileView {
            copies: attr.layout.as_ref().map_or(1, |layout| layout.copies()),
            ack: safety.ack.to_string(),
            min_copies: safety.min_copies,
            consistency: attr.consistency().to_string(),
            layout,
        }
    }
}

/// Runs the verb; the exit code.
pub async fn run(flags: &LayoutVerbFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let done = match &flags.verb {
        LayoutVerb::Get { path, json, all } => get(path, *json, *all, cluster).await,
        LayoutVerb::Set { path, layout, existing, .. } if existing.existing => {
            let copies = layout.copies.unwrap_or(1);
            let found = place::find(path, cluster, "layout").await?;
            return existing::run(found, path, copies, existing).await;
        }
        LayoutVerb::Set { path, layout, targets, clear, .. } => {
            let template = layout.template(None);
            template.validate().map_err(|e| Failure::usage(e.to_string()))?;
            if template.is_empty() && targets.is_empty() && !clear {
                return Err(Failure::usage("nothing to set").next("strake layout set --help"));
            }
            check_targets(targets)?;
            set(path, template, targets, cluster).await
        }
    };
    done.map(|()| 0)
}

/// What is known of a place.
enum Known {
    /// What a directory hands down.
    Template(LayoutTemplate),
    /// Where a file lies.
    Layout(LayoutView),
}

async fn get(path: &str, json: bool, all: bool, cluster: &ClusterFlags) -> Outcome {
    let Found { place, attr } = place::find(path, cluster, "layout").await?;
    let volume = &place.volume;
    let known = match attr.kind {
        FileKind::Directory => volume.template(&place.cred, attr.ino).await.map(Known::Template),
        _ => volume.layout(attr.ino).await.map(Known::Layout),
    };
    // Before anything is shown: whoever has seen enough ends the program.
    cluster::leave_volume(volume).await;
    let map = volume.map().current();
    match known.context(|| path.into())? {
        Known::Template(template) => {
            show_directory(path, &template, &volume_of(&place)?, &map, json)
        }
        Known::Layout(view) if json => output::json(&FileView::new(&attr, &view)),
        Known::Layout(view) => show_file(path, &attr, &view, &map, all),
    }
}

fn show_directory(
    path: &str,
    template: &LayoutTemplate,
    volume: &Volume,
    map: &ClusterMap,
    json: bool,
) -> Outcome {
    let own = DirectoryView::new(template, map);
    if json {
        return output::json(&own);
    }
    let known = |list: &[GroupId], copies| Ok(map.on_same_targets(list, copies).some());
    let counts = DirectoryView::new(&template.or(&of_volume(volume)?, known)?, map);
    let name = &volume.spec.name;
    output::line(&format!("{path}: files made in it from now on get"));
    for ((what, own), (_, counts)) in own.rows().into_iter().zip(counts.rows()) {
        let inherited = || format!("{} (of volume {name})", counts.as_deref().unwrap_or("all"));
        output::line(&format!("  {what:13} {}", own.unwrap_or_else(inherited)));
    }
    Ok(())
}

impl DirectoryView {
    fn new(template: &LayoutTemplate, map: &ClusterMap) -> Self {
        let listed = template.groups.as_deref();
        DirectoryView {
            chunk_size: template.chunk_size,
            distribution: template.distribution.as_ref().map(ToString::to_string),
            stripe_width: template.width.or(listed.map(|_| 0)),
            copies: template.copies,
            ack: template.ack.map(|ack| ack.to_string()),
            min_copies: template.min_copies,
            consistency: template.consistency.map(|consistency| consistency.to_string()),
            groups: listed.map(|list| list.iter().map(|group| group.0).collect()),
            targets: listed.map(|list| leaders(map, list)),
        }
    }

    /// Each part as it is shown, if it is set.
    fn rows(&self) -> [(&'static str, Option<String>); 8] {
        let listed = |list: &[u32]| list.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let width = |w: u32| if w == 0 { "all".to_owned() } else { w.to_string() };
        let groups = self.groups.as_deref().map(|groups| {
            let targets = self.targets.as_deref().unwrap_or_default();
            format!("{} (targets {})", listed(groups), listed(targets))
        });
        [
            ("chunk size", self.chunk_size.map(size::show)),
            ("distribution", self.distribution.clone()),
            ("stripe width", self.stripe_width.map(width)),
            ("copies", self.copies.map(|copies| copies.to_string())),
            ("min copies", self.min_copies.map(|least| least.to_string())),
            ("ack", self.ack.clone()),
            ("consistency", self.consistency.clone()),
            ("groups", groups),
        ]
    }
}

fn show_file(path: &str, attr: &Attr, view: &LayoutView, map: &ClusterMap, all: bool) -> Outcome {
    let copies = attr.layout.as_ref().map_or_else(String::new, show_copies);
    let chunks = view.equal_size().map(|bytes| format!(", chunks of {}", size::show(bytes)));
    let chunks = chunks.unwrap_or_default();
    let relaxed = match attr.consistency() {
        Consistency::Strict => String::new(),
        relaxed => format!(", {relaxed}"),
    };
    output::line(&format!(
        "{path}: {}{chunks}, {} over {}{copies}{relaxed}",
        size::show(attr.length),
        view.distributed(),
        output::count(view.stripe_width.into(), "group", "groups")
    ));
    if view.inline {
        output::line("the contents lie inside the inode: there are no chunks");
        return Ok(());
    }
    let mut table = output::table(&[">CHUNK", ">GROUP", "TARGETS"]);
    let limit = if all { CHUNKS_IN_TABLE_MAX } else { CHUNKS_SHOWN };
    for chunk in view.chunks.iter().take(limit as usize) {
        let targets = match map.group(GroupId(chunk.group)) {
            Some(group) if group.members.len() == chunk.targets.len() => {
                with_states(group, &chunk.targets)
            }
            _ => chunk.targets,
        };
        table.add_row([chunk.index.to_string(), chunk.group.to_string(), targets.join(", ")]);
    }
    output::show(&table);
    let hidden = view.chunks.len().saturating_sub(limit);
    let how = match view.chunks.len() {
        ..=CHUNKS_IN_TABLE_MAX => "--all shows them",
        _ => "--json gives all",
    };
    if hidden > 0 {
        output::line(&format!("... and {hidden} more ({how})"));
    }
    Ok(())
}

/// The first targets of groups; of one that is gone there is none.
fn leaders(map: &ClusterMap, groups: &[GroupId]) -> Vec<u32> {
    let group = |id: &GroupId| map.group(*id);
    groups.iter().filter_map(group).filter_map(|group| group.members.first().copied()).collect()
}

/// The copies of a file, if it has several, and what is asked of them.
fn show_copies(layout: &Layout) -> String {
    let Safety { ack, min_copies } = layout.safety;
    let least = if min_copies > 1 { format!(" ({min_copies} at least)") } else { String::new() };
    let ack = if ack == Ack::Primary { ", acknowledged by the primary" } else { "" };
    match layout.copies() {
        1 => String::new(),
        copies => format!(", {copies} copies{least}{ack}"),
    }
}

/// The targets of a group, each with what it is there, where that is not plain.
fn with_states(group: &Group, names: &[String]) -> Vec<String> {
    let shown = |(member, name): (&u32, &String)| match MemberState::of(group, *member) {
        _ if group.members.len() == 1 => name.clone(),
        MemberState::InSync => name.clone(),
        state => format!("{name} ({})", state.word()),
    };
    group.members.iter().zip(names).map(shown).collect()
}

/// The groups that a layout wants.
struct Wanted<'a> {
    copies: u32,
    /// Others, on the targets of which they are to be.
    listed: &'a [GroupId],
    /// Targets that are to lead one.
    targets: &'a [u32],
}

impl Wanted<'_> {
    /// True if some are not there that the manager may make: groups move, and a target may lead none any more, or none yet. A
    /// cluster without targets needs none of one copy: it keeps small files.
    fn lacks_some(&self, map: &ClusterMap) -> bool {
        let leaders = leaders_of(map, self.copies);
        let stays = |target: &&Target| !target.drains && self.targets.contains(&target.id);
        let mut named = map.targets.iter().filter(stays);
        self.copies > 1 && leaders.is_empty()
            || named.any(|target| !leaders.contains(&target.id))
            || !map.on_same_targets(self.listed, self.copies).is_whole()
    }

    /// Sees to it that they are there; true if some were made that a metadata server may not know of.
    async fn prepare(&self, map: &MapView) -> Outcome<bool> {
        let copies = self.copies;
        let before = map.current();
        if !self.lacks_some(&before) {
            return Ok(false);
        }
        let targets = [self.targets, &leaders(&before, self.listed)[..]].concat();
        cluster::ask(map, ManagerOp::PrepareCopies(PrepareCopies { copies, targets })).await?;
        map.refresh().await?;
        // For a listed target that drains none is made: what is refused then is refused for good.
        Ok(map.current().epoch != before.epoch)
    }
}

/// Sets a template. The metadata server may not know of groups that were made a moment ago.
async fn set_template(place: &Place, ino: Ino, template: &LayoutTemplate, new: bool) -> Result<()> {
    let end = tokio::time::Instant::now() + Duration::from_millis(NEWS_MS_MAX);
    loop {
        let set = place.volume.set_template(&place.cred, ino, template).await;
        let early = set.as_ref().is_err_and(|error| error.kind == ErrorKind::Invalid);
        if !early || !new || tokio::time::Instant::now() >= end {
            return set;
        }
        tokio::time::sleep(Duration::from_millis(NEWS_RETRY_MS)).await;
    }
}

async fn set(
    path: &str,
    template: LayoutTemplate,
    targets: &[u32],
    cluster: &ClusterFlags,
) -> Outcome {
    let found = place::find(path, cluster, "layout").await?;
    let notes = set_at(&found, path, template, targets).await;
    cluster::leave_volume(&found.place.volume).await;
    copy_notes::show(&notes?);
    Ok(())
}

/// Sets it; what is to be said of that.
async fn set_at(
    found: &Found,
    path: &str,
    template: LayoutTemplate,
    targets: &[u32],
) -> Outcome<Vec<String>> {
    let Found { place, attr } = found;
    let present = place.volume.template(&place.cred, attr.ino).await?;
    let volume = volume_of(place)?;
    let map = place.volume.map();
    // As files are made now: groups may be yet to be made.
    let known = |list: &[GroupId], copies| Ok(map.on_same_targets(list, copies).some());
    let of_volume = of_volume(&volume)?;
    let before = present.or(&of_volume, known)?;
    let chosen = template.or(&before, known)?;
    // Before groups are made for it, which stay.
    let has_contents = attr.length > 0 || !attr.inline;
    check_may_change(&place.cred, attr)
        .map_err(|error| not_set(path, has_contents, template.copies, &error))?;
    let listed = present.groups.as_ref().or(of_volume.groups.as_ref());
    let listed = listed.filter(|_| targets.is_empty()).map(Vec::as_slice).unwrap_or_default();
    let needed = Wanted { copies: chosen.copies.unwrap_or(1), listed, targets };
    let asks = template.copies.is_some() || !targets.is_empty();
    let new = asks && needed.prepare(map).await?;
    let mut notes = match template.copies.is_some() || template.ack.is_some() {
        true => {
            let (copies, ack) = (chosen.copies.unwrap_or(1), chosen.ack.unwrap_or_default());
            let changed = copies != before.copies.unwrap_or(1);
            let is_new = template.copies.is_some();
            let is_directory = attr.kind == FileKind::Directory;
            let others_at = (changed && is_directory).then(|| path.to_owned());
            Choice { volume: &volume, copies, ack, is_new, others_at }.notes(&map.current())
        }
        false => Vec::new(),
    };
    let led = |&id| group_of(&map.current(), id, chosen.copies.unwrap_or(1));
    let groups = targets.iter().map(led).collect::<Outcome<Vec<_>>>()?;
    let wanted = LayoutTemplate { groups: (!groups.is_empty()).then_some(groups), ..template };
    notes.extend(copy_notes::of_stripe(&wanted, &wanted.or(&before, known)?, &map.current()));
    // Flags not given keep what was set before; --clear gives none and takes everything away.
    let template = match wanted.is_empty() {
        true => wanted,
        false if attr.kind == FileKind::Directory => {
            with_present(&wanted, &present, &map.current())?
        }
        false => wanted,
    };
    set_template(place, attr.ino, &template, new)
        .await
        .map_err(|error| not_set(path, has_contents, template.copies, &error))?;
    Ok(notes)
}

/// What is wanted of a directory, with what is set on it: what is listed there stays on the same targets.
fn with_present(
    wanted: &LayoutTemplate,
    present: &LayoutTemplate,
    map: &ClusterMap,
) -> Outcome<LayoutTemplate> {
    let on_all = |list: &[GroupId], copies| map.on_same_targets(list, copies).all();
    wanted
        .or(present, on_all)
        .map_err(|error| Failure::new(error.detail).next("name other targets with it (--targets)"))
}

/// Why a layout stays as it is, and what gives the file another.
fn not_set(path: &str, has_contents: bool, copies: Option<u32>, error: &Error) -> Failure {
    let refused = || Failure::new(format!("{path}: {error}"));
    match error.kind {
        ErrorKind::Busy => {}
        // On a mount the kernel decides, which may show another owner (-o uid=N), and lets a group write.
        ErrorKind::NotPermitted => {
            return refused().next("give the command as its owner or as root; who may write to it on a mount can do it there: setfattr -n user.strake.layout.width -v 2, say");
        }
        _ => return refused(),
    }
    if !has_contents {
        return Failure::new(format!("{path} is open: its consistency stays as it is"))
            .next(format!("strake why {} shows who has it open", output::word(path)));
    }
    let next = match copies {
        Some(copies) => {
            format!("strake layout set {} --copies {copies} --existing", output::word(path))
        }
        None => "copy it: the copy gets the layout that its directory hands down".to_owned(),
    };
    Failure::new(format!("{path} has contents: its layout stays as it is")).next(next)
}

/// Refuses what the metadata server would: only what has no contents gets another layout, and only from its owner or root.
fn check_may_change(cred: &Credentials, attr: &Attr) -> Result<()> {
    match attr.kind {
        _ if cred.uid != 0 && cred.uid != attr.uid => Err(ErrorKind::NotPermitted.into()),
        FileKind::File if attr.length > 0 => Err(ErrorKind::Busy.into()),
        FileKind::File | FileKind::Directory => Ok(()),
        _ => Err(Error::with(ErrorKind::Invalid, "only files and directories have a layout")),
    }
}

/// Refuses a list that names a target twice.
fn check_targets(targets: &[u32]) -> Outcome {
    let mut named = BTreeSet::new();
    match targets.iter().find(|target| !named.insert(**target)) {
        None => Ok(()),
        Some(target) => Err(Failure::usage(format!("--targets: {target} is named twice"))),
    }
}

/// The volume as the manager knows it.
fn volume_of(place: &Place) -> Outcome<Volume> {
    let (map, id) = (place.volume.map().current(), place.volume.id());
    let volume = map.volume(id).cloned();
    volume.ok_or_else(|| Failure::new(format!("volume {} is gone", place.volume.name())))
}

/// What its files get where nothing else is said.
fn of_volume(volume: &Volume) -> Outcome<LayoutTemplate> {
    Ok(LayoutTemplate::try_from(volume.spec.template.clone().unwrap_or_default())?)
}

/// The targets that lead a group of so many copies.
fn leaders_of(map: &ClusterMap, copies: u32) -> BTreeSet<u32> {
    let of_class = map.groups.iter().filter(|group| GroupId(group.id).copies() == copies);
    of_class.filter_map(|group| group.members.first().copied()).collect()
}

/// The group of so many copies whose first member is a target.
fn group_of(map: &ClusterMap, target: u32, copies: u32) -> Outcome<GroupId> {
    let mut groups = map.groups.iter().map(|group| (GroupId(group.id), group));
    let led =
        groups.find(|(id, group)| id.copies() == copies && group.members.first() == Some(&target));
    led.map(|(id, _)| id).ok_or_else(|| leads_none(map, target, copies))
}

/// Why a target cannot be named, and those that can be.
fn leads_none(map: &ClusterMap, target: u32, copies: u32) -> Failure {
    if !map.targets.iter().any(|known| known.id == target) {
        return Failure::new(format!("target {target} does not exist"))
            .next("strake status lists the targets");
    }
    let leaders = leaders_of(map, copies);
    let kept = output::count(copies.into(), "copy", "copies");
    let next = match leaders.is_empty() {
        true => "leave --targets out".to_owned(),
        false => {
            let leaders: Vec<String> = leaders.iter().map(u32::to_string).collect();
            format!("name one that does (--targets {}), or leave --targets out", leaders.join(","))
        }
    };
    Failure::new(format!("target {target} is the first of no group that keeps {kept}")).next(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::common::Attributes;

    fn attr_of(kind: FileKind) -> Attr {
        Attributes { kind: kind as u32, ..Attributes::default() }.try_into().unwrap()
    }

    /// The file was a number, and nothing was said to do about it.
    #[test]
    fn what_gives_a_file_with_contents_another_layout_is_said() {
        let busy = Error::new(ErrorKind::Busy);
        let told = not_set("/mnt/a", true, Some(2), &busy);
        assert_eq!(told.cause, "/mnt/a has contents: its layout stays as it is");
        assert_eq!(told.next.unwrap(), "strake layout set /mnt/a --copies 2 --existing");
        assert!(not_set("/mnt/a", true, None, &busy).next.unwrap().starts_with("copy it"));
        let open = not_set("/mnt/a", false, None, &busy);
        assert!(open.cause.contains("is open") && open.next.is_some());
        let other = not_set("/mnt/a", true, None, &Error::new(ErrorKind::NotPermitted));
        assert_eq!(other.cause, "/mnt/a: operation not permitted");
        assert!(other.next.unwrap().contains("as its owner or as root"));
    }

    /// Groups of two copies were made for a file whose layout could not be changed, and were in the way of every drain.
    #[test]
    fn a_file_with_contents_is_refused_before_groups_are_made_for_it() {
        let check = |kind, length| {
            let attr = Attr { length, ..attr_of(kind) };
            check_may_change(&Credentials::root(), &attr).map_err(|e| e.kind)
        };
        assert_eq!(check(FileKind::File, 0), Ok(()));
        assert_eq!(check(FileKind::File, 1), Err(ErrorKind::Busy));
        assert_eq!(check(FileKind::Directory, 1), Ok(()));
        assert_eq!(check(FileKind::Symlink, 1), Err(ErrorKind::Invalid));
    }

    /// Whoever asked was root.
    #[test]
    fn what_belongs_to_somebody_else_is_refused_before_groups_are_made_for_it() {
        let attr = Attr { uid: 7, ..attr_of(FileKind::Directory) };
        let check = |uid| {
            let cred = Credentials { uid, ..Credentials::root() };
            check_may_change(&cred, &attr).map_err(|e| e.kind)
        };
        assert_eq!((check(0), check(7)), (Ok(()), Ok(())));
        assert_eq!(check(8), Err(ErrorKind::NotPermitted));
    }

    /// All that was not set was `inherited`, and nobody knew what that is.
    #[test]
    fn what_a_directory_hands_down_is_told_as_far_as_it_is_set() {
        let map = ClusterMap {
            groups: vec![Group { id: 0, members: vec![3], ..Group::default() }],
            ..ClusterMap::default()
        };
        let template = LayoutTemplate {
            groups: Some(vec![GroupId(0)]),
            copies: Some(1),
            ..LayoutTemplate::default()
        };
        let rows = DirectoryView::new(&template, &map).rows();
        let set: Vec<_> = rows.into_iter().filter_map(|(what, own)| Some((what, own?))).collect();
        let row = |what, own: &str| (what, own.to_owned());
        let wanted =
            [row("stripe width", "all"), row("copies", "1"), row("groups", "0 (targets 3)")];
        assert_eq!(set, wanted);
    }

    /// Other copies of what lay on target 3 came to target 4, whose group had the number.
    #[test]
    fn more_copies_of_what_is_listed_stay_on_the_same_targets() {
        let of_class = |copies, leaders: &[u32]| {
            let group = |(at, id): (u32, &u32)| {
                let id_of_group = GroupId::of_class(copies, at).0;
                Group { id: id_of_group, members: vec![*id], ..Group::default() }
            };
            (0..).zip(leaders).map(group).collect::<Vec<_>>()
        };
        // Target 1 has left, and 3 has got what it had, before there were groups of two copies.
        let groups = [of_class(1, &[3, 2, 3, 4]), of_class(2, &[2, 3])].concat();
        let map = ClusterMap { groups, ..ClusterMap::default() };
        let listed =
            |group| LayoutTemplate { groups: Some(vec![group]), ..LayoutTemplate::default() };
        let two = LayoutTemplate { copies: Some(2), ..LayoutTemplate::default() };
        let set = |group| with_present(&two, &listed(group), &map);
        let on_three = set(GroupId::of_class(1, 2)).unwrap();
        assert_eq!(on_three.groups, Some(vec![GroupId::of_class(2, 1)]));
        let none = set(GroupId::of_class(1, 3)).unwrap_err();
        assert!(none.cause.contains("target 4 is the first of no group") && none.next.is_some());
    }

    /// They were refused, as there were others: a rebalance had moved the one that target 1 led.
    #[test]
    fn groups_are_asked_for_where_a_target_leads_none_any_more() {
        let pair = |at, members: [u32; 2]| Group {
            id: GroupId::of_class(2, at).0,
            members: members.to_vec(),
            ..Group::default()
        };
        let one = |at| Group { id: at, members: vec![at + 1], ..Group::default() };
        let target = |id| Target { id, drains: id == 3, ..Target::default() };
        let map = ClusterMap {
            targets: (1..=4).map(target).collect(),
            groups: vec![one(0), one(1), pair(0, [2, 1])],
            ..ClusterMap::default()
        };
        let lacks = |copies, listed: &[u32], targets: &[u32]| {
            let listed: Vec<GroupId> = listed.iter().copied().map(GroupId).collect();
            Wanted { copies, listed: &listed, targets }.lacks_some(&map)
        };
        assert!(!lacks(2, &[], &[]) && lacks(3, &[], &[]));
        assert!(!lacks(2, &[1], &[]) && lacks(2, &[1, 0], &[]));
        assert!(!lacks(2, &[], &[2]) && lacks(2, &[], &[2, 1]));
        assert!(!lacks(2, &[], &[3, 9]), "none are made for what drains, or is not there");
        assert!(!lacks(1, &[], &[2]) && lacks(1, &[], &[2, 4]), "it came when others had left");
        let empty = Wanted { copies: 1, listed: &[], targets: &[] };
        assert!(!empty.lacks_some(&ClusterMap::default()), "there need be none");
    }

    #[test]
    fn a_target_that_leads_no_group_is_told_apart_from_one_that_is_not_there() {
        let group = |id: GroupId, members: &[u32]| Group {
            id: id.0,
            members: members.to_vec(),
            ..Group::default()
        };
        let pair = GroupId::of_class(2, 0);
        let map = ClusterMap {
            targets: (1..=2).map(|id| Target { id, ..Target::default() }).collect(),
            groups: vec![
                group(GroupId::of_class(1, 0), &[1]),
                group(GroupId::of_class(1, 1), &[2]),
                group(pair, &[2, 1]),
            ],
            ..ClusterMap::default()
        };
        assert_eq!(group_of(&map, 2, 2).unwrap(), pair);
        assert_eq!(leaders(&map, &[pair, GroupId::of_class(1, 0), GroupId(999)]), [2, 1]);
        let none = group_of(&map, 1, 2).unwrap_err();
        assert!(none.cause.contains("target 1 is the first of no group that keeps 2 copies"));
        assert!(none.next.unwrap().contains("--targets 2"), "it says which does");
        let three = group_of(&map, 1, 3).unwrap_err();
        assert_eq!(three.next.as_deref(), Some("leave --targets out"));
        let gone = group_of(&map, 9, 1).unwrap_err();
        assert!(gone.cause.contains("target 9 does not exist") && gone.next.is_some());
    }
}
