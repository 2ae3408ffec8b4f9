//! What a verb without a mount is pointed at: a place in a volume.

use crate::address::{self, Source};
use crate::cluster::{self, CONNECT_MS_MAX, ClusterFlags};
use crate::failure::{Context, Failure, Outcome};
use crate::mountpoint;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strake_base::mount_table::Mount;
use strake_client::Volume;
use strake_native::location::SCHEME;
use strake_native::{Clients, Location, RemotePath};
use strake_types::{Attr, Credentials, ErrorKind, Ino, Result};
use strake_wire::message::meta::Description;

/// How a place is written, for help texts.
pub const FORM: &str = "[ADDR[,ADDR]]:/VOLUME[/PATH]";

/// How a file is named where mounts are looked through.
const HOW_TO_NAME: &str =
    "give a path below a mount (grep strake /proc/mounts), or [ADDR[,ADDR]]:/VOLUME/PATH";

/// A place in a volume that is open.
pub struct Place {
    /// The volume.
    pub volume: Arc<Volume>,
    /// The path from its root, beginning with `/`.
    pub path: String,
    /// In whose name it is looked at and changed: servers check him.
    pub cred: Credentials,
}

/// Opens the volume that a place is in.
pub async fn open(source: &Source, flags: &ClusterFlags, verb: &str) -> Outcome<Place> {
    let managers = flags.managers(&source.managers)?;
    let map = managers.connect(CONNECT_MS_MAX).await?;
    let volume = cluster::open_volume(map, &source.volume, verb).await?;
    Ok(Place { volume, path: source.path.clone(), cred: managers.user() })
}

/// A file or directory, wherever the path was given.
pub struct Found {
    /// Where it lies.
    pub place: Place,
    /// What it is.
    pub attr: Attr,
}

/// Finds what a path means: `ADDR:/VOLUME/PATH`, or a path below a mount, whose inode number and
/// cluster the mount tells. Whoever gets it ends the session ([`cluster::leave_volume`]), also where it fails.
pub async fn find(path: &str, cluster: &ClusterFlags, verb: &str) -> Outcome<Found> {
    if let Some(source) = address::parse_source(path) {
        let place = open(&source, cluster, verb).await?;
        let attr = place.volume.resolve(&place.cred, place.path.as_bytes()).await;
        return place.with(attr, path).await;
    }
    let metadata = std::fs::metadata(path).map_err(|error| not_seen(path, &error))?;
    // Not by the path: what is bound over a mount hides it.
    let mount = mountpoint::ours().into_iter().find(|mount| mount.device == metadata.dev());
    let mount = mount.ok_or_else(|| {
        Failure::new(format!("{path} does not lie in a Strake mount")).next(HOW_TO_NAME)
    })?;
    let source = source_of(&mount)?;
    let place = open(&source, cluster, verb).await?;
    // The kernel calls the root of every mount inode 1, also where that is a directory of the volume. The top of what is
    // bound from a mount is no root: it has its own number. Who has got there need not be let through what lies above it.
    let attr = match Ino(metadata.ino()) {
        Ino::ROOT => place.volume.resolve(&Credentials::root(), source.path.as_bytes()).await,
        ino => place.volume.getattr(ino).await,
    };
    place.with(attr, path).await
}

impl Place {
    /// The names of an inode, and who uses it.
    pub async fn describe(&self, ino: Ino, path: &str) -> Outcome<Description> {
        self.volume.describe(&self.cred, ino).await.map_err(|error| match error.kind {
            ErrorKind::NotPermitted => Failure::new(format!("{path}: {error}"))
                .next("give the command as root, or as who runs the servers: names lead through directories that not everybody may look into"),
            _ => Failure::from(error),
        })
    }

    /// With what lies there; the session ends here if that is not to be had.
    async fn with(self, attr: Result<Attr>, path: &str) -> Outcome<Found> {
        match attr.context(|| path.into()) {
            Ok(attr) => Ok(Found { place: self, attr }),
            Err(failure) => {
                cluster::leave_volume(&self.volume).await;
                Err(failure)
            }
        }
    }
}

/// Why what lies at a path of this machine cannot be looked at.
fn not_seen(path: &str, error: &std::io::Error) -> Failure {
    let next = match error.kind() {
        // A mount has waited for as long as it does.
        std::io::ErrorKind::TimedOut => {
            "its metadata server does not answer: strake status shows which server is away"
        }
        _ => HOW_TO_NAME,
    };
    Failure::new(format!("{path}: {error}")).next(next)
}

/// What is mounted there.
fn source_of(mount: &Mount) -> Outcome<Source> {
    address::parse_source(&mount.source).ok_or_else(|| {
        let (what, point) = (&mount.source, mount.path.display());
        Failure::new(format!("which volume is {what} (mounted at {point})?"))
            .next("name the place as ADDR:/VOLUME/PATH")
    })
}

fn no_place(text: &str, otherwise: &str) -> Failure {
    Failure::usage(format!("{text:?} names no place in a volume"))
        .next(format!("write it as {FORM}, for example :/main/dir; {otherwise}"))
}

/// Refuses what looks as a cluster does and names no volume, unless a file here has that name: a copy would make one.
fn check_local(text: &str) -> Outcome {
    let is_meant = text.starts_with(':') || text.ends_with(':') && !text.contains('/');
    match is_meant && Path::new(text).symlink_metadata().is_err() {
        true => Err(no_place(text, &format!("a file of this machine as ./{text}"))),
        false => Ok(()),
    }
}

/// A path without links, as far as it exists.
fn real(path: &Path) -> Outcome<PathBuf> {
    path.canonicalize().or_else(|_| mountpoint::absolute(path))
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
        Self { clients: Clients::new(cluster::options_of(verb)), flags, verb }
    }

    /// What a path means: a place in a volume (which is opened now, so that a cluster that does not
    /// answer is told apart from a server that is away for a moment), or a file of this machine.
    pub async fn locate(&self, text: &str) -> Outcome<Location> {
        let (named, volume, path) = match address::parse_source(text) {
            // Who ends it with a slash means a directory.
            Some(Source { managers, volume, path }) if text.ends_with('/') && path != "/" => {
                (managers, volume, format!("{path}/"))
            }
            Some(Source { managers, volume, path }) => (managers, volume, path),
            None => match Location::parse(text)? {
                Location::Local(path) => {
                    check_local(text)?;
                    return Ok(Location::Local(path));
                }
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

    /// Has the library know the mounts that paths of this machine lead into, where a volume can be met twice: what is read
    /// could be what is written.
    pub async fn see_through_mounts(&self, locations: &[Location]) -> Outcome {
        let mut local = Vec::new();
        for location in locations {
            if let Location::Local(path) = location {
                local.push(real(path)?);
            }
        }
        // What is read is read with all that is mounted below, and what is written may come to what is.
        let is_near = |mount: &Mount| {
            let meet =
                |path: &PathBuf| path.starts_with(&mount.path) || mount.path.starts_with(path);
            local.iter().any(meet)
        };
        let mounts: Vec<Mount> = mountpoint::ours().into_iter().filter(is_near).collect();
        if local.len() == locations.len() && mounts.len() < 2 {
            return Ok(());
        }
        for mount in mounts {
            // Nothing is read or written through a mount that is dead.
            let Ok(top) = std::fs::metadata(&mount.path) else { continue };
            // Nor through one that something else hides.
            if top.dev() != mount.device {
                continue;
            }
            source_of(&mount)?;
            if let Location::Remote(mounted) = self.locate(&mount.source).await? {
                let seen = self.clients.see_through(mount.device, &mounted).await;
                seen.context(|| mount.path.display().to_string())?;
            }
        }
        Ok(())
    }

    /// As [`Paths::locate`], where only a place in a volume makes sense.
    pub async fn locate_remote(&self, text: &str) -> Outcome<Location> {
        if address::parse_source(text).is_none() && !text.starts_with(SCHEME) {
            return Err(no_place(text, "in a mount, use the usual commands"));
        }
        self.locate(text).await
    }

    /// Ends every session.
    pub async fn close(self) -> Outcome {
        Ok(self.clients.close().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was told how a path below a mount is named, which it was.
    #[test]
    fn a_path_in_a_mount_that_has_waited_in_vain_leads_to_the_servers() {
        let next = |code| {
            not_seen("/mnt/file", &std::io::Error::from_raw_os_error(code)).next.unwrap_or_default()
        };
        assert!(next(110).contains("strake status shows which server is away"), "ETIMEDOUT");
        assert_eq!(next(2), HOW_TO_NAME, "ENOENT");
    }
}
