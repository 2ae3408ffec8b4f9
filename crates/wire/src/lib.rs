//! What processes say to each other: messages, frames, transports and typed callers.
//!
//! A request is a small body with numbered fields ([`message`]) and, for data, a raw payload beside
//! it. Servers implement one of the [`service`] traits. In one process a caller holds the service
//! itself and a call is a plain function call: nothing is encoded, no task is woken. Between
//! processes the same call travels in a frame over TCP or a Unix socket.
//!
//! What this crate never does: decide anything about files. It knows how to carry, not what for.

pub mod buffer;
pub mod caller;
pub mod capability;
mod connection;
pub mod frame;
pub mod hello;
mod link;
pub mod map;
pub mod message;
pub mod server;
pub mod service;
pub mod transport;

#[cfg(test)]
mod testing;
