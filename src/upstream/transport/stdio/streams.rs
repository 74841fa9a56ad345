//! Streams of a Modern child: requests that stay open, and the notifications that name them.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::MutexGuard;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::jsonrpc;
use crate::upstream::notifications::listen::{StreamPurpose, StreamSignal};

use super::wire::ChildLink;

/// Receivers of streams, by the ids of their requests.
pub(super) type OpenStreams = HashMap<u64, (mpsc::Sender<StreamSignal>, StreamPurpose)>;

impl ChildLink {
    /// Forwards an acknowledgement to its stream.
    pub(super) fn acknowledge(&self, params: Option<Bytes>) {
        let Some(params) = params else { return };
        let id = subscription_of(&params);
        if let Some((stream, _)) = id.and_then(|id| self.streams().get(&id).cloned()) {
            let _ = stream.try_send(StreamSignal::Acknowledged(params));
        }
    }

    /// Forwards a notification to its stream, if that stream carries unknown notifications. Returns
    /// it otherwise.
    pub(super) fn carry(
        &self,
        method: String,
        params: Option<Bytes>,
    ) -> Result<(), (String, Option<Bytes>)> {
        let streams = self.streams();
        // Usually there is no such stream.
        if streams.values().all(|(_, carries)| *carries == StreamPurpose::News) {
            return Err((method, params));
        }
        let id = params.as_deref().and_then(subscription_of);
        match id.and_then(|id| streams.get(&id)) {
            Some((stream, StreamPurpose::Unknown)) => {
                let _ = stream.try_send(StreamSignal::Told(method, params));
                Ok(())
            }
            _ => Err((method, params)),
        }
    }

    /// Registers a stream before it is requested. Its signals arrive until `forget_stream`.
    pub(super) fn expect_stream(
        &self,
        id: u64,
        signals: mpsc::Sender<StreamSignal>,
        carries: StreamPurpose,
    ) {
        self.streams().insert(id, (signals, carries));
    }

    /// Removes a stream, and cancels it unless the child has ended it.
    pub(super) fn forget_stream(&self, id: u64) {
        let open = self.streams().remove(&id).is_some();
        if open {
            self.send_cancelled(id);
        }
    }

    pub(super) fn streams(&self) -> MutexGuard<'_, OpenStreams> {
        self.streams.lock()
    }
}

/// Returns the stream to which a notification belongs, by the number of its request.
fn subscription_of(params: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct SubscriptionMeta {
        #[serde(rename = "_meta")]
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
        subscription: u64,
    }
    jsonrpc::object::<SubscriptionMeta>(params).ok().map(|params| params.metadata.subscription)
}
