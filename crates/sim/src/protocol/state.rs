//! What the manager, the members, the clients and the network between them hold.

use super::history::{History, Pending};
use super::ids::{CLIENTS, EPOCHS, Epoch, MEMBERS, Members, Number, Seq, Value};
use super::rules::{Broken, Rules};

/// Forwards that may be under way at once.
const FORWARDS: usize = 12;

/// The group in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Group {
    /// Members that have every acknowledged write.
    pub in_sync: Members,
    /// Which of them is the primary. Who takes over keeps the lead when the one before it is back.
    pub lead: u8,
    /// Whether this epoch began because the primary was taken out.
    pub failed_over: bool,
    /// Members that receive every write and serve nothing.
    pub joining: Members,
    /// The epoch of the last refounding, 0 without one. Writes begun before it are refused.
    pub founded: Epoch,
    /// How many times acknowledged writes that were not synced may have been lost.
    pub losses: u8,
}

impl Group {
    /// Who orders writes.
    pub fn primary(&self) -> Option<usize> {
        Some(usize::from(self.lead)).filter(|&lead| self.in_sync.has(lead))
    }

    /// Who may be the primary when this member is not in sync any more: the one that is, or any of the
    /// others where that is this one. Which one the real manager takes depends on its list alone, so that
    /// no member is like another; here any may be the next.
    pub fn leaders_without(&self, member: usize) -> Members {
        match self.primary() {
            Some(lead) if lead != member => Members::only(lead),
            _ => self.in_sync.without(member),
        }
    }
}

/// The truth about the group, and the manager that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Manager {
    /// The newest epoch.
    pub epoch: Epoch,
    /// The group in each epoch; those that nobody can be in any more are forgotten.
    pub groups: [Group; EPOCHS],
    /// Members that the primary of the newest epoch has reported as equal.
    pub reports: Members,
    /// The member on whose server it runs, or a server without one.
    pub at: u8,
    /// How many others led before it.
    pub followed: u8,
    /// Whether those that follow are told that there are long leases.
    pub says_long: bool,
    /// Members of whose leases it believes that they have ended with the leads of their managers,
    pub ended: Members,
    /// and those of which it says so to those that follow.
    pub says_ended: Members,
}

/// A member's lease from a manager, by what the next manager has to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum Lease {
    /// None, or one that is over.
    #[default]
    No,
    /// As any manager gives: the next one waits for it without being told.
    Short,
    /// A longer one: the next manager waits for it if it was told.
    Long,
    /// What the manager that leads allows its own server: nobody who follows waits for it.
    Led,
}

/// What a member has of the range, and which request of each client it has carried out last. The two
/// are copied together or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Contents {
    /// The bytes.
    pub value: Value,
    /// The last request of each client, 0 for none.
    pub done: [Seq; CLIENTS],
}

/// A write by its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mark {
    /// The epoch in which it was forwarded.
    pub epoch: Epoch,
    /// Its number there.
    pub number: Number,
}

/// What a primary has under way in the range. There is one at most: it has the range for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A client's write.
    Write {
        /// Whose.
        client: u8,
        /// Which.
        seq: Seq,
    },
    /// A new primary writes its own contents over a range that was unsettled.
    Recovery,
    /// A joining member is made equal.
    Resync,
}

/// Something under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op {
    /// What it is.
    pub kind: Kind,
    /// Its number.
    pub number: Number,
    /// Who has to apply it and is not in sync: joining members that have not failed.
    pub to: Members,
    /// Members that have applied it.
    pub replied: Members,
}

/// A sync under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sync {
    /// Whose.
    pub client: u8,
    /// Members that have everything on disk.
    pub replied: Members,
}

/// What a member knows as primary of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Primary {
    /// Whether recovery is over, so that it serves.
    pub ready: bool,
    /// Members that were told the epoch, and asked what they have unsettled.
    pub asked: Members,
    /// Whether somebody had something unsettled.
    pub dirty: bool,
    /// The last number given.
    pub number: Number,
    /// What is under way.
    pub op: Option<Op>,
    /// The sync under way.
    pub sync: Option<Sync>,
    /// Joining members that are equal.
    pub copied: Members,
    /// Joining members that were reported, and count as in sync since.
    pub reported: Members,
    /// Joining members that did not apply something, so that they cannot become equal in this epoch.
    pub failed: Members,
}

/// One member: a target and the server process that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Member {
    /// Whether the process runs and has joined.
    pub alive: bool,
    /// Whether power was lost since the last Join.
    pub rebooted: bool,
    /// The epoch it acts in.
    pub epoch: Epoch,
    /// What it has applied.
    pub contents: Contents,
    /// What is on its disk for certain.
    pub disk: Value,
    /// The last write that it does not know to be applied everywhere.
    pub unsettled: Option<Mark>,
    /// Bit `number`: applied in this epoch.
    pub applied: u32,
    /// Its lease from the manager.
    pub lease: Lease,
    /// Its lease from the promises of the other in-sync members runs.
    pub promised: bool,
    /// Whom it has promised not to act without.
    pub promises: Members,
    /// What it knows as primary.
    pub primary: Primary,
}

/// Where a client is with its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum Phase {
    /// It has none under way.
    #[default]
    Idle,
    /// It sends its write, again and again, to everybody it may take for the primary.
    Writing,
    /// An answer is under way to it.
    Answered,
}

/// A request that was answered, and of which copies are still under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Late {
    /// Its number.
    pub seq: Seq,
    /// What it writes.
    pub value: Value,
    /// The epoch that the client knew when it began.
    pub began: Epoch,
    /// The last epoch for which the client may have sent it.
    pub until: Epoch,
}

/// One client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Client {
    /// Where it is.
    pub phase: Phase,
    /// How many writes it has begun.
    pub begun: u8,
    /// The number of its last request.
    pub seq: Seq,
    /// What its last write writes.
    pub value: Value,
    /// The epoch that it knew when it began.
    pub began: Epoch,
    /// Bit `value`: was answered before its last write began.
    pub before: u8,
    /// Whether it has acknowledged writes that are not synced.
    pub unsynced: bool,
    /// The group's losses when the oldest of these was acknowledged.
    pub losses: u8,
    /// Copies of an earlier request that are still under way.
    pub late: Option<Late>,
}

/// A message from a primary to the members. Once sent it is under way for ever: it may arrive late,
/// twice, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Forward {
    /// The epoch of the primary.
    pub epoch: Epoch,
    /// The number of the write.
    pub number: Number,
    /// What it is.
    pub kind: Kind,
    /// Whom it is sent to.
    pub to: Members,
    /// What the primary has after it.
    pub contents: Contents,
}

/// Everything that is under way between servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    /// In ascending order.
    pub forwards: [Option<Forward>; FORWARDS],
    /// For each epoch the last `settled up to` that was sent.
    pub settled: [Number; EPOCHS],
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The manager.
    pub manager: Manager,
    /// The members; those beyond the bound stay as they are.
    pub members: [Member; MEMBERS],
    /// The clients.
    pub clients: [Client; CLIENTS],
    /// The network.
    pub network: Network,
    /// What clients have seen.
    pub history: History,
    /// Stops that may still happen.
    pub crashes: u8,
    /// Losses of power that may still happen.
    pub power_losses: u8,
}

impl State {
    /// All members are alive and equal, and nobody has a lease yet.
    pub fn new(rules: &Rules) -> Self {
        let mut group = Group { in_sync: Members::first_of(rules.members), ..Group::default() };
        if let Some(joining) = rules.joining {
            group.in_sync = group.in_sync.without(joining);
            group.joining = Members::only(joining);
        }
        group.lead = group.in_sync.iter().next().unwrap_or_default() as u8;
        let mut groups = [Group::default(); EPOCHS];
        groups[1] = group;
        let mut members = [Member::default(); MEMBERS];
        for (at, member) in members.iter_mut().enumerate().take(rules.members) {
            (member.alive, member.epoch) = (true, 1);
            member.primary.ready = group.primary() == Some(at);
        }
        Self {
            manager: Manager {
                epoch: 1,
                groups,
                reports: Members::default(),
                at: 0,
                followed: 0,
                says_long: false,
                ended: Members::default(),
                says_ended: Members::default(),
            },
            members,
            clients: [Client::default(); CLIENTS],
            network: Network { forwards: [None; FORWARDS], settled: [0; EPOCHS] },
            history: History::default(),
            crashes: rules.crashes,
            power_losses: rules.power_losses,
        }
    }

    /// The group in an epoch.
    pub fn group(&self, epoch: Epoch) -> &Group {
        &self.manager.groups[usize::from(epoch)]
    }

    /// The group in the newest epoch.
    pub fn newest(&self) -> &Group {
        self.group(self.manager.epoch)
    }

    /// Whether this member is alive and the primary of the epoch it acts in.
    pub fn leads(&self, member: usize) -> bool {
        let acting = &self.members[member];
        acting.alive && acting.epoch > 0 && self.group(acting.epoch).primary() == Some(member)
    }

    /// Who has to have what this primary acknowledges.
    pub fn counted(&self, rules: &Rules, primary: usize) -> Members {
        let acting = &self.members[primary];
        let in_sync = self.group(acting.epoch).in_sync;
        if rules.without(Broken::ReportedCounts) {
            return in_sync;
        }
        in_sync.or(acting.primary.reported)
    }

    /// The writes that have no answer yet.
    pub fn pending(&self) -> Pending {
        self.clients.map(|client| (client.phase != Phase::Idle).then_some(client.value))
    }

    /// A lease by promises is over: first for who holds it, then for those who gave it.
    pub fn end_promised(&mut self, member: usize) -> Option<()> {
        if !self.members[member].promised {
            return None;
        }
        self.members[member].promised = false;
        for other in &mut self.members {
            other.promises = other.promises.without(member);
        }
        Some(())
    }

    /// Those of a member's promises are over that it has given to others than these.
    pub fn end_promises(&mut self, member: usize, but: Members) {
        for asker in self.members[member].promises.minus(but).iter() {
            self.end_promised(asker);
        }
    }

    /// Puts a forward on its way.
    pub fn send(&mut self, forward: Forward) {
        let slots = &mut self.network.forwards;
        // None sorts first, so a free place is at the front.
        assert!(slots[0].is_none(), "more forwards under way than the model has places for");
        slots[0] = Some(forward);
        slots.sort_unstable();
    }

    /// Forgets what cannot matter any more, so that states that differ in nothing else are one.
    pub fn forget(&mut self, rules: &Rules) {
        let oldest = self.oldest_epoch();
        for epoch in 0..usize::from(oldest) {
            self.manager.groups[epoch] = Group::default();
            self.network.settled[epoch] = 0;
        }
        for client in &mut self.clients {
            client.late = client.late.filter(|late| late.until >= oldest);
        }
        if !rules.without(Broken::EpochCheck) {
            self.forget_forwards(rules);
        }
        self.forget_numbers();
    }

    /// The oldest epoch that anybody acts in, or will.
    fn oldest_epoch(&self) -> Epoch {
        let acting = self.members.iter().filter(|m| m.alive && m.epoch > 0).map(|m| m.epoch);
        acting.min().unwrap_or(self.manager.epoch).min(self.manager.epoch)
    }

    fn forget_forwards(&mut self, rules: &Rules) {
        let members = self.members;
        let newest = self.manager.epoch;
        let may_apply = |forward: &Forward| {
            forward.to.iter().any(|to| {
                let member = &members[to];
                let numbered =
                    !(rules.without(Broken::CopiesNumbered) && forward.kind == Kind::Resync);
                let applied = numbered
                    && member.epoch == forward.epoch
                    && member.applied & (1 << forward.number) != 0;
                // The Join of a member that has stopped makes a new epoch.
                let returns = member.alive || rules.without(Broken::JoinOfJoining);
                let epoch = if member.alive && member.epoch > 0 { member.epoch } else { newest };
                returns && epoch <= forward.epoch && !applied
            })
        };
        for slot in &mut self.network.forwards {
            *slot = slot.filter(may_apply);
        }
        self.network.forwards.sort_unstable();
        for member in &mut self.members {
            let under_way = self.network.forwards.iter().flatten();
            let of_epoch = under_way.filter(|forward| forward.epoch == member.epoch);
            member.applied &= of_epoch.map(|forward| 1 << forward.number).sum::<u32>();
        }
    }

    /// Numbers of an epoch begin anew when nobody remembers any.
    fn forget_numbers(&mut self) {
        for epoch in 1..=self.manager.epoch {
            let under_way = self.network.forwards.iter().flatten().any(|f| f.epoch == epoch);
            let marked =
                self.members.iter().any(|m| m.unsettled.is_some_and(|mark| mark.epoch == epoch));
            let leads = |m: &&mut Member| m.alive && m.epoch == epoch;
            let busy = self.members.iter_mut().filter(leads).any(|m| m.primary.op.is_some());
            if under_way || marked || busy {
                continue;
            }
            self.network.settled[usize::from(epoch)] = 0;
            for member in self.members.iter_mut().filter(leads) {
                member.primary.number = 0;
            }
        }
    }
}
