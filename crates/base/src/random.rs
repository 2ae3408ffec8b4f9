//! Randomness.

use std::fs::File;
use std::io::{self, Read};

/// Where random numbers come from.
pub trait Random: Send + Sync + 'static {
    /// Fills a buffer with bytes that nobody can guess.
    fn fill(&self, buffer: &mut [u8]) -> io::Result<()>;
}

/// The machine's random numbers.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buffer: &mut [u8]) -> io::Result<()> {
        File::open("/dev/urandom")?.read_exact(buffer)
    }
}
