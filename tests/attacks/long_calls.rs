//! Calls of one client that keep the gateway busy for long, all at once, while another client
//! calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Client, Gateway, Said, until};
use crate::{ATTACKER, BYSTANDER};

/// The attacker's calls.
pub struct LongCalls {
    all: JoinSet<()>,
    answered: Arc<AtomicUsize>,
}

/// Returns another client, with an open connection.
pub async fn connected_bystander(gateway: &Gateway) -> Client {
    let bystander = gateway.modern().key(BYSTANDER).keep();
    bystander.call("s__echo", json!({})).await.text();
    bystander
}

impl LongCalls {
    /// Makes this many calls of a tool, each with an answer to check.
    pub fn begin(
        gateway: &Gateway,
        calls: usize,
        tool: &'static str,
        arguments: fn() -> Value,
        check: fn(&Said),
    ) -> Self {
        let (mut all, answered) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..calls {
            let client = gateway.modern().key(ATTACKER);
            let answered = Arc::clone(&answered);
            all.spawn(async move {
                let said = client.call(tool, arguments()).await;
                answered.fetch_add(1, SeqCst);
                check(&said);
            });
        }
        Self { all, answered }
    }

    /// Checks that the bystander gets several answers for each of the attacker's. On a thread that
    /// the attacker's calls occupy it gets one; the number beyond that depends on the machine.
    pub async fn hold_up_no_other_client(self, bystander: &Client) {
        let calls_of_attacker = self.all.len();
        let mut between = Vec::new();
        let mut calls = 0;
        let mut seen = 0;
        while seen < calls_of_attacker {
            let said = bystander.call("s__echo", json!({})).await;
            assert_eq!(said.text(), "{}");
            calls += 1;
            if self.answered.load(SeqCst) > seen {
                seen = self.answered.load(SeqCst);
                between.push(std::mem::take(&mut calls));
            }
        }
        self.end().await;
        between.sort_unstable();
        assert!(between[between.len() / 2] >= 5, "calls between two answers: {between:?}");
    }

    /// Checks that a long call of the bystander does not wait for all of the attacker's.
    pub async fn delay_no_long_call(self, own: impl Future<Output = ()>) {
        until(|| self.answered.load(SeqCst) > 0).await;
        let before = self.answered.load(SeqCst);
        own.await;
        let meanwhile = self.answered.load(SeqCst) - before;
        assert!(meanwhile <= 4, "{meanwhile} of the attacker's calls came first");
        self.end().await;
    }

    async fn end(mut self) {
        while let Some(done) = self.all.join_next().await {
            done.unwrap();
        }
    }
}
