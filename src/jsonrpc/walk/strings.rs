//! What ends the plain part of a string: a quote, a backslash or a control
//! character.

/// The high bit of each of eight bytes that is special; behind the lowest of
/// them also of others.
///
/// To turn the second bit of a byte over changes the quote into a space and
/// lets control characters be such: what is then no more than a space was one
/// of them. No byte that has its high bit is special, and none of those is
/// changed into one that has none.
#[inline]
pub(super) fn special(eight: u64) -> u64 {
    let below = (eight ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslash = (eight ^ (ONES * 0x5c)).wrapping_sub(ONES);
    (below | backslash) & !eight & (ONES << 7)
}

/// Whether one of these bytes is special. Written so that the compiler looks at
/// many of them at once.
#[expect(clippy::needless_bitwise_bool, reason = "a branch for each byte is no look at many")]
#[inline]
pub(super) fn has_special(block: &[u8; BLOCK]) -> bool {
    block.iter().fold(false, |found, byte| found | (byte ^ 0x02 <= 0x20) | (*byte == b'\\'))
}

/// As many bytes as long strings are looked at in one step.
pub(super) const BLOCK: usize = 32;

const ONES: u64 = 0x0101_0101_0101_0101;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_special_byte_is_found_whatever_stands_around_it() {
        let is_special = |byte: u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
        for around in [b'a', b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
            for byte in 0..=u8::MAX {
                for at in 0..8 {
                    for behind in [around, b'"', 0, b'\\', b' ', b'!'] {
                        let mut eight = [around; 8];
                        eight[at] = byte;
                        eight[at + 1..].fill(behind);
                        let first = eight.iter().position(|byte| is_special(*byte));
                        let found = special(u64::from_le_bytes(eight));
                        let found = (found != 0).then(|| found.trailing_zeros() as usize / 8);
                        assert_eq!(found, first, "{eight:?}");
                    }
                }
                for at in 0..BLOCK {
                    let mut block = [around; BLOCK];
                    block[at] = byte;
                    assert_eq!(has_special(&block), is_special(byte));
                }
            }
        }
    }
}
