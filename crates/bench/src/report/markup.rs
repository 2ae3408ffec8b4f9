//! HTML and SVG without a way for outside text to become markup: tags and names are written in the
//! source, everything else is escaped.

use std::fmt::{self, Display, Write};

/// Attributes of an element: names from the source, values from anywhere.
pub type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

/// A growing piece of markup.
#[derive(Debug, Clone, Default)]
pub struct Markup(String);

impl Markup {
    /// Adds markup that stands in the source.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds text.
    pub fn text(&mut self, text: impl Display) -> &mut Self {
        escape(&mut self.0, &text.to_string());
        self
    }

    /// Opens an element.
    pub fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) -> &mut Self {
        self.0.push('<');
        self.0.push_str(tag);
        for (name, value) in attributes {
            self.0.push(' ');
            self.0.push_str(name);
            self.0.push_str("=\"");
            escape(&mut self.0, &value.to_string());
            self.0.push('"');
        }
        self.0.push('>');
        self
    }

    /// Closes an element.
    pub fn close(&mut self, tag: &'static str) -> &mut Self {
        self.0.push_str("</");
        self.0.push_str(tag);
        self.0.push('>');
        self
    }

    /// A path of SVG.
    pub fn path(&mut self, attributes: Attributes<'_>) -> &mut Self {
        self.open("path", attributes).close("path")
    }

    /// An element with text in it.
    pub fn element(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        text: impl Display,
    ) -> &mut Self {
        self.open(tag, attributes).text(text).close(tag)
    }

    /// Adds other markup.
    pub fn add(&mut self, other: &Markup) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// Begins a new line, for those who read the source.
    pub fn line(&mut self) -> &mut Self {
        self.raw("\n")
    }

    /// All of it.
    pub fn finish(self) -> String {
        self.0
    }
}

/// Writes text so that it is text everywhere: between tags and in quoted attributes. Characters that
/// no document may hold are replaced.
fn escape(into: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '"' => into.push_str("&quot;"),
            '\'' => into.push_str("&#39;"),
            '\n' | '\t' => into.push(character),
            _ if character.is_control() => into.push('\u{fffd}'),
            _ => into.push(character),
        }
    }
}

/// A coordinate, to a tenth of a pixel.
#[derive(Debug, Clone, Copy)]
pub struct Px(pub f64);

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round() / 10.0;
        write!(f, "{}", if tenths == 0.0 { 0.0 } else { tenths })
    }
}

/// A label of so many characters at most; a table or a legend has it in full.
pub fn shortened(label: &str, characters: usize) -> String {
    match label.chars().count() > characters {
        true => label.chars().take(characters - 1).chain(['…']).collect(),
        false => label.to_owned(),
    }
}

/// A path through points, for the `d` of a `path`.
pub fn path(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for (at, (x, y)) in points.iter().enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        let _infallible = write!(text, "{command}{} {}", Px(*x), Px(*y));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_stays_text() {
        let mut markup = Markup::default();
        let evil = "\"><script>alert('x')</script>&\u{1b}\0";
        markup.open("p", &[("title", &evil)]).text(evil).close("p");
        let text = markup.finish();
        assert_eq!(text.matches('<').count(), 2, "{text}");
        assert_eq!(text.matches('"').count(), 2, "{text}");
        assert!(!text.contains(['\u{1b}', '\0', '\'']), "{text}");
        assert!(text.contains("&lt;script&gt;alert(&#39;x&#39;)"), "{text}");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(path(&[(1.04, 2.0), (3.25, -0.001)]), "M1 2L3.3 0");
    }
}
