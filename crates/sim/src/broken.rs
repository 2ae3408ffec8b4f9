//! Rules of production code that a simulation can break on purpose, to see whether it notices.
//!
//! Each is asked for at one or two places of production code by [`strake_base::is_broken`], which outside of
//! simulations is always false and compiled out.

/// A rule that can be broken.
#[derive(Debug)]
pub struct Rule {
    /// Its name, as production code asks for it and `--broken` names it.
    pub name: &'static str,
    /// What happens when it is broken.
    pub meaning: &'static str,
}

const fn rule(name: &'static str, meaning: &'static str) -> Rule {
    Rule { name, meaning }
}

/// All of them.
pub const RULES: &[Rule] = &[
    rule("all-members-acknowledge", "a primary acknowledges although a member has not answered"),
    rule("answers-need-lease", "members answer whether their lease lasts or not"),
    rule(
        "borrowers-tell",
        "a client believes what it knew of inodes that it has changed in other shares",
    ),
    rule("chunks-are-deleted", "an inode is erased and its chunks are forgotten"),
    rule("claims-are-called-back", "who reads does not have told what others hold back by claims"),
    rule(
        "claims-are-elsewhere",
        "who reads or writes while claims are called back waits for none, wherever they are",
    ),
    rule("claims-end-when-called", "a client goes on with the claims that it was told are over"),
    rule("claims-recall-leases", "ranges are granted while others read by what they know"),
    rule(
        "deletions-wait-for-journal",
        "chunks are deleted before it is on disk that their file is",
    ),
    rule("fenced-sessions-are-refused", "targets take what evicted clients send"),
    rule(
        "first-changes-are-told",
        "a target puts something into a group that counts as never used",
    ),
    rule("forwards-apply-once", "a forward that comes again is applied again"),
    rule("fsync-reaches-journal", "a metadata server answers an fsync without one of its journal"),
    rule("joins-count-once", "a late copy of a Join counts as one more start of its server"),
    rule("lease-needs-map", "a heartbeat renews the lease before the map that it names is known"),
    rule("leases-cover-opens", "a client opens a file again by what it knew when it closed it"),
    rule("long-leases-are-said-first", "a manager gives leases of which no beat says anything"),
    rule("loans-are-contended", "of two parts' writers the database lets both write one key"),
    rule("loans-are-forgotten", "a server reads from memory what it has lent to another share"),
    rule("loans-are-noted", "a change is made whether the loans for it last or not"),
    rule("loans-are-recalled", "clients believe what they know of inodes that are lent"),
    rule("looks-are-told", "who looks at an open file does not have told what others claim"),
    rule("lost-writes-are-told", "a client that was evicted says nothing of what it gives up"),
    rule("losses-are-counted", "a group that is founded anew after a loss of power says nothing"),
    rule("manager-waits-a-lease", "the manager takes a server out before its lease is over"),
    rule("members-check-epochs", "members take forwards of other epochs"),
    rule("mutations-are-remembered", "a mutation that is sent again is repeated"),
    rule(
        "names-behind-need-leases",
        "changes that a client has answered are made although others have been there since",
    ),
    rule("new-primary-recovers", "a new primary leaves what was under way as it is"),
    rule("old-disks-have-less", "an old copy of a disk counts as what the target had"),
    rule(
        "only-in-sync-serve",
        "members answer readers whoever they are by now, and of whatever epoch",
    ),
    rule("own-leases-end-with-lead", "what a manager allows its own server outlasts its lead"),
    rule("range-locks-outlive-servers", "a metadata server forgets locks of bytes that it finds"),
    rule("recalls-reach-readers", "a client reads on by what it has cached, whatever was recalled"),
    rule("requests-are-remembered", "a write that comes again is applied again"),
    rule("resting-files-are-woken", "a client writes where a file was when it was last asked"),
    rule("resync-compares-all", "a resync passes over some of the chunks"),
    rule("scrubs-repair", "a scrub calls repaired what it has not asked anybody to repair"),
    rule("scrubs-see-all", "a scrub ends after its first step"),
    rule("settled-is-everywhere", "a primary calls settled what is still under way"),
    rule("shared-writes-are-told", "a client holds back what it writes to a file of others, too"),
    rule(
        "syncs-compare-boots",
        "a client does not compare the boot of a sync with that of its writes",
    ),
    rule(
        "stalls-wait-for-leases",
        "the manager takes out whoever others wait for, whether its lease lasts or not",
    ),
    rule("sync-always-is-heeded", "a change of a sync_always volume is answered as in any other"),
    rule("syncs-cover-others", "a client syncs what it has written itself and nothing else"),
    rule("syncs-go-to-all", "a primary syncs its own disk and no other"),
    rule("syncs-reach-disks", "a lone target answers a sync without one"),
    rule(
        "tenures-are-waited-for",
        "the manager gives volumes of a server that somebody misses to another at once",
    ),
    rule("tenure-is-needed", "a metadata server serves a volume that another may serve by now"),
    rule("unsettled-is-not-read", "members answer readers with what may not be everywhere"),
    rule(
        "visitors-wait",
        "who comes to a directory that another has for himself does not wait until he has told",
    ),
    rule("who-starts-is-not-in-sync", "a member that has started again stays in sync"),
];

/// A rule by its name.
pub fn find(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}
