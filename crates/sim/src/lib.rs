//! What must hold in a cluster whatever happens, tried out: in every order in which it can happen, and by chance.
//!
//! [`protocol`] is an executable model of replication (docs/design/0040-replication.md): a manager, two or
//! three members of a group, clients, and a network that delays, repeats and loses. From one first state
//! the checker (`stateright`) takes every possible step, and every step after that, until there is no new
//! state within the bounds. In each it holds the promises of the design. What it finds is the shortest
//! sequence of steps that breaks one of them.
//!
//! So that a green run means something, rules of the protocol can be left out one by one
//! ([`protocol::rules::Broken`]); a test demands that the checker notices each.
//!
//! [`cluster`] is a whole cluster in one process, from one seed: the program's own servers and clients over the simulated clock, network
//! and disks of `base` (docs/design/0041-simulation.md). [`broken`] takes rules out of it, one by one, to show that it bites, [`cases`] keeps
//! the seeds that found something, and [`panics`] sees those of its tasks.
//!
//! What this crate never does: let a run depend on real time, or on chance that is not from its seed. The model runs no production
//! code. Nothing depends on this crate.

pub mod broken;
pub mod cases;
pub mod cluster;
pub mod panics;
pub mod protocol;
