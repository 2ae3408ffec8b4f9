//! Volumes: making, changing and deleting them.

use crate::groups;
use crate::owners;
use crate::records::{Server, Volume};
use crate::show;
use crate::state::State;
use prost::Message;
use std::collections::HashSet;
use strake_types::layout::{Distribution, LayoutTemplate};
use strake_types::limits::{
    BODY_BYTES_MAX, CHUNK_BYTES_DEFAULT, INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, VOLUMES_MAX,
};
use strake_types::same_targets::{GroupsByTarget, SameTargets};
use strake_types::shares::SHARES_MAX;
use strake_types::{Ack, Consistency, Error, ErrorKind, GroupId, Result, Shares, VolumeId};
use strake_wire::message::manager::{ClusterMap, VolumeSpec};

/// Most bytes of the cluster's map that tell of volumes.
const MAP_BYTES_MAX: usize = BODY_BYTES_MAX * 3 / 8;
/// Most volumes, or groups, that an error names.
const NAMED_MAX: usize = 20;
/// Longest name of a volume.
const NAME_BYTES_MAX: usize = 64;

fn invalid(detail: String) -> Error {
    Error::with(ErrorKind::Invalid, detail)
}

/// Refuses what is wrong for a new volume in any cluster.
pub fn check_new_volume(spec: &VolumeSpec) -> Result<()> {
    check_name(&spec.name)?;
    check_shares(spec.shares)?;
    let wanted = LayoutTemplate::try_from(spec.template.clone().unwrap_or_default())?;
    fitting(wanted.or(&defaults(), |_, _| Ok(Vec::new()))?).map(drop)
}

/// Makes a volume and returns its id.
pub(crate) fn create(
    state: &mut State,
    spec: &VolumeSpec,
    is_up: impl Fn(u32) -> bool,
) -> Result<u32> {
    check_name(&spec.name)?;
    if state.volume_named(&spec.name).is_some() {
        let detail =
            format!("there is a volume {} already; strake volume list shows all", spec.name);
        return Err(Error::with(ErrorKind::Exists, detail));
    }
    let shares = check_shares(spec.shares)?;
    let living = state.volumes.values().filter(|volume| !volume.deleting).count();
    if living + shares as usize > VOLUMES_MAX {
        return Err(invalid(format!("a cluster has at most {VOLUMES_MAX} volumes")));
    }
    let wanted = check_settings(state, spec)?;
    let template = merged(state, &wanted, &defaults())?;
    let spec = VolumeSpec {
        name: spec.name.clone(),
        template: Some((&template).into()),
        inline_bytes_max: Some(spec.inline_bytes_max.unwrap_or(INLINE_BYTES_DEFAULT)),
        sync_always: Some(spec.sync_always.unwrap_or(false)),
        shares: (shares > 1).then_some(shares),
    };
    let id = state.cluster.next_volume.max(1);
    let shares = Shares { first: VolumeId(id), count: shares };
    let first = first_server(state, shares, &is_up)?;
    let store = state.servers.get(&first).map(|server| server.store.clone());
    let fits = |server: &Server| server.shares && Some(&server.store) == store.as_ref();
    state.cluster.next_volume = id + shares.count;
    for (share, VolumeId(id)) in (0..).zip(shares.all()) {
        let chosen = owners::choose(state, shares, id, &is_up, fits);
        let meta_server = chosen.filter(|_| share > 0).unwrap_or(first);
        let spec = VolumeSpec { name: share_name(&spec.name, share), ..spec.clone() };
        state.volumes.insert(id, Volume { spec, meta_server, share, ..Volume::default() });
    }
    check_room(state, 0)?;
    Ok(id)
}

/// What the map takes for volumes. Deleted ones, of some 20 bytes, have no other bound.
fn bytes_of_all(state: &State) -> usize {
    bytes_of(state, |_| true)
}

/// The same, of those that are meant.
fn bytes_of(state: &State, is_meant: impl Fn(&Volume) -> bool) -> usize {
    let meant = state.volumes.iter().filter(|(_, volume)| is_meant(volume));
    let volumes = meant.map(|(&id, volume)| show::volume(id, volume)).collect();
    ClusterMap { volumes, ..ClusterMap::default() }.encoded_len()
}

/// All volumes must fit into the map that everybody is sent, beside the rest of a large cluster.
/// What is no more than `before` is no worse.
fn check_room(state: &State, before: usize) -> Result<()> {
    let bytes = bytes_of_all(state);
    if bytes <= MAP_BYTES_MAX.max(before) {
        return Ok(());
    }
    // They stay: a target that comes back after however long drops what it has of them.
    let deleted = bytes_of(state, |volume| volume.deleting);
    let mend = match deleted > bytes / 2 {
        true => format!(
            "{deleted} of them name volumes that were deleted, for good: empty a volume and use it again instead of deleting \
             it, and make volumes of fewer shares (--shares)"
        ),
        false => "delete volumes (strake volume delete), or name fewer targets in their layouts (strake volume set)".into(),
    };
    Err(invalid(format!(
        "the settings of all volumes would take {bytes} bytes of the cluster's map, and {MAP_BYTES_MAX} are the most: {mend}"
    )))
}

/// What a share is called in logs; no volume can be.
fn share_name(volume: &str, share: u32) -> String {
    match share {
        0 => volume.to_owned(),
        _ => format!("{volume}/{share}"),
    }
}

fn check_shares(wanted: Option<u32>) -> Result<u32> {
    match wanted.unwrap_or(1) {
        shares @ 1..=SHARES_MAX => Ok(shares),
        wrong => {
            Err(invalid(format!("a volume has 1 to {SHARES_MAX} shares, and {wrong} are wanted")))
        }
    }
}

/// The server of the first share of a new volume; 0 where there is none yet and need not be. Several can serve one volume
/// only where one commit of the database can change what is of several; all shares lie in one.
fn first_server(state: &State, shares: Shares, is_up: impl Fn(u32) -> bool) -> Result<u32> {
    let is_one = shares.count == 1;
    let fits = |server: &Server| is_one || server.shares;
    let first = owners::choose(state, shares, shares.first.0, is_up, fits);
    first.or(is_one.then_some(0)).ok_or_else(|| no_shares(state))
}

fn no_shares(state: &State) -> Error {
    if !state.servers.values().any(|server| server.meta) {
        let detail = "no server serves metadata yet; strake server --roles meta starts one";
        return invalid(detail.into());
    }
    let detail = "a volume of several shares needs its metadata in PostgreSQL (or a database that speaks as it does) or etcd; \
         strake meta export, then strake meta import --meta postgres://USER@HOST/DATABASE, moves it there";
    invalid(detail.into())
}

/// Changes the settings that are given; what exists in the volume keeps its layout.
pub(crate) fn set(state: &mut State, spec: &VolumeSpec) -> Result<u32> {
    let wanted = check_settings(state, spec)?;
    let id = find(state, &spec.name)?;
    let shares = shares_of(state, id);
    if spec.shares.is_some_and(|wanted| wanted != shares.count) {
        return Err(invalid(format!(
            "volume {} has as many shares as it was made with ({}); copy what is in it to a volume with more",
            spec.name, shares.count
        )));
    }
    let before = bytes_of_all(state);
    for share in shares.all() {
        let Some(volume) = state.volumes.get(&share.0) else { continue };
        let old = volume.spec.template.clone().unwrap_or_default();
        let template = merged(state, &wanted, &LayoutTemplate::try_from(old)?)?;
        let Some(volume) = state.volumes.get_mut(&share.0) else { continue };
        volume.spec.template = Some((&template).into());
        volume.spec.inline_bytes_max = spec.inline_bytes_max.or(volume.spec.inline_bytes_max);
        volume.spec.sync_always = spec.sync_always.or(volume.spec.sync_always);
    }
    check_room(state, before)?;
    Ok(id)
}

/// Marks a volume as deleted; the servers drop what they hold of it. Its name is free at once.
pub(crate) fn delete(state: &mut State, name: &str) -> Result<u32> {
    let id = find(state, name)?;
    for share in shares_of(state, id).all() {
        if let Some(volume) = state.volumes.get_mut(&share.0) {
            volume.delete();
        }
    }
    Ok(id)
}

fn shares_of(state: &State, id: u32) -> Shares {
    let volume = state.volumes.get(&id);
    volume.map_or(Shares::one(VolumeId(id)), |volume| volume.shares(id))
}

fn find(state: &State, name: &str) -> Result<u32> {
    if let Some((id, _)) = state.volume_named(name) {
        return Ok(id);
    }
    let living = state.volumes.values().filter(|v| !v.deleting && v.share == 0);
    let names: Vec<_> = living.map(|v| v.spec.name.as_str()).collect();
    let detail = match names.len() {
        0 => format!("volume {name}: there is none; make one with `strake volume create {name}`"),
        1..=NAMED_MAX => format!("volume {name} (there are: {})", names.join(", ")),
        count => format!("volume {name} (strake volume list shows the {count} that there are)"),
    };
    Err(Error::with(ErrorKind::NotFound, detail))
}

fn check_name(name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && name.chars().all(good) && !name.starts_with(['.', '-']) {
        return Ok(());
    }
    Err(invalid(format!(
        "volume name {name:?} must be 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`, \
         and not begin with `.` or `-`"
    )))
}

/// Checks what is wanted, and makes the groups that it needs.
fn check_settings(state: &mut State, spec: &VolumeSpec) -> Result<LayoutTemplate> {
    if let Some(bytes) = spec.inline_bytes_max.filter(|&bytes| bytes > INLINE_BYTES_MAX) {
        return Err(invalid(format!("inline size {bytes} must be at most {INLINE_BYTES_MAX}")));
    }
    let template = LayoutTemplate::try_from(spec.template.clone().unwrap_or_default())?;
    template.check_list()?;
    if let Some(copies) = template.copies {
        groups::prepare(state, copies)?;
    }
    let known = |g: &u32| state.groups.contains_key(g);
    if let Some(group) = template.groups.iter().flatten().find(|g| !known(&g.0)) {
        return Err(no_group(state, *group));
    }
    Ok(template)
}

/// Why a group cannot be listed, with those of its kind.
fn no_group(state: &State, group: GroupId) -> Error {
    let copies = group.copies();
    let alike = state.groups.keys().filter(|id| GroupId(**id).copies() == copies);
    let alike: Vec<String> = alike.map(u32::to_string).collect();
    let known = match alike.len() {
        0 => "none".to_owned(),
        1..=NAMED_MAX => alike.join(", "),
        count => count.to_string(),
    };
    let kept = if copies == 1 { "one copy".into() } else { format!("{copies} copies") };
    invalid(format!(
        "group {group} does not exist: of {kept} there are {known}; strake status --json shows all"
    ))
}

/// What is wanted, with what a volume has where nothing was said. Both may be right, and not fit together.
fn merged(
    state: &mut State,
    wanted: &LayoutTemplate,
    present: &LayoutTemplate,
) -> Result<LayoutTemplate> {
    let template = wanted.or(present, |list, copies| {
        let mut found = on_same_targets(state, list, copies);
        if !found.is_whole() {
            let listed = list.iter().filter_map(|group| state.groups.get(&group.0));
            let leads = listed.filter_map(|group| group.members.first().copied());
            let leads: HashSet<u32> = leads.collect();
            groups::prepare_led(state, copies, |id| leads.contains(&id))?;
            found = on_same_targets(state, list, copies);
        }
        found
            .all()
            .map_err(|error| invalid(format!("{}; name other groups (--groups)", error.detail)))
    })?;
    fitting(template)
}

fn on_same_targets(state: &State, list: &[GroupId], copies: u32) -> SameTargets {
    let groups = state.groups.iter().map(|(id, group)| (GroupId(*id), &group.members[..]));
    GroupsByTarget::of(groups).on_same_targets(list, copies)
}

fn fitting(template: LayoutTemplate) -> Result<LayoutTemplate> {
    template.validate().map_err(|error| {
        invalid(format!("{}; --copies and --min-copies may be given together", error.detail))
    })?;
    Ok(template)
}

/// What a volume has where nothing was said.
fn defaults() -> LayoutTemplate {
    LayoutTemplate {
        chunk_size: Some(CHUNK_BYTES_DEFAULT),
        distribution: Some(Distribution::SimpleStripe),
        width: Some(0),
        groups: None,
        copies: Some(1),
        ack: Some(Ack::All),
        min_copies: Some(1),
        consistency: Some(Consistency::Strict),
    }
}

#[cfg(test)]
mod tests;
