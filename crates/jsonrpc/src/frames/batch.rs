//! Batches: several messages in one JSON array (2025-03-26).

use bytes::Bytes;

use crate::FrameFault;
use crate::walk::{Cursor, MemberSlot, WalkError};

/// The raw messages of a batch, each of which may nest `max_depth` levels.
///
/// # Errors
/// [`FrameFault`] if the text is not a JSON array, or nests too deeply.
pub fn split_batch(source: &Bytes, max_depth: usize) -> Result<Vec<Bytes>, FrameFault> {
    let mut cursor = Cursor::over(source, max_depth + 1)?;
    read_elements(&mut cursor, source).map_err(|wrong| cursor.fault(wrong).into())
}

fn read_elements<'a>(cursor: &mut Cursor<'a>, source: &'a Bytes) -> Result<Vec<Bytes>, WalkError> {
    if cursor.peek() != Some(b'[') {
        return Err(WalkError::Value);
    }
    cursor.open(0)?;
    let (mut place, mut messages) = (MemberSlot::First, Vec::new());
    while cursor.has_next(&mut place, b']', WalkError::Element)? {
        let start = cursor.at();
        cursor.value(1)?;
        messages.push(source.slice_ref(cursor.since(start)));
    }
    cursor.ends()?;
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_split_into_raw_messages() {
        let split = |text: &'static str| split_batch(&Bytes::from_static(text.as_bytes()), 2);
        let messages = split(r#" [ {"a":[1, "]"]} ,2,"x" ] "#).unwrap();
        assert_eq!(messages, [r#"{"a":[1, "]"]}"#, "2", "\"x\""]);
        assert_eq!(split("[]").unwrap(), [""; 0]);
        for text in ["", "{}", "[1,]", "[1 2]", "[1", "[1]]", "[nul]"] {
            assert!(matches!(split(text), Err(FrameFault::Syntax(_))), "{text}");
        }
        assert!(split("[[[1]]]").is_ok());
        assert!(matches!(split("[[[[1]]]]"), Err(FrameFault::Depth(_))));
    }
}
