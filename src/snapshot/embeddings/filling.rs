//! Fetches the vectors of definitions from a service, in batches.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::upstream::{EmbeddingFault, ServerContext};

use super::vector_cache::TextDigest;
use super::{Embedder, ServiceLine, VectorSource};

/// Texts that wait for their vectors, each once, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct WantedTexts {
    queue: VecDeque<(TextDigest, String)>,
    known: HashSet<TextDigest>,
}

impl WantedTexts {
    /// Adds a text. Beyond [`MAX_WAITING_TEXTS`] it is ignored; a later search adds it again.
    pub(super) fn want(&mut self, digest: TextDigest, text: impl FnOnce() -> String) {
        if self.known.len() < MAX_WAITING_TEXTS && self.known.insert(digest) {
            self.queue.push_back((digest, text()));
        }
    }

    /// Returns the number of texts.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Takes the first texts. They stay known until [`WantedTexts::forget`].
    fn take(&mut self, most: usize) -> Vec<(TextDigest, String)> {
        let count = most.min(self.queue.len());
        self.queue.drain(..count).collect()
    }

    /// Returns texts without a vector to the front of the queue.
    fn put_back(&mut self, texts: Vec<(TextDigest, String)>) {
        for text in texts.into_iter().rev() {
            self.queue.push_front(text);
        }
    }

    fn forget(&mut self, texts: &[(TextDigest, String)]) {
        for (digest, _) in texts {
            self.known.remove(digest);
        }
    }
}

impl Embedder {
    /// Starts to fetch wanted vectors, unless already started. Ends with the embedder.
    pub(in crate::snapshot) fn follow(self: &Arc<Self>, context: &ServerContext) {
        let VectorSource::Service(line) = &self.source else { return };
        if line.is_followed.swap(true, Ordering::Relaxed) {
            return;
        }
        let filling = fill(Arc::downgrade(self));
        let stop = context.stop.clone();
        context.alive.spawn(async move { stop.run_until_cancelled(filling).await });
    }
}

/// Fetches vectors until nothing uses the embedder any more.
async fn fill(embedder: Weak<Embedder>) {
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let mut batch = usize::MAX;
    loop {
        let Some(embedder) = embedder.upgrade() else { return };
        let VectorSource::Service(line) = &embedder.source else { return };
        batch = batch.min(embedder.config.batch);
        let texts = line.wanted.lock().take(batch);
        let count = texts.len();
        if texts.is_empty() {
            // A configuration with another source drops the embedder: check from time to time.
            let _ = tokio::time::timeout(IDLE_LOOK, line.more.notified()).await;
            continue;
        }
        match embedder.fetch(line, texts).await {
            Ok(()) => {
                backoff.reset();
                batch = batch.saturating_mul(2);
            }
            Err(fault) if fault.is_about_texts(count) && batch > 1 => batch = batch.div_ceil(2),
            Err(_) => sleep(backoff.next_wait()).await,
        }
    }
}

impl Embedder {
    /// Fetches the vectors of a batch. A single text that the service refuses has none.
    async fn fetch(
        &self,
        line: &ServiceLine,
        texts: Vec<(TextDigest, String)>,
    ) -> Result<(), EmbeddingFault> {
        let (digests, sent): (Vec<_>, Vec<_>) = texts.into_iter().unzip();
        let asked = line.service.embed(&sent, self.config.batch_timeout).await;
        let vectors = match asked {
            Ok(vectors) => vectors,
            // A service that has never returned a vector does not refuse because of the text.
            Err(fault) if fault.is_about_texts(1) && sent.len() == 1 && self.vectors.len() > 0 => {
                tracing::warn!(%fault, "a definition has no vector: only keyword search finds it");
                vec![None]
            }
            Err(fault) => {
                if !fault.is_about_texts(sent.len()) || sent.len() == 1 {
                    line.note_fault(Some(&fault));
                }
                line.wanted.lock().put_back(digests.into_iter().zip(sent).collect());
                return Err(fault);
            }
        };
        line.note_fault(None);
        for (digest, vector) in digests.iter().zip(vectors) {
            self.vectors.keep(*digest, vector.map(Arc::new));
        }
        let texts: Vec<_> = digests.into_iter().zip(sent).collect();
        line.wanted.lock().forget(&texts);
        Ok(())
    }
}

/// Limit of the texts that wait for their vectors.
const MAX_WAITING_TEXTS: usize = 100_000;
/// Limits of the waits after a failure.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_mins(1);
/// Interval of checks of an idle embedder.
const IDLE_LOOK: Duration = Duration::from_mins(1);
