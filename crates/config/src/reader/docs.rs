//! The configuration's reference page and JSON Schema, generated from the
//! declarations that also read it.

use serde_json::Value as Json;

use super::setting::{Section, SectionOutline, Setting, SettingRow, join_lines};
use crate::Config;

/// The JSON Schema of `gateway.toml`, for editors. Draft 7, because editors'
/// TOML plug-ins support that.
pub fn json_schema() -> Json {
    let mut schema = serde_json::json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Trunkline configuration",
    });
    if let (Json::Object(all), Json::Object(config)) = (&mut schema, Config::json_schema()) {
        all.extend(config);
    }
    schema
}

/// The page `docs/configuration.md`.
pub fn reference() -> String {
    let mut page = String::from(PAGE_INTRODUCTION);
    for row in Config::setting_rows() {
        if let Some(outline) = (row.outline)() {
            write_table(row.key, &outline, &mut page);
        }
    }
    page
}

/// Writes one table of the file, then its subtables.
fn write_table(key: &str, outline: &SectionOutline, page: &mut String) {
    let path = format!("{key}{}", outline.suffix);
    page.extend(["\n## `[", &path, "]`\n\n", &join_lines(outline.about), "\n\n"]);
    page.push_str("| setting | value | default | meaning |\n|---|---|---|---|\n");
    for row in outline.rows.iter().filter(|row| !row.any) {
        page.push_str(&table_line(row));
    }
    for row in &outline.rows {
        if let Some(inner) = (row.outline)() {
            write_table(&format!("{path}.{}", row.key), &inner, page);
        }
    }
}

fn table_line(row: &SettingRow) -> String {
    let default = match row.default {
        Some("{}") if (row.outline)().is_some() => "see below".into(),
        Some(default) => format!("`{default}`"),
        None if row.required => "required".into(),
        None => "–".into(),
    };
    let choices =
        (row.choices)().iter().map(|(word, meaning)| format!("`{word}`: {}", meaning.trim()));
    let choices: Vec<_> = choices.collect();
    let mut meaning = join_lines(row.doc);
    if !choices.is_empty() {
        meaning.extend([" ", &choices.join("; "), "."]);
    }
    format!("| `{}` | {} | {default} | {meaning} |\n", row.key, (row.word)())
}

const PAGE_INTRODUCTION: &str = "\
<!-- Written by `UPDATE_DOCS=1 cargo test -p trunkline-config`. Do not edit. -->

# Configuration

The gateway reads one file, `gateway.toml`. Every setting of the gateway has a default: an empty file is
a gateway without servers. `trunkline check` reports all faults of a file at once, each with its line and
the correction. `trunkline schema` prints the JSON Schema for editors, which is also in
`docs/gateway.schema.json`.

How values are written:

- **Durations** are a whole number and a unit: `\"500ms\"`, `\"30s\"`, `\"10m\"`, `\"1h\"`, `\"1d\"`; at most `\"366d\"`.
- **Sizes** are a whole number and a unit: `\"512B\"`, `\"32KiB\"`, `\"4MiB\"`, `\"1GiB\"`; at most `\"2GiB\"`.
- **Rates** and **quotas** are a count and a unit of time: `\"10/s\"`, `\"100/min\"`, `\"1000/h\"`, `\"5000/day\"`. The
  count of a rate is also the burst size; it refills evenly over the time. A quota counts in windows, which are
  the seconds, minutes, hours and days of UTC.
- **Relative paths** start at the folder of the configuration file, also for a `command` that contains a `/`.
- **Substitution**: in settings marked \"with substitution\", `${env:NAME}` is replaced by an environment
  variable, `${file:PATH}` by the text of a file, and `${command:PROGRAM ARG…}` by [the output of a
  program](credentials.md#secrets-of-programs), both without their trailing line ends. Substitution is applied once, to the parsed value and never to the file's text. A literal `${` is written `$${`. An unset variable
  or unreadable file is a fault. Files are regular files of at most 64 KiB, those of certificates and keys 4 MiB.
- **Secrets**: the values of `headers` and `env` never appear in messages or logs.
- Unknown keys are faults. The file may have at most 4 MiB.

";
