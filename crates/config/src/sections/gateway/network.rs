//! Kinds of network values: addresses, hosts, origins, URLs.

use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;
use ipnet::IpNet;
use serde_json::{Value as Json, json};
use url::{Host, Url};

use crate::faults::problem::SettingFault;
use crate::faults::url::UrlFault;
use crate::reader::setting::{Setting, TextSetting};
use crate::reader::{ConfigNode, ConfigReader};

impl TextSetting for SocketAddr {
    type Value = Self;
    const OFF: bool = true;
    const WORD: &'static str = "address with port";
    const RULE: &'static str = "an IP address and a port";
    const EXAMPLE: &'static str = "\"127.0.0.1:8080\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        Ok(text.parse().ok())
    }

    fn correct_text(text: &str) -> Option<String> {
        if text.parse::<u16>().is_ok() {
            return Some(format!("127.0.0.1:{text}"));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::new(address, 8080).to_string());
        }
        let (host, port) = text.rsplit_once(':')?;
        match host {
            "" | "localhost" => Some(format!("127.0.0.1:{port}")),
            "*" => Some(format!("0.0.0.0:{port}")),
            _ => None,
        }
    }
}

/// A host name, optionally with a port, in lower case.
pub(crate) struct HostSetting;

impl TextSetting for HostSetting {
    type Value = String;
    const WORD: &'static str = "host name";
    const RULE: &'static str = "a name without scheme and path";
    const EXAMPLE: &'static str = "\"mcp.example.com\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        Ok(is_host(text).then(|| text.to_ascii_lowercase()))
    }

    fn correct_text(text: &str) -> Option<String> {
        let (_, after) = text.split_once("://").unwrap_or(("", text));
        after.split(['/', '?', '#']).next().map(str::to_owned)
    }
}

/// A host that operators and their programs may name: also a block of addresses, or `*` for any.
pub(crate) struct OperatorHostSetting;

impl TextSetting for OperatorHostSetting {
    type Value = String;
    const WORD: &'static str = "host";
    const RULE: &'static str = "a name, an address, a block of addresses as `ADDRESS/BITS`, or `*`";
    const EXAMPLE: &'static str = "\"admin.example.com\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        let valid = text == "*" || is_host(text) || text.parse::<IpNet>().is_ok();
        Ok(valid.then(|| text.to_ascii_lowercase()))
    }
}

/// The value of a browser's `Origin` header: scheme, host, and a port if it is not the scheme's
/// default.
pub(crate) struct OriginSetting;

impl TextSetting for OriginSetting {
    type Value = String;
    const WORD: &'static str = "origin";
    const RULE: &'static str = "a scheme and a host, without path";
    const EXAMPLE: &'static str = "\"https://app.example.com\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        let text = text.to_ascii_lowercase();
        let Some((scheme, host)) = text.split_once("://") else { return Ok(None) };
        if !is_scheme(scheme) || !is_host(host) {
            return Ok(None);
        }
        // Only web schemes have a default port to leave out.
        let url = Url::parse(&text).ok().filter(|url| url.origin().is_tuple());
        Ok(Some(url.map_or(text, |url| url.origin().ascii_serialization())))
    }
}

/// Returns true if a text is a host, optionally with a port.
fn is_host(text: &str) -> bool {
    let plain = !text.contains(['@', '*']);
    plain && text.parse::<Authority>().is_ok_and(|authority| !authority.host().is_empty())
}

fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// The URL of an icon, or a `data:` URL with the icon itself.
pub(crate) struct IconSetting;

impl TextSetting for IconSetting {
    type Value = String;
    const WORD: &'static str = "picture";
    const RULE: &'static str = "an http(s) URL or `data:image/…`";
    const EXAMPLE: &'static str = "\"https://example.com/icon.png\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        let valid = text.starts_with("data:image/") || parse_http_url(text).is_ok();
        Ok(valid.then(|| text.to_owned()))
    }
}

impl Setting for Url {
    type Value = Self;

    fn kind_word() -> String {
        "HTTP URL, with substitution".into()
    }

    fn example_value() -> String {
        "\"https://mcp.example.com/mcp\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if node.value.as_str().is_some_and(|text| text.contains('@')) {
            // It may contain a password, which the excerpt of a fault must not show.
            reader.hidden.push(node.span.clone());
        }
        let text = node.substitute_text::<Self>(reader)?;
        // The message names only the rule: the text may contain a secret.
        parse_http_url(&text).map_err(|problem| node.report_fault(reader, problem.into())).ok()
    }

    fn json_schema() -> Json {
        json!({ "type": "string" })
    }
}

pub(crate) fn parse_http_url(text: &str) -> Result<Url, UrlFault> {
    let url = Url::parse(text)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlFault::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlFault::Credentials);
    }
    if url.fragment().is_some() { Err(UrlFault::Fragment) } else { Ok(url) }
}

/// Parses a URL that is HTTPS, or HTTP of this machine.
pub(crate) fn parse_safe_url(text: &str) -> Result<Url, UrlFault> {
    let url = parse_http_url(text)?;
    if is_safe_url(&url) { Ok(url) } else { Err(UrlFault::Unencrypted) }
}

/// Returns true if requests to an HTTP URL cannot be read on the way: it is HTTPS, or of this
/// machine.
pub fn is_safe_url(url: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && is_own_machine(url))
}

/// Returns true if other machines can reach an address.
pub(crate) fn is_reachable_by_others(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// Returns true if a URL names this machine, by `localhost` or by a loopback address.
pub fn is_own_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    }
}

impl TextSetting for IpNet {
    type Value = Self;
    const WORD: &'static str = "address range";
    const RULE: &'static str = "an IP address, or a range of them as `ADDRESS/BITS`";
    const EXAMPLE: &'static str = "\"10.1.0.0/16\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        let one = || text.parse::<IpAddr>().map(Self::from);
        Ok(text.parse().or_else(|_| one()).ok())
    }
}
