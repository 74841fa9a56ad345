//! The connection of a server whose child one of several replicas runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::cluster::{LeaseEnd, PeerLink, ServerLease, ServerLeaseFault, ServerPlace};
use crate::config::{CommandConfig, EraChoice};
use crate::upstream::UpstreamError;
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::life::Life;
use crate::upstream::transport::caller_headers::CallerHeaders;
use crate::upstream::transport::connection::ServerConnection;
use crate::upstream::transport::http::{self, HttpServer};

impl Life<'_> {
    /// Starts the child if this replica gets the lease, and connects to the replica that has it
    /// otherwise. Waits for the end of the lease of a replica that cannot be reached. The caller sets
    /// a time limit.
    pub(super) async fn open_placed(
        &mut self,
        lease: &Arc<ServerLease>,
        command: &CommandConfig,
        era: EraChoice,
    ) -> Result<ServerConnection, UpstreamError> {
        loop {
            let fault = match lease.place().await {
                Ok(ServerPlace::Here) => return self.start_child(command, era).await,
                Ok(ServerPlace::Replica(link)) => match self.open_at(lease, link).await {
                    Err(UpstreamError::Replica(fault)) => fault,
                    opened => return opened,
                },
                Err(fault) => fault,
            };
            if !fault.is_passing() {
                return Err(fault.into());
            }
            lease.release().await;
            sleep(PLACE_PAUSE).await;
        }
    }

    /// Opens a connection to the child through the replica that runs it. This replica is a Modern
    /// server, whatever the child speaks.
    async fn open_at(
        &self,
        lease: &Arc<ServerLease>,
        link: Arc<PeerLink>,
    ) -> Result<ServerConnection, UpstreamError> {
        let (config, context) = (self.instance.config(), self.instance.shared().context());
        let route = http::ReplicaRoute::new(lease, link, config, |limit| context.share_of(limit));
        let route = route.ok_or(ServerLeaseFault::Unreachable)?;
        let opening = http::HttpOpening {
            server: config.name.clone(),
            owner: self.instance.declared_owner(),
            client: Arc::new(http::ServerClient::through_replica(route)),
            era: EraChoice::Modern,
            patience: config.start_timeout / 3,
            limit: config.max_response,
            memory: self.memory(),
            caller_headers: CallerHeaders::of(config),
            inbox: Arc::clone(self.instance.inbox()),
        };
        HttpServer::open(opening).await.map(ServerConnection::Http)
    }

    /// Ends the connection after the end of its lease. A child is killed at once.
    pub(crate) async fn leave_place(&mut self, end: LeaseEnd) {
        let instance = self.instance;
        drop(self.child.take());
        instance.life().history().pid = None;
        match end {
            LeaseEnd::Lost => self.note_lost_lease(ServerLeaseFault::Lost),
            LeaseEnd::Moved => {
                tracing::info!(server = %instance.name(), "the other replica with its child takes no requests, or has it no longer");
            }
        }
        if let Some(connection) = self.end_run() {
            connection.close(None).await;
        }
        if let Some(lease) = instance.shared().lease() {
            lease.release().await;
        }
    }
}

/// Waits until the place of an instance's server is no longer valid; forever if there is none.
///
/// # Cancel safety
/// Safe.
pub(crate) async fn lease_ended(instance: &Instance) -> LeaseEnd {
    match instance.shared().lease() {
        Some(lease) => lease.ended().await,
        None => std::future::pending().await,
    }
}

/// Time between two attempts to connect to the replica with the child.
const PLACE_PAUSE: Duration = Duration::from_millis(250);
