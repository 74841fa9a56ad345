//! Bounds of a server's lists and instances, and of its start and stop times.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::{Gateway, Upstream, until, until_async};

#[tokio::test]
async fn a_server_lists_so_many_tools_and_no_more() {
    for upstream in Upstream::both().await {
        for (way, lines) in upstream.ways() {
            let with = |most: usize| Gateway::with("s", format!("{lines}max_tools = {most}\n"));
            let gateway = with(3).start_at_once().await;
            let client = gateway.modern();
            gateway.wait_for(|status| status["servers"][0]["state"] != "connecting").await;
            assert_eq!(client.tool_names().await, [""; 0], "{way}: four tools, and three allowed");
            gateway.reload(with(4)).await;
            gateway.ready("s").await;
            assert_eq!(client.tool_names().await.len(), 4, "{way}");
        }
    }
}

/// Returns the number of instances besides the first.
async fn instances(gateway: &Gateway) -> u64 {
    gateway.server("s").await["instance_count"].as_u64().unwrap()
}

async fn wait_for_instances(gateway: &Gateway, so_many: u64) {
    until_async(async || instances(gateway).await == so_many).await;
}

#[tokio::test]
async fn so_many_clients_have_an_instance_of_their_own_and_no_more() {
    let upstream = Upstream::legacy().await;
    let lines = upstream.stdio() + "isolation = \"client\"\nmax_instances = 1\n";
    let gateway = Gateway::with("s", lines).start().await;
    let (one, other) = (gateway.legacy().await, gateway.legacy().await);
    assert_eq!(one.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(instances(&gateway).await, 1);
    let refused = other.call("s__echo", json!({})).await;
    assert!(refused.is_error() && refused.text().contains('1'), "{refused:?}");
    assert_eq!(instances(&gateway).await, 1);
    one.http("DELETE", "/mcp").of_session().send().await;
    wait_for_instances(&gateway, 0).await;
    assert_eq!(other.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn an_idle_instance_is_closed() {
    let upstream = Upstream::legacy().await;
    let lines = upstream.stdio() + "isolation = \"client\"\ninstance_idle = \"1s\"\n";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.legacy().await;
    for _ in 0..2 {
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        assert_eq!(instances(&gateway).await, 1);
        wait_for_instances(&gateway, 0).await;
    }
}

/// Returns a listener with a full queue: the kernel drops further attempts to connect.
async fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    let attempt = || tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address));
    while let Ok(connected) = attempt().await {
        queue.push(connected.unwrap());
        assert!(queue.len() < 1000, "the queue has no end");
    }
    (listener, queue)
}

/// Returns the time until the status shows the failure of a server with these settings.
async fn time_to_first_error(lines: String) -> Duration {
    let gateway = Gateway::with("s", lines).start_at_once().await;
    let began = Instant::now();
    gateway.wait_for(|status| !status["servers"][0]["last_error"].is_null()).await;
    began.elapsed()
}

#[tokio::test]
async fn connecting_to_a_server_that_does_not_answer_is_given_up() {
    let (full, _queue) = full_listener().await;
    // The kernel accepts these connections, and the TLS handshake gets no answer.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (scheme, listener) in [("http", &full), ("https", &silent)] {
        let url = format!("{scheme}://{}/mcp", listener.local_addr().unwrap());
        let lines = format!("url = {url:?}\nconnect_timeout = \"200ms\"\nstart_timeout = \"5m\"\n");
        let took = time_to_first_error(lines).await;
        // Longer than any delay, and much shorter than `start_timeout`.
        assert!(took < Duration::from_mins(1), "{scheme}: {took:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_finishes_its_handshake_is_given_up() {
    let lines = "command = \"sleep\"\nargs = [\"600\"]\nstop_timeout = \"100ms\"\n";
    let lines = format!("{lines}start_timeout = \"300ms\"\n");
    let took = time_to_first_error(lines).await;
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[tokio::test]
async fn a_child_that_ignores_every_request_to_exit_is_killed_after_its_stop_timeout() {
    let upstream = Upstream::legacy().await;
    let port = upstream.stdio_address().port();
    let deaf = format!(
        "trap '' TERM; exec 3<>/dev/tcp/127.0.0.1/{port} 4<&0; cat <&4 >&3 & cat <&3; \
         while true; do sleep 600; done"
    );
    let lines = format!("command = \"bash\"\nargs = [\"-c\", {deaf:?}]\n");
    let gateway = Gateway::with("s", lines + "stop_timeout = \"200ms\"\n").start().await;
    let pid = gateway.server("s").await["pid"].as_u64().unwrap();
    let began = Instant::now();
    gateway.stop().await;
    // By default it would be ten seconds: five until SIGTERM, and five until SIGKILL.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "the child is gone: {stat}");
}

/// Returns a child that exits at once and counts its starts in a file.
fn short_lived(folder: &tempfile::TempDir, lines: &str) -> (String, impl Fn() -> usize + use<>) {
    let file = folder.path().join("starts");
    let script = format!("echo >> '{}'; exit 3", file.display());
    let starts = move || std::fs::read_to_string(&file).map_or(0, |text| text.lines().count());
    (format!("command = \"bash\"\nargs = [\"-c\", {script:?}]\n{lines}"), starts)
}

#[tokio::test]
async fn a_child_is_restarted_so_often_and_no_more() {
    for most in [0, 2] {
        let folder = tempfile::tempdir().unwrap();
        let (lines, starts) = short_lived(&folder, &format!("max_restarts = {most}\n"));
        let gateway = Gateway::with("s", lines).start_at_once().await;
        gateway.wait_for(|status| status["servers"][0]["state"] == "failed").await;
        assert_eq!(starts(), most + 1);
    }
}

#[tokio::test]
async fn a_failed_child_is_restarted_when_its_window_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "max_restarts = 0\nrestart_window = \"300ms\"\n";
    let (lines, starts) = short_lived(&folder, lines);
    let began = Instant::now();
    let _gateway = Gateway::with("s", lines).start_at_once().await;
    until(|| starts() >= 3).await;
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
}
