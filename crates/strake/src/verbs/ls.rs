//! `strake ls`: a directory of a volume.

use crate::cluster::ClusterFlags;
use crate::entry::{self, View};
use crate::failure::{self, Outcome};
use crate::output;
use crate::place::Paths;
use bytes::Bytes;
use clap::Args;
use futures::{StreamExt, stream};
use strake_native::tree;

/// Links that are read at once.
const READ_AT_ONCE: usize = 32;

/// Flags of `strake ls`.
#[derive(Args, Debug)]
#[command(
    after_help = "Names are printed byte for byte, on a terminal with control characters written out. In JSON, a name that is no UTF-8 \
has its bytes in name_bytes, too, and where symbolic links lead is in target.

Exit code: 0 all is shown; 1 some of the paths are not, each named with the reason."
)]
pub struct LsFlags {
    /// Directories or files: [ADDR[,ADDR]]:/VOLUME[/PATH]
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,

    /// With mode, owner, size, time, and where symbolic links lead
    #[arg(short, long)]
    pub long: bool,

    /// Also names that begin with a dot
    #[arg(short, long)]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// An entry, and where it leads if it is a symbolic link and that is asked for.
type Entry = (tree::Found, Option<Bytes>);

/// Runs the verb.
pub async fn run(flags: &LsFlags, cluster: &ClusterFlags) -> Outcome {
    let paths = Paths::new("ls", cluster);
    let (mut all, mut failed) = (Vec::new(), Ok(()));
    for path in &flags.paths {
        let found = match list(&paths, path, flags).await {
            Ok(found) => found,
            Err(failure) => {
                failure::note(&mut failed, failure);
                continue;
            }
        };
        if flags.json {
            all.extend(found.iter().map(|(f, to)| View::new(&f.path, &f.info, to.as_deref())));
            continue;
        }
        if flags.paths.len() > 1 {
            output::line(&format!("{path}:"));
        }
        match flags.long {
            true => show_long(&found),
            false => found.iter().for_each(|(f, _)| output::names(b"", &[&f.path[..]])),
        }
    }
    if flags.json {
        output::json(&all)?;
    }
    failed.and(paths.close().await)
}

async fn list(paths: &Paths<'_>, path: &str, flags: &LsFlags) -> Outcome<Vec<Entry>> {
    let location = paths.locate_remote(path).await?;
    let found = tree::list(&paths.clients, &location, flags.all).await?;
    if !flags.long && !flags.json {
        return Ok(found.into_iter().map(|f| (f, None)).collect());
    }
    let reading = found.into_iter().map(|f| async move {
        let target = entry::target(&f.name, &f.info).await;
        (f, target)
    });
    Ok(stream::iter(reading).buffered(READ_AT_ONCE).collect::<Vec<_>>().await)
}

fn show_long(found: &[Entry]) {
    let mut table = output::table(&["MODE", ">LINKS", ">UID", ">GID", ">SIZE", "MODIFIED (UTC)"]);
    for (f, _) in found {
        let mut time = entry::show_time(f.info.mtime);
        time.truncate("2026-11-21 08:00:00".len());
        table.add_row([
            entry::mode_text(f.info.kind, f.info.mode),
            f.info.nlink.to_string(),
            f.info.uid.to_string(),
            f.info.gid.to_string(),
            f.info.length.to_string(),
            time,
        ]);
    }
    // Names are bytes, which a table does not take.
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let width = lines.iter().map(String::len).max().unwrap_or_default();
    for (nth, line) in lines.iter().enumerate() {
        let before = format!("{line:width$}  ");
        match nth.checked_sub(1).and_then(|nth| found.get(nth)) {
            None => output::line(&format!("{before}NAME")),
            Some((f, None)) => output::names(before.as_bytes(), &[&f.path[..]]),
            Some((f, Some(to))) => output::names(before.as_bytes(), &[&f.path[..], &to[..]]),
        }
    }
}
