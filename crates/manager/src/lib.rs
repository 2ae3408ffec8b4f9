//! Membership: the role that knows who belongs to the cluster, and which volumes there are.
//!
//! A server says [`Join`](strake_wire::message::manager::Join) when it starts, with the targets it
//! brings, and is told who it is; then it sends a heartbeat every half second. A server that has been silent for the lease
//! is shown as down. Everybody fetches the cluster map; it has an epoch that grows with every change.
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
//! The manager never talks to a server by itself, holds no file's name and no chunk's place, and is
//! not needed for reading and writing: clients go on with the last map they have.

mod forms;
mod groups;
mod join;
mod liveness;
mod records;
mod service;
mod state;
mod volumes;

pub use forms::FORMS;
pub use service::{Manager, ManagerOptions};
