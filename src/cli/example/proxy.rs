//! `trunkline example proxy`: the least that an HTTP proxy on hyper does. A
//! pooled connection to the server, bodies passed on as they come, nothing
//! looked at: what a gateway costs is told beside it.

use std::io;
use std::net::SocketAddr;

use http::{Request, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::load::{Until, announce};

/// Where it leads.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Args {
    /// The server's endpoint, http:// only
    #[arg(value_name = "URL")]
    pub url: Uri,
    /// Listen here
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// On how many threads; without it one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// End with standard input
    #[arg(long, hide = true)]
    pub until_eof: bool,
}

type Pool = Client<HttpConnector, Incoming>;

pub(super) fn serve(args: &Args) -> io::Result<()> {
    if args.url.scheme_str() != Some("http") {
        return Err(io::Error::other("the server's URL begins with http://"));
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = args.threads {
        builder.worker_threads(threads.into());
    }
    let runtime = builder.enable_all().build()?;
    let served = runtime.block_on(async {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        let pool: Pool = Client::builder(TokioExecutor::new()).build(tcp);
        let listener = TcpListener::bind(args.listen).await?;
        announce(&listener)?;
        tokio::select! {
            () = accept(listener, pool, args.url.clone()) => {}
            () = Until::of(args.until_eof).comes() => {}
        }
        Ok(())
    });
    runtime.shutdown_background();
    served
}

async fn accept(listener: TcpListener, pool: Pool, uri: Uri) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = socket.set_nodelay(true);
        let (pool, uri) = (pool.clone(), uri.clone());
        tokio::spawn(async move {
            let pass = service_fn(move |mut request: Request<Incoming>| {
                *request.uri_mut() = uri.clone();
                pool.request(request)
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), pass).await;
        });
    }
}
