//! The start of a gateway with twenty child processes as servers.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use trunkline::bench::{Load, Mix, Op, Spread};
use trunkline::mcp::Era;

use super::Row;
use crate::plan::{BASICS, Span, Way, configured, load, ready};
use crate::process::{Wrapper, binary};

pub async fn rows(span: &Span) -> Vec<Row> {
    let (mut answers, mut all, mut hand) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..span.rounds {
        hand.push(millis(by_hand()));
        let (answered, listed) = started().await;
        answers.push(millis(answered));
        all.push(millis(listed));
    }
    let ratios = all.iter().zip(&hand).map(|(all, hand)| all / hand).collect();
    let of = |values: Vec<f64>| Spread::of(values).expect("rounds");
    let (answers, all, hand) = (of(answers), of(all), of(hand));
    let told = |it: Spread| format!("{:.1} ms ({:.1}–{:.1})", it.median, it.least, it.most);
    vec![
        Row::new(
            format!("start with {SERVERS} stdio servers: the gateway answers"),
            "≤ 50 ms",
            told(answers),
            Some(answers.median <= 50.0),
        ),
        Row {
            target: "as soon as the slowest server".to_owned(),
            ..Row::ratio(
                format!(
                    "all of them ready: {}; the same children started and asked by hand: {}",
                    told(all),
                    told(hand)
                ),
                1.5,
                Spread::of(ratios),
            )
        },
    ]
}

/// Returns the time until the gateway answers, and until all tools are listed.
async fn started() -> (Duration, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let mut text = BASICS.to_owned();
    for number in 1..=SERVERS {
        writeln!(
            text,
            "[servers.s{number}]\ncommand = \"trunkline\"\nargs = [\"example\", \"load\"]"
        )
        .unwrap();
    }
    let begun = Instant::now();
    let gateway = configured(folder.path(), "start.toml", &text, &Wrapper::none());
    let way = Way::new("gateway", gateway.url.clone(), Era::Modern, "");
    let span = Span { rounds: 1, requests: Some(1), ..crate::FULL };
    // Preparing a list load only performs the handshake.
    let hello = Load { mix: Mix::only(Op::List), ..load(1, &span) };
    while way.script(&hello).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let answered = begun.elapsed();
    for number in 1..=SERVERS {
        ready(&gateway, &format!("s{number}__search")).await;
    }
    (answered, begun.elapsed())
}

/// Returns the time until the same children have listed their tools without a gateway: the lower
/// bound of any gateway.
fn by_hand() -> Duration {
    let begun = Instant::now();
    let mut children: Vec<Child> = (0..SERVERS).map(|_| child()).collect();
    for child in &mut children {
        let input = child.stdin.as_mut().unwrap();
        for request in [DISCOVER, LIST] {
            input.write_all(request.as_bytes()).unwrap();
        }
    }
    for child in &mut children {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.take(2).map_while(Result::ok).count(), 2, "two answers");
    }
    let took = begun.elapsed();
    for mut child in children {
        drop(child.stdin.take());
        let _ = child.wait();
    }
    took
}

fn child() -> Child {
    let mut command = Command::new(binary());
    command.args(["example", "load"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn millis(of: Duration) -> f64 {
    of.as_secs_f64() * 1e3
}

const SERVERS: usize = 20;
const DISCOVER: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
    "\n"
);
const LIST: &str = concat!(
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
    "\n"
);
