//! What was done to a file here, and the metadata server is still to be told of.

use strake_types::Timestamp;
use strake_wire::message::common::Time;

/// Times of the last write to a file here, or set after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// When the contents were last written.
    written: Timestamp,
    /// The same, or what somebody has set after that.
    pub(crate) mtime: Timestamp,
    /// When it was changed last.
    pub(crate) ctime: Timestamp,
    /// When it was last read, if somebody has set that.
    pub(crate) atime: Option<Timestamp>,
}

impl Times {
    /// What is told before what is written there has arrived: when that was, by a nanosecond less. A time of modification that somebody
    /// has set is told after that: who compares it takes a file that bears it for a whole copy.
    pub(super) fn before(self) -> Self {
        let written = self.written.before();
        Self { mtime: written, ctime: written, ..self }
    }

    /// What somebody has set of them `now`. Of a file that is known to have changed `before` that shows, also where the clock of this machine
    /// is behind.
    pub(super) fn set(
        self,
        [mtime, atime]: [Option<Timestamp>; 2],
        before: Timestamp,
        now: Timestamp,
    ) -> Self {
        let ctime = now.max(self.ctime).max(before.after());
        Self { mtime: mtime.unwrap_or(self.mtime), ctime, atime: atime.or(self.atime), ..self }
    }

    /// True if the time of modification is one that somebody has set.
    pub(super) fn are_set(self) -> bool {
        self.mtime != self.written
    }

    /// As the metadata server is told: `mtime`, `ctime` where that is another one, and `atime`.
    pub(super) fn told(self) -> [Option<Time>; 3] {
        let ctime = Some(self.ctime).filter(|ctime| *ctime != self.mtime);
        [Some(self.mtime), ctime, self.atime].map(|time| time.map(Into::into))
    }
}

/// What the metadata server has not been told yet.
#[derive(Default)]
pub(crate) struct Unpublished {
    /// Of what was written, or set after that, if they are unpublished.
    pub(crate) times: Option<Times>,
    /// Bytes written where there were none.
    pub(crate) occupied: i64,
    /// Setuid and setgid are to be taken back, and what a program may do beyond who runs it.
    pub(crate) drop_setid: bool,
    /// End of the last byte that a target has acknowledged since it was begun to tell the server of such.
    pub(crate) acknowledged: u64,
    /// The same of what it is being told, or was told in vain.
    pub(crate) telling: u64,
}

impl Unpublished {
    /// It is written to now.
    pub(super) fn written(&mut self, now: Timestamp) {
        let atime = self.times.and_then(|times| times.atime);
        self.times = Some(Times { written: now, mtime: now, ctime: now, atime });
    }

    /// The server was told these times. An `atime` is forgotten with that, since others may set it, too. True if none is newer.
    pub(super) fn note_told(&mut self, told: Option<Times>) -> bool {
        let (Some(times), Some(told)) = (&mut self.times, told) else { return self.times == told };
        times.atime = times.atime.filter(|_| times.atime != told.atime);
        (times.mtime, times.ctime, times.atime) == (told.mtime, told.ctime, None)
    }

    /// True if an `atime` that was set is still to be told.
    pub(super) fn has_atime(&self) -> bool {
        self.times.is_some_and(|times| times.atime.is_some())
    }

    /// End of what the metadata server may not know of.
    pub(super) fn end(&self) -> u64 {
        self.acknowledged.max(self.telling)
    }

    /// It is told now of what was acknowledged, and of what it was told in vain: where that ends.
    pub(super) fn begin_telling(&mut self) -> u64 {
        (self.telling, self.acknowledged) = (self.end(), 0);
        self.telling
    }

    /// It has set the length after all that.
    pub(super) fn forget_end(&mut self) {
        (self.telling, self.acknowledged) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 5 }
    }

    /// Those of a write at 3.
    fn times(mtime: i64, ctime: i64, atime: Option<i64>) -> Times {
        Times { written: at(3), mtime: at(mtime), ctime: at(ctime), atime: atime.map(at) }
    }

    /// Those of a write and nothing else.
    fn of_write(now: i64, atime: Option<i64>) -> Times {
        Times { written: at(now), ..times(now, now, atime) }
    }

    #[test]
    fn what_is_set_or_written_while_times_are_told_is_told_next() {
        let mut unpublished = Unpublished::default();
        assert!(unpublished.note_told(None));
        unpublished.written(at(7));
        let told = unpublished.times;
        assert_eq!(told, Some(of_write(7, None)));
        assert!(!unpublished.note_told(None));
        unpublished.times = Some(times(3, 8, None));
        assert!(!unpublished.note_told(told));
        assert!(unpublished.note_told(Some(times(3, 8, None))));
        unpublished.written(at(9));
        assert!(!unpublished.note_told(Some(times(3, 8, None))));
    }

    #[test]
    fn a_time_of_reading_is_told_once_and_outlives_writes() {
        let set = Some(times(3, 8, Some(2)));
        let mut unpublished = Unpublished { times: set, ..Unpublished::default() };
        unpublished.written(at(9));
        assert_eq!(unpublished.times, Some(of_write(9, Some(2))));
        // Bytes are still on their way.
        let early = unpublished.times.map(Times::before);
        assert!(unpublished.has_atime() && !unpublished.note_told(early));
        assert!(!unpublished.has_atime());
        assert!(unpublished.note_told(Some(times(9, 9, Some(2)))));
        unpublished.times = Some(times(9, 9, Some(1)));
        assert!(!unpublished.note_told(Some(times(9, 9, Some(2)))));
    }

    /// Its time of change stayed what it was, and a backup that goes by that left it out.
    #[test]
    fn what_is_set_shows_although_the_clock_is_behind() {
        let mut late = times(3, 5, None);
        late = late.set([None, Some(at(2))], at(9), at(6));
        assert_eq!(late, Times { ctime: at(9).after(), ..times(3, 9, Some(2)) });
        assert_eq!(late.set([Some(at(1)), None], at(9), at(12)), times(1, 12, Some(2)));
    }

    /// A file whose bytes never arrived bore the second of the one that it was copied from, and was not copied again.
    #[test]
    fn before_the_bytes_are_there_no_time_that_was_set_is_told() {
        let early = |set: Times| (set.before().mtime, set.before().ctime, set.are_set());
        let written = at(3).before();
        assert_eq!(early(times(1, 9, None)), (written, written, true));
        assert_eq!(early(times(3, 9, Some(2))), (written, written, false), "an owner, say");
        assert_eq!(early(of_write(3, None)), (written, written, false));
        assert_eq!(times(1, 9, Some(2)).before().atime, Some(at(2)));
    }
}
