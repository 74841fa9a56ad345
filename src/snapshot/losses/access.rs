//! Losses of access control: clients, issuers, anonymous access, TLS, and the audit log of it.

use crate::call::ProfileName;
use crate::config::{
    AdminRole, AnonymousAccess, ClientCertificates, ClientConfig, Config, IssuerConfig, RuleEffect,
};

use super::LossList;
use super::loss::LossFault;

pub(super) fn compare_access(before: &Config, after: &Config, losses: &mut LossList) {
    compare_anonymous(before, after, losses);
    for client in &before.clients {
        if let Some(new) = after.clients.iter().find(|new| new.name == client.name) {
            compare_client(client, new, before, losses);
        } else {
            let key = format!("clients.{}", client.name);
            losses.add(key, LossFault::Removed { element: "client" });
        }
    }
    for issuer in &before.issuers {
        // A table with another `iss` is another issuer.
        let is_same = |new: &&IssuerConfig| new.name == issuer.name && new.issuer == issuer.issuer;
        if let Some(new) = after.issuers.iter().find(is_same) {
            compare_issuer(issuer, new, losses);
        } else {
            let key = format!("issuers.{}", issuer.name);
            losses.add(key, LossFault::Removed { element: "issuer" });
        }
    }
    compare_new_roles(before, after, losses);
    compare_tls(before, after, losses);
    compare_audit(before, after, losses);
}

/// Reports clients and issuers that are new and have rights at the admin API.
fn compare_new_roles(before: &Config, after: &Config, losses: &mut LossList) {
    for client in after.clients.iter().filter(|client| client.role.is_some()) {
        let is_known = before.clients.iter().any(|known| known.name == client.name);
        losses.add_if((!is_known).then_some(LossFault::Widened), || {
            format!("clients.{}.role", client.name)
        });
    }
    for issuer in after.issuers.iter().filter(|issuer| !issuer.roles.is_empty()) {
        let is_same =
            |known: &IssuerConfig| known.name == issuer.name && known.issuer == issuer.issuer;
        let is_known = before.issuers.iter().any(is_same);
        losses.add_if((!is_known).then_some(LossFault::Widened), || {
            format!("issuers.{}.roles", issuer.name)
        });
    }
}

fn compare_anonymous(before: &Config, after: &Config, losses: &mut LossList) {
    if after.authenticates() {
        return;
    }
    if before.authenticates() {
        losses.add("clients", LossFault::Anonymous);
    }
    let (was, is) = (before.gateway.anonymous, after.gateway.anonymous);
    if was == AnonymousAccess::Loopback && is == AnonymousAccess::Anyone {
        let lowered = LossFault::Lowered { before: was.as_str(), after: is.as_str() };
        losses.add("gateway.anonymous", lowered);
    }
}

fn compare_client(
    client: &ClientConfig,
    new: &ClientConfig,
    before: &Config,
    losses: &mut LossList,
) {
    let key = |setting: &str| format!("clients.{}.{setting}", client.name);
    if !covers_profiles(client.profiles.as_deref(), new.profiles.as_deref()) {
        losses.add(key("profiles"), LossFault::Widened);
    }
    if !covers_role(client.role, new.role) {
        losses.add(key("role"), LossFault::Widened);
    }
    // A client that leaves a group escapes the deny rules for it.
    let denies = before.policy.rules.iter().any(|rule| {
        rule.effect == RuleEffect::Deny && (rule.groups.is_some() || rule.when.is_some())
    });
    if denies {
        for group in client.groups.iter().filter(|group| !new.groups.contains(group)) {
            losses.add(key("groups"), LossFault::EntryRemoved { entry: group.clone() });
        }
    }
}

/// Returns true if a role is no higher than another.
fn covers_role(before: Option<AdminRole>, after: Option<AdminRole>) -> bool {
    match (before, after) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(before), Some(after)) => before.includes(after),
    }
}

/// Compares the settings that decide which tokens of an issuer are accepted.
fn compare_issuer(issuer: &IssuerConfig, new: &IssuerConfig, losses: &mut LossList) {
    let is_subset = |new: &[String], old: &[String]| new.iter().all(|one| old.contains(one));
    let old_role = |group: &String| {
        let mut found = issuer.roles.iter().filter(|(known, _)| known == group);
        found.next().map(|(_, role)| *role)
    };
    // Without `audience` only the URL of the endpoint is accepted, which is the strictest.
    let settings = [
        ("profiles", covers_profiles(issuer.profiles.as_deref(), new.profiles.as_deref())),
        ("roles", new.roles.iter().all(|(group, role)| covers_role(old_role(group), Some(*role)))),
        // It decides the groups, and these the roles.
        ("groups_claim", new.roles.is_empty() || new.groups_claim == issuer.groups_claim),
        ("audience", is_subset(&new.audience, &issuer.audience)),
        ("issuer_aliases", is_subset(&new.issuer_aliases, &issuer.issuer_aliases)),
        ("algorithms", new.algorithms.iter().all(|it| issuer.algorithms.contains(it))),
    ];
    for (setting, _) in settings.into_iter().filter(|(_, is_as_strict)| !is_as_strict) {
        losses.add(format!("issuers.{}.{setting}", issuer.name), LossFault::Widened);
    }
}

fn covers_profiles(wide: Option<&[ProfileName]>, narrow: Option<&[ProfileName]>) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => narrow.iter().all(|profile| wide.contains(profile)),
    }
}

fn compare_tls(before: &Config, after: &Config, losses: &mut LossList) {
    let lowered = LossFault::Lowered { before: "true", after: "false" };
    let is_lowered = before.admin.tls && !after.admin.tls;
    losses.add_if(is_lowered.then_some(lowered), || "admin.tls".into());
    let Some(tls) = &before.gateway.tls else { return };
    let Some(new) = &after.gateway.tls else {
        losses.add("gateway.tls", LossFault::Removed { element: "certificate" });
        return;
    };
    if tls.client_ca.is_some() && new.client_ca.is_none() {
        let removed = LossFault::Removed { element: "check of client certificates" };
        losses.add("gateway.tls.client_ca", removed);
    }
    let (was, is) = (tls.client_certificates, new.client_certificates);
    if was == ClientCertificates::Required && is == ClientCertificates::Optional {
        let lowered = LossFault::Lowered { before: was.as_str(), after: is.as_str() };
        losses.add("gateway.tls.client_certificates", lowered);
    }
}

fn compare_audit(before: &Config, after: &Config, losses: &mut LossList) {
    let (before, after) = (&before.audit, &after.audit);
    for (key, is_lost) in [
        ("audit.file", before.file.is_some() && after.file.is_none()),
        ("audit.stdout", before.stdout && !after.stdout),
        ("audit.syslog", before.syslog.is_some() && after.syslog.is_none()),
    ] {
        losses
            .add_if(is_lost.then_some(LossFault::Removed { element: "audit log" }), || key.into());
    }
    let is_optional = before.required && !after.required;
    let lowered = LossFault::Lowered { before: "true", after: "false" };
    losses.add_if(is_optional.then_some(lowered), || "audit.required".into());
}
