//! Who does the work: threads, processes, other hosts.

use crate::failure::{Context, Failure, Outcome};
use crate::release::RELEASE;
use clap::Args;
use std::io::{BufReader, stdin, stdout};
use std::path::Path;
use strake_bench::crew::{self, Crew, Location, Processes};
use strake_bench::place;
use strake_bench::plan::Plan;

/// How many do the work, where, and from which caches.
#[derive(Args, Debug)]
pub struct CrewFlags {
    /// Throughput mode: so many threads at once [default: 1, or one on each client]
    #[arg(short = 't', long, value_name = "THREADS")]
    pub threads: Option<usize>,

    #[command(flatten)]
    pub clients: ClientFlags,

    /// Empty all caches of this machine, and of all clients, before what reads (needs root)
    #[arg(long)]
    pub cold: bool,
}

/// Where the work is done.
#[derive(Args, Debug)]
pub struct ClientFlags {
    /// As processes instead of threads
    #[arg(long)]
    processes: bool,

    /// Work on these hosts, by ssh, or in network namespaces (netns:NAME), all started together; they
    /// have the directory under the same path, or under DIR
    #[arg(long, value_name = "HOST[=DIR],...", value_delimiter = ',')]
    clients: Vec<String>,
}

impl CrewFlags {
    /// How many work at once.
    pub fn workers(&self) -> usize {
        self.threads.unwrap_or(self.clients.hosts())
    }
}

impl ClientFlags {
    /// On how many hosts they are.
    pub fn hosts(&self) -> usize {
        self.clients.len().max(1)
    }

    /// Who they are. Where hosts have the directory under another path, there is one directory only.
    /// What uses mappings is done in processes: a bad page ends one of them, and not the run.
    pub fn crew(&self, on: &[String], plan: &mut Plan) -> Outcome<Crew> {
        let clients = self.clients.iter().map(|text| Location::parse(text));
        let clients: Vec<_> = clients.collect::<Result<_, _>>()?;
        if clients.is_empty() && !self.processes && !plan.uses_mappings() {
            return Ok(Crew::Threads);
        }
        let sides = place::sides(on)?;
        if sides.len() > 1 && clients.iter().any(|client| client.directory.is_some()) {
            return Err(Failure::usage("clients with directories of their own, and several --on")
                .next("measure one directory at a time"));
        }
        if clients.len() > 1 {
            for cell in &mut plan.cells {
                cell.parameters.insert("clients".to_owned(), clients.len() as f64);
            }
        }
        let measured = sides.first().map_or("", |side| &side.directory);
        let locations = if clients.is_empty() { vec![Location::here()] } else { clients };
        Ok(Crew::Processes(Processes::new(locations, Path::new(measured), RELEASE)?))
    }
}

/// Does the jobs that a run sends.
pub async fn worker() -> Outcome<u8> {
    let serve = || crew::serve(BufReader::new(stdin()), stdout(), RELEASE);
    tokio::task::spawn_blocking(serve).await.context(|| "working".into())??;
    Ok(0)
}
