//! Room: statfs, fallocate, seeking data and holes, copying ranges on the servers.

use crate::api::{FallocateMode, SeekTo, VolumeSpace};
use crate::file::OpenFile;
use crate::volume::Volume;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};

/// What the targets said last about their room, and when.
#[derive(Default)]
pub(crate) struct SpaceCache {
    pub(crate) last: Mutex<Option<(VolumeSpace, Duration)>>,
}

impl Volume {
    /// Room of the whole cluster and counts of the volume, at most a second old.
    pub async fn statfs(&self) -> Result<VolumeSpace> {
        Err(Error::new(ErrorKind::NotSupported))
    }

    /// Reserves, frees or zeroes a range.
    pub async fn fallocate(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let _ = (file, mode, offset, len);
        Err(Error::new(ErrorKind::NotSupported))
    }

    /// The next byte of data, or of a hole, from an offset on.
    pub async fn seek(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let _ = (file, offset, to);
        Err(Error::new(ErrorKind::NotSupported))
    }

    /// Copies a range between files (or within one) on the servers. How many bytes were copied;
    /// fewer than asked at the end of the source, or where the rest is to be asked for again.
    pub async fn copy_range(
        self: &Arc<Self>,
        source: &Arc<OpenFile>,
        source_offset: u64,
        target: &Arc<OpenFile>,
        target_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let _ = (source, source_offset, target, target_offset, len);
        Err(Error::new(ErrorKind::NotSupported))
    }
}
