use super::*;

#[test]
fn over_a_limit_says_which_and_how_long() {
    let failure =
        Failure::OverLimit { limit: "server:git".into(), retry_after: Duration::from_millis(1500) };
    let error: Value = serde_json::from_slice(&failure.to_error()).unwrap();
    assert_eq!(error["data"]["retryAfterMs"], 1500);
    assert_eq!(error["data"]["limit"], "server:git");
    assert_eq!(failure.wire().status, 429);
}

#[test]
fn only_a_servers_failure_becomes_a_tool_result() {
    let server = ServerName::new("git").unwrap();
    let down = Failure::server_down(server, ServerFault::Exited);
    assert!(down.to_tool_result().is_some());
    assert!(Failure::Draining.to_tool_result().is_none());
}
