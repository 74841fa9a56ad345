//! Response of the service: a vector for each text.

use serde::Deserialize;

use super::EmbeddingFault;

#[derive(Deserialize)]
struct EmbeddingList {
    data: Vec<IndexedEmbedding>,
}

#[derive(Deserialize)]
struct IndexedEmbedding {
    index: Option<usize>,
    embedding: Vec<f32>,
}

/// Returns the vectors of a response, in the order of the texts. They may arrive in any order, if
/// all of them have an `index`.
///
/// # Errors
/// [`EmbeddingFault::Malformed`], and [`EmbeddingFault::Count`] unless each text has exactly one
/// vector.
pub(super) fn read_vectors(body: &[u8], expected: usize) -> Result<Vec<Vec<f32>>, EmbeddingFault> {
    let list: EmbeddingList =
        serde_json::from_slice(body).map_err(|_| EmbeddingFault::Malformed)?;
    let found = list.data.len();
    if found != expected {
        return Err(EmbeddingFault::Count { expected, found });
    }
    let mut vectors = vec![None; expected];
    for (place, one) in list.data.into_iter().enumerate() {
        let slot = vectors.get_mut(one.index.unwrap_or(place));
        let slot = slot.filter(|slot| slot.is_none()).ok_or(EmbeddingFault::Malformed)?;
        *slot = Some(one.embedding);
    }
    Ok(vectors.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_gets_the_vector_of_its_index() {
        let body = br#"{"object":"list","data":[{"index":1,"embedding":[3]},{"index":0,"embedding":[1,2e0]}]}"#;
        assert_eq!(read_vectors(body, 2), Ok(vec![vec![1.0, 2.0], vec![3.0]]));
        let body = br#"{"data":[{"embedding":[1]},{"embedding":[2]}]}"#;
        assert_eq!(read_vectors(body, 2), Ok(vec![vec![1.0], vec![2.0]]));
    }

    #[test]
    fn an_answer_with_other_vectors_than_those_asked_for_is_refused() {
        for (body, expected) in [
            (r#"{"data":[]}"#, EmbeddingFault::Count { expected: 2, found: 0 }),
            (r#"{"data":[{"embedding":[1]}]}"#, EmbeddingFault::Count { expected: 2, found: 1 }),
            (
                r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
                EmbeddingFault::Malformed,
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1]},{"index":7,"embedding":[1]}]}"#,
                EmbeddingFault::Malformed,
            ),
            (r#"{"data":[{"embedding":["x"]},{"embedding":[1]}]}"#, EmbeddingFault::Malformed),
            (r#"{"data":"#, EmbeddingFault::Malformed),
            ("", EmbeddingFault::Malformed),
        ] {
            assert_eq!(read_vectors(body.as_bytes(), 2), Err(expected), "{body}");
        }
    }
}
