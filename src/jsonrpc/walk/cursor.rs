//! Where a reader stands in a text, and what it can step over.
//!
//! Everything stepped over is checked to be JSON (RFC 8259). What goes wrong is
//! told in a byte, and stands where the cursor does: that keeps the steps short.

use std::borrow::Cow;

use super::brackets::Brackets;
use super::{Malformed, NoObject, TooDeep};
use crate::jsonrpc::masks::special;

/// What should have stood where the text goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkError {
    /// A key.
    Key,
    /// The colon behind it.
    Colon,
    /// Any value.
    Value,
    /// A digit.
    Digit,
    /// Anything but a control character.
    Control,
    /// The quote that ends a string.
    Quote,
    /// An escape.
    Escape,
    /// The code point of one.
    CodePoint,
    /// The other half of a pair.
    Surrogates,
    /// Another member, or the object's end.
    Member,
    /// Another element, or the array's end.
    Element,
    /// The end.
    End,
    /// It is deeper than the text may nest.
    Depth,
}

impl WalkError {
    pub(in crate::jsonrpc) fn expected(self) -> &'static str {
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

/// A place in a text.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    max_depth: usize,
}

/// Where a string stands in the text, without its quotes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quoted {
    /// Behind the first quote.
    pub start: usize,
    /// Before the last one.
    pub end: usize,
    /// Whether there are escapes in it.
    pub escaped: bool,
}

/// Where among its members, or elements, a reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberSlot {
    /// Before the first one.
    First,
    /// Behind one.
    Further,
    /// Behind the bracket that ends them.
    Behind,
}

impl<'a> Cursor<'a> {
    /// At the beginning of a text that may nest `max_depth` levels.
    ///
    /// # Errors
    /// [`NoObject::Syntax`] where it is not UTF-8: from here on only bytes are
    /// looked at.
    pub fn over(text: &'a [u8], max_depth: usize) -> Result<Self, NoObject> {
        // Most texts are ASCII, which is told in a tenth of the time.
        if !is_ascii(text)
            && let Err(fault) = std::str::from_utf8(text)
        {
            return Err(NoObject::Syntax(Malformed { at: fault.valid_up_to(), expected: "UTF-8" }));
        }
        Ok(Self { text, at: 0, max_depth })
    }

    /// What is wrong where the cursor stands.
    #[cold]
    pub fn fault(&self, wrong: WalkError) -> NoObject {
        match wrong {
            WalkError::Depth => NoObject::Depth(TooDeep { limit: self.max_depth }),
            wrong => NoObject::Syntax(Malformed { at: self.at, expected: wrong.expected() }),
        }
    }

    #[inline]
    pub(super) fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The text from there to where the cursor stands.
    #[inline]
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// A string that was stepped over; `None` where it is no text: half of a
    /// pair of surrogates.
    #[inline]
    pub fn text_of(&self, quoted: Quoted) -> Option<Cow<'a, [u8]>> {
        let raw = self.text.get(quoted.start..quoted.end)?;
        if quoted.escaped { unescaped(raw).map(Cow::Owned) } else { Some(Cow::Borrowed(raw)) }
    }

    /// How many bytes are left.
    pub fn rest(&self) -> usize {
        self.text.len().saturating_sub(self.at)
    }

    /// The next byte that is no white space; stands on it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
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

    /// Where the cursor stands.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Steps over an opening bracket, which the caller has seen.
    ///
    /// # Errors
    /// [`WalkError::Depth`] where `outside` levels are all there may be.
    #[inline]
    pub fn open(&mut self, outside: usize) -> Result<(), WalkError> {
        if outside >= self.max_depth {
            return Err(WalkError::Depth);
        }
        self.at += 1;
        Ok(())
    }

    /// Whether there is another member, or element, of what ends with `close`;
    /// stands on it.
    ///
    /// # Errors
    /// `wrong` where neither a comma nor the end follows.
    #[inline]
    pub fn has_next(
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

    /// Nothing but white space to the end.
    ///
    /// # Errors
    /// [`WalkError::End`].
    #[inline]
    pub fn ends(&mut self) -> Result<(), WalkError> {
        if self.peek().is_none() { Ok(()) } else { Err(WalkError::End) }
    }

    /// Steps over a key and its colon; stands on the value.
    ///
    /// # Errors
    /// [`WalkError`] where there is none.
    #[inline]
    pub fn key(&mut self) -> Result<Quoted, WalkError> {
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

    /// Steps over one value that stands `outside` levels deep.
    ///
    /// # Errors
    /// [`WalkError`] where there is none.
    #[inline]
    pub fn value(&mut self, outside: usize) -> Result<(), WalkError> {
        match self.peek() {
            Some(b'"') => self.quoted().map(|_| ()),
            Some(b'{' | b'[') => self.nested(outside),
            _ => self.scalar(),
        }
    }

    /// Steps over a value that has an opening bracket.
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
            // A value has ended, and with it perhaps what it stands in.
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

    /// Steps over a number, a truth or nothing.
    ///
    /// # Errors
    /// [`WalkError`] where there is none.
    pub fn scalar(&mut self) -> Result<(), WalkError> {
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

    /// Steps over a string; stands on its first quote.
    ///
    /// # Errors
    /// [`WalkError`] where it is none.
    #[expect(
        clippy::inline_always,
        reason = "most strings are shorter than a call of this is long"
    )]
    #[inline(always)]
    pub fn quoted(&mut self) -> Result<Quoted, WalkError> {
        let start = self.at + 1;
        let rest = self.text.get(start..).unwrap_or_default();
        let mut end = start;
        for sixteen in rest.as_chunks::<16>().0.iter().take(SHORT) {
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

/// Written so that the compiler looks at many bytes at once, and at more of a
/// long text.
fn is_ascii(text: &[u8]) -> bool {
    let (blocks, rest) = text.as_chunks::<256>();
    let (short, rest) = rest.as_chunks::<32>();
    blocks.iter().all(all_ascii) && short.iter().all(all_ascii) && rest.is_ascii()
}

fn all_ascii<const N: usize>(block: &[u8; N]) -> bool {
    block.iter().fold(0, |all, byte| all | byte) < 0x80
}

/// What stands between quotes, without its escapes; `None` where one of them is
/// half of a pair of surrogates.
#[cold]
pub(in crate::jsonrpc) fn unescaped(raw: &[u8]) -> Option<Vec<u8>> {
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).ok().map(String::into_bytes)
}

/// How many times sixteen bytes a short text has.
const SHORT: usize = 4;
