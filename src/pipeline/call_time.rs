//! The longest time of a call, for a replica that forwards it to another one.

use std::time::Duration;

use crate::config::{Config, DiscoveryChoice, ServerConfig};
use crate::policy::MAX_ADMISSION_WAIT;

use super::calls::{LOGIN_TIMEOUT, MAX_RETRY_DELAY};
use super::listing::LIST_REFRESH_TIMEOUT;
use super::listing::due_listings::DUE_LISTING_PATIENCE;
use super::release::MAX_LARGE_ANSWER_WAIT;

/// Returns the longest time of a call: the sum of all waits that it may have before its answer, except
/// for those for the client's own answers, before which the response begins, and for requests to the
/// store of the replicas.
pub(crate) fn longest_call(config: &Config) -> Duration {
    let servers = config.servers.iter().map(|server| time_at_server(server));
    let own_tools = config.tools.iter().map(|tool| tool.timeout);
    let is_code_run = |choice| choice == DiscoveryChoice::Code;
    let runs_code = config.profiles.iter().any(|profile| is_code_run(profile.discovery));
    let code = runs_code.then_some(config.code.time);
    let longest = servers.chain(own_tools).chain(code).max().unwrap_or_default();
    [
        wait_for_lists(config),
        MAX_ADMISSION_WAIT,
        time_of_interceptors(config),
        MAX_LARGE_ANSWER_WAIT,
    ]
    .into_iter()
    .fold(longest, Duration::saturating_add)
}

/// Returns the longest time of a call at a server: until its user has logged in, until the server runs
/// in the client's era or in its own, until the call has a slot, and until its last attempt ends.
fn time_at_server(server: &ServerConfig) -> Duration {
    let login = match server.oauth() {
        // The server lists after the login.
        Some(_) => LOGIN_TIMEOUT.saturating_add(server.start_timeout),
        None => Duration::ZERO,
    };
    let start = server.start_timeout.saturating_mul(2);
    let attempt = server.max_timeout.max(server.timeout);
    // A retry may begin until the timeout has passed.
    let retries = match server.retries {
        Some(1..) => [server.timeout, MAX_RETRY_DELAY, server.start_timeout]
            .into_iter()
            .fold(Duration::ZERO, Duration::saturating_add),
        _ => Duration::ZERO,
    };
    [login, start, server.queue_timeout, retries]
        .into_iter()
        .fold(attempt, Duration::saturating_add)
}

/// Returns the longest wait of a call without a route for lists that may give it one.
fn wait_for_lists(config: &Config) -> Duration {
    let fixed = LIST_REFRESH_TIMEOUT.saturating_add(DUE_LISTING_PATIENCE);
    config.gateway.list_wait.saturating_add(fixed)
}

/// Returns the longest time in which all interceptors see a call and its result, one after another.
fn time_of_interceptors(config: &Config) -> Duration {
    let times = config.interceptors.iter().map(|interceptor| {
        let phases = u32::try_from(interceptor.on.len()).unwrap_or(u32::MAX);
        interceptor.timeout.saturating_mul(phases)
    });
    times.fold(Duration::ZERO, Duration::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigSource, SystemEnvironment};

    fn read(text: &str) -> Config {
        let bytes = text.as_bytes().to_vec();
        let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
        Config::read(&source, &SystemEnvironment).unwrap()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A server whose times are all set.
    const SERVER: &str = "[servers.s]\nurl = \"https://s.example/mcp\"\ntimeout = \"100s\"\n\
        max_timeout = \"1000s\"\nstart_timeout = \"20s\"\nqueue_timeout = \"7s\"\n";

    #[test]
    fn the_longest_call_has_every_fixed_wait() {
        let of_server = seconds(1000 + 2 * 20 + 7);
        let lists = seconds(3) + LIST_REFRESH_TIMEOUT + DUE_LISTING_PATIENCE;
        // The rules twice, the arguments, and the question to the user.
        let checks = seconds(4 * 10);
        let others = checks + MAX_LARGE_ANSWER_WAIT;
        assert_eq!(longest_call(&read(SERVER)), of_server + lists + others);
    }

    #[test]
    fn each_configured_wait_is_an_addend() {
        let before = longest_call(&read(SERVER));
        for (text, added) in [
            (SERVER.replace("1000s", "1001s"), seconds(1)),
            (SERVER.replace("20s", "21s"), seconds(2)),
            (SERVER.replace("7s", "8s"), seconds(1)),
            (format!("{SERVER}retries = 1\n"), seconds(100 + 20) + MAX_RETRY_DELAY),
            (format!("{SERVER}retries = 0\n"), Duration::ZERO),
            (format!("{SERVER}[servers.s.oauth]\n"), LOGIN_TIMEOUT + seconds(20)),
            (format!("{SERVER}[gateway]\nlist_wait = \"4s\"\n"), seconds(1)),
            (
                format!(
                    "{SERVER}[interceptors.i]\nurl = \"https://i.example/\"\ntimeout = \"2s\"\n"
                ),
                seconds(4),
            ),
            // The longest server decides.
            (format!("{SERVER}[servers.t]\nurl = \"https://t.example/mcp\"\n"), Duration::ZERO),
        ] {
            assert_eq!(longest_call(&read(&text)), before + added, "{text}");
        }
    }

    #[test]
    fn runs_of_code_and_own_tools_may_take_longer_than_any_server() {
        let before = longest_call(&read(SERVER));
        let of_server = seconds(1000 + 2 * 20 + 7);
        let mut config = read(&format!("{SERVER}[profiles.p]\n"));
        config.code.time = seconds(5000);
        assert_eq!(longest_call(&config), before, "no profile has code");
        config.profiles[0].discovery = DiscoveryChoice::Code;
        assert_eq!(longest_call(&config), before + seconds(5000).saturating_sub(of_server));
        let tool = "[tools.own]\ndescription = \"d\"\ntext = \"t\"\ntimeout = \"4000s\"\n";
        let config = read(&format!("{SERVER}{tool}"));
        assert_eq!(longest_call(&config), before + seconds(4000).saturating_sub(of_server));
    }
}
