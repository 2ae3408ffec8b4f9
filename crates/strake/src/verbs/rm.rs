//! `strake rm`: removes files of a volume.

use crate::cluster::ClusterFlags;
use crate::failure::Outcome;
use crate::output;
use crate::place::Paths;
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
    let paths = Paths::new("rm", cluster);
    let options = RemoveOptions { recursive: flags.recursive, force: flags.force };
    let mut removed = 0;
    for path in &flags.paths {
        removed += tree::remove(&paths.clients, &paths.locate_remote(path).await?, options).await?;
    }
    paths.close().await?;
    if flags.verbose {
        output::line(&format!("{removed} removed"));
    }
    Ok(())
}
