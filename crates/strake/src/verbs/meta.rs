//! `strake meta`: the metadata of a server to a file, from the file into another engine, and back where that was given up.

use crate::cluster::DATA_DEFAULT;
use crate::failure::{Context, Outcome};
use crate::node::MetaPlace;
use crate::node::moving::{self, Import, Imported};
use crate::signals::INTERRUPTED_CODE;
use crate::{output, size};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strake_engine::kv::EngineKind;
use strake_engine::kv::dump::{Dump, Progress, Step};

/// Flags of `strake meta`.
#[derive(Args, Debug)]
#[command(after_help = "From the data directory into PostgreSQL, on the machine of the server:
  systemctl stop strake
  strake meta export --data /srv/strake /backup/meta
  strake meta import --data /srv/strake --meta postgres://strake@db/strake /backup/meta
  systemctl start strake        with --meta postgres://... from now on")]
pub struct MetaFlags {
    /// What to do.
    #[command(subcommand)]
    verb: MetaVerb,
}

#[derive(Subcommand, Debug)]
enum MetaVerb {
    /// Write all metadata of a server that is stopped to a file, and read it back
    ///
    /// The file is called FILE.part until it is whole. The same command goes on with one that was interrupted. Keep the file
    /// safe: all names, small files, and the key with which the cluster's servers know their clients are in it. The server may
    /// be started again as before; then no import takes the file any more.
    Export(ExportFlags),
    /// Fill a new metadata store with an export, and make it the store of the server
    ///
    /// First the whole file is verified, and in the end all of it is compared with what is in the new store; only then does the
    /// server change over. Until then it can be started on its old store; the same command goes on with an import that was
    /// interrupted. An old store in the data directory is kept there as meta.moved. Just before the server changes over, the old
    /// store is closed: no server starts on it any more, whatever --meta and --join say (strake meta reopen).
    Import(ImportFlags),
    /// Give a move up: let servers use a store again that an import has closed
    ///
    /// For when the new store is gone, or never was used. Nothing comes back of what was written there. To bring the metadata
    /// back with that, export it from there, and import it. If servers run on both stores, files are lost.
    Reopen(ReopenFlags),
}

// Whose metadata, and how to say what was done. (Not for --help, so no doc comment.)
#[derive(Args, Debug)]
struct CommonFlags {
    /// Directory of the server that holds node.json: the first of its --data
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,

    /// The database that holds the metadata now, if it is in one: postgres://USER@HOST/DATABASE or etcd://HOST,HOST,HOST/NAME; PGPASSWORD or ETCDCTL_PASSWORD may give the password
    #[arg(long, value_name = "URL", env = "STRAKE_META", hide_env_values = true)]
    from: Option<MetaPlace>,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ExportFlags {
    #[command(flatten)]
    common: CommonFlags,

    /// Where to; a file that is not there
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Args, Debug)]
struct ImportFlags {
    #[command(flatten)]
    common: CommonFlags,

    /// Where the metadata is to be: embedded (in --data); or an empty database: postgres://USER@HOST/DATABASE, or etcd://HOST,HOST,HOST/NAME
    #[arg(long, value_name = "WHERE")]
    meta: MetaPlace,

    /// Engine of the embedded store: fjall or redb [default: fjall]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineKind>,

    /// An export of this server
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Args, Debug)]
struct ReopenFlags {
    #[command(flatten)]
    common: CommonFlags,

    /// Do it, although files are lost if a server runs on the new store
    #[arg(long)]
    yes: bool,
}

/// What was reopened, as `--json` prints it.
#[derive(Serialize)]
struct Reopened {
    /// The move that was given up; `null` where there was none.
    moved: Option<String>,
}

/// What was done, as `--json` prints it.
#[derive(Serialize)]
struct Report {
    /// Keys; `null` where an earlier try had done it all.
    records: Option<u64>,
    /// Bytes in keys and values; the same.
    bytes: Option<u64>,
    /// Where they are now.
    place: String,
}

impl Report {
    fn new(dump: Option<&Dump>, place: String) -> Self {
        Self { records: dump.map(|dump| dump.pairs), bytes: dump.map(|dump| dump.bytes), place }
    }
}

/// Runs the verb; the exit code.
pub async fn run(flags: MetaFlags) -> Outcome<u8> {
    match flags.verb {
        MetaVerb::Export(flags) => export(flags).await,
        MetaVerb::Import(flags) => import(flags).await,
        MetaVerb::Reopen(flags) => reopen(flags).await,
    }
}

async fn export(flags: ExportFlags) -> Outcome<u8> {
    let ExportFlags { common: CommonFlags { data, from, json }, file } = flags;
    let place = file.clone();
    let done = until_interrupted(|bar| async move {
        let draw: &(dyn Fn(Progress) + Sync) = &|now| bar.draw(now);
        moving::export(&data, from.as_ref(), &file, bar.is_shown().then_some(draw)).await
    });
    let Some(dump) = done.await? else { return Ok(INTERRUPTED_CODE) };
    let shown = place.display();
    match json {
        true => output::json(&Report::new(Some(&dump), shown.to_string()))?,
        false => {
            output::line(&format!("{} are in {shown}, read back and sound", records(&dump)));
            output::line(&format!("  next: strake meta import --data DIR --meta WHERE {shown}"));
        }
    }
    Ok(0)
}

async fn import(flags: ImportFlags) -> Outcome<u8> {
    let ImportFlags { common: CommonFlags { data, from, json }, meta, engine, file } = flags;
    let wanted = Import { home: data, from, to: meta, engine, file };
    let done = until_interrupted(|bar| async move {
        let imported = moving::import(&wanted, |now| bar.draw(now)).await?;
        Ok((imported, wanted))
    });
    let Some((imported, wanted)) = done.await? else { return Ok(INTERRUPTED_CODE) };
    match json {
        true => output::json(&Report::new(imported.dump.as_ref(), imported.place))?,
        false => tell(&imported, &wanted.to),
    }
    Ok(0)
}

async fn reopen(flags: ReopenFlags) -> Outcome<u8> {
    let ReopenFlags { common: CommonFlags { data, from, json }, yes } = flags;
    let moved = moving::reopen(&data, from.as_ref(), yes).await?;
    let shown = data.display();
    match (json, moved) {
        (true, moved) => output::json(&Reopened { moved: moved.map(|moved| moved.to_string()) })?,
        (false, Some(_)) => {
            output::line(&format!("the store that the server of {shown} had is open again"));
            output::line("  next: start the server, with the --meta of before the move");
        }
        (false, None) => {
            output::line(&format!("the store of the server of {shown} is not closed"));
        }
    }
    Ok(0)
}

fn records(dump: &Dump) -> String {
    format!("{} records ({})", dump.pairs, size::show(dump.bytes))
}

fn tell(imported: &Imported, to: &MetaPlace) {
    let place = &imported.place;
    match &imported.dump {
        Some(dump) => {
            output::line(&format!("{} are in {place}, compared with the file", records(dump)));
        }
        None => output::line(&format!("the metadata is in {place} already")),
    }
    let old = imported.old.as_deref().map(Path::display);
    if let Some(old) = old {
        output::line(&format!(
            "  the old store is kept: rm -r {old}, when the server has run well"
        ));
    }
    if let Some(left) = &imported.left {
        output::line(&format!(
            "  {left} is closed: no server starts on it. Drop it, when the server has run well"
        ));
    }
    output::line(match to {
        MetaPlace::Embedded => "  next: start the server, without --meta",
        MetaPlace::Database(_) => "  next: start the server, with that --meta",
    });
}

/// Does something that may take long, and shows how far it is; `None` after Ctrl-C.
async fn until_interrupted<T: Send + 'static, F: Future<Output = Outcome<T>> + Send + 'static>(
    work: impl FnOnce(Bar) -> F,
) -> Outcome<Option<T>> {
    let bar = Bar::new();
    // A task of its own: embedded engines give no other one a turn.
    let mut task = tokio::spawn(work(bar.clone()));
    let done = tokio::select! {
        done = &mut task => Some(done.context(|| "moving the metadata".into())?),
        _ = tokio::signal::ctrl_c() => None,
    };
    bar.bar.finish_and_clear();
    match done {
        Some(done) => done.map(Some),
        None => {
            eprintln!("interrupted");
            eprintln!("  next: the same command, which goes on from there");
            Ok(None)
        }
    }
}

/// How far it is: a bar on a terminal, nothing elsewhere. Clones are the same bar.
#[derive(Clone)]
struct Bar {
    bar: ProgressBar,
    step: Arc<Mutex<Option<Step>>>,
}

impl Bar {
    fn new() -> Self {
        Self { bar: ProgressBar::new(0), step: Arc::default() }
    }

    fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    fn draw(&self, now: Progress) {
        self.bar.set_length(now.bytes_total.unwrap_or(now.bytes));
        self.bar.set_message(match now.step {
            Step::Count => format!("{} records", now.pairs),
            Step::Export => "exporting".into(),
            Step::Verify => "verifying the file".into(),
            Step::Import => "importing".into(),
            Step::Compare => "comparing".into(),
        });
        if self.step.lock().replace(now.step) != Some(now.step) {
            let form = match now.step {
                // Nobody knows how much follows.
                Step::Count => "{spinner} counting: {bytes}, {bytes_per_sec}, {msg}",
                _ => "{msg} {wide_bar} {bytes}/{total_bytes} {eta} left",
            };
            let style = ProgressStyle::with_template(form);
            self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.bar.reset();
            // What an earlier try has done took no time of this one.
            self.bar.set_position(now.bytes);
            self.bar.tick();
            self.bar.reset_eta();
        }
        self.bar.set_position(now.bytes);
    }
}
