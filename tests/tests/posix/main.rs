//! Every operation of POSIX on a mount of `strake up`, one test each, by the system calls that
//! applications make. docs/SEMANTICS.md cites them by name.

mod contents;
mod locks;
mod names;
mod rights;
mod space;
