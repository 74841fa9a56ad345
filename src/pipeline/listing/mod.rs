//! List requests, answered from prepared bytes, as a whole or page by page.

pub(super) mod due_listings;
pub(super) mod first_lists;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::call::{Context, CursorError, Failure, InternalFault};
use crate::catalog::{CatalogList, Kind, ListPosition};
use crate::clock;
use crate::mcp::Era;
use crate::pipeline::Gateway;
use crate::pipeline::client_view::ClientView;
use crate::pipeline::record::answered::log_list;
use crate::shares::{Holder, Patience};
use crate::snapshot::{Digests, PreparedListing, Snapshot, View};
use crate::upstream::ListPatience;

use first_lists::FirstLists;

/// The answer to a list request.
pub struct Listed {
    /// The result, shared by all clients of the view.
    pub result: Bytes,
    /// Digests of the view's lists.
    pub shown: Digests,
    /// Number of elements in the whole list.
    items: u64,
}

impl Gateway {
    /// Returns the list, or the page of it that `cursor` points to.
    ///
    /// It is served from prepared bytes. Servers with lists that may be stale are asked in the
    /// background, and a notification announces a change. Only servers that are starting for the
    /// first time delay the answer, by up to the session's `patience`, or for a client without a
    /// session by up to that of each server.
    ///
    /// # Errors
    /// [`Failure::InvalidParams`] if the cursor was not issued by this gateway, or belongs to a
    /// list that has changed and is no longer kept; [`Failure::AuditUnavailable`] if the list cannot
    /// be recorded.
    pub async fn list(
        &self,
        kind: Kind,
        context: &Context,
        cursor: Option<&str>,
        patience: Option<&ListPatience>,
    ) -> Result<Listed, Failure> {
        let started = clock::real_now();
        let listed = self.find_list(kind, context, cursor, patience).await;
        log_list(kind, context, started, listed.as_ref().map(|listed| listed.items));
        listed
    }

    async fn find_list(
        &self,
        kind: Kind,
        context: &Context,
        cursor: Option<&str>,
        patience: Option<&ListPatience>,
    ) -> Result<Listed, Failure> {
        let room = self.reserve_record()?;
        let until = clock::now() + LIST_REFRESH_TIMEOUT;
        if cursor.is_none() {
            self.await_first_lists(kind, context, patience).await;
        }
        let era = context.client.version.era();
        let client = ClientView::find(self.snapshots.load_full(), self.view_key(context), context);
        refresh_lists(&client, context, kind, until).await;
        // The view differs if a server has just turned out to have lists by era.
        let client = ClientView::find(client.snapshot, self.view_key(context), context);
        for member in client.snapshot.servers_of(&client.view) {
            member.server.wake(kind);
        }
        if kind == Kind::Tools && client.view.awaits_count() {
            count_tokens(&client, context).await;
        }
        let found = cursor.map(|cursor| self.find_page(kind, cursor, &client, context));
        let ClientView { snapshot, view, key } = client;
        let (view, from) = found.transpose()?.unwrap_or((view, None));
        let shown = snapshot.digests_for(&view, &context.client);
        let (list, listing) = choose_list(kind, &snapshot, &view, context);
        let digest = list.digest();
        if let Some(authorization) = snapshot.policy.authorization() {
            authorization.note_list(context);
        }
        self.audit_list(kind, context, (list.len(), digest), room);
        let items = list.len() as u64;
        let Some(size) = snapshot.config.gateway.page_size else {
            return Ok(Listed { result: listing.whole(era).clone(), shown, items });
        };
        let page = list.page(from, size);
        let seal = |next| {
            let sealed = self.inputs.cursors()?.seal(kind, next, digest);
            sealed.map_err(|_| Failure::from(InternalFault::Seal))
        };
        let next = page.next.map(seal).transpose()?;
        if next.is_some() {
            let key = snapshot.key_with_rights(&key, context);
            self.paged.keep(key, &snapshot, &view);
        }
        Ok(Listed { result: listing.page(era, &page.items, next.as_deref()), shown, items })
    }

    /// Returns the view that a cursor points into, and the position in its list: the current view,
    /// or an earlier one that the client has read the first pages of.
    ///
    /// # Errors
    /// [`CursorError`].
    fn find_page(
        &self,
        kind: Kind,
        cursor: &str,
        client: &ClientView,
        context: &Context,
    ) -> Result<(Arc<View>, Option<ListPosition>), CursorError> {
        let ClientView { snapshot, view, key } = client;
        let cursors = self.inputs.cursors().map_err(|_| CursorError::Invalid)?;
        let open = |view: Arc<View>| {
            let digest = choose_list(kind, snapshot, &view, context).0.digest();
            let position = cursors.open(kind, cursor, digest)?;
            Ok((view, Some(position)))
        };
        match open(Arc::clone(view)) {
            Err(CursorError::Stale) => {
                let key = snapshot.key_with_rights(key, context);
                let earlier = self.paged.find(&key, snapshot);
                earlier.into_iter().find_map(|view| open(view).ok()).ok_or(CursorError::Stale)
            }
            opened => opened,
        }
    }

    /// Waits for the servers that are starting for the first time.
    async fn await_first_lists(
        &self,
        kind: Kind,
        context: &Context,
        patience: Option<&ListPatience>,
    ) {
        let client = ClientView::find(self.snapshots.load_full(), self.view_key(context), context);
        if !client.view.scope().may_show(kind) {
            return;
        }
        let Some(pending) = FirstLists::pending(&client, patience) else { return };
        // Holding the snapshot would keep servers that are removed meanwhile from being stopped.
        drop(client);
        pending.wait(&self.snapshots, patience).await;
    }
}

/// Returns the list of a view that a client gets.
fn choose_list<'a>(
    kind: Kind,
    snapshot: &Snapshot,
    view: &'a View,
    context: &Context,
) -> (&'a CatalogList, &'a PreparedListing) {
    let other = (kind == Kind::Tools).then(|| snapshot.meta_list(view, &context.client));
    let (list, listing) = match other.flatten() {
        Some(other) => (&other.list, &other.listing),
        None => (view.catalog.list(kind), view.listings.get(kind)),
    };
    (list.for_era(context.client.version.era()), listing)
}

/// Counts the tokens of a view's tools, away from the threads that serve clients. If other work
/// delays this for too long, an estimate from their size is used.
async fn count_tokens(client: &ClientView, context: &Context) {
    let ClientView { snapshot, view, .. } = client;
    let holder = Holder::of_context(context);
    let failure = Failure::OverLimit { limit: "counts".into(), retry_after: LIST_REFRESH_TIMEOUT };
    let patience = Patience { longest: LIST_REFRESH_TIMEOUT, failure };
    let (counted, from) = (Arc::clone(view), Arc::clone(snapshot));
    let count = move || from.count_tokens_of(&counted);
    let _ = snapshot.policy.large_work().run(&holder, patience, count).await;
}

/// Requests the lists that the view's servers have for clients like this one. Waits for those not
/// requested before, until `until` at most. Lists that arrive later are announced as changes.
pub(super) async fn refresh_lists(
    client: &ClientView,
    context: &Context,
    kind: Kind,
    until: Instant,
) {
    let ClientView { snapshot, view, .. } = client;
    let asked = async {
        join_all(request_lists(snapshot, view, context, kind)).await;
        // Servers that have just turned out not to speak Legacy, or to list by capabilities, have
        // other lists for this client.
        join_all(request_lists(snapshot, view, context, kind)).await;
    };
    let _ = timeout_at(until, asked).await;
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
    let is_plain = client.abilities().are_none() && client.version.era() == Era::Modern;
    if is_plain && !snapshot.grants.has_accounts() {
        return Vec::new();
    }
    let holder = Holder::of_context(context);
    let servers = snapshot.servers_of(view);
    servers.map(|member| member.server.list_on_behalf(context, &holder, kind)).collect()
}

/// Limit of a client's wait for lists that depend on its abilities, from its request on.
pub(super) const LIST_REFRESH_TIMEOUT: Duration = Duration::from_secs(5);
