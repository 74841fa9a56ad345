use super::*;
use crate::codec::body::collect;
use crate::codec::large_message::leaves_its_thread;

#[test]
fn a_client_that_takes_only_json_never_gets_a_stream() {
    for (accept, wants) in [
        (None, AcceptedForm::Json),
        (Some("*/*"), AcceptedForm::Json),
        (Some("application/json"), AcceptedForm::Json),
        (Some("application/json, text/event-stream"), AcceptedForm::Both),
        (Some("application/json;q=1,text/event-stream;q=0.9"), AcceptedForm::Both),
        (Some("text/event-stream, application/json"), AcceptedForm::Events),
        (Some("text/event-stream"), AcceptedForm::Events),
    ] {
        let mut headers = HeaderMap::new();
        if let Some(accept) = accept {
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        assert_eq!(AcceptedForm::of(&headers), wants, "{accept:?}");
    }
}

fn writer(era: Era, wants: AcceptedForm) -> AnswerWriter {
    AnswerWriter {
        id: Id::number(1),
        era,
        method: Method::ToolsCall,
        token: None,
        info: Bytes::from_static(b"{}"),
        wants,
        keep_alive: Duration::from_secs(1),
        session: None,
    }
}

#[test]
fn a_large_answer_is_written_away_from_the_serving_thread() {
    for (size, is_large) in [(100, false), (LARGE_MESSAGE, true)] {
        let answer = || {
            let raw = format!("{{\"resultType\":\"complete\",\"a\":\"{}\"}}", "x".repeat(size));
            Ok(Answer::Result(ResultBody::parse(raw.into()).unwrap()))
        };
        for era in [Era::Modern, Era::Legacy] {
            let message = writer(era, AcceptedForm::Both).message(answer()).1;
            let written = writer(era, AcceptedForm::Both).write_response(answer());
            let (leaves, response) = leaves_its_thread(written);
            assert_eq!((leaves, text_of(response)), (is_large, message.clone()), "{era:?}");
            let event = sse::message(&message);
            let written = writer(era, AcceptedForm::Events).write_response(answer());
            assert_eq!(text_of(leaves_its_thread(written).1), event, "{era:?} {size}");
            let written = writer(era, AcceptedForm::Events).write_piece(answer());
            let (leaves, piece) = leaves_its_thread(written);
            let written = match piece {
                Piece::Message(message) => sse::message(&message),
                Piece::Event(event) => event.finish(None).concat().into(),
                Piece::Pause(_) => panic!("an answer is no pause"),
            };
            assert_eq!((leaves, written), (is_large, event), "{era:?} {size}");
        }
    }
}

fn text_of(response: Response<Body>) -> Bytes {
    match response.into_body() {
        Body::Whole(whole) => whole,
        Body::Pieces(pieces) => pieces.concat().into(),
        Body::Stream(_) => panic!("an answer is no stream"),
    }
}

#[test]
fn a_large_result_is_written_without_a_copy() {
    let raw = Bytes::from(format!("{{\"a\":\"{}\"}}", "x".repeat(LARGE_MESSAGE)));
    for (era, wants) in [(Era::Modern, AcceptedForm::Both), (Era::Legacy, AcceptedForm::Events)] {
        let answer = Ok(Answer::Result(ResultBody::parse(raw.clone()).unwrap()));
        let response = leaves_its_thread(writer(era, wants).write_response(answer)).1;
        let Body::Pieces(pieces) = response.into_body() else { panic!("it has pieces") };
        let largest = pieces.iter().max_by_key(|piece| piece.len()).unwrap();
        assert!(raw.as_ptr_range().contains(&largest.as_ptr()), "{era:?}");
        assert!(pieces.iter().map(Bytes::len).sum::<usize>() < raw.len() + 500, "{era:?}");
    }
}

#[tokio::test]
async fn a_result_that_is_passed_on_becomes_an_event_for_a_client_that_takes_only_events() {
    let pieces = ["{\"a\":\r", "\n1,", "", "\"b\":\n2}"].map(|piece| Ok(Bytes::from(piece)));
    let server = crate::call::ServerName::new("s").unwrap();
    let passing = Passing::new(server, Era::Legacy, futures_util::stream::iter(pieces));
    let response = passed(passing, &writer(Era::Legacy, AcceptedForm::Events));
    assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
    let body = collect(response.into_body(), LARGE_MESSAGE).await.unwrap();
    assert_eq!(
        body,
        sse::message(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\r\n1,\"b\":\n2}}")
    );
}
