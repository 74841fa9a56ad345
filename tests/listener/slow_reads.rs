//! HTTP/2 clients that ask for much and take none of it. The client's flow control decides when it is
//! sent, so the gateway bounds what it holds until then, and for how long.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trunkline::listener::{ConnectionLimits, Settings};

use crate::door::{Door, Event, get_h2, within};
use crate::frames::{connect_with, get, grant, initial_window};

/// As many as a client may have open.
const STREAMS: u32 = 128;
const WIDEST: u32 = (1 << 31) - 1;

/// A client that asks for a response without end on every stream, with so much window for each.
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

/// How many bytes the listener has taken of the responses, once it takes no more.
async fn taken_at_rest(door: &Door) -> usize {
    within(async {
        let mut before = usize::MAX;
        loop {
            let taken = door.flooded.load(Relaxed);
            if taken == before {
                return taken;
            }
            before = taken;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
    .await
}

#[tokio::test]
async fn what_a_client_does_not_take_is_held_within_bounds_and_others_are_served() {
    const KIB: usize = 1024;
    let streams = STREAMS as usize;
    for (window, most) in [
        // A piece of each response.
        (0, streams * 4 * KIB),
        // What the connection's own window lets through, besides.
        (65_535, streams * 4 * KIB + 64 * KIB + streams * 68 * KIB),
        // Never read: what the kernel holds, and the buffer of each response.
        (WIDEST, 16 * KIB * KIB + streams * 68 * KIB),
    ] {
        let door = Door::open(Settings::default()).await;
        let _socket = ask_for_floods(&door, window).await;
        let taken = taken_at_rest(&door).await;
        assert!(taken <= most, "window {window}: {taken} bytes are held, at most {most} may be");
        let answer = within(door.h2().await.send_request(get_h2("/"))).await.unwrap();
        assert_eq!(answer.status(), 200, "another client is served");
    }
}

#[tokio::test]
async fn a_client_that_grants_no_window_is_cut() {
    for window in [0, 65_535] {
        let stall = Duration::from_millis(500);
        let door = Door::with(ConnectionLimits { stall, ..ConnectionLimits::default() }).await;
        let mut socket = connect_with(&door, &initial_window(window)).await;
        socket.write_all(&get(1, "/flood")).await.unwrap();
        assert_eq!(door.event().await, Event::Entered);
        // It reads its socket, so that the kernel finds nothing wrong with it.
        let reading = async {
            let mut bytes = [0; 4096];
            while !matches!(socket.read(&mut bytes).await, Ok(0) | Err(_)) {}
        };
        within(reading).await;
        assert_eq!(door.event().await, Event::Dropped, "window {window}");
    }
}

#[tokio::test]
async fn a_client_that_takes_a_little_now_and_then_is_not_cut() {
    let stall = Duration::from_millis(600);
    let door = Door::with(ConnectionLimits { stall, ..ConnectionLimits::default() }).await;
    let mut socket = connect_with(&door, &initial_window(0)).await;
    for (stream, path) in [(1, "/flood"), (3, "/flood"), (5, "/stream"), (7, "/hold")] {
        socket.write_all(&get(stream, path)).await.unwrap();
        assert_eq!(door.event().await, Event::Entered);
    }
    // The first is never granted anything, and the third has no more to say.
    socket.write_all(&grant(5, 1000)).await.unwrap();
    let mut seen = [0; 16 * 1024];
    let began = Instant::now();
    while began.elapsed() < stall * 4 {
        socket.write_all(&grant(3, 4096)).await.unwrap();
        socket.write_all(&grant(0, 4096)).await.unwrap();
        assert_ne!(within(socket.read(&mut seen)).await.unwrap(), 0, "after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(door.counts.open.value(), 1);
}
