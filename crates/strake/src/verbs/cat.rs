//! `strake cat`: files of a volume on standard output.

use crate::cluster::ClusterFlags;
use crate::failure::{self, Outcome};
use crate::output;
use crate::place::Paths;
use clap::Args;
use strake_native::tree;

/// Flags of `strake cat`.
#[derive(Args, Debug)]
pub struct CatFlags {
    /// Files: [ADDR[,ADDR]]:/VOLUME/PATH
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
}

/// Runs the verb.
pub async fn run(flags: &CatFlags, cluster: &ClusterFlags) -> Outcome {
    let paths = Paths::new("cat", cluster);
    let mut failed = Ok(());
    for path in &flags.paths {
        if let Err(failure) = write(&paths, path).await {
            failure::note(&mut failed, failure);
        }
    }
    failed.and(paths.close().await)
}

async fn write(paths: &Paths<'_>, path: &str) -> Outcome {
    let location = paths.locate_remote(path).await?;
    let write = |part: &[u8]| {
        output::bytes(part);
        Ok(())
    };
    tree::cat(&paths.clients, &location, write).await?;
    Ok(())
}
