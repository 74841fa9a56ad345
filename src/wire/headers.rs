//! The header lines of a message.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};

/// Header lines in the order in which they came, kept as the text they came in. There are a dozen
/// or two: looking through them takes less than putting them into a map.
#[derive(Clone, Default)]
pub struct Headers {
    text: Bytes,
    lines: Vec<Line>,
}

/// A header stands there more than once: others may believe another of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeated;

/// Where in the text a line's name and value stand.
#[derive(Debug, Clone, Copy)]
struct Line {
    name: Span,
    value: Span,
}

impl Line {
    /// Whether it is one of this name, which is in lower case.
    fn is(self, name: &[u8], text: &[u8]) -> bool {
        if self.name.length as usize != name.len() {
            return false;
        }
        let own = self.name.read(text);
        // As most programs write it, it is told at once.
        own == name || own.eq_ignore_ascii_case(name)
    }
}

#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    length: u32,
}

impl Span {
    /// Where `part` stands in `text`, which it is a part of.
    fn of(text: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
        // A part of something else, or of more than 4 GiB, would be read as nothing.
        let cut = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self { start: cut(start), length: cut(part.len()) }
    }

    fn read(self, text: &[u8]) -> &[u8] {
        let (start, length) = (self.start as usize, self.length as usize);
        text.get(start..).and_then(|rest| rest.get(..length)).unwrap_or_default()
    }
}

impl Headers {
    /// Those whose names and values are parts of `text`. They have to be valid (RFC 9110, 5).
    pub fn parts<'a>(
        text: &'a Bytes,
        lines: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Self {
        let mut kept = Vec::with_capacity(lines.len());
        kept.extend(lines.map(|(name, value)| Line {
            name: Span::of(text, name),
            value: Span::of(text, value),
        }));
        Self { text: text.clone(), lines: kept }
    }

    /// A header's value, the first where there are several.
    pub fn get(&self, name: &HeaderName) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// The same where it is visible ASCII.
    pub fn get_text(&self, name: &HeaderName) -> Option<&str> {
        self.get(name).and_then(visible)
    }

    /// All values of a header.
    pub fn get_all(&self, name: &HeaderName) -> impl Iterator<Item = &[u8]> {
        let name = name.as_str().as_bytes();
        self.lines
            .iter()
            .filter(move |line| line.is(name, &self.text))
            .map(|line| line.value.read(&self.text))
    }

    /// A header's value, where the header stands there at most once.
    ///
    /// # Errors
    /// [`Repeated`].
    pub fn single(&self, name: &HeaderName) -> Result<Option<&[u8]>, Repeated> {
        let mut all = self.get_all(name);
        let first = all.next();
        if first.is_some() && all.next().is_some() { Err(Repeated) } else { Ok(first) }
    }

    /// Whether a header is there.
    pub fn contains(&self, name: &HeaderName) -> bool {
        self.get(name).is_some()
    }

    /// All lines: names as they came, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.iter().map(|line| (line.name.read(&self.text), line.value.read(&self.text)))
    }

    /// Takes all lines of a header out.
    pub fn remove(&mut self, name: &HeaderName) {
        let (text, name) = (&self.text, name.as_str().as_bytes());
        self.lines.retain(|line| !line.is(name, text));
    }

    /// Sets a header to one value, whatever it was.
    pub fn set(&mut self, name: &HeaderName, value: &[u8]) {
        self.remove(name);
        self.append(name.as_str().as_bytes(), value);
    }

    fn append(&mut self, name: &[u8], value: &[u8]) {
        let start = self.text.len();
        let text = Bytes::from([&self.text[..], name, value].concat());
        let (name, value) = text.split_at(start).1.split_at(name.len());
        self.lines.push(Line { name: Span::of(&text, name), value: Span::of(&text, value) });
        self.text = text;
    }
}

impl From<&HeaderMap> for Headers {
    fn from(map: &HeaderMap) -> Self {
        let mut text = Vec::new();
        for (name, value) in map {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(value.as_bytes());
        }
        let text = Bytes::from(text);
        let mut rest = &text[..];
        let mut take = |length| {
            let (part, behind) = rest.split_at(length);
            rest = behind;
            part
        };
        let lines: Vec<_> = map
            .iter()
            .map(|(name, value)| (take(name.as_str().len()), take(value.len())))
            .collect();
        Self::parts(&text, lines.into_iter())
    }
}

/// Names alone: values may be secret.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| String::from_utf8_lossy(name))).finish()
    }
}

/// The text of a value, if it is visible ASCII, spaces and tabs.
pub fn visible(value: &[u8]) -> Option<&str> {
    is_visible(value).then(|| std::str::from_utf8(value).ok()).flatten()
}

/// Whether a value is visible ASCII, spaces and tabs.
pub fn is_visible(value: &[u8]) -> bool {
    value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;

    fn headers(lines: &[(&'static str, &str)]) -> Headers {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, value.parse().unwrap());
        }
        Headers::from(&map)
    }

    #[test]
    fn lines_are_found_by_their_whole_names_in_any_case() {
        let text = Bytes::from_static(b"HoSt: a\r\nHostess: b\r\nhost: c\r\n");
        let parts = |ranges: [[usize; 4]; 3]| {
            let lines = ranges.map(|[a, b, c, d]| (&text[a..b], &text[c..d]));
            Headers::parts(&text, lines.into_iter())
        };
        let mut headers = parts([[0, 4, 6, 7], [9, 16, 18, 19], [21, 25, 27, 28]]);
        assert_eq!(headers.get_all(&header::HOST).collect::<Vec<_>>(), [b"a", b"c"]);
        assert_eq!(headers.get(&header::HOST), Some(&b"a"[..]));
        assert_eq!(headers.single(&header::HOST), Err(Repeated));
        assert_eq!(headers.single(&HeaderName::from_static("hostess")), Ok(Some(&b"b"[..])));
        assert_eq!(headers.single(&header::ACCEPT), Ok(None));
        assert_eq!(headers.get(&header::ACCEPT), None);
        headers.remove(&header::HOST);
        assert_eq!(headers.iter().collect::<Vec<_>>(), [(&b"Hostess"[..], &b"b"[..])]);
        assert_eq!(format!("{headers:?}"), r#"["Hostess"]"#);
    }

    #[test]
    fn a_header_that_is_set_has_one_value() {
        let mut headers = headers(&[("accept", "a"), ("accept", "b"), ("x", "y")]);
        headers.set(&header::ACCEPT, b"c");
        headers.set(&header::HOST, b"");
        assert_eq!(headers.get_all(&header::ACCEPT).collect::<Vec<_>>(), [b"c"]);
        assert_eq!(headers.get(&header::HOST), Some(&b""[..]));
        assert_eq!(headers.iter().count(), 3);
    }

    #[test]
    fn only_what_is_visible_is_text() {
        for (value, wanted) in [
            (&b"a b\tc"[..], Some("a b\tc")),
            (b"", Some("")),
            (b"\xc3\xa9", None),
            (b"\x7f", None),
        ] {
            assert_eq!(visible(value), wanted);
        }
    }
}
