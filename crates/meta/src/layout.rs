//! Which layout a new file gets.
//!
//! A directory hands down its template; a new directory takes over its parent's, so a file looks no
//! further than its directory and then at its volume. What changes later holds for what is made
//! later.

pub(crate) mod text;

use crate::cluster::Settings;
use crate::records::Inode;
use strake_types::layout::LayoutTemplate;
use strake_types::{Ino, Layout, Result};
use strake_wire::message::common::Template;

/// The template set on a directory, with what it took over when it was made.
pub(crate) fn template_of(dir: &Inode) -> Result<LayoutTemplate> {
    match &dir.template {
        None => Ok(LayoutTemplate::default()),
        Some(template) => template.clone().try_into(),
    }
}

/// The layout that children of a directory get.
pub(crate) fn for_children(dir: &Inode, settings: &Settings) -> Result<Layout> {
    let template = template_of(dir)?.or(&settings.template);
    Ok(template.resolve(0, &settings.tables))
}

/// The layout of a new file, with what is asked for it alone.
pub(crate) fn for_new_file(
    dir: &Inode,
    own: Option<&Template>,
    ino: Ino,
    settings: &Settings,
) -> Result<Layout> {
    let inherited = template_of(dir)?.or(&settings.template);
    let template = match own {
        None => inherited,
        Some(own) => LayoutTemplate::try_from(own.clone())?.or(&inherited),
    };
    let layout = template.resolve(ino.0, &settings.tables);
    layout.validate()?;
    Ok(layout)
}
