//! What `posix` does on `strake up`, on a mount of a volume of several shares; but for what makes
//! very many files.

#[path = "posix/contents.rs"]
mod contents;
#[path = "posix/locks.rs"]
mod locks;
#[path = "posix/names.rs"]
mod names;
#[path = "posix/rights.rs"]
mod rights;

use strake_tests::cluster::Place;
use strake_tests::owners::place_in_shares;

/// A directory for the test of this name.
fn place(name: &str) -> Place {
    place_in_shares(name)
}
