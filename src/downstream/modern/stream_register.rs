//! The open `subscriptions/listen` streams by client, for operators: a Modern client has no session
//! that could be listed or ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::call::Context;
use crate::clock;
use crate::pipeline::SeenClient;

/// The open streams. Their number has the limits of all streams.
#[derive(Default)]
pub(crate) struct ListenStreams(Arc<Mutex<ListenTable>>);

#[derive(Default)]
struct ListenTable {
    last_number: u64,
    open: HashMap<u64, OpenListenStream>,
}

struct OpenListenStream {
    client: SeenClient,
    opened_at: SystemTime,
    ended: CancellationToken,
}

/// A stream among the open ones, until it is dropped.
pub(super) struct ListedStream {
    number: u64,
    ended: CancellationToken,
    table: Arc<Mutex<ListenTable>>,
}

/// The open streams of a Modern client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOverview {
    /// The client.
    pub client: SeenClient,
    /// Number of its streams.
    pub streams: usize,
    /// The time at which the first of them was opened.
    pub opened_at: SystemTime,
}

impl ListenStreams {
    /// Lists a stream of a client.
    pub(super) fn enter(&self, context: &Context) -> ListedStream {
        let (client, opened_at) = (SeenClient::of(context), clock::wall_now());
        let ended = CancellationToken::new();
        let stream = OpenListenStream { client, opened_at, ended: ended.clone() };
        let mut table = self.0.lock();
        table.last_number += 1;
        let number = table.last_number;
        table.open.insert(number, stream);
        drop(table);
        ListedStream { number, ended, table: Arc::clone(&self.0) }
    }

    /// Returns every client with streams, the one with the oldest stream first.
    pub(crate) fn overviews(&self) -> Vec<ListenOverview> {
        let mut clients: HashMap<SeenClient, ListenOverview> = HashMap::new();
        for OpenListenStream { client, opened_at, .. } in self.0.lock().open.values() {
            let new =
                || ListenOverview { client: client.clone(), streams: 0, opened_at: *opened_at };
            let overview = clients.entry(client.clone()).or_insert_with(new);
            overview.streams += 1;
            overview.opened_at = overview.opened_at.min(*opened_at);
        }
        let mut overviews: Vec<_> = clients.into_values().collect();
        overviews.sort_by_key(|overview| overview.opened_at);
        overviews
    }

    /// Ends the streams of the client with this digest. Returns them; `None` if it has none.
    pub(crate) fn end_by_digest(&self, digest: &str) -> Option<ListenOverview> {
        let overviews = self.overviews();
        let found = overviews.into_iter().find(|overview| overview.client.digest() == digest)?;
        let table = self.0.lock();
        for stream in table.open.values().filter(|stream| stream.client == found.client) {
            stream.ended.cancel();
        }
        Some(found)
    }
}

impl ListedStream {
    /// Waits until an operator ends it.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Drop for ListedStream {
    fn drop(&mut self) {
        self.table.lock().open.remove(&self.number);
    }
}
