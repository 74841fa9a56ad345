//! HTTP/2 clients that flood with frames. Their connection ends or is slowed down, and other
//! clients are not affected.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use trunkline::listener::Settings;

use crate::door::{Door, get_h2, within};
use crate::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, connect,
    frame, frame_heads, request,
};

/// Writes these frames repeatedly. Returns true if the listener ended the connection before all
/// frames were written and read.
async fn is_ended_by(door: &Door, frames: impl Fn(u32) -> Vec<u8>, times: u32) -> bool {
    let (mut read, mut write) = connect(door).await.into_split();
    let writing = async move {
        for turn in 0..times {
            if write.write_all(&frames(turn)).await.is_err() {
                break;
            }
        }
        write
    };
    let reading = async move {
        let mut seen = Vec::new();
        let mut piece = [0; 512];
        loop {
            match read.read(&mut piece).await {
                Ok(0) | Err(_) => return true,
                Ok(length) => seen.extend(&piece[..length]),
            }
            if frame_heads(&seen).iter().any(|(kind, _)| *kind == GOAWAY) {
                return true;
            }
        }
    };
    let both = async {
        let (write, ended) = tokio::join!(writing, timeout(Duration::from_secs(10), reading));
        drop(write);
        ended.unwrap_or(false)
    };
    within(both).await
}

async fn serves_others(door: &Door) {
    let answer = within(door.h2().await.send_request(get_h2("/"))).await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let door = Door::open(Settings::default()).await;
    let request_and_reset = |turn: u32| {
        let stream = turn * 2 + 1;
        let mut frames = frame(HEADERS, END_STREAM | END_HEADERS, stream, &request("/hold"));
        frames.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        frames
    };
    assert!(is_ended_by(&door, request_and_reset, 20_000).await);
    serves_others(&door).await;
}

#[tokio::test]
async fn headers_that_never_end_end_the_connection() {
    let door = Door::open(Settings::default()).await;
    // A header's name and value, without indexing, 16 KiB of them in each frame, or an empty frame.
    let mut line = vec![0x00, 1, b'x', 127, 0];
    line.extend([b'y'; 127]);
    for payload in [line.repeat(100), Vec::new()] {
        let continued = |turn: u32| match turn {
            0 => frame(HEADERS, END_STREAM, 1, &request("/hold")),
            _ => frame(CONTINUATION, 0, 1, &payload),
        };
        assert!(is_ended_by(&door, continued, 20_000).await, "{} bytes", payload.len());
        serves_others(&door).await;
    }
}

#[tokio::test]
async fn settings_and_pings_with_unread_answers_are_slowed_down() {
    let door = Door::open(Settings::default()).await;
    for flood in [frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, &[0; 8])] {
        let mut socket = connect(&door).await;
        // Far more than the sockets hold: a server that kept every answer would accept all of it.
        let many = flood.repeat(10_000);
        let mut taken = 0;
        let writing = async {
            while taken < MUCH {
                socket.write_all(&many).await?;
                taken += many.len();
            }
            std::io::Result::Ok(())
        };
        let outcome = timeout(Duration::from_secs(3), writing).await;
        assert!(matches!(outcome, Err(_) | Ok(Err(_))), "{taken} bytes were taken");
        serves_others(&door).await;
    }
}

/// Far more than two sockets on loopback hold.
const MUCH: usize = 256 << 20;
