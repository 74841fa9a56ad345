//! One connection: HTTP/1.1 or HTTP/2, in clear or over TLS.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// Trusted roots of a TLS client, and its own certificate.
#[derive(Clone)]
pub struct Trust(Arc<RootCertStore>, Option<Arc<ShownCertificate>>);

/// A client certificate and its private key, both in DER.
pub type ShownCertificate = (CertificateDer<'static>, Vec<u8>);

impl Trust {
    /// Trusts the certificates of one CA file.
    pub fn ca(path: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(path).unwrap()).unwrap();
        Self(Arc::new(roots), None)
    }

    /// Adds a client certificate.
    pub fn showing(self, certificate: ShownCertificate) -> Self {
        Self(self.0, Some(Arc::new(certificate)))
    }
}

pub enum Wire {
    One(http1::SendRequest<Full<Bytes>>, String),
    Two(http2::SendRequest<Full<Bytes>>, String),
}

impl Wire {
    pub async fn connect(
        address: SocketAddr,
        protocol: Protocol,
        trust: Option<Trust>,
    ) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        match trust {
            None => Self::over(socket, protocol, format!("http://{address}")).await,
            Some(trust) => {
                let stream = dial(socket, protocol, trust).await?;
                let origin = format!("https://localhost:{}", address.port());
                Self::over(stream, protocol, origin).await
            }
        }
    }

    /// Connects to a Unix socket, over HTTP/1.1.
    pub async fn connect_socket(path: &Path) -> io::Result<Self> {
        let socket = UnixStream::connect(path).await?;
        Self::over(socket, Protocol::Http1, "http://localhost".to_owned()).await
    }

    async fn over<I>(io: I, protocol: Protocol, origin: String) -> io::Result<Self>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(io);
        match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await.map_err(io::Error::other)?;
                tokio::spawn(connection);
                Ok(Self::One(sender, origin))
            }
            Protocol::Http2 => {
                let handshake = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, connection) = handshake.map_err(io::Error::other)?;
                tokio::spawn(connection);
                Ok(Self::Two(sender, origin))
            }
        }
    }

    pub fn is_closed(&self) -> bool {
        match self {
            Self::One(sender, _) => sender.is_closed(),
            Self::Two(sender, _) => sender.is_closed(),
        }
    }

    /// Returns true if requests can run concurrently.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Two(..))
    }

    pub fn share(&self) -> Self {
        match self {
            Self::One(..) => panic!("HTTP/1.1 carries one request at a time"),
            Self::Two(sender, origin) => Self::Two(sender.clone(), origin.clone()),
        }
    }

    pub async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
        path: &str,
    ) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::One(sender, origin) => {
                let host = origin.split_once("://").unwrap().1.to_owned();
                *request.uri_mut() = path.parse().unwrap();
                let headers = request.headers_mut();
                headers.entry(header::HOST).or_insert_with(|| host.parse().unwrap());
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Two(sender, origin) => {
                *request.uri_mut() = format!("{origin}{path}").parse::<Uri>().unwrap();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// Performs a TLS handshake that offers one protocol.
pub async fn dial(
    socket: TcpStream,
    protocol: Protocol,
    trust: Trust,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(trust.0);
    let mut config = match trust.1 {
        None => config.with_no_client_auth(),
        Some(shown) => {
            let key = PrivatePkcs8KeyDer::from(shown.1.clone()).into();
            config.with_client_auth_cert(vec![shown.0.clone()], key).unwrap()
        }
    };
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
}
