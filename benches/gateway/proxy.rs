//! The least that an HTTP proxy on hyper does: a pooled connection to the
//! server, bodies passed on as they come, nothing looked at.

use std::net::SocketAddr;

use http::Uri;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

pub fn run(server: SocketAddr) {
    // As many threads as the gateway has.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        let pool: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(tcp);
        let uri: Uri = format!("http://{server}/mcp").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        tokio::select! {
            () = serve(listener, pool, uri) => {}
            () = crate::mock::told_to_end() => {}
        }
    });
}

async fn serve(listener: TcpListener, pool: Client<HttpConnector, Incoming>, uri: Uri) {
    while let Ok((socket, _)) = listener.accept().await {
        socket.set_nodelay(true).unwrap();
        let (pool, uri) = (pool.clone(), uri.clone());
        tokio::spawn(async move {
            let pass = service_fn(move |mut request: http::Request<Incoming>| {
                *request.uri_mut() = uri.clone();
                pool.request(request)
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), pass).await;
        });
    }
}
