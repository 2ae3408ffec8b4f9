//! Volumes: making, changing and deleting them.

use crate::groups;
use crate::owners;
use crate::records::{Server, Volume};
use crate::show;
use crate::state::State;
use prost::Message;
use strake_types::layout::{Distribution, LayoutTemplate};
use strake_types::limits::{
    BODY_BYTES_MAX, CHUNK_BYTES_DEFAULT, INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, VOLUMES_MAX,
};
use strake_types::shares::SHARES_MAX;
use strake_types::{Ack, Consistency, Error, ErrorKind, Result, Shares, VolumeId};
use strake_wire::message::manager::{ClusterMap, VolumeSpec};

/// Most bytes of the cluster's map that tell of volumes.
const MAP_BYTES_MAX: usize = BODY_BYTES_MAX * 3 / 8;
/// Most volumes that an error names.
const NAMED_MAX: usize = 20;
/// Longest name of a volume.
const NAME_BYTES_MAX: usize = 64;

fn invalid(detail: String) -> Error {
    Error::with(ErrorKind::Invalid, detail)
}

/// Makes a volume and returns its id.
pub(crate) fn create(
    state: &mut State,
    spec: &VolumeSpec,
    is_up: impl Fn(u32) -> bool,
) -> Result<u32> {
    check_name(&spec.name)?;
    if state.volume_named(&spec.name).is_some() {
        let detail = format!("volume {} (strake volume list shows those there are)", spec.name);
        return Err(Error::with(ErrorKind::Exists, detail));
    }
    let shares = check_shares(spec.shares)?;
    let living = state.volumes.values().filter(|volume| !volume.deleting).count();
    if living + shares as usize > VOLUMES_MAX {
        return Err(invalid(format!("a cluster has at most {VOLUMES_MAX} volumes")));
    }
    let template = merged(&check_settings(state, spec)?, &defaults())?;
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
    let volumes = state.volumes.iter().map(|(&id, volume)| show::volume(id, volume)).collect();
    ClusterMap { volumes, ..ClusterMap::default() }.encoded_len()
}

/// All volumes must fit into the map that everybody is sent, beside the rest of a large cluster.
/// What is no more than `before` is no worse.
fn check_room(state: &State, before: usize) -> Result<()> {
    let bytes = bytes_of_all(state);
    if bytes <= MAP_BYTES_MAX.max(before) {
        return Ok(());
    }
    Err(invalid(format!(
        "the settings of all volumes would take {bytes} bytes of the cluster's map, and {MAP_BYTES_MAX} are the most: delete \
         volumes (strake volume delete), or name fewer targets in their layouts (strake volume set)"
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
        let Some(volume) = state.volumes.get_mut(&share.0) else { continue };
        let old = volume.spec.template.clone().unwrap_or_default();
        let template = merged(&wanted, &LayoutTemplate::try_from(old)?)?;
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
    let listed = || template.groups.iter().flatten();
    if let Some(group) = listed().find(|g| !known(&g.0)) {
        return Err(invalid(format!(
            "group {group} does not exist (there are {}; strake status shows them)",
            state.groups.len()
        )));
    }
    let copies = template.copies.or(listed().next().map(|group| group.copies()));
    if let Some(group) = listed().find(|group| Some(group.copies()) != copies) {
        return Err(invalid(format!(
            "group {group} keeps {} copies, and {} are wanted; name groups of the same kind",
            group.copies(),
            copies.unwrap_or(1)
        )));
    }
    Ok(template)
}

/// What is wanted, with what a volume has where nothing was said. Both may be right, and not fit together.
fn merged(wanted: &LayoutTemplate, present: &LayoutTemplate) -> Result<LayoutTemplate> {
    let template = wanted.or(present);
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
mod tests {
    use super::*;
    use crate::fences::FENCES_MAX;
    use crate::join::ALL_TARGETS_MAX;
    use crate::liveness::Liveness;
    use crate::records::{Fence, Group, Target};
    use std::sync::Arc;
    use std::time::Duration;
    use strake_types::GroupId;
    use strake_types::limits::STRIPE_WIDTH_MAX;
    use strake_wire::message::common::Template;

    fn spec(name: &str) -> VolumeSpec {
        VolumeSpec { name: name.to_owned(), ..VolumeSpec::default() }
    }

    /// The largest volume there can be.
    fn large() -> Volume {
        let group = |nth| GroupId::of_class(3, nth);
        let groups = Some((0..STRIPE_WIDTH_MAX as u32).map(group).collect());
        let template = LayoutTemplate { groups, ..defaults() };
        let name = "v".repeat(NAME_BYTES_MAX);
        let spec = VolumeSpec { template: Some((&template).into()), ..spec(&name) };
        Volume { spec, ..Volume::default() }
    }

    /// A cluster of which the volumes take as much of the map as they may.
    fn full() -> State {
        let mut state = State::default();
        for id in 1.. {
            state.volumes.insert(id, large());
            if check_room(&state, 0).is_err() {
                state.volumes.remove(&id);
                state.cluster.next_volume = id;
                return state;
            }
        }
        unreachable!("there is an end to that")
    }

    /// They were stored, and nobody could open the volume or give it other ones any more.
    #[test]
    fn settings_that_do_not_fit_together_are_refused() {
        let set_to = |copies, min_copies| {
            let template = LayoutTemplate { copies, min_copies, ..LayoutTemplate::default() };
            VolumeSpec { template: Some((&template).into()), ..spec("v") }
        };
        let volume = |copies, min_copies| {
            let stored = Template { copies, min_copies, ..Template::default() };
            let spec = VolumeSpec { template: Some(stored), ..spec("v") };
            let volumes = [(1, Volume { spec, ..Volume::default() })].into();
            let targets = [(1, Target::default())].into();
            State { volumes, targets, ..State::default() }
        };
        for (mut state, wanted) in [
            (volume(Some(1), Some(1)), set_to(None, Some(2))),
            (volume(Some(2), Some(2)), set_to(Some(1), None)),
        ] {
            let refused = set(&mut state, &wanted).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Invalid);
            assert!(refused.detail.contains("--min-copies"), "{refused}");
        }
        assert!(create(&mut State::default(), &set_to(None, Some(2)), |_| true).is_err());
        let mut state = volume(Some(2), Some(2));
        set(&mut state, &set_to(Some(1), Some(1))).unwrap();
        // What an earlier release has stored takes other settings again.
        let mut state = volume(Some(1), Some(2));
        set(&mut state, &VolumeSpec { sync_always: Some(true), ..spec("v") }).unwrap();
        let now = state.volumes[&1].spec.template.clone().unwrap();
        assert_eq!((now.copies, now.min_copies), (Some(1), Some(1)));
    }

    /// Nobody could be sent the map any more: of a hundred thousand volumes, which were allowed, it took eight megabytes.
    #[test]
    fn volumes_beyond_what_the_map_can_tell_are_refused() {
        let mut state = full();
        let count = state.volumes.len();
        let mut refused = None;
        for nth in 0..1_000 {
            let mut next = state.clone();
            match create(&mut next, &spec(&format!("small{nth}")), |_| true) {
                Ok(_) => state = next,
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let refused = refused.expect("a large one would not have fitted");
        assert!(refused.detail.contains("strake volume delete"), "{refused}");
        let missing = find(&state, "missing").unwrap_err();
        assert!(
            missing.detail.contains(&format!("shows the {}", state.volumes.len())),
            "{missing}"
        );
        assert!(state.volumes.len() > count);
    }

    /// What they had been given was told with the map for ever, and each share of them counted as a volume.
    #[test]
    fn deleted_volumes_leave_room_for_others() {
        let mut state = full();
        let name = "v".repeat(NAME_BYTES_MAX);
        while delete(&mut state, &name).is_ok() {}
        create(&mut state, &spec("small"), |_| true).unwrap();

        let meta = Server { meta: true, shares: true, store: "db".into(), ..Server::default() };
        let mut state = State { servers: [(1, meta)].into(), ..State::default() };
        let wide = VolumeSpec { shares: Some(SHARES_MAX), ..spec("wide") };
        create(&mut state, &wide, |_| true).unwrap();
        delete(&mut state, "wide").unwrap();
        let deleted: Vec<Volume> = state.volumes.into_values().collect();
        let count = 2 * VOLUMES_MAX;
        state.volumes = (1..).zip(deleted.into_iter().cycle().take(count)).collect();
        state.cluster.next_volume = count as u32 + 1;
        let id = create(&mut state, &wide, |_| true).unwrap();
        assert_eq!(find(&state, "wide").unwrap(), id);
    }

    #[test]
    fn the_map_of_a_large_cluster_fits_into_a_message() {
        let mut state = full();
        for id in 1..=1_000 {
            let (address, name) = ("255.255.255.255:65535".to_owned(), "h".repeat(64));
            let store = "0c".repeat(16);
            let server = Server { address, name, store, meta: true, ..Server::default() };
            state.servers.insert(id, server);
        }
        for id in 1..=ALL_TARGETS_MAX as u32 {
            let (uuid, path) = ("0c".repeat(16), format!("/srv/strake/disk-{id}/target"));
            let target =
                Target { server: id / 8, uuid, path, total_bytes: 1 << 44, ..Target::default() };
            state.targets.insert(id, target);
            for copies in 1..=3 {
                let members: Vec<u32> = (id..id + copies).collect();
                let in_sync = members.clone();
                let group = Group {
                    epoch: 1 << 20,
                    members,
                    in_sync,
                    lost_ms: 1 << 40,
                    ..Group::default()
                };
                state.groups.insert(GroupId::of_class(copies, id).0, group);
            }
        }
        for id in 1..=FENCES_MAX as u32 {
            let (session, epoch) = (u64::from(id) << 16, 1 << 20);
            let fence = Fence { volume: 20_000, session, epoch, ..Fence::default() };
            state.fences.insert(id, fence);
        }
        let live = Liveness::new(Duration::ZERO, Duration::ZERO, 1..=1_000);
        let sight = show::Sight::of(&Arc::new(state), &live, Duration::ZERO);
        let bytes = sight.map().encoded_len();
        assert!(bytes < BODY_BYTES_MAX, "{bytes}");
    }
}
