//! What a verb without a mount is pointed at: a place in a volume.

use crate::address::{self, Source};
use crate::cluster::{self, CONNECT_MS_MAX, ClusterFlags};
use crate::failure::{Failure, Outcome};
use std::sync::Arc;
use strake_client::{Volume, VolumeOptions};
use strake_native::{Clients, Location, RemotePath};

/// How a place is written, for help texts.
pub const FORM: &str = "[ADDR[,ADDR]]:/VOLUME[/PATH]";
/// The other way to write one.
const SCHEME: &str = "strake://";

/// A place in a volume that is open.
pub struct Place {
    /// The volume.
    pub volume: Arc<Volume>,
    /// The path from its root, beginning with `/`.
    pub path: String,
}

/// Opens the volume that a place is in.
pub async fn open(source: &Source, flags: &ClusterFlags, verb: &str) -> Outcome<Place> {
    let map = flags.managers(&source.managers)?.connect(CONNECT_MS_MAX).await?;
    let volume = cluster::open_volume(map, &source.volume, verb).await?;
    Ok(Place { volume, path: source.path.clone() })
}

/// The paths of one command line, and the volumes they lie in: opened as they are needed, in the
/// name of the user of this process.
pub struct Paths<'a> {
    /// What the native library works with.
    pub clients: Clients,
    flags: &'a ClusterFlags,
    verb: &'static str,
}

impl<'a> Paths<'a> {
    /// No volume is open yet.
    pub fn new(verb: &'static str, flags: &'a ClusterFlags) -> Self {
        let client_name = cluster::caller_name(verb);
        let clients = Clients::new(VolumeOptions { client_name, ..VolumeOptions::default() });
        Self { clients, flags, verb }
    }

    /// What a path means: a place in a volume (which is opened now, so that a cluster that does not
    /// answer is told apart from a server that is away for a moment), or a file of this machine.
    pub async fn locate(&self, text: &str) -> Outcome<Location> {
        let (named, volume, path) = match address::parse_source(text) {
            Some(Source { managers, volume, path }) => (managers, volume, path),
            None => match Location::parse(text)? {
                Location::Local(path) => return Ok(Location::Local(path)),
                Location::Remote(RemotePath { addresses, volume, path }) => {
                    (addresses.iter().map(|a| address::complete(a)).collect(), volume, path)
                }
            },
        };
        let managers = self.flags.managers(&named)?;
        let remote = RemotePath { addresses: managers.addresses.clone(), volume, path };
        if !self.clients.has(&remote).await {
            let map = managers.connect(CONNECT_MS_MAX).await?;
            let volume = cluster::open_volume(map, &remote.volume, self.verb).await?;
            self.clients.adopt(remote.addresses.clone(), volume).await;
        }
        Ok(Location::Remote(remote))
    }

    /// As [`Paths::locate`], where only a place in a volume makes sense.
    pub async fn locate_remote(&self, text: &str) -> Outcome<Location> {
        if address::parse_source(text).is_none() && !text.starts_with(SCHEME) {
            return Err(Failure::usage(format!("{text:?} names no place in a volume")).next(
                format!(
                    "write it as {FORM}, for example :/main/dir; in a mount, use the usual commands"
                ),
            ));
        }
        self.locate(text).await
    }

    /// Ends every session.
    pub async fn close(self) -> Outcome {
        Ok(self.clients.close().await?)
    }
}
