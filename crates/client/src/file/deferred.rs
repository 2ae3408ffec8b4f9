//! Closes that are deferred: for a while the metadata server goes on counting a file as open that nobody here
//! has open any more, so that opening it again costs no message.
//!
//! Only files whose attributes are leased to this mount. The lease is recalled before anybody else changes the
//! file or takes its last name away, and the close is reported then; what this mount itself is about to take the
//! name of is reported with that request.

use super::open::OpenFile;
use super::state::{Core, FileState};
use crate::api::OpenFlags;
use crate::contents::Contents;
use crate::ops::open_mode;
use crate::volume::Volume;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Credentials, Ino};

/// Most files at a time; the one that was closed first is reported when there are more.
const FILES_MAX: usize = 4_096;
/// Longest time.
const AGE_MAX: Duration = Duration::from_secs(60);

/// The files, by when they were closed (monotonic; no two at the same time).
#[derive(Default)]
pub(crate) struct Deferred {
    files: Mutex<BTreeSet<(Duration, Ino)>>,
}

impl Deferred {
    fn put(&self, at: Duration, ino: Ino) {
        self.files.lock().insert((at, ino));
    }

    fn remove(&self, at: Duration, ino: Ino) {
        self.files.lock().remove(&(at, ino));
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }

    /// Those of before `until`.
    fn old(&self, until: Duration) -> Vec<Ino> {
        let files = self.files.lock();
        files.iter().take_while(|(at, _)| *at < until).map(|(_, ino)| *ino).collect()
    }

    /// Those that are too many.
    fn surplus(&self) -> Vec<Ino> {
        let files = self.files.lock();
        let surplus = files.len().saturating_sub(FILES_MAX);
        files.iter().take(surplus).map(|(_, ino)| *ino).collect()
    }
}

impl Core {
    /// True if what is known of the file is all that an open would tell.
    fn knows_what_an_open_tells(&self) -> bool {
        self.registered > 0
            && self.attr.nlink > 0
            && self.ours.is_some()
            && !self.inline_stale
            && !self.shared
    }

    fn may(&self, flags: OpenFlags, volume: &Volume) -> bool {
        let mode = open_mode(flags, volume);
        let [read, write] = &self.capability;
        (!mode.read || !read.is_empty()) && (!mode.write || !write.is_empty())
    }
}

impl Volume {
    /// Opens a file again that the server still counts as open, and of which it would tell nothing new.
    pub(super) fn open_again(
        self: &Arc<Self>,
        cred: &Credentials,
        ino: Ino,
        flags: OpenFlags,
    ) -> Option<Arc<OpenFile>> {
        // Where permissions are the server's matter it is asked.
        let allowed = cred.checked || cred.uid == 0;
        if !self.keeps_leases() || !allowed || flags.truncate {
            return None;
        }
        let counted = |file: &Arc<FileState>| {
            let mut core = file.core();
            let known = core.knows_what_an_open_tells()
                && core.may(flags, self)
                && self.session(ino).is_newest(core.incarnation)
                && (self.leases(ino).covers(ino, core.attr.version, self.now())
                    || strake_base::is_broken("leases-cover-opens"));
            if known {
                core.handles += 1;
                self.end_deferral(ino, &mut core);
            }
            known.then(|| {
                let unchanged = core.ours == Some(Contents::of(&core.attr));
                core.dropping += usize::from(!unchanged);
                unchanged
            })
        };
        // Under the lock of the table: a new incarnation of the session begins before it looks there for what is
        // open, so that it finds this, or this finds that the one known is not the newest.
        let (file, unchanged) = self.inodes().with_file(ino, counted)?;
        file.count_direct(flags.direct);
        Some(self.handle_of(file, cred, flags, unchanged, false))
    }

    /// Its close is not deferred any more: it is open, or about to be reported.
    pub(super) fn end_deferral(&self, ino: Ino, core: &mut Core) {
        if let Some(at) = core.deferred.take() {
            self.deferred.remove(at, ino);
        }
    }

    /// The last handle of a file is gone: true if the server is to count it as open all the same. Then
    /// [`Volume::check_deferral`] has to follow.
    pub(super) fn defer_close(&self, ino: Ino, core: &mut Core) -> bool {
        self.end_deferral(ino, core);
        let worth = self.keeps_leases()
            && core.handles == 0
            && core.is_idle()
            && core.knows_what_an_open_tells()
            && self.session(ino).is_newest(core.incarnation);
        if worth {
            let now = self.now();
            core.deferred = Some(now);
            self.deferred.put(now, ino);
        }
        worth
    }

    /// What was recalled while it was being deferred is not; and there are not too many.
    pub(super) fn check_deferral(&self, file: &FileState) {
        let version = file.core().attr.version;
        if !self.leases(file.ino()).covers(file.ino(), version, self.now()) {
            self.report_close(file.ino());
        }
        self.report_closes(self.deferred.surplus());
    }

    /// This mount is about to take a name away: a deferred close of what it stands for is reported with the
    /// request, so that nothing has to be kept for us.
    pub(crate) fn report_close_of(&self, dir: Ino, name: &[u8]) {
        if let Some(Some(ino)) = self.leases(dir).name(dir, name, self.now()) {
            self.report_close(ino);
        }
    }

    /// A deferred close is reported with the next report. True if there was one.
    pub(crate) fn report_close(&self, ino: Ino) -> bool {
        let Some(file) = self.inodes().file(ino) else { return false };
        {
            let mut core = file.core();
            if core.deferred.is_none() {
                return false;
            }
            self.end_deferral(ino, &mut core);
        }
        self.forget_if_closed(&file);
        true
    }

    /// All deferred closes are reported.
    pub(crate) fn report_all_closes(&self) {
        self.report_closes(self.deferred.old(Duration::MAX));
    }

    /// Closes that have been deferred for long enough are reported.
    pub(crate) fn report_old_closes(&self, now: Duration) {
        self.report_closes(self.deferred.old(now.saturating_sub(AGE_MAX)));
    }

    fn report_closes(&self, inodes: Vec<Ino>) {
        for ino in inodes {
            self.report_close(ino);
        }
    }
}
