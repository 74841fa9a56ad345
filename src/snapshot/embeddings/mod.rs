//! Vectors of definitions and of queries, for search by meaning.
//!
//! An [`Embedder`] is created from `[search.embeddings]`, and outlives snapshots for as long as
//! that stays the same. With a model, vectors are computed where they are needed. With a service, a
//! task fetches those of definitions in the background ([`filling`]), beginning with the first
//! search that could have used them, and each search requests the vector of its query. Until all
//! vectors of a view are there, or while the service is down, search uses words: a result never
//! depends on which tools happen to have a vector.

mod filling;
mod vector_cache;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::catalog::{TextVector, embedded_question};
use crate::clock;
use crate::config::{EmbeddingModel, EmbeddingsConfig};
use crate::upstream::{EmbeddingFault, EmbeddingService};

use filling::WantedTexts;
pub(super) use vector_cache::TextDigest;
use vector_cache::{KnownVector, VectorCache};

/// Makes vectors of texts.
#[derive(Debug)]
pub struct Embedder {
    config: EmbeddingsConfig,
    source: VectorSource,
    vectors: VectorCache,
}

#[derive(Debug)]
enum VectorSource {
    Model(Arc<EmbeddingModel>),
    Service(Box<ServiceLine>),
}

/// A service and its state.
#[derive(Debug)]
struct ServiceLine {
    service: EmbeddingService,
    /// Texts that wait for their vectors.
    wanted: Mutex<WantedTexts>,
    /// Notified when there are more of them.
    more: Notify,
    is_followed: AtomicBool,
    /// The fault of the last request; `None` if it succeeded.
    fault: Mutex<Option<EmbeddingFault>>,
    pause: Mutex<QueryPause>,
    /// A permit for each concurrent query.
    queries: Semaphore,
}

/// The time after a failure in which the service gets no queries, so that searches do not wait for
/// it.
#[derive(Debug)]
struct QueryPause {
    backoff: Backoff,
    until: Option<Instant>,
}

/// State of the vectors, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderReport {
    /// True if they come from a service.
    pub is_service: bool,
    /// Number of dimensions; `None` before the first answer of a service.
    pub dimensions: Option<usize>,
    /// Number of vectors.
    pub vectors: usize,
    /// Number of definitions that wait for theirs.
    pub waiting: usize,
    /// The fault of the last request to the service; `None` if it succeeded.
    pub fault: Option<EmbeddingFault>,
}

/// The embedder in use, which outlives snapshots.
#[derive(Debug, Default)]
pub(super) struct EmbedderCell(Mutex<Option<Arc<Embedder>>>);

impl EmbedderCell {
    /// Returns the embedder of a configuration: the one in use if its configuration has not
    /// changed.
    pub(super) fn embedder(&self, config: Option<&EmbeddingsConfig>) -> Option<Arc<Embedder>> {
        let mut used = self.0.lock();
        let is_same = used.as_ref().map(|embedder| &embedder.config) == config;
        if !is_same {
            *used = config.and_then(Embedder::from_config).map(Arc::new);
        }
        used.clone()
    }
}

impl Embedder {
    fn from_config(config: &EmbeddingsConfig) -> Option<Self> {
        let source = match &config.model {
            Some(model) => VectorSource::Model(Arc::clone(model)),
            None => VectorSource::Service(Box::new(ServiceLine {
                service: EmbeddingService::from_config(config)?,
                wanted: Mutex::default(),
                more: Notify::new(),
                is_followed: AtomicBool::new(false),
                fault: Mutex::default(),
                pause: Mutex::new(QueryPause {
                    backoff: Backoff::new(FIRST_PAUSE, LAST_PAUSE),
                    until: None,
                }),
                queries: Semaphore::new(MAX_CONCURRENT_QUERIES),
            })),
        };
        Some(Self { config: config.clone(), source, vectors: VectorCache::default() })
    }

    /// Returns true if a service computes a query's vector.
    pub(super) fn asks_service(&self) -> bool {
        matches!(self.source, VectorSource::Service(_))
    }

    /// Returns the vectors of texts, in their order, each `None` if the text has none. `None` if a
    /// service has not been asked for one of them yet. `text` returns a text by its index.
    pub(super) fn find_all(
        &self,
        digests: &[TextDigest],
        text: impl Fn(usize) -> String,
    ) -> Option<Vec<Option<Arc<TextVector>>>> {
        let mut found = Vec::with_capacity(digests.len());
        let mut missing = Vec::new();
        for (place, digest) in digests.iter().enumerate() {
            match (self.vectors.find(digest), &self.source) {
                (Some(KnownVector(vector)), _) => found.push(vector),
                (None, VectorSource::Model(model)) => {
                    let text = self.definition_text(&text(place));
                    let vector = TextVector::from_numbers(&model.embed(&text));
                    let vector = vector.map(Arc::new);
                    self.vectors.keep(*digest, vector.clone());
                    found.push(vector);
                }
                (None, VectorSource::Service(_)) => missing.push(place),
            }
        }
        if missing.is_empty() {
            return Some(found);
        }
        if let VectorSource::Service(line) = &self.source {
            let mut wanted = line.wanted.lock();
            for place in missing {
                let Some(digest) = digests.get(place) else { continue };
                wanted.want(*digest, || self.definition_text(&text(place)));
            }
            drop(wanted);
            line.more.notify_one();
        }
        None
    }

    /// Returns true if the vectors of all these texts are known.
    pub(super) fn has_all(&self, digests: &[TextDigest]) -> bool {
        digests.iter().all(|digest| self.vectors.has(digest))
    }

    /// Returns the vector of a query, by the model; `None` if it has none, and with a service.
    pub(super) fn embed_here(&self, query: &str) -> Option<TextVector> {
        match &self.source {
            VectorSource::Model(model) => {
                TextVector::from_numbers(&model.embed(&self.query_text(query)))
            }
            VectorSource::Service(_) => None,
        }
    }

    /// Returns the vector of a query, by the service; `None` if it does not arrive in time, and
    /// with a model.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn ask_service(&self, query: &str) -> Option<TextVector> {
        let VectorSource::Service(line) = &self.source else { return None };
        if line.pause.lock().is_over(clock::now()) {
            let _place = line.queries.try_acquire().ok()?;
            let asked = line.service.embed(&[self.query_text(query)], self.config.timeout).await;
            let fault = asked.as_ref().err().filter(|fault| !fault.is_about_texts(1));
            line.pause.lock().note(fault.is_some(), clock::now());
            line.note_fault(asked.as_ref().err());
            return asked.ok()?.into_iter().next().flatten();
        }
        None
    }

    /// Returns the model's input for a definition with this text.
    fn definition_text(&self, text: &str) -> String {
        let prefix = self.config.definition_prefix.as_deref().unwrap_or_default();
        format!("{prefix}{text}")
    }

    /// Returns the model's input for a query.
    fn query_text(&self, query: &str) -> String {
        let prefix = self.config.query_prefix.as_deref().unwrap_or_default();
        format!("{prefix}{}", embedded_question(query))
    }

    /// Returns its state.
    pub fn report(&self) -> EmbedderReport {
        let vectors = self.vectors.len();
        match &self.source {
            VectorSource::Model(model) => EmbedderReport {
                is_service: false,
                dimensions: Some(model.dimensions()),
                vectors,
                waiting: 0,
                fault: None,
            },
            VectorSource::Service(line) => EmbedderReport {
                is_service: true,
                dimensions: line.service.dimensions(),
                vectors,
                waiting: line.wanted.lock().len(),
                fault: line.fault.lock().clone(),
            },
        }
    }
}

impl ServiceLine {
    /// Logs a fault when it begins, and its end.
    fn note_fault(&self, fault: Option<&EmbeddingFault>) {
        let mut known = self.fault.lock();
        match (fault, &*known) {
            (Some(fault), None) => tracing::warn!(%fault, "no vectors: search uses keywords only"),
            (None, Some(_)) => tracing::info!("the embedding service is available again"),
            _ => {}
        }
        *known = fault.cloned();
    }
}

impl QueryPause {
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    fn note(&mut self, has_failed: bool, now: Instant) {
        if has_failed {
            self.until = Some(now + self.backoff.next_wait());
        } else {
            self.backoff.reset();
            self.until = None;
        }
    }
}

/// Limit of concurrent queries to a service; further searches use words alone.
const MAX_CONCURRENT_QUERIES: usize = 32;
/// Limits of the time without queries to a service that has failed.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_fails_is_left_alone_for_longer_each_time() {
        let now = clock::now();
        let mut pause = QueryPause { backoff: Backoff::new(FIRST_PAUSE, LAST_PAUSE), until: None };
        assert!(pause.is_over(now));
        pause.note(true, now);
        assert!(!pause.is_over(now) && pause.is_over(now + FIRST_PAUSE));
        pause.note(true, now);
        assert!(!pause.is_over(now + FIRST_PAUSE) && pause.is_over(now + 2 * FIRST_PAUSE));
        pause.note(false, now);
        assert!(pause.is_over(now));
    }
}
