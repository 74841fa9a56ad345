//! Stored form of a server's data, and its conversion to lists.
//!
//! Elements are stored as the server sent them, and are checked again when they are read. So a file
//! can produce no list that a server could not.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::ServerName;
use crate::catalog::{ByKind, Freshness, Kind, ServerList, ServerOffers};
use crate::mcp::{Era, ProtocolVersion};
use crate::upstream::lists::dependence::{DependenceVerdict, ListDependence};
use crate::upstream::lists::header_rules;
use crate::upstream::owner::ClientDeclaration;

/// Stored form of a server's data. Times are in seconds since 1970.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptRecord {
    version: String,
    probed: Option<u64>,
    info: String,
    legacy_refused: Option<u64>,
    /// Dependence of the lists on capabilities, if it is known.
    dependent: Option<bool>,
    /// Time of the comparison.
    dependent_since: Option<u64>,
    lists: Vec<KeptList>,
    /// Declarations of clients, with the position of their list. The first list is that of the main
    /// instance.
    further: Vec<(KeptDeclaration, usize)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptDeclaration {
    /// True for Legacy clients of a server with a Modern main instance.
    legacy: bool,
    capabilities: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptList {
    capabilities: Map<String, Value>,
    instructions: Option<String>,
    freshness: ByKind<Freshness>,
    elements: ByKind<Vec<Box<RawValue>>>,
    /// True if it was returned in Legacy.
    legacy: bool,
}

/// Data of a server from an earlier run of the gateway.
#[derive(Debug, Clone)]
pub(crate) struct KnownServer {
    /// Version of its main instance.
    pub(crate) version: ProtocolVersion,
    /// Time of the last probe of its era.
    pub(crate) probed: Option<u64>,
    /// Its raw `serverInfo`.
    pub(crate) info: Bytes,
    /// Time at which a Modern server refused to speak Legacy.
    pub(crate) legacy_refused: Option<u64>,
    /// Dependence of its lists on capabilities.
    pub(crate) dependence: DependenceVerdict,
    /// List of its main instance.
    pub(crate) base: Arc<ServerList>,
    /// Time at which the list of its main instance was requested, in milliseconds since 1970.
    pub(crate) listed_at: u64,
    /// Lists for clients that declare more.
    pub(crate) further: Vec<(ClientDeclaration, Arc<ServerList>)>,
}

impl KnownServer {
    /// Returns the size in bytes of all its elements.
    pub(super) fn size(&self) -> usize {
        let lists = self.distinct_lists();
        let of_one = |list: &Arc<ServerList>| -> usize {
            let all = Kind::ALL.into_iter().flat_map(|kind| list.raws(kind));
            all.map(Bytes::len).sum()
        };
        lists.iter().map(|(list, _)| of_one(list)).sum()
    }

    /// Returns the lists without repetitions, the main instance's first, each with the era in which
    /// it was returned.
    fn distinct_lists(&self) -> Vec<(&Arc<ServerList>, Era)> {
        let main = self.version.era();
        let mut lists = vec![(&self.base, main)];
        for (told, list) in &self.further {
            if !lists.iter().any(|(known, _)| Arc::ptr_eq(known, list)) {
                lists.push((list, told.other_era.unwrap_or(main)));
            }
        }
        lists
    }

    /// Returns the stored form, or `None` if an element is not JSON.
    pub(super) fn to_record(&self) -> Option<KeptRecord> {
        let lists = self.distinct_lists();
        let further = self.further.iter().filter_map(|(told, list)| {
            let position = lists.iter().position(|(known, _)| Arc::ptr_eq(known, list))?;
            let legacy = told.other_era.is_some();
            let capabilities = String::from_utf8(told.capabilities.to_vec()).ok()?;
            Some((KeptDeclaration { legacy, capabilities }, position))
        });
        Some(KeptRecord {
            version: self.version.as_str().to_owned(),
            probed: self.probed,
            info: String::from_utf8(self.info.to_vec()).ok()?,
            legacy_refused: self.legacy_refused,
            dependent_since: self.dependence.since,
            dependent: match self.dependence.found {
                ListDependence::Unknown => None,
                ListDependence::Independent => Some(false),
                ListDependence::Dependent => Some(true),
            },
            further: further.collect(),
            lists: lists
                .into_iter()
                .map(|(list, era)| KeptList::of(list, era))
                .collect::<Option<_>>()?,
        })
    }
}

impl KeptRecord {
    /// Checks and compiles the lists. Returns `None` if the record is not one that
    /// [`KnownServer::to_record`] makes.
    pub(super) fn restore(self, server: &ServerName) -> Option<KnownServer> {
        let version = ProtocolVersion::parse(&self.version)?;
        let mut lists: Vec<Arc<ServerList>> = Vec::with_capacity(self.lists.len());
        let info = Bytes::from(self.info);
        for kept in self.lists {
            let list = kept.build(server, &info, lists.first().map(|first| &**first));
            lists.push(Arc::new(list));
        }
        let further = self.further.into_iter().filter_map(|(told, position)| {
            let other_era = told.legacy.then_some(Era::Legacy);
            let capabilities = told.capabilities.into();
            let told = ClientDeclaration { other_era, account: None, capabilities };
            Some((told, Arc::clone(lists.get(position)?)))
        });
        Some(KnownServer {
            version,
            probed: self.probed,
            info,
            legacy_refused: self.legacy_refused,
            dependence: DependenceVerdict {
                found: match self.dependent {
                    None => ListDependence::Unknown,
                    Some(false) => ListDependence::Independent,
                    Some(true) => ListDependence::Dependent,
                },
                since: self.dependent_since,
            },
            // Only lists of this run are stored again.
            listed_at: 0,
            further: further.collect(),
            base: lists.into_iter().next()?,
        })
    }
}

impl KeptList {
    fn of(list: &ServerList, era: Era) -> Option<Self> {
        let mut elements = ByKind::<Vec<Box<RawValue>>>::default();
        for kind in Kind::ALL {
            let raws = list.raws(kind).into_iter();
            *elements.get_mut(kind) =
                raws.map(|raw| serde_json::from_slice(raw).ok()).collect::<Option<_>>()?;
        }
        Some(Self {
            capabilities: list.offers.capabilities().clone(),
            instructions: list.offers.instructions.clone(),
            freshness: list.freshness,
            elements,
            legacy: era == Era::Legacy,
        })
    }

    fn build(self, server: &ServerName, info: &Bytes, similar: Option<&ServerList>) -> ServerList {
        let era = if self.legacy { Era::Legacy } else { Era::Modern };
        let raws = ByKind::from_fn(|kind| {
            let raws = self.elements.get(kind).iter();
            Some(raws.map(|raw| Bytes::copy_from_slice(raw.get().as_bytes())).collect())
        });
        let (mut list, _) = ServerList::build(server.clone(), &raws, header_rules(era), similar);
        let capabilities = Value::Object(self.capabilities);
        let offers = ServerOffers::new(&capabilities, self.instructions.as_deref());
        list.offers = Arc::new(offers.with_info(info));
        list.freshness = self.freshness;
        list
    }
}
