//! The story of one list request: prepared bytes, as a whole or one page.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::call::{Context, Failure, InternalFault};
use crate::catalog::Kind;
use crate::mcp::Era;
use crate::policy::Holder;

use crate::snapshot::{Snapshot, View};

use super::Gateway;

/// The result of a list request, shared by all clients of the view.
pub type Listed = Bytes;

impl Gateway {
    /// The list, or the page of it that `cursor` points to. It is served from
    /// prepared bytes; servers whose own list may be stale are asked in the
    /// background, and a notification announces a change.
    ///
    /// # Errors
    /// [`Failure::InvalidParams`] if the cursor was not issued by this gateway,
    /// or belongs to an outdated list.
    pub async fn list(
        &self,
        kind: Kind,
        context: &Context,
        cursor: Option<&str>,
    ) -> Result<Listed, Failure> {
        let snapshot = self.snapshots.load_full();
        let era = context.client.version.era();
        let key = self.view_key(context);
        refresh_lists(&snapshot, &snapshot.view(&key, context), context, kind).await;
        // Another one if a server has just turned out to have lists by era.
        let view = snapshot.view(&self.view_key(context), context);
        for member in snapshot.servers().filter(|it| view.scope().admits_server(&it.config.name)) {
            member.server.wake(kind);
        }
        let (list, listing) = (view.catalog.list(kind), view.listings.get(kind));
        let digest = list.digest();
        let from = cursor.map(|cursor| self.cursors.open(kind, cursor, digest)).transpose()?;
        let Some(size) = snapshot.config.gateway.page_size else {
            return Ok(listing.whole(era).clone());
        };
        let page = list.page(from, size);
        let next = page.next.map(|next| self.cursors.seal(kind, next, digest)).transpose();
        let next = next.map_err(|_| InternalFault::Seal)?;
        Ok(listing.page(era, &page.items, next.as_deref()))
    }
}

/// Requests the lists that the servers of a view have for clients like the one
/// that asks, and waits a while for those not requested before. Lists that
/// arrive later are announced as changes.
pub(super) async fn refresh_lists(snapshot: &Snapshot, view: &View, context: &Context, kind: Kind) {
    let asked = async {
        join_all(request_lists(snapshot, view, context, kind)).await;
        if context.client.version.era() == Era::Legacy {
            // Servers that have just turned out not to speak Legacy have other lists for it.
            join_all(request_lists(snapshot, view, context, kind)).await;
        }
    };
    let _ = timeout(PATIENCE, asked).await;
}

/// Requests the lists as [`refresh_lists`] does, without waiting for them: each
/// returned future resolves once its server has answered or failed.
pub(super) fn request_lists(
    snapshot: &Snapshot,
    view: &View,
    context: &Context,
    kind: Kind,
) -> Vec<impl Future<Output = ()> + Send + use<>> {
    let client = &context.client;
    if client.abilities().are_none() && client.version.era() == Era::Modern {
        return Vec::new();
    }
    let holder = Holder::identify(&context.principal, context.address);
    let servers =
        snapshot.servers().filter(|member| view.scope().admits_server(&member.config.name));
    servers.map(|member| member.server.list_on_behalf(client, &holder, kind)).collect()
}

/// How long a client waits for lists that depend on its abilities.
const PATIENCE: Duration = Duration::from_secs(5);
