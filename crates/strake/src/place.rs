//! What a verb without a mount is pointed at: a place in a volume.

use crate::address::{self, Source};
use crate::cluster::{self, ClusterFlags};
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
    let addresses = managers(source, flags)?;
    let flags = ClusterFlags { cluster: Some(addresses.join(",")) };
    let map = flags.connect().await?;
    let volume = cluster::open_volume(map, &source.volume, verb).await?;
    Ok(Place { volume, path: source.path.clone() })
}

fn managers(source: &Source, flags: &ClusterFlags) -> Outcome<Vec<String>> {
    match source.managers.is_empty() {
        true => flags.addresses(),
        false => Ok(source.managers.clone()),
    }
}

/// Volumes opened as they are needed, in the name of the user of this process.
pub fn clients(verb: &str) -> Clients {
    let client_name = cluster::caller_name(verb);
    Clients::new(VolumeOptions { client_name, ..VolumeOptions::default() })
}

/// What a path on the command line means: a place in a volume, or a file of this machine.
pub fn locate(text: &str, flags: &ClusterFlags) -> Outcome<Location> {
    if let Some(source) = address::parse_source(text) {
        let addresses = managers(&source, flags)?;
        let Source { volume, path, .. } = source;
        return Ok(Location::Remote(RemotePath { addresses, volume, path }));
    }
    match Location::parse(text)? {
        Location::Remote(mut remote) => {
            remote.addresses = remote.addresses.iter().map(|a| address::complete(a)).collect();
            Ok(Location::Remote(remote))
        }
        local => Ok(local),
    }
}

/// As [`locate`], where only a place in a volume makes sense.
pub fn locate_remote(text: &str, flags: &ClusterFlags) -> Outcome<Location> {
    if address::parse_source(text).is_none() && !text.starts_with(SCHEME) {
        return Err(Failure::usage(format!("{text:?} names no place in a volume")).next(format!(
            "write it as {FORM}, for example :/main/dir; in a mount, use the usual commands"
        )));
    }
    locate(text, flags)
}
