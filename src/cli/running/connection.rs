//! The connection of a command to the running gateway.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;
use toml::Table;
use url::Url;

use crate::admin::{socket_candidates, stable_path};
use crate::codec::body::collect;
use crate::codec::file::read_file;
use crate::config::{ConfigSource, HttpConfig, HttpTransport, Secret, SocketPlace};
use crate::http_client::{HttpClient, OutgoingRequest, ResponseBody};
use crate::listener::is_trusted_user;
use crate::text::{error_chain, skip_byte_order_mark};

use super::error::SocketAttempt;
use super::events::{EventReader, MAX_SILENCE_TIME, read_events};
use super::{GatewayOption, GatewayRequest, RunningGatewayError};

/// The address of a running gateway.
pub(super) enum RunningGateway {
    /// Its private socket, connected.
    Socket { stream: UnixStream, path: PathBuf },
    /// Its admin listener.
    Listener { client: Box<HttpClient>, place: String },
}

/// An answer of the gateway.
pub(super) struct GatewayAnswer {
    status: StatusCode,
    body: Bytes,
    place: String,
}

impl RunningGateway {
    /// Finds the gateway. Connects to its socket, if that is to be used.
    ///
    /// # Errors
    /// [`RunningGatewayError`].
    pub(super) async fn find(option: &GatewayOption) -> Result<Self, RunningGatewayError> {
        match &option.url {
            Some(url) => Self::of_url(url, option),
            None => Self::of_configuration(&option.config).await,
        }
    }

    async fn of_configuration(config: &Path) -> Result<Self, RunningGatewayError> {
        let mut attempts = Vec::new();
        let place = written_place(config);
        if place == SocketPlace::Off {
            return Err(RunningGatewayError::NoSocket { config: config.to_owned() });
        }
        for path in socket_candidates(&place, config) {
            // This never waits: a gateway that has not accepted earlier connections refuses it.
            match UnixStream::connect(&path).await {
                Ok(stream) => {
                    check_owner(&stream, &path)?;
                    return Ok(Self::Socket { stream, path });
                }
                Err(error) => attempts.push(SocketAttempt { path, error }),
            }
        }
        Err(RunningGatewayError::NotRunning { config: stable_path(config), attempts })
    }

    fn of_url(url: &Url, option: &GatewayOption) -> Result<Self, RunningGatewayError> {
        let refuse = |option, reason: String| RunningGatewayError::Option { option, reason };
        if !matches!(url.scheme(), "http" | "https") || url.path() != "/" {
            let reason = "expected http:// or https:// and a host, without a path".to_owned();
            return Err(refuse("--url", reason));
        }
        let mut headers = Vec::new();
        if let Some(file) = &option.key_file {
            let key = read_key(file).map_err(|reason| refuse("--key-file", reason))?;
            headers.push((AUTHORIZATION, Secret::new(format!("Bearer {key}"))));
        }
        let http = HttpConfig {
            url: url.clone(),
            headers,
            ca: option.ca.clone(),
            transport: HttpTransport::Streamable,
            oauth: None,
            aws: None,
        };
        let client = HttpClient::plain(&http, CONNECT_TIMEOUT);
        let client = client.map_err(|fault| refuse("--url", error_chain(&fault)))?;
        Ok(Self::Listener { client: Box::new(client), place: url.to_string() })
    }

    /// Returns the address for messages.
    fn place(&self) -> String {
        match self {
            Self::Socket { path, .. } => path.display().to_string(),
            Self::Listener { place, .. } => place.clone(),
        }
    }

    /// Sends a request, and reads the events of the answer until they end or are enough. Returns the
    /// answer of a gateway that refuses.
    ///
    /// # Errors
    /// [`RunningGatewayError::Unreachable`].
    pub(super) async fn follow(
        self,
        request: &GatewayRequest<'_>,
        target: &str,
        on_event: &mut EventReader<'_>,
    ) -> Result<Option<GatewayAnswer>, RunningGatewayError> {
        let place = self.place();
        let followed = match self {
            Self::Socket { stream, .. } => {
                follow_over_socket(stream, request, target, on_event).await
            }
            Self::Listener { client, .. } => {
                let opened = answered_soon(open_over_tcp(&client, request, target)).await;
                match opened {
                    Ok(response) => follow_response(response, on_event).await,
                    Err(reason) => Err(reason),
                }
            }
        };
        let unreachable =
            |reason| RunningGatewayError::Unreachable { place: place.clone(), reason };
        let refused = followed.map_err(unreachable)?;
        Ok(refused.map(|(status, body)| GatewayAnswer { status, body, place }))
    }

    /// Sends a request, and reads the whole answer.
    ///
    /// # Errors
    /// [`RunningGatewayError::Unreachable`].
    pub(super) async fn send(
        self,
        request: &GatewayRequest<'_>,
        target: &str,
        patience: Duration,
    ) -> Result<GatewayAnswer, RunningGatewayError> {
        let place = self.place();
        let exchange = async {
            match self {
                Self::Socket { stream, .. } => send_over_socket(stream, request, target).await,
                Self::Listener { client, .. } => send_over_tcp(&client, request, target).await,
            }
        };
        let unreachable =
            |reason| RunningGatewayError::Unreachable { place: place.clone(), reason };
        let answered = timeout(patience, exchange).await;
        let late = |_| unreachable("it takes too long".to_owned());
        let (status, body) = answered.map_err(late)?.map_err(unreachable)?;
        Ok(GatewayAnswer { status, body, place })
    }
}

impl GatewayAnswer {
    /// Returns the document.
    ///
    /// # Errors
    /// [`RunningGatewayError::Refused`] and [`RunningGatewayError::Unreadable`].
    pub(super) fn into_document<T: DeserializeOwned>(self) -> Result<T, RunningGatewayError> {
        if self.status.is_success() {
            let document = serde_json::from_slice(&self.body).ok();
            return document.ok_or(RunningGatewayError::Unreadable { place: self.place });
        }
        let document: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let member =
            |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (status, code, detail) = (self.status, member("code"), member("detail"));
        Err(RunningGatewayError::Refused { status, code, detail })
    }
}

/// Status and body of an answer, or the reason that there is none.
type Exchanged = Result<(StatusCode, Bytes), String>;

async fn send_over_socket(
    stream: UnixStream,
    request: &GatewayRequest<'_>,
    target: &str,
) -> Exchanged {
    let told = |error: hyper::Error| error_chain(&error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    let message = socket_message(request, target)?;
    let exchange = async {
        let response = sender.send_request(message).await.map_err(told)?;
        let status = response.status();
        let body = collect(response.into_body(), MAX_ANSWER_BYTES).await;
        Ok((status, body.map_err(|error| error_chain(&error))?))
    };
    tokio::select! {
        answered = exchange => answered,
        // The connection ends after its answer.
        Err(error) = connection => Err(error_chain(&error)),
    }
}

async fn follow_over_socket(
    stream: UnixStream,
    request: &GatewayRequest<'_>,
    target: &str,
    on_event: &mut EventReader<'_>,
) -> Result<Option<(StatusCode, Bytes)>, String> {
    let told = |error: hyper::Error| error_chain(&error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    let message = socket_message(request, target)?;
    let exchange = async {
        let response = async { sender.send_request(message).await.map_err(told) };
        follow_response(answered_soon(response).await?, on_event).await
    };
    tokio::select! {
        followed = exchange => followed,
        Err(error) = connection => Err(error_chain(&error)),
    }
}

/// Reads the events of an answer; returns that of a gateway that refuses.
async fn follow_response<B>(
    response: Response<B>,
    on_event: &mut EventReader<'_>,
) -> Result<Option<(StatusCode, Bytes)>, String>
where
    B: http_body::Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    let status = response.status();
    if status.is_success() {
        return read_events(response.into_body(), on_event).await.map(|()| None);
    }
    let body = async {
        let collected = collect(response.into_body(), MAX_ANSWER_BYTES).await;
        collected.map_err(|error| error_chain(&error))
    };
    Ok(Some((status, answered_soon(body).await?)))
}

/// Waits for a part of an answer that is not an event.
async fn answered_soon<T>(part: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| Err("it takes too long".to_owned());
    timeout(MAX_SILENCE_TIME, part).await.unwrap_or_else(late)
}

fn socket_message(
    request: &GatewayRequest<'_>,
    target: &str,
) -> Result<Request<Full<Bytes>>, String> {
    let (headers, body) = content(request);
    let uri: Uri = target.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let mut message = Request::new(Full::new(body));
    *message.method_mut() = request.method.clone();
    *message.uri_mut() = uri;
    *message.headers_mut() = headers;
    message.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    Ok(message)
}

async fn send_over_tcp(
    client: &HttpClient,
    request: &GatewayRequest<'_>,
    target: &str,
) -> Exchanged {
    let response = open_over_tcp(client, request, target).await?;
    let status = response.status();
    let body = collect(response.into_body(), MAX_ANSWER_BYTES).await;
    Ok((status, body.map_err(|error| error_chain(&error))?))
}

async fn open_over_tcp(
    client: &HttpClient,
    request: &GatewayRequest<'_>,
    target: &str,
) -> Result<Response<ResponseBody>, String> {
    let path = target.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let target = client.target_at(&path).map_err(|error| error_chain(&error))?;
    let (headers, body) = content(request);
    let method = &request.method;
    let outgoing = OutgoingRequest { target: &target, method, headers: &headers, body };
    client.send_to(outgoing).await.map_err(|error| error_chain(&error))
}

/// Returns the headers and the body of a request.
fn content(request: &GatewayRequest<'_>) -> (HeaderMap, Bytes) {
    let json = HeaderValue::from_static("application/json");
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let Some(body) = &request.body else { return (headers, Bytes::new()) };
    headers.insert(CONTENT_TYPE, json);
    (headers, body.clone().into())
}

/// Checks that the process on the other end runs as this user or as root: anyone can make a socket in
/// a folder for temporary files. Root may ask gateways of other users, if their sockets are elsewhere.
fn check_owner(stream: &UnixStream, path: &Path) -> Result<(), RunningGatewayError> {
    let uid = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
    let is_root = rustix::process::geteuid().is_root();
    if is_trusted_user(uid) || is_root && !is_below_shared_folder(path) {
        return Ok(());
    }
    Err(RunningGatewayError::ForeignSocket { path: path.to_owned(), uid })
}

/// Returns true if every user can create files in a folder of the path, or this cannot be seen.
fn is_below_shared_folder(path: &Path) -> bool {
    let is_shared = |found: fs::Metadata| found.permissions().mode() & 0o002 != 0;
    path.ancestors().skip(1).any(|folder| fs::metadata(folder).map_or(true, is_shared))
}

/// Returns `admin.socket` as the file has it. A file that cannot be read has the default.
fn written_place(config: &Path) -> SocketPlace {
    let bytes = ConfigSource::open(config).map(|source| source.bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(skip_byte_order_mark(&bytes));
    let table: Table = text.parse().unwrap_or_default();
    let written = table.get("admin").and_then(|admin| admin.get("socket")?.as_str());
    match written {
        None | Some("auto") => SocketPlace::Auto,
        Some("off") => SocketPlace::Off,
        Some(path) => {
            let folder = stable_path(config).parent().map(Path::to_owned).unwrap_or_default();
            SocketPlace::Path(folder.join(path))
        }
    }
}

/// Reads a key or token.
fn read_key(file: &Path) -> Result<String, String> {
    let text = read_file(file, MAX_KEY_FILE_BYTES)
        .map_err(|error| format!("{}: {}", file.display(), error_chain(&error)))?;
    let key = String::from_utf8_lossy(&text).trim().to_owned();
    let is_sendable = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_sendable { Ok(key) } else { Err(format!("{}: expected one key", file.display())) }
}

/// Time limit for a connection over TCP.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of the bytes of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Limit of the bytes of a file with a key or token.
const MAX_KEY_FILE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests;
