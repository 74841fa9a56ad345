//! A service that computes vectors of texts, or misbehaves as set by a test; and the folder of a
//! model.

#[cfg(feature = "embedding-models")]
use std::collections::BTreeMap;
use std::convert::Infallible;
#[cfg(feature = "embedding-models")]
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
#[cfg(feature = "embedding-models")]
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Behaviour of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answering {
    /// A vector for each text.
    Rightly,
    /// Only this status, with the request's headers and body as its own.
    Status(u16),
    /// No response.
    Never,
    /// A missing vector.
    TooFew,
    /// Vectors of another length.
    OtherLength,
    /// Vectors, and an additional megabyte.
    TooMuch,
    /// An unrelated answer.
    Nonsense,
    /// 400 for more than one text, and for each text with this word.
    Refusing(&'static str),
}

/// A received request.
#[derive(Debug, Clone)]
pub struct Asked {
    pub headers: HeaderMap,
    pub body: Value,
}

impl Asked {
    /// Returns the texts.
    pub fn texts(&self) -> Vec<&str> {
        let texts = self.body["input"].as_array().unwrap();
        texts.iter().map(|text| text.as_str().unwrap()).collect()
    }
}

/// An embeddings service. Its vectors have a dimension for each meaning of the test's words.
pub struct VectorService {
    pub url: String,
    inner: Arc<ServiceInner>,
    _serving: JoinSet<()>,
}

struct ServiceInner {
    words: Vec<(&'static str, usize)>,
    answering: Mutex<Answering>,
    asked: Mutex<Vec<Asked>>,
}

impl VectorService {
    /// Starts a service that knows these words, each with the number of its meaning.
    pub async fn start(words: &[(&'static str, usize)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/embeddings?key=url-secret", listener.local_addr().unwrap());
        let inner = Arc::new(ServiceInner {
            words: words.to_vec(),
            answering: Mutex::new(Answering::Rightly),
            asked: Mutex::default(),
        });
        let mut serving = JoinSet::new();
        let served = Arc::clone(&inner);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let inner = Arc::clone(&served);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&inner), request));
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { url, inner, _serving: serving }
    }

    /// Returns the section of the configuration for the service.
    pub fn section(&self, lines: &str) -> String {
        let url = &self.url;
        format!("[search.embeddings]\nurl = \"{url}\"\nmodel_name = \"m-1\"\n{lines}\n")
    }

    pub fn answers(&self, answering: Answering) {
        *self.inner.answering.lock().unwrap() = answering;
    }

    /// Returns all requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.inner.asked.lock().unwrap().clone()
    }

    /// Returns all texts so far.
    pub fn texts(&self) -> Vec<String> {
        let asked = self.asked();
        asked.iter().flat_map(Asked::texts).map(str::to_owned).collect()
    }
}

impl ServiceInner {
    fn vector(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0.01; 8];
        for (word, meaning) in &self.words {
            if text.contains(word) {
                vector[*meaning] += 1.0;
            }
        }
        vector
    }
}

async fn answer(
    inner: Arc<ServiceInner>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let asked = Asked { headers: head.headers, body: serde_json::from_slice(&body).unwrap() };
    inner.asked.lock().unwrap().push(asked.clone());
    let mut vectors: Vec<_> = asked.texts().into_iter().map(|text| inner.vector(text)).collect();
    let answering = *inner.answering.lock().unwrap();
    let mut more = String::new();
    let mut status = 200;
    match answering {
        Answering::Rightly => {}
        Answering::Status(code) => {
            let echo = format!("{:?} {}", asked.headers, asked.body);
            return Ok(Response::builder().status(code).body(Full::from(echo)).unwrap());
        }
        Answering::Never => std::future::pending().await,
        Answering::TooFew => drop(vectors.pop()),
        Answering::OtherLength => vectors.iter_mut().for_each(|vector| vector.push(1.0)),
        Answering::TooMuch => more = " ".repeat(1 << 20),
        Answering::Nonsense => vectors.clear(),
        Answering::Refusing(word) => {
            let texts = asked.texts();
            if texts.len() > 1 || texts.iter().any(|text| text.contains(word)) {
                status = 400;
            }
        }
    }
    let data: Vec<_> = vectors
        .into_iter()
        .enumerate()
        .map(|(index, embedding)| json!({ "index": index, "embedding": embedding }))
        .collect();
    let body = match answering {
        Answering::Nonsense => r#"{"data":"url-secret"}"#.to_owned(),
        _ => json!({ "object": "list", "data": data }).to_string() + &more,
    };
    Ok(Response::builder().status(status).body(Full::from(body)).unwrap())
}

#[cfg(feature = "embedding-models")]
/// Writes the folder of a model that knows these words, each with the number of its meaning.
pub fn write_model(folder: &Path, words: &[(&str, usize)]) {
    std::fs::create_dir_all(folder).unwrap();
    let mut vocabulary = BTreeMap::from([("[UNK]", 0)]);
    let mut numbers = vec![0.0_f32; DIMENSIONS];
    for (place, (word, meaning)) in words.iter().enumerate() {
        vocabulary.insert(word, place + 1);
        let own = (0..DIMENSIONS).map(|place| if place == *meaning { 1.0 } else { 0.01 });
        numbers.extend(own);
    }
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": { "type": "Lowercase" }, "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
    });
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let tensor = TensorView::new(Dtype::F32, vec![words.len() + 1, DIMENSIONS], &bytes).unwrap();
    let tensors = safetensors::serialize([("embeddings", tensor)], &None).unwrap();
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.join("config.json"), r#"{"normalize":true}"#).unwrap();
    std::fs::write(folder.join("model.safetensors"), tensors).unwrap();
}

#[cfg(feature = "embedding-models")]
const DIMENSIONS: usize = 8;
