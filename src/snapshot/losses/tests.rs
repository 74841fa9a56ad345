//! Each kind of loss, as two configurations.

use super::find_losses;
use crate::config::{Config, ConfigSource, SystemEnvironment};

/// Reads a configuration with a server `s` and interceptors `i` and `j`.
fn config(text: &str) -> Config {
    let bytes = format!("{text}{REST}").into_bytes();
    let source = ConfigSource { name: "gateway.toml".into(), folder: "/f".into(), bytes };
    Config::read(&source, &SystemEnvironment).unwrap_or_else(|faults| panic!("{text}\n{faults}"))
}

#[track_caller]
fn assert_losses(before: &str, after: &str, expected: &[&str]) {
    let found = find_losses(&config(before), &config(after));
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "\n{before}\n→\n{after}");
}

/// Checks a setting of the server `s`, or of another table, and a weaker one. The stricter
/// direction is not a loss.
#[track_caller]
fn assert_weaker(table: &str, strict: &str, weak: &str, expected: &str) {
    let [strict, weak] = [strict, weak].map(|line| format!("{table}\n{line}\n"));
    assert_losses(&strict, &weak, &[expected]);
    assert_losses(&weak, &strict, &[]);
    assert_losses(&strict, &strict, &[]);
}

#[test]
fn a_setting_of_a_server_that_protects_less_is_a_loss() {
    for (strict, weak, expected) in [
        ("pins = \"hold\"", "pins = \"warn\"", "servers.s.pins: `hold` is weakened to `warn`"),
        ("pins = \"hold\"", "", "servers.s.pins: `hold` is weakened to `warn`"),
        ("", "pins = \"off\"", "servers.s.pins: `warn` is weakened to `off`"),
        ("", "scan = \"warn\"", "servers.s.scan: `hold` is weakened to `warn`"),
        ("scan = \"warn\"", "scan = \"off\"", "servers.s.scan: `warn` is weakened to `off`"),
        ("", "trusted = true", "servers.s.trusted: `false` is weakened to `true`"),
        ("confirm = true", "", "servers.s.confirm: `true` is weakened to `false`"),
        (
            "confirm = true",
            "confirm = \"destructive\"",
            "servers.s.confirm: `true` is weakened to `destructive`",
        ),
        ("interceptors = [\"i\"]", "", "servers.s.interceptors: `i` is removed"),
        (
            "interceptors = [\"i\", \"j\"]",
            "interceptors = [\"j\"]",
            "servers.s.interceptors: `i` is removed",
        ),
        ("scopes = [\"a\"]", "", "servers.s.scopes: `a` is removed"),
        ("isolation = \"client\"", "", "servers.s.isolation: `client` is weakened to `shared`"),
        ("resource_vars = { a = \"b\" }", "", "servers.s.resource_vars: `a` is removed"),
        ("sandbox = true", "", "servers.s.sandbox: the sandbox is removed"),
        ("sandbox = true", "sandbox = false", "servers.s.sandbox: the sandbox is removed"),
        ("tools.deny = [\"d*\"]", "", "servers.s.tools.deny: `d*` is removed"),
        (
            "tools.deny = [\"d*\"]",
            "tools.deny = [\"de*\"]",
            "servers.s.tools.deny: `d*` is removed",
        ),
        (
            "tools.allow = [\"a*\"]",
            "",
            "servers.s.tools.allow: the setting admits more than before",
        ),
        (
            "tools.allow = [\"ab*\"]",
            "tools.allow = [\"a*\"]",
            "servers.s.tools.allow: the setting admits more than before",
        ),
        ("tools.t.confirm = true", "", "servers.s.tools.t.confirm: `true` is weakened to `false`"),
        ("tools.t.scopes = [\"a\"]", "", "servers.s.tools.t.scopes: `a` is removed"),
        (
            "tools.t.arguments = { a = { value = 1 } }",
            "tools.t.arguments = { a = { default = 1 } }",
            "servers.s.tools.t.arguments: `a` is removed",
        ),
    ] {
        assert_weaker(&format!("{CLIENT}[servers.s]\ncommand = \"x\""), strict, weak, expected);
    }
    let confirmed = "[servers.s]\ncommand = \"x\"\nconfirm = true\n";
    assert_losses(
        confirmed,
        &format!("{confirmed}tools.t.confirm = false\n"),
        &["servers.s.tools.t.confirm: `true` is weakened to `false`"],
    );
}

#[test]
fn a_sandbox_that_permits_more_is_a_loss() {
    for (strict, weak) in [
        ("system = false", ""),
        ("", "read = [\"/a\"]"),
        ("write = [\"/a\"]", "write = [\"/a\", \"/b\"]"),
        ("", "execute = [\"/a\"]"),
        ("", "private_tmp = false"),
        ("connect = []", ""),
        ("connect = [1]", "connect = [1, 2]"),
        ("bind = []", "bind = [1]"),
        ("", "scopes = false"),
        ("scopes = true", ""),
        ("", "syscalls = false"),
        ("memory = \"1GiB\"", ""),
        ("processes = 1", "processes = 2"),
        ("open_files = 8", ""),
        ("file_size = \"1GiB\"", "file_size = \"2GiB\""),
        ("cpu_time = \"1s\"", ""),
        ("user = \"1:1\"", ""),
    ] {
        assert_weaker(
            "[servers.s]\ncommand = \"x\"\n[servers.s.sandbox]",
            strict,
            weak,
            "servers.s.sandbox: the sandbox permits more than before",
        );
    }
}

#[test]
fn an_operation_that_is_offered_again_is_a_loss() {
    let expected = "servers.s.exclude: the setting admits more than before";
    for (strict, weak) in [
        ("exclude = [\"DELETE /a\"]", ""),
        ("include = [\"GET /a\"]", ""),
        ("include = [\"GET /a\"]", "include = [\"GET /a\", \"/b\"]"),
    ] {
        assert_weaker("[servers.s]\nopenapi = \"/f/x.json\"", strict, weak, expected);
    }
}

#[test]
fn a_rule_that_denies_less_or_allows_more_is_a_loss() {
    let narrowed = "policy.rules.r: the deny rule denies less than before";
    let widened = "policy.rules.r: the allow rule allows more than before";
    for (wide, narrow) in [
        ("", "tools = [\"a*\"]"),
        ("tools = [\"a*\"]", "tools = [\"ab\"]"),
        ("tools = [\"a\", \"b\"]", "tools = [\"a\"]"),
        ("tools = [\"a\"]\nresources = [\"b\"]", "tools = [\"a\"]"),
        ("", "principals = [\"ci\"]"),
        ("", "groups = [\"*\"]"),
        ("scopes = [\"a\", \"b\"]", "scopes = [\"a\"]"),
        ("profiles = [\"a*\"]", "profiles = [\"ab\"]"),
        ("", "servers = [\"s\"]"),
        ("", "when = \"arguments.id == 1\""),
    ] {
        let deny = "[policy.rules.other]\n[policy.rules.r]\neffect = \"deny\"";
        assert_weaker(deny, wide, narrow, narrowed);
        assert_weaker("[policy.rules.r]", narrow, wide, widened);
    }
    // Other conditions cannot be compared, so both directions are losses.
    let [one, two] = ["principal.name == 'a'", "principal.name == 'b'"]
        .map(|when| format!("[policy.rules.r]\nwhen = \"{when}\"\n"));
    assert_losses(&one, &two, &[widened]);
    let [one, two] = [one, two].map(|rule| rule + "effect = \"deny\"\n");
    assert_losses(&one, &two, &[narrowed]);
    // One kind of element in place of another.
    let rule = |line: &str| format!("[policy.rules.r]\n{line}\n");
    assert_losses(&rule("tools = [\"a\"]"), &rule("prompts = [\"a\"]"), &[widened]);
}

#[test]
fn a_rule_that_is_removed_is_a_loss_if_it_denied_or_was_the_last_one() {
    let rules = |rules: &str| format!("[policy.rules.a]\n{rules}");
    let deny = "[policy.rules.d]\neffect = \"deny\"\ntools = [\"a\"]\n";
    let removed = "policy.rules.d: the deny rule is removed";
    assert_losses(&rules(deny), &rules(""), &[removed]);
    // Without its effect, the rule allows.
    let allow = &deny.replace("effect = \"deny\"\n", "");
    assert_losses(&rules(deny), &rules(allow), &[removed]);
    let last = "policy.rules: the last rule is removed, so everything is allowed";
    assert_losses(&rules(""), "", &[last]);
    assert_losses(&rules(deny), "", &[last, removed]);
    // Another rule that denies as much replaces it; an allow rule may be removed.
    let wider = "[policy.rules.e]\neffect = \"deny\"\ntools = [\"*\"]\n";
    assert_losses(&rules(deny), &rules(wider), &[]);
    assert_losses(&rules(deny), deny, &[]);
    assert_losses(deny, &rules(deny), &[]);
}

#[test]
fn a_profile_that_shows_more_is_a_loss() {
    let more = |setting: &str| format!("profiles.p{setting}: the setting admits more than before");
    for (strict, weak, expected) in [
        ("servers = [\"s\"]", "", more(".servers")),
        ("tools = [\"a*\"]", "", more("")),
        ("tools = [\"a\"]", "tools = [\"a\", \"b\"]", more("")),
        ("tools = [\"a\"]", "tools = [\"a\"]\nresources = [\"*\"]", more("")),
        ("scopes = [\"a\"]", "", "profiles.p.scopes: `a` is removed".into()),
        ("interceptors = [\"i\"]", "", "profiles.p.interceptors: `i` is removed".into()),
    ] {
        let table = format!("{CLIENT}[servers.s]\ncommand = \"x\"\n[profiles.p]");
        assert_weaker(&table, strict, weak, &expected);
    }
    let default = "[profiles.default]\ntools = [\"a\"]\n";
    assert_losses(default, "", &["profiles.default: the default profile is removed"]);
    assert_losses("[profiles.p]\ntools = [\"a\"]\n", "", &[]);
    assert_losses("", default, &[]);
}

#[test]
fn an_interceptor_that_sees_less_or_forgives_more_is_a_loss() {
    for (strict, weak, expected) in [
        ("", "mode = \"audit\"", "mode: `enforce` is weakened to `audit`"),
        ("", "fail = \"open\"", "fail: `closed` is weakened to `open`"),
        ("", "on = [\"request\"]", "on: `result` is removed"),
        ("methods = [\"*\"]", "methods = [\"tools/*\"]", "methods: `*` is removed"),
    ] {
        let table = "[interceptors.k]\nurl = \"https://127.0.0.1:9/\"";
        assert_weaker(table, strict, weak, &format!("interceptors.k.{expected}"));
    }
}

#[test]
fn a_client_or_an_issuer_that_is_removed_or_may_use_more_is_a_loss() {
    let client = |name: &str| format!("[clients.{name}]\nkey = \"sha256:{}\"\n", "0".repeat(64));
    let two = client("a") + &client("b").replace(":0", ":1");
    assert_losses(&two, &client("a"), &["clients.b: the client is removed"]);
    let anonymous =
        "clients: no client and no issuer is left, so requests without a key or token are served";
    assert_losses(&client("a"), "", &[anonymous, "clients.a: the client is removed"]);
    assert_losses("", &client("a"), &[]);
    let more = "clients.a.profiles: the setting admits more than before";
    assert_weaker(&client("a"), "profiles = [\"default\"]", "", more);
    let role = "clients.a.role: the setting admits more than before";
    assert_weaker(&client("a"), "role = \"viewer\"", "role = \"operator\"", role);
    assert_losses("", &(client("a") + "role = \"viewer\"\n"), &[role]);
    let denied =
        "[policy.rules.r]\neffect = \"deny\"\ngroups = [\"g\"]\n".to_owned() + &client("a");
    assert_weaker(&denied, "groups = [\"g\"]", "", "clients.a.groups: `g` is removed");
    let issuer = |url: &str| format!("[issuers.i]\nissuer = \"https://{url}.example\"\n");
    let gone = "issuers.i: the issuer is removed";
    assert_losses(&issuer("a"), &client("a"), &[gone]);
    assert_losses(&issuer("a"), &issuer("b"), &[gone]);
    let with_roles = |claim: &str| {
        issuer("a") + &format!("groups_claim = \"{claim}\"\nroles = {{ ops = \"admin\" }}\n")
    };
    let widened =
        |setting: &str| format!("issuers.i.{setting}: the setting admits more than before");
    assert_losses("", &with_roles("groups"), &[&widened("roles")]);
    assert_losses(&with_roles("groups"), &with_roles("nick"), &[&widened("groups_claim")]);
    let tls = "[gateway.tls]\ncert = \"a\"\nkey = \"b\"\n[admin]\n";
    assert_weaker(tls, "tls = true", "", "admin.tls: `true` is weakened to `false`");
    for (strict, weak, setting) in [
        ("profiles = [\"default\"]", "", "profiles"),
        ("", "audience = [\"x\"]", "audience"),
        ("", "issuer_aliases = [\"https://b.example\"]", "issuer_aliases"),
        ("algorithms = [\"ES256\"]", "algorithms = [\"ES256\", \"RS256\"]", "algorithms"),
    ] {
        assert_weaker(&issuer("a"), strict, weak, &widened(setting));
    }
}

#[test]
fn a_gateway_that_checks_less_is_a_loss() {
    let tls = "tls = { cert = \"a\", key = \"b\"";
    let with_ca = format!("{tls}, client_ca = \"c\"");
    for (strict, weak, expected) in [
        ("pins = \"hold\"".to_owned(), String::new(), "pins: `hold` is weakened to `warn`"),
        (String::new(), "scan = \"off\"".to_owned(), "scan: `hold` is weakened to `off`"),
        (
            String::new(),
            "anonymous = \"anyone\"".to_owned(),
            "anonymous: `loopback` is weakened to `anyone`",
        ),
        (format!("{tls} }}"), String::new(), "tls: the certificate is removed"),
        (
            format!("{with_ca} }}"),
            format!("{tls} }}"),
            "tls.client_ca: the check of client certificates is removed",
        ),
        (
            format!("{with_ca}, client_certificates = \"required\" }}"),
            format!("{with_ca} }}"),
            "tls.client_certificates: `required` is weakened to `optional`",
        ),
    ] {
        assert_weaker("[gateway]", &strict, &weak, &format!("gateway.{expected}"));
    }
    for (line, key) in [
        ("file = \"/f/audit\"", "file"),
        ("stdout = true", "stdout"),
        ("syslog = \"udp://127.0.0.1:9\"", "syslog"),
    ] {
        assert_weaker("[audit]", line, "", &format!("audit.{key}: the audit log is removed"));
    }
    assert_weaker(
        "[audit]\nfile = \"/f/audit\"",
        "required = true",
        "",
        "audit.required: `true` is weakened to `false`",
    );
}

#[test]
fn everyday_changes_are_no_losses() {
    let before = "[servers.a]\ncommand = \"x\"\nconfirm = true\nsandbox = true\n";
    // A removed server takes its protections with it.
    assert_losses(before, "", &[]);
    let more = "[servers.b]\ncommand = \"y\"\n[profiles.p]\n[clients.c]\nkey = \"sha256:";
    let more = format!("{before}rate = \"1/s\"\n{more}{}\"\n", "0".repeat(64));
    assert_losses(before, &more, &[]);
    assert_losses(
        "[policy.rules.r]\ntools = [\"a\"]\n",
        "[policy.rules.r]\ntools = [\"a\"]\n[policy.rules.q]\ntools = [\"b\"]\n",
        &[],
    );
}

/// A client, since scopes cannot be required without one.
const CLIENT: &str = "[clients.c]\ncertificates = [\"CN=c\"]\n[gateway.tls]\ncert = \"a\"\n\
                      key = \"b\"\nclient_ca = \"c\"\n";

/// Names that the tables above refer to.
const REST: &str = "
[interceptors.i]
url = \"https://127.0.0.1:9/\"
[interceptors.j]
url = \"https://127.0.0.1:9/\"
";
