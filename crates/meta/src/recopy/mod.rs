//! Another number of copies for files there are, while they are in use: docs/design/0043.
//!
//! A file is copied from the groups of its layout to those of another one, and its inode is switched
//! over in one transaction, under its lock, if nobody can have changed it meanwhile. Who holds it open
//! knows its old layout: the switch recalls that from those who read, and waits for those who write and
//! do not rest; who opens it later learns the new one.
//!
//! * `jobs` — what the manager wants done, each job a task; what is told of them.
//! * `walk` — one job: all files below a directory, and those that wait again and again.
//! * `ahead` — what is before it, counted by a walk of its own.
//! * `pages` — what there is at a place of a walk.
//! * `hand_down` — a directory of which what is made there later is to have as many.
//! * `pace` — how fast, and whether at all.
//! * [`crate::recopies`] — the files that are under way, in memory.
//! * `work` — one file: begin, copy, switch or give up.
//! * `rest` — having those rest who may write to it.
//! * `spare` — chunks that no layout names, until they are deleted; what lost clients may still use.

mod ahead;
mod hand_down;
mod jobs;
mod pace;
mod pages;
mod rest;
mod spare;
#[cfg(test)]
mod tests;
mod walk;
mod work;

pub(crate) use jobs::Jobs;
pub(crate) use spare::{clear, looks_after, note_lost};
