//! The everything-servers of all SDKs.

use std::path::Path;
use std::process::Command;

use super::Era;
use crate::peers::{HttpServer, file};
use crate::process::Process;

/// The eras that a server speaks.
#[derive(Clone, Copy, PartialEq)]
pub enum Eras {
    Legacy,
    Modern,
    Both,
}

impl Eras {
    pub fn speaks(self, era: Era) -> bool {
        self == Self::Both || (self == Self::Legacy) == (era == Era::Legacy)
    }

    /// The value of the servers' option `--era`.
    fn option(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::Both => "both",
        }
    }
}

/// A server behind.
pub struct Server {
    pub name: &'static str,
    pub eras: Eras,
    command: Vec<String>,
    /// Its HTTP server, if it has one.
    pub http: Option<HttpServer>,
}

/// SDK, eras, true for HTTP, and the name of the combination.
pub type Listed = (&'static str, Eras, bool, &'static str);

pub const SERVERS: [Listed; 18] = [
    ("py", Eras::Legacy, true, "py-legacy-http"),
    ("py", Eras::Legacy, false, "py-legacy-stdio"),
    ("py", Eras::Modern, true, "py-modern-http"),
    ("py", Eras::Modern, false, "py-modern-stdio"),
    ("py", Eras::Both, true, "py-dual-http"),
    ("py", Eras::Both, false, "py-dual-stdio"),
    ("ts", Eras::Legacy, true, "ts-legacy-http"),
    ("ts", Eras::Legacy, false, "ts-legacy-stdio"),
    ("ts", Eras::Modern, true, "ts-modern-http"),
    ("ts", Eras::Modern, false, "ts-modern-stdio"),
    ("ts", Eras::Both, true, "ts-dual-http"),
    ("ts", Eras::Both, false, "ts-dual-stdio"),
    ("rs", Eras::Legacy, true, "rs-legacy-http"),
    ("rs", Eras::Legacy, false, "rs-legacy-stdio"),
    ("rs", Eras::Modern, true, "rs-modern-http"),
    ("rs", Eras::Modern, false, "rs-modern-stdio"),
    ("rs", Eras::Both, true, "rs-dual-http"),
    ("rs", Eras::Both, false, "rs-dual-stdio"),
];

impl Server {
    fn start((sdk, eras, is_http, name): Listed, log: &Path) -> Self {
        let mut command = match sdk {
            "py" => vec![file(".venv-v2/bin/python"), file("everything_server.py")],
            "ts" => vec!["node".into(), file("everything_server_v2.mjs")],
            _ => vec![rust_server()],
        };
        let more = ["--era", eras.option(), "--page-size", "7"];
        command.extend(more.iter().map(|word| (*word).to_owned()));
        let http = is_http.then(|| {
            let mut process = Command::new(&command[0]);
            process.args(&command[1..]).args(["--port", "0"]).env("EVERYTHING_CANCEL_LOG", log);
            HttpServer::announcing(&mut process)
        });
        command.push("--stdio".into());
        Self { name, eras, command, http }
    }

    /// Starts them side by side.
    pub fn start_all(listed: &[Listed], log: &Path) -> Vec<Self> {
        std::thread::scope(|scope| {
            let starting: Vec<_> =
                listed.iter().map(|one| scope.spawn(|| Self::start(*one, log))).collect();
            starting.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Returns its table in the gateway's configuration.
    pub fn toml(&self, env: &str) -> String {
        match &self.http {
            Some(http) => format!("url = {:?}\n", http.url()),
            None => {
                let (program, args) = self.command.split_first().unwrap();
                format!("command = {program:?}\nargs = {args:?}\nenv = {{ {env} }}\n")
            }
        }
    }

    /// Checks the eras that the gateway has detected.
    pub fn check_eras(&self, gateway: &Process) {
        let seen = &gateway.server(self.name)["eras"];
        for era in [Era::Legacy, Era::Modern] {
            let is_seen = seen.as_array().is_some_and(|eras| eras.contains(&era.word().into()));
            assert_eq!(is_seen, self.eras.speaks(era), "{}: {seen}", self.name);
        }
    }
}

/// Returns the everything-server on the Rust SDK, which cargo builds with the tests.
fn rust_server() -> String {
    let tests = std::env::current_exe().unwrap();
    let server = tests.parent().unwrap().parent().unwrap().join("examples/everything_server");
    assert!(server.exists(), "cargo build --example everything_server builds what is missing");
    server.to_str().unwrap().to_owned()
}
