//! What stands where in an object, noted down while it is passed: who reads it
//! later need not pass it again.
//!
//! An outline is a list of marks, one for each value in the order of the text,
//! each with its key and with how many of the marks behind it are inside it. It
//! is bounded: a text with too many values has none and is walked again by each
//! who reads it, and what stands deeper than [`LEVELS`] is not in it.

use std::borrow::Cow;
use std::ops::Range;

use super::walk::{Cursor, Place, Quoted, Wrong, before_object, place, unescaped};
use super::{Malformed, NoObject, unquoted};

/// What was noted down of one object.
#[derive(Debug, Clone)]
pub struct Outline {
    marks: Vec<Mark>,
    most: usize,
    /// Where its text begins in the one that is passed.
    base: usize,
    /// There were too many values.
    lost: bool,
}

/// One value.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    key: u32,
    key_end: u32,
    start: u32,
    end: u32,
    inside: u16,
    key_escaped: bool,
    /// A string with escapes.
    escaped: bool,
    /// What is inside is noted, too.
    noted: bool,
}

/// Where a value stands in an object, to be looked at another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    start: usize,
    end: usize,
    /// The mark of the value; none where there is no outline.
    mark: Option<u16>,
}

impl Spot {
    /// Where it stands, in bytes.
    pub fn span(self) -> Range<usize> {
        self.start..self.end
    }
}

/// A value of an object, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    text: &'a [u8],
    outline: &'a [Mark],
    spot: Spot,
}

/// The members, or elements, of a value, in their order.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    text: &'a [u8],
    outline: &'a [Mark],
    at: usize,
    end: usize,
}

impl Outline {
    /// An empty one, for at most `most` values.
    pub(super) fn new(most: u16) -> Self {
        Self { marks: Vec::new(), most: usize::from(most), base: 0, lost: false }
    }

    /// Notes down an object, which may nest `max_depth` levels.
    ///
    /// # Errors
    /// [`NoObject`].
    pub fn of(text: &[u8], max_depth: usize, most: u16) -> Result<Self, NoObject> {
        let mut cursor = before_object(text, max_depth)?;
        let mut outline = Self::new(most);
        let noted = outline.note(&mut cursor, 0, 0, LEVELS).and_then(|()| cursor.ends());
        noted.map_err(|wrong| cursor.fault(wrong))?;
        Ok(outline)
    }

    /// Steps over the object that comes next, `outside` levels deep, and notes
    /// down what is in it and in `levels` below it. Places are counted from
    /// `base`.
    pub(super) fn note(
        &mut self,
        cursor: &mut Cursor<'_>,
        base: usize,
        outside: usize,
        levels: usize,
    ) -> Result<(), Wrong> {
        self.marks.clear();
        self.base = base;
        self.lost = cursor.rest() > MOST_BYTES;
        if !self.lost {
            self.marks.reserve(if levels == 0 { FEW / 4 } else { FEW });
        }
        self.inside(cursor, Bracket::Object, outside, levels)?;
        if self.lost {
            self.marks = Vec::new();
        }
        Ok(())
    }

    /// What is inside the bracket that comes next.
    fn inside(
        &mut self,
        cursor: &mut Cursor<'_>,
        bracket: Bracket,
        outside: usize,
        levels: usize,
    ) -> Result<(), Wrong> {
        cursor.open(outside)?;
        let (close, wrong) = match bracket {
            Bracket::Object => (b'}', Wrong::Member),
            Bracket::Array => (b']', Wrong::Element),
        };
        let mut place = Place::First;
        while cursor.has_next(&mut place, close, wrong)? {
            let key = match bracket {
                Bracket::Object => cursor.key()?,
                Bracket::Array => Quoted::default(),
            };
            let at = self.marks.len();
            if self.lost || at == self.most {
                self.lost = true;
                cursor.value(outside + 1)?;
                continue;
            }
            let byte = cursor.peek();
            let start = cursor.at();
            let mut mark = Mark {
                key: self.place(key.start),
                key_end: self.place(key.end),
                start: self.place(start),
                key_escaped: key.escaped,
                ..Mark::default()
            };
            match byte {
                Some(b'"') => mark.escaped = cursor.quoted()?.escaped,
                Some(open @ (b'{' | b'[')) if levels > 0 => {
                    let bracket = if open == b'{' { Bracket::Object } else { Bracket::Array };
                    mark.noted = true;
                    self.marks.push(mark);
                    self.inside(cursor, bracket, outside + 1, levels - 1)?;
                    let inside = self.marks.len() - at - 1;
                    let end = self.place(cursor.at());
                    if let Some(mark) = self.marks.get_mut(at) {
                        mark.inside = u16::try_from(inside).unwrap_or(u16::MAX);
                        mark.end = end;
                    }
                    continue;
                }
                _ => cursor.value(outside + 1)?,
            }
            mark.end = self.place(cursor.at());
            self.marks.push(mark);
        }
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "no longer text is noted down")]
    fn place(&self, at: usize) -> u32 {
        at.wrapping_sub(self.base) as u32
    }

    /// The members of the object, which is `text`; none where there were too
    /// many values.
    pub fn parts<'a>(&'a self, text: &'a [u8]) -> Option<Parts<'a>> {
        let end = self.marks.len();
        (!self.lost).then_some(Parts { text, outline: &self.marks, at: 0, end })
    }

    /// A value of the object again.
    pub(super) fn part<'a>(&'a self, text: &'a [u8], spot: Spot) -> Part<'a> {
        Part { text, outline: &self.marks, spot }
    }
}

#[derive(Debug, Clone, Copy)]
enum Bracket {
    Object,
    Array,
}

impl<'a> Part<'a> {
    /// A part of a text of which nothing is known.
    pub(super) fn unknown(text: &'a [u8], span: Range<usize>) -> Self {
        let spot = Spot { start: span.start, end: span.end, mark: None };
        Self { text, outline: &[], spot }
    }

    /// The value as it stands in the text.
    #[inline]
    pub fn raw(&self) -> &'a [u8] {
        self.text.get(self.spot.span()).unwrap_or_default()
    }

    /// Where it stands.
    #[inline]
    pub fn spot(&self) -> Spot {
        self.spot
    }

    #[inline]
    fn mark(&self) -> Option<&'a Mark> {
        self.outline.get(usize::from(self.spot.mark?))
    }

    /// Whether it is a string that has escapes, for all that is known.
    #[inline]
    pub fn is_escaped(&self) -> bool {
        self.mark().is_none_or(|mark| mark.escaped)
    }

    /// The text that it is; `None` where it is no string.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        if self.is_escaped() {
            return unquoted(self.raw());
        }
        let inner = self.raw().strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        std::str::from_utf8(inner).ok().map(Cow::Borrowed)
    }

    /// What is in it; `None` where that is not known.
    #[inline]
    pub fn parts(&self) -> Option<Parts<'a>> {
        let mark = self.mark().filter(|mark| mark.noted)?;
        let at = usize::from(self.spot.mark?) + 1;
        let end = at + usize::from(mark.inside);
        Some(Parts { text: self.text, outline: self.outline, at, end })
    }
}

impl<'a> Parts<'a> {
    /// The next value; `None` behind the last one.
    #[inline]
    pub fn next(&mut self) -> Option<Part<'a>> {
        self.step().map(|(_, part)| part)
    }

    #[inline]
    fn step(&mut self) -> Option<(&'a Mark, Part<'a>)> {
        if self.at >= self.end {
            return None;
        }
        let mark = self.outline.get(self.at)?;
        let (start, end) = (mark.start as usize, mark.end as usize);
        let spot = Spot { start, end, mark: u16::try_from(self.at).ok() };
        self.at += 1 + usize::from(mark.inside);
        Some((mark, Part { text: self.text, outline: self.outline, spot }))
    }

    /// The next member with its key.
    ///
    /// # Errors
    /// [`NoObject::Syntax`] where the key is no text: half of a pair of surrogates.
    #[inline]
    pub fn member(&mut self) -> Result<Option<(Cow<'a, [u8]>, Part<'a>)>, NoObject> {
        let Some((mark, part)) = self.step() else { return Ok(None) };
        let (start, end) = (mark.key as usize, mark.key_end as usize);
        let raw = self.text.get(start..end).unwrap_or_default();
        if !mark.key_escaped {
            return Ok(Some((Cow::Borrowed(raw), part)));
        }
        let fault = Malformed { at: start, expected: Wrong::Surrogates.expected() };
        let key = unescaped(raw).ok_or(NoObject::Syntax(fault))?;
        Ok(Some((Cow::Owned(key), part)))
    }

    /// The values of the members of these names.
    ///
    /// # Errors
    /// [`NoObject::Twice`] where one of them stands twice, and as for
    /// [`Parts::member`].
    #[inline]
    pub fn find<const N: usize>(
        mut self,
        names: &[&'static str; N],
    ) -> Result<[Option<Part<'a>>; N], NoObject> {
        let mut found = [None; N];
        while let Some((key, part)) = self.member()? {
            place(names, &mut found, &key, part)?;
        }
        Ok(found)
    }
}

/// How many levels below an object are noted down at most.
pub(super) const LEVELS: usize = 16;
/// How many values most objects have.
const FEW: usize = 32;
/// No place in a longer text is noted down.
const MOST_BYTES: usize = u32::MAX as usize;

#[cfg(test)]
mod tests;
