//! Measuring file systems: the four founding studies, their generators, a testbed and reports.
//!
//! Anyone can ask how fast a mounted directory is, beside other directories and beside the physical
//! limit, in one run, with a protocol that is written down. Nothing here is about Strake's insides: a
//! measured directory is only a path.
//!
//! A generator turns what is asked for into a [`plan`]: cells of steps, each step some jobs that are
//! done at the same time. The [`runner`] carries a plan out on every side, has a [`crew`] of threads,
//! processes or hosts do the jobs, and makes a [`result::Report`] of the times.
//!
//! * Generators: [`iozone`]'s tests, [`bonnie`]++'s, the thread [`matrix`], and [`meta`]: mdtest's
//!   phases. [`study`] has the protocols of the founding studies, which are made of these.
//! * [`tools`] drives what others measure with, where it is installed: fio, bonnie++, iozone, mdtest,
//!   dbench. [`tune`] measures layouts of a Strake mount against each other.
//! * [`work`] is what one worker does, as data that can travel: passes over files of known
//!   [`content`], and phases over names.
//! * [`place`] is where a run works: sides, room, a directory that goes away with the run.
//! * [`cold`] empties caches; [`machine`] says where a run is made, and beside which programs; [`watch`] is how a run and its
//!   spectator talk; [`error`] is why it failed.
//! * [`result`] is what a run leaves: figures with what they are of. Everything else makes these or
//!   shows them.
//! * [`statistics`] says what the samples of a figure allow to say: a number, a ratio with its
//!   interval, a verdict.
//! * [`report`] shows a run: as a table, for programs, as a page.
//! * [`baseline`] keeps reports under names; [`compare`] puts two beside each other.
//! * [`testbed`] is a network of hosts on one machine, with links and disks as slow as wanted, to
//!   measure in; [`limit`] is the most that is possible there.
//!
//! What this crate never does: show a figure that was not measured, unless it says who published it;
//! leave files behind in a measured directory.

pub mod baseline;
pub mod bonnie;
pub mod cold;
pub mod compare;
pub mod content;
pub mod crew;
pub mod error;
pub mod iozone;
pub mod limit;
pub mod machine;
pub mod matrix;
pub mod meta;
pub mod place;
pub mod plan;
mod process;
pub mod report;
pub mod result;
pub mod runner;
pub mod statistics;
pub mod study;
pub mod testbed;
#[cfg(test)]
mod testing;
pub mod tools;
pub mod tune;
pub mod watch;
pub mod work;
