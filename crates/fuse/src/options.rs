//! `-o` options of a mount.

use strake_types::{Error, ErrorKind, Result};

/// How a volume is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What `mount` and `df` show in the first column.
    pub source: String,
    /// Directory of the volume that becomes the root of the mount; `/` is all of it.
    pub subdirectory: String,
    /// No change is possible through this mount.
    pub read_only: bool,
    /// Users other than the one who mounts may enter. `None`: only if root mounts.
    pub allow_other: Option<bool>,
    /// Mount over a directory that has something in it.
    pub nonempty: bool,
    /// Every file is shown as owned by this user, and every request is made in its name.
    pub uid: Option<u32>,
    /// The same for the group.
    pub gid: Option<u32>,
    /// Setuid and setgid bits of programs count.
    pub suid: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Programs may be run.
    pub exec: bool,
    /// Extended attributes are shown, and with them ACLs, which the kernel then asks for.
    pub xattr: bool,
    /// Change a mount that is there instead of making one; see [`crate::remount`].
    pub remount: bool,
    /// The kernel keeps written data back (only for a mount that has its volume to itself).
    pub writeback: bool,
    /// Threads that read requests; 0: as many as there are processors, at most [`THREADS_MAX`].
    pub threads: usize,
    /// Whole parts of files that are read here and there are fetched for the kernel, by this program under the name
    /// [`crate::prefetch::NAME`], which it must serve.
    pub prefetch: bool,
}

/// Most threads that read requests.
pub const THREADS_MAX: usize = 16;

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "strake".into(),
            subdirectory: "/".into(),
            read_only: false,
            allow_other: None,
            nonempty: false,
            uid: None,
            gid: None,
            suid: true,
            dev: true,
            exec: true,
            xattr: true,
            remount: false,
            writeback: false,
            threads: 0,
            prefetch: false,
        }
    }
}

impl MountOptions {
    /// Applies a list as it stands after `-o` or in fstab: `ro,uid=1000,nosuid`. Options that mean
    /// something to `mount` or systemd only are accepted and do nothing here.
    pub fn apply(&mut self, list: &str) -> Result<()> {
        // Wherever it stands in the list: `mount` puts it last.
        self.remount |= list.split(',').any(|option| option == "remount");
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|o| self.apply_one(o))
    }

    fn apply_one(&mut self, option: &str) -> Result<()> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("allow_other", None) => self.allow_other = Some(true),
            ("noallow_other", None) => self.allow_other = Some(false),
            ("nonempty", None) => self.nonempty = true,
            ("suid", None) => self.suid = true,
            ("nosuid", None) => self.suid = false,
            ("dev", None) => self.dev = true,
            ("nodev", None) => self.dev = false,
            ("exec", None) => self.exec = true,
            ("noexec", None) => self.exec = false,
            ("xattr", None) => self.xattr = true,
            ("noxattr", None) => self.xattr = false,
            ("remount", None) => {}
            ("writeback", None) => self.writeback = true,
            ("uid", Some(value)) => self.uid = Some(number(option, value)?),
            ("gid", Some(value)) => self.gid = Some(number(option, value)?),
            ("threads", Some(value)) => self.threads = threads(option, value)?,
            ("fsname", Some(value)) => self.source = value.into(),
            _ if is_for_others(name) => {}
            _ if self.remount && is_from_the_kernel(name) => {}
            _ => return Err(unknown(option)),
        }
        Ok(())
    }

    /// Number of threads to start.
    pub fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(2, |n| n.get()).clamp(2, THREADS_MAX),
            wanted => wanted.min(THREADS_MAX),
        }
    }
}

/// Access times are kept by the servers, so the kernel's choices about them change nothing.
fn is_for_others(name: &str) -> bool {
    const IGNORED: &[&str] = &[
        "defaults",
        "auto",
        "noauto",
        "user",
        "nouser",
        "users",
        "owner",
        "group",
        "nofail",
        "_netdev",
        "async",
        "atime",
        "noatime",
        "diratime",
        "nodiratime",
        "relatime",
        "norelatime",
        "strictatime",
        "nostrictatime",
        "lazytime",
        "nolazytime",
        "default_permissions",
        "subtype",
        "comment",
        "silent",
        "loud",
    ];
    IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

/// What the kernel shows of every FUSE mount in its table. At a remount `mount` takes the options
/// from there and hands them to its helper.
fn is_from_the_kernel(name: &str) -> bool {
    const SHOWN: &[&str] = &["user_id", "group_id", "rootmode", "max_read", "blksize", "seclabel"];
    SHOWN.contains(&name)
}

fn unknown(option: &str) -> Error {
    let detail = format!(
        "mount option \"{option}\" is not known; known are ro, rw, uid=N, gid=N, allow_other, \
         noallow_other, nonempty, suid, nosuid, dev, nodev, exec, noexec, remount, \
         writeback, threads=N, fsname=TEXT"
    );
    Error::with(ErrorKind::Invalid, detail)
}

fn number(option: &str, value: &str) -> Result<u32> {
    value.parse().map_err(|_| {
        let detail = format!("mount option \"{option}\" needs a number after the =");
        Error::with(ErrorKind::Invalid, detail)
    })
}

fn threads(option: &str, value: &str) -> Result<usize> {
    match number(option, value)? as usize {
        count @ 1..=THREADS_MAX => Ok(count),
        _ => {
            let detail = format!("mount option \"{option}\" must be 1 to {THREADS_MAX}");
            Err(Error::with(ErrorKind::Invalid, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_from_fstab_is_understood() {
        let mut options = MountOptions::default();
        options
            .apply("defaults,_netdev,ro,uid=1000,nosuid,noatime,x-systemd.automount,X-mount.mkdir,")
            .unwrap();
        let expected = MountOptions {
            read_only: true,
            uid: Some(1000),
            suid: false,
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_mount_hands_on_from_the_kernels_table_is_accepted_at_a_remount_only() {
        let list = "ro,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other";
        let mut options = MountOptions::default();
        options.apply(&format!("{list},remount")).unwrap();
        assert!(options.remount && options.read_only && !options.suid);
        assert!(MountOptions::default().apply(list).unwrap_err().detail.contains("user_id=0"));
    }

    #[test]
    fn a_later_option_wins() {
        let mut options = MountOptions::default();
        options.apply("ro,rw,uid=1,uid=2").unwrap();
        assert_eq!((options.read_only, options.uid), (false, Some(2)));
    }

    #[test]
    fn mistakes_are_named() {
        for bad in ["rw,frobnicate", "uid", "uid=me", "ro=1", "threads=0", "threads=99", "uid=-1"] {
            let error = MountOptions::default().apply(bad).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid, "{bad}");
            let named = bad.rsplit(',').next().unwrap();
            assert!(error.detail.contains(&format!("\"{named}\"")), "{error}");
        }
    }
}
