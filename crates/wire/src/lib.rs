//! What processes say to each other: messages, frames, transports and typed callers.
//!
//! A request is a small body with numbered fields ([`message`]) and, for data, a raw payload beside
//! it. Servers implement one of the [`service`] traits. In one process a caller holds the service
//! itself and a call is a plain function call: nothing is encoded, no task is woken. (What is not a read of a
//! target has the same limit as elsewhere: its disk may hang.) Between processes the same call travels in a frame
//! over TCP or a Unix socket.
//!
//! ```text
//! caller::Remote* -> connection::Peer -> Lane -> link::Outbox      =>      link::FrameReader -> server
//!                                               link::FrameReader  <=      link::Outbox      <-'
//! ```
//!
//! The hot path wakes as few tasks as it can: a frame is written by whoever sends it if the socket is
//! idle, and a call that the service can answer at once is answered by the task that read it. A
//! payload is written from where it lies and received into a pooled buffer, so this crate never
//! copies it (but for the few KiB that arrive together with a header).
//!
//! What this crate never does: decide anything about files, or send a call again. It knows how to
//! carry, not what for; whether a call that may have been carried out is repeated is for the caller
//! to say.
//!
//! * [`caller`] — the address book: a service by its server, local or remote.
//! * [`map`] — the cluster map, always at hand.
//! * [`member`] — how a server enters the cluster, and tells the manager that it lives.
//! * [`service`], [`message`] — what can be called, and what is said.
//! * [`attempts`] — what makes a change happen once, however often it is sent.
//! * [`capability`] — the right to touch a file's chunks.
//! * [`server`] — accepts connections and gives their calls to services.
//! * [`frame`], [`hello`], [`transport`], [`buffer`] — what a connection is made of; `turn`, when the time of a call begins that waits behind others.
//! * [`waits`] — what operations wait for, as people are told.
//! * [`tls`] — encryption, and who may say what, where a cluster has certificates.

pub mod attempts;
pub mod buffer;
pub mod caller;
pub mod capability;
mod connection;
pub mod frame;
pub mod hello;
pub mod lease;
mod link;
pub mod map;
pub mod member;
pub mod message;
mod options;
pub mod server;
pub mod service;
mod stream;
pub mod tls;
pub mod transport;
mod turn;
pub mod waits;

#[cfg(test)]
mod tests;
