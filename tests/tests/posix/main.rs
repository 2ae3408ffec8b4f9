//! Every operation of POSIX on a mount of `strake up`, one test each, by the system calls that
//! applications make. docs/SEMANTICS.md cites them by name.

mod contents;
mod listings;
mod locks;
mod names;
mod rights;
mod space;

use strake_tests::cluster::Place;

/// A directory for the test of this name.
fn place(name: &str) -> Place {
    Place::new(name)
}
