//! What is compared with what.

use std::net::SocketAddr;
use std::path::Path;

use crate::client::{Era, Target, list_tools};
use crate::process::{Process, Wrapper};

/// Everything that runs while it is measured.
pub struct Stage {
    mock: Process,
    proxy: Process,
    gateway: Process,
    quiet: Process,
    _folder: tempfile::TempDir,
}

/// Ways that are compared over so many connections.
pub struct Case<'a> {
    pub title: String,
    pub connections: usize,
    /// The first is the direct one, the second the proxy.
    pub ways: Vec<Way<'a>>,
}

/// One way for a call to take.
pub struct Way<'a> {
    pub name: &'static str,
    pub target: Target,
    /// Whose CPU counts; nobody's on the direct way.
    pub process: Option<&'a Process>,
}

/// How much the gateway says of each call.
#[derive(Clone, Copy)]
pub enum Access {
    /// A line for each, as by default.
    Line,
    /// Nothing.
    Off,
}

impl Stage {
    pub async fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mock = Process::role(&["mock"], &Wrapper::none());
        let proxy = Process::role(&["proxy", &mock.address.to_string()], &Wrapper::none());
        let gateway =
            self::gateway(folder.path(), mock.address, Access::Line, &Wrapper::none()).await;
        let quiet = self::gateway(folder.path(), mock.address, Access::Off, &Wrapper::none()).await;
        Self { mock, proxy, gateway, quiet, _folder: folder }
    }

    pub fn cases(&self) -> Vec<Case<'_>> {
        let mut cases = Vec::new();
        for era in [Era::Modern, Era::Legacy] {
            for connections in [1, 16, 64] {
                cases.push(Case {
                    title: format!("{era:?} client and server, {connections} connections"),
                    connections,
                    ways: self.ways(era),
                });
            }
        }
        cases.push(self.variants());
        cases
    }

    fn way(&self, name: &'static str, era: Era, tool: &'static str) -> Way<'_> {
        let process = match name {
            "direct" => None,
            "proxy" => Some(&self.proxy),
            "no access line" => Some(&self.quiet),
            _ => Some(&self.gateway),
        };
        let address = process.unwrap_or(&self.mock).address;
        Way { name, target: Target { address, era, tool }, process }
    }

    fn ways(&self, era: Era) -> Vec<Way<'_>> {
        vec![
            self.way("direct", era, DIRECT),
            self.way("proxy", era, DIRECT),
            self.way("gateway", era, behind(era)),
        ]
    }

    /// What crossing the eras and the access line cost.
    fn variants(&self) -> Case<'_> {
        let mut ways = self.ways(Era::Modern);
        ways.push(self.way("no access line", Era::Modern, behind(Era::Modern)));
        ways.push(self.way("Modern to Legacy", Era::Modern, behind(Era::Legacy)));
        ways.push(self.way("Legacy to Modern", Era::Legacy, behind(Era::Modern)));
        Case { title: "Variants, 16 connections".to_owned(), connections: 16, ways }
    }
}

/// The public name of the tool, by the era of the server that has it.
pub fn behind(server: Era) -> &'static str {
    match server {
        Era::Modern => "modern__search",
        Era::Legacy => "legacy__search",
    }
}

/// A gateway before the mock server, which it knows as two: one of each era.
/// Ready once both are listed.
pub async fn gateway(
    folder: &Path,
    mock: SocketAddr,
    access: Access,
    wrapper: &Wrapper,
) -> Process {
    let (name, access) = match access {
        Access::Line => ("line.toml", true),
        Access::Off => ("off.toml", false),
    };
    let path = folder.join(name);
    let server = |era: &str| {
        format!(
            "[servers.{era}]\nurl = \"http://{mock}/mcp\"\nera = \"{era}\"\nrate = \"1000000/s\"\n"
        )
    };
    let config = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nreload = \"off\"\nrate = \"1000000/s\"\n\
         client_rate = \"1000000/s\"\n[admin]\nlisten = \"off\"\n[log]\naccess = {access}\n{}{}",
        server("modern"),
        server("legacy")
    );
    std::fs::write(&path, config).unwrap();
    let process = Process::gateway(&path, wrapper);
    while list_tools(process.address).await < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    process
}

/// The tool's own name.
pub const DIRECT: &str = "search";
