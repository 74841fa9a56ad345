//! Reading of a document and the files to which it refers: from a URL, a file, or one of the usual
//! places of a server.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{ACCEPT, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use url::{Position, Url};

use crate::codec::body::collect;
use crate::codec::file::{FileReader, read_file};
use crate::config::{
    AwsConfig, DocumentSource, HttpConfig, HttpTransport, OpenApiConfig, Secret, ServerConfig,
};
use crate::crypto::sha256;
use crate::http_client::{HttpClient, HttpSetupFault, OutgoingRequest, RedirectedTo, decode_body};
use crate::openapi::{
    ApiDescription, DocumentFault, DocumentSet, MAX_BYTES, TreeBudget, describe_api,
    external_files, parse_tree,
};
use crate::text::clip;
use crate::upstream::{SetupFault, UpstreamError};

/// Reads the document of one API.
pub(super) struct DocumentLoader {
    pub(super) server: Arc<ServerConfig>,
    pub(super) api: Arc<OpenApiConfig>,
    pub(super) files: FileReader,
    /// Client for the document's own origin. `None` for a local file.
    client: Option<HttpClient>,
}

/// Identifies a version of a document.
#[derive(Debug, Clone, Default)]
pub(super) struct DocumentVersion {
    /// URL at which it was requested.
    place: Option<Url>,
    /// Validators of a document without further files.
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
    digest: [u8; 32],
}

/// A document as it was read.
pub(super) struct LoadedDocument {
    pub(super) api: ApiDescription,
    pub(super) version: DocumentVersion,
}

/// A file of a document.
struct FetchedFile {
    /// Address after redirects. References in the file are relative to it.
    address: Url,
    bytes: Bytes,
    headers: HeaderMap,
}

/// A document before its further files are read.
struct FoundDocument {
    /// URL at which it was requested.
    place: Url,
    headers: HeaderMap,
    document: OpenDocument,
}

/// A document while its files are read.
struct OpenDocument {
    set: DocumentSet,
    budget: TreeBudget,
    /// Digest of all files so far.
    digest: [u8; 32],
    /// Files that are named but not read yet.
    waiting: Vec<Url>,
    /// All files that are named, except the document itself.
    named: HashSet<Url>,
}

impl DocumentLoader {
    pub(super) async fn new(
        server: Arc<ServerConfig>,
        api: OpenApiConfig,
        files: FileReader,
    ) -> Result<Self, UpstreamError> {
        let api = Arc::new(api);
        let loader = Self { server, api, files, client: None };
        let client = match &loader.api.document {
            DocumentSource::File(_) => None,
            DocumentSource::Url(url) | DocumentSource::Search(url) => {
                // Credentials are for the API. They are sent for the document only if it has the
                // same origin.
                let is_other = |base: &Url| base.origin() != url.origin();
                let is_elsewhere = loader.api.base_url.as_ref().is_some_and(is_other);
                let headers = if is_elsewhere { Vec::new() } else { loader.api.headers.clone() };
                let aws = loader.api.aws.clone().filter(|_| !is_elsewhere);
                Some(loader.connect(url.clone(), headers, aws).await?)
            }
        };
        Ok(Self { client, ..loader })
    }

    /// Returns the client for the server of the API.
    pub(super) async fn client_for(&self, base: &Url) -> Result<HttpClient, UpstreamError> {
        self.connect(base.clone(), self.api.headers.clone(), self.api.aws.clone()).await
    }

    async fn connect(
        &self,
        url: Url,
        headers: Vec<(HeaderName, Secret)>,
        aws: Option<AwsConfig>,
    ) -> Result<HttpClient, UpstreamError> {
        let (ca, transport) = (self.api.ca.clone(), HttpTransport::Streamable);
        let config = HttpConfig { url, headers, ca, transport, oauth: None, aws };
        let connect_timeout = self.server.connect_timeout;
        let created = self.files.run(move || HttpClient::plain(&config, connect_timeout)).await;
        Ok(created.map_err(|error| SetupFault::Files(Arc::new(error)))??)
    }

    /// Reads the document. Returns `None` if it is unchanged.
    ///
    /// # Errors
    /// [`UpstreamError`] if it cannot be read, or cannot be used.
    pub(super) async fn load(
        &self,
        known: Option<&DocumentVersion>,
    ) -> Result<Option<LoadedDocument>, UpstreamError> {
        let Some(found) = self.find(known).await? else { return Ok(None) };
        let FoundDocument { place, headers, document } = found;
        let is_alone = document.waiting.is_empty();
        let document = self.read_files(document).await?;
        let digest = document.digest;
        if known.is_some_and(|known| known.digest == digest) {
            return Ok(None);
        }
        let kept = |name| headers.get(name).filter(|_| is_alone).cloned();
        let (etag, last_modified) = (kept(ETAG), kept(LAST_MODIFIED));
        let version = DocumentVersion { place: Some(place), etag, last_modified, digest };
        let config = Arc::clone(&self.api);
        let api = in_turn(move || describe_api(&document.set, &config)).await??;
        Ok(Some(LoadedDocument { api, version }))
    }

    /// Returns the document itself with its address, or `None` if it is unchanged.
    async fn find(
        &self,
        known: Option<&DocumentVersion>,
    ) -> Result<Option<FoundDocument>, UpstreamError> {
        match &self.api.document {
            DocumentSource::Url(url) => self.find_at(url, known).await,
            DocumentSource::File(path) => self.find_at(&file_url(path)?, known).await,
            DocumentSource::Search(url) => self.search(url, known).await,
        }
    }

    /// Searches the usual places for the document.
    async fn search(
        &self,
        url: &Url,
        known: Option<&DocumentVersion>,
    ) -> Result<Option<FoundDocument>, UpstreamError> {
        let mut tried = Vec::new();
        // The first refusal of credentials, while every place answers with one.
        let (mut refusal, mut is_refused) = (None, true);
        for place in places_below(url) {
            let reason = match self.find_at(&place, known).await {
                Ok(Some(found)) if !found.document.set.is_openapi() => "another page".to_owned(),
                Ok(found) => return Ok(found),
                // If a server cannot be reached, its other places cannot either.
                Err(fault @ UpstreamError::Connect(_)) => return Err(fault),
                Err(UpstreamError::Status { status, .. }) if is_refusal(status) => {
                    refusal.get_or_insert(status);
                    tried.push(format!("{} ({status})", place.path()));
                    continue;
                }
                Err(UpstreamError::Status { status, .. }) => status.to_string(),
                Err(fault) => fault.chain_without(&self.server.secrets),
            };
            is_refused = false;
            tried.push(format!("{} ({reason})", place.path()));
        }
        if let Some(status) = refusal.filter(|_| is_refused) {
            return Err(UpstreamError::of_status(status));
        }
        Err(unreadable("no document was found", &tried.join(", ")).into())
    }

    async fn find_at(
        &self,
        place: &Url,
        known: Option<&DocumentVersion>,
    ) -> Result<Option<FoundDocument>, UpstreamError> {
        let known = known.filter(|known| known.place.as_ref() == Some(place));
        let Some(file) = self.fetch(place, known).await? else { return Ok(None) };
        let FetchedFile { address, bytes, headers } = file;
        let document = in_turn(move || OpenDocument::parse(address, &bytes)).await??;
        Ok(Some(FoundDocument { place: place.clone(), headers, document }))
    }

    /// Reads the files to which the document refers. An unreadable file does not make the document
    /// fail. The operations that need it report the fault.
    async fn read_files(&self, mut document: OpenDocument) -> Result<OpenDocument, UpstreamError> {
        while let Some(url) = document.waiting.pop() {
            match self.fetch(&url, None).await {
                Ok(Some(FetchedFile { address, bytes, .. })) => {
                    document = in_turn(move || document.add(url, &address, &bytes)).await??;
                }
                Ok(None) => {}
                Err(fault) => {
                    document.note_unreadable(url, &fault.chain_without(&self.server.secrets));
                }
            }
        }
        Ok(document)
    }

    /// Reads a file. Returns `None` if it is unchanged.
    async fn fetch(
        &self,
        url: &Url,
        known: Option<&DocumentVersion>,
    ) -> Result<Option<FetchedFile>, UpstreamError> {
        let Some(client) = &self.client else {
            let (address, bytes) = (url.clone(), self.read_local(url).await?);
            return Ok(Some(FetchedFile { address, bytes, headers: HeaderMap::new() }));
        };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED_TYPES));
        if let Some(known) = known {
            headers.extend(known.etag.clone().map(|etag| (IF_NONE_MATCH, etag)));
            headers.extend(known.last_modified.clone().map(|at| (IF_MODIFIED_SINCE, at)));
        }
        let path: PathAndQuery = url[Position::BeforePath..Position::AfterQuery]
            .parse()
            .map_err(|_| HttpSetupFault::Url)?;
        let (target, method, headers) = (&client.target_at(&path)?, &Method::GET, &headers);
        let request = OutgoingRequest { target, method, headers, body: Bytes::new() };
        let mut response = client.send_to(request).await?;
        if response.status() == StatusCode::NOT_MODIFIED && known.is_some() {
            return Ok(None);
        }
        if !response.status().is_success() {
            return Err(UpstreamError::of_status(response.status()));
        }
        decode_body(&mut response)?;
        let (head, body) = response.into_parts();
        let redirected = head.extensions.get::<RedirectedTo>();
        let address = redirected.and_then(|to| Url::parse(&to.0.to_string()).ok());
        let bytes = collect(body, MAX_BYTES).await?;
        let address = address.unwrap_or_else(|| url.clone());
        Ok(Some(FetchedFile { address, bytes, headers: head.headers }))
    }

    /// Reads a local file of the document. A link must not lead out of the document's folder.
    async fn read_local(&self, url: &Url) -> Result<Bytes, UpstreamError> {
        let DocumentSource::File(main) = &self.api.document else {
            return Err(HttpSetupFault::Url.into());
        };
        let (main, path) = (main.clone(), url.to_file_path().map_err(|()| HttpSetupFault::Url)?);
        let shown = path.display().to_string();
        let read = self.files.run(move || read_within(&main, &path)).await;
        let read = read.map_err(|error| SetupFault::Files(Arc::new(error)))?;
        Ok(read.map(Bytes::from).map_err(|reason| unreadable(&shown, &reason))?)
    }
}

fn read_within(main: &Path, path: &Path) -> Result<Vec<u8>, String> {
    let real = |path: &Path| path.canonicalize().map_err(|error| error.to_string());
    if main != path {
        let folder = real(main)?.parent().map(PathBuf::from).unwrap_or_default();
        if !real(path)?.starts_with(folder) {
            return Err("it is outside of the document's folder".to_owned());
        }
    }
    read_file(path, MAX_BYTES).map_err(|error| error.to_string())
}

/// Runs work on a document away from the threads that serve clients. The work may take many times
/// the document's size in memory, so its concurrency is limited. A permit lasts until the work
/// ends, even if its caller has stopped waiting.
async fn in_turn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, UpstreamError> {
    static TURNS: LazyLock<Arc<Semaphore>> =
        LazyLock::new(|| Arc::new(Semaphore::new(MAX_CONCURRENT_DOCUMENTS)));
    let turn = Arc::clone(&TURNS).acquire_owned().await;
    let done = spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    Ok(done.await.map_err(|error| SetupFault::Task(Arc::new(error)))?)
}

impl OpenDocument {
    fn parse(address: Url, bytes: &[u8]) -> Result<Self, DocumentFault> {
        let mut budget = TreeBudget::default();
        let tree = parse_tree(bytes, &mut budget)?;
        let files = external_files(&tree, &address, &address);
        let set = DocumentSet::new(address, tree);
        let (waiting, named) = (Vec::new(), HashSet::new());
        let mut document = Self { set, budget, digest: sha256(bytes), waiting, named };
        document.await_files(files)?;
        Ok(document)
    }

    /// Adds a file that was named `url` and read at `address`.
    fn add(mut self, url: Url, address: &Url, bytes: &[u8]) -> Result<Self, DocumentFault> {
        match parse_tree(bytes, &mut self.budget) {
            Ok(tree) => {
                self.digest = sha256(&[self.digest, sha256(bytes)].concat());
                let main = self.set.address().unwrap_or(address);
                let files = external_files(&tree, address, main);
                self.await_files(files)?;
                self.set.add(url, address.clone(), tree);
            }
            Err(fault) => self.note_unreadable(url, &fault.to_string()),
        }
        Ok(self)
    }

    fn note_unreadable(&mut self, url: Url, reason: &str) {
        // The document counts as changed once the file can be read again.
        self.digest = sha256(&self.digest);
        self.set.add_unreadable(url, reason);
    }

    fn await_files(&mut self, files: BTreeSet<Url>) -> Result<(), DocumentFault> {
        for url in files {
            if self.named.contains(&url) {
                continue;
            }
            if self.named.len() == MAX_FILES {
                return Err(unreadable("its files", &format!("more than {MAX_FILES} files")));
            }
            self.named.insert(url.clone());
            self.waiting.push(url);
        }
        Ok(())
    }
}

fn file_url(path: &Path) -> Result<Url, UpstreamError> {
    let absolute = std::path::absolute(path)
        .map_err(|error| unreadable(&path.display().to_string(), &error.to_string()))?;
    Url::from_file_path(absolute).map_err(|()| HttpSetupFault::Url.into())
}

/// Returns the usual places of documents below a URL.
fn places_below(url: &Url) -> Vec<Url> {
    let below = |place: &str| {
        let mut at = url.clone();
        at.set_path(&format!("{}{place}", url.path().trim_end_matches('/')));
        at
    };
    DOCUMENT_PATHS.into_iter().map(below).collect()
}

/// Returns true for the answer to credentials that are missing or not accepted.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

fn unreadable(place: &str, reason: &str) -> DocumentFault {
    let clipped = |text| clip(text, MAX_SHOWN_REASON_BYTES).to_owned();
    DocumentFault::Unreadable { place: clipped(place), reason: clipped(reason) }
}

/// Paths at which servers usually have their documents, in search order.
const DOCUMENT_PATHS: [&str; 4] = ["/openapi.json", "/", "/api/openapi.json", "/docs/openapi.json"];
const ACCEPTED_TYPES: &str = "application/json, application/yaml, */*;q=0.5";
/// Maximum number of files of one document.
const MAX_FILES: usize = 64;
/// Maximum length in bytes of a path or a reason in an error.
const MAX_SHOWN_REASON_BYTES: usize = 300;
/// Maximum number of documents that are processed at once.
const MAX_CONCURRENT_DOCUMENTS: usize = 2;
