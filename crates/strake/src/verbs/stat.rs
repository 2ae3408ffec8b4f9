//! `strake stat`: everything about a file of a volume.

use crate::cluster::ClusterFlags;
use crate::entry::{self, View};
use crate::failure::{self, Outcome};
use crate::output;
use crate::place::Paths;
use clap::Args;
use strake_types::{Error, ErrorKind};

/// Flags of `strake stat`.
#[derive(Args, Debug)]
pub struct StatFlags {
    /// Files: [ADDR[,ADDR]]:/VOLUME[/PATH]
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,

    /// Of a symbolic link show the link itself and where it leads, and not what is there
    #[arg(long)]
    pub no_follow: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb.
pub async fn run(flags: &StatFlags, cluster: &ClusterFlags) -> Outcome {
    let paths = Paths::new("stat", cluster);
    let (mut views, mut failed) = (Vec::new(), Ok(()));
    for path in &flags.paths {
        match look(&paths, path, flags.no_follow).await {
            Ok(view) => views.push(view),
            Err(failure) => failure::note(&mut failed, failure),
        }
    }
    let closed = paths.close().await;
    match flags.json {
        true => output::json(&views)?,
        false => show_all(&views),
    }
    failed.and(closed)
}

async fn look(paths: &Paths<'_>, path: &str, no_follow: bool) -> Outcome<View> {
    let location = paths.locate_remote(path).await?;
    let spot = match no_follow {
        true => paths.clients.find_itself(&location).await?,
        false => paths.clients.find(&location).await?,
    };
    let Some(info) = &spot.info else {
        return Err(Error::with(ErrorKind::NotFound, location.to_string()).into());
    };
    let target = entry::target(&spot.name, info).await;
    Ok(View::new(path.as_bytes(), info, target.as_deref()))
}

fn show_all(views: &[View]) {
    for (nth, view) in views.iter().enumerate() {
        if nth > 0 {
            output::line("");
        }
        show(view);
    }
}

fn show(view: &View) {
    let time = |shown: &str| Some(shown.replacen('T', " ", 1));
    let rows = [
        ("path", Some(view.name.clone())),
        ("kind", Some(view.kind.to_owned())),
        ("target", view.target.clone()),
        ("inode", Some(view.ino.to_string())),
        ("mode", Some(view.mode.clone())),
        ("links", Some(view.nlink.to_string())),
        ("owner", Some(format!("{}:{}", view.uid, view.gid))),
        ("size", Some(format!("{} ({} occupied)", view.size, view.occupied))),
        ("modified", time(&view.mtime)),
        ("accessed", time(&view.atime)),
        ("changed", time(&view.ctime)),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            output::line(&format!("{name:9} {value}"));
        }
    }
}
