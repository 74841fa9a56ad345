//! Waits of a call without a route for lists that may give it one.

use crate::call::{Call, Failure};
use crate::catalog::Kind;
use crate::clock;
use crate::mcp::Era;
use crate::pipeline::client_view::ClientView;
use crate::pipeline::listing;
use crate::pipeline::listing::due_listings::DueLists;
use crate::pipeline::listing::first_lists::FirstLists;
use crate::snapshot::{Snapshots, ViewKey};

/// The waits that are left to a call, each of which is made once.
pub(super) struct ListWaits {
    next: Option<ListWait>,
}

/// Lists that a call may wait for.
#[derive(Clone, Copy)]
enum ListWait {
    /// Of servers that are starting: the client knows the name from before a restart of the
    /// gateway.
    First,
    /// Of servers that list by client: one may offer the name to clients like this one, but has not
    /// been asked yet.
    Own,
    /// Of servers that have announced a change: the name may be new.
    Due,
}

impl ListWaits {
    /// Returns the waits of a call. Tasks are not listed: only their tools are.
    #[inline]
    pub(super) fn new(call: &Call) -> Self {
        let is_about_task = call.method.is_task_request();
        let first = if is_about_task { ListWait::Due } else { ListWait::First };
        Self { next: Some(first) }
    }

    /// Waits for the next lists that may change the failure of a call without a route. Returns the
    /// client's view with them; if there are none to wait for, the client's view as it is.
    pub(super) async fn next(
        &mut self,
        mut client: Box<ClientView>,
        call: &Call,
        failure: &Failure,
        snapshots: &Snapshots,
    ) -> Result<Box<ClientView>, Box<ClientView>> {
        if !may_be_listed(failure) {
            return Err(client);
        }
        while let Some(wait) = self.next.take() {
            self.next = wait.following();
            match wait.run(client, call, snapshots).await {
                Ok(newer) => return Ok(newer),
                Err(same) => client = same,
            }
        }
        Err(client)
    }
}

impl ListWait {
    fn following(self) -> Option<Self> {
        match self {
            Self::First => Some(Self::Own),
            Self::Own => Some(Self::Due),
            Self::Due => None,
        }
    }

    /// Waits for these lists; returns the client's view at once as an error if none of them is
    /// expected.
    async fn run(
        self,
        client: Box<ClientView>,
        call: &Call,
        snapshots: &Snapshots,
    ) -> Result<Box<ClientView>, Box<ClientView>> {
        // Holding the snapshot would keep servers that are removed meanwhile from being stopped.
        let key = match self {
            Self::First => {
                let Some(pending) = FirstLists::pending(&client, None) else { return Err(client) };
                let key = client.release();
                pending.wait(snapshots, None).await;
                key
            }
            Self::Own => return wait_for_own_lists(client, call).await,
            Self::Due => {
                let Some(due) = DueLists::pending(&client) else { return Err(client) };
                let key = client.release();
                due.wait(snapshots).await;
                key
            }
        };
        Ok(Box::new(ClientView::find(snapshots.load_full(), key, &call.context)))
    }
}

/// Waits for the lists that servers have for clients like this one.
async fn wait_for_own_lists(
    mut client: Box<ClientView>,
    call: &Call,
) -> Result<Box<ClientView>, Box<ClientView>> {
    let is_legacy = call.context.client.version.era() == Era::Legacy;
    if client.key.abilities.is_none() && client.key.account.is_none() && !is_legacy {
        return Err(client);
    }
    let until = clock::now() + listing::LIST_REFRESH_TIMEOUT;
    listing::refresh_lists(&client, &call.context, Kind::Tools, until).await;
    // A server may have just turned out to have other lists for Legacy clients.
    let key = ViewKey { era: is_legacy.then_some(Era::Legacy), ..client.key.clone() };
    client.view = client.snapshot.view(&key, &call.context);
    Ok(client)
}

/// Returns true if a list that arrives later may give the call a route.
fn may_be_listed(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::UnknownTool { .. }
            | Failure::UnknownPrompt { .. }
            | Failure::UnknownResource { .. }
            | Failure::UnknownTask { .. }
            | Failure::MethodNotFound { .. }
    )
}
