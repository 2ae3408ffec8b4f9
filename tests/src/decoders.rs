//! The rule that every decoder is held to: it never panics, and what it understands is the same
//! after it was encoded and decoded again.
//!
//! A [`Target`] is a family of decoders. The fuzz target of that name (in `fuzz/`) gives [`check`]
//! whatever the fuzzer thinks of; the tests give it the corpus and mutations of it. The first byte of
//! an input chooses the form, so that one input file says all.

mod messages;
mod mutations;
mod plain;

pub use messages::{manager_requests, meta_requests, storage_requests};
pub use mutations::Mutations;

use std::fmt::Write;
use std::path::PathBuf;
use strake_types::form::{Form, Outcome};
use strake_types::limits::NAME_BYTES_MAX;

/// A family of decoders.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: of the fuzz target, and of the directory of its corpus.
    pub name: &'static str,
    /// What it decodes. A new form is added at the end: inputs choose by number.
    pub forms: &'static [Form],
}

/// Every family.
pub const TARGETS: &[Target] = &[
    Target { name: "frame", forms: plain::FRAME },
    Target { name: "manager_message", forms: messages::MANAGER },
    Target { name: "meta_message", forms: messages::META },
    Target { name: "storage_message", forms: messages::STORAGE },
    Target { name: "common_values", forms: messages::COMMON },
    Target { name: "capability", forms: plain::CAPABILITY },
    Target { name: "acl", forms: plain::ACL },
    Target { name: "layout_text", forms: plain::LAYOUT_TEXT },
    Target { name: "fuse_request", forms: plain::FUSE_REQUEST },
    Target { name: "manager_records", forms: strake_manager::FORMS },
    Target { name: "meta_records", forms: strake_meta::FORMS },
    Target { name: "journal", forms: strake_engine::kv::FORMS },
    Target { name: "metadata_file", forms: strake_engine::kv::dump::FORMS },
    Target { name: "chunk_records", forms: strake_engine::chunk::FORMS },
];

/// The target of this name.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("targets are called by their names")
}

/// Gives an input to its decoder, as it is and with a checksum that matches. Panics if the decoder
/// breaks the rule; says what became of both.
pub fn check(target: &Target, input: &[u8]) -> [Outcome; 2] {
    let Some((&number, bytes)) = input.split_first() else { return [Outcome::Refused; 2] };
    let form = &target.forms[usize::from(number) % target.forms.len()];
    let mut sealed = bytes.to_vec();
    (form.seal)(&mut sealed);
    [bytes, &sealed].map(|bytes| {
        let outcome = (form.check)(bytes);
        let name = form.name;
        assert_ne!(outcome, Outcome::Different, "{name} is not what it was: {}", hex(bytes));
        outcome
    })
}

/// Bytes as people read them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// The corpora.
pub fn corpus_directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "fuzz", "corpus"].iter().collect()
}

impl Target {
    /// The inputs that its encoders give, each with a name for its file.
    pub fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        let numbered = (0u8..).zip(self.forms);
        let seeds = numbered.flat_map(|(number, form)| {
            let word = form.name.replace(' ', "-");
            let file = move |(nth, sample): (usize, Vec<u8>)| {
                (format!("{word}-{nth}"), [vec![number], sample].concat())
            };
            (form.samples)().into_iter().enumerate().map(file)
        });
        let seeds: Vec<_> = seeds.collect();
        assert!(seeds.iter().all(|(name, _)| name.len() <= NAME_BYTES_MAX), "names of files");
        seeds
    }

    /// Every input of its corpus, with the name of its file, in order.
    pub fn corpus(&self) -> Vec<(String, Vec<u8>)> {
        let directory = corpus_directory().join(self.name);
        let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
        let mut inputs: Vec<_> = entries
            .map(|entry| {
                let entry = entry.expect("the corpus can be listed");
                let input = std::fs::read(entry.path()).expect("an input can be read");
                (entry.file_name().to_string_lossy().into_owned(), input)
            })
            .collect();
        inputs.sort();
        inputs
    }
}
