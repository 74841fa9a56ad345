//! The details of one server, as lines of any length.

use jiff::Timestamp;

use super::figures::{show_count, show_latency, show_rate};
use super::sample::{RequestRates, ServerSample};
use crate::cli::printable;
use crate::cli::status::describe_age;

/// Describes a server.
pub(super) fn describe_server(
    server: &ServerSample,
    rates: &RequestRates,
    now: Timestamp,
) -> Vec<String> {
    let age = |at: Timestamp| describe_age(now.duration_since(at));
    let tokens = server.tool_tokens.map_or_else(|| "not counted".to_owned(), show_count);
    let mut lines = vec![
        format!("server    {}", printable(&server.name)),
        format!("state     {} for {}", printable(&server.state), age(server.since)),
        format!("era       {}", server.era.as_deref().map_or_else(|| "-".to_owned(), printable)),
        format!(
            "calls     {} since the start, {}/s; p50 {}, p95 {}",
            rates.total,
            show_rate(rates.calls),
            show_latency(rates.median),
            show_latency(rates.slow)
        ),
        format!("errors    {} since the start, {}/s", rates.failed_total, show_rate(rates.failed)),
        format!("in flight {}, {} queued", server.in_flight, server.queued),
        format!("instances {} besides the first", server.instance_count),
        format!("restarts  {}", server.restarts),
        format!("tokens    {tokens}"),
    ];
    if let Some(breaker) = &server.breaker {
        lines.push(format!("breaker   {}", printable(&breaker.state)));
    }
    if let Some(error) = &server.last_error {
        lines.push(format!("error     {} ago: {}", age(error.at), printable(&error.message)));
    }
    if let Some(at) = server.next_retry_at {
        lines.push(format!("next try  in {}", describe_age(at.duration_since(now))));
    }
    if let Some(cure) = &server.cure {
        lines.push(format!("cure      {}", printable(cure)));
    }
    lines
}
