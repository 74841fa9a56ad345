//! Cache of vectors, by the digests of their texts.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::catalog::TextVector;
use crate::crypto::sha256;

/// SHA-256 of the text of a definition, as used for its vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TextDigest([u8; 32]);

impl TextDigest {
    pub(crate) fn of_text(text: &str) -> Self {
        Self(sha256(text.as_bytes()))
    }
}

/// The result for a text: its vector, or `None` if it has none.
#[derive(Debug, PartialEq)]
pub(super) struct KnownVector(pub(super) Option<Arc<TextVector>>);

/// The vectors of one model, across snapshots. Vectors in use by a view stay for as long as the
/// view. Beyond that, the most recently used ones are kept for later views, up to
/// [`MAX_VECTOR_BYTES`].
///
/// So a view's vectors do not depend on the room that is left by others.
#[derive(Debug, Default)]
pub(super) struct VectorCache(Mutex<CachedVectors>);

#[derive(Debug, Default)]
struct CachedVectors {
    vectors: HashMap<TextDigest, CachedVector>,
    /// Their approximate size, in bytes.
    held: usize,
    /// Counts the uses of all vectors.
    uses: u64,
    /// The size at which unused vectors are removed: more than [`MAX_VECTOR_BYTES`] if views use
    /// that much.
    sweep_at: usize,
}

#[derive(Debug)]
struct CachedVector {
    /// `None` for a text that has no vector.
    vector: Option<Arc<TextVector>>,
    /// The number of its last use.
    used: u64,
}

impl VectorCache {
    /// Returns the result for a text; `None` if its vector was not computed yet.
    pub(super) fn find(&self, text: &TextDigest) -> Option<KnownVector> {
        let mut cached = self.0.lock();
        cached.uses += 1;
        let uses = cached.uses;
        let found = cached.vectors.get_mut(text)?;
        found.used = uses;
        Some(KnownVector(found.vector.clone()))
    }

    /// Returns true if the result for a text is known.
    pub(super) fn has(&self, text: &TextDigest) -> bool {
        self.0.lock().vectors.contains_key(text)
    }

    /// Keeps the vector of a text.
    pub(super) fn keep(&self, text: TextDigest, vector: Option<Arc<TextVector>>) {
        self.0.lock().keep(text, vector, MAX_VECTOR_BYTES);
    }

    /// Returns the number of vectors.
    pub(super) fn len(&self) -> usize {
        self.0.lock().vectors.values().filter(|cached| cached.vector.is_some()).count()
    }
}

impl CachedVectors {
    fn keep(&mut self, text: TextDigest, vector: Option<Arc<TextVector>>, most: usize) {
        self.uses += 1;
        let added = CachedVector { vector, used: self.uses };
        self.held += added.size();
        if let Some(before) = self.vectors.insert(text, added) {
            self.held -= before.size();
        }
        if self.held > self.sweep_at.max(most) {
            self.sweep(most);
        }
    }

    /// Removes vectors that no view uses, the least recently used first, until there is room for
    /// more.
    fn sweep(&mut self, most: usize) {
        let mut unused: Vec<_> = self
            .vectors
            .iter()
            .filter(|(_, cached)| cached.is_unused())
            .map(|(text, cached)| (cached.used, *text))
            .collect();
        unused.sort_unstable_by_key(|(used, _)| *used);
        for (_, text) in unused {
            if self.held <= most / 2 {
                break;
            }
            if let Some(removed) = self.vectors.remove(&text) {
                self.held -= removed.size();
            }
        }
        // Not with every vector, if views use nearly all.
        self.sweep_at = self.held + most / 4;
    }
}

impl CachedVector {
    fn is_unused(&self) -> bool {
        self.vector.as_ref().is_none_or(|vector| Arc::strong_count(vector) == 1)
    }

    fn size(&self) -> usize {
        let vector = self.vector.as_ref().map_or(0, |vector| vector.size());
        vector + size_of::<Self>() + size_of::<TextDigest>()
    }
}

/// Limit of the bytes of vectors that no view uses.
const MAX_VECTOR_BYTES: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn vector() -> Option<Arc<TextVector>> {
        TextVector::from_numbers(&[1.0; 100]).map(Arc::new)
    }

    fn digest(number: usize) -> TextDigest {
        TextDigest::of_text(&number.to_string())
    }

    #[test]
    fn a_text_has_its_vector_from_then_on() {
        let cache = VectorCache::default();
        assert_eq!(cache.find(&digest(1)), None);
        cache.keep(digest(1), vector());
        cache.keep(digest(2), None);
        assert_eq!(cache.find(&digest(1)), Some(KnownVector(vector())));
        assert_eq!(cache.find(&digest(2)), Some(KnownVector(None)));
        assert!(cache.has(&digest(1)) && !cache.has(&digest(3)) && cache.len() == 1);
    }

    #[test]
    fn unused_vectors_are_bounded_and_used_ones_stay() {
        let mut cached = CachedVectors::default();
        let used: Vec<_> = (0..50)
            .map(|number| {
                let vector = vector();
                cached.keep(digest(number), vector.clone(), 20_000);
                vector
            })
            .collect();
        for number in 50..1000 {
            cached.keep(digest(number), vector(), 20_000);
            assert!(cached.held < 40_000, "{number}: {}", cached.held);
        }
        assert!((0..50).all(|number| cached.vectors.contains_key(&digest(number))));
        assert!(
            cached.vectors.contains_key(&digest(999)) && !cached.vectors.contains_key(&digest(60))
        );
        drop(used);
        let sizes: usize = cached.vectors.values().map(CachedVector::size).sum();
        assert_eq!(cached.held, sizes);
        cached.sweep(20_000);
        assert!(cached.held <= 10_000 && !cached.vectors.contains_key(&digest(0)));
    }
}
