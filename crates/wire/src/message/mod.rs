//! The bodies of requests and replies, with numbered fields so that old and new releases understand
//! each other. Numbers are never reused; docs/FORMATS.md lists them.

pub mod common;
pub mod jobs;
pub mod manager;
pub mod meta;
pub mod recopies;
pub mod scrubs;
mod shares;
pub mod storage;

#[cfg(test)]
pub(crate) mod samples;
