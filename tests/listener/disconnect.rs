//! A client that disconnects cancels its request.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use trunkline::listener::{ConnectionLimits, Settings};

use crate::door::{Door, Event, get, get_h2, h2_over, within};

#[tokio::test]
async fn closing_an_http_1_connection_drops_the_request_and_the_stream() {
    let door = Door::open(Settings::default()).await;
    for path in ["/hold", "/stream"] {
        let mut client = door.h1().await;
        let mut asked = Box::pin(client.send_request(get(path)));
        let entered = tokio::select! {
            event = door.event() => event,
            answer = &mut asked => { drop(answer); door.event().await }
        };
        assert_eq!(entered, Event::Entered);
        drop(asked);
        drop(client);
        assert_eq!(door.event().await, Event::Dropped, "{path}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_that_stops_reading_is_cut() {
    let stall = Duration::from_millis(500);
    let door = Door::with(ConnectionLimits { stall, ..ConnectionLimits::default() }).await;
    let mut socket = door.connect().await;
    socket.write_all(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!((door.event().await, door.event().await), (Event::Entered, Event::Dropped));
}

#[tokio::test]
async fn resetting_an_http_2_stream_drops_its_request_and_no_other() {
    let door = Door::open(Settings::default()).await;
    let mut client = door.h2().await;
    let other = tokio::spawn(client.send_request(get_h2("/hold")));
    assert_eq!(door.event().await, Event::Entered);

    let asked = tokio::spawn(client.send_request(get_h2("/hold")));
    assert_eq!(door.event().await, Event::Entered);
    asked.abort();
    assert_eq!(door.event().await, Event::Dropped);

    let mut stream = client.send_request(get_h2("/stream")).await.unwrap();
    assert_eq!(door.event().await, Event::Entered);
    within(stream.frame()).await.unwrap().unwrap();
    drop(stream);
    assert_eq!(door.event().await, Event::Dropped);

    door.release.notify_waiters();
    assert_eq!(other.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn closing_an_http_2_connection_drops_its_requests() {
    let door = Door::open(Settings::default()).await;
    let socket = door.connect().await.into_std().unwrap();
    let plug = socket.try_clone().unwrap();
    let mut client = h2_over(TcpStream::from_std(socket).unwrap()).await;
    let held = tokio::spawn(client.send_request(get_h2("/hold")));
    assert_eq!(door.event().await, Event::Entered);

    plug.shutdown(std::net::Shutdown::Both).unwrap();

    assert_eq!(door.event().await, Event::Dropped);
    assert!(within(held).await.unwrap().is_err());
}
