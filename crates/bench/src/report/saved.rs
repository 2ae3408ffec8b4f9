//! A report as JSON: what `--json` prints and what a baseline's file holds.

use super::{Unsound, check};
use crate::result::Report;
use serde::Serialize;
use serde_json::Value;

/// Version of the form, the first field of it; see docs/FORMATS.md.
const VERSION: u64 = 1;
/// The field that says the version, and that this is a report.
const MARK: &str = "strake_bench";
/// A report larger than this was not written by this program.
pub const BYTES_MAX: u64 = 256 << 20;

/// Why a text is no report.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It is no JSON, or other JSON.
    #[error("this is no report of strake bench ({0})")]
    NoReport(String),
    /// It is of a release that knows more.
    #[error(
        "this report has version {0}, and this release reads version {VERSION}; read it with a newer strake"
    )]
    Newer(u64),
    /// A report, but not all of it.
    #[error("the report is damaged: {0}")]
    Damaged(String),
    /// All of it, but nothing that could be shown.
    #[error("the report is damaged: {0}")]
    Unsound(#[from] Unsound),
}

#[derive(Serialize)]
struct Marked<'a> {
    strake_bench: u64,
    #[serde(flatten)]
    report: &'a Report,
}

/// A report as JSON.
pub fn to_json(report: &Report) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(&Marked { strake_bench: VERSION, report })
}

/// Reads what [`to_json`] wrote.
pub fn from_json(text: &[u8]) -> Result<Report, Unreadable> {
    let value: Value = serde_json::from_slice(text).map_err(|error| match error.is_eof() {
        true if !text.is_empty() => Unreadable::Damaged(error.to_string()),
        _ => Unreadable::NoReport(error.to_string()),
    })?;
    let version = value.get(MARK).and_then(Value::as_u64);
    match version {
        None => return Err(Unreadable::NoReport(format!("it has no field {MARK:?}"))),
        Some(VERSION) => {}
        Some(other) => return Err(Unreadable::Newer(other)),
    }
    let report =
        serde_json::from_value(value).map_err(|error| Unreadable::Damaged(error.to_string()))?;
    check(&report)?;
    Ok(report)
}
