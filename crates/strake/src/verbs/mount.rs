//! `strake mount`: a volume of a cluster as a directory of this machine.

use crate::address::{self, Source};
use crate::cluster::{ClusterFlags, host_name, warn_of_unknown};
use crate::failure::{Failure, Outcome};
use crate::log::LogFlags;
use crate::mount_words::{self, Wanted};
use crate::mounted::Mounted;
use crate::release::RELEASE;
use crate::{detach, mountpoint, output, private, telemetry, tls_flags};
use clap::Args;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use strake_base::task::Owned;
use strake_client::{Volume, VolumeOptions};
use strake_fuse::MountOptions;
use strake_types::limits::NAME_BYTES_MAX;
use strake_wire::frame::crc32c;

/// Where the log of a mount in the background goes, if it is not told otherwise and may write there.
const LOG_DIRECTORY: &str = "/var/log/strake";

/// Flags of `strake mount`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  strake mount host1:/main /mnt/main                   in the background
  strake mount host1,host2:/main/projects /mnt/p -o ro  a directory of the volume, read-only
  mount -t strake host1:/main /mnt/main                the same by mount (after make install)
  host1:/main  /mnt/main  strake  _netdev  0  0        the same in /etc/fstab")]
pub struct MountFlags {
    /// Managers, volume, and a directory in it: ADDR[,ADDR]:/VOLUME[/SUBDIR]
    #[arg(value_name = "SOURCE")]
    pub source: String,

    /// Where to mount it
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,

    /// See [`Wanted`].
    #[arg(short = 'o', long = "options", value_name = "OPTION,...", help = mount_words::help())]
    pub options: Vec<String>,

    /// Stay in the foreground and log to stderr
    #[arg(long, short = 'f')]
    pub foreground: bool,

    /// Only look whether source and options are understood: what `mount -f` of the system asks for
    #[arg(long, hide = true)]
    pub fake: bool,
}

/// Runs the verb.
pub async fn run(flags: &MountFlags, cluster: &ClusterFlags, log: &LogFlags) -> Outcome {
    let wanted = sort_options(flags)?;
    if flags.fake {
        return source(flags).map(drop);
    }
    if wanted.mount.remount {
        strake_fuse::remount(&flags.mountpoint, &wanted.mount)?;
        let stay = mount_words::left_by_remount(&flags.options);
        if !stay.is_empty() {
            eprintln!(
                "strake: {} stay as they were when it was mounted; unmounting and mounting changes them",
                stay.join(", ")
            );
        }
        return Ok(());
    }
    if !flags.foreground && !detach::is_child() {
        let (file, is_chosen) = match &wanted.log {
            Some(file) => (file.clone(), true),
            // Others may make files there, too.
            None => (default_log(&flags.mountpoint)?, false),
        };
        let level = log.log_level.as_deref().unwrap_or("info");
        detach::start(&file, is_chosen, level, &flags.mountpoint)?;
        // What runs in the background says it in its log.
        if let Ok(addresses) = cluster.addresses(&source(flags)?.managers) {
            warn_of_unknown(addresses).await;
        }
        return Ok(());
    }
    let background = !flags.foreground;
    let started = Client::start(flags, wanted, cluster).await;
    let mut is_wanted = true;
    match (&started, background) {
        (Ok(_), true) => is_wanted = detach::ready(),
        (Err(failure), true) => detach::failed(failure),
        (Ok(_), false) => {
            output::notice(&format!("mounted at {}; Ctrl-C unmounts", flags.mountpoint.display()));
        }
        (Err(_), false) => {}
    }
    started?.until_stopped(is_wanted).await
}

/// A mounted volume of a cluster.
struct Client {
    mounted: Mounted,
    _expiry: Option<Owned<()>>,
}

impl Client {
    async fn start(flags: &MountFlags, wanted: Wanted, cluster: &ClusterFlags) -> Outcome<Client> {
        let Source { managers, volume: name, path } = source(flags)?;
        let tls = wanted.tls.or(cluster.tls.clone());
        let managers = ClusterFlags { tls, ..cluster.clone() }.managers(&managers)?;
        let point = mountpoint::prepare(&flags.mountpoint, None, wanted.mount.nonempty)?;
        if let Some(address) = &wanted.metrics {
            telemetry::serve(address).await?;
        }
        let map = managers.connect(wanted.volume.operation_wait_ms.min(10_000)).await?;
        tokio::spawn(warn_of_unknown(managers.addresses.clone()));
        let expiry = managers.used_tls(&map.current()).cloned().map(tls_flags::watch);
        let volume = Volume::connect(map, &name, wanted.volume).await?;
        let mut options = wanted.mount;
        options.subdirectory = path;
        let mounted = Mounted::at(&point, volume, &options).await?;
        Ok(Client { mounted, _expiry: expiry })
    }

    /// Serves until it is told to stop, or unmounted.
    async fn until_stopped(mut self, is_wanted: bool) -> Outcome {
        let unmounted = self.mounted.until_stopped(is_wanted).await;
        match self.mounted.close(unmounted).await {
            Some(result) => Ok(result?),
            None => Err(Failure::new("what was written could not be flushed in time")
                .next("strake status shows which servers are away")),
        }
    }
}

fn source(flags: &MountFlags) -> Outcome<Source> {
    address::parse_source(&flags.source).ok_or_else(|| {
        Failure::usage(format!("{:?} names no volume", flags.source))
            .next("write it as ADDR[,ADDR]:/VOLUME[/SUBDIR], for example host1:/main")
    })
}

fn sort_options(flags: &MountFlags) -> Outcome<Wanted> {
    let point = mountpoint::absolute(&flags.mountpoint)?;
    let client_name = format!("{}:{}", host_name(), point.display());
    let mut wanted = Wanted {
        mount: MountOptions {
            source: flags.source.clone(),
            prefetch: true,
            ..MountOptions::default()
        },
        volume: VolumeOptions {
            client_name,
            release: RELEASE,
            leases: true,
            behind: true,
            ..VolumeOptions::default()
        },
        ..Wanted::default()
    };
    wanted.apply(&flags.options)?;
    Ok(wanted)
}

/// A file named after the mount point, in the first directory that can be written.
fn default_log(mountpoint: &Path) -> Outcome<PathBuf> {
    let full = std::path::absolute(mountpoint).unwrap_or_else(|_| mountpoint.to_owned());
    let is_root = rustix::process::geteuid().is_root();
    let directory = first_usable(log_directories(is_root, |name| std::env::var_os(name)))?;
    Ok(directory.join(log_name(&full)))
}

fn first_usable(directories: impl Iterator<Item = PathBuf>) -> Outcome<PathBuf> {
    let mut causes = Vec::new();
    for directory in directories {
        match make_usable(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) => causes.push(format!("{}: {error}", directory.display())),
        }
    }
    let cause = format!("no directory for logs can be written: {}", causes.join("; "));
    Err(Failure::new(cause).next("-o log=FILE names a file for it"))
}

/// An error if no files can be made in it. The machine's own directory is made for all to look in, a user's for himself.
fn make_usable(directory: &Path) -> io::Result<()> {
    match directory == Path::new(LOG_DIRECTORY) {
        true => std::fs::create_dir_all(directory)?,
        false => private::make_directory(directory)?,
    }
    Ok(rustix::fs::access(directory, rustix::fs::Access::WRITE_OK)?)
}

/// The machine's directory for logs, and a user's own: in one where everybody makes files (/tmp) somebody else could have made this
/// one before, or a link to any other. Root has no second one, since the variables may be those of a user.
fn log_directories(
    is_root: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> impl Iterator<Item = PathBuf> {
    let below = |name: &str, path: &str| {
        let directory = variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        directory.map(|directory| directory.join(path))
    };
    let own = || below("XDG_STATE_HOME", "strake").or_else(|| below("HOME", ".local/state/strake"));
    let own = if is_root { None } else { own() };
    [LOG_DIRECTORY.into()].into_iter().chain(own)
}

/// Of a path that is too long for a name its end, behind a checksum of the whole: two mounts have two logs.
fn log_name(mountpoint: &Path) -> String {
    let path = mountpoint.display().to_string();
    let name = path.trim_matches('/').replace('/', "-");
    let (begin, end) = ("strake-mount-", ".log");
    let room = NAME_BYTES_MAX - begin.len() - end.len();
    if name.len() <= room {
        return format!("{begin}{name}{end}");
    }
    let sum = format!("{:08x}-", crc32c(path.as_bytes()));
    let cut = name.ceil_char_boundary(name.len() + sum.len() - room);
    format!("{begin}{sum}{}{end}", &name[cut..])
}

/// The command line of `mount -t strake`: `mount.strake SOURCE MOUNTPOINT [-sfnvrwN] [-o OPTIONS] [-t TYPE]`,
/// turned into ours. What else begins with a `-` is ours to understand, or to refuse.
pub fn from_mount(arguments: &[OsString]) -> Outcome<Vec<OsString>> {
    let mut ours: Vec<OsString> = vec!["strake".into(), "mount".into()];
    let mut rest = arguments.iter().skip(1);
    let mut fake = false;
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        match text.as_ref() {
            "-o" => {
                let list =
                    rest.next().ok_or_else(|| Failure::usage("-o needs options after it"))?;
                ours.extend(["-o".into(), list.clone()]);
            }
            "-t" | "-N" => drop(rest.next()),
            flags if is_of_mount(flags) => {
                fake |= flags.contains('f');
                for (letter, option) in [('r', "ro"), ('w', "rw")] {
                    if flags.contains(letter) {
                        ours.extend(["-o", option].map(OsString::from));
                    }
                }
            }
            _ => ours.push(argument.clone()),
        }
    }
    if fake {
        ours.push("--fake".into());
    }
    Ok(ours)
}

/// True for the flags without a value that `mount` hands to its helpers, or that people take over from it.
fn is_of_mount(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    !letters.is_empty() && letters.chars().all(|letter| "sfnvrw".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;
    use std::os::unix::fs::PermissionsExt;

    /// It mounted for writing, and took any letter at all.
    #[test]
    fn the_helper_mounts_read_only_where_it_is_told_so_and_drops_no_flag_that_it_does_not_know() {
        let ours = |flag: &str| {
            let given = ["mount.strake", "h:/main", "/mnt", flag].map(OsString::from);
            from_mount(&given).unwrap()
        };
        assert_eq!(ours("-nr")[4..], ["-o", "ro"]);
        assert_eq!(ours("-rw")[4..], ["-o", "ro", "-o", "rw"]);
        assert_eq!(ours("-x")[4..], ["-x"]);
    }

    /// It said of which release the program is, whatever stood in /etc/fstab.
    #[tokio::test]
    async fn a_fake_mount_looks_at_source_and_options_and_does_no_more() {
        let fake = async |source: &str, options: &str| {
            let given = ["mount.strake", source, "/mnt", "-fv", "-o", options].map(OsString::from);
            let cli = Cli::try_parse_from(from_mount(&given).unwrap()).unwrap();
            let Verb::Mount(flags) = &cli.verb else { panic!("{given:?}") };
            run(flags, &cli.cluster, &cli.log).await
        };
        fake("no-such-host:/main", "ro,memory=1G").await.unwrap();
        let failure = fake("no-such-host:/main", "nonsense").await.unwrap_err();
        assert!(failure.cause.contains("nonsense"), "{failure}");
        let failure = fake("nothing", "ro").await.unwrap_err();
        assert!(failure.cause.contains("names no volume"), "{failure}");
    }

    #[test]
    fn what_mount_says_is_understood() {
        let given = ["/sbin/mount.strake", "h:/main", "/mnt", "-n", "-o", "rw,_netdev"];
        let given: Vec<OsString> = given.iter().map(OsString::from).collect();
        let ours = from_mount(&given).unwrap();
        assert_eq!(ours, ["strake", "mount", "h:/main", "/mnt", "-o", "rw,_netdev"]);
    }

    /// A user's log was in /tmp, under a name that others could give to a link first: what is logged was written where it led.
    #[test]
    fn no_log_is_where_others_make_files() {
        let directories = |is_root, set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, to)| to);
            let found = log_directories(is_root, |name| value(name).map(OsString::from));
            found.map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        let home = ("HOME", "/srv/bob");
        let own = "/srv/bob/.local/state/strake";
        assert_eq!(directories(false, &[home]), [LOG_DIRECTORY, own]);
        assert_eq!(directories(false, &[home, ("XDG_STATE_HOME", "state")]), [LOG_DIRECTORY, own]);
        let state = ("XDG_STATE_HOME", "/srv/state");
        assert_eq!(directories(false, &[home, state]), [LOG_DIRECTORY, "/srv/state/strake"]);
        assert_eq!(directories(true, &[home, state]), [LOG_DIRECTORY]);
        assert_eq!(directories(false, &[]), [LOG_DIRECTORY]);
    }

    /// Others could read which files he had trouble with.
    #[test]
    fn the_directory_of_a_users_logs_is_his_alone() {
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join(".local/state/strake");
        make_usable(&own).unwrap();
        assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
    }

    /// It was not said which directories had been tried, nor what was wrong with them.
    #[test]
    fn a_log_that_can_be_nowhere_is_told_with_each_directory_and_its_cause() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        let (one, other) = (file.join("one"), file.join("other"));
        let failure = first_usable([one.clone(), other.clone()].into_iter()).unwrap_err();
        for directory in [one, other] {
            let told = format!("{}: Not a directory", directory.display());
            assert!(failure.cause.contains(&told), "{failure}");
        }
        let usable = home.path().join("log");
        assert_eq!(first_usable([file, usable.clone()].into_iter()).unwrap(), usable);
    }

    #[test]
    fn the_log_of_the_longest_mount_point_has_a_name_of_its_own() {
        assert_eq!(log_name(Path::new("/mnt/main")), "strake-mount-mnt-main.log");
        let long = |top: &str| PathBuf::from(format!("/{top}/{}", "\u{e4}/".repeat(400)));
        let (one, other) = (log_name(&long("a")), log_name(&long("b")));
        assert!(one != other && one.len() <= NAME_BYTES_MAX && one.len() > NAME_BYTES_MAX - 8);
        assert_eq!(one, log_name(&long("a")), "the same mount point, the same log");
        let edge = "m".repeat(NAME_BYTES_MAX - "strake-mount-.log".len());
        assert_eq!(log_name(Path::new(&edge)), format!("strake-mount-{edge}.log"));
    }
}
