//! A server's metadata on its way to another engine, while the server is stopped: first to a file, then from the
//! file to the new place.
//!
//! Until all is in the new place, the old one is as it was and the server starts on it. Then the old one is closed
//! ([`dump::close`]), so that no other server leads by it, and `node.json` names the new one. From then on the new one
//! counts, and what is left to do is done by whoever comes next: the same command given again, or the server when it
//! starts ([`meta_store::finish_move`]). Between the two no server starts on either; the same command goes on.

use super::databases::{
    database_engine, database_shown, how_to_empty, is_database_engine, open_database, spans_parts,
};
use super::identity::{NAME, Node};
use super::meta_store::{self, META, META_MOVED, META_NEW, MetaPlace, Wanted};
use crate::cluster::host_name;
use crate::failure::{Context, Failure, Outcome, Plain};
use crate::private;
use crate::runfile::RunFile;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strake_base::clock::wall_time;
use strake_base::disk::{Disk, RealDisk};
use strake_engine::kv::dump::{self, Dump, DumpError, DumpId, Progress};
use strake_engine::kv::{DatabaseOptions, EngineKind, Kv, KvError, Moved, Part, WAIT_MS_DEFAULT};
use strake_manager::volumes_of_shares;
use strake_wire::frame::crc32c;

/// Whose metadata is in a file: what [`Dump::about`] holds, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    cluster: String,
    server: u32,
    engine: String,
}

/// What is to be imported, and where to.
pub struct Import {
    /// The server's first data directory.
    pub home: PathBuf,
    /// Where its metadata is now, if that is a database.
    pub from: Option<MetaPlace>,
    /// Where it is to be.
    pub to: MetaPlace,
    /// Engine of an embedded store.
    pub engine: Option<EngineKind>,
    /// The export.
    pub file: PathBuf,
}

/// What was imported.
pub struct Imported {
    /// What the file says of itself; `None` where an earlier try had done it all.
    pub dump: Option<Dump>,
    /// Where the metadata is now.
    pub place: String,
    /// The old store, if it was an embedded one.
    pub old: Option<PathBuf>,
    /// The same, if it was a database, and was left just now.
    pub left: Option<String>,
}

/// Writes the metadata of a server to a file.
pub async fn export(
    home: &Path,
    from: Option<&MetaPlace>,
    file: &Path,
    progress: Option<&(dyn Fn(Progress) + Sync)>,
) -> Outcome<Dump> {
    let (_lock, mut node) = hold(home)?;
    meta_store::finish_move(home, &mut node)?;
    let kv = open_old(home, &mut node, from).await?;
    let about =
        About { cluster: node.cluster.clone(), server: node.server, engine: node.engine.clone() };
    let about = serde_json::to_string(&about).plain()?;
    dump::export(&*kv, &about, file, progress).await.plain()
}

/// Fills a new store with what a file holds, and makes it the server's.
pub async fn import(import: &Import, progress: impl Fn(Progress)) -> Outcome<Imported> {
    let home = &import.home;
    let (_lock, mut node) = hold(home)?;
    meta_store::finish_move(home, &mut node)?;
    let (id, about) = dump::head(&import.file).plain()?;
    check_owner(&node, &about, import)?;
    let before = is_database_engine(&node.engine).then(|| node.database.clone());
    let dump = match is_done(&mut node, &id, import).await? {
        true => None,
        false => Some(fill(&mut node, &id, import, progress).await?),
    };
    let left = before.filter(|_| dump.is_some());
    let old = home.join(META_MOVED);
    let place = match is_database_engine(&node.engine) {
        true => node.database,
        false => format!("{} ({})", home.join(META).display(), node.engine),
    };
    Ok(Imported { dump, place, old: old.exists().then_some(old), left })
}

/// Gives up a move: servers may use the old store again. What the move was; `None` where there was none. Does nothing
/// unless it is wanted although there may be two clusters.
pub async fn reopen(home: &Path, from: Option<&MetaPlace>, yes: bool) -> Outcome<Option<Moved>> {
    let (_lock, mut node) = hold(home)?;
    meta_store::finish_move(home, &mut node)?;
    let kv = open_old(home, &mut node, from).await?;
    let Some(moved) = dump::moved(&*kv).await.plain()? else { return Ok(None) };
    if !yes {
        return Err(Failure::usage(format!(
            "{moved}: if servers run there, they and those of this store take the cluster's targets for theirs, and files \
             are lost"
        ))
        .next("the same command with --yes, if none runs there, nor ever will"));
    }
    dump::reopen(&*kv).await.plain()?;
    Ok(Some(moved))
}

/// Fills the new store, and makes it the server's.
async fn fill(
    node: &mut Node,
    id: &DumpId,
    import: &Import,
    progress: impl Fn(Progress),
) -> Outcome<Dump> {
    check_place(import)?;
    check_unchanged(node, id, import).await?;
    let dump = dump::verify(&import.file, &progress).plain()?;
    let new = New::open(node, import, id).await?;
    let imported = dump::import(&*new.kv, &import.file, &dump, progress).await;
    imported.map_err(|error| new.refused(error))?;
    let (engine, database) = (new.kv.name().to_owned(), new.database.clone());
    // Its files are moved next.
    drop(new);
    close_old(node, id, import).await?;
    node.store = database.as_deref().map(|shown| store_of(id, shown)).unwrap_or_default();
    (node.engine, node.database, node.moved) = (engine, database.unwrap_or_default(), true);
    node.write(&import.home)?;
    meta_store::finish_move(&import.home, node)?;
    Ok(dump)
}

/// True if the server's metadata came to the place that is asked for from this very file, and no server has started
/// there since.
async fn is_done(node: &mut Node, id: &DumpId, import: &Import) -> Outcome<bool> {
    let here = match &import.to {
        MetaPlace::Database(url) => {
            let shown = database_shown(url).plain()?;
            let is_of_engine = database_engine(url) == Some(node.engine.as_str());
            is_of_engine && node.store == store_of(id, &shown)
        }
        MetaPlace::Embedded => node.engine == import.engine.unwrap_or_default().name(),
    };
    if !here {
        return Ok(false);
    }
    let kv = open_old(&import.home, node, Some(&import.to)).await?;
    // It may have gone on from there to another place, and not have come to the end.
    Ok(dump::is_import_of(&*kv, id).await.plain()? && dump::moved(&*kv).await.plain()?.is_none())
}

/// Keeps a server from starting, and reads who it is.
fn hold(home: &Path) -> Outcome<(Box<dyn Send + Sync>, Node)> {
    let shown = home.display();
    let owner = match home.join(NAME).metadata() {
        Ok(node) => node.uid(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::new(format!(
                "{shown} is no data directory of a server: no {NAME}"
            ))
            .next("name the first --data directory of the server that keeps the metadata"));
        }
        Err(error) => return Err(Failure::new(format!("{shown}: {error}"))),
    };
    if owner != rustix::process::geteuid().as_raw() {
        // What another user makes here the server could not open.
        return Err(Failure::new(format!("{shown} belongs to the user with the number {owner}"))
            .next(format!(
                "sudo -u '#{owner}' strake meta ..., as the user that the server runs as"
            )));
    }
    let disk = RealDisk::new(home).context(|| shown.to_string())?;
    let lock = disk.lock().map_err(|e| match e.kind() {
        ErrorKind::WouldBlock => is_running(home),
        _ => Failure::new(format!("{shown}: {e}")),
    })?;
    let node = Node::read(home)?;
    if !node.has_joined() || node.engine.is_empty() {
        return Err(Failure::new(format!("the server of {shown} keeps no metadata"))
            .next("do this where the server with the role meta or manager runs"));
    }
    Ok((lock, node))
}

fn is_running(home: &Path) -> Failure {
    let shown = home.display();
    let stop = match RunFile::alive(home) {
        Ok(Some(_)) => format!("strake down --data {shown}"),
        _ => format!("systemctl stop strake, or kill its process (fuser {shown} names it)"),
    };
    let cause = "its metadata can be moved only while it is stopped";
    Failure::new(format!("the server of {shown} is running, and {cause}"))
        .next(format!("{stop}; then the same command again"))
}

/// Opens the store that the server has now.
async fn open_old(home: &Path, node: &mut Node, from: Option<&MetaPlace>) -> Outcome<Arc<dyn Kv>> {
    let wanted = match (is_database_engine(&node.engine), from) {
        (true, Some(place @ MetaPlace::Database(_))) => {
            Wanted { place: Some(place.clone()), engine: None }
        }
        (true, _) => {
            let (home, database) = (home.display(), &node.database);
            return Err(Failure::new(format!("the metadata of {home} is in {database}"))
                .next("give --from with that URL and its password, or set STRAKE_META"));
        }
        (false, _) => Wanted::default(),
    };
    meta_store::look(home, node, &wanted)?;
    let store = meta_store::open(home, node, &wanted, &host_name(), false).await?;
    store.open(Part::Whole).await.plain()
}

fn check_owner(node: &Node, about: &str, import: &Import) -> Outcome {
    let file = import.file.display();
    let about: About = serde_json::from_str(about)
        .context(|| format!("{file} does not say whose metadata it holds"))?;
    if (&about.cluster, about.server) == (&node.cluster, node.server) {
        return Ok(());
    }
    let home = import.home.display();
    Err(Failure::new(format!(
        "{file} holds the metadata of server {} of cluster {}, but {home} is server {} of cluster {}",
        about.server, about.cluster, node.server, node.cluster
    ))
    .next("name an export of this server, or the --data directory that belongs to the file"))
}

fn check_place(import: &Import) -> Outcome {
    if matches!(import.to, MetaPlace::Database(_)) && import.engine.is_some() {
        return Err(Failure::usage("--engine is for an embedded metadata store")
            .next("leave out --engine, or give --meta embedded"));
    }
    let [meta, old] = [META, META_MOVED].map(|name| import.home.join(name));
    let Ok(there) = meta.symlink_metadata() else { return Ok(()) };
    if old.exists() {
        return Err(Failure::new(format!("{} is there, from an earlier move", old.display()))
            .next(format!("rm -r {}, if the server has run well without it", old.display())));
    }
    let home = import.home.metadata().context(|| import.home.display().to_string())?;
    match there.is_dir() && there.dev() == home.dev() {
        true => Ok(()),
        // It could not be renamed, or the new one would not come to lie where it does.
        false => Err(Failure::new(format!("{} is a disk of its own, or a link", meta.display()))
            .next("put a directory in its place that holds the same, then the same command again")),
    }
}

/// Refuses to lose what a server has written since the export.
async fn check_unchanged(node: &mut Node, id: &DumpId, import: &Import) -> Outcome {
    let old = open_unchanged(node, import).await?;
    let wanted = this_move(id, import)?;
    // This very move may have been interrupted when it had closed it.
    if !dump::moved(&*old).await.plain()?.is_some_and(|before| before.is_same(&wanted)) {
        dump::check_open(&*old).await.plain()?;
    }
    // It may have come here from the same file.
    if dump::is_what_was_exported(&*old, id).await.plain()?
        || dump::is_import_of(&*old, id).await.plain()?
    {
        return check_shares(&*old, &import.to).await;
    }
    Err(has_changed(import))
}

/// Nobody is to lead by the old store beside the new one. Other servers may have come back to it meanwhile, if it is a
/// database; then it is theirs.
async fn close_old(node: &mut Node, id: &DumpId, import: &Import) -> Outcome {
    let old = open_unchanged(node, import).await?;
    match dump::close(&*old, &this_move(id, import)?).await.plain()? {
        true => Ok(()),
        false => Err(has_changed(import)),
    }
}

async fn open_unchanged(node: &mut Node, import: &Import) -> Outcome<Arc<dyn Kv>> {
    open_old(&import.home, node, import.from.as_ref()).await.map_err(|failure| {
        let next = failure.next.unwrap_or_else(|| "see that it can be opened".into());
        Failure::new(format!("has it changed since the export? {}", failure.cause)).next(next)
    })
}

/// What the old store is to say of the move.
fn this_move(id: &DumpId, import: &Import) -> Outcome<Moved> {
    let to = match &import.to {
        MetaPlace::Embedded => String::new(),
        MetaPlace::Database(url) => database_shown(url).plain()?,
    };
    let now_ms = wall_time().as_millis();
    let at_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
    Ok(Moved { export: *id, at_ms, to, host: host_name() })
}

fn has_changed(import: &Import) -> Failure {
    let (home, file) = (import.home.display(), import.file.display());
    Failure::new(format!("the server of {home} has run since {file} was exported"))
        .next("strake meta export, to another file, and import that")
}

/// Refuses a database in which nobody could serve a volume of several shares, where there is one.
async fn check_shares(old: &dyn Kv, to: &MetaPlace) -> Outcome {
    let MetaPlace::Database(url) = to else { return Ok(()) };
    let engine = database_engine(url).unwrap_or_default();
    if spans_parts(engine) {
        return Ok(());
    }
    let snapshot = old.snapshot().await.plain()?;
    let Some(name) = volumes_of_shares(&*snapshot).await.plain()?.into_iter().next() else {
        return Ok(());
    };
    Err(Failure::new(format!("volume {name} has several shares, and {engine} cannot bear that"))
        .next(format!(
            "name another place; or copy what is in {name} to a volume of one share, strake volume delete {name}, and export again"
        )))
}

/// The store that is being filled.
struct New {
    kv: Arc<dyn Kv>,
    /// What it is called in messages.
    shown: String,
    /// The database without its password, if it is one.
    database: Option<String>,
}

impl New {
    async fn open(node: &Node, import: &Import, id: &DumpId) -> Outcome<New> {
        match &import.to {
            MetaPlace::Embedded => {
                let engine = import.engine.unwrap_or_default();
                Self::open_embedded(import.home.join(META_NEW), engine).await
            }
            MetaPlace::Database(url) => Self::open_database(node, url, id).await,
        }
    }

    async fn open_embedded(dir: PathBuf, engine: EngineKind) -> Outcome<New> {
        let shown = dir.display().to_string();
        private::make_directory(&dir).context(|| shown.clone())?;
        let opened =
            tokio::task::spawn_blocking(move || strake_engine::kv::open(engine, &dir)).await;
        let kv = opened.context(|| shown.clone())?.map_err(|error| match error {
            KvError::OtherEngine { found, .. } => {
                Failure::new(format!("an import into {shown} with --engine {found} was begun"))
                    .next(format!("go on with that engine; or, to begin anew, rm -r {shown}"))
            }
            other => Failure::new(other.to_string()),
        })?;
        Ok(New { kv, shown, database: None })
    }

    async fn open_database(node: &Node, url: &str, id: &DumpId) -> Outcome<New> {
        let shown = database_shown(url).plain()?;
        if is_database_engine(&node.engine) && node.database == shown {
            return Err(Failure::new(format!(
                "{shown} is where the metadata of this server is now"
            ))
            .next("name another database, an empty one"));
        }
        let options = DatabaseOptions {
            url: url.to_owned(),
            store: store_of(id, &shown),
            create: true,
            host: host_name(),
            wait_ms_max: WAIT_MS_DEFAULT,
        };
        let opened = tokio::task::spawn_blocking(move || open_database(&options)).await;
        let store = opened.context(|| shown.clone())?.map_err(|error| match error {
            KvError::OtherOwner { owner, .. } => {
                Failure::new(format!("{shown} is not empty: it holds {owner}"))
                    .next(emptied(&shown, Some(&shown)))
            }
            other => Failure::new(other.to_string()),
        })?;
        let kv = store.open(Part::Whole).await.plain()?;
        Ok(New { kv, database: Some(shown.clone()), shown })
    }

    fn refused(&self, error: DumpError) -> Failure {
        let (shown, empty) = (&self.shown, emptied(&self.shown, self.database.as_deref()));
        match error {
            DumpError::NotEmpty { .. } => Failure::new(format!("{shown} is not empty")).next(empty),
            DumpError::OtherImport { .. } => {
                Failure::new(format!("the import of another file into {shown} was begun"))
                    .next(format!("name that file, to go on; to begin anew, {empty}"))
            }
            DumpError::Differs { .. } => {
                Failure::new(error.to_string()).next(format!("check its disk, then {empty}"))
            }
            other => Failure::new(other.to_string()),
        }
    }
}

/// How a store becomes an empty one.
fn emptied(shown: &str, database: Option<&str>) -> String {
    match database {
        Some(database) => how_to_empty(database),
        None => format!("rm -r {shown}"),
    }
}

/// Id of a store that is filled from a file in a database: the same command finds its own again, and a server none
/// of another place.
fn store_of(id: &DumpId, shown: &str) -> String {
    let file: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{file}-{:08x}", crc32c(shown.as_bytes()))
}
