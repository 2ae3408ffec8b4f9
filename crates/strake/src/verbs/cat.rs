//! `strake cat`: files of a volume on standard output.

use crate::cluster::ClusterFlags;
use crate::failure::Outcome;
use crate::{output, place};
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
    let clients = place::clients("cat");
    for path in &flags.paths {
        let location = place::locate_remote(path, cluster)?;
        let write = |part: &[u8]| {
            output::bytes(part);
            Ok(())
        };
        tree::cat(&clients, &location, write).await?;
    }
    Ok(clients.close().await?)
}
