//! Every decoder on its corpus and on thousands of mutations of it: the same rule that the fuzz targets
//! hold them to (`fuzz/`).

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use strake_tests::decoders::{Mutations, TARGETS, Target, check, corpus_directory, hex};
use strake_types::form::Outcome;

/// Mutations of each input, unless STRAKE_MUTATIONS says otherwise.
const MUTATIONS_DEFAULT: usize = 10_000;

fn mutations() -> usize {
    let given = std::env::var("STRAKE_MUTATIONS").ok();
    given.map_or(MUTATIONS_DEFAULT, |count| count.parse().expect("STRAKE_MUTATIONS is a number"))
}

/// As [`check`]; a panic shows the input.
fn hold(target: &Target, input: &[u8]) -> [Outcome; 2] {
    catch_unwind(AssertUnwindSafe(|| check(target, input))).unwrap_or_else(|_| {
        panic!("the decoders of {} broke on the input {}", target.name, hex(input))
    })
}

#[test]
fn every_input_of_the_corpora_is_decoded_or_refused() {
    for target in TARGETS {
        let corpus = target.corpus();
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        for (_, input) in &corpus {
            hold(target, input);
        }
    }
}

#[test]
fn mutations_of_the_corpora_are_decoded_or_refused() {
    for (nth, target) in TARGETS.iter().enumerate() {
        let corpus = target.corpus();
        let (mut refused, mut same) = (0, 0);
        for (at, (_, input)) in corpus.iter().enumerate() {
            let (_, other) = &corpus[(at * 7 + 3) % corpus.len()];
            let seed = (nth as u64) << 32 | at as u64;
            for mutation in Mutations::new(input, other, seed).take(mutations()) {
                match hold(target, &mutation) {
                    [_, Outcome::Refused] => refused += 1,
                    _ => same += 1,
                }
            }
        }
        println!("{}: {same} understood, {refused} refused", target.name);
    }
}

#[test]
fn what_encoders_give_is_in_the_corpora_and_understood() {
    let directories = std::fs::read_dir(corpus_directory()).expect("the corpora are there");
    let names = directories.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let targets: BTreeSet<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(names.collect::<BTreeSet<_>>(), targets, "a directory for each target");
    for target in TARGETS {
        let corpus = target.corpus();
        for (name, seed) in target.seeds() {
            assert_eq!(hold(target, &seed), [Outcome::Same; 2], "{}: {name}", target.name);
            assert!(
                corpus.contains(&(name.clone(), seed)),
                "{}/{name} is not what the encoder gives: make the corpora anew",
                target.name
            );
        }
    }
}

/// Inputs that a fuzzer has found (`found-...`) stay.
#[test]
#[ignore = "makes the inputs of the corpora anew that encoders give"]
fn make_the_corpora() {
    for target in TARGETS {
        let directory = corpus_directory().join(target.name);
        std::fs::create_dir_all(&directory).unwrap();
        for (name, _) in target.corpus().iter().filter(|(name, _)| !name.starts_with("found-")) {
            std::fs::remove_file(directory.join(name)).unwrap();
        }
        for (name, seed) in target.seeds() {
            std::fs::write(directory.join(name), seed).unwrap();
        }
    }
}
