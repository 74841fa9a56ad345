//! A server with one of every feature, on the official Rust SDK.
//!
//! Its features are listed in `everything.json`, as for the other everything-servers;
//! `everything_server.py` describes its purpose. It has one more feature: the tasks extension
//! ([`tasks`]), with the tools that the official suite's scenarios for it require.
//!
//! ```text
//! everything_server --port N    http://127.0.0.1:N/mcp; 0 takes a free port
//! everything_server --stdio
//! ```
//!
//! `--era legacy` or `--era modern` disables the other era; `--page-size N` returns the lists in
//! pages. Over HTTP one line of JSON on standard output contains the port, once the socket listens.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::pedantic,
    deprecated,
    missing_docs,
    reason = "a server for tests ends where it cannot go on, and has what only the Legacy era has"
)]

mod offered;
mod performing;
mod server;
mod streams;
mod tasks;

use std::convert::Infallible;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rmcp::ServiceExt as _;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use tokio::net::TcpListener;

use server::{Everything, Shared};
use streams::Sessions;

#[derive(Parser)]
struct Options {
    /// Serve HTTP on this port of 127.0.0.1; 0 takes a free one.
    #[arg(long, required_unless_present = "stdio")]
    port: Option<u16>,
    /// Serve standard input and output.
    #[arg(long, conflicts_with = "port")]
    stdio: bool,
    #[arg(long, value_enum, default_value = "both")]
    era: Era,
    /// Number of entries in a page of a list; 0: all.
    #[arg(long, default_value_t = 0)]
    page_size: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Era {
    Both,
    Legacy,
    Modern,
}

#[tokio::main]
async fn main() {
    let options = Options::parse();
    let shared = Arc::new(Shared::new(options.era, options.page_size));
    match options.port {
        Some(port) => serve_http(port, options.era, shared).await,
        None => {
            let served = Everything::new(shared).serve(rmcp::transport::stdio()).await;
            if let Ok(running) = served {
                let _ = running.waiting().await;
            }
        }
    }
}

async fn serve_http(port: u16, era: Era, shared: Arc<Shared>) {
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(era != Era::Modern);
    let service = StreamableHttpService::new(
        move || Ok(Everything::new(Arc::clone(&shared))),
        Arc::new(Sessions::new()),
        config,
    );
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    println!("{}", json!({ "port": listener.local_addr().unwrap().port() }));
    while let Ok((socket, _)) = listener.accept().await {
        let service = service.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let service = service.clone();
                async move { Ok::<_, Infallible>(service.handle(request).await) }
            });
            let connection = auto::Builder::new(TokioExecutor::new());
            let _ = connection.serve_connection(TokioIo::new(socket), answer).await;
        });
    }
}
