//! The contract on every engine, and the embedded ones under crashes, faults and damage.

#[macro_use]
pub mod suite;

mod conformance;
mod crash;
mod damage;
mod etcd;
mod faults;
mod format;
#[path = "../../../../tests/src/guard.rs"]
mod guard;
pub mod postgres;
pub mod power;
mod proxy;
mod reached;
mod workload;
