//! Logins that begin at a terminal, by the person who logs in, on the same machine.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use trunkline_config::ServerConfig;

use crate::fault::LoginFault;
use crate::grants::authorizer::ServerAuthorizer;
use crate::grants::book::{GrantBook, GrantKey};
use crate::grants::grant::GrantOwner;

/// A login that waits for a person.
pub struct TerminalLogin {
    /// URL at which to log in.
    pub link: Url,
    /// Lifetime of the link.
    pub lasts: Duration,
    key: GrantKey,
    /// Converts the vault's row to a grant.
    #[allow(dead_code, reason = "held until the login is over")]
    authorizer: Arc<ServerAuthorizer>,
}

/// Begins a login at a server for this owner. Its response is used only in this process, and is
/// bound to no browser.
///
/// # Errors
/// [`LoginFault`] if the server has no OAuth with a person's login, or if there can be no login.
pub async fn begin_terminal_login(
    server: &ServerConfig,
    book: &Arc<GrantBook>,
    owner: &GrantOwner,
) -> Result<TerminalLogin, LoginFault> {
    let authorizer = ServerAuthorizer::of(server, book, None);
    let authorizer = authorizer.filter(|authorizer| authorizer.connection(owner).is_some());
    let authorizer = authorizer.ok_or(LoginFault::NoLogin)?;
    let link = authorizer.begin_login(owner, None).await?;
    let ticket = link.split_once("ticket=").map_or("", |(_, ticket)| ticket);
    let link = book.accept_ticket(ticket, None, None).await?.ok_or(LoginFault::UnknownLink)?;
    let (key, lasts) = (authorizer.key_of(owner), authorizer.login_time());
    Ok(TerminalLogin { link, lasts, key, authorizer })
}

impl GrantBook {
    /// Returns true if the vault has the grant of a login.
    ///
    /// # Errors
    /// [`LoginFault::Vault`] if it cannot be read.
    pub async fn is_kept(&self, login: &TerminalLogin) -> Result<bool, LoginFault> {
        let Some(vault) = self.vault.get() else { return Ok(false) };
        let row = vault.read_row(login.key.row_name()).await;
        Ok(row.map_err(|error| LoginFault::Vault(Arc::new(error)))?.is_some())
    }
}
