//! Overview of an API's tools, which the commands `trunkline openapi` and `trunkline check` show
//! before a gateway runs.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::catalog::{HeaderRules, Tool};
use crate::codec::file::FileReader;
use crate::config::{OpenApiConfig, ServerConfig};
use crate::upstream::{SetupFault, UpstreamError};

use super::source::DocumentLoader;
use crate::openapi::ApiDescription;

/// An API, as its document describes it.
#[derive(Debug)]
pub struct ApiSurvey {
    /// Its title.
    pub title: String,
    /// Its version.
    pub version: String,
    /// The URL that requests go to.
    pub base: String,
    /// The tools, in the order of the document.
    pub tools: Vec<SurveyedTool>,
    /// Operations that are not offered, and the reasons.
    pub left_out: Vec<(String, String)>,
    /// Security schemes that operations need and that have no value.
    pub missing_schemes: Vec<String>,
    /// Further remarks for the operator.
    pub remarks: Vec<String>,
}

/// An operation with its tool.
#[derive(Debug)]
pub struct SurveyedTool {
    /// The name of the tool.
    pub name: String,
    /// Method and path of the operation.
    pub label: String,
    /// The tool's arguments. True for each required one.
    pub arguments: Vec<(String, bool)>,
    /// Size in bytes of the tool in a list.
    pub bytes: usize,
}

/// Reads the document of an API, within the server's `start_timeout`.
///
/// # Errors
/// [`UpstreamError`] if the document cannot be read, or cannot be used.
pub async fn survey_api(
    server: &Arc<ServerConfig>,
    api: &OpenApiConfig,
) -> Result<ApiSurvey, UpstreamError> {
    let read = async {
        let loader =
            DocumentLoader::new(Arc::clone(server), api.clone(), FileReader::default()).await?;
        loader.load(None).await?.ok_or(UpstreamError::NoAnswer)
    };
    let after = server.start_timeout;
    let loaded = timeout(after, read).await.unwrap_or(Err(UpstreamError::Timeout { after }))?;
    let judged = spawn_blocking({
        let api = api.clone();
        move || survey(loaded.api, &api)
    });
    Ok(judged.await.map_err(|error| SetupFault::Task(Arc::new(error)))?)
}

fn survey(api: ApiDescription, config: &OpenApiConfig) -> ApiSurvey {
    let remarks = api.remarks(config);
    let left_out = api.left_out.iter().map(|(label, fault)| (label.clone(), fault.to_string()));
    let mut left_out: Vec<_> = left_out.collect();
    let mut tools = Vec::new();
    for (name, label, tool) in api.tools {
        // The catalog has limits of its own.
        match Tool::parse(&tool, HeaderRules::Enforce) {
            Ok(_) => {
                let (arguments, bytes) = (list_arguments(&tool), tool.len());
                tools.push(SurveyedTool { name, label, arguments, bytes });
            }
            Err(fault) => left_out.push((label, fault.to_string())),
        }
    }
    ApiSurvey {
        tools,
        title: api.title,
        version: api.version,
        base: api.base.into(),
        left_out,
        missing_schemes: api.missing_schemes.into_iter().collect(),
        remarks,
    }
}

fn list_arguments(tool: &[u8]) -> Vec<(String, bool)> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct ToolInput {
        input_schema: ListedSchema,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct ListedSchema {
        properties: Map<String, Value>,
        required: Vec<String>,
    }
    let schema = serde_json::from_slice::<ToolInput>(tool).unwrap_or_default().input_schema;
    let is_required = |name: &String| schema.required.contains(name);
    schema.properties.keys().map(|name| (name.clone(), is_required(name))).collect()
}
