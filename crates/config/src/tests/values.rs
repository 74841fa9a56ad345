//! Values of valid configurations.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::*;

#[test]
fn an_empty_file_is_a_gateway_on_loopback_without_servers() {
    let config = World::new().read("").unwrap();
    assert_eq!(config.gateway.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.admin.listen.map(|address| address.to_string()).unwrap(), "127.0.0.1:8081");
    assert_eq!(config.gateway.naming, NamingChoice::Prefix);
    assert_eq!(config.gateway.limits.body, 4 << 20);
    assert_eq!(config.log.level, "info");
    assert_eq!(config.telemetry.endpoint, None);
    assert!(config.servers.is_empty());
}

#[test]
fn every_default_reads() {
    let config = World::new()
        .read("[servers.a]\ncommand = \"a\"\n[servers.b]\nurl = \"http://b/\"\ntools.t = {}\n")
        .unwrap();
    assert_eq!(config.servers[0].max_restarts, 5);
    assert_eq!(config.servers[1].timeout, Duration::from_secs(30));
}

#[test]
fn servers_and_tools_keep_the_order_of_the_file() {
    let text = "
        [servers.zebra]
        command = \"z\"
        env = { Z = \"1\", A = \"2\" }
        [servers.zebra.tools.second]
        [servers.zebra.tools.first]
        [servers.ape]
        command = \"a\"
    ";
    let config = World::new().read(text).unwrap();
    let names: Vec<_> = config.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["zebra", "ape"]);
    let tools = &config.servers[0].tools.overrides;
    let tools: Vec<_> = tools.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(tools, ["second", "first"]);
    let ServerKind::Command(command) = &config.servers[0].target else { panic!("a child") };
    let names: Vec<_> = command.env.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Z", "A"]);
}

#[test]
fn durations_sizes_and_rates_have_their_units() {
    let of = |timeout: &str| {
        server(&format!("command = \"x\"\nmax_timeout = \"366d\"\ntimeout = \"{timeout}\"")).timeout
    };
    assert_eq!(of("500ms"), Duration::from_millis(500));
    assert_eq!(of("30s"), Duration::from_secs(30));
    assert_eq!(of("2m"), Duration::from_mins(2));
    assert_eq!(of("1h"), Duration::from_hours(1));
    assert_eq!(of("366d"), Duration::from_hours(366 * 24));
    for (size, bytes) in [("1B", 1), ("32KiB", 32 << 10), ("64MiB", 64 << 20), ("2GiB", 2 << 30)] {
        let server = server(&format!("command = \"x\"\nmax_response = \"{size}\""));
        assert_eq!(server.max_response, bytes, "{size}");
    }
    for (text, count, seconds) in [
        ("10/s", 10, 1),
        ("100/min", 100, 60),
        ("1000/h", 1000, 3600),
        ("1000000/day", 1_000_000, 86_400),
    ] {
        let rate = server(&format!("command = \"x\"\nrate = \"{text}\"")).rate.unwrap();
        assert_eq!((rate.count.get(), rate.per.as_secs()), (count, seconds));
        assert_eq!(rate.to_string(), text);
    }
}

#[test]
fn off_turns_off_optional_settings() {
    let config = World::new().read("[admin]\nlisten = \"off\"\n[gateway]\nrate = \"off\"").unwrap();
    assert_eq!((config.admin.listen, config.gateway.rate), (None, None));
    let config = World::new().read("[gateway]\npage_size = 100\ntitle = \"off\"").unwrap();
    assert_eq!(config.gateway.page_size, NonZeroUsize::new(100));
    assert_eq!(config.gateway.title.as_deref(), Some("off"));
}

#[test]
fn substitution_fills_values_once_and_only_where_it_is_allowed() {
    let world = World::new()
        .variable("TOKEN", "t0k\"en")
        .variable("NESTED", "${env:TOKEN}")
        .file("/etc/trunkline/secrets/key", "k3y\r\n")
        .file("/run/id", "7");
    let text = "
        [servers.x]
        url = \"https://${env:NESTED_HOST}/mcp\"
        [servers.x.headers]
        Authorization = \"Bearer ${env:TOKEN}\"
        X-Key = \"${file:secrets/key}${file:/run/id}\"
        X-Nested = \"${env:NESTED}\"
        X-Plain = \"$${env:TOKEN} $ $$ {}\"
    ";
    let config = world.variable("NESTED_HOST", "h.example").read(text).unwrap();
    let ServerKind::Http(http) = &config.servers[0].target else { panic!("an HTTP server") };
    assert_eq!(http.url.as_str(), "https://h.example/mcp");
    let values: Vec<_> = http.headers.iter().map(|(_, value)| value.expose()).collect();
    assert_eq!(values, ["Bearer t0k\"en", "k3y7", "${env:TOKEN}", "${env:TOKEN} $ $$ {}"]);
    let files = ["/etc/trunkline/secrets/key", "/run/id"].map(PathBuf::from);
    assert_eq!(config.files, files);
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let text = "
        [gateway.tls]
        cert = \"certs/a.pem\"
        key = \"/keys/a.key\"
        [servers.x]
        command = \"bin/server\"
        cwd = \"work\"
        [servers.y]
        command = \"npx\"
    ";
    let config = World::new().read(text).unwrap();
    let tls = config.gateway.tls.unwrap();
    assert_eq!(tls.cert, Path::new("/etc/trunkline/certs/a.pem"));
    assert_eq!(tls.key, Path::new("/keys/a.key"));
    let ServerKind::Command(x) = &config.servers[0].target else { panic!("a child") };
    assert_eq!(x.program, "/etc/trunkline/bin/server");
    assert_eq!(x.cwd.as_deref(), Some(Path::new("/etc/trunkline/work")));
    let ServerKind::Command(y) = &config.servers[1].target else { panic!("a child") };
    assert_eq!(y.program, "npx");
}

#[test]
fn a_configuration_prints_without_its_secrets() {
    let text = "
        [servers.x]
        command = \"x\"
        args = [\"--key\", \"${env:HIDE}\"]
        env = { KEY = \"hide-me\" }
        [servers.y]
        url = \"https://y/${env:HIDE}?k=${env:HIDE}\"
        headers = { Authorization = \"hide-me\" }
    ";
    let config = World::new().variable("HIDE", "hide-me").read(text).unwrap();
    assert!(!format!("{config:?}{config:#?}").contains("hide-me"));
    let secret = Secret::new("hide-me".into());
    assert_eq!(format!("{secret} {secret:?} {}", serde_json::json!(secret)), "*** *** \"***\"");
}

#[test]
fn a_reload_sees_which_servers_differ() {
    let world = World::new().variable("A", "1");
    let text =
        "[servers.x]\ncommand = \"x\"\nenv = { A = \"${env:A}\" }\n[servers.y]\nurl = \"http://y\"";
    let (before, same) = (world.read(text).unwrap(), world.read(text).unwrap());
    assert_eq!(before, same);
    let after = World::new().variable("A", "2").read(text).unwrap();
    assert_ne!(before.servers[0], after.servers[0]);
    assert_eq!(before.servers[1], after.servers[1]);
}

#[test]
fn hosts_and_origins_are_read_as_they_are_compared() {
    let text = "
        [gateway]
        allowed_hosts = [\"MCP.Example.com\", \"[::1]:8080\"]
        allowed_origins = [\"HTTPS://App.example.com:443\", \"vscode-webview://a1\"]
    ";
    let gateway = World::new().read(text).unwrap().gateway;
    assert_eq!(gateway.allowed_hosts, ["mcp.example.com", "[::1]:8080"]);
    assert_eq!(gateway.allowed_origins, ["https://app.example.com", "vscode-webview://a1"]);
}

#[test]
fn patterns_match_whole_names() {
    for (pattern, name, matches) in [
        ("search", "search", true),
        ("search", "search_issues", false),
        ("search_*", "search_issues", true),
        ("search_*", "search_", true),
        ("*", "", true),
        ("?", "", false),
        ("?", "é", true),
        ("??", "é", false),
        ("*_file", "read_text_file", true),
        ("*_file", "read_file_now", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("*a?c*", "xxabcxx", true),
        ("a**b", "ab", true),
        ("[ab]", "a", false),
    ] {
        assert_eq!(Pattern::new(pattern).unwrap().matches(name), matches, "{pattern} on {name}");
    }
    assert!(Pattern::new("").is_none() && Pattern::new(&"x".repeat(129)).is_none());
    let slow = Pattern::new(&"*a".repeat(64)).unwrap();
    assert!(!slow.matches(&("a".repeat(60) + &"b".repeat(100_000))));
}

#[test]
fn a_pattern_of_the_greatest_length_matches_to_its_end() {
    let whole = Pattern::new(&"é".repeat(Pattern::MAX_LEN)).unwrap();
    for (length, matches) in [(127, false), (128, true), (129, false)] {
        assert_eq!(whole.matches(&"é".repeat(length)), matches, "{length}");
    }
    let ends = Pattern::new(&format!("*{}", "?".repeat(Pattern::MAX_LEN - 1))).unwrap();
    for (length, matches) in [(126, false), (127, true), (5000, true)] {
        assert_eq!(ends.matches(&"x".repeat(length)), matches, "{length}");
    }
}

proptest! {
    #[test]
    fn a_pattern_matches_like_its_regular_expression(
        pattern in "[ab*?]{1,12}",
        name in "[ab]{0,16}",
    ) {
        let expression = format!("^{}$", pattern.replace('*', ".*").replace('?', "."));
        let expected = regex::Regex::new(&expression).unwrap().is_match(&name);
        prop_assert_eq!(Pattern::new(&pattern).unwrap().matches(&name), expected);
    }
}

#[test]
fn deny_wins_over_allow_and_an_empty_allow_shows_all() {
    let admits =
        |lines: &str, tool| server(&format!("command = \"x\"\n{lines}")).tools.admits_tool(tool);
    assert!(admits("", "anything"));
    assert!(admits("tools.allow = [\"get_*\"]", "get_x"));
    assert!(!admits("tools.allow = [\"get_*\"]", "set_x"));
    assert!(!admits("tools = { allow = [\"get_*\"], deny = [\"*_x\"] }", "get_x"));
    assert!(!admits("tools.deny = [\"rm\"]", "rm"));
}

#[test]
fn a_child_gets_safe_and_named_variables() {
    let server = server("command = \"x\"\npass_env = [\"KUBECONFIG\", \"AWS_*\"]");
    let ServerKind::Command(command) = server.target else { panic!("a child") };
    for name in ["PATH", "LC_ALL", "KUBECONFIG", "AWS_REGION"] {
        assert!(child_inherits(&command.pass_env, name), "{name}");
    }
    for name in ["GITHUB_TOKEN", "PATHS", "KUBECONFIG_2", "AWS", "LD_PRELOAD"] {
        assert!(!child_inherits(&command.pass_env, name), "{name}");
    }
}

#[test]
fn the_log_filter_of_the_command_line_is_held_to_the_rules_of_the_file() {
    let mut config = World::new().read("").unwrap();
    config.log_at("warn,trunkline::upstream=debug").unwrap();
    assert_eq!(config.log.level, "warn,trunkline::upstream=debug");
    assert!(matches!(config.log_at("a=b=c"), Err(SettingFault::Filter)));
}

#[test]
fn the_address_of_the_command_line_is_held_to_the_rules_of_the_file() {
    let mut config = World::new().read("").unwrap();
    assert!(matches!(
        config.listen_on("127.0.0.1:8081".parse().unwrap()),
        Err(SettingFault::SameAddress)
    ));
    for address in ["[::1]:9000", "0.0.0.0:9000"] {
        config.listen_on(address.parse().unwrap()).unwrap();
        assert_eq!(config.gateway.listen, address.parse().unwrap());
    }
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_read_over() {
    let config = World::new().read("\u{feff}[gateway]\r\ndrain = \"1s\"\r\n").unwrap();
    assert_eq!(config.gateway.drain, Duration::from_secs(1));
}
