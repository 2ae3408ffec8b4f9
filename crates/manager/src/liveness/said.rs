//! What servers say of themselves for people: nothing else follows from it.

use super::Liveness;
use std::time::Duration;
use strake_types::limits::{FULL_CHARS_MAX, RELEASE_CHARS_MAX};

/// For how long a full store is not told any more before the log says that it takes changes: else it fills with both, where the one
/// comes and goes.
const QUIET: Duration = Duration::from_secs(10);

/// What the store of a server's metadata says while it has no room for changes, or takes none any more.
#[derive(Clone, Default)]
pub(super) struct Full {
    /// What was said last; empty: it takes them.
    pub said: String,
    /// When something was last said; `None`: the log says that it takes them.
    at: Option<Duration>,
}

impl Full {
    /// That is said now. Answers what the log has to say: that the store takes no changes, true, or does again.
    fn hear(&mut self, said: String, now: Duration) -> Option<bool> {
        self.said = said;
        if !self.said.is_empty() {
            return self.at.replace(now).is_none().then_some(true);
        }
        self.at.take_if(|at| now.saturating_sub(*at) >= QUIET).map(|_| false)
    }
}

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

    /// A server says what the store of its metadata says while it takes no changes; empty: it does. True if that is news.
    pub fn hear_full(&mut self, server: u32, full: &str, now: Duration) -> bool {
        let Some(heard) = self.servers.get_mut(&server) else { return false };
        let said: String = full.chars().take(FULL_CHARS_MAX).collect();
        let is_news = heard.full.said != said;
        match heard.full.hear(said, now) {
            Some(true) => tracing::warn!(server, "{}", heard.full.said),
            Some(false) => tracing::info!(server, "the store of its metadata takes changes again"),
            None => {}
        }
        is_news
    }

    /// What it said of that last.
    pub fn full(&self, server: u32) -> &str {
        self.servers.get(&server).map_or("", |heard| &heard.full.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each time was a line, and another.
    #[test]
    fn a_store_that_is_full_again_and_again_is_logged_once_until_it_has_had_room_for_a_while() {
        let (mut full, mut now) = (Full::default(), Duration::ZERO);
        let mut hear = |said: &str, later: Duration| {
            now += later;
            full.hear(said.into(), now)
        };
        assert_eq!(hear("", QUIET), None);
        for logged in [Some(true), None, None] {
            assert_eq!(hear("no space left", QUIET / 2), logged);
            assert_eq!(hear("", QUIET / 2), None);
        }
        assert_eq!(hear("", QUIET / 2), Some(false));
        assert_eq!(hear("", QUIET), None);
        assert_eq!(hear("no space left", QUIET), Some(true));
    }
}
