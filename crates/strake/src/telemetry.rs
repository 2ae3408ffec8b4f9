//! Counters and histograms for Prometheus, over HTTP.

mod patience;

use crate::failure::{Context, Failure, Outcome};
use crate::release::{COMMIT, VERSION};
use axum::Router;
use axum::routing::get;
use metrics::{describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use patience::Patience;
use std::io::{Error, ErrorKind};
use std::time::Duration;

/// Upper bounds of the latency histograms, seconds: from a call within the process to a wait for a
/// server that is restarting.
const SECONDS_BUCKETS: &[f64] = &[
    0.000_005, 0.000_02, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// Upper bounds of the size histograms, bytes.
const BYTES_BUCKETS: &[f64] =
    &[512.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];
/// How often histograms are folded, so that they do not grow between two scrapes.
const UPKEEP_SECONDS: u64 = 5;

/// Starts counting and serves the counts at `http://ADDRESS/metrics`. Returns the address with its port.
pub async fn serve(address: &str) -> Outcome<String> {
    let listener =
        tokio::net::TcpListener::bind(address).await.map_err(|e| refused(address, &e))?;
    let bound = listener.local_addr().context(|| format!("--metrics {address}"))?;
    let handle = install()?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(UPKEEP_SECONDS)).await;
            upkeep.run_upkeep();
        }
    });
    let render = move || {
        let text = handle.render();
        let head = [("content-type", "text/plain; version=0.0.4"), ("connection", "close")];
        async move { (head, text) }
    };
    let router = Router::new().route("/metrics", get(render));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(Patience::new(listener), router).await {
            tracing::warn!("metrics are no longer served: {error}");
        }
    });
    tracing::info!("metrics at http://{bound}/metrics");
    Ok(bound.to_string())
}

/// Why nothing is served there, and what is better.
fn refused(address: &str, error: &Error) -> Failure {
    let next = match error.kind() {
        ErrorKind::AddrInUse => {
            "choose a free port (ss -ltnp shows who has it), or leave --metrics out"
        }
        ErrorKind::AddrNotAvailable => {
            "give one of this machine's addresses (ip address shows them)"
        }
        ErrorKind::PermissionDenied => "choose a port above 1023",
        _ => "write it as HOST:PORT, for example 127.0.0.1:9441",
    };
    Failure::new(format!("--metrics {address}: {error}")).next(next)
}

fn install() -> Outcome<PrometheusHandle> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS_BUCKETS)
        .and_then(|b| b.set_buckets_for_metric(Matcher::Suffix("_bytes".into()), BYTES_BUCKETS))
        .context(|| "metrics".into())?;
    let handle = builder.install_recorder().context(|| "metrics".into())?;
    describe();
    gauge!("strake_build_info", "version" => VERSION, "commit" => COMMIT).set(1.0);
    Ok(handle)
}

/// Texts for the metrics page, of what this program counts itself.
fn describe() {
    describe_gauge!("strake_build_info", "Always 1: its labels say what runs.");
    describe_counter!("strake_log_lines_lost_total", "Lines of the log that could not be written.");
    describe_gauge!(
        "strake_storage_scrub_ended_seconds",
        "When all of a target was verified last, in seconds since 1970."
    );
    describe_gauge!(
        "strake_tls_certificate_expires_seconds",
        "When the own certificate expires, in seconds since 1970."
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is no address was told to choose a free port.
    #[tokio::test]
    async fn what_is_no_address_for_metrics_is_told_how_one_is_written() {
        let failure = serve("foo").await.unwrap_err();
        assert!(failure.cause.contains("--metrics foo"), "{failure}");
        assert!(failure.next.unwrap().contains("HOST:PORT"));
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let failure = serve(&taken.local_addr().unwrap().to_string()).await.unwrap_err();
        assert!(failure.next.unwrap().contains("free port"));
    }
}
