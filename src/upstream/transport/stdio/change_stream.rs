//! Listens for a child's notifications. They arrive on the shared pipe, regardless of the request
//! that they concern. No request is pending for a stream, so a malformed line is never attributed
//! to one.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::call::Answer;
use crate::mcp::{Era, Method};
use crate::upstream::UpstreamError;
use crate::upstream::notifications::listen::{
    ChangeStream, ListenTransport, StreamPurpose, StreamRefused, listen,
};
use crate::upstream::notifications::subscribe::{SubscribeTransport, subscribe};
use crate::upstream::peer::Peer;

use super::ask;
use super::wire::ChildLink;

/// Starts the task that listens for changes, until the returned set is dropped.
pub(super) fn start(wire: &Arc<ChildLink>, peer: &Peer) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let (pipe, inbox) = (StdioListener(Arc::clone(wire)), Arc::clone(&wire.inbox));
    match peer.era() {
        Era::Modern => tasks.spawn(listen(pipe, peer.clone(), inbox)),
        Era::Legacy => tasks.spawn(subscribe(pipe, peer.tells, inbox)),
    };
    tasks
}

struct StdioListener(Arc<ChildLink>);

impl ListenTransport for StdioListener {
    async fn open(
        &self,
        params: Bytes,
        carries: StreamPurpose,
    ) -> Result<ChangeStream, StreamRefused> {
        let id = self.0.ids.draw();
        let (sender, signals) = ChangeStream::channel();
        // Registered before the request is sent: the acknowledgement may arrive
        // at once.
        self.0.expect_stream(id, sender, carries);
        let stream =
            ChangeStream::new(signals, StdioChangeStream { wire: Arc::clone(&self.0), id });
        let sent = self.0.send(id, Method::Listen.as_str(), &params).await;
        sent.map_err(StreamRefused::Fault).map(|()| stream)
    }
}

impl SubscribeTransport for StdioListener {
    async fn ask(&self, method: &Method, params: Bytes) -> Result<Answer, UpstreamError> {
        ask(&self.0, method.as_str(), &params).await
    }

    fn sessions(&self) -> watch::Receiver<u64> {
        // A child has one session for as long as it lives.
        watch::channel(0).1
    }
}

/// A change stream of the child, cancelled when dropped.
struct StdioChangeStream {
    wire: Arc<ChildLink>,
    id: u64,
}

impl Drop for StdioChangeStream {
    fn drop(&mut self) {
        self.wire.forget_stream(self.id);
    }
}
