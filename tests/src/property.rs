//! Random sequences of operations, applied to a file system and to the model.
//!
//! [`check`] makes sequences for a bounded time, runs each on a fresh [`Subject`] and a fresh
//! [`Model`], and compares outcome by outcome, then the two trees as a whole. A failure is shrunk to
//! the shortest sequence that still fails, and printed with the seed that makes it again.

use proptest::strategy::Strategy;
use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner,
};
use std::time::{Duration, Instant};
use strake_model::{Model, Op, Outcome};
use strake_types::Credentials;

pub mod client;
pub mod directory;
pub mod steps;

pub use steps::{Scope, Step};

/// Seconds that each property is tried for, where the environment does not say.
const SECONDS_DEFAULT: u64 = 20;

/// A file system under test.
pub trait Subject {
    /// Carries out an operation that the model could try.
    fn apply(&mut self, cred: &Credentials, op: &Op) -> Outcome;

    /// Stops and restarts whatever serves the files; open files stay open.
    fn restart(&mut self) {}

    /// Closes everything, goes away and comes back with empty caches.
    fn remount(&mut self) {}

    /// What the model must know of it.
    fn model(&self) -> Model {
        Model::new(0o755, 0, 0)
    }
}

/// Tries random sequences until the time is over. `fresh` makes a subject with an empty root that
/// belongs to root and has mode 0755.
///
/// `STRAKE_PROPERTY_SECONDS` sets the time, `STRAKE_PROPERTY_SEED` runs one sequence again.
pub fn check<S: Subject>(scope: Scope, mut fresh: impl FnMut() -> S) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let only = number("STRAKE_PROPERTY_SEED");
    let seconds = number("STRAKE_PROPERTY_SECONDS").unwrap_or(SECONDS_DEFAULT);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed = only.unwrap_or_else(random_seed);
    let mut runs = 0;
    while Instant::now() < end && (runs == 0 || only.is_none()) {
        one_seed(seed, scope, &mut fresh);
        seed = seed.wrapping_add(1);
        runs += 1;
    }
    println!("{runs} sequences, the last with seed {}", seed.wrapping_sub(1));
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Short enough to type.
    RandomState::new().build_hasher().finish() >> 24
}

fn one_seed<S: Subject>(seed: u64, scope: Scope, fresh: &mut impl FnMut() -> S) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let tree = steps::sequence(scope).new_tree(&mut runner).expect("no filter refuses sequences");
    let fresh = std::cell::RefCell::new(fresh);
    let outcome = runner.run_one(tree, |sequence: Vec<Step>| {
        let mut subject = fresh.borrow_mut()();
        run(&mut subject, &sequence).map_err(TestCaseError::fail)
    });
    if let Err(TestError::Fail(reason, shortest)) = outcome {
        let lines: Vec<_> = shortest.iter().map(|step| format!("  {step:?}")).collect();
        panic!("seed {seed}: {reason}\nshortest sequence:\n{}", lines.join("\n"));
    }
}

/// Runs one sequence; the error says where model and subject parted.
pub fn run(subject: &mut impl Subject, sequence: &[Step]) -> Result<(), String> {
    let mut model = subject.model();
    for (nth, step) in sequence.iter().enumerate() {
        match step {
            Step::Do(cred, op) => {
                let expected = model.apply(cred, op);
                if expected == Outcome::Skipped {
                    continue;
                }
                let seen = subject.apply(cred, op);
                compare(&format!("step {nth}, {step:?}"), &expected, &seen)?;
            }
            Step::Restart => subject.restart(),
            Step::Remount => {
                model.close_all();
                subject.remount();
            }
        }
    }
    compare_trees(&mut model, subject)
}

fn compare(what: &str, expected: &Outcome, seen: &Outcome) -> Result<(), String> {
    if expected.agrees_with(seen) {
        return Ok(());
    }
    Err(format!("{what}\n  model: {}\n  seen:  {}", shown(expected), shown(seen)))
}

/// Long contents as their length and the first bytes.
fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Bytes(bytes) if bytes.len() > 64 => {
            let zeros = bytes.iter().take_while(|&&b| b == 0).count();
            let sum =
                bytes.iter().fold(0u64, |sum, &b| sum.wrapping_mul(31).wrapping_add(b.into()));
            let (len, head) = (bytes.len(), &bytes[..16]);
            format!("{len} bytes, {zeros} zeros first, sum {sum:016x}, {head:?}...")
        }
        other => format!("{other:?}"),
    }
}

/// Everything that is there, as root sees it.
fn compare_trees(model: &mut Model, subject: &mut impl Subject) -> Result<(), String> {
    let root = Credentials::root();
    let mut paths = model.paths();
    paths.push(Vec::new());
    for path in paths {
        let looks = [Op::Stat(path.clone()), Op::List(path.clone()), Op::ReadAll(path)];
        for op in looks {
            let expected = model.apply(&root, &op);
            // Neither a directory's contents nor a file's entries: other operations test that.
            if matches!(expected, Outcome::Failed(_) | Outcome::Skipped) {
                continue;
            }
            let seen = subject.apply(&root, &op);
            compare(&format!("at the end, {op:?}"), &expected, &seen)?;
        }
    }
    Ok(())
}
