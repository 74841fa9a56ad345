//! Generated servers with rules and holds.

use std::fmt::Write as _;

use bytes::Bytes;

use super::model::{
    ServerModel, decode, fold_authority, is_canonical, is_like, is_strict_expansion,
    is_wide_expansion, may_lead_out,
};
use super::respelled::{expand, extend, pick, respell};
use super::*;
use crate::call::NativeName;
use crate::catalog::{
    ByKind, Catalog, HeldDefinitions, HeldName, MergeSource, Naming, Rules, Scope, ServerList,
    ServerOffers, ServerRules,
};
use crate::config::{Config, ConfigSource, SystemEnvironment};

/// One generated server behind the gateway, with its denied and held elements.
#[derive(Debug)]
pub(super) struct ModelWorld {
    pub(super) name: &'static str,
    pub(super) mode: UriMode,
    /// True if another server has resources, so that URIs without a prefix are ambiguous.
    pub(super) has_neighbour: bool,
    resources: Vec<ModelElement>,
    templates: Vec<ModelElement>,
    rules: String,
    has_denials: bool,
    /// Denied prefixes of URIs.
    prefixes: Vec<&'static str>,
}

/// A resource or template that the server lists.
#[derive(Debug)]
struct ModelElement {
    text: String,
    is_denied: bool,
    is_held: bool,
}

impl ModelElement {
    fn new(text: String) -> Self {
        Self { text, is_denied: false, is_held: false }
    }

    fn is_barred(&self) -> bool {
        self.is_denied || self.is_held
    }
}

const RESOURCES: [&str; 16] = [
    "file:///secret.txt",
    "file:///pub/a.txt",
    "file:///pub/My File.txt",
    "file:///pub/a%2Fb",
    "file:///pub/100%",
    "https://example.com/x",
    "https://example.com/x?q=1",
    "https://example.com/a.b/7",
    "db://Prod/7",
    "db://prod/7",
    "db://Prod/x.y",
    "docs://h/\u{e9}/x",
    "docs://h/\u{e9}/y#part",
    "docs://h/%7e/%61",
    "note:a b",
    "no uri",
];

const TEMPLATES: [&str; 14] = [
    "file:///{+path}",
    "file:///pub/{name}",
    "db://Prod/{id}",
    "DB://Prod/{id}",
    "db://{table}/{id}",
    "db://{+all}",
    "https://{+rest}",
    "https://{host}/{x}",
    "https://example.com/{x}",
    "https://example.com/a.b/{x}",
    "https://example.com/f?n={x}",
    "https://example.com/s{?q}",
    "docs://{h}/{+p}",
    "note:{x}",
];

/// Prefixes that rules deny.
const PREFIXES: [&str; 5] =
    ["file:///pub/", "db://Prod/", "https://example.com/", "docs://h/", "note:"];

impl ModelWorld {
    pub(super) fn generate(rng: &mut Rng) -> Self {
        let mut resources: Vec<ModelElement> = Vec::new();
        for _ in 0..rng.usize(1..6) {
            let base = pick(rng, &RESOURCES);
            let text = if rng.u8(..4) == 0 { respell(rng, base) } else { base.to_owned() };
            if !resources.iter().any(|one| one.text == text) {
                resources.push(ModelElement::new(text));
            }
        }
        let mut templates: Vec<ModelElement> = Vec::new();
        for _ in 0..rng.usize(..4) {
            let text = pick(rng, &TEMPLATES).to_owned();
            if !templates.iter().any(|one| one.text == text) {
                templates.push(ModelElement::new(text));
            }
        }
        let mut world = Self {
            name: pick(rng, &["t", "T-2", "files"]),
            mode: if rng.bool() { UriMode::Prefix } else { UriMode::Original },
            has_neighbour: rng.u8(..3) == 0,
            resources,
            templates,
            rules: "[policy.rules.all]\n".to_owned(),
            has_denials: false,
            prefixes: Vec::new(),
        };
        for place in 0..world.resources.len() {
            if rng.u8(..3) == 0 {
                world.bar_resource(rng, place);
            }
        }
        for place in 0..world.templates.len() {
            match rng.u8(..6) {
                0 => world.templates[place].is_held = true,
                1 => world.deny_template(place),
                _ => {}
            }
        }
        if rng.u8(..5) == 0 {
            world.deny_prefix(rng);
        }
        world
    }

    /// Denies or holds a resource, in one of the possible ways.
    fn bar_resource(&mut self, rng: &mut Rng, place: usize) {
        let (name, text) = (self.name, self.resources[place].text.clone());
        // Any other text has one spelling.
        let is_uri = text.contains(':');
        let respelled = if is_uri { respell(rng, &text) } else { text.clone() };
        let in_pattern = if rng.bool() { &respelled } else { &text };
        let in_condition = if rng.bool() { &respelled } else { &text };
        let has_wildcard = in_pattern.contains(['?', '*']);
        let condition = match rng.u8(..6) {
            0 => None,
            1 if !has_wildcard => Some(format!("resources = ['mcp://{name}/{in_pattern}']")),
            2 if !has_wildcard => Some(format!("resources = ['{in_pattern}']")),
            3 => Some(format!("when = \"item.native == '{in_condition}'\"")),
            4 => Some(format!(
                "when = \"item.name == 'mcp://{name}/{text}' || item.native == '{text}'\""
            )),
            _ => Some(format!("when = \"item.native in ['x', '{in_condition}']\"")),
        };
        match condition {
            Some(condition) => {
                self.deny(&condition);
                self.resources[place].is_denied = true;
            }
            None => self.resources[place].is_held = true,
        }
    }

    fn deny_template(&mut self, place: usize) {
        let text = self.templates[place].text.clone();
        if text.contains('?') {
            self.templates[place].is_held = true;
            return;
        }
        self.deny(&format!("resources = ['mcp://{}/{text}']", self.name));
        self.templates[place].is_denied = true;
    }

    fn deny_prefix(&mut self, rng: &mut Rng) {
        let prefix = pick(rng, &PREFIXES);
        self.deny(&match rng.u8(..3) {
            0 => format!("resources = ['mcp://{}/{prefix}*']", self.name),
            1 => format!("resources = ['{prefix}*']"),
            _ => format!("when = \"item.native.startsWith('{prefix}')\""),
        });
        self.prefixes.push(prefix);
        for one in self.resources.iter_mut().chain(&mut self.templates) {
            one.is_denied |= begins_with(&one.text, prefix);
        }
    }

    fn deny(&mut self, condition: &str) {
        let number = self.rules.lines().count();
        let _ = write!(self.rules, "[policy.rules.no{number}]\neffect = \"deny\"\n{condition}\n");
        self.has_denials = true;
    }

    /// Returns true if a rule or a hold concerns an element of the server.
    pub(super) fn is_guarded(&self) -> bool {
        self.has_denials || self.resources.iter().chain(&self.templates).any(|one| one.is_held)
    }

    pub(super) fn catalog(&self) -> Catalog {
        let (name, neighbour) =
            (ServerName::new(self.name).unwrap(), ServerName::new("near").unwrap());
        let own = list(&name, &self.resources, &self.templates);
        let near = RESOURCES[..3].iter().map(|text| ModelElement::new((*text).to_owned()));
        let near_template = [ModelElement::new("db://{table}/{id}".to_owned())];
        let near = list(&neighbour, &near.collect::<Vec<_>>(), &near_template);
        let kinds = [(Kind::Resources, &self.resources), (Kind::Templates, &self.templates)];
        let held = kinds.into_iter().flat_map(|(kind, all)| {
            let held = all.iter().filter(|one| one.is_held);
            held.map(move |one| ((kind, NativeName::new(&one.text)), HeldName::Reserved))
        });
        let held: HeldDefinitions = held.collect();
        let (server, plain) =
            (ServerRules::default().with_held(Arc::new(held)), ServerRules::default());
        let mut sources = vec![MergeSource { server: &name, rules: &server, list: Some(&own) }];
        if self.has_neighbour {
            sources.push(MergeSource { server: &neighbour, rules: &plain, list: Some(&near) });
        }
        let bytes = b"[gateway]\nnaming = \"prefix\"".to_vec();
        let source = ConfigSource { name: "gateway.toml".into(), folder: "/".into(), bytes };
        let config = Config::read(&source, &SystemEnvironment).unwrap();
        let naming = Naming::new(&config.gateway);
        let how = Rules { naming, uris: self.mode, own_tools: Vec::new(), has_meta_tools: false };
        let rights = rules(&self.rules).rights_of(&caller("ann", &[], &[]));
        let scope = Scope::new([]).with_rights(Some(Arc::new(rights)));
        Catalog::merge(&how, &sources, &scope).0
    }

    /// Returns a URI for a client to request.
    pub(super) fn request(&self, rng: &mut Rng) -> String {
        let native = match rng.u8(..4) {
            0 if !self.templates.is_empty() => {
                let template = &self.templates[rng.usize(..self.templates.len())];
                expand(rng, &template.text)
            }
            1 => pick(rng, &RESOURCES).to_owned(),
            _ => self.resources[rng.usize(..self.resources.len())].text.clone(),
        };
        let respelled = respell(rng, &native);
        if rng.u8(..6) == 0 { extend(rng, &respelled) } else { respelled }
    }

    /// Returns true if the server may serve a barred resource for a URI.
    pub(super) fn bars_resource(&self, model: ServerModel, uri: &str) -> bool {
        // A listed URI with dot segments is not a spelling of another resource: a custom server
        // does not decide.
        let is_own = |one: &&ModelElement| model != ServerModel::Rfc || !may_lead_out(&one.text);
        let mut barred = self.resources.iter().filter(|one| one.is_barred()).filter(is_own);
        barred.any(|one| model.is_resource(&one.text, uri)) || self.denies_prefix_of(uri)
    }

    /// Returns true if the server may serve a barred template for a URI.
    pub(super) fn bars_expansion(&self, model: ServerModel, uri: &str) -> bool {
        let mut barred = self.templates.iter().filter(|one| one.is_barred());
        barred.any(|one| model.is_expansion(&one.text, uri))
    }

    /// Returns the barred element that the server serves for a URI: resources come before templates.
    pub(super) fn serve_barred(&self, model: ServerModel, uri: &str) -> Option<&str> {
        let is_own = |one: &ModelElement| model != ServerModel::Rfc || !may_lead_out(&one.text);
        let is_same = |one: &&ModelElement| is_own(one) && model.is_resource(&one.text, uri);
        let (listed, barred): (Vec<_>, Vec<_>) =
            self.resources.iter().filter(is_same).partition(|one| !one.is_barred());
        let found = match (barred.first(), listed.is_empty()) {
            (Some(barred), _) => Some(*barred),
            (None, false) => None,
            (None, true) => {
                let mut templates = self.templates.iter().filter(|one| one.is_barred());
                templates.find(|one| model.is_expansion(&one.text, uri))
            }
        };
        found.map(|one| one.text.as_str())
    }

    /// Returns true if a URI begins with a denied prefix, at an official server.
    pub(super) fn denies_prefix_of(&self, uri: &str) -> bool {
        let models = [ServerModel::TypeScript, ServerModel::PythonTwo];
        let reads: Vec<_> = models.iter().filter_map(|model| model.read(uri)).collect();
        self.prefixes.iter().any(|prefix| reads.iter().any(|read| read.starts_with(prefix)))
    }

    /// Returns the listed URI that official servers read as the same, if it is the only one and
    /// nothing like it is barred.
    pub(super) fn find_listed(&self, uri: &str) -> Option<&str> {
        let is_same = |one: &&ModelElement| ServerModel::PythonOne.is_resource(&one.text, uri);
        let exact = self.resources.iter().find(|one| one.text == uri);
        let own = exact.or_else(|| self.resources.iter().find(is_same))?;
        let alike = self.resources.iter().filter(|one| is_like(&one.text, &own.text));
        let is_alone = exact.is_some() || alike.clone().count() == 1;
        let is_free = !alike.clone().any(ModelElement::is_barred)
            && !self.resources.iter().any(|one| one.is_barred() && is_like(&one.text, uri));
        let is_denied = self.prefixes.iter().any(|prefix| begins_with(&own.text, prefix));
        (is_alone && is_free && !is_denied && !may_lead_out(&own.text)).then_some(&*own.text)
    }

    /// Returns true if a listed URI, or one with a denied prefix, can be the same at some server.
    pub(super) fn is_like_listed(&self, uri: &str) -> bool {
        self.resources.iter().any(|one| is_like(&one.text, uri))
    }

    /// Returns true if some server, even an unknown one, might serve a barred element for a URI.
    pub(super) fn may_be_barred(&self, uri: &str) -> bool {
        let is_denied = self.prefixes.iter().any(|prefix| begins_with(uri, prefix));
        let mut barred = self.resources.iter().filter(|one| one.is_barred());
        is_denied || barred.any(|one| is_like(&one.text, uri)) || self.may_be_barred_expansion(uri)
    }

    /// Returns true if a held template might be expanded to a URI.
    pub(super) fn may_be_held_expansion(&self, uri: &str) -> bool {
        let mut held = self.templates.iter().filter(|one| one.is_held);
        held.any(|one| is_wide_expansion(&one.text, uri))
    }

    /// Like [`Self::may_be_barred`], for templates alone.
    pub(super) fn may_be_barred_expansion(&self, uri: &str) -> bool {
        let mut barred = self.templates.iter().filter(|one| one.is_barred());
        barred.any(|one| is_wide_expansion(&one.text, uri))
    }

    /// Returns true if a URI is an expansion of a template that clients see, in the spelling of
    /// their expansion.
    pub(super) fn shows_template_of(&self, uri: &str) -> bool {
        let mut shown = self.shown_templates().filter(|text| is_canonical_template(text));
        shown.any(|text| is_strict_expansion(text, uri))
    }

    /// Returns true if a URI can be an expansion of a template that clients may see.
    pub(super) fn may_show_template_of(&self, uri: &str) -> bool {
        self.shown_templates().any(|text| is_wide_expansion(text, uri))
    }

    /// Returns true if the server lists a URI, and some server reads another one as the same.
    pub(super) fn lists_as(&self, listed: &str, uri: &str) -> bool {
        self.resources.iter().any(|one| one.text == listed) && is_like(listed, uri)
    }

    /// Returns the templates that are not barred by another one with the same identity.
    fn shown_templates(&self) -> impl Iterator<Item = &str> {
        let folded = |text: &str| fold_authority(text);
        let barred = self.templates.iter().filter(|one| one.is_barred());
        let barred: Vec<_> = barred.map(|one| folded(&one.text)).collect();
        let texts = self.templates.iter().map(|one| one.text.as_str());
        texts.filter(move |text| !barred.contains(&folded(text)))
    }
}

/// Builds the list of a server.
fn list(name: &ServerName, resources: &[ModelElement], templates: &[ModelElement]) -> ServerList {
    let raws = |all: &[ModelElement], key: &str| {
        let raw = |one: &ModelElement| json!({ "name": "n", key: one.text }).to_string().into();
        Some(all.iter().map(raw).collect::<Vec<Bytes>>())
    };
    let lists = ByKind {
        resources: raws(resources, "uri"),
        templates: raws(templates, "uriTemplate"),
        ..ByKind::default()
    };
    let mut list = ServerList::build(name.clone(), &lists, HeaderRules::Ignore, None).0;
    list.offers = Arc::new(ServerOffers::new(&json!({ "resources": {} }), None));
    list
}

/// Returns true if a URI begins with a text in some reading.
fn begins_with(uri: &str, prefix: &str) -> bool {
    let forms = ServerModel::ALL.iter().filter_map(|model| model.read(uri));
    let prefix = fold_authority(prefix);
    let mut forms = forms.chain([decode(uri).into()]).map(|form| fold_authority(&form));
    forms.any(|form| form.starts_with(&prefix))
}

fn is_canonical_template(text: &str) -> bool {
    let plain = text.replace("{?q}", "").replace(['{', '}', '+'], "");
    is_canonical(&plain)
}
