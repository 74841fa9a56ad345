//! A position in a text, and the steps that a reader can take from it.
//!
//! Everything stepped over is validated as JSON (RFC 8259). An error is one
//! byte, and its position is the cursor's: that keeps the steps short.

use std::borrow::Cow;

use super::brackets::Brackets;
use super::{DepthError, JsonSyntaxError, ObjectError};
use crate::masks::special;

/// The element that was expected at an invalid position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkError {
    /// A key.
    Key,
    /// The colon after a key.
    Colon,
    /// Any value.
    Value,
    /// A digit.
    Digit,
    /// A character that is not a control character.
    Control,
    /// The quote that ends a string.
    Quote,
    /// A valid escape.
    Escape,
    /// The four digits of a `\u` escape.
    CodePoint,
    /// The other half of a surrogate pair.
    Surrogates,
    /// Another member, or the object's end.
    Member,
    /// Another element, or the array's end.
    Element,
    /// The end of the text.
    End,
    /// Fewer levels: the text nests too deeply.
    Depth,
}

impl WalkError {
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Key => "a key",
            Self::Colon => "`:`",
            Self::Value => "a value",
            Self::Digit => "a digit",
            Self::Control => "no control character",
            Self::Quote => "`\"`",
            Self::Escape => "an escape",
            Self::CodePoint => "`u` and four hexadecimal digits",
            Self::Surrogates => "a pair of surrogates",
            Self::Member => "`,` or `}`",
            Self::Element => "`,` or `]`",
            Self::End => "nothing more",
            Self::Depth => "fewer levels",
        }
    }
}

/// A position in a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    max_depth: usize,
}

/// The position of a string in the text, without its quotes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Quoted {
    /// After the opening quote.
    pub start: usize,
    /// Before the closing quote.
    pub end: usize,
    /// True if the string contains escapes.
    pub escaped: bool,
}

/// A reader's position among the members, or elements, of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberSlot {
    /// Before the first one.
    First,
    /// After a member or element.
    Further,
    /// After the closing bracket.
    Behind,
}

impl<'a> Cursor<'a> {
    /// A cursor at the beginning of a text that may nest `max_depth` levels.
    ///
    /// # Errors
    /// [`ObjectError::Syntax`] if the text is not UTF-8: every later step works on
    /// bytes.
    pub(crate) fn over(text: &'a [u8], max_depth: usize) -> Result<Self, ObjectError> {
        // Most texts are ASCII, which takes a tenth of the time to check.
        if !is_ascii(text)
            && let Err(fault) = std::str::from_utf8(text)
        {
            return Err(ObjectError::Syntax(JsonSyntaxError {
                at: fault.valid_up_to(),
                expected: "UTF-8",
            }));
        }
        Ok(Self { text, at: 0, max_depth })
    }

    /// The error at the cursor's position.
    #[cold]
    pub(crate) fn fault(&self, wrong: WalkError) -> ObjectError {
        match wrong {
            WalkError::Depth => ObjectError::Depth(DepthError { limit: self.max_depth }),
            wrong => {
                ObjectError::Syntax(JsonSyntaxError { at: self.at, expected: wrong.expected() })
            }
        }
    }

    #[inline]
    pub(super) fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The text from `start` to the cursor.
    #[inline]
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// The text of a string that was stepped over; `None` if it contains an
    /// unpaired surrogate.
    #[inline]
    pub(crate) fn text_of(&self, quoted: Quoted) -> Option<Cow<'a, [u8]>> {
        let raw = self.text.get(quoted.start..quoted.end)?;
        if quoted.escaped { unescaped(raw).map(Cow::Owned) } else { Some(Cow::Borrowed(raw)) }
    }

    /// The number of bytes left.
    pub(crate) fn rest(&self) -> usize {
        self.text.len().saturating_sub(self.at)
    }

    /// Moves to the next byte that is not white space, and returns it.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        match self.byte() {
            Some(b'\0'..=b' ') => self.peek_behind_space(),
            byte => byte,
        }
    }

    #[cold]
    fn peek_behind_space(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    /// The cursor's position.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Steps over an opening bracket, which the caller has found.
    ///
    /// # Errors
    /// [`WalkError::Depth`] if `outside` levels are the maximum.
    #[inline]
    pub(crate) fn open(&mut self, outside: usize) -> Result<(), WalkError> {
        if outside >= self.max_depth {
            return Err(WalkError::Depth);
        }
        self.at += 1;
        Ok(())
    }

    /// Returns true if there is another member, or element, before `close`, and moves to it.
    ///
    /// # Errors
    /// `wrong` if neither a comma nor the end follows.
    #[inline]
    pub(crate) fn has_next(
        &mut self,
        place: &mut MemberSlot,
        close: u8,
        wrong: WalkError,
    ) -> Result<bool, WalkError> {
        match (self.peek(), *place) {
            (_, MemberSlot::Behind) => return Ok(false),
            (Some(byte), _) if byte == close => {
                self.at += 1;
                *place = MemberSlot::Behind;
                return Ok(false);
            }
            (Some(b','), MemberSlot::Further) => {
                self.at += 1;
                self.peek();
            }
            (_, MemberSlot::Further) => return Err(wrong),
            (_, MemberSlot::First) => *place = MemberSlot::Further,
        }
        Ok(true)
    }

    /// Checks that only white space follows.
    ///
    /// # Errors
    /// [`WalkError::End`].
    #[inline]
    pub(crate) fn ends(&mut self) -> Result<(), WalkError> {
        if self.peek().is_none() { Ok(()) } else { Err(WalkError::End) }
    }

    /// Steps over a key and its colon, and moves to the value.
    ///
    /// # Errors
    /// [`WalkError`] if there is none.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<Quoted, WalkError> {
        if self.byte() != Some(b'"') {
            return Err(WalkError::Key);
        }
        let key = self.quoted()?;
        self.colon()?;
        self.peek();
        Ok(key)
    }

    #[inline]
    fn colon(&mut self) -> Result<(), WalkError> {
        if self.peek() != Some(b':') {
            return Err(WalkError::Colon);
        }
        self.at += 1;
        Ok(())
    }

    /// Steps over one value, which is `outside` levels deep.
    ///
    /// # Errors
    /// [`WalkError`] if there is none.
    #[inline]
    pub(crate) fn value(&mut self, outside: usize) -> Result<(), WalkError> {
        match self.peek() {
            Some(b'"') => self.quoted().map(|_| ()),
            Some(b'{' | b'[') => self.nested(outside),
            _ => self.scalar(),
        }
    }

    /// Steps over an object or an array.
    fn nested(&mut self, outside: usize) -> Result<(), WalkError> {
        let mut open = Brackets::default();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.quoted()?;
                }
                Some(byte @ (b'{' | b'[')) => {
                    self.open(outside + open.depth)?;
                    let is_object = byte == b'{';
                    match self.peek() {
                        Some(b'}') if is_object => self.at += 1,
                        Some(b']') if !is_object => self.at += 1,
                        _ => {
                            open.push(is_object);
                            if is_object {
                                self.key()?;
                            }
                            continue;
                        }
                    }
                }
                _ => self.scalar()?,
            }
            // A value has ended; this may also end the objects and arrays
            // around it.
            loop {
                let Some(in_object) = open.innermost() else { return Ok(()) };
                match (self.peek(), in_object) {
                    (Some(b','), true) => {
                        self.at += 1;
                        self.peek();
                        self.key()?;
                        break;
                    }
                    (Some(b','), false) => {
                        self.at += 1;
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.at += 1;
                        open.pop();
                    }
                    (_, true) => return Err(WalkError::Member),
                    (_, false) => return Err(WalkError::Element),
                }
            }
        }
    }

    /// Steps over a number, a boolean or `null`.
    ///
    /// # Errors
    /// [`WalkError`] if there is none.
    pub(crate) fn scalar(&mut self) -> Result<(), WalkError> {
        match self.byte() {
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => Err(WalkError::Value),
        }
    }

    #[inline]
    fn word<const N: usize>(&mut self, word: &[u8; N]) -> Result<(), WalkError> {
        let ahead = self.text.get(self.at..).and_then(<[u8]>::first_chunk::<N>);
        if ahead != Some(word) {
            return Err(WalkError::Value);
        }
        self.at += N;
        Ok(())
    }

    #[inline]
    fn number(&mut self) -> Result<(), WalkError> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    #[inline]
    fn digits(&mut self) -> Result<(), WalkError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        if digits == 0 { Err(WalkError::Digit) } else { Ok(()) }
    }

    /// Steps over a string, from its opening quote.
    ///
    /// # Errors
    /// [`WalkError`] if it is not a valid string.
    #[expect(
        clippy::inline_always,
        reason = "most strings are shorter than a call of this is long"
    )]
    #[inline(always)]
    pub(crate) fn quoted(&mut self) -> Result<Quoted, WalkError> {
        let start = self.at + 1;
        let rest = self.text.get(start..).unwrap_or_default();
        let mut end = start;
        for sixteen in rest.as_chunks::<16>().0.iter().take(INLINE_BLOCKS) {
            let found = special(sixteen);
            if found != 0 {
                end += found.trailing_zeros() as usize;
                if self.text.get(end) != Some(&b'"') {
                    break;
                }
                self.at = end + 1;
                return Ok(Quoted { start, end, escaped: false });
            }
            end += 16;
        }
        self.at = end;
        let escaped = self.rest_of_string()?;
        let end = self.at;
        self.at += 1;
        Ok(Quoted { start, end, escaped })
    }
}

/// Written so that the compiler vectorizes it, with larger blocks for long
/// texts.
fn is_ascii(text: &[u8]) -> bool {
    let (blocks, rest) = text.as_chunks::<256>();
    let (short, rest) = rest.as_chunks::<32>();
    blocks.iter().all(all_ascii) && short.iter().all(all_ascii) && rest.is_ascii()
}

fn all_ascii<const N: usize>(block: &[u8; N]) -> bool {
    block.iter().fold(0, |all, byte| all | byte) < 0x80
}

/// A string's contents without escapes; `None` if there is an unpaired
/// surrogate.
#[cold]
pub(crate) fn unescaped(raw: &[u8]) -> Option<Vec<u8>> {
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).ok().map(String::into_bytes)
}

/// The most blocks of sixteen bytes that are checked inline.
const INLINE_BLOCKS: usize = 4;
