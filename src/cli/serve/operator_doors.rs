//! The listeners for operators: the admin listener, and the private socket for commands; and the
//! report of connections that any listener refuses.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::admin::{AdminEntrance, StatusReport, answer_operator, refuse_admission, socket_path};
use crate::call::{Drain, PeerAddress};
use crate::config::Config;
use crate::listener::{
    ConnectionRefusals, Guard, Listener, LiveSettings, LocalPages, LocalUser, PrivateSocket,
    PrivateSocketError, Settings, edge,
};
use crate::pipeline::Gateway;
use crate::text::error_chain;

/// The private socket of a gateway that starts.
pub(super) enum CommandSocket {
    /// It is bound.
    Bound(PrivateSocket),
    /// Another gateway of the configuration listens: hosts may start several.
    Taken {
        /// The path of the socket.
        path: PathBuf,
    },
}

/// Binds the socket, if the configuration has one. Clients do not need it, so a fault is a warning.
pub(super) fn open_socket(config: &Config, path: &Path) -> Option<CommandSocket> {
    let path = socket_path(&config.admin.socket, path)?;
    match PrivateSocket::bind(&path) {
        Ok(socket) => Some(CommandSocket::Bound(socket)),
        Err(PrivateSocketError::InUse) => {
            tracing::info!(
                "commands ask another gateway of this configuration: {}",
                path.display()
            );
            Some(CommandSocket::Taken { path })
        }
        Err(error) => {
            warn_of_socket(&path, &error);
            None
        }
    }
}

fn warn_of_socket(path: &Path, error: &PrivateSocketError) {
    tracing::warn!(
        "commands such as `trunkline status` cannot reach this gateway: admin.socket: {}: {}",
        path.display(),
        error_chain(error)
    );
}

/// Binds a socket once the gateway that has it ends. Returns `None` once the drain starts, or if the
/// socket cannot be bound.
async fn await_socket(path: &Path, draining: &Drain) -> Option<PrivateSocket> {
    let mut started = pin!(draining.started());
    loop {
        tokio::select! {
            () = started.as_mut() => return None,
            () = sleep(SOCKET_RETRY_INTERVAL) => {}
        }
        match PrivateSocket::bind(path) {
            Ok(socket) => {
                tracing::info!("commands ask this gateway from now on: {}", path.display());
                return Some(socket);
            }
            Err(PrivateSocketError::InUse) => {}
            Err(error) => {
                warn_of_socket(path, &error);
                return None;
            }
        }
    }
}

/// Counts and logs the connections that listeners refuse for their certificate.
pub(super) fn report_refusals(gateway: &Arc<Gateway>) -> ConnectionRefusals {
    let gateway = Arc::clone(gateway);
    ConnectionRefusals::new(move |peer, refused| {
        if let Some(reason) = refused.certificate_reason() {
            gateway.refuse_certificate(peer.addr.ip(), &reason);
        }
    })
}

/// Serves the admin listener until the drain is over.
pub(super) fn serve_operators(
    socket: Listener,
    settings: LiveSettings,
    report: Arc<StatusReport>,
    draining: Drain,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let live = settings.clone();
        let stack = move |peer: PeerAddress| {
            let report = Arc::clone(&report);
            let answer = move |request| {
                answer_operator(Arc::clone(&report), AdminEntrance::Listener(peer), request)
            };
            edge::operators(live.clone(), peer, answer, refuse_admission)
        };
        socket.serve(settings, stack, draining).await;
    })
}

/// Serves commands until the drain is over.
pub(super) fn serve_commands(
    socket: CommandSocket,
    report: Arc<StatusReport>,
    draining: Drain,
) -> JoinHandle<()> {
    let guard = Guard::default().with_local_pages(LocalPages::Foreign);
    let settings = LiveSettings::new(Settings { guard, ..Settings::default() });
    tokio::spawn(async move {
        let socket = match socket {
            CommandSocket::Bound(socket) => Some(socket),
            CommandSocket::Taken { path } => await_socket(&path, &draining).await,
        };
        let Some(socket) = socket else { return };
        tracing::debug!("commands connect to {}", socket.path().display());
        let stack = move |user: LocalUser, peer: PeerAddress| {
            let report = Arc::clone(&report);
            let answer = move |request| {
                let entrance = AdminEntrance::Private(user);
                answer_operator(Arc::clone(&report), entrance, request)
            };
            edge::operators(settings.clone(), peer, answer, refuse_admission)
        };
        socket.serve(stack, draining).await;
    })
}

/// Interval of the attempts to bind a socket that another gateway has.
const SOCKET_RETRY_INTERVAL: Duration = Duration::from_secs(2);
