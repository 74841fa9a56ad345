//! Servers whose child runs here, for the other replicas.
//!
//! Each of them is a gateway of its own, with the running server alone ([`Snapshots::of_one_server`]): the
//! replica that sends a request has authenticated the client, and has checked and counted the call.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use parking_lot::Mutex;

use crate::call::{Drain, PeerAddress, ServerName, drain};
use crate::cluster::{Cluster, EnvelopeFault, RefusedEnvelope};
use crate::pipeline::Gateway;
use crate::snapshot::Snapshots;
use crate::telemetry::audit::AuditTrail;
use crate::telemetry::metrics::Metrics;
use crate::upstream::Server;

use super::placement::misdirected;
use super::receive::{of_known_peer, take_envelope};
use crate::downstream::access::caller::{Unauthenticated, refusal};
use crate::downstream::{Authenticated, Body, McpService};

/// The services of servers, by their names.
#[derive(Default)]
pub(crate) struct ServerServices(Arc<Mutex<HashMap<ServerName, ServerService>>>);

/// The service of one server.
struct ServerService {
    server: Arc<Server>,
    mcp: Arc<McpService>,
}

impl ServerServices {
    /// Returns the service of a server, and creates it when it is first needed. It ends with the
    /// server, and its streams also with the drain of this replica. `None` if the server cannot be
    /// described.
    fn find(
        &self,
        server: &Arc<Server>,
        of: &Snapshots,
        draining: &Drain,
    ) -> Option<Arc<McpService>> {
        let mut services = self.0.lock();
        if let Some(known) = services.get(server.name())
            && Arc::ptr_eq(&known.server, server)
        {
            return Some(Arc::clone(&known.mcp));
        }
        let snapshot = of.load();
        let config = &snapshot.server(server.name())?.config;
        let config = snapshot.config.of_one_server(config)?;
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
        let snapshots = Snapshots::of_one_server(server, config, &metrics);
        let audit = AuditTrail::new(metrics.audit_counts().clone());
        let gateway = Arc::new(Gateway::new(Arc::clone(&snapshots), metrics, audit));
        gateway.stand_for_server();
        let (switch, ending) = drain();
        let mcp = McpService::new(gateway, ending);
        let service = ServerService { server: Arc::clone(server), mcp: Arc::clone(&mcp) };
        services.insert(server.name().clone(), service);
        let (all, server) = (Arc::downgrade(&self.0), Arc::clone(server));
        let (mut changes, draining) = (of.changes(), draining.clone());
        tokio::spawn(async move {
            let end_streams = || switch.start(Duration::ZERO);
            let follow = async {
                while changes.changed().await.is_ok() {
                    snapshots.catch_up().await;
                }
            };
            let follow_until_drain = async {
                tokio::select! {
                    () = follow => {}
                    () = draining.started() => {}
                }
                end_streams();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = follow_until_drain => {}
                () = server.released() => {}
            }
            end_streams();
            let Some(all) = all.upgrade() else { return };
            if let Entry::Occupied(own) = all.lock().entry(server.name().clone())
                && Arc::ptr_eq(&own.get().server, &server)
            {
                own.remove();
            }
        });
        Some(mcp)
    }
}

impl McpService {
    /// Answers a request of another replica to a server whose child runs here. A server that is not
    /// here, or that has other settings, is looked for elsewhere.
    pub(super) async fn answer_replica<B>(
        &self,
        cluster: &Cluster,
        server: ServerName,
        request: Request<B>,
        replica: PeerAddress,
    ) -> Result<Response<Body>, RefusedEnvelope>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let (mut head, body) = request.into_parts();
        let envelope = take_envelope(cluster, &mut head)?;
        let snapshots = &self.gateway.snapshots;
        let server = snapshots.load().server(&server).map(|member| Arc::clone(&member.server));
        let Some(server) = server else { return Ok(misdirected()) };
        let has_settings = |server: &Server| {
            server.lease().is_some_and(|lease| envelope.is_for_settings(lease.digest()))
        };
        if !has_settings(&server) || !server.is_ready_for_replicas().await {
            return Ok(misdirected());
        }
        let service = self.services.find(&server, snapshots, &self.drain);
        let Some(service) = service else { return Ok(misdirected()) };
        service.gateway.snapshots.catch_up().await;
        let mut uri = head.uri.into_parts();
        uri.path_and_query = Some(PathAndQuery::from_static("/mcp"));
        head.uri = Uri::from_parts(uri).unwrap_or_default();
        let authenticated = service.authenticate(Request::from_parts(head, body), replica);
        let Authenticated { mut head, body, from, old } = match authenticated {
            Ok(authenticated) => authenticated,
            Err(Unauthenticated::Refused(response)) => return Ok(of_known_peer(*response)),
            Err(Unauthenticated::Waiting(_)) => return Ok(misdirected()),
        };
        let body = match service.collect_body(&mut head, body, &from).await {
            Ok(body) => body,
            Err(failure) => return Ok(of_known_peer(refusal(&failure))),
        };
        let checked = cluster.check_body(&envelope, &body);
        checked.map_err(|fault: EnvelopeFault| RefusedEnvelope { fault, client: None })?;
        Ok(of_known_peer(service.serve(Authenticated { head, body, from, old }).await))
    }
}
