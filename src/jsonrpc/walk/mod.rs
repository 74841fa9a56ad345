//! One pass over an object: its members as slices of the text, everything in
//! them checked to be JSON (RFC 8259) and nothing taken apart.
//!
//! This is what every message passes several times, so it is written for that:
//! strings are stepped over sixteen bytes at a time, brackets are remembered as
//! bits, and nothing is allocated for what has no escapes in its keys. Texts are
//! bytes: whether they are UTF-8 is seen to before the first step.

mod brackets;
mod cursor;
mod strings;

pub(super) use cursor::{Cursor, MemberSlot, Quoted, WalkError, unescaped};

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
    pub(super) expected: &'static str,
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

/// A key without its escapes, and its value as it stands in the text.
type RawMember<'a> = (Cow<'a, [u8]>, &'a [u8]);

/// Hands an object's members out, in their order: the key without its escapes,
/// and the value as it stands in the text.
#[derive(Debug)]
pub struct Walk<'a> {
    cursor: Cursor<'a>,
    place: MemberSlot,
}

impl<'a> Walk<'a> {
    /// Begins with a text that may nest `max_depth` levels, its own included.
    ///
    /// # Errors
    /// [`NoObject`] where it does not begin as an object does.
    pub fn over(text: &'a [u8], max_depth: usize) -> Result<Self, NoObject> {
        let mut cursor = before_object(text, max_depth)?;
        cursor.open(0).map_err(|wrong| cursor.fault(wrong))?;
        Ok(Self { cursor, place: MemberSlot::First })
    }

    /// The next member; `None` behind the last one, where the text has to end.
    ///
    /// # Errors
    /// [`NoObject`] where the text is no JSON from here on.
    pub fn next(&mut self) -> Result<Option<RawMember<'a>>, NoObject> {
        self.next_by(|cursor, _| cursor.value(1))
    }

    /// The same; `value` steps over the value, and is told the key.
    #[inline]
    pub(super) fn next_by(
        &mut self,
        value: impl FnOnce(&mut Cursor<'a>, &[u8]) -> Result<(), WalkError>,
    ) -> Result<Option<RawMember<'a>>, NoObject> {
        self.step(value).map_err(|wrong| self.cursor.fault(wrong))
    }

    #[inline]
    fn step(
        &mut self,
        value: impl FnOnce(&mut Cursor<'a>, &[u8]) -> Result<(), WalkError>,
    ) -> Result<Option<RawMember<'a>>, WalkError> {
        let cursor = &mut self.cursor;
        if !cursor.has_next(&mut self.place, b'}', WalkError::Member)? {
            cursor.ends()?;
            return Ok(None);
        }
        let key = cursor.key()?;
        let key = cursor.text_of(key).ok_or(WalkError::Surrogates)?;
        let start = cursor.at();
        value(cursor, &key)?;
        Ok(Some((key, cursor.since(start))))
    }
}

/// Before the bracket of the object that a text is.
pub(super) fn before_object(text: &[u8], max_depth: usize) -> Result<Cursor<'_>, NoObject> {
    let mut cursor = Cursor::over(text, max_depth)?;
    if cursor.peek() == Some(b'{') {
        return Ok(cursor);
    }
    let whole = cursor.value(0).and_then(|()| cursor.ends());
    Err(whole.map_or_else(|wrong| cursor.fault(wrong), |()| NoObject::Kind))
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
) -> Result<[Option<&'a [u8]>; N], NoObject> {
    let mut walk = Walk::over(text, max_depth)?;
    let mut found = [None; N];
    while let Some((key, value)) = walk.next()? {
        place(names, &mut found, &key, value)?;
    }
    Ok(found)
}

/// Puts a value in the place of its name, if it is one of these.
#[inline]
pub(super) fn place<T, const N: usize>(
    names: &[&'static str; N],
    found: &mut [Option<T>; N],
    key: &[u8],
    value: T,
) -> Result<(), NoObject> {
    let place = names.iter().zip(found).find(|(name, _)| name.as_bytes() == key);
    if let Some((name, place)) = place
        && place.replace(value).is_some()
    {
        return Err(NoObject::Twice(name));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
