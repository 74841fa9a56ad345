//! Pagination cursors, sealed so that a client can neither read nor change them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use trunkline_core::crypto::{SealError, Sealer};
use trunkline_protocol::call::CursorError;

use crate::{Digest, Kind, ListPosition};

/// The sealer of cursors.
#[derive(Debug)]
pub struct SealedCursors {
    sealer: Sealer,
}

impl SealedCursors {
    /// Derives the keys from secrets, the newest first. Replicas that share one accept each other's
    /// cursors.
    ///
    /// # Errors
    /// The cryptographic library rejects a key, which should not happen.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, SealError> {
        Ok(Self { sealer: Sealer::new(KEY_PURPOSE, secrets)? })
    }

    /// Seals a position in the list of this kind and digest.
    ///
    /// # Errors
    /// The cryptographic library has no random numbers.
    pub fn seal(
        &self,
        kind: Kind,
        position: ListPosition,
        list: &Digest,
    ) -> Result<String, SealError> {
        let position = u64::try_from(position.0).map_err(|_| SealError)?;
        let mut cursor = position.to_be_bytes().to_vec();
        cursor.extend(list.iter().take(DIGEST_LEN));
        Ok(URL_SAFE_NO_PAD.encode(self.sealer.seal(authenticated_purpose(kind), cursor)?))
    }

    /// Opens a cursor and returns its position.
    ///
    /// # Errors
    /// [`CursorError`]: the cursor is invalid, or belongs to another list.
    pub fn open(
        &self,
        kind: Kind,
        cursor: &str,
        list: &Digest,
    ) -> Result<ListPosition, CursorError> {
        // Checked before decoding: the client chooses the length.
        if cursor.len() > MAX_CURSOR_CHARS {
            return Err(CursorError::Invalid);
        }
        let sealed = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| CursorError::Invalid)?;
        let opened = self.sealer.open(authenticated_purpose(kind), &sealed);
        let opened = opened.ok_or(CursorError::Invalid)?;
        let (position, digest) = opened.split_first_chunk::<8>().ok_or(CursorError::Invalid)?;
        if !list.starts_with(digest) {
            return Err(CursorError::Stale);
        }
        let position = usize::try_from(u64::from_be_bytes(*position));
        position.map(ListPosition).map_err(|_| CursorError::Invalid)
    }
}

/// Binds a cursor to its purpose and its kind of list, so that it is not accepted for another.
fn authenticated_purpose(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Tools => b"trunkline tools/list cursor",
        Kind::Prompts => b"trunkline prompts/list cursor",
        Kind::Resources => b"trunkline resources/list cursor",
        Kind::Templates => b"trunkline resources/templates/list cursor",
        Kind::Skills => b"trunkline skills/list cursor",
    }
}

const KEY_PURPOSE: &[u8] = b"trunkline cursor key\n";
/// Bytes of a listing's digest that a cursor carries.
const DIGEST_LEN: usize = 16;
/// Nonce 12, position 8, digest 16, tag 16 bytes: 70 characters.
const MAX_CURSOR_CHARS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Digest = [1; 32];

    fn cursors() -> SealedCursors {
        SealedCursors::new([[7; 32].as_slice()]).unwrap()
    }

    #[test]
    fn a_cursor_leads_back_to_its_position_in_its_list() {
        let cursor = cursors().seal(Kind::Tools, ListPosition(4_200), &LIST).unwrap();
        assert_eq!(cursors().open(Kind::Tools, &cursor, &LIST), Ok(ListPosition(4_200)));
        assert_eq!(cursors().open(Kind::Tools, &cursor, &[2; 32]), Err(CursorError::Stale));
    }

    #[test]
    fn a_cursor_that_was_changed_or_made_elsewhere_is_refused() {
        let cursor = cursors().seal(Kind::Tools, ListPosition(3), &LIST).unwrap();
        for place in 0..cursor.len() {
            let mut changed = cursor.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(
                cursors().open(Kind::Tools, &changed, &LIST),
                Err(CursorError::Invalid),
                "{place}"
            );
        }
        let other = SealedCursors::new([[8; 32].as_slice()]).unwrap();
        assert_eq!(other.open(Kind::Tools, &cursor, &LIST), Err(CursorError::Invalid));
        for text in ["", "3", "!!", &"A".repeat(1 << 16), &cursor[..40]] {
            assert_eq!(cursors().open(Kind::Tools, text, &LIST), Err(CursorError::Invalid));
        }
    }

    #[test]
    fn a_cursor_of_one_kind_of_list_is_none_of_another() {
        let cursor = cursors().seal(Kind::Prompts, ListPosition(3), &LIST).unwrap();
        for kind in [Kind::Tools, Kind::Resources, Kind::Templates] {
            assert_eq!(cursors().open(kind, &cursor, &LIST), Err(CursorError::Invalid));
        }
    }

    #[test]
    fn two_cursors_for_one_position_look_nothing_alike() {
        let (a, b) = (
            cursors().seal(Kind::Tools, ListPosition(1), &LIST),
            cursors().seal(Kind::Tools, ListPosition(1), &LIST),
        );
        assert_ne!(a.unwrap(), b.unwrap());
    }
}
