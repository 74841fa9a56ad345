//! Ends of logins and client secrets that authorization servers have announced, for the calendar of
//! expiries.
//!
//! Access tokens are not among them: the gateway renews them.

use std::collections::HashMap;
use std::time::Duration;

use trunkline_protocol::call::ServerName;

use crate::grants::book::GrantBook;
use crate::grants::grant::GrantOwner;

/// The element that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndingElement {
    /// The gateway's login at a server.
    OwnLogin,
    /// The first login of a user to end.
    UserLogin,
    /// The secret of the client that the gateway has registered with the authorization server.
    ClientSecret,
}

impl EndingElement {
    fn of_owner(owner: &GrantOwner) -> Self {
        match owner {
            GrantOwner::Gateway => Self::OwnLogin,
            GrantOwner::Client(_) => Self::UserLogin,
        }
    }
}

/// An end that an authorization server has announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedEnd {
    /// The server that the login is for.
    pub server: ServerName,
    /// The element that ends.
    pub element: EndingElement,
    /// The end, as time since 1970.
    pub at: Duration,
}

impl GrantBook {
    /// Returns the earliest end of each element of each server, also of servers that have not been
    /// started yet or are no longer configured.
    pub fn announced_ends(&self) -> Vec<AnnouncedEnd> {
        let mut earliest = HashMap::<(ServerName, EndingElement), Duration>::new();
        let mut add = |server: &ServerName, element, at: Option<Duration>| {
            if let Some(at) = at {
                let known = earliest.entry((server.clone(), element)).or_insert(at);
                *known = at.min(*known);
            }
        };
        for (key, slot) in self.slots.lock().iter() {
            let end = slot.grant.load().as_ref().and_then(|grant| grant.refresh_ends);
            add(&key.place.server, EndingElement::of_owner(&key.owner), end);
        }
        for (key, kept) in self.resting.lock().iter() {
            add(&key.place.server, EndingElement::of_owner(&key.owner), kept.ends);
        }
        for (place, client) in self.clients.lock().iter() {
            add(&place.server, EndingElement::ClientSecret, client.secret_ends);
        }
        let end = |((server, element), at)| AnnouncedEnd { server, element, at };
        earliest.into_iter().map(end).collect()
    }
}
