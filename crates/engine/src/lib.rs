//! What one machine keeps: an ordered transactional map ([`kv`]) and the contents of chunks
//! ([`chunk`]). Neither knows of other machines or file names; only the map's engines on a database
//! ([`kv::open_database`]) have a network, and all that they say there is SQL, or etcd's own protocol.
//!
//! Both answer when what they were given survives the death of the process, and sync when it is to
//! survive the loss of power. Both refuse every write after the first error that leaves them in
//! doubt about their disk, and say so when what they find there is damaged.
//!
//! What this crate never does: talk to another machine of ours, or decide what a key or a chunk means.

pub mod chunk;
pub mod kv;
mod reserve;
#[cfg(test)]
mod tests;
