//! The story of one `tools/list`.

use bytes::Bytes;

use crate::call::Failure;
use crate::mcp::Era;

use super::Gateway;

/// A result of `tools/list`, shared with everybody who asked.
pub type Listed = Bytes;

impl Gateway {
    /// The list, or the page of it that `cursor` points to. Answers from what
    /// is prepared; servers whose own list may be stale are asked beside it,
    /// and a change is told by a notification.
    ///
    /// # Errors
    /// [`Failure::InvalidParams`] for a cursor that is not one of this
    /// gateway's, or that belongs to a list that is no longer the current one.
    pub fn list(&self, era: Era, cursor: Option<&str>) -> Result<Listed, Failure> {
        let snapshot = self.snapshots.load();
        for member in snapshot.servers() {
            member.server.wake();
        }
        let digest = snapshot.catalog.digest();
        let invalid = |detail: String| Failure::InvalidParams { detail };
        let from = cursor
            .map(|cursor| self.cursors.open(cursor, digest))
            .transpose()
            .map_err(|error| invalid(error.to_string()))?;
        let Some(size) = snapshot.config.gateway.page_size else {
            return Ok(snapshot.listing.whole(era).clone());
        };
        let page = snapshot.catalog.page(from, size);
        let next = page.next.map(|next| self.cursors.seal(next, digest)).transpose();
        let next = next.map_err(|_| Failure::Internal { detail: "sealing a cursor".into() })?;
        Ok(snapshot.listing.page(era, &page.tools, next.as_deref()))
    }
}
