//! HTTP request of one call: the operation's plan, filled with the call's arguments.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

use trunkline_config::EmptyStrings;

use crate::operations::operation::{ApiOperation, PathPiece, climbs};
use crate::values::arguments::CallArguments;
use crate::values::parameters::{ApiParameter, ArgumentFault, EncodedPairs, ParameterPlace};
use crate::values::security::AppliedCredential;

/// A request that is ready to be sent to the operation's server.
#[derive(Debug)]
pub struct ApiRequest {
    /// Path and query below the origin of the API.
    pub target: PathAndQuery,
    /// Headers, with the credentials.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl ApiOperation {
    /// Builds the request for these raw arguments.
    ///
    /// # Errors
    /// [`ArgumentFault`] for an argument that cannot be sent.
    pub fn request(
        &self,
        raw: &[u8],
        empty_strings: EmptyStrings,
    ) -> Result<ApiRequest, ArgumentFault> {
        let mut arguments = CallArguments::read(raw)?;
        if empty_strings == EmptyStrings::Drop {
            arguments.drop_empty(&self.required_arguments());
        }
        let mut draft = RequestDraft::new();
        draft.add_parameters(&self.parameters, &arguments)?;
        // Added last, so that no argument replaces a credential.
        draft.add_credentials(&self.security.credentials);
        let RequestDraft { mut headers, query, cookies } = draft;
        if !cookies.is_empty() {
            let mut cookies = HeaderValue::from_str(&cookies.join("; "))
                .map_err(|_| ArgumentFault::Unreadable)?;
            cookies.set_sensitive(true);
            headers.insert(COOKIE, cookies);
        }
        let body = self.body.as_ref().map(|body| body.write(&arguments)).transpose()?.flatten();
        let body = match body {
            Some((media_type, bytes)) => {
                let media_type = HeaderValue::from_str(&media_type);
                headers.insert(CONTENT_TYPE, media_type.map_err(|_| ArgumentFault::Unreadable)?);
                bytes
            }
            None => Bytes::new(),
        };
        Ok(ApiRequest { target: self.target(&arguments, &query)?, headers, body })
    }

    /// Builds the path with its parameters, and the query.
    fn target(
        &self,
        arguments: &CallArguments<'_>,
        query: &EncodedPairs,
    ) -> Result<PathAndQuery, ArgumentFault> {
        let mut target = String::new();
        for piece in &self.path {
            match piece {
                PathPiece::Fixed(text) => target.push_str(text),
                PathPiece::Variable(name) => target.push_str(&self.variable(name, arguments)?),
            }
        }
        // Each value was checked separately; this checks the result together with the text around
        // it. Servers may decode `%2F` before they resolve dots.
        if climbs(target.split('?').next().unwrap_or_default()) {
            return Err(ArgumentFault::Climbing { argument: self.label.clone() });
        }
        if !query.is_empty() {
            // Some documents contain the beginning of a query in a path.
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(&query.join("&"));
        }
        target.try_into().map_err(|_| ArgumentFault::Url)
    }

    fn variable(&self, name: &str, arguments: &CallArguments<'_>) -> Result<String, ArgumentFault> {
        let is_meant = |one: &&ApiParameter| one.place == ParameterPlace::Path && one.name == name;
        let missing = || ArgumentFault::Missing { argument: name.to_owned() };
        let parameter = self.parameters.iter().find(is_meant).ok_or_else(missing)?;
        let raw = arguments
            .find(&parameter.argument)
            .ok_or_else(|| ArgumentFault::Missing { argument: parameter.argument.clone() })?;
        parameter.write_path(raw)
    }
}

/// The parts of a request besides its path and its body.
struct RequestDraft {
    headers: HeaderMap,
    query: EncodedPairs,
    cookies: EncodedPairs,
}

impl RequestDraft {
    fn new() -> Self {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(ACCEPTED_TYPES))]);
        let [query, cookies] = [(); 2].map(|()| EncodedPairs::within(MAX_PAIRS));
        Self { headers, query, cookies }
    }

    fn add_parameters(
        &mut self,
        parameters: &[ApiParameter],
        arguments: &CallArguments<'_>,
    ) -> Result<(), ArgumentFault> {
        for parameter in parameters {
            let Some(raw) = arguments.find(&parameter.argument) else { continue };
            match &parameter.place {
                ParameterPlace::Path => {}
                ParameterPlace::Query => parameter.write_pairs(raw, &mut self.query)?,
                ParameterPlace::Cookie => parameter.write_pairs(raw, &mut self.cookies)?,
                ParameterPlace::Header(name) => {
                    self.headers.insert(name.clone(), parameter.write_header(raw)?);
                }
            }
        }
        Ok(())
    }

    fn add_credentials(&mut self, credentials: &[AppliedCredential]) {
        for credential in credentials {
            match credential {
                AppliedCredential::Header(name, value) => {
                    self.headers.insert(name.clone(), value.clone());
                }
                AppliedCredential::Query(name, value) => self.query.set(name, value),
                AppliedCredential::Cookie(name, value) => self.cookies.set(name, value),
            }
        }
    }
}

/// The gateway can forward any type, but prefers JSON.
const ACCEPTED_TYPES: &str = "application/json, */*;q=0.5";
/// Maximum length in bytes of a query, and of the cookies. Servers accept no longer ones.
const MAX_PAIRS: usize = 64 * 1024;
