//! Edits a text at known positions; all other bytes are unchanged.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

/// The span of `part` in `whole`.
///
/// `None` if `part` is not a slice of `whole`.
#[inline]
pub fn span_of(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

/// Edits to one text, at positions in it.
#[derive(Debug)]
pub struct Splice<'a> {
    source: Cow<'a, [u8]>,
    edits: Vec<(Range<usize>, Bytes)>,
}

impl<'a> Splice<'a> {
    /// A splice without edits.
    #[inline]
    pub fn new(source: &'a [u8]) -> Self {
        Self { source: source.into(), edits: Vec::new() }
    }

    /// Replaces `range` by `with`. Ranges must not overlap; an empty range
    /// inserts.
    pub fn replace(&mut self, range: Range<usize>, with: impl Into<Bytes>) -> &mut Self {
        self.edits.push((range, with.into()));
        self
    }

    /// Adds `members` (raw, comma-separated `"key":value`) at the beginning of
    /// the object `source`.
    pub fn prepend(&mut self, members: &[u8]) -> &mut Self {
        let Some(open) = self.source.iter().position(|b| *b == b'{') else { return self };
        let rest = self.source.get(open + 1..).unwrap_or_default();
        let empty = rest.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'}');
        let mut with = BytesMut::with_capacity(members.len() + 1);
        with.put_slice(members);
        if !empty {
            with.put_u8(b',');
        }
        self.replace(open + 1..open + 1, with.freeze())
    }

    /// The text with all edits applied. An edit outside the text, or one that
    /// overlaps another, is skipped.
    pub fn finish(&mut self) -> Bytes {
        let mut out = Vec::with_capacity(self.size());
        self.put(&mut out);
        out.into()
    }

    /// The size of the edited text, if no edit is skipped.
    pub(super) fn size(&self) -> usize {
        self.edits.iter().fold(self.source.len(), |size, (range, with)| {
            (size + with.len()).saturating_sub(range.len())
        })
    }

    /// Appends the edited text to `out`, as [`Splice::finish`] returns it.
    pub fn put(&mut self, out: &mut impl BufMut) {
        self.edits.sort_by_key(|(range, _)| range.start);
        let mut at = 0;
        for (range, with) in &self.edits {
            let Some(kept) = self.source.get(at..range.start) else { continue };
            if range.end < range.start || range.end > self.source.len() {
                continue;
            }
            out.put_slice(kept);
            out.put_slice(with);
            at = range.end;
        }
        out.put_slice(self.source.get(at..).unwrap_or_default());
    }
}

impl From<Bytes> for Splice<'static> {
    fn from(source: Bytes) -> Self {
        Self { source: Vec::from(source).into(), edits: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_land_in_their_places_whatever_the_order_they_were_given_in() {
        let source = b"{\"a\":1,\"b\":2}";
        let out = Splice::new(source).replace(11..12, "9").replace(5..6, "\"x\"").finish();
        assert_eq!(&out[..], b"{\"a\":\"x\",\"b\":9}");
    }

    #[test]
    fn the_size_is_that_of_the_edited_text() {
        let mut splice = Splice::new(b"{\"a\":1,\"b\":2}");
        splice.replace(5..6, "\"longer\"").replace(11..12, "").replace(0..0, " ");
        assert_eq!(splice.size(), splice.finish().len());
    }

    #[test]
    fn a_member_is_prepended_to_full_and_to_empty_objects() {
        for (source, out) in [("{ }", "{\"k\":1 }"), (" {\"a\":2}", " {\"k\":1,\"a\":2}")] {
            assert_eq!(Splice::new(source.as_bytes()).prepend(b"\"k\":1").finish(), out);
        }
    }

    #[test]
    fn a_span_is_found_only_within_its_whole() {
        let whole = b"hello";
        assert_eq!(span_of(whole, &whole[1..3]), Some(1..3));
        let other = String::from("x");
        assert_eq!(span_of(&whole[..2], &whole[1..4]), None);
        let _ = span_of(whole, other.as_bytes());
    }
}
