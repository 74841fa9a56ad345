//! Skills of a scripted server (extension `io.modelcontextprotocol/skills`).

use serde_json::{Value, json};

use super::script::{Received, Step};
use super::{Era, Upstream};

/// The text of every file of a skill.
pub const TEXT: &str = "---\nname: x\n---\n\u{feff}é \"\\\" \r\n";

impl Upstream {
    /// Offers skills by the URIs of their directories. Each has two files, one of them in its
    /// directory `parts`, and all directories can be read.
    pub fn offers_skills(&self, directories: &[&str]) -> &Self {
        let extension = json!({ "directoryRead": true });
        self.can(json!({
            "tools": {}, "resources": {},
            "extensions": { "io.modelcontextprotocol/skills": extension },
        }));
        self.lists("skills", directories.iter().map(|directory| skill(directory)));
        let modern = self.inner.era == Era::Modern;
        let known: Vec<_> = directories.iter().map(|one| (*one).to_owned()).collect();
        self.when_asked("skills/get", move |asked| {
            let uri = asked.params["uri"].as_str().unwrap();
            match known.iter().find(|one| uri.strip_suffix("/SKILL.md") == Some(one)) {
                Some(one) if modern => {
                    let entry = skill(one);
                    vec![Step::Result(
                        json!({ "skill": entry, "ttlMs": 9, "cacheScope": "public" }),
                    )]
                }
                Some(one) => vec![Step::Result(json!({ "skill": skill(one) }))],
                None => vec![refusal(asked)],
            }
        });
        self.when_asked("resources/directory/read", |asked| {
            let uri = asked.params["uri"].as_str().unwrap();
            let child = |name: &str, kind: &str| {
                json!({ "uri": format!("{uri}/{name}"), "name": name, "mimeType": kind })
            };
            let children = [child("SKILL.md", "text/markdown"), child("parts", "inode/directory")];
            vec![Step::Result(json!({ "resources": children }))]
        });
        self.when_asked("resources/read", move |asked| {
            let mut result = json!({ "contents": [
                { "uri": asked.params["uri"], "mimeType": "text/markdown", "text": TEXT },
            ] });
            if modern {
                result["ttlMs"] = json!(0);
                result["cacheScope"] = json!("private");
            }
            vec![Step::Result(result)]
        })
    }
}

/// Returns the entry of a skill in this directory.
pub fn skill(directory: &str) -> Value {
    let name = directory.rsplit('/').next().unwrap();
    let file = |path: &str| {
        json!({
            "uri": format!("{directory}/{path}"),
            "digest": format!("sha256:{}", "0a".repeat(32)),
            "size": TEXT.len(),
        })
    };
    json!({
        "uri": format!("{directory}/SKILL.md"),
        "frontmatter": { "name": name, "description": "é", "metadata": { "uri": directory } },
        "resources": [file("SKILL.md"), file("parts/a.md")],
    })
}

/// Returns the entry of a skill as clients see it.
pub fn shown(directory: &str, prefix: &str) -> Value {
    let mut entry = skill(directory);
    let put = |uri: &mut Value| *uri = json!(format!("{prefix}{}", uri.as_str().unwrap()));
    put(&mut entry["uri"]);
    entry["resources"].as_array_mut().unwrap().iter_mut().for_each(|file| put(&mut file["uri"]));
    entry
}

fn refusal(asked: &Received) -> Step {
    let message = format!("No skill is served at {}", asked.params["uri"]);
    Step::Error(json!({ "code": -32602, "message": message }))
}
