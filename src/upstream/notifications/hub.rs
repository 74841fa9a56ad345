//! The subscriptions at all servers.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::call::{Question, ServerName};
use crate::jsonrpc::Response;
use crate::shares::{Holder, Share, ShareBoundError, ShareBounds, SharedAmount};

use super::{ClientNotice, Mailbox, NoticeSubject, Subscriptions};
use crate::upstream::{InstanceKey, InstanceScope};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;

/// The subscriptions at all servers, by server name. A server that replaces another on reload finds
/// its clients' subscriptions.
#[derive(Debug, Default)]
pub struct SubscriptionHub {
    servers: Mutex<HashMap<(ServerName, InstanceKey), Weak<Subscriptions>>>,
    taken: Arc<SharedAmount>,
    clients: Arc<Clients>,
}

/// Mailboxes of Legacy clients, by session, for unsolicited notifications from their own instances
/// of servers.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<HashMap<Arc<str>, Weak<Mailbox>>>);

impl Clients {
    pub(super) fn tell(
        &self,
        session: &str,
        server: &ServerName,
        method: &str,
        params: Option<Bytes>,
    ) {
        let mailbox = self.lock().get(session).and_then(Weak::upgrade);
        if let Some(mailbox) = mailbox {
            let subject = NoticeSubject::Other(method.to_owned());
            mailbox.put_other(ClientNotice { server: server.clone(), subject, params });
        }
    }

    /// Asks a session's client on behalf of a server. Returns false if the client cannot be asked.
    pub(super) fn ask(
        &self,
        session: &str,
        server: &ServerName,
        question: &Question,
        answers: mpsc::Sender<(u64, Response)>,
    ) -> bool {
        let mailbox = self.lock().get(session).and_then(Weak::upgrade);
        mailbox.is_some_and(|mailbox| mailbox.ask(server, question, answers))
    }

    fn is_listening(&self, session: &str) -> bool {
        let mailbox = self.lock().get(session).and_then(Weak::upgrade);
        mailbox.is_some_and(|mailbox| mailbox.is_listened_to())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Mailbox>>> {
        self.0.lock()
    }
}

impl SubscriptionHub {
    /// Takes a place among the subscriptions at all servers.
    ///
    /// # Errors
    /// [`ShareBoundError`].
    pub(in crate::upstream) fn take_place(
        &self,
        holder: &Holder,
        bounds: ShareBounds,
    ) -> Result<Share, ShareBoundError> {
        self.taken.take(holder, 1, bounds)
    }

    /// Registers a Legacy client's mailbox for notifications from its own
    /// instances of servers, until its session ends.
    pub fn enter(&self, session: &Arc<str>, mailbox: &Arc<Mailbox>) {
        self.clients.lock().insert(Arc::clone(session), Arc::downgrade(mailbox));
    }

    /// Removes the mailbox of a Legacy client at the end of its session.
    pub fn leave(&self, session: &str) {
        self.clients.lock().remove(session);
    }

    /// Returns true if a session's client keeps a stream open for messages outside its calls.
    pub(in crate::upstream) fn is_listening(&self, session: &str) -> bool {
        self.clients.is_listening(session)
    }

    /// Returns the subscriptions at the main instance of `server`. They are kept while the server
    /// or a subscriber exists.
    pub fn at(&self, server: &ServerName) -> Arc<Subscriptions> {
        self.of(server, &InstanceKey::main())
    }

    /// Returns the subscriptions at the instance with this key.
    pub fn of(&self, server: &ServerName, owner: &InstanceKey) -> Arc<Subscriptions> {
        let key = (server.clone(), owner.clone());
        let mut servers = self.servers.lock();
        if let Some(there) = servers.get(&key).and_then(Weak::upgrade) {
            return there;
        }
        servers.retain(|_, subscriptions| subscriptions.strong_count() > 0);
        let client = owner.whose.session().map(|id| (id, Arc::clone(&self.clients)));
        let mut new = Subscriptions::new(server.clone(), client);
        new.can_be_asked =
            owner.whose != InstanceScope::Everybody && owner.told.capabilities != "{}";
        let new = Arc::new(new);
        servers.insert(key, Arc::downgrade(&new));
        new
    }

    /// Returns the instances of `server` with subscribers, besides the main one, each with one of
    /// its subscribers.
    pub(in crate::upstream) fn waiting(&self, server: &ServerName) -> Vec<(InstanceKey, Holder)> {
        let servers = self.servers.lock();
        let here = servers.iter().filter(|((name, owner), _)| name == server && !owner.is_main());
        let waiting = here.filter_map(|((_, owner), there)| {
            let subscriber = there.upgrade()?.first_subscriber()?;
            Some((owner.clone(), subscriber))
        });
        waiting.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_comes_back_finds_its_subscribers() {
        let (hub, name) = (SubscriptionHub::default(), ServerName::new("s").unwrap());
        let first = hub.at(&name);
        assert!(Arc::ptr_eq(&first, &hub.at(&name)));
        let weak = Arc::downgrade(&first);
        drop(first);
        assert!(weak.upgrade().is_none(), "no subscriber is left");
        hub.at(&ServerName::new("t").unwrap());
        assert_eq!(hub.servers.lock().len(), 1);
    }
}
