//! A proxy with request tasks that drive the server connections themselves.
//!
//! The task that serves a client polls hyper's connection to the server together with the response
//! and its body. Idle connections wait in a list of the thread. No task is spawned for a connection
//! to the server, and no request crosses threads.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::{ProxyArgs, serve_clients};

/// Serves until a signal or the end of its input: one thread accepts, and distributes the clients
/// over the others in turn.
pub(super) fn serve(args: &ProxyArgs) -> io::Result<()> {
    let authority = args.url.authority().map(ToString::to_string).unwrap_or_default();
    let port = args.url.port_u16().unwrap_or(80);
    let host = args.url.host().unwrap_or_default().trim_matches(['[', ']']);
    let unknown = || io::Error::other(format!("{authority}: no such host"));
    let server = (host, port).to_socket_addrs()?.next().ok_or_else(unknown)?;
    let threads = match args.threads {
        Some(threads) => threads.into(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut workers = Vec::new();
    for _ in 0..threads {
        let (clients, accepted) = mpsc::channel(MAX_ACCEPTED_CLIENTS);
        let path = args.url.clone().into_parts().path_and_query.map(Uri::from).unwrap_or_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            LocalSet::new().block_on(&runtime, serve_accepted(accepted, server, path));
        });
        workers.push(clients);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut turns = (0..workers.len()).cycle();
    let ended = runtime.block_on(serve_clients(args, async |client| {
        // A socket belongs to the runtime that registered it.
        let client = client.into_std();
        if let (Ok(client), Some(worker)) = (client, turns.next().and_then(|at| workers.get(at))) {
            let _ = worker.send(client).await;
        }
    }));
    runtime.shutdown_background();
    ended
}

/// Runs the loop of one worker thread.
async fn serve_accepted(
    mut accepted: mpsc::Receiver<std::net::TcpStream>,
    server: SocketAddr,
    path: Uri,
) {
    let proxy = Rc::new(InlineProxy { server, path, idle: RefCell::default() });
    while let Some(client) = accepted.recv().await {
        let Ok(client) = TcpStream::from_std(client) else { continue };
        let proxy = Rc::clone(&proxy);
        tokio::task::spawn_local(async move {
            let pass = service_fn(move |request| Rc::clone(&proxy).pass(request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(client), pass).await;
        });
    }
}

/// State shared by the clients of one thread.
struct InlineProxy {
    server: SocketAddr,
    /// Path and query of every forwarded request.
    path: Uri,
    idle: RefCell<Vec<ServerConnection>>,
}

impl InlineProxy {
    /// Forwards a request. An error closes the client's connection.
    async fn pass(
        self: Rc<Self>,
        mut request: Request<Incoming>,
    ) -> io::Result<Response<PassedBody>> {
        *request.uri_mut() = self.path.clone();
        let mut connection = self.take_connection().await?;
        let sent = connection.requests.send_request(request);
        let response = drive(&mut connection.driver, sent).await.map_err(io::Error::other)?;
        Ok(response.map(|body| PassedBody::new(body, connection, self)))
    }

    async fn take_connection(&self) -> io::Result<ServerConnection> {
        loop {
            let idle = self.idle.borrow_mut().pop();
            let is_new = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            let ServerConnection { requests, driver } = &mut connection;
            let ready = poll_fn(|cx| {
                // First, because it notices a connection that the server has closed.
                poll_driver(driver, cx);
                requests.poll_ready(cx)
            });
            match ready.await {
                Ok(()) => return Ok(connection),
                Err(error) if is_new => return Err(io::Error::other(error)),
                // The server closed it while it was idle.
                Err(_) => {}
            }
        }
    }

    async fn connect(&self) -> io::Result<ServerConnection> {
        let stream = TcpStream::connect(self.server).await?;
        stream.set_nodelay(true)?;
        let handshake = handshake(TokioIo::new(stream)).await;
        let (requests, connection) = handshake.map_err(io::Error::other)?;
        Ok(ServerConnection { requests, driver: Some(Box::new(connection)) })
    }
}

/// A connection to the server, used by one request at a time.
struct ServerConnection {
    requests: SendRequest<Incoming>,
    driver: Driver,
}

/// The connection, which reads and writes when polled; `None` once it is closed.
type Driver = Option<Box<Connection<TokioIo<TcpStream>, Incoming>>>;

/// Polls the connection while the future waits for it.
async fn drive<F: Future>(driver: &mut Driver, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        poll_driver(driver, cx);
        future.as_mut().poll(cx)
    })
    .await
}

fn poll_driver(driver: &mut Driver, cx: &mut Context<'_>) {
    if let Some(connection) = driver
        && Pin::new(connection).poll(cx).is_ready()
    {
        *driver = None;
    }
}

/// A response body that drives its connection, and returns it to the pool at
/// the end.
struct PassedBody {
    body: Incoming,
    connection: Option<ServerConnection>,
    proxy: Rc<InlineProxy>,
}

impl PassedBody {
    fn new(body: Incoming, connection: ServerConnection, proxy: Rc<InlineProxy>) -> Self {
        let mut passed = Self { body, connection: Some(connection), proxy };
        if passed.body.is_end_stream() {
            passed.give_back();
        }
        passed
    }

    fn give_back(&mut self) {
        self.proxy.idle.borrow_mut().extend(self.connection.take());
    }
}

impl Body for PassedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut polled = Pin::new(&mut this.body).poll_frame(cx);
        if polled.is_pending()
            && let Some(connection) = &mut this.connection
        {
            poll_driver(&mut connection.driver, cx);
            polled = Pin::new(&mut this.body).poll_frame(cx);
        }
        match &polled {
            Poll::Ready(None) => this.give_back(),
            Poll::Ready(Some(Ok(_))) if this.body.is_end_stream() => this.give_back(),
            Poll::Ready(Some(Err(_))) => this.connection = None,
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Maximum number of accepted clients that wait for a thread.
const MAX_ACCEPTED_CLIENTS: usize = 64;
