//! The command line: one definition per flag, from which parsing and help come.

use crate::cluster::ClusterFlags;
use crate::detach;
use crate::failure::{BROKEN, FAILED, Outcome};
use crate::log::LogFlags;
use crate::output;
use crate::release::RELEASE;
use crate::verbs;
use clap::{Parser, Subcommand};

/// A parallel file system: one file striped over many storage servers, mounted like any other.
///
/// The shortest way in:  strake up --detach; ls ./mnt; strake down
#[derive(Parser, Debug)]
#[command(name = "strake", version = RELEASE, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,

    /// How much is logged.
    #[command(flatten)]
    pub log: LogFlags,

    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run a whole file system on this machine and mount it: all roles in one process
    Up(verbs::up::UpFlags),
    /// Unmount and stop what `strake up` started
    Down(verbs::down::DownFlags),
    /// Run a server of a cluster: manager, metadata, storage, or several of them; list, drain and remove servers
    Server(verbs::server::ServerFlags),
    /// Mount a volume
    Mount(verbs::mount::MountFlags),
    /// Unmount a volume
    #[command(alias = "unmount")]
    Umount(verbs::umount::UmountFlags),
    /// Make, list, show, change and delete volumes
    Volume(verbs::volume::VolumeFlags),
    /// Show and set where files lie
    Layout(verbs::layout::LayoutVerbFlags),
    /// Move the metadata of a server to another engine, while it is stopped
    Meta(verbs::meta::MetaFlags),
    /// List, add, replace and remove the disks of the cluster
    Target(verbs::target::TargetFlags),
    /// Move data so that all targets hold about as much
    Rebalance(verbs::rebalance::RebalanceFlags),
    /// Show, follow, slow and end what moves or heals in the background
    Job(verbs::job::JobFlags),
    /// List the clients of volumes, and end those that hold what others need
    Client(verbs::client::ClientFlags),
    /// Show on one screen how the cluster is; exit code 0 fine, 1 degraded, 2 broken
    Status(verbs::status::StatusFlags),
    /// Look for what is wrong, phase by phase, and name the command that mends it
    Doctor(verbs::doctor::DoctorFlags),
    /// Say where a file's copies are, in what state, who uses it, and why it is degraded or slow
    Why(verbs::why::WhyFlags),
    /// Verify the checksums of everything that targets hold
    Scrub(verbs::scrub::ScrubFlags),
    /// Check that volumes fit together while they are in use, names and chunks, and mend them
    Fsck(verbs::fsck::FsckFlags),
    /// Copy files between this machine and volumes, with many streams and no mount
    Cp(verbs::cp::CpFlags),
    /// List a directory of a volume, without a mount
    Ls(verbs::ls::LsFlags),
    /// Show everything about a file of a volume
    Stat(verbs::stat::StatFlags),
    /// Write files of a volume to standard output
    Cat(verbs::cat::CatFlags),
    /// Remove files of a volume, without a mount
    Rm(verbs::rm::RmFlags),
    /// Show what volumes hold, and the room of targets
    Df(verbs::df::DfFlags),
    /// Make a certificate authority for a cluster, and certificates for servers and clients
    Tls(verbs::tls::TlsVerbFlags),
    /// Sum up what directories of a volume occupy
    Du(verbs::du::DuFlags),
    /// Measure mounted directories, side by side
    Bench(verbs::bench::BenchFlags),
    /// Say what memory, disks and network so many files, clients and servers take
    Plan(verbs::plan::PlanVerbFlags),
    /// Make a network of hosts on this machine, with slow links and disks, to measure in
    Testbed(verbs::testbed::TestbedFlags),
}

impl Verb {
    /// The exit code where the verb cannot tell what it is asked for. Of those whose exit code says how something is, 1 says
    /// that it is not so bad, or mended.
    fn failure_code(&self) -> u8 {
        match self {
            Self::Status(_) | Self::Doctor(_) | Self::Why(_) => BROKEN,
            Self::Testbed(flags) if flags.judges() => BROKEN,
            Self::Fsck(_) => verbs::fsck::FAILED,
            _ => FAILED,
        }
    }
}

impl Cli {
    /// True for verbs that stay, here or in the background, and whose log matters.
    pub fn is_long_running(&self) -> bool {
        match &self.verb {
            Verb::Server(flags) => flags.verb.is_none(),
            Verb::Up(flags) => !flags.detach || detach::is_marked(),
            Verb::Mount(flags) => flags.foreground || detach::is_marked(),
            _ => false,
        }
    }

    /// How much is logged: as the flag says, or else the file of a server.
    pub fn log_level(&self) -> Option<String> {
        let filed = || match &self.verb {
            Verb::Server(flags) => verbs::server::filed_log_level(flags),
            _ => None,
        };
        self.log.log_level.clone().or_else(filed)
    }

    /// Runs the verb; the exit code.
    pub async fn run(self) -> Outcome<u8> {
        use verbs::*;
        output::failures_end_with(self.verb.failure_code());
        let (cluster, log) = (&self.cluster, &self.log);
        let done = match self.verb {
            Verb::Status(flags) => return status::run(&flags, cluster).await,
            Verb::Doctor(flags) => return doctor::run(&flags, cluster).await,
            Verb::Why(flags) => return why::run(&flags, cluster).await,
            Verb::Fsck(flags) => return fsck::run(&flags, cluster).await,
            Verb::Meta(flags) => return meta::run(flags).await,
            Verb::Target(flags) => return target::run(&flags, cluster).await,
            Verb::Rebalance(flags) => return rebalance::run(&flags, cluster).await,
            Verb::Job(flags) => return job::run(&flags, cluster).await,
            Verb::Scrub(flags) => return scrub::run(&flags, cluster).await,
            Verb::Layout(flags) => return layout::run(&flags, cluster).await,
            Verb::Cp(flags) => return cp::run(&flags, cluster).await,
            Verb::Bench(flags) => return bench::run(flags).await,
            Verb::Plan(flags) => return plan::run(&flags),
            Verb::Testbed(flags) => return testbed::run(flags).await,
            Verb::Up(flags) => up::run(&flags, &cluster.tls, log).await,
            Verb::Down(flags) => down::run(&flags).await,
            Verb::Server(flags) => match &flags.verb {
                Some(verb) => {
                    server::check_alone(&flags)?;
                    return servers::run(verb, cluster).await;
                }
                None => server::run(flags, &cluster.tls).await,
            },
            Verb::Client(flags) => client::run(&flags, cluster).await,
            Verb::Mount(flags) => mount::run(&flags, cluster, log).await,
            Verb::Umount(flags) => umount::run(&flags),
            Verb::Volume(flags) => volume::run(&flags, cluster).await,
            Verb::Tls(flags) => tls::run(&flags),
            Verb::Ls(flags) => ls::run(&flags, cluster).await,
            Verb::Stat(flags) => stat::run(&flags, cluster).await,
            Verb::Cat(flags) => cat::run(&flags, cluster).await,
            Verb::Rm(flags) => rm::run(&flags, cluster).await,
            Verb::Df(flags) => df::run(&flags, cluster).await,
            Verb::Du(flags) => du::run(&flags, cluster).await,
        };
        done.map(|()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// That the file was lost by which it tries a target that was full was logged as if it were somebody's.
    #[test]
    fn doctor_logs_nothing_of_the_file_by_which_it_tries_targets() {
        let level = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            cli.log_level().or_else(|| Some(log::usual(cli.is_long_running()).to_owned()))
        };
        assert!(level("strake doctor").unwrap().contains("strake_client::file::flush=off"));
        assert_eq!(level("strake doctor --log-level debug").unwrap(), "debug");
    }

    /// `strake fsck` with nowhere to write said that all was mended, and `strake status` that nothing was broken.
    #[test]
    fn what_cannot_be_told_ends_with_no_code_that_says_something_else() {
        let code = |line: &str| Cli::try_parse_from(line.split(' ')).unwrap().verb.failure_code();
        for (line, wanted) in [
            ("strake fsck", 8),
            ("strake status", 2),
            ("strake doctor", 2),
            ("strake why f", 2),
            ("strake testbed status", 2),
            ("strake testbed env", 1),
            ("strake cat f", 1),
            ("strake bench compare a b", 1),
        ] {
            assert_eq!(code(line), wanted, "{line}");
        }
    }

    #[test]
    fn every_flag_has_a_help_text() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                let id = argument.get_id();
                let hidden = argument.is_hide_set() || id == "help" || id == "version";
                assert!(hidden || argument.get_help().is_some(), "{} {id}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
