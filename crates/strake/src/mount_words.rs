//! `-o` options of `strake mount` and `strake up`: those of the mount itself, of its client, and of the program.

use crate::failure::{Failure, Outcome};
use crate::size;
use crate::tls_flags::TlsFlags;
use std::path::PathBuf;
use strake_base::process::usable_memory_bytes;
use strake_client::VolumeOptions;
use strake_client::api::MEMORY_BYTES_MIN;
use strake_fuse::MountOptions;
use strake_fuse::options::{is_known, is_remounted, known_options, split, words};

/// The longest that an operation waits for others.
const WAIT_SECONDS_MAX: u64 = 86_400;

/// What a mount is asked for, sorted by who wants it.
#[derive(Debug, Default)]
pub struct Wanted {
    /// For the kernel and the door.
    pub mount: MountOptions,
    /// For the client.
    pub volume: VolumeOptions,
    /// Where metrics are served.
    pub metrics: Option<String>,
    /// Where the log goes.
    pub log: Option<PathBuf>,
    /// Who we are to the cluster.
    pub tls: TlsFlags,
}

/// What an option of ours sets.
enum Does {
    Set(fn(&mut Wanted)),
    Take(fn(&mut Wanted, &str) -> Result<(), String>),
}

/// The options that the mount itself does not have.
const OPTIONS: &[(&str, Does)] = &[
    ("memory=SIZE", Does::Take(memory)),
    ("wait=SECONDS", Does::Take(wait)),
    ("metrics=ADDR", Does::Take(|wanted, address| set(&mut wanted.metrics, address))),
    ("log=FILE", Does::Take(|wanted, file| set(&mut wanted.log, file))),
    ("tls_ca=FILE", Does::Take(|wanted, file| set(&mut wanted.tls.tls_ca, file))),
    ("tls_cert=FILE", Does::Take(|wanted, file| set(&mut wanted.tls.tls_cert, file))),
    ("tls_key=FILE", Does::Take(|wanted, file| set(&mut wanted.tls.tls_key, file))),
    ("no_tls", Does::Set(|wanted| wanted.tls.no_tls = true)),
    ("sync_names", Does::Set(|wanted| wanted.volume.behind = false)),
];

impl Wanted {
    /// Applies the lists behind each `-o`; a later option wins.
    pub fn apply(&mut self, lists: &[String]) -> Outcome {
        let wrong = |cause: String| {
            Failure::usage(cause).next("strake mount --help lists the options of -o")
        };
        let mut others = Vec::new();
        for option in lists.iter().flat_map(|list| words(list)) {
            let (name, value) = split(option);
            let own = OPTIONS.iter().find(|(form, _)| split(form).0 == name);
            match (own.map(|(_, does)| does), value) {
                (Some(Does::Set(set)), None) => set(self),
                (Some(Does::Take(take)), Some(value)) => take(self, value)
                    .map_err(|cause| wrong(format!("mount option {option:?}: {cause}")))?,
                (Some(Does::Set(_)), Some(_)) => {
                    return Err(wrong(format!("mount option {option:?} takes no value")));
                }
                (Some(Does::Take(_)), None) => {
                    return Err(wrong(format!("mount option {option:?} needs a value after a =")));
                }
                (None, _) if is_known(option) => others.push(option),
                (None, _) => {
                    let cause =
                        format!("mount option {option:?} is not known; known are {}", known());
                    return Err(wrong(cause));
                }
            }
        }
        self.mount.apply(&others.join(",")).map_err(|e| wrong(e.detail.into_owned()))?;
        self.volume.exclusive = self.mount.writeback;
        Ok(())
    }
}

/// Those of these options that do something, but not at a remount.
pub fn left_by_remount(lists: &[String]) -> Vec<&str> {
    let given = lists.iter().flat_map(|list| words(list)).map(|option| split(option).0);
    let stays = |name: &&str| {
        let own = OPTIONS.iter().any(|(form, _)| split(form).0 == *name);
        own || known_options().any(|form| split(form).0 == *name) && !is_remounted(name)
    };
    given.filter(stays).collect()
}

/// All options that do something, as they are written.
fn known() -> String {
    let own = OPTIONS.iter().map(|(form, _)| *form);
    known_options().chain(own).collect::<Vec<_>>().join(", ")
}

/// The help text of `-o`.
pub fn help() -> String {
    format!("Options, with commas: {}", known())
}

fn set<T: for<'a> From<&'a str>>(place: &mut Option<T>, value: &str) -> Result<(), String> {
    *place = Some(value.into());
    Ok(())
}

/// Too little or too much is changed and not refused, as with [`wait`]: a line in /etc/fstab is to mount as it did before.
fn memory(wanted: &mut Wanted, value: &str) -> Result<(), String> {
    let bytes = size::parse(value)?;
    let used = bytes.clamp(MEMORY_BYTES_MIN, memory_bytes_max());
    if used != bytes {
        let is = if bytes < used { "too little" } else { "more than this process may use" };
        tracing::warn!("memory={value} is {is}; {} is used", size::short(used));
    }
    wanted.volume.memory_bytes = used;
    Ok(())
}

/// What no mount holds more than.
fn memory_bytes_max() -> u64 {
    usable_memory_bytes().max(MEMORY_BYTES_MIN)
}

/// Reads how much memory a mount may use, from a flag.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        ..MEMORY_BYTES_MIN => Err(format!("at least {} is needed", size::short(MEMORY_BYTES_MIN))),
        bytes if bytes > memory_bytes_max() => {
            let all = size::short(memory_bytes_max());
            Err(format!("this process may use {all} in all"))
        }
        bytes => Ok(bytes),
    }
}

/// Whoever says how long means servers and other clients alike.
fn wait(wanted: &mut Wanted, value: &str) -> Result<(), String> {
    let seconds: u64 = value.parse().map_err(|_| "it needs a number of seconds".to_owned())?;
    if seconds > WAIT_SECONDS_MAX {
        tracing::warn!("wait={value} is too long; {WAIT_SECONDS_MAX} is used, which is a day");
    }
    let ms = seconds.min(WAIT_SECONDS_MAX) * 1000;
    (wanted.volume.operation_wait_ms, wanted.volume.held_back_wait_ms) = (ms, ms);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(lists: &[&str]) -> Outcome<Wanted> {
        let lists: Vec<String> = lists.iter().map(|list| (*list).to_owned()).collect();
        let mut wanted = Wanted::default();
        wanted.apply(&lists)?;
        Ok(wanted)
    }

    #[test]
    fn options_reach_who_wants_them() {
        let wanted = applied(&["ro,memory=1G,tls_ca=/ca", "wait=5,tls_key=k,no_tls"]).unwrap();
        assert!(wanted.mount.read_only && wanted.tls.no_tls);
        assert_eq!((wanted.volume.memory_bytes, wanted.volume.operation_wait_ms), (1 << 30, 5000));
        assert_eq!(wanted.volume.held_back_wait_ms, 5000);
        assert_eq!((wanted.tls.tls_ca, wanted.tls.tls_key), (Some("/ca".into()), Some("k".into())));
    }

    #[test]
    fn what_a_remount_does_not_change_is_said() {
        let lists = ["remount,ro,memory=1G,noatime", "nosuid,uid=3,_netdev,wait=5"];
        let lists: Vec<String> = lists.iter().map(|list| (*list).to_owned()).collect();
        assert_eq!(left_by_remount(&lists), ["memory", "uid", "wait"]);
    }

    /// A mount with `memory=16M` in /etc/fstab was refused after an update.
    #[test]
    fn an_option_for_less_memory_than_is_needed_gives_what_is_needed() {
        for option in ["memory=1", "memory=16M", "memory=32M"] {
            let wanted = applied(&[option]).unwrap();
            assert_eq!(wanted.volume.memory_bytes, MEMORY_BYTES_MIN, "{option}");
        }
        parse_memory("16M").unwrap_err();
    }

    #[test]
    fn more_memory_than_there_is_and_a_wait_without_end_are_not_given() {
        let wanted = applied(&["memory=9999P,wait=99999999999999"]).unwrap();
        assert_eq!(wanted.volume.memory_bytes, usable_memory_bytes());
        assert_eq!(wanted.volume.operation_wait_ms, 86_400_000);
        assert_eq!(wanted.volume.held_back_wait_ms, 86_400_000);
        assert!(parse_memory("1000T").unwrap_err().contains("in all"));
    }

    #[test]
    fn a_wrong_option_is_told_with_all_that_there_are() {
        let unknown = applied(&["ro,nonsense"]).unwrap_err();
        assert!(unknown.cause.contains("\"nonsense\"") && unknown.next.is_some());
        for (form, _) in OPTIONS {
            assert!(unknown.cause.contains(form) && help().contains(form), "{form}");
        }
        for form in known_options() {
            assert!(unknown.cause.contains(form) && help().contains(form), "{form}");
        }
        for bad in ["wait", "wait=long", "no_tls=1", "memory=much", "uid=me", "dirsync"] {
            let failure = applied(&[bad]).unwrap_err();
            assert!(failure.cause.contains(&format!("{bad:?}")), "{failure}");
        }
    }
}
