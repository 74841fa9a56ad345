//! Compares sixteen bytes at a time: a mask has one bit for each byte, the
//! lowest for the first.

use wide::u8x16;

/// Marks the bytes that end the plain part of a string: quotes, backslashes and control characters.
#[inline]
pub(super) fn special(bytes: &[u8; 16]) -> u32 {
    special_of(u8x16::new(*bytes)).to_bitmask()
}

/// The special bytes of a block, as in [`special`].
#[inline]
pub(super) fn special_in_block(block: &[u8; BLOCK_BYTES]) -> u64 {
    masks(block, special_of)
}

/// Flipping the second bit of every byte turns the quote into a space and keeps
/// control characters below it: a byte that is then at most a space was one of
/// them.
#[inline]
fn special_of(bytes: u8x16) -> u8x16 {
    let turned = bytes ^ u8x16::splat(0x02);
    let low = turned.min(u8x16::splat(b' ')).simd_eq(turned);
    low | bytes.simd_eq(u8x16::splat(b'\\'))
}

/// The bytes of a block that can affect where a value ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quoting {
    /// `"`
    pub(super) quotes: u64,
    /// `\`
    pub(super) backslashes: u64,
}

/// The quotes and backslashes of a block.
#[inline]
pub(super) fn quoting(block: &[u8; BLOCK_BYTES]) -> Quoting {
    let quotes = masks(block, |bytes| bytes.simd_eq(u8x16::splat(b'"')));
    let backslashes = masks(block, |bytes| bytes.simd_eq(u8x16::splat(b'\\')));
    Quoting { quotes, backslashes }
}

/// The opening and the closing brackets of a block, of both kinds.
#[inline]
pub(super) fn brackets(block: &[u8; BLOCK_BYTES]) -> (u64, u64) {
    // `[` and `{` differ in this one bit only, and so do `]` and `}`.
    let of =
        |bracket| masks(block, |bytes| (bytes | u8x16::splat(0x20)).simd_eq(u8x16::splat(bracket)));
    (of(b'{'), of(b'}'))
}

#[inline]
fn masks(block: &[u8; BLOCK_BYTES], found: impl Fn(u8x16) -> u8x16) -> u64 {
    let (parts, _) = block.as_chunks::<16>();
    parts
        .iter()
        .rev()
        .fold(0, |mask, part| mask << 16 | u64::from(found(u8x16::new(*part)).to_bitmask()))
}

/// The number of bytes in a block: one mask covers it.
pub(super) const BLOCK_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn bits<const N: usize>(bytes: &[u8; N], is: impl Fn(u8) -> bool) -> u64 {
        (0..N).filter(|at| is(bytes[*at])).fold(0, |mask, at| mask | 1 << at)
    }

    #[test]
    fn each_byte_is_found_in_each_place() {
        for around in [b'a', b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff, b'"', 0] {
            for byte in 0..=u8::MAX {
                for at in 0..BLOCK_BYTES {
                    let mut block = [around; BLOCK_BYTES];
                    block[at] = byte;
                    let Quoting { quotes, backslashes } = quoting(&block);
                    assert_eq!(quotes, bits(&block, |byte| byte == b'"'));
                    assert_eq!(backslashes, bits(&block, |byte| byte == b'\\'));
                    let (open, close) = brackets(&block);
                    assert_eq!(open, bits(&block, |byte| matches!(byte, b'{' | b'[')));
                    assert_eq!(close, bits(&block, |byte| matches!(byte, b'}' | b']')));
                    let sixteen = block.first_chunk::<16>().unwrap();
                    let is_special = |byte| matches!(byte, b'"' | b'\\' | 0..=0x1f);
                    assert_eq!(u64::from(special(sixteen)), bits(sixteen, is_special));
                    assert_eq!(special_in_block(&block), bits(&block, is_special));
                }
            }
        }
    }
}
