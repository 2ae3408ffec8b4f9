//! One file per verb: its flags, and what it does.

pub mod cat;
pub mod cp;
pub mod df;
pub mod doctor;
pub mod down;
pub mod du;
pub mod layout;
pub mod ls;
pub mod mount;
pub mod rm;
pub mod scrub;
pub mod server;
pub mod stat;
pub mod status;
pub mod umount;
pub mod up;
pub mod volume;

use crate::cli::{Cli, Verb};
use crate::failure::Outcome;

/// True for verbs that stay and whose log matters.
pub fn is_long_running(verb: &Verb) -> bool {
    match verb {
        Verb::Server(_) => true,
        Verb::Up(flags) => !flags.detach,
        Verb::Mount(flags) => flags.foreground,
        _ => false,
    }
}

/// Runs a verb; the exit code.
pub async fn run(cli: Cli) -> Outcome<u8> {
    let (cluster, log) = (&cli.cluster, &cli.log);
    let done = match cli.verb {
        Verb::Status(flags) => return status::run(&flags, cluster).await,
        Verb::Doctor(flags) => return doctor::run(&flags, cluster).await,
        Verb::Scrub(flags) => return scrub::run(&flags, cluster).await,
        Verb::Up(flags) => up::run(&flags, log).await,
        Verb::Down(flags) => down::run(&flags).await,
        Verb::Server(flags) => server::run(flags).await,
        Verb::Mount(flags) => mount::run(&flags, cluster, log).await,
        Verb::Umount(flags) => umount::run(&flags),
        Verb::Volume(flags) => volume::run(&flags, cluster).await,
        Verb::Layout(flags) => layout::run(&flags, cluster).await,
        Verb::Cp(flags) => cp::run(&flags, cluster).await,
        Verb::Ls(flags) => ls::run(&flags, cluster).await,
        Verb::Stat(flags) => stat::run(&flags, cluster).await,
        Verb::Cat(flags) => cat::run(&flags, cluster).await,
        Verb::Rm(flags) => rm::run(&flags, cluster).await,
        Verb::Df(flags) => df::run(&flags, cluster).await,
        Verb::Du(flags) => du::run(&flags, cluster).await,
    };
    done.map(|()| 0)
}
