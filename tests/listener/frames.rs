//! HTTP/2 as bytes, for clients that no library would implement.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::door::Door;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns the header block of `GET http://localhost` and this path, by the static table of HPACK.
pub fn request(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"localhost");
    block
}

/// Opens a connection, and sends the client's preface and empty settings.
pub async fn connect(door: &Door) -> TcpStream {
    connect_with(door, &[]).await
}

/// Opens a connection, and sends the client's preface and these settings.
pub async fn connect_with(door: &Door, settings: &[u8]) -> TcpStream {
    let mut socket = door.connect().await;
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    socket.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
    socket
}

/// Returns `SETTINGS_INITIAL_WINDOW_SIZE`: the bytes of each response that may be sent at first.
pub fn initial_window(bytes: u32) -> Vec<u8> {
    [&[0, 4][..], &bytes.to_be_bytes()].concat()
}

/// Returns a request without a body.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &request(path))
}

/// Returns a window update: more bytes of a response, or of all together (stream 0).
pub fn grant(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// Returns the kind and the stream of each complete frame in these bytes.
pub fn frame_heads(mut bytes: &[u8]) -> Vec<(u8, u32)> {
    let mut heads = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some((_, behind)) = rest.split_at_checked(length) else { break };
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        heads.push((head[3], stream));
        bytes = behind;
    }
    heads
}
