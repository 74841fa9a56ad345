//! Shares of a limited resource, by client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use trunkline_protocol::call::{Context, Principal};

use crate::rate::network;

/// The owner of a share: a client by its name, or the network that a request comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Holder {
    /// One of `[clients]`, or a user of `[issuers]`.
    Client(Arc<str>),
    /// An IPv4 address, or the /64 network of an IPv6 address.
    Address(IpAddr),
}

impl Holder {
    /// Returns the holder that a request is charged to.
    #[inline]
    pub fn identify(principal: &Principal, address: IpAddr) -> Self {
        match principal {
            Principal::Client(name) | Principal::User(name) => Self::Client(Arc::clone(name)),
            Principal::Anonymous => Self::Address(network(address)),
        }
    }

    /// Returns the holder that a call is charged to.
    #[inline]
    pub fn of_context(context: &Context) -> Self {
        Self::identify(&context.principal, context.address)
    }

    /// Returns a unique text for the holder.
    pub fn describe(&self) -> String {
        match self {
            Self::Client(name) => format!("client {name}"),
            Self::Address(address) => format!("address {address}"),
        }
    }
}

/// Limits of the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareBounds {
    /// Limit for all holders together.
    pub all: usize,
    /// Limit for each of them.
    pub each: usize,
}

impl ShareBounds {
    /// Returns the bound that was reached.
    pub fn reached(self, bound: ShareBoundError) -> usize {
        match bound {
            ShareBoundError::All => self.all,
            ShareBoundError::Each => self.each,
        }
    }
}

/// The bound that an amount would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareBoundError {
    /// [`ShareBounds::all`].
    #[error("the limit for all clients together is reached")]
    All,
    /// [`ShareBounds::each`].
    #[error("the limit for this client is reached")]
    Each,
}

/// Counts the amount in use, in total and by holder.
#[derive(Debug, Default)]
pub struct SharedAmount(Mutex<Holdings>);

#[derive(Debug, Default)]
struct Holdings {
    all: usize,
    each: HashMap<Holder, usize>,
}

/// One holder's amount, given back on drop.
#[derive(Debug)]
pub struct Share {
    of: Arc<SharedAmount>,
    holder: Holder,
    amount: usize,
}

impl SharedAmount {
    /// Takes an amount for a holder.
    ///
    /// # Errors
    /// [`ShareBoundError`]. Nothing is taken then.
    #[inline]
    pub fn take(
        self: &Arc<Self>,
        holder: &Holder,
        amount: usize,
        bounds: ShareBounds,
    ) -> Result<Share, ShareBoundError> {
        let mut share = Share { of: Arc::clone(self), holder: holder.clone(), amount: 0 };
        share.grow(amount, bounds)?;
        Ok(share)
    }

    /// Returns the amount of all holders together.
    #[inline]
    pub fn total(&self) -> usize {
        self.0.lock().all
    }
}

impl Share {
    /// Returns the holder of this share.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Takes more for the same holder.
    ///
    /// # Errors
    /// [`ShareBoundError`]. The share is unchanged then.
    #[inline]
    pub fn grow(&mut self, amount: usize, bounds: ShareBounds) -> Result<(), ShareBoundError> {
        let mut held = self.of.0.lock();
        let all = held.all.saturating_add(amount);
        let own = held.each.get(&self.holder).copied().unwrap_or_default().saturating_add(amount);
        // The narrow bound first: the holder can influence it.
        if own > bounds.each {
            return Err(ShareBoundError::Each);
        }
        if all > bounds.all {
            return Err(ShareBoundError::All);
        }
        held.all = all;
        held.each.insert(self.holder.clone(), own);
        self.amount += amount;
        Ok(())
    }

    /// Returns bytes that keep this share until the last of them is dropped.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(CountedBytes { bytes, _share: self })
    }

    /// Creates a share that counts towards no limit.
    #[cfg(any(test, feature = "test-support"))]
    pub fn uncounted() -> Self {
        Self { of: Arc::default(), holder: Holder::Client("".into()), amount: 0 }
    }
}

/// Bytes together with the share that counts them.
struct CountedBytes {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Share {
    #[inline]
    fn drop(&mut self) {
        let mut held = self.of.0.lock();
        held.all = held.all.saturating_sub(self.amount);
        // A refused share has left no entry.
        if let Entry::Occupied(mut own) = held.each.entry(self.holder.clone()) {
            *own.get_mut() = own.get().saturating_sub(self.amount);
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ShareBounds = ShareBounds { all: 5, each: 3 };

    fn client(name: &str) -> Holder {
        Holder::Client(name.into())
    }

    #[test]
    fn each_holder_and_all_together_are_bounded() {
        let amount = Arc::new(SharedAmount::default());
        let mut first = amount.take(&client("a"), 2, BOUNDS).unwrap();
        assert_eq!(first.grow(2, BOUNDS), Err(ShareBoundError::Each));
        first.grow(1, BOUNDS).unwrap();
        let second = amount.take(&client("b"), 2, BOUNDS).unwrap();
        assert_eq!(amount.take(&client("c"), 1, BOUNDS).unwrap_err(), ShareBoundError::All);
        assert_eq!(amount.total(), 5);
        drop(first);
        assert_eq!(amount.take(&client("b"), 2, BOUNDS).unwrap_err(), ShareBoundError::Each);
        drop(second);
        assert!(amount.0.lock().each.is_empty(), "no holder is remembered");
        assert_eq!(amount.total(), 0);
    }

    #[test]
    fn clients_without_a_key_are_distinguished_by_their_network() {
        let at = |address: &str| Holder::identify(&Principal::Anonymous, address.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::2"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
    }
}
