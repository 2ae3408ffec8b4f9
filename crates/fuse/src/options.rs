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
    /// Symbolic links are followed.
    pub symfollow: bool,
    /// Each write is on disk before it returns.
    pub sync: bool,
    /// Labels for SELinux, as `context=LABEL`; the kernel sees to them.
    pub labels: Vec<String>,
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
            symfollow: true,
            sync: false,
            labels: Vec::new(),
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
        self.remount |= words(list).any(|option| option == "remount");
        words(list).try_for_each(|option| self.apply_one(option))
    }

    fn apply_one(&mut self, option: &str) -> Result<()> {
        let (name, value) = split(option);
        if is_for_systemd(name) {
            return Ok(());
        }
        let known = OPTIONS.iter().find(|(form, _)| split(form).0 == name);
        let refused = |cause: &str| invalid(format!("mount option \"{option}\" {cause}"));
        match (known.map(|(_, does)| does), value) {
            (Some(Does::Set(set)), None) => set(self),
            (Some(Does::Set(_)), Some(_)) => return Err(refused("takes no value")),
            (Some(Does::Take(take)), Some(value)) => take(self, option, value)?,
            (Some(Does::Take(_)), None) => return Err(refused("needs a value after a =")),
            (Some(Does::Nothing), _) => {}
            (Some(Does::Shown), _) if self.remount => {}
            (Some(Does::Shown), _) => {
                return Err(refused("is what the kernel shows, and taken with remount only"));
            }
            (Some(Does::Refuse(why)), _) => return Err(refused(&format!("cannot be had: {why}"))),
            (None, _) => {
                let known: Vec<_> = known_options().collect();
                return Err(refused(&format!("is not known; known are {}", known.join(", "))));
            }
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

/// What an option does.
#[derive(Clone, Copy)]
enum Does {
    /// It sets something.
    Set(fn(&mut MountOptions)),
    /// It has a value; the option as a whole is for what is said of a wrong one.
    Take(fn(&mut MountOptions, &str, &str) -> Result<()>),
    /// It is for `mount` and others, or what it asks for is so anyway.
    Nothing,
    /// The kernel shows it of every FUSE mount in its table. At a remount `mount` takes the options from
    /// there and hands them to its helper.
    Shown,
    /// It cannot be had, and why.
    Refuse(&'static str),
}

/// Every option. Access times are kept by the servers, so the kernel's choices about them change nothing.
const OPTIONS: &[(&str, Does)] = &[
    ("ro", Does::Set(|o| o.read_only = true)),
    ("rw", Does::Set(|o| o.read_only = false)),
    ("allow_other", Does::Set(|o| o.allow_other = Some(true))),
    ("noallow_other", Does::Set(|o| o.allow_other = Some(false))),
    ("nonempty", Does::Set(|o| o.nonempty = true)),
    ("suid", Does::Set(|o| o.suid = true)),
    ("nosuid", Does::Set(|o| o.suid = false)),
    ("dev", Does::Set(|o| o.dev = true)),
    ("nodev", Does::Set(|o| o.dev = false)),
    ("exec", Does::Set(|o| o.exec = true)),
    ("noexec", Does::Set(|o| o.exec = false)),
    ("symfollow", Does::Set(|o| o.symfollow = true)),
    ("nosymfollow", Does::Set(|o| o.symfollow = false)),
    ("sync", Does::Set(|o| o.sync = true)),
    ("async", Does::Set(|o| o.sync = false)),
    ("xattr", Does::Set(|o| o.xattr = true)),
    ("noxattr", Does::Set(|o| o.xattr = false)),
    // Looked for before all others.
    ("remount", Does::Set(|_| {})),
    ("writeback", Does::Set(|o| o.writeback = true)),
    ("uid=N", Does::Take(|o, option, value| number(option, value).map(|n| o.uid = Some(n)))),
    ("gid=N", Does::Take(|o, option, value| number(option, value).map(|n| o.gid = Some(n)))),
    ("threads=N", Does::Take(|o, option, value| threads(option, value).map(|n| o.threads = n))),
    (
        "fsname=TEXT",
        Does::Take(|o, _, value| {
            o.source = value.into();
            Ok(())
        }),
    ),
    ("context=LABEL", Does::Take(label)),
    ("fscontext=LABEL", Does::Take(label)),
    ("defcontext=LABEL", Does::Take(label)),
    ("rootcontext=LABEL", Does::Take(label)),
    ("defaults", Does::Nothing),
    ("auto", Does::Nothing),
    ("noauto", Does::Nothing),
    ("user", Does::Nothing),
    ("nouser", Does::Nothing),
    ("users", Does::Nothing),
    ("nousers", Does::Nothing),
    ("owner", Does::Nothing),
    ("noowner", Does::Nothing),
    ("group", Does::Nothing),
    ("nogroup", Does::Nothing),
    ("nofail", Does::Nothing),
    ("_netdev", Does::Nothing),
    ("comment", Does::Nothing),
    ("helper", Does::Nothing),
    ("uhelper", Does::Nothing),
    ("silent", Does::Nothing),
    ("loud", Does::Nothing),
    ("subtype", Does::Nothing),
    ("default_permissions", Does::Nothing),
    ("auto_unmount", Does::Nothing),
    ("atime", Does::Nothing),
    ("noatime", Does::Nothing),
    ("diratime", Does::Nothing),
    ("nodiratime", Does::Nothing),
    ("relatime", Does::Nothing),
    ("norelatime", Does::Nothing),
    ("strictatime", Does::Nothing),
    ("nostrictatime", Does::Nothing),
    ("lazytime", Does::Nothing),
    ("nolazytime", Does::Nothing),
    ("iversion", Does::Nothing),
    ("noiversion", Does::Nothing),
    ("nomand", Does::Nothing),
    ("user_id", Does::Shown),
    ("group_id", Does::Shown),
    ("rootmode", Does::Shown),
    ("max_read", Does::Shown),
    ("blksize", Does::Shown),
    ("seclabel", Does::Shown),
    (
        "dirsync",
        Does::Refuse(
            "the kernel does not tell file systems in user space; `strake volume set VOLUME --sync-always` has \
             every change of names on disk before it is answered",
        ),
    ),
    ("mand", Does::Refuse("Linux has no mandatory locks any more")),
    ("allow_root", Does::Refuse("the kernel knows all or the owner; say allow_other")),
];

/// The options that do something, as they are written.
pub fn known_options() -> impl Iterator<Item = &'static str> {
    let does = |does: &Does| matches!(does, Does::Set(_) | Does::Take(_));
    OPTIONS.iter().filter(move |(_, what)| does(what)).map(|(form, _)| *form)
}

/// True of an option that [`crate::remount`] follows, and of those that are only for the making of a mount, which
/// `mount` hands on all the same.
pub fn is_remounted(name: &str) -> bool {
    const FOLLOWED: &[&str] = &[
        "ro",
        "rw",
        "suid",
        "nosuid",
        "dev",
        "nodev",
        "exec",
        "noexec",
        "symfollow",
        "nosymfollow",
        "sync",
        "async",
        "remount",
        "nonempty",
        "fsname",
    ];
    FOLLOWED.contains(&name)
}

/// True of an option that means something here, be it that it is refused.
pub fn is_known(option: &str) -> bool {
    let name = split(option).0;
    is_for_systemd(name) || OPTIONS.iter().any(|(form, _)| split(form).0 == name)
}

/// The options of a list. A comma between quotes is part of one: `context="system_u:object_r:tmp_t:s0:c1,c2"`.
pub fn words(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let ends = move |c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    };
    list.split(ends).filter(|option| !option.is_empty())
}

/// Name and value of an option, or of its form.
pub fn split(option: &str) -> (&str, Option<&str>) {
    match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    }
}

/// What systemd and `mount` keep for themselves in fstab.
fn is_for_systemd(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-")
}

fn invalid(detail: String) -> Error {
    Error::with(ErrorKind::Invalid, detail)
}

fn label(options: &mut MountOptions, option: &str, _: &str) -> Result<()> {
    options.labels.push(option.to_owned());
    Ok(())
}

fn number(option: &str, value: &str) -> Result<u32> {
    value
        .parse()
        .map_err(|_| invalid(format!("mount option \"{option}\" needs a number after the =")))
}

fn threads(option: &str, value: &str) -> Result<usize> {
    match number(option, value)? as usize {
        count @ 1..=THREADS_MAX => Ok(count),
        _ => Err(invalid(format!("mount option \"{option}\" must be 1 to {THREADS_MAX}"))),
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
    fn what_any_file_system_is_told_is_taken() {
        let mut options = MountOptions::default();
        options
            .apply(
                "_netdev,nofail,noauto,user,users,group,defaults,x-a.b=c,comment=d,relatime,strictatime,lazytime,\
                 nodiratime,iversion,rw,suid,dev,exec,async,nosymfollow,sync,context=\"a:b:c0,c1\",rootcontext=e",
            )
            .unwrap();
        let labels = vec!["context=\"a:b:c0,c1\"".to_owned(), "rootcontext=e".to_owned()];
        let expected =
            MountOptions { symfollow: false, sync: true, labels, ..MountOptions::default() };
        assert_eq!(options, expected);
        options.apply("symfollow,async").unwrap();
        assert!(options.symfollow && !options.sync);
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_the_reason() {
        for (option, reason) in [("dirsync", "--sync-always"), ("mand", "Linux has no")] {
            let error = MountOptions::default().apply(option).unwrap_err();
            let named = format!("\"{option}\" cannot be had");
            assert!(error.detail.contains(&named) && error.detail.contains(reason), "{error}");
        }
    }

    #[test]
    fn every_option_that_does_something_is_named_to_who_gives_an_unknown_one() {
        let error = MountOptions::default().apply("frobnicate").unwrap_err();
        let (_, list) = error.detail.split_once("known are ").unwrap();
        let list: Vec<&str> = list.split(", ").collect();
        for form in ["noxattr", "sync", "nosymfollow", "context=LABEL", "uid=N", "remount"] {
            assert!(list.contains(&form), "{form}: {error}");
        }
        for form in &list {
            let given =
                form.split_once('=').map_or((*form).to_owned(), |(name, _)| format!("{name}=1"));
            MountOptions::default().apply(&given).unwrap();
            assert!(is_known(&given));
        }
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
