//! `strake volume`: the volumes of a cluster.

use crate::cluster::{self, ClusterFlags};
use crate::copy_notes::{self, Choice};
use crate::failure::{Context, Failure, Outcome, USAGE};
use crate::layout_flags::LayoutFlags;
use crate::verbs::client;
use crate::{output, size};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::sync::Arc;
use strake_types::GroupId;
use strake_types::layout::LayoutTemplate;
use strake_types::limits::INLINE_BYTES_MAX;
use strake_wire::map::MapView;
use strake_wire::message::manager::{
    ClusterMap, ManagerAnswer, ManagerOp, Volume, VolumeName, VolumeSpec,
};
use strake_wire::message::meta::Client;

/// Clients that are named where a volume is in use.
const NAMED_MAX: usize = 8;

/// Flags of `strake volume`.
#[derive(Args, Debug)]
pub struct VolumeFlags {
    /// What to do.
    #[command(subcommand)]
    verb: VolumeVerb,
}

#[derive(Subcommand, Debug)]
enum VolumeVerb {
    /// Make a volume
    Create(New),
    /// List the volumes
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show everything about a volume
    Info {
        /// The volume
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change what new files of a volume get; existing files keep their layout
    Set(Settings),
    /// Delete a volume and every file in it
    Delete {
        /// The volume
        name: String,
        /// Say that this is meant: without it nothing is deleted
        #[arg(long)]
        yes: bool,
        /// Also where clients use it, or nobody knows whether some do
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args, Debug)]
struct New {
    #[command(flatten)]
    settings: Settings,

    /// Deal its directories out to so many shares, each served by one of the metadata servers; at most 64, for good, and only
    /// where the metadata is in PostgreSQL or etcd [default: 1]
    #[arg(long, value_name = "NUMBER")]
    shares: Option<u32>,
}

#[derive(Args, Debug)]
struct Settings {
    /// The volume: letters, digits, `-`, `_`, `.`
    name: String,

    #[command(flatten)]
    layout: LayoutFlags,

    /// Lay files on exactly these groups, in this order (strake status --json shows them)
    #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
    groups: Vec<u32>,

    /// Files up to this size lie inside their inode; at most 64K [new volumes: 8K]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    inline_max: Option<u64>,

    /// Have every change of names, attributes and small files on disk before it is acknowledged
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    sync_always: Option<bool>,
}

impl Settings {
    /// As the manager takes them; `shares`: of a new volume.
    fn spec(&self, shares: Option<u32>) -> Outcome<VolumeSpec> {
        let groups = self.groups.iter().copied().map(GroupId).collect::<Vec<_>>();
        let template = self.layout.template((!groups.is_empty()).then_some(groups));
        let checked = template.validate().and_then(|()| template.check_list());
        checked.map_err(|e| Failure::usage(e.to_string()))?;
        if self.inline_max.is_some_and(|bytes| bytes > INLINE_BYTES_MAX.into()) {
            return Err(Failure::usage("--inline-max must be at most 64K"));
        }
        Ok(VolumeSpec {
            name: self.name.clone(),
            template: Some((&template).into()),
            inline_bytes_max: self.inline_max.map(|bytes| bytes as u32),
            sync_always: self.sync_always,
            shares,
        })
    }
}

impl New {
    /// As the manager takes it.
    fn spec(&self) -> Outcome<VolumeSpec> {
        let spec = self.settings.spec(self.shares)?;
        let wrong = |error| Failure { code: USAGE, ..Failure::telling(&error) };
        strake_manager::check_new_volume(&spec).map_err(wrong)?;
        Ok(spec)
    }
}

/// A volume as `--json` prints it.
#[derive(Serialize)]
struct View {
    id: u32,
    name: String,
    chunk_size: u64,
    stripe_width: u32,
    copies: u32,
    ack: String,
    min_copies: u32,
    consistency: String,
    distribution: String,
    groups: Vec<u32>,
    inline_max: u32,
    sync_always: bool,
    shares: u32,
    metadata_server: String,
}

impl View {
    fn new(map: &ClusterMap, volume: &Volume) -> Outcome<View> {
        let spec = &volume.spec;
        let template = LayoutTemplate::try_from(spec.template.clone().unwrap_or_default());
        let template = template.context(|| format!("settings of volume {}", spec.name))?;
        Ok(View {
            id: volume.id,
            name: spec.name.clone(),
            chunk_size: template.chunk_size.unwrap_or_default(),
            stripe_width: template.width.unwrap_or_default(),
            copies: template.copies.unwrap_or(1),
            ack: template.ack.unwrap_or_default().to_string(),
            min_copies: template.min_copies.unwrap_or(1),
            consistency: template.consistency.unwrap_or_default().to_string(),
            distribution: template
                .distribution
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            groups: template.groups.iter().flatten().map(|g| g.0).collect(),
            inline_max: spec.inline_bytes_max.unwrap_or_default(),
            sync_always: spec.sync_always.unwrap_or_default(),
            shares: volume.shares().count,
            metadata_server: servers_of(map, volume),
        })
    }

    fn width(&self) -> String {
        match self.stripe_width {
            0 => "all".into(),
            width => width.to_string(),
        }
    }
}

/// The servers of its shares, each once.
fn servers_of(map: &ClusterMap, volume: &Volume) -> String {
    let shares = volume.shares();
    let serve = |id: u32| {
        map.volumes.iter().any(|v| v.meta_server == id && shares.all().any(|share| share.0 == v.id))
    };
    let serving = map.servers.iter().filter(|server| serve(server.id));
    let names: Vec<String> = serving.map(|s| format!("{} ({})", s.name, s.id)).collect();
    if names.is_empty() { "none yet".into() } else { names.join(", ") }
}

/// Runs the verb.
pub async fn run(flags: &VolumeFlags, cluster: &ClusterFlags) -> Outcome {
    // What can be refused without a cluster is refused without one.
    let spec = match &flags.verb {
        VolumeVerb::Create(new) => Some(new.spec()?),
        VolumeVerb::Set(settings) => Some(settings.spec(None)?),
        _ => None,
    };
    let map = cluster.connect().await?;
    match (&flags.verb, spec) {
        (VolumeVerb::Create(new), Some(spec)) => {
            change(&map, ManagerOp::CreateVolume(spec), &new.settings).await
        }
        (VolumeVerb::Set(settings), Some(spec)) => {
            cluster::volume_named(&map, &settings.name)?;
            change(&map, ManagerOp::SetVolume(spec), settings).await
        }
        (VolumeVerb::List { json }, _) => list(&map, *json),
        (VolumeVerb::Info { name, json }, _) => info(&map, name, *json),
        (VolumeVerb::Delete { name, yes, force }, _) => delete(&map, name, *yes, *force).await,
        (VolumeVerb::Create(_) | VolumeVerb::Set(_), None) => Ok(()),
    }
}

async fn change(map: &MapView, op: ManagerOp, settings: &Settings) -> Outcome {
    let known = map.current();
    let before = known.living().find(|volume| volume.spec.name == settings.name);
    let before = before.and_then(|volume| View::new(&known, volume).ok());
    let answer = cluster::ask(map, op).await.map_err(|error| Failure::telling(&error))?;
    let ManagerAnswer::Volume(volume) = answer else {
        return Err(Failure::new("the manager's answer is not about a volume"));
    };
    map.refresh().await?;
    let map = map.current();
    let view = View::new(&map, &volume)?;
    show(&view);
    let (before, is_new) = (before.map(|view| view.copies), settings.layout.copies.is_some());
    let mut notes = choice(&volume, &view, before, is_new).notes(&map);
    let template = LayoutTemplate::try_from(volume.spec.template.clone().unwrap_or_default())?;
    notes.extend(copy_notes::of_stripe(&settings.layout.template(None), &template, &map));
    if !notes.is_empty() {
        output::line("");
        copy_notes::show(&notes);
    }
    Ok(())
}

/// The copies of its new files, unless a directory says otherwise; `before`: what they were.
fn choice<'a>(volume: &'a Volume, view: &View, before: Option<u32>, is_new: bool) -> Choice<'a> {
    let template = volume.spec.template.clone().unwrap_or_default();
    let ack = LayoutTemplate::try_from(template).ok().and_then(|template| template.ack);
    let changed = before.is_some_and(|before| before != view.copies);
    Choice {
        volume,
        copies: view.copies,
        ack: ack.unwrap_or_default(),
        is_new,
        others_at: changed.then(|| format!(":/{}", view.name)),
    }
}

/// Shows the volumes; one that cannot be read hides no other.
fn list(map: &MapView, json: bool) -> Outcome {
    let map = map.current();
    let mut views = Vec::new();
    let mut unread = Ok(());
    for volume in map.living() {
        match View::new(&map, volume) {
            Ok(view) => views.push(view),
            Err(failure) => unread = Err(failure),
        }
    }
    match json {
        true => output::json(&views)?,
        false => show_list(&views),
    }
    unread
}

fn show_list(views: &[View]) {
    let mut table =
        output::table(&["NAME", ">ID", ">CHUNK", ">WIDTH", ">COPIES", "DISTRIBUTION", "METADATA"]);
    for view in views {
        table.add_row([
            view.name.clone(),
            view.id.to_string(),
            size::short(view.chunk_size),
            view.width(),
            view.copies.to_string(),
            view.distribution.clone(),
            view.metadata_server.clone(),
        ]);
    }
    output::show(&table);
}

fn info(map: &MapView, name: &str, json: bool) -> Outcome {
    let view = View::new(&map.current(), &cluster::volume_named(map, name)?)?;
    if json {
        return output::json(&view);
    }
    show(&view);
    Ok(())
}

fn show(view: &View) {
    let groups: Vec<_> = view.groups.iter().map(u32::to_string).collect();
    let rows = [
        ("volume", format!("{} (id {})", view.name, view.id)),
        ("chunk size", size::show(view.chunk_size)),
        ("stripe width", view.width()),
        ("copies", view.copies.to_string()),
        ("at least in sync", view.min_copies.to_string()),
        ("acknowledged by", view.ack.clone()),
        ("consistency", view.consistency.clone()),
        ("distribution", view.distribution.clone()),
        ("groups", if groups.is_empty() { "all".into() } else { groups.join(",") }),
        ("inline up to", size::show(u64::from(view.inline_max))),
        ("sync always", if view.sync_always { "yes".into() } else { "no".into() }),
        ("shares", view.shares.to_string()),
        ("metadata server", view.metadata_server.clone()),
    ];
    for (name, value) in rows {
        output::line(&format!("{name:16} {value}"));
    }
}

async fn delete(map: &Arc<MapView>, name: &str, yes: bool, force: bool) -> Outcome {
    cluster::volume_named(map, name)?;
    if !yes {
        return Err(Failure::usage(format!("this deletes volume {name} and every file in it"))
            .next(format!("strake volume delete {name} --yes")));
    }
    if !force {
        let forced = format!("strake volume delete {name} --yes --force");
        let clients = client::of_volume(map, name).await.map_err(|failure| {
            failure.about(&format!("who uses volume {name} is not known")).next(forced.clone())
        })?;
        if let Some(cause) = used(name, &clients) {
            let next = format!("unmount it there (strake client list {name}), or {forced}");
            return Err(Failure::new(cause).next(next));
        }
    }
    cluster::ask(map, ManagerOp::DeleteVolume(VolumeName { name: name.into() })).await?;
    output::line(&format!("volume {name} is deleted; its room comes back in the background"));
    Ok(())
}

/// That clients use a volume, if some do.
fn used(name: &str, clients: &[Client]) -> Option<String> {
    let named: Vec<&str> = clients.iter().take(NAMED_MAX).map(|client| &*client.name).collect();
    let others = clients.len().saturating_sub(named.len()) as u64;
    let more = match others {
        0 => String::new(),
        _ => format!(" and {}", output::count(others, "other", "others")),
    };
    (!named.is_empty()).then(|| format!("volume {name} is used by {}{more}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was deleted under those that had it mounted.
    #[test]
    fn those_who_use_a_volume_are_named() {
        let client = |nth| Client { name: format!("host{nth}:/mnt"), ..Client::default() };
        assert_eq!(used("work", &[]), None);
        let told = used("work", &[client(1), client(2)]).unwrap();
        assert_eq!(told, "volume work is used by host1:/mnt, host2:/mnt");
        let many: Vec<Client> = (0..NAMED_MAX + 2).map(client).collect();
        assert!(used("work", &many).unwrap().ends_with(" and 2 others"));
    }
}
