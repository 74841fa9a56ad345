//! A receiver of lifecycle events that verifies their signatures.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::within;

/// The key of all signatures.
const KEY: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// In place of a status: the request is never answered.
pub const SILENT: u16 = 0;
/// A status with a body that never ends.
pub const ENDLESS: u16 = 202;

/// A webhook that answers with the scripted statuses, and then with 204.
pub struct Webhook {
    address: SocketAddr,
    scheme: &'static str,
    statuses: Arc<Mutex<VecDeque<u16>>>,
    received: mpsc::Receiver<(http::request::Parts, Bytes)>,
}

impl Webhook {
    pub async fn start() -> Self {
        Self::on(down_address())
    }

    /// Listens at an address that has refused connections until now.
    pub fn on(socket: TcpSocket) -> Self {
        Self::listen(socket, None)
    }

    /// Listens with TLS.
    pub fn with_tls(tls: TlsAcceptor) -> Self {
        Self::listen(down_address(), Some(tls))
    }

    fn listen(socket: TcpSocket, tls: Option<TlsAcceptor>) -> Self {
        let listener = socket.listen(100).unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (sender, received) = mpsc::channel(1000);
        let statuses = Arc::new(Mutex::new(VecDeque::new()));
        let answers = HookAnswers { statuses: Arc::clone(&statuses), sender };
        tokio::spawn(accept(listener, tls, answers));
        Self { address, scheme, statuses, received }
    }

    /// Returns the section of the configuration that sends events here.
    pub fn section(&self) -> String {
        event_section(self.scheme, self.address)
    }

    pub fn answers(&self, statuses: &[u16]) -> &Self {
        *self.statuses.lock().unwrap() = statuses.iter().copied().collect();
        self
    }

    /// Drops the received events.
    pub fn forget(&mut self) {
        while self.received.try_recv().is_ok() {}
    }

    /// Returns the next event, with its signature verified.
    pub async fn next(&mut self) -> Value {
        let (head, body) = within(self.received.recv()).await.unwrap();
        let text = |name: &str| head.headers[name].to_str().unwrap();
        assert_eq!(head.method, "POST");
        assert_eq!(text("content-type"), "application/cloudevents+json; charset=utf-8");
        let signed = [text("webhook-id").as_bytes(), text("webhook-timestamp").as_bytes(), &body];
        let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(KEY).unwrap());
        let signature = text("webhook-signature").strip_prefix("v1,").unwrap();
        let signature = STANDARD.decode(signature).unwrap();
        hmac::verify(&key, &signed.join(&b'.'), &signature).expect("the signature is valid");
        let event: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(event["id"], text("webhook-id"), "by which a receiver knows a repetition");
        event
    }

    /// Returns the next event of a type; others are skipped.
    pub async fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().await;
            if event["type"] == format!("trunkline.{kind}") {
                return event;
            }
        }
    }
}

/// Returns the section of the configuration that sends events to an address.
pub fn event_section(scheme: &str, address: SocketAddr) -> String {
    let port = address.port();
    let host = if scheme == "https" { "localhost" } else { "127.0.0.1" };
    format!("[events]\nurl = \"{scheme}://{host}:{port}/hook\"\nsecret = \"whsec_{KEY}\"\n")
}

/// Returns a socket at an address that refuses connections until it listens.
pub fn down_address() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

/// Returns a self-signed certificate for `localhost`: the acceptor, and the file.
pub fn own_certificate(folder: &Path) -> (TlsAcceptor, PathBuf) {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = folder.join("hook.pem");
    std::fs::write(&file, signed.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let served = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key);
    (TlsAcceptor::from(Arc::new(served.unwrap())), file)
}

/// Scripted answers of a webhook, and the channel for its requests.
#[derive(Clone)]
struct HookAnswers {
    statuses: Arc<Mutex<VecDeque<u16>>>,
    sender: mpsc::Sender<(http::request::Parts, Bytes)>,
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, answers: HookAnswers) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, answers) = (tls.clone(), answers.clone());
        tokio::spawn(async move {
            let Some(tls) = tls else { return serve(stream, answers).await };
            // A client that does not trust the certificate ends the handshake.
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, answers).await;
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, answers: HookAnswers) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let answers = answers.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let status = answers.statuses.lock().unwrap().pop_front().unwrap_or(204);
            if status == SILENT {
                std::future::pending::<()>().await;
            }
            let _ = answers.sender.send((head, body)).await;
            Ok::<_, Infallible>(response(status))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

fn response(status: u16) -> http::Response<BoxBody<Bytes, Infallible>> {
    let response = http::Response::builder().status(status);
    let response = response.header("location", "http://127.0.0.1:1/elsewhere");
    let body = match status {
        ENDLESS => StreamBody::new(futures_util::stream::pending()).boxed(),
        _ => Empty::new().boxed(),
    };
    response.body(body).unwrap()
}
