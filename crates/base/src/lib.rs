//! The world below Strake: clock, randomness, disks, tasks and processes, real and simulated.
//!
//! Everything that makes a run different from the next comes from here, so that a whole cluster can
//! be run from one seed. Other crates do not call the operating system for these, nor for [`threads`] that are there before they are
//! needed, or for how much memory a control group leaves. What measures file
//! systems finds here, behind safe calls, the ways to a file that need care with memory:
//! [`aligned`] buffers, files [`mapped`] into memory, and the [`uring`] of the kernel; and files without paths ([`file_handle`]). Who encrypts finds here how certificates and keys
//! are read ([`pem`]), and who looks for mounts how the kernel writes them ([`mount_table`]).
//!
//! What this crate never does: know a word of what Strake is for.

pub mod aligned;
mod cgroup;
pub mod clock;
pub mod descriptor;
pub mod disk;
pub mod file_handle;
pub mod mapped;
pub mod mount_table;
pub mod pem;
pub mod process;
pub mod random;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod task;
pub mod threads;
pub mod uring;

/// Whether a simulation has broken this rule on purpose. Outside of simulations no rule is, and
/// nothing of this is compiled.
#[inline(always)]
pub fn is_broken(rule: &'static str) -> bool {
    #[cfg(feature = "simulation")]
    return simulation::sabotage::is_broken(rule);
    #[cfg(not(feature = "simulation"))]
    {
        let _never = rule;
        false
    }
}

/// Something has happened of which a simulation is to know how often it does. Outside of simulations nothing of this
/// is compiled.
#[inline(always)]
pub fn count_case(case: &'static str) {
    #[cfg(feature = "simulation")]
    simulation::cases::count(case);
    #[cfg(not(feature = "simulation"))]
    let _nobody_counts = case;
}

#[cfg(test)]
mod tests {
    /// Runs an ignored test in a process of its own, for which it may change limits.
    pub fn passes_alone(test: &str) {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--test-threads=1", test])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && told.contains("1 passed"), "{told}");
    }
}
