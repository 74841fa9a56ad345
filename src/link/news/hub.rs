//! The subscriptions at all servers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::call::ServerName;

use super::Subscriptions;
use super::subscriptions::Room;

/// All servers' subscriptions by the server's name: a server that takes the
/// place of another in a reload finds what its clients are subscribed to.
#[derive(Debug, Default)]
pub struct Hub {
    servers: Mutex<HashMap<ServerName, Weak<Subscriptions>>>,
    room: Arc<Room>,
}

impl Hub {
    /// What clients are subscribed to at `server`. Kept for as long as the
    /// server or a subscriber is there.
    pub fn at(&self, server: &ServerName) -> Arc<Subscriptions> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = servers.get(server).and_then(Weak::upgrade) {
            return there;
        }
        servers.retain(|_, subscriptions| subscriptions.strong_count() > 0);
        let new = Arc::new(Subscriptions::new(server.clone(), Arc::clone(&self.room)));
        servers.insert(server.clone(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_comes_back_finds_its_subscribers() {
        let (hub, name) = (Hub::default(), ServerName::new("s").unwrap());
        let first = hub.at(&name);
        assert!(Arc::ptr_eq(&first, &hub.at(&name)));
        let weak = Arc::downgrade(&first);
        drop(first);
        assert!(weak.upgrade().is_none(), "nobody needs it");
        hub.at(&ServerName::new("t").unwrap());
        assert_eq!(hub.servers.lock().unwrap().len(), 1);
    }
}
