//! What servers say of themselves for people: nothing else follows from it.

use super::Liveness;
use strake_types::limits::RELEASE_CHARS_MAX;

impl Liveness {
    /// A server says of which release it is. True if that is news.
    pub fn hear_release(&mut self, server: u32, release: &str) -> bool {
        let said: Option<String> = Some(release.chars().take(RELEASE_CHARS_MAX).collect());
        let heard = self.servers.get_mut(&server);
        heard.is_some_and(|heard| std::mem::replace(&mut heard.release, said.clone()) != said)
    }

    /// What it said of that last, if it has.
    pub fn release(&self, server: u32) -> Option<&str> {
        self.servers.get(&server)?.release.as_deref()
    }

    /// A server says what the store of its metadata says while it has no room for changes; empty: it has. True if that is news.
    pub fn hear_full(&mut self, server: u32, full: String) -> bool {
        let Some(heard) = self.servers.get_mut(&server).filter(|heard| heard.full != full) else {
            return false;
        };
        match full.is_empty() {
            true => tracing::info!(server, "the store of its metadata has room again"),
            false => tracing::warn!(server, "{full}"),
        }
        heard.full = full;
        true
    }

    /// What it said of that last.
    pub fn full(&self, server: u32) -> &str {
        self.servers.get(&server).map_or("", |heard| &heard.full)
    }
}
