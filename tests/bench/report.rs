//! Reports: errors of tools, circumstances, secrets, and the width of the tables.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::{Value, json};

use super::{FAILURE, FEW, Server, bench, json_of, prints};

/// Starts a Modern server that answers every so many calls with `isError`; returns its URL.
fn failing_server(every: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let calls = Arc::clone(&calls);
            std::thread::spawn(move || answer_all(socket.unwrap(), &calls, every));
        }
    });
    url
}

fn answer_all(mut socket: TcpStream, calls: &AtomicUsize, every: usize) {
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(read) if read > 0 => {}
                _ => return,
            }
            if line == "\r\n" {
                break;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let request: Value = serde_json::from_slice(&body).unwrap();
        let result = match request["method"].as_str().unwrap() {
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {},
            }),
            "tools/list" => {
                let hints = json!({ "readOnlyHint": true });
                let schema = json!({ "type": "object" });
                json!({ "tools": [{ "name": "look", "inputSchema": schema, "annotations": hints }] })
            }
            _ if calls.fetch_add(1, Relaxed).is_multiple_of(every) => json!({
                "content": [{ "type": "text", "text": "quota \u{1b}[31mexhausted" }], "isError": true,
            }),
            _ => json!({ "content": [] }),
        };
        let body = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
        let _ = write!(socket, "{head}: {}\r\n\r\n{body}", body.len());
    }
}

/// Returns a text with one space in place of line breaks and several spaces.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const BANNER: &str = "% of the answers are errors: the figures below are not a measurement \
                      (first: \"quota [31mexhausted\")";

#[test]
fn a_server_that_only_fails_has_no_speed() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let url = failing_server(1);
    let args = [&[url.as_str(), "--html", page.to_str().unwrap()][..], &FEW].concat();
    let done = bench(&args);
    assert_eq!(done.status.code(), Some(FAILURE), "{done:?}");
    let told = on_one_line(std::str::from_utf8(&done.stdout).unwrap());
    assert!(told.starts_with(&format!("! 100 {BANNER}")), "{told}");
    assert!(told.contains(" ok 0 0.0/s errors 60 answers with isError, first:"), "{told}");
    assert!(!told.contains('\u{1b}'), "{told}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("<p class=\"banner\">100 % of the answers are errors"), "{page}");
    let told: Value =
        serde_json::from_slice(&bench(&[&args[..], &["--json"]].concat()).stdout).unwrap();
    let target = &told["targets"][0];
    assert_eq!(target["errors"], json!({ "share": 1.0, "first": "quota [31mexhausted" }));
    let round = &target["rounds"][0];
    let counts = [&round["answered"], &round["tool_errors"], &round["failed"]];
    assert_eq!(counts, [&json!(0), &json!(60), &json!(0)], "{round}");
    assert_eq!((&round["per_second"], &round["latency_us"]), (&json!(0.0), &Value::Null));
    assert_eq!(round["over_time"]["slices"][0]["answered"], 0, "{round}");
}

#[test]
fn few_errors_are_counted_and_more_than_one_in_twenty_spoil_the_figures() {
    let few = failing_server(30);
    let told = on_one_line(&prints(&[&[few.as_str()][..], &FEW].concat()));
    assert!(!told.contains('!') && told.contains(" ok 58 "), "{told}");
    assert!(told.contains(" errors 2 answers with isError, first: \"quota"), "{told}");
    let (server, many) = (Server::load(&[]), failing_server(10));
    let compare = ["--compare", &server.url, &many, "--rounds", "1"];
    let done = bench(&[&compare[..], &FEW].concat());
    assert_eq!(done.status.code(), Some(FAILURE), "{done:?}");
    let told = on_one_line(std::str::from_utf8(&done.stdout).unwrap());
    let banner = BANNER.replace("answers", "answers of B");
    assert!(told.starts_with(&format!("! 10 {banner}")), "{told}");
    assert!(told.contains("ok errors failed A 60 0 0 B 54 6 0"), "{told}");
    assert!(told.contains("B: answers with isError 6, first: \"quota"), "{told}");
    // Below the banner's share, too.
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let few = ["--compare", &server.url, &few, "--rounds", "1", "--html", page.to_str().unwrap()];
    let told = on_one_line(&prints(&[&few[..], &FEW].concat()));
    assert!(!told.contains('!') && told.contains("B: answers with isError 2, first:"), "{told}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("B answers with isError") && page.contains("quota"), "{page}");
}

#[test]
fn a_report_states_date_machine_version_command_and_seed_and_shows_no_secret() {
    let server = Server::load(&[]);
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let page = page.to_str().unwrap();
    let url = format!("{}?api_key=hunter2", server.url);
    let own = [url.as_str(), "-H", "Authorization: Bearer hunter2", "--seed", "7", "--html", page];
    let args = [&own[..], &FEW].concat();
    let command = format!(
        "trunkline bench '{}?api_key=***' -H 'Authorization: ***' --seed 7 --html {page} \
         --requests 60 --warmup 0 --connections 3",
        server.url
    );
    let told = prints(&args);
    let line = on_one_line(&told);
    assert!(line.contains(&command) && line.contains("of warm-up, seed 7 20"), "{told}");
    let version = format!("Z, trunkline {}, ", env!("CARGO_PKG_VERSION"));
    assert!(line.contains(&version), "{told}");
    let json = json_of(&args);
    assert_eq!(json["setting"]["command"], format!("{command} --json"));
    assert_eq!((&json["load"]["seed"], &json["warnings"]), (&json!(7), &json!([])));
    let at: jiff::Timestamp = json["setting"]["at"].as_str().unwrap().parse().unwrap();
    assert!(at.duration_until(jiff::Timestamp::now()) < jiff::SignedDuration::from_mins(5));
    let machine = &json["setting"]["machine"];
    assert!(machine["cores"].as_u64() >= Some(1), "{machine}");
    assert!(machine["system"].as_str().unwrap().starts_with(std::env::consts::OS), "{machine}");
    if cfg!(target_os = "linux") {
        assert!(machine["memory_bytes"].as_u64() > Some(1 << 20), "{machine}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("-H &#39;Authorization: ***&#39;"), "{page}");
    for report in [told, json.to_string(), page] {
        assert!(!report.contains("hunter2"), "{report}");
    }
}

#[test]
fn no_line_of_a_report_is_over_80_columns() {
    let server = Server::load(&[]);
    let proxy = Server::start(&["proxy", &server.url, "--until-eof"]);
    let failing = failing_server(1);
    let pids = [server.pid(), proxy.pid()];
    let mut compare = vec!["--compare", &server.url, &proxy.url, "--rounds", "2"];
    if cfg!(target_os = "linux") {
        compare.extend(["--pid", &pids[0], "--pid", &pids[1]]);
    }
    for args in [
        &[server.url.as_str(), "--scenario", "session", "--rate", "300/s"][..],
        &[&server.url, "--mix", "call=4,list=1,session=1", "--seed", "18446744073709551615"],
        &[&failing],
        &compare,
        &["--self", "--rounds", "1"],
    ] {
        let done = bench(&[args, &FEW].concat());
        let told = String::from_utf8(done.stdout).unwrap();
        assert!(told.contains("p99"), "{told}");
        for line in told.lines() {
            assert!(line.chars().count() <= 80, "{line:?} in\n{told}");
        }
    }
}
