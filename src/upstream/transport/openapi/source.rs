//! Where a document comes from: a URL, a file, or one of the usual places of a server; with the
//! files that it refers to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use url::Url;

use crate::codec::body::collect;
use crate::codec::file::{FileReader, read_file};
use crate::config::{DocumentSource, HttpConfig, HttpTransport, OpenApiConfig, ServerConfig};
use crate::crypto::sha256;
use crate::text::clip;
use crate::upstream::transport::http::HttpClient;
use crate::upstream::{SetupFault, UpstreamError};

use super::document::{ApiDescription, DocumentFault, describe_api};
use super::references::{DocumentSet, external_files};
use super::tree::{MAX_BYTES, parse_tree};

/// Reads the document of one API.
pub(super) struct DocumentLoader {
    pub(super) server: Arc<ServerConfig>,
    pub(super) api: Arc<OpenApiConfig>,
    pub(super) files: FileReader,
    /// For the document's own origin; `None` for a local file.
    client: Option<HttpClient>,
}

/// What tells one version of a document from the next.
#[derive(Debug, Clone, Default)]
pub(super) struct DocumentVersion {
    /// Where it was read.
    address: Option<Url>,
    /// The validators of a document without further files.
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
    digest: [u8; 32],
}

/// A document as it was read.
pub(super) struct LoadedDocument {
    pub(super) api: ApiDescription,
    pub(super) version: DocumentVersion,
}

/// The answer to a request for a file of a document.
enum FetchedFile {
    Bytes(Bytes, HeaderMap),
    Unchanged,
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
                // Credentials are for the API: they go to the document if it is at the same place.
                let is_other = |base: &Url| base.origin() != url.origin();
                let is_elsewhere = loader.api.base_url.as_ref().is_some_and(is_other);
                let headers = if is_elsewhere { Vec::new() } else { loader.api.headers.clone() };
                Some(loader.connect(url.clone(), headers).await?)
            }
        };
        Ok(Self { client, ..loader })
    }

    /// The client for the server of the API.
    pub(super) async fn client_for(&self, base: &Url) -> Result<HttpClient, UpstreamError> {
        self.connect(base.clone(), self.api.headers.clone()).await
    }

    async fn connect(
        &self,
        url: Url,
        headers: Vec<(http::HeaderName, crate::config::Secret)>,
    ) -> Result<HttpClient, UpstreamError> {
        let ca = self.api.ca.clone();
        let config = HttpConfig { url, headers, ca, transport: HttpTransport::Streamable };
        let connect_timeout = self.server.connect_timeout;
        let created = self.files.run(move || HttpClient::plain(&config, connect_timeout)).await;
        created.map_err(|error| SetupFault::Files(Arc::new(error)))?
    }

    /// Reads the document; `None` if it is still the one that is known.
    ///
    /// # Errors
    /// [`UpstreamError`] if it cannot be had, or cannot be used.
    pub(super) async fn load(
        &self,
        known: Option<&DocumentVersion>,
    ) -> Result<Option<LoadedDocument>, UpstreamError> {
        let Some((address, bytes, headers)) = self.find(known).await? else { return Ok(None) };
        let mut digest = sha256(&bytes);
        // A document may take many times its size while it is read.
        let _turn = LOADING.acquire().await;
        let tree = parse(bytes).await?;
        let mut open: Vec<_> = external_files(&tree, &address, &address).into_iter().collect();
        let mut set = DocumentSet::new(address.clone(), tree);
        let mut seen = open.clone();
        let is_alone = open.is_empty();
        while let Some(url) = open.pop() {
            if seen.len() > MAX_FILES {
                return Err(unreadable("its files", &format!("more than {MAX_FILES} files")));
            }
            let FetchedFile::Bytes(bytes, _) = self.fetch(&url, None).await? else { continue };
            digest = sha256(&[digest, sha256(&bytes)].concat());
            let tree = parse(bytes).await?;
            for more in external_files(&tree, &url, &address) {
                if !seen.contains(&more) {
                    seen.push(more.clone());
                    open.push(more);
                }
            }
            set.add(url, tree);
        }
        if known.is_some_and(|known| known.digest == digest) {
            return Ok(None);
        }
        let kept = |name| headers.get(name).filter(|_| is_alone).cloned();
        let (etag, last_modified) = (kept(ETAG), kept(LAST_MODIFIED));
        let version = DocumentVersion { address: Some(address), etag, last_modified, digest };
        let config = Arc::clone(&self.api);
        let described = spawn_blocking(move || describe_api(&set, &config)).await;
        let api = described.map_err(|error| SetupFault::Task(Arc::new(error)))??;
        Ok(Some(LoadedDocument { api, version }))
    }

    /// The bytes of the document itself, and where they are; `None` if they are unchanged.
    async fn find(
        &self,
        known: Option<&DocumentVersion>,
    ) -> Result<Option<(Url, Bytes, HeaderMap)>, UpstreamError> {
        let places = match &self.api.document {
            DocumentSource::Url(url) => vec![url.clone()],
            DocumentSource::File(path) => vec![file_url(path)?],
            DocumentSource::Search(url) => places_below(url),
        };
        if let [only] = places.as_slice() {
            let known = known.filter(|known| known.address.as_ref() == Some(only));
            return Ok(match self.fetch(only, known).await? {
                FetchedFile::Bytes(bytes, headers) => Some((only.clone(), bytes, headers)),
                FetchedFile::Unchanged => None,
            });
        }
        let mut tried = Vec::new();
        for place in places {
            let known = known.filter(|known| known.address.as_ref() == Some(&place));
            match self.fetch(&place, known).await {
                Ok(FetchedFile::Unchanged) => return Ok(None),
                Ok(FetchedFile::Bytes(bytes, headers)) if looks_like_openapi(&bytes) => {
                    return Ok(Some((place, bytes, headers)));
                }
                Ok(FetchedFile::Bytes(..)) => {
                    tried.push(format!("{} (another page)", place.path()));
                }
                Err(UpstreamError::Status { status }) => {
                    tried.push(format!("{} ({status})", place.path()));
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(unreadable("no document was found", &tried.join(", ")))
    }

    async fn fetch(
        &self,
        url: &Url,
        known: Option<&DocumentVersion>,
    ) -> Result<FetchedFile, UpstreamError> {
        let Some(client) = &self.client else {
            let bytes = self.read_local(url).await?;
            return Ok(FetchedFile::Bytes(bytes, HeaderMap::new()));
        };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        if let Some(known) = known {
            headers.extend(known.etag.clone().map(|etag| (IF_NONE_MATCH, etag)));
            headers.extend(known.last_modified.clone().map(|at| (IF_MODIFIED_SINCE, at)));
        }
        let path = url
            .query()
            .map_or_else(|| url.path().into(), |query| format!("{}?{query}", url.path()));
        let path: PathAndQuery = path.try_into().map_err(|_| SetupFault::Url)?;
        let response = client.send_to_path(&path, (&Method::GET, &headers), Bytes::new()).await?;
        if response.status() == StatusCode::NOT_MODIFIED && known.is_some() {
            return Ok(FetchedFile::Unchanged);
        }
        if !response.status().is_success() {
            return Err(UpstreamError::Status { status: response.status() });
        }
        let (head, body) = response.into_parts();
        Ok(FetchedFile::Bytes(collect(body, MAX_BYTES).await?, head.headers))
    }

    /// Reads a local file of the document. A link must not lead out of the document's folder.
    async fn read_local(&self, url: &Url) -> Result<Bytes, UpstreamError> {
        let DocumentSource::File(main) = &self.api.document else {
            return Err(SetupFault::Url.into());
        };
        let (main, path) = (main.clone(), url.to_file_path().map_err(|()| SetupFault::Url)?);
        let shown = path.display().to_string();
        let read = self.files.run(move || read_within(&main, &path)).await;
        let read = read.map_err(|error| SetupFault::Files(Arc::new(error)))?;
        read.map(Bytes::from).map_err(|reason| unreadable(&shown, &reason))
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

/// Parses a file of a document away from the threads that serve clients.
async fn parse(bytes: Bytes) -> Result<Value, UpstreamError> {
    let parsed = spawn_blocking(move || parse_tree(&bytes)).await;
    let parsed = parsed.map_err(|error| SetupFault::Task(Arc::new(error)))?;
    Ok(parsed.map_err(DocumentFault::from)?)
}

fn file_url(path: &Path) -> Result<Url, UpstreamError> {
    let absolute = std::path::absolute(path)
        .map_err(|error| unreadable(&path.display().to_string(), &error.to_string()))?;
    Url::from_file_path(absolute).map_err(|()| SetupFault::Url.into())
}

/// The usual places of documents below a URL.
fn places_below(url: &Url) -> Vec<Url> {
    let below = |place: &str| {
        let mut at = url.clone();
        at.set_path(&format!("{}{place}", url.path().trim_end_matches('/')));
        at
    };
    PLACES.into_iter().map(below).collect()
}

/// Whether bytes may be a document, rather than another page of the server.
fn looks_like_openapi(bytes: &[u8]) -> bool {
    parse_tree(bytes).is_ok_and(|tree| tree.get("openapi").or(tree.get("swagger")).is_some())
}

fn unreadable(place: &str, reason: &str) -> UpstreamError {
    let clipped = |text| clip(text, LONGEST_REASON).to_owned();
    DocumentFault::Unreadable { place: clipped(place), reason: clipped(reason) }.into()
}

/// Where servers have their documents, in the order in which they are looked for.
const PLACES: [&str; 4] = ["/openapi.json", "/", "/api/openapi.json", "/docs/openapi.json"];
const ACCEPTED: &str = "application/json, application/yaml, */*;q=0.5";
/// The most files that one document may consist of.
const MAX_FILES: usize = 64;
/// The most bytes of a path or a reason in an error.
const LONGEST_REASON: usize = 300;
/// The most documents that are read at once.
static LOADING: Semaphore = Semaphore::const_new(2);
