//! The metadata store of a server: in its home directory, or in a database.

use super::NodeOptions;
use super::identity::Node;
use super::stores::{check_empty, new_uuid};
use crate::failure::{Context, Failure, Outcome, Plain};
use crate::private;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use strake_engine::kv::{
    EngineKind, Kv, PostgresOptions, WAIT_MS_DEFAULT, is_postgres, open_postgres, postgres_shown,
};

/// Directory of an embedded metadata store within the home directory.
pub const META: &str = "meta";
/// What `node.json` calls the engine of a store in a database.
const POSTGRES: &str = "postgres";

/// Where a server is told to keep its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaPlace {
    /// In its home directory.
    Embedded,
    /// In the database with this URL.
    Postgres(String),
}

impl FromStr for MetaPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(Self::Embedded),
            url if is_postgres(url) => {
                postgres_shown(url).map_err(|e| e.to_string())?;
                Ok(Self::Postgres(url.to_owned()))
            }
            // It may be a URL with a password in it.
            _ => Err("it is neither embedded nor postgres://USER@HOST/DATABASE".into()),
        }
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
            Some(MetaPlace::Postgres(url)) => Some(url),
            Some(MetaPlace::Embedded) | None => None,
        }
    }
}

/// Looks at the metadata store, as far as it can be without opening it: is it where it was, and is it of
/// the engine that is wanted?
pub fn look(home: &Path, node: &Node, wanted: &Wanted) -> Outcome {
    let dir = home.join(META);
    if wanted.url().is_some() {
        return check_database(&dir, node, wanted);
    }
    if node.engine == POSTGRES {
        return Err(Failure::new(format!(
            "the metadata of {} is in {}",
            home.display(),
            node.database
        ))
        .next("give --meta with that URL and its password, or set STRAKE_META"));
    }
    choose_engine(&dir, node, wanted.engine)?;
    if node.has_joined() && !dir.exists() && !node.engine.is_empty() {
        return Err(Failure::new(format!("metadata store {} is missing", dir.display()))
            .next("mount its disk, or restore it from a backup"));
    }
    if dir.exists() { Ok(()) } else { check_empty(&dir) }
}

fn check_database(dir: &Path, node: &Node, wanted: &Wanted) -> Outcome {
    if wanted.engine.is_some() {
        return Err(Failure::usage("--engine is for an embedded metadata store")
            .next("leave out --engine, or --meta"));
    }
    if !node.engine.is_empty() && node.engine != POSTGRES {
        return Err(Failure::new(format!("the metadata of this server is in {}", dir.display()))
            .next("leave --meta out; where a server keeps its metadata cannot be changed"));
    }
    Ok(())
}

/// Opens the metadata store, and makes it where the server has none.
pub async fn open(options: &NodeOptions, node: &mut Node) -> Outcome<Arc<dyn Kv>> {
    let wanted = &options.meta_store;
    match wanted.url() {
        Some(url) => open_database(&options.home, node, url, &options.name).await,
        None => open_embedded(&options.home, node, wanted.engine).await,
    }
}

async fn open_embedded(
    home: &Path,
    node: &mut Node,
    engine: Option<EngineKind>,
) -> Outcome<Arc<dyn Kv>> {
    let dir = home.join(META);
    let engine = choose_engine(&dir, node, engine)?;
    private::make_directory(&dir).context(|| format!("metadata store {}", dir.display()))?;
    let opened = tokio::task::spawn_blocking(move || strake_engine::kv::open(engine, &dir)).await;
    let kv = opened.context(|| "opening the metadata store".into())?.plain()?;
    node.engine = kv.name().to_owned();
    Ok(kv)
}

/// `node.json` knows the store's id before the database does: so whatever ends a first start, the next one
/// is the owner of what this one has made.
async fn open_database(
    home: &Path,
    node: &mut Node,
    url: &str,
    host: &str,
) -> Outcome<Arc<dyn Kv>> {
    if node.store.is_empty() {
        node.store = new_uuid()?;
    }
    node.engine = POSTGRES.to_owned();
    node.database = postgres_shown(url).plain()?;
    node.write(home)?;
    let options = PostgresOptions {
        url: url.to_owned(),
        store: node.store.clone(),
        create: !node.has_joined(),
        host: host.to_owned(),
        wait_ms_max: WAIT_MS_DEFAULT,
    };
    let opened = tokio::task::spawn_blocking(move || open_postgres(&options)).await;
    opened.context(|| "opening the metadata store".into())?.plain()
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
        .next("leave --engine out; the engine of a store cannot be changed")),
        _ => Ok(made_with),
    }
}
