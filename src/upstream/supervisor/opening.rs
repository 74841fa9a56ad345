//! Opens the connection of an instance.

mod placement;

use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

pub(super) use placement::lease_ended;

use crate::clock;
use crate::config::{
    CommandConfig, EraChoice, HttpConfig, HttpTransport, OpenApiConfig, ServerKind,
};
use crate::http_client::HttpClient;
use crate::mcp::Era;

use crate::child::{Child, ChildSpec};
use crate::oauth::GrantOwner;
use crate::upstream::response_memory::ResponseMemory;
use crate::upstream::supervisor::life::{EXIT_PATIENCE, Life};
use crate::upstream::transport::caller_headers::CallerHeaders;
use crate::upstream::transport::connection::ServerConnection;
use crate::upstream::transport::http::{self, HttpServer};
use crate::upstream::transport::openapi::{ApiOpening, OpenApiServer};
use crate::upstream::transport::stdio::{self, ChildOutput, StdioServer};
use crate::upstream::{ChildExit, ExitCause, SetupFault, UpstreamError};

impl Life<'_> {
    /// Opens a connection of the configured kind. The caller sets a time limit.
    pub(crate) async fn connect(&mut self) -> Result<ServerConnection, UpstreamError> {
        let config = Arc::clone(self.instance.config());
        let known = self.instance.owner().told.other_era.or(self.known);
        let era = match (config.era(), known) {
            (EraChoice::Auto, Some(Era::Legacy)) => EraChoice::Legacy,
            (era, _) => era,
        };
        if self.instance.is_main() {
            self.instance.shared().settle_main_declaration();
        }
        if era == EraChoice::Auto {
            self.instance.shared().era().note_probe(clock::unix_now().as_secs());
        }
        let lease = self.instance.shared().lease().cloned();
        let opened = match &config.target {
            ServerKind::Command(command) => match lease {
                None => self.start_child(command, era).await,
                Some(lease) => Box::pin(self.open_placed(&lease, command, era)).await,
            },
            ServerKind::Http(http) => self.open_http(http, era).await,
            ServerKind::OpenApi(openapi) => self.open_api(openapi).await,
        };
        self.known = match &opened {
            Ok(connection) => Some(connection.peer().era()),
            // Some Legacy children exit when they receive an unknown method.
            Err(UpstreamError::Exited(_)) if era == EraChoice::Auto => Some(Era::Legacy),
            Err(_) => None,
        };
        opened
    }

    /// Opens an HTTP connection. A server that rejects `initialize` may speak
    /// the older HTTP+SSE transport (2025-11-25, Transports, "Backwards
    /// Compatibility").
    async fn open_http(
        &self,
        http: &HttpConfig,
        era: EraChoice,
    ) -> Result<ServerConnection, UpstreamError> {
        let config = self.instance.config();
        let client = self.client(http).await?;
        if http.transport == HttpTransport::Sse {
            return self.open_sse(client).await;
        }
        let opening = http::HttpOpening {
            server: config.name.clone(),
            owner: self.instance.declared_owner(),
            client: Arc::clone(&client),
            era,
            patience: config.start_timeout / 3,
            limit: config.max_response,
            memory: self.memory(),
            caller_headers: CallerHeaders::of(config),
            inbox: Arc::clone(self.instance.inbox()),
        };
        // A server that is known to be Modern does not use the older transport.
        let may_be_old = http.transport == HttpTransport::Auto
            && era != EraChoice::Modern
            && self.instance.owner().told.other_era.is_none();
        match HttpServer::open(opening).await {
            Err(fault) if may_be_old && http::sse::may_be_old(&fault) => {
                self.open_sse(client).await.map_err(|other| http::sse::choose_fault(fault, other))
            }
            opened => opened.map(ServerConnection::Http),
        }
    }

    /// Reads the document of a plain HTTP API.
    async fn open_api(&self, api: &OpenApiConfig) -> Result<ServerConnection, UpstreamError> {
        let opening = ApiOpening {
            server: Arc::clone(self.instance.config()),
            api: api.clone(),
            files: self.instance.shared().files().clone(),
            memory: self.memory(),
            inbox: Arc::clone(self.instance.inbox()),
            credentials: self.credentials(),
        };
        OpenApiServer::open(opening).await.map(ServerConnection::OpenApi)
    }

    /// Opens a connection over HTTP+SSE (2024-11-05), which behaves like a pipe
    /// once it is open.
    async fn open_sse(
        &self,
        client: Arc<http::ServerClient>,
    ) -> Result<ServerConnection, UpstreamError> {
        let config = self.instance.config();
        let limit = config.max_response;
        let (input, output) = http::sse::open(client, config).await?;
        let opening = stdio::StdioOpening {
            server: config.name.clone(),
            owner: self.instance.declared_owner(),
            era: EraChoice::Legacy,
            patience: config.start_timeout / 3,
            limit,
            memory: self.memory(),
            inbox: Arc::clone(self.instance.inbox()),
            secrets: config.secrets.clone(),
            first_printed: Arc::default(),
        };
        let stdio = StdioServer::open(opening, input, output).await?;
        Ok(ServerConnection::Stdio(Box::new(stdio)))
    }

    /// Returns the HTTP client of all instances. It is created anew for each start of the main
    /// instance, because the certificate file may have been corrected since.
    async fn client(&self, config: &HttpConfig) -> Result<Arc<http::ServerClient>, UpstreamError> {
        let instance = self.instance;
        let credentials = self.credentials();
        let shares = !instance.is_main() && credentials.as_ref().is_none_or(is_of_gateway);
        if shares && let Some(client) = &*instance.shared().client() {
            return Ok(Arc::clone(client));
        }
        let (config, connect_timeout) = (config.clone(), instance.config().connect_timeout);
        let created = move || HttpClient::new(&config, connect_timeout);
        let created = instance.shared().files().run(created).await;
        let client = created.map_err(|error| SetupFault::Files(Arc::new(error)))??;
        let is_own = credentials.as_ref().is_some_and(|own| !is_of_gateway(own));
        let client = Arc::new(http::ServerClient::new(client, credentials));
        if is_own {
            // Connections of one owner are not used for another.
            return Ok(client);
        }
        Ok(Arc::clone(instance.shared().client().insert(client)))
    }

    fn memory(&self) -> Arc<ResponseMemory> {
        Arc::clone(&self.instance.shared().context().response_memory)
    }

    /// Returns the tokens for the instance's requests, or `None` without OAuth.
    fn credentials(&self) -> Option<http::RequestCredentials> {
        let authorizer = self.instance.shared().authorizer()?;
        let owner = self.instance.grant_owner()?;
        Some(http::RequestCredentials { authorizer: Arc::clone(authorizer), owner })
    }

    async fn start_child(
        &mut self,
        command: &CommandConfig,
        era: EraChoice,
    ) -> Result<ServerConnection, UpstreamError> {
        let config = self.instance.config();
        self.first_printed = Arc::default();
        let (mut child, input, output) = self.spawn(command).await?;
        let output = ChildOutput::new(output).map_err(|error| SetupFault::Pipe(Arc::new(error)))?;
        self.instance.life().history().pid = u32::try_from(child.id()).ok();
        let opening = stdio::StdioOpening {
            server: config.name.clone(),
            owner: self.instance.declared_owner(),
            era,
            patience: config.start_timeout / 3,
            limit: config.max_response,
            memory: self.memory(),
            inbox: Arc::clone(self.instance.inbox()),
            secrets: config.secrets.clone(),
            first_printed: Arc::clone(&self.first_printed),
        };
        let mut open = pin!(StdioServer::open(opening, input, output));
        let opened = tokio::select! {
            opened = &mut open => opened,
            status = child.failed() => Err(explain_exit(status, open).await),
        };
        match opened {
            Ok(stdio) => {
                self.child = Some(child);
                Ok(ServerConnection::Stdio(Box::new(stdio)))
            }
            Err(fault) => Err(self.bury(child, fault).await),
        }
    }

    /// Starts the program on a blocking thread, because this takes a millisecond or more.
    async fn spawn(
        &self,
        command: &CommandConfig,
    ) -> Result<(Child, ChildStdin, ChildStdout), UpstreamError> {
        let instance = self.instance;
        let starting = match instance.shared().lease() {
            Some(lease) => Some(lease.note_start().await),
            None => None,
        };
        let (server, spec) =
            (instance.name().clone(), ChildSpec::for_server(self.instance.config(), command));
        let guardian = instance.shared().context().guardian.clone();
        let _turn = instance.shared().context().program_starts.acquire().await;
        // The gateway's shutdown waits for a program that is being started. Nothing else would end
        // the program before the guardian knows it.
        let alive = instance.shared().context().alive.token();
        let output = instance.shared().journal().output().clone();
        let spawned = spawn_blocking(move || {
            let spawned = Child::spawn(&server, &spec, &guardian);
            if let Ok((child, ..)) = &spawned {
                child.keep_output(&output);
            }
            (spawned, starting, alive)
        });
        let spawned = spawned.await;
        let (spawned, ..) = spawned.map_err(|error| SetupFault::Task(Arc::new(error)))?;
        spawned.map_err(|error| UpstreamError::Spawn(Arc::new(error)))
    }

    /// Ends a child that cannot be used, and adds its exit status and its last output to the error.
    async fn bury(&self, mut child: Child, mut fault: UpstreamError) -> UpstreamError {
        if let UpstreamError::Exited(exit) = &mut fault {
            // The end of the pipes usually shows before that of the process.
            if let Ok(status) = timeout(EXIT_PATIENCE, child.failed()).await {
                exit.cause = ExitCause::Status(status);
            }
            exit.last_line = child.last_words().pop();
        }
        child.stop().await;
        fault
    }
}

/// Reads the rest of the output of a child that has exited: it may name the reason.
async fn explain_exit(
    status: ExitStatus,
    open: impl Future<Output = Result<StdioServer, UpstreamError>>,
) -> UpstreamError {
    let first_line = match timeout(LAST_OUTPUT_TIME, open).await {
        Ok(Err(UpstreamError::Exited(exit))) => exit.first_line,
        _ => None,
    };
    let cause = ExitCause::Status(status);
    UpstreamError::Exited(Box::new(ChildExit { cause, first_line, last_line: None }))
}

fn is_of_gateway(credentials: &http::RequestCredentials) -> bool {
    credentials.owner == GrantOwner::Gateway
}

/// Time limit for reading the rest of the output of a child that has exited.
const LAST_OUTPUT_TIME: Duration = Duration::from_secs(1);
