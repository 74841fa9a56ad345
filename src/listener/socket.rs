//! The bound socket, and the loop that accepts from it.

use std::{
    future::pending,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::backoff::Backoff;
use crate::call::Principal;
use crate::shares::{Holder, Share, ShareBoundError, ShareBounds, SharedAmount};
use crate::telemetry::metrics::{Entered, Level};

use super::{
    BoxError, ConnectionLimits, Drain, LiveSettings, PeerAddress, Settings,
    connection::{self, ConnectionError},
    edge::Edge,
    port_holder::PortHolder,
    request_body::RequestBody,
    tls::ConnectionRefusals,
    tune::tune,
    workers::{WorkerSlot, Workers},
};

/// Reasons for a failed bind.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken.
    #[error(
        "{addr} is in use by {}: stop it, or choose another address",
        holder.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string)
    )]
    InUse {
        /// The requested address.
        addr: SocketAddr,
        /// The process that listens there, if it can be found.
        holder: Option<PortHolder>,
    },
    /// The address is not ours, or a privileged port.
    #[error("cannot listen on {addr}")]
    Bind {
        /// The requested address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A bound socket. Clients may connect from here on; they wait until [`serve`](Self::serve).
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    addr: SocketAddr,
    counts: Arc<Counts>,
    workers: Option<Arc<Workers>>,
    refusals: ConnectionRefusals,
}

/// Result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still open when the drain's time was up.
    pub cut: usize,
}

/// Counts of a listener's connections.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections open now.
    pub open: Level,
    /// Connections refused because all were taken.
    pub refused: AtomicU64,
    /// Connections that ended without a request: silence, a failed handshake, no HTTP.
    pub unused: AtomicU64,
}

impl Listener {
    /// Binds `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn bind(addr: SocketAddr) -> Result<Self, ListenError> {
        let fault = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { addr, holder: PortHolder::find(addr) },
            _ => ListenError::Bind { addr, source },
        };
        let socket = TcpListener::bind(addr).await.map_err(fault)?;
        let addr = socket.local_addr().map_err(fault)?;
        Ok(Self {
            socket,
            addr,
            counts: Arc::default(),
            workers: None,
            refusals: ConnectionRefusals::default(),
        })
    }

    /// Serves connections on these threads instead of the listener's own.
    #[must_use]
    pub fn on(mut self, workers: Arc<Workers>) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Counts the open connections in `open`, for the metrics.
    #[must_use]
    pub fn count_in(mut self, open: Level) -> Self {
        self.counts = Arc::new(Counts { open, ..Counts::default() });
        self
    }

    /// Reports connections that are refused before their first request.
    #[must_use]
    pub fn report_refusals(self, refusals: ConnectionRefusals) -> Self {
        Self { refusals, ..self }
    }

    /// Returns the bound address, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns this listener's counts, which outlive it.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Serves until `drain` is over: accepts until it starts, then closes the socket, lets the
    /// responses in flight finish, and cuts the remaining ones when its time is up.
    ///
    /// # Cancel safety
    /// Dropping this future cuts every connection at once.
    ///
    /// `edge` creates the stack of each connection, which all its requests pass ([`super::edge`]).
    pub async fn serve<F, S, R>(self, settings: LiveSettings, edge: F, drain: Drain) -> Drained
    where
        F: Fn(PeerAddress) -> S + Send + Sync + 'static,
        S: Edge<RequestBody, R>,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let unread = Arc::default();
        let context = Arc::new(ListenerContext { edge, settings, unread, drain: drain.clone() });
        let mut connections = JoinSet::new();
        let mut door = Door::new(self);
        let mut started = pin!(drain.started());
        loop {
            tokio::select! {
                biased;
                () = started.as_mut() => break,
                Some(ended) = connections.join_next() => note_panic(ended),
                (socket, addr) = door.next() => door.admit(socket, addr, &context, &mut connections),
            }
        }
        door.close(&context, &mut connections);
        finish(connections, &drain).await
    }
}

/// Registers the socket with the current runtime, if it was moved to another thread.
fn at(place: Option<&WorkerSlot>, socket: TcpStream) -> io::Result<TcpStream> {
    match place {
        Some(_) => TcpStream::from_std(socket.into_std()?),
        None => Ok(socket),
    }
}

/// State shared by all connections of a listener.
pub(super) struct ListenerContext<F> {
    pub(super) edge: F,
    pub(super) settings: LiveSettings,
    /// The bytes of responses that clients leave unread.
    pub(super) unread: Arc<SharedAmount>,
    pub(super) drain: Drain,
}

/// Accepts connections one by one, and refuses those over the limit.
struct Door {
    /// `None` once it is closed.
    socket: Option<TcpListener>,
    addr: SocketAddr,
    counts: Arc<Counts>,
    workers: Option<Arc<Workers>>,
    /// Receives the connections that are refused before their first request.
    reports: ConnectionRefusals,
    /// The connections of each address.
    addresses: Arc<SharedAmount>,
    /// Limits the connections that are being refused.
    refusals: Arc<Semaphore>,
    pause: Backoff,
    /// True if the last client was refused: logged once, counted every time.
    is_full: bool,
}

impl Door {
    fn new(listener: Listener) -> Self {
        let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
        let Listener { socket, addr, counts, workers, refusals: reports } = listener;
        Self {
            socket: Some(socket),
            addr,
            counts,
            workers,
            reports,
            addresses: Arc::default(),
            refusals,
            pause: Backoff::new(MIN_ACCEPT_PAUSE, MAX_ACCEPT_PAUSE),
            is_full: false,
        }
    }

    /// Returns the next connection. Failures of accept are waited out: while descriptors are used
    /// up (EMFILE, ENFILE) the kernel keeps the queue, and connections that close free some.
    ///
    /// Cancel safe: a cut pause only leads to an early attempt.
    async fn next(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            let Some(socket) = &self.socket else { return pending().await };
            match socket.accept().await {
                Ok(accepted) => {
                    self.pause.reset();
                    return accepted;
                }
                // The client disconnected before it was accepted.
                Err(fault) if is_clients(&fault) => {}
                Err(fault) => {
                    let pause = self.pause.next_wait();
                    tracing::warn!(%fault, ?pause, "cannot accept connections");
                    sleep(pause).await;
                }
            }
        }
    }

    fn admit<F, S, R>(
        &mut self,
        socket: TcpStream,
        addr: SocketAddr,
        context: &Arc<ListenerContext<F>>,
        connections: &mut JoinSet<()>,
    ) where
        F: Fn(PeerAddress) -> S + Send + Sync + 'static,
        S: Edge<RequestBody, R>,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let settings = context.settings.load();
        let slot = match self.take_slot(addr, &settings.limits) {
            Ok(slot) => slot,
            Err(reached) => return self.turn_away(socket, &settings, reached),
        };
        self.is_full = false;
        if let Err(fault) = tune(&socket, settings.limits.stall) {
            tracing::debug!(client = %addr, %fault, "a socket could not be tuned");
        }
        let local = socket.local_addr().unwrap_or(self.addr);
        let peer = PeerAddress { addr, local, tls: settings.tls.is_some(), stdio: false };
        let context = Arc::clone(context);
        let reports = self.reports.clone();
        let place = self.workers.as_ref().and_then(|workers| workers.place());
        let runtime = place.as_ref().map(|place| place.runtime.clone());
        let served = async move {
            let served = match at(place.as_ref(), socket) {
                Ok(socket) => connection::run(socket, peer, &settings, context).await,
                Err(fault) => Err(ConnectionError::Broken(fault)),
            };
            if let Err(fault) = served {
                slot.note(&fault);
                if let Some(refused) = fault.refusal() {
                    reports.report(peer, &refused);
                }
                let fault = &fault as &dyn std::error::Error;
                tracing::debug!(client = %addr, fault, "connection ended early");
            }
        };
        match runtime {
            Some(runtime) => connections.spawn_on(served, &runtime),
            None => connections.spawn(served),
        };
    }

    /// Closes the socket, after the connections that the kernel has accepted were admitted: it would reset
    /// them, and their clients may have sent requests.
    fn close<F, S, R>(&mut self, context: &Arc<ListenerContext<F>>, connections: &mut JoinSet<()>)
    where
        F: Fn(PeerAddress) -> S + Send + Sync + 'static,
        S: Edge<RequestBody, R>,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        // The kernel is asked itself: the runtime may not have learned of the last ones, and the socket is
        // to close right after the last one was taken.
        let Some(Ok(queue)) = self.socket.take().map(TcpListener::into_std) else { return };
        for _ in 0..MAX_QUEUED {
            let Ok((socket, addr)) = queue.accept() else { return };
            let socket = socket.set_nonblocking(true).and_then(|()| TcpStream::from_std(socket));
            if let Ok(socket) = socket {
                self.admit(socket, addr, context, connections);
            }
        }
    }

    fn take_slot(
        &self,
        addr: SocketAddr,
        limits: &ConnectionLimits,
    ) -> Result<ConnectionSlot, ShareBoundError> {
        let bounds = ShareBounds { all: limits.connections, each: limits.connections_each };
        let holder = Holder::identify(&Principal::Anonymous, addr.ip());
        let share = self.addresses.take(&holder, 1, bounds)?;
        Ok(ConnectionSlot::new(&self.counts, share))
    }

    /// Sends 503 to a client without TLS. Under TLS the connection is just closed, as a handshake
    /// would cost the resources that the limit protects. The same applies past [`MAX_REFUSALS`] at
    /// a time.
    fn turn_away(&mut self, mut socket: TcpStream, settings: &Settings, reached: ShareBoundError) {
        self.counts.refused.fetch_add(1, Relaxed);
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(limit = settings.limits.connections, %reached, "no more connections");
        }
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        if settings.tls.is_some() {
            return;
        }
        tokio::spawn(async move {
            let told = timeout(REFUSAL_TIMEOUT, async {
                socket.write_all(FULL_RESPONSE).await?;
                socket.shutdown().await?;
                // Closing with unread bytes would reset the connection and lose the answer.
                let mut rest = socket.take(REFUSAL_BYTES);
                tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
            });
            let _ = told.await;
            drop(permit);
        });
    }
}

/// A place among the connections, given back on drop.
struct ConnectionSlot {
    counts: Arc<Counts>,
    _open: Entered,
    _share: Share,
}

impl ConnectionSlot {
    fn new(counts: &Arc<Counts>, share: Share) -> Self {
        Self { counts: Arc::clone(counts), _open: counts.open.enter(), _share: share }
    }

    fn note(&self, fault: &ConnectionError) {
        if fault.is_unused() {
            self.counts.unused.fetch_add(1, Relaxed);
        }
    }
}

pub(super) async fn finish(mut connections: JoinSet<()>, drain: &Drain) -> Drained {
    let all = async { while connections.join_next().await.map(note_panic).is_some() {} };
    tokio::select! {
        biased;
        () = all => {}
        () = drain.over() => {}
    }
    let cut = connections.len();
    connections.shutdown().await;
    Drained { cut }
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(fault) = ended
        && fault.is_panic()
    {
        tracing::error!(%fault, "a connection panicked");
    }
}

fn is_clients(fault: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(fault.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Limit of the connections that are taken from the queue when the socket closes: longer queues than
/// the kernel's.
const MAX_QUEUED: usize = 4096;
const MIN_ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const MAX_ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Limits of sending 503: clients at a time, time for each, and bytes to read from each.
const MAX_REFUSALS: usize = 32;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const REFUSAL_BYTES: u64 = 64 * 1024;
/// The connection's end delimits it, so it needs no length.
const FULL_RESPONSE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\r\n\
    {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32000,\"message\":\"all connections, or those of your address, are taken (`limits.connections`, `limits.share`): try again\"}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_holds_its_share_of_connections_leaves_the_rest_to_others() {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let door = Door::new(listener);
        let limits =
            ConnectionLimits { connections: 4, connections_each: 3, ..ConnectionLimits::default() };
        let take = |address: &str| door.take_slot(address.parse().unwrap(), &limits);
        let (one, other) = ("192.0.2.1:1", "192.0.2.2:1");
        let mut held: Vec<_> = (0..3).map(|_| take(one).unwrap()).collect();
        assert_eq!(take(one).err(), Some(ShareBoundError::Each));
        held.push(take(other).unwrap());
        assert_eq!(take(other).err(), Some(ShareBoundError::All));
        held.swap_remove(0);
        assert!(take(one).is_ok());
    }
}
