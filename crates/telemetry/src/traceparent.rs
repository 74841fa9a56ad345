//! The `traceparent` of W3C Trace Context.

use std::fmt;

/// A parsed `traceparent`: the trace, the caller's span and the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    trace_id: u128,
    span_id: u64,
    flags: u8,
}

/// Error of an invalid `traceparent`. The specification requires ignoring such a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TraceParentError {
    /// Not of the fixed form `VERSION-TRACE-SPAN-FLAGS`.
    #[error("a traceparent has the shape 00-TRACEID-SPANID-FLAGS")]
    Shape,
    /// A character other than `0-9a-f` among the hexadecimal digits.
    #[error("a traceparent is written in lower-case hexadecimal digits")]
    Digits,
    /// Version `ff`, which is forbidden.
    #[error("traceparent version ff is not allowed")]
    Version,
    /// An id that is all zeros.
    #[error("a trace id and a span id must not be all zeros")]
    Zero,
}

impl TraceParent {
    /// The length of version 00 in characters.
    pub const LEN: usize = 55;

    /// Builds a `traceparent`; `None` if an id is zero.
    #[inline]
    pub fn new(trace_id: u128, span_id: u64, sampled: Sampled) -> Option<Self> {
        let flags = u8::from(sampled == Sampled::Yes);
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, flags })
    }

    /// Parses a header or `_meta` value; reads [`Self::LEN`] bytes at most.
    ///
    /// # Errors
    /// [`TraceParentError`] names the violated rule of the specification.
    pub fn parse(text: &str) -> Result<Self, TraceParentError> {
        let bytes = text.as_bytes();
        let dashes = [2, 35, 52].map(|at| bytes.get(at) == Some(&b'-'));
        if bytes.len() < Self::LEN || dashes.contains(&false) {
            return Err(TraceParentError::Shape);
        }
        let version = parse_hex(bytes.get(..2))?;
        if version == 0xff {
            return Err(TraceParentError::Version);
        }
        // W3C Trace Context, "Versioning of traceparent": a later version may
        // continue after a dash, version 00 may not.
        let rest = bytes.get(Self::LEN);
        if rest.is_some() && (version == 0 || rest != Some(&b'-')) {
            return Err(TraceParentError::Shape);
        }
        let trace_id = parse_hex(bytes.get(3..35))?;
        let span_id = narrow_id(parse_hex(bytes.get(36..52))?)?;
        let flags = narrow_id(parse_hex(bytes.get(53..55))?)?;
        if trace_id == 0 || span_id == 0 {
            return Err(TraceParentError::Zero);
        }
        Ok(Self { trace_id, span_id, flags })
    }

    /// The id of the trace; never zero.
    #[inline]
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// The id of the caller's span; never zero.
    #[inline]
    pub fn span_id(&self) -> u64 {
        self.span_id
    }

    /// Returns [`Sampled::Yes`] if the caller records this trace.
    #[inline]
    pub fn sampled(&self) -> Sampled {
        if self.flags & 1 == 1 { Sampled::Yes } else { Sampled::No }
    }

    /// The trace id as the 32 hexadecimal digits people search for.
    #[inline]
    pub fn trace_id_text(&self) -> TraceIdText {
        TraceIdText::new(self.trace_id)
    }
}

/// Sampling decision of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampled {
    /// Spans are recorded and exported.
    Yes,
    /// Nothing is recorded.
    No,
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

/// A trace id as text, on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceIdText([u8; 32]);

impl TraceIdText {
    fn new(id: u128) -> Self {
        let mut shift = u128::BITS;
        Self([0; 32].map(|_: u8| {
            shift -= 4;
            let digit = u8::try_from(id >> shift & 0xf).unwrap_or_default();
            if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
        }))
    }

    /// The 32 digits as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

fn parse_hex(digits: Option<&[u8]>) -> Result<u128, TraceParentError> {
    let mut value = 0;
    for digit in digits.ok_or(TraceParentError::Shape)? {
        let low = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err(TraceParentError::Digits),
        };
        value = value << 4 | u128::from(low);
    }
    Ok(value)
}

fn narrow_id<T: TryFrom<u128>>(value: u128) -> Result<T, TraceParentError> {
    T::try_from(value).map_err(|_| TraceParentError::Shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_traceparent_reads_and_writes_the_same() {
        let parsed = TraceParent::parse(GOOD).unwrap();
        assert_eq!(parsed.to_string(), GOOD);
        assert_eq!(parsed.sampled(), Sampled::Yes);
        assert_eq!(parsed.trace_id_text().as_str(), "0af7651916cd43dd8448eb211c80319c");
        let unsampled = GOOD.replace("-01", "-00");
        assert_eq!(TraceParent::parse(&unsampled).unwrap().sampled(), Sampled::No);
        assert_eq!(TraceParent::parse(&unsampled).unwrap().to_string(), unsampled);
    }

    #[test]
    fn traceparents_that_the_specification_forbids_are_refused() {
        use TraceParentError::{Digits, Shape, Version, Zero};
        for (text, error) in [
            ("", Shape),
            ("00", Shape),
            (&GOOD[..54], Shape),
            (&format!("{GOOD}-more"), Shape),
            (&format!("{GOOD}0"), Shape),
            (&format!("{GOOD} "), Shape),
            (&GOOD.replace('-', "_"), Shape),
            (&GOOD.to_uppercase(), Digits),
            (&GOOD.replace("0af7", "0xf7"), Digits),
            (&GOOD.replace("0af7", "+af7"), Digits),
            (&GOOD.replace("0af7", "éf7"), Digits),
            (&GOOD.replacen("00", "ff", 1), Version),
            (&GOOD.replacen("00", "cc", 1).replacen("-01", "-01x", 1), Shape),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", Zero),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", Zero),
        ] {
            assert_eq!(TraceParent::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_later_version_is_read_for_the_known_fields() {
        let later = format!("{}-what-comes-later", GOOD.replacen("00", "cc", 1));
        assert_eq!(TraceParent::parse(&later).unwrap().to_string(), GOOD);
    }

    #[test]
    fn no_traceparent_is_made_of_zeros() {
        assert_eq!(TraceParent::new(0, 1, Sampled::Yes), None);
        assert_eq!(TraceParent::new(1, 0, Sampled::Yes), None);
        assert_eq!(
            TraceParent::new(1, 2, Sampled::No).unwrap().to_string(),
            "00-00000000000000000000000000000001-0000000000000002-00"
        );
    }
}
