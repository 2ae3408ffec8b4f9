//! Opening a volume by addresses, for programs that have no cluster map yet.

use crate::api::VolumeOptions;
use crate::volume::Volume;
use std::sync::Arc;
use strake_types::Result;
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::map::{ManagerSource, MapView};

impl Volume {
    /// Opens a volume of the cluster whose managers are at `addresses` (`host:port` or
    /// `unix:/path`). The first answer is waited for as long as any operation would be.
    pub async fn connect_to(
        addresses: Vec<String>,
        name: &str,
        options: VolumeOptions,
    ) -> Result<Arc<Volume>> {
        let callers = Callers::new(CallerOptions {
            name: options.client_name.clone(),
            ..CallerOptions::default()
        });
        let source = ManagerSource::Addresses(addresses);
        let map = MapView::connect(callers, source, options.operation_wait_ms).await?;
        Volume::connect(map, name, options).await
    }
}
