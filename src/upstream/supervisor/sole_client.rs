//! The only client of a gateway without a listener: the process that started it.
//!
//! Its capabilities are known a moment after the gateway's start, and no other client has different
//! ones. So the main instance of a Legacy server waits briefly for them, declares them, and serves
//! the client's calls as well. A second instance would only add cost.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::call::Abilities;
use crate::config::EraChoice;
use crate::mcp::{Era, ProtocolVersion};

use crate::upstream::owner::ClientDeclaration;
use crate::upstream::supervisor::shared::ServerShared;

/// Abilities of the only client, once they are known.
#[derive(Debug, Default)]
pub(crate) struct SoleClient(watch::Sender<Option<Abilities>>);

impl SoleClient {
    /// Records the client's declaration in its first request.
    pub(crate) fn meet(&self, abilities: &Abilities) {
        if self.0.borrow().is_none() {
            self.0.send_if_modified(|known| {
                let is_first = known.is_none();
                known.get_or_insert_with(|| abilities.clone());
                is_first
            });
        }
    }

    fn abilities(&self) -> Option<Abilities> {
        self.0.borrow().clone()
    }

    /// Waits until the client is known, or takes too long.
    async fn met(&self) {
        let mut known = self.0.subscribe();
        let _ = timeout(SOLE_CLIENT_TIMEOUT, known.wait_for(Option::is_some)).await;
    }
}

/// Knowledge of the only client at the last start of the main instance.
#[derive(Debug, Default)]
pub(crate) enum SettledClient {
    /// The main instance has not been started.
    #[default]
    NotYet,
    /// The client was not known.
    Unknown,
    /// Its abilities.
    Known(Abilities),
}

impl ServerShared {
    /// Returns the client that the main instance declares, if it serves only one client.
    fn sole_client(&self) -> Option<&SoleClient> {
        let client = self.context().sole_client.as_deref();
        client
            .filter(|_| !self.config().has_one_instance() && self.config().era != EraChoice::Modern)
    }

    /// Waits for that client before the first start of the main instance.
    pub(super) async fn await_sole_client(&self) {
        if let Some(client) = self.sole_client() {
            client.met().await;
        }
    }

    /// Decides the declaration of the main instance, which is about to be opened.
    pub(super) fn settle_main_declaration(&self) {
        if let Some(client) = self.sole_client() {
            *self.main_client() =
                client.abilities().map_or(SettledClient::Unknown, SettledClient::Known);
        }
    }

    /// Returns the main instance's declaration at a server of this version. It contains a client's
    /// capabilities only if there is exactly one client.
    pub(crate) fn main_declaration(&self, version: ProtocolVersion) -> ClientDeclaration {
        let client = self.sole_client().filter(|_| version.era() == Era::Legacy);
        let told = client.and_then(|client| {
            match &*self.main_client() {
                // The next start will declare the abilities known by then.
                SettledClient::NotYet => client.abilities(),
                SettledClient::Unknown => None,
                SettledClient::Known(abilities) => Some(abilities.clone()),
            }
        });
        let told = told.map(|abilities| ClientDeclaration::new(version, &abilities));
        told.map_or_else(ClientDeclaration::main, |told| told.adapt_to(self.config()))
    }
}

/// Time that the first start of a server waits for the client.
const SOLE_CLIENT_TIMEOUT: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_declaration_of_the_client_counts_and_is_waited_for_no_longer_than_needed() {
        let client = SoleClient::default();
        assert!(client.met().now_or_never().is_none());
        client.met().await;
        assert_eq!(client.abilities(), None, "it took too long");
        let rooted = Abilities::parse(br#"{"roots":{}}"#);
        for abilities in [&rooted, &Abilities::none()] {
            client.meet(abilities);
            assert_eq!(client.abilities().as_ref(), Some(&rooted));
        }
        assert!(client.met().now_or_never().is_some());
    }
}
