//! A static embedding model, in the format of Model2Vec: a folder with `tokenizer.json`,
//! `model.safetensors` and `config.json`.
//!
//! Such a model has a vector for each token, and no neural network: the vector of a text is the
//! mean of its tokens' vectors, which takes some microseconds. It is read with the configuration,
//! so that an unusable folder is a fault of the configuration.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Weak};

use model2vec_rs::model::StaticModel;
use parking_lot::Mutex;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value;

use trunkline_core::codec::file::FileError;
use trunkline_core::crypto::sha256;

use super::{Environment, MAX_DIMENSIONS};

/// A model in memory.
pub struct EmbeddingModel {
    model: StaticModel,
    /// SHA-256 of its files.
    digest: [u8; 32],
}

/// Reason why a folder is not a usable model.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddingModelFault {
    /// One of its files cannot be read.
    #[error("{file} of the model cannot be read")]
    File {
        /// The file's name.
        file: &'static str,
        /// The system's error.
        #[source]
        source: FileError,
    },
    /// The tensors cannot be read.
    #[error("model.safetensors is not a file of tensors")]
    Tensors(#[from] safetensors::SafeTensorError),
    /// There is no matrix of embeddings.
    #[error("model.safetensors has no matrix `embeddings`")]
    NoEmbeddings,
    /// The tokenizer cannot be read.
    #[error("tokenizer.json is not a tokenizer")]
    Tokenizer(#[source] serde_json::Error),
    /// A vector has more dimensions than are supported.
    #[error("its vectors have {found} dimensions, expected 1 to {most}", most = MAX_DIMENSIONS)]
    Dimensions {
        /// The number of dimensions.
        found: usize,
    },
    /// The vocabulary and the matrix do not fit together.
    #[error(
        "tokenizer.json has a token with the number {token}, but there are vectors for {rows} only"
    )]
    Vocabulary {
        /// The largest number of a token.
        token: usize,
        /// The number of tokens that have a vector.
        rows: usize,
    },
    /// The library rejects it.
    #[error("the model cannot be used")]
    Model(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl EmbeddingModelFault {
    /// The correction, as an imperative.
    pub(crate) const HELP: &str =
        "name the folder with the model's tokenizer.json, model.safetensors and config.json";
}

impl EmbeddingModel {
    /// Reads a model through the environment. Two configurations that name the same files share it.
    ///
    /// # Errors
    /// [`EmbeddingModelFault`].
    pub fn load(
        folder: &Path,
        environment: &dyn Environment,
    ) -> Result<Arc<Self>, EmbeddingModelFault> {
        let read = |file: &'static str, most: usize| {
            environment
                .model_file(&folder.join(file), most)
                .map_err(|source| EmbeddingModelFault::File { file, source })
        };
        let config = read("config.json", MAX_CONFIG_BYTES)?;
        let tokenizer = read("tokenizer.json", MAX_TOKENIZER_BYTES)?;
        let tensors = read("model.safetensors", MAX_TENSOR_BYTES)?;
        let digest = sha256(&[sha256(&config), sha256(&tokenizer), sha256(&tensors)].concat());
        let mut newest = NEWEST_MODEL.lock();
        if let Some(known) = newest.upgrade().filter(|known| known.digest == digest) {
            return Ok(known);
        }
        check_vocabulary(&tokenizer, &tensors)?;
        let model = StaticModel::from_bytes(&tokenizer, &tensors, &config, Some(true))
            .map_err(|error| EmbeddingModelFault::Model(error.into()))?
            // A quarter of the memory, and as good: vectors are compared by a byte for each dimension.
            .quantize_int8();
        let loaded = Arc::new(Self { model, digest });
        *newest = Arc::downgrade(&loaded);
        Ok(loaded)
    }

    /// The numbers of a text's vector; all are 0 if the model knows none of its words.
    pub fn embed(&self, text: &str) -> Vec<f32> {
        self.model.encode_single(text)
    }

    /// The number of dimensions of its vectors.
    pub fn dimensions(&self) -> usize {
        self.model.dim()
    }
}

/// Rejects models that would make the library panic with the first text that has a token without a
/// vector.
fn check_vocabulary(tokenizer: &[u8], tensors: &[u8]) -> Result<(), EmbeddingModelFault> {
    let tensors = SafeTensors::deserialize(tensors)?;
    let embeddings = MATRIX_NAMES.iter().find_map(|name| tensors.tensor(name).ok());
    let embeddings = embeddings.ok_or(EmbeddingModelFault::NoEmbeddings)?;
    let &[rows, dimensions] = embeddings.shape() else {
        return Err(EmbeddingModelFault::NoEmbeddings);
    };
    if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
        return Err(EmbeddingModelFault::Dimensions { found: dimensions });
    }
    let file: TokenizerFile =
        serde_json::from_slice(tokenizer).map_err(EmbeddingModelFault::Tokenizer)?;
    let token = file.largest_token();
    // Tokens beyond the mapping have the row of their own number.
    let mapping = tensors.tensor("mapping").ok();
    let (mapped, row) = mapping.map_or((0, 0), |mapping| {
        let size = if mapping.dtype() == Dtype::I64 { 8 } else { 4 };
        let rows = mapping.data().chunks_exact(size).map(read_number);
        (mapping.data().len() / size, rows.max().unwrap_or_default())
    });
    let own = if token < mapped { 0 } else { token };
    let largest = row.max(own);
    if largest >= rows {
        Err(EmbeddingModelFault::Vocabulary { token: largest, rows })
    } else {
        Ok(())
    }
}

/// A number in little-endian order; a negative one is larger than every row.
fn read_number(bytes: &[u8]) -> usize {
    let bytes = bytes.iter().rev();
    bytes.fold(0_usize, |number, byte| (number << 8) | usize::from(*byte))
}

/// The part of a tokenizer's file that numbers its tokens.
#[derive(Deserialize)]
struct TokenizerFile {
    model: TokenizerModel,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct TokenizerModel {
    /// A map from tokens to numbers, or a list of tokens.
    vocab: Value,
}

#[derive(Deserialize)]
struct AddedToken {
    id: usize,
}

impl TokenizerFile {
    fn largest_token(&self) -> usize {
        let own = match &self.model.vocab {
            Value::Object(tokens) => {
                let numbers = tokens.values().map(|number| number.as_u64().unwrap_or(u64::MAX));
                numbers.map(|number| usize::try_from(number).unwrap_or(usize::MAX)).max()
            }
            Value::Array(tokens) => tokens.len().checked_sub(1),
            _ => None,
        };
        let added = self.added_tokens.iter().map(|token| token.id);
        added.chain(own).max().unwrap_or_default()
    }
}

impl PartialEq for EmbeddingModel {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl fmt::Debug for EmbeddingModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddingModel")
            .field("dimensions", &self.dimensions())
            .finish_non_exhaustive()
    }
}

/// The model that was read last, for a reload that names the same files.
static NEWEST_MODEL: LazyLock<Mutex<Weak<EmbeddingModel>>> = LazyLock::new(Mutex::default);

/// The names that a matrix of embeddings may have.
const MATRIX_NAMES: [&str; 3] = ["embeddings", "0", "embedding.weight"];
const MAX_CONFIG_BYTES: usize = 1 << 20;
const MAX_TOKENIZER_BYTES: usize = 64 << 20;
const MAX_TENSOR_BYTES: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use safetensors::tensor::TensorView;
    use serde_json::json;
    use tempfile::TempDir;

    use trunkline_core::text::error_chain;

    use super::*;
    use crate::SystemEnvironment;

    /// A folder of a model with three tokens, of two dimensions each.
    fn folder(rows: usize, vocabulary: &Value) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let numbers = [0.0, 0.0, 1.0, 0.0, 0.0, 1.0_f32];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let bytes = &bytes[..rows * 8];
        let tensor = TensorView::new(Dtype::F32, vec![rows, 2], bytes).unwrap();
        write_tensors(&path, &[("embeddings", tensor)]);
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": { "type": "Lowercase" }, "pre_tokenizer": { "type": "Whitespace" },
            "post_processor": null, "decoder": null,
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
        });
        std::fs::write(path.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        std::fs::write(path.join("config.json"), "{}").unwrap();
        (folder, path)
    }

    fn write_tensors(folder: &Path, tensors: &[(&str, TensorView<'_>)]) {
        let tensors = tensors.iter().map(|(name, tensor)| (*name, tensor.clone()));
        let bytes = safetensors::serialize(tensors, &None).unwrap();
        std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
    }

    fn fault(folder: &Path) -> String {
        error_chain(&EmbeddingModel::load(folder, &SystemEnvironment).unwrap_err())
    }

    #[test]
    fn a_text_has_the_mean_of_its_words() {
        let (_held, path) = folder(3, &json!({ "[UNK]": 0, "one": 1, "two": 2 }));
        let model = EmbeddingModel::load(&path, &SystemEnvironment).unwrap();
        assert_eq!(model.dimensions(), 2);
        let one = model.embed("One");
        assert!((one[0] - 1.0).abs() < 0.001 && one[1] == 0.0, "{one:?}");
        let both = model.embed("one unknown two");
        assert!(both.iter().all(|number| (number - 0.707).abs() < 0.001), "{both:?}");
        assert_eq!(model.embed("nothing known"), [0.0, 0.0]);
        assert!(
            Arc::ptr_eq(&model, &EmbeddingModel::load(&path, &SystemEnvironment).unwrap()),
            "read once"
        );
    }

    #[test]
    fn files_that_are_no_model_are_refused_with_the_reason() {
        let vocabulary = json!({ "[UNK]": 0, "one": 1, "two": 2 });
        for (file, content, said) in [
            ("config.json", None, "config.json of the model cannot be read"),
            ("tokenizer.json", None, "tokenizer.json of the model cannot be read"),
            ("model.safetensors", None, "model.safetensors of the model cannot be read"),
            ("config.json", Some("{"), "the model cannot be used"),
            ("tokenizer.json", Some("[]"), "tokenizer.json is not a tokenizer"),
            ("tokenizer.json", Some(r#"{"model":{"vocab":{"a":0}}}"#), "cannot be used"),
            ("model.safetensors", Some("x"), "is not a file of tensors"),
            ("model.safetensors", Some(""), "is not a file of tensors"),
        ] {
            let (_held, path) = folder(3, &vocabulary);
            let changed = path.join(file);
            match content {
                Some(content) => std::fs::write(changed, content).unwrap(),
                None => std::fs::remove_file(changed).unwrap(),
            }
            let fault = fault(&path);
            assert!(fault.contains(said), "{file} {content:?}: {fault}");
        }
        assert!(fault(Path::new("/nowhere")).contains("config.json"));
    }

    #[test]
    fn a_token_without_a_vector_is_a_fault_before_any_text_has_it() {
        for vocabulary in
            [json!({ "[UNK]": 0, "one": 1, "two": 3 }), json!({ "[UNK]": 0, "one": 1, "two": -1 })]
        {
            let (_held, path) = folder(3, &vocabulary);
            assert!(fault(&path).contains("vectors for 3 only"), "{vocabulary}");
        }
        let (_held, path) = folder(2, &json!({ "[UNK]": 0, "one": 1, "two": 2 }));
        assert!(fault(&path).contains("number 2"), "{}", fault(&path));
        // A mapping assigns a row to each token.
        let (_held, path) = folder(2, &json!({ "[UNK]": 0, "one": 1, "two": 2 }));
        let numbers: Vec<u8> =
            [0.0, 0.0, 1.0, 0.0_f32].iter().flat_map(|it| it.to_le_bytes()).collect();
        let tensor = TensorView::new(Dtype::F32, vec![2, 2], &numbers).unwrap();
        for (rows, is_usable) in [([0_i64, 1, 1], true), ([0, 1, 2], false), ([0, 1, -1], false)] {
            let rows: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
            let mapping = TensorView::new(Dtype::I64, vec![3], &rows).unwrap();
            write_tensors(&path, &[("embeddings", tensor.clone()), ("mapping", mapping)]);
            assert_eq!(
                EmbeddingModel::load(&path, &SystemEnvironment).is_ok(),
                is_usable,
                "{rows:?}"
            );
        }
    }

    #[test]
    fn a_matrix_of_another_shape_is_refused() {
        let (_held, path) = folder(3, &json!({ "[UNK]": 0 }));
        let bytes = vec![0; 4 * (MAX_DIMENSIONS + 1)];
        for (shape, said) in [
            (vec![1, MAX_DIMENSIONS + 1], "dimensions"),
            (vec![MAX_DIMENSIONS + 1], "no matrix"),
            (vec![0, 0], "dimensions"),
        ] {
            let size: usize = shape.iter().product();
            let tensor = TensorView::new(Dtype::F32, shape, &bytes[..4 * size]).unwrap();
            write_tensors(&path, &[("embeddings", tensor)]);
            assert!(fault(&path).contains(said), "{}", fault(&path));
        }
    }
}
