//! What is shown on a terminal, which obeys control characters: there may be names in it that anybody has chosen.

use crate::stderr;
use std::io::IsTerminal;

/// Says something on standard error, which may be as broken as what it tells of. It is often the last that is said.
pub fn aside(text: &str) {
    stderr::write(as_line(text, std::io::stderr().is_terminal()).as_bytes());
    stderr::flush();
}

/// Columns of the terminal that standard output goes to; `None` where it goes elsewhere.
pub fn width() -> Option<usize> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten();
    // One that does not know says 0.
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// A text as a line, of which a terminal obeys nothing.
pub fn as_line(text: &str, is_terminal: bool) -> String {
    match is_terminal {
        true => format!("{}\n", harmless(text, &['\n', '\t'])),
        false => format!("{text}\n"),
    }
}

/// A text with its control characters written out, but those that are to stay.
pub fn harmless(text: &str, stay: &[char]) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_control() && !stay.contains(&letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name in a failure or a warning cleared the terminal of who copied or looked at what others have, and wrote there what it
    /// liked.
    #[test]
    fn lines_with_names_are_harmless_on_a_terminal_and_otherwise_what_they_are() {
        let failure = "/mnt/a\x1b[2J\x1b]0;x\x07:\tdenied\n  next: chmod +r";
        let shown = "/mnt/a\\u{1b}[2J\\u{1b}]0;x\\u{7}:\tdenied\n  next: chmod +r\n";
        assert_eq!(as_line(failure, true), shown);
        assert_eq!(as_line(failure, false), format!("{failure}\n"));
        assert_eq!(harmless("a\n\tb", &[]), "a\\n\\tb");
    }
}
