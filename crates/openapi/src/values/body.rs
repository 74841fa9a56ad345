//! Request bodies: JSON, forms, multipart with files, text and bytes.

use base64::engine::general_purpose::{GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurpose};
use base64::{Engine, alphabet};
use bytes::Bytes;
use memchr::memmem;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use serde_json::value::RawValue;

use trunkline_jsonrpc::string;
use trunkline_protocol::mcp::media_type_essence;

use super::arguments::CallArguments;
use super::parameters::{
    ArgumentFault, EncodedPairs, PairStyle, ParameterStyle, encode, list_items, plain_text,
};

/// Request body of an operation.
#[derive(Debug, Clone)]
pub(crate) struct ApiBody {
    pub(crate) format: BodyFormat,
    /// Media type, as the document writes it.
    pub(crate) media_type: String,
    pub(crate) shape: BodyShape,
    pub(crate) required: bool,
}

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `multipart/form-data`.
    Multipart,
    /// Text as it is: `text/*` and XML.
    Text,
    /// Bytes, passed in arguments as base64.
    Bytes,
}

/// Relation between a body and the tool's arguments.
#[derive(Debug, Clone)]
pub(crate) enum BodyShape {
    /// One argument is the body.
    Whole {
        /// The argument.
        argument: String,
    },
    /// Each property of the body is an argument.
    Fields(Vec<BodyField>),
}

/// A property of a body that is an argument of its own.
#[derive(Debug, Clone)]
pub(crate) struct BodyField {
    pub(crate) argument: String,
    pub(crate) name: String,
    pub(crate) required: bool,
    /// The style of a form's field, if the document names one.
    pub(crate) style: Option<PairStyle>,
    /// Content of its part in a multipart body.
    pub(crate) part: PartContent,
}

/// Content of a part of a multipart body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PartContent {
    /// The value, with this media type if the document names one.
    Value(Option<String>),
    /// A file, passed in base64, with this media type unless the argument names one.
    File(String),
}

/// The media type and the bytes of a body.
pub(crate) type WrittenBody = (String, Bytes);

impl BodyFormat {
    /// Returns the encoding of a body of this media type.
    pub(crate) fn of_media_type(media_type: &str) -> Self {
        match media_type_essence(media_type).as_str() {
            "application/json" | "*/*" | "application/*" => Self::Json,
            "application/x-www-form-urlencoded" => Self::Form,
            "multipart/form-data" => Self::Multipart,
            essence if essence.ends_with("+json") => Self::Json,
            "application/xml" | "application/yaml" => Self::Text,
            essence if essence.starts_with("text/") => Self::Text,
            essence if essence.ends_with("+xml") || essence.ends_with("+yaml") => Self::Text,
            _ => Self::Bytes,
        }
    }

    /// Returns the preference of a media type if a document offers several; lower is better. Among
    /// the JSON types, a representation of the new object precedes a list of changes to it.
    pub(crate) fn rank(self, media_type: &str) -> usize {
        match (self, media_type_essence(media_type).as_str()) {
            (Self::Json, "application/json-patch+json") => 3,
            (Self::Json, "application/json") => 0,
            (Self::Json, essence) if essence.ends_with("merge-patch+json") => 1,
            (Self::Json, _) => 2,
            (Self::Multipart, _) => 4,
            (Self::Form, _) => 5,
            (Self::Text, _) => 6,
            (Self::Bytes, _) => 7,
        }
    }
}

impl ApiBody {
    /// Writes the body from the arguments. Returns `None` if no argument belongs to it.
    ///
    /// # Errors
    /// [`ArgumentFault`].
    pub(crate) fn write(
        &self,
        arguments: &CallArguments<'_>,
    ) -> Result<Option<WrittenBody>, ArgumentFault> {
        let fields = match &self.shape {
            BodyShape::Whole { argument } => {
                let Some(raw) = self.find_in(arguments, argument) else { return Ok(None) };
                return self.write_whole(argument, raw).map(Some);
            }
            BodyShape::Fields(fields) => fields,
        };
        let given = fields.iter();
        let given: Vec<_> = given
            .filter_map(|field| Some((field, self.find_in(arguments, &field.argument)?)))
            .collect();
        if given.is_empty() && !self.required {
            return Ok(None);
        }
        Ok(Some(match self.format {
            BodyFormat::Form => {
                let mut pairs = EncodedPairs::within(MAX_FORM);
                given.iter().try_for_each(|(field, raw)| add_field(field, raw, &mut pairs))?;
                (self.media_type.clone(), pairs.join("&").into())
            }
            BodyFormat::Multipart => write_multipart(&given)?,
            _ => {
                let members = given
                    .iter()
                    .map(|(field, raw)| format!("{}:{}", string(&field.name), raw.get()));
                let members: Vec<_> = members.collect();
                (self.json_type(), format!("{{{}}}", members.join(",")).into())
            }
        }))
    }

    /// Returns the argument. It may be `null` in JSON only, where `null` often clears a value.
    fn find_in<'a>(&self, arguments: &CallArguments<'a>, name: &str) -> Option<&'a RawValue> {
        match self.format {
            BodyFormat::Json => arguments.find_or_null(name),
            _ => arguments.find(name),
        }
    }

    fn write_whole(&self, argument: &str, raw: &RawValue) -> Result<WrittenBody, ArgumentFault> {
        Ok(match self.format {
            BodyFormat::Json => (self.json_type(), Bytes::copy_from_slice(raw.get().as_bytes())),
            BodyFormat::Bytes => {
                let file = decode_file(argument, raw)?;
                // `*/*` and `image/*` cannot be sent as types.
                let media_type = if self.media_type.contains('*') {
                    file.media_type.unwrap_or_else(|| OCTET_STREAM_MEDIA_TYPE.to_owned())
                } else {
                    self.media_type.clone()
                };
                (media_type, file.bytes)
            }
            _ => {
                let is_range = self.media_type.contains('*');
                let media_type = if is_range { TEXT_MEDIA_TYPE } else { &self.media_type };
                (media_type.to_owned(), plain_text(raw).into_owned().into())
            }
        })
    }

    fn json_type(&self) -> String {
        if self.media_type.contains('*') {
            JSON_MEDIA_TYPE.to_owned()
        } else {
            self.media_type.clone()
        }
    }
}

/// Adds a form's field. Without a style, objects are written as JSON, which is their default media
/// type, and so are fields with a JSON media type.
fn add_field(
    field: &BodyField,
    raw: &RawValue,
    pairs: &mut EncodedPairs,
) -> Result<(), ArgumentFault> {
    let named = match &field.part {
        PartContent::Value(Some(media_type)) => Some(BodyFormat::of_media_type(media_type)),
        _ => None,
    };
    let is_json = raw.get().starts_with('{') || named == Some(BodyFormat::Json);
    let usual = if is_json { ParameterStyle::Json } else { ParameterStyle::Form };
    let style = field.style.unwrap_or(PairStyle { style: usual, explode: true });
    pairs.add(&field.name, raw, style, encode)
}

/// One part of a multipart body: its headers and its content.
type FormPart = (String, Bytes);

fn write_multipart(given: &[(&BodyField, &RawValue)]) -> Result<WrittenBody, ArgumentFault> {
    let mut parts = Vec::new();
    for (field, raw) in given {
        let items = if raw.get().starts_with('[') { list_items(raw) } else { vec![*raw] };
        for item in items {
            parts.push(form_part(field, item)?);
        }
    }
    // The boundary must not occur in any part's content.
    let is_free = |boundary: &String| {
        parts.iter().all(|(_, content)| memmem::find(content, boundary.as_bytes()).is_none())
    };
    let boundaries = || format!("trunkline-{:032x}", fastrand::u128(..));
    let boundary = std::iter::repeat_with(boundaries).find(is_free).unwrap_or_default();
    let mut body = Vec::new();
    for (head, content) in &parts {
        body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("multipart/form-data; boundary={boundary}"), body.into()))
}

fn form_part(field: &BodyField, raw: &RawValue) -> Result<FormPart, ArgumentFault> {
    let name = quote_name(&field.name);
    let head = format!("Content-Disposition: form-data; name=\"{name}\"");
    let media_type = match &field.part {
        PartContent::File(media_type) => media_type,
        PartContent::Value(named) => {
            let usual = raw.get().starts_with(['{', '[']).then_some(JSON_MEDIA_TYPE);
            let kind = named.as_deref().or(usual);
            let kind = kind.map_or_else(String::new, |kind| format!("\r\nContent-Type: {kind}"));
            return Ok((head + &kind, plain_text(raw).into_owned().into()));
        }
    };
    let DecodedFile { bytes, media_type: own, name: file_name } =
        decode_file(&field.argument, raw)?;
    let media_type = own.as_ref().unwrap_or(media_type);
    let file_name = match file_name {
        Some(file_name) => quote_name(&file_name),
        None => name + extension_of(media_type),
    };
    Ok((format!("{head}; filename=\"{file_name}\"\r\nContent-Type: {media_type}"), bytes))
}

/// Returns the usual extension of a file name, by which servers distinguish files.
fn extension_of(media_type: &str) -> &'static str {
    match media_type_essence(media_type).as_str() {
        "application/json" => ".json",
        "application/pdf" => ".pdf",
        "application/xml" | "text/xml" => ".xml",
        "application/zip" => ".zip",
        "audio/mpeg" => ".mp3",
        "audio/ogg" => ".ogg",
        "audio/wav" | "audio/x-wav" => ".wav",
        "audio/webm" | "video/webm" => ".webm",
        "image/gif" => ".gif",
        "image/jpeg" => ".jpg",
        "image/png" => ".png",
        "image/svg+xml" => ".svg",
        "image/webp" => ".webp",
        "text/csv" => ".csv",
        "text/html" => ".html",
        "text/markdown" => ".md",
        "text/plain" => ".txt",
        "video/mp4" => ".mp4",
        _ => "",
    }
}

/// Quotes a name in `Content-Disposition`, as browsers do (WHATWG, "multipart/form-data").
fn quote_name(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

struct DecodedFile {
    bytes: Bytes,
    media_type: Option<String>,
    name: Option<String>,
}

/// Decodes the file in an argument: base64, or a `data:` URL that names its type and perhaps its
/// name.
fn decode_file(argument: &str, raw: &RawValue) -> Result<DecodedFile, ArgumentFault> {
    let fault = || ArgumentFault::Base64 { argument: argument.to_owned() };
    let text = serde_json::from_str::<Value>(raw.get()).map_err(|_| fault())?;
    let text = text.as_str().ok_or_else(fault)?;
    let url = text.strip_prefix("data:").and_then(|url| url.split_once(";base64,"));
    let (head, encoded) = url.unwrap_or(("", text));
    let (media_type, parameters) = head.split_once(';').unwrap_or((head, ""));
    let name = parameters.split(';').find_map(|one| one.strip_prefix("name="));
    let name = name.map(|name| percent_decode_str(name).decode_utf8_lossy().into_owned());
    let encoded: String = encoded.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let decoded = STANDARD.decode(&encoded).or_else(|_| LENIENT_BASE64.decode(&encoded));
    let allowed = |c: char| c.is_ascii_alphanumeric() || "/+-.".contains(c);
    let is_type = !media_type.is_empty() && media_type.chars().all(allowed);
    let media_type = is_type.then(|| media_type.to_owned());
    Ok(DecodedFile { bytes: decoded.map_err(|_| fault())?.into(), media_type, name })
}

/// Base64 with the URL-safe alphabet, with or without padding.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const JSON_MEDIA_TYPE: &str = "application/json";
const TEXT_MEDIA_TYPE: &str = "text/plain";
/// Maximum size in bytes of a form.
const MAX_FORM: usize = 16 * 1024 * 1024;
/// Media type of bytes of unknown kind.
pub(crate) const OCTET_STREAM_MEDIA_TYPE: &str = "application/octet-stream";

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> BodyField {
        BodyField {
            argument: name.into(),
            name: name.into(),
            required: false,
            style: None,
            part: PartContent::Value(None),
        }
    }

    fn body(format: BodyFormat, media_type: &str, shape: BodyShape) -> ApiBody {
        ApiBody { format, media_type: media_type.into(), shape, required: true }
    }

    fn written(body: &ApiBody, arguments: &str) -> (String, String) {
        let arguments = CallArguments::read(arguments.as_bytes()).unwrap();
        let (media_type, bytes) = body.write(&arguments).unwrap().unwrap();
        (media_type, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn a_json_body_has_the_very_bytes_of_its_arguments() {
        let fields = BodyShape::Fields(vec![field("a"), field("b\"c")]);
        let body = body(BodyFormat::Json, "application/json", fields);
        let arguments = r#"{"b\"c":12345678901234567890123.10,"x":1,"a":{"k": "\u00e9"}}"#;
        let expected = r#"{"a":{"k": "\u00e9"},"b\"c":12345678901234567890123.10}"#;
        assert_eq!(written(&body, arguments), ("application/json".into(), expected.into()));
        assert_eq!(written(&body, "{}").1, "{}");
        assert_eq!(written(&body, r#"{"a":null}"#).1, r#"{"a":null}"#, "null clears a value");
    }

    #[test]
    fn a_form_encodes_lists_by_repeating_and_objects_as_json_unless_styled() {
        let deep = BodyField {
            style: Some(PairStyle { style: ParameterStyle::DeepObject, explode: true }),
            ..field("meta")
        };
        let fields = BodyShape::Fields(vec![field("tag"), field("o"), deep]);
        let body = body(BodyFormat::Form, "application/x-www-form-urlencoded", fields);
        let arguments = r#"{"tag":["a&b","c"],"o":{"k":1},"meta":{"x":"y z"}}"#;
        assert_eq!(
            written(&body, arguments).1,
            "tag=a%26b&tag=c&o=%7B%22k%22%3A1%7D&meta%5Bx%5D=y%20z"
        );
    }

    #[test]
    fn a_multipart_body_has_files_from_base64_and_parts_for_all_else() {
        let part = PartContent::File("image/png".into());
        let file = BodyField { part: part.clone(), ..field("pic\"x\r\n") };
        let named = BodyField { part, ..field("named") };
        let fields = BodyShape::Fields(vec![file, field("note"), field("o"), named]);
        let body = body(BodyFormat::Multipart, "multipart/form-data", fields);
        let url = "data:text/x\\r\\n;name=a%22%0D%0Ab.png;base64,aGk=";
        let arguments = format!(
            r#"{{"pic\"x\r\n":"aGVs bG8=","note":["one","two"],"o":{{"k":1}},"named":"{url}"}}"#
        );
        let arguments = arguments.as_str();
        let (media_type, text) = written(&body, arguments);
        let boundary = media_type.strip_prefix("multipart/form-data; boundary=").unwrap();
        let parts: Vec<_> = text.split(&format!("--{boundary}")).collect();
        assert_eq!(
            parts[1],
            "\r\nContent-Disposition: form-data; name=\"pic%22x%0D%0A\"; filename=\"pic%22x%0D%0A.png\"\r\nContent-Type: image/png\r\n\r\nhello\r\n"
        );
        assert!(parts[2].ends_with("name=\"note\"\r\n\r\none\r\n") && parts[3].contains("two"));
        assert!(parts[4].ends_with("Content-Type: application/json\r\n\r\n{\"k\":1}\r\n"));
        let named = "filename=\"a%22%0D%0Ab.png\"\r\nContent-Type: image/png\r\n\r\nhi\r\n";
        assert!(parts[5].ends_with(named), "{}", parts[5]);
        assert_eq!(parts[6], "--\r\n");
    }

    #[test]
    fn bytes_come_from_base64_and_text_stays_text() {
        let whole = || BodyShape::Whole { argument: "body".into() };
        let bytes = body(BodyFormat::Bytes, "image/*", whole());
        let sent = written(&bytes, r#"{"body":"data:image/gif;base64,aGk"}"#);
        assert_eq!(sent, ("image/gif".into(), "hi".into()));
        let arguments = CallArguments::read(br#"{"body":"not base64!"}"#).unwrap();
        assert!(matches!(bytes.write(&arguments), Err(ArgumentFault::Base64 { .. })));
        let text = body(BodyFormat::Text, "text/csv", whole());
        assert_eq!(written(&text, r#"{"body":"a\nb"}"#), ("text/csv".into(), "a\nb".into()));
        let any = body(BodyFormat::Text, "text/*", whole());
        assert_eq!(written(&any, r#"{"body":"a"}"#), ("text/plain".into(), "a".into()));
    }

    #[test]
    fn the_media_type_that_says_most_is_preferred() {
        for (one, other) in [
            ("application/json; charset=utf-8", "application/merge-patch+json"),
            ("application/strategic-merge-patch+json", "application/json-patch+json"),
            ("application/json-patch+json", "multipart/form-data"),
            ("application/x-www-form-urlencoded", "application/apply-patch+yaml"),
            ("text/csv", "image/png"),
        ] {
            let rank = |kind: &str| BodyFormat::of_media_type(kind).rank(kind);
            assert!(rank(one) < rank(other), "{one}");
        }
    }
}
