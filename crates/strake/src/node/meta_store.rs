//! The metadata store of a server: in its home directory, or in a database.

use super::NodeOptions;
use super::databases::{self, database_engine, database_forms, database_shown, is_database_engine};
use super::identity::Node;
use super::stores::{check_empty, new_uuid};
use crate::failure::{Context, Failure, Outcome, Plain};
use crate::private;
use clap::builder::{TypedValueParser, ValueParserFactory};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use strake_engine::kv::{
    self, Alone, DatabaseOptions, EngineKind, KvError, Store, WAIT_MS_DEFAULT,
};
use strake_wire::message::manager::ClusterMap;

/// Directory of an embedded metadata store within the home directory.
pub const META: &str = "meta";
/// The same, while the metadata is moved into it.
pub const META_NEW: &str = "meta.new";
/// The same, after the metadata was moved out of it.
pub const META_MOVED: &str = "meta.moved";
/// How the metadata gets to another place.
const MOVE: &str = "strake meta export, then strake meta import, moves it to another place";

/// Where a server is told to keep its metadata.
#[derive(Clone, PartialEq, Eq)]
pub enum MetaPlace {
    /// In its home directory.
    Embedded,
    /// In the database with this URL.
    Database(String),
}

/// Without the password that the URL may hold.
impl fmt::Debug for MetaPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded"),
            Self::Database(url) => f.write_str(&database_shown(url).unwrap_or_default()),
        }
    }
}

impl FromStr for MetaPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(Self::Embedded),
            url if database_engine(url).is_some() => {
                database_shown(url).map_err(|e| e.to_string())?;
                Ok(Self::Database(url.to_owned()))
            }
            // It may be a URL with a password in it.
            _ => Err(format!("it is neither embedded nor {}", database_forms())),
        }
    }
}

/// Reads it from the command line. What clap says by itself of a wrong value repeats it, password and all.
#[derive(Clone)]
pub struct PlaceParser;

impl ValueParserFactory for MetaPlace {
    type Parser = PlaceParser;

    fn value_parser() -> PlaceParser {
        PlaceParser
    }
}

impl TypedValueParser for PlaceParser {
    type Value = MetaPlace;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<MetaPlace, clap::Error> {
        let parsed = value.to_str().ok_or_else(|| "it is no UTF-8".to_owned());
        parsed.and_then(str::parse).map_err(|cause| {
            let argument = argument.map(ToString::to_string).unwrap_or_default();
            let text = format!(
                "the value for '{argument}' is not right: {cause}\n\nFor more information, try '--help'.\n"
            );
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, text).with_cmd(command)
        })
    }
}

/// What is asked for: where, and with which engine if it is new.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// `None`: where it was; new ones in the home directory.
    pub place: Option<MetaPlace>,
    /// Engine of an embedded store.
    pub engine: Option<EngineKind>,
}

impl Wanted {
    fn url(&self) -> Option<&str> {
        match &self.place {
            Some(MetaPlace::Database(url)) => Some(url),
            Some(MetaPlace::Embedded) | None => None,
        }
    }
}

/// Looks at the metadata store, as far as it can be without opening it: is it where it was, and is it of
/// the engine that is wanted?
pub fn look(home: &Path, node: &Node, wanted: &Wanted) -> Outcome {
    let dir = home.join(META);
    if let Some(url) = wanted.url() {
        return check_database(&dir, node, wanted, url);
    }
    if is_database_engine(&node.engine) {
        return Err(Failure::new(format!(
            "the metadata of {} is in {}",
            home.display(),
            node.database
        ))
        .next(format!("give --meta with that URL and its password, or set STRAKE_META; {MOVE}")));
    }
    choose_engine(&dir, node, wanted.engine)?;
    if node.has_joined() && !node.engine.is_empty() && holds_none(&dir) {
        return Err(Failure::new(format!("metadata store {} is missing", dir.display()))
            .next("mount its disk, or restore it from a backup"));
    }
    if dir.exists() { Ok(()) } else { check_empty(&dir) }
}

/// True of a directory without the file that every store is begun with, or that is not there: the disk that was mounted there may be away, or
/// a new one be in its place.
fn holds_none(dir: &Path) -> bool {
    matches!(dir.join("format").try_exists(), Ok(false))
}

/// True if the metadata was in another database than the one that is asked for.
pub fn is_elsewhere(node: &Node, wanted: &Wanted) -> bool {
    let shown = wanted.url().and_then(|url| database_shown(url).ok());
    is_database_engine(&node.engine) && shown.is_some_and(|shown| shown != node.database)
}

/// True if the database that is asked for is of another engine than the store that the metadata was in.
pub fn is_of_other_engine(node: &Node, wanted: &Wanted) -> bool {
    wanted.url().is_some_and(|url| database_engine(url) != Some(node.engine.as_str()))
}

fn check_database(dir: &Path, node: &Node, wanted: &Wanted, url: &str) -> Outcome {
    if wanted.engine.is_some() {
        return Err(Failure::usage("--engine is for an embedded metadata store")
            .next("leave out --engine, or --meta"));
    }
    if node.engine.is_empty() || database_engine(url) == Some(node.engine.as_str()) {
        return Ok(());
    }
    let (place, next) = match is_database_engine(&node.engine) {
        true => (node.database.clone(), "give --meta with that URL"),
        false => (dir.display().to_string(), "leave --meta out"),
    };
    let failure = Failure::new(format!("the metadata of this server is in {place}"));
    Err(failure.next(format!("{next}; {MOVE}")))
}

/// A server that serves names in a cluster that others manage, or is to manage it with them, does so from the
/// cluster's database: from now on that is its store. Refused where there is none.
pub fn share(options: &NodeOptions, node: &mut Node, map: &ClusterMap) -> Outcome {
    let mut managers = map.servers.iter().filter(|server| server.manager);
    // Others may not have followed yet where the metadata was moved.
    let leader = managers.clone().find(|server| server.id == map.leader);
    let manager = leader.or_else(|| managers.next());
    let store = manager.map(|manager| manager.store.clone()).unwrap_or_default();
    let is_in_database = options.meta_store.url().is_some();
    let is_embedded = !node.engine.is_empty() && !is_database_engine(&node.engine);
    if !is_in_database && node.has_joined() && is_embedded {
        return Ok(());
    }
    if store.is_empty() {
        let (id, name) = manager.map_or((0, ""), |manager| (manager.id, &manager.name));
        return Err(Failure::new(format!(
            "a second manager or metadata server needs a database that all reach: the metadata of this cluster is in an \
             embedded store, which only server {id} ({name}) has"
        ))
        .next(format!(
            "leave manager and meta out of --roles; or move the metadata: on {name} strake meta export, then strake meta \
             import --meta {}; then start both servers with that --meta",
            database_forms()
        )));
    }
    if !is_in_database {
        return Err(Failure::new("the metadata of this cluster is in a database")
            .next("give --meta with its URL, as its other servers have it; or leave manager and meta out of --roles"));
    }
    node.store = store;
    Ok(())
}

/// Refuses another store than that of the manager which leads.
pub fn check_same(node: &Node, map: &ClusterMap) -> Outcome {
    let mut others = map.servers.iter().filter(|server| server.id != node.server);
    let leader = others.find(|server| server.id == map.leader);
    let Some(leader) = leader.filter(|leader| leader.store != node.store) else {
        return Ok(());
    };
    let (id, name, database) = (leader.id, &leader.name, &node.database);
    // Whoever leads by a store that others share has said which.
    let same = match leader.store.is_empty() {
        true => format!(
            "the metadata is in an embedded store, which only {name} has: leave manager and meta out of --roles"
        ),
        false => format!("give the same --meta as {name} has"),
    };
    Err(Failure::new(format!(
        "server {id} ({name}) leads this cluster, and its metadata is not what this server had in {database}: it was moved"
    ))
    .next(format!(
        "{same}; or, if the metadata was moved to {database}, stop {name} and start it with that"
    )))
}

/// Opens the metadata store, and, where the server may, makes it if there is none.
pub async fn open(
    home: &Path,
    node: &mut Node,
    wanted: &Wanted,
    host: &str,
    may_make: bool,
) -> Outcome<Arc<dyn Store>> {
    match wanted.url() {
        Some(url) => open_database(home, node, url, host, may_make).await,
        None => open_embedded(home, node, wanted.engine).await,
    }
}

/// Does what is left of a move that `node.json` knows to be done: the new store gets its name, and the old one
/// another.
pub fn finish_move(home: &Path, node: &mut Node) -> Outcome {
    if !node.moved {
        return Ok(());
    }
    let [meta, new, old] = [META, META_NEW, META_MOVED].map(|name| home.join(name));
    let rename = |from: &Path, to: &Path| {
        std::fs::rename(from, to)
            .context(|| format!("{} cannot be renamed to {}", from.display(), to.display()))
    };
    let is_embedded = !is_database_engine(&node.engine);
    // Where the new one has its name already, so has the old one.
    if meta.exists() && (new.exists() || !is_embedded) {
        rename(&meta, &old)?;
    }
    if is_embedded && new.exists() {
        rename(&new, &meta)?;
    }
    File::open(home).and_then(|dir| dir.sync_all()).context(|| home.display().to_string())?;
    node.moved = false;
    node.write(home)
}

/// Why an embedded store cannot be used. An error of its disk does not say itself what to do, where nothing is added to it.
fn unread(error: KvError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        KvError::Io { cause, .. } if !cause.contains("; ") => {
            failure.next("check its disk (dmesg, smartctl) and who may read it, and try again")
        }
        _ => failure,
    }
}

async fn open_embedded(
    home: &Path,
    node: &mut Node,
    engine: Option<EngineKind>,
) -> Outcome<Arc<dyn Store>> {
    let dir = home.join(META);
    let engine = choose_engine(&dir, node, engine)?;
    private::make_directory(&dir).context(|| format!("metadata store {}", dir.display()))?;
    let opened = tokio::task::spawn_blocking(move || kv::open(engine, &dir)).await;
    let opened = opened.context(|| "opening the metadata store".into())?.map_err(unread)?;
    node.engine = opened.name().to_owned();
    Ok(Arc::new(Alone(opened)))
}

/// `node.json` knows the store's id before the database does: so whatever ends a first start, the next one
/// is the owner of what this one has made.
async fn open_database(
    home: &Path,
    node: &mut Node,
    url: &str,
    host: &str,
    may_make: bool,
) -> Outcome<Arc<dyn Store>> {
    if node.store.is_empty() {
        node.store = new_uuid()?;
    }
    let before = std::mem::replace(&mut node.database, database_shown(url).plain()?);
    node.engine = database_engine(url).unwrap_or_default().to_owned();
    if !node.has_joined() {
        node.write(home)?;
    }
    let options = DatabaseOptions {
        url: url.to_owned(),
        store: node.store.clone(),
        create: may_make && !node.has_joined(),
        host: host.to_owned(),
        wait_ms_max: WAIT_MS_DEFAULT,
    };
    let opened = tokio::task::spawn_blocking(move || databases::open_database(&options)).await;
    let store = opened.context(|| "opening the metadata store".into())?.plain()?;
    if node.has_joined() && node.database != before {
        // Its host has another name.
        node.write(home)?;
    }
    Ok(store)
}

fn choose_engine(dir: &Path, node: &Node, wanted: Option<EngineKind>) -> Outcome<EngineKind> {
    if node.engine.is_empty() {
        return Ok(wanted.unwrap_or_default());
    }
    let made_with: EngineKind = node.engine.parse().map_err(|_| {
        Failure::new(format!(
            "metadata store {} was made with engine {}, which this release does not have",
            dir.display(),
            node.engine
        ))
        .next("install the release that made it")
    })?;
    match wanted {
        Some(wanted) if wanted != made_with => Err(Failure::new(format!(
            "metadata store {} was made with --engine {}",
            dir.display(),
            node.engine
        ))
        .next(format!("leave --engine out; {MOVE}"))),
        _ => Ok(made_with),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::Server;

    #[test]
    fn an_embedded_store_whose_disk_does_not_read_it_is_told_with_what_to_do() {
        let store = || "/d/meta".to_owned();
        let failed = unread(KvError::Io { store: store(), cause: "EIO".into() });
        assert!(failed.next.unwrap().starts_with("check its disk"));
        assert_eq!(unread(KvError::InUse { store: store() }).next, None, "it says that itself");
        let cause = "EMFILE; let its server open more files".into();
        assert_eq!(unread(KvError::Io { store: store(), cause }).next, None, "its disk is well");
    }

    /// A new disk with its lost+found got a new store, and that a new cluster, before anybody refused.
    #[test]
    fn a_directory_without_a_store_is_not_taken_for_a_new_one_by_who_had_one() {
        let (dir, _) = home(&[META], "fjall");
        let node = |cluster: &str| Node {
            engine: "fjall".into(),
            cluster: cluster.into(),
            ..Node::default()
        };
        let looked = |node: Node| look(dir.path(), &node, &Wanted::default());
        let refused = looked(node("c")).unwrap_err().to_string();
        assert!(refused.contains("is missing"), "{refused}");
        assert!(looked(node("")).is_ok(), "a first start that was cut off");
        std::fs::write(dir.path().join(META).join("format"), "").unwrap();
        assert!(looked(node("c")).is_ok(), "what it holds is looked at when it is opened");
    }

    /// A home in which these directories hold a file that says what they were.
    fn home(directories: &[&str], engine: &str) -> (tempfile::TempDir, Node) {
        let home = tempfile::tempdir().unwrap();
        for name in directories {
            std::fs::create_dir(home.path().join(name)).unwrap();
            std::fs::write(home.path().join(name).join("was"), name).unwrap();
        }
        let node = Node { engine: engine.into(), moved: true, ..Node::default() };
        node.write(home.path()).unwrap();
        (home, node)
    }

    fn was(home: &Path, name: &str) -> Option<String> {
        std::fs::read_to_string(home.join(name).join("was")).ok()
    }

    #[test]
    fn a_move_that_was_interrupted_in_the_end_is_finished() {
        let begun: [&[&str]; 3] = [&[META, META_NEW], &[META_MOVED, META_NEW], &[META_MOVED, META]];
        for (nth, directories) in begun.into_iter().enumerate() {
            let (dir, mut node) = home(directories, "redb");
            for _ in 0..2 {
                finish_move(dir.path(), &mut node).unwrap();
                let new = if nth == 2 { META } else { META_NEW };
                let old = if nth == 0 { META } else { META_MOVED };
                assert_eq!(was(dir.path(), META).as_deref(), Some(new));
                assert_eq!(was(dir.path(), META_MOVED).as_deref(), Some(old));
                assert!(!dir.path().join(META_NEW).exists());
                assert!(!Node::read(dir.path()).unwrap().moved);
            }
        }
        for directories in [&[META][..], &[META_MOVED]] {
            let (dir, mut node) = home(directories, "postgres");
            finish_move(dir.path(), &mut node).unwrap();
            assert!(!dir.path().join(META).exists() && dir.path().join(META_MOVED).exists());
        }
    }

    #[test]
    fn what_was_not_moved_stays_where_it_is() {
        let (dir, _) = home(&[META, META_NEW], "redb");
        let mut node = Node { engine: "redb".into(), ..Node::default() };
        finish_move(dir.path(), &mut node).unwrap();
        assert_eq!(was(dir.path(), META).as_deref(), Some(META));
        assert_eq!(was(dir.path(), META_NEW).as_deref(), Some(META_NEW));
    }

    #[test]
    fn a_password_in_a_url_that_is_wrong_is_not_repeated() {
        let command = clap::Command::new("strake")
            .arg(clap::Arg::new("meta").long("meta").value_parser(clap::value_parser!(MetaPlace)));
        for url in ["etcd://u:s3cret@h", "postgres://u:s3cret@h", "mysql://u:s3cret@h/d"] {
            let error =
                command.clone().try_get_matches_from(["strake", "--meta", url]).unwrap_err();
            let said = error.to_string();
            assert!(said.contains("--meta") && !said.contains("s3cret"), "{said}");
        }
        let place: MetaPlace = "etcd://u:s3cret@h/n".parse().unwrap();
        assert_eq!(format!("{place:?}"), "etcd://u@h:2379/n");
    }

    /// After a move, a manager that was started with the `--meta` of before led there, beside the one that led the new store.
    #[test]
    fn a_manager_does_not_lead_by_another_store_than_the_one_that_leads() {
        let server = |id: u32, store: &str| Server {
            id,
            name: format!("host{id}"),
            store: store.into(),
            manager: true,
            ..Server::default()
        };
        let map = |leader: u32, stores: [&str; 2]| ClusterMap {
            leader,
            servers: vec![server(1, stores[0]), server(2, stores[1])],
            ..ClusterMap::default()
        };
        let node = Node {
            server: 2,
            store: "old".into(),
            database: "postgres://u@h:5432/d".into(),
            ..Node::default()
        };
        let said = check_same(&node, &map(1, ["new", "old"])).unwrap_err().to_string();
        assert!(said.contains("host1") && said.contains("--meta"), "{said}");
        for (leader, stores) in [(1, ["old", "old"]), (0, ["", "old"]), (2, ["new", "new"])] {
            check_same(&node, &map(leader, stores)).unwrap();
        }
        // The store of one that leads by an embedded one has no id, and was taken for one that had not said it.
        let said = check_same(&node, &map(1, ["", "old"])).unwrap_err().to_string();
        assert!(said.contains("host1") && said.contains("embedded"), "{said}");
    }

    #[test]
    fn a_database_of_another_engine_is_not_the_one_that_the_metadata_is_in() {
        let node = Node {
            engine: "postgres".into(),
            database: "postgres://u@h:5432/d".into(),
            ..Node::default()
        };
        let place = Some(MetaPlace::Database("etcd://h/n".into()));
        let wanted = Wanted { place, engine: None };
        let error = look(Path::new("/nowhere"), &node, &wanted).unwrap_err();
        assert!(error.to_string().contains("is in postgres://u@h:5432/d"), "{error}");
        assert!(is_elsewhere(&node, &wanted) && is_of_other_engine(&node, &wanted));
        let place = Some(MetaPlace::Database("postgres://u:secret@h/d".into()));
        assert!(!is_elsewhere(&node, &Wanted { place, engine: None }));
        // It may be the same one by another name: who hears nobody goes on with it.
        let place = Some(MetaPlace::Database("postgres://u:secret@h2/d".into()));
        let renamed = Wanted { place, engine: None };
        assert!(is_elsewhere(&node, &renamed) && !is_of_other_engine(&node, &renamed));
        let embedded = Node { engine: "redb".into(), ..Node::default() };
        assert!(!is_elsewhere(&embedded, &wanted));
    }
}
