//! Resolution of server names, with refusal of forbidden addresses.

use std::error::Error;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

/// Decides to which addresses connections are allowed.
pub(crate) trait AddressRule: Debug + Send + Sync {
    /// Checks an address.
    ///
    /// # Errors
    /// The reason to refuse it.
    fn check(&self, address: IpAddr) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Resolves a name when a connection is opened. The connection goes to one of the addresses that
/// were checked: the name is not resolved again.
#[derive(Debug, Clone)]
pub(crate) struct HostResolver {
    system: GaiResolver,
    /// `None` for a server that the configuration names.
    rule: Option<Arc<dyn AddressRule>>,
}

impl HostResolver {
    pub(crate) fn new(rule: Option<Arc<dyn AddressRule>>) -> Self {
        Self { system: GaiResolver::new(), rule }
    }
}

impl Service<Name> for HostResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.system.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (resolving, rule) = (self.system.call(name), self.rule.clone());
        Box::pin(async move {
            let found: Vec<_> = resolving.await?.collect();
            match rule {
                Some(rule) => keep_permitted(found, &*rule),
                None => Ok(found.into_iter()),
            }
        })
    }
}

/// Returns the addresses that a rule permits.
///
/// # Errors
/// The reason for the first refused address, if none is permitted.
fn keep_permitted(
    found: Vec<SocketAddr>,
    rule: &dyn AddressRule,
) -> Result<std::vec::IntoIter<SocketAddr>, Box<dyn Error + Send + Sync>> {
    let mut refused = None;
    let mut permitted = Vec::new();
    for address in found {
        match rule.check(address.ip()) {
            Ok(()) => permitted.push(address),
            Err(reason) => refused = refused.or(Some(reason)),
        }
    }
    match refused.filter(|_| permitted.is_empty()) {
        Some(reason) => Err(reason),
        None => Ok(permitted.into_iter()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Permits one address.
    #[derive(Debug)]
    struct Only(IpAddr);

    impl AddressRule for Only {
        fn check(&self, address: IpAddr) -> Result<(), Box<dyn Error + Send + Sync>> {
            if address == self.0 { Ok(()) } else { Err(format!("{address} is refused").into()) }
        }
    }

    #[test]
    fn a_name_leads_to_the_permitted_ones_of_its_addresses_alone() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let found = vec![address("10.0.0.1:0"), address("8.8.8.8:0"), address("127.0.0.1:0")];
        let kept = keep_permitted(found.clone(), &Only("8.8.8.8".parse().unwrap()));
        assert_eq!(kept.unwrap().collect::<Vec<_>>(), [address("8.8.8.8:0")]);
        let refused = keep_permitted(found, &Only("::1".parse().unwrap())).unwrap_err();
        assert_eq!(refused.to_string(), "10.0.0.1 is refused");
    }
}
