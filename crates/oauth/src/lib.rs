//! The gateway as an OAuth client of servers, the relay of clients' logins, and the vault.
//!
//! A server with `[servers.NAME.oauth]` has a [`ServerAuthorizer`]. It chooses the token for a
//! request, and reacts when the server refuses it: the token is renewed, or the owner of the grant
//! receives a link and has to log in. The response of the login arrives at the gateway's callback,
//! and [`GrantBook::finish_login`] turns it into a grant. Grants outlive the process in the
//! [`vault`].
//!
//! [`relay`] forwards the logins of clients to authorization servers that do not support MCP.
//! [`login`] gets the consent of a person, [`grants`] holds the tokens and the records of open
//! logins, [`proofs`] writes requests for authorization and for tokens, and [`metadata`] reads the
//! descriptions of servers. Each of them uses those after it. The parts with decisions are pure,
//! each in a file of its own. The parts with I/O are `discovery`, `preparation`, `exchange`,
//! `held_token`, `refusal`, `grant` and `book`. They reach other hosts only through `outbound` of
//! the HTTP client.
//!
//! The gateway's `identity` differs: it verifies the tokens of the gateway's own clients, which are
//! never forwarded. This crate knows no server beyond its settings, no MCP message and no page: the
//! gateway asks it for a token, and shows its links.

#![warn(unreachable_pub)]

mod relay;
mod login;
mod announced_ends;
mod grants;
mod fault;
mod proofs;
mod metadata;
pub mod vault;

pub use announced_ends::{AnnouncedEnd, EndingElement};
pub use fault::LoginFault;
pub use grants::authorizer::{LinkAudience, LoginDemand, ServerAuthorizer};
pub use grants::book::GrantBook;
pub use grants::browser::{BrowserBook, BrowserId, BrowserVisit, KnownBrowser, NewBrowser};
pub use grants::grant::{GrantOwner, OauthGrant};
pub use grants::refusal::{AfterRefusal, MAX_REFUSED_TRIES, RequestRefusal};
pub use grants::stored::GrantOverview;
pub use login::connection::{Connection, ConnectionState, LoginRevoker, RevocationOutcome};
pub use login::discovery::{NO_DOCUMENT, metadata_places};
pub use login::overview::LoginOverview;
pub use login::terminal::{TerminalLogin, begin_terminal_login};
pub use login::ticket::{BrowserAnswer, LinkRequest, OfferedLogin, TicketOffer};
pub use metadata::challenge::{BearerChallenge, find_challenge};
pub use metadata::parameters::ParameterFault;
pub use proofs::dpop::DPOP_HEADER;
pub use relay::{
    FormSender, LoginConsent, LoginRelay, LoginRelayFault, LoginRelays, PassedAuthorization,
    RelayedAnswer,
};
