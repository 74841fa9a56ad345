//! Reads an answer that is an event stream. It has no limit in total, and one for each event.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::codec::sse::SseDecoder;
use crate::text::error_chain;

/// An event of the gateway.
#[derive(Debug, Clone)]
pub(crate) enum GatewayEvent {
    /// A record as it is written: numbers keep all their digits.
    Record(Box<RawValue>),
    /// Number of records that were lost because they are read too slowly.
    Missed(u64),
}

/// Takes events, until it breaks.
pub(crate) type EventReader<'a> = dyn FnMut(GatewayEvent) -> ControlFlow<()> + 'a;

/// Reads events until they end, or the reader breaks.
pub(super) async fn read_events<B>(
    mut body: B,
    on_event: &mut EventReader<'_>,
) -> Result<(), String>
where
    B: http_body::Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    let mut decoder = SseDecoder::new(MAX_EVENT_BYTES);
    loop {
        // The gateway sends comments while there are no records.
        let Ok(frame) = timeout(MAX_SILENCE_TIME, body.frame()).await else {
            return Err("it sends nothing any more".to_owned());
        };
        let Some(frame) = frame else { return Ok(()) };
        let frame = frame.map_err(|error| error_chain(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        decoder.push(data);
        while let Some(event) = decoder.next_event().map_err(|error| error.to_string())? {
            let document: Box<RawValue> = serde_json::from_slice(&event.data)
                .map_err(|_| "an event is not a document".to_owned())?;
            let event = match event.event.as_deref() {
                Some(b"missed") => {
                    let event: MissedEvent =
                        serde_json::from_str(document.get()).unwrap_or_default();
                    GatewayEvent::Missed(event.missed)
                }
                _ => GatewayEvent::Record(document),
            };
            if on_event(event).is_break() {
                return Ok(());
            }
        }
    }
}

/// An event about lost records.
#[derive(Debug, Default, Deserialize)]
struct MissedEvent {
    missed: u64,
}

/// Limit of the bytes of an event.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// Time without bytes after which the connection is lost.
pub(super) const MAX_SILENCE_TIME: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    async fn read(pieces: &[String]) -> (Vec<GatewayEvent>, Result<(), String>) {
        let frames = pieces.iter().map(|piece| Ok(Frame::data(Bytes::from(piece.clone()))));
        let frames: Vec<Result<_, std::io::Error>> = frames.collect();
        let mut events = Vec::new();
        let mut reader = |event| {
            events.push(event);
            if events.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let done = read_events(StreamBody::new(stream::iter(frames)), &mut reader).await;
        (events, done)
    }

    #[tokio::test]
    async fn events_are_read_one_by_one_until_the_reader_has_enough() {
        let record = |n: u32| format!("event: message\ndata: {{\"n\":{n}}}\n\n");
        let missed = "event: missed\ndata: {\"missed\":7}\n\n".to_owned();
        let pieces = [": \n\n".to_owned(), record(1) + &missed, record(2), "no event".to_owned()];
        let (events, done) = read(&pieces).await;
        let events: Vec<_> = events
            .iter()
            .map(|event| match event {
                GatewayEvent::Record(record) => record.get().to_owned(),
                GatewayEvent::Missed(missed) => format!("{missed} missed"),
            })
            .collect();
        assert_eq!(events, ["{\"n\":1}", "7 missed", "{\"n\":2}"]);
        assert_eq!(done, Ok(()));
    }

    #[tokio::test]
    async fn the_bytes_of_an_event_are_bounded_and_those_of_the_stream_are_not() {
        let event = format!("data: \"{}\"\n\n", "x".repeat(MAX_EVENT_BYTES / 2));
        let (events, done) = read(&[event.clone(), event.clone(), event]).await;
        assert_eq!((events.len(), done), (3, Ok(())));
        let (events, done) = read(&["data: ".to_owned(), "x".repeat(MAX_EVENT_BYTES + 1)]).await;
        assert!(events.is_empty() && done.is_err(), "{done:?}");
    }
}
