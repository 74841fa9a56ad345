//! The cost of each check, and of each kind of credential: user instructions per call of a Modern
//! client, with the checks switched on one by one, and with all of them together.

use std::path::Path;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;
use url::Url;

use crate::instructions::{Count, KEY, KEY_HASH};
use crate::plan::{BASICS, servers};
use crate::process::Process;
use crate::tokens::ProtectedMock;

/// A configuration for which the instructions of calls are counted.
struct CheckedWay {
    name: &'static str,
    /// Text of the configuration besides the servers.
    text: String,
    /// Settings of each server besides its address.
    of_servers: &'static str,
    /// The key or token of the client.
    credential: Option<String>,
}

/// Counts, and prints the table.
pub async fn count() {
    let (mock, folder) = (Process::mock(&[]), tempfile::tempdir().unwrap());
    let mut plain = None;
    println!("| check | instructions/call | to the default policy |\n|---|--:|--:|");
    for way in ways(folder.path()) {
        let own = way.count(&mock.url).await;
        let ratio = own as f64 / *plain.get_or_insert(own) as f64;
        println!("| {} | {own} | {ratio:.3} |", way.name);
    }
    let protected = ProtectedMock::start();
    let text = ["modern", "legacy"].map(|server| protected.table_for(server)).concat();
    let way = CheckedWay { name: "a token for the server", text, of_servers: "", credential: None };
    let own = way.count(&protected.mock.url).await;
    println!("| {} | {own} | {:.3} |", way.name, own as f64 / plain.unwrap_or(own) as f64);
}

/// Returns the name and the instructions of a call that passes all checks.
pub async fn count_all(mock: &Url) -> (String, u64) {
    let folder = tempfile::tempdir().unwrap();
    let all = ways(folder.path()).pop().unwrap();
    (all.name.to_owned(), all.count(mock).await)
}

impl CheckedWay {
    async fn count(&self, mock: &Url) -> u64 {
        let text = format!("{BASICS}{}{}", servers(mock, self.of_servers), self.text);
        // As behind a host name of its own: without `public_url`, the URL is read from each
        // request.
        let text = text.replacen("[gateway]\n", &format!("[gateway]\n{PUBLIC_URL}"), 1);
        let count = Count::new(&self.name.replace(' ', "-"));
        let scratch = tempfile::tempdir().unwrap();
        count.configured(scratch.path(), &text, self.credential.as_deref()).await
    }
}

fn ways(folder: &Path) -> Vec<CheckedWay> {
    let (issuer, token) = issue_token(folder);
    let pattern = "[policy.rules.all]\ntools = [\"*\"]\n";
    let condition = "[policy.rules.some]\n\
        when = \"principal.name != 'nobody' && tool.native == 'search' && size(arguments) < 100\"\n";
    let settled = "[policy.rules.some]\n\
        when = \"principal.name != 'nobody' && tool.native == 'search'\"\n";
    let one = "[policy.rules.some]\n\
        when = \"principal.name != 'nobody' && arguments.query != 'nothing'\"\n";
    let each = "[policy.rules.some]\n\
        when = \"arguments.all(name, name != 'query' || arguments[name] != 'nothing')\"\n";
    let audit = format!("[audit]\nfile = \"{}\"\n", folder.join("audit.jsonl").display());
    let key = format!("[clients.bench]\nkey = \"{KEY_HASH}\"\nrate = \"1000000/s\"\n");
    let sha256 = format!("{audit}arguments_digest = \"sha256\"\n");
    let all_settled = format!("{issuer}{settled}{audit}");
    let all_sha256 = format!("{issuer}{settled}{sha256}");
    let all = format!("{issuer}{condition}{audit}");
    let way = |name, text: &str, credential: Option<&str>| CheckedWay {
        name,
        text: text.to_owned(),
        of_servers: "",
        credential: credential.map(str::to_owned),
    };
    let of_servers = |way, of_servers| CheckedWay { of_servers, ..way };
    let of_claim =
        way("a token, and a header for the server from its claims", &issuer, Some(&token));
    vec![
        way("the default policy", "", None),
        way("an API key and its rate", &key, Some(KEY)),
        way("a token that was verified before", &issuer, Some(&token)),
        of_servers(
            way("a fixed header for the server", "", None),
            "headers = { X-Team = \"bench\" }\n",
        ),
        of_servers(of_claim, "call_headers = { X-User = \"${claim:sub}\" }\n"),
        way("a rule with a pattern", pattern, None),
        way("a rule in CEL about the caller and the tool", settled, None),
        way("a rule in CEL that counts the arguments", condition, None),
        way("a rule in CEL that reads one argument", one, None),
        way("a rule in CEL with a loop over all arguments", each, None),
        way("the audit log", &audit, None),
        way("the audit log, with SHA-256", &sha256, None),
        way(ALL_SETTLED, &all_settled, Some(&token)),
        way("the same, with SHA-256", &all_sha256, Some(&token)),
        way(ALL, &all, Some(&token)),
    ]
}

/// Returns the table of an issuer, and a token of it.
fn issue_token(folder: &Path) -> (String, String) {
    let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pair = EcdsaKeyPair::generate_pkcs8(scheme, &SystemRandom::new()).unwrap();
    let key = EncodingKey::from_ec_der(pair.as_ref());
    let mut jwk = serde_json::to_value(Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap());
    jwk.as_mut().unwrap()["kid"] = json!("bench");
    let file = folder.join("keys.json");
    std::fs::write(&file, json!({ "keys": [jwk.unwrap()] }).to_string()).unwrap();
    let mut header = Header::new(Algorithm::ES256);
    header.kid = Some("bench".into());
    let expires = jiff::Timestamp::now().as_second() + 3600;
    let claims = json!({
        "iss": ISSUER, "sub": "ann", "aud": "bench", "exp": expires, "scope": "mcp:read mcp:write",
    });
    let token = jsonwebtoken::encode(&header, &claims, &key).unwrap();
    let text = format!(
        "[issuers.bench]\nissuer = \"{ISSUER}\"\naudience = [\"bench\"]\njwks_file = \"{}\"\n",
        file.display()
    );
    (text, token)
}

/// Name of all checks together, with a rule that is settled before a call.
const ALL_SETTLED: &str =
    "token, rate, a rule in CEL about the caller and the tool, arguments and audit log";
/// Name of all checks together.
pub const ALL: &str = "token, rate, CEL rule and audit log";
const PUBLIC_URL: &str = "public_url = \"https://mcp.example.com\"\n";
const ISSUER: &str = "https://login.example.com";
