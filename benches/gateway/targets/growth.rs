//! Growth of a call's cost with the number of tools, servers or rules.
//!
//! Counted in instructions, which show differences of a few per cent. They do not show slower
//! memory accesses.

use std::fmt::Write as _;
use std::time::Instant;

use trunkline::mcp::Era;
use url::Url;

use super::Row;
use crate::instructions::Count;
use crate::plan::{BASICS, Way, configured, ready};
use crate::process::Process;

pub async fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (what, name, few, many) in [
        ("tools", "tools", 10, 10_000),
        ("servers", "servers", 1, 500),
        ("rules (patterns of a profile, rates of tools)", "rules", 1, 1_000),
    ] {
        let mut counts = [0.0; 2];
        for (count, size) in counts.iter_mut().zip([few, many]) {
            *count = per_call(name, size).await;
        }
        let ratio = counts[1] / counts[0];
        rows.push(Row::new(
            format!("instructions per call, {few} → {many} {what}"),
            "≤ 1.1 ×",
            format!("{:.0} → {:.0}: {ratio:.3} ×", counts[0], counts[1]),
            Some(ratio <= 1.1),
        ));
    }
    rows
}

async fn per_call(name: &str, size: usize) -> f64 {
    let tools = if name == "servers" && size > 1 { 1 } else { size.max(2) };
    let mock = Process::mock(&["--tools", &tools.to_string()]);
    let text = match name {
        "tools" => one_server(&mock.url),
        "servers" => many_servers(&mock.url, size),
        _ => rules(&mock.url, size),
    };
    let folder = tempfile::tempdir().unwrap();
    let count = Count::new(&format!("growth-{name}-{size}"));
    let begun = Instant::now();
    let gateway = configured(folder.path(), "growth.toml", &text, &count.wrapper());
    ready(&gateway, TOOL).await;
    if name == "servers" && size > 1 {
        ready(&gateway, &format!("s{size}__search")).await;
    }
    eprintln!("{size} {name}: ready after {} s", begun.elapsed().as_secs());
    count.per_call(&gateway, &Way::new("", gateway.url.clone(), Era::Modern, TOOL)).await as f64
}

fn one_server(mock: &Url) -> String {
    many_servers(mock, 1)
}

fn many_servers(mock: &Url, count: usize) -> String {
    let mut text = BASICS.to_owned();
    for number in 1..=count {
        let server = if number == 1 { "server".to_owned() } else { format!("s{number}") };
        write!(
            text,
            "[servers.{server}]\nurl = \"{mock}\"\nera = \"modern\"\nrate = \"1000000/s\"\n"
        )
        .unwrap();
    }
    text
}

/// A rate for each tool, and a profile that lists each.
fn rules(mock: &Url, count: usize) -> String {
    let mut text = one_server(mock);
    let tool = |number: usize| match number {
        1 => "search".to_owned(),
        _ => format!("search_{number}"),
    };
    for number in 1..=count {
        write!(text, "[servers.server.tools.{}]\nrate = \"1000000/s\"\n", tool(number)).unwrap();
    }
    let patterns: Vec<_> =
        (1..=count).map(|number| format!("\"server__{}\"", tool(number))).collect();
    write!(text, "[profiles.default]\ntools = [{}]\n", patterns.join(", ")).unwrap();
    text
}

const TOOL: &str = "server__search";
