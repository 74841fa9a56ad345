//! Exit codes: the same situation has the same code in every command.

use std::path::Path;

use super::process::{Process, Tag};
use super::running::{UNREACHABLE, beside};
use super::{CONFIG_FAULT, FAILURE, WRONG_USE, clock, contains_all, file, trunkline};

/// Runs each command line, its words separated by spaces, and checks the exit code.
#[track_caller]
fn all_exit_with(code: i32, lines: &[&str], run: impl Fn(&[&str]) -> super::Ran) {
    for line in lines {
        let ran = run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.0.status.code(), Some(code), "{line}: {:?}", ran.0);
    }
}

#[test]
fn a_name_that_the_running_gateway_does_not_have_is_a_refusal() {
    let tag = Tag::new();
    let gateway = Process::start(&format!(
        "{}[clients.ci]\nkey = \"0000000000000000000000000000000000000000000000000000000000000001\"\n",
        clock(&tag)
    ));
    gateway.ready(&["clock"]);
    let lines = [
        // A server.
        "restart nope",
        "disable nope",
        "enable nope",
        "test nope",
        "logs nope",
        // A tool.
        "call nope --as ci",
        "why ci nope",
        "test clock nope",
        // A client.
        "call clock__now --as nope",
        "why nope clock__now",
        // A profile.
        "tools --profile nope",
        "call clock__now --as ci --profile nope",
        "why ci clock__now --profile nope",
        // Others.
        "logs --call nope",
        "logins --revoke 00",
        "history 9",
        "audit show --since today",
        "reload --if 00",
    ];
    all_exit_with(FAILURE, &lines, |args| beside(&gateway, args));
    beside(&gateway, &["report"])
        .exits_with(FAILURE)
        .complains_of(&["does not record calls in a file", "set audit.file (`file` in [audit])"]);
}

#[test]
fn only_a_gateway_that_does_not_answer_is_unreachable() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "");
    let lines = [
        "status",
        "top --once",
        "top --json",
        "logs",
        "logs -f",
        "call t",
        "why a b",
        "plan",
        "reload",
        "restart s",
        "disable s",
        "enable s",
        "test s",
        "history",
        "rollback 1 --yes",
        "logins",
        "audit show",
        "audit tail",
        "audit tail -f",
    ];
    all_exit_with(UNREACHABLE, &lines, |args| trunkline(&[args, &["-c", &config]].concat()));
    // The file does not matter: it is only the name of the gateway.
    let missing = folder.path().join("missing.toml").display().to_string();
    all_exit_with(UNREACHABLE, &lines, |args| trunkline(&[args, &["-c", &missing]].concat()));
}

#[test]
fn a_faulty_file_is_a_finding_of_check_and_wrong_use_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        file(folder.path(), "nonsense = 1\n[servers.a]\nurl = \"http://127.0.0.1:9/mcp\"\n");
    let run = |config: &str, args: &[&str]| trunkline(&[args, &["-c", config]].concat());
    let lines = [
        "serve",
        "stdio",
        "tools",
        "tools --offline",
        "report",
        "pin list",
        "pin diff",
        "pin approve a",
        "pin reject a",
        "policy test cases.toml",
        "login a",
        "audit verify",
        "add b https://x.example/mcp",
    ];
    all_exit_with(CONFIG_FAULT, &lines, |args| run(&config, args));
    all_exit_with(FAILURE, &["check", "check --json"], |args| run(&config, args));
    let missing = folder.path().join("missing.toml").display().to_string();
    let readers = lines.into_iter().filter(|line| !line.starts_with("add")).chain(["check"]);
    all_exit_with(CONFIG_FAULT, &readers.collect::<Vec<_>>(), |args| run(&missing, args));
}

#[test]
fn an_unknown_option_and_a_name_that_the_file_lacks_are_wrong_use() {
    let lines = [
        "serve",
        "stdio",
        "status",
        "logs",
        "call t",
        "top",
        "why a b",
        "check",
        "doctor",
        "plan",
        "reload",
        "restart s",
        "disable s",
        "enable s",
        "test s",
        "history",
        "rollback 1",
        "schema",
        "cert",
        "key",
        "login s",
        "logins",
        "import",
        "export --client cursor",
        "add a https://x",
        "remove a",
        "try -- x",
        "openapi x",
        "pin list",
        "policy test x",
        "tools",
        "report",
        "bench",
        "audit show",
        "audit tail",
        "audit verify x",
        "version",
        "example",
        "completions bash",
    ];
    all_exit_with(WRONG_USE, &lines, |args| {
        let (command, more) = args.split_first().unwrap();
        trunkline(&[&[*command, "--juggle"], more].concat())
    });
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), &format!("[gateway]\nstate_dir = {:?}\n", folder.path()));
    let lines =
        ["pin list b", "pin diff b", "pin approve b", "remove b", "login b", "stdio --profile b"];
    all_exit_with(WRONG_USE, &lines, |args| trunkline(&[args, &["-c", &config]].concat()));
    let offline = trunkline(&["tools", "--offline", "--profile", "b", "-c", &config]);
    offline.exits_with(WRONG_USE);
}

#[test]
fn a_configuration_is_accepted_without_its_option() {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("[gateway]\nstate_dir = {:?}\n", folder.path());
    let server = "[servers.a]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let config = file(folder.path(), &(state + server));
    let own = Path::new(&config).file_name().unwrap().to_str().unwrap();
    assert_eq!(own, "gateway.toml", "it is not in the current folder");
    for args in [
        &["pin", "list", &config][..],
        &["pin", "diff", &config],
        &["pin", "list", "a", &config],
        &["pin", "list", &config, "a"],
        &["pin", "diff", &config, "a"],
        &["pin", "list", "a", "-c", &config],
        &["pin", "-c", &config, "diff", "a"],
    ] {
        trunkline(args).exits_with(super::DONE).prints(&[]);
    }
    for args in [&["history", &config][..], &["history", "7", &config], &["history", &config, "7"]]
    {
        trunkline(args).exits_with(UNREACHABLE).complains_of(&["no gateway runs with", &config]);
    }
    for args in [
        &["pin", "list", &config, "-c", &config][..],
        &["pin", "list", &config, &config],
        &["pin", "-c", &config, "list", "a", &config],
        &["history", &config, "-c", &config],
        &["history", "7", &config, "-c", &config],
    ] {
        trunkline(args).exits_with(WRONG_USE).complains_of(&["named twice"]);
    }
    for args in
        [&["pin", "list", "a", "gateway"][..], &["pin", "diff", "a", "b"], &["history", "7", "8"]]
    {
        let file = format!("./{}", args.last().unwrap());
        trunkline(args).exits_with(WRONG_USE).complains_of(&["are read as names", &file]);
    }
    // The server of FILE SERVER is looked up like that of SERVER FILE.
    trunkline(&["pin", "list", &config, "b"])
        .exits_with(WRONG_USE)
        .complains_of(&["no server \"b\""]);
    trunkline(&["history", "--text", &config]).exits_with(WRONG_USE).complains_of(&["--text"]);
}

#[test]
fn a_baseline_or_a_document_that_cannot_be_used_is_an_unusable_file() {
    let (folder, tag) = (tempfile::tempdir().unwrap(), Tag::new());
    let pins = folder.path().join("pins");
    std::fs::create_dir(&pins).unwrap();
    let config = folder.path().join("gateway.toml");
    let text = super::process::text(&clock(&tag));
    let text = text.replace("drain = ", &format!("pin_dir = {pins:?}\ndrain = "));
    std::fs::write(&config, text).unwrap();
    let mut gateway = Process::start_with(folder, &config, &[]);
    gateway.ready(&["clock"]);
    gateway.signal(rustix::process::Signal::TERM);
    gateway.ended();
    let config = config.display().to_string();
    let lines =
        ["pin list", "pin diff", "pin list --json", "pin approve clock", "pin reject clock"];
    let ask = |words: &str| {
        for line in lines {
            let args: Vec<_> = line.split(' ').chain(["-c", &config]).collect();
            let ran = trunkline(&args).exits_with(CONFIG_FAULT);
            contains_all(&ran.0.stderr, &[words]);
        }
    };
    for baseline in std::fs::read_dir(&pins).unwrap() {
        std::fs::write(baseline.unwrap().path(), "not a baseline").unwrap();
    }
    ask("is damaged");
    std::fs::remove_dir_all(&pins).unwrap();
    std::fs::write(&pins, "a file").unwrap();
    ask("cannot be used");

    let document = gateway.folder().join("api.json").display().to_string();
    trunkline(&["openapi", &document]).exits_with(CONFIG_FAULT).complains_of(&["api.json"]);
    std::fs::write(&document, "{\"openapi\": 7}").unwrap();
    trunkline(&["openapi", &document]).exits_with(CONFIG_FAULT).complains_of(&["openapi"]);
}
