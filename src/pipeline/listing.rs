//! The story of one list request.

use bytes::Bytes;

use crate::call::{Context, Failure};
use crate::catalog::Kind;

use super::Gateway;

/// A result of a list request, shared with everybody who asked.
pub type Listed = Bytes;

impl Gateway {
    /// The list, or the page of it that `cursor` points to. Answers from what
    /// is prepared; servers whose own list may be stale are asked beside it,
    /// and a change is told by a notification.
    ///
    /// # Errors
    /// [`Failure::InvalidParams`] for a cursor that is not one of this
    /// gateway's, or that belongs to a list that is no longer the current one.
    #[expect(clippy::unused_async, reason = "a view may have to wait for its servers' lists")]
    pub async fn list(
        &self,
        kind: Kind,
        context: &Context,
        cursor: Option<&str>,
    ) -> Result<Listed, Failure> {
        let snapshot = self.snapshots.load_full();
        let era = context.client.version.era();
        let view = snapshot.view(&self.view_key(context));
        for member in snapshot.servers().filter(|it| view.scope().admits_server(&it.config.name)) {
            member.server.wake(kind);
        }
        let (list, listing) = (view.catalog.list(kind), view.listings.get(kind));
        let digest = list.digest();
        let invalid = |detail: String| Failure::InvalidParams { detail };
        let from = cursor
            .map(|cursor| self.cursors.open(kind, cursor, digest))
            .transpose()
            .map_err(|error| invalid(error.to_string()))?;
        let Some(size) = snapshot.config.gateway.page_size else {
            return Ok(listing.whole(era).clone());
        };
        let page = list.page(from, size);
        let next = page.next.map(|next| self.cursors.seal(kind, next, digest)).transpose();
        let next = next.map_err(|_| Failure::Internal { detail: "sealing a cursor".into() })?;
        Ok(listing.page(era, &page.items, next.as_deref()))
    }
}
