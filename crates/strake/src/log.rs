//! What the program says of its work: lines on stderr (or in the log file that stderr leads to). One that cannot be written there (the
//! disk is full, who read it has gone) is lost, and nothing else is.

use crate::failure::{Failure, Outcome};
use clap::Args;
use metrics::counter;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What says the same in the environment.
const VARIABLE: &str = "STRAKE_LOG";

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

/// Starts logging to stderr, at `otherwise` where no level is `wanted`.
pub fn start(wanted: Option<&str>, is_typed: bool, otherwise: &str) -> Outcome {
    let (filter, wrong) = chosen(wanted, is_typed, otherwise)?;
    let no_color = std::env::var_os("NO_COLOR");
    let lines = Arc::new(Lines::default());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(has_colors(io::stderr().is_terminal(), no_color.as_deref()))
        // Of a line that could not be written it would tell in the same place, and panic.
        .log_internal_errors(false)
        .with_writer(move || ToStderr(lines.clone()));
    // Already set only where several verbs run in one test process: the first one counts.
    let _set = subscriber.try_init();
    if let Some(failure) = wrong {
        tracing::warn!("{}, as {VARIABLE} or a file says; logging at {otherwise}", failure.cause);
    }
    Ok(())
}

/// Counts the lines that could not be written.
#[derive(Default)]
struct Lines {
    /// Since the last one that could be.
    lost: AtomicU64,
}

impl Lines {
    /// Writes a line, and before it how many were lost.
    fn write(&self, to: &mut impl Write, line: &[u8]) -> io::Result<()> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let written = match lost {
            0 => to.write_all(line),
            _ => {
                let note =
                    format!("{lost} lines of this log were lost: they could not be written\n");
                to.write_all(&[note.as_bytes(), line].concat())
            }
        };
        if written.is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
            counter!("strake_log_lines_lost_total").increment(1);
        }
        written
    }
}

/// Where a line goes.
struct ToStderr(Arc<Lines>);

impl Write for ToStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write(&mut io::stderr().lock(), line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
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

    /// Fails so many times.
    struct Broken {
        times: u32,
        written: Vec<u8>,
    }

    impl Write for Broken {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.times > 0 {
                self.times -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_first_line_that_can_be_written_again_says_how_many_were_lost() {
        let (lines, mut to) = (Lines::default(), Broken { times: 2, written: Vec::new() });
        for line in ["one\n", "two\n"] {
            assert!(lines.write(&mut to, line.as_bytes()).is_err());
        }
        for line in ["three\n", "four\n"] {
            lines.write(&mut to, line.as_bytes()).unwrap();
        }
        let text = String::from_utf8(to.written).unwrap();
        let (note, rest) = text.split_once('\n').unwrap();
        assert!(note.starts_with("2 lines ") && rest == "three\nfour\n", "{text}");
    }

    /// Lines of the log had colours in any terminal.
    #[test]
    fn who_asks_for_no_colours_gets_none_in_the_log() {
        assert!(has_colors(true, None) && has_colors(true, Some(OsStr::new(""))));
        assert!(!has_colors(true, Some(OsStr::new("1"))) && !has_colors(false, None));
    }
}
