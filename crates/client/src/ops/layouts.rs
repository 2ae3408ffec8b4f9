//! Where files lie, and what directories hand down.

use super::{done, unexpected};
use crate::api::{Chunks, LayoutView};
use crate::metrics::Op;
use crate::volume::Volume;
use strake_types::layout::{LayoutTemplate, Placement};
use strake_types::{Credentials, Error, ErrorKind, FileKind, Ino, Result};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

impl Volume {
    /// The layout template set on a directory itself; nothing set: an empty one.
    pub async fn template(&self, cred: &Credentials, ino: Ino) -> Result<LayoutTemplate> {
        let _timer = self.count(Op::Layout);
        match self.ask(cred, MetaOp::GetTemplate(meta::Inode { ino: ino.0 })).await? {
            MetaAnswer::Template(template) => template.try_into(),
            _ => Err(unexpected("get template")),
        }
    }

    /// Sets the layout of a directory, for what is created in it later, or of a file that has no
    /// contents yet.
    pub async fn set_template(
        &self,
        cred: &Credentials,
        ino: Ino,
        template: &LayoutTemplate,
    ) -> Result<()> {
        let _timer = self.count(Op::Layout);
        template.validate()?;
        let set = meta::SetTemplate { ino: ino.0, template: template.into() };
        let answer = self.mutate(cred, MetaOp::SetTemplate(set)).await?;
        self.forget_attr(ino);
        done(&answer, "set template")
    }

    /// Where the chunks of a regular file lie.
    pub async fn layout(&self, ino: Ino) -> Result<LayoutView> {
        let _timer = self.count(Op::Layout);
        let attr = self.getattr(ino).await?;
        let Some(layout) = attr.layout.filter(|_| attr.kind == FileKind::File) else {
            let detail = format!("inode {ino} has no chunks: only regular files have");
            return Err(Error::with(ErrorKind::Invalid, detail));
        };
        let placement = Placement::new(layout);
        let layout = placement.layout();
        let count = match attr.length {
            0 => 0,
            _ if attr.inline => 0,
            length => layout.chunk_at(length - 1).0 + 1,
        };
        let distribution = layout.distribution.to_string();
        let (name, parameters) = match distribution.split_once('=') {
            Some((name, parameters)) => (name, Some(parameters.to_owned())),
            None => (distribution.as_str(), None),
        };
        Ok(LayoutView {
            chunk_size: layout.chunk_size,
            distribution: name.to_owned(),
            parameters,
            stripe_width: layout.width,
            inline: attr.inline,
            chunks: Chunks::new(placement, count, &self.map().current()),
        })
    }
}
