//! What copies do not protect, and where a distribution does not fit, as it is said where they are chosen: for a volume, or
//! for a directory of it.

use crate::{groups, output, size};
use std::collections::BTreeSet;
use strake_manager::ADD_SERVER;
use strake_types::layout::{Distribution, GroupTables, LayoutTemplate};
use strake_types::{Ack, GroupId};
use strake_wire::message::manager::{ClusterMap, Volume};

/// What new files get somewhere.
pub struct Choice<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// On how many targets each of their chunks is kept.
    pub copies: u32,
    /// Who must have a write before it is acknowledged.
    pub ack: Ack,
    /// The copies are chosen now.
    pub is_new: bool,
    /// Where files may be that have another number of copies.
    pub others_at: Option<String>,
}

impl Choice<'_> {
    /// What to say of it.
    pub fn notes(&self, map: &ClusterMap) -> Vec<String> {
        let several = self.copies > 1;
        let crowded =
            (several && groups::share_servers(map, self.copies)).then(|| self.crowded(map));
        let early = (several && self.ack == Ack::Primary).then(|| {
            "what the primary alone has acknowledged is lost if its server dies before the others have it; fsync waits for all"
                .to_owned()
        });
        let small = (several && self.is_new).then(|| self.small(map)).flatten();
        let others = self.others_at.iter().filter(|_| self.is_new);
        let others = others.map(|place| {
            format!(
                "files that exist already keep the copies they have; to give them {} too: strake layout set --copies {} \
                 --existing {place}",
                self.copies, self.copies
            )
        });
        [crowded, early, small].into_iter().flatten().chain(others).collect()
    }

    fn crowded(&self, map: &ClusterMap) -> String {
        let staying = map.targets.iter().filter(|target| !target.drains);
        let servers: BTreeSet<u32> = staying.map(|target| target.server).collect();
        let mend = match servers.len() >= self.copies as usize {
            true => "strake rebalance brings them onto several".to_owned(),
            false => format!("add a server ({ADD_SERVER}), then: strake rebalance"),
        };
        format!(
            "some groups keep several of their {} copies on one server, and do not survive its loss: there were fewer servers \
             when they were made; {mend}",
            self.copies
        )
    }

    /// Small files lie beside their names. A database has copies of its own, or has not: it is not ours to say.
    fn small(&self, map: &ClusterMap) -> Option<String> {
        let owner = map.servers.iter().find(|server| server.id == self.volume.meta_server)?;
        let bytes = self.volume.spec.inline_bytes_max.unwrap_or_default();
        let embedded = owner.store.is_empty() && bytes > 0;
        embedded.then(|| {
            format!(
                "names, attributes and files of up to {} lie in the metadata, which has one copy, on server {}",
                size::show(bytes.into()),
                owner.name
            )
        })
    }
}

/// What to say of a stripe width or a distribution that is asked for, and wants other groups than the files have that such a
/// template leads to.
pub fn of_stripe(
    asked: &LayoutTemplate,
    template: &LayoutTemplate,
    map: &ClusterMap,
) -> Vec<String> {
    let tables = GroupTables::of(map.groups.iter().map(|group| GroupId(group.id)));
    let width = template.resolve(0, &tables).width;
    let over = output::count(width.into(), "group", "groups");
    let wide = asked
        .width
        .filter(|&wanted| wanted > width)
        .map(|wanted| format!("files are laid over {over}: there are not {wanted}"));
    let asked = asked.distribution.as_ref();
    wide.into_iter().chain(asked.and_then(|one| of_distribution(one, width, &over))).collect()
}

fn of_distribution(distribution: &Distribution, width: u32, over: &str) -> Option<String> {
    match distribution {
        Distribution::Varstrip(strips) => {
            let slot = strips.iter().map(|strip| strip.slot).max()?;
            let same = slot.checked_rem(width).filter(|&same| same != slot)?;
            Some(format!(
                "files are laid over {over}, slots 0 to {}: slot {slot} is slot {same} again",
                width - 1
            ))
        }
        &Distribution::TwodStripe { groups, .. } if groups > width && width > 0 => {
            Some(format!("files are laid over {over}: there are not {groups} runs, but {width}"))
        }
        &Distribution::TwodStripe { groups, .. } if !width.is_multiple_of(groups) => Some(format!(
            "files are laid over {over}, which {groups} runs do not divide evenly: some are shorter"
        )),
        _ => None,
    }
}

/// Prints them.
pub fn show(notes: &[String]) {
    notes.iter().for_each(|note| output::advice(&format!("note: {note}")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::{Group, Server, Target, VolumeSpec};

    /// Two servers with a target each, and one group of two copies on the first alone.
    fn map() -> ClusterMap {
        let server = |id| Server { id, name: format!("h{id}"), ..Server::default() };
        let target = |id, server| Target { id, server, ..Target::default() };
        let group =
            Group { id: GroupId::of_class(2, 0).0, members: vec![1, 2], ..Group::default() };
        ClusterMap {
            servers: vec![server(1), server(2)],
            targets: vec![target(1, 1), target(2, 1), target(3, 2)],
            groups: vec![group],
            ..ClusterMap::default()
        }
    }

    fn volume() -> Volume {
        let spec = VolumeSpec { inline_bytes_max: Some(8192), ..VolumeSpec::default() };
        Volume { id: 1, meta_server: 1, spec, ..Volume::default() }
    }

    fn choice(volume: &Volume, copies: u32) -> Choice<'_> {
        Choice { volume, copies, ack: Ack::All, is_new: false, others_at: None }
    }

    /// Four groups took slot 9, three runs and a width of nine without a word.
    #[test]
    fn a_distribution_that_does_not_fit_the_groups_is_told() {
        let group = |nth| Group { id: GroupId::of_class(1, nth).0, ..Group::default() };
        let groups = (0..4).map(group).collect();
        let map = ClusterMap { groups, ..ClusterMap::default() };
        let note = |text: &str| {
            let distribution = Some(text.parse().unwrap());
            let template = LayoutTemplate { distribution, ..LayoutTemplate::default() };
            of_stripe(&template, &template, &map).pop()
        };
        for (text, word) in [
            ("varstrip=0:32K,9:64K", "slot 9 is slot 1 again"),
            ("twod_stripe=5:4", "not 5 runs, but 4"),
            ("twod_stripe=3:4", "3 runs do not divide evenly"),
        ] {
            assert!(note(text).unwrap().contains(word), "{text}");
        }
        for good in ["varstrip=0:32K,3:64K", "twod_stripe=2:4", "simple_stripe"] {
            assert_eq!(note(good), None, "{good}");
        }
        let wide = |width| {
            let template = LayoutTemplate { width: Some(width), ..LayoutTemplate::default() };
            of_stripe(&template, &template, &map)
        };
        assert_eq!(wide(9), ["files are laid over 4 groups: there are not 9"]);
        assert!(wide(0).is_empty() && wide(4).is_empty());
        let before = LayoutTemplate { width: Some(9), ..LayoutTemplate::default() };
        assert!(of_stripe(&LayoutTemplate::default(), &before, &map).is_empty(), "not asked for");
    }

    #[test]
    fn copies_on_one_server_are_told_with_the_command_that_spreads_them() {
        let (mut map, volume) = (map(), volume());
        let notes = choice(&volume, 2).notes(&map);
        assert!(
            notes.len() == 1 && notes[0].ends_with("; strake rebalance brings them onto several")
        );
        map.targets[2].drains = true;
        let notes = choice(&volume, 2).notes(&map);
        assert!(
            notes[0].contains(ADD_SERVER) && notes[0].ends_with("strake rebalance"),
            "{notes:?}"
        );
        map.targets[1].server = 2;
        assert!(choice(&volume, 2).notes(&map).is_empty());
    }

    #[test]
    fn what_may_be_lost_with_the_primary_is_told_where_there_are_several_copies() {
        let (mut map, volume) = (map(), volume());
        map.targets[1].server = 2;
        let early = |copies| Choice { ack: Ack::Primary, ..choice(&volume, copies) }.notes(&map);
        assert!(early(1).is_empty());
        assert!(early(2).len() == 1 && early(2)[0].contains("if its server dies"));
    }

    #[test]
    fn small_files_have_the_copies_of_an_embedded_store_and_others_the_ones_they_had() {
        let (mut map, mut volume) = (map(), volume());
        map.targets[1].server = 2;
        let of = |volume: &Volume, map: &ClusterMap, copies, place: Option<&str>| {
            let others_at = place.map(str::to_owned);
            Choice { is_new: true, others_at, ..choice(volume, copies) }.notes(map)
        };
        let notes = of(&volume, &map, 2, Some(":/main"));
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("8 KiB") && notes[0].ends_with("one copy, on server h1"));
        assert!(notes[1].ends_with("strake layout set --copies 2 --existing :/main"));
        assert_eq!(of(&volume, &map, 1, Some(":/main")).len(), 1, "fewer copies are no less");
        assert!(choice(&volume, 2).notes(&map).is_empty(), "nobody asked for copies");
        map.servers[0].store = "database".into();
        assert!(of(&volume, &map, 2, None).is_empty());
        map.servers[0].store.clear();
        volume.spec.inline_bytes_max = Some(0);
        assert!(of(&volume, &map, 2, None).is_empty());
    }
}
