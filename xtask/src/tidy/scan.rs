//! Just enough of Rust's grammar to find functions, items and paths: comments and literals are
//! blanked out, then braces can be counted.

use std::ops::Range;

/// A function with a body.
pub struct Function {
    /// Its name.
    pub name: String,
    /// Offset of the `fn`.
    pub start: usize,
    /// Offset just after the closing brace.
    pub end: usize,
}

/// Replaces comments and the insides of string and character literals by spaces. Every other byte,
/// and every line break, stays where it was.
pub fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !word_before(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => char_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            at += 1;
            continue;
        }
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    // Only whole literals and comments were replaced, by ASCII: still UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return at + 2,
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `r"..."`, `r#"..."#`, and the same after `b` or `c`.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let found = bytes[open + 1..].windows(close.len()).position(|w| w == close);
    Some(found.map_or(bytes.len(), |n| open + 1 + n + close.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn char_end(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start + 1) == Some(&b'\\') {
        let close = bytes[start + 3..].iter().position(|&b| b == b'\'')?;
        return Some(start + 3 + close + 1);
    }
    // One character of up to four bytes, then the closing quote.
    let rest = std::str::from_utf8(&bytes[start + 1..(start + 5).min(bytes.len())]);
    let first = match rest {
        Ok(text) => text.chars().next()?,
        Err(e) => std::str::from_utf8(&bytes[start + 1..start + 1 + e.valid_up_to()])
            .ok()
            .and_then(|text| text.chars().next())?,
    };
    let close = start + 1 + first.len_utf8();
    (bytes.get(close) == Some(&b'\'')).then_some(close + 1)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// True if a word other than the prefixes `b` and `c` ends just before.
fn word_before(bytes: &[u8], at: usize) -> bool {
    let before = bytes[..at].iter().rev().take_while(|&&b| is_word(b)).count();
    !(before == 0 || before == 1 && matches!(bytes[at - 1], b'b' | b'c'))
}

/// Offsets of a whole word in blanked code.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let after = at + word.len();
        let open_start = !is_word(bytes[at]) || at == 0 || !is_word(bytes[at - 1]);
        let last = bytes[after - 1];
        open_start && !(is_word(last) && bytes.get(after).is_some_and(|&b| is_word(b)))
    })
}

/// Offset just after the brace that closes the one at `open`; the end of the text if none does.
pub fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (n, byte) in code.as_bytes()[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return open + n + 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    code.len()
}

/// Where an item's body opens after `from`, or `None` if it ends in a semicolon before.
fn body_of(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (n, byte) in code.as_bytes()[from..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(from + n),
            _ => {}
        }
    }
    None
}

/// The word that begins at or after an offset, over white space.
pub fn next_word(code: &str, from: usize) -> &str {
    let rest = code[from..].trim_start();
    let end = rest.bytes().position(|b| !is_word(b)).unwrap_or(rest.len());
    &rest[..end]
}

/// Every function with a body.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for start in words(code, "fn") {
        let name = next_word(code, start + 2);
        // `fn(u8)` is a type.
        if name.is_empty() {
            continue;
        }
        if let Some(open) = body_of(code, start) {
            found.push(Function { name: name.to_owned(), start, end: closing_brace(code, open) });
        }
    }
    found
}

/// Byte ranges of the items marked `#[cfg(test)]` (or `all(test, ...)`), attribute included.
pub fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (start, _) in code.match_indices("#[cfg(") {
        let Some(length) = code[start..].find(']') else { continue };
        let condition = &code[start..start + length];
        if condition.contains("not(") || words(condition, "test").next().is_none() {
            continue;
        }
        let item = skip_attributes(code, start);
        let end = match body_of(code, item) {
            Some(open) => closing_brace(code, open),
            None => code[item..].find(';').map_or(code.len(), |n| item + n + 1),
        };
        ranges.push(start..end);
    }
    ranges
}

fn skip_attributes(code: &str, mut at: usize) -> usize {
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if !code[at..].starts_with("#[") {
            return at;
        }
        let mut depth = 0;
        let close = code[at..].bytes().position(|byte| {
            depth += i32::from(byte == b'[') - i32::from(byte == b']');
            byte == b']' && depth == 0
        });
        at = close.map_or(code.len(), |n| at + n + 1);
    }
}
