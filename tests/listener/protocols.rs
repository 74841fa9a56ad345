//! HTTP/1.1 and HTTP/2, in clear and over TLS, on one port.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};
use trunkline::{
    cli::cert,
    listener::{Certificates, ConnectionLimits, Settings, TlsFiles},
};

use crate::door::{Door, get, get_h2, h1_over, h2_over, read_to_close, text, within};

#[tokio::test]
async fn both_protocols_are_served_in_clear_on_one_port() {
    let door = Door::open(Settings::default()).await;
    let answer = door.h1().await.send_request(get("/")).await.unwrap();
    assert_eq!(text(answer).await, "HTTP/1.1 tls=false");
    let answer = door.h2().await.send_request(get_h2("/")).await.unwrap();
    assert_eq!(text(answer).await, "HTTP/2.0 tls=false");
}

#[tokio::test]
async fn a_preface_that_comes_byte_by_byte_is_still_http_2() {
    let door = Door::open(Settings::default()).await;
    let mut socket = door.connect().await;
    socket.set_nodelay(true).unwrap();
    let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
    let drip = tokio::spawn(async move {
        let (mut up_read, mut up_write) = tokio::io::split(&mut ours);
        let (mut down_read, mut down_write) = socket.split();
        let up = async {
            for _ in 0..3 {
                let byte = tokio::io::AsyncReadExt::read_u8(&mut up_read).await.unwrap();
                down_write.write_all(&[byte]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::io::copy(&mut up_read, &mut down_write).await
        };
        let _ = tokio::join!(up, tokio::io::copy(&mut down_read, &mut up_write));
    });
    let answer = h2_over(theirs).await.send_request(get_h2("/")).await.unwrap();
    assert_eq!(text(answer).await, "HTTP/2.0 tls=false");
    drip.abort();
}

#[tokio::test]
async fn both_protocols_are_served_over_tls_with_the_development_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(tls(dir.path(), ConnectionLimits::default())).await;
    for (alpn, wanted) in [
        (&[b"h2".as_slice(), b"http/1.1"][..], "HTTP/2.0 tls=true"),
        (&[b"http/1.1"], "HTTP/1.1 tls=true"),
        (&[], "HTTP/1.1 tls=true"),
    ] {
        let stream = dial(&door, dir.path(), alpn).await.unwrap();
        let answer = if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            h2_over(stream).await.send_request(get_h2("/")).await
        } else {
            h1_over(stream).await.send_request(get("/")).await
        };
        assert_eq!(text(answer.unwrap()).await, wanted);
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections_and_open_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(tls(dir.path(), ConnectionLimits::default())).await;
    let mut old = h1_over(dial(&door, dir.path(), &[]).await.unwrap()).await;
    text(old.send_request(get("/")).await.unwrap()).await;

    let renewed = tls(dir.path(), ConnectionLimits::default());
    assert!(dial(&door, dir.path(), &[]).await.is_err(), "the old one is signed by a lost CA");
    door.live.publish(renewed);

    dial(&door, dir.path(), &[]).await.unwrap();
    assert_eq!(text(old.send_request(get("/")).await.unwrap()).await, "HTTP/1.1 tls=true");
}

#[tokio::test]
async fn a_tls_client_that_stops_before_or_after_the_handshake_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let handshake = Duration::from_secs(1);
    let limits = ConnectionLimits { handshake, ..ConnectionLimits::default() };
    let door = Door::open(tls(dir.path(), limits)).await;
    for start in ["", "\x16", "GET / HTTP/1.1\r\n\r\n"] {
        let mut socket = door.connect().await;
        socket.write_all(start.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut bytes);
        let _ = crate::door::within(read).await;
    }
    let mut stream = dial(&door, dir.path(), &[]).await.unwrap();
    assert_eq!(read_to_close(&mut stream).await, "");
}

fn tls(dir: &Path, limits: ConnectionLimits) -> Settings {
    issue(dir);
    let files = TlsFiles {
        cert: dir.join("server.pem"),
        key: dir.join("server.key"),
        client_ca: None,
        client_certificates: trunkline::config::ClientCertificates::Optional,
    };
    let tls = Some(Certificates::load(&files).unwrap());
    Settings { limits, tls, ..Settings::default() }
}

fn issue(dir: &Path) {
    let args = cert::CertArgs { dir: dir.to_owned(), force: true, ..cert::CertArgs::default() };
    cert::write_certificates(&args, &mut std::io::sink()).unwrap();
}

async fn dial(door: &Door, dir: &Path, alpn: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|it| it.to_vec()).collect();
    let socket = door.connect().await;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
}

/// Posts pieces of a body over HTTP/2 to a path that answers without reading it. Returns the number
/// of pieces that were accepted after the answer, at most `pieces`.
async fn post_behind_the_answer(door: &Door, pieces: usize) -> usize {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver
            .recv()
            .await
            .map(|piece: Bytes| (Ok::<_, Infallible>(Frame::data(piece)), receiver))
    });
    let io = TokioIo::new(door.connect().await);
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (mut client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://localhost/none").body(StreamBody::new(Box::pin(frames)));
    let sending = client.send_request(request.unwrap());
    let piece = Bytes::from_static(&[0; 1024]);
    sender.send(piece.clone()).await.unwrap();
    let response = within(sending).await.unwrap();
    assert_eq!(response.status(), 204);
    assert_eq!(text(response).await, "");
    let mut taken = 0;
    while taken < pieces && within(sender.send(piece.clone())).await.is_ok() {
        taken += 1;
    }
    taken
}

#[tokio::test]
async fn an_early_answer_over_http_2_resets_no_small_body() {
    let door = Door::open(Settings::default()).await;
    for _ in 0..20 {
        assert_eq!(post_behind_the_answer(&door, 40).await, 40);
    }
    // Of an endless body, the listener accepts no more than 64 KiB and the contents of the windows.
    assert!(post_behind_the_answer(&door, 100_000).await < 2000);
}
