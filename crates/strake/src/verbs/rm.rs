//! `strake rm`: removes files of a volume.

use crate::cluster::ClusterFlags;
use crate::failure::Outcome;
use crate::{output, place};
use clap::Args;
use strake_native::tree::{self, RemoveOptions};

/// Flags of `strake rm`.
#[derive(Args, Debug)]
pub struct RmFlags {
    /// What to remove: [ADDR[,ADDR]]:/VOLUME/PATH
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,

    /// Directories with everything in them
    #[arg(short, long)]
    pub recursive: bool,

    /// What is not there is no error
    #[arg(short, long)]
    pub force: bool,

    /// Say how many were removed
    #[arg(short, long)]
    pub verbose: bool,
}

/// Runs the verb.
pub async fn run(flags: &RmFlags, cluster: &ClusterFlags) -> Outcome {
    let clients = place::clients("rm");
    let options = RemoveOptions { recursive: flags.recursive, force: flags.force };
    let mut removed = 0;
    for path in &flags.paths {
        removed += tree::remove(&clients, &place::locate_remote(path, cluster)?, options).await?;
    }
    clients.close().await?;
    if flags.verbose {
        output::line(&format!("{removed} removed"));
    }
    Ok(())
}
