//! Contents: the role that answers for the chunks on a server's targets.
