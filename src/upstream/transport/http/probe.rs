//! Detects a server's era.

use std::time::Duration;

use http::StatusCode;

use crate::jsonrpc::{self, Id};
use crate::mcp::{Method, ProtocolVersion};
use crate::upstream::UpstreamError;
use crate::upstream::peer::{DiscoverVerdict, Peer, judge_discover, modern_params};
use crate::upstream::transport::request_ids::RequestIds;

use super::calls::reply::HttpReply;
use super::client::ServerClient;
use super::headers::modern_headers;

/// Sends `server/discover`. Returns `None` if the server is Legacy.
pub(super) async fn discover(
    client: &ServerClient,
    limit: usize,
) -> Result<Option<Peer>, UpstreamError> {
    let mut version = ProtocolVersion::LATEST_MODERN;
    let ids = RequestIds::default();
    for _ in 0..ProtocolVersion::ALL.len() {
        let id = Id::number(ids.draw());
        let params = modern_params(version, serde_json::json!({}));
        let body = jsonrpc::request(&id, Method::Discover.as_str(), &params);
        let headers = modern_headers(version, &Method::Discover);
        let response = client.post_repeatable(&headers, body).await?;
        let reception = HttpReply::read(response, limit).await;
        let answer = match reception {
            Ok(HttpReply::Refused { status, .. })
                if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) =>
            {
                return Err(UpstreamError::of_status(status));
            }
            Ok(reception) => reception.answer(&id).await,
            Err(fault) => Err(fault),
        };
        // Any failure means Legacy: it is no recognised Modern response.
        let Ok(answer) = answer else { return Ok(None) };
        match judge_discover(&answer) {
            DiscoverVerdict::Modern(peer) => return Ok(Some(*peer)),
            DiscoverVerdict::Retry(other) => version = other,
            DiscoverVerdict::Incompatible(fault) => return Err(fault),
            DiscoverVerdict::Legacy => return Ok(None),
        }
    }
    Ok(None)
}

/// Like [`discover`], for a server of unknown era, within `patience`.
pub(super) async fn probe(
    client: &ServerClient,
    limit: usize,
    patience: Duration,
) -> Result<Option<Peer>, UpstreamError> {
    // A server that does not respond to the probe may still respond to `initialize`.
    match tokio::time::timeout(patience, discover(client, limit)).await {
        Err(_) => Ok(None),
        Ok(Err(fault)) if is_fallback_reason(&fault) => {
            tracing::warn!(
                host = client.uri().host(),
                fault = fault.chain(),
                "`server/discover` was rejected, so `initialize` is tried: set `era = \"legacy\"` \
                 if it is a Legacy server"
            );
            Ok(None)
        }
        Ok(discovered) => discovered,
    }
}

/// Returns true if the probe itself may have offended the server, or a firewall in front of it.
fn is_fallback_reason(fault: &UpstreamError) -> bool {
    match fault {
        UpstreamError::Broken(_) => true,
        UpstreamError::Status { status, .. } => *status == StatusCode::FORBIDDEN,
        _ => false,
    }
}
