//! Keys of the clients with logins.
//!
//! The name of a client can be reassigned. While a client stays in the configuration, its keys may
//! change and its logins stay. After its removal, its logins return only with a key or a
//! certificate that it had before. Otherwise they are deleted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use trunkline_config::ClientConfig;
use trunkline_core::crypto::sha256;

use crate::vault::RowName;

/// Keys of the clients that have, or had, logins.
#[derive(Default)]
pub(crate) struct ClientKeyBook(Mutex<ClientKeyRecords>);

#[derive(Default)]
struct ClientKeyRecords {
    records: HashMap<Arc<str>, ClientRecord>,
    /// Clients of the configuration. `None` in a process that serves no clients.
    configured: Option<HashMap<Arc<str>, BTreeSet<String>>>,
    /// Clients with a record that is not in the vault yet.
    unsaved: BTreeSet<Arc<str>>,
}

/// A client with logins, as it is stored in the vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientRecord {
    /// Digests of its keys and certificates, past and present.
    proofs: BTreeSet<String>,
    /// Set once the client was missing from a configuration.
    is_removed: bool,
}

impl ClientKeyBook {
    /// Takes a record from the vault, unless there is one.
    pub(crate) fn adopt(&self, name: &str, record: ClientRecord) {
        self.0.lock().records.entry(name.into()).or_insert(record);
    }

    /// Records that a client has logins from now on.
    pub(crate) fn note_login(&self, name: &Arc<str>) {
        let mut all = self.0.lock();
        if !all.records.contains_key(name) {
            // If the vault has a login without a record, the client's keys are those of the next
            // configuration.
            let proofs = all.configured.as_ref().and_then(|it| it.get(name)).cloned();
            let proofs = proofs.unwrap_or_default();
            all.records.insert(Arc::clone(name), ClientRecord { proofs, is_removed: false });
            all.unsaved.insert(Arc::clone(name));
        }
    }

    /// Returns the digests of a client's keys and certificates, present and, if it has logins, past.
    pub(crate) fn proofs_of(&self, name: &Arc<str>) -> BTreeSet<String> {
        let all = self.0.lock();
        let configured = all.configured.as_ref().and_then(|it| it.get(name)).into_iter().flatten();
        let noted = all.records.get(name).into_iter().flat_map(|record| &record.proofs);
        configured.chain(noted).cloned().collect()
    }

    /// Returns true if the configured client of this name has one of these keys or certificates, or
    /// if a process that serves no clients asks.
    pub(crate) fn is_known_by(&self, name: &Arc<str>, proofs: &BTreeSet<String>) -> bool {
        let all = self.0.lock();
        let Some(configured) = &all.configured else { return true };
        configured.get(name).is_some_and(|own| !own.is_disjoint(proofs))
    }

    /// Compares the clients of a configuration with the records. Returns those with the name of a
    /// removed client, but with none of its keys.
    pub(crate) fn follow(&self, clients: &[ClientConfig]) -> Vec<Arc<str>> {
        let configured: HashMap<_, _> =
            clients.iter().map(|client| (Arc::clone(&client.name), proofs_of(client))).collect();
        let mut all = self.0.lock();
        let mut strangers = Vec::new();
        let mut changed = Vec::new();
        for (name, record) in &mut all.records {
            let before = record.clone();
            match configured.get(name) {
                None => record.is_removed = true,
                Some(proofs) if record.is_removed && record.proofs.is_disjoint(proofs) => {
                    strangers.push(Arc::clone(name));
                    *record = ClientRecord { proofs: proofs.clone(), is_removed: false };
                }
                Some(proofs) => {
                    record.is_removed = false;
                    record.proofs.extend(proofs.iter().cloned());
                    while record.proofs.len() > MAX_PROOFS {
                        let surplus =
                            record.proofs.iter().find(|it| !proofs.contains(*it)).cloned();
                        let Some(surplus) = surplus else { break };
                        record.proofs.remove(&surplus);
                    }
                }
            }
            if *record != before {
                changed.push(Arc::clone(name));
            }
        }
        all.unsaved.extend(changed);
        all.configured = Some(configured);
        strangers
    }

    /// Takes the records that must be written to the vault.
    pub(crate) fn take_unsaved(&self) -> Vec<(RowName, Vec<u8>)> {
        let mut all = self.0.lock();
        let names = std::mem::take(&mut all.unsaved);
        let rows = names.into_iter().filter_map(|name| {
            let value = serde_json::to_vec(all.records.get(&name)?).ok()?;
            Some((RowName::new([CLIENT_KEYS, &name]), value))
        });
        rows.collect()
    }

    /// Returns the name and the record of a row, or `None` for a row of another kind.
    pub(crate) fn read_row<'n>(name: &'n RowName, value: &[u8]) -> Option<(&'n str, ClientRecord)> {
        let [CLIENT_KEYS, client] = name.parts()[..] else { return None };
        Some((client, serde_json::from_slice(value).ok()?))
    }
}

fn proofs_of(client: &ClientConfig) -> BTreeSet<String> {
    let keys = client.keys.iter().map(|key| HEXLOWER.encode(key.hash.as_bytes()));
    let certificates = client.certificates.iter();
    let certificates =
        certificates.map(|name| HEXLOWER.encode(&sha256(format!("{name:?}").as_bytes())));
    keys.chain(certificates).collect()
}

/// The kind of the rows.
const CLIENT_KEYS: &str = "client-keys";
/// Maximum number of remembered keys and certificates of one client, in addition to those in use.
const MAX_PROOFS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_config::{Config, ConfigSource, SystemEnvironment};

    /// Returns the clients of a configuration. Each key is one digit repeated 64 times.
    fn clients(all: &[(&str, &str)]) -> Vec<ClientConfig> {
        let table = |(name, keys): &(&str, &str)| {
            let keys: Vec<_> =
                keys.chars().map(|key| format!("\"{}\"", key.to_string().repeat(64))).collect();
            format!("[clients.{name}]\nkeys = [{}]\n", keys.join(", "))
        };
        let bytes = all.iter().map(table).collect::<String>().into_bytes();
        let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
        Config::read(&source, &SystemEnvironment).unwrap().clients
    }

    #[test]
    fn logins_survive_new_keys_and_return_after_a_removal_only_with_an_earlier_one() {
        let book = ClientKeyBook::default();
        let follow = |all: &[(&str, &str)]| {
            book.follow(&clients(all)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(follow(&[("ann", "1"), ("bob", "2")]).is_empty());
        book.note_login(&"ann".into());
        book.note_login(&"bob".into());
        assert_eq!(book.take_unsaved().len(), 2);
        // Keys change while the client is there.
        assert!(follow(&[("ann", "34"), ("bob", "2")]).is_empty());
        assert!(follow(&[("ann", "4"), ("bob", "2")]).is_empty());
        // It is removed, and returns with an earlier key, and with another one beside it.
        assert!(follow(&[("bob", "2")]).is_empty());
        assert!(follow(&[("ann", "15"), ("bob", "2")]).is_empty());
        // It is removed, and another client gets its name.
        assert!(follow(&[("bob", "2")]).is_empty());
        assert_eq!(follow(&[("ann", "6"), ("bob", "2")]), ["ann"]);
        // The same after a restart in between.
        assert!(follow(&[("ann", "6")]).is_empty());
        let rows = book.take_unsaved();
        let restarted = ClientKeyBook::default();
        for (name, value) in &rows {
            let (client, record) = ClientKeyBook::read_row(name, value).unwrap();
            restarted.adopt(client, record);
        }
        let strangers = restarted.follow(&clients(&[("ann", "7"), ("bob", "8")]));
        assert_eq!(strangers, ["bob".into()], "the key of ann was changed, and bob was removed");
    }
}
