//! `trunkline login`: logs a person in at a server from a terminal, and keeps the login in the
//! vault.
//!
//! For a machine with one user. The browser returns to a port of this machine that is open for this
//! one login; the answer is used only if it has the `state` that this process made. A running
//! gateway uses the login as soon as it is in the vault.

pub(super) mod list;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::call::{Principal, ServerName};
use crate::cli::serve::core_dumps::limit_core_dumps;
use crate::cli::serve::settings::browser_url;
use crate::cli::serve::vault_keeper::{VaultOpenError, open_vault};
use crate::cli::{
    CONFIG_FAULT, CommonArgs, ConfigOption, WRONG_USE, print_error, report_error, write_to_stdout,
};
use crate::clock;
use crate::config::{
    CallbackChoice, Config, GrantKind, GrantOwnership, IssuerConfig, OauthConfig, ServerConfig,
};
use crate::identity::LOGIN_PATH;
use crate::oauth::vault::VaultError;
use crate::oauth::{BrowserAnswer, GrantBook, GrantOwner, LoginFault, begin_terminal_login};

/// Log in at a server with OAuth, and keep the login in the vault
///
/// Prints a link, and waits for a login through it in a browser of this machine.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    #[command(flatten)]
    config: ConfigOption,
    /// The server, by its name in the configuration
    server: String,
    /// The client of `[clients]` whose calls use the login; by default the operator, or the only user
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// The port of this machine that the browser returns to; by default any free port
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// Error of a login.
#[derive(Debug, thiserror::Error)]
enum LoginError {
    #[error("cannot listen on a port of this machine")]
    Listen(#[source] std::io::Error),
    #[error(transparent)]
    Key(#[from] VaultOpenError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Login(#[from] LoginFault),
    #[error("no login within {}s", .0.as_secs())]
    Timeout(Duration),
    #[error("the login is not in the vault: see the log above")]
    NotKept,
}

pub(crate) fn log_in(args: &LoginArgs) -> ExitCode {
    let common = CommonArgs { config: args.config.clone(), listen: None, log: None };
    let config = match common.read_config() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let (server, owner) = match find_login(&config, args) {
        Ok(found) => found,
        Err(problem) => {
            print_error(&problem);
            return WRONG_USE.into_code();
        }
    };
    if !config.vault.is_on() {
        print_error(
            "there is no vault to keep the login in: set `keys` in [vault]; see docs/credentials.md",
        );
        return CONFIG_FAULT.into_code();
    }
    limit_core_dumps(&config);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error),
    };
    match runtime.block_on(wait_for_login(&config, &server, &owner, args.port)) {
        Ok(()) => write_to_stdout(&format!("You are logged in to {}.\n", server.name)),
        Err(error) => report_error(&error),
    }
}

/// Describes the servers that require a person's login, for `trunkline check`: the person, and the
/// link. `/status` shows the existing logins.
pub(crate) fn describe_logins(config: &Config) -> Vec<String> {
    let base = browser_url(config, Some(config.gateway.listen));
    let connect = base
        .map(|base| format!("{}{}", base.as_str().trim_end_matches('/'), GrantBook::CONNECT_PATH));
    let describe = |server: &Arc<ServerConfig>| {
        let oauth = server.oauth().filter(|it| it.grant == GrantKind::AuthorizationCode)?;
        let name = &server.name;
        let has_own_users = oauth.per == GrantOwnership::User && config.authenticates();
        let by_link = match (&connect, has_own_users) {
            (None, _) => None,
            (Some(connect), true) => Some(format!(
                "each client has to log in to it, at {connect} or by the link that its calls get; \
                 for other clients to see lists that need a login, its operator logs in to it as \
                 well: the gateway's status has the link"
            )),
            (Some(_), false) if config.authenticates() => Some(
                "its operator has to log in to it first: the gateway's status has the link"
                    .to_owned(),
            ),
            (Some(connect), false) => Some(format!(
                "its user has to log in to it first, at {connect} or by the link that calls get"
            )),
        };
        let by_terminal = match (config.vault.is_on(), has_own_users) {
            (true, true) => format!("`trunkline login {name} --client NAME`"),
            (true, false) => format!("`trunkline login {name}`"),
            (false, _) => format!("`trunkline login {name}`, which needs [vault]"),
        };
        Some(match by_link {
            Some(by_link) => format!("servers.{name}: {by_link}. At a terminal: {by_terminal}"),
            None => format!(
                "servers.{name}: a login is needed first, with {by_terminal}: browsers cannot \
                 return to a gateway on this address without `public_url`"
            ),
        })
    };
    config.servers.iter().filter_map(describe).collect()
}

/// Returns warnings of `trunkline check` about clients with answers that arrive at the callback of
/// all servers. If the authorization server does not name itself (`iss`), the gateway cannot
/// distinguish them (RFC 9700, 4.4).
pub(crate) fn find_shared_callbacks(config: &Config) -> Vec<String> {
    let has_login = |oauth: &OauthConfig| oauth.grant == GrantKind::AuthorizationCode;
    let logins = config.servers.iter().filter(|server| server.oauth().is_some_and(has_login));
    if logins.clone().count() < 2 {
        return Vec::new();
    }
    let is_shared = |server: &&Arc<ServerConfig>| {
        server.oauth().is_some_and(|oauth| {
            let is_registered = oauth.client_id.is_some() || oauth.client_metadata_url.is_some();
            is_registered && oauth.callback == CallbackChoice::Auto && !oauth.require_iss
        })
    };
    let warn = |server: &Arc<ServerConfig>| {
        let (name, path) = (&server.name, GrantBook::CALLBACK_PATH);
        format!(
            "servers.{name}.oauth: its answers use the callback of all servers ({path}), which \
             needs `iss` in them: set `require_iss = true` if the authorization server sends it, \
             or register the callback {path}/{name} there and set `callback = \"server\"`"
        )
    };
    logins.filter(is_shared).map(warn).collect()
}

/// Describes the issuers with relayed logins, for `trunkline check`: the address for clients, and
/// the authorization server at which their redirect URIs must be registered.
pub(crate) fn describe_relayed_logins(config: &Config) -> Vec<String> {
    let base = browser_url(config, Some(config.gateway.listen));
    let base = base.as_ref().map_or("", |base| base.as_str().trim_end_matches('/'));
    let relayed = config.issuers.iter().filter(|issuer| issuer.relays_logins());
    let describe = |issuer: &IssuerConfig| {
        let (name, server) = (&issuer.name, issuer.login_server());
        let client = issuer.client_id.as_ref().map(|client| {
            format!(
                "; the redirect URIs of clients have to be registered for the client {client:?}"
            )
        });
        let client = client.unwrap_or_default();
        format!("issuers.{name}: clients log in at {base}{LOGIN_PATH}{name}, for {server}{client}")
    };
    relayed.map(describe).collect()
}

/// Returns the server, and the owner of the login.
fn find_login(
    config: &Config,
    args: &LoginArgs,
) -> Result<(Arc<ServerConfig>, GrantOwner), String> {
    let name = ServerName::new(&args.server).ok();
    let server = config.servers.iter().find(|server| Some(&server.name) == name.as_ref());
    let server = server.ok_or_else(|| format!("there is no server {:?}", args.server))?;
    let owner = match &args.client {
        None => GrantOwner::Gateway,
        Some(name) => {
            let client = config.clients.iter().find(|client| *client.name == **name);
            client.ok_or_else(|| format!("there is no client {name:?} in [clients]"))?;
            GrantOwner::Client(Principal::Client(name.as_str().into()))
        }
    };
    Ok((Arc::clone(server), owner))
}

async fn wait_for_login(
    config: &Config,
    server: &ServerConfig,
    owner: &GrantOwner,
    port: u16,
) -> Result<(), LoginError> {
    let place = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let listener = TcpListener::bind(place).await.map_err(LoginError::Listen)?;
    let address = listener.local_addr().map_err(LoginError::Listen)?;
    let grants = Arc::new(GrantBook::default());
    if let Some(vault) = open_vault(config).await? {
        grants.open_vault(vault).await?;
    }
    grants.set_base(Url::parse(&format!("http://{address}")).ok());
    let login = begin_terminal_login(server, &grants, owner).await?;
    write_to_stdout(&format!("Open this link in a browser of this machine:\n\n{}\n\n", login.link));
    let until = clock::now() + login.lasts;
    let answered = accept_answers(listener, &grants, until).await;
    answered.unwrap_or(Err(LoginError::Timeout(login.lasts)))?;
    // The vault contains it by now, or the log has the fault.
    if grants.is_kept(&login).await? { Ok(()) } else { Err(LoginError::NotKept) }
}

/// Serves the callback until a browser brings an answer that ends the login; `None` after the time
/// limit.
async fn accept_answers(
    listener: TcpListener,
    grants: &Arc<GrantBook>,
    until: Instant,
) -> Option<Result<(), LoginError>> {
    let (ended, mut ends) = mpsc::channel(1);
    let serving = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (grants, ended) = (Arc::clone(grants), ended.clone());
            let answer = move |request: Request<hyper::body::Incoming>| {
                let (grants, ended) = (Arc::clone(&grants), ended.clone());
                async move { Ok::<_, Infallible>(answer_browser(&request, &grants, &ended).await) }
            };
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).keep_alive(false);
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    };
    tokio::select! {
        end = timeout_at(until, ends.recv()) => {
            let end = end.ok().flatten()?;
            // The browser gets its page before the program exits.
            tokio::time::sleep(LAST_PAGE).await;
            Some(end.map_err(LoginError::from))
        }
        () = serving => None,
    }
}

async fn answer_browser(
    request: &Request<hyper::body::Incoming>,
    grants: &GrantBook,
    ended: &mpsc::Sender<Result<(), LoginFault>>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if !GrantBook::is_callback(path) {
        return show_text(StatusCode::NOT_FOUND, "There is nothing here.");
    }
    let query = request.uri().query().unwrap_or_default();
    let answer = BrowserAnswer { path, query, browser: None, address: None, room: None };
    let finished = grants.finish_login(answer).await;
    let response = match &finished {
        Ok(_) => show_text(StatusCode::OK, "You are logged in. You can close this page."),
        Err(fault) => {
            show_text(StatusCode::BAD_REQUEST, &format!("You are not logged in: {fault}."))
        }
    };
    // An answer without a pending login ends none.
    if !finished.as_ref().is_err_and(LoginFault::is_of_no_login) {
        let _ = ended.try_send(finished.map(drop));
    }
    response
}

fn show_text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{text}\n")));
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Time limit for the head of a browser's request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Time for the browser to receive its page.
const LAST_PAGE: Duration = Duration::from_millis(300);
