//! `trunkline status`: the state of the running gateway, at a glance.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::running::{GatewayOption, GatewayRequest, RunningGatewayError, report_unanswered};
use super::{BareFile, FAILURE_EXIT, json_text, printable, write_to_stdout};

/// Show the servers of the running gateway, and everything that needs an operator
///
/// Exit codes: 0 if nothing needs an operator, 1 if something does, 3 if no gateway answers.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    #[command(flatten)]
    file: BareFile,
    /// Print the whole document
    #[arg(long)]
    json: bool,
}

/// The part of the status that is printed.
#[derive(Debug, Deserialize)]
struct StatusText {
    version: String,
    now: Timestamp,
    started_at: Timestamp,
    state: String,
    configuration: Option<ConfigurationText>,
    catalog: CatalogText,
    sessions: usize,
    streams: usize,
    findings: Vec<FindingText>,
    servers: Vec<ServerLine>,
    cluster: Option<ClusterText>,
}

#[derive(Debug, Deserialize)]
struct ConfigurationText {
    path: String,
}

#[derive(Debug, Deserialize)]
struct CatalogText {
    tools: usize,
}

#[derive(Debug, Deserialize)]
struct ServerLine {
    name: String,
    state: String,
    era: Option<String>,
    tools: usize,
    in_flight: usize,
    restarts: u32,
    since: Timestamp,
}

#[derive(Debug, Deserialize)]
struct ClusterText {
    id: String,
    address: String,
    replicas: Vec<ReplicaLine>,
    #[serde(default)]
    degraded: bool,
    #[serde(default)]
    recorded_sessions: usize,
    store_error: Option<String>,
    store_latency: Option<LatencyText>,
    #[serde(default)]
    skewed: Vec<SkewedLine>,
}

#[derive(Debug, Deserialize)]
struct LatencyText {
    #[serde(rename = "median_micros")]
    median: u64,
    #[serde(rename = "p99_micros")]
    p99: u64,
    #[serde(rename = "slowest_micros")]
    slowest: u64,
}

#[derive(Debug, Deserialize)]
struct ReplicaLine {
    id: String,
    address: String,
    lease_age: i64,
    same_configuration: bool,
    sessions: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct SkewedLine {
    id: String,
    address: String,
    ahead: i64,
}

#[derive(Debug, Deserialize)]
struct FindingText {
    level: String,
    subject: String,
    text: String,
    cure: String,
}

pub(super) fn show_status(args: StatusArgs) -> ExitCode {
    let gateway = args.gateway.or_file(args.file);
    let document = match gateway.request(&GatewayRequest::get("/status")) {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    let status = match StatusText::deserialize(&document) {
        Ok(status) => status,
        Err(error) => return report_unanswered(&RunningGatewayError::OtherVersion(error)),
    };
    let text = if args.json { json_text(&document) } else { describe_status(&status) };
    let written = write_to_stdout(&text);
    if status.findings.is_empty() { written } else { FAILURE_EXIT.into_code() }
}

fn describe_status(status: &StatusText) -> String {
    let path = status.configuration.as_ref().map_or("", |it| it.path.as_str());
    let age = describe_age(status.now.duration_since(status.started_at));
    let ready = status.servers.iter().filter(|server| server.state == "ready").count();
    let (all, tools) = (status.servers.len(), status.catalog.tools);
    let mut text = format!(
        "Trunkline {}: {}, running for {age} with {}\n\
         {ready} of {all} servers ready, {tools} tools, {} sessions, {} streams\n",
        printable(&status.version),
        printable(&status.state),
        printable(path),
        status.sessions,
        status.streams
    );
    if !status.servers.is_empty() {
        describe_servers(status, &mut text);
    }
    if let Some(cluster) = &status.cluster {
        describe_replicas(cluster, &mut text);
    }
    for finding in &status.findings {
        let line = format!("{}: {}: {}", finding.level, finding.subject, finding.text);
        let _ = write!(text, "\n{}", wrap_words(&printable(&line), "  "));
        let cure = format!("  = cure: {}", finding.cure);
        text.push_str(&wrap_words(&printable(&cure), "    "));
    }
    text
}

fn describe_servers(status: &StatusText, text: &mut String) {
    let longest = status.servers.iter().map(|server| server.name.chars().count()).max();
    let width = longest.unwrap_or_default().clamp("SERVER".len(), MAX_NAME_CHARS);
    let _ = writeln!(
        text,
        "\n{:width$}  {:10}  {:6}  {:>5}  {:>5}  {:>8}  FOR",
        "SERVER", "STATE", "ERA", "TOOLS", "CALLS", "RESTARTS"
    );
    for server in &status.servers {
        let _ = writeln!(
            text,
            "{:width$}  {:10}  {:6}  {:>5}  {:>5}  {:>8}  {}",
            clip_name(&printable(&server.name), width),
            printable(&server.state),
            server.era.as_deref().map_or_else(|| "-".to_owned(), printable),
            server.tools,
            server.in_flight,
            server.restarts,
            describe_age(status.now.duration_since(server.since))
        );
    }
}

/// Describes this replica, the others and their store.
fn describe_replicas(cluster: &ClusterText, text: &mut String) {
    let skewed = cluster.skewed.iter().map(|replica| &replica.address);
    let addresses = cluster.replicas.iter().map(|replica| &replica.address).chain(skewed);
    let longest = addresses.chain([&cluster.address]).map(|it| it.chars().count()).max();
    let width = longest.unwrap_or_default().clamp("ADDRESS".len(), MAX_ADDRESS_CHARS);
    text.push('\n');
    let mut line = |[id, address, lease, sessions, configuration]: [&str; 5]| {
        let address = clip_name(&printable(address), width);
        let id = printable(id);
        let _ =
            writeln!(text, "{id:16}  {address:width$}  {lease:>6}  {sessions:>8}  {configuration}");
    };
    line(["REPLICA", "ADDRESS", "LEASE", "SESSIONS", "CONFIGURATION"]);
    let sessions = cluster.recorded_sessions.to_string();
    line([&cluster.id, &cluster.address, "", &sessions, "this replica"]);
    for replica in &cluster.replicas {
        let lease = describe_age(SignedDuration::from_secs(replica.lease_age));
        let configuration = if replica.same_configuration { "the same" } else { "another" };
        let sessions = replica.sessions.map_or_else(|| "-".to_owned(), |it| it.to_string());
        line([&replica.id, &replica.address, &lease, &sessions, configuration]);
    }
    for replica in &cluster.skewed {
        let clock = format!("clock {:+} s", replica.ahead);
        line([&replica.id, &replica.address, "", "-", &clock]);
    }
    let _ = writeln!(text, "Store: {}", describe_store(cluster));
}

/// Describes the state and the latency of the store.
fn describe_store(cluster: &ClusterText) -> String {
    let state = match cluster.store_error {
        _ if cluster.degraded => "cannot be used",
        Some(_) => "cannot be used for leases",
        None => "in use",
    };
    let Some(latency) = &cluster.store_latency else {
        return format!("{state}, no answer in the last minute");
    };
    let [median, p99, slowest] = [latency.median, latency.p99, latency.slowest].map(format_millis);
    format!("{state}, median {median} ms, p99 {p99} ms, slowest {slowest} ms")
}

/// Formats microseconds as milliseconds with one decimal.
fn format_millis(micros: u64) -> String {
    let tenths = micros.div_ceil(100);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Cuts a name that is too long for its column.
fn clip_name(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let start: String = name.chars().take(width.saturating_sub(1)).collect();
    format!("{start}…")
}

/// Describes a time that has passed, in its largest unit: `3 h`.
pub(super) fn describe_age(age: SignedDuration) -> String {
    let seconds = age.as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Breaks a text into lines of at most [`MAX_LINE_CHARS`]; those after the first are indented. A
/// longer word, such as a link, has a line of its own.
fn wrap_words(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line: String = text.chars().take_while(|c| *c == ' ').collect();
    let mut is_empty = true;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let is_full = line.chars().count() + 1 + word.chars().count() > MAX_LINE_CHARS;
        if is_full && !is_empty {
            let _ = writeln!(lines, "{line}");
            indent.clone_into(&mut line);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(lines, "{line}");
    lines
}

/// Characters of a server's name; longer ones are cut.
const MAX_NAME_CHARS: usize = 28;
/// Characters of a replica's address; longer ones are cut.
const MAX_ADDRESS_CHARS: usize = 26;
/// Characters of a line on the smallest usual terminal.
const MAX_LINE_CHARS: usize = 80;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_line_fits_80_columns_except_a_longer_word() {
        let server = |name: &str| {
            json!({
                "name": name, "state": "connecting", "era": "modern", "tools": 12345, "in_flight": 99999,
                "restarts": 4_294_967_295_u32, "since": "2026-11-28T00:00:00Z", "more": true
            })
        };
        let link = "https://login.example.com/".to_owned() + &"x".repeat(100);
        let text = "it answered with a long sentence, ".repeat(5);
        let document = json!({
            "version": "0.1.0", "now": "2026-11-28T04:00:00Z", "started_at": "2026-11-28T01:00:00Z",
            "state": "ready", "configuration": { "path": "/etc/trunkline/gateway.toml" },
            "catalog": { "tools": 3 }, "sessions": 1, "streams": 2,
            "findings": [
                { "level": "error", "subject": "servers.a", "text": text, "cure": link },
                { "level": "warning", "subject": "x", "text": "\u{1b}[31mred", "cure": "none" }
            ],
            "servers": [server("a"), server(&"long-name-".repeat(6))],
            "cluster": {
                "id": "0123456789abcdef", "address": "10.0.0.7:7070", "degraded": true,
                "replicas": [{
                    "id": "fedcba9876543210", "address": "gateway-1.".repeat(9), "lease_age": 2,
                    "same_configuration": false, "sessions": 12345
                }],
                "recorded_sessions": 7, "store_error": null,
                "store_latency": {
                    "requests": 1024, "median_micros": 401, "p99_micros": 1200, "slowest_micros": 9_999_999
                },
                "skewed": [{ "id": "0f", "address": "10.0.0.8:7070", "ahead": 17 }]
            }
        });
        let text = describe_status(&StatusText::deserialize(&document).unwrap());
        for line in text.lines() {
            let is_link = line.trim().starts_with("https://");
            assert!(line.chars().count() <= MAX_LINE_CHARS || is_link, "{line}\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(
            text.contains("ready, running for 3 h")
                && text.contains("  = cure: none")
                && text.contains("                7  this replica\n")
                && text.contains("     2 s     12345  another\n")
                && text.contains("  clock +17 s\n")
                && text.contains(
                    "Store: cannot be used, median 0.5 ms, p99 1.2 ms, slowest 10000.0 ms\n"
                ),
            "{text}"
        );
    }
}
