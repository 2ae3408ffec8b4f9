//! What one machine keeps: an ordered transactional map ([`kv`]) and the contents of chunks
//! ([`chunk`]). Neither knows that there is a network, other machines, or file names.

pub mod chunk;
pub mod kv;
