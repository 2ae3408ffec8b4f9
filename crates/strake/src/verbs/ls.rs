//! `strake ls`: a directory of a volume.

use crate::cluster::ClusterFlags;
use crate::entry::{self, View};
use crate::failure::Outcome;
use crate::output;
use crate::place::Paths;
use clap::Args;
use strake_native::tree;

/// Flags of `strake ls`.
#[derive(Args, Debug)]
pub struct LsFlags {
    /// Directories or files: [ADDR[,ADDR]]:/VOLUME[/PATH]
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,

    /// With mode, owner, size and time
    #[arg(short, long)]
    pub long: bool,

    /// Also names that begin with a dot
    #[arg(short, long)]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb.
pub async fn run(flags: &LsFlags, cluster: &ClusterFlags) -> Outcome {
    let paths = Paths::new("ls", cluster);
    let mut all = Vec::new();
    for path in &flags.paths {
        let location = paths.locate_remote(path).await?;
        let found = tree::list(&paths.clients, &location, flags.all).await?;
        if flags.json {
            all.extend(found.iter().map(|f| View::new(&f.path, &f.info)));
            continue;
        }
        if flags.paths.len() > 1 {
            output::line(&format!("{path}:"));
        }
        match flags.long {
            true => show_long(&found),
            false => found.iter().for_each(|f| output::line(&String::from_utf8_lossy(&f.path))),
        }
    }
    if flags.json {
        output::json(&all)?;
    }
    paths.close().await
}

fn show_long(found: &[tree::Found]) {
    let mut table =
        output::table(&["MODE", ">LINKS", ">UID", ">GID", ">SIZE", "MODIFIED (UTC)", "NAME"]);
    for f in found {
        let mut time = entry::show_time(f.info.mtime);
        time.truncate("2026-11-21 08:00:00".len());
        table.add_row([
            entry::mode_text(f.info.kind, f.info.mode),
            f.info.nlink.to_string(),
            f.info.uid.to_string(),
            f.info.gid.to_string(),
            f.info.length.to_string(),
            time,
            String::from_utf8_lossy(&f.path).into_owned(),
        ]);
    }
    output::show(&table);
}
