//! What the program says of its work: lines on stderr (or in the log file that stderr leads to).

use crate::failure::{Failure, Outcome};
use clap::Args;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// The flag that says how much is logged.
#[derive(Args, Clone, Debug)]
pub struct LogFlags {
    /// How much to log: error, warn, info, debug, trace, or a filter like strake_meta=debug,info
    #[arg(long, global = true, value_name = "LEVEL", env = "STRAKE_LOG", help_heading = "General")]
    pub log_level: Option<String>,
}

impl LogFlags {
    /// Starts logging to stderr, at `otherwise` where no level was given.
    pub fn start(&self, otherwise: &str) -> Outcome {
        let wanted = self.log_level.as_deref().unwrap_or(otherwise);
        let filter = EnvFilter::try_new(wanted).map_err(|e| {
            Failure::usage(format!("--log-level {wanted:?}: {e}"))
                .next("give one of error, warn, info, debug, trace")
        })?;
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        // Already set only where several verbs run in one test process: the first one counts.
        let _set = subscriber.try_init();
        Ok(())
    }
}
