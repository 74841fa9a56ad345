//! Records as syslog messages of RFC 5424, to a socket of this machine, by UDP or by TCP.
//!
//! Written here because it is one line of text: the crates for it bring a logger of their own, and
//! leave timeouts and reconnection to their users.

use std::io::{self, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use super::record::format_time;
use crate::clock;

/// A syslog receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogAddress {
    /// A socket of this machine, such as `/dev/log`.
    Unix(PathBuf),
    /// `HOST:PORT`, one datagram for each message: lost ones are not noticed.
    Udp(String),
    /// `HOST:PORT`, each message with its length before it (RFC 6587, 3.4.1).
    Tcp(String),
}

/// A connection to a receiver, opened when it is needed.
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

    /// Sends a record as one message.
    pub(super) fn send_record(&mut self, record: &[u8]) -> io::Result<()> {
        let mut socket = match self.open.take() {
            Some(socket) if socket.is_alive() => socket,
            _ => SyslogSocket::connect(&self.address)?,
        };
        // After a failure, which may have left half a message, the connection is not used again.
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
                        datagram.set_write_timeout(Some(PATIENCE))?;
                        Ok(Self::Datagram(datagram))
                    }
                    Err(error) if error.raw_os_error() == Some(WRONG_TYPE) => {
                        let stream = UnixStream::connect(path)?;
                        stream.set_write_timeout(Some(PATIENCE))?;
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
                socket.set_write_timeout(Some(PATIENCE))?;
                Ok(Self::Udp(socket))
            }
            SyslogAddress::Tcp(host) => {
                let stream = TcpStream::connect_timeout(&resolve(host)?, PATIENCE)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    /// Whether the receiver has not closed the connection: what is written after that is lost
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
            // A local stream separates messages by line ends; a record contains none.
            Self::Stream(stream) => stream.write_all(&[message, b"\n"].concat()),
            Self::Tcp(stream) => {
                let length = format!("{} ", message.len());
                stream.write_all(&[length.as_bytes(), message].concat())
            }
        }
    }
}

/// RFC 5424, section 6: the header, no structured data, and the record.
fn write_message(record: &[u8]) -> Vec<u8> {
    let time = format_time(clock::wall_now());
    let header = format!("<{PRIORITY}>1 {time} - trunkline {} audit - ", process::id());
    [header.as_bytes(), record].concat()
}

fn resolve(host: &str) -> io::Result<std::net::SocketAddr> {
    host.to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))
}

/// Facility 13 (log audit), severity 6 (informational).
const PRIORITY: u8 = 13 * 8 + 6;
/// How long connecting and sending may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// `EPROTOTYPE`: the socket is a stream.
const WRONG_TYPE: i32 = rustix::io::Errno::PROTOTYPE.raw_os_error();
