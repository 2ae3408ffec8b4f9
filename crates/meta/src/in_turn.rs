//! Files that wait for something, each of which comes to its turn.

use std::collections::BTreeMap;
use strake_types::Ino;

/// The files, with what is known of each.
#[derive(Default)]
pub(crate) struct InTurn<V> {
    pub files: BTreeMap<Ino, V>,
    /// Where the next look begins.
    begin: Ino,
}

impl<V> InTurn<V> {
    /// The next ones of which that is so, so many at most.
    pub fn next(&mut self, files_max: usize, is_so: impl Fn(&V) -> bool) -> Vec<Ino> {
        let behind = self.files.range(self.begin..).chain(self.files.range(..self.begin));
        let wanted = behind.filter(|(_, known)| is_so(known)).map(|(ino, _)| *ino);
        let found: Vec<Ino> = wanted.take(files_max).collect();
        if let Some(last) = found.last() {
            self.begin = Ino(last.0.saturating_add(1));
        }
        found
    }
}
