//! The contract, and what it is to several who open one store: the suite is that of the other engines.

use super::Database;
use super::suite::shared::Shared as _;
use super::suite::{self, Subject, seed};

fn subject(database: Option<Database>, exact: bool) -> Option<Subject> {
    let database = database?;
    Some(Subject::kept(exact, move || database.open().unwrap()))
}

conformance! {
    tikv: super::subject(super::Database::new(), true);
    tikv_cut: super::subject(super::Database::cut(super::seed()), false);
}

shared_store! {
    tikv_shared: super::Database::new();
}

cut_store! {
    tikv_shared_cut: super::Database::cut(11);
}
