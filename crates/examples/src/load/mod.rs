//! `trunkline example load`: a server with minimal cost, to measure the cost of an intermediary in
//! front of it.
//!
//! Its answers are prepared at the start. Only a request's id, and the number in its arguments if
//! there is one, are filled in. It speaks both eras over HTTP and over standard streams, and
//! rejects requests that a gateway must not send: calls of unknown tools, and Legacy calls outside
//! a session.

mod answers;
mod http;
mod stdio;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use url::Url;

pub(super) use http::{Until, announce};

/// The options of the server for load tests.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct LoadArgs {
    /// Serve HTTP at http://ADDRESS:PORT/mcp instead of standard input and output
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// The number of tools: search, search_2, search_3, …
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tools: u32,
    /// The number of bytes of text in a result
    #[arg(long, value_name = "N", default_value_t = 900, value_parser = clap::value_parser!(u32).range(..=256 << 20))]
    pub bytes: u32,
    /// The number of bytes of a tool's description
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub tool_bytes: u32,
    /// The delay of each answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    pub latency: u64,
    /// Answer calls with event streams instead of JSON
    #[arg(long, requires = "listen")]
    pub sse: bool,
    /// Refuse requests without a token: the metadata of the protected resource is at this URL
    #[arg(long, requires = "listen", value_name = "URL")]
    pub challenge: Option<Url>,
    /// The number of threads that serve HTTP
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Exit at the end of standard input
    #[arg(long, hide = true, requires = "listen")]
    pub until_eof: bool,
}

pub(super) fn serve(args: &LoadArgs) -> io::Result<()> {
    let answers = answers::Answers::prepare(args);
    let latency = Duration::from_millis(args.latency);
    match args.listen {
        None => stdio::serve(&answers, latency),
        Some(address) => {
            let until = Until::of(args.until_eof);
            let challenge = args.challenge.as_ref().and_then(http::challenge);
            let server = http::LoadServer { answers, latency, events: args.sse, challenge };
            http::run(address, args.threads.into(), until, server)
        }
    }
}

#[cfg(test)]
mod tests;
