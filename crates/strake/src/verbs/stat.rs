//! `strake stat`: everything about a file of a volume.

use crate::cluster::ClusterFlags;
use crate::entry::View;
use crate::failure::Outcome;
use crate::{output, place};
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
    let clients = place::clients("stat");
    let mut views = Vec::new();
    for path in &flags.paths {
        let (_, info) = clients.existing(&place::locate_remote(path, cluster)?).await?;
        views.push(View::new(path.as_bytes(), &info));
    }
    clients.close().await?;
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
