//! Randomness of a thread that follows from a seed.
//!
//! Everything in a process that wants to be random asks the C library's `getrandom` in the end: the
//! seeds of hash maps, which decide the order of their entries, too. The standard library looks that
//! function up by name so that a program may put its own in its place. This is that: a thread that
//! was given a seed gets the numbers that follow from it, all others get the kernel's.

use crate::random::SplitMix64;
use std::cell::RefCell;

thread_local! {
    static SEEDED: RefCell<Option<SplitMix64>> = const { RefCell::new(None) };
}

/// From now on what is random in this thread follows from `seed`. To be called first of all: a thread
/// draws the seed of its hash maps once.
pub fn seed(seed: u64) {
    SEEDED.set(Some(SplitMix64::new(seed)));
}

/// In the place of the C library's function: see `getrandom(2)`.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
// SAFETY: the name is that of the C library, and so are the meaning of arguments and result.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(
    buffer: *mut libc::c_void,
    length: libc::size_t,
    flags: libc::c_uint,
) -> libc::ssize_t {
    let fill = |seeded: &mut Option<SplitMix64>| {
        let random = seeded.as_mut()?;
        // SAFETY: the caller promises that these bytes may be written.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&random.next_number().to_le_bytes()[..part.len()]);
        }
        Some(length as libc::ssize_t)
    };
    // A thread that is ending has no seed any more.
    let filled =
        SEEDED.try_with(|seeded| seeded.try_borrow_mut().ok().and_then(|mut s| fill(&mut s)));
    match filled {
        Ok(Some(length)) => length,
        // SAFETY: the arguments are those of the system call, unchanged.
        _ => unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as libc::ssize_t },
    }
}
