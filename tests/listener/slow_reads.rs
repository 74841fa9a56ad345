//! HTTP/2 clients that request much and read none of it. The client's flow control decides when
//! data is sent, so the gateway bounds the data that it holds until then, and the time.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trunkline::listener::{ConnectionLimits, Settings};

use crate::door::{Door, Event, get_h2, settled, within};
use crate::frames::{
    DATA, HEADERS, RST_STREAM, connect_with, frame_heads, get, grant, initial_window,
};

/// Maximum number of open streams of a client.
const STREAMS: u32 = 128;
const WIDEST: u32 = (1 << 31) - 1;

/// Opens a client that requests an endless response on every stream, with this window for each.
async fn ask_for_floods(door: &Door, window: u32) -> TcpStream {
    let mut socket = connect_with(door, &initial_window(window)).await;
    if window == WIDEST {
        socket.write_all(&grant(0, WIDEST - 65_535)).await.unwrap();
    }
    for stream in 0..STREAMS {
        socket.write_all(&get(stream * 2 + 1, "/flood")).await.unwrap();
        assert_eq!(door.event().await, Event::Entered);
    }
    socket
}

#[tokio::test]
async fn unread_responses_are_held_within_bounds_and_others_are_served() {
    const KIB: usize = 1024;
    let streams = STREAMS as usize;
    for (window, most) in [
        // A piece of each response.
        (0, streams * 4 * KIB),
        // In addition, the bytes that the connection's own window lets through.
        (65_535, streams * 4 * KIB + 64 * KIB + streams * 68 * KIB),
        // Never read: the kernel's buffers, and the buffer of each response.
        (WIDEST, 16 * KIB * KIB + streams * 68 * KIB),
    ] {
        let door = Door::open(Settings::default()).await;
        let _socket = ask_for_floods(&door, window).await;
        // The listener takes no more of the responses.
        let taken = settled(&door.flooded).await;
        assert!(taken <= most, "window {window}: {taken} bytes are held, at most {most} may be");
        let answer = within(door.h2().await.send_request(get_h2("/"))).await.unwrap();
        assert_eq!(answer.status(), 200, "another client is served");
    }
}

#[tokio::test]
async fn a_response_that_its_client_leaves_unread_is_reset() {
    for window in [0, 65_535] {
        let stall = Duration::from_millis(500);
        let door = Door::with(ConnectionLimits { stall, ..ConnectionLimits::default() }).await;
        let mut socket = connect_with(&door, &initial_window(window)).await;
        socket.write_all(&get(1, "/flood")).await.unwrap();
        assert_eq!(door.event().await, Event::Entered);
        // It reads its socket, so that the kernel detects no fault.
        let mut seen = Vec::new();
        while !frame_heads(&seen).contains(&(RST_STREAM, 1)) {
            assert_ne!(within(socket.read_buf(&mut seen)).await.unwrap(), 0, "window {window}");
        }
        assert_eq!(door.event().await, Event::Dropped, "window {window}");
    }
}

#[tokio::test]
async fn the_end_of_a_response_that_is_left_unread_is_reset_too() {
    let stall = Duration::from_millis(500);
    let door = Door::with(ConnectionLimits { stall, ..ConnectionLimits::default() }).await;
    // Enough for the beginning of a response in one piece.
    let mut socket = connect_with(&door, &initial_window(1)).await;
    socket.write_all(&get(1, "/large")).await.unwrap();
    assert_eq!(door.event().await, Event::Entered);
    let mut seen = Vec::new();
    while !frame_heads(&seen).contains(&(RST_STREAM, 1)) {
        assert_ne!(within(socket.read_buf(&mut seen)).await.unwrap(), 0, "not closed");
    }
}

#[tokio::test]
async fn a_client_that_leaves_one_response_unread_keeps_those_that_it_reads() {
    // Much longer than the pause between two grants, also on a busy machine.
    let stall = Duration::from_secs(2);
    let door = Door::with(ConnectionLimits { stall, ..ConnectionLimits::default() }).await;
    let mut socket = connect_with(&door, &initial_window(0)).await;
    for (stream, path) in [(1, "/flood"), (3, "/flood"), (5, "/stream"), (7, "/hold")] {
        socket.write_all(&get(stream, path)).await.unwrap();
        assert_eq!(door.event().await, Event::Entered);
    }
    // The first stream never gets a grant, and the third is complete.
    socket.write_all(&grant(5, 1000)).await.unwrap();
    let mut seen = Vec::new();
    let resets = |seen: &[u8]| -> Vec<_> {
        frame_heads(seen).into_iter().filter(|(kind, _)| *kind == RST_STREAM).collect()
    };
    // All streams began together, so that others would be reset at the same time.
    let mut rounds_since = 0;
    while rounds_since < 3 {
        rounds_since += usize::from(!resets(&seen).is_empty());
        socket.write_all(&grant(3, 4096)).await.unwrap();
        socket.write_all(&grant(0, 4096)).await.unwrap();
        assert_ne!(within(socket.read_buf(&mut seen)).await.unwrap(), 0, "it is not closed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(resets(&seen), [(RST_STREAM, 1)]);
    assert_eq!(door.counts.open.value(), 1);
}

#[tokio::test]
async fn responses_that_are_left_unread_hold_so_many_bytes_and_no_more() {
    // Ten responses of 64 KiB.
    let few = ConnectionLimits { unread: 640 * 1024, ..ConnectionLimits::default() };
    let own = ConnectionLimits { unread_each: 640 * 1024, ..ConnectionLimits::default() };
    for limits in [few, own] {
        let door = Door::with(limits).await;
        let mut socket = connect_with(&door, &initial_window(0)).await;
        for stream in 0..12 {
            socket.write_all(&get(stream * 2 + 1, "/large")).await.unwrap();
            assert_eq!((door.event().await, door.event().await), (Event::Entered, Event::Dropped));
        }
        let mut seen = Vec::new();
        let resets = |seen: &[u8]| {
            frame_heads(seen).into_iter().filter(|(kind, _)| *kind == RST_STREAM).count()
        };
        while resets(&seen) < 2 {
            assert_ne!(within(socket.read_buf(&mut seen)).await.unwrap(), 0, "not closed");
        }
    }
}

#[tokio::test]
async fn ends_that_are_left_unread_keep_no_idle_connection_open() {
    let limits = ConnectionLimits { idle: Duration::from_millis(500), ..short_streams(4) };
    let door = Door::with(limits).await;
    let mut socket = connect_with(&door, &initial_window(1)).await;
    for stream in [1, 3, 5, 7] {
        socket.write_all(&get(stream, "/")).await.unwrap();
    }
    // Its end is held in memory, without a waiting task.
    let mut seen = Vec::new();
    while within(socket.read_buf(&mut seen)).await.is_ok_and(|read| read > 0) {}
    let answered = frame_heads(&seen).into_iter().filter(|(kind, _)| *kind == HEADERS).count();
    assert_eq!(answered, 4);
    assert!(!frame_heads(&seen).iter().any(|(kind, _)| *kind == RST_STREAM), "{seen:?}");
}

#[tokio::test]
async fn ends_that_are_left_unread_count_among_the_streams_of_their_connection() {
    let door = Door::with(short_streams(4)).await;
    let mut socket = connect_with(&door, &initial_window(1)).await;
    for stream in [1, 3, 5, 7, 9] {
        socket.write_all(&get(stream, "/")).await.unwrap();
    }
    let mut seen = Vec::new();
    read_until(&mut socket, &mut seen, |frames| frames.contains(&(RST_STREAM, 9))).await;
    // The client reads the end of one, and has room for another.
    let ends = |frames: &[(u8, u32)]| frames.iter().filter(|it| **it == (DATA, 1)).count();
    let before = ends(&frame_heads(&seen));
    socket.write_all(&grant(1, 1000)).await.unwrap();
    read_until(&mut socket, &mut seen, |frames| ends(frames) > before).await;
    socket.write_all(&get(11, "/")).await.unwrap();
    read_until(&mut socket, &mut seen, |frames| frames.contains(&(HEADERS, 11))).await;
}

/// Reads until the received frames satisfy a condition.
async fn read_until(
    socket: &mut TcpStream,
    seen: &mut Vec<u8>,
    are_so: impl Fn(&[(u8, u32)]) -> bool,
) {
    while !are_so(&frame_heads(seen)) {
        assert_ne!(within(socket.read_buf(seen)).await.unwrap(), 0, "not closed");
    }
}

/// Returns limits with this many streams for each connection.
fn short_streams(most: u32) -> ConnectionLimits {
    ConnectionLimits { h2_streams: most, ..ConnectionLimits::default() }
}
