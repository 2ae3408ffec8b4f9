//! What the program says of its work: lines on stderr (or in the log file that stderr leads to). One that cannot be written there (the
//! disk is full, who read it has gone or reads no more) is lost, and nothing else is.

use crate::failure::{Context, Failure, Outcome};
use crate::{stderr, terminal};
use clap::Args;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::panic::{PanicHookInfo, set_hook};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What says the same in the environment.
const VARIABLE: &str = "STRAKE_LOG";

/// What a process that stays logs, unless another level is wanted.
const OF_STAYING: &str = "info";
/// The same of a command: what was written and is lost it tells of itself, by the names of files; and what doctor loses, as it tries
/// targets, is nobody's.
const OF_COMMAND: &str = "warn,strake_client::file::flush=off";

/// The flag that says how much is logged.
#[derive(Args, Clone, Debug)]
pub struct LogFlags {
    /// How much to log: error, warn, info, debug, trace, off, or a filter like strake_meta=debug,info
    #[arg(long, global = true, value_name = "LEVEL", env = VARIABLE, help_heading = "General")]
    pub log_level: Option<String>,
}

impl LogFlags {
    /// True if it was given on the command line, and not by the environment.
    pub fn is_typed(&self) -> bool {
        let of_environment = std::env::var(VARIABLE).ok();
        self.log_level.is_some() && self.log_level != of_environment
    }
}

/// How much is logged unless another level is wanted.
pub fn usual(stays: bool) -> &'static str {
    if stays { OF_STAYING } else { OF_COMMAND }
}

/// Starts logging to stderr, with more than warnings where the process stays, unless another level is `wanted`.
pub fn start(wanted: Option<&str>, is_typed: bool, stays: bool) -> Outcome {
    let (filter, wrong) = chosen(wanted, is_typed, usual(stays))?;
    if stays {
        stderr::write_behind().context(|| "starting the thread that writes the log".into())?;
        set_hook(Box::new(tell_panic));
    }
    let no_color = std::env::var_os("NO_COLOR");
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(has_colors(io::stderr().is_terminal(), no_color.as_deref()))
        // Of a line that could not be written it would tell in the same place, and panic.
        .log_internal_errors(false)
        .with_writer(|| ToStderr);
    // Already set only where several verbs run in one test process: the first one counts.
    let _set = subscriber.try_init();
    if let Some(failure) = wrong {
        tracing::warn!("{}, as {VARIABLE} or a file says; logging as without it", failure.cause);
    }
    Ok(())
}

/// Where a line goes.
struct ToStderr;

impl Write for ToStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        stderr::write(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tells of a panic as the standard library does, behind the lines that were logged before it. That would wait for whoever reads.
fn tell_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let trace = Backtrace::capture();
    terminal::aside(&match trace.status() {
        BacktraceStatus::Captured => format!("thread '{name}' {panic}\n{trace}"),
        _ => format!("thread '{name}' {panic}"),
    });
}

/// What is logged, and what is wrong with what was wanted. Only what was typed is refused: a setting that stays where it is must
/// not keep a server from starting.
fn chosen(
    wanted: Option<&str>,
    is_typed: bool,
    otherwise: &str,
) -> Outcome<(EnvFilter, Option<Failure>)> {
    match filter(wanted.unwrap_or(otherwise)) {
        Err(failure) if !is_typed => Ok((filter(otherwise)?, Some(failure))),
        filter => Ok((filter?, None)),
    }
}

/// What is logged. A word that stands alone is a level: the library takes any other word for the name of a part of
/// the program, and then nothing else is logged.
fn filter(wanted: &str) -> Outcome<EnvFilter> {
    let wrong = |why: &str| {
        Failure::usage(format!("--log-level {wanted:?}: {why}"))
            .next("give one of error, warn, info, debug, trace, off")
    };
    let stands_alone = !wanted.contains(['=', ',', '[']);
    let filter = if wanted.eq_ignore_ascii_case("warning") { "warn" } else { wanted };
    if stands_alone && filter.parse::<LevelFilter>().is_err() {
        return Err(wrong("there is no such level"));
    }
    EnvFilter::try_new(filter).map_err(|e| wrong(&e.to_string()))
}

/// Whether lines have colours: on a terminal, unless <https://no-color.org> asks for none.
fn has_colors(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::USAGE;

    /// `--log-level inof` was taken for a part of the program of that name, and logging fell silent.
    #[test]
    fn a_log_level_that_does_not_exist_is_refused() {
        let levels = ["error", "warn", "warning", "WARNING", "info", "INFO", "debug", "trace"];
        for wanted in levels.into_iter().chain(["off", "strake_meta=debug,info"]) {
            filter(wanted).unwrap();
        }
        assert_eq!(filter("warning").unwrap().to_string(), "warn");
        for wanted in ["inof", "xx", "strake_meta", "strake_meta=inof"] {
            let failure = filter(wanted).unwrap_err();
            assert!(failure.code == USAGE && failure.cause.contains(wanted), "{failure}");
            assert!(failure.next.is_some_and(|next| next.contains("info")));
        }
    }

    /// A server did not start any more whose environment or file names a part of the program, as was accepted before.
    #[test]
    fn a_level_that_does_not_exist_is_passed_over_where_nobody_typed_it() {
        for wanted in ["strake_meta", "inof"] {
            let (filter, wrong) = chosen(Some(wanted), false, "info").unwrap();
            assert!(filter.to_string() == "info" && wrong.is_some(), "{wanted}");
            assert!(chosen(Some(wanted), true, "info").is_err(), "{wanted}");
        }
        let (filter, wrong) = chosen(Some("debug"), false, "info").unwrap();
        assert!(filter.to_string() == "debug" && wrong.is_none());
    }

    /// A copy to a full target logged numbers of inodes before its one sentence.
    #[test]
    fn what_a_copy_has_lost_is_not_logged_as_well() {
        let shown = filter(OF_COMMAND).unwrap().to_string();
        assert!(shown.contains("warn") && shown.contains("strake_client::file::flush=off"));
        // As there: who moves that moves this.
        let source = include_str!("../../client/src/file/flush.rs");
        assert!(source.contains("tracing::error!(\"data written to inode"));
    }

    /// It stood before what had been logged before it, and where nobody read the log its thread stood still.
    #[test]
    fn a_panic_is_told_behind_the_lines_before_it() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact"])
            .arg("log::tests::a_thread_that_panics_in_a_process_that_stays")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stderr);
        let (before, after) = told.split_once("thread 'doomed' panicked at ").expect(&told);
        assert!(before.contains("a line before it") && after.contains("its cause"), "{told}");
        assert!(child.status.success(), "{told}");
    }

    #[test]
    #[ignore = "the test above starts it as a process of its own"]
    fn a_thread_that_panics_in_a_process_that_stays() {
        start(None, false, true).unwrap();
        tracing::info!("a line before it");
        let doomed = std::thread::Builder::new().name("doomed".to_owned());
        doomed.spawn(|| panic!("its cause")).unwrap().join().unwrap_err();
    }

    /// Lines of the log had colours in any terminal.
    #[test]
    fn who_asks_for_no_colours_gets_none_in_the_log() {
        assert!(has_colors(true, None) && has_colors(true, Some(OsStr::new(""))));
        assert!(!has_colors(true, Some(OsStr::new("1"))) && !has_colors(false, None));
    }
}
