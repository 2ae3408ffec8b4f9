//! What the kernel believes of a volume whose leases this mount keeps, and how it is taken back.
//!
//! Attributes are believed for as long as the lease on their inode lasts. A recall invalidates them, which waits
//! for no lock of the kernel. Names could only be taken back under the lock of their directory, which an
//! operation may hold that waits for a server: they are believed for a moment, which a recall waits for.

use super::FuseDoor;
use crate::abi;
use crate::device::Device;
use crate::errno::Errno;
use crate::reply::Reply;
use parking_lot::RwLock;
use std::sync::OnceLock;
use std::time::Duration;
use strake_client::Believer;
use strake_types::Ino;

/// When inodes are invalidated once more. The kernel may look later at an answer that makes an inode known to
/// it than at a recall that was written after that answer.
const ONCE_MORE: Duration = Duration::from_millis(20);

/// The recalls of one mount.
#[derive(Default)]
pub(super) struct Recalls {
    /// How many there were. Held shared while an answer is sent, so that each is either sent before
    /// a recall or known to be older.
    count: RwLock<u64>,
    device: OnceLock<Device>,
}

impl Recalls {
    /// From now on the kernel can be told.
    pub fn mounted(&self, device: Device) {
        // A door is mounted once.
        let _again = self.device.set(device);
    }

    /// How many there were so far.
    pub fn count(&self) -> u64 {
        *self.count.read()
    }

    fn tell(&self, nodes: &[u64]) {
        for &node in nodes {
            self.device.get().iter().for_each(|device| device.forget_attributes(node));
        }
    }
}

impl FuseDoor {
    /// Sends an answer that was made since there had been so many recalls. What it lets the kernel believe is
    /// computed now.
    pub(super) fn send_leased(
        &self,
        mark: u64,
        mut answer: Result<Reply, Errno>,
        send: impl FnOnce(&Result<Reply, Errno>),
    ) {
        let Some(reply) = answer.as_mut().ok().filter(|reply| reply.shows()) else {
            return send(&answer);
        };
        let count = self.recalls.count.read();
        let newest = *count == mark;
        reply.each_shown(|shown| {
            (shown.valid, shown.name_valid) = Default::default();
            if newest {
                shown.valid = self.volume.believable(shown.real, shown.attr.version);
                if let Some((dir, name)) = &shown.name {
                    shown.name_valid = self.volume.believable_name(*dir, name, shown.real);
                }
            }
        });
        send(&answer);
    }
}

impl Believer for FuseDoor {
    fn recall(&self, inodes: &[Ino]) {
        *self.recalls.count.write() += 1;
        let nodes: Vec<u64> = inodes.iter().map(|ino| self.node(*ino)).collect();
        self.recalls.tell(&nodes);
        let recalls = self.recalls.clone();
        self.runtime.spawn(async move {
            tokio::time::sleep(ONCE_MORE).await;
            recalls.tell(&nodes);
        });
    }

    fn lose(&self, inodes: &[Ino]) {
        let nodes: Vec<u64> = inodes.iter().map(|ino| self.node(*ino)).collect();
        let recalls = self.recalls.clone();
        // The kernel waits for pages that are being read or written, and so for us.
        self.runtime.spawn_blocking(move || {
            for node in nodes {
                recalls.device.get().iter().for_each(|device| device.forget_contents(node));
            }
        });
    }
}

impl Device {
    /// The kernel believes no attributes and ACLs of an inode any more.
    fn forget_attributes(&self, ino: u64) {
        // An offset below zero leaves the pages alone.
        self.notify(abi::NOTIFY_INVAL_INODE, &abi::InvalInodeOut { ino, off: -1, len: 0 });
    }

    /// The kernel believes neither attributes nor contents of an inode any more.
    fn forget_contents(&self, ino: u64) {
        self.notify(abi::NOTIFY_INVAL_INODE, &abi::InvalInodeOut { ino, off: 0, len: 0 });
    }
}
