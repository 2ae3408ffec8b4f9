//! Processes of this machine, and the memory they share.

/// When a process began, in clock ticks since the machine started; `None` if it has ended. A number
/// is given to another process one day; number and moment together never are.
pub fn began_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything: count fields after the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The kernel's boot id: another one means that the machine has stopped since.
pub fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Bytes of memory of this machine.
pub fn machine_memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit).max(1))
}

/// Gives memory that this process has freed back to the machine. The allocator keeps it otherwise, and
/// a process that once held much looks as if it still did. Takes some milliseconds for each 100 MiB.
pub fn give_memory_back() {
    // SAFETY: it takes no pointer, and may be called at any time from any thread.
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_one_id() {
        let boot = boot_id().unwrap();
        assert!(!boot.is_empty() && boot == boot_id().unwrap());
    }

    #[test]
    fn only_a_process_that_runs_has_begun() {
        let own = began_ticks(std::process::id());
        assert!(own.is_some() && own == began_ticks(std::process::id()));
        assert_eq!(began_ticks(u32::MAX), None);
    }

    #[test]
    fn freed_memory_is_given_back() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        // Too small to be mapped one by one, and one that stays above them.
        let many: Vec<Vec<u8>> = (0..4096).map(|_| vec![1; 64 << 10]).collect();
        let last = vec![1_u8; 64 << 10];
        let before = resident();
        drop(many);
        give_memory_back();
        assert!(resident() + (128 << 20) < before, "{} of {before}", resident());
        drop(last);
    }

    #[test]
    fn the_machine_has_as_much_memory_as_the_kernel_says() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kib: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(machine_memory_bytes(), kib * 1024);
    }
}
