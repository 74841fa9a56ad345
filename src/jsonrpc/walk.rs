//! One pass over an object: its members as slices of the text, everything in
//! them checked to be JSON (RFC 8259) and nothing taken apart.
//!
//! This is what every message passes several times, so it is written for that:
//! strings are stepped over eight bytes at a time, brackets are remembered as
//! bits, and nothing is allocated for what has no escapes in its keys.

use std::borrow::Cow;
use std::fmt;

use super::TooDeep;

/// Why a text is no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoObject {
    /// It is no JSON.
    Syntax(Malformed),
    /// It is JSON, of another kind.
    Kind,
    /// It nests deeper than it may.
    Depth(TooDeep),
    /// A member that matters stands twice: two readers would disagree on which
    /// one counts.
    Twice(&'static str),
}

/// Where a text stops being JSON, and what should have stood there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// The place, in bytes from the start.
    pub at: usize,
    expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at byte {}", self.expected, self.at)
    }
}

impl std::error::Error for Malformed {}

impl fmt::Display for NoObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(fault) => fault.fmt(f),
            Self::Kind => f.write_str("expected an object"),
            Self::Depth(fault) => fault.fmt(f),
            Self::Twice(member) => write!(f, "`{member}` stands twice"),
        }
    }
}

impl std::error::Error for NoObject {}

/// Hands an object's members out, in their order: the key without its escapes,
/// and the value as it stands in the text.
#[derive(Debug)]
pub struct Walk<'a> {
    cursor: Cursor<'a>,
    place: Place,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    First,
    Further,
    Behind,
}

impl<'a> Walk<'a> {
    /// Begins with a text that may nest `max_depth` levels, its own included.
    ///
    /// # Errors
    /// [`NoObject`] where it does not begin as an object does.
    pub fn over(text: &'a [u8], max_depth: usize) -> Result<Self, NoObject> {
        let text = std::str::from_utf8(text).map_err(|fault| {
            let at = fault.valid_up_to();
            NoObject::Syntax(Malformed { at, expected: "UTF-8" })
        })?;
        let mut cursor = Cursor { text, at: 0, max_depth };
        if cursor.peek() == Some(b'{') {
            cursor.at += 1;
            return if max_depth == 0 {
                Err(NoObject::Depth(TooDeep { limit: 0 }))
            } else {
                Ok(Self { cursor, place: Place::First })
            };
        }
        cursor.value(0)?;
        cursor.ends()?;
        Err(NoObject::Kind)
    }

    /// The next member; `None` behind the last one, where the text has to end.
    ///
    /// # Errors
    /// [`NoObject`] where the text is no JSON from here on.
    #[expect(clippy::should_implement_trait, reason = "an iterator has no errors of its own")]
    pub fn next(&mut self) -> Result<Option<(Cow<'a, str>, &'a str)>, NoObject> {
        let cursor = &mut self.cursor;
        if !cursor.has_next(&mut self.place, b'}', "`,` or `}`")? {
            return Ok(None);
        }
        let (start, escaped) = cursor.key()?;
        let end = cursor.at - 1;
        cursor.colon()?;
        let key = cursor.text.get(start..end).unwrap_or_default();
        let key = if escaped { cursor.unescaped(start - 1, end + 1)? } else { Cow::Borrowed(key) };
        cursor.peek();
        let start = cursor.at;
        cursor.value(1)?;
        Ok(Some((key, cursor.text.get(start..cursor.at).unwrap_or_default())))
    }
}

/// Hands an array's elements out, in their order, each as it stands in the text.
#[derive(Debug)]
pub struct Elements<'a> {
    cursor: Cursor<'a>,
    place: Place,
}

impl<'a> Elements<'a> {
    /// Begins with the text of an array that may nest `max_depth` levels, its
    /// own included; `None` where it does not begin as an array does.
    pub fn over(text: &'a str, max_depth: usize) -> Option<Self> {
        let mut cursor = Cursor { text, at: 0, max_depth };
        let is_array = cursor.peek() == Some(b'[') && max_depth > 0;
        cursor.at += 1;
        is_array.then_some(Self { cursor, place: Place::First })
    }

    /// The next element; `None` behind the last one, where the text has to end.
    ///
    /// # Errors
    /// [`NoObject`] where the text is no JSON from here on.
    #[expect(clippy::should_implement_trait, reason = "an iterator has no errors of its own")]
    pub fn next(&mut self) -> Result<Option<&'a str>, NoObject> {
        let cursor = &mut self.cursor;
        if !cursor.has_next(&mut self.place, b']', "`,` or `]`")? {
            return Ok(None);
        }
        let start = cursor.at;
        cursor.value(1)?;
        Ok(Some(cursor.text.get(start..cursor.at).unwrap_or_default()))
    }
}

/// The values of the members of these names, each as it stands in the object.
///
/// # Errors
/// [`NoObject`] where the text is none that nests at most `max_depth` levels,
/// or where one of these members stands twice.
pub fn members<'a, const N: usize>(
    text: &'a [u8],
    names: &[&'static str; N],
    max_depth: usize,
) -> Result<[Option<&'a str>; N], NoObject> {
    let mut walk = Walk::over(text, max_depth)?;
    let mut found = [None; N];
    while let Some((key, value)) = walk.next()? {
        let place = names.iter().zip(&mut found).find(|(name, _)| ***name == *key);
        if let Some((name, place)) = place
            && place.replace(value).is_some()
        {
            return Err(NoObject::Twice(name));
        }
    }
    Ok(found)
}

#[derive(Debug)]
struct Cursor<'a> {
    text: &'a str,
    at: usize,
    max_depth: usize,
}

impl<'a> Cursor<'a> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is no white space; stands on it.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.byte() {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                byte => return byte,
            }
        }
    }

    fn expected(&self, expected: &'static str) -> NoObject {
        NoObject::Syntax(Malformed { at: self.at, expected })
    }

    /// Whether there is another member, or element, of what ends with `close`;
    /// stands on it. Behind the last one the text has to end.
    fn has_next(
        &mut self,
        place: &mut Place,
        close: u8,
        expected: &'static str,
    ) -> Result<bool, NoObject> {
        match (self.peek(), &*place) {
            (_, Place::Behind) => return Ok(false),
            (Some(byte), _) if byte == close => {
                self.at += 1;
                *place = Place::Behind;
                self.ends()?;
                return Ok(false);
            }
            (Some(b','), Place::Further) => {
                self.at += 1;
                self.peek();
            }
            (_, Place::Further) => return Err(self.expected(expected)),
            (_, Place::First) => {}
        }
        *place = Place::Further;
        Ok(true)
    }

    /// Nothing but white space to the end.
    fn ends(&mut self) -> Result<(), NoObject> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("nothing more")),
        }
    }

    /// Steps over a key; where its text begins, and whether it has escapes.
    fn key(&mut self) -> Result<(usize, bool), NoObject> {
        if self.byte() != Some(b'"') {
            return Err(self.expected("a key"));
        }
        self.at += 1;
        let start = self.at;
        Ok((start, self.string()?))
    }

    fn colon(&mut self) -> Result<(), NoObject> {
        if self.peek() != Some(b':') {
            return Err(self.expected("`:`"));
        }
        self.at += 1;
        Ok(())
    }

    /// A string with its quotes, without its escapes.
    fn unescaped(&self, start: usize, end: usize) -> Result<Cow<'a, str>, NoObject> {
        let raw = self.text.get(start..end).unwrap_or_default();
        serde_json::from_str(raw).map(Cow::Owned).map_err(|_| self.expected("a pair of surrogates"))
    }

    /// Steps over one value that stands `outside` levels deep.
    fn value(&mut self, outside: usize) -> Result<(), NoObject> {
        let mut open = Brackets::default();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    self.string()?;
                }
                Some(byte @ (b'{' | b'[')) => {
                    if outside + open.depth >= self.max_depth {
                        return Err(NoObject::Depth(TooDeep { limit: self.max_depth }));
                    }
                    self.at += 1;
                    let is_object = byte == b'{';
                    match self.peek() {
                        Some(b'}') if is_object => self.at += 1,
                        Some(b']') if !is_object => self.at += 1,
                        _ => {
                            open.push(is_object);
                            if is_object {
                                self.key()?;
                                self.colon()?;
                            }
                            continue;
                        }
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word("true")?,
                Some(b'f') => self.word("false")?,
                Some(b'n') => self.word("null")?,
                _ => return Err(self.expected("a value")),
            }
            // A value has ended, and with it perhaps what it stands in.
            loop {
                let Some(in_object) = open.innermost() else { return Ok(()) };
                match (self.peek(), in_object) {
                    (Some(b','), true) => {
                        self.at += 1;
                        self.peek();
                        self.key()?;
                        self.colon()?;
                        break;
                    }
                    (Some(b','), false) => {
                        self.at += 1;
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.at += 1;
                        open.pop();
                    }
                    (_, true) => return Err(self.expected("`,` or `}`")),
                    (_, false) => return Err(self.expected("`,` or `]`")),
                }
            }
        }
    }

    fn word(&mut self, word: &'static str) -> Result<(), NoObject> {
        let ahead = self.text.as_bytes().get(self.at..self.at + word.len());
        if ahead != Some(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), NoObject> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), NoObject> {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.expected("a digit")) } else { Ok(()) }
    }

    /// Steps over a string behind its first quote; whether it has escapes.
    fn string(&mut self) -> Result<bool, NoObject> {
        let mut escaped = false;
        loop {
            self.plain();
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.at += 1;
                    self.escape()?;
                }
                Some(_) => return Err(self.expected("no control character")),
                None => return Err(self.expected("`\"`")),
            }
        }
    }

    /// Steps over what needs no look: stands on a quote, a backslash, a control
    /// character or the end.
    fn plain(&mut self) {
        let bytes = self.text.as_bytes();
        for _ in 0..SHORT {
            let ahead = bytes.get(self.at..).and_then(<[u8]>::first_chunk::<8>);
            let Some(eight) = ahead else { break };
            let ends = ends_plain(u64::from_le_bytes(*eight));
            if ends != 0 {
                self.at += ends.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        // What is long, or at the end of the text, is looked at in larger steps.
        let rest = bytes.get(self.at..).unwrap_or_default();
        let length = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        let rest = rest.get(..length).unwrap_or_default();
        self.at += if has_control(rest) {
            rest.iter().position(|byte| *byte < b' ').unwrap_or(length)
        } else {
            length
        };
    }

    fn escape(&mut self) -> Result<(), NoObject> {
        match self.byte() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                let digits = self.text.as_bytes().get(self.at + 1..self.at + 5);
                if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    return Err(self.expected("`u` and four hexadecimal digits"));
                }
                self.at += 5;
            }
            _ => return Err(self.expected("an escape")),
        }
        Ok(())
    }
}

/// The high bit of each byte that is a quote, a backslash or a control
/// character; behind the lowest of them also of others.
fn ends_plain(eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let is = |byte: u8| {
        let differs = eight ^ (ONES * u64::from(byte));
        differs.wrapping_sub(ONES) & !differs
    };
    let control = eight.wrapping_sub(ONES * u64::from(b' ')) & !eight;
    (is(b'"') | is(b'\\') | control) & (ONES << 7)
}

/// Written so that the compiler looks at many bytes at once.
fn has_control(text: &[u8]) -> bool {
    text.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < b' '
}

/// The brackets that are open, a bit for each: set for an object's.
#[derive(Debug, Default)]
struct Brackets {
    depth: usize,
    last: u64,
    before: Vec<u64>,
}

impl Brackets {
    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.before.push(self.last);
        }
        self.last = self.last << 1 | u64::from(is_object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.last = self.before.pop().unwrap_or_default();
        } else {
            self.last >>= 1;
        }
    }

    /// Whether the innermost one is an object's; `None` where none is open.
    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.last & 1 == 1)
    }
}

/// How many times eight bytes a short text has.
const SHORT: usize = 3;

#[cfg(test)]
mod tests;
