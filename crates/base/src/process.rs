//! Processes of this machine.

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
}
