//! The tests, their names, and the numbers of `-i`.

use crate::error::{Error, Result};
use crate::work::Order;
use crate::work::file::Calls;

/// Records from one read of the stride test to the next: iozone's default.
const STRIDE: u64 = 17;

/// One test of iozone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    /// iozone's name.
    pub name: &'static str,
    /// What is done with records.
    pub act: Act,
    /// In which order.
    pub visiting: Visiting,
    /// By which calls, unless mappings or `io_uring` are asked for.
    pub calls: Calls,
    /// Whether it makes its file: every other test needs the file to be there.
    pub makes: bool,
}

/// What workers do with records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// All write them.
    Write,
    /// All read them.
    Read,
    /// Some read and the others write, each in its own part.
    Mix,
}

impl Act {
    /// True where anybody reads.
    pub fn reads(self) -> bool {
        self != Act::Write
    }

    /// True where anybody writes.
    pub fn writes(self) -> bool {
        self != Act::Read
    }
}

/// An order without its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visiting {
    /// From the first to the last.
    Forward,
    /// From the last to the first.
    Backward,
    /// Every 17th, until all have been visited.
    Stride,
    /// Each once, in random order.
    Random,
    /// The first one, again and again.
    Same,
}

/// A test that makes its file.
const fn makes(name: &'static str, calls: Calls) -> Test {
    Test { name, makes: true, ..writes(name, Visiting::Forward, calls) }
}

const fn writes(name: &'static str, visiting: Visiting, calls: Calls) -> Test {
    Test { name, act: Act::Write, visiting, calls, makes: false }
}

const fn reads(name: &'static str, visiting: Visiting, calls: Calls) -> Test {
    Test { name, act: Act::Read, visiting, calls, makes: false }
}

const MIX: Test = Test { act: Act::Mix, ..reads("random mix", Visiting::Random, Calls::Plain) };

impl Test {
    /// The groups that `-i` selects by number.
    pub const GROUPS: &[(&str, &[Test])] = {
        use Calls::{Plain, Positioned, Stdio, Vectored};
        use Visiting::{Backward, Forward, Random, Same, Stride};
        &[
            ("0", &[makes("write", Plain), writes("rewrite", Forward, Plain)]),
            ("1", &[reads("read", Forward, Plain), reads("reread", Forward, Plain)]),
            ("2", &[reads("random read", Random, Plain), writes("random write", Random, Plain)]),
            ("3", &[reads("backward read", Backward, Plain)]),
            ("4", &[writes("record rewrite", Same, Plain)]),
            ("5", &[reads("stride read", Stride, Plain)]),
            ("6", &[makes("fwrite", Stdio), writes("frewrite", Forward, Stdio)]),
            ("7", &[reads("fread", Forward, Stdio), reads("freread", Forward, Stdio)]),
            ("8", &[MIX]),
            ("9", &[makes("pwrite", Positioned), writes("repwrite", Forward, Positioned)]),
            ("10", &[reads("pread", Forward, Positioned), reads("repread", Forward, Positioned)]),
            ("11", &[makes("pwritev", Vectored), writes("repwritev", Forward, Vectored)]),
            ("12", &[reads("preadv", Forward, Vectored), reads("repreadv", Forward, Vectored)]),
        ]
    };

    /// All tests that so many workers can do: one alone cannot read and write at the same time.
    pub fn all(workers: usize) -> Vec<Test> {
        let all = Self::GROUPS.iter().flat_map(|(_, tests)| *tests).copied();
        all.filter(|test| test.act != Act::Mix || workers > 1).collect()
    }

    /// Its place among all tests.
    pub fn place(&self) -> Option<usize> {
        Self::GROUPS.iter().flat_map(|(_, tests)| *tests).position(|test| test == self)
    }

    /// The tests that a text selects: a number of `-i`, or the name of one test.
    pub fn select(text: &str) -> Result<Vec<Test>> {
        if let Some((_, tests)) = Self::GROUPS.iter().find(|(number, _)| *number == text) {
            return Ok(tests.to_vec());
        }
        let mut all = Self::GROUPS.iter().flat_map(|(_, tests)| *tests);
        let wanted = text.replace(['-', '_'], " ");
        match all.find(|test| test.name == wanted) {
            Some(test) => Ok(vec![*test]),
            None => Err(Error::usage(format!("there is no test {text:?}"))
                .next(format!("the tests are {}", Self::listed()))),
        }
    }

    /// All numbers with their tests, for help texts.
    pub fn listed() -> String {
        let group = |(number, tests): &(&str, &[Test])| {
            let names: Vec<_> = tests.iter().map(|test| test.name).collect();
            format!("{number} ({})", names.join(", "))
        };
        Self::GROUPS.iter().map(group).collect::<Vec<_>>().join(", ")
    }

    /// The order in which it visits records.
    pub fn order(&self, seed: u64) -> Order {
        match self.visiting {
            Visiting::Forward => Order::Forward,
            Visiting::Backward => Order::Backward,
            Visiting::Stride => Order::Stride { step: STRIDE },
            Visiting::Random => Order::Shuffled { seed },
            Visiting::Same => Order::Same,
        }
    }

    /// The file it works on, among those of one worker: iozone's stdio and vector tests have their
    /// own.
    pub fn file(&self) -> &'static str {
        match self.calls {
            Calls::Stdio => "stdio",
            Calls::Vectored => "vectored",
            Calls::Positioned => "positioned",
            _ => "plain",
        }
    }
}
