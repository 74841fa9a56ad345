//! The gateway's side towards the servers.
//!
//! A [`Server`] is one configured server with its whole life: started, probed
//! for its era, listed, called, lost, started again, stopped. That is the life
//! of its first instance; where one child or session will not do for all
//! clients, because of what they can do or whose they are ([`InstanceKey`]), it has
//! more of them. [`supervisor`] has the lives of instances, [`transport`] what
//! carries messages to them in both eras, [`lists`] what they offer,
//! [`interaction`] what they ask of clients in mid-call, [`notifications`] what
//! they tell outside of answers. What lies above this module sees none of that:
//! it hands over a permitted call and gets a reply.

mod fault;
mod interaction;
mod lists;
mod notifications;
mod owner;
mod server;
mod supervisor;
mod transport;

pub use fault::UpstreamError;
pub use interaction::outside::QuestionableSession;
pub use interaction::parking;
pub use notifications::{
    ClientNotice, Mailbox, NoticeSubject, SubscriptionGuard, SubscriptionHub, SubscriptionRefusal,
    Subscriptions, Topic,
};
pub use owner::{InstanceKey, InstanceScope};
pub use server::{Server, ServerAccess};
pub use supervisor::backoff;
pub use supervisor::kin::{ServerContext, StopGuard};
pub use supervisor::state::{InstanceView, LifeState, ServerOverview};
pub use transport::child;
pub use transport::http::{HttpClient, ResponseBody, TransportError, client_tls};
pub use transport::peer::{ChangeCapabilities, Peer};

#[cfg(test)]
pub(crate) mod tests;
