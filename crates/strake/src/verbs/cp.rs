//! `strake cp`: copies with many streams, without a mount.

use crate::cluster::ClusterFlags;
use crate::failure::{self, FAILED, Failure, Outcome};
use crate::place::Paths;
use crate::signals::{self, INTERRUPTED_CODE};
use crate::{output, size};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};
use strake_native::{CopyOptions, Incomplete, NotKept, Progress, Summary};
use strake_types::ErrorKind;

/// Most files copied at once.
const STREAMS_MAX: i64 = 1024;

/// Flags of `strake cp`.
#[derive(Args, Debug)]
#[command(
    override_usage = "strake cp [OPTIONS] <FROM>... <TO>",
    after_help = "A place in a volume is written [ADDR[,ADDR]]:/VOLUME/PATH; anything else is a file of this machine.

Examples:
  strake cp big.iso host1:/main/        to a cluster
  strake cp -r :/main/results .         from the `strake up` of this directory
  strake cp -r :/main/a host9:/main/b   from one cluster to another
  strake cp -a --sync /srv host1:/main/ a tree as it is, on disk when the command returns
  tar c d | strake cp /dev/stdin :/main/d.tar   what a program writes, to its end

Until it is whole, a file of 16 MiB or more, or (-p, -a) one that replaces another, is called .NAME-....strake-partial in its \
directory. What has been replaced stays what its other names stand for. A partial file that an interrupted copy of an earlier \
NAME has left is removed when a later copy of NAME succeeds.

Exit code: 0 all is copied; 1 something is not, or an ACL (or, where root copies, an owner) could not be kept. What cannot \
be copied is named, and all else is copied, unless a server does not answer, there is no room, a quota is used up or nothing \
may be written. What has gone from a tree when its turn comes is counted. Other attributes that cannot be kept are named \
and change nothing of it, as with cp of GNU; 130 it was interrupted (Ctrl-C, SIGTERM): what is under way is finished, and the \
same command goes on where it ended. A second Ctrl-C ends it at once."
)]
pub struct CpFlags {
    /// What to copy, and where to: into the directory TO, or (one source only) to TO itself
    #[arg(value_name = "FROM... TO", required = true, num_args = 2..)]
    pub paths: Vec<String>,

    /// Copy directories with everything in them
    #[arg(short, long)]
    pub recursive: bool,

    /// Keep mode, owner (as far as allowed) and times; times are kept without it too, but with --no-resume
    #[arg(short, long)]
    pub preserve: bool,

    /// Copy trees as they are: -r -p, with symbolic links, hard links among what is copied, extended attributes and ACLs
    #[arg(short, long)]
    pub archive: bool,

    /// Copy everything again, also what an earlier, interrupted copy has brought over (known by length and time of change)
    #[arg(long)]
    pub no_resume: bool,

    /// Return only when everything is on disk: contents, names, attributes and directories
    #[arg(long)]
    pub sync: bool,

    /// Files copied at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=STREAMS_MAX))]
    pub streams: Option<u32>,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,

    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb; the exit code.
pub async fn run(flags: &CpFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let paths = Paths::new("cp", cluster);
    let mut locations = Vec::new();
    for path in &flags.paths {
        locations.push(paths.locate(path).await?);
    }
    let Some((target, sources)) = locations.split_last() else {
        return Err(Failure::usage("nothing to copy"));
    };
    paths.see_through_mounts(&locations).await?;
    let mut options = CopyOptions {
        recursive: flags.recursive,
        preserve: flags.preserve,
        archive: flags.archive,
        resume: !flags.no_resume,
        sync: flags.sync,
        ..CopyOptions::default()
    };
    if let Some(streams) = flags.streams {
        options.streams = streams as usize;
    }
    let bar = if flags.quiet || flags.json { ProgressBar::hidden() } else { bar() };
    let ended_at_once = bar.clone();
    let stop = signals::stop_requested(move || ended_at_once.finish_and_clear())?;
    options.stop = Some(stop.clone());
    let began = Instant::now();
    let is_stopped = || *stop.borrow();
    let draw = |now: &Progress| {
        // A terminal may take nothing more for long, and who tells of a signal is not to wait for that.
        let stops = is_stopped();
        draw(&bar, now, stops);
    };
    let copied = strake_native::copy(&paths.clients, sources, target, &options, draw).await;
    bar.finish_and_clear();
    let closed = paths.close().await;
    let summary = match copied {
        Ok(summary) => summary,
        Err(Incomplete { error, failures, gone, not_kept }) => {
            // Of the files that are there.
            tell(&not_kept, gone);
            let mut failed = match is_stopped() && error.kind == ErrorKind::Interrupted {
                // What was finished in order may be lost.
                true => closed.and(Err(interrupted(flags, &error.detail))),
                false => {
                    let mut failed = Err(error.into());
                    if let Err(failure) = closed {
                        failure::note(&mut failed, failure);
                    }
                    failed
                }
            };
            failure::note_all(&mut failed, failures);
            return failed.map(|()| FAILED);
        }
    };
    tell(&summary.not_kept, summary.gone);
    closed?;
    match flags.json {
        true => output::json(&report(&summary, began.elapsed()))?,
        false if flags.quiet => {}
        false => output::line(&sentence(&summary, began.elapsed())),
    }
    Ok(if summary.not_kept.failed { FAILED } else { 0 })
}

fn interrupted(flags: &CpFlags, what: &str) -> Failure {
    let ended = match what {
        "" => Failure::new("interrupted before all was copied"),
        what => Failure::new(format!("interrupted: {what}")),
    };
    let ended = Failure { code: INTERRUPTED_CODE, ..ended };
    match flags.no_resume {
        true => ended,
        false => ended.next("give the same command again, and it goes on where it ended"),
    }
}

/// Says what copies are without, and how much was not there to be copied.
fn tell(not_kept: &NotKept, gone: u64) {
    let warn = |text: &str| output::aside(&format!("strake: warning: {text}"));
    not_kept.lines.first.iter().for_each(|line| warn(line));
    if not_kept.lines.more > 0 {
        let more = output::count(not_kept.lines.more, "further file lacks", "further files lack");
        warn(&format!("{more} something, too"));
    }
    if gone > 0 {
        let (one, many) =
            ("entry had gone when its turn came", "entries had gone when their turn came");
        warn(&output::count(gone, one, many));
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {msg}");
    let bar = ProgressBar::new(0);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn draw(bar: &ProgressBar, now: &Progress, stopping: bool) {
    bar.set_length(now.bytes_total);
    bar.set_position(now.bytes_done);
    if stopping {
        bar.set_message("finishing what is under way (Ctrl-C again: end at once)");
        return;
    }
    bar.set_message(pace(now));
}

/// The rate, how many files, and at this rate, where there is one and all files are known, the time left.
fn pace(now: &Progress) -> String {
    let rate = size::show(now.bytes_per_second as u64);
    let more = if now.complete { "" } else { "+" };
    let files = format!("{rate}/s, {}/{}{more} files", now.entries_done, now.entries_total);
    let left = now.bytes_total.saturating_sub(now.bytes_done) as f64;
    match now.complete && left > 0.0 && now.bytes_per_second >= 1.0 {
        true => {
            let seconds = (left / now.bytes_per_second).ceil() as u64;
            format!("{files}, {} left", output::duration(seconds))
        }
        false => files,
    }
}

fn report(summary: &Summary, took: Duration) -> serde_json::Value {
    serde_json::json!({
        "entries": summary.entries,
        "bytes": summary.bytes,
        "bytes_kept": summary.bytes_kept,
        "seconds": took.as_secs_f64(),
        "gone": summary.gone,
        "not_kept": summary.not_kept.lines.count(),
    })
}

fn sentence(summary: &Summary, took: Duration) -> String {
    let copied = summary.bytes.saturating_sub(summary.bytes_kept);
    let rate = copied as f64 / took.as_secs_f64().max(1e-6);
    let kept = match summary.bytes_kept {
        0 => String::new(),
        kept => format!(" ({} were there already)", size::show(kept)),
    };
    format!(
        "{}, {}{kept} in {:.1} s, {}/s",
        output::count(summary.entries, "entry", "entries"),
        size::show(summary.bytes),
        took.as_secs_f64(),
        size::show(rate as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was one of the bar's own, which went by what the client had taken before it was sent: a tenth of what it took.
    #[test]
    fn the_time_left_is_what_is_left_by_the_rate_that_is_shown() {
        let mut now = Progress {
            bytes_done: 128 << 20,
            bytes_total: 260 << 20,
            entries_total: 1,
            complete: true,
            bytes_per_second: 15e6,
            ..Progress::default()
        };
        assert_eq!(pace(&now), "14.3 MiB/s, 0/1 files, 10 s left");
        // It was that of what had been found so far.
        let found = Progress { complete: false, ..now };
        assert_eq!(pace(&found), "14.3 MiB/s, 0/1+ files");
        now.bytes_per_second = 0.0;
        assert_eq!(pace(&now), "0 B/s, 0/1 files");
        (now.bytes_per_second, now.bytes_done) = (15e6, now.bytes_total);
        assert_eq!(pace(&now), "14.3 MiB/s, 0/1 files");
    }
}
