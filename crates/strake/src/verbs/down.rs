//! `strake down`: stops what `strake up` started.

use crate::cluster::DATA_DEFAULT;
use crate::failure::{Context, Failure, Outcome};
use crate::runfile::RunFile;
use crate::{mountpoint, output};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::Duration;
use strake_base::process::began_ticks;
use strake_fuse::Unmount;

/// How long the process may take to flush and end before it is killed: gigabytes that wait for a slow disk go on as long as
/// that takes them, and by itself it gives up what does not. What was acknowledged is safe even then: the stores survive it.
const STOP_SECONDS_MAX: u64 = 600;
/// How long a killed process may take to vanish.
const KILL_SECONDS_MAX: u64 = 10;
/// How long it waits in silence.
const QUIET_SECONDS: u64 = 5;
/// Time between two looks.
const LOOK_MS: u64 = 50;

/// Flags of `strake down`.
#[derive(Args, Debug)]
pub struct DownFlags {
    /// Data directory of the `strake up` to stop
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// Runs the verb.
pub async fn run(flags: &DownFlags) -> Outcome {
    let shown = flags.data.display();
    if !flags.data.exists() {
        return Err(Failure::new(format!("data directory {shown} does not exist"))
            .next("name the one that was given to strake up: strake down --data DIR"));
    }
    let Some(run) = RunFile::read(&flags.data)? else {
        output::line(&format!("nothing runs on {shown}"));
        return Ok(());
    };
    if !run.is_alive() {
        clean(&flags.data, &run)?;
        output::line(&format!("nothing runs on {shown} (its process had died); cleaned up"));
        return Ok(());
    }
    stop(&run).await?;
    clean(&flags.data, &run)?;
    output::line(&format!("stopped; the files are in {shown}, strake up brings them back"));
    Ok(())
}

async fn stop(run: &RunFile) -> Outcome {
    let pid = i32::try_from(run.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::new(format!("{} is no process number", run.pid)))?;
    let signal = |signal: Signal| match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context(|| format!("stopping process {}", run.pid)),
    };
    signal(Signal::TERM)?;
    if stopped(run).await {
        return Ok(());
    }
    eprintln!("process {} did not stop in {STOP_SECONDS_MAX} s; killing it", run.pid);
    signal(Signal::KILL)?;
    match ended(run, KILL_SECONDS_MAX).await {
        true => Ok(()),
        false => Err(Failure::new(format!("process {} cannot be killed", run.pid))
            .next(format!("cat /proc/{}/stack", run.pid))),
    }
}

/// Waits until it has stopped by itself, and says what for where that takes long.
async fn stopped(run: &RunFile) -> bool {
    let mut told = None;
    for _ in 0..STOP_SECONDS_MAX / QUIET_SECONDS {
        if ended(run, QUIET_SECONDS).await {
            return true;
        }
        let is_mounted = strake_fuse::mount::is_ours(&run.mount);
        if told.replace(is_mounted) != Some(is_mounted) {
            output::aside(&waits_for(run, is_mounted));
        }
    }
    false
}

/// What a process that was told to stop is at.
fn waits_for(run: &RunFile, is_mounted: bool) -> String {
    let at = match is_mounted {
        true => format!("what was written at {} is being sent", run.mount.display()),
        false => "its servers make durable what they have".to_owned(),
    };
    format!("process {} still runs: {at}; it is killed after {STOP_SECONDS_MAX} s", run.pid)
}

async fn ended(run: &RunFile, seconds_max: u64) -> bool {
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds_max);
    while began_ticks(run.pid) == Some(run.began_ticks) {
        if tokio::time::Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
    }
    true
}

/// Takes away what a process that died left behind.
fn clean(data: &Path, run: &RunFile) -> Outcome {
    if mountpoint::is_dead(&run.mount) {
        strake_fuse::unmount(&run.mount, Unmount::Lazy)?;
    }
    run.remove_own(data);
    Ok(())
}
