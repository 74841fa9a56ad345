//! A connection that reads as much HTTP/1.1 as a client of MCP meets.
//!
//! Bytes that were prepared go out in one write; of an answer's head a handful
//! of headers is looked at; a body that came in one piece is not copied. That
//! is all, because what the yardstick itself costs is missing in what it can
//! measure.

mod head;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::wire::{Piece, Stream};

pub use crate::wire::{Framed, Framing};
pub use head::{Head, Media};

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum WireFault {
    /// It broke.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// The server closed it in the middle of an answer.
    #[error("the server closed the connection")]
    Closed,
    /// The server closed it before it answered anything, perhaps before it was asked.
    #[error("the server closed the connection without an answer")]
    Unanswered,
    /// What came is no HTTP/1.1.
    #[error("the answer is not HTTP/1.1: {0}")]
    Http(httparse::Error),
    /// A chunked body breaks the rules of such.
    #[error("the answer's chunks are broken")]
    Chunk,
    /// An answer has more bytes than any should.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The bound.
        limit: usize,
    },
}

/// Where and how to connect.
#[derive(Clone)]
pub struct Dial {
    /// The server's address.
    pub address: SocketAddr,
    /// How TLS is spoken with it, and the name it has to prove.
    pub tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

/// An open connection.
pub struct Connection {
    stream: Stream<TcpStream>,
    input: BytesMut,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// What the system or the TLS handshake says.
    pub async fn open(dial: &Dial) -> io::Result<Self> {
        let stream = TcpStream::connect(dial.address).await?;
        stream.set_nodelay(true)?;
        let stream = match &dial.tls {
            None => Stream::Plain(stream),
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                Stream::Tls(Box::new(connector.connect(name.clone(), stream).await?))
            }
        };
        Ok(Self { stream, input: BytesMut::with_capacity(READ) })
    }

    /// Writes a whole request.
    ///
    /// # Errors
    /// [`WireFault::Unanswered`].
    pub async fn send(&mut self, request: &[u8]) -> Result<(), WireFault> {
        let stream = &mut self.stream;
        let sent = async {
            stream.write_all(request).await?;
            stream.flush().await
        };
        sent.await.map_err(|_: io::Error| WireFault::Unanswered)
    }

    /// Reads the head of the next response; passes over interim ones.
    ///
    /// # Errors
    /// [`WireFault`].
    pub async fn head(&mut self) -> Result<Head, WireFault> {
        loop {
            if !self.input.is_empty()
                && let Some((head, length)) = head::parse(&self.input)?
            {
                let _head = self.input.split_to(length);
                if head.status >= 200 {
                    return Ok(head);
                }
                continue;
            }
            match self.read(READ).await {
                Err(WireFault::Closed | WireFault::Io(_)) if self.input.is_empty() => {
                    return Err(WireFault::Unanswered);
                }
                read => read?,
            }
        }
    }

    /// Reads a body to its end.
    ///
    /// # Errors
    /// [`WireFault`].
    pub async fn whole(&mut self, head: &Head) -> Result<Bytes, WireFault> {
        if let Framing::Length(length) = head.framing {
            let length = bytes(length);
            if length > MOST_BODY {
                return Err(WireFault::TooLarge { limit: MOST_BODY });
            }
            while self.input.len() < length {
                let missing = length - self.input.len();
                self.read(missing).await?;
            }
            return Ok(self.input.split_to(length).freeze());
        }
        let mut body = Framed::new(head.framing);
        let mut whole = BytesMut::new();
        while let Some(piece) = self.piece(&mut body).await? {
            if whole.len() + piece.len() > MOST_BODY {
                return Err(WireFault::TooLarge { limit: MOST_BODY });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// Reads the next piece of a body; `None` at its end.
    ///
    /// # Errors
    /// [`WireFault`].
    ///
    /// # Cancel safety
    /// What was read is kept for the next time.
    pub async fn piece(&mut self, body: &mut Framed) -> Result<Option<Bytes>, WireFault> {
        loop {
            match body.next(&mut self.input).map_err(|_| WireFault::Chunk)? {
                Piece::Data(piece) => return Ok(Some(piece)),
                Piece::End => return Ok(None),
                Piece::More(missing) => match self.read(bytes(missing)).await {
                    Err(WireFault::Closed) if body.ends_with_connection() => return Ok(None),
                    read => read?,
                },
            }
        }
    }

    async fn read(&mut self, missing: usize) -> Result<(), WireFault> {
        self.input.reserve(missing.clamp(READ, MOST_READ));
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(WireFault::Closed),
            _ => Ok(()),
        }
    }
}

/// So many bytes, or more than there is room for.
fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// How much room there is for one read, at least.
const READ: usize = 8 * 1024;
/// How much room there is for one read, at most.
const MOST_READ: usize = 1024 * 1024;
/// The largest body that is read.
const MOST_BODY: usize = 256 * 1024 * 1024;
