//! Membership: the role that knows who belongs to the cluster, and which volumes there are.
//!
//! A server says [`Join`](strake_wire::message::manager::Join) when it starts, with the targets it
//! brings, and is told who it is; then it sends a heartbeat five times a second. A server that has been silent for the lease
//! is shown as down. Everybody fetches the cluster map; it has an epoch that grows with every change. Who follows it
//! is sent what differs from the one that it has ([`shown`]).
//!
//! An operation reads: take the lock, copy the [`state`], decide on the copy with plain functions
//! ([`join`], [`volumes`]), write the difference to the store in one transaction, put the copy in
//! place. So what is shown was stored before, and an operation that fails changes nothing. What is
//! only true now (who was heard from, how full a target is) is never stored ([`liveness`]).
//!
//! The manager also says which members of groups of several copies are in sync ([`groups`]). It takes
//! out a member when its server's lease is over or the server says so, lets it join when it is back,
//! and counts it in when the group's primary reports that it is equal. [`Manager::keep_watch`] does
//! so although nobody asks.
//!
//! Members move from target to target by [`jobs`], of which each is a list of items, one group's part
//! each; [`plan`] says which ([`late`]: by a plan that the cluster has outrun), [`turns`] when, and [`loss`] what becomes
//! of a group of which nobody has everything any more. A job is a record like others, so it goes on when the manager returns. A
//! heal is one, too. How far primaries are comes with heartbeats, and their answers say how fast they may
//! go ([`show::Orders`]). Jobs that verify what targets hold are done by the targets' servers ([`scrubs`]),
//! those that give files another number of copies by the metadata servers of their volume ([`recopies`]). Of those that
//! have ended the last are remembered ([`ended`]).
//!
//! Volumes whose names are in a database are served by any of the servers on it, and get another one when theirs is
//! gone ([`owners`]).
//!
//! A cluster on a database may have several managers, of which one leads ([`candidate`]) and says how long the leases
//! are that it gives ([`beats`]).
//!
//! * `service` — the operations, `records` — what is stored of the state; `forms` — the same, for those who test decoders.
//! * `fences` — which sessions are over; `requests` — what jobs are asked to be about, and what of that is refused; `steer` — what
//!   people do to those under way; `advice` — the commands that refusals name.
//! * `missed` — members that do not take what their primaries send them. Where two servers do not reach each other one of them is
//!   asked to leave groups of both.
//!
//! The manager looks back, too, whether the servers that it hears are reached at their addresses: one that nobody reaches would
//! be waited for without end, so it counts as silent where others go on without it.
//!
//! The manager asks a server nothing but whether it is there, holds no file's name and no chunk's place, and is
//! not needed for reading and writing: clients go on with the last map they have.

mod advice;
mod beats;
mod candidate;
mod ended;
mod fences;
mod forms;
mod groups;
mod jobs;
mod join;
mod late;
mod liveness;
mod loss;
mod missed;
mod options;
mod owners;
mod plan;
mod recopies;
mod records;
mod requests;
mod scrubs;
mod service;
mod show;
mod shown;
mod state;
mod steer;
#[cfg(test)]
mod testing;
mod turns;
mod volumes;

pub use advice::{ADD_DISK, ADD_SERVER};
pub use candidate::{Candidate, Candidature};
pub use forms::FORMS;
pub use options::{ManagerOptions, Ways};
pub use service::Manager;
pub use state::volumes_of_shares;
pub use volumes::check_new_volume;
