//! Requests signed for AWS (Signature Version 4): method, URL, headers and the body.
//!
//! The steps and their terms are those of AWS's page "Create a signed AWS API request". `aws/tests.rs`
//! has AWS's test vectors.

use std::borrow::Cow;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use data_encoding::HEXLOWER;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::form_urlencoded;

use trunkline_config::AwsConfig;
use trunkline_core::clock;
use trunkline_core::crypto::sha256;

use crate::error::{HttpError, HttpSetupFault, SignatureFault};
use crate::request::{RequestHeaders, RequestSigner, SignableRequest};

#[cfg(test)]
mod tests;

/// Signs the requests to one server.
#[derive(Debug)]
pub(crate) struct AwsSigner(AwsConfig);

impl AwsSigner {
    pub(crate) fn new(aws: &AwsConfig) -> Self {
        Self(aws.clone())
    }

    /// Returns the headers that sign a request with the given headers at the given time.
    fn sign_at(
        &self,
        now: Timestamp,
        request: &SignableRequest<'_>,
        headers: &HeaderMap,
    ) -> Result<HeaderMap, SignatureFault> {
        let body_hash = HEXLOWER.encode(&sha256(request.body));
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut added = HeaderMap::new();
        added.insert(CONTENT_HASH_HEADER, sensitive_value(&body_hash)?);
        added.insert(TIME_HEADER, sensitive_value(&time)?);
        if let Some(token) = &self.0.session_token {
            added.insert(TOKEN_HEADER, sensitive_value(token.expose())?);
        }
        let mut all = headers.clone();
        all.insert(HOST, request.host.clone());
        added.add_to(&mut all);
        // S3 takes paths as they are.
        let path = match self.0.service.as_str() {
            "s3" => Cow::Borrowed(request.uri.path()),
            _ => Cow::Owned(canonical_path(request.uri.path())),
        };
        let canonical = CanonicalRequest::new(request, &path, &all, &body_hash)?;
        added.insert(AUTHORIZATION, sensitive_value(&self.authorize(&time, &canonical))?);
        Ok(added)
    }

    /// Returns the value of `Authorization`: the scope of the key, the names of the signed headers
    /// and the signature.
    fn authorize(&self, time: &str, request: &CanonicalRequest) -> String {
        let AwsConfig { region, service, access_key_id, secret_access_key, .. } = &self.0;
        let date = time.split_once('T').map_or(time, |(date, _)| date);
        let scope = format!("{date}/{region}/{service}/{SCOPE_END}");
        let request_hash = HEXLOWER.encode(&sha256(request.text.as_bytes()));
        let text = format!("{SIGNATURE_ALGORITHM}\n{time}\n{scope}\n{request_hash}");
        let secret = format!("AWS4{}", secret_access_key.expose());
        let key = [date, region, service, SCOPE_END]
            .into_iter()
            .fold(hmac_key(secret.as_bytes()), |key, part| {
                hmac_key(hash_with(&key, part).as_ref())
            });
        let signature = HEXLOWER.encode(hash_with(&key, &text).as_ref());
        let (id, names) = (access_key_id.expose(), &request.signed_headers);
        format!(
            "{SIGNATURE_ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
    }
}

impl RequestSigner for AwsSigner {
    type Error = HttpError;

    fn sign(
        &self,
        request: &SignableRequest<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), HttpError> {
        let now = Timestamp::try_from(clock::wall_now()).map_err(|_| SignatureFault::Request);
        let signed = now.and_then(|now| self.sign_at(now, request, headers));
        signed.map_err(HttpSetupFault::Signature)?.add_to(headers);
        Ok(())
    }
}

/// The form of a request that both sides compute and whose hash is signed.
struct CanonicalRequest {
    text: String,
    /// Names of the signed headers.
    signed_headers: String,
}

impl CanonicalRequest {
    /// Creates the form of a request with its canonical path, all of its headers and the hash of its
    /// body.
    fn new(
        request: &SignableRequest<'_>,
        path: &str,
        headers: &HeaderMap,
        body_hash: &str,
    ) -> Result<Self, SignatureFault> {
        let is_signed = |name: &&HeaderName| !UNSIGNED_HEADERS.contains(&name.as_str());
        let mut names: Vec<_> = headers.keys().filter(is_signed).collect();
        names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        let query = canonical_query(request.uri.query().unwrap_or_default());
        let mut text = format!("{}\n{path}\n{query}\n", request.method);
        for name in &names {
            let values = headers.get_all(*name).iter().map(|value| canonical_value(name, value));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            text.extend([name.as_str(), ":", &values.join(","), "\n"]);
        }
        let names: Vec<_> = names.into_iter().map(HeaderName::as_str).collect();
        let signed_headers = names.join(";");
        text.extend(["\n", &signed_headers, "\n", body_hash]);
        Ok(Self { text, signed_headers })
    }
}

/// Returns the path without dot segments and empty segments (RFC 3986, 5.2.4), with each segment
/// encoded once more.
fn canonical_path(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let mut normal = String::new();
    for segment in segments {
        normal.push('/');
        normal.extend(utf8_percent_encode(segment, ENCODED_CHARACTERS));
    }
    let names_folder = path.rsplit('/').next().is_some_and(|end| ["", ".", ".."].contains(&end));
    if names_folder || normal.is_empty() {
        normal.push('/');
    }
    normal
}

/// Returns the parameters, encoded anew and then sorted.
fn canonical_query(query: &str) -> String {
    let encode = |text: &str| utf8_percent_encode(text, ENCODED_CHARACTERS).to_string();
    let mut parameters: Vec<_> = form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| (encode(&name), encode(&value)))
        .collect();
    parameters.sort_unstable();
    let parameters = parameters.into_iter().map(|(name, value)| format!("{name}={value}"));
    parameters.collect::<Vec<_>>().join("&")
}

/// Returns the value of a header without spaces around it, and with single ones within it.
fn canonical_value(name: &HeaderName, value: &HeaderValue) -> Result<String, SignatureFault> {
    let text = value.to_str().map_err(|_| SignatureFault::Header { name: name.clone() })?;
    Ok(text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
}

fn sensitive_value(text: &str) -> Result<HeaderValue, SignatureFault> {
    let mut value = HeaderValue::from_str(text).map_err(|_| SignatureFault::Request)?;
    value.set_sensitive(true);
    Ok(value)
}

fn hmac_key(bytes: &[u8]) -> hmac::Key {
    hmac::Key::new(HMAC_SHA256, bytes)
}

fn hash_with(key: &hmac::Key, text: &str) -> hmac::Tag {
    hmac::sign(key, text.as_bytes())
}

const SIGNATURE_ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The last part of the scope of a key.
const SCOPE_END: &str = "aws4_request";
const CONTENT_HASH_HEADER: &str = "x-amz-content-sha256";
const TIME_HEADER: &str = "x-amz-date";
const TOKEN_HEADER: &str = "x-amz-security-token";
/// Headers that proxies change, and the one with the signature. AWS's own SDKs do not sign them.
const UNSIGNED_HEADERS: [&str; 4] =
    ["authorization", "transfer-encoding", "user-agent", "x-amzn-trace-id"];
/// All but the unreserved characters (RFC 3986, 2.3).
const ENCODED_CHARACTERS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
