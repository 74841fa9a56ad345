//! Records as syslog messages of RFC 5424, over a local socket, UDP or TCP.
//!
//! Implemented here because a message is one line of text: the crates for syslog bring a logger of
//! their own, and leave timeouts and reconnection to their users.

use std::fmt;
use std::io::{self, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use trunkline_core::clock;

use super::record::format_time;

/// Address of a syslog receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogAddress {
    /// A local socket, such as `/dev/log`.
    Unix(PathBuf),
    /// `HOST:PORT`, one datagram for each message; losses are not noticed.
    Udp(String),
    /// `HOST:PORT`, each message prefixed with its length (RFC 6587, 3.4.1).
    Tcp(String),
}

/// The address as the configuration writes it.
impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Udp(host) => write!(f, "udp://{host}"),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

/// A connection to a receiver.
#[derive(Debug)]
pub(super) struct SyslogConnection {
    address: SyslogAddress,
    open: Option<SyslogSocket>,
}

#[derive(Debug)]
enum SyslogSocket {
    Datagram(UnixDatagram),
    Stream(UnixStream),
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl SyslogConnection {
    pub(super) fn new(address: SyslogAddress) -> Self {
        Self { address, open: None }
    }

    /// Connects to the receiver, unless the connection is open. UDP sends nothing, so that it finds
    /// only faults of the address.
    pub(super) fn open(&mut self) -> io::Result<()> {
        if !self.open.as_ref().is_some_and(SyslogSocket::is_alive) {
            self.open = None;
            self.open = Some(SyslogSocket::connect(&self.address)?);
        }
        Ok(())
    }

    /// Sends a record as one message.
    pub(super) fn send_record(&mut self, record: &[u8]) -> io::Result<()> {
        let mut socket = match self.open.take() {
            Some(socket) if socket.is_alive() => socket,
            _ => SyslogSocket::connect(&self.address)?,
        };
        // A failure may leave half a message, so that the connection is not reused after it.
        socket.send(&write_message(record))?;
        self.open = Some(socket);
        Ok(())
    }
}

impl SyslogSocket {
    fn connect(address: &SyslogAddress) -> io::Result<Self> {
        match address {
            SyslogAddress::Unix(path) => {
                let datagram = UnixDatagram::unbound()?;
                match datagram.connect(path) {
                    Ok(()) => {
                        datagram.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
                        Ok(Self::Datagram(datagram))
                    }
                    Err(error) if error.raw_os_error() == Some(WRONG_TYPE) => {
                        let stream = UnixStream::connect(path)?;
                        stream.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
                        Ok(Self::Stream(stream))
                    }
                    Err(error) => Err(error),
                }
            }
            SyslogAddress::Udp(host) => {
                let receiver = resolve(host)?;
                let own = if receiver.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(own)?;
                socket.connect(receiver)?;
                socket.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
                Ok(Self::Udp(socket))
            }
            SyslogAddress::Tcp(host) => {
                let stream = TcpStream::connect_timeout(&resolve(host)?, SYSLOG_TIMEOUT)?;
                stream.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    /// Returns true while the receiver keeps the connection open. Later writes would be lost
    /// without an error.
    fn is_alive(&self) -> bool {
        let look = |stream: &mut dyn io::Read, nonblocking: &dyn Fn(bool) -> io::Result<()>| {
            let looked = nonblocking(true).and_then(|()| stream.read(&mut [0; 64]));
            let restored = nonblocking(false).is_ok();
            restored
                && match looked {
                    Ok(read) => read > 0,
                    Err(error) => error.kind() == io::ErrorKind::WouldBlock,
                }
        };
        match self {
            Self::Datagram(_) | Self::Udp(_) => true,
            Self::Stream(stream) => look(&mut &*stream, &|on| stream.set_nonblocking(on)),
            Self::Tcp(stream) => look(&mut &*stream, &|on| stream.set_nonblocking(on)),
        }
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Datagram(socket) => socket.send(message).map(drop),
            Self::Udp(socket) => socket.send(message).map(drop),
            // On a local stream, line ends separate messages; a record contains none.
            Self::Stream(stream) => stream.write_all(&[message, b"\n"].concat()),
            Self::Tcp(stream) => {
                let length = format!("{} ", message.len());
                stream.write_all(&[length.as_bytes(), message].concat())
            }
        }
    }
}

/// Formats a message by RFC 5424, section 6: the header, no structured data, and the record.
fn write_message(record: &[u8]) -> Vec<u8> {
    let time = format_time(clock::wall_now());
    let header = format!("<{SYSLOG_PRIORITY}>1 {time} - trunkline {} audit - ", process::id());
    [header.as_bytes(), record].concat()
}

fn resolve(host: &str) -> io::Result<std::net::SocketAddr> {
    host.to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))
}

/// Facility 13 (log audit), severity 6 (informational).
const SYSLOG_PRIORITY: u8 = 13 * 8 + 6;
/// Time limit for connecting and sending.
const SYSLOG_TIMEOUT: Duration = Duration::from_secs(5);
/// `EPROTOTYPE`: the socket is a stream.
const WRONG_TYPE: i32 = rustix::io::Errno::PROTOTYPE.raw_os_error();
