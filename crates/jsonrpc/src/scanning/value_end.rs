//! Follows a value to its end, through bytes that arrive in pieces.
//!
//! Most bytes of a large value cannot end it: whole blocks are skipped using
//! bit masks of their quotes and brackets, and only a block that may end the
//! value is read byte by byte.

use crate::masks::{BLOCK_BYTES, Quoting, brackets, quoting};

/// The state of a value that is being followed.
#[derive(Debug, Default)]
pub(crate) struct FollowedValue {
    pub(crate) depth: usize,
    pub(crate) begun: bool,
    in_string: bool,
    escaped: bool,
}

/// The position of one byte relative to the value.
pub(crate) enum FollowStep {
    Inside,
    /// The last byte of the value.
    Last,
    /// The first byte after the value.
    Behind,
}

impl FollowedValue {
    /// Skips whole blocks while they are inside the value and cannot nest
    /// deeper than `max_depth`; returns the number of bytes skipped.
    pub(crate) fn pass(&mut self, bytes: &[u8], max_depth: usize) -> usize {
        let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
        if self.depth == 0 {
            return 0;
        }
        let mut passed = 0;
        for block in blocks {
            if !self.pass_block(block, max_depth) {
                break;
            }
            passed += BLOCK_BYTES;
        }
        passed
    }

    #[inline]
    fn pass_block(&mut self, block: &[u8; BLOCK_BYTES], max_depth: usize) -> bool {
        let Quoting { quotes, backslashes } = quoting(block);
        let (escaped, last_escapes) = escaped(backslashes, self.escaped);
        let quotes = quotes & !escaped;
        if quotes == 0 && self.in_string {
            self.escaped = last_escapes;
            return true;
        }
        let strings = inside(quotes) ^ if self.in_string { u64::MAX } else { 0 };
        // A backslash outside of strings is not valid JSON.
        if backslashes & !strings != 0 {
            return false;
        }
        let (open, close) = brackets(block);
        let (open, close) = (open & !strings, close & !strings);
        let (opened, closed) = (open.count_ones() as usize, close.count_ones() as usize);
        if self.depth + opened >= max_depth || closed >= self.depth && self.ends(open, close) {
            return false;
        }
        self.depth = self.depth + opened - closed;
        self.in_string = strings >> (BLOCK_BYTES - 1) == 1;
        self.escaped = last_escapes;
        true
    }

    /// Returns true if one of these closing brackets ends the value.
    fn ends(&self, open: u64, mut close: u64) -> bool {
        let mut closed = 0;
        while close != 0 {
            let before = close & close.wrapping_neg();
            closed += 1;
            if self.depth + (open & (before - 1)).count_ones() as usize <= closed {
                return true;
            }
            close ^= before;
        }
        false
    }

    /// Processes the next byte.
    pub(crate) fn step(&mut self, byte: u8) -> FollowStep {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    return if self.depth == 0 { FollowStep::Last } else { FollowStep::Inside };
                }
                _ => {}
            }
            return FollowStep::Inside;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b',' | b'}' | b']' if self.depth == 0 => return FollowStep::Behind,
            b'}' | b']' => {
                self.depth -= 1;
                return if self.depth == 0 { FollowStep::Last } else { FollowStep::Inside };
            }
            byte if byte.is_ascii_whitespace() && self.depth == 0 && self.begun => {
                return FollowStep::Behind;
            }
            _ => {}
        }
        self.begun |= !byte.is_ascii_whitespace();
        FollowStep::Inside
    }
}

/// The bytes after an odd number of backslashes, and true if the last byte escapes the byte after
/// it. `first` is true if the first byte is escaped.
///
/// In a run of backslashes every second one is escaped, counted from the beginning of the run. A
/// subtraction carries through the run, and the position of its end shows if the run began at an
/// odd position (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", 3.1.1).
#[inline]
fn escaped(backslashes: u64, first: bool) -> (u64, bool) {
    let first = u64::from(first);
    if backslashes == 0 {
        return (first, false);
    }
    let escaping = backslashes & !first;
    let ends = ((escaping << 1 | ODD_BITS).wrapping_sub(escaping)) ^ ODD_BITS;
    (ends ^ (backslashes | first), ends & backslashes & 1 << (BLOCK_BYTES - 1) != 0)
}

/// The bytes between quotes: including the first quote of each pair, excluding
/// the second.
#[inline]
fn inside(quotes: u64) -> u64 {
    (0..6).fold(quotes, |mask, step| mask ^ mask << (1 << step))
}

/// Every second bit.
const ODD_BITS: u64 = 0xaaaa_aaaa_aaaa_aaaa;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(value: &FollowedValue) -> (usize, bool, bool) {
        (value.depth, value.in_string, value.escaped)
    }

    proptest! {
        #[test]
        fn a_block_is_passed_as_its_bytes_are(
            block in prop::collection::vec(prop::sample::select(b"\"\\{}[] a,\\\"".to_vec()), BLOCK_BYTES),
            depth in 1_usize..20, in_string: bool, escaped: bool,
        ) {
            let begin = || FollowedValue { depth, begun: true, in_string, escaped: escaped && in_string };
            let (mut fast, mut slow) = (begin(), begin());
            let (mut is_inside, mut deepest) = (true, depth);
            for byte in &block {
                is_inside &= matches!(slow.step(*byte), FollowStep::Inside);
                if !is_inside {
                    break;
                }
                deepest = deepest.max(slow.depth);
            }
            if fast.pass(&block, 24) == BLOCK_BYTES {
                prop_assert!(is_inside && deepest < 24);
                prop_assert_eq!(state(&fast), state(&slow));
            } else {
                prop_assert_eq!(state(&fast), state(&begin()));
            }
        }

        #[test]
        fn a_block_of_a_string_is_passed(
            text in prop::collection::vec(prop::sample::select(b"\\\\\\\"a".to_vec()), BLOCK_BYTES), escaped: bool,
        ) {
            let begin = || FollowedValue { depth: 1, begun: true, in_string: true, escaped };
            let (mut fast, mut slow) = (begin(), begin());
            let in_one = text.iter().all(|byte| { slow.step(*byte); slow.in_string });
            let passed = fast.pass(&text, 24) == BLOCK_BYTES;
            prop_assert!(passed || !in_one);
            prop_assert!(!passed || !in_one || state(&fast) == state(&slow));
        }
    }

    #[test]
    fn blocks_are_passed_unless_the_value_ends_in_them_or_may_get_too_deep() {
        let passed = |text: &str, depth| {
            let mut value = FollowedValue { depth, begun: true, ..FollowedValue::default() };
            let block = format!("{text:<64}");
            (value.pass(block.as_bytes(), 8) == BLOCK_BYTES).then_some(value.depth)
        };
        assert_eq!(passed(r#"{"a":[1,2]},{"b":"}]"},{}"#, 1), Some(1));
        assert_eq!(passed("]", 1), None);
        assert_eq!(passed("[],{}]", 1), None);
        assert_eq!(passed("[],{}]", 2), Some(1));
        assert_eq!(passed("[[[[[[[", 1), None);
    }
}
