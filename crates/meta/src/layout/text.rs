//! The layout of a file or directory as the text of `user.strake.layout.*`.

use super::{for_children, with_copies};
use crate::cluster::Settings;
use crate::records::Inode;
use strake_types::layout::{Groups, LayoutTemplate};
use strake_types::{Error, ErrorKind, GroupId, Layout, Result, size};
use strake_wire::map::MapView;
use strake_wire::message::manager::ClusterMap;

/// A part of the layout that a virtual attribute shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayoutField {
    ChunkSize,
    Width,
    Distribution,
    Targets,
    Copies,
    Ack,
    MinCopies,
    Consistency,
}

/// The layout in force: of a file its own, of a directory what its children get.
pub(crate) fn effective(inode: &Inode, settings: &Settings, map: &MapView) -> Result<Layout> {
    match &inode.layout {
        Some(layout) => layout.clone().try_into(),
        None if inode.is_dir() => for_children(inode, settings, map),
        None => Err(Error::new(ErrorKind::NoAttribute)),
    }
}

/// The text of a field.
pub(crate) fn show(layout: &Layout, field: LayoutField, map: &ClusterMap) -> Result<String> {
    Ok(match field {
        LayoutField::ChunkSize => layout.chunk_size.to_string(),
        LayoutField::Width => layout.width.to_string(),
        LayoutField::Distribution => layout.distribution.to_string(),
        LayoutField::Copies => layout.copies().to_string(),
        LayoutField::Ack => layout.safety.ack.to_string(),
        LayoutField::MinCopies => layout.safety.min_copies.to_string(),
        LayoutField::Consistency => layout.consistency.to_string(),
        LayoutField::Targets => match &layout.groups {
            Groups::Table { .. } => return Err(Error::new(ErrorKind::NoAttribute)),
            Groups::List(list) => {
                list.iter().map(|group| target_of(map, *group)).collect::<Vec<_>>().join(",")
            }
        },
    })
}

fn target_of(map: &ClusterMap, group: GroupId) -> String {
    let members = map.group(group).map(|found| &found.members);
    match members.and_then(|members| members.first()) {
        Some(target) => target.to_string(),
        None => format!("group {group}"),
    }
}

/// Sets a field from its text; an empty text removes it. `copies` are those in force.
pub(crate) fn set(
    template: &mut LayoutTemplate,
    field: LayoutField,
    text: &[u8],
    map: &MapView,
    copies: u32,
) -> Result<()> {
    let text = std::str::from_utf8(text).map_err(|_| invalid("a layout is written in ASCII"))?;
    // Tools that write lines may leave their end.
    let text = text.trim_end_matches(['\n', '\0']);
    if text.is_empty() {
        clear(template, field);
        return Ok(());
    }
    match field {
        LayoutField::ChunkSize => template.chunk_size = Some(size::parse(text).map_err(invalid)?),
        LayoutField::Width if text == "all" => template.width = Some(0),
        LayoutField::Width => {
            let width = text.parse().map_err(|_| invalid("width is a number, or all"))?;
            template.width = Some(width);
        }
        LayoutField::Distribution => template.distribution = Some(text.parse()?),
        LayoutField::Targets => {
            let map_now = map.current();
            let groups = text.split(',').map(|target| group_of(&map_now, target.trim(), copies));
            template.groups = Some(groups.collect::<Result<_>>()?);
            template.check_list()?;
            template.copies = Some(copies);
            // Those and no others: as wide as the list.
            template.width = None;
        }
        LayoutField::Copies => {
            let copies = text.parse().map_err(|_| invalid("copies is a number"))?;
            *template = with_copies(template, copies, map)?;
        }
        LayoutField::Ack => template.ack = Some(text.parse()?),
        LayoutField::MinCopies => {
            let least = text.parse().map_err(|_| invalid("min_copies is a number"))?;
            template.min_copies = Some(least);
        }
        LayoutField::Consistency => template.consistency = Some(text.parse()?),
    }
    template.validate()
}

fn clear(template: &mut LayoutTemplate, field: LayoutField) {
    match field {
        LayoutField::ChunkSize => template.chunk_size = None,
        LayoutField::Width => template.width = None,
        LayoutField::Distribution => template.distribution = None,
        LayoutField::Targets => template.groups = None,
        // A list of groups says itself how many copies they keep.
        LayoutField::Copies if template.groups.is_none() => template.copies = None,
        LayoutField::Copies => {}
        LayoutField::Ack => template.ack = None,
        LayoutField::MinCopies => template.min_copies = None,
        LayoutField::Consistency => template.consistency = None,
    }
}

/// The group with so many copies that a target leads.
fn group_of(map: &ClusterMap, target: &str, copies: u32) -> Result<GroupId> {
    let unknown = || invalid(format!("target {target:?} is not in the cluster; see strake status"));
    let id: u32 = target.parse().map_err(|_| unknown())?;
    let mut groups = map.groups.iter().map(|group| (GroupId(group.id), group));
    let led = groups
        .find(|(known, group)| known.copies() == copies && group.members.first() == Some(&id));
    led.map(|(known, _)| known).ok_or_else(unknown)
}

fn invalid(detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::with(ErrorKind::Invalid, detail)
}
