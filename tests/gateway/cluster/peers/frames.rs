//! HTTP/2 frames, written by hand: for a peer that does things that a library does not.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection of frames.
pub struct Frames(TcpStream);

/// One frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// Kinds of frames (RFC 9113, 6).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

/// The flag of an answer to SETTINGS or PING, and of the last frame of a stream.
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

impl Frame {
    pub fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self { kind, flags, stream, payload: payload.into() }
    }

    /// The head of a GET with one header.
    pub fn get(stream: u32, header: (&str, &str)) -> Self {
        // Indices of the static table (RFC 7541, A): GET, https.
        let mut block = vec![0x82, 0x87];
        for (name, value) in [(":path", "/mcp"), (":authority", "localhost"), header] {
            block.push(0);
            write_text(name, &mut block);
            write_text(value, &mut block);
        }
        Self::new(HEADERS, END_STREAM | END_HEADERS, stream, block)
    }

    /// The head of a response with status 200.
    pub fn ok(stream: u32) -> Self {
        Self::new(HEADERS, END_HEADERS, stream, [0x88])
    }

    pub fn reset(stream: u32) -> Self {
        const CANCEL: u32 = 8;
        Self::new(RST_STREAM, 0, stream, CANCEL.to_be_bytes())
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let length = u32::try_from(self.payload.len()).unwrap().to_be_bytes();
        bytes.extend(&length[1..]);
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
    }
}

/// Writes a text without Huffman coding (RFC 7541, 5.2).
fn write_text(text: &str, block: &mut Vec<u8>) {
    let mut length = text.len();
    if length < 127 {
        block.push(length as u8);
    } else {
        block.push(127);
        length -= 127;
        while length >= 128 {
            block.push((length % 128) as u8 | 128);
            length /= 128;
        }
        block.push(length as u8);
    }
    block.extend(text.as_bytes());
}

impl Frames {
    /// Connects as a client.
    pub async fn connect(address: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(PREFACE).await.unwrap();
        let mut frames = Self(socket);
        frames.send(&[Frame::new(SETTINGS, 0, 0, [])]).await;
        frames
    }

    /// Accepts a client.
    pub async fn accept(mut socket: TcpStream) -> Self {
        let mut preface = [0; PREFACE.len()];
        socket.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface[..], PREFACE);
        let mut frames = Self(socket);
        frames.send(&[Frame::new(SETTINGS, 0, 0, [])]).await;
        frames
    }

    /// Sends frames at once. A peer that has closed the connection is seen by the next read.
    pub async fn send(&mut self, frames: &[Frame]) {
        let mut bytes = Vec::new();
        for frame in frames {
            frame.write(&mut bytes);
        }
        let _ = self.0.write_all(&bytes).await;
    }

    /// Returns the next frame; `None` at the end. Answers settings and pings.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let frame = Frame { kind: head[3], flags: head[4], stream, payload };
            match frame.kind {
                SETTINGS | PING if frame.flags & ACK == 0 => {
                    let payload = if frame.kind == PING { frame.payload } else { Vec::new() };
                    self.send(&[Frame::new(frame.kind, ACK, 0, payload)]).await;
                }
                _ => return Some(frame),
            }
        }
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
