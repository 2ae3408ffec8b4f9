//! Which embedded engine.

use super::fjall::FjallKv;
use super::redb::RedbKv;
use super::{Kv, Result};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// An embedded engine, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// The LSM tree of fjall: writes little, and its reads stay cheap. The default, for the reasons
    /// in docs/design/0001-embedded-metadata-engine.md.
    #[default]
    Fjall,
    /// The B-tree of redb.
    Redb,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: [Self; 2] = [Self::Fjall, Self::Redb];

    /// The name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fjall => "fjall",
            Self::Redb => "redb",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no engine's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no metadata engine {0:?}; the engines are fjall and redb")]
pub struct UnknownEngine(String);

impl FromStr for EngineKind {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownEngine(name.into()))
    }
}

/// Opens the metadata store in `directory`, which is made if it is missing.
///
/// The directory is locked until the store and every snapshot of it have been dropped. Blocks while
/// it reads the journal back, which is bounded by the length of the journal, some 64 MiB.
pub fn open(engine: EngineKind, directory: &Path) -> Result<Arc<dyn Kv>> {
    Ok(match engine {
        EngineKind::Fjall => Arc::new(FjallKv::open(directory)?),
        EngineKind::Redb => Arc::new(RedbKv::open(directory)?),
    })
}
