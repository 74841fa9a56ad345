//! Generated servers, names, namings, holds and rules, compared with a simple model: an element
//! that a rule denies, by any name that it ever has, is unreachable under every name, and holding
//! an element does not change the names of others.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use fastrand::Rng;
use serde_json::json;

use crate::call::NativeName;
use crate::catalog::{
    ByKind, Catalog, HeldDefinitions, HeldName, MergeSource, Naming, Rules, Scope, ServerList,
    ServerRules, ToolChange, UriMode,
};
use crate::crypto::sha256;

use super::*;

/// Decisions about elements that are compared.
const CASES: usize = 100_000;

const SERVERS: [&str; 5] = ["git", "gi", "git_", "t", "b"];
const FORMATS: [&str; 4] =
    ["{server}__{tool}", "{server}{tool}", "mcp_{server}_{tool}", "{tool}-{server}"];
const NAMINGS: [&str; 4] = ["prefix", "conflict", "first", "none"];
/// Configured names of tools.
const GIVEN: [&str; 4] = ["rm", "x", "git__x", "delete_repo"];

/// One server with everything that decides about its names.
#[derive(Debug, Clone)]
struct ModelServer {
    name: &'static str,
    /// Native names with the state of those that are held.
    tools: Vec<(String, Option<HeldName>)>,
    given: BTreeMap<String, &'static str>,
}

/// The settings of names in one world.
#[derive(Debug, Clone, Copy)]
struct ModelNaming {
    naming: &'static str,
    format: &'static str,
    is_snake: bool,
}

#[derive(Debug)]
struct DenyRule {
    patterns: Vec<String>,
    server: Option<&'static str>,
}

fn pick<T: Copy>(random: &mut Rng, all: &[T]) -> T {
    all[random.usize(..all.len())]
}

/// A native name from a small set, so that servers share some, with odd and long ones.
fn native(random: &mut Rng) -> String {
    let word = pick(random, &["x", "delete_repo", "aB", "__x", "_x", "x__x", "git__x", "tx"]);
    match random.u8(..8) {
        0 => format!("{word}.{}", pick(random, &["a", "b"])),
        1 => format!("{word} 日"),
        2 => word.repeat(70 / word.len()),
        3 => format!("{}{}", "y".repeat(60), word),
        4 => hashed("x", pick(random, &SERVERS), "x"),
        _ => word.to_owned(),
    }
}

fn servers(random: &mut Rng) -> Vec<ModelServer> {
    let mut names = SERVERS;
    random.shuffle(&mut names);
    let number = random.usize(2..=4);
    let mut all = Vec::new();
    for name in names.into_iter().take(number) {
        let natives: BTreeSet<_> = (0..random.usize(4..12)).map(|_| native(random)).collect();
        let hold = |random: &mut Rng| match random.u8(..6) {
            0 => Some(HeldName::Reserved),
            1 => Some(HeldName::Unclaimed),
            _ => None,
        };
        let tools: Vec<_> = natives.into_iter().map(|one| (one, hold(random))).collect();
        let mut given = BTreeMap::new();
        if random.u8(..4) == 0 {
            let (renamed, _) = &tools[random.usize(..tools.len())];
            given.insert(renamed.clone(), pick(random, &GIVEN));
        }
        all.push(ModelServer { name, tools, given });
    }
    all
}

impl ModelServer {
    fn rules(&self) -> ServerRules {
        let change = |name: &&'static str| {
            let name = Some(PublicName::new(name));
            ToolChange { name, ..ToolChange::default() }
        };
        let overrides = self.given.iter().map(|(native, name)| (native.clone(), change(name)));
        let held = self
            .tools
            .iter()
            .filter_map(|(native, hold)| Some(((Kind::Tools, NativeName::new(native)), (*hold)?)));
        let held: HeldDefinitions = held.collect();
        ServerRules::new(|_| true, overrides.collect()).with_held(Arc::new(held))
    }

    fn list(&self) -> ServerList {
        let raw = |native: &String| {
            let tool = json!({ "name": native, "inputSchema": { "type": "object" } });
            Bytes::from(tool.to_string())
        };
        let tools = Some(self.tools.iter().map(|(native, _)| raw(native)).collect());
        let (name, lists) = (self.server_name(), ByKind { tools, ..ByKind::default() });
        ServerList::build(name, &lists, HeaderRules::Ignore, None).0
    }

    fn server_name(&self) -> ServerName {
        ServerName::new(self.name).unwrap()
    }

    /// Returns the server without holds, and without the elements that clients never saw.
    fn released(&self) -> Self {
        let tools = self.tools.iter().filter(|(_, hold)| *hold != Some(HeldName::Unclaimed));
        let tools = tools.map(|(native, _)| (native.clone(), None)).collect();
        Self { tools, ..self.clone() }
    }
}

impl ModelNaming {
    fn settings(self) -> String {
        let case = if self.is_snake { "snake" } else { "keep" };
        let Self { naming, format, .. } = self;
        if naming == "none" {
            return format!("[gateway]\nnaming = {naming:?}\n");
        }
        format!("[gateway]\nnaming = {naming:?}\nname_format = {format:?}\nname_case = {case:?}\n")
    }

    /// Returns every name that the tool of a server may have, according to the documentation.
    fn names(self, server: &str, native: &str) -> BTreeSet<String> {
        let mut all = BTreeSet::from([native.to_owned(), format!("{server}__{native}")]);
        for (format, is_snake) in [(self.format, self.is_snake), (FORMATS[0], false)] {
            let case = |text: &str| if is_snake { snake(text) } else { text.to_owned() };
            let tool = case(native);
            let whole = format.replacen("{tool}", "\u{0}", 1);
            let whole = whole.replacen("{server}", &case(server), 1).replacen('\u{0}', &tool, 1);
            // A name without a prefix ends in a hash only if it is not a public name as it is.
            if !is_public_name(&tool) {
                all.insert(hashed(&tool, server, native));
            }
            all.insert(hashed(&whole, server, native));
            all.extend([tool, whole]);
        }
        all
    }
}

fn snake(text: &str) -> String {
    // The generated names have capitals in `aB` alone.
    let replaced = text.replace("aB", "a_b");
    let replaced = replaced.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let words: Vec<_> = replaced.split('_').filter(|word| !word.is_empty()).collect();
    words.join("_").to_ascii_lowercase()
}

fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_public_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.chars().all(is_safe)
}

fn hashed(text: &str, server: &str, native: &str) -> String {
    let safe: String = text.chars().map(|c| if is_safe(c) { c } else { '_' }).take(55).collect();
    let digest = sha256(format!("{server}\0{native}").as_bytes());
    let hash = data_encoding::BASE32_NOPAD.encode(&digest[..5]).to_lowercase();
    format!("{safe}_{hash}")
}

/// Matches a pattern, the slow and simple way.
fn matches(pattern: &[char], name: &[char]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) if matches(rest, name) => true,
        (Some(('*', _)), Some((_, name))) => matches(pattern, name),
        (Some((one, rest)), Some((c, name))) if *one == '?' || one == c => matches(rest, name),
        _ => false,
    }
}

impl DenyRule {
    /// Generates a rule about names that some tools have, or nearly have.
    fn generate(random: &mut Rng, naming: ModelNaming, servers: &[ModelServer]) -> Self {
        let mut patterns = Vec::new();
        for _ in 0..random.usize(1..4) {
            let server = &servers[random.usize(..servers.len())];
            let (native, _) = &server.tools[random.usize(..server.tools.len())];
            let names: Vec<_> = naming.names(server.name, native).into_iter().collect();
            let mut pattern: Vec<char> = names[random.usize(..names.len())].chars().collect();
            if let (0, Some(name)) = (random.u8(..4), server.given.values().next()) {
                pattern = name.chars().collect();
            }
            let at = random.usize(..pattern.len());
            match random.u8(..6) {
                0 => pattern[at] = '?',
                1 => {
                    pattern.truncate(at);
                    pattern.push('*');
                }
                2 => drop(pattern.splice(..at, ['*'])),
                _ => {}
            }
            patterns.push(pattern.into_iter().collect());
        }
        let server = (random.u8(..3) == 0).then(|| pick(random, &SERVERS));
        Self { patterns, server }
    }

    fn toml(&self, place: usize) -> String {
        let Self { patterns, server } = self;
        let server = server.map(|name| format!("servers = [{name:?}]\n")).unwrap_or_default();
        let patterns: Vec<_> = patterns.iter().map(|one| format!("{}", json!(one))).collect();
        let patterns = patterns.join(", ");
        format!("[policy.rules.r{place}]\neffect = \"deny\"\ntools = [{patterns}]\n{server}")
    }

    fn denies(&self, server: &str, names: &BTreeSet<String>) -> bool {
        let is_named = |pattern: &String| {
            let pattern: Vec<char> = pattern.chars().collect();
            names.iter().any(|name| matches(&pattern, &name.chars().collect::<Vec<_>>()))
        };
        self.server.is_none_or(|one| one == server) && self.patterns.iter().any(is_named)
    }
}

/// Returns every public name of a merged catalog, with its server and native name.
fn merged(
    naming: &Naming,
    servers: &[ModelServer],
    scope: &Scope,
) -> BTreeMap<String, (String, String)> {
    let parts: Vec<_> =
        servers.iter().map(|one| (one.server_name(), one.rules(), one.list())).collect();
    let sources: Vec<_> = parts
        .iter()
        .map(|(server, rules, list)| MergeSource { server, rules, list: Some(list) })
        .collect();
    let rules = Rules {
        naming: naming.clone(),
        uris: UriMode::Prefix,
        own_tools: Vec::new(),
        has_meta_tools: false,
    };
    let (catalog, _) = Catalog::merge(&rules, &sources, scope);
    let entries = catalog.entries().map(|entry| {
        let origin = (entry.server.to_string(), entry.native().to_string());
        (entry.public.to_string(), origin)
    });
    entries.collect()
}

/// Compares one generated world with the model; returns the number of decisions.
fn check_world(seed: u64) -> usize {
    let random = &mut Rng::with_seed(seed);
    let (naming, format) = (pick(random, &NAMINGS), pick(random, &FORMATS));
    // Without naming, format and case do not apply.
    let is_made = naming != "none";
    let format = if is_made { format } else { FORMATS[0] };
    let naming = ModelNaming { naming, format, is_snake: is_made && random.bool() };
    let servers = servers(random);
    let number = random.usize(1..4);
    let rules: Vec<_> = (0..number).map(|_| DenyRule::generate(random, naming, &servers)).collect();
    let tables = rules.iter().enumerate().map(|(place, rule)| rule.toml(place));
    let tables = tables.collect::<Vec<_>>().concat();
    let configured: String =
        SERVERS.map(|name| format!("[servers.{name}]\ncommand = \"x\"\n")).concat();
    let text = format!("{}{configured}[policy.rules.all]\n{tables}", naming.settings());
    let source =
        ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes: text.into() };
    let config = Config::read(&source, &SystemEnvironment).unwrap_or_else(|it| panic!("{it}"));
    let authorization = Authorization::compile(&config).unwrap();
    let rights = authorization.rights_of(&caller("ann", &[], &[]));
    let settings = Naming::new(&config.gateway);

    let released: Vec<_> = servers.iter().map(ModelServer::released).collect();
    let without_holds = merged(&settings, &released, &Scope::default());
    let open = merged(&settings, &servers, &Scope::default());
    let permitted =
        merged(&settings, &servers, &Scope::new([]).with_rights(Some(Arc::new(rights))));
    let context = || format!("seed {seed}: {naming:?}\n{servers:#?}\n{tables}");
    let mut decisions = 0;
    for (public, (server, native)) in &without_holds {
        let one = servers.iter().find(|one| one.name == server).unwrap();
        let (_, hold) = one.tools.iter().find(|(name, _)| name == native).unwrap();
        // A held element is absent, and no other element has its name.
        let expected = hold.is_none().then(|| (server.clone(), native.clone()));
        assert_eq!(open.get(public), expected.as_ref(), "{public}, {}", context());
        let mut names = naming.names(server, native);
        names.insert(public.clone());
        let is_denied = rules.iter().any(|rule| rule.denies(server, &names));
        let expected = expected.filter(|_| !is_denied);
        assert_eq!(permitted.get(public), expected.as_ref(), "{public}, {}", context());
        decisions += 1;
    }
    assert_eq!(open.keys().filter(|name| !without_holds.contains_key(*name)).count(), 0);
    assert_eq!(permitted.keys().filter(|name| !without_holds.contains_key(*name)).count(), 0);
    decisions
}

#[test]
fn generated_names_rules_and_holds_are_decided_as_a_simple_model_does() {
    let (mut decisions, mut seed) = (0, 0);
    while decisions < CASES {
        decisions += check_world(seed);
        seed += 1;
    }
}
