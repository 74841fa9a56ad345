//! The catalog as one client sees it.

use std::sync::Arc;

use crate::call::Context;
use crate::snapshot::{Snapshot, View, ViewKey};

/// The view of a client within one snapshot.
pub(crate) struct ClientView {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) view: Arc<View>,
    /// The key of the view.
    pub(super) key: ViewKey,
}

impl ClientView {
    /// Finds the view with this key for the sender of a request.
    pub(super) fn find(snapshot: Arc<Snapshot>, key: ViewKey, context: &Context) -> Self {
        let view = snapshot.view(&key, context);
        Self { snapshot, view, key }
    }

    /// Releases the snapshot, and returns the key with which to find the view again.
    pub(super) fn release(self) -> ViewKey {
        self.key
    }
}
