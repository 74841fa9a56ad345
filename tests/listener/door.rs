//! A listener with a small scripted service behind it, and clients for it.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Empty, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::client::conn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Mutex, Notify, mpsc},
    task::JoinHandle,
    time::timeout,
};
use tower::service_fn;
use trunkline::call::{DrainSwitch, PeerAddress, drain};
use trunkline::listener::{
    ConnectionLimits, Counts, Drained, Listener, LiveSettings, RequestBody, Settings, edge,
};

/// Event of the service.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Entered,
    Dropped,
}

pub struct Door {
    pub addr: SocketAddr,
    pub live: LiveSettings,
    pub counts: Arc<Counts>,
    pub release: Arc<Notify>,
    /// Bytes that `/flood` has handed over.
    pub flooded: Arc<AtomicUsize>,
    pub switch: DrainSwitch,
    pub served: JoinHandle<Drained>,
    events: Mutex<mpsc::Receiver<Event>>,
}

impl Door {
    pub async fn open(settings: Settings) -> Self {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let (addr, counts) = (listener.local_addr(), listener.counts());
        let live = LiveSettings::new(settings);
        let (switch, drain) = drain();
        let (report, events) = mpsc::channel(16);
        let release = Arc::new(Notify::new());
        let flooded = Arc::new(AtomicUsize::new(0));
        let script =
            Script { report, release: Arc::clone(&release), flooded: Arc::clone(&flooded) };
        let settings = live.clone();
        let stack = move |peer: PeerAddress| {
            let script = script.clone();
            let service = service_fn(move |request| -> edge::EdgeFuture<_> {
                let script = script.clone();
                Box::pin(async move { Ok(script.answer(request, peer).await) })
            });
            edge::guarded(settings.clone(), peer, service)
        };
        let served = tokio::spawn(listener.serve(live.clone(), stack, drain));
        let events = Mutex::new(events);
        Self { addr, live, counts, release, flooded, switch, served, events }
    }

    pub async fn with(limits: ConnectionLimits) -> Self {
        Self::open(Settings { limits, ..Settings::default() }).await
    }

    pub async fn event(&self) -> Event {
        within(async { self.events.lock().await.recv().await.unwrap() }).await
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    pub async fn h1(&self) -> conn::http1::SendRequest<Empty<Bytes>> {
        h1_over(self.connect().await).await
    }

    pub async fn h2(&self) -> conn::http2::SendRequest<Empty<Bytes>> {
        h2_over(self.connect().await).await
    }

    /// Sends these bytes and reads until the other side closes.
    pub async fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut socket = self.connect().await;
        socket.write_all(bytes.as_ref()).await.unwrap();
        read_to_close(&mut socket).await
    }
}

pub async fn h1_over<I>(io: I) -> conn::http1::SendRequest<Empty<Bytes>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = conn::http1::handshake(TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub async fn h2_over<I>(io: I) -> conn::http2::SendRequest<Empty<Bytes>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(io);
    let (sender, connection) = conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub async fn read_to_close(socket: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    // A reset is a close too; the bytes before it count.
    let _ = within(socket.read_to_end(&mut text)).await;
    String::from_utf8(text).unwrap()
}

pub async fn within<T>(step: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), step).await.expect("in time")
}

/// Returns a count once several looks in a row have found the same value.
pub async fn settled(count: &AtomicUsize) -> usize {
    within(async {
        let (mut before, mut equal_looks) = (count.load(Relaxed), 0);
        while equal_looks < 3 {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let now = count.load(Relaxed);
            equal_looks = if now == before { equal_looks + 1 } else { 0 };
            before = now;
        }
        before
    })
    .await
}

/// Builds an HTTP/1 request.
pub fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).header("host", "localhost").body(Empty::new()).unwrap()
}

/// Builds an HTTP/2 request.
pub fn get_h2(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://localhost{path}")).body(Empty::new()).unwrap()
}

#[allow(clippy::disallowed_methods, reason = "bounded by Limited")]
pub async fn text(response: Response<hyper::body::Incoming>) -> String {
    let body = within(Limited::new(response.into_body(), MAX_TEST_BODY_BYTES).collect())
        .await
        .unwrap()
        .to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The service. `/hold` answers when it is released, `/stream` sends one line and then keeps the
/// body open, `/flood` never stops sending, `/upload` reads its body, `/echo` returns the body of
/// its request, `/lines` a body of unknown length, `/none` no body, `/breaks` a body that breaks
/// off, and any other path the protocol of the request.
#[derive(Clone)]
struct Script {
    report: mpsc::Sender<Event>,
    release: Arc<Notify>,
    flooded: Arc<AtomicUsize>,
}

type Answer = Response<AnyBody>;

/// Any body, with the traits that the edge requires.
pub struct AnyBody(UnsyncBoxBody<Bytes, io::Error>);

impl AnyBody {
    fn respond(body: impl Body<Data = Bytes, Error = io::Error> + Send + 'static) -> Answer {
        Response::new(Self(body.boxed_unsync()))
    }
}

impl From<Bytes> for AnyBody {
    fn from(bytes: Bytes) -> Self {
        Self(Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
    }
}

impl Default for AnyBody {
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl Body for AnyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl Script {
    async fn answer(self, request: Request<RequestBody>, peer: PeerAddress) -> Answer {
        let leaving = Leaving(self.report.clone());
        match request.uri().path() {
            "/hold" => {
                self.report.send(Event::Entered).await.unwrap();
                self.release.notified().await;
                std::mem::forget(leaving);
                full("held".into())
            }
            "/stream" | "/flood" => {
                let flood = request.uri().path() == "/flood";
                let flood = flood.then(|| Arc::clone(&self.flooded));
                let stream = Stream { first: Some("line\n".into()), flood, _leaving: leaving };
                self.report.send(Event::Entered).await.unwrap();
                AnyBody::respond(stream.map_err(|never| match never {}))
            }
            "/large" => {
                self.report.send(Event::Entered).await.unwrap();
                full("x".repeat(64 * 1024))
            }
            "/upload" => {
                self.report.send(Event::Entered).await.unwrap();
                let read = read(request.into_body()).await;
                drop(leaving);
                full(format!("{}", read.is_ok()))
            }
            "/echo" => {
                std::mem::forget(leaving);
                let answer = match read(request.into_body()).await {
                    Ok(body) => body,
                    Err(fault) => Bytes::from(format!("no body: {fault}")),
                };
                Response::new(answer.into())
            }
            "/lines" => {
                std::mem::forget(leaving);
                let lines = ["one\n".to_owned(), "x".repeat(9000), "three\n".to_owned()];
                let lines = lines.map(|line| Ok(Frame::data(Bytes::from(line))));
                AnyBody::respond(StreamBody::new(futures_util::stream::iter(lines)))
            }
            "/none" => {
                std::mem::forget(leaving);
                let mut answer = full(String::new());
                *answer.status_mut() = http::StatusCode::NO_CONTENT;
                answer
            }
            "/breaks" => {
                std::mem::forget(leaving);
                let pieces = [
                    Ok(Frame::data(Bytes::from_static(b"begun"))),
                    Err(io::Error::other("no more")),
                ];
                AnyBody::respond(StreamBody::new(futures_util::stream::iter(pieces)))
            }
            _ => {
                std::mem::forget(leaving);
                full(format!("{:?} tls={}", request.version(), peer.tls))
            }
        }
    }
}

fn full(text: String) -> Answer {
    Response::new(Bytes::from(text).into())
}

#[allow(clippy::disallowed_methods, reason = "bounded by Limited")]
async fn read(body: RequestBody) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Limited::new(body, MAX_ECHO_BYTES).collect().await?.to_bytes())
}

/// Reports that the service's future or body was dropped before it was complete.
struct Leaving(mpsc::Sender<Event>);

impl Drop for Leaving {
    fn drop(&mut self) {
        let _ = self.0.try_send(Event::Dropped);
    }
}

struct Stream {
    first: Option<Bytes>,
    /// Counts the bytes of an endless body.
    flood: Option<Arc<AtomicUsize>>,
    _leaving: Leaving,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let line = self.first.take().or_else(|| {
            self.flood.as_ref()?.fetch_add(4096, Relaxed);
            Some(Bytes::from_static(&[0; 4096]))
        });
        line.map_or(Poll::Pending, |line| Poll::Ready(Some(Ok(Frame::data(line)))))
    }
}

/// Time between two looks at a count.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// More than any body in these tests.
const MAX_TEST_BODY_BYTES: usize = 64 * 1024;
/// More than any echoed body.
const MAX_ECHO_BYTES: usize = 4 * 1024 * 1024;
