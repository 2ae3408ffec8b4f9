//! A part of a study: what is left where the whole would take days, or more room than there is.

use super::Study;
use crate::error::{Error, Result};

/// Which of a study's values are measured; of an empty list all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Bytes of files.
    pub sizes: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<u64>,
    /// Numbers of servers of a testbed.
    pub servers: Vec<u32>,
    /// Bytes per second of the disks of a testbed.
    pub disks: Vec<u64>,
}

impl Part {
    /// All of a study.
    pub const ALL: Part =
        Part { sizes: Vec::new(), threads: Vec::new(), servers: Vec::new(), disks: Vec::new() };

    /// An error where something is chosen that the study does not vary.
    pub(super) fn check(&self, study: Study) -> Result<()> {
        let chosen = [
            ("--sizes", self.sizes.is_empty(), &[Study::One, Study::Two][..]),
            ("--threads", self.threads.is_empty(), &[Study::Two]),
            ("--servers", self.servers.is_empty(), &[Study::Two, Study::Three]),
            ("--disks", self.disks.is_empty(), &[Study::Two]),
        ];
        match chosen.iter().find(|(_, is_empty, of)| !is_empty && !of.contains(&study)) {
            Some((flag, ..)) => {
                Err(Error::usage(format!("{flag}: this study has no choice of them")))
            }
            None => Ok(()),
        }
    }

    /// True if something of the testbeds is chosen.
    pub(super) fn chooses_settings(&self) -> bool {
        !self.servers.is_empty() || !self.disks.is_empty()
    }
}
