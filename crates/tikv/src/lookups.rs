//! Makes up for an error of the client.
//!
//! Where PD cannot be asked which region has a key, tikv-client 0.4.0 leaves the key out of a prewrite or commit,
//! says nothing, and takes the request for done (`shards` of both requests in its `transaction/requests.rs` makes a
//! stream of an error with `stream::iter(Err(e))`, which is empty). So a transaction may be reported as committed
//! of which a part, or all, has not been written. It does count, though, how often PD could not be asked: a
//! transaction in whose time that happened is believed nothing.

use prometheus::proto::MetricFamily;

/// The client's count of requests to PD that failed, and those among them that matter.
const COUNTER: &str = "pd_failed_request_total";
const LOOKUP: &str = "get_region";

/// How often, up to now and in this process, PD could not be asked which region has a key.
pub fn failed() -> u64 {
    let all = prometheus::gather();
    let family = all.iter().find(|family: &&MetricFamily| family.get_name() == COUNTER);
    let metrics = family.map(MetricFamily::get_metric).unwrap_or_default();
    let is_lookup = |label: &prometheus::proto::LabelPair| label.get_value() == LOOKUP;
    let lookups = metrics.iter().filter(|metric| metric.get_label().iter().any(is_lookup));
    lookups.map(|metric| metric.get_counter().get_value() as u64).sum()
}
