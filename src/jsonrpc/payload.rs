//! A raw object with its outline.

use std::ops::Deref;

use bytes::Bytes;

use super::outline::{Outline, Part, Spot};
use super::{NoObject, members, span_of};

/// A raw object, and what is known of it.
///
/// One that was taken from a message was read with it; what was made of bytes
/// alone is read when it is first asked.
#[derive(Debug, Clone)]
pub struct Payload {
    raw: Bytes,
    outline: Option<Outline>,
}

impl Payload {
    pub(super) fn new(raw: Bytes, outline: Outline) -> Self {
        Self { raw, outline: Some(outline) }
    }

    /// The same, read: an object for certain.
    ///
    /// # Errors
    /// [`NoObject`] where it is none.
    pub fn read(self) -> Result<Self, NoObject> {
        if self.outline.is_some() {
            return Ok(self);
        }
        let outline = Outline::of(&self.raw, usize::MAX, MOST)?;
        Ok(Self { raw: self.raw, outline: Some(outline) })
    }

    /// The values of the members of these names.
    ///
    /// # Errors
    /// [`NoObject`] where it is no object, or where one of these members stands
    /// twice.
    #[inline]
    pub fn members<const N: usize>(
        &self,
        names: &[&'static str; N],
    ) -> Result<[Option<Part<'_>>; N], NoObject> {
        match self.outline.as_ref().and_then(|outline| outline.parts(&self.raw)) {
            Some(parts) => parts.find(names),
            None => self.walk(&self.raw, names),
        }
    }

    /// The same of one of its values.
    ///
    /// # Errors
    /// [`NoObject`] where that is no object, or where one of these members
    /// stands twice.
    #[inline]
    pub fn members_at<const N: usize>(
        &self,
        spot: Spot,
        names: &[&'static str; N],
    ) -> Result<[Option<Part<'_>>; N], NoObject> {
        let part = self.part(spot);
        match part.parts() {
            Some(parts) => parts.find(names),
            None => self.walk(part.raw(), names),
        }
    }

    fn walk<'a, const N: usize>(
        &'a self,
        raw: &'a [u8],
        names: &[&'static str; N],
    ) -> Result<[Option<Part<'a>>; N], NoObject> {
        let found = members(raw, names, usize::MAX)?;
        let part = |raw| Some(Part::unknown(&self.raw, span_of(&self.raw, raw)?));
        Ok(found.map(|raw| raw.and_then(part)))
    }

    /// One of its values.
    pub fn part(&self, spot: Spot) -> Part<'_> {
        match &self.outline {
            Some(outline) => outline.part(&self.raw, spot),
            None => Part::unknown(&self.raw, spot.span()),
        }
    }

    /// All of it, as it came.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }
}

impl From<Bytes> for Payload {
    fn from(raw: Bytes) -> Self {
        Self { raw, outline: None }
    }
}

impl From<String> for Payload {
    fn from(raw: String) -> Self {
        Bytes::from(raw).into()
    }
}

impl From<&'static str> for Payload {
    fn from(raw: &'static str) -> Self {
        Bytes::from_static(raw.as_bytes()).into()
    }
}

impl From<Payload> for Bytes {
    fn from(payload: Payload) -> Self {
        payload.raw
    }
}

impl Deref for Payload {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.raw
    }
}

/// The most values that are noted down of an object in a message: what a call
/// holds of it until it is answered.
pub(super) const MOST: u16 = 256;
