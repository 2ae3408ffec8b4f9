//! Tables and JSON on standard output.

use crate::failure::{FAILED, Failure, Outcome};
use crate::stderr;
use crate::terminal::as_line;
pub use crate::terminal::{aside, harmless};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc;
use strake_base::threads;

/// See [`failures_end_with`].
static FAILURES_END_WITH: AtomicU8 = AtomicU8::new(FAILED);

/// The verb that runs ends with this code where what it has to tell cannot be written.
pub fn failures_end_with(code: u8) {
    FAILURES_END_WITH.store(code, Ordering::Relaxed);
}

/// Prints a value as JSON, for programs: as it is made, so that it may be longer than memory. See [`bytes()`].
pub fn json(value: &impl Serialize) -> Outcome {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let written = match serde_json::to_writer_pretty(&mut out, value) {
        Err(error) if !error.is_io() => return Err(Failure::new(error.to_string())),
        written => written.map_err(std::io::Error::from),
    };
    end_unless(written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()));
    Ok(())
}

/// A line has named a command.
static COMMAND_NAMED: AtomicBool = AtomicBool::new(false);

/// True if somebody who does what a text says gives a command that does not say which cluster it is about.
pub fn names_command(text: &str) -> bool {
    text.contains("strake ") && !text.contains("--cluster")
}

/// As [`line()`], of what may name a command that somebody gives next.
pub fn advice(text: &str) {
    COMMAND_NAMED.fetch_or(names_command(text), Ordering::Relaxed);
    line(text);
}

/// True if some [`advice()`] has named one.
pub fn has_named_command() -> bool {
    COMMAND_NAMED.load(Ordering::Relaxed)
}

/// Prints a line, without what a terminal would obey: there may be names in it. A reader that has seen enough (`| head`) ends the
/// program quietly.
pub fn line(text: &str) {
    bytes(as_line(text, std::io::stdout().is_terminal()).as_bytes());
}

/// As [`line()`], of a program that goes on whether somebody hears it or not, as a server does: who does not read is waited for no
/// longer than for the log.
pub fn notice(text: &str) {
    let line = as_line(text, std::io::stdout().is_terminal());
    // What was logged before comes before it, where both go to one place.
    stderr::flush();
    let (saying, said) = mpsc::channel::<()>();
    let say = move || {
        let mut out = std::io::stdout().lock();
        let _unheard = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        drop(saying);
    };
    let _unsaid = threads::spawn("notice", say);
    let _in_time = said.recv_timeout(stderr::READER_WAIT);
}

/// Prints a line with a name, and with the one that it leads to: byte for byte, or as text where they go to a terminal.
pub fn names(before: &[u8], names: &[&[u8]]) {
    let terminal = std::io::stdout().is_terminal();
    let shown: Vec<_> = names.iter().map(|name| shown(name, terminal)).collect();
    bytes(&[before, &shown.join(&b" -> "[..]), b"\n"].concat());
}

fn shown(name: &[u8], terminal: bool) -> Vec<u8> {
    match terminal {
        true => harmless(&text_of(name), &[]).into_bytes(),
        false => name.to_vec(),
    }
}

/// A name or path as text: what is no UTF-8 in it as `\xNN`.
pub fn text_of(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for part in name.utf8_chunks() {
        text.push_str(part.valid());
        text.push_str(&part.invalid().escape_ascii().to_string());
    }
    text
}

/// So many of something, in words.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Of which kind some things are, and their names.
pub fn several<'a>(kind: &str, names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{kind}{plural} {}", names.collect::<Vec<_>>().join(", "))
}

/// Time as people say it.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// A word of a command that is shown, as a shell takes it.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=,@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Writes bytes to standard output; see [`line()`]. Where they cannot be written (a full disk), nothing else matters: the
/// program says so and fails.
pub fn bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    end_unless(out.write_all(bytes).and_then(|()| out.flush()));
}

/// Ends the program unless that was written. One whose exit code says how something is goes on for it without a reader.
pub fn end_unless(written: std::io::Result<()>) {
    let Err(error) = written else { return };
    let code = FAILURES_END_WITH.load(Ordering::Relaxed);
    match error.kind() {
        ErrorKind::BrokenPipe if code != FAILED => {}
        ErrorKind::BrokenPipe => exit(0),
        _ => {
            aside(&format!("strake: standard output: {error}"));
            exit(code.into())
        }
    }
}

/// A table without lines, its head in capitals. Columns of which every cell is a number or a size
/// are aligned to the right by naming them with a leading `>`.
pub fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().map(|name| name.trim_start_matches('>')));
    for (at, name) in head.iter().enumerate() {
        let Some(column) = table.column_mut(at) else { continue };
        column.set_padding((0, 2));
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(3)));
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Prints a table.
pub fn show(table: &Table) {
    for row in table.lines() {
        line(row.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name coloured the terminal, or made two lines; and what is no UTF-8 was changed on its way to programs.
    #[test]
    fn names_are_harmless_on_a_terminal_and_otherwise_what_they_are() {
        let name = b"\x1b[31mred\n\xff \xc3\xa4";
        assert_eq!(shown(name, true), r"\u{1b}[31mred\n\xff ä".as_bytes());
        assert_eq!(shown(name, false), name);
        assert_eq!(text_of(b"a\xff\xfe\x1b"), "a\\xff\\xfe\x1b");
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_take_it_apart() {
        assert_eq!(word("unix:/srv/s-1/strake.sock"), "unix:/srv/s-1/strake.sock");
        assert_eq!(word("/my data/it's"), r"'/my data/it'\''s'");
    }
}
