//! The line about the servers of a configuration.

use std::sync::Arc;

use crate::upstream::{LifeState, Server};

/// Numbers of servers, and the names of those that are not ready.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ServerSummary {
    ready: usize,
    /// Servers that start when they are needed.
    idle: usize,
    /// Servers that are not ready, with their states.
    pub(super) pending: Vec<String>,
    tools: usize,
}

impl ServerSummary {
    /// Counts servers by their states.
    pub(super) fn of(servers: &[Arc<Server>]) -> Self {
        let mut summary = Self::default();
        for server in servers {
            summary.tools += server.list().map_or(0, |list| list.tools.len());
            summary.add(server.name().as_str(), &server.view().state);
        }
        summary
    }

    fn add(&mut self, name: &str, state: &LifeState) {
        match state {
            LifeState::Ready => self.ready += 1,
            LifeState::Idle => self.idle += 1,
            other => self.pending.push(format!("{name} ({})", other.as_str())),
        }
    }

    /// Describes the servers in a sentence.
    fn sentence(&self) -> String {
        let all = self.ready + self.idle + self.pending.len();
        let idle = match self.idle {
            0 => String::new(),
            idle => format!(", {idle} of them when needed"),
        };
        if self.pending.is_empty() {
            let servers = if all == 1 {
                "the server is".to_owned()
            } else {
                format!("all {all} servers are")
            };
            return format!("{servers} ready{idle}");
        }
        let ready = self.ready + self.idle;
        let shown: Vec<_> =
            self.pending.iter().take(MAX_NAMED_SERVERS).map(String::as_str).collect();
        let more = match self.pending.len().saturating_sub(MAX_NAMED_SERVERS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{ready} of {all} servers are ready{idle}; not ready: {}{more}", shown.join(", "))
    }

    /// Logs the line, if there are servers.
    pub(super) fn log(&self) {
        if *self != Self::default() {
            tracing::info!(tools = self.tools, "{}", self.sentence());
        }
    }
}

/// Maximum number of servers that a line names.
const MAX_NAMED_SERVERS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_the_servers_and_names_those_that_are_not_ready() {
        use LifeState::{AwaitsLogin, Failed, Idle, Ready};
        let sentence = |states: &[LifeState]| {
            let mut summary = ServerSummary::default();
            for (number, state) in states.iter().enumerate() {
                summary.add(&format!("s{number}"), state);
            }
            summary.sentence()
        };
        assert_eq!(sentence(&[Ready]), "the server is ready");
        assert_eq!(sentence(&[Ready, Ready]), "all 2 servers are ready");
        assert_eq!(sentence(&[Ready, Idle]), "all 2 servers are ready, 1 of them when needed");
        assert_eq!(
            sentence(&[Ready, Failed, AwaitsLogin]),
            "1 of 3 servers are ready; not ready: s1 (failed), s2 (login)"
        );
        let many = sentence(&vec![Failed; 12]);
        assert!(many.ends_with("s9 (failed) and 2 more"), "{many}");
    }
}
