//! `trunkline example proxy`: a minimal HTTP proxy on hyper. Bodies are streamed without
//! inspection: the benchmarks compare the gateway with it.
//!
//! There are two variants. By default the connections to the server come from hyper-util's pooled
//! client, as in most proxies on hyper; that client runs each connection in its own task. With
//! `--inline` ([`inline`]) the task of the request drives the connection itself. That costs less
//! per call, so that a gateway with the same design is not flattered by the cost of the pool.

mod inline;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use super::load::{Until, announce};

/// The options of the pass-through proxy.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct ProxyArgs {
    /// The server's endpoint, http:// only
    #[arg(value_name = "URL")]
    pub url: Uri,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The number of threads; one for each core if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Let the task of each request drive the connection to the server, without a pooled client
    #[arg(long)]
    pub inline: bool,
    /// Exit at the end of standard input
    #[arg(long, hide = true)]
    pub until_eof: bool,
}

pub(super) fn serve(args: &ProxyArgs) -> io::Result<()> {
    if args.url.scheme_str() != Some("http") {
        return Err(io::Error::other("the server's URL begins with http://"));
    }
    if args.inline { inline::serve(args) } else { serve_pooled(args) }
}

fn serve_pooled(args: &ProxyArgs) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = args.threads {
        builder.worker_threads(threads.into());
    }
    let runtime = builder.enable_all().build()?;
    let served = runtime.block_on(async {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        let pool = Client::builder(TokioExecutor::new()).build(tcp);
        serve_clients(args, async |client| {
            tokio::spawn(pass_pooled(client, pool.clone(), args.url.clone()));
        })
        .await
    });
    runtime.shutdown_background();
    served
}

async fn pass_pooled(client: TcpStream, pool: Client<HttpConnector, Incoming>, uri: Uri) {
    let pass = service_fn(move |mut request: Request<Incoming>| {
        *request.uri_mut() = uri.clone();
        pool.request(request)
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(client), pass).await;
}

/// Accepts clients until the server should end.
async fn serve_clients(
    args: &ProxyArgs,
    mut serve_client: impl AsyncFnMut(TcpStream),
) -> io::Result<()> {
    let listener = TcpListener::bind(args.listen).await?;
    announce(&listener)?;
    let accept = async {
        loop {
            let Ok((client, _)) = listener.accept().await else {
                // The process may be out of file descriptors: connections that end free some.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let _ = client.set_nodelay(true);
            serve_client(client).await;
        }
    };
    tokio::select! {
        () = accept => {}
        () = Until::of(args.until_eof).comes() => {}
    }
    Ok(())
}
