//! Servers and profiles as TOML in readable style.

use std::fmt::Write as _;

use toml_edit::{Array, InlineTable, Value};

use trunkline_core::text::escape_controls;

use crate::documents::imported::{
    ImportedPiece, ImportedProfile, ImportedServer, ImportedTarget, ImportedText, ImportedTool,
    SandboxPermissions, SettingText,
};

/// Path of the file that holds a secret, by its place in the server: `${file:PATH}`.
pub(crate) trait SecretPaths {
    /// Returns the path of the secret in the text that is used as `usage`.
    fn secret_path(&mut self, usage: &str, secret: &trunkline_config::Secret) -> String;
}

/// Renders the TOML of a server: `[servers.NAME]`, and the tables of its tools.
pub(crate) fn render_server(
    server: &ImportedServer,
    name: &str,
    secrets: &mut dyn SecretPaths,
) -> String {
    let mut lines = vec![format!("[servers.{}]", render_key(name))];
    render_target(&server.target, &mut lines, secrets);
    for (setting, value) in &server.settings {
        let value = match value {
            SettingText::Text(text) => quote_text(text),
            SettingText::Number(number) => Value::from(*number),
            SettingText::Pairs(pairs) => render_pairs(pairs, secrets),
            SettingText::Sandbox(permissions) => permissions.to_value(),
        };
        push_setting(&mut lines, setting, value);
    }
    for (setting, tools) in [("tools.allow", &server.allow), ("tools.deny", &server.deny)] {
        if !tools.is_empty() {
            push_setting(&mut lines, setting, quote_list(tools));
        }
    }
    for tool in &server.tools {
        render_tool(tool, name, &mut lines);
    }
    lines.push(String::new());
    lines.join("\n")
}

impl SandboxPermissions {
    /// Returns the value of the setting `sandbox`.
    pub fn to_value(&self) -> Value {
        if *self == Self::default() {
            return Value::from(true);
        }
        let mut table = InlineTable::new();
        for (kind, paths) in &self.paths {
            table.insert(*kind, quote_list(paths));
        }
        for grant in &self.grants {
            table.insert(*grant, Value::from(true));
        }
        Value::from(table)
    }
}

fn render_target(target: &ImportedTarget, lines: &mut Vec<String>, secrets: &mut dyn SecretPaths) {
    match target {
        ImportedTarget::Command { command, args, env, pass_env, cwd } => {
            push_setting(lines, "command", quote_text(&command.describe()));
            if !args.is_empty() {
                let args = args.iter().enumerate().map(|(at, text)| {
                    quote_text(&render_text(text, &format!("arg-{}", at + 1), secrets))
                });
                push_setting(lines, "args", args.collect::<Array>());
            }
            if !env.is_empty() {
                push_setting(lines, "env", render_pairs(env, secrets));
            }
            if !pass_env.is_empty() {
                push_setting(lines, "pass_env", quote_list(pass_env));
            }
            if let Some(cwd) = cwd {
                push_setting(lines, "cwd", quote_text(&cwd.describe()));
            }
        }
        ImportedTarget::Http { url, headers, transport } => {
            push_setting(lines, "url", quote_text(&render_text(url, "url", secrets)));
            if !headers.is_empty() {
                push_setting(lines, "headers", render_pairs(headers, secrets));
            }
            if let Some(transport) = transport {
                push_setting(lines, "transport", Value::from(*transport));
            }
        }
        ImportedTarget::OpenApi { url, headers } => {
            push_setting(lines, "kind", Value::from("openapi"));
            push_setting(lines, "url", quote_text(&render_text(url, "url", secrets)));
            if !headers.is_empty() {
                push_setting(lines, "headers", render_pairs(headers, secrets));
            }
        }
    }
}

fn render_tool(tool: &ImportedTool, server: &str, lines: &mut Vec<String>) {
    let (server, native) = (render_key(server), render_key(&tool.native));
    lines.extend([String::new(), format!("[servers.{server}.tools.{native}]")]);
    if let Some(public) = &tool.public {
        push_setting(lines, "name", quote_text(public));
    }
    if let Some(description) = &tool.description {
        push_setting(lines, "description", quote_text(description));
    }
    for (setting, text) in &tool.settings {
        push_setting(lines, setting, quote_text(text));
    }
}

/// Renders the TOML of a profile; its servers have their names in the gateway.
pub(crate) fn render_profile(profile: &ImportedProfile, name: &str) -> String {
    let mut lines = vec![format!("[profiles.{}]", render_key(name))];
    for (setting, names) in [("servers", &profile.servers), ("tools", &profile.tools)] {
        if let Some(names) = names {
            push_setting(&mut lines, setting, quote_list(names));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Renders a text as the value of a setting with substitution.
fn render_text(text: &ImportedText, usage: &str, secrets: &mut dyn SecretPaths) -> String {
    let pieces = text.0.iter().map(|piece| match piece {
        // `$${` is a literal `${`.
        ImportedPiece::Plain(text) => text.replace("${", "$${"),
        ImportedPiece::Variable(name) => format!("${{env:{name}}}"),
        ImportedPiece::File(path) => format!("${{file:{path}}}"),
        ImportedPiece::Secret(secret) => {
            format!("${{file:{}}}", secrets.secret_path(usage, secret))
        }
    });
    pieces.collect()
}

fn render_pairs(pairs: &[(String, ImportedText)], secrets: &mut dyn SecretPaths) -> Value {
    // The programs use the last of two equal names, too.
    let mut table = InlineTable::new();
    for (name, text) in pairs {
        table.insert(name, quote_text(&render_text(text, name, secrets)));
    }
    Value::from(table)
}

fn push_setting(lines: &mut Vec<String>, name: &str, value: impl Into<Value>) {
    let value = value.into().to_string();
    lines.push(format!("{name} = {}", value.trim()));
}

fn quote_list(texts: &[String]) -> Value {
    texts.iter().map(|text| quote_text(text)).collect::<Array>().into()
}

/// Quotes a text as a string on one line. Escapes line ends, so that no text looks like a setting
/// of its own, and all characters that could make a terminal or an editor show another text.
fn quote_text(text: &str) -> Value {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if is_invisible(c) => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    // The default form is equal in value, and may be on several lines.
    quoted.parse().unwrap_or_else(|_| Value::from(text))
}

/// Returns true if a character is printed as an escape.
fn is_invisible(c: char) -> bool {
    escape_controls(c.encode_utf8(&mut [0; 4])).len() > c.len_utf8()
}

/// Renders a name as a key, in quotes if required.
fn render_key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !name.is_empty() && name.bytes().all(is_bare) {
        return name.to_owned();
    }
    quote_text(name).to_string().trim().to_owned()
}

/// Returns the lines of a block as comments: without a blank after the `#`, so that removing it
/// suffices.
pub(crate) fn comment_out(block: &str) -> String {
    let lines = block.lines().map(|line| match line {
        "" => "#\n".to_owned(),
        line if line.starts_with('#') => format!("{line}\n"),
        line => format!("#{line}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoSecrets;

    impl SecretPaths for NoSecrets {
        fn secret_path(&mut self, usage: &str, _: &trunkline_config::Secret) -> String {
            panic!("{usage} is no secret")
        }
    }

    #[test]
    fn of_two_equal_names_the_last_counts_and_the_others_stay() {
        let pair = |name: &str, value: &str| {
            (name.to_owned(), ImportedText(vec![ImportedPiece::Plain(value.to_owned())]))
        };
        let pairs = [pair("A", "1"), pair("B", "2"), pair("A", "3")];
        let rendered = render_pairs(&pairs, &mut NoSecrets).to_string();
        assert_eq!(rendered.trim(), "{ A = \"3\", B = \"2\" }");
    }

    #[test]
    fn a_text_is_one_line_whatever_it_contains() {
        for text in
            ["a\n[servers.evil]\n", "\"\"\"", "'''", "\\", "\u{1b}[31m", "a\u{202e}b", "ä\u{7f}\t"]
        {
            let line = format!("x = {}", quote_text(text));
            assert!(!line.contains(['\n', '\u{1b}', '\u{202e}', '\u{7f}']), "{line}");
            let table: toml::Table = line.parse().unwrap();
            assert_eq!(table["x"].as_str(), Some(text));
            let pair = format!("{} = 1", render_key(text));
            assert!(!pair.contains(['\n', '\u{1b}', '\u{202e}', '\u{7f}']), "{pair}");
            assert!(pair.parse::<toml::Table>().unwrap().contains_key(text));
        }
    }
}
