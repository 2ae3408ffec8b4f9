//! `strake stat`: everything about a file of a volume.

use crate::cluster::ClusterFlags;
use crate::entry::View;
use crate::failure::Outcome;
use crate::output;
use crate::place::Paths;
use clap::Args;

/// Flags of `strake stat`.
#[derive(Args, Debug)]
pub struct StatFlags {
    /// Files: [ADDR[,ADDR]]:/VOLUME[/PATH]
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb.
pub async fn run(flags: &StatFlags, cluster: &ClusterFlags) -> Outcome {
    let paths = Paths::new("stat", cluster);
    let mut views = Vec::new();
    for path in &flags.paths {
        let (_, info) = paths.clients.existing(&paths.locate_remote(path).await?).await?;
        views.push(View::new(path.as_bytes(), &info));
    }
    paths.close().await?;
    if flags.json {
        return output::json(&views);
    }
    for view in &views {
        let rows = [
            ("path", view.name.clone()),
            ("kind", view.kind.to_owned()),
            ("inode", view.ino.to_string()),
            ("mode", view.mode.clone()),
            ("links", view.nlink.to_string()),
            ("owner", format!("{}:{}", view.uid, view.gid)),
            ("size", format!("{} ({} occupied)", view.size, view.occupied)),
            ("modified", view.mtime.clone()),
            ("accessed", view.atime.clone()),
        ];
        rows.iter().for_each(|(name, value)| output::line(&format!("{name:9} {value}")));
    }
    Ok(())
}
