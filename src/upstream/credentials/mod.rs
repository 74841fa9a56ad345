//! Credentials for servers: the gateway as an OAuth client.
//!
//! A server with `[servers.NAME.oauth]` has a [`ServerAuthorizer`]. It chooses the token for a
//! request, and reacts when the server refuses it: the token is renewed, or the owner of the grant
//! receives a link and has to log in. The response of the login arrives at the gateway's callback,
//! and [`GrantBook::finish_login`] turns it into a grant.
//!
//! [`login`] gets the consent of a person, [`grants`] holds the tokens and the records of open logins,
//! [`proofs`] writes requests for authorization and for tokens, and [`metadata`] reads the
//! descriptions of servers. Each of them uses those after it. The parts with decisions are pure, each
//! in a file of its own. The parts with I/O are `discovery`, `preparation`, `exchange`, `held_token`,
//! `refusal`, `grant` and `book`. All of them reach other hosts only through `outbound`. `identity`
//! differs: it verifies the tokens of the gateway's own clients, which are never forwarded.

mod fault;
mod grants;
mod login;
mod metadata;
mod proofs;

pub use fault::LoginFault;
pub(super) use grants::authorizer::ServerAuthorizer;
pub use grants::authorizer::{LinkAudience, LoginDemand};
pub use grants::book::GrantBook;
pub use grants::browser::{BrowserBook, BrowserId, BrowserVisit, KnownBrowser, NewBrowser};
pub use grants::grant::GrantOwner;
pub(super) use grants::grant::OauthGrant;
pub(super) use grants::refusal::{AfterRefusal, MAX_REFUSED_TRIES, RequestRefusal};
pub use login::connection::{Connection, ConnectionState, RevocationOutcome};
pub(super) use login::discovery::{NO_DOCUMENT, find_auth_server, metadata_places};
pub use login::terminal::{TerminalLogin, begin_terminal_login};
pub use login::ticket::{BrowserAnswer, OfferedLogin, TicketOffer};
pub(super) use metadata::challenge::find_challenge;
pub(super) use metadata::documents::{
    AuthServerMetadata, ExpectedIssuer, MetadataFault, PkceDemand,
};
pub use metadata::parameters::ParameterFault;
pub(super) use metadata::parameters::{OauthParameters, RESOURCE_PARAMETER};
pub(super) use proofs::dpop::DPOP_HEADER;
pub(super) use proofs::token::FORM_MEDIA_TYPE;
