//! The signals of the running process.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::ReloadTrigger;

use super::reload::Reloader;
use super::{Running, watch};

/// Announces the addresses, and reloads on SIGHUP and on changes of the file; returns on SIGTERM
/// and SIGINT. The watch covers every change after the announcement.
pub(crate) async fn until_told_to_stop(running: &Running, reloader: &Arc<Reloader>) {
    let watcher = watch::start(Arc::clone(reloader)).await;
    running.announce();
    let hangups = tokio::spawn(hangups(Arc::clone(reloader)));
    told_to_stop().await;
    watcher.abort();
    hangups.abort();
}

/// Waits for the next SIGTERM or SIGINT.
pub(crate) async fn told_to_stop() {
    let mut terminate = listen(SignalKind::terminate());
    let mut interrupt = listen(SignalKind::interrupt());
    tokio::select! {
        () = heard(&mut terminate) => tracing::info!("SIGTERM"),
        () = heard(&mut interrupt) => tracing::info!("SIGINT"),
    }
}

async fn hangups(reloader: Arc<Reloader>) {
    let mut hangup = listen(SignalKind::hangup());
    loop {
        heard(&mut hangup).await;
        reloader.reopen_audit();
        if reloader.manner() == ReloadTrigger::Off {
            tracing::warn!("SIGHUP is ignored: gateway.reload is off");
        } else {
            reloader.renew_commands().await;
            reloader.reload().await;
        }
    }
}

fn listen(kind: SignalKind) -> Option<Signal> {
    signal(kind).inspect_err(|error| tracing::error!(%error, "cannot listen for a signal")).ok()
}

async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
