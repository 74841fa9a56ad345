//! `[search.embeddings]`: search by meaning, with a model in this process or a service.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use serde_json::{Value as Json, json};
use url::Url;

use super::events::WebhookUrl;
use crate::EmbeddingModel;
use crate::faults::embeddings::EmbeddingSettingsFault;
use crate::faults::problem::SettingFault;
use crate::reader::macros::section;
use crate::reader::setting::{Setting, TextSetting};
use crate::reader::values::numbers::CountSetting;
use crate::reader::values::units::{DurationSetting, SizeSetting};
use crate::reader::{ConfigNode, ConfigReader, ConfigTable};
use crate::source::MAX_DIMENSIONS;
use crate::source::secret::Secret;

section! {
    /// [Search by meaning](context.md#search-by-meaning) in addition to words: either by a `model`
    /// in this process, or by the service at `url`, which receives the definitions of tools and the
    /// queries of clients.
    #[derive(Debug, Clone, PartialEq)]
    pub struct EmbeddingsConfig {
        settings {
            /// The folder of a static model in the format of Model2Vec, with `tokenizer.json`,
            /// `model.safetensors` and `config.json`. It is read with the configuration; nothing
            /// leaves the process. It needs a build with the feature `embedding-models`, such as the
            /// image.
            model: Option<Arc<EmbeddingModel>> as Option<ModelFolderSetting>,
            /// The endpoint of a service with OpenAI's API for embeddings: `https`, or `http` on this
            /// machine.
            url: Option<Url> as Option<WebhookUrl>,
            /// The name of the model there. Required with `url`.
            model_name: Option<String> as Option<ModelNameSetting>,
            /// The text before each query that the model reads: many models are trained with such
            /// words, like `"search_query: "`, and others find more if a query reads like a
            /// question.
            query_prefix: Option<String> as Option<PrefixSetting>,
            /// The text before each definition, like `"search_document: "`.
            definition_prefix: Option<String> as Option<PrefixSetting>,
            /// Headers for each request to it, such as `Authorization`. Clients' credentials are
            /// never sent.
            headers: Vec<(HeaderName, Secret)> = {},
            /// The number of dimensions of its vectors. It is sent as `dimensions`, and vectors of
            /// another length are refused. By default the first answer decides.
            dimensions: Option<usize> as Option<CountSetting<1, 8192>>,
            /// The time limit for the vector of a query. A search without one uses words alone.
            timeout: Duration as DurationSetting = "2s",
            /// The time limit for a request with definitions.
            batch_timeout: Duration as DurationSetting = "30s",
            /// The most texts in one request. Each has at most 2,000 bytes after its prefix.
            batch: usize as CountSetting<1, 2048> = 64,
            /// The largest answer that is read.
            max_answer: usize as SizeSetting = "8MiB",
        }
    }
}

/// The folder of a model, which is read at once.
pub(crate) struct ModelFolderSetting;

impl Setting for ModelFolderSetting {
    type Value = Arc<EmbeddingModel>;

    fn kind_word() -> String {
        "path".into()
    }

    fn example_value() -> String {
        "\"models/potion-base-8M\"".into()
    }

    fn read_value(
        node: &ConfigNode<'_>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Arc<EmbeddingModel>> {
        let text = node.expect_plain_string::<Self>(reader)?;
        match EmbeddingModel::load(&reader.resolve_path(text), reader.surroundings) {
            Ok(model) => Some(model),
            Err(fault) => {
                node.report_fault(reader, EmbeddingSettingsFault::Model(fault).into());
                None
            }
        }
    }

    fn json_schema() -> Json {
        json!({ "type": "string" })
    }
}

/// The name of a model at a service.
pub(crate) struct ModelNameSetting;

impl TextSetting for ModelNameSetting {
    type Value = String;
    const WORD: &'static str = "name of a model";
    const RULE: &'static str = "1 to 256 characters";
    const EXAMPLE: &'static str = "\"text-embedding-3-small\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        let is_valid = (1..=256).contains(&text.len()) && !text.contains(char::is_control);
        Ok(is_valid.then(|| text.to_owned()))
    }
}

/// A text before each text that a model reads.
pub(crate) struct PrefixSetting;

impl TextSetting for PrefixSetting {
    type Value = String;
    const WORD: &'static str = "prefix";
    const RULE: &'static str = "1 to 512 bytes, without control characters but line breaks";
    const EXAMPLE: &'static str = "\"query: \"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        let is_forbidden = |letter: char| letter.is_control() && letter != '\n';
        let is_valid = (1..=512).contains(&text.len()) && !text.contains(is_forbidden);
        Ok(is_valid.then(|| text.to_owned()))
    }
}

/// Checks that there is exactly one source of vectors, and no setting of the other one.
pub(crate) fn check_embeddings(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let Some(search) = root.find_table("search") else { return };
    let Some(node) = search.find_node("embeddings") else { return };
    let Some(table) = node.as_table() else { return };
    let report =
        |node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>, problem: EmbeddingSettingsFault| {
            node.report_fault_at_key(reader, problem.into());
        };
    match (table.find_node("model"), table.find_node("url")) {
        (None, None) => report(&node, reader, EmbeddingSettingsFault::NoSource),
        (Some(_), Some(url)) => report(&url, reader, EmbeddingSettingsFault::TwoSources),
        (None, Some(url)) if table.find_node("model_name").is_none() => {
            report(&url, reader, EmbeddingSettingsFault::NoModelName);
        }
        (None, Some(_)) => {}
        (Some(_), None) => {
            for node in OF_SERVICE.into_iter().filter_map(|key| table.find_node(key)) {
                report(&node, reader, EmbeddingSettingsFault::OtherSource);
            }
        }
    }
}

/// The settings that only a service has.
const OF_SERVICE: [&str; 7] =
    ["model_name", "headers", "dimensions", "timeout", "batch_timeout", "batch", "max_answer"];

const _: () = assert!(MAX_DIMENSIONS == 8192, "as in the setting `dimensions`");

#[cfg(test)]
mod tests {
    use crate::{Config, ConfigSource, SystemEnvironment};

    fn read(lines: &str) -> Result<Config, String> {
        let bytes = format!("[search.embeddings]\n{lines}\n").into_bytes();
        let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
        Config::read(&source, &SystemEnvironment).map_err(|faults| faults.to_string())
    }

    #[test]
    fn a_service_is_named_with_its_model() {
        let config = read("url = \"https://e.example/v1\"\nmodel_name = \"m\"\ntimeout = \"1s\"");
        let embeddings = config.unwrap().search.embeddings.unwrap();
        assert_eq!(embeddings.model_name.as_deref(), Some("m"));
        assert_eq!((embeddings.timeout.as_secs(), embeddings.batch), (1, 64));
        assert!(read("url = \"http://127.0.0.1:1/v1\"\nmodel_name = \"m\"").is_ok());
    }

    #[test]
    fn each_fault_is_reported_with_its_line_and_key() {
        let service = "url = \"https://e.example/v1\"\nmodel_name = \"m\"\n";
        for (lines, place, said) in [
            ("", "1: search.embeddings", "neither `model` nor `url`"),
            ("url = \"https://e.example/v1\"", "2: search.embeddings.url", "`model_name`"),
            (
                &format!("{service}model = \"none\""),
                "4: search.embeddings.model",
                if cfg!(feature = "embedding-models") {
                    "config.json of the model cannot be read"
                } else {
                    "--features embedding-models"
                },
            ),
            (&format!("{service}model = \"none\""), "2: search.embeddings.url", "both"),
            (
                "model = \"none\"\nheaders = { a = \"b\" }",
                "3: search.embeddings.headers",
                "only for embeddings with `url`",
            ),
            ("url = \"http://e.example/v1\"\nmodel_name = \"m\"", "2:", "plain `http`"),
            (&format!("{service}dimensions = 9000"), "4: search.embeddings.dimensions", "8192"),
            (&format!("{service}batch = 0"), "4: search.embeddings.batch", "2048"),
            (&format!("{service}timeout = \"0s\""), "4: search.embeddings.timeout", "1ms"),
            ("url = \"https://e.example/v1\"\nmodel_name = \"\"", "3:", "1 to 256"),
            (&format!("{service}query_prefix = \"a\\u0000\""), "4:", "control characters"),
            (&format!("{service}definition_prefix = \"\""), "4:", "1 to 512"),
        ] {
            let fault = read(lines).unwrap_err();
            assert!(fault.contains(place) && fault.contains(said), "{lines}: {fault}");
        }
    }
}
