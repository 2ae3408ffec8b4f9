//! A job that gives files another number of copies, as people and programs see it.

use crate::{output, size};
use serde::Serialize;
use strake_wire::message::recopies::{JobRecopy, RecopyAhead, RecopyFile, RecopyLeft};

/// Files that wait that are shown to people.
const WAITING_SHOWN: usize = 20;

/// What such a job is about and how far it is, as `--json` prints it.
#[derive(Serialize)]
pub struct RecopyView {
    copies: u32,
    /// Files looked at, as often as they were.
    looked: u64,
    /// Files that have got so many copies by it.
    files: u64,
    /// Bytes copied for these.
    bytes: u64,
    /// Files that are as they were.
    left: u64,
    /// What is ahead of it; none: not known, or it has ended.
    ahead: Option<AheadView>,
    /// Why nothing goes on, where it is not for files; empty: it does.
    waits_for: String,
    under_way: Vec<FileView>,
    /// Some of those that are left.
    waiting: Vec<LeftView>,
}

/// Files that have another number of copies still.
#[derive(Serialize)]
struct AheadView {
    files: u64,
    bytes: u64,
    /// All were counted; else there are at least so many.
    whole: bool,
}

impl AheadView {
    fn line(&self) -> String {
        let files = output::count(self.files, "file", "files");
        let left = format!("{} in {files} left", size::show(self.bytes));
        match (self.whole, self.files) {
            (true, _) => left,
            (false, 0) => "counting what is left".to_owned(),
            (false, _) => format!("at least {left} (still counting)"),
        }
    }
}

#[derive(Serialize)]
struct FileView {
    path: String,
    copied: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct LeftView {
    path: String,
    reason: String,
}

impl RecopyView {
    /// Of a job.
    pub fn new(one: &JobRecopy) -> Self {
        let file = |file: &RecopyFile| FileView {
            path: file.path.clone(),
            copied: file.copied,
            bytes: file.bytes,
        };
        let left =
            |left: &RecopyLeft| LeftView { path: left.path.clone(), reason: left.reason.clone() };
        Self {
            copies: one.wish.copies,
            looked: one.tally.looked,
            files: one.tally.files,
            bytes: one.tally.bytes,
            left: one.left,
            ahead: one.ahead.map(|RecopyAhead { files, bytes, whole }| AheadView {
                files,
                bytes,
                whole,
            }),
            waits_for: one.reason.clone(),
            under_way: one.under_way.iter().map(file).collect(),
            waiting: one.waiting.iter().map(left).collect(),
        }
    }

    /// How many bytes are left, if all were counted.
    pub fn bytes_left(&self) -> Option<u64> {
        self.ahead.as_ref().filter(|ahead| ahead.whole).map(|ahead| ahead.bytes)
    }

    /// How far it is, in a line; so many bytes are copied in a second, and so many seconds are left.
    pub fn progress(&self, rate: u64, seconds_left: Option<u64>) -> String {
        let (files, bytes) = (self.files, size::show(self.bytes));
        let files = output::count(files, "file was", "files were");
        let mut parts = vec![format!("{files} changed, {bytes} copied")];
        parts.extend(self.ahead.as_ref().map(AheadView::line));
        if rate > 0 {
            parts.push(format!("{}/s", size::show(rate)));
        }
        if let Some(seconds) = seconds_left {
            parts.push(format!("about {} left", output::duration(seconds)));
        }
        if self.left > 0 {
            parts.push(format!("{} waiting", self.left));
        }
        parts.join(", ")
    }

    /// Why it does not get on, if it does not.
    pub fn hindrance(&self) -> Option<String> {
        match self.waiting.first() {
            _ if !self.waits_for.is_empty() => Some(self.waits_for.clone()),
            Some(first) if self.under_way.is_empty() => {
                let others = match self.left.saturating_sub(1) {
                    0 => String::new(),
                    more => format!(", and {more} more"),
                };
                Some(format!("{}: {}{others}", first.path, first.reason))
            }
            _ => None,
        }
    }

    /// The files it is at.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.under_way.iter().map(|file| file.path.as_str())
    }

    /// What it is at, and what waits.
    pub fn lines(&self) -> Vec<String> {
        let copying = self.under_way.iter().map(|file| {
            let (copied, bytes) = (size::show(file.copied), size::show(file.bytes));
            format!("copying {}: {copied} of {bytes}", file.path)
        });
        let shown = self.waiting.iter().take(WAITING_SHOWN);
        let waiting = shown.map(|left| format!("as it was: {}: {}", left.path, left.reason));
        let hidden = self.left.saturating_sub(self.waiting.len().min(WAITING_SHOWN) as u64);
        let more = (hidden > 0).then(|| match self.waiting.len() > WAITING_SHOWN {
            true => format!("... and {hidden} more (--json shows them, 200 at most)"),
            false => format!("... and {hidden} more"),
        });
        copying.chain(waiting).chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::recopies::RecopyTally;

    fn waiting(count: usize, left: u64) -> RecopyView {
        let one = |nth| RecopyLeft { path: format!(":/main/f{nth}"), reason: "open by h".into() };
        RecopyView::new(&JobRecopy {
            tally: RecopyTally { looked: 9, files: 1, bytes: 1 << 20 },
            waiting: (0..count).map(one).collect(),
            left,
            ..JobRecopy::default()
        })
    }

    #[test]
    fn what_waits_is_named_as_far_as_that_is_short_and_the_rest_counted() {
        assert_eq!(waiting(0, 0).lines(), Vec::<String>::new());
        assert_eq!(waiting(1, 1).lines(), ["as it was: :/main/f0: open by h"]);
        let lines = waiting(200, 300).lines();
        assert_eq!(lines.len(), WAITING_SHOWN + 1);
        assert!(lines[WAITING_SHOWN].starts_with("... and 280 more (--json"), "{lines:?}");
        assert_eq!(waiting(2, 5).lines()[2], "... and 3 more");
    }

    #[test]
    fn a_job_that_only_waits_says_for_what() {
        assert_eq!(waiting(0, 0).hindrance(), None);
        assert_eq!(waiting(1, 1).hindrance().unwrap(), ":/main/f0: open by h");
        assert_eq!(waiting(2, 3).hindrance().unwrap(), ":/main/f0: open by h, and 2 more");
        let mut busy = waiting(2, 3);
        busy.under_way.push(FileView { path: ":/main/x".into(), copied: 1, bytes: 2 });
        assert_eq!(busy.hindrance(), None);
        busy.waits_for = "its server is away".into();
        assert_eq!(busy.hindrance().unwrap(), "its server is away");
        let said = "1 file was changed, 1 MiB copied, 1 MiB/s, 3 waiting";
        assert_eq!(busy.progress(1 << 20, None), said);
    }

    #[test]
    fn what_is_left_is_told_as_far_as_it_was_counted() {
        let mut view = waiting(0, 0);
        assert_eq!(view.bytes_left(), None);
        view.ahead = Some(AheadView { files: 0, bytes: 0, whole: false });
        assert!(view.progress(0, None).ends_with(", counting what is left"));
        view.ahead = Some(AheadView { files: 1, bytes: 3 << 20, whole: false });
        let said =
            "1 file was changed, 1 MiB copied, at least 3 MiB in 1 file left (still counting)";
        assert_eq!((view.progress(0, None).as_str(), view.bytes_left()), (said, None));
        view.ahead = Some(AheadView { files: 7, bytes: 3 << 20, whole: true });
        assert_eq!(view.bytes_left(), Some(3 << 20));
        let said =
            "1 file was changed, 1 MiB copied, 3 MiB in 7 files left, 1 MiB/s, about 3 s left";
        assert_eq!(view.progress(1 << 20, Some(3)), said);
    }
}
