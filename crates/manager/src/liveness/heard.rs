//! What is known of one server.

use super::said::Full;
use std::collections::HashSet;
use std::time::Duration;

/// What is known of a server since this manager started.
#[derive(Clone)]
pub(super) struct Heard {
    pub at: Duration,
    /// When what it may answer by its heartbeats is over at the latest.
    pub lease_end: Duration,
    /// When another may serve its volumes,
    pub tenure_end: Duration,
    /// and when one will, unless somebody waits for it.
    pub kept_until: Duration,
    /// Since when that was never over.
    pub kept_since: Duration,
    /// Somebody waits for it as a metadata server, and it was not heard since.
    pub missed: bool,
    /// Others waited for it when the lease was over, or it was refused then, and it was not heard since.
    pub given_up: bool,
    /// It joined or sent a heartbeat; otherwise `at` is when the manager started.
    pub spoke: bool,
    /// It sent a heartbeat since it joined: now it serves.
    pub serves: bool,
    /// Since when it was never silent for a lease.
    pub since: Duration,
    /// It said that it leaves.
    pub left: bool,
    /// Targets it has.
    pub targets: HashSet<u32>,
    /// It does not reach the database with its metadata.
    pub cut_off: bool,
    /// Of which release it has said that it is, in this life.
    pub release: Option<String>,
    /// What the store of its metadata says while it has no room for changes; empty: it has.
    pub full: Full,
    /// Volumes that it serves, going by the map of this epoch or a later one.
    pub volumes: (u64, HashSet<u32>),
}

impl Heard {
    /// One that was not heard yet: what it may do by what others have said lasts so long.
    pub fn not_yet(lease: Duration, tenure: Duration, now: Duration) -> Self {
        Self {
            at: now,
            lease_end: now + lease,
            tenure_end: now + tenure,
            kept_until: now + tenure,
            kept_since: now,
            missed: false,
            given_up: false,
            spoke: false,
            serves: false,
            since: now,
            left: false,
            targets: HashSet::new(),
            cut_off: false,
            release: None,
            full: Full::default(),
            volumes: (0, HashSet::new()),
        }
    }

    /// So much time, which ends now, counts for nothing: it could not be heard. What was over before stays so.
    pub fn pass_over(&mut self, gap: Duration, now: Duration) {
        let began = now.saturating_sub(gap);
        self.at = (self.at + gap).min(now);
        for end in [&mut self.lease_end, &mut self.tenure_end, &mut self.kept_until] {
            if *end >= began {
                *end += gap;
            }
        }
        self.since = (self.since + gap).min(now);
        self.kept_since = (self.kept_since + gap).min(now);
    }

    /// True once it answers for no group any more by what it was told.
    pub fn is_over(&self, now: Duration) -> bool {
        // Whoever has just joined has no lease yet, and is about to.
        let joins = self.spoke && !self.serves;
        !joins && now > self.lease_end || strake_base::is_broken("stalls-wait-for-leases")
    }

    /// It says something now, and will serve volumes until then.
    pub fn serve_until(&mut self, end: Duration, now: Duration) {
        if !self.may_serve(now) {
            self.kept_since = now;
        }
        self.tenure_end = self.tenure_end.max(end);
    }

    /// True while its volumes are left to it: it may serve them still, or is only late and nobody waits for it.
    pub fn may_serve(&self, now: Duration) -> bool {
        let has_time = now <= self.tenure_end;
        match self.missed {
            true => has_time && !strake_base::is_broken("tenures-are-waited-for"),
            false => has_time || now <= self.kept_until,
        }
    }
}
