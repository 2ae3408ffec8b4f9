//! The flags that say how files are laid out; the same for volumes and for directories.

use crate::size;
use clap::Args;
use std::borrow::Cow;
use std::str::FromStr;
use strake_types::layout::{Distribution, LayoutTemplate};
use strake_types::limits::COPIES_MAX;
use strake_types::{Ack, Consistency, Error, GroupId};

/// Flags that make up a layout template.
#[derive(Args, Clone, Debug, Default)]
pub struct LayoutFlags {
    /// Bytes of a chunk (the stripe unit): a power of two from 64K to 64M [new volumes: 1M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub chunk_size: Option<u64>,

    /// Over how many groups of targets a file is laid; 0 means all [new volumes: 0]
    #[arg(long, value_name = "N")]
    pub stripe_width: Option<u32>,

    /// How chunks follow each other over the stripe [new volumes: simple_stripe]
    ///
    /// simple_stripe: round robin.
    ///
    /// basic: the whole file on one group.
    ///
    /// varstrip=SLOT:SIZE,SLOT:SIZE,...: a repeated list of strips, each with its own slot of the stripe and length,
    /// for example varstrip=0:32K,1:64K.
    ///
    /// twod_stripe=GROUPS:FACTOR: the stripe is cut into GROUPS runs; FACTOR rounds go to one run before the next.
    ///
    /// progressive: widens as the file grows.
    #[arg(long, value_name = "NAME[=PARAMETERS]", value_parser = word::<Distribution>)]
    pub distribution: Option<Distribution>,

    /// On how many targets every chunk is kept, each on another server where there are enough: 1 to 3 [new volumes: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(COPIES_MAX)))]
    pub copies: Option<u32>,

    /// Who must have a write before it is acknowledged: all (in-sync copies) or primary [new volumes: all]
    ///
    /// all: whichever server dies, what was acknowledged is there.
    ///
    /// primary: a write is done when the first copy has it, the others follow at once: faster where links between
    /// servers are slow. If the primary's server dies in between, writes that were acknowledged and not followed by
    /// fsync are lost, and the next fsync of the file fails. What fsync has acknowledged is on every copy in any case.
    #[arg(long, value_name = "all|primary", value_parser = word::<Ack>)]
    pub ack: Option<Ack>,

    /// Writes wait, and then fail, while fewer copies than these are in sync: 1 to the copies [new volumes: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(COPIES_MAX)))]
    pub min_copies: Option<u32>,

    /// What mounts see of each other's writes: strict, close-to-open or parallel [new volumes: strict]
    ///
    /// strict: what a write has returned for, every mount reads from then on. Writing one file from several mounts
    /// costs a message to the metadata server for each write.
    ///
    /// close-to-open: an open sees what was closed or synced before it. Writes are told within some seconds.
    ///
    /// parallel: the same, and no mount is asked before another one's writes count: for programs on many mounts that
    /// write disjoint parts of one file. stat asks the server each time, and a file that is open may be read as it
    /// was a second ago.
    #[arg(long, value_name = "MODE", value_parser = word::<Consistency>)]
    pub consistency: Option<Consistency>,
}

impl LayoutFlags {
    /// The template that the flags describe, with an explicit list of groups.
    pub fn template(&self, groups: Option<Vec<GroupId>>) -> LayoutTemplate {
        LayoutTemplate {
            chunk_size: self.chunk_size,
            distribution: self.distribution.clone(),
            width: self.stripe_width,
            groups,
            copies: self.copies,
            ack: self.ack,
            min_copies: self.min_copies,
            consistency: self.consistency,
        }
    }
}

/// Reads a word of a layout. What kind of error it is goes without saying.
fn word<T: FromStr<Err = Error>>(text: &str) -> Result<T, Cow<'static, str>> {
    text.parse().map_err(|error: Error| error.detail)
}
