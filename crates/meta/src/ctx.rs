//! What one request brings along: where it goes, and who asks.

use crate::cluster::Settings;
use crate::core::Core;
use crate::leases::Keeper;
use crate::ledger::Ledger;
use crate::records::Inode;
use crate::session::Session;
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use strake_types::access::Subject;
use strake_types::acl::Acl;
use strake_types::{Consistency, Credentials, Error, ErrorKind, Ino, Result, Timestamp, VolumeId};
use strake_wire::message::common::Attributes;

/// What one request brings along.
#[derive(Clone)]
pub(crate) struct Ctx {
    /// What all operations share.
    pub core: Arc<Core>,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Its settings.
    pub settings: Arc<Settings>,
    /// The client's session, if it named one.
    pub session: Option<Arc<Session>>,
    /// Under which number the client keeps what is leased to it; 0: it keeps nothing.
    pub leases: u64,
    /// As whom, if it has a session: also of what the server does within this request.
    pub keeper: Option<Keeper>,
    /// Who asks.
    pub cred: Credentials,
    /// Number of the mutation in its session; 0: not to be remembered.
    pub seq: u64,
    /// Mutations up to this number have been answered.
    pub answered: u64,
    /// The caller's incarnation of its session.
    pub incarnation: u64,
    /// The caller has answered the change already.
    pub behind: Option<Behind>,
}

/// A change that the caller has answered already, by his exclusive leases.
#[derive(Clone, Copy)]
pub(crate) struct Behind {
    /// The directories, once or twice the same.
    pub dirs: [Ino; 2],
    /// What the name leads to,
    pub ino: Ino,
    /// and the new one; 0: nothing.
    pub other: Ino,
    /// When it was answered.
    pub at: Timestamp,
}

/// A time that was answered counts if it is no longer ago than this: a client may wait so long for a server;
const BEHIND_SECONDS_MAX: i64 = 150;
/// and no further ahead, as far as it may err.
const AHEAD_MAX: Duration = Duration::from_secs(1);

/// Nobody is leased what has no name any more, and files of which everybody writes his part.
pub(crate) fn is_leasable(attr: &Attributes) -> bool {
    attr.nlink > 0 && attr.consistency() != Consistency::Parallel
}

impl Ctx {
    /// The server's own business on a volume, for nobody.
    pub fn own(core: &Arc<Core>, volume: &Arc<Volume>) -> Self {
        Ctx {
            core: core.clone(),
            volume: volume.clone(),
            settings: volume.settings(),
            session: None,
            leases: 0,
            keeper: None,
            cred: Credentials { checked: true, ..Credentials::root() },
            seq: 0,
            answered: 0,
            incarnation: 0,
            behind: None,
        }
    }

    /// The share of the volume that an inode is in.
    pub fn home(&self, ino: Ino) -> VolumeId {
        self.settings.shares.of(ino)
    }

    /// True if an inode is in this share; another server may change it otherwise.
    pub fn is_here(&self, ino: Ino) -> bool {
        self.home(ino) == self.volume.id
    }

    /// The server's own business within this request.
    pub fn system(&self) -> Self {
        let keeper = self.keeper.clone();
        Ctx { keeper, ..Self::own(&self.core, &self.volume) }
    }

    /// Gives the caller a lease on an inode that is looked at after this. False: it gets none, here.
    pub fn lease(&self, ino: Ino) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| self.lease_to(keeper, ino, false))
    }

    /// The same for somebody; `own`: the inode is in the hands of the caller. Nobody is leased a file of which something is
    /// claimed: who goes by a lease reads without asking. Looked at when the lease is entered: who claims something recalls
    /// it, or is seen here.
    pub fn lease_to(&self, keeper: &Keeper, ino: Ino, own: bool) -> bool {
        let (leases, clock) = (&self.volume.leases, &*self.core.clock);
        let is_claimed = || self.volume.sessions.is_claimed(ino, self.core.monotonic_ms());
        if !self.is_here(ino) || is_claimed() || !leases.enter(keeper, ino, own, clock) {
            return false;
        }
        let claimed = is_claimed();
        if claimed {
            // Not given back: another answer may just have told him that he has it.
            leases.recall_of(&keeper.holder, ino, clock);
        }
        !claimed
    }

    /// Attributes that were read after [`Ctx::lease`] said what it did.
    pub fn leased(&self, attr: Attributes, leased: bool) -> Attributes {
        let leasable = is_leasable(&attr);
        if !leasable {
            self.give_back(Ino(attr.ino));
        }
        Attributes { leased: leased && leasable, ..attr }
    }

    /// What was leased to the caller turns out to be gone: nobody would ever recall it.
    pub fn give_back(&self, ino: Ino) {
        if let Some(keeper) = &self.keeper {
            self.volume.leases.give_back(&keeper.holder, ino);
        }
    }

    /// The session's id; 0: there is none.
    pub fn session_id(&self) -> u64 {
        self.session.as_ref().map_or(0, |session| session.id)
    }

    /// The time to stamp on what is changed: that which the caller has answered, unless it is far off.
    pub fn now(&self) -> Timestamp {
        let now = self.core.now();
        let counts = |at: &Timestamp| {
            *at <= now.plus(AHEAD_MAX) && at.seconds >= now.seconds - BEHIND_SECONDS_MAX
        };
        self.behind.map(|behind| behind.at).filter(counts).unwrap_or(now)
    }

    /// Fails if the caller has answered the change already, and has the exclusive leases no more by which he did. The locks of the
    /// directories are held.
    pub fn check_behind(&self) -> Result<()> {
        let (Some(behind), Some(session)) = (self.behind, &self.session) else { return Ok(()) };
        let has = |dir: &Ino| self.volume.leases.is_exclusive(session.id, *dir);
        let may = session.makes_of_before() || behind.dirs.iter().all(has);
        match may || strake_base::is_broken("names-behind-need-leases") {
            true => Ok(()),
            false => {
                let detail =
                    "others have used the directory since the client has answered this change";
                Err(Error::with(ErrorKind::Stale, detail))
            }
        }
    }

    /// Fails if the caller has answered the change already, of another inode than the one that a name leads to, if to any.
    pub fn check_leads(&self, of: impl FnOnce(&Behind) -> Ino, leads: u64) -> Result<()> {
        match self.behind.as_ref().map(of) {
            Some(ino) if ino.0 != leads => {
                Err(Error::with(ErrorKind::Stale, "the name leads to another inode by now"))
            }
            _ => Ok(()),
        }
    }

    /// The session, which the operation cannot do without.
    pub fn need_session(&self) -> Result<&Arc<Session>> {
        let none = || Error::with(ErrorKind::NoSession, "the operation needs a session");
        self.session.as_ref().ok_or_else(none)
    }

    /// Where the reply is remembered, if it is to be.
    pub fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.session.as_ref().filter(|_| self.seq != 0).map(|session| &session.ledger)
    }

    /// True if the request has opened a file before, which counts in its incarnation of the session: it is sent again.
    pub fn has_opened(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.has_opened(self.incarnation, self.seq))
    }

    /// Fails unless root asks.
    pub fn need_root(&self) -> Result<()> {
        match self.cred.uid {
            0 => Ok(()),
            _ => Err(Error::new(ErrorKind::NotPermitted)),
        }
    }

    /// Fails unless root asks to be told, or the user who runs the server: he can read the whole store.
    pub fn need_reader(&self) -> Result<()> {
        let (owner, _) = self.core.options.root_owner;
        match [0, owner].contains(&self.cred.uid) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotPermitted)),
        }
    }

    /// True if the server has to check permissions itself.
    pub fn checks(&self) -> bool {
        !self.cred.checked
    }

    /// Fails unless the caller has all of `want` on the inode.
    pub fn check(&self, inode: &Inode, want: u8) -> Result<()> {
        match self.checks() {
            true => with_subject(inode, |subject| subject.check(&self.cred, want)),
            false => Ok(()),
        }
    }

    /// Fails unless the caller owns the inode or is root.
    pub fn check_owner(&self, inode: &Inode) -> Result<()> {
        match self.checks() {
            true => with_subject(inode, |subject| subject.check_owner(&self.cred)),
            false => Ok(()),
        }
    }
}

/// Hands what the permission rules look at to `rule`.
pub(crate) fn with_subject<T>(
    inode: &Inode,
    rule: impl FnOnce(&Subject<'_>) -> Result<T>,
) -> Result<T> {
    let acl = match inode.acl_access.is_empty() {
        true => None,
        false => Acl::decode(&inode.acl_access)?,
    };
    rule(&Subject {
        uid: inode.uid,
        gid: inode.gid,
        mode: inode.mode,
        directory: inode.is_dir(),
        acl: acl.as_ref(),
    })
}
