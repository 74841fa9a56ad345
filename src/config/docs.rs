//! What is told about the configuration: the reference page and the JSON
//! Schema, both from the declarations that read it.

use serde_json::Value as Json;

use super::Config;
use super::setting::{Outline, Row, Section, Setting, prose};

/// The JSON Schema of `gateway.toml`, for editors. Draft 7, because that is what
/// the editors' TOML plug-ins know.
pub fn json_schema() -> Json {
    let mut schema = serde_json::json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Trunkline configuration",
    });
    if let (Json::Object(all), Json::Object(config)) = (&mut schema, Config::schema()) {
        all.extend(config);
    }
    schema
}

/// The page `docs/configuration.md`.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    for row in Config::rows() {
        if let Some(outline) = (row.outline)() {
            table(row.key, &outline, &mut page);
        }
    }
    page
}

/// One table of the file, then the tables in it.
fn table(key: &str, outline: &Outline, page: &mut String) {
    let path = format!("{key}{}", outline.suffix);
    page.extend(["\n## `[", &path, "]`\n\n", &prose(outline.about), "\n\n"]);
    page.push_str("| setting | value | default | meaning |\n|---|---|---|---|\n");
    for row in outline.rows.iter().filter(|row| !row.any) {
        page.push_str(&line(row));
    }
    for row in &outline.rows {
        if let Some(inner) = (row.outline)() {
            table(&format!("{path}.{}", row.key), &inner, page);
        }
    }
}

fn line(row: &Row) -> String {
    let default = match row.default {
        Some("{}") if (row.outline)().is_some() => "see below".into(),
        Some(default) => format!("`{default}`"),
        None if row.required => "required".into(),
        None => "–".into(),
    };
    let choices =
        (row.choices)().iter().map(|(word, meaning)| format!("`{word}`: {}", meaning.trim()));
    let choices: Vec<_> = choices.collect();
    let mut meaning = prose(row.doc);
    if !choices.is_empty() {
        meaning.extend([" ", &choices.join("; "), "."]);
    }
    format!("| `{}` | {} | {default} | {meaning} |\n", row.key, (row.word)())
}

const INTRODUCTION: &str = "\
<!-- Written by `UPDATE_DOCS=1 cargo test --lib config::`. Do not edit. -->

# Configuration

The gateway reads one file, `gateway.toml`. Every setting has a default: an empty file is a gateway
without servers. `trunkline check` tells every fault of a file at once, with its line and with what
would be right; `trunkline schema` prints the JSON Schema that lets an editor complete it (it is
also in `docs/gateway.schema.json`).

How values are written:

- **Durations** are a whole number and a unit: `\"500ms\"`, `\"30s\"`, `\"10m\"`, `\"1h\"`, `\"1d\"`; at most `\"366d\"`.
- **Sizes** are a whole number and a unit: `\"512B\"`, `\"32KiB\"`, `\"4MiB\"`, `\"1GiB\"`; at most `\"2GiB\"`.
- **Rates** are a count and a time: `\"10/s\"`, `\"100/min\"`, `\"1000/h\"`, `\"5000/d\"`. The whole count may
  come at once; it comes back evenly over the time.
- **Paths** that are relative start at the folder of the file, and so does a `command` with a `/` in it.
- **Substitution**: where the value says so, `${env:NAME}` is an environment variable and
  `${file:PATH}` a file's text without the line ends at its end. It is done once, on the value, never
  on the file's text. A plain `${` is written `$${`. What is not set or cannot be read is a fault.
- **Secrets**: the values of `headers` and `env` are never shown, in no message and no log.
- Unknown keys are faults. The file has at most 1 MiB.

";
