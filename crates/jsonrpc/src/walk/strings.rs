//! Strings that are long, or contain escapes.

use crate::masks::{BLOCK_BYTES, special_in_block};

use super::cursor::{Cursor, WalkError};

impl<'a> Cursor<'a> {
    /// Steps to the closing quote of a string; returns true if there are escapes before it.
    pub(super) fn rest_of_string(&mut self) -> Result<bool, WalkError> {
        let (mut escaped, mut plain) = (false, 0);
        while let Some(block) = self.rest_of_text().first_chunk() {
            let (begun, mut found) = (self.at, special_in_block(block));
            plain = if found == 0 { plain + 1 } else { 0 };
            while found != 0 {
                let place = found.trailing_zeros();
                self.at = begun + place as usize;
                if let Some([b'\\', escape]) = self.rest_of_text().first_chunk()
                    && is_simple(*escape)
                {
                    self.at += 2;
                    found &= u64::MAX << place << 2;
                } else if self.ends_string()? {
                    return Ok(escaped);
                } else {
                    let passed = u32::try_from(self.at - begun).unwrap_or(u32::MAX);
                    found &= u64::MAX.checked_shl(passed).unwrap_or_default();
                }
                escaped = true;
            }
            self.at = self.at.max(begun + BLOCK_BYTES);
            if plain == SEARCHED_BLOCKS {
                self.at = self.text.len() - behind_plain(self.rest_of_text()).len();
            }
        }
        loop {
            let rest = self.rest_of_text().iter();
            let plain = rest.take_while(|byte| !matches!(byte, b'"' | b'\\' | b'\0'..b' '));
            self.at += plain.count();
            if self.ends_string()? {
                return Ok(escaped);
            }
            escaped = true;
        }
    }

    #[inline]
    fn rest_of_text(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns true if the string ends at the cursor. Otherwise steps over the escape there.
    #[inline]
    fn ends_string(&mut self) -> Result<bool, WalkError> {
        match self.byte() {
            Some(b'"') => Ok(true),
            Some(b'\\') => {
                self.at += 1;
                self.escape()?;
                Ok(false)
            }
            Some(_) => Err(WalkError::Control),
            None => Err(WalkError::Quote),
        }
    }

    #[inline]
    fn escape(&mut self) -> Result<(), WalkError> {
        match self.byte() {
            Some(byte) if is_simple(byte) => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => self.code_point(),
            _ => Err(WalkError::Escape),
        }
    }

    #[cold]
    fn code_point(&mut self) -> Result<(), WalkError> {
        let digits = self.text.get(self.at + 1..self.at + 5);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(WalkError::CodePoint);
        }
        self.at += 5;
        Ok(())
    }
}

/// Returns true if this byte, after a backslash, completes the escape.
#[inline]
fn is_simple(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
}

/// The rest of a long text, from the first byte on that may be special.
#[inline(never)]
fn behind_plain(text: &[u8]) -> &[u8] {
    let length = memchr::memchr2(b'"', b'\\', text).unwrap_or(text.len());
    let (plain, rest) = text.split_at_checked(length).unwrap_or_default();
    let has_control =
        |part: &[u8]| part.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < b' ';
    if has_control(plain) { text } else { rest }
}

/// Plain blocks in a row after which a string is long enough for a search of its own.
const SEARCHED_BLOCKS: usize = 4;
