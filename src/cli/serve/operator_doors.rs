//! The listeners for operators: the admin listener, and the private socket for commands.

use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::admin::{AdminEntrance, StatusReport, answer_operator, socket_path};
use crate::call::{Drain, PeerAddress};
use crate::config::Config;
use crate::listener::{
    Guard, Listener, LiveSettings, LocalPages, LocalUser, PrivateSocket, PrivateSocketError,
    Settings, edge,
};
use crate::text::error_chain;

/// Binds the socket, if the configuration has one. Clients do not need it, so a fault is a warning.
pub(super) fn open_socket(config: &Config, path: &Path) -> Option<PrivateSocket> {
    let at = socket_path(&config.admin.socket, path)?;
    match PrivateSocket::bind(&at) {
        Ok(socket) => Some(socket),
        // Hosts may start several gateways of one configuration.
        Err(PrivateSocketError::InUse) => {
            tracing::info!("commands ask another gateway of this configuration: {}", at.display());
            None
        }
        Err(error) => {
            tracing::warn!(
                "commands such as `trunkline status` cannot reach this gateway: admin.socket: {}: {}",
                at.display(),
                error_chain(&error)
            );
            None
        }
    }
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
            edge::operators(live.clone(), peer, move |request| {
                answer_operator(Arc::clone(&report), AdminEntrance::Listener(peer), request)
            })
        };
        socket.serve(settings, stack, draining).await;
    })
}

/// Serves commands until the drain is over.
pub(super) fn serve_commands(
    socket: PrivateSocket,
    report: Arc<StatusReport>,
    draining: Drain,
) -> JoinHandle<()> {
    tracing::debug!("commands connect to {}", socket.path().display());
    let guard = Guard::default().with_local_pages(LocalPages::Foreign);
    let settings = LiveSettings::new(Settings { guard, ..Settings::default() });
    tokio::spawn(async move {
        let stack = move |user: LocalUser, peer: PeerAddress| {
            let report = Arc::clone(&report);
            edge::operators(settings.clone(), peer, move |request| {
                let entrance = AdminEntrance::Private(user);
                answer_operator(Arc::clone(&report), entrance, request)
            })
        };
        socket.serve(stack, draining).await;
    })
}
