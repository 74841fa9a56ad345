//! Ports, servers and the providers of tokens.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::DATE;
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;
use tokio::time::timeout;

use super::NetworkUse;
use super::machine::CLOCK_CURE;
use super::providers::{ServerAnswers, check_server_providers};
use super::report::{CheckArea, DoctorReport};
use super::server_addresses::{RefusalMeaning, ServerAddress, addresses_of};
use crate::admin::wall_time;
use crate::cluster::RedisStore;
use crate::config::{Config, HttpConfig, StoreUrl, quote_segment};
use crate::http_client::HttpClient;
use crate::identity::Identity;
use crate::listener::{ListenError, Listener};
use crate::text::{clip, error_chain};
use crate::upstream::try_issuer_keys;

/// Makes the checks that need sockets.
pub(super) fn check(config: &Config, network: NetworkUse, report: &mut DoctorReport) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report.skip(CheckArea::Ports, &error.to_string()),
    };
    runtime.block_on(async {
        check_port("gateway.listen", config.gateway.listen, report).await;
        if let Some(admin) = config.admin.listen {
            check_port("admin.listen", admin, report).await;
        }
        if let Some(cluster) = &config.cluster {
            check_port("cluster.listen", cluster.listen, report).await;
        }
        if network == NetworkUse::Allowed {
            if let Some(cluster) = &config.cluster {
                check_store(&cluster.store, report).await;
            }
            let answers = check_servers(config, report).await;
            check_server_providers(config, &answers, report).await;
            check_issuers(config, report).await;
        } else {
            report.skip(CheckArea::Servers, "no requests are sent (--offline)");
        }
    });
}

/// Checks that an address is free, or that a gateway uses it.
async fn check_port(setting: &str, address: SocketAddr, report: &mut DoctorReport) {
    let area = CheckArea::Ports;
    match Listener::bind(address).await {
        Ok(_) => report.pass(area, format!("{setting}: {address} is free")),
        Err(ListenError::InUse { holder: Some(holder), .. }) if holder.is_this_program() => {
            report.pass(area, format!("{setting}: {address} is used by {holder}"));
        }
        Err(error) => {
            let cure = format!("free the address, or change {setting}");
            report.find_at(area, setting, error_chain(&error), &cure);
        }
    }
}

/// Sends a request without effect to each address of a server, some at a time. Returns the headers
/// of the answers, by server.
async fn check_servers(config: &Config, report: &mut DoctorReport) -> ServerAnswers {
    let addresses = config.servers.iter().flat_map(addresses_of);
    let answers = addresses.map(|address| async move {
        let asked = timeout(REQUEST_TIME, ask(&address.http)).await;
        (address, asked.unwrap_or_else(|_| Err(no_answer())))
    });
    let mut answers = stream::iter(answers).buffered(REQUESTS_AT_ONCE);
    let (mut skew, mut headers) = (None, ServerAnswers::new());
    while let Some((address, answer)) = answers.next().await {
        report_server(&address, answer.as_ref(), report);
        let Ok(answer) = answer else { continue };
        skew = skew.or(answer.skew);
        headers.entry(address.server.name.clone()).or_insert(answer.headers);
    }
    if let Some(seconds) = skew.filter(|seconds| *seconds > MAX_SKEW_SECONDS) {
        let text = format!("the clocks of this machine and of a server differ by {seconds} s");
        report.find(CheckArea::Clock, text, CLOCK_CURE);
    }
    headers
}

/// The answer of a server.
struct ServerAnswer {
    status: StatusCode,
    headers: HeaderMap,
    /// Difference of the clocks, in seconds.
    skew: Option<i64>,
}

fn report_server(
    address: &ServerAddress,
    answer: Result<&ServerAnswer, &String>,
    report: &mut DoctorReport,
) {
    let (area, server) = (CheckArea::Servers, &address.server);
    let setting = format!("servers.{}.{}", quote_segment(server.name.as_str()), address.key);
    match answer {
        Ok(ServerAnswer { status, .. })
            if is_refusal(*status) && address.refusal == RefusalMeaning::WrongSettings =>
        {
            let text = format!("the server answers {status}");
            report.find_at(area, &setting, text, "correct `headers`, or add `oauth`");
        }
        Ok(ServerAnswer { status, .. }) => {
            report.pass(area, format!("{}: it answers ({status})", server.name));
        }
        Err(fault) => {
            let fault = server.secrets.hide_in(fault).into_owned();
            let cure = "start the server, or correct the URL, the CA or the proxy";
            report.find_at(area, &setting, fault, cure);
        }
    }
}

fn is_refusal(status: StatusCode) -> bool {
    status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN
}

/// Sends `HEAD`, which has no effect.
async fn ask(http: &HttpConfig) -> Result<ServerAnswer, String> {
    let client = HttpClient::plain(http, REQUEST_TIME).map_err(|error| error_chain(&error))?;
    let answered = client.send(&Method::HEAD, &HeaderMap::new(), Bytes::new()).await;
    let response = answered.map_err(|error| clip(&error_chain(&error), MAX_FAULT).to_owned())?;
    let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
    let skew = date.and_then(|date| clock_skew(date, wall_time()));
    Ok(ServerAnswer { status: response.status(), skew, headers: response.headers().clone() })
}

/// Returns the difference between a `Date` header and this clock, in seconds.
fn clock_skew(date: &str, now: Timestamp) -> Option<i64> {
    let there = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    Some(now.duration_since(there).as_secs().abs())
}

/// Checks that the store of the replicas can be written and read.
async fn check_store(url: &StoreUrl, report: &mut DoctorReport) {
    let (area, setting, place) = (CheckArea::Servers, "cluster.store", url.place());
    let probed = match RedisStore::new(url) {
        Ok(store) => timeout(REQUEST_TIME, store.probe()).await,
        Err(error) => Ok(Err(error)),
    };
    let fault = match probed {
        Ok(Ok(())) => return report.pass(area, format!("{setting}: {place} can be used")),
        Ok(Err(error)) => error_chain(&error),
        Err(_) => no_answer(),
    };
    let text = clip(&format!("{place}: {fault}"), MAX_FAULT).to_owned();
    let cure = "correct `store`, its user and its password, or the permissions (ACL) of the user";
    report.find_at(area, setting, text, cure);
}

/// Fetches the keys of each issuer.
async fn check_issuers(config: &Config, report: &mut DoctorReport) {
    let area = CheckArea::Providers;
    let identity = Identity::new(config, &Identity::default());
    for issuer in identity.issuers() {
        let name = issuer.config.name.as_str();
        match timeout(REQUEST_TIME, try_issuer_keys(&issuer.keys.source)).await {
            Ok(Ok(keys)) => report.pass(area, format!("issuers.{name}: {keys} key(s)")),
            Ok(Err(fault)) => find_issuer(name, fault, report),
            Err(_) => find_issuer(name, no_answer(), report),
        }
    }
}

fn find_issuer(name: &str, fault: String, report: &mut DoctorReport) {
    let setting = format!("issuers.{}.issuer", quote_segment(name));
    let cure = "correct `issuer`, `jwks_url` or `ca`: tokens are refused without keys";
    report.find_at(CheckArea::Providers, &setting, fault, cure);
}

pub(super) fn no_answer() -> String {
    format!("no answer within {} s", REQUEST_TIME.as_secs())
}

/// Time limit of a request.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Limit of the requests at once.
const REQUESTS_AT_ONCE: usize = 8;
/// Clocks that differ by more make tokens and certificates fail.
const MAX_SKEW_SECONDS: i64 = 60;
/// Limit of the bytes of a fault.
pub(super) const MAX_FAULT: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_are_compared_by_the_date_header() {
        let now: Timestamp = "2026-11-28T12:00:30Z".parse().unwrap();
        for (date, skew) in [
            ("Sat, 28 Nov 2026 12:00:30 GMT", Some(0)),
            ("Sat, 28 Nov 2026 12:02:00 GMT", Some(90)),
            ("Sat, 28 Nov 2026 11:00:30 GMT", Some(3600)),
            ("yesterday", None),
        ] {
            assert_eq!(clock_skew(date, now), skew, "{date}");
        }
    }
}
