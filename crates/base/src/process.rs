//! Processes of this machine, and the memory they share.

use crate::cgroup;

/// When a process began, in clock ticks since the machine started; `None` if it has ended with all its
/// threads: until the last of them is gone it may hold files and locks. A number is given to another
/// process one day; number and moment together never are.
pub fn began_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything: count fields after the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // Its first thread has ended; it stays visible for as long as there are others.
    if matches!(state, "Z" | "X") && threads_of(pid) <= 1 {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn threads_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// The kernel's boot id: another one means that the machine has stopped since.
pub fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Bytes of memory of this machine, or as many as this process may use of it with those beside it (in a container, or in a systemd unit
/// with `MemoryMax=`), if these are less.
pub fn usable_memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let all = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit).max(1));
    cgroup::memory_limit().map_or(all, |limit| limit.min(all))
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

/// Makes it an error, which can be told, to write beyond the size that files may have (`ulimit -f`): a signal ends the process
/// otherwise. The programs that it starts inherit that.
pub fn outlive_limit_of_file_sizes() {
    // SAFETY: no code of ours is called when the signal comes: it is ignored.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, setrlimit};

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

    /// `strake down` once said that a server had stopped whose last threads still held its files.
    #[test]
    fn a_process_has_not_ended_before_its_last_thread() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--test-threads=1"])
            .arg("process::tests::a_first_thread_that_ends_before_another")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        until(|| std::fs::read_to_string(&stat).unwrap().contains(") Z "));
        assert!(threads_of(child.id()) > 1);
        assert!(began_ticks(child.id()).is_some());
        drop(child.stdin.take());
        until(|| began_ticks(child.id()).is_none());
        assert!(child.wait().unwrap().success());
    }

    /// A server was gone without a word.
    #[test]
    fn a_write_beyond_the_limit_of_file_sizes_is_an_error() {
        crate::tests::passes_alone("process::tests::a_write_beyond_the_limit_that_it_sets");
    }

    #[test]
    #[ignore = "the test above starts it as a process of its own"]
    fn a_write_beyond_the_limit_that_it_sets() {
        outlive_limit_of_file_sizes();
        let mut file = tempfile::tempfile().unwrap();
        let limit = Rlimit { current: Some(1), maximum: Some(1) };
        setrlimit(Resource::Fsize, limit).unwrap();
        let error = std::io::Write::write_all(&mut file, b"ab").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    }

    fn until(is_so: impl Fn() -> bool) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !is_so() {
            assert!(std::time::Instant::now() < end, "it never comes to be so");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    #[ignore = "the test above starts it as a process of its own"]
    fn a_first_thread_that_ends_before_another() {
        extern "C" fn end_thread(_signal: libc::c_int) {
            // SAFETY: it ends the thread that the signal was sent to and touches nothing.
            #[allow(unsafe_code)]
            unsafe {
                libc::syscall(libc::SYS_exit, 0);
            }
        }
        let other = std::thread::spawn(|| {
            let _eof = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
            std::process::exit(0);
        });
        let pid = std::process::id();
        let handler: extern "C" fn(libc::c_int) = end_thread;
        // SAFETY: the handler is one; a process's first thread has the number of the process.
        #[allow(unsafe_code)]
        unsafe {
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            libc::syscall(libc::SYS_tgkill, pid, pid, libc::SIGUSR1);
        }
        other.join().unwrap();
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
    fn there_is_as_much_memory_as_the_kernel_says() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kib: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        let limit = cgroup::memory_limit().unwrap_or(u64::MAX);
        assert_eq!(usable_memory_bytes(), limit.min(kib * 1024));
    }
}
