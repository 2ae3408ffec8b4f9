//! Recalls: what the metadata server takes back of what it has leased to this mount.
//!
//! [`follow_recalls`] always has one request for recalls with a share's server, which also keeps the leases alive.
//! A recall of everything is followed later than it is obeyed: docs/design/0050-leases.md.

use super::Leases;
use crate::file::FileState;
use crate::session::Stamp;
use crate::share::Share;
use crate::volume::Volume;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_types::Ino;
use strake_types::error::Advice;
use strake_types::limits::LEASE_MS;
use strake_wire::message::meta::{MetaAnswer, MetaOp, Recalled, Recalls};

/// Longest wait for an answer to a request for recalls; then it is sent again.
const RECALLS_WAIT: Duration = Duration::from_millis(2_500);
/// Pause after a request for recalls that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for a kernel to drop the pages of open files that somebody else changes. It may have to wait for a
/// request of its own that waits for that change.
const PAGES_WAIT: Duration = Duration::from_millis(200);
/// So often a kernel is asked again to drop pages where that has failed, after ever longer pauses: 3.1 s in all. By then the server
/// waits no longer for this mount.
const DROPS_MAX: u32 = 5;
/// How soon recalls are asked for again while a kernel may still believe what it was told before everything was recalled.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// How far recalls were followed since a session began or was taken up again: another server numbers
/// them anew.
#[derive(Default)]
struct Followed {
    session: u64,
    number: u64,
    /// Up to which number the kernel was told.
    told: u64,
    /// The number of the last recall of everything: all is forgotten,
    forgotten: u64,
    /// but a kernel may believe until then what it was told before. Nothing is followed that long.
    believed_until: Duration,
    /// Files were closed because they were recalled.
    closed: bool,
    /// How often it has failed, one time after the other, to have a kernel drop what was before of open files, which it may still
    /// show.
    not_dropped: u32,
}

impl Followed {
    /// Everything is forgotten that was recalled under this number.
    fn forget(&mut self, number: u64, believed_until: Duration) {
        (self.forgotten, self.believed_until) = (number, believed_until);
    }

    /// After how long the pages of open files are to be dropped once more, if that has failed: until then nothing is followed, and the
    /// recall comes again.
    fn try_again(&mut self, dropped: bool) -> Option<Duration> {
        let before = self.not_dropped;
        self.not_dropped = if dropped { 0 } else { before.saturating_add(1) };
        if self.not_dropped.is_power_of_two() {
            tracing::warn!(times = self.not_dropped, "pages of open files were not dropped");
        }
        (!dropped && before < DROPS_MAX).then(|| PAUSE * 2_u32.pow(before))
    }

    /// What was recalled is followed after `pause`. How long to wait before the next request.
    fn go_on(&mut self, recalled: &Recalled, pause: Duration, now: Duration) -> Duration {
        self.told = recalled.number;
        let left = self.believed_until.saturating_sub(now);
        if recalled.everything && !left.is_zero() {
            // The leases begin anew as soon as the server knows that all is forgotten.
            return Duration::ZERO;
        }
        if left > ASK_AGAIN {
            return ASK_AGAIN;
        }
        self.number = self.number.max(self.forgotten).max(recalled.number);
        pause.max(left)
    }
}

/// What followed from an answer to a request for recalls.
struct Following {
    /// How long to wait before it may be said that it was followed.
    pause: Duration,
    /// Files were closed because of it.
    closed: bool,
    changed: Changed,
}

/// The inodes that others may change, or have changed.
enum Changed {
    These(Vec<Ino>),
    All,
}

/// Always asks a share for recalls, and follows them. Ends with the volume.
pub(crate) async fn follow_recalls(volume: Weak<Volume>, share: usize) {
    let mut followed = Followed::default();
    loop {
        let Some(volume) = volume.upgrade() else { return };
        let asked = volume.ask_for_recalls(&volume.parts()[share], &mut followed);
        let pause = Box::pin(asked).await;
        drop(volume);
        // A timer takes a tick of 1 ms also for no time, and somebody waits for what is followed.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

impl Volume {
    /// One request for recalls. How long to wait before the next.
    async fn ask_for_recalls(self: &Arc<Self>, share: &Share, at: &mut Followed) -> Duration {
        let Share { session: own, leases, .. } = share;
        let nth = || leases.sessions.load(Ordering::Acquire);
        if at.session != nth() {
            let not_dropped = at.not_dropped;
            *at = Followed { session: nth(), not_dropped, ..Followed::default() };
        }
        let Stamp { session, incarnation, .. } = own.stamp();
        let (followed, forgotten) = (at.number, at.forgotten);
        let (waits, waited) = (self.waits.told(self.now()), self.waits.over(self.now()));
        let given_back = leases.behind.to_tell(self.now());
        let behind = leases.behind.is_of_before();
        let recalls =
            Recalls { followed, forgotten, waits, waited, behind, given_back: given_back.clone() };
        let mut request =
            self.session_request(share, (session, incarnation), MetaOp::Recalls(recalls));
        // What was closed because it was recalled: somebody may be waiting for that.
        request.closed = if at.closed { own.report() } else { None };
        let report = request.closed.as_ref().map(|report| report.number);
        let sent = self.now();
        let answer = match tokio::time::timeout(RECALLS_WAIT, self.meta_once(request)).await {
            Ok(answer) => answer,
            Err(_) => return Duration::ZERO,
        };
        match answer {
            Ok(MetaAnswer::Recalled(recalled)) if nth() == at.session => {
                report.iter().for_each(|number| own.reported(*number));
                leases.behind.told(&given_back);
                self.give_directories_back(share, &recalled.exclusive);
                self.share(&recalled.shared);
                self.rest(&recalled.rest);
                self.doubt_cuts(recalled.cuts.iter().copied().map(Ino));
                let Following { pause, closed, changed } =
                    self.follow(leases, &recalled, at.told, sent);
                at.closed = closed;
                if recalled.everything {
                    at.forget(recalled.number, self.now() + pause);
                }
                let changed = if at.not_dropped > 0 { Changed::All } else { changed };
                let open = self.open_ones(share, &changed);
                // The kernel is told to drop that before this counts as followed, and so before a range is granted.
                let files = open.iter().filter_map(|ino| self.inodes().file(*ino));
                files.for_each(|file| file.core().paged_reads = false);
                let dropped = self.forget_contents(&open).await;
                if let Some(pause) = at.try_again(dropped) {
                    return pause;
                }
                at.go_on(&recalled, pause, self.now())
            }
            Ok(_) => PAUSE,
            Err(error) => {
                let heeded = match error.advice() {
                    Advice::Renew => self.renew_session(share, incarnation).await,
                    Advice::RefreshMap => self.map().refresh().await.map(drop),
                    Advice::Retry | Advice::GiveUp => Ok(()),
                };
                let then = heeded.err();
                tracing::debug!("{}: no recalls: {error}, {then:?}", self.called(share.id));
                PAUSE
            }
        }
    }

    /// Has the kernel drop what it has of open files. False if that has failed; what it is still busy with it drops later.
    async fn forget_contents(&self, open: &[Ino]) -> bool {
        let Some(believer) = self.believer().filter(|_| !open.is_empty()) else { return true };
        let dropped = tokio::time::timeout(PAGES_WAIT, believer.forget_contents(open));
        dropped.await.unwrap_or_else(|_| {
            tracing::debug!("the kernel is still busy with pages of {open:?}");
            true
        })
    }

    /// Which of the inodes that others may change somebody here has open.
    fn open_ones(&self, share: &Share, changed: &Changed) -> Vec<Ino> {
        let files = match changed {
            Changed::All => self.inodes().files(),
            Changed::These(these) => these.iter().filter_map(|i| self.inodes().file(*i)).collect(),
        };
        let open =
            |file: &Arc<FileState>| self.home(file.ino()) == share.id && file.core().handles > 0;
        files.into_iter().filter(open).map(|file| file.ino()).collect()
    }

    /// Follows what was recalled in an answer to what was `sent` then; the kernel was told of what was recalled under
    /// numbers up to `told`.
    fn follow(&self, leases: &Leases, recalled: &Recalled, told: u64, sent: Duration) -> Following {
        let now = self.now();
        if recalled.everything {
            // What others were told of it cannot be recalled one by one.
            let pause = leases.end(now);
            self.report_all_closes();
            return Following { pause, closed: true, changed: Changed::All };
        }
        let over = leases.left(now).is_zero();
        if over {
            // They were over for a while: what changed then was not waited for.
            leases.forget_all(now);
            self.report_all_closes();
        }
        // What is not said to be followed yet comes again.
        let again = recalled.number == told && !over;
        let inodes: Vec<Ino> = recalled.inodes.iter().map(|ino| Ino(*ino)).collect();
        leases.forget(&inodes, now);
        let mut closed = false;
        for ino in &inodes {
            self.forget_listing(*ino);
            if !strake_base::is_broken("leases-cover-opens") {
                closed |= self.report_close(*ino);
            }
            // What is read next asks what has become of the file.
            self.inodes().file(*ino).iter().for_each(|file| file.core().learned = Duration::ZERO);
        }
        let believed = if again { Duration::ZERO } else { leases.tell(&inodes) };
        leases.extend(sent + Duration::from_millis(LEASE_MS));
        let pause = leases.end_moments(&inodes, self.now()).max(believed);
        let changed = match over {
            true => Changed::All,
            false => Changed::These(if again { Vec::new() } else { inodes }),
        };
        Following { pause, closed, changed }
    }
}

#[cfg(test)]
mod tests;
