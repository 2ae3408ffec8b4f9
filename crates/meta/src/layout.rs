//! Which layout a new file gets.
//!
//! A directory hands down its template; a new directory takes over its parent's, so a file looks no
//! further than its directory and then at its volume. What changes later holds for what is made
//! later.

pub(crate) mod text;

use crate::cluster::Settings;
use crate::records::Inode;
use strake_types::layout::LayoutTemplate;
use strake_types::{GroupId, Ino, Layout, Result};
use strake_wire::map::MapView;
use strake_wire::message::common::Template;

/// The template set on a directory, with what it took over when it was made.
pub(crate) fn template_of(dir: &Inode) -> Result<LayoutTemplate> {
    match &dir.template {
        None => Ok(LayoutTemplate::default()),
        Some(template) => template.clone().try_into(),
    }
}

/// How [`LayoutTemplate::or`] finds other copies on the same targets where somebody asks for them: on all, or it is refused.
pub(crate) fn on_all(map: &MapView) -> impl FnOnce(&[GroupId], u32) -> Result<Vec<GroupId>> {
    move |list: &[GroupId], copies| map.on_same_targets(list, copies).all()
}

/// The same for what is made: it goes where they lie now as far as they do, and is not refused.
fn on_some(map: &MapView) -> impl FnOnce(&[GroupId], u32) -> Result<Vec<GroupId>> {
    move |list: &[GroupId], copies| Ok(map.on_same_targets(list, copies).some())
}

/// A template with so many copies, of a directory or a file: what is listed stays on the same targets, or it is refused.
pub(crate) fn with_copies(
    known: &LayoutTemplate,
    copies: u32,
    map: &MapView,
) -> Result<LayoutTemplate> {
    let wanted = LayoutTemplate { copies: Some(copies), ..LayoutTemplate::default() };
    wanted.validate()?;
    wanted.or(known, on_all(map))
}

/// What a directory with such a template hands down.
fn handed_down(
    template: &LayoutTemplate,
    settings: &Settings,
    map: &MapView,
) -> Result<LayoutTemplate> {
    template.or(&settings.template, on_some(map))
}

/// The layout that children of a directory get.
pub(crate) fn for_children(dir: &Inode, settings: &Settings, map: &MapView) -> Result<Layout> {
    let template = handed_down(&template_of(dir)?, settings, map)?;
    Ok(template.resolve(0, &settings.tables))
}

/// The layout of a new file, with what is asked for it alone.
pub(crate) fn for_new_file(
    dir: &Inode,
    own: Option<&Template>,
    ino: Ino,
    settings: &Settings,
    map: &MapView,
) -> Result<Layout> {
    let inherited = handed_down(&template_of(dir)?, settings, map)?;
    let template = match own {
        None => inherited,
        Some(own) => LayoutTemplate::try_from(own.clone())?.or(&inherited, on_all(map))?,
    };
    let layout = template.resolve(ino.0, &settings.tables);
    layout.validate()?;
    Ok(layout)
}

/// Fails where a directory that gets such a template would hand down other copies of what is listed for the volume, and a target
/// that is listed there leads none such.
pub(crate) fn check_inherited(
    dir: &Inode,
    template: &LayoutTemplate,
    settings: &Settings,
    map: &MapView,
) -> Result<()> {
    let stays = |before: LayoutTemplate| {
        before.copies == template.copies && before.groups == template.groups
    };
    match template_of(dir).is_ok_and(stays) {
        true => Ok(()),
        false => {
            let inherited = template.or(&settings.template, on_all(map)).map(drop);
            inherited.map_err(|error| error.about("of the volume's --groups"))
        }
    }
}
