//! Requests signed for AWS (Signature Version 4): method, URL, all headers and the body.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest as AwsRequest,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue};

use trunkline_config::AwsConfig;
use trunkline_core::clock;

use crate::error::{HttpError, HttpSetupFault, SignatureFault};
use crate::request::{RequestSigner, SignableRequest};

/// Signs the requests to one server.
#[derive(Debug)]
pub(crate) struct AwsSigner {
    credentials: Credentials,
    region: String,
    service: String,
}

impl AwsSigner {
    pub(crate) fn new(aws: &AwsConfig) -> Self {
        let credentials = Credentials::new(
            aws.access_key_id.expose(),
            aws.secret_access_key.expose(),
            aws.session_token.as_ref().map(|token| token.expose().to_owned()),
            None,
            "configuration",
        );
        Self { credentials, region: aws.region.clone(), service: aws.service.clone() }
    }

    /// Returns the headers that sign a request with the given headers at the given time.
    fn sign_at(
        &self,
        now: SystemTime,
        request: &SignableRequest<'_>,
        headers: &HeaderMap,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, SignatureFault> {
        let mut settings = SigningSettings::default();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        if self.service == "s3" {
            // S3 takes paths as they are.
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        }
        let identity = self.credentials.clone().into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(now)
            .settings(settings)
            .build();
        let params = params.map_err(|_| SignatureFault::Request)?.into();
        let read = |(name, value): (&HeaderName, &HeaderValue)| match value.to_str() {
            Ok(text) => Ok((name.as_str().to_owned(), text.to_owned())),
            Err(_) => Err(SignatureFault::Header { name: name.clone() }),
        };
        let host = read((&HOST, request.host))?;
        let all = headers.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let all = all.iter().chain([&host]).map(|(name, value)| (&**name, &**value));
        let (uri, body) = (request.uri.to_string(), SignableBody::Bytes(request.body));
        let signable = AwsRequest::new(request.method.as_str(), uri, all, body);
        let signed = signable.and_then(|signable| sign(signable, &params));
        let (instructions, _) = signed.map_err(|_| SignatureFault::Request)?.into_parts();
        let written = instructions.headers().map(|(name, value)| {
            let mut value = HeaderValue::from_str(value).map_err(|_| SignatureFault::Request)?;
            value.set_sensitive(true);
            let name = HeaderName::try_from(name).map_err(|_| SignatureFault::Request)?;
            Ok((name, value))
        });
        written.collect()
    }
}

impl RequestSigner for AwsSigner {
    type Error = HttpError;

    fn sign(
        &self,
        request: &SignableRequest<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), HttpError> {
        let now = SystemTime::UNIX_EPOCH + clock::unix_now();
        let signed = self.sign_at(now, request, headers);
        for (name, value) in signed.map_err(HttpSetupFault::Signature)? {
            headers.insert(name, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;
    use http::header::AUTHORIZATION;

    use super::*;

    fn signer(service: &str) -> AwsSigner {
        // The key of AWS's own examples and test suite.
        let key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let credentials = Credentials::new("AKIDEXAMPLE", key, None, None, "test");
        AwsSigner { credentials, region: "us-east-1".into(), service: service.into() }
    }

    fn signature(service: &str, signed: (&str, &str, &str), more: &[(&str, &str)]) -> String {
        let (method, uri, body) = signed;
        let (uri, method) = (uri.parse().unwrap(), method.parse().unwrap());
        let host = HeaderValue::from_static("example.amazonaws.com");
        let request =
            SignableRequest { method: &method, uri: &uri, host: &host, body: body.as_bytes() };
        let pairs =
            more.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let now = SystemTime::UNIX_EPOCH + Duration::from_mins(24_015_636);
        let headers: HeaderMap = pairs.collect();
        let signed = signer(service).sign_at(now, &request, &headers).unwrap();
        assert!(signed.iter().all(|(_, value)| value.is_sensitive()));
        let found = signed.iter().find(|(name, _)| name == AUTHORIZATION);
        found.unwrap().1.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_signature_covers_every_part_of_the_request() {
        let usual = ("POST", "https://example.amazonaws.com/mcp?a=1", "{}");
        let headers = [("content-type", "application/json"), ("mcp-method", "tools/list")];
        let whole = signature("lambda", usual, &headers);
        assert!(
            whole.starts_with(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/lambda/aws4_request, \
                 SignedHeaders=content-type;host;mcp-method;x-amz-content-sha256;x-amz-date, \
                 Signature="
            ),
            "{whole}"
        );
        let base = "https://example.amazonaws.com";
        for other in [
            signature("lambda", ("PUT", usual.1, usual.2), &headers),
            signature("lambda", ("POST", &format!("{base}/other?a=1"), usual.2), &headers),
            signature("lambda", ("POST", &format!("{base}/mcp?a=2"), usual.2), &headers),
            signature("lambda", ("POST", usual.1, "{ }"), &headers),
            signature("lambda", usual, &[headers[0], ("mcp-method", "tools/call")]),
            signature("execute-api", usual, &headers),
        ] {
            assert_ne!(other.rsplit('=').next(), whole.rsplit('=').next(), "{other}");
        }
        assert_eq!(signature("lambda", usual, &headers), whole, "and nothing else");
    }

    #[test]
    fn a_header_that_is_not_text_is_not_sent_unsigned() {
        let (uri, method) = ("https://a.test/".parse().unwrap(), Method::GET);
        let host = HeaderValue::from_static("a.test");
        let request = SignableRequest { method: &method, uri: &uri, host: &host, body: b"" };
        let value = HeaderValue::from_bytes(b"\xff").unwrap();
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-odd"), value)]);
        let fault = signer("s3").sign_at(SystemTime::UNIX_EPOCH, &request, &headers).unwrap_err();
        assert!(fault.to_string().contains("x-odd"), "{fault}");
    }
}
