//! The program: one subcommand per verb.
//!
//! [`main`] reads the command line ([`cli`]), runs the verb (one file each under [`verbs`]) on a tokio
//! runtime, and says how it went: what was asked for on stdout, why it failed on stderr (cause,
//! object, next command: [`failure`]), and the exit code.
//!
//! * [`node`] assembles a server from stores and roles, and keeps it in the cluster.
//! * [`cluster`] finds and connects to a cluster; [`place`] opens a path in a volume, and [`asked`] many volumes.
//! * [`servers`] and [`groups`]: what a cluster is made of, in words; [`copy_notes`]: what copies do not protect.
//! * [`jobs`] and [`plan_flags`]: what moves in the background, and what the verbs for it share.
//! * [`soundness`] and [`scrub_report`]: which files are damaged, what was made of it, and how that is told.
//! * [`refusals`]: what a metadata store says that takes no changes.
//! * [`runfile`] is how `strake down` and the others find what `strake up` started.
//! * [`mount_words`], [`mountpoint`] and [`mounted`]: the words after `-o`, where mounts are, and one until it ends;
//!   [`made`]: what goes again when a command is refused.
//! * [`capacity`]: what a cluster takes, before there is one; [`release`]: what is in use there, and what this program is.
//! * [`telemetry`] and [`log`] (by [`stderr`]) show what a long-running verb does; [`signals`] end it, with the [`last_flush`].
//!
//! What this crate never does: know how files, names or chunks are kept (the crates below do), leave
//! a mount behind, or fail without a word on what to do next.

// The comments of flags are their help texts, in which brackets mean "optional" and not a link.
#![allow(rustdoc::broken_intra_doc_links)]

pub mod address;
pub mod asked;
pub mod capacity;
pub mod cli;
pub mod cluster;
pub mod copy_notes;
pub mod detach;
pub mod entry;
pub mod existing;
pub mod failure;
pub mod groups;
pub mod held;
pub mod jobs;
pub mod last_flush;
pub mod layout_flags;
pub mod log;
pub mod made;
pub mod mount_words;
pub mod mounted;
pub mod mountpoint;
pub mod node;
pub mod output;
pub mod place;
pub mod plan_flags;
pub mod private;
pub mod recopy_view;
pub mod refusals;
pub mod release;
mod replaced;
pub mod runfile;
pub mod scrub_report;
pub mod servers;
pub mod signals;
pub mod soundness;
mod stderr;
pub mod telemetry;
mod terminal;
pub mod tls_flags;
pub mod verbs;
mod waits;

pub use strake_types::size;

use clap::Parser;
use cli::Cli;
use failure::{Context, Failure, Outcome, USAGE};
use std::ffi::OsString;
use std::num::NonZero;
use std::process::ExitCode;
use strake_base::{descriptor, process, threads};
use strake_fuse::prefetch;
use tokio::runtime::{Builder, Runtime};

/// Names under which the program acts as the helper of `mount -t strake`.
const MOUNT_HELPERS: &[&str] = &["mount.strake", "mount.fuse.strake"];

/// Threads that may wait at once. A target keeps up to 33 of them for as long as its disk answers nothing, and all others are to go on; 512
/// are for everything else. There are only as many as were needed at once.
const WAITING_THREADS_MAX: usize = 512 + 33 * verbs::up::TARGETS_MAX;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let called_as = arguments.first().map(std::path::Path::new).and_then(|p| p.file_name());
    if called_as.is_some_and(|name| name == prefetch::NAME) {
        return prefetch_for_a_mount(&arguments);
    }
    let is_helper =
        called_as.is_some_and(|name| MOUNT_HELPERS.iter().any(|helper| name == *helper));
    let arguments = if is_helper { verbs::mount::from_mount(&arguments) } else { Ok(arguments) };
    let ended = arguments.and_then(|arguments| match Cli::try_parse_from(arguments) {
        Ok(cli) => run(cli),
        Err(error) => {
            if let Some(text) = in_words(&error.to_string()) {
                output::aside(text.trim_end());
                return Ok(USAGE);
            }
            let printed = error.print();
            if error.use_stderr() {
                return Ok(USAGE);
            }
            output::end_unless(printed);
            Ok(0)
        }
    });
    let is_way_told = output::has_named_command();
    if is_way_told {
        cluster::way().iter().for_each(|way| output::line(way));
    }
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            output::aside(&format!("strake: {failure}"));
            if !is_way_told && failure.next.as_deref().is_some_and(output::names_command) {
                cluster::way().iter().for_each(|way| output::aside(&format!("  {way}")));
            }
            ExitCode::from(failure.code)
        }
    }
}

/// What is said of a value that is no number, or no text, for people; none: something else is said.
fn in_words(said: &str) -> Option<String> {
    let number = "a whole number is expected";
    let text =
        "an argument is no UTF-8; for files with such names use the usual commands, in a mount";
    // As the standard library and clap say it.
    let found = [
        ("invalid digit found in string", number),
        ("cannot parse integer from empty string", number),
        ("invalid UTF-8 was detected in one or more arguments", text),
    ];
    let (words, better) = found.into_iter().find(|(words, _)| said.contains(words))?;
    Some(said.replace(words, better))
}

/// Serves the mount that has started this process.
fn prefetch_for_a_mount(arguments: &[OsString]) -> ExitCode {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let served = arguments.get(1).map(|point| prefetch::serve(point, input, output));
    ExitCode::from(u8::from(!matches!(served, Some(Ok(())))))
}

fn run(cli: Cli) -> Outcome<u8> {
    let runtime = begin(&cli).inspect_err(|failure| {
        if detach::is_marked() {
            detach::failed(failure);
        }
    })?;
    let code = runtime.block_on(cli.run());
    // What is still in flight (a call to a server that does not answer) is not worth waiting for.
    runtime.shutdown_background();
    stderr::flush();
    code
}

/// Starts the log and the threads.
fn begin(cli: &Cli) -> Outcome<Runtime> {
    let is_long_running = cli.is_long_running();
    log::start(cli.log_level().as_deref(), cli.log.is_typed(), is_long_running)?;
    // Not where other programs are started, which may not be ready for it.
    if is_long_running {
        prepare_to_stay();
    }
    let mut builder = Builder::new_multi_thread();
    builder.max_blocking_threads(WAITING_THREADS_MAX).enable_all();
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = threads::start(&mut builder, workers)
        .context(|| "starting the program's threads".into())?;
    if is_long_running {
        runtime.spawn(threads::watch());
    }
    Ok(runtime)
}

/// A target has one file or two for each GiB, and each client is a connection; and a file that may not grow any more is no reason to
/// end.
fn prepare_to_stay() {
    process::outlive_limit_of_file_sizes();
    if let Err(error) = descriptor::raise_limit() {
        tracing::debug!("the limit of open files stays {}: {error}", descriptor::limit());
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::new(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    /// It was "invalid digit found in string".
    #[test]
    fn a_value_that_is_no_number_is_told_in_words() {
        let error = Cli::try_parse_from(["strake", "volume", "create", "v", "--stripe-width", "x"]);
        let told = in_words(&error.unwrap_err().to_string()).unwrap();
        assert!(told.contains("'x'") && told.contains("a whole number is expected"), "{told}");
        let name = OsString::from_vec(b":/main/a\xff".to_vec());
        let error = Cli::try_parse_from(["strake".into(), "cat".into(), name]).unwrap_err();
        let told = in_words(&error.to_string()).unwrap();
        assert!(told.contains("no UTF-8") && told.contains("in a mount"), "{told}");
        let other = Cli::try_parse_from(["strake", "no-such-verb"]);
        assert_eq!(in_words(&other.unwrap_err().to_string()), None);
    }
}
