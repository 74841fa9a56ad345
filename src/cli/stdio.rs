//! `trunkline stdio`: the gateway for hosts that can only start a process.
//!
//! Standard output carries MCP messages only; text for people goes to standard error.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Uri};
use url::Url;

use crate::call::ProfileName;
use crate::config::{Config, HttpConfig, HttpTransport, Secret, StateDir};
use crate::downstream::stdio::{self, BridgeBounds, BridgeEnd, ClientStreams, Here, There};
use crate::http_client::HttpClient;
use crate::telemetry::log::{self, AccessLogSwitch, LogFormat, LogLevels};
use crate::text::error_chain;

use super::serve::core_dumps::limit_core_dumps;
use super::serve::{Doors, Running, guardian, not_started, signals, start_log};
use super::{
    BareFile, CommonArgs, ConfigOption, FAILURE_EXIT, WRONG_USE, print_error, report_error,
};

/// `trunkline stdio`
#[derive(Debug, clap::Args)]
pub(super) struct StdioArgs {
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    file: BareFile,
    /// Serve only this profile of the configuration
    #[arg(short, long, value_name = "NAME", conflicts_with = "connect")]
    profile: Option<String>,
    /// Log to standard error at this level: a level, or TARGET=LEVEL,…
    #[arg(long, value_name = "LEVELS", env = "TRUNKLINE_LOG")]
    log: Option<String>,
    /// Also serve HTTP clients on this address; by default no port is opened
    #[arg(short, long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Serve the admin endpoints (/status, /metrics) on this address; by default no port is opened
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<SocketAddr>,
    /// Connect to a running gateway at this URL instead of starting one; its API key is read from
    /// the environment variable TRUNKLINE_KEY
    #[arg(long, value_name = "URL", conflicts_with_all = ["listen", "admin"])]
    connect: Option<Url>,
    /// A header for each request to that gateway; ${env:NAME} is replaced by the variable's value
    #[arg(long, value_name = "NAME: VALUE", requires = "connect")]
    header: Vec<String>,
    /// CA certificates to trust besides the system's, as PEM
    #[arg(long, value_name = "FILE", requires = "connect")]
    ca: Option<PathBuf>,
}

pub(super) fn serve_stdio(args: StdioArgs) -> ExitCode {
    match args.connect.clone() {
        Some(url) => connect_to_gateway(args, url),
        None => serve_in_process(args),
    }
}

/// Runs the gateway in this process.
fn serve_in_process(args: StdioArgs) -> ExitCode {
    let StdioArgs { config, file, profile, log, listen, admin, .. } = args;
    let common = CommonArgs { config: config.or_file(file), listen, log };
    let mut file = match common.read_file() {
        Ok(file) => file,
        Err(code) => return code,
    };
    let config = &mut file.config;
    if config.gateway.state_dir == StateDir::Auto {
        config.gateway.state_dir = cache_folder().map_or(StateDir::Off, StateDir::Folder);
    }
    let uri = match endpoint_uri(config, profile.as_deref()) {
        Ok(uri) => uri,
        Err(fault) => {
            print_error(&fault);
            return WRONG_USE.into_code();
        }
    };
    let log = match start_log(config) {
        Ok(log) => log,
        Err(error) => return report_error(&error),
    };
    limit_core_dumps(config);
    run_in_runtime(async {
        let doors = Doors { clients: listen, operators: admin };
        // Responses of servers are already limited by `max_response`.
        let line = file.config.gateway.limits.body;
        let bounds = BridgeBounds { line, answer: usize::MAX, ..BridgeBounds::default() };
        let patience = file.config.gateway.drain;
        let running = match Running::open(file, &common.config.path, guardian(), doors).await {
            Ok(running) => running,
            Err(error) => return not_started(&error),
        };
        let reloader = running.share_reloader(common, Some(log));
        let here = Here::new(Arc::clone(&running.mcp), uri);
        let code = tokio::select! {
            ended = stdio::serve(here, standard_streams(), bounds, patience) => exit_code(ended),
            // A host that sends a signal has already closed the input, or requests an immediate
            // end.
            () = signals::until_told_to_stop(&running, &reloader) => ExitCode::SUCCESS,
        };
        tokio::select! {
            () = running.stop() => {}
            () = signals::told_to_stop() => tracing::warn!("second stop signal: exiting immediately"),
        }
        code
    })
}

/// Returns the gateway's folder among the user's caches (XDG Base Directory Specification).
pub(super) fn cache_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    Some(caches?.join("trunkline"))
}

/// Returns the endpoint of a profile.
fn endpoint_uri(config: &Config, profile: Option<&str>) -> Result<Uri, String> {
    let Some(profile) = profile else { return Ok(Uri::from_static("/mcp")) };
    let known = config.profiles.iter().map(|profile| profile.name.as_str());
    if profile != ProfileName::DEFAULT && !known.clone().any(|name| name == profile) {
        let known: Vec<_> = known.collect();
        if known.is_empty() {
            return Err("--profile: the configuration has no profiles".to_owned());
        }
        return Err(format!("--profile: no profile {profile:?}, but {}", known.join(", ")));
    }
    format!("/mcp/{profile}").parse().map_err(|_| "--profile: not a valid profile name".to_owned())
}

/// Connects to a gateway in another process.
fn connect_to_gateway(args: StdioArgs, url: Url) -> ExitCode {
    let levels = LogLevels {
        directives: args.log.as_deref().unwrap_or("warn"),
        access: AccessLogSwitch::Off,
    };
    let _log = match log::init_log(levels, LogFormat::Human) {
        Ok(log) => log,
        Err(error) => {
            print_error(&format!("--log: {error}"));
            return WRONG_USE.into_code();
        }
    };
    let client = match build_client(args, url) {
        Ok(client) => client,
        Err(fault) => {
            print_error(&fault);
            return WRONG_USE.into_code();
        }
    };
    run_in_runtime(async {
        tokio::select! {
            ended = stdio::serve(There::new(client), standard_streams(), BridgeBounds::default(), DRAIN_TIMEOUT) => {
                exit_code(ended)
            }
            () = signals::told_to_stop() => ExitCode::SUCCESS,
        }
    })
}

fn build_client(args: StdioArgs, mut url: Url) -> Result<HttpClient, String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err("--connect: the URL begins with http:// or https://".into());
    }
    if url.path() == "/" {
        url.set_path("/mcp");
    }
    let mut headers = Vec::new();
    if let Some(key) = std::env::var("TRUNKLINE_KEY").ok().filter(|key| !key.is_empty()) {
        headers.push((AUTHORIZATION, Secret::new(format!("Bearer {key}"))));
    }
    for text in &args.header {
        headers.push(parse_header(text).map_err(|fault| format!("--header: {fault}"))?);
    }
    let http = HttpConfig {
        url,
        headers,
        ca: args.ca,
        transport: HttpTransport::Streamable,
        oauth: None,
        aws: None,
    };
    HttpClient::new(&http, CONNECT_TIMEOUT).map_err(|fault| error_chain(&fault))
}

/// Parses `NAME: VALUE`. Error messages do not contain the value.
pub(super) fn parse_header(text: &str) -> Result<(HeaderName, Secret), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    let name = name.trim();
    let known: HeaderName = name.parse().map_err(|_| format!("{name:?} is not a header name"))?;
    if known.as_str().starts_with("mcp-") || OWN_HEADERS.contains(&known.as_str()) {
        return Err(format!("{name} is written by the transport itself"));
    }
    let value = substitute_env(value.trim())?;
    HeaderValue::from_str(&value).map_err(|_| format!("the value of {name} cannot be sent"))?;
    Ok((known, Secret::new(value)))
}

/// Replaces each `${env:NAME}` with the variable's value.
fn substitute_env(text: &str) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, from)) = rest.split_once("${env:") {
        let (name, after) = from.split_once('}').ok_or("a ${env:NAME} has no end")?;
        let value = std::env::var(name).map_err(|_| format!("the variable {name} is not set"))?;
        filled.extend([before, &value]);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn standard_streams() -> ClientStreams<tokio::io::Stdin, tokio::io::Stdout> {
    ClientStreams { input: tokio::io::stdin(), output: tokio::io::stdout() }
}

fn exit_code(ended: BridgeEnd) -> ExitCode {
    match ended {
        BridgeEnd::Input => ExitCode::SUCCESS,
        BridgeEnd::Output => FAILURE_EXIT.into_code(),
    }
}

fn run_in_runtime(work: impl Future<Output = ExitCode>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error),
    };
    let code = runtime.block_on(work);
    // The thread that reads standard input cannot be woken, and must not delay the exit.
    runtime.shutdown_timeout(Duration::from_millis(100));
    code
}

/// Headers that the option cannot set.
const OWN_HEADERS: [&str; 6] =
    ["accept", "content-type", "content-length", "host", "connection", "transfer-encoding"];
/// Time limit for requests in flight after the end of the input.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for opening a connection, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value_that_can_be_sent() {
        let (name, value) = parse_header("X-Team:  blue: one ").unwrap();
        assert_eq!((name.as_str(), value.expose()), ("x-team", "blue: one"));
        for text in ["X-Team", "x y: 1", "Mcp-Method: x", "Host: x", "X: ${env:", "X: a\u{1}"] {
            assert!(parse_header(text).is_err(), "{text:?}");
        }
        let fault = parse_header("X: ${env:TRUNKLINE_NOT_SET}").unwrap_err();
        assert!(fault.contains("TRUNKLINE_NOT_SET"), "{fault}");
    }
}
