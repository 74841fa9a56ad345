//! Sets of scopes, and the choice of those to request.

use std::fmt;

use trunkline_config::is_scope_token;

/// Scopes, without duplicates and in their original order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ScopeSet(Vec<String>);

impl ScopeSet {
    /// Reads a list of scopes, separated by spaces. Skips invalid scopes and those beyond the
    /// limit, because the list may come from a server.
    pub(crate) fn parse(text: &str) -> Self {
        text.split_ascii_whitespace().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the set contains a scope.
    pub(crate) fn has(&self, scope: &str) -> bool {
        self.0.iter().any(|own| own == scope)
    }

    /// Returns true if the set contains all scopes of another set.
    pub(crate) fn has_all(&self, others: &Self) -> bool {
        others.0.iter().all(|scope| self.has(scope))
    }

    /// Returns the scopes of both sets.
    #[must_use]
    pub(crate) fn union(&self, others: &Self) -> Self {
        self.0.iter().chain(&others.0).map(String::as_str).collect()
    }
}

impl<'a> FromIterator<&'a str> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = &'a str>>(scopes: I) -> Self {
        let mut set = Self::default();
        for scope in scopes.into_iter().filter(|scope| is_scope_token(scope)) {
            if !set.has(scope) && set.0.len() < MAX_SCOPES {
                set.0.push(scope.to_owned());
            }
        }
        set
    }
}

impl fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// Known scopes of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownScopes<'a> {
    /// Scopes in the configuration.
    pub(crate) configured: &'a ScopeSet,
    /// Scopes that the server requests with its challenge.
    pub(crate) challenged: &'a ScopeSet,
    /// Scopes that were requested before, if this is a step-up.
    pub(crate) asked_before: &'a ScopeSet,
    /// Scopes in the server's metadata.
    pub(crate) of_resource: &'a ScopeSet,
    /// Scopes in the authorization server's metadata.
    pub(crate) of_issuer: &'a ScopeSet,
}

/// Chooses the scopes to request (2026-07-28, Authorization, "Scope Selection Strategy"): those in
/// the server's challenge, otherwise all in its metadata, otherwise none. Includes `offline_access`
/// only if the authorization server lists it. A step-up keeps the scopes that were requested
/// before.
pub(crate) fn choose_scopes(known: KnownScopes<'_>) -> ScopeSet {
    let KnownScopes { configured, challenged, asked_before, of_resource, of_issuer } = known;
    let base = match (configured.is_empty(), challenged.is_empty()) {
        (false, _) => configured.union(challenged),
        (true, false) => challenged.clone(),
        (true, true) => of_resource.clone(),
    };
    let mut chosen = asked_before.union(&base);
    if of_issuer.has(OFFLINE_ACCESS) {
        chosen = chosen.union(&[OFFLINE_ACCESS].into_iter().collect());
    } else {
        chosen.0.retain(|scope| scope != OFFLINE_ACCESS || configured.has(OFFLINE_ACCESS));
    }
    chosen
}

/// Scope of refresh tokens (OpenID Connect Core, 11).
const OFFLINE_ACCESS: &str = "offline_access";
/// Maximum number of scopes in a set.
const MAX_SCOPES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_chosen_in_the_order_of_the_specification() {
        for (configured, challenged, before, resource, issuer, chosen) in [
            ("", "a b", "", "c d", "", "a b"),
            ("", "", "", "c d", "x", "c d"),
            ("", "", "", "", "x y", ""),
            ("k", "a", "", "c", "", "k a"),
            ("k", "", "", "c", "", "k"),
            ("", "b", "a", "c", "", "a b"),
            ("", "a", "", "", "a offline_access", "a offline_access"),
            ("", "a offline_access", "", "", "a", "a"),
            ("", "", "", "c offline_access", "", "c"),
            ("offline_access", "", "", "", "", "offline_access"),
        ] {
            let parse = ScopeSet::parse;
            let known = KnownScopes {
                configured: &parse(configured),
                challenged: &parse(challenged),
                asked_before: &parse(before),
                of_resource: &parse(resource),
                of_issuer: &parse(issuer),
            };
            assert_eq!(choose_scopes(known).to_string(), chosen, "{known:?}");
        }
    }

    #[test]
    fn a_set_is_bounded_and_has_scopes_only() {
        let many: Vec<_> = (0..1000).map(|number| format!("s{number}")).collect();
        assert_eq!(ScopeSet::parse(&many.join(" ")).0.len(), MAX_SCOPES);
        assert_eq!(ScopeSet::parse("a \"b\" a c\\d \u{e9} e").to_string(), "a e");
    }
}
