//! Drain of a listener: running requests finish, new ones are refused, lingering ones are cut off.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tower::service_fn;
use trunkline::call::{PeerAddress, drain};
use trunkline::listener::{Drained, Listener, LiveSettings, Settings, edge};

use crate::door::{Door, Event, get, get_h2, read_to_close, text, within};

#[tokio::test]
async fn a_drain_finishes_the_running_requests_and_refuses_new_ones() {
    let door = Door::open(Settings::default()).await;
    let (mut h1, mut h2) = (door.h1().await, door.h2().await);
    let mut idle = door.h1().await;
    text(idle.send_request(get("/")).await.unwrap()).await;
    let mut silent = door.connect().await;
    let one = tokio::spawn(h1.send_request(get("/hold")));
    let two = tokio::spawn(h2.send_request(get_h2("/hold")));
    assert_eq!((door.event().await, door.event().await), (Event::Entered, Event::Entered));

    door.switch.start(Duration::from_mins(1));

    assert_eq!(read_to_close(&mut silent).await, "");
    within(async {
        while idle.ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    within(async { while TcpStream::connect(door.addr).await.is_ok() {} }).await;
    door.release.notify_waiters();
    assert_eq!(text(one.await.unwrap().unwrap()).await, "held");
    assert_eq!(text(two.await.unwrap().unwrap()).await, "held");
    assert_eq!(within(door.served).await.unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn connections_past_the_deadline_are_cut_and_counted() {
    let door = Door::open(Settings::default()).await;
    let (mut h1, mut h2) = (door.h1().await, door.h2().await);
    let mut one = h1.send_request(get("/stream")).await.unwrap();
    let mut two = h2.send_request(get_h2("/stream")).await.unwrap();
    for response in [&mut one, &mut two] {
        assert_eq!(door.event().await, Event::Entered);
        within(response.frame()).await.unwrap().unwrap();
    }

    door.switch.start(Duration::from_mins(10));
    door.switch.start(Duration::ZERO);

    assert_eq!((door.event().await, door.event().await), (Event::Dropped, Event::Dropped));
    let Door { served, .. } = door;
    assert_eq!(within(served).await.unwrap(), Drained { cut: 2 });
}

#[tokio::test]
async fn requests_on_connections_that_are_not_accepted_yet_are_answered() {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let (addr, live) = (listener.local_addr(), LiveSettings::new(Settings::default()));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = TcpStream::connect(addr).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        clients.push(client);
    }
    let (switch, drain) = drain();
    switch.start(Duration::from_mins(1));
    let settings = live.clone();
    let stack = move |peer: PeerAddress| {
        let service = service_fn(|_| -> edge::EdgeFuture<_> {
            Box::pin(async { Ok(Response::new(Full::new(Bytes::from("answered")))) })
        });
        edge::guarded(settings.clone(), peer, service)
    };
    let served = tokio::spawn(listener.serve(live, stack, drain));
    for client in &mut clients {
        let answer = read_to_close(client).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("answered"), "{answer}");
    }
    assert_eq!(within(served).await.unwrap(), Drained { cut: 0 });
}
