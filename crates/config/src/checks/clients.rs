//! Rules between the settings of clients: unique keys and certificates, and known profiles.

use std::collections::HashMap;

use trunkline_protocol::call::ProfileName;

use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::wording::nearest_choice;
use crate::reader::{ConfigReader, ConfigTable};
use crate::sections::clients::{CertificateName, ClientKeySetting, KeyHash};

/// Each key belongs to one client, without duplicates.
pub(super) fn check_unique_keys(clients: &[ConfigTable<'_>], reader: &mut ConfigReader<'_>) {
    let mut taken: HashMap<KeyHash, String> = HashMap::new();
    for client in clients {
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let more = client
            .find_node("keys")
            .and_then(|node| node.expect_items::<Vec<ClientKeySetting>>(quiet));
        for node in client.find_node("key").into_iter().chain(more.into_iter().flatten()) {
            let Some(key) = <ClientKeySetting as Setting>::read_value(&node, quiet) else {
                continue;
            };
            if let Some(other) = taken.get(&key.hash) {
                node.report_fault(reader, SettingFault::KeyTaken { other: other.clone() });
            } else {
                taken.insert(key.hash, node.key);
            }
        }
    }
}

/// Checks that each certificate name identifies one client, and that `gateway.tls` has a
/// `client_ca`: without one, clients are not asked for a certificate.
pub(super) fn check_certificates(
    root: &ConfigTable<'_>,
    clients: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    let tls = root.find_table("gateway").and_then(|gateway| gateway.find_table("tls"));
    let has_ca = tls.is_some_and(|tls| tls.find_node("client_ca").is_some());
    let mut known: HashMap<CertificateName, String> = HashMap::new();
    for node in clients.iter().filter_map(|client| client.find_node("certificates")) {
        if !has_ca {
            node.report_fault(reader, SettingFault::NoClientCa);
        }
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let Some(items) = node.expect_items::<Vec<CertificateName>>(quiet) else { continue };
        for item in items {
            let Some(name) = <CertificateName as Setting>::read_value(&item, quiet) else {
                continue;
            };
            if let Some(other) = known.insert(name, item.key.clone()) {
                item.report_fault(reader, SettingFault::CertificateTaken { other });
            }
        }
    }
}

/// Checks that the profiles of clients and issuers exist, and that each list of them has at least
/// one.
pub(super) fn check_client_profiles(
    clients: &[ConfigTable<'_>],
    profiles: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    let mut names: Vec<_> = profiles.iter().map(|profile| profile.name).collect();
    names.push(ProfileName::DEFAULT);
    for node in clients.iter().filter_map(|client| client.find_node("profiles")) {
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let Some(items) = node.expect_items::<Vec<ProfileName>>(quiet) else { continue };
        if items.is_empty() {
            node.report_fault(reader, SettingFault::NoProfiles);
        }
        for item in items {
            let Some(name) = <ProfileName as Setting>::read_value(&item, quiet) else { continue };
            if !names.contains(&name.as_str()) {
                let meant = nearest_choice(name.as_str(), &names);
                item.report_fault(
                    reader,
                    SettingFault::NoProfile { name: name.to_string(), meant },
                );
            }
        }
    }
}
