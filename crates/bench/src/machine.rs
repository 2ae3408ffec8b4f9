//! What the machine is that a run is made on.

use crate::error::{Error, Result};
use crate::result::Machine;
use std::fs;

impl Machine {
    /// This machine; what it does not tell is empty or 0.
    pub fn here(version: &str) -> Machine {
        let uname = rustix::system::uname();
        let kernel = [uname.sysname(), uname.release()].map(|part| part.to_string_lossy());
        Machine {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory: memory().unwrap_or_default(),
            kernel: kernel.join(" "),
            version: version.to_owned(),
        }
    }
}

/// Bytes of memory of this machine, if it says.
pub fn memory() -> Option<u64> {
    let text = field("/proc/meminfo", "MemTotal")?;
    let kib: u64 = text.split(' ').next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes of memory of this machine, for what cannot do without knowing.
pub fn memory_known() -> Result<u64> {
    memory().ok_or_else(|| {
        Error::failed("this machine does not say how much memory it has")
            .next("say how large the files shall be")
    })
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let machine = Machine::here("1");
        assert!(machine.cores > 0 && machine.memory > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }
}
