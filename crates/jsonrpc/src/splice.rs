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

    /// Replaces `part`, a slice of the text, by `with`. A part of another text is skipped.
    pub fn replace_part(&mut self, part: &[u8], with: impl Into<Bytes>) -> &mut Self {
        match span_of(&self.source, part) {
            Some(range) => self.replace(range, with),
            None => self,
        }
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

    /// The text with all edits applied; `None` if there is no edit.
    pub fn finish_edited(&mut self) -> Option<Bytes> {
        (!self.edits.is_empty()).then(|| self.finish())
    }

    /// The size of the edited text, if no edit is skipped.
    pub(super) fn size(&self) -> usize {
        self.edits.iter().fold(self.source.len(), |size, (range, with)| {
            (size + with.len()).saturating_sub(range.len())
        })
    }

    /// Appends the edited text to `out`, as [`Splice::finish`] returns it.
    pub fn put(&mut self, out: &mut impl BufMut) {
        let mut at = 0;
        for (range, with) in valid_edits(&mut self.edits, self.source.len()) {
            out.put_slice(self.source.get(at..range.start).unwrap_or_default());
            out.put_slice(with);
            at = range.end;
        }
        out.put_slice(self.source.get(at..).unwrap_or_default());
    }

    /// The edited text in pieces, which share the memory of `source`, the whole text of this splice.
    pub fn pieces(&mut self, source: &Bytes) -> Vec<Bytes> {
        let kept = |range| source.get(range).map(|part| source.slice_ref(part)).unwrap_or_default();
        let (mut pieces, mut at) = (Vec::with_capacity(2 * self.edits.len() + 1), 0);
        for (range, with) in valid_edits(&mut self.edits, self.source.len()) {
            pieces.extend([kept(at..range.start), with.clone()]);
            at = range.end;
        }
        pieces.push(kept(at..source.len()));
        pieces
    }
}

/// The edits in order, without those that overlap another or are outside a text of `len` bytes.
fn valid_edits(
    edits: &mut [(Range<usize>, Bytes)],
    len: usize,
) -> impl Iterator<Item = (&Range<usize>, &Bytes)> {
    edits.sort_by_key(|(range, _)| range.start);
    let mut at = 0;
    edits.iter().filter_map(move |(range, with)| {
        let is_valid = at <= range.start && range.start <= range.end && range.end <= len;
        is_valid.then(|| {
            at = range.end;
            (range, with)
        })
    })
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
    fn the_pieces_are_the_edited_text_and_share_the_memory_of_the_source() {
        let source = Bytes::from_static(b"{\"a\":1,\"b\":2}");
        let edits = [(11..12, "9"), (5..6, "\"x\""), (5..5, "skipped"), (20..30, "outside")];
        let mut splice = Splice::new(&source);
        for (range, with) in edits {
            splice.replace(range, with);
        }
        let pieces = splice.pieces(&source);
        assert_eq!(pieces.concat(), splice.finish());
        assert!(source.as_ptr_range().contains(&pieces[0].as_ptr()));
    }

    #[test]
    fn only_parts_of_the_text_are_replaced_and_a_text_without_edits_is_none() {
        let source = b"{\"a\":1,\"b\":2}";
        let mut splice = Splice::new(source);
        assert!(splice.replace_part(b"1", "9").finish_edited().is_none());
        let out = splice.replace_part(&source[5..6], "9").finish_edited();
        assert_eq!(out.unwrap(), "{\"a\":9,\"b\":2}");
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
