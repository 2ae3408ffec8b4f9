//! Standard error of this process. One that stays has a thread of its own write there: whoever reads may stop reading (a full pipe,
//! a terminal after Ctrl-S), or the disk of the file may hang, and nobody else is to wait for that.

use metrics::counter;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strake_base::threads;

/// Bytes that may wait to be written. A line that finds no room among them is lost.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// How long a process that stays waits for whoever reads, where what it does next may end it.
pub const READER_WAIT: Duration = Duration::from_secs(1);

/// What a process that does not stay has lost.
static LINES: Lines = Lines { lost: AtomicU64::new(0) };
/// What one that stays has still to write.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// Has a thread write from now on.
pub fn write_behind() -> io::Result<()> {
    let queue = Arc::<Queue>::default();
    let written = queue.clone();
    let write = move || written.write(&mut io::stderr());
    threads::spawn("log", write)?;
    let _is_first = QUEUE.set(queue);
    Ok(())
}

/// Writes lines in one piece, or has them written.
pub fn write(line: &[u8]) {
    match QUEUE.get() {
        Some(queue) => queue.push(line),
        None => LINES.write(&mut io::stderr(), line),
    }
}

/// Waits until all is written, but for nobody who does not read.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(READER_WAIT);
    }
}

/// Counts the lines that could not be written.
#[derive(Default)]
struct Lines {
    /// Since the last one that could be.
    lost: AtomicU64,
}

impl Lines {
    /// Writes a line, and before it how many were lost.
    fn write(&self, to: &mut impl Write, line: &[u8]) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let written = match lost {
            0 => to.write_all(line),
            _ => {
                let note =
                    format!("{lost} lines of this log were lost: they could not be written\n");
                to.write_all(&[note.as_bytes(), line].concat())
            }
        };
        if written.is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
            count_lost();
        }
    }
}

fn count_lost() {
    counter!("strake_log_lines_lost_total").increment(1);
}

/// Lines on their way to the thread that writes them.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// A line has come, or was written.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Each with the number of those that were lost right before it.
    lines: VecDeque<(u64, Vec<u8>)>,
    /// Of these lines and of the one that is being written.
    bytes: usize,
    /// Lines that found no room, since the last one that did.
    lost: u64,
}

impl Queue {
    fn push(&self, line: &[u8]) {
        let line = line.to_vec();
        let mut waiting = self.waiting.lock();
        if waiting.bytes > 0 && waiting.bytes + line.len() > WAITING_BYTES_MAX {
            waiting.lost += 1;
            drop(waiting);
            return count_lost();
        }
        waiting.bytes += line.len();
        let lost = std::mem::take(&mut waiting.lost);
        waiting.lines.push_back((lost, line));
        self.changed.notify_all();
    }

    /// Writes all that comes.
    fn write(&self, to: &mut impl Write) {
        let lines = Lines::default();
        loop {
            self.write_next(&lines, to);
        }
    }

    /// Writes the next line, once there is one.
    fn write_next(&self, lines: &Lines, to: &mut impl Write) {
        let (lost, line) = self.next();
        lines.lost.fetch_add(lost, Ordering::Relaxed);
        lines.write(to, &line);
        self.waiting.lock().bytes -= line.len();
        self.changed.notify_all();
    }

    fn next(&self) -> (u64, Vec<u8>) {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(next) = waiting.lines.pop_front() {
                return next;
            }
            self.changed.wait(&mut waiting);
        }
    }

    /// Waits until all is written, for so long at most.
    fn flush(&self, most: Duration) {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while_for(&mut waiting, |waiting| waiting.bytes > 0, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails so many times.
    struct Broken {
        times: u32,
        written: Vec<u8>,
    }

    impl Write for Broken {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.times > 0 {
                self.times -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_first_line_that_can_be_written_again_says_how_many_were_lost() {
        let (lines, mut to) = (Lines::default(), Broken { times: 2, written: Vec::new() });
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            lines.write(&mut to, line.as_bytes());
        }
        let text = String::from_utf8(to.written).unwrap();
        let (note, rest) = text.split_once('\n').unwrap();
        assert!(note.starts_with("2 lines ") && rest == "three\nfour\n", "{text}");
    }

    /// Whoever logged waited until somebody read.
    #[test]
    fn lines_that_find_no_room_are_lost_and_told_of_where_they_would_stand() {
        let (queue, lines, mut written) = (Queue::default(), Lines::default(), Vec::new());
        let long = [vec![b'x'; WAITING_BYTES_MAX - 9], b"\n".to_vec()].concat();
        for line in [&b"before\n"[..], &long, b"one\n", b"two\n"] {
            queue.push(line);
        }
        queue.flush(Duration::ZERO);
        queue.write_next(&lines, &mut written);
        queue.push(b"after\n");
        queue.write_next(&lines, &mut written);
        queue.write_next(&lines, &mut written);
        assert_eq!(queue.waiting.lock().bytes, 0, "all is written");
        let text = String::from_utf8(written).unwrap();
        let [before, _, note, after] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{} lines", text.lines().count());
        };
        assert!(before == "before" && note.starts_with("2 lines ") && after == "after", "{note}");
    }
}
