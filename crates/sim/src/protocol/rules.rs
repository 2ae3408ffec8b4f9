//! How much of the protocol is explored, and which rule of it is broken on purpose.

use super::ids::{CLIENTS, Epoch};

/// Bounds of one exploration. Every bound that is reached only ends that branch.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Members of the group, 2 or 3.
    pub members: usize,
    /// The member that is joining at first; all others are in sync.
    pub joining: Option<usize>,
    /// How many writes each client makes, one after another.
    pub writes: [u8; CLIENTS],
    /// Whether clients sync what they wrote.
    pub syncs: bool,
    /// Whether leases are given by promises, too.
    pub promises: bool,
    /// How many servers have a manager, those of the members first: one after the other, each may come to lead (0064).
    pub managers: usize,
    /// The last epoch that the manager may make. The first is 1.
    pub epochs: Epoch,
    /// How many times a server may stop without notice. Page caches and disks keep what they had.
    pub crashes: u8,
    /// How many of these stops are losses of power, after which only what was synced is there.
    pub power_losses: u8,
    /// The rule that is left out. With none the protocol is as the design says.
    pub broken: Option<Broken>,
}

impl Rules {
    /// Whether this very rule is left out.
    pub fn without(&self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }

    /// The same bounds with one rule left out.
    pub fn breaking(self, rule: Broken) -> Self {
        Self { broken: Some(rule), ..self }
    }
}

/// Rules that can be left out, to see that the checker notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A member applies forwards of any epoch.
    EpochCheck,
    /// A primary answers a write when it has applied it itself.
    WaitForAllInSync,
    /// A member answers reads of what it does not know to be settled.
    UnsettledRefusesReads,
    /// The manager takes out a member whose lease still runs.
    TakeOutAfterLease,
    /// A joining member answers reads.
    JoiningServesNothing,
    /// A new primary serves without making unsettled ranges equal.
    Recovery,
    /// A primary carries out again what it has carried out before.
    DoneRequests,
    /// A new primary acts without those that it gave a promise.
    Promises,
    /// A new primary makes members equal while promises that it gave run, and only then waits for their end.
    RecoveryAfterPromises,
    /// A reported member counts as in sync only in the epoch that the manager makes of it.
    ReportedCounts,
    /// A Join refounds the group although another in-sync member lives.
    RefoundOnlyAlone,
    /// A lease is granted without telling the epoch for which it holds.
    LeaseTellsEpoch,
    /// A primary alone in sync needs no lease, not even after it has reported another.
    LeaseAfterReport,
    /// A primary answers writes and syncs without a lease.
    LeaseForAnswers,
    /// A lease by promises goes on when another member is reported, which has promised nothing.
    ReportEndsPromised,
    /// A primary reports another member while promises that it gave run.
    ReportAfterPromises,
    /// A primary that has reported another member gives promises.
    NoPromiseAfterReport,
    /// Promises are forgotten in a restart.
    PromisesOutliveRestart,
    /// Recovery and resync copy bytes without the requests that made them.
    DoneTravels,
    /// A copy by resync that arrives a second time is applied a second time.
    CopiesNumbered,
    /// A joining member that has not answered is not waited for, and reported all the same.
    FailedIsNotReported,
    /// A refounded group carries out writes that were begun before.
    RefoundFence,
    /// A sync is answered whatever was lost since the write.
    SyncComparesLosses,
    /// A sync does not go to joining members.
    SyncToJoining,
    /// A member is reported before its copy is on its disk.
    ResyncSyncs,
    /// The Join of a joining member makes no new epoch.
    JoinOfJoining,
    /// A Join that arrives twice counts twice.
    JoinOnce,
    /// One of two members in sync answers reads of unsettled changes although a third joins.
    PairAlone,
    /// One of two members in sync answers reads of changes that came in an earlier epoch.
    PairOfOneEpoch,
    /// What a manager allows its own server goes on when another manager leads.
    OwnLeasesEndWithLead,
    /// A manager gives long leases of which the next one is told nothing.
    LongLeasesAreSaidFirst,
    /// A manager gives leases to servers of which it says that theirs have ended with their leads.
    AnsweredHaveNotEnded,
}
