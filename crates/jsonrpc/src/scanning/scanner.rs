//! Scans a response that is still arriving.
//!
//! The scanner finds the `result` of a response piece by piece, so that a large
//! result can be forwarded before it is complete. It follows strings and
//! brackets only: the reader of the result validates the JSON between them.

use std::ops::Range;

use super::value_end::{FollowStep, FollowedValue};
use crate::{DepthError, FrameFault};

/// Finds a response's `id` and `result` in bytes that arrive in pieces.
#[derive(Debug)]
pub struct Scanner {
    place: ScanState,
    value: FollowedValue,
    key: Vec<u8>,
    id: Vec<u8>,
    results: usize,
    max_depth: usize,
}

/// The position of the next byte in the envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Before the opening brace.
    Start,
    /// Before a key, or the closing brace.
    Members,
    /// In a key.
    Key,
    /// Between a key and its value.
    Colon,
    /// In a value.
    Value(ScannedMember),
    /// After the closing brace.
    End,
}

/// The member that a value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScannedMember {
    Id,
    Result,
    Other,
}

impl Scanner {
    /// A scanner before the first byte.
    pub fn new(max_depth: usize) -> Self {
        Self {
            place: ScanState::Start,
            value: FollowedValue::default(),
            key: Vec::new(),
            id: Vec::new(),
            results: 0,
            max_depth,
        }
    }

    /// Scans the next piece; returns the range of it that belongs to the
    /// result.
    ///
    /// # Errors
    /// [`FrameFault`] if the bytes cannot be a response.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Range<usize>, FrameFault> {
        let mut found: Option<Range<usize>> = None;
        let mut rest = piece;
        while let Some((byte, behind)) = rest.split_first() {
            let at = piece.len() - rest.len();
            // Most bytes of a large result cannot end it.
            let (passed, is_result) = match self.place {
                ScanState::Value(member @ (ScannedMember::Result | ScannedMember::Other)) => {
                    (self.value.pass(rest, self.max_depth), member == ScannedMember::Result)
                }
                _ => (0, false),
            };
            let (passed, is_result) = match passed {
                0 => {
                    rest = behind;
                    (1, self.byte(*byte)?)
                }
                passed => {
                    rest = rest.get(passed..).unwrap_or_default();
                    (passed, is_result)
                }
            };
            if is_result {
                let start = found.as_ref().map_or(at, |range| range.start);
                found = Some(start..at + passed);
            }
        }
        Ok(found.unwrap_or(0..0))
    }

    /// The raw id, once it is complete.
    #[inline]
    pub fn id(&self) -> Option<&[u8]> {
        let whole = self.place != ScanState::Value(ScannedMember::Id) && !self.id.is_empty();
        whole.then_some(&self.id)
    }

    /// Returns true once the result has begun.
    #[inline]
    pub fn has_result(&self) -> bool {
        self.results > 0
    }

    /// Returns true once the response is complete.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.place == ScanState::End
    }

    /// Scans one byte; true if it belongs to the result.
    fn byte(&mut self, byte: u8) -> Result<bool, FrameFault> {
        match self.place {
            ScanState::Value(member) => return self.value_byte(member, byte),
            ScanState::Key => self.key_byte(byte),
            ScanState::Start | ScanState::Members | ScanState::Colon | ScanState::End
                if byte.is_ascii_whitespace() => {}
            ScanState::Start if byte == b'{' => self.place = ScanState::Members,
            ScanState::Members => match byte {
                b',' => {}
                b'}' => self.place = ScanState::End,
                b'"' => {
                    self.key.clear();
                    self.place = ScanState::Key;
                }
                _ => return Err(FrameFault::Shape),
            },
            ScanState::Colon if byte == b':' => {
                let member = self.member()?;
                self.value = FollowedValue::default();
                self.place = ScanState::Value(member);
            }
            ScanState::Start | ScanState::Colon | ScanState::End => return Err(FrameFault::Shape),
        }
        Ok(false)
    }

    fn key_byte(&mut self, byte: u8) {
        let escaped = self.key.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1;
        if byte == b'"' && !escaped {
            self.place = ScanState::Colon;
        } else if self.key.len() < MAX_SCANNED_KEY_BYTES {
            self.key.push(byte);
        }
    }

    fn member(&mut self) -> Result<ScannedMember, FrameFault> {
        match self.key.as_slice() {
            b"id" if self.id.is_empty() => Ok(ScannedMember::Id),
            b"result" if self.results == 0 => {
                self.results = 1;
                Ok(ScannedMember::Result)
            }
            // A duplicate, an error beside a result, or a key with escapes.
            b"id" | b"result" | b"error" | b"method" => Err(FrameFault::Shape),
            key if key.contains(&b'\\') => Err(FrameFault::Shape),
            _ => Ok(ScannedMember::Other),
        }
    }

    fn value_byte(&mut self, member: ScannedMember, byte: u8) -> Result<bool, FrameFault> {
        let step = self.value.step(byte);
        if self.value.depth >= self.max_depth {
            return Err(FrameFault::Depth(DepthError { limit: self.max_depth }));
        }
        match step {
            FollowStep::Inside | FollowStep::Last => {
                // White space belongs to a string, and surrounds a number.
                let in_string = self.id.first() == Some(&b'"');
                if member == ScannedMember::Id && (in_string || !byte.is_ascii_whitespace()) {
                    if self.id.len() >= MAX_SCANNED_ID_BYTES {
                        return Err(FrameFault::Id);
                    }
                    self.id.push(byte);
                }
                if matches!(step, FollowStep::Last) {
                    self.place = ScanState::Members;
                }
                Ok(member == ScannedMember::Result
                    && (self.value.begun || !byte.is_ascii_whitespace()))
            }
            FollowStep::Behind => {
                self.place = if byte == b'}' { ScanState::End } else { ScanState::Members };
                Ok(false)
            }
        }
    }
}

/// Longer keys match no member that is looked for.
const MAX_SCANNED_KEY_BYTES: usize = 64;
/// The gateway's own ids are numbers.
const MAX_SCANNED_ID_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(text: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, Scanner), FrameFault> {
        let mut scanner = Scanner::new(16);
        let mut result = Vec::new();
        let mut from = 0;
        for to in cuts.iter().copied().chain([text.len()]) {
            let piece = &text[from..to.clamp(from, text.len())];
            from = to.clamp(from, text.len());
            result.extend_from_slice(&piece[scanner.feed(piece)?]);
        }
        Ok((result, scanner))
    }

    #[test]
    fn a_space_in_an_id_is_kept() {
        let text = br#"{"result":{}, "id": "a b" ,"jsonrpc":"2.0"}"#;
        for cut in 0..text.len() {
            assert_eq!(scan(text, &[cut]).unwrap().1.id(), Some(br#""a b""#.as_slice()));
        }
    }

    #[test]
    fn the_result_is_found_wherever_it_stands() {
        for (text, id, result) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"a":"}]\"","b":[1,{}]}}"#,
                "7",
                r#"{"a":"}]\"","b":[1,{}]}"#,
            ),
            (r#" { "result" : {"x": 1 } , "id" : "a" } "#, r#""a""#, r#"{"x": 1 }"#),
            (r#"{"id":1,"result":null}"#, "1", "null"),
            (r#"{"id":1,"other":[[]],"result":{}}"#, "1", "{}"),
        ] {
            for cut in 0..text.len() {
                let (found, scanner) = scan(text.as_bytes(), &[cut]).unwrap();
                assert_eq!(String::from_utf8(found).unwrap(), result, "{text} cut at {cut}");
                assert_eq!(scanner.id(), Some(id.as_bytes()));
                assert!(scanner.is_whole() && scanner.has_result());
            }
        }
    }

    #[test]
    fn messages_other_than_responses_with_one_result_are_refused() {
        for text in [
            "[]",
            r#"{"id":1,"error":{}}"#,
            r#"{"result":{},"result":{}}"#,
            r#"{"id":1,"id":2}"#,
            r#"{"r\u0065sult":{}}"#,
            r#"{"result":{}} x"#,
            r#"{"result":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}"#,
        ] {
            assert!(scan(text.as_bytes(), &[]).is_err(), "{text}");
        }
    }

    /// Scans byte by byte.
    fn slowly(text: &[u8]) -> Result<Vec<u8>, FrameFault> {
        let (mut scanner, mut result) = (Scanner::new(16), Vec::new());
        for byte in text {
            if scanner.byte(*byte)? {
                result.push(*byte);
            }
        }
        Ok(result)
    }

    proptest! {
        #[test]
        fn whole_input_and_single_bytes_give_the_same_result(
            inner in "[a\"\\\\{}\\[\\], :1]{0,48}", cut in 0_usize..64
        ) {
            let text = format!("{{\"x\":[{inner}],\"result\":{{{inner}}},\"id\":1}}");
            let whole = scan(text.as_bytes(), &[cut]).map(|(result, _)| result).ok();
            prop_assert_eq!(whole, slowly(text.as_bytes()).ok());
        }

        #[test]
        fn pieces_change_nothing_and_nothing_panics(text in prop::collection::vec(any::<u8>(), 0..64), cut in 0_usize..64) {
            let whole = scan(&text, &[]).map(|(result, _)| result).ok();
            let pieces = scan(&text, &[cut]).map(|(result, _)| result).ok();
            prop_assert_eq!(whole, pieces);
        }
    }
}
