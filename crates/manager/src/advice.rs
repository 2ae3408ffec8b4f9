//! The commands that refusals name: each runs as it is printed, once its words in capitals are filled in.

/// Adds a server with room for contents; MANAGER is where a manager of the cluster is reached.
pub const ADD_SERVER: &str =
    "strake server --listen ADDR --roles storage --join MANAGER --data DIR";
/// Adds a disk to a server that runs.
pub const ADD_DISK: &str = "strake target add SERVER DIR";
