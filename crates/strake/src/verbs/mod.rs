//! One file per verb: its flags, and what it does.

pub mod bench;
pub mod cat;
pub mod cp;
pub mod df;
pub mod doctor;
pub mod down;
pub mod du;
pub mod fsck;
pub mod job;
pub mod layout;
pub mod ls;
pub mod mount;
pub mod rebalance;
pub mod rm;
pub mod scrub;
pub mod server;
pub mod servers;
pub mod stat;
pub mod status;
pub mod target;
pub mod testbed;
pub mod tls;
pub mod umount;
pub mod up;
pub mod volume;
pub mod why;
