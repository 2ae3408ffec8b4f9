//! What must hold in a cluster whatever happens, tried out in every order in which it can happen.
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
//! What this crate never does: run production code, measure time, or draw a random number. Nothing
//! depends on it.

pub mod broken;
pub mod cases;
pub mod cluster;
pub mod panics;
pub mod protocol;
