//! Which time this is that a file system is mounted.
//!
//! What the kernel holds of files and has not written lasts until the last unmount. An error can shut a file system down: its
//! device was gone, or its journal could not be written. Then that is lost with the unmount, while the machine runs on, and no
//! word of it could be stored there.
//!
//! The drivers below keep a directory in sysfs, named after the device, for exactly as long as they have the file system. Its
//! inode number is given to no other before 2^32 more have been made. Bind mounts, containers and `mount -o remount` change
//! nothing of it.

use rustix::fs::{major, minor};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Those that do. Of others nothing is known.
const DRIVERS: [&str; 3] = ["ext4", "f2fs", "xfs"];

/// The number of the present mounting of what lies on a device, by the sysfs at `sys`; `None`: nothing is known of it. What
/// fails otherwise is an error: a boot must not seem another one for want of memory.
pub(super) fn number(sys: &Path, device: u64) -> io::Result<Option<u64>> {
    let device = format!("dev/block/{}:{}", major(device), minor(device));
    let Some(target) = seen(std::fs::read_link(sys.join(device)))? else { return Ok(None) };
    let Some(name) = target.file_name() else { return Ok(None) };
    for driver in DRIVERS {
        if let Some(kept) = seen(std::fs::metadata(sys.join("fs").join(driver).join(name)))? {
            return Ok(Some(kept.ino()));
        }
    }
    Ok(None)
}

/// `None` of what is not there, or hidden.
fn seen<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory => {
                Ok(None)
            }
            // Of a sysfs that is none.
            ErrorKind::InvalidInput | ErrorKind::Unsupported => Ok(None),
            _ => Err(error),
        },
    }
}

/// What a boot is called that ends with this mounting of a file system, or with the boot of the kernel.
pub(super) fn boot_of(kernel: String, mounting: Option<u64>) -> String {
    let random = u128::from_str_radix(&kernel.replace('-', ""), 16);
    match (random, mounting) {
        (Ok(random), Some(mounting)) => format!("{:032x}", random ^ u128::from(mounting)),
        _ => kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, RealDisk};
    use std::fs::create_dir_all;

    #[test]
    fn a_boot_is_one_of_the_kernel_and_of_the_mounting() {
        let kernel = || crate::process::boot_id().unwrap();
        assert_eq!(boot_of(kernel(), None), kernel());
        let (one, other) = (boot_of(kernel(), Some(7)), boot_of(kernel(), Some(8)));
        assert!(one != other && one != kernel() && one.len() <= kernel().len());
        assert_eq!(boot_of(kernel(), Some(7)), one);
        assert_eq!(boot_of("unheard of".into(), Some(7)), "unheard of");
        let directory = tempfile::tempdir().unwrap();
        let boot = || RealDisk::new(directory.path()).unwrap().boot_id().unwrap();
        assert_eq!(boot(), boot());
    }

    #[test]
    fn a_mounting_is_found_by_its_device() {
        let sys = tempfile::tempdir().unwrap();
        let (device, other) = (rustix::fs::makedev(8, 1), rustix::fs::makedev(8, 2));
        create_dir_all(sys.path().join("dev/block")).unwrap();
        let link = sys.path().join("dev/block/8:1");
        std::os::unix::fs::symlink("../../devices/pci/block/sda/sda1", link).unwrap();
        let number = |sys: &Path, device| number(sys, device).unwrap();
        assert_eq!(number(sys.path(), device), None);
        let kept = sys.path().join("fs/xfs/sda1");
        create_dir_all(&kept).unwrap();
        assert_eq!(number(sys.path(), device), Some(kept.metadata().unwrap().ino()));
        assert_eq!(number(sys.path(), other), None);
    }
}
