//! `strake rm`: removes files of a volume.

use crate::cluster::ClusterFlags;
use crate::failure::{self, Outcome};
use crate::output;
use crate::place::Paths;
use clap::Args;
use strake_native::tree::{self, RemoveOptions, Removed};

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
    let (mut removed, mut failed) = (0, Ok(()));
    for path in &flags.paths {
        match remove(&paths, path, options).await {
            Ok(Removed { entries, failures }) => {
                removed += entries;
                failure::note_all(&mut failed, failures);
            }
            Err(failure) => failure::note(&mut failed, failure),
        }
    }
    let closed = paths.close().await;
    if flags.verbose {
        output::line(&format!("{removed} removed"));
    }
    failed?;
    closed
}

async fn remove(paths: &Paths<'_>, path: &str, options: RemoveOptions) -> Outcome<Removed> {
    let location = paths.locate_remote(path).await?;
    Ok(tree::remove(&paths.clients, &location, options).await?)
}
