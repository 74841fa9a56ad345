use std::fs;

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::catalog::{ByKind, Freshness, Kind, ServerList, ServerOffers};
use crate::config::{Config, ConfigSource, SystemEnvironment};
use crate::mcp::{Era, ProtocolVersion};
use crate::upstream::lists::dependence::{DependenceVerdict, ListDependence};
use crate::upstream::lists::header_rules;
use crate::upstream::owner::ClientDeclaration;

pub(super) const HTTP: &str =
    "url = \"http://127.0.0.1:9/mcp\"\nheaders = { X-Key = \"hunter2-secret\" }";
const CHILD: &str = "command = \"sh\"\nargs = [\"-c\"]\nenv = { KEY = \"hunter2-secret\" }";

pub(super) fn server(lines: &str) -> Arc<ServerConfig> {
    let bytes = format!("[servers.s]\n{lines}\n").into_bytes();
    let source = ConfigSource { name: "gateway.toml".into(), folder: "/".into(), bytes };
    Arc::clone(&Config::read(&source, &SystemEnvironment).unwrap().servers[0])
}

static INFO: Bytes = Bytes::from_static(br#"{"name":"n","version":"1"}"#);

fn list(tool: &str, era: Era) -> Arc<ServerList> {
    let name = ServerName::new("s").unwrap();
    let tool = json!({ "name": tool, "inputSchema": { "type": "object" } }).to_string();
    let prompt = Bytes::from_static(br#"{ "name":"p" , "later":[1.0]}"#);
    let raws = ByKind {
        tools: Some(vec![Bytes::from(tool)]),
        prompts: Some(vec![prompt]),
        resources: Some(vec![]),
        templates: Some(vec![]),
        skills: Some(vec![]),
    };
    let mut list = ServerList::build(name, &raws, header_rules(era), None).0;
    let offers = ServerOffers::new(&json!({ "tools": {}, "x": { "y": 1 } }), Some("hi"));
    list.offers = Arc::new(offers.with_info(&INFO));
    list.freshness.tools = Freshness::FOR_EVER;
    Arc::new(list)
}

/// A server of both eras with different lists in each.
pub(crate) fn known(tool: &str) -> KnownServer {
    let base = list(tool, Era::Modern);
    let told = |other_era, capabilities: &'static str| ClientDeclaration {
        other_era,
        account: None,
        capabilities: Bytes::from_static(capabilities.as_bytes()),
    };
    KnownServer {
        version: ProtocolVersion::LATEST_MODERN,
        probed: Some(7),
        info: INFO.clone(),
        legacy_refused: None,
        dependence: DependenceVerdict { found: ListDependence::Independent, since: Some(8) },
        further: vec![
            (told(Some(Era::Legacy), "{}"), list("legacy", Era::Legacy)),
            (told(None, r#"{"roots":{}}"#), Arc::clone(&base)),
        ],
        base,
        listed_at: 0,
    }
}

/// A server with so many prompts of 32 KiB.
pub(super) fn large(config: &ServerConfig, prompts: usize) -> KnownServer {
    let raw = |n| json!({ "name": format!("p{n}"), "x": "y".repeat(1 << 15) }).to_string().into();
    let raws = ByKind { prompts: Some((0..prompts).map(raw).collect()), ..ByKind::default() };
    let list = ServerList::build(config.name.clone(), &raws, header_rules(Era::Modern), None).0;
    KnownServer { base: Arc::new(list), listed_at: u64::MAX, ..known("one") }
}

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) async fn open_with(
        &self,
        keys: &[&str],
        config: &Arc<ServerConfig>,
    ) -> Arc<ListStore> {
        Self::open_store(Some(self), keys, None, config).await
    }

    /// Opens the store of a replica, with or without files.
    pub(super) async fn open_shared(
        files: Option<&Self>,
        shared: Arc<dyn SharedRecords>,
        config: &Arc<ServerConfig>,
    ) -> Arc<ListStore> {
        Self::open_store(files, &["key"], Some(shared), config).await
    }

    async fn open_store(
        files: Option<&Self>,
        keys: &[&str],
        shared: Option<Arc<dyn SharedRecords>>,
        config: &Arc<ServerConfig>,
    ) -> Arc<ListStore> {
        let keys: Vec<_> = keys.iter().map(|key| Secret::new((*key).to_owned())).collect();
        let folder = files.map(|files| files.0.path().join("lists"));
        let (path, keys) = (Path::new("gateway.toml"), &keys);
        let settings = StoreSettings { folder, config: path, keys, shared };
        ListStore::open(settings, std::slice::from_ref(config)).await.unwrap()
    }

    pub(crate) async fn open(&self, config: &Arc<ServerConfig>) -> Arc<ListStore> {
        self.open_with(&[], config).await
    }

    /// Returns the file of the server.
    fn file(&self) -> Option<PathBuf> {
        let files = fs::read_dir(self.0.path().join("lists")).unwrap();
        let mut files = files.map(|entry| entry.unwrap().path());
        files.find(|path| path.extension().is_some_and(|it| it == "lists"))
    }
}

#[tokio::test]
async fn kept_lists_come_back_whole_and_once() {
    let (folder, config, kept) = (Folder::new(), server(CHILD), known("one"));
    folder.open(&config).await.keep(&config, kept.clone()).await;
    let store = folder.open(&config).await;
    let known = store.take(&config).unwrap();
    assert!(store.take(&config).is_none());
    assert_eq!((known.version, known.probed), (kept.version, kept.probed));
    assert_eq!((&known.info, known.legacy_refused), (&kept.info, None));
    assert_eq!(known.dependence, kept.dependence);
    assert!(known.base.is_same(&kept.base));
    assert_eq!(known.base.raws(Kind::Prompts), kept.base.raws(Kind::Prompts));
    for ((told, list), (kept_for, kept)) in known.further.iter().zip(&kept.further) {
        assert!(told == kept_for && list.is_same(kept));
    }
    assert!(Arc::ptr_eq(&known.further[1].1, &known.base), "shared lists stay shared");
}

#[tokio::test]
async fn lists_of_another_configuration_are_dropped() {
    let changes = [
        (CHILD, CHILD.replace("-c", "-d")),
        (CHILD, CHILD.replace("\"sh\"", "\"bash\"")),
        (CHILD, CHILD.replace("hunter2-secret", "hunter3-secret")),
        (CHILD, CHILD.replace("KEY", "KEZ")),
        (CHILD, format!("{CHILD}\ncwd = \"/tmp\"")),
        (CHILD, format!("{CHILD}\npass_env = [\"CARGO_*\"]")),
        (CHILD, format!("{CHILD}\nera = \"legacy\"")),
        (CHILD, format!("{CHILD}\nmax_tools = 9")),
        (CHILD, format!("{CHILD}\nmax_instances = 0")),
        (CHILD, format!("{CHILD}\nclient_capabilities = \"hide\"")),
        (CHILD, HTTP.to_owned()),
        (HTTP, HTTP.replace("/mcp", "/mcq")),
        (HTTP, HTTP.replace("hunter2-secret", "hunter3-secret")),
        (HTTP, HTTP.replace("X-Key", "X-Kez")),
        (HTTP, format!("{HTTP}\ntransport = \"sse\"")),
    ];
    for (before, after) in changes {
        let (folder, before) = (Folder::new(), server(before));
        folder.open(&before).await.keep(&before, known("one")).await;
        assert!(folder.open(&before).await.take(&before).is_some());
        let next = server(&after);
        assert!(folder.open(&next).await.take(&next).is_none(), "{after}");
        assert!(folder.file().is_none(), "{after}");
    }
    let (folder, before) = (Folder::new(), server(CHILD));
    folder.open(&before).await.keep(&before, known("one")).await;
    let same = server(&format!("{CHILD}\ntimeout = \"3s\"\ntools.deny = [\"x\"]"));
    let store = folder.open(&same).await;
    assert!(store.take(&same).is_some(), "the lists do not depend on it");
}

#[tokio::test]
async fn lists_that_were_read_for_one_configuration_are_not_used_for_another() {
    let (folder, config) = (Folder::new(), server(CHILD));
    folder.open(&config).await.keep(&config, known("one")).await;
    let reloaded = server(&CHILD.replace("-c", "-d"));
    assert!(folder.open(&config).await.take(&reloaded).is_none());
}

#[tokio::test]
async fn a_file_tells_nothing_to_those_who_have_no_key() {
    for keys in [&[][..], &["a state key"]] {
        let (folder, config) = (Folder::new(), server(CHILD));
        folder.open_with(keys, &config).await.keep(&config, known("one")).await;
        let file = fs::read(folder.file().unwrap()).unwrap();
        let text = String::from_utf8_lossy(&file);
        assert!(!text.contains("one") && !text.contains("hunter2"), "{text}");
        assert_eq!(folder.0.path().join("lists/key").exists(), keys.is_empty());
    }
}

#[tokio::test]
async fn keys_that_seal_lists_rotate() {
    let (folder, config) = (Folder::new(), server(CHILD));
    folder.open_with(&["old"], &config).await.keep(&config, known("one")).await;
    assert!(folder.open_with(&["new", "old"], &config).await.take(&config).is_some());
    assert!(folder.open_with(&["new"], &config).await.take(&config).is_none());
}

#[tokio::test]
async fn a_damaged_or_foreign_file_is_ignored() {
    let (folder, config) = (Folder::new(), server(CHILD));
    folder.open(&config).await.keep(&config, known("one")).await;
    let path = folder.file().unwrap();
    let whole = fs::read(&path).unwrap();
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        let store = folder.open(&config).await;
        assert!(store.keys.open(&config, &changed).is_err(), "byte {place}");
        assert!(store.keys.open(&config, &whole[..place]).is_err(), "{place} bytes");
    }
    let long = [whole.as_slice(), &vec![0; MAX_FILE]].concat();
    for foreign in [&b""[..], b"{\"tools\":[]}", b"trunkline lists 9\n", &whole[..99], &long] {
        fs::write(&path, foreign).unwrap();
        assert!(folder.open(&config).await.take(&config).is_none());
        fs::write(&path, &whole).unwrap();
        assert!(folder.open(&config).await.take(&config).is_some());
    }
}

#[tokio::test]
async fn the_lists_of_one_server_cannot_be_passed_off_as_those_of_another() {
    let (folder, config) = (Folder::new(), server(CHILD));
    let other = server(&CHILD.replace("-c", "-d"));
    let store = folder.open(&config).await;
    let [mut own, foreign] =
        [&config, &other].map(|config| store.keys.seal(config, b"record".to_vec()).unwrap());
    let head = seal::HEAD_BYTES;
    assert!(store.keys.open(&config, &own).is_ok() && store.keys.open(&other, &foreign).is_ok());
    own.truncate(head);
    own.extend(&foreign[head..]);
    assert!(matches!(store.keys.open(&config, &own), Err(StoreFault::Damaged)));
}

#[tokio::test]
async fn a_sealed_record_that_no_gateway_writes_is_ignored() {
    let (folder, config) = (Folder::new(), server(CHILD));
    let now = clock::unix_now().as_secs().to_be_bytes();
    let (late, old) = (u64::MAX.to_be_bytes(), 1_u64.to_be_bytes());
    let store = folder.open(&config).await;
    let record = serde_json::to_value(known("one").to_record().unwrap()).unwrap();
    let mut odd = record.clone();
    odd["lists"] = json!([]);
    let mut strange = record.clone();
    strange["version"] = json!("1999-01-01");
    let odd = [json!({}), json!([]), odd, strange].map(|odd| (now, odd));
    for (at, record) in odd.into_iter().chain([(late, record.clone()), (old, record.clone())]) {
        let sealed = [at.as_slice(), record.to_string().as_bytes()].concat();
        let sealed = store.keys.seal(&config, sealed).unwrap();
        store.folder.as_ref().unwrap().replace(&config.name, &sealed).unwrap();
        assert!(store.load(&config).is_err(), "{record}");
    }
    let mut cut = record;
    cut["further"][0][1] = json!(99);
    let sealed = [now.as_slice(), cut.to_string().as_bytes()].concat();
    let files = store.folder.as_ref().unwrap();
    files.replace(&config.name, &store.keys.seal(&config, sealed).unwrap()).unwrap();
    assert_eq!(
        store.load(&config).unwrap().unwrap().0.further.len(),
        1,
        "a list that is not there"
    );
}

#[tokio::test]
async fn a_file_is_written_only_if_something_has_changed() {
    let (folder, config) = (Folder::new(), server(CHILD));
    let store = folder.open(&config).await;
    let mut before = Vec::new();
    for (tool, changes) in [("one", true), ("one", false), ("two", true), ("two", false)] {
        store.keep(&config, known(tool)).await;
        let after = fs::read(folder.file().unwrap()).unwrap();
        assert_eq!(before != after, changes, "{tool}");
        before = after;
    }
    let store = folder.open(&config).await;
    store.keep(&config, known("two")).await;
    assert_eq!(fs::read(folder.file().unwrap()).unwrap(), before, "nor by the next run");
    let later = clock::unix_now().as_secs() + REWRITE_AGE.as_secs();
    store.write(&config, &known("two"), later, None);
    assert_ne!(fs::read(folder.file().unwrap()).unwrap(), before, "but once a day");
}

#[tokio::test]
async fn lists_that_are_too_large_are_not_kept() {
    let (folder, config) = (Folder::new(), server(CHILD));
    let store = folder.open(&config).await;
    store.keep(&config, known("one")).await;
    assert!(folder.file().is_some());
    let large = large(&config, 513);
    assert_eq!(large.base.prompts.len(), 513);
    store.keep(&config, large).await;
    assert!(folder.file().is_none());
}
