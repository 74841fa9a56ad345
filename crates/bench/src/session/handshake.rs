//! Handshake before the measurement: determines the server's era, version and tools in the order of
//! any client: `server/discover` first, then `initialize`.

use std::time::Duration;

use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde_json::Value;

use trunkline_protocol::mcp::{Era, ProtocolVersion, header};

use crate::BenchFault;
use crate::exchange::answer::{AnswerError, AnswerMedia, ReceivedAnswer, excerpt, exchange};
use crate::exchange::connection::{BenchConnection, BenchConnectionError};
use crate::exchange::request::{FIRST_NUMBER, RequestTemplate, RequestWriter};
use crate::exchange::target::BenchTarget;

/// A completed handshake.
pub(crate) struct Handshake {
    /// Writes requests to the server.
    pub writer: RequestWriter,
    /// The server's name and version.
    pub server: String,
    /// Id of the opened session.
    pub session: Option<HeaderValue>,
    connection: Option<BenchConnection>,
    patience: Duration,
}

/// A tool, as the server lists it.
#[derive(Debug, Clone)]
pub(crate) struct ListedTool {
    /// The tool's name.
    pub name: String,
    /// The tool's input schema.
    pub schema: Value,
    /// True if the tool declares `readOnlyHint`.
    pub reads: bool,
}

/// Outcome of a first request in one era.
enum EraAttempt {
    Spoken,
    /// The server does not speak the era. `answer` is its response, or the reason.
    NotSpoken {
        answer: String,
    },
}

impl Handshake {
    /// Completes a handshake with a server, in the given era or in the server's own.
    ///
    /// # Errors
    /// [`BenchFault`] if the endpoint is not an MCP server of that era.
    pub(crate) async fn say(
        target: BenchTarget,
        era: Option<Era>,
        patience: Duration,
    ) -> Result<Self, BenchFault> {
        let writer = RequestWriter { target, version: ProtocolVersion::LATEST_MODERN };
        let mut hello =
            Self { writer, server: String::new(), session: None, connection: None, patience };
        match era {
            Some(era) => {
                if let EraAttempt::NotSpoken { answer } = hello.try_era(era).await? {
                    return Err(hello.wrong_era(answer));
                }
            }
            None => {
                if let EraAttempt::NotSpoken { .. } = hello.try_modern().await?
                    && let EraAttempt::NotSpoken { answer } = hello.try_legacy().await?
                {
                    return Err(hello.no_mcp(answer));
                }
            }
        }
        Ok(hello)
    }

    /// Lists all tools, page by page.
    ///
    /// # Errors
    /// [`BenchFault`] if the list is malformed.
    pub(crate) async fn tools(&mut self) -> Result<Vec<ListedTool>, BenchFault> {
        let (mut tools, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..MAX_LIST_PAGES {
            let request = self.writer.list(cursor.as_deref());
            let received = self.ask(&request, "tools/list").await?;
            let page = result(&received).map_err(|answer| self.refused("tools/list", answer))?;
            let listed = page.get("tools").and_then(Value::as_array);
            let Some(listed) = listed else {
                return Err(self.refused("tools/list", received.text()));
            };
            tools.extend(listed.iter().filter_map(ListedTool::read));
            cursor = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(tools)
    }

    /// Ends the session, if there is one.
    pub(crate) async fn close(mut self) {
        if self.session.is_some() {
            let request = self.writer.delete();
            // The result does not matter: the server may answer 405.
            let _ended = self.ask(&request, "DELETE").await;
        }
    }

    async fn try_era(&mut self, era: Era) -> Result<EraAttempt, BenchFault> {
        match era {
            Era::Modern => self.try_modern().await,
            Era::Legacy => self.try_legacy().await,
        }
    }

    async fn try_modern(&mut self) -> Result<EraAttempt, BenchFault> {
        self.writer.version = ProtocolVersion::LATEST_MODERN;
        let request = self.writer.discover();
        let received = match self.ask(&request, "server/discover").await {
            Ok(received) => received,
            // A Legacy server may react in any way to a request before `initialize`.
            Err(BenchFault::Silent { .. } | BenchFault::Connection { .. }) => {
                return Ok(EraAttempt::NotSpoken { answer: "no answer to server/discover".into() });
            }
            Err(fault) => return Err(fault),
        };
        let Ok(result) = result(&received) else {
            return Ok(EraAttempt::NotSpoken { answer: received.text() });
        };
        let versions = result.get("supportedVersions").and_then(Value::as_array);
        let mut versions = versions.into_iter().flatten().filter_map(Value::as_str);
        if !versions.any(|version| version == ProtocolVersion::LATEST_MODERN.as_str()) {
            return Ok(EraAttempt::NotSpoken { answer: received.text() });
        }
        let info = result
            .get("_meta")
            .and_then(|meta| meta.get(trunkline_protocol::mcp::meta::SERVER_INFO));
        self.server = name(info.or(result.get("serverInfo")));
        Ok(EraAttempt::Spoken)
    }

    async fn try_legacy(&mut self) -> Result<EraAttempt, BenchFault> {
        self.writer.version = ProtocolVersion::LATEST_LEGACY;
        let request = self.writer.initialize();
        let received = self.ask(&request, "initialize").await?;
        let result = match result(&received) {
            Ok(result) => result,
            Err(answer) => return Ok(EraAttempt::NotSpoken { answer }),
        };
        let version = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        match ProtocolVersion::parse(version).filter(|version| version.era() == Era::Legacy) {
            Some(version) => self.writer.version = version,
            None => return Ok(EraAttempt::NotSpoken { answer: received.text() }),
        }
        self.server = name(result.get("serverInfo"));
        self.session = received.head.headers.get(header::SESSION_ID).cloned();
        let request = self.writer.initialized();
        self.ask(&request, "notifications/initialized").await?;
        Ok(EraAttempt::Spoken)
    }

    /// Sends a request and waits for the answer; follows redirects within the server.
    async fn ask(
        &mut self,
        request: &RequestTemplate,
        during: &'static str,
    ) -> Result<ReceivedAnswer, BenchFault> {
        let received = match tokio::time::timeout(self.patience, self.exchange(request)).await {
            Ok(Ok(received)) => received,
            Ok(Err(AnswerError::Connect(source))) => {
                return Err(BenchFault::Connect { url: self.url(), source });
            }
            Ok(Err(AnswerError::Connection(source))) => {
                return Err(BenchFault::Connection { url: self.url(), during, source });
            }
            Ok(Err(other)) => return Err(self.refused(during, other.to_string())),
            Err(_) => {
                self.connection = None;
                let (url, seconds) = (self.url(), self.patience.as_secs());
                return Err(BenchFault::Silent { url, during, seconds });
            }
        };
        match received.head.status {
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(BenchFault::Credentials { url: self.url(), status })
            }
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                let location = received.head.headers.get(LOCATION).map(HeaderValue::as_bytes);
                let location = String::from_utf8_lossy(location.unwrap_or_default());
                let Some(target) = self.writer.target.redirected(&location) else {
                    return Err(self.no_mcp(format!("it redirects to {location:?}")));
                };
                self.writer.target = target;
                let request = match during {
                    "server/discover" => self.writer.discover(),
                    "initialize" => self.writer.initialize(),
                    _ => return Err(self.refused(during, "a redirect".into())),
                };
                Box::pin(self.ask(&request, during)).await
            }
            _ => Ok(received),
        }
    }

    async fn exchange(&mut self, request: &RequestTemplate) -> Result<ReceivedAnswer, AnswerError> {
        // The server may have closed a kept connection meanwhile.
        if let Some(connection) = self.connection.take()
            && let Ok(received) = self.exchange_on(connection, request).await
        {
            return Ok(received);
        }
        let dialer = &self.writer.target.dialer;
        let connection = dialer.connect().await.map_err(AnswerError::Connect)?;
        Ok(self.exchange_on(connection, request).await?)
    }

    async fn exchange_on(
        &mut self,
        mut connection: BenchConnection,
        request: &RequestTemplate,
    ) -> Result<ReceivedAnswer, BenchConnectionError> {
        let request = request.build(FIRST_NUMBER, self.session.as_ref());
        let received = exchange(&mut connection, request, FIRST_NUMBER).await?;
        self.connection = received.reusable.then_some(connection);
        Ok(received)
    }

    fn url(&self) -> String {
        self.writer.target.shown.clone()
    }

    fn refused(&self, during: &'static str, answer: String) -> BenchFault {
        BenchFault::Refused { url: self.url(), during, answer }
    }

    fn no_mcp(&self, answer: String) -> BenchFault {
        BenchFault::NotMcp { url: self.url(), answer }
    }

    fn wrong_era(&self, answer: String) -> BenchFault {
        BenchFault::Era { url: self.url(), wanted: self.writer.version, answer }
    }
}

impl ListedTool {
    fn read(tool: &Value) -> Option<Self> {
        let reads = tool.pointer("/annotations/readOnlyHint") == Some(&Value::Bool(true));
        let schema = tool.get("inputSchema").cloned().unwrap_or_default();
        Some(Self { name: tool.get("name")?.as_str()?.to_owned(), schema, reads })
    }
}

/// Returns the result of an answer, or a description of the message that arrived instead.
fn result(received: &ReceivedAnswer) -> Result<Value, String> {
    let status = received.head.status;
    if !status.is_success() {
        return Err(format!("HTTP {}: {}", status.as_u16(), excerpt(&received.message)));
    }
    if let AnswerMedia::Other(media) = &received.media {
        return Err(format!("{media:?} instead of JSON"));
    }
    let message: Value =
        serde_json::from_slice(&received.message).map_err(|_| excerpt(&received.message))?;
    match message.get("result") {
        Some(result) => Ok(result.clone()),
        None => Err(excerpt(&received.message)),
    }
}

fn name(info: Option<&Value>) -> String {
    let text = |key: &str| info.and_then(|info| info.get(key)).and_then(Value::as_str);
    let (name, version) = (text("name").unwrap_or("unnamed"), text("version").unwrap_or_default());
    let all = format!("{name} {version}");
    all.trim().chars().filter(|c| !c.is_control()).take(80).collect()
}

/// Maximum number of pages of a list.
const MAX_LIST_PAGES: usize = 1000;
