//! A directory that is to hand down another number of copies.

use crate::ctx::Ctx;
use crate::layout;
use crate::ops::template::{check_groups, with_directory_template};
use crate::records::Inode;
use crate::txn::Mutation;
use crate::view::Tx;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing};

/// A directory hands down another number of copies; what else is set there stays.
pub(super) struct HandDown {
    pub dir: Ino,
    pub copies: u32,
}

impl Mutation for HandDown {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.dir])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let found = tx.find_inode(self.dir).await?;
        if let Some(dir) = found.filter(|dir| dir.is_dir()) {
            let known = layout::template_of(&dir)?;
            // The walk of another share was here.
            if known.copies == Some(self.copies) {
                return Ok(MetaAnswer::Done(Nothing {}));
            }
            let template = layout::with_copies(&known, self.copies, &tx.ctx.core.map)?;
            check_groups(tx.ctx, &template)?;
            let ctime = tx.now.into();
            tx.put_inode(Inode { ctime, ..with_directory_template(&dir, &template) }).await?;
        }
        Ok(MetaAnswer::Done(Nothing {}))
    }

    fn takes_room(&self) -> bool {
        true
    }
}
