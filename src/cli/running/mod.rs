//! Requests of commands to the running gateway: over its private socket, which is found by the path of
//! the configuration, or over its admin listener with `--url` and `--key-file`.
//!
//! The configuration is not loaded, because it may be faulty while the gateway runs with an earlier
//! one. It differs from `serve`, which runs the gateway.

mod connection;
mod error;
mod events;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::{BareFile, FAILURE_EXIT, print_error};
use crate::admin::API_PATH;
use connection::RunningGateway;
pub(crate) use error::RunningGatewayError;
pub(crate) use events::{EventReader, GatewayEvent};

/// The gateway that a command asks.
#[derive(Debug, Clone, Args)]
pub(crate) struct GatewayOption {
    /// The configuration of the gateway
    #[arg(
        short = 'c',
        long = "config",
        value_name = "FILE",
        env = "TRUNKLINE_CONFIG",
        default_value = "gateway.toml"
    )]
    config: PathBuf,
    /// Ask the gateway with this admin address instead, such as https://gateway.example.com:8081
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// The file with the API key, or the token, of a client with a role
    #[arg(long, value_name = "FILE", requires = "url")]
    key_file: Option<PathBuf>,
    /// CA certificates to trust besides the system's, as PEM
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
}

/// A request to the API.
#[derive(Debug, Clone)]
pub(crate) struct GatewayRequest<'a> {
    /// The method.
    pub(crate) method: Method,
    /// The path below `/api/v1`, with the query.
    pub(crate) path: &'a str,
    /// The body, a JSON document.
    pub(crate) body: Option<String>,
}

impl<'a> GatewayRequest<'a> {
    /// Creates a request that reads.
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, body: None }
    }
}

impl GatewayOption {
    /// Returns the gateway that runs with a configuration.
    pub(crate) fn of_config(config: PathBuf) -> Self {
        Self { config, url: None, key_file: None, ca: None }
    }

    /// Uses this file of the command line in place of the option.
    #[must_use]
    pub(crate) fn or_file(self, file: impl Into<BareFile>) -> Self {
        match file.into().path {
            Some(config) => Self { config, ..self },
            None => self,
        }
    }

    /// Returns the path of the configuration.
    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    /// Reads the events of a request to the running gateway, until they end or the reader has enough.
    ///
    /// # Errors
    /// [`RunningGatewayError`].
    pub(crate) fn follow(
        &self,
        request: &GatewayRequest<'_>,
        on_event: &mut EventReader<'_>,
    ) -> Result<(), RunningGatewayError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(RunningGatewayError::Runtime)?;
        runtime.block_on(async {
            let address = RunningGateway::find(self).await?;
            let target = format!("{API_PATH}{}", request.path);
            match address.follow(request, &target, on_event).await? {
                Some(refusal) => refusal.into_document::<Value>().map(drop),
                None => Ok(()),
            }
        })
    }

    /// Sends a request to the running gateway, and returns the document of the answer.
    ///
    /// # Errors
    /// [`RunningGatewayError`].
    pub(crate) fn request(
        &self,
        request: &GatewayRequest<'_>,
    ) -> Result<Value, RunningGatewayError> {
        self.request_within(request, ANSWER_TIMEOUT)
    }

    /// Sends a request, and waits this long for its answer.
    ///
    /// # Errors
    /// [`RunningGatewayError`].
    pub(crate) fn request_within(
        &self,
        request: &GatewayRequest<'_>,
        patience: Duration,
    ) -> Result<Value, RunningGatewayError> {
        self.request_as(request, patience)
    }

    /// Sends a request, and reads its answer as a document of this type.
    ///
    /// # Errors
    /// [`RunningGatewayError`].
    pub(crate) fn request_as<T: DeserializeOwned>(
        &self,
        request: &GatewayRequest<'_>,
        patience: Duration,
    ) -> Result<T, RunningGatewayError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(RunningGatewayError::Runtime)?;
        runtime.block_on(async {
            let address = RunningGateway::find(self).await?;
            let target = format!("{API_PATH}{}", request.path);
            let answer = address.send(request, &target, patience).await?;
            answer.into_document()
        })
    }
}

/// Prints the reason that a command got no answer, and returns the exit code.
pub(crate) fn report_unanswered(error: &RunningGatewayError) -> ExitCode {
    print_error(&error.describe());
    error.exit().into_code()
}

/// Prints that an answer cannot be read, and returns the exit code.
pub(crate) fn report_other_version() -> ExitCode {
    print_error("the gateway has another version: its answer cannot be read");
    FAILURE_EXIT.into_code()
}

/// Time limit for an answer: a refresh waits for its server.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);
