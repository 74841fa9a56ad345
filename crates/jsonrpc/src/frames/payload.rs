//! A raw object with its outline.

use std::borrow::Cow;
use std::ops::Deref;

use bytes::Bytes;

use crate::outline::{Outline, OutlineParts, Spot};
use crate::{ObjectError, members, span_of, unquoted};

/// A raw object, with its outline if it has been parsed.
///
/// A payload from a message was outlined with it; one made from bytes is parsed
/// when it is first read.
#[derive(Debug, Clone)]
pub struct Payload {
    raw: Bytes,
    outline: Option<Outline>,
}

impl Payload {
    pub(crate) fn new(raw: Bytes, outline: Outline) -> Self {
        Self { raw, outline: Some(outline) }
    }

    /// The same payload, outlined: certain to be an object.
    ///
    /// # Errors
    /// [`ObjectError`] if it is not an object.
    pub fn read(self) -> Result<Self, ObjectError> {
        if self.outline.is_some() {
            return Ok(self);
        }
        let outline = Outline::of(&self.raw, usize::MAX, MAX_OUTLINE_MARKS)?;
        Ok(Self { raw: self.raw, outline: Some(outline) })
    }

    /// The positions of the values of the members with these names.
    ///
    /// # Errors
    /// [`ObjectError`] if it is not an object, or one of these members is a
    /// duplicate.
    pub fn members<const N: usize>(
        &self,
        names: &[&'static str; N],
    ) -> Result<[Option<Spot>; N], ObjectError> {
        self.find(None, names)
    }

    /// The positions of the values of the members with these names, within one
    /// of its values.
    ///
    /// # Errors
    /// [`ObjectError`] if that value is not an object, or one of these members is
    /// a duplicate.
    pub fn members_at<const N: usize>(
        &self,
        spot: Spot,
        names: &[&'static str; N],
    ) -> Result<[Option<Spot>; N], ObjectError> {
        self.find(Some(spot), names)
    }

    fn find<const N: usize>(
        &self,
        within: Option<Spot>,
        names: &[&'static str; N],
    ) -> Result<[Option<Spot>; N], ObjectError> {
        let noted = self.outline.as_ref().and_then(|all| all.find(&self.raw, within, names));
        if let Some(found) = noted {
            return found;
        }
        let raw = within.map_or(&self.raw[..], |spot| self.raw_at(spot));
        let found = members(raw, names, usize::MAX)?;
        let spot = |raw| span_of(&self.raw, raw).map(Spot::unknown);
        Ok(found.map(|raw| raw.and_then(spot)))
    }

    /// One of its values, raw.
    #[inline]
    pub fn raw_at(&self, spot: Spot) -> &[u8] {
        self.raw.get(spot.span()).unwrap_or_default()
    }

    /// The unescaped text of one of its values; `None` if that is not a string.
    #[inline]
    pub fn text_at(&self, spot: Spot) -> Option<Cow<'_, str>> {
        let raw = self.raw_at(spot);
        if self.outline.as_ref().is_none_or(|outline| outline.is_escaped(spot)) {
            return unquoted(raw);
        }
        let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        std::str::from_utf8(inner).ok().map(Cow::Borrowed)
    }

    /// The contents of one of its values; `None` if it has none, or they were
    /// not recorded.
    #[inline]
    pub fn parts_at(&self, spot: Spot) -> Option<OutlineParts<'_>> {
        self.outline.as_ref()?.parts_at(&self.raw, spot)
    }

    /// The same payload in memory of its own: a slice keeps the whole buffer
    /// alive that it was read from.
    pub(crate) fn detach(self) -> Self {
        Self { raw: Bytes::copy_from_slice(&self.raw), ..self }
    }

    /// The whole object, as received.
    #[inline]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }
}

impl From<Bytes> for Payload {
    #[inline]
    fn from(raw: Bytes) -> Self {
        Self { raw, outline: None }
    }
}

impl From<String> for Payload {
    #[inline]
    fn from(raw: String) -> Self {
        Bytes::from(raw).into()
    }
}

impl From<&'static str> for Payload {
    #[inline]
    fn from(raw: &'static str) -> Self {
        Bytes::from_static(raw.as_bytes()).into()
    }
}

impl From<Payload> for Bytes {
    #[inline]
    fn from(payload: Payload) -> Self {
        payload.raw
    }
}

impl Deref for Payload {
    type Target = Bytes;

    #[inline]
    fn deref(&self) -> &Bytes {
        &self.raw
    }
}

/// The most values that are recorded for an object in a message: a call holds
/// its outline until it is answered.
pub(crate) const MAX_OUTLINE_MARKS: u16 = 256;
