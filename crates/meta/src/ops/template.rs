//! The layout template of a directory, and the layout of a file that has no contents yet.

use crate::ctx::Ctx;
use crate::layout::{self, text};
use crate::records::Inode;
use crate::txn::Mutation;
use crate::view::Tx;
use strake_types::layout::{Groups, LayoutTemplate};
use strake_types::{Error, ErrorKind, Ino, Layout, Result};
use strake_wire::message::common::Template;
use strake_wire::message::meta::{self, MetaAnswer, Nothing, SetTemplate};

/// Answers with the template set on a directory itself, or taken over when it was made.
pub(crate) async fn get_template(ctx: &Ctx, op: &meta::Inode) -> Result<MetaAnswer> {
    let inode = Tx::reader(ctx).inode(Ino(op.ino)).await?;
    match (inode.is_dir(), inode.is_file()) {
        (true, _) => Ok(MetaAnswer::Template(inode.template.clone().unwrap_or_default())),
        (_, true) => {
            let layout = text::effective(&inode, &ctx.settings, &ctx.core.map)?;
            Ok(MetaAnswer::Template((&as_template(&layout)).into()))
        }
        _ => Err(no_layout()),
    }
}

fn no_layout() -> Error {
    Error::with(ErrorKind::Invalid, "only files and directories have a layout")
}

impl Mutation for SetTemplate {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![Ino(self.ino)])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let inode = tx.inode(Ino(self.ino)).await?;
        tx.ctx.check_owner(&inode)?;
        let template: LayoutTemplate = self.template.clone().try_into()?;
        check_groups(tx.ctx, &template)?;
        let changed = match inode.is_dir() {
            true => {
                let ctx = tx.ctx;
                layout::check_inherited(&inode, &template, &ctx.settings, &ctx.core.map)?;
                with_directory_template(&inode, &template)
            }
            false => with_file_template(&inode, &template, tx.ctx)?,
        };
        let ctime = tx.now.into();
        tx.put_inode(Inode { ctime, ..changed }).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }

    async fn finish(&self, ctx: &Ctx, _answer: &MetaAnswer) -> Result<()> {
        keep_layout(ctx, Ino(self.ino)).await
    }

    fn takes_room(&self) -> bool {
        true
    }
}

/// Another layout of an empty file is on disk before anybody can write where it is to lie: a loss of power would have it lie
/// where it was to lie before, and what was written and synced be nowhere. The caller holds its lock. That of a directory is
/// before those of its files in the same journal.
pub(crate) async fn keep_layout(ctx: &Ctx, ino: Ino) -> Result<()> {
    match Tx::reader(ctx).find_inode(ino).await? {
        Some(inode) if inode.is_file() => ctx.volume.sync().await,
        _ => Ok(()),
    }
}

/// Fails unless every group named exists, and groups that keep so many copies do.
pub(crate) fn check_groups(ctx: &Ctx, template: &LayoutTemplate) -> Result<()> {
    let tables = &ctx.settings.tables;
    match template.groups.iter().flatten().find(|group| !tables.has(**group)) {
        None => {}
        Some(group) => {
            let detail = format!("group {group} is not in the cluster; see strake status");
            return Err(Error::with(ErrorKind::Invalid, detail));
        }
    }
    match template.copies.filter(|&copies| copies > 1 && tables.size(copies) == 0) {
        None => Ok(()),
        Some(copies) => {
            let detail = format!(
                "the cluster has no groups of {copies} copies yet; strake layout set DIR --copies \
                 {copies} makes them"
            );
            Err(Error::with(ErrorKind::Invalid, detail))
        }
    }
}

/// A directory that hands down another template.
pub(crate) fn with_directory_template(dir: &Inode, template: &LayoutTemplate) -> Inode {
    let template: Option<Template> = (!template.is_empty()).then(|| template.into());
    Inode { template, ..dir.clone() }
}

/// A file with another layout. Chunks are never moved, so it must have none.
pub(crate) fn with_file_template(
    file: &Inode,
    template: &LayoutTemplate,
    ctx: &Ctx,
) -> Result<Inode> {
    if !file.is_file() {
        return Err(no_layout());
    }
    if file.length > 0 || file.has_chunks() {
        let detail = format!("file {} has contents: its layout stays as it is", file.ino);
        return Err(Error::with(ErrorKind::Busy, detail));
    }
    let map = &ctx.core.map;
    let present = as_template(&text::effective(file, &ctx.settings, map)?);
    let template = template.or(&present, layout::on_all(map))?;
    let layout = template.resolve(file.ino, &ctx.settings.tables);
    layout.validate()?;
    // As when it was made.
    let layout = ctx.core.around_full(layout);
    let id = file.id();
    if layout.consistency != file.consistency() && ctx.volume.sessions.may_hold(id) {
        let detail = format!("file {id} is open: its consistency stays as it is");
        return Err(Error::with(ErrorKind::Busy, detail));
    }
    Ok(Inode { layout: Some((&layout).into()), ..file.clone() })
}

/// A layout as the template that leads to it. What nobody has listed is looked for in the table anew, in the width that it was
/// to have.
pub(crate) fn as_template(layout: &Layout) -> LayoutTemplate {
    LayoutTemplate {
        chunk_size: Some(layout.chunk_size),
        distribution: Some(layout.distribution.clone()),
        width: Some(layout.around_full.unwrap_or(layout.width)),
        groups: match &layout.groups {
            Groups::List(list) if layout.around_full.is_none() => Some(list.clone()),
            Groups::Table { .. } | Groups::List(_) => None,
        },
        copies: Some(layout.copies()),
        ack: Some(layout.safety.ack),
        min_copies: Some(layout.safety.min_copies),
        consistency: Some(layout.consistency),
    }
}

/// The template that a change through the attributes of a directory or file begins with.
pub(crate) fn template_to_change(inode: &Inode) -> Result<LayoutTemplate> {
    match inode.is_dir() {
        true => layout::template_of(inode),
        false => Ok(LayoutTemplate::default()),
    }
}

#[cfg(test)]
mod tests;
