//! `strake umount`: takes a mount away.

use crate::failure::{self, Outcome};
use clap::Args;
use std::path::PathBuf;
use strake_fuse::Unmount;

/// Flags of `strake umount`.
#[derive(Args, Debug)]
pub struct UmountFlags {
    /// Where the volume is mounted
    #[arg(value_name = "MOUNTPOINT", required = true)]
    pub mountpoints: Vec<PathBuf>,

    /// Take it out of the tree at once, also while programs use it
    #[arg(long, short = 'l')]
    pub lazy: bool,
}

/// Runs the verb.
pub fn run(flags: &UmountFlags) -> Outcome {
    let how = if flags.lazy { Unmount::Lazy } else { Unmount::WhenIdle };
    let mut failed = Ok(());
    for mountpoint in &flags.mountpoints {
        if let Err(error) = strake_fuse::unmount(mountpoint, how) {
            failure::note(&mut failed, error.into());
        }
    }
    failed
}
